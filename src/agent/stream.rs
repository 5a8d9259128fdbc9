//! Moves frames between a connection and its stream: one task reads, and one writes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::asks::{ASKS_MAX, Answer, Asks, TakenBack, Wanted};
use super::check::{Fault, words};
use super::protocol::frame::{BadFrame, Decoder, FRAME_BYTES_MAX, Frame, HEAD_BYTES};
use super::protocol::message::{Reply, Request};
use super::protocol::output::Output;
use crate::id::SessionId;

/// Bytes that wait to be written; who has more to say waits.
const OUTBOX_BYTES_MAX: usize = 2 * (FRAME_BYTES_MAX + HEAD_BYTES);
/// Bytes of memory that the outbox keeps for what is said next.
const SPARE_BYTES_MAX: usize = 128 << 10;
/// How long the other side may take nothing of what is written to it.
const DEAF_MAX: Duration = Duration::from_secs(20);

/// What the callers, the reader and the writer of one stream share.
#[derive(Debug)]
pub(super) struct Shared {
    session: SessionId,
    /// A std mutex: it guards tables, and no await.
    state: Mutex<State>,
    /// Places among the requests that wait for an answer.
    places: Arc<Semaphore>,
    /// Bytes that may still be put into the outbox.
    room: Semaphore,
    written: Notify,
    closed: CancellationToken,
}

#[derive(Debug, Default)]
struct State {
    asks: Asks,
    outbox: Vec<u8>,
    /// Bytes of the outbox for which room was taken.
    charged: usize,
    closed: bool,
}

/// The stream is at its end.
#[derive(Debug)]
pub(super) struct Ended;

/// A request that waits for its answer; dropping it gives up.
#[derive(Debug)]
pub(super) struct Asked<'s> {
    shared: &'s Shared,
    ask: u64,
    answer: oneshot::Receiver<Answer>,
    answered: bool,
}

impl Shared {
    pub(super) fn new(session: SessionId) -> Self {
        Self {
            session,
            state: Mutex::default(),
            places: Arc::new(Semaphore::new(ASKS_MAX)),
            room: Semaphore::new(OUTBOX_BYTES_MAX),
            written: Notify::new(),
            closed: CancellationToken::new(),
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    pub(super) async fn closed(&self) {
        self.closed.cancelled().await;
    }

    #[cfg(test)]
    pub(super) fn unwritten_bytes(&self) -> usize {
        self.state().outbox.len()
    }

    /// Takes a place among those who wait for an answer.
    pub(super) async fn place(&self) -> Result<OwnedSemaphorePermit, Ended> {
        let place = Arc::clone(&self.places).acquire_owned().await;
        place.map_err(|_| Ended)
    }

    /// Takes room for a frame.
    pub(super) async fn room(&self, frame: &[u8]) -> Result<(), Ended> {
        let bytes = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        let room = self.room.acquire_many(bytes).await.map_err(|_| Ended)?;
        // The writer gives it back.
        room.forget();
        Ok(())
    }

    /// Returns the number of a request that is about to be sent.
    pub(super) fn number(&self) -> u64 {
        self.state().asks.number()
    }

    /// Puts a frame into the outbox, for which room was taken.
    pub(super) fn send(
        &self,
        ask: u64,
        wanted: Wanted,
        place: OwnedSemaphorePermit,
        frame: &[u8],
    ) -> Result<Asked<'_>, Ended> {
        let mut state = self.state();
        if state.closed {
            return Err(Ended);
        }
        let answer = state.asks.ask(ask, wanted, place);
        state.outbox.extend_from_slice(frame);
        state.charged = state.charged.saturating_add(frame.len());
        drop(state);
        self.written.notify_one();
        Ok(Asked {
            shared: self,
            ask,
            answer,
            answered: false,
        })
    }

    /// Ends the stream for everybody.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.asks.clear();
        state.outbox = Vec::new();
        drop(state);
        self.places.close();
        self.room.close();
        self.closed.cancel();
    }

