//! Writes a run's output for its reader: as lines, as events or as bytes.
//!
//! Nothing is read before the reader has taken what was read before, so a slow reader
//! slows this down and nothing else, and one answer of the sandbox is all that is held.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::ACCEPT;
use axum::http::{HeaderMap, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf as _, Bytes};
use futures_util::stream::try_unfold;
use serde::Serialize;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::agent::protocol::output::{Record, Stream};
use crate::api::error::Failure;
use crate::api::reply;
use crate::control::Refusal;
use crate::control::request::Which;
use crate::control::runs::{Follower, Piece};
use crate::id::RequestId;
use crate::wire::runs::{Chunk, Gap, OutputLine, Run};

/// How often a reader of events hears that the connection lives.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(15);
/// How long the head of the reply waits for what may still be refused with a status.
const HEAD_WAIT_MAX: Duration = Duration::from_millis(250);
/// Bytes that are gathered to be written at once, but for the record that goes beyond them.
const WRITE_BYTES_MAX: usize = 64 << 10;
/// Bytes of a record from which on it is written by itself, where bytes are: without a copy.
const ALONE_BYTES: usize = 8 << 10;

/// How output is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    /// A JSON document a line.
    Lines,
    /// Server-sent events.
    Events,
    /// The bytes of one stream and nothing else.
    Bytes,
}

impl Encoding {
    /// Returns the first that is accepted; lines where nothing known is.
    pub(super) fn accepted(headers: &HeaderMap) -> Self {
        headers
            .get_all(ACCEPT)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .find_map(Self::of_range)
            .unwrap_or(Self::Lines)
    }

    fn of_range(range: &str) -> Option<Self> {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
        if parts.any(|part| matches!(part, "q=0" | "q=0.0" | "q=0.00" | "q=0.000")) {
            return None;
        }
        match kind.as_str() {
            "application/x-ndjson" | "application/json" | "*/*" | "application/*" => {
                Some(Self::Lines)
            }
            "text/event-stream" | "text/*" => Some(Self::Events),
            "application/octet-stream" => Some(Self::Bytes),
            _ => None,
        }
    }

    const fn content_type(self) -> &'static str {
        match self {
            Self::Lines => "application/x-ndjson",
            Self::Events => "text/event-stream",
            Self::Bytes => "application/octet-stream",
        }
    }
}

/// Where output comes from, piece by piece.
pub(super) trait Pieces: Send + 'static {
    /// Waits for the next piece; `None` after the end.
    fn next(&mut self) -> impl Future<Output = Result<Option<Piece>, Refusal>> + Send;
}

impl Pieces for Follower {
    async fn next(&mut self) -> Result<Option<Piece>, Refusal> {
        Self::next(self).await
    }
}

/// For whom output is written, and how.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) encoding: Encoding,
    /// The stream and the place in it, where bytes are written.
    pub(super) bytes: ByteRange,
    pub(super) request_id: RequestId,
    /// Ends the reply when the service stops.
    pub(super) stopping: CancellationToken,
}

/// The bytes of a stream from a place on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ByteRange {
    /// The stream.
    pub(super) of: Which,
    /// The byte that comes next.
    pub(super) next: u64,
}

/// Answers with the output that comes.
///
/// What goes wrong at once is refused with a status. Later it is told in place of the end,
/// or, where there are bytes and nothing else, by breaking the connection.
pub(super) async fn answer<P: Pieces>(
    pieces: P,
    reader: Reader,
) -> Result<Response<Body>, Failure> {
    let content_type = reader.encoding.content_type();
    let mut writing = Writing::new(pieces, reader);
    if let Ok(refused) = timeout(HEAD_WAIT_MAX, writing.fill()).await {
        refused?;
    }
    let body = try_unfold(writing, |mut writing| async {
        let bytes = writing.next().await?;
        Ok::<_, io::Error>(bytes.map(|bytes| (bytes, writing)))
    });
    Ok(reply::going_on(content_type, Body::from_stream(body)))
}

/// A piece on its way; kept until it is there, since what it had read would be lost.
type Next<P> = Pin<Box<dyn Future<Output = (P, Result<Option<Piece>, Refusal>)> + Send>>;

