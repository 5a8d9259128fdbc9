//! The service as a whole: its index, its health and its policy.

use serde::{Deserialize, Serialize};

/// The answer of `GET /`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceIndex {
    /// Always `sandboxd`.
    pub service: String,
    /// The same as `GET /healthz`.
    pub health: ServiceHealth,
    /// Where a person reads about the routes.
    pub docs_url: String,
    /// Where a program does.
    pub openapi_url: String,
    /// The dashboard, where it is enabled.
    pub ui_url: Option<String>,
    /// All route templates but `/`, sorted.
    pub endpoints: Vec<String>,
    /// The version of the daemon.
    pub version: String,
}

/// The answer of `GET /healthz` and `GET /readyz`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceHealth {
    /// `ok`, or `degraded` with reasons.
    pub status: String,
    /// Resident sandboxes.
    pub sessions: u64,
    /// The most there may be.
    pub limit: Option<u64>,
    /// Open sessions, resident or asleep.
    pub open_sessions: u64,
    /// The most there may be.
    pub open_limit: Option<u64>,
    /// The aliases, sorted.
    pub runtimes: Vec<String>,
    /// What is wrong, where the status is `degraded`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
}

/// How the ceiling of workspaces is kept: they are measured, and what is found above it is
/// stopped.
pub const WORKSPACE_SIZE_BY_SCAN: &str = "scan";

/// A runtime with its effective ceilings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RuntimePolicy {
    /// The name that clients use.
    pub alias: String,
    /// The image, or what it is built from.
    pub image: String,
    /// What it is for.
    pub description: String,
    /// Whether the entry names a runtime configuration.
    pub builds: bool,
    /// As the operator wrote it, such as `1g`.
    pub mem_limit: Option<String>,
    /// Memory and swap together.
    pub memswap_limit: Option<String>,
    /// Processors.
    pub cpus: Option<f64>,
    /// Relative weight under contention.
    pub cpu_shares: Option<u64>,
    /// Processes and threads.
    pub pids_limit: Option<u64>,
    /// The Docker network.
    pub network_mode: Option<String>,
    /// The OCI runtime.
    pub oci_runtime: Option<String>,
    /// What may lie in a workspace.
    #[serde(default)]
    pub workspace_size: Option<String>,
}

/// The answer of `GET /policy`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the contract has these fields"
)]
pub struct ServicePolicy {
    /// Sorted by alias.
    pub runtimes: Vec<RuntimePolicy>,
    /// Taken when a client names none.
    pub default_runtime: String,
    /// Resident sandboxes.
    pub max_sessions: Option<u64>,
    /// Open sessions.
    pub max_open_sessions: Option<u64>,
    /// Open sessions of one tenant.
    pub max_sessions_per_tenant: Option<u64>,
    /// Seconds of idleness after which a session may be put to sleep for another.
    pub evict_idle_after: Option<u64>,
    /// Seconds of idleness after which a session is put to sleep with or without need.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hibernate_idle_after: Option<u64>,
    /// The service's default.
    pub mem_limit: Option<String>,
    /// The service's default.
    pub memswap_limit: Option<String>,
    /// The service's default.
    pub cpus: Option<f64>,
    /// The service's default.
    pub cpu_shares: Option<u64>,
    /// The service's default.
    pub pids_limit: Option<u64>,
    /// The service's default.
    pub network_mode: Option<String>,
    /// The service's default.
    pub oci_runtime: Option<String>,
    /// Where commands run and files live inside the sandbox.
    pub work_dir: String,
    /// Seconds.
    pub idle_timeout: u64,
    /// Seconds.
    pub execute_timeout: u64,
    /// Bytes.
    pub max_read_bytes: u64,
    /// Whether a stopped container is kept.
    pub persist_containers: bool,
    /// The user of built runtimes.
    pub sandbox_uid: Option<u32>,
    /// Seconds.
    pub workspace_ttl: Option<u64>,
    /// Seconds.
    pub container_ttl: Option<u64>,
    /// Size of `/tmp`.
    pub tmpfs_size: Option<String>,
    /// Whether images are fetched at start.
    pub prewarm: bool,
    /// Whether builds go through `BuildKit`.
    pub buildkit: bool,
    /// Whether files are served without a container.
    #[serde(default)]
    pub native_files: bool,
    /// Whether files are written without a container.
    #[serde(default)]
    pub native_writes: bool,
    /// Whether paths are resolved without a container.
    #[serde(default)]
    pub native_realpath: bool,
    /// What may lie in a workspace; the service's default.
    #[serde(default)]
    pub workspace_size: Option<String>,
    /// How that is kept: `scan`.
    #[serde(default)]
    pub workspace_size_enforced_by: String,
}
