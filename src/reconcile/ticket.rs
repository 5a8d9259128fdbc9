//! Lets a request wait for what the controller makes of its intent.
//!
//! Dropping a ticket cancels nothing: the intent stands.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::id::SessionId;

/// What became of an intent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The session is what it should be.
    Reached,
    /// It is not, for this reason.
    Failed(Failure),
    /// Nothing of the session is left.
    Gone,
    /// The session was closed since, and is still being ended.
    Overtaken,
}

/// Why a session is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Trying again will not help.
    #[error("{0}")]
    Refused(String),
    /// The engine cannot be reached, or does not answer in time.
    #[error("{0}")]
    Unavailable(String),
    /// The engine answered with a failure of its own.
    #[error("{0}")]
    Engine(String),
    /// A disk is full.
    #[error("{0}")]
    NoSpace(String),
    /// The store takes no writes.
    #[error("{0}")]
    Store(String),
}

impl Failure {
    /// Puts before its own words what it is about.
    #[must_use]
    pub fn about(self, what: &str) -> Self {
        let with = |why: String| format!("{what}: {why}");
        match self {
            Self::Refused(why) => Self::Refused(with(why)),
            Self::Unavailable(why) => Self::Unavailable(with(why)),
            Self::Engine(why) => Self::Engine(with(why)),
            Self::NoSpace(why) => Self::NoSpace(with(why)),
            Self::Store(why) => Self::Store(with(why)),
        }
    }
}

/// The tickets of all sessions; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Tickets(Arc<Mutex<Desks>>);

#[derive(Debug, Default)]
struct Desks {
    /// Waiting for the aim of a generation.
    intents: BTreeMap<SessionId, Vec<(u64, oneshot::Sender<Outcome>)>>,
    /// Waiting for a pass that has not begun yet.
    looks: BTreeMap<SessionId, Vec<oneshot::Sender<()>>>,
}

/// The tickets that one pass will serve, taken as it begins.
#[derive(Debug)]
pub struct Lookers(Vec<oneshot::Sender<()>>);

impl Tickets {
    /// Waits for what becomes of the intent of `generation`, or of a later one.
    pub fn intent(&self, id: &SessionId, generation: u64) -> oneshot::Receiver<Outcome> {
        let (sender, receiver) = oneshot::channel();
        let mut desks = self.desks();
        let waiting = desks.intents.entry(id.clone()).or_default();
        waiting.retain(|(_, sender)| !sender.is_closed());
        waiting.push((generation, sender));
        receiver
    }

    /// Waits for the end of a pass over the session that begins from now on.
    pub fn look(&self, id: &SessionId) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        let mut desks = self.desks();
        desks.looks.entry(id.clone()).or_default().push(sender);
        receiver
    }

    /// Takes the tickets that the pass that begins now will serve.
    pub fn begin(&self, id: &SessionId) -> Lookers {
        Lookers(self.desks().looks.remove(id).unwrap_or_default())
    }

    /// Tells everybody who waits for `generation` or an earlier one.
    pub fn settle(&self, id: &SessionId, generation: u64, outcome: &Outcome) {
        let mut desks = self.desks();
        let Some(waiting) = desks.intents.get_mut(id) else {
            return;
        };
        let (served, left): (Vec<_>, Vec<_>) = std::mem::take(waiting)
            .into_iter()
            .partition(|(wanted, _)| *wanted <= generation);
        *waiting = left;
        if waiting.is_empty() {
            desks.intents.remove(id);
        }
        drop(desks);
        for (_, sender) in served {
            // A caller that hung up needs no answer.
            drop(sender.send(outcome.clone()));
        }
    }

    fn desks(&self) -> MutexGuard<'_, Desks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lookers {
    /// Tells everybody that the pass has ended.
    pub fn end(self) {
        for sender in self.0 {
            match sender.send(()) {
                // A caller that hung up needs no answer.
                Ok(()) | Err(()) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_served_by_its_generation_or_a_later_one() {
        let tickets = Tickets::default();
        let id = SessionId::parse("a").unwrap();
        let mut second = tickets.intent(&id, 2);
        tickets.settle(&id, 1, &Outcome::Reached);
        assert!(
            second.try_recv().is_err(),
            "an older outcome is not its own"
        );
        tickets.settle(&id, 3, &Outcome::Gone);
        assert_eq!(second.try_recv(), Ok(Outcome::Gone));
    }

    #[test]
    fn a_look_is_served_only_by_a_pass_that_began_after_it() {
        let tickets = Tickets::default();
        let id = SessionId::parse("a").unwrap();
        let before = tickets.begin(&id);
        let mut look = tickets.look(&id);
        before.end();
        assert!(look.try_recv().is_err());
        tickets.begin(&id).end();
        assert_eq!(look.try_recv(), Ok(()));
    }
}
