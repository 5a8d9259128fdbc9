//! Cuts a stream of bytes into frames, and makes frames of what is to be sent.
//!
//! ```text
//! length: u32 LE (of what follows) | kind: u8 | payload
//! ```

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
    Message(Vec<u8>),
    /// Bytes for a run's standard input.
    Input(Input),
    /// An answer of bytes: a [`super::output::Output`], still packed.
    Output(Vec<u8>),
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

/// Cuts bytes into frames, however they arrive.
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: Vec<u8>,
    read: usize,
}

impl Decoder {
    /// Takes what has arrived.
    ///
    /// No more than what one read gave: what is kept is bounded by a frame and that.
    pub fn push(&mut self, piece: &[u8]) {
        if self.read == self.bytes.len() {
            self.bytes.clear();
            self.read = 0;
        } else if piece.len() < self.read {
            self.bytes.drain(..self.read);
            self.read = 0;
        }
        self.bytes.reserve(piece.len().max(self.missing()));
        self.bytes.extend_from_slice(piece);
    }

    /// Bytes that are missing of the frame that has begun, as far as its head is there;
    /// a large one is then not copied each time that it grows.
    fn missing(&self) -> usize {
        let rest = self.bytes.get(self.read..).unwrap_or_default();
        let Some((head, rest)) = rest.split_first_chunk::<HEAD_BYTES>() else {
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
        self.next_as(parse)
    }

    /// Returns what the kind and the payload of the next whole frame stand for, if it is
    /// there, on a stream whose frames have other kinds than a [`Frame`].
    pub fn next_as<T>(
        &mut self,
        parse: impl FnOnce(&[u8]) -> Result<T, BadFrame>,
    ) -> Result<Option<T>, BadFrame> {
        let rest = self.bytes.get(self.read..).unwrap_or_default();
        let Some((head, rest)) = rest.split_first_chunk::<HEAD_BYTES>() else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_le_bytes(*head)).unwrap_or(usize::MAX);
        if length == 0 || FRAME_BYTES_MAX < length {
            return Err(BadFrame::Length(length));
        }
        let Some(body) = rest.get(..length) else {
            return Ok(None);
        };
        let frame = parse(body)?;
        self.read += HEAD_BYTES + length;
        if self.read == self.bytes.len() && FRAME_BYTES_MAX / 8 < self.bytes.capacity() {
            // A large frame is rare: its memory is not kept for the next.
            *self = Self::default();
        }
        Ok(Some(frame))
    }
}

fn parse(body: &[u8]) -> Result<Frame, BadFrame> {
    let (kind, payload) = body.split_first().ok_or(BadFrame::Length(0))?;
    match *kind {
        MESSAGE => Ok(Frame::Message(payload.to_vec())),
        INPUT => input(payload).map(Frame::Input).ok_or(BadFrame::Payload),
        OUTPUT => Ok(Frame::Output(payload.to_vec())),
        kind => Err(BadFrame::Kind(kind)),
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
