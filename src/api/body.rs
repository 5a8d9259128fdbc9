//! Reads bodies within bounds of size and time, or passes them on as they come.

use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use axum::http::{HeaderMap, Request};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use tokio::time::timeout;

use crate::agent::protocol::frame::INPUT_BYTES_MAX;
use crate::api::error::Failure;
use crate::api::json::{Json, echo_text};
use crate::api::room::{BodyRoom, Share, capacity};
use crate::api::validate;

/// Bytes of the largest JSON body.
pub(super) const JSON_BODY_BYTES_MAX: usize = 16 << 20;
/// The longest that a body may stand still.
pub(super) const BODY_IDLE_MAX: Duration = Duration::from_secs(15);
/// The longest that a body may take, since it holds its share of the room meanwhile.
const BODY_TIME_MAX: Duration = Duration::from_mins(2);
/// Bytes of a refused body that are read and dropped, so that its sender gets to the reply.
const DROPPED_BYTES_MAX: usize = JSON_BODY_BYTES_MAX;
/// How long a refused body is read and dropped.
const DROP_TIME_MAX: Duration = BODY_IDLE_MAX;
/// The longest that a body may stand still that is passed on as it comes: somebody may
/// be typing it.
pub(super) const STREAM_IDLE_MAX: Duration = Duration::from_mins(5);
/// Bytes of a refused stream that are read and dropped; it may have no end.
const STREAM_DROPPED_BYTES_MAX: usize = 1 << 20;
/// Bytes of a stream that are read and dropped which was refused for what is in it.
const DRAINED_BYTES_MAX: usize = 256 << 20;
/// How long a refused stream is read and dropped.
const STREAM_DROP_TIME_MAX: Duration = Duration::from_millis(500);

/// A JSON body as it arrived: UTF-8, not yet parsed.
#[derive(Debug)]
pub(super) struct JsonText {
    text: String,
    form: bool,
    /// Held for as long as the text.
    share: Share,
}

impl JsonText {
    /// Reads the body of a request to its end.
    ///
    /// # Errors
    /// The body is too large, too slow, breaks off or is not UTF-8, or other bodies take
    /// all the room there is.
    pub(super) async fn read(request: Request<Body>) -> Result<Self, Failure> {
        let (parts, mut body) = request.into_parts();
        let room = parts.extensions.get::<BodyRoom>().cloned();
        let mut share = room.unwrap_or_default().share();
        let read = read_bounded(&parts.headers, &mut body, &mut share);
        let read = timeout(BODY_TIME_MAX, read).await;
        let bytes = match read.unwrap_or(Err(Failure::SlowBody)) {
            Ok(bytes) => bytes,
            Err(failure) => {
                drop(share);
                drop_rest(&parts.headers, body, &failure).await;
                return Err(failure);
            }
        };
        let text = String::from_utf8(bytes).map_err(|_| Failure::UnreadableBody)?;
        Ok(Self {
            text,
            form: is_form(&parts.headers),
            share,
        })
    }

    /// Drops the text and hands on its share, for what was made of it and is as large.
    pub(super) fn into_share(self) -> Share {
        self.share
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
///
/// Where the length is announced its share is taken before the first byte, so that of
/// bodies that do not fit together some are read to their end, and not all to their half.
async fn read_bounded(
    headers: &HeaderMap,
    body: &mut Body,
    share: &mut Share,
) -> Result<Vec<u8>, Failure> {
    let bytes_max = JSON_BODY_BYTES_MAX;
    // Hyper has checked the header: where it is there, it is a number.
    let announced = headers
        .get(CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|bytes| bytes_max < bytes) {
        return Err(Failure::TooLarge(bytes_max));
    }
    share.grow_to(announced.unwrap_or(0))?;
    let mut bytes = Vec::with_capacity(capacity(announced.unwrap_or(0)));
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
            let length = bytes.len() + data.len();
            share.grow_to(length)?;
            if bytes.capacity() < capacity(length) {
                bytes.reserve(capacity(length) - bytes.len());
            }
            bytes.extend_from_slice(data);
        }
    }
}

