//! Maps every failure to its status, its code and its body: the one table.
//!
//! A handler answers with a [`Failure`]; the body is written at the edge, where
//! the request id is known.

mod archives;
mod files;

use std::borrow::Cow;

use axum::body::Body;
use axum::http::header::{ALLOW, CONTENT_RANGE, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;

use crate::api::command::COMMAND_WHOLE_BYTES_MAX;
use crate::control::Refusal;
use crate::control::files::refusal::FileRefusal;
use crate::control::relief::freed_by;
use crate::id::RequestId;
use crate::wire::error::{Ceiling, Detail, ErrorBody, FieldError, NamedError};

/// Why a request got no answer of its route.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Failure {
    /// The service refused.
    Refused(Refusal),
    /// The token is missing or not good here.
    Unauthorized,
    /// Fields of the path, the query or the body are not valid.
    Invalid(Vec<FieldError>),
    /// The body is not UTF-8, or broke off.
    UnreadableBody,
    /// The body stood still for too long.
    SlowBody,
    /// The body has more bytes than this.
    TooLarge(usize),
    /// A program, its variables and its input are too much for one request to a sandbox.
    CommandTooLarge {
        /// Their bytes.
        bytes: usize,
        /// Their bytes as JSON.
        json_bytes: usize,
        /// The most that they may have as JSON.
        json_bytes_max: usize,
    },
    /// Output that was asked for is not kept any more, or was never written: this sentence.
    NoSuchOutput(String),
    /// No byte of what was asked for is in the file, which has so many.
    OutOfRange(u64),
    /// Other bodies take all the room there is.
    NoBodyRoom {
        /// Bytes of bodies that are held at once.
        limit: u64,
        /// Bytes that are held.
        used: u64,
    },
    /// All connections that there may be are taken.
    NoConnection {
        /// The ceiling of connections.
        limit: u64,
    },
    /// There is no such path.
    NoRoute,
    /// The path has other methods: these.
    OtherMethod(HeaderValue),
    /// There is not exactly one `Host`.
    BadHost,
    /// The body is compressed.
    Encoded,
    /// The page that asks is not one of ours.
    ForeignOrigin,
    /// The request does not ask for a WebSocket, where nothing else is served.
    NotWebSocket,
    /// The handler panicked.
    Panicked,
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Whether the same request may succeed later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Again {
    Never,
    /// Soon; for statuses that tell when, in about so many seconds.
    After(u8),
}

/// A row of the table.
type Row = (StatusCode, &'static str, Again);

impl Failure {
    /// Returns the status.
    pub(super) fn status(&self) -> StatusCode {
        self.row().0
    }

    fn row(&self) -> Row {
        use Again::{After, Never};
        match self {
            Self::Refused(refusal) => refusal_row(refusal),
            Self::Unauthorized => (StatusCode::UNAUTHORIZED, "unauthorized", Never),
            Self::Invalid(_) => (StatusCode::UNPROCESSABLE_ENTITY, "invalid_request", Never),
            Self::UnreadableBody => (StatusCode::BAD_REQUEST, "unreadable_body", Never),
            Self::SlowBody => (StatusCode::REQUEST_TIMEOUT, "slow_body", After(1)),
            Self::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", Never),
            Self::CommandTooLarge { .. } => {
                (StatusCode::PAYLOAD_TOO_LARGE, "command_too_large", Never)
            }
            Self::NoSuchOutput(_) => (StatusCode::RANGE_NOT_SATISFIABLE, "no_such_output", Never),
            Self::OutOfRange(_) => (StatusCode::RANGE_NOT_SATISFIABLE, "out_of_range", Never),
            Self::NoBodyRoom { .. } => (StatusCode::SERVICE_UNAVAILABLE, "body_ceiling", After(2)),
            Self::NoConnection { .. } => (
                StatusCode::SERVICE_UNAVAILABLE,
                "connection_ceiling",
                After(2),
            ),
            Self::NoRoute => (StatusCode::NOT_FOUND, "no_route", Never),
            Self::OtherMethod(_) => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", Never),
            Self::BadHost => (StatusCode::BAD_REQUEST, "bad_host", Never),
            Self::Encoded => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "encoded_body", Never),
            Self::ForeignOrigin => (StatusCode::FORBIDDEN, "origin", Never),
            Self::NotWebSocket => (StatusCode::BAD_REQUEST, "not_websocket", Never),
            Self::Panicked => (StatusCode::INTERNAL_SERVER_ERROR, "internal_error", Never),
        }
    }

    /// Returns the code, under which clients and logs know it.
    pub(super) fn code(&self) -> &'static str {
        self.row().1
    }

    /// Says what went wrong, in one sentence.
    pub(super) fn text(&self) -> Cow<'static, str> {
        let text = match self {
            Self::Refused(refusal) => return Cow::Owned(refusal.to_string()),
            Self::TooLarge(bytes_max) => {
                return Cow::Owned(format!("The body is over {bytes_max} bytes"));
            }
            Self::CommandTooLarge {
                bytes,
                json_bytes,
                json_bytes_max,
            } => {
                return Cow::Owned(format!(
                    "The program, its variables and its input have {bytes} bytes ({json_bytes} as JSON), and at most {COMMAND_WHOLE_BYTES_MAX} ({json_bytes_max} as JSON) go into one request. Start a run with \"stdin\": true and send its input with POST /sessions/{{session_id}}/runs/{{run_id}}/stdin, or put it into a file."
                ));
            }
            Self::NoSuchOutput(sentence) => return Cow::Owned(sentence.clone()),
            Self::OutOfRange(bytes) => {
                return Cow::Owned(format!(
                    "The file has {bytes} bytes, and none in that range"
                ));
            }
            Self::NoBodyRoom { limit, used } => {
                return Cow::Owned(format!(
                    "Request bodies hold {used} of {limit} bytes. Try again shortly, or with a smaller body."
                ));
            }
            Self::NoConnection { limit } => {
                return Cow::Owned(format!(
                    "All {limit} connections are taken. Close those that are idle, or try again shortly."
                ));
            }
            Self::Invalid(_) => "Fields of the request are not valid",
            Self::Unauthorized => "Invalid or missing sandbox token",
            Self::UnreadableBody => "There was an error parsing the body",
            Self::SlowBody => "The body did not arrive in time",
            Self::NoRoute => "Not Found",
            Self::OtherMethod(_) => "Method Not Allowed",
            Self::BadHost => "A request needs exactly one Host header",
            Self::Encoded => "A body with a Content-Encoding is not accepted. Send it as it is.",
            Self::ForeignOrigin => "A page of another origin cannot open a terminal here",
            Self::NotWebSocket => {
                "Only a WebSocket is served here. Ask with Upgrade: websocket, version 13."
            }
            Self::Panicked => "Internal Server Error",
        };
        Cow::Borrowed(text)
    }

    /// Returns the ceiling that refused, if one did.
    fn ceiling(&self) -> Option<Ceiling> {
        let (name, limit, used) = match self {
            Self::Refused(refusal) => return refusal.ceiling(),
            Self::NoBodyRoom { limit, used } => ("max_body_bytes", *limit, *used),
            Self::NoConnection { limit } => ("max_connections", *limit, *limit),
            Self::Unauthorized
            | Self::Invalid(_)
            | Self::UnreadableBody
            | Self::SlowBody
            | Self::TooLarge(_)
            | Self::CommandTooLarge { .. }
            | Self::NoSuchOutput(_)
            | Self::OutOfRange(_)
            | Self::NoRoute
            | Self::OtherMethod(_)
            | Self::BadHost
            | Self::Encoded
            | Self::ForeignOrigin
            | Self::NotWebSocket
            | Self::Panicked => return None,
        };
        Some(Ceiling {
            name: name.to_owned(),
            limit,
            used,
            scope: "service".to_owned(),
        })
    }

    /// Returns why a run was lost, where it was.
    fn reason(&self) -> Option<String> {
        if let Self::Refused(Refusal::RunLost { reason, .. }) = self {
            Some(reason.clone())
        } else {
            None
        }
    }

    fn detail(self) -> Detail {
        match self {
            Self::Invalid(fields) => Detail::Fields(fields),
            Self::Refused(Refusal::Files(FileRefusal::Named { name, message })) => {
                Detail::Named(NamedError {
                    error: name.as_str().to_owned(),
                    message,
                })
            }
            other => Detail::Text(other.text().into_owned()),
        }
    }

    /// Makes the body of the reply.
    pub(super) fn body(self, request_id: &RequestId) -> ErrorBody {
        let (_, code, again) = self.row();
        let (ceiling, reason) = (self.ceiling(), self.reason());
        let freed_by = ceiling.as_ref().and_then(|one| freed_by(&one.name));
        ErrorBody {
            detail: self.detail(),
            code: code.to_owned(),
            retryable: again != Again::Never,
            request_id: request_id.to_string(),
            ceiling,
            freed_by: freed_by.map(str::to_owned),
            reason,
        }
    }

    /// Writes the reply.
    pub(super) fn reply(self, request_id: &RequestId) -> Response<Body> {
        let (status, _, again) = self.row();
        let more = match &self {
            Self::OtherMethod(methods) => Some((ALLOW, methods.clone())),
            Self::OutOfRange(bytes) => {
                let range = format!("bytes */{bytes}");
                let range = HeaderValue::try_from(range).expect("digits are visible");
                Some((CONTENT_RANGE, range))
            }
            _ => None,
        };
        let bytes =
            serde_json::to_vec(&self.body(request_id)).expect("an error body has only text keys");
        let mut reply = Response::new(Body::from(bytes));
        *reply.status_mut() = status;
        let headers = reply.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some((name, value)) = more {
            headers.insert(name, value);
        }
        if let Again::After(secs) = again
            && tells_when(status)
        {
            headers.insert(RETRY_AFTER, retry_after(secs));
        }
        reply
    }
}

