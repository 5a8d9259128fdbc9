//! Somebody at a terminal of a sandbox, over a real WebSocket.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::num::NonZeroU16;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::handshake::HandshakeError;
use tokio_tungstenite::tungstenite::http::{HeaderName, HeaderValue};
use tokio_tungstenite::tungstenite::{self, Error, Message, WebSocket};

use super::daemon::Daemon;
use super::http::TOKEN_HEADER;

const WAIT_MAX: Duration = Duration::from_secs(20);

/// Somebody at a terminal, with the screen that they see.
pub(crate) struct Seat {
    socket: WebSocket<TcpStream>,
    screen: vt100::Parser,
    /// Text frames other than screens, the oldest first, as far as they were not waited for.
    told: Vec<Value>,
    /// The code and the reason with which the server closed.
    pub(crate) closed: Option<(u16, String)>,
    /// How many screens were told.
    pub(crate) screens: usize,
}

/// How somebody comes to a terminal.
#[derive(Clone, Debug, Default)]
pub(crate) struct Coming<'a> {
    /// Behind the path.
    pub(crate) query: &'a str,
    /// The header that carries a token.
    pub(crate) token: Option<&'a str>,
    /// The header that says whose page it is.
    pub(crate) origin: Option<&'a str>,
}

impl Seat {
    /// Comes to a terminal, or is refused with a status.
    pub(crate) fn come(
        daemon: &Daemon,
        session: &str,
        tty: &str,
        coming: &Coming<'_>,
    ) -> Result<Self, u16> {
        let url = daemon.url().replace("http://", "ws://");
        let query = coming.query;
        let url = format!("{url}/sessions/{session}/ttys/{tty}/ws{query}");
        let mut request = url.into_client_request().unwrap();
        let headers = [(TOKEN_HEADER, coming.token), ("origin", coming.origin)];
        for (name, value) in headers {
            if let Some(value) = value {
                let value = HeaderValue::from_str(value).unwrap();
                request
                    .headers_mut()
                    .insert(HeaderName::from_static(name), value);
            }
        }
        let port = request.uri().port_u16().unwrap();
        let stream = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).unwrap();
        stream.set_read_timeout(Some(WAIT_MAX)).unwrap();
        stream.set_nodelay(true).unwrap();
        match tungstenite::client(request, stream) {
            Ok((socket, _)) => Ok(Self {
                socket,
                screen: screen(80, 24),
                told: Vec::new(),
                closed: None,
                screens: 0,
            }),
            Err(HandshakeError::Failure(Error::Http(reply))) => Err(reply.status().as_u16()),
            Err(other) => panic!("{other}"),
        }
    }

    /// Comes to a terminal with the service token.
    pub(crate) fn at(daemon: &Daemon, session: &str, tty: &str, query: &str) -> Self {
        let coming = Coming {
            query,
            token: Some(daemon.token()),
            origin: None,
        };
        Self::come(daemon, session, tty, &coming).unwrap()
    }

    /// Types.
    pub(crate) fn types(&mut self, text: &str) {
        let bytes = text.as_bytes().to_vec();
        self.socket.send(Message::Binary(bytes.into())).unwrap();
    }

    /// Says something in a text frame.
    pub(crate) fn says(&mut self, frame: &Value) {
        self.says_text(&frame.to_string());
    }

    /// Says a text.
    pub(crate) fn says_text(&mut self, text: &str) {
        self.socket.send(Message::Text(text.into())).unwrap();
    }

    /// Returns the text of the screen.
    pub(crate) fn sees(&self) -> String {
        self.screen.screen().contents()
    }

    /// Returns columns and rows of the screen.
    pub(crate) fn size(&self) -> (u16, u16) {
        let (rows, cols) = self.screen.screen().size();
        (cols.get(), rows.get())
    }

    /// Reads one frame; tells whether there was one.
    pub(crate) fn reads(&mut self) -> bool {
        match self.socket.read() {
            Ok(Message::Binary(bytes)) => self.screen.process(&bytes),
            Ok(Message::Text(text)) => {
                let frame: Value = serde_json::from_str(&text).unwrap();
                if frame["type"] == "screen" {
                    let side = |name: &str| u16::try_from(frame[name].as_u64().unwrap()).unwrap();
                    self.screen = screen(side("cols"), side("rows"));
                    self.screen
                        .process(frame["data"].as_str().unwrap().as_bytes());
                    self.screens += 1;
                } else {
                    assert!(0 < self.screens, "the screen is first: {frame}");
                    self.told.push(frame);
                }
            }
            Ok(Message::Close(frame)) => {
                let frame = frame.expect("the server says why it closes");
                self.closed = Some((frame.code.into(), frame.reason.to_string()));
            }
            Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => {}
            Err(Error::ConnectionClosed | Error::AlreadyClosed) => return false,
            Err(other) => panic!("{other}; the screen is:\n{}", self.sees()),
        }
        true
    }

    /// Reads until something holds.
    pub(crate) fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        let end = Instant::now() + WAIT_MAX;
        while !holds(self) {
            let goes_on = Instant::now() < end && self.reads();
            assert!(
                goes_on,
                "never {what}; closed: {:?}; told: {:?}; the screen is:\n{}",
                self.closed,
                self.told,
                self.sees()
            );
        }
    }

    /// Reads until a text is on the screen.
    pub(crate) fn until_sees(&mut self, text: &str) {
        self.until(text, |seat| seat.sees().contains(text));
    }

    /// Reads until a text frame other than a screen comes, and returns it.
    pub(crate) fn hears(&mut self) -> Value {
        self.until("told anything", |seat| !seat.told.is_empty());
        self.told.remove(0)
    }

    /// Reads until it is told whether it writes.
    pub(crate) fn hears_writer(&mut self, you: bool) {
        assert_eq!(self.hears(), json!({"type": "writer", "you": you}));
    }

    /// Reads to the end, and returns how the server closed.
    pub(crate) fn ends(&mut self) -> (u16, String) {
        while self.reads() {}
        self.closed.clone().expect("the server closed")
    }
}

fn screen(cols: u16, rows: u16) -> vt100::Parser {
    let side = |n| NonZeroU16::new(n).unwrap();
    vt100::Parser::new(side(rows), side(cols), 0)
}
