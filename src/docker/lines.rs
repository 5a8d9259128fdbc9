//! Splits a stream of JSON documents, one a line, at its line ends.

use bytes::{Buf as _, Bytes, BytesMut};

use super::error::Kind;

/// Bytes of the longest line.
pub(super) const LINE_BYTES_MAX: usize = 1 << 20;

/// Lines out of pieces that break anywhere.
#[derive(Debug, Default)]
pub(super) struct Lines {
    buffer: BytesMut,
    /// Bytes at the front in which there is no line end.
    searched: usize,
}

impl Lines {
    /// Adds a piece.
    pub(super) fn push(&mut self, piece: &[u8]) {
        self.buffer.extend_from_slice(piece);
    }

    /// Takes the next line that is not blank, without its end.
    pub(super) fn line(&mut self) -> Result<Option<Bytes>, Kind> {
        loop {
            let rest = self.buffer.get(self.searched..).unwrap_or_default();
            let Some(offset) = rest.iter().position(|byte| *byte == b'\n') else {
                self.searched = self.buffer.len();
                return if self.searched <= LINE_BYTES_MAX {
                    Ok(None)
                } else {
                    Err(too_long())
                };
            };
            let line = self.buffer.split_to(self.searched + offset).freeze();
            self.buffer.advance(1);
            self.searched = 0;
            if LINE_BYTES_MAX < line.len() {
                return Err(too_long());
            }
            if !line.trim_ascii().is_empty() {
                return Ok(Some(line));
            }
        }
    }

    /// Takes what follows the last line end, if it is not blank.
    pub(super) fn rest(&mut self) -> Option<Bytes> {
        self.searched = 0;
        let rest = self.buffer.split().freeze();
        (!rest.trim_ascii().is_empty()).then_some(rest)
    }
}

fn too_long() -> Kind {
    Kind::TooLarge {
        bound: LINE_BYTES_MAX,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(pieces: &[&[u8]]) -> Vec<String> {
        let mut lines = Lines::default();
        let mut seen = Vec::new();
        for piece in pieces {
            lines.push(piece);
            while let Some(line) = lines.line().unwrap() {
                seen.push(line);
            }
        }
        seen.extend(lines.rest());
        seen.iter()
            .map(|line| String::from_utf8_lossy(line).trim().to_owned())
            .collect()
    }

    proptest! {
        #[test]
        fn lines_split_at_any_byte_are_the_same(text in "([a-z{}]{0,8}(\r\n|\n)){0,6}[a-z]{0,3}") {
            let bytes = text.as_bytes();
            let expected: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
            for at in 0..=bytes.len() {
                let (head, tail) = bytes.split_at(at);
                prop_assert_eq!(lines(&[head, tail]), expected.clone());
            }
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            prop_assert_eq!(lines(&single), expected);
        }
    }

    #[test]
    fn a_line_without_end_is_refused_at_its_bound() {
        let mut lines = Lines::default();
        lines.push(&vec![b'x'; LINE_BYTES_MAX]);
        assert!(lines.line().unwrap().is_none());
        lines.push(b"x");
        assert!(matches!(lines.line(), Err(Kind::TooLarge { .. })));
    }
}
