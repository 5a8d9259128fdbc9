//! What the committer, its callers and the readers of the store have in common.

use std::sync::mpsc::Sender;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread;

use tokio::sync::watch;

use super::committer::Request;
use super::database::Database;
use super::error::CommitError;
use super::events::Retention;
use super::health::Health;
use super::journal::Journal;
use super::mirror::{Changes, Mirror};
use crate::news::News;

/// What the committer and the readers share.
pub(super) struct Shared {
    // The locks are std ones: they are held for look-ups and swaps, never across
    // an await.
    pub(super) mirror: RwLock<Mirror>,
    /// The database; none during an outage and after the close.
    pub(super) database: RwLock<Option<Database>>,
    pub(super) health: RwLock<Health>,
    pub(super) retention: Retention,
    /// None where a test plays the disk.
    pub(super) journal: Option<Journal>,
    /// Counts changes of the mirror since the store was opened.
    pub(super) revision: News,
    /// The last sequence number of the service's log; 0 where there is none.
    pub(super) log_end: watch::Sender<u64>,
}

impl Shared {
    /// Takes over what has been committed, for readers to see.
    pub(super) fn absorb(&self, changes: Changes) {
        let log_end = {
            let mut mirror = write(&self.mirror);
            mirror.absorb(changes);
            mirror.service_log_end()
        };
        self.revision.tell();
        self.log_end
            .send_if_modified(|end| std::mem::replace(end, log_end) != log_end);
    }
}

/// The way to the committer.
pub(super) enum Queue {
    /// To its thread, which is woken where somebody waits.
    Thread(Sender<Request>, thread::Thread),
    /// To a task of a test's runtime.
    #[cfg(test)]
    Task(tokio::sync::mpsc::UnboundedSender<Request>),
}

impl Queue {
    pub(super) fn send(&self, request: Request) -> Result<(), CommitError> {
        let hurries = match &request {
            Request::Commit(waiting) => waiting.is_awaited(),
            Request::Close(_) => true,
        };
        let is_sent = match self {
            Self::Thread(queue, thread) => {
                let is_sent = queue.send(request).is_ok();
                if hurries {
                    thread.unpark();
                }
                is_sent
            }
            #[cfg(test)]
            Self::Task(queue) => queue.send(request).is_ok(),
        };
        if is_sent {
            Ok(())
        } else {
            Err(CommitError::Closed)
        }
    }
}

// A panic between two assignments cannot leave these values half changed in a way
// that matters: the committer, their only writer, ends with it.

/// Reads a shared value.
pub(super) fn read<T>(value: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    value.read().unwrap_or_else(PoisonError::into_inner)
}

/// Changes a shared value.
pub(super) fn write<T>(value: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    value.write().unwrap_or_else(PoisonError::into_inner)
}

/// Has a shared value to itself.
pub(super) fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}
