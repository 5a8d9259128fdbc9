//! Says from when on a session's age is counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::execute::in_use;
use crate::activity::Leases;
use crate::clock::Timestamp;
use crate::session::Sweeps;
use crate::session::lifecycle::{Activity, trusted_from};
use crate::session::record::Record;
use crate::store::Store;

/// When this run of the daemon began, how far back the clock is believed, and until
/// when a hold stood; clones share that.
#[derive(Clone, Debug)]
pub struct Epoch {
    started: Timestamp,
    trusted: Timestamp,
    /// In microseconds; 0 where no hold was seen in this run.
    held_until: Arc<AtomicU64>,
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
            held_until: Arc::default(),
        }
    }

    /// Returns what is known of a session's use, as far as its end depends on it.
    ///
    /// Nothing ages while a hold stands: what nobody could use, or was not to be ended
    /// meanwhile, has its whole time once the hold is gone.
    pub fn ageing(
        &self,
        leases: &Leases,
        record: &Record,
        sweeps: Sweeps,
        now: Timestamp,
    ) -> Activity {
        let held_until = match sweeps {
            Sweeps::Off => self.held_until.fetch_max(now.micros(), Ordering::Relaxed),
            Sweeps::On => self.held_until.load(Ordering::Relaxed),
        };
        let activity = self.activity(leases, record);
        Activity {
            floor: activity.floor.max(Timestamp::from_micros(held_until)),
            ..activity
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::Clock;
    use crate::session::record::{Purge, Reason};
    use crate::session::testing;
    use crate::store::{OpenOptions, Probe};

    #[test]
    fn nothing_ages_while_a_hold_stands_and_everything_has_its_whole_time_after_it() {
        let clock = Clock::host();
        let dir = tempfile::tempdir().unwrap();
        let options = OpenOptions::new(dir.path(), Probe::InProcess, clock.clone());
        let store = Store::open(&options).unwrap();
        let started = clock.now();
        let epoch = Epoch::begin(started, &store);
        let leases = Leases::new(clock);
        let open = testing::record("a");
        let closed = open.with(open.marks.closed(started, Purge::No, Reason::Requested));
        let later = |hours| started.plus(Duration::from_hours(hours));
        let floor = |record, sweeps, now| epoch.ageing(&leases, record, sweeps, now).floor;
        assert_eq!(floor(&open, Sweeps::On, later(1)), started);
        floor(&open, Sweeps::Off, later(2));
        for record in [&open, &closed] {
            assert_eq!(floor(record, Sweeps::On, later(3)), later(2));
        }
        // Who gives way to others is told by use alone.
        assert_eq!(epoch.activity(&leases, &open).floor, started);
    }
}
