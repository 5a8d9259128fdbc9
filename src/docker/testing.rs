//! Plays an engine for tests: on a unix socket, answer by scripted answer, or within the
//! process.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use hyper::Response;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

use super::body::Body;
use super::call::Call;
use super::error::Kind;
use super::{Deadlines, Endpoint, Engine, Settings};

/// An engine within the process.
pub(crate) trait Player: fmt::Debug + Send + Sync {
    /// Answers a request. The future may be dropped at any time, as a connection is cut.
    fn play(&self, asked: Asked) -> Playing;
}

/// The answer to a request, on its way.
pub(crate) type Playing =
    Pin<Box<dyn Future<Output = Result<Response<PlayedBody>, Unplayed>> + Send>>;

/// The body of a played answer.
pub(crate) type PlayedBody = mpsc::UnboundedReceiver<Bytes>;

/// A request to an engine within the process.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// `GET`, `POST` or `DELETE`.
    pub(crate) method: String,
    /// Path and query, without the version of the API.
    pub(crate) target: String,
    /// What was sent.
    pub(crate) body: Bytes,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unplayed {
    /// Nobody listens.
    Unreachable,
    /// The connection was closed.
    Closed,
}

/// The pieces of a played body; its end is orderly.
#[derive(Debug)]
pub(super) struct Pieces(PlayedBody);

impl Pieces {
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Kind> {
        Ok(self.0.recv().await)
    }
}

impl Asked {
    pub(super) fn new(call: &Call, target: &str) -> Self {
        let target = match target.strip_prefix("/v1.41") {
            Some(rest) => rest,
            None => target,
        };
        Self {
            method: call.method.to_string(),
            target: target.to_owned(),
            body: call.body.clone(),
        }
    }
}

impl Unplayed {
    pub(super) fn kind(self, endpoint: &Endpoint) -> Kind {
        match self {
            Self::Unreachable => Kind::Unreachable {
                endpoint: endpoint.clone(),
                source: "nobody listens".into(),
            },
            Self::Closed => Kind::Closed { source: None },
        }
    }
}

/// Takes a played answer for one that came over the wire.
pub(super) fn heard(played: Response<PlayedBody>) -> Response<Body> {
    played.map(|pieces| Body::Played(Pieces(pieces)))
}

/// What the fake engine does with a request.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pieces: Vec<Vec<u8>>,
    then: Then,
}

#[derive(Clone, Copy, Debug)]
enum Then {
    Close,
    Hold,
}

impl Answer {
    /// Answers with a status and a body of known length.
    pub(super) fn new(status: u16, body: impl AsRef<[u8]>) -> Self {
        let body = body.as_ref();
        let mut bytes = format!(
            "HTTP/1.1 {status} Fake\r\nContent-Length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        bytes.extend(body);
        Self::raw([bytes])
    }

    /// Answers with a status that has no body.
    pub(super) fn empty(status: u16) -> Self {
        Self::raw([format!("HTTP/1.1 {status} Fake\r\n\r\n")])
    }

    /// Answers 200 and a chunked body, whose chunks are written one by one.
    pub(super) fn chunked<T: AsRef<[u8]>>(chunks: impl IntoIterator<Item = T>) -> Self {
        let mut answer = Self::raw(["HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"]);
        for chunk in chunks {
            let chunk = chunk.as_ref();
            let mut bytes = format!("{:x}\r\n", chunk.len()).into_bytes();
            bytes.extend(chunk);
            bytes.extend(b"\r\n");
            answer.pieces.push(bytes);
        }
        answer.pieces.push(b"0\r\n\r\n".to_vec());
        answer
    }

    /// Answers 200 and a body that lasts until the connection closes.
    pub(super) fn stream<T: AsRef<[u8]>>(pieces: impl IntoIterator<Item = T>) -> Self {
        let head = b"HTTP/1.1 200 OK\r\nContent-Type: application/vnd.docker.raw-stream\r\n\r\n";
        let mut answer = Self::raw([head]);
        answer
            .pieces
            .extend(pieces.into_iter().map(|piece| piece.as_ref().to_vec()));
        answer
    }

    /// Writes exactly these pieces.
    pub(super) fn raw<T: AsRef<[u8]>>(pieces: impl IntoIterator<Item = T>) -> Self {
        let pieces = pieces.into_iter().map(|piece| piece.as_ref().to_vec());
        Self {
            pieces: pieces.collect(),
            then: Then::Close,
        }
    }

    /// Says nothing and keeps the connection.
    pub(super) fn silence() -> Self {
        Self::raw::<&[u8]>([]).and_hold()
    }

    /// Cuts the last bytes off, as an engine that dies in the middle does.
    pub(super) fn cut(mut self, bytes: usize) -> Self {
        let mut whole = self.pieces.concat();
        whole.truncate(whole.len().saturating_sub(bytes));
        self.pieces = vec![whole];
        self
    }

    /// Keeps the connection open after the last byte.
    pub(super) fn and_hold(mut self) -> Self {
        self.then = Then::Hold;
        self
    }
}

/// A request as it was received: `POST /v1.41/containers/x/start`, and its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) line: String,
    pub(super) body: String,
}

