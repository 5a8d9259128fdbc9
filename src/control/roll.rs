//! Takes the roll of sessions: for the ceilings, and for the health route.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Control;
use crate::id::SessionId;
use crate::session::admission::{Census, Seat, Standing};

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

    /// Notes that a caller is told of the reset that began this incarnation;
    /// false where somebody was told before.
    pub(super) fn tell(&self, id: &SessionId, incarnation: u64) -> bool {
        let mut remembered = self.remembered();
        let told = remembered.told.entry(id.clone()).or_insert(0);
        let is_news = *told < incarnation;
        *told = incarnation.max(*told);
        is_news
    }

    /// Forgets what was told of a session that begins anew.
    pub(super) fn forget(&self, id: &SessionId) {
        self.remembered().told.remove(id);
    }

    /// Forgets what was told of sessions that are not among these.
    pub(super) fn retain(&self, open: impl Fn(&SessionId) -> bool) {
        self.remembered().told.retain(|id, _| open(id));
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
                let standing = Standing::of(record, store.status(&record.spec.id).as_deref())?;
                let use_ = self.0.loop_.epoch.activity(&self.0.loop_.leases, record);
                Some(Seat {
                    id: record.spec.id.clone(),
                    tenant: record.spec.tenant.clone(),
                    standing,
                    // A clock that was stepped while the daemon was down makes nobody idle.
                    last_used: use_.last_used.max(use_.floor),
                    in_use: use_.now,
                    generation: record.marks.generation,
                })
            })
            .collect();
        Census {
            seats,
            sweeps: self.holds().sweeps(),
        }
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
            .filter_map(|record| Standing::of(record, store.status(&record.spec.id).as_deref()))
            .fold(Counts::default(), |counts, standing| {
                let (resident, open) = match standing {
                    Standing::Resident | Standing::FallingAsleep(_) => (1, 1),
                    Standing::Asleep(_) | Standing::Failing => (0, 1),
                    Standing::Closing => (1, 0),
                };
                Counts {
                    resident: counts.resident + resident,
                    open: counts.open + open,
                }
            })
    }
}
