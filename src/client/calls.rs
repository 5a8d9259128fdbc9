//! Makes the calls of the API, one method a route.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Method, Request};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::endpoint::Endpoint;
use super::error::{Error, refusal};
use super::transport::Transport;
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

    fn get(&self, path: String) -> Call {
        Call {
            method: Method::GET,
            path,
            body: None,
            deadline: self.deadline,
        }
    }

    fn post<T: Serialize>(&self, path: String, body: &T) -> Call {
        let body = serde_json::to_vec(body).expect("a wire type has text keys and finite numbers");
        Call {
            method: Method::POST,
            path,
            body: Some(Bytes::from(body)),
            deadline: self.deadline,
        }
    }

    async fn delete(&self, path: String) -> Result<(), Error> {
        let call = Call {
            method: Method::DELETE,
            path,
            body: None,
            deadline: self.deadline.saturating_add(HELD_REPLY_GRACE),
        };
        self.send(&call).await.map(drop)
    }

    async fn json<T: DeserializeOwned>(&self, call: Call) -> Result<T, Error> {
        let body = self.send(&call).await?;
        serde_json::from_slice(&body).map_err(|source| Error::Malformed {
            call: format!("{} {}", call.method, call.path),
            source,
        })
    }

    /// Sends a call and returns the body of its success.
    async fn send(&self, call: &Call) -> Result<Bytes, Error> {
        let request_id = RequestId::random();
        let mut request = Request::builder()
            .method(&call.method)
            .uri(format!("{}{}", self.endpoint().base(), call.path))
            .header(REQUEST_ID, request_id.as_str());
        if let Some(token) = &self.token {
            request = request.header(TOKEN, token);
        }
        if call.body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let request = request
            .body(Full::new(call.body.clone().unwrap_or_default()))
            .expect("an endpoint, checked ids and an encoded query make a request");
        let reply = self.transport.send(request, call.deadline).await?;
        if reply.status.is_success() {
            Ok(reply.body)
        } else {
            let status = reply.status.as_u16();
            Err(refusal(status, &reply.body, request_id.as_str()))
        }
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

struct Call {
    method: Method,
    path: String,
    body: Option<Bytes>,
    deadline: Duration,
}

/// Collects `name=value` pairs.
#[derive(Default)]
struct Query(String);

impl Query {
    fn add(&mut self, name: &str, value: Option<impl ToString>) {
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

    fn after(&self, path: &str) -> String {
        format!("{path}{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::REPLY_BYTES_MAX;
    use crate::client::scripted::{Reply, Scripted};

    const EMPTY_LIST: &str =
        r#"{"sessions":[],"limit":null,"open_limit":null,"tenant_limit":null}"#;

    fn id() -> SessionId {
        SessionId::parse("a").unwrap()
    }

    fn list() -> Reply {
        Reply::Answer(200, EMPTY_LIST.to_owned())
    }

    fn client(server: &Scripted) -> Client {
        Client::new(Endpoint::parse(&server.url).unwrap())
    }

    #[tokio::test]
    async fn every_call_goes_to_its_route() {
        let server = Scripted::serve([]).await;
        let client = client(&server);
        let options = ListOptions {
            usage: Usage::Sample,
            tenant: Some(Tenant::parse("t1").unwrap()),
            state: Some(SessionState::Hibernated),
            limit: Some(5),
            cursor: Some("a&b=%".to_owned()),
        };
        let exec = ExecRequest {
            command: "true".to_owned(),
            timeout_seconds: None,
            ..ExecRequest::default()
        };
        client.health().await.unwrap_err();
        client.index().await.unwrap_err();
        client.policy().await.unwrap_err();
        client
            .open(&CreateSessionRequest::default())
            .await
            .unwrap_err();
        client.sessions(&ListOptions::default()).await.unwrap_err();
        client.sessions(&options).await.unwrap_err();
        client.session(&id(), Usage::Skip).await.unwrap_err();
        client.session(&id(), Usage::Sample).await.unwrap_err();
        client.events(&id(), 7, None).await.unwrap_err();
        client.events(&id(), 0, Some(2)).await.unwrap_err();
        client.close(&id(), Purge::No).await.unwrap_err();
        client.close(&id(), Purge::Yes).await.unwrap_err();
        client.purge(&id(), CloseFirst::No).await.unwrap_err();
        client.purge(&id(), CloseFirst::Yes).await.unwrap_err();
        client.exec(&id(), &exec).await.unwrap_err();
        assert_eq!(
            server.lines(),
            [
                "GET /healthz",
                "GET /",
                "GET /policy",
                "POST /sessions",
                "GET /sessions",
                "GET /sessions?usage=true&tenant=t1&state=hibernated&limit=5&cursor=a%26b%3D%25",
                "GET /sessions/a",
                "GET /sessions/a?usage=true",
                "GET /sessions/a/events?after=7",
                "GET /sessions/a/events?after=0&limit=2",
                "DELETE /sessions/a",
                "DELETE /sessions/a?purge=true",
                "DELETE /workspaces/a",
                "DELETE /workspaces/a?close=true",
                "POST /sessions/a/exec",
            ]
        );
    }

    #[tokio::test]
    async fn calls_share_a_connection_and_each_has_a_request_id_of_its_own() {
        let server = Scripted::serve([list(), list(), list()]).await;
        let client = client(&server);
        for _ in 0..3 {
            client.sessions(&ListOptions::default()).await.unwrap();
        }
        let seen = server.seen();
        let ids: std::collections::BTreeSet<_> = seen
            .iter()
            .map(|seen| RequestId::parse(seen.header("x-request-id").unwrap()).unwrap())
            .collect();
        assert_eq!((ids.len(), server.n_connections()), (3, 1));
    }

    #[tokio::test]
    async fn the_token_goes_into_its_header_and_nowhere_else() {
        let server = Scripted::serve([list()]).await;
        let client = client(&server)
            .with_token(&Secret::new("hunter2".to_owned()))
            .unwrap();
        client.sessions(&ListOptions::default()).await.unwrap();
        let seen = &server.seen()[0];
        assert_eq!(seen.header("x-sandbox-token"), Some("hunter2"));
        assert!(!seen.line.contains("hunter2"));
        assert!(!format!("{client:?}").contains("hunter2"));
    }

    #[test]
    fn a_token_that_no_header_can_carry_is_refused_without_showing_it() {
        let endpoint = Endpoint::parse("http://h").unwrap();
        let error = Client::new(endpoint)
            .with_token(&Secret::new("hunter\n2".to_owned()))
            .unwrap_err();
        assert!(matches!(error, Error::Token));
        assert!(!format!("{error} {error:?}").contains("hunter"));
    }

    #[tokio::test]
    async fn a_service_on_a_socket_is_called_the_same_way() {
        let dir = tempfile::tempdir().unwrap();
        let server = Scripted::serve_socket(&dir.path().join("a b.sock"), [list()]);
        client(&server)
            .sessions(&ListOptions::default())
            .await
            .unwrap();
        assert_eq!(server.lines(), ["GET /sessions"]);
    }

    #[tokio::test]
    async fn a_reply_that_does_not_come_ends_at_the_deadline() {
        let server = Scripted::serve([Reply::Hang]).await;
        let after = Duration::from_millis(20);
        let error = client(&server).with_deadline(after).health().await;
        assert!(
            matches!(error, Err(Error::Timeout { after: told }) if told == after),
            "{error:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_is_waited_for_ten_seconds_beyond_its_timeout() {
        let server = Scripted::serve([Reply::Hang]).await;
        let request = ExecRequest {
            command: "sleep 9".to_owned(),
            timeout_seconds: Some(5),
            ..ExecRequest::default()
        };
        let error = client(&server).exec(&id(), &request).await.unwrap_err();
        assert!(matches!(error, Error::Timeout { after } if after.as_secs() == 15));
    }

    #[tokio::test]
    async fn a_closed_port_and_a_broken_connection_are_both_unreachable() {
        let server = Scripted::serve([Reply::HangUp]).await;
        let client = client(&server);
        let error = client.health().await.unwrap_err();
        assert_eq!((error.code(), error.retryable()), ("unreachable", true));
        let gone = Client::new(Endpoint::parse("unix:///nonexistent/socket").unwrap());
        assert_eq!(gone.health().await.unwrap_err().code(), "unreachable");
    }

    #[tokio::test]
    async fn a_reply_beyond_the_bound_is_not_read_to_its_end() {
        let large = " ".repeat(REPLY_BYTES_MAX + 1);
        let server = Scripted::serve([Reply::Answer(200, large)]).await;
        let error = client(&server).health().await.unwrap_err();
        assert!(matches!(
            error,
            Error::TooLarge {
                bytes_max: REPLY_BYTES_MAX
            }
        ));
    }

    #[tokio::test]
    async fn a_success_that_is_not_the_contract_says_which_call_it_was() {
        let server = Scripted::serve([Reply::Answer(200, "<html>".to_owned())]).await;
        let error = client(&server)
            .session(&id(), Usage::Skip)
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), "understand the reply to GET /sessions/a");
    }

    #[tokio::test]
    async fn an_answer_without_a_body_is_a_success_of_a_delete() {
        let server = Scripted::serve([Reply::Answer(204, String::new())]).await;
        client(&server).close(&id(), Purge::No).await.unwrap();
    }
}
