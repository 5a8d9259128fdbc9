//! The calls for terminals, and somebody's place at one.

use std::path::Path;

use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use hyper::Uri;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Message};

use super::calls::Client;
use super::error::{Error, refusal};
use crate::id::{RequestId, RunId, SessionId};
use crate::wire::ttys::{ClientFrame, ServerFrame, TtyCreated, TtyList, TtyRequest};

/// Bytes of one message of the service: a screen of 250,000 characters, each in a colour
/// of its own.
pub const TTY_MESSAGE_BYTES_MAX: usize = 32 << 20;
/// Bytes of input that go into one message.
pub const TTY_INPUT_BYTES_MAX: usize = 32 << 10;

/// HTTP's port where a URL names none.
const PORT: u16 = 80;

trait Wire: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Wire for T {}

type Socket = WebSocketStream<Box<dyn Wire>>;

/// What a terminal tells those who look at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TtyTold {
    /// What its program wrote.
    Output(Bytes),
    /// Anything else.
    Frame(ServerFrame),
    /// The service closed; nothing follows.
    Closed {
        /// As of a WebSocket, such as 1001 where the service is stopping.
        code: u16,
        /// Why, in words that may be none.
        reason: String,
    },
}

/// What is written to a terminal; dropping it and [`TtyOutput`] leaves, and ends nothing.
pub struct TtyInput {
    sink: SplitSink<Socket, Message>,
    url: String,
}

/// What a terminal tells.
pub struct TtyOutput {
    stream: SplitStream<Socket>,
    url: String,
}

impl std::fmt::Debug for TtyInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TtyInput").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for TtyOutput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TtyOutput").finish_non_exhaustive()
    }
}

impl Client {
    /// Opens a terminal; wakes the session where it sleeps.
    pub async fn open_tty(
        &self,
        id: &SessionId,
        request: &TtyRequest,
    ) -> Result<TtyCreated, Error> {
        self.json(self.post(format!("/sessions/{id}/ttys"), request))
            .await
    }

    /// Lists the terminals that go on; wakes nothing.
    pub async fn ttys(&self, id: &SessionId) -> Result<TtyList, Error> {
        self.json(self.get(format!("/sessions/{id}/ttys"))).await
    }

    /// Ends a terminal; succeeds where it has ended.
    pub async fn close_tty(&self, id: &SessionId, tty: &RunId) -> Result<(), Error> {
        self.delete(format!("/sessions/{id}/ttys/{tty}")).await
    }

    /// Sits down at a terminal, on a connection of its own and within the client's deadline.
    ///
    /// Whoever comes first writes; [`ClientFrame::Take`] takes that over.
    pub async fn attach_tty(
        &self,
        id: &SessionId,
        tty: &RunId,
    ) -> Result<(TtyInput, TtyOutput), Error> {
        let path = format!("/sessions/{id}/ttys/{tty}/ws");
        let attached = tokio::time::timeout(self.deadline(), self.attach(&path)).await;
        let socket = attached.unwrap_or(Err(Error::Timeout {
            after: self.deadline(),
        }))?;
        let url = self.endpoint().to_string();
        let (sink, stream) = socket.split();
        Ok((
            TtyInput {
                sink,
                url: url.clone(),
            },
            TtyOutput { stream, url },
        ))
    }

    async fn attach(&self, path: &str) -> Result<Socket, Error> {
        let url = self.endpoint().to_string();
        let base = self.endpoint().base();
        let request_id = RequestId::random();
        let ws = base.replacen("http://", "ws://", 1);
        let mut request = format!("{ws}{path}")
            .into_client_request()
            .map_err(|source| unreachable(&url, source))?;
        self.sign(request.headers_mut(), &request_id);
        let stream = dial(self.endpoint().socket(), base).await;
        let stream = stream.map_err(|source| unreachable(&url, source))?;
        let config = WebSocketConfig::default()
            .max_message_size(Some(TTY_MESSAGE_BYTES_MAX))
            .max_frame_size(Some(TTY_MESSAGE_BYTES_MAX));
        let shaken =
            tokio_tungstenite::client_async_with_config(request, stream, Some(config)).await;
        match shaken {
            Ok((socket, _)) => Ok(socket),
            Err(tungstenite::Error::Http(reply)) => {
                let body = reply.body().as_deref().unwrap_or_default();
                let status = reply.status().as_u16();
                Err(refusal(status, body, request_id.as_str()))
            }
            Err(source) => Err(unreachable(&url, source)),
        }
    }
}

