//! Makes a sandbox of what is asked for, and checks it before anything is sent.

use std::time::Duration;

use super::failure::InvalidSandbox;
use super::session::Opener;
use super::{RemoteSandbox, TIMEOUT_DEFAULT};
use crate::client::{Client, Endpoint};
use crate::id::{Alias, RunId, SessionId, Tenant};
use crate::secret::Secret;
use crate::wire::sessions::CreateSessionRequest;

/// What becomes of a session that is there already under the id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// Opening fails with status 409, so that nobody shares a sandbox unawares.
    ///
    /// So does the next opening after one whose reply was lost, where the service had opened
    /// the session: an id that is nobody else's is better joined.
    #[default]
    Refuse,
    /// It is attached to; where there is none, one is opened.
    Join,
    /// It, or the workspace that it left, is attached to; where there is neither, opening
    /// fails with status 404.
    Require,
}

/// Describes a [`RemoteSandbox`] that is to be made.
#[derive(Clone, Debug)]
pub struct RemoteSandboxBuilder {
    service: From,
    session_id: Option<String>,
    runtime: Option<String>,
    tenant: Option<String>,
    existing: Existing,
    timeout: Duration,
}

/// Where the calls go.
#[derive(Clone, Debug)]
enum From {
    Url(String, Secret),
    Client(Client),
}

impl RemoteSandboxBuilder {
    pub(super) fn at(url: &str, token: &Secret) -> Self {
        Self::new(From::Url(url.to_owned(), token.clone()))
    }

    pub(super) fn on(client: &Client) -> Self {
        Self::new(From::Client(client.clone()))
    }

    fn new(service: From) -> Self {
        Self {
            service,
            session_id: None,
            runtime: None,
            tenant: None,
            existing: Existing::Refuse,
            timeout: TIMEOUT_DEFAULT,
        }
    }

    /// Names the session; without it, `remote-` and 32 random hex digits.
    ///
    /// Whoever knows the service token and the id reaches the files: derive it from
    /// something that cannot be guessed.
    #[must_use]
    pub fn session_id(mut self, id: impl Into<String>) -> Self {
        self.session_id = Some(id.into());
        self
    }

    /// Names the runtime by its alias; without it, the service's default.
    #[must_use]
    pub fn runtime(mut self, alias: impl Into<String>) -> Self {
        self.runtime = Some(alias.into());
        self
    }

    /// Names the tenant under whose ceiling the session counts; it grants nothing.
    #[must_use]
    pub fn tenant(mut self, tenant: impl Into<String>) -> Self {
        self.tenant = Some(tenant.into());
        self
    }

    /// Says what becomes of a session that is there already; without it, a refusal.
    #[must_use]
    pub fn existing(mut self, existing: Existing) -> Self {
        self.existing = existing;
        self
    }

    /// Gives openings, descriptions and stops this long instead of [`TIMEOUT_DEFAULT`].
    ///
    /// Operations are waited for as long as the service lets them run.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Makes the sandbox; checks URL, token, id, tenant and runtime, and sends nothing.
    pub fn build(self) -> Result<RemoteSandbox, InvalidSandbox> {
        let service = match self.service {
            From::Url(url, token) => Client::new(Endpoint::parse(&url)?)
                .with_token(&token)
                .map_err(InvalidSandbox::Token)?,
            From::Client(client) => client,
        };
        let (id, existing) = match (self.session_id, self.existing) {
            (Some(id), existing) => (SessionId::parse(&id)?, existing),
            (None, Existing::Require) => return Err(InvalidSandbox::NoId),
            // Nobody else has such an id. So what is there under it was opened for this
            // sandbox, by a request whose reply was lost.
            (None, Existing::Refuse | Existing::Join) => {
                let id = SessionId::parse(&format!("remote-{}", RunId::random()))?;
                (id, Existing::Join)
            }
        };
        let runtime = self.runtime.as_deref().map(Alias::parse).transpose()?;
        let tenant = self.tenant.as_deref().map(Tenant::parse).transpose()?;
        let request = CreateSessionRequest {
            session_id: Some(id.to_string()),
            runtime: runtime.map(String::from),
            tenant: tenant.map(String::from),
            reuse: existing == Existing::Join,
            attach: existing == Existing::Require,
        };
        let opener = Opener {
            service: service.with_deadline(self.timeout),
            id,
            request,
            timeout: self.timeout,
        };
        Ok(RemoteSandbox::new(opener))
    }
}
