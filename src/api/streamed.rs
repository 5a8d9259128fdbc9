//! Sends files and takes them in as they come.

use std::io;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_SECURITY_POLICY, ETAG, EXPECT, HeaderName, HeaderValue, LAST_MODIFIED,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, Method, Request, Response, StatusCode};
use futures_util::stream::try_unfold;
use jiff::fmt::rfc2822::DateTimePrinter;
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use tokio::time::timeout;

use crate::api::auth::{PathId, ServiceCaller, SessionCaller};
use crate::api::body::Streamed;
use crate::api::conditions::{self, Verdict};
use crate::api::edge::request_id;
use crate::api::error::Failure;
use crate::api::room::{BodyRoom, Share};
use crate::api::{paths, reply};
use crate::control::files::refusal::FileRefusal;
use crate::control::files::{Download, FileFacts, GivenPath, Put, Sending, Upload, Uploaded};
use crate::control::{Control, Refusal};
use crate::wire;
use crate::workspace::Arrival;

/// The headers that tell of a reset where the body is a file's.
const INCARNATION: HeaderName = HeaderName::from_static("x-sandbox-incarnation");
const RESET_REASON: HeaderName = HeaderName::from_static("x-sandbox-reset-reason");

/// Bytes of an upload that are written at a time.
const PIECE_BYTES_MAX: usize = 256 << 10;
/// The longest that an upload takes for so many bytes, or for the rest of them: it holds
/// its sandbox awake meanwhile.
const PIECE_TIME_MAX: Duration = Duration::from_mins(2);

/// Bytes of a refused upload that are read and dropped, and how long: many senders look
/// for the reply only when all is sent.
const DROPPED_BYTES_MAX: usize = 64 << 20;
const DROP_TIME_MAX: Duration = Duration::from_secs(5);

/// What a reader asks for.
struct Asked {
    method: Method,
    headers: HeaderMap,
    name: Vec<u8>,
    request_id: crate::id::RequestId,
}

impl Asked {
    fn of(request: &Request<Body>, path: &GivenPath) -> Self {
        let name = path.as_bytes().rsplit(|byte| *byte == b'/').next();
        Self {
            method: request.method().clone(),
            headers: request.headers().clone(),
            name: name.unwrap_or_default().to_vec(),
            request_id: request_id(request),
        }
    }
}

pub(super) async fn download(
    caller: SessionCaller,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    let path = paths::of_query(request.uri().query().unwrap_or_default());
    let path = caller.checked(path).await?;
    let asked = Asked::of(&request, &path);
    drop(request);
    let opened = caller.control().download(caller.id(), path).await?;
    answer(caller.control(), opened, asked).await
}

pub(super) async fn stored(
    caller: ServiceCaller,
    PathId(id): PathId,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    let path = paths::of_query(request.uri().query().unwrap_or_default())?;
    let asked = Asked::of(&request, &path);
    drop(request);
    let opened = caller.control().stored_download(&id, path).await?;
    answer(caller.control(), opened, asked).await
}

/// Answers with a file as far as the request wants it.
async fn answer(
    control: &Control,
    file: Download,
    asked: Asked,
) -> Result<Response<Body>, Failure> {
    let facts = file.facts().clone();
    let mut verdict = conditions::judge(&asked.headers, &facts);
    if asked.method == Method::HEAD && matches!(verdict, Verdict::Part(_) | Verdict::OutOfRange) {
        // Ranges are for those who get bytes.
        verdict = Verdict::Whole;
    }
    let (status, range) = match verdict {
        Verdict::Whole => (StatusCode::OK, 0..facts.bytes),
        Verdict::Part(range) => (StatusCode::PARTIAL_CONTENT, range),
        Verdict::NotModified => {
            let mut reply = reply::no_content();
            *reply.status_mut() = StatusCode::NOT_MODIFIED;
            describe(reply.headers_mut(), &facts);
            return Ok(reply);
        }
        Verdict::Failed => {
            let path = String::from_utf8_lossy(&asked.name).into_owned();
            return Err(Refusal::from(FileRefusal::Condition(path)).into());
        }
        Verdict::OutOfRange => return Err(Failure::OutOfRange(facts.bytes)),
    };
    let length = range.end - range.start;
    let content_range = (status == StatusCode::PARTIAL_CONTENT)
        .then(|| format!("bytes {}-{}/{}", range.start, range.end - 1, facts.bytes));
    let reset = file.reset().clone();
    let body = if asked.method == Method::HEAD {
        Body::empty()
    } else {
        let sending = control.send(file, range, &asked.request_id).await;
        Body::from_stream(try_unfold(sending, next))
    };
    let mut reply = reply::typed("application/octet-stream", body);
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    describe(headers, &facts);
    headers.insert(CONTENT_LENGTH, length.into());
    if let Some(range) = content_range {
        put(headers, CONTENT_RANGE, range);
    }
    if let (Some(incarnation), Some(reason)) = (reset.incarnation, reset.reset_reason) {
        headers.insert(INCARNATION, incarnation.into());
        put(headers, RESET_REASON, reason);
    }
    // What untrusted code wrote is for saving, and never a page of ours.
    let name = percent_encode(&asked.name, NON_ALPHANUMERIC);
    put(
        headers,
        CONTENT_DISPOSITION,
        format!("attachment; filename*=UTF-8''{name}"),
    );
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let policy = HeaderValue::from_static("sandbox; default-src 'none'");
    headers.insert(CONTENT_SECURITY_POLICY, policy);
    Ok(reply)
}

