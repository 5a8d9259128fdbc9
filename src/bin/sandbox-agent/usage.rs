//! Reads what the sandbox uses from its own control group.
//!
//! An engine mounts that group at [`ROOT`] of each container, to be read by everybody: the
//! one directory of the second hierarchy, or one for each controller of the first.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use crate::protocol::message::Usage;

/// Where the container's own control group is mounted.
pub(crate) const ROOT: &str = "/sys/fs/cgroup";
/// Bytes that are read of one file.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// The least number that the first hierarchy means as "no limit".
const NO_LIMIT_MIN: u64 = 1 << 62;
/// Two controllers may share a mount, which has either name or both.
const CPU: [&str; 2] = ["cpuacct", "cpu,cpuacct"];

/// Reads it; what is not to be seen is left out.
pub(crate) fn read(root: &Path) -> Usage {
    if root.join("cgroup.controllers").exists() {
        second_hierarchy(root)
    } else {
        first_hierarchy(root)
    }
}

fn second_hierarchy(group: &Path) -> Usage {
    let used = number(&group.join("memory.current"));
    let cache = field(&group.join("memory.stat"), "inactive_file");
    let cpu_us = field(&group.join("cpu.stat"), "usage_usec");
    Usage {
        memory_bytes: without(used, cache),
        memory_limit_bytes: number(&group.join("memory.max")),
        cpu_ns: cpu_us.map(|micros| micros.saturating_mul(1000)),
        pids: number(&group.join("pids.current")),
    }
}

fn first_hierarchy(root: &Path) -> Usage {
    let memory = root.join("memory");
    let used = number(&memory.join("memory.usage_in_bytes"));
    let cache = field(&memory.join("memory.stat"), "total_inactive_file");
    let limit = number(&memory.join("memory.limit_in_bytes"));
    let cpu = CPU
        .iter()
        .find_map(|controller| number(&root.join(controller).join("cpuacct.usage")));
    Usage {
        memory_bytes: without(used, cache),
        memory_limit_bytes: limit.filter(|limit| *limit < NO_LIMIT_MIN),
        cpu_ns: cpu,
        pids: number(&root.join("pids/pids.current")),
    }
}

fn without(used: Option<u64>, cache: Option<u64>) -> Option<u64> {
    Some(used?.saturating_sub(cache.unwrap_or(0)))
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
    use std::path::PathBuf;

    use super::*;

    /// A directory with these files, which goes at its end.
    struct Tree(PathBuf);

    impl Tree {
        fn of(name: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
            for (path, text) in files {
                let path = root.join(path);
                std::fs::create_dir_all(path.parent().expect("a file lies in a directory"))
                    .expect("make the directory");
                std::fs::write(path, text).expect("write the file");
            }
            Self(root)
        }
    }

    impl Drop for Tree {
        #[expect(
            clippy::disallowed_methods,
            reason = "a few small directories of a test's own"
        )]
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).expect("remove the directory");
        }
    }

    const ALL: Usage = Usage {
        memory_bytes: Some(600),
        memory_limit_bytes: Some(4096),
        cpu_ns: Some(7_000_000),
        pids: Some(3),
    };

    #[test]
    fn the_first_hierarchy_is_read_from_each_controller() {
        for cpu in CPU {
            let cpu = format!("{cpu}/cpuacct.usage");
            let tree = Tree::of(
                "first",
                &[
                    ("memory/memory.usage_in_bytes", "1000\n"),
                    ("memory/memory.limit_in_bytes", "4096\n"),
                    (
                        "memory/memory.stat",
                        "inactive_file 1\ntotal_inactive_file 400\n",
                    ),
                    (&cpu, "7000000\n"),
                    ("pids/pids.current", "3\n"),
                ],
            );
            assert_eq!(read(&tree.0), ALL);
        }
    }

    #[test]
    fn the_second_hierarchy_is_read_from_one_directory() {
        let tree = Tree::of(
            "second",
            &[
                ("cgroup.controllers", "cpu memory pids\n"),
                ("memory.current", "1000\n"),
                ("memory.max", "4096\n"),
                ("memory.stat", "anon 600\ninactive_file 400\n"),
                ("cpu.stat", "usage_usec 7000\n"),
                ("pids.current", "3\n"),
            ],
        );
        assert_eq!(read(&tree.0), ALL);
    }

    #[test]
    fn what_is_not_to_be_seen_is_left_out_and_no_limit_is_none() {
        assert_eq!(read(Path::new("/nonexistent")), Usage::default());
        let tree = Tree::of(
            "none",
            &[
                ("cgroup.controllers", ""),
                ("memory.current", "1000\n"),
                ("memory.max", "max\n"),
            ],
        );
        let memory = Usage {
            memory_bytes: Some(1000),
            ..Usage::default()
        };
        assert_eq!(read(&tree.0), memory);
    }
}
