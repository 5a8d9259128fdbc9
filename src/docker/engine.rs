//! Carries calls to the engine: connection, version, deadline, bounds.
//!
//! Every call has a connection of its own. A kept connection that died with an
//! engine's restart looks like a failed call, and on a unix socket a new one costs
//! less than a tenth of a millisecond. What is dropped before its end closes its
//! connection; the engine may still do what it was asked.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderValue, UPGRADE, USER_AGENT};
use hyper::upgrade::Upgraded;
use hyper::{Request, Response, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use hyperlocal::UnixConnector;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::body::Body;
use super::call::{Answer, Call, Content, Turns};
use super::endpoint::Endpoint;
use super::error::{Error, Kind};
use super::version::{ApiVersion, EngineVersion};

/// How long each class of call may take, from the asking to the last byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// A sign of life.
    pub ping: Duration,
    /// A look: inspect, list, stats, version.
    pub look: Duration,
    /// Creating a container, or renaming one.
    pub create: Duration,
    /// Starting a container, or unpausing one.
    pub start: Duration,
    /// Stopping a container, beyond the grace that it is given.
    pub stop_slack: Duration,
    /// Removing a container.
    pub remove: Duration,
    /// Creating an exec.
    pub exec_create: Duration,
    /// Starting an exec or following events, until output may begin.
    pub exec_start: Duration,
    /// The longest silence in the middle of a pull, which has no deadline itself.
    pub pull_silence: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            ping: Duration::from_secs(2),
            look: Duration::from_secs(10),
            create: Duration::from_secs(30),
            start: Duration::from_mins(1),
            stop_slack: Duration::from_secs(15),
            remove: Duration::from_mins(1),
            exec_create: Duration::from_secs(10),
            exec_start: Duration::from_secs(15),
            pull_silence: Duration::from_mins(1),
        }
    }
}

/// How an engine is spoken to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Calls in flight at once, at least one; a stream counts until it begins.
    ///
    /// Waiting for a turn counts towards a call's deadline.
    pub inflight_max: usize,
    /// How long calls may take.
    pub deadlines: Deadlines,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            inflight_max: 32,
            deadlines: Deadlines::default(),
        }
    }
}

/// A Docker engine behind a unix socket; cheap to clone.
#[derive(Clone, Debug)]
pub struct Engine(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    endpoint: Endpoint,
    deadlines: Deadlines,
    transport: Transport,
    permits: Semaphore,
    /// The version agreed on. A std mutex: it guards one word and no await.
    agreed: Mutex<Option<ApiVersion>>,
}

/// How requests reach the engine.
#[derive(Debug)]
enum Transport {
    /// Over its socket.
    Socket(Client<UnixConnector, Full<Bytes>>),
    /// Within the process, where a test plays it.
    #[cfg(test)]
    Played(Arc<dyn super::testing::Player>),
}