/// Reads on for a while after a body was refused for its size.
///
/// The socket of a client that is still sending would be reset with the reply in it.
async fn drop_rest(headers: &HeaderMap, mut body: Body, failure: &Failure) {
    let is_for_size = matches!(failure, Failure::TooLarge(_) | Failure::NoBodyRoom { .. });
    // Who asks before sending has not sent anything.
    if !is_for_size || headers.contains_key(EXPECT) {
        return;
    }
    // Late is as good as read: it was for the client alone.
    drop(timeout(DROP_TIME_MAX, drop_bytes(&mut body, DROPPED_BYTES_MAX)).await);
}

async fn drop_bytes(body: &mut Body, bytes_max: usize) {
    let mut dropped = 0;
    while let Some(Ok(frame)) = body.frame().await {
        dropped += frame.data_ref().map_or(0, Bytes::len);
        if bytes_max < dropped {
            return;
        }
    }
}

/// A body that is passed on as it comes, whatever its length.
#[derive(Debug)]
pub(super) struct Streamed {
    body: Body,
    /// What came beyond the last piece.
    rest: Bytes,
}

impl Streamed {
    /// Takes the body of a request.
    pub(super) fn of(request: Request<Body>) -> Self {
        Self {
            body: request.into_body(),
            rest: Bytes::new(),
        }
    }

    /// Waits for the next piece, of at least one byte and at most [`INPUT_BYTES_MAX`].
    ///
    /// # Errors
    /// The body stands still for too long, or breaks off.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        while self.rest.is_empty() {
            let frame = timeout(STREAM_IDLE_MAX, self.body.frame())
                .await
                .map_err(|_| Failure::SlowBody)?;
            let Some(frame) = frame else {
                return Ok(None);
            };
            let frame = frame.map_err(|_| Failure::UnreadableBody)?;
            self.rest = frame.into_data().unwrap_or_default();
        }
        let bytes = self.rest.len().min(INPUT_BYTES_MAX);
        Ok(Some(self.rest.split_to(bytes)))
    }

    /// Reads on for a while after it was refused in the middle, so that its sender gets to
    /// the reply although it sends all it has before it reads.
    pub(super) async fn drain(mut self) {
        let dropping = drop_bytes(&mut self.body, DRAINED_BYTES_MAX);
        drop(timeout(DROP_TIME_MAX, dropping).await);
    }

    /// Reads on for a moment after it was refused, so that its sender gets to the reply.
    pub(super) async fn discard(self) {
        self.discard_within(STREAM_DROPPED_BYTES_MAX, STREAM_DROP_TIME_MAX)
            .await;
    }

    /// Reads on for so many bytes and so long after it was refused.
    pub(super) async fn discard_within(mut self, bytes_max: usize, time_max: Duration) {
        let dropping = drop_bytes(&mut self.body, bytes_max);
        drop(timeout(time_max, dropping).await);
    }
}

#[cfg(test)]
mod tests {
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