async fn dial(socket: Option<&Path>, base: &str) -> std::io::Result<Box<dyn Wire>> {
    if let Some(path) = socket {
        return Ok(Box::new(UnixStream::connect(path).await?));
    }
    let base: Uri = base.parse().map_err(std::io::Error::other)?;
    let host = base.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = base.port_u16().unwrap_or(PORT);
    let stream = TcpStream::connect((host, port)).await?;
    // A key that is pressed does not wait for the next.
    stream.set_nodelay(true)?;
    Ok(Box::new(stream))
}

fn unreachable(url: &str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Unreachable {
        url: url.to_owned(),
        source: source.into(),
    }
}

impl TtyInput {
    /// Writes bytes; they have no effect where somebody else writes.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        for some in bytes.chunks(TTY_INPUT_BYTES_MAX) {
            let message = Message::Binary(Bytes::copy_from_slice(some));
            self.send(message).await?;
        }
        Ok(())
    }

    /// Says anything else.
    pub async fn say(&mut self, frame: &ClientFrame) -> Result<(), Error> {
        let text = serde_json::to_string(frame).expect("a frame has text keys");
        self.send(Message::Text(text.into())).await
    }

    /// Says goodbye.
    pub async fn leave(mut self) -> Result<(), Error> {
        let closed = self.sink.close().await;
        closed.map_err(|source| unreachable(&self.url, source))
    }

    async fn send(&mut self, message: Message) -> Result<(), Error> {
        let sent = self.sink.send(message).await;
        sent.map_err(|source| unreachable(&self.url, source))
    }
}

impl TtyOutput {
    /// Returns what the terminal tells next; `None` where the connection ended without a
    /// word. Questions whether somebody is there are answered on the way.
    ///
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Option<TtyTold>, Error> {
        loop {
            let message = match self.stream.next().await {
                Some(Ok(message)) => message,
                Some(Err(source)) => return Err(unreachable(&self.url, source)),
                None => return Ok(None),
            };
            match message {
                Message::Binary(bytes) => return Ok(Some(TtyTold::Output(bytes))),
                Message::Text(text) => {
                    let frame = serde_json::from_str(&text);
                    let frame = frame.map_err(|source| Error::Malformed {
                        call: "a terminal's WebSocket".to_owned(),
                        source,
                    })?;
                    return Ok(Some(TtyTold::Frame(frame)));
                }
                Message::Close(Some(close)) => {
                    return Ok(Some(TtyTold::Closed {
                        code: close.code.into(),
                        reason: close.reason.to_string(),
                    }));
                }
                Message::Close(None) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::client::Endpoint;
    use crate::client::scripted::{Reply, Scripted};
    use crate::secret::Secret;

    const TTY: &str = "0123456789abcdef0123456789abcdef";

    fn client(url: &str) -> Client {
        let client = Client::new(Endpoint::parse(url).unwrap());
        client.with_token(&Secret::new("t".to_owned())).unwrap()
    }

    #[tokio::test]
    async fn a_terminal_is_opened_found_attached_to_and_closed() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let (id, tty) = (SessionId::parse("a").unwrap(), RunId::parse(TTY).unwrap());
        for server in [
            Scripted::serve([]).await,
            Scripted::serve_socket(&socket, []),
        ] {
            let client = client(&server.url);
            let request = TtyRequest::default();
            client.open_tty(&id, &request).await.unwrap_err();
            client.ttys(&id).await.unwrap_err();
            let error = client.attach_tty(&id, &tty).await.unwrap_err();
            assert_eq!(error.status(), Some(500), "{error:?}");
            client.close_tty(&id, &tty).await.unwrap_err();
            assert_eq!(
                server.lines(),
                [
                    "POST /sessions/a/ttys".to_owned(),
                    "GET /sessions/a/ttys".to_owned(),
                    format!("GET /sessions/a/ttys/{TTY}/ws"),
                    format!("DELETE /sessions/a/ttys/{TTY}"),
                ]
            );
            let seen = server.seen();
            assert_eq!(seen[2].header("x-sandbox-token"), Some("t"));
            assert_eq!(seen[2].header("upgrade"), Some("websocket"));
            assert!(seen[2].header("x-request-id").is_some());
        }
    }

    #[tokio::test]
    async fn a_refusal_to_attach_is_understood_and_silence_has_an_end() {
        let refused = Reply::refusal(410, "It was lost");
        let server = Scripted::serve([refused, Reply::HangUp, Reply::Hang]).await;
        let client = client(&server.url).with_deadline(Duration::from_millis(200));
        let (id, tty) = (SessionId::parse("a").unwrap(), RunId::parse(TTY).unwrap());
        let mut codes = Vec::new();
        for _ in 0..3 {
            let error = client.attach_tty(&id, &tty).await.unwrap_err();
            codes.push(error.code().to_owned());
        }
        assert_eq!(codes, ["gone", "unreachable", "timeout"]);
    }
}
