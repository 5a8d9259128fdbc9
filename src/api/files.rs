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
use crate::api::reply;
use crate::api::validate::{self, Field, Form, Given};
use crate::control::Refusal;
use crate::control::files::refusal::FileRefusal;
use crate::control::files::{Asked, Op};
use crate::workspace::search::Hidden;
use crate::workspace::{Times, Window};

/// Lines that are read where no limit is named.
const LINES_DEFAULT: u64 = 2_000;

/// Reads a body by `read`, carries out the operation and writes the answer.
async fn work(
    caller: &SessionCaller,
    request: Request<Body>,
    read: impl FnOnce(&mut Form<'_>) -> Op,
) -> Result<Response<Body>, Failure> {
    let request_id = request_id(&request);
    let body = JsonText::read(request).await?;
    let op = caller.checked(read_form(&body, read)).await?;
    // What was made of it may be as large.
    let share = body.into_share();
    let asked = Asked { op, request_id };
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
pub(super) fn path(form: &mut Form<'_>) -> String {
    let [path] = form.fields(["path"]);
    form.required(&path, validate::text)
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
    work(&caller, request, |form| Op::Read {
        path: path(form),
        window: window(form),
    })
    .await
}

pub(super) async fn read_bytes(
    caller: SessionCaller,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    work(&caller, request, |form| Op::ReadBytes { path: path(form) }).await
}

pub(super) async fn exists(
    caller: SessionCaller,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    work(&caller, request, |form| Op::Exists { path: path(form) }).await
}

pub(super) async fn ls(
    caller: SessionCaller,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    work(&caller, request, |form| Op::Ls { path: path(form) }).await
}

pub(super) async fn edit(
    caller: SessionCaller,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    work(&caller, request, |form| {
        let [old, new, all] = form.fields(["old_string", "new_string", "replace_all"]);
        Op::Edit {
            path: path(form),
            old: form.required(&old, validate::text),
            new: form.required(&new, validate::text),
            times: if form.or_default(&all, validate::flag) {
                Times::All
            } else {
                Times::Once
            },
        }
    })
    .await
}

pub(super) async fn glob(
    caller: SessionCaller,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    work(&caller, request, |form| {
        let [pattern, path] = form.fields(["pattern", "path"]);
        Op::Glob {
            pattern: form.required(&pattern, validate::text),
            path: or(form, &path, "/".to_owned(), validate::text),
        }
    })
    .await
}

pub(super) async fn grep(
    caller: SessionCaller,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    work(&caller, request, |form| {
        let [pattern, path, filter, hidden] =
            form.fields(["pattern", "path", "glob", "ignore_hidden"]);
        Op::Grep {
            pattern: form.required(&pattern, validate::text),
            path: form.optional(&path, validate::text),
            filter: form.optional(&filter, validate::text),
            hidden: if or(form, &hidden, true, validate::flag) {
                Hidden::Skipped
            } else {
                Hidden::Searched
            },
        }
    })
    .await
}

pub(super) async fn write(
    caller: SessionCaller,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    let request_id = request_id(&request);
    let body = JsonText::read(request).await?;
    let op = caller.checked(read_write(&body)).await?;
    let share = body.into_share();
    let asked = Asked { op, request_id };
    let answer = caller.control().work_on_files(caller.id(), asked).await?;
    drop(share);
    Ok(reply::json(&answer))
}

fn read_write(body: &JsonText) -> Result<Op, Failure> {
    let (path, content) = read_form(body, |form| {
        let [content] = form.fields(["content_b64"]);
        (path(form), form.required(&content, validate::text))
    })?;
    let bytes = STANDARD
        .decode(&content)
        .map_err(|error| not_base64(&content, &error))?;
    Ok(Op::Write { path, bytes })
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
