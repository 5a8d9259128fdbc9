//! Keeps the output of a command, within its bounds.

use super::commands::{HEAD_BYTES_MAX, LARGE_OUTPUT_BYTES, Output};

/// Which stream a piece of output was written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// Output as it is kept.
#[derive(Debug)]
pub(super) struct Kept {
    output: Output,
    /// What is kept of each stream at most, once not all is wanted any more.
    heads: Option<usize>,
    out: Vec<u8>,
    err: Vec<u8>,
    written: u64,
    truncated: bool,
}

impl Kept {
    /// Keeps nothing yet.
    pub(super) fn new(output: Output) -> Self {
        Self {
            output,
            heads: None,
            out: Vec::new(),
            err: Vec::new(),
            written: 0,
            truncated: false,
        }
    }

    /// Takes a piece of output.
    pub(super) fn push(&mut self, stream: Stream, piece: &[u8]) {
        let bytes = u64::try_from(piece.len()).unwrap_or(u64::MAX);
        self.written = self.written.saturating_add(bytes);
        let (own, room) = match self.output {
            Output::Merged { first } => {
                let room = first.saturating_sub(self.out.len());
                (&mut self.out, room)
            }
            Output::Split { limit } => {
                let all = usize::try_from(limit).unwrap_or(usize::MAX);
                let held = self.out.len() + self.err.len();
                let own = match stream {
                    Stream::Out => &mut self.out,
                    Stream::Err => &mut self.err,
                };
                let room = match self.heads {
                    Some(head) => head.saturating_sub(own.len()),
                    None => all.saturating_sub(held),
                };
                (own, room)
            }
        };
        let fits = piece.get(..room.min(piece.len())).unwrap_or_default();
        own.extend_from_slice(fits);
        self.truncated |= fits.len() < piece.len();
    }

    /// Notes that some of it was lost on its way.
    pub(super) fn skip(&mut self) {
        self.truncated = true;
    }

    /// Whether the command wrote more than it may.
    pub(super) fn is_over(&self) -> bool {
        match self.output {
            Output::Merged { .. } => false,
            Output::Split { limit } => limit < self.written,
        }
    }

    /// Whether no more than the beginning of each stream is kept.
    pub(super) fn is_cut(&self) -> bool {
        self.heads.is_some()
    }

    /// Whether it is more than any command may have in memory.
    pub(super) fn is_large(&self) -> bool {
        LARGE_OUTPUT_BYTES < self.out.len() + self.err.len()
    }

    /// Keeps no more than the beginning of each stream from now on, as is shown of a
    /// command that was ended. A merged output has its own bound.
    pub(super) fn cut(&mut self) {
        match self.output {
            Output::Merged { .. } => {}
            Output::Split { .. } => {
                self.heads = Some(HEAD_BYTES_MAX);
                for own in [&mut self.out, &mut self.err] {
                    self.truncated |= HEAD_BYTES_MAX < own.len();
                    own.truncate(HEAD_BYTES_MAX);
                    own.shrink_to_fit();
                }
            }
        }
    }

    /// Returns both streams, and whether there was more.
    pub(super) fn into_parts(self) -> (Vec<u8>, Vec<u8>, bool) {
        (self.out, self.err, self.truncated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: usize = 100_000;

    #[test]
    fn exactly_the_bound_is_whole_and_one_byte_more_is_not() {
        let mut kept = Kept::new(Output::Merged { first: N });
        kept.push(Stream::Out, &vec![b'a'; N - 1]);
        kept.push(Stream::Err, b"a");
        assert!(!kept.truncated);
        kept.push(Stream::Out, b"b");
        assert!(!kept.is_over(), "it goes on to its end");
        assert_eq!(kept.into_parts(), (vec![b'a'; N], Vec::new(), true));
    }

    #[test]
    fn both_streams_count_towards_the_limit_and_stay_apart() {
        let mut kept = Kept::new(Output::Split { limit: 4 });
        kept.push(Stream::Out, b"ab");
        kept.push(Stream::Err, b"cd");
        assert!(!kept.is_over());
        kept.push(Stream::Out, b"e");
        assert!(kept.is_over());
        assert_eq!(kept.into_parts(), (b"ab".to_vec(), b"cd".to_vec(), true));
    }

    #[test]
    fn of_a_command_that_was_ended_the_beginning_of_each_stream_is_shown() {
        let mut kept = Kept::new(Output::Split { limit: 1 << 30 });
        kept.push(Stream::Out, &vec![b'o'; LARGE_OUTPUT_BYTES]);
        assert!(!kept.is_large());
        kept.push(Stream::Err, b"e");
        assert!(kept.is_large());
        kept.cut();
        assert!(!kept.is_large());
        kept.push(Stream::Out, b"more");
        kept.push(Stream::Err, &vec![b'e'; HEAD_BYTES_MAX]);
        let expected = (vec![b'o'; HEAD_BYTES_MAX], vec![b'e'; HEAD_BYTES_MAX], true);
        assert_eq!(kept.into_parts(), expected);
    }
}
