//! Owns the tree `runs`: session and run id to a run that was started in the background.
//!
//! The key is `session 0x00 run id`. An id of a session holds no zero byte, so keys sort
//! by session, then by run.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::codec::{self, CodecError};
use super::error::Fault;
use super::writes::{Tree, Writes};
use crate::clock::Timestamp;
use crate::id::{RunId, SessionId};

/// The tree's name.
pub(super) const TREE: &str = "runs";

/// Runs that are remembered of one session; beyond it the oldest that are over go.
pub const RUNS_PER_SESSION_MAX: usize = 256;

/// A run that was started in the background, or is about to be.
///
/// It is written before the agent is asked to start it. So one that the agent does not
/// know may never have been started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredRun {
    /// Its id.
    pub run_id: RunId,
    /// Tells a repeated request from another one under the same id.
    pub digest: String,
    /// What is run, as shown.
    pub target: String,
    /// When it was asked for.
    pub started_at: Timestamp,
    /// The engine's id of the container that it was started in.
    pub container: String,
    /// Which life of that container: what its agent called itself.
    pub life: String,
    /// The first size of its terminal, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tty: Option<TtySize>,
    /// The request that asked for it; none where it was found and not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// How it ended, once that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<RunEnded>,
}

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TtySize {
    /// Columns.
    pub cols: u16,
    /// Rows.
    pub rows: u16,
}

/// How a run ended, as far as that is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnded {
    /// When it ended; when the loss was found, of one that was lost.
    pub at: Timestamp,
    /// When this was written down, from where on it is kept.
    pub noted_at: Timestamp,
    /// Why.
    pub cause: RunCause,
    /// The exit code of its first process, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended its first process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Bytes that it wrote to standard output, as far as is known.
    pub stdout_bytes: u64,
    /// Bytes that it wrote to standard error, as far as is known.
    pub stderr_bytes: u64,
    /// The record after its last, as far as is known.
    pub next_seq: u64,
    /// Whether output was dropped.
    pub truncated: bool,
}

/// Why a run is over; the text is stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunCause {
    /// By itself, or by a signal from within the sandbox.
    Exited,
    /// It could not be started.
    StartFailed,
    /// Its time was over.
    Timeout,
    /// It wrote more than it may.
    OutputLimit,
    /// It was stopped on request.
    Stopped,
    /// A signal on request ended it.
    Signal,
    /// The sandbox ran out of memory.
    Oom,
    /// Its sandbox ended, and how it ended itself is not known.
    ContainerLost,
    /// The agent does not know it: it was never started, or its end was forgotten.
    AgentLost,
}

impl RunCause {
    /// Returns the stable text.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exited => "exited",
            Self::StartFailed => "start_failed",
            Self::Timeout => "timeout",
            Self::OutputLimit => "output_limit",
            Self::Stopped => "stopped",
            Self::Signal => "signal",
            Self::Oom => "oom",
            Self::ContainerLost => "container_lost",
            Self::AgentLost => "agent_lost",
        }
    }

    /// Returns whether the ending itself is not known.
    pub const fn is_lost(self) -> bool {
        match self {
            Self::ContainerLost | Self::AgentLost => true,
            Self::Exited
            | Self::StartFailed
            | Self::Timeout
            | Self::OutputLimit
            | Self::Stopped
            | Self::Signal
            | Self::Oom => false,
        }
    }
}

/// What a batch expects of a run before it writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectRun {
    /// Its session knows none of that id.
    Absent,
    /// It is there and goes on, as far as is known.
    GoesOn,
}

/// Digits of a run id.
const RUN_ID_DIGITS: usize = 32;

/// Where a run is kept.
pub(super) type Place = (SessionId, RunId);

/// Makes the key of a run.
fn key(session: &SessionId, run: &RunId) -> Vec<u8> {
    let mut key = Vec::with_capacity(session.as_str().len() + 1 + run.as_str().len());
    key.extend_from_slice(session.as_str().as_bytes());
    key.push(0);
    key.extend_from_slice(run.as_str().as_bytes());
    key
}

