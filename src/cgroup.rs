//! Reads what a container uses from the host's control groups.
//!
//! Reading blocks, but for microseconds: the kernel makes these files up in memory.
//! Where the files are not to be seen (a remote or rootless engine, a runtime with
//! a kernel of its own), there is no sample, and the engine has to be asked.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::clock::Timestamp;

/// Bytes that are read of one file.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// The least number that the first hierarchy means as "no limit".
const NO_LIMIT_MIN: u64 = 1 << 62;
/// Characters of the longest container id.
const ID_CHARS_MAX: usize = 128;
/// Characters of an id that the engine gives.
const FULL_ID_CHARS: usize = 64;
/// How deep the groups are counted that a container has made within its own.
const DEPTH_MAX: usize = 8;
/// The controllers of the first hierarchy by which containers are found, the most
/// common first: a container is in each of them.
const CONTROLLERS: [&str; 6] = ["pids", "memory", "freezer", "cpuacct", "cpu", "systemd"];

/// The host's control groups.
#[derive(Clone, Debug)]
pub struct Cgroups {
    root: PathBuf,
}

/// What a container uses at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CgroupSample {
    /// Memory in use in bytes, without the inactive file cache.
    pub memory_bytes: u64,
    /// The ceiling of its memory in bytes, if it has one.
    pub memory_limit_bytes: Option<u64>,
    /// Processor time so far, in nanoseconds.
    pub cpu_ns: u64,
    /// Processes and threads, where the host counts them.
    pub pids: Option<u64>,
}

/// A reading of processor time, and when it was taken.
pub type CpuReading = (u64, Timestamp);

/// Returns the share of one processor that was used between two readings, times 100.
///
/// Two busy processors are 200. `None` if no time passed, or if the counter went
/// back because the container was started anew.
pub fn cpu_percent(before: CpuReading, after: CpuReading) -> Option<f64> {
    let used_ns = after.0.checked_sub(before.0)?;
    let passed = after.1.since(before.1);
    if passed.is_zero() {
        return None;
    }
    let used = std::time::Duration::from_nanos(used_ns);
    Some(used.as_secs_f64() / passed.as_secs_f64() * 100.0)
}

impl Default for Cgroups {
    fn default() -> Self {
        Self::new(PathBuf::from("/sys/fs/cgroup"))
    }
}

impl Cgroups {
    /// Takes the directory where control groups are mounted.
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// Samples what a container uses; `None` if its groups are not to be seen.
    ///
    /// Blocks for microseconds.
    pub fn sample(&self, container_id: &str) -> Option<CgroupSample> {
        let unified = self.is_unified();
        places(container_id)?.iter().find_map(|place| {
            if unified {
                second_hierarchy(&self.root.join(place))
            } else {
                first_hierarchy(&self.root, place)
            }
        })
    }

    /// Returns how often the kernel killed a process of a container for want of memory;
    /// `None` if that is not to be seen.
    ///
    /// Blocks for microseconds.
    pub fn oom_kills(&self, container_id: &str) -> Option<u64> {
        let file = ("memory.oom_control", "memory.events");
        self.count(container_id, "memory", file, "oom_kill")
    }

    /// Returns how often a container was refused a process at its ceiling of them; `None`
    /// if that is not to be seen.
    ///
    /// Blocks for microseconds.
    pub fn pids_refused(&self, container_id: &str) -> Option<u64> {
        self.count(container_id, "pids", ("pids.events", "pids.events"), "max")
    }

    /// Reads a count of what happened, from the file of either hierarchy.
    fn count(
        &self,
        container_id: &str,
        controller: &str,
        (first, second): (&str, &str),
        name: &str,
    ) -> Option<u64> {
        let unified = self.is_unified();
        places(container_id)?.iter().find_map(|place| {
            let path = if unified {
                self.root.join(place).join(second)
            } else {
                self.root.join(controller).join(place).join(first)
            };
            field(&path, name)
        })
    }

    fn is_unified(&self) -> bool {
        self.root.join("cgroup.controllers").exists()
    }
}

