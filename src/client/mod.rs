//! A typed client of the HTTP API, used by `sandboxctl` and by tests.
//!
//! A [`Client`] keeps connections alive between calls, gives every call a
//! deadline and a request id, bounds what it reads, and never tries a call again:
//! whether that is safe is for the caller to know, and
//! [`Error::retryable`](crate::client::Error::retryable) says whether it may help.
//!
//! ```no_run
//! use sandboxd::client::{Client, Endpoint, Purge};
//! use sandboxd::id::SessionId;
//! use sandboxd::secret::Secret;
//! use sandboxd::wire::exec::ExecRequest;
//! use sandboxd::wire::sessions::CreateSessionRequest;
//!
//! # async fn example(token: String) -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::new(Endpoint::parse("http://127.0.0.1:8080")?)
//!     .with_token(&Secret::new(token))?;
//!
//! let opened = client.open(&CreateSessionRequest::default()).await?;
//! let id = SessionId::parse(&opened.session.session_id)?;
//!
//! let request = ExecRequest {
//!     command: "echo hello".to_owned(),
//!     timeout_seconds: Some(5),
//!     ..ExecRequest::default()
//! };
//! let reply = client.exec(&id, &request).await?;
//! assert_eq!(reply.output, "hello\n");
//!
//! client.close(&id, Purge::Yes).await?;
//! # Ok(())
//! # }
//! ```

mod calls;
mod endpoint;
mod error;
mod runs;
mod transport;
mod workspaces;

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
pub use workspaces::{
    ArchiveFormat, ArchivePieces, IMPORT_TIME_MAX, ImportOptions, WorkspaceListOptions, WriteOver,
};
