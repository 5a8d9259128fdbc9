//! Keeps records of output in the order of their arrival, and gives them away by number.

use std::collections::VecDeque;

use crate::protocol::message::{Filter, From};
use crate::protocol::output::{Head, Packer, RECORD_HEAD_BYTES, Stream};
use crate::text;

/// Bytes of one record.
pub(crate) const RECORD_BYTES_MAX: usize = 32 << 10;

/// Records, without a bound of its own.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    bytes: VecDeque<u8>,
    heads: VecDeque<Kept>,
    first_seq: u64,
    /// Bytes that were ever kept: the position of the next record.
    position: u64,
    out_bytes: u64,
    err_bytes: u64,
}

/// A record without its bytes.
#[derive(Clone, Copy, Debug)]
struct Kept {
    stream: Stream,
    offset: u64,
    position: u64,
    length: usize,
}

/// Where an answer begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// The first record.
    pub(crate) seq: u64,
    /// What was wanted and is not kept any more.
    pub(crate) gap: Option<(u64, u64)>,
    /// Bytes of the stream before this one are left out.
    offset: u64,
}

impl Ring {
    /// Returns the bytes of memory that it stands for.
    pub(crate) fn cost(&self) -> usize {
        self.bytes.len() + self.heads.len() * size_of::<Kept>()
    }

    /// Returns the number of the first record that is kept.
    pub(crate) fn first_seq(&self) -> u64 {
        self.first_seq
    }

    /// Returns the number of the record that comes next.
    pub(crate) fn next_seq(&self) -> u64 {
        self.first_seq + count(self.heads.len())
    }

    /// Returns how many bytes were written to a stream, kept or not.
    pub(crate) fn written(&self, stream: Stream) -> u64 {
        match stream {
            Stream::Out => self.out_bytes,
            Stream::Err => self.err_bytes,
        }
    }

    /// Keeps what was written, in records that split no character.
    pub(crate) fn push(&mut self, stream: Stream, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let (record, after) = text::split(rest, RECORD_BYTES_MAX);
            self.heads.push_back(Kept {
                stream,
                offset: self.written(stream),
                position: self.position,
                length: record.len(),
            });
            self.bytes.extend(record);
            self.position += count(record.len());
            self.skip(stream, record.len());
            rest = after;
        }
    }

    /// Counts what was written and is not kept.
    pub(crate) fn skip(&mut self, stream: Stream, bytes: usize) {
        match stream {
            Stream::Out => self.out_bytes += count(bytes),
            Stream::Err => self.err_bytes += count(bytes),
        }
    }

    /// Drops the oldest record; `false` where there is none.
    pub(crate) fn drop_first(&mut self) -> bool {
        let Some(head) = self.heads.pop_front() else {
            return false;
        };
        self.bytes.drain(..head.length);
        self.first_seq += 1;
        true
    }

    /// Drops everything, and the memory with it; the numbers go on.
    pub(crate) fn clear(&mut self) {
        self.first_seq = self.next_seq();
        self.heads = VecDeque::new();
        self.bytes = VecDeque::new();
    }

    /// Finds where an answer begins.
    pub(crate) fn cursor(&self, from: From, filter: Filter) -> Cursor {
        match (from, stream_of(filter)) {
            (From::Seq(seq), _) | (From::Offset(seq), None) => Cursor {
                seq: seq.clamp(self.first_seq, self.next_seq()),
                gap: (seq < self.first_seq).then_some((seq, self.first_seq)),
                offset: 0,
            },
            (From::Offset(offset), Some(stream)) => self.cursor_at(stream, offset),
        }
    }

    fn cursor_at(&self, stream: Stream, offset: u64) -> Cursor {
        let holds = |one: &Kept| one.stream == stream && offset < one.offset + count(one.length);
        let found = self.heads.iter().position(holds);
        let seq = found.map_or(self.next_seq(), |index| self.first_seq + count(index));
        let is_lost = match found.and_then(|index| self.heads.get(index)) {
            Some(head) => offset < head.offset,
            None => offset < self.written(stream),
        };
        Cursor {
            seq,
            gap: is_lost.then_some((0, seq)),
            offset,
        }
    }

    /// Returns what the records from one number on would take in an answer.
    pub(crate) fn weigh(&self, from: u64, filter: Filter) -> usize {
        self.heads
            .iter()
            .skip(self.index(from))
            .filter(|head| admits(filter, head.stream))
            .map(|head| RECORD_HEAD_BYTES + head.length)
            .sum()
    }

    /// Packs records from the cursor on, at least one and else at most so many bytes;
    /// returns the number of the record after them.
    pub(crate) fn pack(
        &self,
        cursor: Cursor,
        filter: Filter,
        bytes_max: usize,
        packer: &mut Packer<'_>,
    ) -> u64 {
        let mut seq = cursor.seq;
        let mut packed = 0;
        for head in self.heads.iter().skip(self.index(cursor.seq)) {
            if admits(filter, head.stream) {
                let costs = RECORD_HEAD_BYTES + head.length;
                if 0 < packed && bytes_max < packed + costs {
                    break;
                }
                self.pack_one(seq, *head, cursor.offset, packer);
                packed += costs;
            }
            seq += 1;
        }
        seq
    }

    fn pack_one(&self, seq: u64, head: Kept, offset: u64, packer: &mut Packer<'_>) {
        let cut = usize::try_from(offset.saturating_sub(head.offset)).unwrap_or(usize::MAX);
        let cut = cut.min(head.length);
        let first = self.position - count(self.bytes.len());
        let start = usize::try_from(head.position - first).unwrap_or(usize::MAX);
        let pieces = pieces(&self.bytes, start + cut, head.length - cut);
        let told = Head {
            seq,
            stream: head.stream,
            offset: head.offset + count(cut),
        };
        packer.record(told, pieces);
    }

    fn index(&self, seq: u64) -> usize {
        usize::try_from(seq.saturating_sub(self.first_seq)).unwrap_or(usize::MAX)
    }
}