    #[tokio::test]
    async fn a_body_without_room_is_refused_and_read_past_whatever_its_length_says() {
        const PIECE: &[u8] = &[b' '; 20_000];
        let room = BodyRoom::new(JSON_BODY_BYTES_MAX);
        let mut others = room.share();
        let left = 50_000;
        others.grow_to(JSON_BODY_BYTES_MAX - left).unwrap();
        let limit = u64::try_from(JSON_BODY_BYTES_MAX).unwrap();
        for (announced, used) in [(true, limit - 50_000), (false, limit - 10_000)] {
            let seen = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
            let count = std::sync::Arc::clone(&seen);
            let pieces = stream::iter([PIECE; 3]).map(move |piece| {
                count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                Ok::<_, std::io::Error>(Bytes::from_static(piece))
            });
            let mut request = request("application/json", Body::from_stream(pieces));
            request.extensions_mut().insert(room.clone());
            if announced {
                request.headers_mut().insert(CONTENT_LENGTH, 60_000.into());
            }
            assert_eq!(
                JsonText::read(request).await.unwrap_err(),
                Failure::NoBodyRoom { limit, used }
            );
            assert_eq!(seen.load(std::sync::atomic::Ordering::Relaxed), 3);
        }
        let mut fits = request("application/json", PIECE);
        fits.extensions_mut().insert(room.clone());
        let read = JsonText::read(fits).await.unwrap();
        assert_eq!(room.share().grow_to(left - PIECE.len()), Ok(()));
        assert!(room.share().grow_to(left - PIECE.len() + 1).is_err());
        drop((read, others));
        assert_eq!(room.share().grow_to(JSON_BODY_BYTES_MAX), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_is_cut_into_pieces_and_may_stand_still_for_minutes() {
        let large = Bytes::from(vec![b'x'; 2 * INPUT_BYTES_MAX + 1]);
        let slow =
            stream::iter([large, Bytes::new(), Bytes::from_static(b"end")]).then(async |frame| {
                tokio::time::sleep(STREAM_IDLE_MAX / 2).await;
                Ok::<_, std::io::Error>(frame)
            });
        let mut pieces = Streamed::of(request("", Body::from_stream(slow)));
        let mut lengths = Vec::new();
        while let Some(piece) = pieces.next().await.unwrap() {
            lengths.push(piece.len());
        }
        assert_eq!(lengths, [INPUT_BYTES_MAX, INPUT_BYTES_MAX, 1, 3]);

        let mut stuck = Streamed::of(request(
            "",
            Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>()),
        ));
        assert_eq!(stuck.next().await, Err(Failure::SlowBody));
        let broken = stream::iter([Ok(Bytes::from_static(b"x")), Err(std::io::ErrorKind::Other)]);
        let mut broken = Streamed::of(request(
            "",
            Body::from_stream(broken.map(|frame| frame.map_err(std::io::Error::from))),
        ));
        assert_eq!(broken.next().await, Ok(Some(Bytes::from_static(b"x"))));
        assert_eq!(broken.next().await, Err(Failure::UnreadableBody));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_stream_without_end_holds_its_reply_back_for_a_moment_only() {
        let began = tokio::time::Instant::now();
        let silent = stream::pending::<Result<Bytes, std::io::Error>>();
        Streamed::of(request("", Body::from_stream(silent)))
            .discard()
            .await;
        assert_eq!(began.elapsed(), STREAM_DROP_TIME_MAX);
        let endless = stream::repeat(Bytes::from(vec![0; 4096])).map(Ok::<_, std::io::Error>);
        Streamed::of(request("", Body::from_stream(endless)))
            .discard()
            .await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_drips_is_given_up_with_its_share() {
        let drips = stream::repeat(()).then(|()| async {
            tokio::time::sleep(BODY_IDLE_MAX / 2).await;
            Ok::<_, std::io::Error>(Bytes::from(" "))
        });
        let room = BodyRoom::new(JSON_BODY_BYTES_MAX);
        let mut request = request("application/json", Body::from_stream(drips));
        request.extensions_mut().insert(room.clone());
        let began = tokio::time::Instant::now();
        assert_eq!(
            JsonText::read(request).await.unwrap_err(),
            Failure::SlowBody
        );
        assert_eq!(began.elapsed(), BODY_TIME_MAX);
        assert_eq!(room.share().grow_to(JSON_BODY_BYTES_MAX), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stands_still_is_given_up() {
        let first = stream::once(async { Ok::<_, std::io::Error>(Bytes::from("{")) });
        let body = Body::from_stream(first.chain(stream::pending()));
        let read = JsonText::read(request("application/json", body)).await;
        assert_eq!(read.unwrap_err(), Failure::SlowBody);
    }
}
