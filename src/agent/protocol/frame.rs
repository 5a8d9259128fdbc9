//! Cuts a stream of bytes into frames, and makes frames of what is to be sent.
//!
//! ```text
//! length: u32 LE (of what follows) | kind: u8 | payload
//! ```
//!
//! What arrives is never copied: a frame is a part of the memory that it was read into.

use bytes::{Buf as _, Bytes, BytesMut};

/// Bytes of the largest payload with its kind.
///
/// It holds the longest command (128 KiB) with every byte escaped, and an
/// environment beside it.
pub const FRAME_BYTES_MAX: usize = 1 << 20;
/// Bytes before a frame's kind.
pub const HEAD_BYTES: usize = 4;

/// What a frame holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// JSON of a [`super::message::Request`] or a [`super::message::Reply`].
    Message(Bytes),
    /// Bytes for a run's standard input.
    Input(Input),
    /// An answer of bytes: a [`super::output::Output`], still packed.
    Output(Bytes),
}

/// Bytes for a run's standard input, from the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// The number of the request; answered by `Done` once the bytes were taken.
    pub ask: u64,
    /// The run, as 32 hex digits.
    pub run: String,
    /// Whether the input ends after these bytes.
    pub ends: bool,
    /// At most [`INPUT_BYTES_MAX`].
    pub bytes: Vec<u8>,
}

/// Bytes of input in one frame.
pub const INPUT_BYTES_MAX: usize = 64 << 10;
const RUN_BYTES: usize = 32;

const MESSAGE: u8 = 1;
const INPUT: u8 = 2;
pub(super) const OUTPUT: u8 = 3;

/// Why a stream is no stream of frames. It cannot be read any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadFrame {
    /// Longer than [`FRAME_BYTES_MAX`], or empty.
    Length(usize),
    /// Of a kind that there is not.
    Kind(u8),
    /// Its payload does not have the form of its kind.
    Payload,
}

impl std::fmt::Display for BadFrame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Length(n) => write!(
                f,
                "a frame of {n} bytes, where 1 to {FRAME_BYTES_MAX} are allowed"
            ),
            Self::Kind(kind) => write!(f, "a frame of unknown kind {kind}"),
            Self::Payload => {
                f.write_str("a frame whose payload does not have the form of its kind")
            }
        }
    }
}

impl std::error::Error for BadFrame {}

/// Bytes of memory in which a quiet stream waits.
const QUIET_BYTES: usize = 8 << 10;
/// Bytes that one read takes while frames are large.
const BUSY_BYTES: usize = 256 << 10;
/// Bytes of a frame from which on it has memory of its own, which goes with it.
const LARGE_BYTES: usize = 16 << 10;

/// Cuts bytes into frames, however they arrive.
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: BytesMut,
    /// Bytes of the frame before, which tells how much comes at once.
    last: usize,
}

impl Decoder {
    /// Takes what has arrived.
    ///
    /// No more than what one read gave: what is kept is bounded by a frame and that.
    pub fn push(&mut self, piece: &[u8]) {
        self.bytes.reserve(piece.len().max(self.missing()));
        self.bytes.extend_from_slice(piece);
    }

    /// Returns where the next read puts what it takes: behind what is there, with room for
    /// the whole frame that has begun.
    pub fn room(&mut self) -> &mut BytesMut {
        let usual = match self.last {
            LARGE_BYTES.. => BUSY_BYTES,
            _ => QUIET_BYTES,
        };
        let missing = self.missing();
        // What is left of a larger read does for the next, and costs no memory.
        if self.bytes.capacity() - self.bytes.len() < missing.max(HEAD_BYTES + 1) {
            self.bytes.reserve(missing.max(usual));
        }
        &mut self.bytes
    }

    /// Bytes that are missing of the frame that has begun, as far as its head is there;
    /// a large one is then not copied each time that it grows.
    fn missing(&self) -> usize {
        let Some((head, rest)) = self.bytes.split_first_chunk::<HEAD_BYTES>() else {
            return 0;
        };
        let length = usize::try_from(u32::from_le_bytes(*head)).unwrap_or(usize::MAX);
        // A false length is told of by `next`, and takes no memory.
        if FRAME_BYTES_MAX < length {
            return 0;
        }
        length.saturating_sub(rest.len())
    }

