//! Says why a sandbox could not be made, or an operation in it did not do what was asked.

use std::sync::Arc;

use crate::cause::chain;
use crate::client::endpoint::InvalidUrl;
use crate::client::error::Error;
use crate::id::{InvalidId, SessionId};

/// What is wrong with a sandbox that cannot be made; nothing was sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSandbox {
    /// The URL of the service.
    #[error("use the URL of the service")]
    Url(#[from] InvalidUrl),
    /// The token.
    #[error("use the token")]
    Token(#[source] Error),
    /// The session id, the tenant, or the alias of the runtime.
    #[error("ask for the session")]
    Id(#[from] InvalidId),
    /// An existing session is required, and none is named.
    #[error("attach to a session without an id: name one by `session_id`")]
    NoId,
}

/// Why an operation of a [`RemoteSandbox`](super::RemoteSandbox) did not do what was asked.
///
/// It is a value to be shown to whoever asked, a model for instance: nothing in it takes the
/// caller down, and the sandbox can be used as before. [`explain`](Self::explain) puts it
/// into one sentence.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OperationFailure {
    /// There is no session, and none could be opened; nothing was done.
    #[error("open session {id}")]
    Open {
        /// The session.
        id: SessionId,
        /// What the service said, or that it could not be reached.
        #[source]
        source: Arc<Error>,
    },
    /// The service refused, or could not be reached.
    ///
    /// After [`Error::Unreachable`] and [`Error::Timeout`] what was asked for may have
    /// happened; it is not tried again, since a command is not to run twice.
    #[error("be served")]
    Service(#[source] Arc<Error>),
    /// The operation was carried out and came to nothing, in the service's words, such as
    /// that there is no such file.
    #[error("{0}")]
    Told(String),
    /// The sandbox was stopped while the operation was on its way; nothing was done.
    #[error("use a sandbox that was stopped meanwhile")]
    Stopped,
}

impl OperationFailure {
    pub(super) fn service(error: Error) -> Self {
        Self::Service(Arc::new(error))
    }

    /// Returns what the service or the network said, where that is what failed.
    pub fn error(&self) -> Option<&Error> {
        match self {
            Self::Open { source, .. } | Self::Service(source) => Some(source),
            Self::Told(_) | Self::Stopped => None,
        }
    }

    /// Returns the HTTP status, where the service refused.
    pub fn status(&self) -> Option<u16> {
        self.error().and_then(Error::status)
    }

    /// Tells whether the same operation may succeed later.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Open { source, .. } | Self::Service(source) => source.retryable(),
            Self::Told(_) => false,
            Self::Stopped => true,
        }
    }

    /// Writes the failure with its causes in one sentence that begins with `Error: `.
    pub fn explain(&self) -> String {
        match self {
            Self::Told(text) => format!("Error: {text}"),
            Self::Open { .. } | Self::Service(_) | Self::Stopped => {
                format!("Error: failed to {}", chain(self))
            }
        }
    }
}
