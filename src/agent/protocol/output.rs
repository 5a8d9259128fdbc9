//! Packs a run's output: records in the order of their arrival, and its end.
//!
//! ```text
//! ask: u64 LE | flags: u8 | [first lost, next kept: u64 LE each] | count: u32 LE | records
//!   | [JSON of the run as it ended]
//! record: seq: u64 LE | stream: u8 | offset: u64 LE | length: u32 LE | bytes
//! ```

use bytes::{Buf as _, Bytes};

use super::frame::{BadFrame, FRAME_BYTES_MAX, HEAD_BYTES, OUTPUT, seal};

/// Flag of a payload that begins with a gap.
const GAP: u8 = 1;
/// Flag of a payload that ends with the run's end.
const END: u8 = 2;
/// Bytes of a record before its own.
pub const RECORD_HEAD_BYTES: usize = 21;
/// Bytes of output that one answer holds at most, heads of records included; what
/// remains of a frame is for the run's end.
pub const OUTPUT_BYTES_MAX: usize = FRAME_BYTES_MAX / 2;

/// Which stream a record was written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output; of a merged run and of a terminal, both.
    Out,
    /// Standard error.
    Err,
}

/// A piece of output as it arrived. A character of UTF-8 is not split between two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Counts a run's records from 0.
    pub seq: u64,
    /// The stream.
    pub stream: Stream,
    /// Bytes of that stream before this record.
    pub offset: u64,
    /// What was written; a part of the frame that it came in.
    pub bytes: Bytes,
}

/// Answers a `Fetch`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// The number of the request.
    pub ask: u64,
    /// Records that the ring has dropped: from the first number up to, not with, the second.
    pub gap: Option<(u64, u64)>,
    /// What is there, in order.
    pub records: Vec<Record>,
    /// JSON of a [`super::message::Run`] that has ended; nothing follows.
    pub end: Option<Vec<u8>>,
}

/// What is told of a record beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Counts a run's records from 0.
    pub seq: u64,
    /// The stream.
    pub stream: Stream,
    /// Bytes of that stream before this record.
    pub offset: u64,
}

/// Packs an answer, as a whole frame, straight into what is to be sent.
#[derive(Debug)]
pub struct Packer<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    count_at: usize,
    count: u32,
}

impl<'a> Packer<'a> {
    /// Begins the answer to a request.
    pub fn begin(out: &'a mut Vec<u8>, ask: u64, gap: Option<(u64, u64)>) -> Self {
        let start = out.len();
        out.extend_from_slice(&[0; HEAD_BYTES]);
        out.push(OUTPUT);
        out.extend_from_slice(&ask.to_le_bytes());
        out.push(gap.map_or(0, |_| GAP));
        if let Some((from, to)) = gap {
            out.extend_from_slice(&from.to_le_bytes());
            out.extend_from_slice(&to.to_le_bytes());
        }
        let count_at = out.len();
        out.extend_from_slice(&[0; 4]);
        Self {
            out,
            start,
            count_at,
            count: 0,
        }
    }

    /// Appends a record, whose bytes may lie in two pieces.
    pub fn record(&mut self, head: Head, pieces: [&[u8]; 2]) {
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        self.out.extend_from_slice(&head.seq.to_le_bytes());
        self.out.push(head.stream.code());
        self.out.extend_from_slice(&head.offset.to_le_bytes());
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        self.out.extend_from_slice(&length.to_le_bytes());
        for piece in pieces {
            self.out.extend_from_slice(piece);
        }
        self.count += 1;
    }

    /// Ends the answer, with the run's end where there is one.
    ///
    /// # Errors
    /// Where it is longer than a frame may be; nothing is appended then.
    pub fn finish(self, end: Option<&[u8]>) -> Result<(), BadFrame> {
        if let Some(count) = self.out.get_mut(self.count_at..self.count_at + 4) {
            count.copy_from_slice(&self.count.to_le_bytes());
        }
        if let Some(end) = end {
            self.out.extend_from_slice(end);
            if let Some(flags) = self.out.get_mut(self.start + HEAD_BYTES + 1 + 8) {
                *flags |= END;
            }
        }
        seal(self.out, self.start)
    }
}

impl Stream {
    fn code(self) -> u8 {
        match self {
            Self::Out => 1,
            Self::Err => 2,
        }
    }
}

impl Output {
    /// Packs it as the payload of a frame.
    pub fn pack(&self) -> Vec<u8> {
        let bytes: usize = self
            .records
            .iter()
            .map(|one| RECORD_HEAD_BYTES + one.bytes.len())
            .sum();
        let mut out = Vec::with_capacity(32 + bytes + self.end.as_ref().map_or(0, Vec::len));
        out.extend_from_slice(&self.ask.to_le_bytes());
        let gap = self.gap.map_or(0, |_| GAP);
        let end = self.end.as_ref().map_or(0, |_| END);
        out.push(gap | end);
        if let Some((from, to)) = self.gap {
            out.extend_from_slice(&from.to_le_bytes());
            out.extend_from_slice(&to.to_le_bytes());
        }
        out.extend_from_slice(
            &u32::try_from(self.records.len())
                .unwrap_or(u32::MAX)
                .to_le_bytes(),
        );
        for record in &self.records {
            out.extend_from_slice(&record.seq.to_le_bytes());
            out.push(record.stream.code());
            out.extend_from_slice(&record.offset.to_le_bytes());
            out.extend_from_slice(
                &u32::try_from(record.bytes.len())
                    .unwrap_or(u32::MAX)
                    .to_le_bytes(),
            );
            out.extend_from_slice(&record.bytes);
        }
        if let Some(end) = &self.end {
            out.extend_from_slice(end);
        }
        out
    }

    /// Unpacks the payload of a frame.
    pub fn unpack(mut payload: Bytes) -> Result<Self, BadFrame> {
        Self::read(&mut payload).ok_or(BadFrame::Payload)
    }

    fn read(rest: &mut Bytes) -> Option<Self> {
        let ask = rest.try_get_u64_le().ok()?;
        let flags = rest.try_get_u8().ok()?;
        if flags & !(GAP | END) != 0 {
            return None;
        }
        let gap = if flags & GAP == 0 {
            None
        } else {
            Some((rest.try_get_u64_le().ok()?, rest.try_get_u64_le().ok()?))
        };
        let count = rest.try_get_u32_le().ok()?;
        // Each has a head, so a false count ends the reading before it takes memory.
        let mut records = Vec::new();
        for _ in 0..count {
            records.push(Record::read(rest)?);
        }
        let end = if flags & END == 0 {
            rest.is_empty().then_some(())?;
            None
        } else {
            Some(rest.to_vec())
        };
        Some(Self {
            ask,
            gap,
            records,
            end,
        })
    }
}

impl Record {
    fn read(rest: &mut Bytes) -> Option<Self> {
        let seq = rest.try_get_u64_le().ok()?;
        let stream = match rest.try_get_u8().ok()? {
            1 => Stream::Out,
            2 => Stream::Err,
            _ => return None,
        };
        let offset = rest.try_get_u64_le().ok()?;
        let length = usize::try_from(rest.try_get_u32_le().ok()?).ok()?;
        if rest.len() < length {
            return None;
        }
        Some(Self {
            seq,
            stream,
            offset,
            bytes: rest.split_to(length),
        })
    }
}
