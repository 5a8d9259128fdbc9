//! Surrounds every request: its id, the checks before any route, its log line.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use axum::Router;
use axum::body::Body;
use axum::http::header::{CONNECTION, CONTENT_ENCODING, HOST, HeaderName, HeaderValue, LOCATION};
use axum::http::{HeaderMap, Request, Response, StatusCode, Version};
use axum::response::IntoResponse as _;
use futures_util::FutureExt as _;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::Service as _;
use tracing::{Instrument as _, Span, debug, debug_span, error, field, info, info_span, warn};

use crate::api::error::Failure;
use crate::api::leftover::{Behind, Leftover};
use crate::api::metrics::{Place, Traffic};
use crate::api::room::BodyRoom;
use crate::api::routes::{self, Noise, Route, Target};
use crate::control::Control;
use crate::id::{RequestId, SessionId};

/// The header that carries a request id, in requests and replies.
pub(super) const REQUEST_ID_HEADER: HeaderName = HeaderName::from_static("x-request-id");

/// Answers requests: the route table behind the checks that all of them share.
#[derive(Debug)]
pub(super) struct Edge {
    table: &'static [Route],
    router: Router,
    room: BodyRoom,
    traffic: Traffic,
}

impl Edge {
    /// Puts a service behind the routes of a table, with room for the bodies of requests.
    pub(super) fn new(table: &'static [Route], control: Control, room: BodyRoom) -> Self {
        Self {
            table,
            router: routes::router(table, control),
            room,
            traffic: Traffic::default(),
        }
    }

    /// Answers one request; never fails.
    pub(super) async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let started = Instant::now();
        let request_id = given_id(request.headers()).unwrap_or_else(RequestId::random);
        let target = routes::find(self.table, request.method(), request.uri().path());
        let noise = match &target {
            Target::Route(route, _) => route.noise,
            Target::OtherMethod(_) | Target::Slashed | Target::Nowhere => Noise::Line,
        };
        let span = span(&request, &target, &request_id);
        let place = Place::of(&target);
        let (request, leftover) = Leftover::of(request);
        let mut reply = self
            .lead(request, target, &request_id)
            .instrument(span.clone())
            .await;
        let behind = match leftover {
            Some(leftover) => leftover.read().await,
            None => Behind::Clear,
        };
        let failure = reply.extensions_mut().remove::<Failure>();
        self.traffic.count(place, reply.status(), started);
        span.in_scope(|| log(noise, reply.status(), failure.as_ref(), started));
        if let Some(failure) = failure {
            reply = failure.reply(&request_id);
        }
        let id = HeaderValue::try_from(request_id.as_str()).expect("a request id is visible");
        reply.headers_mut().insert(REQUEST_ID_HEADER, id);
        if behind == Behind::Blocked {
            let close = HeaderValue::from_static("close");
            reply.headers_mut().insert(CONNECTION, close);
        }
        reply
    }

    async fn lead(
        &self,
        mut request: Request<Body>,
        target: Target,
        request_id: &RequestId,
    ) -> Response<Body> {
        if let Err(failure) = check(request.version(), request.headers()) {
            return failure.into_response();
        }
        let captures = match target {
            Target::Route(_, captures) => captures,
            Target::OtherMethod(methods) => return Failure::OtherMethod(methods).into_response(),
            Target::Slashed => return without_slash(&request),
            Target::Nowhere => return Failure::NoRoute.into_response(),
        };
        request.extensions_mut().insert(captures);
        request.extensions_mut().insert(request_id.clone());
        request.extensions_mut().insert(self.room.clone());
        request.extensions_mut().insert(self.traffic.clone());
        let mut router = self.router.clone();
        let handled = AssertUnwindSafe(router.call(request)).catch_unwind().await;
        match handled {
            Ok(Ok(reply)) => reply,
            Ok(Err(never)) => match never {},
            Err(panic) => {
                error!(panic = panic_text(&*panic), "a handler panicked");
                Failure::Panicked.into_response()
            }
        }
    }
}

/// Returns the id of a request, which the edge has put there.
pub(super) fn request_id(request: &Request<Body>) -> RequestId {
    let known = request.extensions().get::<RequestId>();
    known.cloned().unwrap_or_else(RequestId::random)
}

/// Ends when the service stops; put to a request by the server that took it.
#[derive(Clone, Debug)]
pub(super) struct Stopping(pub(super) CancellationToken);

/// Returns what ends when the service stops, for replies that would go on for long.
pub(super) fn stopping(request: &Request<Body>) -> CancellationToken {
    let known = request.extensions().get::<Stopping>();
    known.map_or_else(CancellationToken::new, |stopping| stopping.0.clone())
}

/// Returns the id that the client gave, if it is one.
fn given_id(headers: &HeaderMap) -> Option<RequestId> {
    let given = headers.get(REQUEST_ID_HEADER)?.to_str().ok()?;
    RequestId::parse(given).ok()
}

/// Checks what holds for every request.
fn check(version: Version, headers: &HeaderMap) -> Result<(), Failure> {
    let hosts = headers.get_all(HOST).iter().count();
    let fewest = usize::from(version == Version::HTTP_11);
    if hosts < fewest || 1 < hosts {
        return Err(Failure::BadHost);
    }
    let encoded = headers
        .get_all(CONTENT_ENCODING)
        .iter()
        .any(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity"));
    if encoded {
        Err(Failure::Encoded)
    } else {
        Ok(())
    }
}

/// Sends the client to the path without its trailing slashes.
fn without_slash(request: &Request<Body>) -> Response<Body> {
    let uri = request.uri();
    let path = uri.path().trim_end_matches('/');
    let query = uri.query().map(|query| format!("?{query}"));
    let location = format!("{path}{}", query.unwrap_or_default());
    let mut reply = Response::new(Body::empty());
    *reply.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    let location = HeaderValue::try_from(location).expect("a parsed URI is a valid header");
    reply.headers_mut().insert(LOCATION, location);
    reply
}

fn span(request: &Request<Body>, target: &Target, request_id: &RequestId) -> Span {
    let (route, captures) = match target {
        Target::Route(route, captures) => (route, captures),
        Target::OtherMethod(_) | Target::Slashed | Target::Nowhere => {
            let method = request.method();
            return info_span!("request", %request_id, %method, path = "-");
        }
    };
    let method = route.verb.as_str();
    match route.noise {
        Noise::Quiet => debug_span!("request", %request_id, method, path = route.path),
        Noise::Line => {
            let session = captures
                .get("session_id")
                .and_then(|text| SessionId::parse(text).ok());
            info_span!(
                "request",
                %request_id,
                method,
                path = route.path,
                session = session.map(field::display)
            )
        }
    }
}

/// Writes the one line of a request.
fn log(noise: Noise, status: StatusCode, failure: Option<&Failure>, started: Instant) {
    let duration = started.elapsed();
    let code = failure.map(Failure::code);
    let status_code = status.as_u16();
    match (noise, failure) {
        (_, Some(failure)) if status.is_server_error() => {
            let cause = failure.text();
            warn!(status = status_code, ?duration, code, %cause, "answered");
        }
        (Noise::Quiet, _) => debug!(status = status_code, ?duration, code, "answered"),
        (Noise::Line, _) => info!(status = status_code, ?duration, code, "answered"),
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no text)")
}
