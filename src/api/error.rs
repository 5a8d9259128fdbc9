//! Maps every failure to its status, its code and its body: the one table.
//!
//! A handler answers with a [`Failure`]; the body is written at the edge, where
//! the request id is known.

use std::borrow::Cow;

use axum::body::Body;
use axum::http::header::{ALLOW, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;

use crate::api::command::COMMAND_WHOLE_BYTES_MAX;
use crate::control::Refusal;
use crate::control::files::refusal::{ErrorName, FileRefusal};
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
        ErrorBody {
            detail: self.detail(),
            code: code.to_owned(),
            retryable: again != Again::Never,
            request_id: request_id.to_string(),
            ceiling,
            reason,
        }
    }

    /// Writes the reply.
    pub(super) fn reply(self, request_id: &RequestId) -> Response<Body> {
        let (status, _, again) = self.row();
        let allow = match &self {
            Self::OtherMethod(methods) => Some(methods.clone()),
            _ => None,
        };
        let bytes =
            serde_json::to_vec(&self.body(request_id)).expect("an error body has only text keys");
        let mut reply = Response::new(Body::from(bytes));
        *reply.status_mut() = status;
        let headers = reply.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(methods) = allow {
            headers.insert(ALLOW, methods);
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
        Refusal::Files(refusal) => file_row(refusal),
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
        Refusal::SandboxGone(_) => (StatusCode::GONE, "sandbox_gone", Never),
    }
}