    fn give_up(&self, ask: u64) {
        let mut state = self.state();
        if state.closed || state.asks.give_up(ask) == TakenBack::No {
            return;
        }
        // Room is not waited for: each of these follows a request that had some.
        let put = put(&Request::Cancel { ask }, &mut state.outbox);
        drop(state);
        debug_assert!(put.is_ok(), "a number fits a frame");
        self.written.notify_one();
    }

    /// Takes what is to be written, and how many bytes of room that held.
    fn take(&self, spare: &mut Vec<u8>) -> usize {
        let mut state = self.state();
        std::mem::swap(&mut state.outbox, spare);
        std::mem::take(&mut state.charged)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, fault: &Fault) {
        if !self.is_closed() {
            warn!(session = %self.session, why = %fault, "the stream of a sandbox's agent is given up");
        }
        self.close();
    }

    fn end(&self, why: &str) {
        if !self.is_closed() {
            debug!(session = %self.session, why, "the stream of a sandbox's agent is at its end");
        }
        self.close();
    }
}

impl Asked<'_> {
    pub(super) async fn answer(mut self) -> Result<Answer, Ended> {
        let answer = (&mut self.answer).await;
        self.answered = true;
        answer.map_err(|_| Ended)
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.shared.give_up(self.ask);
        }
    }
}

/// Appends the frame of a request to what is to be sent.
pub(super) fn put(request: &Request, out: &mut Vec<u8>) -> Result<(), BadFrame> {
    let json = serde_json::to_vec(request).map_err(|_| BadFrame::Payload)?;
    Frame::Message(json.into()).put(out)
}

/// Reads a message of the agent.
pub(super) fn parse(json: &[u8]) -> Result<Reply, Fault> {
    serde_json::from_slice(json).map_err(|error| Fault::Message(words(&error.to_string())))
}

/// Reads answers until the stream or the connection is at its end.
pub(super) async fn read(shared: Arc<Shared>, mut from: impl AsyncRead + Unpin, decoder: Decoder) {
    let done = shared
        .closed
        .run_until_cancelled(answers(&shared, &mut from, decoder));
    match done.await {
        None => {}
        Some(Ok(why)) => shared.end(&why),
        Some(Err(fault)) => shared.fail(&fault),
    }
}

async fn answers(
    shared: &Shared,
    from: &mut (impl AsyncRead + Unpin),
    mut decoder: Decoder,
) -> Result<String, Fault> {
    loop {
        while let Some(frame) = decoder.next().map_err(Fault::Frame)? {
            take(shared, frame)?;
        }
        match from.read_buf(decoder.room()).await {
            Ok(0) => return Ok("it was closed".to_owned()),
            Ok(_) => {}
            Err(error) => return Ok(error.to_string()),
        }
    }
}

fn take(shared: &Shared, frame: Frame) -> Result<(), Fault> {
    match frame {
        Frame::Message(json) => {
            let reply = parse(&json)?;
            shared.state().asks.reply(reply)
        }
        Frame::Output(packed) => {
            let output = Output::unpack(packed).map_err(Fault::Frame)?;
            shared.state().asks.output(output)
        }
        Frame::Input(_) => Err(Fault::Input),
    }
}

/// Writes requests until the stream or the connection is at its end.
pub(super) async fn write(shared: Arc<Shared>, mut to: impl AsyncWrite + Unpin) {
    let done = shared
        .closed
        .run_until_cancelled(requests(&shared, &mut to));
    match done.await {
        None => {}
        Some(Ok(why)) => shared.end(&why),
        Some(Err(fault)) => shared.fail(&fault),
    }
}

async fn requests(shared: &Shared, to: &mut (impl AsyncWrite + Unpin)) -> Result<String, Fault> {
    let mut bytes = Vec::new();
    loop {
        let room = shared.take(&mut bytes);
        if bytes.is_empty() {
            shared.written.notified().await;
            continue;
        }
        let all = async {
            to.write_all(&bytes).await?;
            to.flush().await
        };
        // A timer is armed only where the stream does not take the bytes at once.
        match timeout(DEAF_MAX, all).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Ok(error.to_string()),
            Err(_) => return Err(Fault::Deaf),
        }
        if SPARE_BYTES_MAX < bytes.capacity() {
            bytes = Vec::new();
        }
        bytes.clear();
        shared.room.add_permits(room);
    }
}
