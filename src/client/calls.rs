//! Makes the calls of the API, one method a route.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Request};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::endpoint::Endpoint;
use super::error::{Error, refusal};
use super::transport::{Opened, REPLY_BYTES_MAX, Sent, Transport};
use crate::id::{RequestId, SessionId, Tenant};
use crate::secret::Secret;
use crate::wire::doctor::DoctorReport;
use crate::wire::events::SessionEvents;
use crate::wire::exec::{ExecRequest, ExecResponse};
use crate::wire::holds::HoldList;
use crate::wire::service::{ServiceHealth, ServiceIndex, ServicePolicy};
use crate::wire::sessions::{CreateSessionRequest, SessionCreated, SessionInfo, SessionList};

/// How long a call may take where nothing else was asked.
pub const DEADLINE_DEFAULT: Duration = Duration::from_secs(30);
/// What calls get on top whose reply the service holds back: `exec`, `close`
/// and `purge`.
pub const HELD_REPLY_GRACE: Duration = Duration::from_secs(10);
/// Seconds that a command without a timeout of its own is waited for; the
/// service's ceiling ends it long before.
pub const EXEC_SECS_MAX: u64 = 86_400;

const TOKEN: HeaderName = HeaderName::from_static("x-sandbox-token");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Whether closing a session also removes its files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purge {
    /// The workspace stays and a later session of the id finds it.
    #[default]
    No,
    /// Workspace and container go.
    Yes,
}

/// Whether a purge by id first closes a session that is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CloseFirst {
    /// An open session is a conflict.
    #[default]
    No,
    /// An open session is closed.
    Yes,
}

/// Whether a description says what the sandbox uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Usage {
    /// Left out.
    #[default]
    Skip,
    /// Sampled, where the sandbox is resident.
    Sample,
}

/// The contract's two states of an open session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// Resident, or on its way there.
    Running,
    /// Asleep.
    Hibernated,
}

impl SessionState {
    /// Returns the state as the wire has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Hibernated => "hibernated",
        }
    }
}

/// Which sessions to list; the default is all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// Whether to sample usage.
    pub usage: Usage,
    /// Only those of this tenant.
    pub tenant: Option<Tenant>,
    /// Only those in this state.
    pub state: Option<SessionState>,
    /// At most so many; all of them where it is not given.
    pub limit: Option<u32>,
    /// The `next` of the page before.
    pub cursor: Option<String>,
}

/// Calls one service; cheap to clone, with a pool of connections in common.
#[derive(Clone)]
pub struct Client {
    transport: Transport,
    // Marked sensitive, so that neither we nor hyper print it.
    token: Option<HeaderValue>,
    deadline: Duration,
}

impl Client {
    /// Makes a client without a token; connects when the first call is made.
    pub fn new(endpoint: Endpoint) -> Self {
        Self {
            transport: Transport::new(endpoint),
            token: None,
            deadline: DEADLINE_DEFAULT,
        }
    }

    /// Sends this token with every call: the service's, or a session's.
    pub fn with_token(mut self, token: &Secret) -> Result<Self, Error> {
        let mut value =
            HeaderValue::from_bytes(token.expose().as_bytes()).map_err(|_| Error::Token)?;
        value.set_sensitive(true);
        self.token = Some(value);
        Ok(self)
    }

    /// Gives every call this long instead of [`DEADLINE_DEFAULT`].
    ///
    /// `exec`, `close` and `purge` get [`HELD_REPLY_GRACE`] on top of what they
    /// are asked to wait for.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Returns the service that is called.
    pub fn endpoint(&self) -> &Endpoint {
        self.transport.endpoint()
    }

    /// Asks how the service is; needs no token.
    ///
    /// A degraded service answers too: look at `status` and `reasons`.
    pub async fn health(&self) -> Result<ServiceHealth, Error> {
        self.json(self.get("/healthz".to_owned())).await
    }

    /// Asks what the service is; needs no token.
    pub async fn index(&self) -> Result<ServiceIndex, Error> {
        self.json(self.get("/".to_owned())).await
    }

    /// Asks for the ceilings and the allowed runtimes.
    pub async fn policy(&self) -> Result<ServicePolicy, Error> {
        self.json(self.get("/policy".to_owned())).await
    }

    /// Has the service check its invariants; needs the service token.
    ///
    /// A broken one is no error: look at `verdict` and `findings`.
    pub async fn doctor(&self) -> Result<DoctorReport, Error> {
        self.json(self.get("/doctor".to_owned())).await
    }

    /// Opens a session, or attaches to one where the request allows it.
    pub async fn open(&self, request: &CreateSessionRequest) -> Result<SessionCreated, Error> {
        self.json(self.post("/sessions".to_owned(), request)).await
    }

