//! Decides what of a run's output is kept, and when the run has to wait.

use crate::protocol::message::Keep;
use crate::protocol::output::Stream;
use crate::ring::Ring;
use crate::text;

/// The output of a run.
#[derive(Debug)]
pub(crate) struct Tape {
    /// What is kept.
    pub(crate) ring: Ring,
    keep: Keep,
    /// Readers have come as far as this record.
    seen: u64,
    /// Bytes of the head that may still be kept, or that may still be written.
    left: Option<usize>,
    truncated: bool,
}

/// What became of a piece of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It is within the limit.
    Within,
    /// The run has written more than it may.
    Beyond,
}

impl Tape {
    /// Makes an empty one.
    pub(crate) fn new(keep: Keep) -> Self {
        let left = match keep {
            Keep::First(bytes) => Some(bytes),
            Keep::Newest { limit } | Keep::All { limit } => limit,
        };
        Self {
            ring: Ring::default(),
            keep,
            seen: 0,
            left: left.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
            truncated: false,
        }
    }

    /// Tells whether output was dropped that nobody had fetched.
    pub(crate) fn is_truncated(&self) -> bool {
        self.truncated
    }

    /// Takes what was written; it ends with no unfinished character, if it can.
    pub(crate) fn take(&mut self, stream: Stream, bytes: &[u8], ring_bytes: usize) -> Taken {
        let (keeps, beyond) = match self.left {
            Some(left) => text::split(bytes, left),
            None => (bytes, [].as_slice()),
        };
        if let Some(left) = &mut self.left {
            // What comes after a part that was dropped is dropped as well.
            *left = if beyond.is_empty() {
                *left - keeps.len()
            } else {
                0
            };
        }
        self.ring.push(stream, keeps);
        self.ring.skip(stream, beyond.len());
        self.truncated |= !beyond.is_empty();
        self.trim(ring_bytes);
        match self.keep {
            Keep::Newest { .. } | Keep::All { .. } if !beyond.is_empty() => Taken::Beyond,
            Keep::Newest { .. } | Keep::All { .. } | Keep::First(_) => Taken::Within,
        }
    }

    fn trim(&mut self, ring_bytes: usize) {
        match self.keep {
            Keep::First(_) => {}
            Keep::Newest { .. } => while ring_bytes < self.ring.cost() && self.drop_oldest() {},
            Keep::All { .. } => {
                while ring_bytes < self.ring.cost() && self.ring.first_seq() < self.seen {
                    self.ring.drop_first();
                }
            }
        }
    }

    /// Drops the oldest record, where the run's output may be dropped.
    pub(crate) fn drop_oldest(&mut self) -> bool {
        let is_news = self.seen <= self.ring.first_seq();
        let is_dropped = self.ring.drop_first();
        self.truncated |= is_dropped && is_news;
        is_dropped
    }

    /// Drops all that is kept.
    pub(crate) fn erase(&mut self) {
        self.truncated |= self.seen < self.ring.next_seq();
        self.ring.clear();
    }

    /// Tells whether what a live run has written may be dropped for the sake of others.
    pub(crate) fn is_droppable(&self) -> bool {
        match self.keep {
            Keep::First(_) => false,
            Keep::Newest { .. } => true,
            Keep::All { .. } => self.ring.first_seq() < self.seen,
        }
    }

    /// Marks that a reader has all records before this one.
    pub(crate) fn seen(&mut self, seq: u64) {
        self.seen = self.seen.max(seq.min(self.ring.next_seq()));
    }

    /// Returns how many bytes may be read from the run; nothing where it has to wait.
    pub(crate) fn room(&self, ring_bytes: usize) -> usize {
        match self.keep {
            Keep::First(_) | Keep::Newest { .. } => usize::MAX,
            Keep::All { .. } => {
                let unseen = self
                    .ring
                    .weigh(self.seen, crate::protocol::message::Filter::Both);
                ring_bytes.saturating_sub(unseen)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Taken, Tape};
    use crate::protocol::message::Keep;
    use crate::protocol::output::Stream;

    const RING: usize = 1000;

    #[test]
    fn the_head_is_kept_up_to_its_last_whole_character() {
        let mut tape = Tape::new(Keep::First(4));
        assert_eq!(tape.take(Stream::Out, b"ab", RING), Taken::Within);
        assert_eq!(tape.take(Stream::Err, "€c".as_bytes(), RING), Taken::Within);
        assert_eq!(tape.take(Stream::Out, b"d", RING), Taken::Within);
        assert_eq!((tape.ring.next_seq(), tape.is_truncated()), (1, true));
        assert_eq!(
            tape.ring.written(Stream::Out) + tape.ring.written(Stream::Err),
            7
        );
    }

    #[test]
    fn a_ring_drops_the_oldest_and_never_has_the_run_wait() {
        let mut tape = Tape::new(Keep::Newest { limit: None });
        for _ in 0..50 {
            assert_eq!(tape.take(Stream::Out, &[b'a'; 100], RING), Taken::Within);
        }
        assert!(tape.ring.cost() <= RING && tape.is_truncated());
        assert_eq!(tape.room(RING), usize::MAX);
    }

    #[test]
    fn output_beyond_the_limit_is_told_and_not_kept() {
        let mut tape = Tape::new(Keep::Newest { limit: Some(150) });
        assert_eq!(tape.take(Stream::Out, &[b'a'; 100], RING), Taken::Within);
        assert_eq!(tape.take(Stream::Err, &[b'a'; 50], RING), Taken::Within);
        assert_eq!(tape.take(Stream::Out, b"a", RING), Taken::Beyond);
        assert_eq!(tape.ring.next_seq(), 2);
    }

    #[test]
    fn a_run_whose_output_is_kept_whole_waits_until_it_was_fetched() {
        let mut tape = Tape::new(Keep::All { limit: None });
        while 0 < tape.room(RING) {
            tape.take(Stream::Out, &[b'a'; 100], RING);
        }
        let full = tape.ring.next_seq();
        assert_eq!(tape.ring.first_seq(), 0);
        tape.seen(full);
        assert!(0 < tape.room(RING));
        tape.take(Stream::Out, &[b'a'; 100], RING);
        assert!(0 < tape.ring.first_seq() && !tape.is_truncated());
    }
}
