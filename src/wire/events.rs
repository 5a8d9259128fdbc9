//! A session's log of operations.

use serde::{Deserialize, Serialize};

/// One operation on a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionEvent {
    /// Counts from 1 and never resets while the session's record lives.
    pub seq: u64,
    /// Epoch seconds.
    pub at: f64,
    /// The operation, such as `exec`.
    pub op: String,
    /// What it was done to, cut to 200 characters and `…`.
    pub target: String,
    /// Whether it succeeded.
    pub ok: bool,
    /// How it ended, such as `exit 0`.
    pub detail: String,
    /// Milliseconds, to one decimal.
    pub duration_ms: f64,
}

/// A page of a session's log, oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionEvents {
    /// The events.
    pub events: Vec<SessionEvent>,
    /// The last sequence number given out; 0 when there was none.
    pub latest_seq: u64,
    /// Where retention begins; 0 when nothing is kept.
    #[serde(default)]
    pub first_seq: u64,
}