impl Engine {
    /// Makes a client of the engine at `endpoint`; connects to nothing yet.
    pub fn new(endpoint: Endpoint, settings: Settings) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(0)
            .retry_canceled_requests(false)
            .build(UnixConnector);
        Self::over(endpoint, settings, Transport::Socket(client))
    }

    /// Makes a client of an engine that a test plays.
    #[cfg(test)]
    pub(crate) fn played(player: Arc<dyn super::testing::Player>, settings: Settings) -> Self {
        let endpoint = Endpoint::parse("/played/engine.sock").expect("it is an absolute path");
        Self::over(endpoint, settings, Transport::Played(player))
    }

    fn over(endpoint: Endpoint, settings: Settings, transport: Transport) -> Self {
        Self(Arc::new(Shared {
            endpoint,
            deadlines: settings.deadlines,
            transport,
            permits: Semaphore::new(settings.inflight_max.clamp(1, Semaphore::MAX_PERMITS)),
            agreed: Mutex::new(None),
        }))
    }

    /// Returns where the engine is.
    pub fn endpoint(&self) -> &Endpoint {
        &self.0.endpoint
    }

    pub(super) fn deadlines(&self) -> &Deadlines {
        &self.0.deadlines
    }

    /// Performs a call and reads the whole answer.
    ///
    /// A status of 400 or more is an error of [`Kind::Status`]; callers turn those
    /// that are outcomes back into outcomes.
    pub(super) async fn call(&self, call: Call) -> Result<Answer, Error> {
        let work = async {
            let _permit = self.permit().await;
            let response = self.respond(&call).await?;
            whole(response, call.answer_bytes_max).await
        };
        let done = within(call.deadline, work).await;
        done.map_err(|kind| self.failure(call.name, kind))
    }

    /// Performs a call that belongs to no version and waits for no other call.
    pub(super) async fn call_unversioned(&self, call: Call) -> Result<Answer, Error> {
        let done = within(call.deadline, self.answer_unversioned(&call)).await;
        done.map_err(|kind| self.failure(call.name, kind))
    }

    /// Performs a call up to the head of its answer, and hands on the body.
    pub(super) async fn open(&self, call: Call) -> Result<Body, Error> {
        let work = async {
            let _permit = self.permit().await;
            self.respond(&call).await
        };
        match within(call.deadline, work).await {
            Ok(response) => Ok(response.into_body()),
            Err(kind) => Err(self.failure(call.name, kind)),
        }
    }

    /// Performs a call that turns its connection into a stream both ways.
    pub(super) async fn turn(&self, call: Call) -> Result<Upgraded, Error> {
        let work = async {
            let _permit = self.permit().await;
            let response = self.respond(&call).await?;
            if response.status() != StatusCode::SWITCHING_PROTOCOLS {
                return Err(Kind::malformed(
                    "the connection was not turned into a stream",
                ));
            }
            hyper::upgrade::on(response)
                .await
                .map_err(|error| Kind::Closed {
                    source: Some(error.into()),
                })
        };
        let done = within(call.deadline, work).await;
        done.map_err(|kind| self.failure(call.name, kind))
    }

    /// Makes an error of a call, and forgets the version when it may be stale.
    pub(super) fn failure(&self, call: &'static str, kind: Kind) -> Error {
        if kind.may_have_restarted() {
            self.agree_on(None);
        }
        Error::new(call, kind)
    }

    pub(super) fn has_agreed(&self) -> bool {
        let agreed = self.0.agreed.lock();
        agreed.unwrap_or_else(PoisonError::into_inner).is_some()
    }

    pub(super) fn agree_on(&self, version: Option<ApiVersion>) {
        *self.0.agreed.lock().unwrap_or_else(PoisonError::into_inner) = version;
    }

    async fn permit(&self) -> tokio::sync::SemaphorePermit<'_> {
        let permit = self.0.permits.acquire().await;
        permit.expect("the semaphore is never closed")
    }

    /// Sends a call in the agreed version, agreeing first where none is.
    ///
    /// An engine that was replaced may refuse the version that its predecessor
    /// agreed to. Such a refusal did nothing, so the call is sent once more.
    async fn respond(&self, call: &Call) -> Result<Response<Body>, Kind> {
        let path = call.path.text()?;
        let remembered = *self.0.agreed.lock().unwrap_or_else(PoisonError::into_inner);
        let version = match remembered {
            Some(version) => version,
            None => self.agree().await?,
        };
        match self.send(call, &format!("/v{version}{path}")).await {
            Err(Kind::Status {
                status: 400,
                message,
            }) if remembered.is_some() && complains_of_version(&message) => {
                let version = self.agree().await?;
                self.send(call, &format!("/v{version}{path}")).await
            }
            done => done,
        }
    }

    async fn agree(&self) -> Result<ApiVersion, Kind> {
        self.agree_on(None);
        let call = EngineVersion::call(self.deadlines().look);
        let answer = self.answer_unversioned(&call).await?;
        let version = EngineVersion::parse(&answer.body)?;
        self.agree_on(Some(version.api));
        Ok(version.api)
    }

    async fn answer_unversioned(&self, call: &Call) -> Result<Answer, Kind> {
        let response = self.send(call, call.path.text()?).await?;
        whole(response, call.answer_bytes_max).await
    }

    /// Sends a request over a connection of its own and reads the answer's head.
    async fn send(&self, call: &Call, target: &str) -> Result<Response<Body>, Kind> {
        let uri: hyper::Uri = hyperlocal::Uri::new(self.0.endpoint.path(), target).into();
        let mut request = Request::new(Full::new(call.body.clone()));
        *request.method_mut() = call.method.clone();
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.insert(HOST, HeaderValue::from_static("docker"));
        headers.insert(
            USER_AGENT,
            HeaderValue::from_static(concat!("sandboxd/", env!("CARGO_PKG_VERSION"))),
        );
        if !call.body.is_empty() {
            let content = match call.content {
                Content::Json => "application/json",
                Content::Tar => "application/x-tar",
            };
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content));
        }
        match call.turns {
            Turns::Body => {}
            Turns::Stream => {
                headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
                headers.insert(UPGRADE, HeaderValue::from_static("tcp"));
            }
        }
        let response = match &self.0.transport {
            Transport::Socket(client) => {
                let sent = client.request(request).await;
                sent.map_err(|error| self.broken(error))?.map(Body::Wire)
            }
            #[cfg(test)]
            Transport::Played(player) => {
                let played = player.play(super::testing::Asked::new(call, target)).await;
                let played = played.map_err(|unplayed| unplayed.kind(&self.0.endpoint))?;
                super::testing::heard(played)
            }
        };
        let status = response.status();
        if status.is_client_error() || status.is_server_error() {
            return Err(Kind::Status {
                status: status.as_u16(),
                message: response.into_body().words().await,
            });
        }
        Ok(response)
    }

    fn broken(&self, error: hyper_util::client::legacy::Error) -> Kind {
        if error.is_connect() {
            return Kind::Unreachable {
                endpoint: self.0.endpoint.clone(),
                source: error.into(),
            };
        }
        let cause =
            std::error::Error::source(&error).and_then(|e| e.downcast_ref::<hyper::Error>());
        if cause.is_some_and(hyper::Error::is_parse) {
            return Kind::malformed("it is not HTTP");
        }
        Kind::Closed {
            source: Some(error.into()),
        }
    }
}

