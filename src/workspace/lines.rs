//! Cuts lines out of a file of any size with a bounded memory.
//!
//! A file is decoded and cut piece by piece. Nothing is kept of it but the lines that
//! were asked for; those behind them are counted.

use encoding_rs::{CoderResult, Decoder, UTF_8};

use super::beneath::Opened;
use super::read::CHUNK_BYTES_MAX;
use super::refused::FileError;
use super::text::{Decoding, Family, Sample};

#[cfg(test)]
mod tests;

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
