//! Reads what is asked of holds and passes it on.

use axum::Extension;
use axum::body::Body;
use axum::http::Response;

use crate::api::auth::ServiceCaller;
use crate::api::error::Failure;
use crate::api::reply;
use crate::api::routes::Captures;

pub(super) async fn list(caller: ServiceCaller) -> Response<Body> {
    reply::json(&caller.control().list_holds())
}

pub(super) async fn release(
    caller: ServiceCaller,
    Extension(captures): Extension<Captures>,
) -> Result<Response<Body>, Failure> {
    let name = captures.get("name").unwrap_or_default();
    caller.control().release(name).await?;
    Ok(reply::no_content())
}
