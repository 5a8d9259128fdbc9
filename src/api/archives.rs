//! Reads what is asked of whole workspaces: which there are, and their archives.

use axum::body::Body;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, EXPECT, HeaderValue, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{Request, Response, Uri};
use futures_util::stream::unfold;

use crate::api::auth::{PathId, ServiceCaller};
use crate::api::body::Streamed;
use crate::api::edge::request_id;
use crate::api::error::Failure;
use crate::api::routes::{Param, ParamKind};
use crate::api::validate::{self, Form};
use crate::api::{query, reply};
use crate::control::ListWorkspaces;
use crate::control::archives::{Format, Import, Importing, Packed, Part};
use crate::id::RequestId;
use crate::workspace::OldFiles;

/// Workspaces of one page.
const PAGE_MAX: u64 = 1_000;
/// How archives are written.
const FORMATS: &[&str] = &["tar", "tar.zst"];

pub(super) const LIST_QUERY: &[Param] = &[
    Param {
        name: "limit",
        about: "At most so many; 1000 when left out",
        kind: ParamKind::Number(1, Some(PAGE_MAX)),
    },
    Param {
        name: "cursor",
        about: "Continue after the page that answered this as `next`",
        kind: ParamKind::Text,
    },
];

pub(super) const EXPORT_QUERY: &[Param] = &[Param {
    name: "format",
    about: "How the archive is written; tar.zst when left out",
    kind: ParamKind::OneOf(FORMATS),
}];

pub(super) const IMPORT_QUERY: &[Param] = &[
    Param {
        name: "format",
        about: "How the archive is written; found out when left out",
        kind: ParamKind::OneOf(FORMATS),
    },
    Param {
        name: "replace",
        about: "Whether the archive takes the place of files that are there; they are kept, and it is refused, when left out",
        kind: ParamKind::Flag,
    },
    Param {
        name: "runtime",
        about: "The alias for an id that is not known yet; the default one when left out",
        kind: ParamKind::Text,
    },
    Param {
        name: "tenant",
        about: "The tenant for an id that is not known yet",
        kind: ParamKind::Text,
    },
];

pub(super) async fn list(caller: ServiceCaller, uri: Uri) -> Result<Response<Body>, Failure> {
    let mut form = Form::query();
    let [limit, cursor] = query::fields(uri.query().unwrap_or_default(), ["limit", "cursor"]);
    let list = ListWorkspaces {
        limit: form.optional(&limit, |given| validate::page(given, PAGE_MAX)),
        cursor: form.optional(&cursor, validate::session_id),
    };
    form.finish()?;
    Ok(reply::json(&caller.control().list_workspaces(list).await?))
}

pub(super) async fn export(
    caller: ServiceCaller,
    PathId(id): PathId,
    uri: Uri,
) -> Result<Response<Body>, Failure> {
    let mut form = Form::query();
    let [format] = query::fields(uri.query().unwrap_or_default(), ["format"]);
    let format = form.optional(&format, |given| validate::one_of(given, FORMATS));
    form.finish()?;
    let format = format.as_deref().map_or(Format::TarZst, format_of);
    let packed = caller.control().export(&id, format).await?;
    let (content_type, ending) = match format {
        Format::Tar => ("application/x-tar", "tar"),
        Format::TarZst => ("application/zstd", "tar.zst"),
    };
    let mut reply = reply::typed(content_type, streamed(packed));
    let headers = reply.headers_mut();
    // An id has only letters, digits and a few signs that need no quoting.
    let disposition = format!("attachment; filename=\"{id}.{ending}\"");
    let disposition = HeaderValue::try_from(disposition).expect("an id is a header's text");
    headers.insert(CONTENT_DISPOSITION, disposition);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(reply)
}

/// Sends an archive piece by piece; one that fails breaks the connection, so that its
/// reader does not take a part for the whole.
pub(super) fn streamed(packed: Packed) -> Body {
    let pieces = unfold(Some(packed), async |packed| {
        let mut packed = packed?;
        let piece = packed.next().await?;
        let rest = piece.is_ok().then_some(packed);
        Some((piece, rest))
    });
    Body::from_stream(pieces)
}

pub(super) async fn import(
    caller: ServiceCaller,
    PathId(id): PathId,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    let asked = read_import(
        request.uri().query().unwrap_or_default(),
        request_id(&request),
    )?;
    // Who asks before sending has not sent anything that would have to be read past.
    let asks_first = request.headers().contains_key(EXPECT);
    let mut pieces = Streamed::of(request);
    let importing = match caller.control().import(&id, asked).await {
        Ok(importing) => importing,
        Err(refusal) => {
            if !asks_first {
                pieces.drain().await;
            }
            return Err(refusal.into());
        }
    };
    match hand_on(&mut pieces, &importing).await {
        Ok(Taken::Whole) => Ok(reply::json(&importing.outcome().await?)),
        Ok(Taken::Part) => {
            let outcome = importing.outcome().await;
            pieces.drain().await;
            Ok(reply::json(&outcome?))
        }
        Err(failure) => {
            // What was unpacked is gone before the reply, so that another try finds room.
            drop(importing.outcome().await);
            Err(failure)
        }
    }
}

/// How much of a body was taken.
enum Taken {
    Whole,
    /// The import ended before: it failed.
    Part,
}

async fn hand_on(pieces: &mut Streamed, importing: &Importing) -> Result<Taken, Failure> {
    while let Some(piece) = pieces.next().await? {
        if !importing.send(Part::Bytes(piece)).await {
            return Ok(Taken::Part);
        }
    }
    importing.send(Part::End).await;
    Ok(Taken::Whole)
}

fn read_import(text: &str, request_id: RequestId) -> Result<Import, Failure> {
    let mut form = Form::query();
    let [format, replace, runtime, tenant] =
        query::fields(text, ["format", "replace", "runtime", "tenant"]);
    let format = form.optional(&format, |given| validate::one_of(given, FORMATS));
    let old = if form.or_default(&replace, validate::flag) {
        OldFiles::Replace
    } else {
        OldFiles::Refuse
    };
    let import = Import {
        format: format.as_deref().map(format_of),
        old,
        runtime: form.optional(&runtime, validate::text),
        tenant: form.optional(&tenant, validate::tenant),
        request_id,
    };
    form.finish()?;
    Ok(import)
}

fn format_of(word: &str) -> Format {
    match word {
        "tar" => Format::Tar,
        _ => Format::TarZst,
    }
}
