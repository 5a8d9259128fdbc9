//! Reads what is asked of a backup of the store and passes it on.

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, HeaderValue};
use axum::http::{Response, Uri};

use crate::api::archives::streamed;
use crate::api::auth::ServiceCaller;
use crate::api::error::Failure;
use crate::api::routes::{Param, ParamKind};
use crate::api::validate::{self, Form};
use crate::api::{query, reply};
use crate::control::WithKey;

pub(super) const BACKUP_QUERY: &[Param] = &[Param {
    name: "key",
    about: "Whether the key of all session tokens is in it, which has to be kept as the service \
        token is; it is not when left out",
    kind: ParamKind::Flag,
}];

pub(super) async fn backup(caller: ServiceCaller, uri: Uri) -> Result<Response<Body>, Failure> {
    let mut form = Form::query();
    let [key] = query::fields(uri.query().unwrap_or_default(), ["key"]);
    let key = if form.or_default(&key, validate::flag) {
        WithKey::Yes
    } else {
        WithKey::No
    };
    form.finish()?;
    let lines = caller.control().backup(key).await?;
    let mut reply = reply::typed("application/x-ndjson", streamed(lines));
    let headers = reply.headers_mut();
    let name = HeaderValue::from_static("attachment; filename=\"sandboxd-backup.jsonl\"");
    headers.insert(CONTENT_DISPOSITION, name);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(reply)
}