async fn next(mut sending: Sending) -> io::Result<Option<(bytes::Bytes, Sending)>> {
    // The connection breaks then, so that nobody takes what came for all.
    let piece = sending.next().await.map_err(io::Error::other)?;
    Ok(piece.map(|piece| (piece, sending)))
}

/// Tells what a file is.
fn describe(headers: &mut HeaderMap, facts: &FileFacts) {
    put(headers, ETAG, format!("\"{}\"", facts.etag));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    // Kept by its reader alone, and asked for before each use.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    let modified = facts.modified_secs.and_then(|secs| {
        let at = jiff::Timestamp::from_second(secs).ok()?;
        DateTimePrinter::new().timestamp_to_rfc9110_string(&at).ok()
    });
    if let Some(modified) = modified {
        put(headers, LAST_MODIFIED, modified);
    }
}

fn put(headers: &mut HeaderMap, name: HeaderName, value: String) {
    // A sandbox can give a file a time that no header has.
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.insert(name, value);
    }
}

pub(super) async fn upload(
    caller: SessionCaller,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    let request_id = request_id(&request);
    let path = paths::of_query(request.uri().query().unwrap_or_default());
    let path = caller.checked(path).await?;
    let (length, waits) = {
        let headers = request.headers();
        let length = headers.get(CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        (length, headers.contains_key(EXPECT))
    };
    let room = request.extensions().get::<BodyRoom>().cloned();
    let mut share = room.unwrap_or_default().share();
    let expected = conditions::expected(request.headers(), path.lossy());
    let mut pieces = Streamed::of(request);
    let begun = match expected {
        Ok(expected) => {
            let put = Put {
                path,
                expected,
                request_id,
            };
            begin(caller.control(), &caller, put, length).await
        }
        Err(refusal) => Err(Refusal::from(refusal).into()),
    };
    let failure = match begun {
        Err(failure) => failure,
        Ok(mut upload) => match collect(&mut pieces, &mut upload, &mut share).await {
            Ok(()) => return Ok(uploaded(upload.finish().await?)),
            Err(failure) => {
                upload.give_up(&failure.text()).await;
                failure
            }
        },
    };
    // Who asks before sending has not sent anything.
    if !waits {
        pieces
            .discard_within(DROPPED_BYTES_MAX, DROP_TIME_MAX)
            .await;
    }
    Err(failure)
}

async fn begin(
    control: &Control,
    caller: &SessionCaller,
    put: Put,
    length: Option<u64>,
) -> Result<Upload, Failure> {
    let path = put.path.to_string();
    let upload = control.upload(caller.id(), put).await?;
    let limit = upload.bytes_max();
    if length.is_some_and(|bytes| limit < bytes) {
        let why = format!("The body is over the {limit} bytes that a file may have at {path}");
        upload.give_up(&why).await;
        return Err(Refusal::from(FileRefusal::TooLarge(why)).into());
    }
    Ok(upload)
}

/// Writes a body as it comes.
async fn collect(
    pieces: &mut Streamed,
    upload: &mut Upload,
    share: &mut Share,
) -> Result<(), Failure> {
    let mut piece = gather(pieces).await?;
    while !piece.is_empty() {
        // The next piece is waited for while this one is written.
        let writing = async { upload.append(piece.into()).await.map_err(Failure::from) };
        let ((), next) = tokio::try_join!(writing, gather(pieces))?;
        share.grow_to(upload.held_bytes())?;
        piece = next;
    }
    Ok(())
}

/// Waits for some of a body; for nothing at its end.
async fn gather(pieces: &mut Streamed) -> Result<Vec<u8>, Failure> {
    let gathering = async {
        let mut gathered = Vec::new();
        while gathered.len() < PIECE_BYTES_MAX
            && let Some(piece) = pieces.next().await?
        {
            if gathered.is_empty() {
                gathered.reserve(PIECE_BYTES_MAX + piece.len());
            }
            gathered.extend_from_slice(&piece);
        }
        Ok(gathered)
    };
    let gathered = timeout(PIECE_TIME_MAX, gathering).await;
    gathered.unwrap_or(Err(Failure::SlowBody))
}

fn uploaded(done: Uploaded) -> Response<Body> {
    let mut reply = reply::json(&wire::files::Uploaded {
        path: done.path,
        size: done.bytes,
        sha256: done.sha256,
        etag: done.etag.clone(),
        reset: done.reset,
    });
    if done.arrival == Some(Arrival::New) {
        *reply.status_mut() = StatusCode::CREATED;
    }
    if let Some(etag) = done.etag {
        put(reply.headers_mut(), ETAG, format!("\"{etag}\""));
    }
    reply
}
