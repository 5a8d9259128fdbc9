//! Packs workspaces into archives, and unpacks archives into workspaces.
//!
//! ```text
//! export   blocking thread: a piece ──► channel ──► the reply, as fast as it is taken
//! import   the body ──► channel ──► blocking thread: .incoming/<nonce>
//!                                        │ whole, and within all bounds
//!                                        ▼ under the exclusive lease
//!                                   the workspace
//! ```

mod export;
mod import;
mod refusal;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::{Control, Refusal};
pub use crate::workspace::archive::Format;

pub use export::Packed;
pub use import::{Import, Importing, Part};
pub use refusal::ArchiveRefusal;

/// Archives that are packed or unpacked at once.
const ARCHIVES_MAX: usize = 4;
/// How long another one waits for its turn.
const TURN_WAIT_MAX: Duration = Duration::from_secs(10);
/// The longest that one archive takes.
const ARCHIVE_TIME_MAX: Duration = Duration::from_hours(6);

/// The room for archives.
#[derive(Debug)]
pub(super) struct Archives {
    room: Arc<Semaphore>,
    /// Bytes of the largest one, before it is compressed.
    bytes_max: u64,
}

impl Archives {
    pub(super) fn new(bytes_max: u64) -> Self {
        Self {
            room: Arc::new(Semaphore::new(ARCHIVES_MAX)),
            bytes_max,
        }
    }
}

impl Control {
    pub(super) async fn archive_turn(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        let turn = Arc::clone(&self.0.archives.room).acquire_owned();
        match timeout(TURN_WAIT_MAX, turn).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => Err(Refusal::ArchiveCeiling {
                limit: u64::try_from(ARCHIVES_MAX).unwrap_or(u64::MAX),
            }),
        }
    }
}

/// Does file work on a thread where blocking hurts nobody.
async fn on_disk<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}