/// Returns where the groups of a container may be: the engine manages them by itself, or
/// through systemd. `None` for what is no id.
fn places(container_id: &str) -> Option<[String; 2]> {
    let plain = container_id.bytes().all(|b| b.is_ascii_alphanumeric());
    if container_id.is_empty() || !plain || ID_CHARS_MAX < container_id.len() {
        return None;
    }
    Some([
        format!("docker/{container_id}"),
        format!("system.slice/docker-{container_id}.scope"),
    ])
}

impl Cgroups {
    /// Lists the containers that have a control group here, each by the engine's id
    /// with the number of its processes.
    ///
    /// They are those of every engine of the host, also of one that lost track of
    /// them. A group may outlive its processes, and then has none. Blocks for about
    /// ten microseconds a container.
    ///
    /// # Errors
    /// No control groups are to be seen here. An empty list proves nothing where the
    /// engine keeps its groups elsewhere, as a rootless one does.
    pub fn containers(&self) -> io::Result<BTreeMap<String, usize>> {
        let root = self.containers_root()?;
        let mut found = BTreeMap::new();
        // The engine's two ways to manage groups: by itself, or through systemd.
        for (place, before, after) in [("docker", "", ""), ("system.slice", "docker-", ".scope")] {
            let entries = match fs::read_dir(root.join(place)) {
                Ok(entries) => entries,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            for entry in entries {
                let entry = entry?;
                let name = entry.file_name();
                let id = name
                    .to_str()
                    .and_then(|name| name.strip_prefix(before)?.strip_suffix(after));
                if let Some(id) = id.filter(|id| is_full_id(id)) {
                    let mut pids = Vec::new();
                    pids_of(&entry.path(), DEPTH_MAX, &mut pids)?;
                    found.insert(id.to_owned(), pids.len());
                }
            }
        }
        Ok(found)
    }

    /// Counts the processes of one container; none where its group is not there.
    ///
    /// Blocks for microseconds.
    ///
    /// # Errors
    /// No control groups are to be seen here.
    pub fn processes(&self, container_id: &str) -> io::Result<usize> {
        Ok(self.pids(container_id)?.len())
    }

    /// Kills every process that is left of a container, and returns how many still
    /// are: killing takes the kernel a moment, and what forks meanwhile is met by the
    /// next call.
    ///
    /// Each is held by a descriptor before it is looked at, so what is killed is what
    /// was seen in the container's group, however numbers are reused.
    ///
    /// # Errors
    /// The processes may not be signalled, or are not to be seen from here.
    pub fn kill(&self, container_id: &str) -> io::Result<usize> {
        for pid in self.pids(container_id)? {
            let pid = Pid::from_raw(pid).ok_or_else(|| {
                io::Error::new(
                    ErrorKind::PermissionDenied,
                    "its processes are in a namespace that cannot be seen from here",
                )
            })?;
            let process = match pidfd_open(pid, PidfdFlags::empty()) {
                Ok(process) => process,
                Err(Errno::SRCH) => continue,
                Err(error) => return Err(error.into()),
            };
            let groups = format!("/proc/{}/cgroup", pid.as_raw_nonzero());
            let is_its = text(Path::new(&groups)).is_some_and(|text| text.contains(container_id));
            if !is_its {
                continue;
            }
            match pidfd_send_signal(&process, Signal::KILL) {
                Ok(()) | Err(Errno::SRCH) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.processes(container_id)
    }

    /// Lists the processes of a container; 0 stands for one that has no number here.
    fn pids(&self, container_id: &str) -> io::Result<Vec<i32>> {
        if !is_full_id(container_id) {
            return Ok(Vec::new());
        }
        let root = self.containers_root()?;
        let mut pids = Vec::new();
        for place in [
            format!("docker/{container_id}"),
            format!("system.slice/docker-{container_id}.scope"),
        ] {
            pids_of(&root.join(place), DEPTH_MAX, &mut pids)?;
        }
        Ok(pids)
    }

    /// Returns the hierarchy in which containers are found.
    fn containers_root(&self) -> io::Result<PathBuf> {
        if self.root.join("cgroup.controllers").exists() {
            return Ok(self.root.clone());
        }
        CONTROLLERS
            .iter()
            .map(|controller| self.root.join(controller))
            .find(|root| root.join("cgroup.procs").exists())
            .ok_or_else(|| {
                let root = self.root.display();
                io::Error::new(
                    ErrorKind::NotFound,
                    format!("no control groups are mounted at {root}"),
                )
            })
    }
}

/// Whether a name is what the engine gives as an id, in full.
fn is_full_id(name: &str) -> bool {
    name.len() == FULL_ID_CHARS && name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// Lists the processes of a group and of those within it; a group that is gone by
/// now has none.
fn pids_of(group: &Path, depth_max: usize, pids: &mut Vec<i32>) -> io::Result<()> {
    let procs = match fs::read_to_string(group.join("cgroup.procs")) {
        Ok(procs) => procs,
        Err(error) if is_gone(&error) => return Ok(()),
        // A threaded group within has no list of its own: its processes are in
        // that of the group above.
        Err(error) if error.kind() == ErrorKind::Unsupported => return Ok(()),
        Err(error) => return Err(error),
    };
    pids.extend(procs.lines().filter_map(|pid| pid.parse::<i32>().ok()));
    let Some(depth_max) = depth_max.checked_sub(1) else {
        return Ok(());
    };
    let entries = match fs::read_dir(group) {
        Ok(entries) => entries,
        Err(error) if is_gone(&error) => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            pids_of(&entry.path(), depth_max, pids)?;
        }
    }
    Ok(())
}

/// Whether a group was removed while it was read.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(Errno::NODEV.raw_os_error())
}

/// One directory for a group.
fn second_hierarchy(group: &Path) -> Option<CgroupSample> {
    let usage = number(&group.join("memory.current"))?;
    let inactive = field(&group.join("memory.stat"), "inactive_file")?;
    Some(CgroupSample {
        memory_bytes: usage.saturating_sub(inactive),
        memory_limit_bytes: number(&group.join("memory.max")),
        cpu_ns: field(&group.join("cpu.stat"), "usage_usec")?.saturating_mul(1000),
        pids: number(&group.join("pids.current")),
    })
}

/// One directory for each controller of a group.
fn first_hierarchy(root: &Path, place: &str) -> Option<CgroupSample> {
    let memory = root.join("memory").join(place);
    let usage = number(&memory.join("memory.usage_in_bytes"))?;
    let inactive = field(&memory.join("memory.stat"), "total_inactive_file")?;
    let limit = number(&memory.join("memory.limit_in_bytes"));
    // Two controllers may share a mount, which has either name or both.
    let cpu_ns = ["cpuacct", "cpu,cpuacct"]
        .iter()
        .find_map(|controller| number(&root.join(controller).join(place).join("cpuacct.usage")))?;
    Some(CgroupSample {
        memory_bytes: usage.saturating_sub(inactive),
        memory_limit_bytes: limit.filter(|limit| *limit < NO_LIMIT_MIN),
        cpu_ns,
        pids: number(&root.join("pids").join(place).join("pids.current")),
    })
}

/// Reads a file of one number; `max` is none.
fn number(path: &Path) -> Option<u64> {
    text(path)?.trim().parse().ok()
}

/// Reads one field of a file of names and numbers.
fn field(path: &Path, name: &str) -> Option<u64> {
    let text = text(path)?;
    let mut pairs = text.lines().filter_map(|line| line.split_once(' '));
    let (_, value) = pairs.find(|(key, _)| *key == name)?;
    value.trim().parse().ok()
}

fn text(path: &Path) -> Option<String> {
    let mut text = String::new();
    let file = File::open(path).ok()?;
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const ID: &str = "28ea5b6f2d42bf8e869e8b2abebd12ce2ce18f0bac55eabf5bd4b6d870e27a49";

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Cgroups) {
        let directory = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = directory.path().join(path.replace("ID", ID));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let cgroups = Cgroups::new(directory.path().to_owned());
        (directory, cgroups)
    }

    fn sample() -> CgroupSample {
        CgroupSample {
            memory_bytes: 600,
            memory_limit_bytes: Some(4096),
            cpu_ns: 7_000_000,
            pids: Some(3),
        }
    }

    #[test]
    fn the_first_hierarchy_is_read_from_each_controller() {
        for (place, cpu) in [
            ("docker/ID", "cpuacct"),
            ("system.slice/docker-ID.scope", "cpu,cpuacct"),
        ] {
            let (_kept, cgroups) = tree(&[
                (&format!("memory/{place}/memory.usage_in_bytes"), "1000\n"),
                (&format!("memory/{place}/memory.limit_in_bytes"), "4096\n"),
                (
                    &format!("memory/{place}/memory.stat"),
                    "inactive_file 1\ntotal_inactive_file 400\n",
                ),
                (&format!("{cpu}/{place}/cpuacct.usage"), "7000000\n"),
                (&format!("pids/{place}/pids.current"), "3\n"),
            ]);
            assert_eq!(cgroups.sample(ID), Some(sample()));
        }
    }

    #[test]
    fn the_second_hierarchy_is_read_from_one_directory() {
        for place in ["docker/ID", "system.slice/docker-ID.scope"] {
            let (_kept, cgroups) = tree(&[
                ("cgroup.controllers", "cpu memory pids\n"),
                (&format!("{place}/memory.current"), "1000\n"),
                (&format!("{place}/memory.max"), "4096\n"),
                (
                    &format!("{place}/memory.stat"),
                    "anon 1\ninactive_file 400\n",
                ),
                (
                    &format!("{place}/cpu.stat"),
                    "usage_usec 7000\nuser_usec 1\n",
                ),
                (&format!("{place}/pids.current"), "3\n"),
            ]);
            assert_eq!(cgroups.sample(ID), Some(sample()));
        }
    }

    #[test]
    fn what_the_kernel_refused_a_container_is_counted_in_either_hierarchy() {
        for place in ["docker/ID", "system.slice/docker-ID.scope"] {
            let (_kept, cgroups) = tree(&[
                (
                    &format!("memory/{place}/memory.oom_control"),
                    "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
                ),
                (&format!("pids/{place}/pids.events"), "max 17\n"),
            ]);
            assert_eq!(cgroups.oom_kills(ID), Some(3));
            assert_eq!(cgroups.pids_refused(ID), Some(17));
            let (_kept, cgroups) = tree(&[
                ("cgroup.controllers", "cpu memory pids\n"),
                (
                    &format!("{place}/memory.events"),
                    "low 0\nhigh 0\nmax 9\noom 4\noom_kill 3\noom_group_kill 0\n",
                ),
                (&format!("{place}/pids.events"), "max 17\n"),
            ]);
            assert_eq!(cgroups.oom_kills(ID), Some(3));
            assert_eq!(cgroups.pids_refused(ID), Some(17));
        }
        let (_kept, cgroups) = tree(&[("memory/docker/ID/memory.oom_control", "under_oom 0\n")]);
        assert_eq!(
            cgroups.oom_kills(ID),
            None,
            "an older kernel does not count"
        );
        assert_eq!(cgroups.pids_refused(ID), None);
        assert_eq!(cgroups.oom_kills("../../secret"), None);
    }

    #[test]
    fn a_group_without_a_ceiling_has_none() {
        let (_kept, cgroups) = tree(&[
            ("memory/docker/ID/memory.usage_in_bytes", "1000"),
            (
                "memory/docker/ID/memory.limit_in_bytes",
                "9223372036854771712",
            ),
            ("memory/docker/ID/memory.stat", "total_inactive_file 2000\n"),
            ("cpuacct/docker/ID/cpuacct.usage", "1"),
        ]);
        let expected = CgroupSample {
            memory_bytes: 0,
            memory_limit_bytes: None,
            cpu_ns: 1,
            pids: None,
        };
        assert_eq!(cgroups.sample(ID), Some(expected));
        let (_kept, cgroups) = tree(&[
            ("cgroup.controllers", "cpu"),
            ("docker/ID/memory.current", "1000"),
            ("docker/ID/memory.max", "max\n"),
            ("docker/ID/memory.stat", "inactive_file 1000\n"),
            ("docker/ID/cpu.stat", "usage_usec 0\n"),
        ]);
        assert_eq!(cgroups.sample(ID).unwrap().memory_limit_bytes, None);
    }

    #[test]
    fn what_cannot_be_seen_is_no_sample() {
        let (kept, cgroups) = tree(&[
            ("memory/docker/ID/memory.usage_in_bytes", "lots"),
            ("secret/memory.usage_in_bytes", "1"),
        ]);
        assert_eq!(cgroups.sample(ID), None);
        for bad in ["", "../../secret", "a/b", &"a".repeat(ID_CHARS_MAX + 1)] {
            assert_eq!(cgroups.sample(bad), None);
        }
        assert_eq!(Cgroups::new(kept.path().join("none")).sample(ID), None);
    }

    #[test]
    fn containers_are_listed_with_their_processes_in_either_hierarchy() {
        let expected = |n| BTreeMap::from([(ID.to_owned(), n)]);
        for place in ["docker/ID", "system.slice/docker-ID.scope"] {
            for (root, marker) in [("", "cgroup.controllers"), ("pids/", "pids/cgroup.procs")] {
                let (_kept, cgroups) = tree(&[
                    (marker, ""),
                    (&format!("{root}{place}/cgroup.procs"), "7\n8\n"),
                    (&format!("{root}{place}/within/cgroup.procs"), "9\n"),
                    (&format!("{root}docker/buildkit/cgroup.procs"), "1\n"),
                    (
                        &format!("{root}system.slice/ssh.service/cgroup.procs"),
                        "2\n",
                    ),
                ]);
                assert_eq!(cgroups.containers().unwrap(), expected(3), "{root}{place}");
            }
        }
        let (_kept, cgroups) = tree(&[
            ("memory/cgroup.procs", ""),
            ("memory/docker/ID/cgroup.procs", ""),
        ]);
        assert_eq!(cgroups.containers().unwrap(), expected(0), "an empty group");
    }

    #[test]
    fn only_processes_that_are_in_the_group_are_killed() {
        // The kernel's own word on where this process is says that it is not there.
        let own = std::process::id().to_string();
        let (_kept, cgroups) = tree(&[
            ("pids/cgroup.procs", ""),
            ("pids/docker/ID/cgroup.procs", &own),
        ]);
        assert_eq!(cgroups.kill(ID).unwrap(), 1);
        let (_kept, cgroups) = tree(&[
            ("pids/cgroup.procs", ""),
            ("pids/docker/ID/cgroup.procs", "0\n"),
        ]);
        let error = cgroups.kill(ID).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        assert_eq!(cgroups.processes(&ID.replace('2', "3")).unwrap(), 0);
        assert_eq!(cgroups.kill("../../x").unwrap(), 0);
    }

    #[test]
    fn no_control_groups_are_told_from_no_containers() {
        let (_kept, cgroups) = tree(&[("pids/cgroup.procs", "1\n")]);
        assert_eq!(cgroups.containers().unwrap(), BTreeMap::new());
        let (_kept, cgroups) = tree(&[("unrelated", "")]);
        let error = cgroups.containers().unwrap_err();
        assert!(error.to_string().contains("no control groups"), "{error}");
    }

    #[test]
    fn processor_time_becomes_a_share_of_one_processor() {
        let at = |secs| Timestamp::from_secs(100).plus(Duration::from_secs(secs));
        let percent = cpu_percent((1_000_000_000, at(0)), (4_000_000_000, at(2)));
        assert_eq!(percent, Some(150.0));
        assert_eq!(cpu_percent((5, at(0)), (5, at(1))), Some(0.0));
        assert_eq!(cpu_percent((5, at(0)), (4, at(1))), None, "started anew");
        assert_eq!(cpu_percent((5, at(1)), (6, at(1))), None, "no time passed");
    }
}
