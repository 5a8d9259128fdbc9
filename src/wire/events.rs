//! The log of a session's operations, and that of the service.

use std::collections::BTreeMap;

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

/// One entry of the service's log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceEvent {
    /// Counts from 1 over all sessions, and never resets.
    pub seq: u64,
    /// Epoch seconds.
    pub at: f64,
    /// The session that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// That session's tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// `operation`: something was done in a session. `lifecycle`: something became of one.
    /// `service`: neither.
    pub kind: String,
    /// The operation, such as `exec`, or the fact, such as `hibernated`.
    pub op: String,
    /// What it was done to, cut to 200 characters and `…`; of a fact, the session.
    pub target: String,
    /// Whether it succeeded.
    pub ok: bool,
    /// How it ended, such as `exit 0`.
    pub detail: String,
    /// Why, where the rest does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Milliseconds of an operation, to one decimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<f64>,
    /// The request that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Further facts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, String>,
}

/// A page of the service's log, oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceEvents {
    /// The events that fit what was asked for.
    pub events: Vec<ServiceEvent>,
    /// What to ask for as `after` to go on: the last number that was looked at.
    pub next: u64,
    /// The last sequence number given out; 0 when there was none.
    pub latest_seq: u64,
    /// Where retention begins; 0 when nothing is kept.
    pub first_seq: u64,
}