fn file_row(refusal: &FileRefusal) -> Row {
    use Again::Never;
    match refusal {
        FileRefusal::TooSlow(_) => (StatusCode::GATEWAY_TIMEOUT, "operation_too_slow", Never),
        FileRefusal::BadPattern(_) => (StatusCode::UNPROCESSABLE_ENTITY, "bad_pattern", Never),
        FileRefusal::NotBase64(_) => (StatusCode::BAD_REQUEST, "not_base64", Never),
        FileRefusal::NoWorkspaces => (StatusCode::CONFLICT, "no_workspaces", Never),
        FileRefusal::NoWorkspace(_) => (StatusCode::NOT_FOUND, "no_workspace", Never),
        FileRefusal::Outside(_) => (StatusCode::BAD_REQUEST, "outside_workspace", Never),
        FileRefusal::NoDirectory(_) => (StatusCode::NOT_FOUND, "no_directory", Never),
        FileRefusal::NoFile(_) => (StatusCode::NOT_FOUND, "no_file", Never),
        FileRefusal::Unreadable(_) => (StatusCode::BAD_REQUEST, "unreadable_file", Never),
        FileRefusal::Broken(_) => (StatusCode::INTERNAL_SERVER_ERROR, "file_failed", Never),
        FileRefusal::Handed(_) => (StatusCode::CONFLICT, "by_sandbox", Never),
        FileRefusal::Named { name, .. } => match name {
            ErrorName::FileNotFound => (StatusCode::NOT_FOUND, "file_not_found", Never),
            ErrorName::IsADirectory => (StatusCode::BAD_REQUEST, "is_a_directory", Never),
            ErrorName::NotADirectory => (StatusCode::BAD_REQUEST, "not_a_directory", Never),
            ErrorName::FileExists => (StatusCode::BAD_REQUEST, "file_exists", Never),
            ErrorName::Value => (StatusCode::BAD_REQUEST, "bad_path", Never),
        },
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
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::id::{RunId, SessionId, Tenant};

    fn id() -> SessionId {
        SessionId::parse("a").unwrap()
    }

    fn run() -> RunId {
        RunId::parse(&"0".repeat(32)).unwrap()
    }

    fn sandbox_ceiling() -> Refusal {
        Refusal::SandboxCeiling {
            id: id(),
            name: "run_readers",
            what: "readers",
            limit: 1,
        }
    }

    #[expect(clippy::too_many_lines, reason = "a table")]
    fn refusals() -> Vec<(u16, Refusal)> {
        let text = || "x".to_owned();
        vec![
            (
                400,
                Refusal::UnknownRuntime {
                    wanted: text(),
                    allowed: text(),
                },
            ),
            (400, Refusal::AttachWithoutId),
            (504, FileRefusal::TooSlow(1).into()),
            (422, FileRefusal::BadPattern(text()).into()),
            (400, FileRefusal::NotBase64("x").into()),
            (409, FileRefusal::NoWorkspaces.into()),
            (404, FileRefusal::NoWorkspace(id()).into()),
            (400, FileRefusal::Outside(text()).into()),
            (404, FileRefusal::NoDirectory(text()).into()),
            (404, FileRefusal::NoFile(text()).into()),
            (400, FileRefusal::Unreadable(text()).into()),
            (500, FileRefusal::Broken(text()).into()),
            (409, FileRefusal::Handed(text()).into()),
            (404, Refusal::NothingToAttach(id())),
            (404, Refusal::NoSession(id())),
            (404, Refusal::NoHold(text())),
            (409, Refusal::Exists(id())),
            (409, Refusal::Opening(id())),
            (409, Refusal::Closing(id())),
            (
                409,
                Refusal::OtherRuntime {
                    id: id(),
                    open_on: text(),
                    asked: text(),
                },
            ),
            (
                409,
                Refusal::FilesInOtherRuntime {
                    id: id(),
                    kept_on: text(),
                },
            ),
            (409, Refusal::StillOpen(id())),
            (
                409,
                Refusal::InUse {
                    id: id(),
                    by: text(),
                },
            ),
            (409, Refusal::SleepLosesFiles(id())),
            (429, Refusal::OpenCeiling { limit: 1, used: 1 }),
            (
                429,
                Refusal::TenantCeiling {
                    tenant: Tenant::parse("t").unwrap(),
                    limit: 1,
                    used: 1,
                },
            ),
            (
                429,
                Refusal::ResidentCeiling {
                    waking: None,
                    limit: 1,
                    used: 1,
                },
            ),
            (429, Refusal::CommandCeiling { limit: 1, used: 1 }),
            (502, Refusal::StartFailed(text())),
            (502, Refusal::EngineFailed(text())),
            (503, Refusal::EngineUnavailable(text())),
            (503, Refusal::StoreUnavailable(text())),
            (503, Refusal::ShuttingDown),
            (507, Refusal::NoSpace(text())),
            (410, Refusal::SandboxGone(id())),
            (404, Refusal::NoRun(run())),
            (409, Refusal::RunIdUsed(run())),
            (409, Refusal::RunOver(run(), text())),
            (409, Refusal::RunGoesOn(run())),
            (
                410,
                Refusal::RunLost {
                    run: run(),
                    reason: text(),
                },
            ),
            (410, Refusal::SandboxEnded(text())),
            (501, Refusal::NeedsAgent("a run", id())),
            (403, Refusal::UserNotAllowed(text())),
            (403, Refusal::UserNotPossible(text())),
            (409, Refusal::NotPossible(text())),
            (429, sandbox_ceiling()),
        ]
    }

    #[test]
    fn every_refusal_has_its_documented_status() {
        for (status, refusal) in refusals() {
            assert_eq!(
                Failure::from(refusal.clone()).status().as_u16(),
                status,
                "{refusal:?}"
            );
        }
    }

    #[test]
    fn no_two_failures_share_a_code() {
        let others = [
            Failure::Unauthorized,
            Failure::Invalid(Vec::new()),
            Failure::UnreadableBody,
            Failure::SlowBody,
            Failure::TooLarge(1),
            Failure::CommandTooLarge {
                bytes: 1,
                json_bytes: 1,
                json_bytes_max: 1,
            },
            Failure::NoSuchOutput(String::new()),
            Failure::NoBodyRoom { limit: 1, used: 1 },
            Failure::NoConnection { limit: 1 },
            Failure::NoRoute,
            Failure::OtherMethod(HeaderValue::from_static("GET")),
            Failure::BadHost,
            Failure::Encoded,
            Failure::ForeignOrigin,
            Failure::NotWebSocket,
            Failure::Panicked,
        ];
        let failures: Vec<Failure> = refusals()
            .into_iter()
            .map(|(_, refusal)| Failure::from(refusal))
            .chain(others)
            .collect();
        let codes: BTreeSet<&str> = failures.iter().map(|failure| failure.row().1).collect();
        assert_eq!(codes.len(), failures.len());
    }

    #[test]
    fn every_429_and_503_says_when_to_come_back() {
        for (status, refusal) in refusals() {
            let reply = Failure::from(refusal).reply(&RequestId::random());
            let tells = reply.headers().contains_key(RETRY_AFTER);
            assert_eq!(tells, matches!(status, 429 | 503), "{status}");
        }
    }

    #[tokio::test]
    async fn a_refused_ceiling_is_named_beside_the_detail() {
        let refusal = Refusal::OpenCeiling { limit: 2, used: 2 };
        let request_id = RequestId::parse("r-1").unwrap();
        let reply = Failure::from(refusal).reply(&request_id);
        let body = axum::body::to_bytes(reply.into_body(), 4096).await.unwrap();
        assert_eq!(
            serde_json::from_slice::<serde_json::Value>(&body).unwrap(),
            serde_json::json!({
                "detail": "Service holds its ceiling of 2 open sessions and all of them are in use. Close one before opening another.",
                "code": "open_ceiling",
                "retryable": true,
                "request_id": "r-1",
                "ceiling": {"name": "max_open_sessions", "limit": 2, "used": 2, "scope": "service"},
            })
        );
    }

    #[test]
    fn a_lost_run_is_gone_and_says_why_beside_the_detail() {
        let refusal = Refusal::RunLost {
            run: run(),
            reason: "container_lost".to_owned(),
        };
        let body = Failure::from(refusal).body(&RequestId::parse("r-1").unwrap());
        assert_eq!(
            serde_json::to_value(body).unwrap(),
            serde_json::json!({
                "detail": format!("Run {} is lost: container_lost", run()),
                "code": "run_lost",
                "retryable": false,
                "request_id": "r-1",
                "reason": "container_lost",
            })
        );
    }
}
