//! Takes the roll of sessions: for the ceilings, and for the health route.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Control;
use crate::clock::Timestamp;
use crate::id::SessionId;
use crate::reconcile::activity;
use crate::session::admission::{Census, Seat, Standing};
use crate::session::record::{Notice, Record, Status};

/// What requests remember of sessions beside the store.
#[derive(Debug, Default)]
pub(super) struct Roll(Mutex<Remembered>);

#[derive(Debug, Default)]
struct Remembered {
    /// Up to which incarnation callers were told of resets.
    told: BTreeMap<SessionId, u64>,
    counts: Counts,
    /// The store's revision that the counts are of.
    revision: Option<u64>,
}

/// How many sessions count towards the ceilings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Containers that run, are about to, or are being stopped.
    pub(super) resident: u64,
    /// Open sessions.
    pub(super) open: u64,
}

impl Roll {
    fn remembered(&self) -> MutexGuard<'_, Remembered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the reset that this caller is the first to hear of.
    pub(super) fn tell(&self, id: &SessionId, status: &Status) -> Option<Notice> {
        let notice = status.notice?;
        let mut remembered = self.remembered();
        let told = remembered.told.entry(id.clone()).or_insert(0);
        if status.incarnation <= *told {
            return None;
        }
        *told = status.incarnation;
        Some(notice)
    }

    /// Forgets what was told of a session that begins anew.
    pub(super) fn forget(&self, id: &SessionId) {
        self.remembered().told.remove(id);
    }
}

impl Control {
    /// Takes the census for an admission decision.
    pub(super) fn census(&self) -> Census {
        let store = &self.0.books.store;
        let seats = store
            .records()
            .iter()
            .filter_map(|record| {
                let standing = standing(record, store.status(&record.spec.id).as_deref())?;
                let leases = &self.0.loop_.leases;
                let use_ = activity(leases, &record.spec.id, &record.marks, Timestamp::ZERO);
                Some(Seat {
                    id: record.spec.id.clone(),
                    tenant: record.spec.tenant.clone(),
                    standing,
                    last_used: use_.last_used,
                    in_use: use_.now,
                })
            })
            .collect();
        Census { seats }
    }

    /// Counts sessions, anew only where the store has changed.
    pub(super) fn counts(&self) -> Counts {
        let revision = self.0.books.store.revision();
        {
            let remembered = self.0.roll.remembered();
            if remembered.revision == Some(revision) {
                return remembered.counts;
            }
        }
        let counts = self.count();
        let mut remembered = self.0.roll.remembered();
        remembered.counts = counts;
        remembered.revision = Some(revision);
        counts
    }

    fn count(&self) -> Counts {
        let store = &self.0.books.store;
        store
            .records()
            .iter()
            .filter_map(|record| standing(record, store.status(&record.spec.id).as_deref()))
            .fold(Counts::default(), |counts, standing| {
                let (resident, open) = match standing {
                    Standing::Resident | Standing::FallingAsleep(_) => (1, 1),
                    Standing::Asleep(_) => (0, 1),
                    Standing::Closing => (1, 0),
                };
                Counts {
                    resident: counts.resident + resident,
                    open: counts.open + open,
                }
            })
    }
}

/// Where a session stands with the ceilings; `None` where it does not count.
fn standing(record: &Record, status: Option<&Status>) -> Option<Standing> {
    let marks = &record.marks;
    let reached = status.is_some_and(|status| marks.generation <= status.reached);
    let made = status.is_some_and(|status| status.key.is_some());
    match (&marks.closed, &marks.parked, reached) {
        (Some(_), _, false) if made => Some(Standing::Closing),
        (Some(_), _, _) => None,
        (None, Some(parked), true) => Some(Standing::Asleep(parked.at)),
        (None, Some(parked), false) => Some(Standing::FallingAsleep(parked.at)),
        (None, None, _) => Some(Standing::Resident),
    }
}
