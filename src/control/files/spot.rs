//! Does work at a path of a session's workspace, by the host alone and without waking it.

use std::sync::Arc;

use tokio::time::{Instant, timeout_at};

use super::super::{Control, Refusal};
use super::given::GivenPath;
use super::refusal::FileRefusal;
use crate::activity::Lease;
use crate::id::SessionId;
use crate::workspace::{Dir, FileError, NotAPath, Place, RelPath};

/// A path of a workspace that is held open.
#[derive(Debug)]
pub(super) struct Spot {
    /// The work directory.
    pub(super) dir: Dir,
    /// The path below it.
    pub(super) at: RelPath,
}

impl Control {
    /// Does some work on a spot of a session's workspace, by the host alone, under a
    /// lease that comes with what was done.
    ///
    /// # Errors
    /// The inner error is that of the work, or one that hands it to the sandbox where the
    /// host has no such place.
    pub(super) async fn on_spot<T: Send + 'static>(
        &self,
        id: &SessionId,
        path: &GivenPath,
        deadline: Instant,
        work: impl FnOnce(&Spot) -> Result<T, FileError> + Send + 'static,
    ) -> Result<Result<(T, Lease), FileError>, Refusal> {
        let no_session = || Refusal::NoSession(id.clone());
        self.open_record(id).ok_or_else(no_session)?;
        let policy = self.0.policy.get();
        let work_dir = policy.interior.work_dir.as_bytes();
        let at = match Place::of(work_dir, path.as_bytes()) {
            Ok(Place::Inside(at)) => at,
            Ok(Place::Outside | Place::Climbs) => return Ok(Err(FileError::Outside)),
            Err(error) => return Err(no_path(error, path)),
        };
        let Some(workspaces) = self.0.host.workspaces.clone() else {
            return Ok(Err(FileError::Outside));
        };
        self.has_workspaces()?;
        let ceiling = policy.limits.execute_timeout;
        let late = || Refusal::from(FileRefusal::TooSlow(ceiling.as_secs()));
        let lease = timeout_at(deadline, self.0.loop_.leases.shared(id));
        let lease = lease.await.map_err(|_| late())?;
        let room = Arc::clone(&self.0.files.room).acquire_owned();
        let permit = timeout_at(deadline, room).await.map_err(|_| late())?;
        self.open_record(id).ok_or_else(no_session)?;
        let id = id.clone();
        let task = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let done = match workspaces.enter(&id) {
                Ok(Some(dir)) => work(&Spot { dir, at }),
                // The sandbox may see more.
                Ok(None) | Err(_) => Err(FileError::Outside),
            };
            match done {
                Ok(done) => Ok((done, lease)),
                Err(error) => {
                    lease.void();
                    Err(error)
                }
            }
        });
        match timeout_at(deadline, task).await {
            Err(_) => Err(late()),
            Ok(Ok(done)) => Ok(done),
            Ok(Err(panic)) => std::panic::resume_unwind(panic.into_panic()),
        }
    }
}

/// Says why something is no path.
fn no_path(error: NotAPath, path: &GivenPath) -> Refusal {
    FileRefusal::Unreadable(format!("'{path}' is no path of a file: {error}")).into()
}
