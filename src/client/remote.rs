//! One sandbox behind a service, as an agent's tools want it.

mod builder;
mod failure;
mod files;
mod session;

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use builder::{Existing, RemoteSandboxBuilder};
pub use failure::{InvalidSandbox, OperationFailure};
pub use files::{Edited, FileLines, Found, GrepOptions, LINES_DEFAULT, ReplaceText, SearchHidden};
pub use session::SESSION_ENDED;

use super::error::Error;
use super::{Client, Purge, Usage};
use crate::id::SessionId;
use crate::secret::Secret;
use crate::wire::exec::{ExecRequest, ExecResponse};
use crate::wire::files::ResetTold;
use crate::wire::sessions::{SessionInfo, SessionUsage};
use session::{Opener, Session, Sessions, is_gone};

/// How long an opening, a description or a stop may take where nothing else was asked.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_mins(1);

/// One session of a `sandboxd`, opened on first use; cheap to clone, and all clones are one.
///
/// Its id is chosen by the application or made for it. It is what an agent's tools work on,
/// so:
///
/// - **It is opened on first use.** Making one sends nothing; an agent that never uses its
///   sandbox costs nothing. However many operations come first at once, one session is
///   opened, and where that fails all of them are told why.
/// - **Failures are values.** Every operation returns `Result<_, OperationFailure>`, whether
///   a file is missing, a ceiling is reached or the network is gone; none panics, and the
///   sandbox is as usable as before. [`OperationFailure::explain`] is the sentence to show.
/// - **A command is waited for as long as it may run.** How long that is, is learned from
///   the service's `GET /policy` at each opening, with how large a file it reads.
/// - **It outlives its session.** After [`RemoteSandbox::stop`], and where the service ended
///   the session meanwhile, the next operation opens one again under the same id, and is
///   carried out there; [`RemoteSandbox::take_reset`] tells of it. Files are there again
///   where the service keeps workspaces.
/// - **Nothing is done twice.** An operation is sent again only after the service said that
///   there is no such session, upon which it has done nothing.
///
/// This example is run against a daemon by the tests of the project:
///
/// ```no_run
#[doc = include_str!("../../examples/remote_sandbox.rs")]
/// ```
#[derive(Clone, Debug)]
pub struct RemoteSandbox(Arc<Sessions>);

impl RemoteSandbox {
    /// Describes a sandbox of the service at this URL, with the service's token.
    pub fn builder(url: &str, token: &Secret) -> RemoteSandboxBuilder {
        RemoteSandboxBuilder::at(url, token)
    }

    /// Describes a sandbox of the service that a client with the service's token calls.
    ///
    /// They share the client's connections.
    pub fn on(client: &Client) -> RemoteSandboxBuilder {
        RemoteSandboxBuilder::on(client)
    }

    fn new(opener: Opener) -> Self {
        Self(Arc::new(Sessions::new(opener)))
    }

    /// Returns the id of the session, whether it is open or not.
    pub fn session_id(&self) -> &SessionId {
        &self.0.opener.id
    }

    /// Opens the session now instead of on first use; does nothing where it is open.
    ///
    /// Fails with [`OperationFailure::Open`]. Dropping the future calls nothing off: what it
    /// began is found by whoever uses the sandbox next.
    pub async fn start(&self) -> Result<(), OperationFailure> {
        self.0.open().await.map(drop)
    }

    /// Returns how long the service lets an operation run, once a session is open.
    ///
    /// A service that does not tell is taken to allow as long as the builder's timeout.
    pub fn server_timeout(&self) -> Option<Duration> {
        self.0.current().map(|session| session.ceiling)
    }

    /// Runs `sh -c COMMAND` in the work directory and waits for its end.
    ///
    /// A command that fails is no failure here: look at `exit_code`, which is 124 for one
    /// that was ended at the service's ceiling, and `None` where nobody saw the ending.
    /// Dropping the future has the service end the command.
    pub async fn execute(&self, command: &str) -> Result<ExecResponse, OperationFailure> {
        self.execute_with(&ExecRequest {
            command: command.to_owned(),
            ..ExecRequest::default()
        })
        .await
    }

