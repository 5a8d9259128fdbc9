//! What happened in a simulation, line by line.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::session::record::{Reason, Record};

/// Lines that are kept.
const LINES_MAX: usize = 20_000;

/// A record of what happened; clones write on the same one.
#[derive(Clone, Debug)]
pub(super) struct Tape {
    began: Instant,
    written: Arc<Mutex<Written>>,
}

#[derive(Debug, Default)]
struct Written {
    lines: VecDeque<String>,
    /// Of all lines, those that are not kept any more as well.
    sum: u64,
    counts: Counts,
}

/// How often what happened.
pub(super) type Counts = BTreeMap<&'static str, u64>;

impl Tape {
    /// Begins at this moment.
    pub(super) fn begin() -> Self {
        Self {
            began: Instant::now(),
            written: Arc::default(),
        }
    }

    /// Writes a line down. What a run's chance alone decides, such as keys, is not in it.
    pub(super) fn note(&self, what: &str) {
        let at = self.began.elapsed();
        let line = format!("{:>9.3} {what}", at.as_secs_f64());
        let mut written = self.written();
        for byte in line.bytes() {
            written.sum = (written.sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        written.lines.push_back(line);
        if LINES_MAX < written.lines.len() {
            written.lines.pop_front();
        }
    }

    /// Counts something that happened.
    pub(super) fn count(&self, what: &'static str) {
        *self.written().counts.entry(what).or_default() += 1;
    }

    /// Returns how often what happened.
    pub(super) fn counts(&self) -> Counts {
        self.written().counts.clone()
    }

    /// Returns the last lines.
    pub(super) fn last(&self, n: usize) -> Vec<String> {
        let written = self.written();
        let skipped = written.lines.len().saturating_sub(n);
        written.lines.iter().skip(skipped).cloned().collect()
    }

    /// Returns what tells two runs apart.
    pub(super) fn sum(&self) -> u64 {
        self.written().sum
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says what became of an intent; nothing where only a use was noted.
pub(super) fn in_words(before: Option<&Record>, after: Option<&Record>) -> Option<String> {
    let id = &before.or(after)?.spec.id;
    let Some(after) = after else {
        return Some(format!("  store: {id} is dropped"));
    };
    let marks = &after.marks;
    if before.is_some_and(|before| before.marks.generation == marks.generation) {
        return None;
    }
    let stands = match (&marks.closed, &marks.parked) {
        (Some(closed), _) => format!("closed as {} ({:?})", closed.reason.as_str(), closed.purge),
        (None, Some(parked)) => format!("asleep as {}", parked.reason.as_str()),
        (None, None) => "wanted".to_owned(),
    };
    Some(format!("  store: {id} is {stands} by {}", marks.generation))
}

/// Says what became of a session, to be counted.
pub(super) fn in_a_word(before: Option<&Record>, after: Option<&Record>) -> Option<&'static str> {
    let Some(after) = after else {
        return Some("records dropped");
    };
    let is_new = before.is_none_or(|before| before.spec.nonce != after.spec.nonce);
    let was_asleep = before.is_some_and(|before| before.marks.parked.is_some());
    let was_open = before.is_some_and(Record::is_open);
    match (&after.marks.closed, &after.marks.parked) {
        (Some(closed), _) if was_open => Some(match closed.reason {
            Reason::Idle => "sessions reaped",
            Reason::Evicted => "sleepers closed to make room",
            Reason::StartFailed => "openings that failed",
            _ => "sessions closed",
        }),
        (None, Some(parked)) if !was_asleep => Some(match parked.reason {
            Reason::Evicted => "sessions that gave way",
            Reason::Idle | Reason::Requested => "sessions put to sleep",
            _ => "sessions whose container ended",
        }),
        (None, None) if is_new => Some("sessions opened"),
        (None, None) if was_asleep => Some("sessions woken"),
        _ => None,
    }
}