fn read<P: Pieces>(mut pieces: P) -> Next<P> {
    Box::pin(async move {
        let next = pieces.next().await;
        (pieces, next)
    })
}

/// A reply that is being written.
struct Writing<P> {
    /// `None` once nothing follows.
    reading: Option<Next<P>>,
    waiting: VecDeque<Item>,
    reader: Reader,
}

/// What is to be written.
enum Item {
    Record(Record),
    Line(OutputLine),
}

impl<P: Pieces> Writing<P> {
    fn new(pieces: P, reader: Reader) -> Self {
        Self {
            reading: Some(read(pieces)),
            waiting: VecDeque::new(),
            reader,
        }
    }

    /// Reads until there is something to write, or nothing follows.
    async fn fill(&mut self) -> Result<(), Failure> {
        while self.waiting.is_empty()
            && let Some(reading) = &mut self.reading
        {
            let (pieces, piece) = reading.await;
            self.reading = None;
            match piece? {
                Some(Piece::End(run)) => self.end(run)?,
                Some(piece) => {
                    self.take(piece)?;
                    self.reading = Some(read(pieces));
                }
                None => {}
            }
        }
        Ok(())
    }

    fn take(&mut self, piece: Piece) -> Result<(), Failure> {
        match (piece, self.reader.encoding) {
            (Piece::Output(records), Encoding::Bytes) => {
                for record in records {
                    if let Some(record) = self.reader.bytes.pass(record)? {
                        self.waiting.push_back(Item::Record(record));
                    }
                }
            }
            (Piece::Output(records), Encoding::Lines | Encoding::Events) => {
                self.waiting.extend(records.into_iter().map(Item::Record));
            }
            // What of it was of this stream shows in the next record, or at the end.
            (Piece::Gap(..), Encoding::Bytes) => {}
            (Piece::Gap(from, to), Encoding::Lines | Encoding::Events) => {
                let gap = Gap { from, to };
                self.waiting.push_back(Item::Line(OutputLine::Gap { gap }));
            }
            (Piece::End(run), _) => self.end(run)?,
        }
        Ok(())
    }

    fn end(&mut self, run: Run) -> Result<(), Failure> {
        match self.reader.encoding {
            Encoding::Bytes => self.reader.bytes.end(&run),
            Encoding::Lines | Encoding::Events => {
                let line = OutputLine::End { end: run };
                self.waiting.push_back(Item::Line(line));
                Ok(())
            }
        }
    }

    /// Waits for what is written next; `None` at the end.
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        let beats = self.reader.encoding == Encoding::Events;
        let stopping = self.reader.stopping.clone();
        let filled = tokio::select! {
            biased;
            () = stopping.cancelled(), if self.reading.is_some() => {
                Err(Refusal::ShuttingDown.into())
            }
            filled = self.fill() => filled,
            () = sleep(HEARTBEAT), if beats => return Ok(Some(Bytes::from_static(b":\n\n"))),
        };
        if let Err(failure) = filled {
            self.break_off(failure)?;
        }
        let bytes = self.some();
        Ok((!bytes.is_empty()).then_some(bytes))
    }

    /// Ends with a failure in place of the end.
    fn break_off(&mut self, failure: Failure) -> io::Result<()> {
        self.reading = None;
        match self.reader.encoding {
            // Whoever reads bytes alone must not take them for all.
            Encoding::Bytes => Err(io::Error::other(failure.text().into_owned())),
            Encoding::Lines | Encoding::Events => {
                let error = Box::new(failure.body(&self.reader.request_id));
                let line = OutputLine::Error { error };
                self.waiting.push_back(Item::Line(line));
                Ok(())
            }
        }
    }

    /// Writes some of what waits.
    fn some(&mut self) -> Bytes {
        let mut out = Vec::new();
        while out.len() < WRITE_BYTES_MAX
            && let Some(item) = self.waiting.pop_front()
        {
            match (item, self.reader.encoding) {
                (Item::Record(record), Encoding::Bytes) if ALONE_BYTES <= record.bytes.len() => {
                    if out.is_empty() {
                        return record.bytes;
                    }
                    self.waiting.push_front(Item::Record(record));
                    break;
                }
                (Item::Record(record), Encoding::Bytes) => out.extend_from_slice(&record.bytes),
                (Item::Record(record), Encoding::Lines) => write_line(&mut out, &line(&record)),
                (Item::Record(record), Encoding::Events) => write_event(&mut out, &line(&record)),
                (Item::Line(line), Encoding::Events) => write_event(&mut out, &line),
                (Item::Line(line), Encoding::Lines | Encoding::Bytes) => {
                    write_line(&mut out, &line);
                }
            }
        }
        out.into()
    }
}

