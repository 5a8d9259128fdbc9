//! Finds lines in bytes of UTF-8 that come in pieces, and counts all of them.

/// A count of lines under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Scan {
    offset: u64,
    limit: u64,
    /// The line that the next byte belongs to.
    line: u64,
    /// Whether that line has any.
    is_begun: bool,
    /// Whether the one before it ended with a CR: an LF still belongs to that.
    is_after_cr: bool,
}

impl Scan {
    /// Wants so many lines behind so many others.
    pub(super) fn new(offset: u64, limit: u64) -> Self {
        Self {
            offset,
            limit,
            line: 0,
            is_begun: false,
            is_after_cr: false,
        }
    }

    /// Takes a piece, and appends what is wanted of it; returns how many bytes were taken.
    ///
    /// The others, at most two, may begin the end of a line: they come again at the
    /// beginning of the next piece. With the last one all are taken.
    pub(super) fn take(&mut self, piece: &[u8], is_last: bool, wanted: &mut Vec<u8>) -> usize {
        let mut from = 0;
        if self.is_after_cr && !piece.is_empty() {
            self.is_after_cr = false;
            from += self.line_feed(piece, 0, wanted);
        }
        let mut search = from;
        while let Some(at) = position(piece, search) {
            match end_at(piece, at) {
                End::Unknown if !is_last => {
                    self.text(piece.get(from..at).unwrap_or_default(), wanted);
                    return at;
                }
                End::Unknown | End::None => search = at + 1,
                End::Of(length) => {
                    let end = at + length;
                    self.text(piece.get(from..end).unwrap_or_default(), wanted);
                    self.line += 1;
                    self.is_begun = false;
                    from = end;
                    if piece.get(at) == Some(&b'\r') {
                        if end == piece.len() {
                            self.is_after_cr = true;
                        } else {
                            from += self.line_feed(piece, end, wanted);
                        }
                    }
                    search = from;
                }
            }
        }
        self.text(piece.get(from..).unwrap_or_default(), wanted);
        piece.len()
    }

    /// Returns how many lines there were.
    pub(super) fn lines(&self) -> u64 {
        self.line + u64::from(self.is_begun)
    }

    /// Takes an LF that belongs to the line before.
    fn line_feed(&self, piece: &[u8], at: usize, wanted: &mut Vec<u8>) -> usize {
        if piece.get(at) != Some(&b'\n') {
            return 0;
        }
        if self.is_wanted(self.line - 1) {
            wanted.push(b'\n');
        }
        1
    }

    fn text(&mut self, text: &[u8], wanted: &mut Vec<u8>) {
        if !text.is_empty() {
            self.is_begun = true;
            if self.is_wanted(self.line) {
                wanted.extend_from_slice(text);
            }
        }
    }

    fn is_wanted(&self, line: u64) -> bool {
        let nth = line.checked_sub(self.offset);
        nth.is_some_and(|nth| nth < self.limit)
    }
}

/// Whether a line ends at a byte.
enum End {
    /// With so many bytes.
    Of(usize),
    None,
    /// More bytes are needed to tell.
    Unknown,
}

fn end_at(piece: &[u8], at: usize) -> End {
    match piece.get(at..).unwrap_or_default() {
        [0xc2, 0x85, ..] => End::Of(2),
        [0xe2, 0x80, 0xa8 | 0xa9, ..] => End::Of(3),
        [0xc2 | 0xe2] | [0xe2, 0x80] => End::Unknown,
        [0xc2 | 0xe2, ..] => End::None,
        _ => End::Of(1),
    }
}

/// Returns where the end of a line may begin.
fn position(piece: &[u8], from: usize) -> Option<usize> {
    let may_end = |byte: &u8| matches!(byte, 0x0a..=0x0d | 0x1c..=0x1e | 0xc2 | 0xe2);
    let rest = piece.get(from..)?;
    Some(from + rest.iter().position(may_end)?)
}

#[cfg(test)]
mod tests {
    use super::Scan;

    const TEXT: &[u8] =
        "a\r\nb\rc\n\n\u{85}d\u{2028}e\u{e9}\u{2029}f\x0bg\x0c\x1c\x1d\x1eh\r".as_bytes();
    const LINES: &[&str] = &[
        "a\r\n",
        "b\r",
        "c\n",
        "\n",
        "\u{85}",
        "d\u{2028}",
        "e\u{e9}\u{2029}",
        "f\x0b",
        "g\x0c",
        "\x1c",
        "\x1d",
        "\x1e",
        "h\r",
    ];

    fn scan(text: &[u8], cuts: &[usize], offset: u64, limit: u64) -> (Vec<u8>, u64) {
        let (mut scan, mut wanted) = (Scan::new(offset, limit), Vec::new());
        let (mut from, mut rest) = (0, Vec::new());
        for cut in cuts.iter().chain([&text.len()]) {
            rest.extend_from_slice(&text[from..*cut]);
            from = *cut;
            let taken = scan.take(&rest, false, &mut wanted);
            rest.drain(..taken);
            assert!(rest.len() <= 2);
        }
        scan.take(&rest, true, &mut wanted);
        (wanted, scan.lines())
    }

    #[test]
    fn lines_are_the_same_however_their_bytes_arrive() {
        let whole = LINES.len().try_into().unwrap();
        for offset in 0..LINES.len() {
            for limit in 0..=LINES.len() - offset {
                let expected = LINES[offset..offset + limit].concat().into_bytes();
                let (offset, limit) = (offset.try_into().unwrap(), limit.try_into().unwrap());
                for first in 0..=TEXT.len() {
                    for second in first..=TEXT.len() {
                        let got = scan(TEXT, &[first, second], offset, limit);
                        assert_eq!(got, (expected.clone(), whole), "{first} {second}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_last_line_needs_no_end_and_bytes_that_begin_one_may_be_its_last() {
        for (text, lines) in [
            (&b""[..], 0),
            (b"a", 1),
            (b"a\nb", 2),
            (b"a\xe2\x80", 1),
            (b"a\xc2", 1),
            (b"\xe2\x80\xa8", 1),
            (b"\xe2\x80\n", 1),
        ] {
            let (wanted, found) = scan(text, &[], 0, u64::MAX);
            assert_eq!((wanted.as_slice(), found), (text, lines));
        }
    }
}
