//! Speaks with people at a terminal over WebSocket.

use std::borrow::Cow;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{
    CONNECTION, HOST, HeaderName, HeaderValue, ORIGIN, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use axum::http::{HeaderMap, Request, Response, StatusCode};
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::api::auth::SocketCaller;
use crate::api::error::Failure;
use crate::api::handover::Handover;
use crate::api::query;
use crate::api::routes::{Captures, Param, ParamKind};
use crate::api::validate::{self, Form};
use crate::control::terminals::{Attached, Mode, Told};
use crate::wire::ttys::{ClientFrame, ServerFrame};

/// Bytes of one message of a client.
const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Bytes that are read at once.
const READ_BYTES_MAX: usize = 8 << 10;
/// Between two questions whether the client is there.
const PING_PERIOD: Duration = Duration::from_secs(20);
/// How long a client may be silent: a question, and the time to answer it.
const SILENCE_MAX: Duration = Duration::from_secs(40);
/// How long the client may take to say goodbye; less than the drain time.
const FAREWELL_MAX: Duration = Duration::from_secs(2);
/// Columns or rows of the largest terminal.
pub(super) const SIDE_MAX: u16 = 1000;

const MODES: &[&str] = &["write", "view"];

pub(super) const QUERY: &[Param] = &[
    Param {
        name: "mode",
        about: "`view` looks only; `write`, the default, writes where nobody else does",
        kind: ParamKind::OneOf(MODES),
    },
    Param {
        name: "ticket",
        about: "In place of the header, from where no header can be sent",
        kind: ParamKind::Text,
    },
];

pub(super) async fn open(
    caller: SocketCaller,
    mut request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    let SocketCaller(caller) = caller;
    if !is_our_own(request.headers()) {
        return Err(Failure::ForeignOrigin);
    }
    let accept = accept(request.headers()).ok_or(Failure::NotWebSocket)?;
    let mode = read_mode(request.uri().query().unwrap_or_default());
    let mode = caller.checked(mode).await?;
    let captures = request.extensions().get::<Captures>();
    let tty = captures.and_then(|captures| captures.get("tty_id"));
    let tty = tty.unwrap_or_default().to_owned();
    let handover = request.extensions_mut().remove::<Handover>();
    let upgrade = request.extensions_mut().remove::<OnUpgrade>();
    let (Some(handover), Some(upgrade)) = (handover, upgrade) else {
        return Err(Failure::NotWebSocket);
    };
    let attached = caller.control().attach_tty(caller.id(), &tty, mode).await?;
    let stop = handover.stop();
    handover.put(Box::pin(serve(upgrade, attached, stop)));
    Ok(switching(accept))
}

fn read_mode(text: &str) -> Result<Mode, Failure> {
    let mut form = Form::query();
    let [mode] = query::fields(text, ["mode"]);
    let mode = form.optional(&mode, |given| validate::one_of(given, MODES));
    form.finish()?;
    Ok(match mode.as_deref() {
        Some("view") => Mode::View,
        Some(_) | None => Mode::Write,
    })
}

/// Tells whether a request comes from a page of ours, or from no page at all.
///
/// A page of somebody else's can make a browser open a socket here; the browser then
/// says whose page it is.
fn is_our_own(headers: &HeaderMap) -> bool {
    let mut origins = headers.get_all(ORIGIN).iter();
    let origin = match (origins.next(), origins.next()) {
        (None, _) => return true,
        (Some(origin), None) => origin.to_str().ok(),
        (Some(_), Some(_)) => None,
    };
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let (Some(origin), Some(host)) = (origin, host) else {
        return false;
    };
    let (port, authority) = if let Some(rest) = origin.strip_prefix("http://") {
        ("80", rest)
    } else if let Some(rest) = origin.strip_prefix("https://") {
        ("443", rest)
    } else {
        return false;
    };
    let (theirs, ours) = (place(authority, port), place(host, port));
    theirs.0.eq_ignore_ascii_case(ours.0) && theirs.1 == ours.1 && !theirs.0.is_empty()
}

/// Splits an authority into its host and its port.
fn place<'a>(authority: &'a str, default: &'a str) -> (&'a str, &'a str) {
    match authority.rsplit_once(':') {
        // Not a colon within an address of IPv6.
        Some((host, port)) if !port.contains(']') => (host, port),
        Some(_) | None => (authority, default),
    }
}

