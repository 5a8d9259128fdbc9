//! Explaining one session: what it should be, what it is, and what comes next.

use serde::{Deserialize, Serialize};

use super::error::Ceiling;

/// The answer of `GET /sessions/{id}/explain`.
///
/// What is not known is `null` or `unknown`, and never a guess.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionExplanation {
    /// What it should be now: `running`, `parked`, `drowsy` where it is due to sleep, or `over`
    /// where it is due to be closed.
    pub aim: String,
    /// What it is, as in its description.
    pub phase: String,
    /// Why it is in that phase, where there is something to say.
    pub reason: Option<String>,
    /// When it came to be what it is; epoch seconds.
    pub since: f64,
    /// What comes next if nobody uses it; `null` where nothing does.
    pub next: Option<NextStep>,
    /// Attempts that failed since the last that did not.
    pub attempts: u32,
    /// How the last one failed, as the engine worded it.
    pub last_error: Option<String>,
    /// What differs from how it would be made today: `settings` of its container, or the
    /// `runtime` under its alias.
    pub drift: Vec<String>,
    /// Its container, as it was last seen.
    pub container: ExplainedContainer,
    /// Operations that use it now, for which everything else waits.
    pub lease_count: u64,
    /// The ceilings that it counts towards, and what counts towards them now.
    pub ceilings: Vec<Ceiling>,
}

/// What comes next for a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NextStep {
    /// `start`, `stop` or `close`.
    pub step: String,
    /// When, in epoch seconds; `null` where it is under way, or waits for something that
    /// has no time, such as the end of a command.
    pub at: Option<f64>,
}

/// A session's container, as it was last seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExplainedContainer {
    /// Its name; with the service token only.
    pub name: Option<String>,
    /// The engine's id of it; with the service token only.
    pub id: Option<String>,
    /// `running`, `starting`, `stopping`, `stopped`, `absent`, or `unknown` while the engine
    /// does not answer.
    pub state: String,
}
