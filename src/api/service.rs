//! Answers for the service as a whole.

use std::sync::LazyLock;

use axum::body::Body;
use axum::http::header::{
    CONTENT_SECURITY_POLICY, HeaderValue, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{Response, StatusCode};
use bytes::Bytes;

use crate::api::auth::{Anyone, ServiceCaller};
use crate::api::docs::Page;
use crate::api::error::retry_after;
use crate::api::routes::endpoints;
use crate::api::table::TABLE;
use crate::api::{openapi, reply};
use crate::wire::service::ServiceIndex;

/// Seconds after which a service that is not ready is worth another look.
const READY_AGAIN_SECS: u8 = 2;

pub(super) async fn index(caller: Anyone) -> Response<Body> {
    reply::json(&ServiceIndex {
        service: "sandboxd".to_owned(),
        health: caller.health(),
        docs_url: "/docs".to_owned(),
        openapi_url: "/openapi.json".to_owned(),
        ui_url: None,
        endpoints: endpoints(TABLE),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })
}

pub(super) async fn health(caller: Anyone) -> Response<Body> {
    reply::json(&caller.health())
}

pub(super) async fn ready(caller: Anyone) -> Response<Body> {
    let mut answer = reply::json(&caller.health());
    if !caller.is_ready() {
        *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        let again = retry_after(READY_AGAIN_SECS);
        answer.headers_mut().insert(RETRY_AFTER, again);
    }
    answer
}

pub(super) async fn policy(caller: ServiceCaller) -> Response<Body> {
    reply::json(&caller.control().policy())
}

pub(super) async fn doctor(caller: ServiceCaller) -> Response<Body> {
    reply::json(&caller.control().doctor().await)
}

pub(super) async fn openapi(_caller: Anyone) -> Response<Body> {
    static DOCUMENT: LazyLock<Bytes> =
        LazyLock::new(|| openapi::document(TABLE).to_string().into());
    reply::typed("application/json", DOCUMENT.clone().into())
}

pub(super) async fn docs(_caller: Anyone) -> Response<Body> {
    static PAGE: LazyLock<Page> = LazyLock::new(|| Page::new(TABLE));
    let mut answer = reply::typed("text/html; charset=utf-8", PAGE.html.clone().into());
    let headers = answer.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, PAGE.policy.clone());
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}
