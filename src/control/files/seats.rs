//! Counts what goes on for long, so that neither one session nor all take more than they may.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::refusal::FileRefusal;
use crate::id::SessionId;

/// What is counted, and how many of it there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ceiling {
    /// What it is, in the plural.
    pub(super) what: &'static str,
    /// The stable name of the ceiling.
    pub(super) name: &'static str,
    /// Of one session.
    pub(super) session: usize,
    /// Of all.
    pub(super) all: usize,
}

/// Transfers of one session and of all: each holds two pieces in memory at most.
pub(super) const TRANSFERS: Ceiling = Ceiling {
    what: "transfers",
    name: "file_transfers",
    session: SESSION_TRANSFERS_MAX,
    all: TRANSFERS_MAX,
};

/// Watches of one session and of all: the kernel has few of them for a user.
pub(super) const WATCHES: Ceiling = Ceiling {
    what: "watches",
    name: "file_watches",
    session: SESSION_WATCHES_MAX,
    all: WATCHES_MAX,
};

const SESSION_TRANSFERS_MAX: usize = 32;
const TRANSFERS_MAX: usize = 128;
const SESSION_WATCHES_MAX: usize = 8;
const WATCHES_MAX: usize = 64;

/// Descriptors that transfers and watches hold beside their connections: an upload has two
/// directories and its file.
pub const DESCRIPTORS_MAX: usize = 3 * TRANSFERS_MAX + WATCHES_MAX;

/// The seats for something.
// A std mutex: it is held for a look into a small map, and never across an await.
#[derive(Clone, Debug)]
pub(super) struct Seats {
    ceiling: Ceiling,
    taken: Arc<Mutex<BTreeMap<SessionId, usize>>>,
}

/// One seat; dropping it frees it.
#[derive(Debug)]
pub(super) struct Seat {
    seats: Seats,
    id: SessionId,
}

impl Seats {
    pub(super) fn new(ceiling: Ceiling) -> Self {
        Self {
            ceiling,
            taken: Arc::default(),
        }
    }

    /// Takes a seat for a session, or says which ceiling refuses it.
    pub(super) fn take(&self, id: &SessionId) -> Result<Seat, FileRefusal> {
        let mut taken = self.taken();
        let Ceiling {
            what,
            name,
            session,
            all,
        } = self.ceiling;
        let in_session = taken.get(id).copied().unwrap_or(0);
        let refused = |of: Option<SessionId>, limit: usize| FileRefusal::TooMany {
            what,
            name,
            limit: u64::try_from(limit).unwrap_or(u64::MAX),
            of,
        };
        // The session's own ceiling first: its callers can do something about that one.
        if session <= in_session {
            return Err(refused(Some(id.clone()), session));
        }
        if all <= taken.values().sum() {
            return Err(refused(None, all));
        }
        *taken.entry(id.clone()).or_insert(0) += 1;
        Ok(Seat {
            seats: self.clone(),
            id: id.clone(),
        })
    }

    fn taken(&self) -> MutexGuard<'_, BTreeMap<SessionId, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.taken();
        if let Some(in_session) = taken.get_mut(&self.id) {
            *in_session = in_session.saturating_sub(1);
            if *in_session == 0 {
                taken.remove(&self.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_has_its_seats_and_all_have_theirs_until_they_are_given_back() {
        let seats = Seats::new(Ceiling {
            session: 2,
            all: 3,
            ..WATCHES
        });
        let [a, b, c] = ["a", "b", "c"].map(|id| SessionId::parse(id).unwrap());
        let limit_of = |id: &SessionId| match seats.take(id).unwrap_err() {
            FileRefusal::TooMany { limit, of, .. } => (limit, of),
            other => panic!("{other}"),
        };
        let first = seats.take(&a).unwrap();
        let _second = seats.take(&a).unwrap();
        assert_eq!(limit_of(&a), (2, Some(a.clone())));
        let third = seats.take(&b).unwrap();
        assert_eq!(limit_of(&c), (3, None));
        drop(third);
        let _third = seats.take(&c).unwrap();
        drop(first);
        let _fourth = seats.take(&a).unwrap();
        assert_eq!(seats.taken().len(), 2);
    }
}
