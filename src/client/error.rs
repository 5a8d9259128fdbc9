//! Says why a call did not succeed.

use std::time::Duration;

use serde_json::Value;

use crate::wire::error::{Ceiling, Detail, ErrorBody, FieldError};

/// Characters kept of a refusal that is not in the contract's shape.
pub const DETAIL_CHARS_MAX: usize = 2_000;

/// A call that did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(
    clippy::error_impl_error,
    reason = "read as client::Error wherever it is used"
)]
pub enum Error {
    /// No connection, or it broke before the whole reply had come.
    ///
    /// Where the request had been sent, what it asked for may have happened.
    #[error("reach {url}")]
    Unreachable {
        /// The service.
        url: String,
        /// What the network said.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No whole reply within the deadline; what was asked for may still happen.
    #[error("get a reply within {after:?}")]
    Timeout {
        /// The deadline.
        after: Duration,
    },
    /// The service answered with another status than success.
    #[error("be served: status {status}, {}", summary(&body.detail))]
    Refused {
        /// The HTTP status.
        status: u16,
        /// Why; made up from whatever came where it is not the contract's JSON.
        body: Box<ErrorBody>,
    },
    /// A success whose body is not what the contract says.
    #[error("understand the reply to {call}")]
    Malformed {
        /// Method and path.
        call: String,
        /// Where it stops being understood.
        #[source]
        source: serde_json::Error,
    },
    /// A reply larger than a client reads.
    #[error("take a reply of more than {bytes_max} bytes")]
    TooLarge {
        /// The bound.
        bytes_max: usize,
    },
    /// A token that no header can carry; it is not shown.
    #[error("send the token, as it holds a line break or another control character")]
    Token,
}

impl Error {
    /// Returns a stable name in `snake_case`: the service's own, where it refused.
    pub fn code(&self) -> &str {
        match self {
            Self::Unreachable { .. } => "unreachable",
            Self::Timeout { .. } => "timeout",
            Self::Refused { status, body } if body.code.is_empty() => name_of(*status),
            Self::Refused { body, .. } => &body.code,
            Self::Malformed { .. } => "malformed_reply",
            Self::TooLarge { .. } => "reply_too_large",
            Self::Token => "invalid_token",
        }
    }

    /// Returns the HTTP status, where there was a refusal.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            Self::Unreachable { .. }
            | Self::Timeout { .. }
            | Self::Malformed { .. }
            | Self::TooLarge { .. }
            | Self::Token => None,
        }
    }

    /// Tells whether the same call may succeed later.
    ///
    /// It does not tell whether the call had an effect: one that ended in
    /// [`Error::Unreachable`] or [`Error::Timeout`] may have.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Timeout { .. } => true,
            Self::Refused { status, body } => body.retryable || matches!(status, 429 | 502..=504),
            Self::Malformed { .. } | Self::TooLarge { .. } | Self::Token => false,
        }
    }
}

/// Names a refusal of a service that gives no code.
fn name_of(status: u16) -> &'static str {
    match status {
        401 => "unauthorized",
        403 => "forbidden",
        404 => "not_found",
        409 => "conflict",
        410 => "gone",
        413 => "too_large",
        422 => "invalid_request",
        429 => "ceiling",
        503 => "unavailable",
        500.. => "server_error",
        _ => "refused",
    }
}

/// Puts a refusal into one sentence.
pub(crate) fn summary(detail: &Detail) -> String {
    match detail {
        Detail::Text(text) => text.clone(),
        Detail::Fields(fields) => fields.iter().map(field).collect::<Vec<_>>().join("; "),
        Detail::Named(named) => format!("{}: {}", named.error, named.message),
    }
}

fn field(error: &FieldError) -> String {
    let place: Vec<String> = error
        .loc
        .iter()
        .map(|part| {
            part.as_str()
                .map_or_else(|| part.to_string(), str::to_owned)
        })
        .collect();
    format!("{}: {}", place.join("."), error.msg)
}

