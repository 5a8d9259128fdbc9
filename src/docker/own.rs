//! Tells from what the kernel says of this process in which container it may run.
//!
//! Only the engine's word makes a candidate a container: behind its socket may be another
//! engine than the one that runs us, and that one sees the same paths as we do, or none.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use super::inspect::{Inspect, State};

/// Characters of an id that the engine gives, in full.
const FULL_ID_CHARS: usize = 64;
/// Characters of an id that are a container's host name where none is chosen.
const SHORT_ID_CHARS: usize = 12;
/// Files that an engine mounts into each container from a directory that has its id.
const ENGINE_FILES: [&str; 3] = ["/etc/hostname", "/etc/hosts", "/etc/resolv.conf"];

/// What a process sees of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traces {
    /// Ids of containers that it may be in, the likeliest first; some are the first twelve
    /// characters alone.
    pub candidates: Vec<String>,
    /// Where something is mounted, as it sees it.
    pub mount_points: Vec<PathBuf>,
}

impl Traces {
    /// Reads `/proc/self/mountinfo`, `/proc/self/cgroup` and the host's name.
    pub fn read(mountinfo: &[u8], cgroup: &str, hostname: &str) -> Self {
        let lines: Vec<(PathBuf, PathBuf)> = mountinfo
            .split(|byte| *byte == b'\n')
            .filter_map(mount)
            .collect();
        let by_files = lines
            .iter()
            .filter(|(_, point)| ENGINE_FILES.iter().any(|file| point == Path::new(file)))
            .filter_map(|(root, _)| full_id(&root.to_string_lossy()));
        let by_group = cgroup.lines().filter_map(full_id);
        let hostname = hostname.trim();
        let by_name = is_id(hostname, SHORT_ID_CHARS).then(|| hostname.to_owned());
        let mut seen = BTreeSet::new();
        let candidates = by_files
            .chain(by_group)
            .chain(by_name)
            .filter(|id| seen.insert(id.clone()))
            .collect();
        Self {
            candidates,
            mount_points: lines.into_iter().map(|(_, point)| point).collect(),
        }
    }
}

/// Tells whether what the engine found under a candidate is the container of this process:
/// a name would find another, and one that does not run is nobody's.
pub fn is_ours(candidate: &str, found: &Inspect) -> bool {
    let runs = matches!(found.state, State::Running | State::Paused);
    runs && found.id.starts_with(candidate)
}

/// Reads the root and the mount point of a line, which write some bytes as octal numbers.
fn mount(line: &[u8]) -> Option<(PathBuf, PathBuf)> {
    let mut fields = line.split(|byte| *byte == b' ').skip(3);
    let (root, point) = (fields.next()?, fields.next()?);
    Some((path(root), path(point)))
}

fn path(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = after
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        let (byte, after) = match octal {
            Some(byte) => (byte, after.get(3..).unwrap_or_default()),
            None => (*first, after),
        };
        bytes.push(byte);
        rest = after;
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// Finds the last full id in a path: a container in a container is below the other.
fn full_id(text: &str) -> Option<String> {
    text.split(|c: char| !c.is_ascii_alphanumeric())
        .rfind(|part| is_id(part, FULL_ID_CHARS))
        .map(str::to_owned)
}

fn is_id(text: &str, chars: usize) -> bool {
    text.len() == chars && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "5fb1f0ad6e9b6fd9d4f0ae2e0e5f7b0e6a5c9e7c0d8a7b6c5d4e3f2a1b0c9d8e";

    fn mountinfo(engine_files: &str) -> String {
        format!(
            "624 520 0:52 / / rw,relatime - overlay overlay rw,lowerdir=/l\n\
             625 624 0:55 / /proc rw,nosuid - proc proc rw\n\
             640 624 254:0 /var/lib/docker/volumes/ws/_data /work\\040spaces rw - ext4 /dev/vda rw\n\
             641 624 254:0 {engine_files}/resolv.conf /etc/resolv.conf rw - ext4 /dev/vda rw\n\
             642 624 254:0 {engine_files}/hostname /etc/hostname rw - ext4 /dev/vda rw\n"
        )
    }

    fn candidates(mountinfo: &str, cgroup: &str, hostname: &str) -> Vec<String> {
        Traces::read(mountinfo.as_bytes(), cgroup, hostname).candidates
    }

    #[test]
    fn the_files_that_the_engine_mounts_tell_the_container() {
        let docker = mountinfo(&format!("/var/lib/docker/containers/{ID}"));
        assert_eq!(candidates(&docker, "0::/\n", "web"), [ID]);
        let podman = mountinfo(&format!("/containers/overlay-containers/{ID}/userdata"));
        assert_eq!(candidates(&podman, "", ""), [ID]);
    }

    #[test]
    fn the_control_group_tells_the_container_and_the_innermost_one() {
        let none = mountinfo("/srv/files");
        let outer = ID.replace('5', "0");
        for group in [
            format!("12:pids:/docker/{ID}\n0::/\n"),
            format!("0::/system.slice/docker-{ID}.scope\n"),
            format!("3:cpu:/docker/{outer}/docker/{ID}\n"),
        ] {
            assert_eq!(candidates(&none, &group, ""), [ID], "{group}");
        }
    }

    #[test]
    fn the_host_s_name_tells_the_container_where_it_is_an_id() {
        let none = mountinfo("/srv/files");
        assert_eq!(
            candidates(&none, "0::/\n", "5fb1f0ad6e9b\n"),
            ["5fb1f0ad6e9b"]
        );
        for name in ["db1", "vm", "5fb1f0ad6e9", "5FB1F0AD6E9B", ""] {
            assert_eq!(
                candidates(&none, "0::/user.slice\n", name),
                [""; 0],
                "{name}"
            );
        }
    }

    #[test]
    fn mount_points_are_read_as_they_are_named() {
        let traces = Traces::read(mountinfo("/x").as_bytes(), "", "");
        assert_eq!(traces.mount_points.len(), 5);
        assert_eq!(traces.mount_points[2], Path::new("/work spaces"));
        assert_eq!(path(b"/a\\134b\\"), Path::new("/a\\b\\"));
        assert_eq!(Traces::read(b"\nodd line\n", "", ""), Traces::default());
    }

    #[test]
    fn only_a_container_that_runs_and_has_the_id_is_ours() {
        let body = include_bytes!("../../tests/fixtures/docker/inspect-running-1.41.json");
        let mut found = Inspect::parse(body).unwrap();
        assert!(is_ours("28ea5b6f2d42", &found));
        assert!(is_ours(&found.id.clone(), &found));
        // It is found by its name as well.
        assert!(!is_ours("rec-fix-1", &found));
        found.state = State::Exited;
        assert!(!is_ours("28ea5b6f2d42", &found));
    }
}