/// Reads the session and the run out of a key.
fn parse_key(key: &[u8]) -> Result<Place, CodecError> {
    let read = || {
        let (session, run) = std::str::from_utf8(key).ok()?.split_once('\0')?;
        Some((SessionId::parse(session).ok()?, RunId::parse(run).ok()?))
    };
    read().ok_or_else(|| codec::bad_key(TREE, key))
}

/// Writes a run.
pub(super) fn put(
    writes: &mut Writes,
    session: &SessionId,
    run: &StoredRun,
) -> Result<(), CodecError> {
    writes.put(Tree::Runs, key(session, &run.run_id), codec::encode(run)?);
    Ok(())
}

/// Removes a run.
pub(super) fn remove(writes: &mut Writes, session: &SessionId, run: &RunId) {
    writes.remove(Tree::Runs, key(session, run));
}

/// Reads every run.
pub(super) fn load(tree: &sled::Tree) -> Result<BTreeMap<Place, Arc<StoredRun>>, Fault> {
    let mut runs = BTreeMap::new();
    for entry in tree {
        let (key, value) = entry?;
        let place = parse_key(&key)?;
        let run = read(&place, &value)?;
        runs.insert(place, Arc::new(run));
    }
    Ok(runs)
}

fn read((_, id): &Place, value: &[u8]) -> Result<StoredRun, CodecError> {
    let run: StoredRun = codec::decode(value)?;
    if run.run_id != *id {
        return Err(CodecError::Mislabelled {
            key: id.to_string(),
            value: run.run_id.to_string(),
        });
    }
    Ok(run)
}

/// Returns the places of all runs that a session can have, as a range.
pub(super) fn of(session: &SessionId) -> std::ops::RangeInclusive<Place> {
    let [least, greatest] = ["0", "f"].map(|digit| {
        RunId::parse(&digit.repeat(RUN_ID_DIGITS)).expect("a run id is so many hex digits")
    });
    (session.clone(), least)..=(session.clone(), greatest)
}

/// Returns which runs go so that at most `max` stay: the oldest that are over.
pub(super) fn surplus<'a>(
    runs: impl Iterator<Item = &'a Arc<StoredRun>> + Clone,
    max: usize,
) -> Vec<RunId> {
    let n_over = runs.clone().count().saturating_sub(max);
    if n_over == 0 {
        return Vec::new();
    }
    let mut over: Vec<_> = runs
        .filter_map(|run| Some((run.ended.as_ref()?.at, &run.run_id)))
        .collect();
    over.sort_unstable();
    let oldest = over.into_iter().take(n_over);
    oldest.map(|(_, id)| id.clone()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::store::tests::{id, run};

    #[test]
    fn a_run_under_the_key_of_another_is_refused() {
        let bytes = codec::encode(&run(1)).unwrap();
        let place = |n| (id("a"), run(n).run_id);
        assert!(read(&place(1), &bytes).is_ok());
        assert!(matches!(
            read(&place(2), &bytes),
            Err(CodecError::Mislabelled { .. })
        ));
    }

    #[test]
    fn the_runs_of_a_session_are_those_between_its_ends_and_no_others() {
        let range = of(&id("a"));
        for session in ["a", "a-", "a.b", "aa", "Z", "b"] {
            for digit in ["0", "7", "f"] {
                let run = RunId::parse(&digit.repeat(RUN_ID_DIGITS)).unwrap();
                let inside = range.contains(&(id(session), run));
                assert_eq!(inside, session == "a", "{session}");
            }
        }
    }

    proptest! {
        #[test]
        fn a_key_tells_its_session_and_its_run(
            session in "[A-Za-z0-9][A-Za-z0-9._-]{0,63}",
            run in "[0-9a-f]{32}",
        ) {
            let place = (id(&session), RunId::parse(&run).unwrap());
            prop_assert_eq!(parse_key(&key(&place.0, &place.1)).unwrap(), place);
        }

        #[test]
        fn no_bytes_make_the_reading_of_a_key_panic(bytes: Vec<u8>) {
            if let Ok((session, run)) = parse_key(&bytes) {
                prop_assert_eq!(key(&session, &run), bytes);
            }
        }
    }
}
