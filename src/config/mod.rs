//! Turns the command line, the environment and a file into a checked configuration.
//!
//! ```text
//! flags > environment > file > default --Config::load--> Config, and where each value came from
//! ```
//!
//! Loading is pure: the process is read in [`mod@env`] and nowhere else.

pub mod args;
pub mod check;
pub mod env;
pub mod file;
mod load;
pub mod problem;
mod reader;
pub mod reference;
pub mod runtimes;
pub mod settings;
pub mod syntax;
mod warnings;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::policy::{Policy, Prewarm};
use crate::secret::Secret;
use crate::session::Hold;
pub use args::Args;
pub use env::Surroundings;
pub use problem::{Origin, Problem, Problems};

/// Everything that an operator decides, checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the daemon listens.
    pub listen: Listen,
    /// Who holds it opens sessions.
    pub service_token: Secret,
    /// The file of the token key; `token.key` in the state directory where `None`.
    pub token_key_file: Option<PathBuf>,
    /// Where the store lives; absolute.
    pub state_dir: PathBuf,
    /// Where the sockets of sandboxes live; absolute.
    pub runtime_dir: PathBuf,
    /// Where the files of sessions live; absolute. In their containers where `None`.
    pub workspace_root: Option<PathBuf>,
    /// The engine's socket: `unix://` and an absolute path.
    pub docker: String,
    /// Whether the daemon itself runs in a container.
    pub within: Within,
    /// How commands reach sandboxes.
    pub exec: Exec,
    /// Whether images are made ready at start.
    pub prewarm: Prewarm,
    /// Whether the dashboard is served.
    pub ui_enabled: bool,
    /// The file of changes to the policy; absolute.
    pub policy_overrides: Option<PathBuf>,
    /// How much work the daemon takes on.
    pub operation: Operation,
    /// What it says while it runs.
    pub log: Log,
    /// What clients may do.
    pub policy: Policy,
}

/// Where the daemon listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// An address or a name.
    pub host: String,
    /// The port; 0 lets the system choose.
    pub port: u16,
}

/// Whether the daemon runs in a container of the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Within {
    /// That is found out.
    Unknown,
    /// It does not, or the engine sees the same paths all the same.
    No,
    /// It does, in the one of this id or name.
    Container(String),
}

/// How commands reach sandboxes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exec {
    /// By the agent in each, where it can run: the program in the daemon itself, or
    /// the one at this path.
    Agent(Option<PathBuf>),
    /// By the engine's own exec.
    Docker,
}

/// How much work the daemon takes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The time between two looks at everything.
    pub cleanup_interval: Duration,
    /// Calls to the engine in flight at once; at least 1.
    pub max_workers: usize,
    /// Connections of clients at once; at least 1.
    pub max_connections: usize,
    /// Bytes of request bodies held at once.
    pub max_body_bytes: usize,
    /// Events kept of each session; at least 200.
    pub events_per_session: u64,
    /// Events kept of the service as a whole; at least 1,000.
    pub service_events: u64,
    /// How long a container of ours that no record explains is left alone.
    pub orphan_grace: Duration,
    /// The time between two rounds of measuring workspaces.
    pub workspace_scan_interval: Duration,
    /// Bytes of the largest archive of a workspace, before it is compressed.
    pub max_archive_bytes: u64,
    /// What is done about a store that is lost or corrupt.
    pub on_corrupt_store: OnCorruptStore,
    /// The time between two copies of the store; none are kept where there is none.
    pub backup_every: Option<Duration>,
    /// Copies that are kept; at least 1.
    pub backup_keep: usize,
    /// Holds that are let go of at this start.
    pub release_holds: Vec<Hold>,
    /// How long requests in flight may take to finish at a stop.
    pub drain_timeout: Duration,
}

/// What is done about a store that is lost or corrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnCorruptStore {
    /// It is set aside, and its records are made anew from what is left on the host.
    Rebuild,
    /// The daemon does not start.
    Refuse,
}

/// What the daemon says while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// A level or directives, which `tracing-subscriber` parses.
    pub filter: String,
    /// The form of a line.
    pub format: LogFormat,
}

/// The form of a line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// An object a line.
    Json,
}

/// A configuration, and how it came about.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What holds.
    pub config: Config,
    /// Every setting by name: what holds, fit to be shown, and where it came from.
    pub provenance: BTreeMap<&'static str, Provenance>,
    /// What is allowed and probably not meant, one sentence each.
    pub warnings: Vec<String>,
}

/// What one setting is and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provenance {
    /// The value; `(set)` for a secret, in parentheses where there is none.
    pub shown: String,
    /// Where it came from.
    pub origin: Origin,
}

impl Config {
    /// Loads the configuration, or says everything that is wrong with it.
    pub fn load(args: &Args, around: &Surroundings<'_>) -> Result<Loaded, Problems> {
        load::load(args, around)
    }
}

#[cfg(test)]
mod tests;