/// Makes the best of the body of a refusal, whoever wrote it.
///
/// A proxy answers in HTML and the predecessor in plain text, so nothing is
/// required; each part is taken where it has the right shape.
pub(super) fn refusal(status: u16, bytes: &[u8], request_id: &str) -> Error {
    let json = serde_json::from_slice::<Value>(bytes).ok();
    let part = |name: &str| json.as_ref().and_then(|body| body.get(name));
    let text = |name: &str| part(name).and_then(Value::as_str).map(str::to_owned);
    let detail = match part("detail") {
        Some(detail) => detail_of(detail),
        None => Detail::Text(plain(status, bytes)),
    };
    let body = ErrorBody {
        detail,
        code: text("code").unwrap_or_default(),
        retryable: part("retryable").and_then(Value::as_bool) == Some(true),
        request_id: text("request_id").unwrap_or_else(|| request_id.to_owned()),
        ceiling: part("ceiling")
            .and_then(|ceiling| serde_json::from_value::<Ceiling>(ceiling.clone()).ok()),
        freed_by: text("freed_by"),
        reason: text("reason"),
    };
    Error::Refused {
        status,
        body: Box::new(body),
    }
}

fn detail_of(detail: &Value) -> Detail {
    match detail {
        Value::String(text) => Detail::Text(cut(text)),
        Value::Array(_) => serde_json::from_value(detail.clone())
            .map_or_else(|_| Detail::Text(cut(&detail.to_string())), Detail::Fields),
        Value::Object(fields) => {
            let sentence = ["message", "msg", "error"]
                .iter()
                .find_map(|name| fields.get(*name).and_then(Value::as_str));
            Detail::Text(cut(sentence.unwrap_or(&detail.to_string())))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => Detail::Text(detail.to_string()),
    }
}

fn plain(status: u16, bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim();
    if text.is_empty() {
        format!("the service answered {status} and nothing more")
    } else {
        cut(text)
    }
}

fn cut(text: &str) -> String {
    text.chars().take(DETAIL_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(status: u16, body: &str) -> (String, String) {
        let error = refusal(status, body.as_bytes(), "r1");
        let Error::Refused { body, .. } = &error else {
            panic!("{error:?} is not a refusal");
        };
        (summary(&body.detail), error.code().to_owned())
    }

    #[test]
    fn a_refusal_is_understood_in_every_shape() {
        for (status, body, sentence, code) in [
            (
                404,
                r#"{"detail":"No such session: a"}"#,
                "No such session: a",
                "not_found",
            ),
            (
                409,
                r#"{"detail":"x","code":"session_exists"}"#,
                "x",
                "session_exists",
            ),
            (
                422,
                r#"{"detail":[{"type":"t","loc":["body",0,"id"],"msg":"bad","input":1}]}"#,
                "body.0.id: bad",
                "invalid_request",
            ),
            (
                422,
                r#"{"detail":["odd"]}"#,
                r#"["odd"]"#,
                "invalid_request",
            ),
            (400, r#"{"detail":{"message":"m"}}"#, "m", "refused"),
            (400, r#"{"detail":{"k":1}}"#, r#"{"k":1}"#, "refused"),
            (
                500,
                "Internal Server Error",
                "Internal Server Error",
                "server_error",
            ),
            (
                502,
                "",
                "the service answered 502 and nothing more",
                "server_error",
            ),
            (503, r#"{"other":1}"#, r#"{"other":1}"#, "unavailable"),
        ] {
            assert_eq!(told(status, body), (sentence.to_owned(), code.to_owned()));
        }
    }

    #[test]
    fn a_refusal_keeps_its_ceiling_and_its_request_id() {
        let ours = r#"{"detail":"full","retryable":true,"request_id":"theirs",
            "ceiling":{"name":"max_sessions","limit":2,"used":2,"scope":"service"}}"#;
        let Error::Refused { body, .. } = refusal(429, ours.as_bytes(), "ours") else {
            panic!("not a refusal");
        };
        assert_eq!(body.request_id, "theirs");
        assert_eq!(body.ceiling.unwrap().name, "max_sessions");
        let Error::Refused { body, .. } = refusal(429, br#"{"ceiling":7}"#, "ours") else {
            panic!("not a refusal");
        };
        assert_eq!((body.request_id.as_str(), body.ceiling), ("ours", None));
    }

    #[test]
    fn a_huge_refusal_is_cut() {
        assert_eq!(told(500, &"x".repeat(9_000)).0.len(), DETAIL_CHARS_MAX);
    }

    proptest::proptest! {
        #[test]
        fn no_body_panics_the_reader_of_refusals(status in 300u16..600, body in ".{0,80}") {
            told(status, &body);
            told(status, &format!(r#"{{"detail":{body}}}"#));
        }
    }
}