    /// Opens a session as [`Client::open`] does, and waits for a place where a ceiling is
    /// reached, for at most so long and as the service allows.
    ///
    /// Dropping the future gives the place in the line up.
    pub async fn open_within(
        &self,
        request: &CreateSessionRequest,
        wait: Duration,
    ) -> Result<SessionCreated, Error> {
        let mut query = Query::default();
        // Not less than was asked for.
        let secs = wait.as_secs() + u64::from(0 < wait.subsec_nanos());
        query.add("wait", Some(secs));
        let mut call = self.post(query.after("/sessions"), request);
        call.deadline = call.deadline.saturating_add(Duration::from_secs(secs));
        self.json(call).await
    }

    /// Lists open sessions in the order of opening.
    pub async fn sessions(&self, options: &ListOptions) -> Result<SessionList, Error> {
        let mut query = Query::default();
        query.add_usage(options.usage);
        query.add("tenant", options.tenant.as_ref());
        query.add("state", options.state.map(SessionState::as_str));
        query.add("limit", options.limit);
        query.add("cursor", options.cursor.as_deref());
        self.json(self.get(query.after("/sessions"))).await
    }

    /// Describes one session; wakes nothing.
    pub async fn session(&self, id: &SessionId, usage: Usage) -> Result<SessionInfo, Error> {
        let mut query = Query::default();
        query.add_usage(usage);
        let path = query.after(&format!("/sessions/{id}"));
        self.json(self.get(path)).await
    }

    /// Reads the log of a session, oldest first, beyond the sequence number `after`.
    ///
    /// Without a `limit` the newest events are answered, with one the oldest
    /// beyond `after`.
    pub async fn events(
        &self,
        id: &SessionId,
        after: u64,
        limit: Option<u32>,
    ) -> Result<SessionEvents, Error> {
        let mut query = Query::default();
        query.add("after", Some(after));
        query.add("limit", limit);
        let path = query.after(&format!("/sessions/{id}/events"));
        self.json(self.get(path)).await
    }

    /// Ends a session, and its files with it where `purge` says so.
    pub async fn close(&self, id: &SessionId, purge: Purge) -> Result<(), Error> {
        let mut query = Query::default();
        match purge {
            Purge::No => {}
            Purge::Yes => query.add("purge", Some("true")),
        }
        self.delete(query.after(&format!("/sessions/{id}"))).await
    }

    /// Removes everything that the id ever had, whatever state it is in.
    ///
    /// Succeeds where there is nothing to remove.
    pub async fn purge(&self, id: &SessionId, close: CloseFirst) -> Result<(), Error> {
        let mut query = Query::default();
        match close {
            CloseFirst::No => {}
            CloseFirst::Yes => query.add("close", Some("true")),
        }
        self.delete(query.after(&format!("/workspaces/{id}"))).await
    }

    /// Lists what holds the service back from acting on its own.
    pub async fn holds(&self) -> Result<HoldList, Error> {
        self.json(self.get("/holds".to_owned())).await
    }

    /// Lets go of a hold, one of those in [`crate::wire::holds`].
    pub async fn release(&self, name: &str) -> Result<(), Error> {
        self.delete(format!("/holds/{name}")).await
    }

    /// Runs a command and waits for its end; wakes the session where it sleeps.
    ///
    /// Dropping the future closes the connection, upon which the service stops
    /// the command.
    pub async fn exec(&self, id: &SessionId, request: &ExecRequest) -> Result<ExecResponse, Error> {
        let secs = request.timeout_seconds.unwrap_or(EXEC_SECS_MAX);
        let mut call = self.post(format!("/sessions/{id}/exec"), request);
        call.deadline = Duration::from_secs(secs).saturating_add(HELD_REPLY_GRACE);
        self.json(call).await
    }

    pub(super) fn get(&self, path: String) -> Call {
        Call {
            method: Method::GET,
            path,
            sends: Sends::Nothing,
            deadline: self.deadline,
            reply_bytes_max: REPLY_BYTES_MAX,
        }
    }

    pub(super) fn post<T: Serialize>(&self, path: String, body: &T) -> Call {
        let body = serde_json::to_vec(body).expect("a wire type has text keys and finite numbers");
        Call {
            method: Method::POST,
            sends: Sends::Json(Bytes::from(body)),
            ..self.get(path)
        }
    }

    pub(super) async fn delete(&self, path: String) -> Result<(), Error> {
        let call = Call {
            method: Method::DELETE,
            deadline: self.deadline.saturating_add(HELD_REPLY_GRACE),
            ..self.get(path)
        };
        self.send(&call).await.map(drop)
    }

