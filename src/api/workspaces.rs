//! Reads what is asked of stored workspaces and passes it on.

use axum::body::Body;
use axum::http::{Response, Uri};

use crate::api::auth::{PathId, ServiceCaller};
use crate::api::error::Failure;
use crate::api::reply;
use crate::api::routes::{Param, ParamKind};
use crate::api::sessions::read_flag;
use crate::control::request::WhenOpen;

pub(super) const PURGE_QUERY: &[Param] = &[Param {
    name: "close",
    about: "Whether an open session is closed first; it is refused when left out",
    kind: ParamKind::Flag,
}];

pub(super) async fn purge(
    caller: ServiceCaller,
    PathId(id): PathId,
    uri: Uri,
) -> Result<Response<Body>, Failure> {
    let open = if read_flag(uri.query().unwrap_or_default(), "close")? {
        WhenOpen::Close
    } else {
        WhenOpen::Refuse
    };
    caller.control().purge(&id, open).await?;
    Ok(reply::no_content())
}
