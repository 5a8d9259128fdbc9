//! Says from when on a session's age is counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

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
    store: Store,
    hold: Arc<Hold>,
}

/// How long a hold has stood in this run.
#[derive(Debug, Default)]
struct Hold {
    /// In microseconds; 0 where none was seen.
    until: AtomicU64,
    /// Until when it is in the store, in microseconds.
    noted: AtomicU64,
}

/// How long a hold stands before the store says so again: what a later run may count too
/// much, where it is killed under a hold that goes meanwhile.
const NOTED_MAX: Duration = Duration::from_mins(1);

impl Hold {
    /// Notes that a hold stands, or not; returns until when the last one did, and that
    /// once more where the store does not know it.
    fn note(&self, sweeps: Sweeps, now: Timestamp) -> (Timestamp, Option<Timestamp>) {
        let until = match sweeps {
            Sweeps::Off => self
                .until
                .fetch_max(now.micros(), Ordering::Relaxed)
                .max(now.micros()),
            Sweeps::On => self.until.load(Ordering::Relaxed),
        };
        let noted = Timestamp::from_micros(self.noted.load(Ordering::Relaxed));
        let until = Timestamp::from_micros(until);
        let is_due = match sweeps {
            Sweeps::Off => NOTED_MAX <= until.since(noted),
            Sweeps::On => noted < until,
        };
        if is_due {
            self.noted.fetch_max(until.micros(), Ordering::Relaxed);
        }
        (until, is_due.then_some(until))
    }
}

impl Epoch {
    /// Begins an epoch, and judges the clock by what is on record.
    ///
    /// What it does not believe it writes down: the records of this run would make the
    /// next believe it.
    pub fn begin(started: Timestamp, store: &Store) -> Self {
        let stored = store.ages_from();
        let last_known = store
            .records()
            .iter()
            .map(|record| last_change(record))
            .chain((stored != Timestamp::ZERO).then_some(stored))
            .max();
        let trusted = match trusted_from(last_known, started) {
            Timestamp::ZERO => stored,
            trusted => trusted,
        };
        if trusted != stored {
            store.age_from(trusted);
        }
        Self {
            started,
            trusted,
            store: store.clone(),
            hold: Arc::default(),
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
        let (held_until, news) = self.hold.note(sweeps, now);
        if let Some(until) = news {
            self.store.age_from(until);
        }
        let activity = self.activity(leases, record);
        Activity {
            floor: activity.floor.max(held_until),
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
    use super::*;
    use crate::clock::Clock;
    use crate::id::SessionId;
    use crate::session::record::{Purge, Reason};
    use crate::session::testing;
    use crate::store::{Batch, Expect, OpenOptions, Probe};

    const HOUR: Duration = Duration::from_hours(1);

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

    /// The records of the run that did not believe it would make the next believe it.
    #[tokio::test]
    async fn a_clock_that_was_not_believed_is_not_believed_by_later_runs_either() {
        let clock = Clock::host();
        let dir = tempfile::tempdir().unwrap();
        let options = OpenOptions::new(dir.path(), Probe::InProcess, clock.clone());
        let now = clock.now();
        let months = now.plus(Duration::from_hours(24 * 60));
        let record = testing::record("a");
        let closed = record.with(record.marks.closed(now, Purge::No, Reason::Requested));
        let leases = Leases::new(clock);
        // When a daemon starts, what it writes down as its time, and from when things age.
        let runs = [
            (now, now, Timestamp::ZERO),
            (months, months, months),
            (months.plus(HOUR), months.plus(HOUR), months),
            // The clock was wrong, and is right again: as long as something has a time
            // ahead of it, no start believes it.
            (now.plus(HOUR), now.plus(HOUR), now.plus(HOUR)),
            (now.plus(HOUR * 2), now.plus(HOUR * 2), now.plus(HOUR * 2)),
        ];
        for (n, (started, written, floor)) in runs.into_iter().enumerate() {
            let store = Store::open(&options).unwrap();
            let epoch = Epoch::begin(started, &store);
            assert_eq!(epoch.activity(&leases, &closed).floor, floor, "run {n}");
            let mut record = closed.clone();
            record.spec.id = SessionId::parse(&format!("s{n}")).unwrap();
            record.marks.last_used = written;
            let batch = Batch::new().put_record(record, Expect::Absent);
            store.commit(batch).await.unwrap();
            store.close().await.unwrap();
        }
    }

    #[tokio::test]
    async fn what_a_hold_kept_from_ageing_is_as_young_after_a_restart() {
        let clock = Clock::host();
        let dir = tempfile::tempdir().unwrap();
        let options = OpenOptions::new(dir.path(), Probe::InProcess, clock.clone());
        let started = clock.now();
        let record = testing::record("a");
        let closed = record.with(record.marks.closed(started, Purge::No, Reason::Requested));
        let leases = Leases::new(clock);
        let store = Store::open(&options).unwrap();
        let epoch = Epoch::begin(started, &store);
        let released = started.plus(HOUR);
        for (at, sweeps) in [(started, Sweeps::Off), (released, Sweeps::Off)] {
            epoch.ageing(&leases, &closed, sweeps, at);
        }
        epoch.ageing(&leases, &closed, Sweeps::On, released.plus(HOUR));
        store.close().await.unwrap();
        let store = Store::open(&options).unwrap();
        let later = Epoch::begin(released.plus(HOUR * 2), &store);
        assert_eq!(later.activity(&leases, &closed).floor, released);
    }

    #[test]
    fn a_hold_is_noted_when_it_begins_each_minute_and_when_it_is_gone() {
        let hold = Hold::default();
        let at = |secs: u64| Timestamp::from_secs(1_000_000 + secs);
        let noted = |sweeps, secs| hold.note(sweeps, at(secs)).1;
        assert_eq!(noted(Sweeps::On, 0), None);
        assert_eq!(noted(Sweeps::Off, 10), Some(at(10)));
        assert_eq!(noted(Sweeps::Off, 69), None);
        assert_eq!(noted(Sweeps::Off, 70), Some(at(70)));
        assert_eq!(noted(Sweeps::Off, 90), None);
        assert_eq!(noted(Sweeps::On, 95), Some(at(90)));
        assert_eq!(noted(Sweeps::On, 96), None);
    }
}
