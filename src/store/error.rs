//! Names what can go wrong with the store.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::codec::CodecError;
use super::meta::SCHEMA;
use crate::id::{InstanceId, RunId, SessionId};

/// Says why the store did not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another daemon owns the state directory.
    #[error(
        "open the store: its state directory belongs to a running sandboxd (pid {})",
        pid.map_or_else(|| "unknown".to_owned(), |pid| pid.to_string())
    )]
    Busy {
        /// The owner, where it has written itself down.
        pid: Option<u32>,
    },
    /// The store cannot be trusted; it was left where it is.
    #[error("open the store {}: it is corrupt: {why}; put back a backup of the whole state directory, or have the records rebuilt from the containers and workspaces", store.display())]
    Corrupt {
        /// Its directory, still in place.
        store: PathBuf,
        /// What was found.
        why: String,
    },
    /// A later version of this program wrote the store.
    #[error(
        "open a store of schema {found}: this build knows schema {SCHEMA}; start the version that wrote it, or a later one"
    )]
    NewerSchema {
        /// The schema it was written with.
        found: u32,
    },
    /// The store was made for another state directory.
    #[error("open the store of instance {store} in the state directory of instance {marker}")]
    Foreign {
        /// The instance of the state directory.
        marker: InstanceId,
        /// The instance of the store.
        store: InstanceId,
    },
    /// The file system is full.
    #[error("open the store: no space is left on its file system")]
    NoSpace,
    /// The engine below reported a failure that is not corruption.
    #[error("open the store: {reason}")]
    Engine {
        /// What it said.
        reason: String,
    },
    /// A file or directory around the store could not be used.
    #[error("{doing} {}", path.display())]
    Io {
        /// What was tried, such as "create".
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

/// Says why a batch was not committed; nothing of it is visible then.
///
/// After [`CommitError::NoSpace`] and [`CommitError::Io`] the batch is also taken
/// back from the disk as soon as the store heals. If the process dies before
/// that, it may turn out to have been applied.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CommitError {
    /// A record is not what the batch expects: look again and decide anew.
    #[error("commit to the store")]
    Conflict(#[source] Conflict),
    /// The file system is full: try again once there is space.
    #[error("commit to the store: no space is left on its file system")]
    NoSpace,
    /// The store is broken and being reopened: try again later.
    #[error("commit to the store: {reason}")]
    Io {
        /// What failed.
        reason: Arc<str>,
    },
    /// The batch names more than `BATCH_OPS_MAX` changes: never try again.
    #[error("commit a batch of {ops} changes")]
    TooManyOps {
        /// How many it names.
        ops: usize,
    },
    /// A value cannot be stored: never try again.
    #[error("commit to the store")]
    Value(#[source] Arc<CodecError>),
    /// The store was closed.
    #[error("commit to the store: it is closed")]
    Closed,
}

/// Says in what a record differs from what a batch expects.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// There is a record where none was expected.
    #[error("find no record of {id}: there is one of generation {found}")]
    Exists {
        /// The session.
        id: SessionId,
        /// The generation of its record.
        found: u64,
    },
    /// There is no record where one was expected.
    #[error("find a record of {id} of generation {expected}: there is none")]
    Missing {
        /// The session.
        id: SessionId,
        /// The generation expected.
        expected: u64,
    },
    /// The record has changed since the caller looked.
    #[error("find a record of {id} of generation {expected}: it is at {found}")]
    Changed {
        /// The session.
        id: SessionId,
        /// The generation expected.
        expected: u64,
        /// The generation found.
        found: u64,
    },
    /// The new record does not raise the generation, so a rival could not tell.
    #[error("replace generation {expected} of {id}: the new record has generation {new}")]
    NotRaised {
        /// The session.
        id: SessionId,
        /// The generation expected and found.
        expected: u64,
        /// The generation of the new record.
        new: u64,
    },
    /// A run is not as the caller took it to be.
    #[error("write down run {run} of {id}: {found}")]
    Run {
        /// The session.
        id: SessionId,
        /// The run.
        run: RunId,
        /// What there is of it.
        found: RunFound,
    },
}

/// What there is of a run, where a batch expects something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunFound {
    /// Its session has no record.
    #[error("its session has no record")]
    NoSession,
    /// Its session knows none of that id.
    #[error("it is not known")]
    Absent,
    /// It is there and goes on.
    #[error("it goes on")]
    GoesOn,
    /// It is over.
    #[error("it is over")]
    Over,
}

/// Says why events cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The store is being reopened after a failure, or is closed.
    #[error("read events: the store is not open")]
    Unavailable,
    /// The engine below failed.
    #[error("read events: {reason}")]
    Engine {
        /// What it said.
        reason: String,
    },
    /// An event cannot be decoded.
    #[error("read events")]
    Value(#[source] CodecError),
}

/// Says why an identity was not claimed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// The store belongs to another token key: tokens would change under clients.
    #[error("use token key {offered}: the store was made with token key {stored}")]
    KeyMismatch {
        /// The key that the store knows.
        stored: String,
        /// The key offered.
        offered: String,
    },
    /// The first claim could not be written down.
    #[error("write down an identity")]
    Commit(#[source] CommitError),
}

/// Says that the committer did not end by itself.
#[derive(Debug, thiserror::Error)]
pub enum CloseError {
    /// It panicked; what it had acknowledged is on disk.
    #[error("close the store: its committer panicked")]
    Panicked,
    /// The last sync failed: events and uses of the last moments may not survive a
    /// loss of power.
    #[error("close the store: {reason}")]
    Sync {
        /// Why.
        reason: String,
    },
}

/// What the engine below did to us, sorted by what can be done about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    #[error("no space is left on the file system")]
    NoSpace,
    #[error("another process has the database open")]
    Busy,
    #[error("{0}")]
    Io(String),
    #[error("{0}")]
    Corrupt(String),
    #[error("the schema is {found}")]
    NewerSchema { found: u32 },
}

impl Fault {
    /// Sorts an input or output error.
    pub(super) fn from_io(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace,
            io::ErrorKind::WouldBlock => Self::Busy,
            // A file shorter than its own index says.
            io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData => {
                Self::Corrupt(error.to_string())
            }
            _ => Self::Io(error.to_string()),
        }
    }
}

impl From<sled::Error> for Fault {
    fn from(error: sled::Error) -> Self {
        match &error {
            // The engine wraps the refusal of its lock in a text of its own.
            sled::Error::Io(io) if io.to_string().contains("could not acquire lock") => Self::Busy,
            sled::Error::Io(io) => Self::from_io(io),
            _ => Self::Corrupt(error.to_string()),
        }
    }
}

impl From<CodecError> for Fault {
    fn from(error: CodecError) -> Self {
        match &error {
            CodecError::Malformed(source) => Self::Corrupt(format!("{error}: {source}")),
            _ => Self::Corrupt(error.to_string()),
        }
    }
}

impl From<Fault> for CommitError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::NoSpace => Self::NoSpace,
            Fault::Busy | Fault::Io(_) | Fault::Corrupt(_) | Fault::NewerSchema { .. } => {
                Self::Io {
                    reason: Arc::from(fault.to_string()),
                }
            }
        }
    }
}
