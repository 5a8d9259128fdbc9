//! A typed client of the HTTP API, used by `sandboxctl` and by tests.
//!
//! A [`Client`] keeps connections alive between calls, gives every call a
//! deadline and a request id, bounds what it reads, and never tries a call again:
//! whether that is safe is for the caller to know, and
//! [`Error::retryable`](crate::client::Error::retryable) says whether it may help.
//!
//! On it stand a [`remote::RemoteSandbox`], which is one sandbox as an agent's tools want
//! it, and an [`archive::WorkspaceArchive`], which reads what sandboxes left.
//!
//! This example, like those of the two, is run against a daemon by the tests of the project:
//!
//! ```no_run
#![doc = include_str!("../../examples/client.rs")]
//! ```

pub mod archive;
pub mod remote;

mod calls;
mod endpoint;
mod error;
mod runs;
mod transport;

#[cfg(test)]
pub(crate) mod scripted;

pub use calls::{
    Client, CloseFirst, DEADLINE_DEFAULT, EXEC_SECS_MAX, HELD_REPLY_GRACE, ListOptions, Purge,
    SessionState, Usage,
};
pub use endpoint::{Endpoint, InvalidUrl};
pub(crate) use error::summary;
pub use error::{DETAIL_CHARS_MAX, Error};
pub use runs::{
    CloseInput, FollowRun, LINE_BYTES_MAX, OutputLines, OutputOptions, RUN_REPLY_BYTES_MAX,
    RunStream,
};
pub use transport::{IDLE_CONNECTIONS_MAX, REPLY_BYTES_MAX};
