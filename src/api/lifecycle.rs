//! Answers what a session is to be: explains it, puts it to sleep and wakes it.

use axum::body::Body;
use axum::http::Response;

use crate::api::auth::{PathId, ServiceCaller, SessionCaller};
use crate::api::error::Failure;
use crate::api::reply;

pub(super) async fn explain(caller: SessionCaller) -> Result<Response<Body>, Failure> {
    let explained = caller.control().explain(caller.id(), caller.viewer())?;
    Ok(reply::json(&explained))
}

pub(super) async fn hibernate(
    caller: ServiceCaller,
    PathId(id): PathId,
) -> Result<Response<Body>, Failure> {
    Ok(reply::json(&caller.control().hibernate(&id).await?))
}

pub(super) async fn wake(
    caller: ServiceCaller,
    PathId(id): PathId,
) -> Result<Response<Body>, Failure> {
    Ok(reply::json(&caller.control().rouse(&id).await?))
}
