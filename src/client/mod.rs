//! A typed client of the HTTP API, used by `sandboxctl` and by tests.
//!
//! A [`Client`] keeps connections alive between calls, gives every call a
//! deadline and a request id, bounds what it reads, and never tries a call again:
//! whether that is safe is for the caller to know, and
//! [`Error::retryable`](crate::client::Error::retryable) says whether it may help.
//!
//! On it stand a [`RemoteSandbox`], which is one sandbox as an agent's tools want it, and a
//! [`WorkspaceArchive`], which reads what sandboxes left.
//!
//! This example, like those of the two, is run against a daemon by the tests of the project:
//!
//! ```no_run
#![doc = include_str!("../../examples/client.rs")]
//! ```

mod archive;
mod backup;
mod calls;
mod endpoint;
mod error;
mod files;
mod lifecycle;
mod log;
mod pieces;
mod remote;
mod runs;
mod transport;
mod ttys;
mod workspaces;

#[cfg(test)]
pub(crate) mod scripted;

pub use archive::{TreeBounds, WorkspaceArchive};
pub use backup::BackupKey;
pub use calls::{
    Client, CloseFirst, DEADLINE_DEFAULT, EXEC_SECS_MAX, HELD_REPLY_GRACE, ListOptions, Purge,
    SessionState, Usage,
};
pub use endpoint::{Endpoint, InvalidUrl};
pub(crate) use error::summary;
pub use error::{DETAIL_CHARS_MAX, Error};
pub use files::UploadPieces;
pub use lifecycle::SweepOptions;
pub use log::EventOptions;
pub use pieces::ReplyPieces;
pub use remote::{
    Edited, Existing, FileLines, Found, GrepOptions, InvalidSandbox, LINES_DEFAULT,
    OperationFailure, RemoteSandbox, RemoteSandboxBuilder, ReplaceText, SESSION_ENDED,
    SearchHidden, TIMEOUT_DEFAULT,
};
pub use runs::{
    CloseInput, FollowRun, LINE_BYTES_MAX, OutputLines, OutputOptions, RUN_REPLY_BYTES_MAX,
    RunStream,
};
pub use transport::{IDLE_CONNECTIONS_MAX, REPLY_BYTES_MAX};
pub use ttys::{TTY_INPUT_BYTES_MAX, TTY_MESSAGE_BYTES_MAX, TtyInput, TtyOutput, TtyTold};
pub use workspaces::{
    ArchiveFormat, IMPORT_TIME_MAX, ImportOptions, WorkspaceListOptions, WriteOver,
};
