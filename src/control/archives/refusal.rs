//! Why something with an archive was refused, in the words that the caller reads.

use super::ARCHIVE_TIME_MAX;
use crate::cause::chain;
use crate::control::Refusal;
use crate::control::files::refusal::FileRefusal;
use crate::id::SessionId;
use crate::workspace::archive::{ImportError, Limit};
use crate::workspace::search::Stop;
use crate::workspace::{FileError, NotPlaced, WorkspaceError};

/// A refused request about an archive.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveRefusal {
    /// It is no archive, not whole, or has something in it that is not taken in.
    #[error("The archive is not taken in, and nothing was changed: failed to {0}")]
    Bad(String),
    /// It is larger than may be.
    #[error("The archive is too large, and nothing was changed: failed to {0}")]
    TooLarge(String),
    /// Its sender left off.
    #[error("The archive did not arrive whole, and nothing was changed")]
    BrokenOff,
    /// There are files in the workspace that it is for.
    #[error(
        "The workspace of session {0} has files in it. Ask with replace=true to have the archive take their place."
    )]
    NotEmpty(SessionId),
    /// The session is open, and its files may be in use.
    #[error(
        "Session {0} is open. Close it first: an archive is taken into a new session or a closed one."
    )]
    StillOpen(SessionId),
    /// The session is being closed or opened.
    #[error("The files of session {0} are in use. Try again shortly.")]
    InUse(SessionId),
    /// A container that the service does not manage works on the files.
    #[error("Container {0} works on this workspace and is not managed by sandboxd. Stop it first.")]
    Rival(String),
    /// It took longer than archives may.
    #[error("The archive took longer than {0} seconds, and nothing was changed")]
    TooSlow(u64),
}

/// Puts a failed unpacking into the caller's words.
pub(super) fn not_unpacked(error: &ImportError) -> Refusal {
    let text = || chain(error);
    match error {
        ImportError::Source(_) | ImportError::Stopped(Stop::Cancelled) => {
            ArchiveRefusal::BrokenOff.into()
        }
        ImportError::Damaged(_)
        | ImportError::Truncated
        | ImportError::Unsupported(_)
        | ImportError::Hazard { .. } => ArchiveRefusal::Bad(text()).into(),
        ImportError::TooMuch {
            what: Limit::Ratio, ..
        } => ArchiveRefusal::TooLarge(format!("{}; send it as plain tar", text())).into(),
        ImportError::TooMuch { .. } => ArchiveRefusal::TooLarge(text()).into(),
        ImportError::Write {
            source: FileError::NoSpace,
            ..
        } => Refusal::NoSpace("the workspaces".to_owned()),
        ImportError::NotEmpty | ImportError::Write { .. } => FileRefusal::Broken(text()).into(),
        ImportError::Stopped(Stop::Late) => {
            ArchiveRefusal::TooSlow(ARCHIVE_TIME_MAX.as_secs()).into()
        }
    }
}

/// Puts a failure of the host into the caller's words.
pub(super) fn broken(error: &WorkspaceError) -> Refusal {
    if error.is_no_space() {
        Refusal::NoSpace(chain(error))
    } else {
        FileRefusal::Broken(chain(error)).into()
    }
}

/// Says why an archive that was unpacked did not become the workspace.
pub(super) fn not_placed(id: &SessionId, error: &NotPlaced) -> Refusal {
    match error {
        NotPlaced::NotEmpty => ArchiveRefusal::NotEmpty(id.clone()).into(),
        NotPlaced::Failed(error) => broken(error),
    }
}
