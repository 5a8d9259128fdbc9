//! The operator's ceilings and allowlist: always valid, replaced whole.
//!
//! ```text
//! Terms (what was written) --Policy::new--> Policy (what holds) --describe--> wire
//!                                             `-- amend --> another Policy, or none
//! ```

pub mod amend;
pub mod builtins;
pub mod catalogue;
pub mod current;
pub mod describe;
pub mod recipe;
#[cfg(test)]
pub(crate) mod sample;
pub mod valid;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::quantity::{ByteSize, Cpus};
pub use amend::{Amendment, amend};
pub use catalogue::{Catalogue, KeepAwake, PackageManager, Runtime, RuntimeConfig, Source, Users};
pub use current::Current;
pub use describe::describe;
pub use valid::{InvalidPolicy, Policy, Scope};

/// What the operator wrote: a [`Policy`] once it has been checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Terms {
    /// The runtimes that clients may name.
    pub catalogue: Catalogue,
    /// How many sessions there may be.
    pub capacity: Capacity,
    /// What a sandbox may use, where its runtime does not say.
    pub ceilings: Ceilings,
    /// How long things live.
    pub lifetimes: Lifetimes,
    /// What every sandbox looks like inside.
    pub interior: Interior,
    /// Bounds of single operations.
    pub limits: Limits,
}

/// Where the files of sessions live, which decides what may be put to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// Under the workspace root: files outlive their container.
    Host,
    /// In the containers, and nowhere else.
    Container,
}

/// Whether images are made ready before a session asks for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prewarm {
    /// The first session of a runtime waits for its image.
    No,
    /// All images are pulled or built when the daemon starts.
    Yes,
}

/// How many sessions there may be; `None` is without bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// Resident sandboxes.
    pub max_sessions: Option<u64>,
    /// Open sessions, resident or asleep; never below `max_sessions`.
    pub max_open_sessions: Option<u64>,
    /// Open sessions of one tenant.
    pub max_sessions_per_tenant: Option<u64>,
    /// Idle time after which a session may be put to sleep to make room.
    pub evict_idle_after: Option<Duration>,
}

/// What one sandbox may use; `None` takes the service's default, or no bound.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ceilings {
    /// Memory.
    pub mem_limit: Option<ByteSize>,
    /// Memory and swap together; the memory ceiling where not set.
    pub memswap_limit: Option<ByteSize>,
    /// Processors.
    pub cpus: Option<Cpus>,
    /// Relative weight under contention.
    pub cpu_shares: Option<u64>,
    /// Processes and threads.
    pub pids_limit: Option<u64>,
    /// The Docker network.
    pub network_mode: Option<String>,
    /// The OCI runtime.
    pub oci_runtime: Option<String>,
    /// What lies in a workspace, as it takes room on the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_size: Option<ByteSize>,
}

impl Ceilings {
    /// Returns these ceilings with `defaults` where nothing is set.
    #[must_use]
    pub fn or(&self, defaults: &Self) -> Self {
        Self {
            mem_limit: self
                .mem_limit
                .clone()
                .or_else(|| defaults.mem_limit.clone()),
            memswap_limit: self
                .memswap_limit
                .clone()
                .or_else(|| defaults.memswap_limit.clone()),
            cpus: self.cpus.or(defaults.cpus),
            cpu_shares: self.cpu_shares.or(defaults.cpu_shares),
            pids_limit: self.pids_limit.or(defaults.pids_limit),
            network_mode: self
                .network_mode
                .clone()
                .or_else(|| defaults.network_mode.clone()),
            oci_runtime: self
                .oci_runtime
                .clone()
                .or_else(|| defaults.oci_runtime.clone()),
            workspace_size: self
                .workspace_size
                .clone()
                .or_else(|| defaults.workspace_size.clone()),
        }
    }
}

/// Whether a stopped session keeps its container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Persist {
    /// The container is removed when it is stopped.
    No,
    /// The container stays, stopped, with what was installed in it.
    Yes,
}

/// How long things live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// Idle time after which an open session is closed.
    pub idle_timeout: Duration,
    /// Idle time after which an open session is put to sleep, with or without need.
    pub hibernate_idle_after: Option<Duration>,
    /// Time without use after which the workspace of a closed session goes.
    pub workspace_ttl: Option<Duration>,
    /// Time after its stop at which a persisted container goes.
    pub container_ttl: Option<Duration>,
    /// Whether a stopped session keeps its container.
    pub persist: Persist,
}

/// What every sandbox looks like inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interior {
    /// The absolute path where commands run and files live.
    pub work_dir: String,
    /// Size of the in-memory `/tmp`, as the mount option has it; none where `None`.
    pub tmpfs_size: Option<String>,
    /// The user of runtimes that name a configuration.
    pub sandbox_uid: Option<u32>,
}

/// Bounds of single operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest a command may run.
    pub execute_timeout: Duration,
    /// Bytes of the largest file that is read whole.
    pub max_read_bytes: u64,
    /// Bytes of the largest file that is taken in by streaming.
    pub max_upload_bytes: u64,
    /// Commands in flight over all sessions.
    pub max_running_commands: usize,
    /// Openings that wait at a ceiling at once.
    pub open_queue_max: usize,
    /// The longest that one of them waits.
    pub open_wait_max: Duration,
    /// Bounds of runs.
    pub runs: RunLimits,
}

/// Bounds of runs: of what is kept of them, and of how many there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunLimits {
    /// Commands in flight in one session, background runs and terminals with them.
    pub per_session: usize,
    /// Terminals in one session.
    pub ttys_per_session: usize,
    /// The longest a background run or a terminal may go on; for ever where `None`.
    pub background_timeout: Option<Duration>,
    /// Bytes that a run with a caller may write before it is ended.
    pub output_limit: u64,
    /// Bytes of output kept of one run.
    pub ring_bytes: u64,
    /// Bytes of output kept of all runs of a sandbox.
    pub rings_bytes: u64,
    /// How long a run is kept after its end.
    pub keep: Duration,
}
