//! Reads what is asked of files and passes it on.

use axum::body::Body;
use axum::http::{Request, Response};
use base64::DecodeError;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::api::auth::SessionCaller;
use crate::api::body::JsonText;
use crate::api::edge::request_id;
use crate::api::error::Failure;
use crate::api::validate::{self, Field, Form, Given};
use crate::api::{paths, reply};
use crate::control::Refusal;
use crate::control::files::refusal::FileRefusal;
use crate::control::files::{Asked, GivenPath, Op};
use crate::id::RequestId;
use crate::workspace::search::Hidden;
use crate::workspace::{Expected, Times, Window};

/// Lines that are read where no limit is named.
const LINES_DEFAULT: u64 = 2_000;

/// An operation, the path that it is about where that is not UTF-8, and what it expects
/// to be there.
struct Wanted {
    op: Op,
    path: Option<GivenPath>,
    expected: Expected,
}

impl Wanted {
    /// Makes an operation of the text of a path.
    fn at(path: GivenPath, op: impl FnOnce(String) -> Op) -> Self {
        Self {
            op: op(path.lossy().to_owned()),
            path: (!path.is_text()).then_some(path),
            expected: Expected::Anything,
        }
    }
}

/// Reads a body by `read`, carries out the operation and writes the answer.
async fn work(
    caller: &SessionCaller,
    request: Request<Body>,
    read: impl FnOnce(&mut Form<'_>) -> Wanted,
) -> Result<Response<Body>, Failure> {
    let request_id = request_id(&request);
    let body = JsonText::read(request).await?;
    let wanted = caller.checked(read_form(&body, read)).await?;
    carry_out(caller, body, wanted, request_id).await
}

async fn carry_out(
    caller: &SessionCaller,
    body: JsonText,
    wanted: Wanted,
    request_id: RequestId,
) -> Result<Response<Body>, Failure> {
    // What was made of it may be as large.
    let share = body.into_share();
    let asked = Asked {
        op: wanted.op,
        path: wanted.path,
        expected: wanted.expected,
        request_id,
    };
    let answer = caller.control().work_on_files(caller.id(), asked).await?;
    drop(share);
    Ok(reply::json(&answer))
}

/// Reads the fields of a body.
pub(super) fn read_form<T>(
    body: &JsonText,
    read: impl FnOnce(&mut Form<'_>) -> T,
) -> Result<T, Failure> {
    let mut form = Form::body(body.parse()?)?;
    let fields = read(&mut form);
    form.finish()?;
    Ok(fields)
}

/// Reads the path that a request is about.
pub(super) fn path(form: &mut Form<'_>) -> GivenPath {
    let fields = form.fields(["path", "path_b64"]);
    paths::required(form, &fields)
}

/// Reads what a writer expects to be there: a tag, or the digits of a SHA-256.
fn expected(form: &mut Form<'_>) -> Expected {
    let [tag] = form.fields(["if_match"]);
    let tag = form.optional(&tag, validate::text);
    match tag.as_deref().map(|tag| tag.trim_matches('"')) {
        None => Expected::Anything,
        Some("*") => Expected::Something,
        Some(tag) => Expected::OneOf(vec![tag.to_owned()]),
    }
}

/// Reads which lines are wanted.
pub(super) fn window(form: &mut Form<'_>) -> Window {
    let [offset, limit] = form.fields(["offset", "limit"]);
    let offset = form.or_default(&offset, |given| validate::at_least(given, 0));
    Window {
        offset,
        limit: or(form, &limit, LINES_DEFAULT, |given| {
            validate::at_least(given, 1)
        }),
    }
}

/// Reads a field that has a default and may not be `null`.
pub(super) fn or<'a, T, F: Into<validate::Faults>>(
    form: &mut Form<'a>,
    field: &Field<'a>,
    default: T,
    read: impl FnOnce(&Given<'a>) -> Result<T, F>,
) -> T {
    let read = |given: &Given<'a>| read(given).map(Some);
    form.or_default(field, read).unwrap_or(default)
}

pub(super) async fn read(
    caller: SessionCaller,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    work(&caller, request, |form| {
        let (path, window) = (path(form), window(form));
        Wanted::at(path, |path| Op::Read { path, window })
    })
    .await
}

pub(super) async fn read_bytes(
    caller: SessionCaller,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    work(&caller, request, |form| {
        Wanted::at(path(form), |path| Op::ReadBytes { path })
    })
    .await
}

pub(super) async fn exists(
    caller: SessionCaller,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    work(&caller, request, |form| {
        Wanted::at(path(form), |path| Op::Exists { path })
    })
    .await
}

pub(super) async fn ls(
    caller: SessionCaller,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    work(&caller, request, |form| {
        Wanted::at(path(form), |path| Op::Ls { path })
    })
    .await
}

pub(super) async fn edit(
    caller: SessionCaller,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    work(&caller, request, |form| {
        let [old, new, all] = form.fields(["old_string", "new_string", "replace_all"]);
        let path = path(form);
        let old = form.required(&old, validate::text);
        let new = form.required(&new, validate::text);
        let times = if form.or_default(&all, validate::flag) {
            Times::All
        } else {
            Times::Once
        };
        Wanted {
            expected: expected(form),
            ..Wanted::at(path, |path| Op::Edit {
                path,
                old,
                new,
                times,
            })
        }
    })
    .await
}

pub(super) async fn glob(
    caller: SessionCaller,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    work(&caller, request, |form| {
        let [pattern, path, b64] = form.fields(["pattern", "path", "path_b64"]);
        let pattern = form.required(&pattern, validate::text);
        let path = if b64.is_given() {
            paths::required(form, &[path, b64])
        } else {
            or(form, &path, "/".to_owned(), validate::text).into()
        };
        Wanted::at(path, |path| Op::Glob { pattern, path })
    })
    .await
}

pub(super) async fn grep(
    caller: SessionCaller,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    work(&caller, request, |form| {
        let [pattern, path, b64, filter, hidden] =
            form.fields(["pattern", "path", "path_b64", "glob", "ignore_hidden"]);
        let pattern = form.required(&pattern, validate::text);
        let path = paths::optional(form, &[path, b64]);
        let is_given = path.is_some();
        let filter = form.optional(&filter, validate::text);
        let hidden = if or(form, &hidden, true, validate::flag) {
            Hidden::Skipped
        } else {
            Hidden::Searched
        };
        Wanted::at(path.unwrap_or_default(), |path| Op::Grep {
            pattern,
            path: is_given.then_some(path),
            filter,
            hidden,
        })
    })
    .await
}

pub(super) async fn write(
    caller: SessionCaller,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    let request_id = request_id(&request);
    let body = JsonText::read(request).await?;
    let wanted = caller.checked(read_write(&body)).await?;
    carry_out(&caller, body, wanted, request_id).await
}

fn read_write(body: &JsonText) -> Result<Wanted, Failure> {
    let (path, content, expected) = read_form(body, |form| {
        let [content] = form.fields(["content_b64"]);
        let path = path(form);
        let content = form.required(&content, validate::text);
        (path, content, expected(form))
    })?;
    let bytes = STANDARD
        .decode(&content)
        .map_err(|error| not_base64(&content, &error))?;
    Ok(Wanted {
        expected,
        ..Wanted::at(path, |path| Op::Write { path, bytes })
    })
}

/// Says why a text is not in base64, as Python does.
fn not_base64(text: &str, error: &DecodeError) -> Failure {
    let reason = if text.is_ascii() {
        match error {
            DecodeError::InvalidByte(_, b'=') => "Excess data after padding",
            DecodeError::InvalidByte(..) => "Only base64 data is allowed",
            DecodeError::InvalidLength(_)
            | DecodeError::InvalidLastSymbol { .. }
            | DecodeError::InvalidPadding => "Incorrect padding",
        }
    } else {
        "string argument should contain only ASCII characters"
    };
    Refusal::from(FileRefusal::NotBase64(reason)).into()
}
