//! Reads what is asked of stored workspaces and passes it on.

use axum::body::Body;
use axum::http::{Request, Response, Uri};
use futures_util::{StreamExt as _, stream};

use crate::api::auth::{PathId, ServiceCaller};
use crate::api::body::JsonText;
use crate::api::error::Failure;
use crate::api::files::{or, path, read_form, window};
use crate::api::routes::{Param, ParamKind};
use crate::api::sessions::read_flag;
use crate::api::validate::{self, Fault, Form, Length};
use crate::api::{paths, reply};
use crate::control::files::Extent;
use crate::control::request::WhenOpen;
use crate::id::{NAME_PATTERN, SessionId};
use crate::wire::files::{TreeResult, TreesResponse};

/// Workspaces whose trees are asked for at once.
const TREES_MAX: usize = 100;
/// Trees that are read at the same time for one request.
const TREES_AT_ONCE_MAX: usize = 4;
/// Levels of a tree where none are named, and the most there may be.
const DEPTH: (usize, u64) = (6, 64);
/// Entries of a tree where none are named, and the most there may be.
const ENTRIES: (usize, u64) = (2_000, 100_000);

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

pub(super) async fn ls(
    caller: ServiceCaller,
    PathId(id): PathId,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    let path = read_form(&JsonText::read(request).await?, path)?;
    let entries = caller.control().stored_entries(&id, path).await?;
    Ok(reply::json(&entries))
}

pub(super) async fn read(
    caller: ServiceCaller,
    PathId(id): PathId,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    let body = JsonText::read(request).await?;
    let (path, window) = read_form(&body, |form| (path(form), window(form)))?;
    let lines = caller.control().stored_lines(&id, path, window).await?;
    Ok(reply::json(&lines))
}

pub(super) async fn read_bytes(
    caller: ServiceCaller,
    PathId(id): PathId,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    let path = read_form(&JsonText::read(request).await?, path)?;
    let bytes = caller.control().stored_bytes(&id, path).await?;
    Ok(reply::json(&bytes))
}

fn extent(form: &mut Form<'_>) -> Extent {
    let [path, b64, depth, entries] = form.fields(["path", "path_b64", "max_depth", "max_entries"]);
    let path = if b64.is_given() {
        paths::required(form, &[path, b64])
    } else {
        or(form, &path, ".".to_owned(), validate::text).into()
    };
    Extent {
        path,
        depth: or(form, &depth, DEPTH.0, |given| {
            validate::page(given, DEPTH.1)
        }),
        entries: or(form, &entries, ENTRIES.0, |given| {
            validate::page(given, ENTRIES.1)
        }),
    }
}

pub(super) async fn tree(
    caller: ServiceCaller,
    PathId(id): PathId,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    let extent = read_form(&JsonText::read(request).await?, extent)?;
    Ok(reply::json(
        &caller.control().stored_tree(&id, extent).await?,
    ))
}

pub(super) async fn trees(
    caller: ServiceCaller,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    let body = JsonText::read(request).await?;
    let (ids, extent) = read_form(&body, |form| {
        let [sessions] = form.fields(["sessions"]);
        let length = Length {
            least: 1,
            most: TREES_MAX,
        };
        let ids = form.required(&sessions, |given| {
            validate::texts(given, length, |id| match SessionId::parse(id) {
                Ok(_) => Ok(()),
                Err(_) => Err(Fault::pattern(NAME_PATTERN)),
            })
        });
        (ids, extent(form))
    })?;
    let ids: Vec<SessionId> = ids
        .iter()
        .filter_map(|id| SessionId::parse(id).ok())
        .collect();
    let control = caller.control();
    let results = stream::iter(ids)
        .map(|id| {
            let extent = extent.clone();
            async move {
                let found = control.stored_tree(&id, extent).await;
                let session_id = id.to_string();
                match found {
                    Ok(tree) => TreeResult {
                        session_id,
                        tree: Some(tree),
                        ..TreeResult::default()
                    },
                    Err(refusal) => {
                        let failure = Failure::from(refusal);
                        TreeResult {
                            session_id,
                            tree: None,
                            error: Some(failure.text().into_owned()),
                            status_code: Some(failure.status().as_u16()),
                        }
                    }
                }
            }
        })
        .buffered(TREES_AT_ONCE_MAX)
        .collect()
        .await;
    Ok(reply::json(&TreesResponse { results }))
}
