//! Reads what is asked of files that the host serves alone, and passes it on.

use axum::body::Body;
use axum::http::header::CONTENT_LENGTH;
use axum::http::{Request, Response};
use bytes::Bytes;

use crate::api::auth::SessionCaller;
use crate::api::body::{JsonText, Streamed};
use crate::api::edge::request_id;
use crate::api::error::Failure;
use crate::api::files::{path, read_form};
use crate::api::room::{BodyRoom, Share};
use crate::api::{paths, reply};
use crate::control::Refusal;
use crate::control::files::refusal::FileRefusal;
use crate::control::files::{Native, NativeAnswer};

async fn work(
    caller: &SessionCaller,
    request: Request<Body>,
    native: Native,
) -> Result<Response<Body>, Failure> {
    let request_id = request_id(&request);
    let body = JsonText::read(request).await?;
    let path = caller.checked(read_form(&body, path)).await?;
    drop(body);
    let control = caller.control();
    let answer = control.native(caller.id(), (native, path), &request_id);
    Ok(written(answer.await?))
}

fn written(answer: NativeAnswer) -> Response<Body> {
    match answer {
        NativeAnswer::Done => reply::no_content(),
        NativeAnswer::Bytes(bytes) => reply::typed("application/octet-stream", bytes.into()),
        NativeAnswer::Entry(entry) => reply::json(&entry),
        NativeAnswer::Entries(entries) => reply::json(&entries),
        NativeAnswer::Path(path) => reply::json(&path),
    }
}

pub(super) async fn read(
    caller: SessionCaller,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    work(&caller, request, Native::Read).await
}

pub(super) async fn stat(
    caller: SessionCaller,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    work(&caller, request, Native::Stat).await
}

pub(super) async fn list(
    caller: SessionCaller,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    work(&caller, request, Native::List).await
}

pub(super) async fn realpath(
    caller: SessionCaller,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    work(&caller, request, Native::Realpath).await
}

pub(super) async fn mkdir(
    caller: SessionCaller,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    work(&caller, request, Native::Mkdir).await
}

pub(super) async fn remove(
    caller: SessionCaller,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    work(&caller, request, Native::Remove).await
}

pub(super) async fn write(
    caller: SessionCaller,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    let request_id = request_id(&request);
    let read = paths::of_query(request.uri().query().unwrap_or_default());
    let path = caller.checked(read).await?;
    let announced = request.headers().get(CONTENT_LENGTH);
    let announced = announced.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    let room = request.extensions().get::<BodyRoom>().cloned();
    let mut share = room.unwrap_or_default().share();
    let mut pieces = Streamed::of(request);
    let collected = match caller.control().native_write_max(caller.id()) {
        Err(refusal) => Err(refusal.into()),
        Ok(bytes_max) if announced.is_some_and(|bytes| bytes_max < bytes) => Err(too_large()),
        Ok(bytes_max) => collect(&mut pieces, (announced, bytes_max), &mut share).await,
    };
    let body = match collected {
        Ok(body) => body,
        Err(failure) => {
            pieces.discard().await;
            return Err(failure);
        }
    };
    let asked = (Native::Write(body), path);
    let answer = caller.control().native(caller.id(), asked, &request_id);
    Ok(written(answer.await?))
}

/// Collects a body as it comes, counting its bytes.
async fn collect(
    pieces: &mut Streamed,
    (announced, bytes_max): (Option<u64>, u64),
    share: &mut Share,
) -> Result<Vec<Bytes>, Failure> {
    let announced = announced.and_then(|length| usize::try_from(length).ok());
    share.grow_to(announced.unwrap_or_default())?;
    let (mut whole, mut length) = (Vec::new(), 0);
    while let Some(piece) = pieces.next().await? {
        length += piece.len();
        if bytes_max < u64::try_from(length).unwrap_or(u64::MAX) {
            return Err(too_large());
        }
        share.grow_to(length)?;
        whole.push(piece);
    }
    Ok(whole)
}

fn too_large() -> Failure {
    Refusal::from(FileRefusal::Handed("larger than a native write".to_owned())).into()
}
