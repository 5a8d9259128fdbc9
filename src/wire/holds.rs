//! What holds the service back from acting on its own.

use serde::{Deserialize, Serialize};

/// The store was lost, and its records were made anew, or a backup was restored.
pub const STORE_REBUILT: &str = "store_rebuilt";
/// Another engine than the one with the sandboxes answers.
pub const ENGINE_CHANGED: &str = "engine_changed";
/// Another directory than the one with the workspaces is in its place.
pub const WORKSPACE_ROOT_CHANGED: &str = "workspace_root_changed";

/// A hold that stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HoldInfo {
    /// Its stable name, such as `store_rebuilt`.
    pub name: String,
    /// Seconds since the epoch.
    pub since: f64,
    /// What happened.
    pub detail: String,
    /// What to do about it.
    pub remedy: String,
}

/// The answer of `GET /holds`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HoldList {
    /// Those that stand.
    pub holds: Vec<HoldInfo>,
}