    /// Runs a command as asked, with a timeout, variables or input of its own.
    ///
    /// The service ends it at its ceiling, whatever its timeout.
    pub async fn execute_with(
        &self,
        request: &ExecRequest,
    ) -> Result<ExecResponse, OperationFailure> {
        let asked = request.timeout_seconds.map(Duration::from_secs);
        let reply: ExecResponse = self.operate("exec", request, asked).await?;
        self.0.told(ResetTold {
            incarnation: reply.incarnation,
            reset_reason: reply.reset_reason.clone(),
        });
        Ok(reply)
    }

    /// Describes the session; `None` where there is none. Opens and wakes nothing.
    pub async fn info(&self) -> Result<Option<SessionInfo>, OperationFailure> {
        self.describe(Usage::Skip).await
    }

    /// Samples what the sandbox uses; `None` where it is not resident. Opens and wakes
    /// nothing.
    pub async fn usage(&self) -> Result<Option<SessionUsage>, OperationFailure> {
        let info = self.describe(Usage::Sample).await?;
        Ok(info.and_then(|info| info.usage))
    }

    /// Whether the session is there and its container runs; `false` also where the service
    /// cannot be asked. Opens and wakes nothing.
    pub async fn alive(&self) -> bool {
        matches!(self.info().await, Ok(Some(info)) if info.alive)
    }

    /// Closes the session; the next operation opens it again.
    ///
    /// Without a purge, a sandbox that is not open has nothing to close, and what fails here
    /// costs the service's idle timeout and no more. With [`Purge::Yes`] everything goes that
    /// the id ever had, be it open here, elsewhere or not at all: files, container, record
    /// and log. Where that fails the session is as it was, and can be stopped again.
    pub async fn stop(&self, purge: Purge) -> Result<(), OperationFailure> {
        self.0.stop(purge).await
    }

    /// Takes what was last told of a reset; `None` where there was none since.
    ///
    /// After a reset, processes and what is not a file are gone. `reset_reason` is the
    /// service's, or [`SESSION_ENDED`] where it had ended the session and another was opened.
    pub fn take_reset(&self) -> Option<ResetTold> {
        self.0.take_reset()
    }

    async fn describe(&self, usage: Usage) -> Result<Option<SessionInfo>, OperationFailure> {
        let opener = &self.0.opener;
        let session = self.0.current();
        let client = session.as_ref().map_or(&opener.service, |one| &one.client);
        match client.session(&opener.id, usage).await {
            Ok(info) => Ok(Some(info)),
            Err(error) if error.status() == Some(404) => Ok(None),
            // The session's own token is not good any more; the service's would be.
            Err(error) if session.is_some() && is_gone(&error) => Ok(None),
            Err(error) => Err(OperationFailure::service(error)),
        }
    }

    /// Has an operation carried out by `POST /sessions/{id}/{name}`, in another session
    /// where the service has ended this one.
    async fn operate<B: Serialize, T: DeserializeOwned>(
        &self,
        name: &str,
        body: &B,
        asked: Option<Duration>,
    ) -> Result<T, OperationFailure> {
        let n_stops = self.0.n_stops();
        let session = self.0.open().await?;
        match self.send(&session, name, body, asked).await {
            Err(error) if is_gone(&error) => self.0.lost(&session, n_stops)?,
            other => return other.map_err(OperationFailure::service),
        }
        let session = self.0.open().await?;
        let again = self.send(&session, name, body, asked).await;
        again.map_err(OperationFailure::service)
    }

    async fn send<B: Serialize, T: DeserializeOwned>(
        &self,
        session: &Session,
        name: &str,
        body: &B,
        asked: Option<Duration>,
    ) -> Result<T, Error> {
        let id = &self.0.opener.id;
        let mut call = session.client.post(format!("/sessions/{id}/{name}"), body);
        call.deadline = session.patience(asked);
        call.reply_bytes_max = session.reply_bytes_max;
        session.client.json(call).await
    }
}

#[cfg(test)]
mod tests;