/// Returns what accepts a request for a WebSocket, where it is one.
fn accept(headers: &HeaderMap) -> Option<HeaderValue> {
    let says = |name: HeaderName, word: &str| {
        headers.get_all(name).iter().any(|value| {
            let words = value.to_str().unwrap_or_default().split(',');
            words
                .map(str::trim)
                .any(|said| said.eq_ignore_ascii_case(word))
        })
    };
    let asked = says(CONNECTION, "upgrade")
        && says(UPGRADE, "websocket")
        && says(SEC_WEBSOCKET_VERSION, "13");
    let key = headers.get(SEC_WEBSOCKET_KEY).filter(|_| asked)?;
    HeaderValue::try_from(derive_accept_key(key.as_bytes())).ok()
}

fn switching(accept: HeaderValue) -> Response<Body> {
    let mut reply = Response::new(Body::empty());
    *reply.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = reply.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    reply
}

/// Why a conversation ends.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Ending {
    /// The program ended, and the client was told how.
    Exit,
    /// The server stops.
    Stop,
    /// The client said what has no sense.
    Senseless(Cow<'static, str>),
    /// The client sent more than a message may hold.
    TooLarge,
    /// The client said goodbye, or is gone.
    Gone,
    /// The client is silent.
    Silent,
}

impl Ending {
    /// Returns what the client is told, where it is told anything.
    fn farewell(self) -> Option<CloseFrame> {
        let (code, reason) = match self {
            Self::Exit => (CloseCode::Normal, Cow::Borrowed("the program ended")),
            Self::Stop => (CloseCode::Away, Cow::Borrowed("the service is stopping")),
            Self::Senseless(reason) => (CloseCode::Policy, reason),
            Self::TooLarge => (
                CloseCode::Size,
                Cow::Borrowed("a message has at most 65536 bytes"),
            ),
            Self::Gone | Self::Silent => return None,
        };
        Some(CloseFrame {
            code,
            reason: reason.as_ref().into(),
        })
    }
}

async fn serve(upgrade: OnUpgrade, attached: Attached, stop: CancellationToken) {
    match upgrade.await {
        Ok(upgraded) => converse(TokioIo::new(upgraded), attached, stop).await,
        Err(cause) => debug!(%cause, "a connection was not upgraded"),
    }
}

async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    attached: Attached,
    stop: CancellationToken,
) {
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BYTES_MAX)
        .write_buffer_size(0)
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX));
    let socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await;
    let (mut to, mut from) = socket.split();
    let pulse = Pulse::new(Instant::now());
    let ending = tokio::select! {
        biased;
        () = stop.cancelled() => Ending::Stop,
        ending = listen(&attached, &mut from, &pulse) => ending,
        ending = speak(&attached, &mut to) => ending,
        () = pulse.stops() => Ending::Silent,
    };
    // Whoever is next to write need not wait for the goodbye.
    drop(attached);
    debug!(?ending, "a terminal's socket ends");
    let is_silent = ending == Ending::Silent;
    let farewell = ending.farewell();
    let parting = async {
        if let Some(frame) = farewell
            && to.send(Message::Close(Some(frame))).await.is_err()
        {
            return;
        }
        // To the client's own goodbye; ours is on its way with the next reading.
        while let Some(Ok(_)) = from.next().await {}
        if let Ok(mut socket) = from.reunite(to) {
            hang_up(socket.get_mut()).await;
        }
    };
    if !is_silent && timeout(FAREWELL_MAX, parting).await.is_err() {
        debug!("a client did not say goodbye in time");
    }
}

/// Ends our side, and reads the client's to its end: with bytes unread the connection
/// would be reset, and the goodbye be lost to the client.
async fn hang_up(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    if stream.shutdown().await.is_err() {
        return;
    }
    let mut dropped = [0; 4096];
    while stream.read(&mut dropped).await.is_ok_and(|n| 0 < n) {}
}

/// Tells the client what goes on.
async fn speak<S>(attached: &Attached, to: &mut SplitSink<WebSocketStream<S>, Message>) -> Ending
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut pings = interval_at(Instant::now() + PING_PERIOD, PING_PERIOD);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let told = tokio::select! {
            told = attached.next() => told,
            _ = pings.tick() => {
                if to.send(Message::Ping(Bytes::new())).await.is_err() {
                    return Ending::Gone;
                }
                continue;
            }
        };
        let Some(told) = told else {
            return Ending::Exit;
        };
        for message in messages(told) {
            if to.send(message).await.is_err() {
                return Ending::Gone;
            }
        }
    }
}

/// Puts what is told into messages.
fn messages(told: Told) -> Vec<Message> {
    match told {
        Told::Output(bytes) => vec![Message::Binary(bytes)],
        Told::Writer(you) => vec![text(&ServerFrame::Writer { you })],
        Told::Exit { exit_code, reason } => vec![text(&ServerFrame::Exit { exit_code, reason })],
        Told::Screen { cols, rows, paint } => {
            // A character may be there by half. Its bytes are no text, and its other
            // half comes as output.
            let half = paint.len() - whole_text(&paint).len();
            let mut paint = Bytes::from(paint);
            let half = paint.split_off(paint.len() - half);
            let data = String::from_utf8_lossy(&paint).into_owned();
            let screen = text(&ServerFrame::Screen { cols, rows, data });
            let half = Some(half).filter(|half| !half.is_empty());
            std::iter::once(screen)
                .chain(half.map(Message::Binary))
                .collect()
        }
    }
}

