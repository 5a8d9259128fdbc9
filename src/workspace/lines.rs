//! Cuts lines out of a file of any size with a bounded memory.
//!
//! A file is decoded and cut piece by piece. Nothing is kept of it but the lines that
//! were asked for; those behind them are counted.

use encoding_rs::{CoderResult, Decoder, UTF_8};

use super::beneath::Opened;
use super::read::CHUNK_BYTES_MAX;
use super::refused::FileError;
use super::text::{Decoding, Family, Sample};

/// Bytes from the beginning by which text and its encoding are told.
pub const SAMPLE_BYTES_MAX: usize = 1024 * 1024;

/// The lines that are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first; they are counted from zero.
    pub offset: u64,
    /// How many at most.
    pub limit: u64,
}

/// What cutting lines may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of the text that is returned.
    pub text_bytes_max: u64,
    /// Bytes of the file that are read.
    pub scan_bytes_max: u64,
}

/// Lines of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Slice {
    /// They begin within the file.
    Lines {
        /// The lines with line feeds between them.
        text: String,
        /// What comes behind them.
        behind: Behind,
    },
    /// The file has no line so far down.
    PastEnd,
}

/// What comes behind lines that were cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// Nothing.
    Nothing,
    /// So many more lines.
    Lines(u64),
    /// More than was read; so many lines at least.
    AtLeast(u64),
}

impl Opened {
    /// Decodes the file and cuts lines out of it.
    ///
    /// Lines end as Python's `splitlines` has it: with LF, CR, CR LF, VT, FF, FS, GS, RS,
    /// NEL, U+2028 or U+2029; an ending at the end of the file begins no further line.
    ///
    /// # Errors
    /// It is no text; or the lines have too many bytes, or lie too far down.
    pub fn lines(
        &self,
        window: Window,
        family: Family,
        bounds: Bounds,
    ) -> Result<Slice, FileError> {
        let head = self.read_range(0, SAMPLE_BYTES_MAX)?;
        let mut cutter = Cutter::begin(&head, window, family, bounds)?;
        drop(head);
        let end = self.scan(bounds.scan_bytes_max, &mut cutter)?;
        cutter.finish(end)
    }

    /// Decodes the file from its beginning, as far as allowed.
    fn scan(&self, bytes_max: u64, cutter: &mut Cutter) -> Result<End, FileError> {
        let mut buffer = vec![0; CHUNK_BYTES_MAX];
        let mark = cutter.mark_bytes();
        let mut chunks = self.chunks(mark, bytes_max.saturating_add(mark));
        loop {
            let n_read = chunks.fill(&mut buffer)?;
            if n_read == 0 {
                break;
            }
            cutter.take(buffer.get(..n_read).unwrap_or_default())?;
        }
        if chunks.is_at_bound()
            && !self
                .read_range(bytes_max.saturating_add(mark), 1)?
                .is_empty()
        {
            return Ok(End::Bound);
        }
        Ok(End::OfFile)
    }
}

/// Cuts lines out of a file whose bytes come in pieces.
#[derive(Debug)]
pub struct Cutter {
    decoding: Decoding,
    decoder: Decoder,
    text: String,
    cut: Cut,
    bounds: Bounds,
}

impl Cutter {
    /// Begins with the first [`SAMPLE_BYTES_MAX`] bytes of a file, or with all that it has,
    /// which say what encoding it is in and are to be taken again.
    ///
    /// # Errors
    /// It is no text.
    pub fn begin(
        head: &[u8],
        window: Window,
        family: Family,
        bounds: Bounds,
    ) -> Result<Self, FileError> {
        let sample = if head.len() < SAMPLE_BYTES_MAX {
            Sample::Whole
        } else {
            Sample::Head
        };
        let decoding = Decoding::find(head, sample, family)?;
        Ok(Self {
            decoding,
            decoder: decoding.encoding.new_decoder_without_bom_handling(),
            text: String::with_capacity(CHUNK_BYTES_MAX),
            cut: Cut::new(window, bounds.text_bytes_max),
            bounds,
        })
    }