impl IntoResponse for Failure {
    /// Leaves a note for the edge, which writes the body.
    fn into_response(self) -> Response<Body> {
        let mut reply = Response::new(Body::empty());
        *reply.status_mut() = self.status();
        reply.extensions_mut().insert(self);
        reply
    }
}

fn refusal_row(refusal: &Refusal) -> Row {
    use Again::{After, Never};
    match refusal {
        Refusal::UnknownRuntime { .. } => (StatusCode::BAD_REQUEST, "unknown_runtime", Never),
        Refusal::Files(refusal) => files::row(refusal),
        Refusal::AttachWithoutId => (StatusCode::BAD_REQUEST, "attach_without_id", Never),
        Refusal::NothingToAttach(_) => (StatusCode::NOT_FOUND, "nothing_to_attach", Never),
        Refusal::NoSession(_) => (StatusCode::NOT_FOUND, "no_session", Never),
        Refusal::NoHold(_) => (StatusCode::NOT_FOUND, "no_hold", Never),
        Refusal::Exists(_) => (StatusCode::CONFLICT, "session_exists", Never),
        Refusal::Opening(_) => (StatusCode::CONFLICT, "session_opening", After(1)),
        Refusal::Closing(_) => (StatusCode::CONFLICT, "session_closing", After(1)),
        Refusal::OtherRuntime { .. } => (StatusCode::CONFLICT, "other_runtime", Never),
        Refusal::FilesInOtherRuntime { .. } => {
            (StatusCode::CONFLICT, "files_in_other_runtime", Never)
        }
        Refusal::StillOpen(_) => (StatusCode::CONFLICT, "session_open", Never),
        Refusal::InUse { .. } => (StatusCode::CONFLICT, "session_in_use", After(1)),
        Refusal::SleepLosesFiles(_) => (StatusCode::CONFLICT, "sleep_loses_files", Never),
        Refusal::OpenCeiling { .. } => (StatusCode::TOO_MANY_REQUESTS, "open_ceiling", After(10)),
        Refusal::TenantCeiling { .. } => {
            (StatusCode::TOO_MANY_REQUESTS, "tenant_ceiling", After(10))
        }
        Refusal::ResidentCeiling { .. } => {
            (StatusCode::TOO_MANY_REQUESTS, "resident_ceiling", After(10))
        }
        Refusal::CommandCeiling { .. } => {
            (StatusCode::TOO_MANY_REQUESTS, "command_ceiling", After(2))
        }
        Refusal::SessionCommandCeiling { .. } => (
            StatusCode::TOO_MANY_REQUESTS,
            "session_command_ceiling",
            After(2),
        ),
        Refusal::TtyCeiling { .. } => (StatusCode::TOO_MANY_REQUESTS, "tty_ceiling", After(10)),
        Refusal::ViewerCeiling { .. } => {
            (StatusCode::TOO_MANY_REQUESTS, "viewer_ceiling", After(10))
        }
        Refusal::NoRun(_) => (StatusCode::NOT_FOUND, "no_run", Never),
        Refusal::RunIdUsed(_) => (StatusCode::CONFLICT, "run_id_used", Never),
        Refusal::RunOver(..) => (StatusCode::CONFLICT, "run_over", Never),
        Refusal::RunGoesOn(_) => (StatusCode::CONFLICT, "run_goes_on", Never),
        Refusal::RunLost { .. } => (StatusCode::GONE, "run_lost", Never),
        Refusal::SandboxEnded(_) => (StatusCode::GONE, "sandbox_ended", Never),
        Refusal::NeedsAgent(..) => (StatusCode::NOT_IMPLEMENTED, "needs_agent", Never),
        Refusal::UserNotAllowed(_) => (StatusCode::FORBIDDEN, "user_not_allowed", Never),
        Refusal::UserNotPossible(_) => (StatusCode::FORBIDDEN, "user_not_possible", Never),
        Refusal::NotPossible(_) => (StatusCode::CONFLICT, "not_possible", Never),
        Refusal::SandboxCeiling { .. } => {
            (StatusCode::TOO_MANY_REQUESTS, "sandbox_ceiling", After(2))
        }
        Refusal::NoTty(_) => (StatusCode::NOT_FOUND, "no_tty", Never),
        Refusal::StartFailed(_) => (StatusCode::BAD_GATEWAY, "start_failed", Never),
        Refusal::EngineFailed(_) => (StatusCode::BAD_GATEWAY, "engine_failed", Never),
        Refusal::EngineUnavailable(_) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "engine_unavailable",
            After(4),
        ),
        Refusal::StoreUnavailable(_) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "store_unavailable",
            After(4),
        ),
        Refusal::ShuttingDown => (StatusCode::SERVICE_UNAVAILABLE, "shutting_down", After(4)),
        Refusal::NoSpace(_) => (StatusCode::INSUFFICIENT_STORAGE, "no_space", Never),
        Refusal::WorkspaceFull { .. } => archives::WORKSPACE_FULL,
        Refusal::ArchiveCeiling { .. } => archives::CEILING,
        Refusal::Archive(refusal) => archives::row(refusal),
        Refusal::SandboxGone(_) => (StatusCode::GONE, "sandbox_gone", Never),
    }
}

/// Whether replies with this status carry `Retry-After`.
fn tells_when(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
    )
}

/// Spreads clients that were refused together over half as long again.
pub(super) fn retry_after(secs: u8) -> HeaderValue {
    let mut random = [0u8; 1];
    // Without random bytes the clients come back together, which is no harm to one reply.
    let spread = match getrandom::fill(&mut random) {
        Ok(()) => u16::from(random[0]) % (u16::from(secs) / 2 + 1),
        Err(_) => 0,
    };
    HeaderValue::from(u16::from(secs) + spread)
}

#[cfg(test)]
mod tests;
