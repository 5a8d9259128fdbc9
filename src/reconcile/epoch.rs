//! Says from when on a session's age is counted.

use super::execute::in_use;
use crate::activity::Leases;
use crate::clock::Timestamp;
use crate::session::lifecycle::{Activity, trusted_from};
use crate::session::record::Record;
use crate::store::Store;

/// When this run of the daemon began, and how far back the clock is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch {
    started: Timestamp,
    trusted: Timestamp,
}

impl Epoch {
    /// Begins an epoch, and judges the clock by what is on record.
    pub fn begin(started: Timestamp, store: &Store) -> Self {
        let last_known = store
            .records()
            .iter()
            .map(|record| last_change(record))
            .max();
        Self {
            started,
            trusted: trusted_from(last_known, started),
        }
    }

    /// Returns what is known of a session's use, with the floor under its age.
    ///
    /// An open session is idle from the start of the daemon at the earliest; what
    /// is left of a closed one ages while the daemon is down.
    pub fn activity(&self, leases: &Leases, record: &Record) -> Activity {
        let marks = &record.marks;
        let noted = leases.last_used(&record.spec.id);
        let stored = marks.last_used;
        let (last_used, floor) = if record.is_open() {
            // A stored time that lies ahead is one of a clock that was wrong.
            (noted.unwrap_or(stored.min(self.started)), self.started)
        } else {
            (
                noted.map_or(stored, |noted| noted.max(stored)),
                self.trusted,
            )
        };
        Activity {
            last_used,
            now: in_use(leases, &record.spec.id),
            floor,
        }
    }
}

fn last_change(record: &Record) -> Timestamp {
    let marks = &record.marks;
    let closed = marks.closed.as_ref().map(|closed| closed.at);
    let parked = marks.parked.as_ref().map(|parked| parked.at);
    [
        Some(record.spec.opened_at),
        Some(marks.last_used),
        closed,
        parked,
    ]
    .into_iter()
    .flatten()
    .fold(Timestamp::ZERO, Timestamp::max)
}
