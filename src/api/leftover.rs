//! Reads what was left of a request's body, so that its connection can be used again.
//!
//! Who is refused before his body is read would else find the connection closed, and his
//! next request on it lost: clients send the head and the body one after the other, and go on
//! with a connection that nobody said would end.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::Request;
use axum::http::header::EXPECT;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Frame, SizeHint};
use tokio::time::timeout;

/// Bytes that are read for nothing; a connection with more of them is ended.
const LEFTOVER_BYTES_MAX: u64 = 256 << 10;
/// How long they may take.
const LEFTOVER_WAIT_MAX: Duration = Duration::from_secs(1);

/// What a handler may leave of a body.
#[derive(Debug)]
pub(super) struct Leftover(Arc<Mutex<Body>>);

/// The body as the handler has it.
struct Handed(Arc<Mutex<Body>>);

/// Whether a connection can go on behind a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behind {
    /// The next request follows.
    Clear,
    /// More of this one follows than is worth reading.
    Blocked,
}

impl Leftover {
    /// Keeps a hold of a request's body, where it has one that comes in any case.
    pub(super) fn of(request: Request<Body>) -> (Request<Body>, Option<Self>) {
        // Who waits to be asked for his body sends none to a refusal.
        if request.body().is_end_stream() || request.headers().contains_key(EXPECT) {
            return (request, None);
        }
        let (parts, body) = request.into_parts();
        let body = Arc::new(Mutex::new(body));
        let handed = Body::new(Handed(Arc::clone(&body)));
        (Request::from_parts(parts, handed), Some(Self(body)))
    }

    /// Reads what is left.
    pub(super) async fn read(self) -> Behind {
        // It is still being read: by an answer that goes on.
        let Some(body) = Arc::into_inner(self.0) else {
            return Behind::Clear;
        };
        let mut body = body.into_inner().unwrap_or_else(PoisonError::into_inner);
        if body.is_end_stream() {
            return Behind::Clear;
        }
        if LEFTOVER_BYTES_MAX < body.size_hint().lower() {
            return Behind::Blocked;
        }
        let read = async {
            let mut n_bytes = 0;
            while let Some(frame) = body.frame().await {
                let data = frame.ok().and_then(|frame| frame.into_data().ok());
                n_bytes += data.map_or(0, |data| u64::try_from(data.len()).unwrap_or(u64::MAX));
                if LEFTOVER_BYTES_MAX < n_bytes {
                    return Behind::Blocked;
                }
            }
            Behind::Clear
        };
        timeout(LEFTOVER_WAIT_MAX, read)
            .await
            .unwrap_or(Behind::Blocked)
    }
}

impl Handed {
    fn body(&self) -> MutexGuard<'_, Body> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HttpBody for Handed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut *self.body()).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body().size_hint()
    }
}
