//! An HTTP server for tests that answers from a script and remembers what it was asked.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinHandle;

/// What the server does upon the next request.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// Answers.
    Answer(u16, String),
    /// Keeps the connection and says nothing.
    Hang,
    /// Closes the connection.
    HangUp,
}

impl Reply {
    pub(crate) fn json(body: &impl Serialize) -> Self {
        Self::Answer(200, serde_json::to_string(body).unwrap())
    }

    pub(crate) fn refusal(status: u16, detail: &str) -> Self {
        Self::Answer(status, serde_json::json!({ "detail": detail }).to_string())
    }
}

/// One request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) line: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

#[derive(Debug, Default)]
struct Script {
    replies: VecDeque<Reply>,
    seen: Vec<Seen>,
    n_connections: usize,
}

/// A server that ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Scripted {
    pub(crate) url: String,
    // A std mutex: it is never held across an await.
    script: Arc<Mutex<Script>>,
    task: JoinHandle<()>,
}

impl Scripted {
    pub(crate) async fn serve(replies: impl IntoIterator<Item = Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let accept =
            move |cx: &mut Context<'_>| listener.poll_accept(cx).map_ok(|(stream, _)| stream);
        Self::start(url, replies, accept)
    }

    pub(crate) fn serve_socket(
        path: &std::path::Path,
        replies: impl IntoIterator<Item = Reply>,
    ) -> Self {
        let listener = UnixListener::bind(path).unwrap();
        let url = format!("unix://{}", path.display());
        let accept =
            move |cx: &mut Context<'_>| listener.poll_accept(cx).map_ok(|(stream, _)| stream);
        Self::start(url, replies, accept)
    }

    fn start<A, S>(url: String, replies: impl IntoIterator<Item = Reply>, mut accept: A) -> Self
    where
        A: FnMut(&mut Context<'_>) -> Poll<io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let script = Arc::new(Mutex::new(Script {
            replies: replies.into_iter().collect(),
            ..Script::default()
        }));
        let shared = Arc::clone(&script);
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok(stream) = poll_fn(&mut accept).await {
                shared.lock().unwrap().n_connections += 1;
                let script = Arc::clone(&shared);
                let service = service_fn(move |request| answer(Arc::clone(&script), request));
                connections.spawn(async move {
                    let stream = TokioIo::new(stream);
                    let http = hyper::server::conn::http1::Builder::new();
                    drop(http.serve_connection(stream, service).await);
                });
            }
        });
        Self { url, script, task }
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.script.lock().unwrap().seen.clone()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.line).collect()
    }

    pub(crate) fn n_connections(&self) -> usize {
        self.script.lock().unwrap().n_connections
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(
    script: Arc<Mutex<Script>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, io::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let reply = {
        let mut script = script.lock().unwrap();
        script.seen.push(Seen {
            line: format!("{} {}", head.method, head.uri),
            headers: head.headers,
            body: String::from_utf8(body.to_vec()).unwrap(),
        });
        script.replies.pop_front()
    };
    match reply.unwrap_or_else(|| Reply::refusal(500, "the script has ended")) {
        Reply::Answer(status, body) => Ok(Response::builder()
            .status(status)
            .body(Full::from(body))
            .unwrap()),
        Reply::Hang => match std::future::pending::<Infallible>().await {},
        Reply::HangUp => Err(io::Error::other("hung up as scripted")),
    }
}
