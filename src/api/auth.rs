//! Tells who calls; no handler reaches the service without a caller made here.
//!
//! The router's state is a [`Guarded`] service: only this module can open it, and
//! it does so when the token, or for a WebSocket the ticket, is good. What a handler may do is what its caller
//! value lets it do.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;

use crate::api::error::Failure;
use crate::api::routes::Captures;
use crate::api::tickets::Tickets;
use crate::api::{query, validate};
use crate::control::request::{Sampling, Viewer};
use crate::control::{Control, Refusal};
use crate::id::SessionId;
use crate::wire::service::ServiceHealth;
use crate::wire::ttys::TicketCreated;

/// The header that carries a token.
pub(super) const TOKEN_HEADER: &str = "x-sandbox-token";

/// The service behind its tokens.
#[derive(Clone, Debug)]
pub(super) struct Guarded {
    control: Control,
    tickets: Arc<Tickets>,
}

impl Guarded {
    /// Puts the service behind its tokens.
    pub(super) fn new(control: Control) -> Self {
        Self {
            control,
            tickets: Arc::default(),
        }
    }
}

/// Anyone who reaches the port: sees how the service is, and nothing else.
#[derive(Debug)]
pub(super) struct Anyone {
    control: Control,
}

impl Anyone {
    /// Tells how the service is.
    pub(super) fn health(&self) -> ServiceHealth {
        self.control.health()
    }

    /// Tells whether it does its work.
    pub(super) fn is_ready(&self) -> bool {
        self.control.is_ready()
    }
}

/// A holder of the service token.
#[derive(Debug)]
pub(super) struct ServiceCaller {
    control: Control,
}

impl ServiceCaller {
    /// Returns the service.
    pub(super) fn control(&self) -> &Control {
        &self.control
    }
}

/// A holder of a token that is good for the session that the path names.
///
/// With the service token the session need not exist.
#[derive(Debug)]
pub(super) struct SessionCaller {
    id: SessionId,
    viewer: Viewer,
    control: Control,
    tickets: Arc<Tickets>,
}

impl SessionCaller {
    /// Returns the session that the path names.
    pub(super) fn id(&self) -> &SessionId {
        &self.id
    }

    /// Tells which token was presented.
    pub(super) fn viewer(&self) -> Viewer {
        self.viewer
    }

    /// Returns the service.
    pub(super) fn control(&self) -> &Control {
        &self.control
    }

    /// Makes a ticket that lets its holder open one WebSocket of the session.
    pub(super) fn ticket(&self) -> Result<TicketCreated, Failure> {
        let opening = self.control.opening(&self.id);
        let opening = opening.ok_or_else(|| Refusal::NoSession(self.id.clone()))?;
        Ok(self.tickets.issue(&self.id, opening, self.control.now()))
    }

    /// Passes on what was read of the request, but for faults on an unknown session.
    ///
    /// A session that does not exist is 404 before its request is found invalid.
    pub(super) async fn checked<T>(&self, read: Result<T, Failure>) -> Result<T, Failure> {
        if let Err(Failure::Invalid(_)) = read {
            let described = self
                .control
                .describe(&self.id, Sampling::Off, self.viewer)
                .await;
            if let Err(unknown @ Refusal::NoSession(_)) = described {
                return Err(unknown.into());
            }
        }
        read
    }
}

/// A [`SessionCaller`] who may also have come with a ticket, for a `WebSocket` alone.
#[derive(Debug)]
pub(super) struct SocketCaller(pub(super) SessionCaller);

/// Returns what was presented; the first header counts, and an empty one is none.
fn presented(headers: &HeaderMap) -> Result<&[u8], Failure> {
    headers
        .get(TOKEN_HEADER)
        .map(axum::http::HeaderValue::as_bytes)
        .filter(|token| !token.is_empty())
        .ok_or(Failure::Unauthorized)
}

impl FromRequestParts<Guarded> for Anyone {
    type Rejection = Failure;

    async fn from_request_parts(_: &mut Parts, service: &Guarded) -> Result<Self, Failure> {
        Ok(Self {
            control: service.control.clone(),
        })
    }
}

impl FromRequestParts<Guarded> for ServiceCaller {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, service: &Guarded) -> Result<Self, Failure> {
        if service.control.is_service_token(presented(&parts.headers)?) {
            Ok(Self {
                control: service.control.clone(),
            })
        } else {
            Err(Failure::Unauthorized)
        }
    }
}

impl FromRequestParts<Guarded> for SessionCaller {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, service: &Guarded) -> Result<Self, Failure> {
        // The id is part of who the caller is: a malformed one is 422 without a token too.
        let id = path_session_id(parts)?;
        let token = presented(&parts.headers)?;
        let viewer = service
            .control
            .authenticate(&id, token)
            .ok_or(Failure::Unauthorized)?;
        Ok(Self {
            id,
            viewer,
            control: service.control.clone(),
            tickets: Arc::clone(&service.tickets),
        })
    }
}

impl FromRequestParts<Guarded> for SocketCaller {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, service: &Guarded) -> Result<Self, Failure> {
        if presented(&parts.headers).is_ok() {
            let caller = SessionCaller::from_request_parts(parts, service).await?;
            return Ok(Self(caller));
        }
        let id = path_session_id(parts)?;
        let text = parts.uri.query().unwrap_or_default();
        let ticket = query::value(text, "ticket").ok_or(Failure::Unauthorized)?;
        let control = &service.control;
        let opening = control.opening(&id).ok_or(Failure::Unauthorized)?;
        let tickets = Arc::clone(&service.tickets);
        if !tickets.redeem(ticket.as_bytes(), &id, &opening, control.now()) {
            return Err(Failure::Unauthorized);
        }
        Ok(Self(SessionCaller {
            id,
            viewer: Viewer::Session,
            control: control.clone(),
            tickets,
        }))
    }
}

/// The session id of a path, for routes whose caller is the service.
///
/// It comes behind the [`ServiceCaller`] in a handler's arguments, so that a
/// malformed id is told only to those who may know.
#[derive(Debug)]
pub(super) struct PathId(pub(super) SessionId);

impl<S: Sync> FromRequestParts<S> for PathId {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        path_session_id(parts).map(Self)
    }
}

fn path_session_id(parts: &Parts) -> Result<SessionId, Failure> {
    let captures = parts.extensions.get::<Captures>();
    let text = captures.and_then(|captures| captures.get("session_id"));
    validate::path_session_id(text.unwrap_or_default())
}
