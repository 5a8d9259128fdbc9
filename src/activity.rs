//! Knows who uses a session now, and when it was last used.
//!
//! Use takes a shared lease; whatever stops or removes a session takes an
//! exclusive one, so nothing stops a session under a command and no command
//! starts under a stop.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::clock::{Clock, Timestamp};
use crate::id::SessionId;

/// The leases on all sessions; cheap to clone.
#[derive(Clone, Debug)]
pub struct Leases(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    clock: Clock,
    /// A `std` mutex: held for a map look-up, never across an await.
    entries: Mutex<BTreeMap<SessionId, Entry>>,
    released: Notify,
}

#[derive(Debug, Default)]
struct Entry {
    shared: u64,
    exclusive: bool,
    last_used: Option<Timestamp>,
    /// Whether `last_used` moved since it was last handed to the store.
    dirty: bool,
}

/// Holds a session in use; dropping it ends the use and stamps it.
#[derive(Debug)]
#[must_use]
pub struct Lease {
    leases: Leases,
    id: SessionId,
    began: Timestamp,
    /// What was known when it began: the last use, and whether the store did not know it.
    before: (Option<Timestamp>, bool),
    is_void: bool,
}

/// Holds a session against any use.
#[derive(Debug)]
#[must_use]
pub struct Exclusive {
    leases: Leases,
    id: SessionId,
}

impl Leases {
    /// Makes an empty set of leases that reads this clock.
    pub fn new(clock: Clock) -> Self {
        Self(Arc::new(Shared {
            clock,
            entries: Mutex::default(),
            released: Notify::new(),
        }))
    }

    /// Takes a shared lease, once nobody holds the session exclusively.
    pub async fn shared(&self, id: &SessionId) -> Lease {
        loop {
            // Listening starts before looking, so that no release is missed.
            let released = self.0.released.notified();
            if let Some(lease) = self.try_shared(id) {
                return lease;
            }
            released.await;
        }
    }

    /// Takes a shared lease, unless somebody holds the session exclusively.
    pub fn try_shared(&self, id: &SessionId) -> Option<Lease> {
        let now = self.0.clock.now();
        let mut entries = self.entries();
        let entry = entries.entry(id.clone()).or_default();
        if entry.exclusive {
            return None;
        }
        let before = (entry.last_used, entry.dirty);
        entry.shared += 1;
        entry.touch(now);
        Some(Lease {
            leases: self.clone(),
            id: id.clone(),
            began: now,
            before,
            is_void: false,
        })
    }

    /// Takes the exclusive lease, unless the session is in use.
    pub fn try_exclusive(&self, id: &SessionId) -> Option<Exclusive> {
        let mut entries = self.entries();
        let entry = entries.entry(id.clone()).or_default();
        if entry.exclusive || 0 < entry.shared {
            return None;
        }
        entry.exclusive = true;
        Some(Exclusive {
            leases: self.clone(),
            id: id.clone(),
        })
    }

    /// Returns how many shared leases are held on a session.
    pub fn count(&self, id: &SessionId) -> u64 {
        self.entries().get(id).map_or(0, |entry| entry.shared)
    }

    /// Returns when a session was last used since the daemon started, if it was.
    pub fn last_used(&self, id: &SessionId) -> Option<Timestamp> {
        self.entries().get(id).and_then(|entry| entry.last_used)
    }

    /// Stamps a session as used at this moment.
    pub fn touch(&self, id: &SessionId) {
        let now = self.0.clock.now();
        self.entries().entry(id.clone()).or_default().touch(now);
    }

    /// Takes the last uses that the store does not know yet.
    pub fn take_dirty(&self) -> Vec<(SessionId, Timestamp)> {
        self.entries()
            .iter_mut()
            .filter_map(|(id, entry)| {
                let moved = std::mem::take(&mut entry.dirty);
                entry.last_used.filter(|_| moved).map(|at| (id.clone(), at))
            })
            .collect()
    }

    /// Drops what is known of sessions that are not among these, and not in use.
    pub fn retain(&self, open: impl Fn(&SessionId) -> bool) {
        self.entries()
            .retain(|id, entry| entry.exclusive || 0 < entry.shared || entry.dirty || open(id));
    }