    /// Returns how many bytes at the beginning only name the encoding, and are not taken.
    pub fn mark_bytes(&self) -> u64 {
        u64::try_from(self.decoding.mark_bytes).unwrap_or(0)
    }

    /// Returns whether the file is in UTF-8, whose lines can be told by its bytes.
    pub fn is_utf8(&self) -> bool {
        self.decoding.encoding == UTF_8
    }

    /// Passes over the lines before those that are wanted: somebody else has counted them.
    pub fn skip(&mut self) {
        self.cut.line = self.cut.window.offset;
    }

    /// Takes the next piece.
    ///
    /// # Errors
    /// The lines have too many bytes.
    pub fn take(&mut self, piece: &[u8]) -> Result<(), FileError> {
        if piece.is_empty() {
            // To the decoder that would be the end.
            return Ok(());
        }
        feed(&mut self.decoder, piece, &mut self.text, &mut self.cut)
    }

    fn end(&mut self) -> Result<(), FileError> {
        feed(&mut self.decoder, &[], &mut self.text, &mut self.cut)
    }

    /// Returns the lines, where all was taken to that end.
    ///
    /// # Errors
    /// They have too many bytes, or lie too far down.
    pub fn finish(mut self, end: End) -> Result<Slice, FileError> {
        self.end()?;
        let n_lines = self.cut.lines();
        self.cut.slice(n_lines, end, self.bounds)
    }

    /// Returns the lines, where the wanted ones were taken, and somebody else has counted
    /// those of the file to that end.
    ///
    /// # Errors
    /// They have too many bytes, or lie too far down.
    pub fn finish_counted(mut self, n_lines: u64, end: End) -> Result<Slice, FileError> {
        self.end()?;
        self.cut.slice(n_lines, end, self.bounds)
    }
}

/// Cuts lines out of the bytes of a whole file, as [`Opened::lines`] does.
pub fn lines_of(
    bytes: &[u8],
    window: Window,
    family: Family,
    bounds: Bounds,
) -> Result<Slice, FileError> {
    let decoding = Decoding::find(bytes, Sample::Whole, family)?;
    let mut cut = Cut::new(window, bounds.text_bytes_max);
    cut.take(&decoding.decode(bytes))?;
    let n_lines = cut.lines();
    cut.slice(n_lines, End::OfFile, bounds)
}

/// Decodes a piece; an empty one is the last.
fn feed(
    decoder: &mut Decoder,
    chunk: &[u8],
    text: &mut String,
    cut: &mut Cut,
) -> Result<(), FileError> {
    let mut rest = chunk;
    loop {
        let (result, n_read, _) = decoder.decode_to_string(rest, text, chunk.is_empty());
        rest = rest.get(n_read..).unwrap_or_default();
        cut.take(text)?;
        text.clear();
        match result {
            CoderResult::InputEmpty => return Ok(()),
            CoderResult::OutputFull => {}
        }
    }
}

/// Where the reading of a file ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// At its end.
    OfFile,
    /// At a bound: there is more.
    Bound,
}

/// A cut through a text that comes in pieces.
#[derive(Debug)]
struct Cut {
    window: Window,
    text_bytes_max: u64,
    /// The line that the next character belongs to.
    line: u64,
    /// What that line has so far.
    progress: Progress,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// Nothing.
    None,
    /// Nothing, and the one before it ended with a CR: an LF still belongs to that.
    AfterCr,
    /// Some text.
    Begun,
}

impl Cut {
    fn new(window: Window, text_bytes_max: u64) -> Self {
        Self {
            window,
            text_bytes_max,
            line: 0,
            progress: Progress::None,
            text: String::new(),
        }
    }

