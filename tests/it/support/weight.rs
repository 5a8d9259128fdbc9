//! Reads from the kernel what a process holds and uses.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use uuid::Uuid;

/// The kernel counts processor time for programs in hundredths of a second.
const TICK: Duration = Duration::from_millis(10);
const CGROUPS: &str = "/sys/fs/cgroup";

/// A process, by its number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weight(pub(crate) u32);

impl Weight {
    /// Counts its open descriptors.
    pub(crate) fn descriptors(self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.0))
            .unwrap()
            .count()
    }

    /// Returns its resident memory in KiB.
    pub(crate) fn resident_kib(self) -> usize {
        self.status("VmRSS:")
    }

    /// Returns the most that was resident so far, in KiB.
    pub(crate) fn resident_kib_peak(self) -> usize {
        self.status("VmHWM:")
    }

    /// Counts its threads.
    pub(crate) fn threads(self) -> usize {
        self.status("Threads:")
    }

    /// Returns the processor time that it has used.
    pub(crate) fn processor_time(self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0)).unwrap();
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        let ticks: u32 = fields
            .split(' ')
            .skip(11)
            .take(2)
            .map(|ticks| ticks.parse::<u32>().unwrap())
            .sum();
        TICK * ticks
    }

    fn status(self, name: &str) -> usize {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0)).unwrap();
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

/// A control group with a ceiling of memory; removed when it is dropped, and empty by then.
///
/// Needs root and a writable hierarchy below `/sys/fs/cgroup`, of version 1 or 2.
#[derive(Debug)]
pub(crate) struct MemoryCeiling {
    dir: PathBuf,
    /// The file that counts kills for want of memory.
    kills: &'static str,
}

impl MemoryCeiling {
    /// Makes one of so many bytes, swap included.
    pub(crate) fn new(bytes: u64) -> Self {
        let name = format!("sandboxd-it-{}", Uuid::new_v4().simple());
        let is_v2 = PathBuf::from(CGROUPS).join("cgroup.controllers").exists();
        let (parent, limits, kills) = if is_v2 {
            let limits = [("memory.max", bytes), ("memory.swap.max", 0)];
            (CGROUPS.to_owned(), limits, "memory.events")
        } else {
            let limits = [
                ("memory.limit_in_bytes", bytes),
                ("memory.memsw.limit_in_bytes", bytes),
            ];
            (format!("{CGROUPS}/memory"), limits, "memory.oom_control")
        };
        let dir = PathBuf::from(parent).join(name);
        fs::create_dir(&dir).unwrap_or_else(|error| {
            panic!(
                "make the control group {}: {error}: this test needs root and a writable memory hierarchy",
                dir.display()
            )
        });
        let ceiling = Self { dir, kills };
        for (file, limit) in limits {
            let path = ceiling.dir.join(file);
            // Without accounting for swap there is no file for it.
            if path.exists() {
                fs::write(path, limit.to_string()).unwrap();
            }
        }
        ceiling
    }

    /// Returns the shell command that puts the shell into the group.
    pub(crate) fn enter(&self) -> String {
        format!("echo $$ >'{}'", self.dir.join("cgroup.procs").display())
    }

    /// Counts the processes of the group that were killed for want of memory.
    pub(crate) fn kills(&self) -> u64 {
        let text = fs::read_to_string(self.dir.join(self.kills)).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.unwrap().parse().unwrap()
    }
}

impl Drop for MemoryCeiling {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.dir) {
            eprintln!("remove {}: {error}", self.dir.display());
        }
    }
}
