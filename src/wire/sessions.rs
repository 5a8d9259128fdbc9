//! Opening, describing and listing sessions.

use serde::{Deserialize, Serialize};

/// The body of `POST /sessions`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateSessionRequest {
    /// The id; one is made where none is given.
    #[serde(default)]
    pub session_id: Option<String>,
    /// The alias; the default where none is given.
    #[serde(default)]
    pub runtime: Option<String>,
    /// The tenant under whose ceiling the session counts.
    #[serde(default)]
    pub tenant: Option<String>,
    /// Attach where the session is open, instead of refusing.
    #[serde(default)]
    pub reuse: bool,
    /// Attach where the session is open or has a workspace, and refuse elsewhere.
    #[serde(default)]
    pub attach: bool,
}

/// What a sandbox uses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionUsage {
    /// Memory in use, without the inactive file cache.
    pub memory_bytes: Option<u64>,
    /// The ceiling.
    pub memory_limit_bytes: Option<u64>,
    /// Of one processor, since the sample before; `null` on the first.
    pub cpu_percent: Option<f64>,
    /// Processes and threads.
    pub pids: Option<u64>,
    /// Who read it; nothing where the service is of a version that does not say.
    #[serde(default)]
    pub source: Option<UsageSource>,
}

/// Who read what a sandbox uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageSource {
    /// The service, from the control groups of the host.
    Host,
    /// The agent in the sandbox, where the host's control groups cannot be seen. It lives
    /// among the code that runs there, which could have it say what it likes.
    Agent,
    /// The engine, which takes a second or two for it.
    Engine,
}

/// One session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionInfo {
    /// Its id.
    pub session_id: String,
    /// Its runtime's alias.
    pub runtime: String,
    /// Its tenant.
    pub tenant: Option<String>,
    /// Whether its container runs.
    pub alive: bool,
    /// `running` or `hibernated`.
    pub state: String,
    /// Epoch seconds.
    pub created_at: f64,
    /// Epoch seconds.
    pub last_activity: f64,
    /// Seconds since then.
    pub idle_seconds: f64,
    /// Sampled where it was asked for and the sandbox is resident.
    pub usage: Option<SessionUsage>,
    /// The finer state, such as `opening` or `lost`.
    #[serde(default)]
    pub phase: String,
    /// Why it is in that phase, where there is something to say.
    #[serde(default)]
    pub reason: Option<String>,
    /// Counts lives of the sandbox: 1 at open, one more at each reset.
    #[serde(default)]
    pub incarnation: u64,
    /// How commands reach the sandbox: `agent` or `docker`.
    #[serde(default)]
    pub exec: String,
    /// Whether the container differs from what it would be made like today.
    #[serde(default)]
    pub drifted: bool,
    /// The container's name; with the service token only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// The image; with the service token only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

/// The answer of `POST /sessions`.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionCreated {
    /// The session.
    pub session: SessionInfo,
    /// Its token, good for this session alone.
    pub token: String,
}

impl std::fmt::Debug for SessionCreated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionCreated")
            .field("session", &self.session)
            .finish_non_exhaustive()
    }
}

/// The answer of `GET /sessions`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionList {
    /// In the order of opening.
    pub sessions: Vec<SessionInfo>,
    /// `max_sessions`.
    pub limit: Option<u64>,
    /// `max_open_sessions`.
    pub open_limit: Option<u64>,
    /// `max_sessions_per_tenant`.
    pub tenant_limit: Option<u64>,
    /// Continues the listing, where `limit` cut it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