    /// Returns the next whole frame, if it is there.
    pub fn next(&mut self) -> Result<Option<Frame>, BadFrame> {
        let Some(body) = self.body()? else {
            return Ok(None);
        };
        let length = body.len();
        let (kind, payload) = body.split_first().ok_or(BadFrame::Length(0))?;
        // What cannot be parsed stays where it is, so that the error does too.
        match *kind {
            INPUT => {
                let input = input(payload).ok_or(BadFrame::Payload)?;
                self.take(length);
                Ok(Some(Frame::Input(input)))
            }
            MESSAGE => Ok(Some(Frame::Message(self.take(length)))),
            OUTPUT => Ok(Some(Frame::Output(self.take(length)))),
            kind => Err(BadFrame::Kind(kind)),
        }
    }

    /// Returns what the kind and the payload of the next whole frame stand for, if it is
    /// there, on a stream whose frames have other kinds than a [`Frame`].
    pub fn next_as<T>(
        &mut self,
        parse: impl FnOnce(&[u8]) -> Result<T, BadFrame>,
    ) -> Result<Option<T>, BadFrame> {
        let Some(body) = self.body()? else {
            return Ok(None);
        };
        let length = body.len();
        let parsed = parse(body)?;
        self.take(length);
        Ok(Some(parsed))
    }

    /// Returns the kind and the payload of the next frame, if all of it is there.
    fn body(&self) -> Result<Option<&[u8]>, BadFrame> {
        let Some((head, rest)) = self.bytes.split_first_chunk::<HEAD_BYTES>() else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_le_bytes(*head)).unwrap_or(usize::MAX);
        if length == 0 || FRAME_BYTES_MAX < length {
            return Err(BadFrame::Length(length));
        }
        Ok(rest.get(..length))
    }

    /// Takes the frame that is there, and returns its payload.
    fn take(&mut self, length: usize) -> Bytes {
        self.bytes.advance(HEAD_BYTES + 1);
        let payload = self.bytes.split_to(length - 1).freeze();
        self.last = length;
        if self.bytes.is_empty() && LARGE_BYTES <= length {
            // The memory goes with the frame, and is not kept for those that are small.
            self.bytes = BytesMut::new();
        }
        payload
    }
}

fn input(payload: &[u8]) -> Option<Input> {
    let (ask, rest) = payload.split_first_chunk::<8>()?;
    let (run, rest) = rest.split_first_chunk::<RUN_BYTES>()?;
    let (ends, bytes) = rest.split_first()?;
    if INPUT_BYTES_MAX < bytes.len() || 1 < *ends {
        return None;
    }
    Some(Input {
        ask: u64::from_le_bytes(*ask),
        run: std::str::from_utf8(run).ok()?.to_owned(),
        ends: *ends == 1,
        bytes: bytes.to_vec(),
    })
}

impl Frame {
    /// Appends the frame to what is to be sent.
    ///
    /// # Errors
    /// Where it is longer than [`FRAME_BYTES_MAX`], or an input with an id that is none;
    /// nothing is appended then.
    pub fn put(&self, out: &mut Vec<u8>) -> Result<(), BadFrame> {
        let start = out.len();
        out.extend_from_slice(&[0; HEAD_BYTES]);
        match self {
            Self::Message(json) => {
                out.push(MESSAGE);
                out.extend_from_slice(json);
            }
            Self::Input(input) => {
                if input.run.len() != RUN_BYTES || INPUT_BYTES_MAX < input.bytes.len() {
                    out.truncate(start);
                    return Err(BadFrame::Payload);
                }
                out.push(INPUT);
                out.extend_from_slice(&input.ask.to_le_bytes());
                out.extend_from_slice(input.run.as_bytes());
                out.push(u8::from(input.ends));
                out.extend_from_slice(&input.bytes);
            }
            Self::Output(packed) => {
                out.push(OUTPUT);
                out.extend_from_slice(packed);
            }
        }
        seal(out, start)
    }
}

/// Writes the length of a frame whose head begins at `start`; takes away one that is too long.
pub(super) fn seal(out: &mut Vec<u8>, start: usize) -> Result<(), BadFrame> {
    let length = out.len() - start - HEAD_BYTES;
    match u32::try_from(length) {
        Ok(n) if length <= FRAME_BYTES_MAX => {
            if let Some(head) = out.get_mut(start..start + HEAD_BYTES) {
                head.copy_from_slice(&n.to_le_bytes());
            }
            Ok(())
        }
        Ok(_) | Err(_) => {
            out.truncate(start);
            Err(BadFrame::Length(length))
        }
    }
}