async fn whole(response: Response<Body>, bound: usize) -> Result<Answer, Kind> {
    Ok(Answer {
        status: response.status(),
        body: response.into_body().whole(bound).await?,
    })
}

/// Gives work until the deadline.
pub(super) async fn within<T>(
    after: Duration,
    work: impl Future<Output = Result<T, Kind>>,
) -> Result<T, Kind> {
    timeout(after, work)
        .await
        .unwrap_or(Err(Kind::Timeout { after }))
}

fn complains_of_version(message: &str) -> bool {
    message.contains("client version") || message.contains("API version")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::docker::body::BODY_BYTES_MAX;
    use crate::docker::error::Retry;
    use crate::docker::testing::{Answer as Scripted, FakeEngine, version};

    const MISSING: &str = r#"{"message":"No such container: x"}"#;
    const SHORT: Duration = Duration::from_millis(150);

    #[tokio::test]
    async fn every_call_ends_when_the_engine_accepts_and_says_nothing() {
        let fake = FakeEngine::scripted(|_| Scripted::silence());
        let engine = fake.hurried_client(SHORT);
        let errors = [
            engine.ping().await.unwrap_err(),
            engine.version().await.unwrap_err(),
            engine.info().await.unwrap_err(),
            engine.inspect("x").await.unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error.kind(), Kind::Timeout { after } if *after == SHORT));
            assert_eq!(error.retry(), Retry::Backoff);
        }
    }

    #[tokio::test]
    async fn a_call_that_passes_its_deadline_closes_its_connection() {
        let mut fake = FakeEngine::new(|_| Scripted::silence());
        // Long enough for agreeing on a version first, also on a busy host.
        let engine = fake.hurried_client(Duration::from_secs(1));
        assert!(engine.start("x").await.is_err());
        assert_eq!(fake.hung_up().await, "POST /v1.41/containers/x/start");
    }

    #[tokio::test]
    async fn a_body_that_stalls_passes_the_deadline_too() {
        let fake = FakeEngine::new(|_| Scripted::chunked(["{", "}"]).cut(6).and_hold());
        let error = fake
            .hurried_client(Duration::from_secs(1))
            .info()
            .await
            .unwrap_err();
        assert!(matches!(error.kind(), Kind::Timeout { .. }));
    }

    #[tokio::test]
    async fn an_engine_that_is_not_there_is_unreachable() {
        let endpoint = Endpoint::parse("/nonexistent/engine.sock").unwrap();
        let error = Engine::new(endpoint, Settings::default())
            .ping()
            .await
            .unwrap_err();
        assert!(error.is_unreachable());
        assert_eq!(error.retry(), Retry::Backoff);
        let kind = std::error::Error::source(&error).unwrap().to_string();
        assert_eq!(
            kind,
            "the engine at unix:///nonexistent/engine.sock cannot be reached"
        );
    }

    #[tokio::test]
    async fn a_cut_answer_is_an_error_wherever_it_is_cut() {
        for cut in 1..=6 {
            let fake = FakeEngine::new(move |_| Scripted::new(200, "[    ]").cut(cut));
            let label = crate::docker::containers::Label::new("a", "b");
            let error = fake.client().list(&label).await.unwrap_err();
            assert!(matches!(error.kind(), Kind::Closed { .. }), "{error:?}");
            assert_eq!(error.retry(), Retry::Backoff);
        }
        let fake = FakeEngine::new(|_| Scripted::raw::<&[u8]>([]));
        let error = fake.client().inspect("x").await.unwrap_err();
        assert!(matches!(error.kind(), Kind::Closed { .. }), "{error:?}");
        let fake = FakeEngine::new(|_| Scripted::raw(["this is no HTTP at all\r\n\r\n"]));
        let error = fake.client().inspect("x").await.unwrap_err();
        assert!(matches!(error.kind(), Kind::Malformed { .. }), "{error:?}");
    }

    #[tokio::test]
    async fn an_answer_beyond_its_bound_is_refused_and_a_long_error_is_cut() {
        let fake = FakeEngine::new(|line| match line {
            "GET /v1.41/info" => Scripted::new(200, vec![b' '; BODY_BYTES_MAX + 1]),
            _ => Scripted::new(500, vec![b'x'; 1 << 20]),
        });
        let error = fake.client().info().await.unwrap_err();
        assert!(matches!(error.kind(), Kind::TooLarge { .. }), "{error:?}");
        let error = fake.client().inspect("x").await.unwrap_err();
        assert_eq!(error.status(), Some(500));
        let words = error.message().unwrap();
        assert_eq!(words.len(), crate::docker::error::MESSAGE_CHARS_MAX);
    }

    #[tokio::test]
    async fn the_version_is_agreed_on_once_and_then_remembered() {
        let fake = FakeEngine::scripted(|line| match line {
            "GET /version" => version("1.44", "1.52"),
            _ => Scripted::new(404, MISSING),
        });
        let engine = fake.client();
        assert!(engine.inspect("x").await.unwrap().is_none());
        assert!(engine.inspect("y").await.unwrap().is_none());
        let looks = ["x", "y"].map(|id| format!("GET /v1.51/containers/{id}/json"));
        assert_eq!(fake.lines()[0], "GET /version");
        assert_eq!(fake.lines()[1..], looks);
    }

    #[tokio::test]
    async fn an_engine_that_is_too_old_is_refused_before_anything_is_asked() {
        let fake = FakeEngine::scripted(|_| version("1.12", "1.40"));
        let error = fake.client().inspect("x").await.unwrap_err();
        assert!(matches!(error.kind(), Kind::VersionRefused { .. }));
        assert_eq!(error.retry(), Retry::Backoff, "it may be upgraded");
        assert_eq!(fake.lines(), ["GET /version"]);
    }

    #[tokio::test]
    async fn a_replaced_engine_is_agreed_with_again() {
        let upgraded = std::sync::atomic::AtomicBool::new(false);
        let fake = FakeEngine::scripted(move |line| match line {
            "GET /version" if upgraded.load(std::sync::atomic::Ordering::SeqCst) => {
                version("1.44", "1.47")
            }
            "GET /version" => version("1.12", "1.41"),
            "GET /v1.41/containers/first/json" => {
                upgraded.store(true, std::sync::atomic::Ordering::SeqCst);
                Scripted::new(404, MISSING)
            }
            "GET /v1.47/containers/second/json" => Scripted::new(404, MISSING),
            // An old engine complains in plain text.
            _ => Scripted::new(400, "client version 1.41 is too old. Minimum is 1.44"),
        });
        let engine = fake.client();
        assert!(engine.inspect("first").await.unwrap().is_none());
        assert!(engine.inspect("second").await.unwrap().is_none());
        assert_eq!(
            fake.lines()[2..],
            [
                "GET /v1.41/containers/second/json",
                "GET /version",
                "GET /v1.47/containers/second/json"
            ]
        );
    }

    #[tokio::test]
    async fn a_broken_connection_forgets_the_version() {
        let fake = FakeEngine::new(|line| match line {
            "GET /v1.41/containers/cut/json" => Scripted::raw::<&[u8]>([]),
            _ => Scripted::new(404, MISSING),
        });
        let engine = fake.client();
        assert!(engine.inspect("cut").await.is_err());
        assert!(engine.inspect("x").await.unwrap().is_none());
        let asked = fake.lines();
        let versions = asked.iter().filter(|line| *line == "GET /version");
        assert_eq!(versions.count(), 2);
    }

    #[tokio::test]
    async fn no_more_calls_than_allowed_are_in_flight_and_a_ping_waits_for_none() {
        let fake = FakeEngine::new(|line| match line {
            "GET /_ping" => Scripted::new(200, "OK"),
            _ => Scripted::silence(),
        });
        let engine = fake.client_with(Settings {
            inflight_max: 4,
            ..Settings::default()
        });
        let mut calls = tokio::task::JoinSet::new();
        for n in 0..10 {
            let engine = engine.clone();
            calls.spawn(async move { engine.start(&format!("c{n}")).await });
        }
        let started = || {
            let lines = fake.lines().into_iter();
            lines.filter(|line| line.starts_with("POST")).count()
        };
        while started() < 4 {
            tokio::task::yield_now().await;
        }
        for _ in 0..3 {
            engine.ping().await.unwrap();
        }
        assert_eq!(started(), 4);
    }

    #[tokio::test]
    async fn a_call_that_waits_for_its_turn_ends_in_time_too() {
        let mut fake = FakeEngine::new(|_| Scripted::silence());
        let mut settings = Settings {
            inflight_max: 1,
            ..Settings::default()
        };
        settings.deadlines.look = SHORT;
        let engine = fake.client_with(settings);
        let busy = tokio::spawn({
            let engine = engine.clone();
            async move { engine.start("busy").await }
        });
        while fake.lines().len() < 2 {
            tokio::task::yield_now().await;
        }
        let error = engine.inspect("x").await.unwrap_err();
        assert!(matches!(error.kind(), Kind::Timeout { after } if *after == SHORT));
        busy.abort();
        assert_eq!(fake.hung_up().await, "POST /v1.41/containers/busy/start");
        assert_eq!(fake.lines().len(), 2, "the other was never sent");
    }

    #[tokio::test]
    async fn an_unfit_name_is_refused_and_nothing_is_sent() {
        let fake = FakeEngine::new(|_| Scripted::new(200, "{}"));
        for name in ["", "..", "a/../b"] {
            let error = fake.client().inspect(name).await.unwrap_err();
            assert!(matches!(error.kind(), Kind::Unsendable { .. }));
            assert_eq!(error.retry(), Retry::Never);
        }
        assert!(fake.lines().is_empty());
    }
}
