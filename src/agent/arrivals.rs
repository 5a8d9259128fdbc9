//! Tells of each new stream to an agent, the newest of a session only.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use super::connection::Connection;
use crate::id::SessionId;

/// A new stream to an agent.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The session of its sandbox.
    pub session: SessionId,
    /// The container.
    pub container: String,
    /// The stream.
    pub connection: Connection,
}

/// Arrivals that nobody has been told of yet; cheap to clone.
///
/// They are bounded by the sessions: a newer one takes the place of an older.
#[derive(Clone, Debug, Default)]
pub struct Arrivals(Arc<Queue>);

#[derive(Debug, Default)]
struct Queue {
    /// A std mutex: it guards a map, and no await.
    waiting: Mutex<BTreeMap<SessionId, Arrival>>,
    came: Notify,
}

impl Arrivals {
    /// Notes an arrival.
    pub fn note(&self, arrival: Arrival) {
        let mut waiting = self
            .0
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        waiting.insert(arrival.session.clone(), arrival);
        drop(waiting);
        self.0.came.notify_one();
    }

    /// Waits for the next arrival; each is told once.
    ///
    /// Dropping the future loses nothing.
    pub async fn next(&self) -> Arrival {
        loop {
            let came = self.0.came.notified();
            let first = self
                .0
                .waiting
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop_first();
            match first {
                Some((_, arrival)) => return arrival,
                None => came.await,
            }
        }
    }

    /// Forgets the arrivals of a session.
    pub fn forget(&self, session: &SessionId) {
        let mut waiting = self
            .0
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        waiting.remove(session);
    }
}
