//! Why something with files was refused, in the words that the caller reads.

use crate::control::refusal::ceiling;
use crate::id::SessionId;
use crate::wire::error::Ceiling;

/// A refused request about files.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileRefusal {
    /// An operation took longer than the service's ceiling of so many seconds.
    #[error("Operation exceeded the {0}s service ceiling")]
    TooSlow(u64),
    /// What was to name files is no pattern.
    #[error("The pattern cannot be used: {0}")]
    BadPattern(String),
    /// What was sent is not in base64, for this reason.
    #[error("content_b64 is not valid base64: {0}")]
    NotBase64(&'static str),
    /// The service keeps no files on its host.
    #[error(
        "This service keeps no workspaces on disk. Set SandboxdConfig.workspace_root to read files without a sandbox."
    )]
    NoWorkspaces,
    /// The id has no workspace.
    #[error("No workspace for session: {0}")]
    NoWorkspace(SessionId),
    /// The path leads, or may lead, out of the workspace.
    #[error("Path '{0}' is outside the workspace")]
    Outside(String),
    /// There is no such directory.
    #[error("No such directory: {0}")]
    NoDirectory(String),
    /// There is no such file.
    #[error("No such file: {0}")]
    NoFile(String),
    /// The file is larger than is read at once, or no text, or its path is none.
    #[error("{0}")]
    Unreadable(String),
    /// The host could not do it.
    #[error("The file could not be used: {0}")]
    Broken(String),
    /// The sandbox itself has to do it, for this reason.
    #[error("{0}")]
    Handed(String),
    /// The file has more bytes than it may.
    #[error("{0}")]
    TooLarge(String),
    /// Something keeps the file from being written.
    #[error("{0}")]
    Unwritable(String),
    /// What is there is not what the request's headers expect.
    #[error("{0} is not the file that the request expects")]
    Condition(String),
    /// What is there is not what the request's `if_match` expects.
    #[error("{0} is not the file that if_match expects. Read it again.")]
    Changed(String),
    /// There are as many as may be.
    #[error("{limit} of {limit} {what} go on{}. Try again when one has ended.",
        of.as_ref().map(|id| format!(" in session {id}")).unwrap_or_default())]
    TooMany {
        /// What there are as many of as may be.
        what: &'static str,
        /// The stable name of the ceiling.
        name: &'static str,
        /// The ceiling.
        limit: u64,
        /// The session, where the ceiling is a session's.
        of: Option<SessionId>,
    },
    /// The host's kernel gives no more of something; its setting.
    #[error("The host has no more watches: all {limit} are taken. Raise {setting} on the host.")]
    HostCeiling {
        /// The setting.
        setting: &'static str,
        /// Its value: so many there are of this user's.
        limit: u64,
    },
    /// It is an error of the caller's, under the name that Python has for it.
    #[error("{message}")]
    Named {
        /// The name.
        name: ErrorName,
        /// What is wrong.
        message: String,
    },
}

/// The names of errors that callers tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorName {
    /// It is not there.
    FileNotFound,
    /// It is a directory.
    IsADirectory,
    /// It is none.
    NotADirectory,
    /// It is there already.
    FileExists,
    /// It is no path for this.
    Value,
}

impl FileRefusal {
    /// Returns the ceiling that refused, if one did.
    pub fn ceiling(&self) -> Option<Ceiling> {
        let (name, limit, of) = if let Self::TooMany {
            name, limit, of, ..
        } = self
        {
            (*name, *limit, of.as_ref())
        } else if let Self::HostCeiling { setting, limit } = self {
            (*setting, *limit, None)
        } else {
            return None;
        };
        let scope = match of {
            Some(id) => format!("session:{id}"),
            None => "service".to_owned(),
        };
        Some(ceiling(name, limit, limit, scope))
    }
}

impl ErrorName {
    /// Returns the name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FileNotFound => "FileNotFoundError",
            Self::IsADirectory => "IsADirectoryError",
            Self::NotADirectory => "NotADirectoryError",
            Self::FileExists => "FileExistsError",
            Self::Value => "ValueError",
        }
    }
}