/// Returns what stands before a character that is there by half at the end.
fn whole_text(bytes: &[u8]) -> &[u8] {
    let tail_at = bytes.len().saturating_sub(3);
    let tail = bytes.get(tail_at..).unwrap_or_default();
    // The longest first: `0xe2 0x82` is half of one character, not the byte 0x82 alone.
    let half = (1..=tail.len()).rev().find(|n| {
        let end = tail.get(tail.len() - n..).unwrap_or_default();
        std::str::from_utf8(end)
            .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
    });
    let whole = bytes.len() - half.unwrap_or(0);
    bytes.get(..whole).unwrap_or(bytes)
}

fn text(frame: &ServerFrame) -> Message {
    let text = serde_json::to_string(frame).expect("wire types have only text keys");
    Message::Text(text.into())
}

/// Does what the client says.
async fn listen<S>(
    attached: &Attached,
    from: &mut SplitStream<WebSocketStream<S>>,
    pulse: &Pulse,
) -> Ending
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        let message = match from.next().await {
            Some(Ok(message)) => message,
            Some(Err(tungstenite::Error::Capacity(_))) => return Ending::TooLarge,
            Some(Err(cause)) => {
                debug!(%cause, "a terminal's socket broke off");
                return Ending::Gone;
            }
            None => return Ending::Gone,
        };
        pulse.beat(Instant::now());
        match message {
            Message::Binary(bytes) => {
                // While the program does not read nothing of the client is heard, which
                // is not the client's fault.
                pulse.hold();
                attached.input(bytes).await;
                pulse.beat(Instant::now());
            }
            Message::Text(text) => match client_frame(&text) {
                Ok(ClientFrame::Resize { cols, rows }) => attached.resize(cols, rows).await,
                Ok(ClientFrame::Take) => attached.take(),
                Err(reason) => return Ending::Senseless(reason),
            },
            Message::Close(_) => return Ending::Gone,
            Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
        }
    }
}

fn client_frame(text: &str) -> Result<ClientFrame, Cow<'static, str>> {
    let frame: ClientFrame = serde_json::from_str(text)
        .map_err(|_| Cow::Borrowed("a text frame is a resize with cols and rows, or a take"))?;
    let fits = |side: u16| (1..=SIDE_MAX).contains(&side);
    match frame {
        ClientFrame::Resize { cols, rows } if !fits(cols) || !fits(rows) => Err(Cow::Owned(
            format!("cols and rows are within 1 and {SIDE_MAX}"),
        )),
        ClientFrame::Resize { .. } | ClientFrame::Take => Ok(frame),
    }
}

/// Knows when the client was last heard.
#[derive(Debug)]
// A std mutex: it is held for a look, and never across an await.
struct Pulse(Mutex<Heard>);

#[derive(Clone, Copy, Debug)]
enum Heard {
    At(Instant),
    /// Nobody listens.
    Held,
}

impl Pulse {
    fn new(now: Instant) -> Self {
        Self(Mutex::new(Heard::At(now)))
    }

    fn beat(&self, now: Instant) {
        self.set(Heard::At(now));
    }

    fn hold(&self) {
        self.set(Heard::Held);
    }