    /// Takes the next piece.
    fn take(&mut self, piece: &str) -> Result<(), FileError> {
        let mut rest = piece;
        if self.progress == Progress::AfterCr && !rest.is_empty() {
            rest = rest.strip_prefix('\n').unwrap_or(rest);
            self.progress = Progress::None;
        }
        while !rest.is_empty() {
            let Some((text, ending, after)) = split_line(rest) else {
                return self.extend(rest);
            };
            self.extend(text)?;
            self.end_line()?;
            rest = after;
            if ending == "\r" {
                match rest.strip_prefix('\n') {
                    Some(after) => rest = after,
                    None if rest.is_empty() => self.progress = Progress::AfterCr,
                    None => {}
                }
            }
        }
        Ok(())
    }

    fn is_wanted(&self) -> bool {
        self.line
            .checked_sub(self.window.offset)
            .is_some_and(|nth| nth < self.window.limit)
    }

    fn extend(&mut self, text: &str) -> Result<(), FileError> {
        if text.is_empty() {
            return Ok(());
        }
        if self.is_wanted() {
            self.begin_line()?;
            self.push(text)?;
        }
        self.progress = Progress::Begun;
        Ok(())
    }

    fn end_line(&mut self) -> Result<(), FileError> {
        if self.is_wanted() {
            self.begin_line()?;
        }
        self.line += 1;
        self.progress = Progress::None;
        Ok(())
    }

    fn begin_line(&mut self) -> Result<(), FileError> {
        match self.progress {
            Progress::None | Progress::AfterCr if self.window.offset < self.line => self.push("\n"),
            Progress::None | Progress::AfterCr | Progress::Begun => Ok(()),
        }
    }

    fn push(&mut self, text: &str) -> Result<(), FileError> {
        let bytes = u64::try_from(self.text.len() + text.len()).unwrap_or(u64::MAX);
        if self.text_bytes_max < bytes {
            return Err(FileError::TooLarge {
                bytes,
                limit: self.text_bytes_max,
            });
        }
        self.text.push_str(text);
        Ok(())
    }

    fn lines(&self) -> u64 {
        match self.progress {
            Progress::Begun => self.line + 1,
            Progress::None | Progress::AfterCr => self.line,
        }
    }

    fn slice(self, n_lines: u64, end: End, bounds: Bounds) -> Result<Slice, FileError> {
        let Window { offset, limit } = self.window;
        let behind = n_lines.saturating_sub(offset.saturating_add(limit));
        match end {
            End::OfFile if n_lines <= offset => Ok(Slice::PastEnd),
            End::Bound if n_lines <= offset.saturating_add(limit) => Err(FileError::TooLarge {
                bytes: bounds.scan_bytes_max.saturating_add(1),
                limit: bounds.scan_bytes_max,
            }),
            End::OfFile | End::Bound => Ok(Slice::Lines {
                text: self.text,
                behind: match (end, behind) {
                    (End::OfFile, 0) => Behind::Nothing,
                    (End::OfFile, behind) => Behind::Lines(behind),
                    (End::Bound, behind) => Behind::AtLeast(behind),
                },
            }),
        }
    }
}

/// Splits a text at its first line ending; nothing where it has none.
fn split_line(text: &str) -> Option<(&str, &str, &str)> {
    let mut from = 0;
    loop {
        let rest = text.as_bytes().get(from..)?;
        let at = from + rest.iter().position(|byte| may_end_line(*byte))?;
        let after = text.as_bytes().get(at..)?;
        let length = match after {
            [0xc2, 0x85, ..] => 2,
            [0xe2, 0x80, 0xa8 | 0xa9, ..] => 3,
            [0xc2 | 0xe2, ..] => 0,
            _ => 1,
        };
        if length != 0 {
            let (text, rest) = text.split_at(at);
            let (ending, rest) = rest.split_at(length);
            return Some((text, ending, rest));
        }
        from = at + 1;
    }
}

