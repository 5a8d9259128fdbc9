//! Writes replies.

use axum::body::Body;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{Response, StatusCode};
use serde::Serialize;

/// Writes a value as compact JSON.
pub(super) fn json(value: &impl Serialize) -> Response<Body> {
    let bytes = serde_json::to_vec(value).expect("wire types have only text keys");
    typed("application/json", bytes.into())
}

/// Writes a value that takes about so many bytes, which are not moved as they grow.
pub(super) fn long_json(value: &impl Serialize, about: usize) -> Response<Body> {
    let mut bytes = Vec::with_capacity(about);
    serde_json::to_writer(&mut bytes, value).expect("wire types have only text keys");
    typed("application/json", bytes.into())
}

/// Writes bytes of a type.
pub(super) fn typed(content_type: &'static str, body: Body) -> Response<Body> {
    let mut reply = Response::new(body);
    let kind = HeaderValue::from_static(content_type);
    reply.headers_mut().insert(CONTENT_TYPE, kind);
    reply
}

/// Writes a body that goes on while its reader waits, and is kept by nobody on the way.
pub(super) fn going_on(content_type: &'static str, body: Body) -> Response<Body> {
    let mut reply = typed(content_type, body);
    let headers = reply.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // Some proxies would gather what has to arrive at once.
    let buffering = HeaderName::from_static("x-accel-buffering");
    headers.insert(buffering, HeaderValue::from_static("no"));
    reply
}

/// Answers 204.
pub(super) fn no_content() -> Response<Body> {
    let mut reply = Response::new(Body::empty());
    *reply.status_mut() = StatusCode::NO_CONTENT;
    reply
}