    pub(super) async fn json<T: DeserializeOwned>(&self, call: Call) -> Result<T, Error> {
        let body = self.send(&call).await?;
        parsed(&call, &body)
    }

    /// Sends a call and returns the body of its success.
    pub(super) async fn send(&self, call: &Call) -> Result<Bytes, Error> {
        let (request, request_id) = self.request(call);
        self.exchange(call, request, &request_id).await
    }

    /// Sends the request of a call, whatever became of it, and returns the body of its
    /// success.
    pub(super) async fn exchange(
        &self,
        call: &Call,
        request: Request<Sent>,
        request_id: &RequestId,
    ) -> Result<Bytes, Error> {
        let bounds = (call.deadline, call.reply_bytes_max);
        let reply = self.transport.send(request, bounds).await?;
        if reply.status.is_success() {
            Ok(reply.body)
        } else {
            let status = reply.status.as_u16();
            Err(refusal(status, &reply.body, request_id.as_str()))
        }
    }

    /// Sends a call and returns the body of its success as it comes, without a deadline
    /// from then on.
    pub(super) async fn open_reply(&self, call: &Call) -> Result<Incoming, Error> {
        let (request, request_id) = self.request(call);
        let bounds = (call.deadline, call.reply_bytes_max);
        match self.transport.open(request, bounds).await? {
            Opened::Success(body) => Ok(body),
            Opened::Other(reply) => {
                let status = reply.status.as_u16();
                Err(refusal(status, &reply.body, request_id.as_str()))
            }
        }
    }

    /// Says by which id a request is followed, and what lets it in.
    pub(super) fn sign(&self, headers: &mut HeaderMap, request_id: &RequestId) {
        let id = HeaderValue::from_str(request_id.as_str()).expect("its characters are visible");
        headers.insert(REQUEST_ID, id);
        if let Some(token) = &self.token {
            headers.insert(TOKEN, token.clone());
        }
    }

    /// Returns how long a call may take.
    pub(super) fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Sends a call with a body that comes, and reads the JSON of its success.
    pub(super) async fn json_of_stream<T: DeserializeOwned>(
        &self,
        call: &Call,
        body: Sent,
        bytes: Option<u64>,
    ) -> Result<T, Error> {
        let (mut request, request_id) = self.request(call);
        if let Some(bytes) = bytes {
            request.headers_mut().insert(CONTENT_LENGTH, bytes.into());
        }
        let request = request.map(|_| body);
        let body = self.exchange(call, request, &request_id).await?;
        parsed(call, &body)
    }

    pub(super) fn request(&self, call: &Call) -> (Request<Sent>, RequestId) {
        let request_id = RequestId::random();
        let mut request = Request::builder().method(&call.method).uri(format!(
            "{}{}",
            self.endpoint().base(),
            call.path
        ));
        if let Some(headers) = request.headers_mut() {
            self.sign(headers, &request_id);
        }
        let (kind, body) = match &call.sends {
            Sends::Nothing => (None, Bytes::new()),
            Sends::Json(body) => (Some("application/json"), body.clone()),
            Sends::Bytes(body) => (Some("application/octet-stream"), body.clone()),
        };
        if let Some(kind) = kind {
            request = request.header(CONTENT_TYPE, kind);
        }
        let request = request
            .body(
                Full::new(body)
                    .map_err(|never| match never {})
                    .boxed_unsync(),
            )
            .expect("an endpoint, checked ids and an encoded query make a request");
        (request, request_id)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("endpoint", self.endpoint())
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

pub(super) fn parsed<T: DeserializeOwned>(call: &Call, body: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(body).map_err(|source| Error::Malformed {
        call: format!("{} {}", call.method, call.path),
        source,
    })
}

/// One call.
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) sends: Sends,
    pub(super) deadline: Duration,
    pub(super) reply_bytes_max: usize,
}

/// The body of a call.
pub(super) enum Sends {
    /// None.
    Nothing,
    /// JSON.
    Json(Bytes),
    /// Bytes as they are.
    Bytes(Bytes),
}

/// Collects `name=value` pairs.
#[derive(Default)]
pub(super) struct Query(String);

impl Query {
    pub(super) fn add(&mut self, name: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.0.push(if self.0.is_empty() { '?' } else { '&' });
            self.0.push_str(name);
            self.0.push('=');
            let value = value.to_string();
            self.0.extend(utf8_percent_encode(&value, NON_ALPHANUMERIC));
        }
    }

    fn add_usage(&mut self, usage: Usage) {
        match usage {
            Usage::Skip => {}
            Usage::Sample => self.add("usage", Some("true")),
        }
    }

    pub(super) fn after(&self, path: &str) -> String {
        format!("{path}{}", self.0)
    }
}

#[cfg(test)]
mod tests;