/// Returns whether a line ending begins with this byte.
fn may_end_line(byte: u8) -> bool {
    matches!(byte, 0x0a..=0x0d | 0x1c..=0x1e | 0xc2 | 0xe2)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::super::beneath::Meta;
    use super::*;

    const FREE: Bounds = Bounds {
        text_bytes_max: u64::MAX,
        scan_bytes_max: u64::MAX,
    };

    fn opened(bytes: &[u8]) -> Opened {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        of(file)
    }

    fn of(file: File) -> Opened {
        let meta = Meta::of(&rustix::fs::fstat(&file).unwrap());
        Opened { file, meta }
    }

    fn cut(bytes: &[u8], offset: u64, limit: u64) -> Slice {
        let window = Window { offset, limit };
        opened(bytes).lines(window, Family::Text, FREE).unwrap()
    }

    fn lines(text: &str, behind: Behind) -> Slice {
        let text = text.to_owned();
        Slice::Lines { text, behind }
    }

    /// What Python's `splitlines` does, written for reading.
    fn model(text: &str) -> Vec<String> {
        let mut lines = vec![String::new()];
        let mut chars = text.chars().peekable();
        while let Some(char) = chars.next() {
            match char {
                '\r' => {
                    chars.next_if_eq(&'\n');
                    lines.push(String::new());
                }
                '\n' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}' => {
                    lines.push(String::new());
                }
                other => lines.last_mut().unwrap().push(other),
            }
        }
        lines.pop_if(|last| last.is_empty());
        lines
    }

    #[test]
    fn lines_are_cut_as_the_contract_has_it() {
        let ten: Vec<_> = (0..10).map(|n| format!("l{n}\n")).collect();
        let ten = ten.concat();
        let slice = cut(ten.as_bytes(), 2, 3);
        assert_eq!(slice, lines("l2\nl3\nl4", Behind::Lines(5)));
        assert_eq!(
            cut(ten.as_bytes(), 7, 3),
            lines("l7\nl8\nl9", Behind::Nothing)
        );
        assert_eq!(
            cut(ten.as_bytes(), 9, u64::MAX),
            lines("l9", Behind::Nothing)
        );
        assert_eq!(cut(ten.as_bytes(), 10, 3), Slice::PastEnd);
        assert_eq!(cut(ten.as_bytes(), 4, 0), lines("", Behind::Lines(6)));
        assert_eq!(cut(b"", 0, 9), Slice::PastEnd);
        assert_eq!(cut(b"\n", 0, 9), lines("", Behind::Nothing));
        assert_eq!(cut(b"a\r\n\r\nb", 0, 9), lines("a\n\nb", Behind::Nothing));
        let utf16 = b"\xff\xfea\0\x28\x20b\0";
        assert_eq!(cut(utf16, 0, 9), lines("a\nb", Behind::Nothing));
        assert_eq!(cut(b"\xef\xbb\xbfa", 0, 9), lines("a", Behind::Nothing));
        assert_eq!(
            cut(b"caf\xe9\x85", 0, 9),
            lines("caf\u{e9}\u{2026}", Behind::Nothing)
        );
    }

    #[test]
    fn what_is_returned_and_what_is_read_have_bounds() {
        let text = opened(&b"123456789\n".repeat(100));
        let cut = |offset, limit, text_bytes_max, scan_bytes_max| {
            let bounds = Bounds {
                text_bytes_max,
                scan_bytes_max,
            };
            text.lines(Window { offset, limit }, Family::Text, bounds)
        };
        assert!(cut(50, 2, 19, 1_000).is_ok());
        assert!(matches!(
            cut(50, 2, 18, 1_000),
            Err(FileError::TooLarge { limit: 18, .. })
        ));
        assert!(matches!(
            cut(50, 2, 19, 515),
            Err(FileError::TooLarge { limit: 515, .. })
        ));
        let found = cut(50, 2, 19, 600).unwrap();
        assert_eq!(found, lines("123456789\n123456789", Behind::AtLeast(8)));
    }

    #[test]
    fn a_line_of_any_length_is_passed_over_and_not_kept() {
        let mut bytes = vec![b'x'; 5 << 20];
        bytes.extend_from_slice(b"\nshort");
        let bounds = Bounds {
            text_bytes_max: 100,
            scan_bytes_max: u64::MAX,
        };
        let window = Window {
            offset: 1,
            limit: 1,
        };
        let found = opened(&bytes).lines(window, Family::Text, bounds).unwrap();
        assert_eq!(found, lines("short", Behind::Nothing));
    }

    /// The law of 2 GiB, by hand: `cargo test --release -- --ignored ten_lines`.
    #[test]
    #[ignore = "it writes 2 GiB"]
    fn ten_lines_of_two_gibibytes_cost_a_few_mebibytes() {
        let mut file = tempfile::tempfile().unwrap();
        let block: Vec<_> = (0..1_024).map(|n| format!("{n:01023}\n")).collect();
        let block = block.concat();
        for _ in 0..2_048 {
            file.write_all(block.as_bytes()).unwrap();
        }
        let peak = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status
                .lines()
                .find(|line| line.starts_with("VmHWM:"))
                .unwrap();
            line.split_whitespace()
                .nth(1)
                .unwrap()
                .parse::<u64>()
                .unwrap()
        };
        let before = peak();
        let window = Window {
            offset: 1_000_000,
            limit: 10,
        };
        let found = of(file).lines(window, Family::Text, FREE).unwrap();
        let grown = peak() - before;
        match found {
            Slice::Lines { text, behind } => {
                assert_eq!(behind, Behind::Lines(2_048 * 1_024 - 1_000_010));
                assert!(text.starts_with(&format!("{:01023}\n", 1_000_000 % 1_024)));
                assert_eq!(text.lines().count(), 10);
            }
            Slice::PastEnd => panic!("there are two million lines"),
        }
        assert!(grown < 32 * 1_024, "{grown} KiB");
    }

    fn text() -> impl Strategy<Value = String> {
        let char = proptest::sample::select(
            "ab\n\r\x0b\x0c\x1c\x1d\x1e\x1f\u{85}\u{2028}\u{2029}\u{2027}\u{a0}\u{e9}\u{1f600}"
                .chars()
                .collect::<Vec<_>>(),
        );
        proptest::collection::vec(char, 0..40).prop_map(|chars| chars.into_iter().collect())
    }

    proptest! {
        #[test]
        fn slices_are_those_of_the_model(text in text(), offset in 0u64..12, limit in 0u64..12) {
            let all = model(&text);
            let from = usize::try_from(offset).unwrap();
            let until = all.len().min(from + usize::try_from(limit).unwrap());
            let expected = if all.len() <= from {
                Slice::PastEnd
            } else {
                let behind = match all.len() - until {
                    0 => Behind::Nothing,
                    n => Behind::Lines(u64::try_from(n).unwrap()),
                };
                lines(&all[from..until].join("\n"), behind)
            };
            prop_assert_eq!(cut(text.as_bytes(), offset, limit), expected);
        }

        #[test]
        fn where_the_pieces_are_cut_changes_nothing(
            text in text(), sizes in proptest::collection::vec(1usize..4, 40), offset in 0u64..6,
        ) {
            let window = Window { offset, limit: 4 };
            let mut whole = Cut::new(window, u64::MAX);
            whole.take(&text).unwrap();
            let mut pieces = Cut::new(window, u64::MAX);
            let mut chars = text.chars();
            for size in sizes {
                let piece: String = chars.by_ref().take(size).collect();
                pieces.take(&piece).unwrap();
            }
            let sliced = |cut: Cut| {
                let n_lines = cut.lines();
                cut.slice(n_lines, End::OfFile, FREE).unwrap()
            };
            prop_assert_eq!(sliced(pieces), sliced(whole));
        }
    }
}