impl ByteRange {
    /// Lets a record pass if it goes on where the last one ended; `None` where nothing of
    /// it is new.
    fn pass(&mut self, mut record: Record) -> Result<Option<Record>, Failure> {
        let wanted = match self.of {
            Which::Stderr => Stream::Err,
            Which::Stdout | Which::Both => Stream::Out,
        };
        if record.stream != wanted {
            return Ok(None);
        }
        let Some(known) = self.next.checked_sub(record.offset) else {
            return Err(self.lost(record.offset));
        };
        let known = usize::try_from(known).unwrap_or(usize::MAX);
        if record.bytes.len() <= known {
            return Ok(None);
        }
        record.bytes.advance(known);
        self.next += u64::try_from(record.bytes.len()).unwrap_or(u64::MAX);
        Ok(Some(record))
    }

    /// Checks that all that an ended run wrote has passed.
    fn end(&self, run: &Run) -> Result<(), Failure> {
        let written = match self.of {
            Which::Stderr => run.stderr_bytes,
            Which::Stdout | Which::Both => run.stdout_bytes,
        };
        if run.state == "running" || written == self.next {
            Ok(())
        } else if self.next < written {
            Err(self.lost(written))
        } else {
            Err(Failure::NoSuchOutput(format!(
                "The run wrote {written} bytes to {}, and those from {} on were asked for.",
                self.name(),
                self.next
            )))
        }
    }

    fn lost(&self, to: u64) -> Failure {
        let (name, from) = (self.name(), self.next);
        Failure::NoSuchOutput(format!(
            "Bytes {from} to {to} of {name} are not kept any more. Ask for those from {to} on."
        ))
    }

    fn name(&self) -> &'static str {
        match self.of {
            Which::Stderr => "stderr",
            Which::Stdout | Which::Both => "stdout",
        }
    }
}

/// Makes a line of a record.
fn line(record: &Record) -> OutputLine {
    let stream = match record.stream {
        Stream::Out => "stdout",
        Stream::Err => "stderr",
    };
    let (data, b64) = match std::str::from_utf8(&record.bytes) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(STANDARD.encode(&record.bytes))),
    };
    OutputLine::Output(Chunk {
        seq: record.seq,
        stream: stream.to_owned(),
        data,
        b64,
    })
}

fn write_line(out: &mut Vec<u8>, line: &OutputLine) {
    write_json(out, line);
    out.push(b'\n');
}

/// Writes an event; where reading can be taken up after it, with its id.
fn write_event(out: &mut Vec<u8>, line: &OutputLine) {
    match line {
        OutputLine::Output(chunk) => {
            write_head(out, "output", Some(chunk.seq));
            write_json(out, chunk);
        }
        OutputLine::Gap { gap } => {
            write_head(out, "gap", gap.to.checked_sub(1));
            write_json(out, gap);
        }
        OutputLine::End { end } => {
            write_head(out, "end", end.next_seq.checked_sub(1));
            write_json(out, end);
        }
        OutputLine::Error { error } => {
            write_head(out, "error", None);
            write_json(out, error);
        }
    }
    out.extend_from_slice(b"\n\n");
}

fn write_head(out: &mut Vec<u8>, event: &str, id: Option<u64>) {
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    out.extend_from_slice(format!("event: {event}\n{id}data: ").as_bytes());
}

fn write_json(out: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(out, value).expect("wire types have only text keys");
}

#[cfg(test)]
mod tests;
