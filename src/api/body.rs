//! Reads bodies within bounds of size and time.

use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, Request};
use http_body_util::BodyExt as _;
use tokio::time::timeout;

use crate::api::error::Failure;
use crate::api::json::{Json, echo_text};
use crate::api::validate;

/// Bytes of the largest JSON body.
pub(super) const JSON_BODY_BYTES_MAX: usize = 16 << 20;
/// The longest that a body may stand still.
pub(super) const BODY_IDLE_MAX: Duration = Duration::from_secs(15);

/// A JSON body as it arrived: UTF-8, not yet parsed.
#[derive(Debug)]
pub(super) struct JsonText {
    text: String,
    form: bool,
}

impl JsonText {
    /// Reads the body of a request to its end.
    ///
    /// # Errors
    /// The body is too large, too slow, breaks off or is not UTF-8.
    pub(super) async fn read(request: Request<Body>) -> Result<Self, Failure> {
        let (parts, body) = request.into_parts();
        let bytes = read_bounded(&parts.headers, body, JSON_BODY_BYTES_MAX).await?;
        let text = String::from_utf8(bytes).map_err(|_| Failure::UnreadableBody)?;
        Ok(Self {
            text,
            form: is_form(&parts.headers),
        })
    }

    /// Parses the body.
    ///
    /// Whatever the content type says, JSON is read; a form is refused as an object
    /// that is none, as the contract has it.
    pub(super) fn parse(&self) -> Result<Json<'_>, Failure> {
        let text = self.text.strip_prefix('\u{feff}').unwrap_or(&self.text);
        if text.is_empty() {
            return Err(validate::no_body());
        }
        if self.form {
            return Err(validate::not_an_object(echo_text(text)));
        }
        Json::check(text).map_err(|fault| validate::not_json(fault.at_chars, fault.error))
    }
}

fn is_form(headers: &HeaderMap) -> bool {
    let Some(kind) = headers.get(CONTENT_TYPE) else {
        return false;
    };
    let kind = kind.as_bytes().to_ascii_lowercase();
    kind.starts_with(b"application/x-www-form-urlencoded") || kind.starts_with(b"multipart/")
}

/// Collects a body, counting its bytes as they arrive.
async fn read_bounded(
    headers: &HeaderMap,
    mut body: Body,
    bytes_max: usize,
) -> Result<Vec<u8>, Failure> {
    // Hyper has checked the header: where it is there, it is a number.
    let announced = headers
        .get(CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|bytes| bytes_max < bytes) {
        return Err(Failure::TooLarge(bytes_max));
    }
    let mut bytes = Vec::new();
    loop {
        let frame = timeout(BODY_IDLE_MAX, body.frame())
            .await
            .map_err(|_| Failure::SlowBody)?;
        let Some(frame) = frame else {
            return Ok(bytes);
        };
        let frame = frame.map_err(|_| Failure::UnreadableBody)?;
        if let Some(data) = frame.data_ref() {
            if bytes_max - bytes.len() < data.len() {
                return Err(Failure::TooLarge(bytes_max));
            }
            bytes.extend_from_slice(data);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::stream::{self, StreamExt as _};

    use super::*;

    fn request(kind: &str, body: impl Into<Body>) -> Request<Body> {
        Request::post("/sessions")
            .header(CONTENT_TYPE, kind)
            .body(body.into())
            .unwrap()
    }

    async fn failure(kind: &str, body: impl Into<Body>) -> serde_json::Value {
        let read = JsonText::read(request(kind, body)).await.unwrap();
        match read.parse() {
            Err(Failure::Invalid(faults)) => serde_json::to_value(faults).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_body_is_json_whatever_its_type_says_but_for_forms() {
        for kind in ["application/json; charset=latin-1", "text/plain", "x"] {
            let read = JsonText::read(request(kind, "\u{feff}{}")).await.unwrap();
            assert!(read.parse().is_ok(), "{kind}");
        }
        for kind in [
            "Application/X-WWW-Form-Urlencoded",
            "multipart/form-data; boundary=x",
        ] {
            let faults = failure(kind, "{}").await;
            assert_eq!(faults[0]["type"], "model_attributes_type");
            assert_eq!(faults[0]["input"], "{}");
        }
    }

    #[tokio::test]
    async fn nothing_and_what_is_not_json_are_told_apart() {
        assert_eq!(
            failure("application/json", "").await,
            serde_json::json!([{"type": "missing", "loc": ["body"], "msg": "Field required", "input": null}])
        );
        assert_eq!(
            failure("application/json", "{bad").await,
            serde_json::json!([{
                "type": "json_invalid", "loc": ["body", 1], "msg": "JSON decode error", "input": {},
                "ctx": {"error": "Expecting property name enclosed in double quotes"},
            }])
        );
    }

    #[tokio::test]
    async fn a_body_that_is_not_utf_8_is_unreadable() {
        let read = JsonText::read(request("application/json", &b"{\"a\":\"\xff\"}"[..])).await;
        assert_eq!(read.unwrap_err(), Failure::UnreadableBody);
    }

    #[tokio::test]
    async fn bytes_are_counted_as_they_arrive() {
        let chunk = Bytes::from(vec![b' '; 1 << 20]);
        let endless = stream::repeat(chunk).map(Ok::<_, std::io::Error>);
        let read = JsonText::read(request("application/json", Body::from_stream(endless))).await;
        assert_eq!(read.unwrap_err(), Failure::TooLarge(JSON_BODY_BYTES_MAX));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stands_still_is_given_up() {
        let first = stream::once(async { Ok::<_, std::io::Error>(Bytes::from("{")) });
        let body = Body::from_stream(first.chain(stream::pending()));
        let read = JsonText::read(request("application/json", body)).await;
        assert_eq!(read.unwrap_err(), Failure::SlowBody);
    }
}