/// A version reply of an engine that speaks exactly these versions.
pub(super) fn version(min: &str, max: &str) -> Answer {
    Answer::new(
        200,
        format!(r#"{{"Version":"0","ApiVersion":"{max}","MinAPIVersion":"{min}"}}"#),
    )
}

/// An engine that answers by a function of the request; stops when dropped.
#[derive(Debug)]
pub(super) struct FakeEngine {
    directory: TempDir,
    requests: Arc<Mutex<Vec<Request>>>,
    hung_up: mpsc::UnboundedReceiver<String>,
    server: JoinHandle<()>,
}

impl FakeEngine {
    /// Answers `GET /version` as API 1.41, and everything else by `answer`.
    pub(super) fn new(answer: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Self {
        Self::scripted(move |line| match line {
            "GET /version" => version("1.12", "1.41"),
            line => answer(line),
        })
    }

    /// Answers everything by `answer`.
    pub(super) fn scripted(answer: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("engine.sock")).unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (sender, hung_up) = mpsc::unbounded_channel();
        let (answer, log) = (Arc::new(answer), Arc::clone(&requests));
        let server = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let (answer, log, sender) = (Arc::clone(&answer), Arc::clone(&log), sender.clone());
                connections.spawn(async move {
                    if let Some(line) = serve(socket, &*answer, &log).await {
                        drop(sender.send(line));
                    }
                });
            }
        });
        Self {
            directory,
            requests,
            hung_up,
            server,
        }
    }

    /// Makes a client with these settings.
    pub(super) fn client_with(&self, settings: Settings) -> Engine {
        let path = self.directory.path().join("engine.sock");
        Engine::new(Endpoint::parse(path.to_str().unwrap()).unwrap(), settings)
    }

    /// Makes a client with usual settings.
    pub(super) fn client(&self) -> Engine {
        self.client_with(Settings::default())
    }

    /// Makes a client whose every deadline is `limit`.
    pub(super) fn hurried_client(&self, limit: Duration) -> Engine {
        self.client_with(Settings {
            inflight_max: 4,
            deadlines: Deadlines {
                ping: limit,
                look: limit,
                create: limit,
                start: limit,
                stop_slack: limit,
                remove: limit,
                exec_create: limit,
                exec_start: limit,
                pull_silence: limit,
            },
        })
    }

    /// Returns the requests so far.
    pub(super) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// Returns the lines of the requests so far.
    pub(super) fn lines(&self) -> Vec<String> {
        let requests = self.requests().into_iter();
        requests.map(|request| request.line).collect()
    }

    /// Waits until the client hangs up on an answer that is held open.
    pub(super) async fn hung_up(&mut self) -> String {
        let waited = tokio::time::timeout(Duration::from_secs(10), self.hung_up.recv());
        waited.await.expect("the client hangs up").unwrap()
    }
}

impl Drop for FakeEngine {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Serves one request; returns its line if the client hung up on a held answer.
async fn serve(
    mut socket: UnixStream,
    answer: &(impl Fn(&str) -> Answer + ?Sized),
    log: &Mutex<Vec<Request>>,
) -> Option<String> {
    let request = read_request(&mut socket).await?;
    let line = request.line.clone();
    log.lock().unwrap().push(request);
    let Answer { pieces, then } = answer(&line);
    for piece in pieces {
        socket.write_all(&piece).await.ok()?;
        tokio::task::yield_now().await;
    }
    match then {
        Then::Close => None,
        Then::Hold => {
            let mut rest = [0u8; 64];
            while 0 < socket.read(&mut rest).await.unwrap_or(0) {}
            Some(line)
        }
    }
}

async fn read_request(socket: &mut UnixStream) -> Option<Request> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        if socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let text = String::from_utf8(bytes[..head].to_vec()).unwrap();
    let length = text
        .lines()
        .filter_map(|line| line.split_once(": "))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .map_or(0, |(_, value)| value.parse().unwrap());
    let mut body = bytes[head + 4..].to_vec();
    while body.len() < length {
        assert_ne!(socket.read_buf(&mut body).await.ok()?, 0, "a cut request");
    }
    let line = text.lines().next().unwrap().strip_suffix(" HTTP/1.1");
    Some(Request {
        line: line.unwrap().to_owned(),
        body: String::from_utf8(body).unwrap(),
    })
}
