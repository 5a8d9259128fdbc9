//! Hands out keys as their times come.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::key::Key;
use super::queue::Queue;
use crate::clock::{Clock, Timestamp};
use crate::id::SessionId;

/// The longest sleep of the hand-out, so that its pulse can be felt.
const NAP_MAX: Duration = Duration::from_secs(1);

/// The work of the controller; cheap to clone.
#[derive(Clone, Debug)]
pub struct Work(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    clock: Clock,
    queue: Mutex<Queue<Key>>,
    changed: Notify,
}

impl Work {
    /// Makes an empty queue that reads this clock.
    pub fn new(clock: Clock) -> Self {
        Self(Arc::new(Shared {
            clock,
            queue: Mutex::default(),
            changed: Notify::new(),
        }))
    }

    /// Asks for a key to be looked at now.
    pub fn nudge(&self, key: Key) {
        self.at(key, self.0.clock.now());
    }

    /// Asks for a session to be looked at now.
    pub fn nudge_session(&self, id: &SessionId) {
        self.nudge(Key::Session(id.clone()));
    }

    /// Asks for a key to be looked at by then.
    pub fn at(&self, key: Key, due: Timestamp) {
        self.queue().add(key, due);
        self.0.changed.notify_one();
    }

    /// Returns when a session is looked at next; `None` where nothing is due, or while it
    /// is being looked at.
    pub fn due(&self, id: &SessionId) -> Option<Timestamp> {
        self.queue().due(&Key::Session(id.clone()))
    }

    /// Takes the next key, or nothing after at most a second's wait.
    ///
    /// There is one caller, the controller's own loop.
    pub async fn next(&self) -> Option<Key> {
        let now = self.0.clock.now();
        let due = {
            let mut queue = self.queue();
            if let Some(key) = queue.take(now) {
                return Some(key);
            }
            queue.next_due()
        };
        let nap = due.map_or(NAP_MAX, |due| due.since(now).min(NAP_MAX));
        // A change that came before this line left its permit behind.
        match tokio::time::timeout(nap, self.0.changed.notified()).await {
            Ok(()) | Err(_) => self.queue().take(self.0.clock.now()),
        }
    }

    /// Ends the work on a key, which waits again if `again` or a change asks for it.
    pub fn done(&self, key: &Key, again: Option<Timestamp>) {
        self.queue().done(key, again);
        self.0.changed.notify_one();
    }

    fn queue(&self) -> MutexGuard<'_, Queue<Key>> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