    /// Drops what is known of a session that is gone.
    pub fn forget(&self, id: &SessionId) {
        let mut entries = self.entries();
        if entries
            .get(id)
            .is_some_and(|entry| entry.shared == 0 && !entry.exclusive)
        {
            entries.remove(id);
        }
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<SessionId, Entry>> {
        // The map is consistent after every statement, so a panic elsewhere
        // while it was held leaves nothing half done.
        self.0
            .entries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn touch(&mut self, now: Timestamp) {
        self.last_used = Some(now);
        self.dirty = true;
    }
}

impl Lease {
    /// Ends it as if it had never been: it came to no use, and keeps nothing awake.
    pub fn void(mut self) {
        self.is_void = true;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let now = self.leases.0.clock.now();
        if let Some(entry) = self.leases.entries().get_mut(&self.id) {
            entry.shared = entry.shared.saturating_sub(1);
            if !self.is_void {
                entry.touch(now);
            } else if entry.last_used == Some(self.began) {
                (entry.last_used, entry.dirty) = self.before;
            }
        }
        self.leases.0.released.notify_waiters();
    }
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        if let Some(entry) = self.leases.entries().get_mut(&self.id) {
            entry.exclusive = false;
        }
        self.leases.0.released.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn leases() -> (Leases, Clock, SessionId) {
        let clock = Clock::manual(Timestamp::from_secs(100));
        let id = SessionId::parse("a").unwrap();
        (Leases::new(clock.clone()), clock, id)
    }

    #[test]
    fn nothing_stops_a_session_in_use() {
        let (leases, _, id) = leases();
        let lease = leases.try_shared(&id).unwrap();
        assert!(leases.try_exclusive(&id).is_none());
        drop(lease);
        let exclusive = leases.try_exclusive(&id).unwrap();
        assert!(leases.try_shared(&id).is_none());
        assert!(leases.try_exclusive(&id).is_none());
        drop(exclusive);
        assert!(leases.try_shared(&id).is_some());
    }

    #[test]
    fn use_counts_from_its_end() {
        let (leases, clock, id) = leases();
        let lease = leases.try_shared(&id).unwrap();
        clock.advance(Duration::from_secs(50));
        drop(lease);
        assert_eq!(leases.last_used(&id), Some(Timestamp::from_secs(150)));
        assert_eq!(leases.take_dirty().len(), 1);
        assert!(leases.take_dirty().is_empty());
    }

    #[test]
    fn what_comes_to_no_use_leaves_no_trace_and_hides_no_use() {
        let (leases, clock, id) = leases();
        leases.try_shared(&id).unwrap().void();
        assert_eq!(leases.last_used(&id), None);
        assert!(leases.take_dirty().is_empty());
        drop(leases.try_shared(&id));
        clock.advance(Duration::from_secs(50));
        let lease = leases.try_shared(&id).unwrap();
        assert!(leases.try_exclusive(&id).is_none(), "it is a use meanwhile");
        clock.advance(Duration::from_secs(50));
        lease.void();
        assert_eq!(leases.last_used(&id), Some(Timestamp::from_secs(100)));
        assert_eq!(leases.take_dirty().len(), 1, "of the use before");
        // Another use of the same time counts.
        let (lease, other) = (leases.try_shared(&id).unwrap(), leases.try_shared(&id));
        clock.advance(Duration::from_secs(50));
        drop(other);
        lease.void();
        assert_eq!(leases.last_used(&id), Some(Timestamp::from_secs(250)));
    }

    #[tokio::test]
    async fn a_user_waits_for_an_exclusive_holder_to_finish() {
        let (leases, _, id) = leases();
        let exclusive = leases.try_exclusive(&id).unwrap();
        let waiting = tokio::spawn({
            let (leases, id) = (leases.clone(), id.clone());
            async move { drop(leases.shared(&id).await) }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(exclusive);
        waiting.await.unwrap();
    }

    #[test]
    fn nothing_is_remembered_of_ids_that_never_became_sessions() {
        let (leases, _, id) = leases();
        drop(leases.try_shared(&id));
        leases.retain(|_| false);
        assert!(
            leases.last_used(&id).is_some(),
            "the store was not told yet"
        );
        leases.take_dirty();
        leases.retain(|_| false);
        assert_eq!(leases.last_used(&id), None);
    }

    #[test]
    fn what_is_in_use_is_not_forgotten() {
        let (leases, _, id) = leases();
        let lease = leases.try_shared(&id).unwrap();
        leases.forget(&id);
        assert_eq!(leases.count(&id), 1);
        drop(lease);
        leases.forget(&id);
        assert_eq!(leases.last_used(&id), None);
    }
}
