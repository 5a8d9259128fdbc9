//! Hands a connection over to what speaks on it after its last reply.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

/// What goes on after the last reply.
pub(super) type Onward = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The place of one connection for what goes on after its last reply; every request of
/// the connection carries it. What is put there runs in the connection's task, so that
/// it counts as the connection did.
#[derive(Clone)]
pub(super) struct Handover {
    // A std mutex: it is held for a move, and never across an await.
    onward: Arc<Mutex<Option<Onward>>>,
    stop: CancellationToken,
}

impl fmt::Debug for Handover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handover").finish_non_exhaustive()
    }
}

impl Handover {
    /// Makes an empty place on a server that stops when it is told to.
    pub(super) fn new(stop: CancellationToken) -> Self {
        Self {
            onward: Arc::default(),
            stop,
        }
    }

    /// Returns what tells that the server stops; little time is left then.
    pub(super) fn stop(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Puts what goes on after the reply that is about to be sent.
    pub(super) fn put(&self, onward: Onward) {
        *self.onward.lock().unwrap_or_else(PoisonError::into_inner) = Some(onward);
    }

    /// Takes it out, once there are no more replies.
    pub(super) fn take(&self) -> Option<Onward> {
        let mut onward = self.onward.lock().unwrap_or_else(PoisonError::into_inner);
        onward.take()
    }
}