fn pieces(bytes: &VecDeque<u8>, start: usize, length: usize) -> [&[u8]; 2] {
    let (left, right) = bytes.as_slices();
    let end = start + length;
    let of_left = left.get(start.min(left.len())..end.min(left.len()));
    let start = start.saturating_sub(left.len());
    let end = end.saturating_sub(left.len());
    [
        of_left.unwrap_or_default(),
        right.get(start..end).unwrap_or_default(),
    ]
}

fn admits(filter: Filter, stream: Stream) -> bool {
    stream_of(filter).is_none_or(|wanted| wanted == stream)
}

fn stream_of(filter: Filter) -> Option<Stream> {
    match filter {
        Filter::Both => None,
        Filter::Out => Some(Stream::Out),
        Filter::Err => Some(Stream::Err),
    }
}

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{RECORD_BYTES_MAX, Ring, count};
    use crate::protocol::message::{Filter, From};
    use crate::protocol::output::{Output, Packer, Record, Stream};

    fn packed(ring: &Ring, from: From, filter: Filter, bytes_max: usize) -> Output {
        let cursor = ring.cursor(from, filter);
        let mut out = Vec::new();
        let mut packer = Packer::begin(&mut out, 7, cursor.gap);
        ring.pack(cursor, filter, bytes_max, &mut packer);
        packer.finish(None).unwrap();
        Output::unpack(Bytes::copy_from_slice(&out[5..])).unwrap()
    }

    fn text(records: &[Record]) -> String {
        let bytes = records.iter().flat_map(|one| one.bytes.to_vec()).collect();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn records_come_back_in_order_with_their_numbers_and_offsets() {
        let mut ring = Ring::default();
        ring.push(Stream::Out, b"one");
        ring.push(Stream::Err, b"bad");
        ring.push(Stream::Out, b"two");
        let all = packed(&ring, From::Seq(0), Filter::Both, 1 << 20);
        assert_eq!(text(&all.records), "onebadtwo");
        let heads: Vec<_> = all
            .records
            .iter()
            .map(|one| (one.seq, one.offset))
            .collect();
        assert_eq!(heads, [(0, 0), (1, 0), (2, 3)]);
        let err = packed(&ring, From::Seq(0), Filter::Err, 1 << 20);
        assert_eq!(text(&err.records), "bad");
    }

    #[test]
    fn what_was_dropped_is_told_as_a_gap() {
        let mut ring = Ring::default();
        for _ in 0..5 {
            ring.push(Stream::Out, b"abc");
        }
        assert!(ring.drop_first() && ring.drop_first());
        let late = packed(&ring, From::Seq(0), Filter::Both, 1 << 20);
        assert_eq!((late.gap, late.records[0].seq), (Some((0, 2)), 2));
        let at = packed(&ring, From::Offset(1), Filter::Out, 1 << 20);
        assert_eq!((at.gap, at.records[0].offset), (Some((0, 2)), 6));
        ring.clear();
        assert_eq!((ring.first_seq(), ring.next_seq(), ring.cost()), (5, 5, 0));
    }

    #[test]
    fn an_offset_within_a_record_cuts_it() {
        let mut ring = Ring::default();
        ring.push(Stream::Out, b"abc");
        ring.push(Stream::Out, b"def");
        let at = packed(&ring, From::Offset(4), Filter::Out, 1 << 20);
        assert_eq!(
            (text(&at.records).as_str(), at.records[0].offset),
            ("ef", 4)
        );
        let end = packed(&ring, From::Offset(6), Filter::Out, 1 << 20);
        assert_eq!((end.records.len(), end.gap), (0, None));
    }

    #[test]
    fn long_output_is_cut_between_characters_and_comes_in_answers_of_the_size_asked_for() {
        let mut ring = Ring::default();
        let long = "€".repeat(100_000);
        ring.push(Stream::Out, long.as_bytes());
        let (mut seq, mut joined) = (0, String::new());
        while seq < ring.next_seq() {
            let some = packed(&ring, From::Seq(seq), Filter::Both, 70_000);
            assert!(
                some.records
                    .iter()
                    .all(|one| one.bytes.len() <= RECORD_BYTES_MAX)
            );
            assert_eq!(
                some.records.len(),
                if ring.next_seq() - seq == 1 { 1 } else { 2 }
            );
            seq += count(some.records.len());
            joined += &text(&some.records);
        }
        assert_eq!(joined, long);
    }

    #[test]
    fn a_ring_that_wraps_gives_whole_records() {
        let mut ring = Ring::default();
        for n in 0..1000_u32 {
            ring.push(Stream::Out, format!("record {n} ").repeat(10).as_bytes());
            while 3000 < ring.cost() {
                ring.drop_first();
            }
            let last = packed(&ring, From::Seq(u64::from(n)), Filter::Both, 1);
            assert_eq!(text(&last.records), format!("record {n} ").repeat(10));
        }
    }
}
