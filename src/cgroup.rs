//! Reads what a container uses from the host's control groups.
//!
//! Reading blocks, but for microseconds: the kernel makes these files up in memory.
//! Where the files are not to be seen (a remote or rootless engine, a runtime with
//! a kernel of its own), there is no sample, and the engine has to be asked.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::clock::Timestamp;

/// Bytes that are read of one file.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// The least number that the first hierarchy means as "no limit".
const NO_LIMIT_MIN: u64 = 1 << 62;
/// Characters of the longest container id.
const ID_CHARS_MAX: usize = 128;

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
        let plain = container_id.bytes().all(|b| b.is_ascii_alphanumeric());
        if container_id.is_empty() || !plain || ID_CHARS_MAX < container_id.len() {
            return None;
        }
        // The engine's two ways to manage groups: by itself, or through systemd.
        let places = [
            format!("docker/{container_id}"),
            format!("system.slice/docker-{container_id}.scope"),
        ];
        let unified = self.root.join("cgroup.controllers").exists();
        places.iter().find_map(|place| {
            if unified {
                second_hierarchy(&self.root.join(place))
            } else {
                first_hierarchy(&self.root, place)
            }
        })
    }
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
    use std::fs;
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
    fn processor_time_becomes_a_share_of_one_processor() {
        let at = |secs| Timestamp::from_secs(100).plus(Duration::from_secs(secs));
        let percent = cpu_percent((1_000_000_000, at(0)), (4_000_000_000, at(2)));
        assert_eq!(percent, Some(150.0));
        assert_eq!(cpu_percent((5, at(0)), (5, at(1))), Some(0.0));
        assert_eq!(cpu_percent((5, at(0)), (4, at(1))), None, "started anew");
        assert_eq!(cpu_percent((5, at(1)), (6, at(1))), None, "no time passed");
    }
}
