//! Holds the server to what long replies rely on.

use std::sync::atomic::{AtomicBool, Ordering};

use axum::http::Response;
use axum::routing::on;
use bytes::Bytes;
use futures_util::stream;
use tokio::io::AsyncReadExt as _;
use tokio::sync::Notify;

use super::testing::{LONG, Served};
use super::*;
use crate::api::edge::stopping;
use crate::api::routes::{Route, Verb};

/// What a handler of the table and its test tell each other.
struct Signs {
    began: Notify,
    ended: Notify,
}

impl Signs {
    const fn new() -> Self {
        Self {
            began: Notify::const_new(),
            ended: Notify::const_new(),
        }
    }
}

static HELD: Signs = Signs::new();
static STREAMED: Signs = Signs::new();
static PULLED: AtomicBool = AtomicBool::new(false);

/// Tells of its end, however that comes.
struct Guard(&'static Signs);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.ended.notify_one();
    }
}

static TABLE: &[Route] = &[
    Route::new(Verb::Post, "/held", "", |verb| on(verb, held)).public(),
    Route::new(Verb::Get, "/streamed", "", |verb| on(verb, streamed)).public(),
    Route::new(Verb::Get, "/until-stopped", "", |verb| {
        on(verb, until_stopped)
    })
    .public(),
    Route::new(Verb::Get, "/endless", "", |verb| on(verb, endless)).public(),
];

/// Reads its body, as a run does, and then never answers.
async fn held(request: Request<Body>) -> &'static str {
    let _guard = Guard(&HELD);
    let body = axum::body::to_bytes(request.into_body(), 1024).await;
    assert_eq!(body.unwrap(), "{}");
    HELD.began.notify_one();
    std::future::pending().await
}

/// Writes one piece, and then nothing.
async fn streamed() -> Response<Body> {
    let guard = Guard(&STREAMED);
    let pieces = stream::unfold((guard, 0), async |(guard, n)| {
        if 0 < n {
            std::future::pending::<()>().await;
        }
        Some((Ok::<_, Infallible>("first"), (guard, n + 1)))
    });
    Response::new(Body::from_stream(Box::pin(pieces)))
}

async fn until_stopped(request: Request<Body>) -> Response<Body> {
    let stopping = stopping(&request);
    let pieces = stream::unfold(0, move |n| {
        let stopping = stopping.clone();
        async move {
            match n {
                0 => Some((Ok::<_, Infallible>("first"), 1)),
                1 => {
                    stopping.cancelled().await;
                    Some((Ok("last"), 2))
                }
                _ => None,
            }
        }
    });
    Response::new(Body::from_stream(Box::pin(pieces)))
}

/// Goes on for as long as somebody takes it; tells when it was asked for more than a
/// socket and our own buffers hold.
async fn endless() -> Response<Body> {
    const BUFFERED_BYTES_MAX: usize = 64 << 20;
    let pieces = stream::unfold(0, async |n_bytes: usize| {
        if BUFFERED_BYTES_MAX < n_bytes {
            PULLED.store(true, Ordering::Relaxed);
        }
        let piece = Bytes::from(vec![b'x'; 32 << 10]);
        Some((Ok::<_, Infallible>(piece.clone()), n_bytes + piece.len()))
    });
    Response::new(Body::from_stream(Box::pin(pieces)))
}

async fn served(unread_timeout: Duration) -> Served {
    let settings = Settings {
        unread_timeout,
        drain_timeout: LONG,
        ..Settings::default()
    };
    testing::served(TABLE, settings).await
}

/// Reads until what came ends so; what is buffered somewhere never comes.
async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut text = Vec::new();
    let read = async {
        while !text.ends_with(end.as_bytes()) {
            text.push(stream.read_u8().await.unwrap());
        }
    };
    let in_time = timeout(LONG, read).await.is_ok();
    let text = String::from_utf8(text).unwrap();
    assert!(in_time, "only {text:?} came");
    text
}

#[tokio::test]
async fn a_request_ends_when_its_client_leaves() {
    let served = served(LONG).await;
    let post = "POST /held HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}";
    let client = served.send(post).await;
    timeout(LONG, HELD.began.notified()).await.unwrap();
    drop(client);
    timeout(LONG, HELD.ended.notified())
        .await
        .expect("the handler is dropped");
}

#[tokio::test]
async fn a_reply_is_sent_as_it_comes_and_ends_when_its_client_leaves() {
    let served = served(LONG).await;
    let mut client = served.get("/streamed").await;
    read_until(&mut client, "first\r\n").await;
    drop(client);
    timeout(LONG, STREAMED.ended.notified())
        .await
        .expect("the stream is dropped");
}

#[tokio::test]
async fn a_long_reply_learns_of_the_stop_and_ends_in_order() {
    let served = served(LONG).await;
    let mut client = served.get("/until-stopped").await;
    read_until(&mut client, "first\r\n").await;
    served.stop.send(()).unwrap();
    read_until(&mut client, "last\r\n0\r\n\r\n").await;
    assert_eq!(served.ended.await.unwrap(), Drained { dropped: 0 });
}

#[tokio::test]
async fn a_reply_is_asked_for_no_more_than_its_client_takes() {
    let served = served(Duration::from_millis(300)).await;
    let mut client = served.get("/endless").await;
    read_until(&mut client, "\r\n\r\n").await;
    // Nothing is taken, until the server gives up on it.
    sleep(Duration::from_millis(600)).await;
    let mut rest = Vec::new();
    let ended = timeout(LONG, client.read_to_end(&mut rest)).await.unwrap();
    assert!(!rest.ends_with(b"0\r\n\r\n"), "{ended:?}");
    assert!(!PULLED.load(Ordering::Relaxed));
}