    fn set(&self, heard: Heard) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = heard;
    }

    /// Waits until the client was silent for too long.
    async fn stops(&self) {
        loop {
            let heard = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            match heard {
                Heard::At(at) if at + SILENCE_MAX <= now => return,
                Heard::At(at) => sleep_until(at + SILENCE_MAX).await,
                Heard::Held => sleep_until(now + SILENCE_MAX).await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        let pairs = pairs.iter();
        let pairs =
            pairs.map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap()));
        pairs.collect()
    }

    #[test]
    fn an_origin_is_our_own_where_host_and_port_are() {
        for (origin, host, ours) in [
            (None, "a:8080", true),
            (Some("http://a:8080"), "a:8080", true),
            (Some("https://a:8080"), "a:8080", true),
            (Some("http://A:8080"), "a:8080", true),
            (Some("http://a"), "a", true),
            (Some("http://a"), "a:80", true),
            (Some("http://a:80"), "a", true),
            (Some("https://a"), "a", true),
            (Some("https://a"), "a:443", true),
            (Some("http://[::1]:8080"), "[::1]:8080", true),
            (Some("http://[::1]"), "[::1]", true),
            (Some("http://a"), "a:8080", false),
            (Some("http://a:8081"), "a:8080", false),
            (Some("http://b:8080"), "a:8080", false),
            (Some("http://a.b:8080"), "a:8080", false),
            (Some("https://a"), "a:80", false),
            (Some("http://[::2]:8080"), "[::1]:8080", false),
            (Some("http://a:8080/"), "a:8080", false),
            (Some("http://a:8080@b"), "a:8080", false),
            (Some("ftp://a:8080"), "a:8080", false),
            (Some("a:8080"), "a:8080", false),
            (Some("null"), "a:8080", false),
            (Some(""), "a:8080", false),
            (Some("http://"), "", false),
        ] {
            let mut given = headers(&[(HOST, host)]);
            if let Some(origin) = origin {
                given.insert(ORIGIN, HeaderValue::from_str(origin).unwrap());
            }
            assert_eq!(is_our_own(&given), ours, "{origin:?} {host}");
        }
        let mut two = headers(&[(HOST, "a"), (ORIGIN, "http://a")]);
        two.append(ORIGIN, HeaderValue::from_static("http://b"));
        assert!(!is_our_own(&two));
        assert!(!is_our_own(&headers(&[(ORIGIN, "http://a")])));
    }

    #[test]
    fn a_request_for_a_socket_is_accepted_as_the_standard_shows() {
        let key = "dGhlIHNhbXBsZSBub25jZQ==";
        let asked = [
            (CONNECTION, "keep-alive, Upgrade"),
            (UPGRADE, "WebSocket"),
            (SEC_WEBSOCKET_VERSION, "13"),
            (SEC_WEBSOCKET_KEY, key),
        ];
        let accepted = accept(&headers(&asked)).unwrap();
        assert_eq!(accepted, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        for without in 0..asked.len() {
            let mut some = asked.to_vec();
            some.remove(without);
            assert_eq!(accept(&headers(&some)), None);
        }
        let mut old = asked.to_vec();
        old[2].1 = "8";
        assert_eq!(accept(&headers(&old)), None);
    }

    #[test]
    fn a_text_frame_is_a_resize_within_bounds_or_a_take() {
        for (text, sense) in [
            (r#"{"type":"resize","cols":1,"rows":1000}"#, true),
            (r#"{"type":"take"}"#, true),
            (r#"{"type":"take","later":"field"}"#, true),
            (r#"{"type":"resize","cols":0,"rows":24}"#, false),
            (r#"{"type":"resize","cols":80,"rows":1001}"#, false),
            (r#"{"type":"resize","cols":80,"rows":70000}"#, false),
            (r#"{"type":"resize","cols":80}"#, false),
            (r#"{"type":"input"}"#, false),
            ("take", false),
            ("", false),
        ] {
            let read = client_frame(text);
            assert_eq!(read.is_ok(), sense, "{text}: {read:?}");
            // A close frame holds no longer reason.
            assert!(read.is_ok_and(|_| true) || client_frame(text).unwrap_err().len() <= 123);
        }
    }

    #[test]
    fn a_character_that_is_there_by_half_follows_the_screen_as_bytes() {
        for (paint, data, half) in [
            (&b"ab"[..], "ab", &b""[..]),
            (b"a\xc3", "a", b"\xc3"),
            (b"a\xe2\x82", "a", b"\xe2\x82"),
            (b"a\xf0\x9f\x91", "a", b"\xf0\x9f\x91"),
            ("aé".as_bytes(), "aé", b""),
            (b"", "", b""),
        ] {
            let told = Told::Screen {
                cols: 2,
                rows: 1,
                paint: paint.to_vec(),
            };
            let sent = messages(told);
            let screen = ServerFrame::Screen {
                cols: 2,
                rows: 1,
                data: data.to_owned(),
            };
            assert_eq!(sent[0], text(&screen));
            let rest = sent.get(1).map(|rest| rest.clone().into_data());
            assert_eq!(rest.unwrap_or_default(), half);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_is_silent_after_a_question_and_the_time_to_answer_it() {
        let began = Instant::now();
        let pulse = Pulse::new(began);
        let second = Duration::from_secs(1);
        let heard = async {
            tokio::time::sleep(30 * second).await;
            pulse.beat(Instant::now());
            tokio::time::sleep(5 * second).await;
            pulse.hold();
            tokio::time::sleep(300 * second).await;
            pulse.beat(Instant::now());
            std::future::pending::<()>().await;
        };
        tokio::select! { () = heard => {}, () = pulse.stops() => {} }
        assert_eq!(began.elapsed(), (30 + 5 + 300) * second + SILENCE_MAX);
    }
}
