//! What the service takes by itself: what is idle, expired, or belongs to nobody.

use serde::{Deserialize, Serialize};

/// The answer of `POST /sweep`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SweepReport {
    /// Whether nothing was done but look.
    pub dry_run: bool,
    /// Everything that is due by then is listed, in seconds since the epoch.
    pub until: f64,
    /// What is taken.
    pub items: Vec<SweepItem>,
    /// Whether there is more than is listed.
    pub more: bool,
    /// The names of the holds that keep everything else from being taken.
    pub holds: Vec<String>,
    /// Containers of nobody that are kept since there are too many of them at once.
    pub strays_held_back: u64,
}

/// One thing that is taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SweepItem {
    /// `session`, `container`, `workspace` or `record`.
    pub kind: String,
    /// Its session; `null` for a container of nobody.
    pub session_id: Option<String>,
    /// The engine's id of its container, where that is known.
    pub container: Option<String>,
    /// `hibernate`, `close` or `remove`.
    pub what: String,
    /// Why: `idle`, `expired`, `requested` or `stray`.
    pub reason: String,
    /// From when on the limit counts, in seconds since the epoch.
    pub since: f64,
    /// Seconds that that may be; `null` where a caller asked for it.
    pub limit: Option<f64>,
    /// When it is due, in seconds since the epoch.
    pub at: f64,
    /// What it waits for beyond that: `in_use`, `unknown`, `ghost` or `rival`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
}
