//! Tells text from other files and finds the encoding that it is written in.
//!
//! What is valid UTF-8 is UTF-8. Otherwise the encoding is guessed as browsers do, and
//! the guess is taken where the bytes make plausible text in it.

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{CoderResult, Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};

use super::refused::FileError;

/// Bytes from the beginning of a file by which its encoding is guessed.
const GUESS_BYTES_MAX: usize = 32 * 1024;

/// What the name of a file says of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// It is text, whatever bytes it has.
    Text,
    /// It is text where its bytes look like it.
    Unknown,
}

/// How the bytes of a file become text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoding {
    /// The encoding.
    pub encoding: &'static Encoding,
    /// How many bytes at the beginning only name the encoding.
    pub mark_bytes: usize,
}

/// How much of a file there is to judge by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    /// All of it.
    Whole,
    /// Its beginning, which may end within a character.
    Head,
}

const TEXT_SUFFIXES: &[&str] = &[
    "bash", "bat", "c", "cc", "cfg", "conf", "cpp", "cs", "css", "csv", "cxx", "diff", "etx", "go",
    "h", "hpp", "htm", "html", "ini", "java", "js", "json", "jsonl", "jsx", "kt", "log", "lua",
    "markdown", "md", "mjs", "n3", "patch", "php", "pl", "py", "r", "rb", "rs", "rst", "rtx",
    "scala", "sgm", "sgml", "sh", "sql", "srt", "swift", "tex", "toml", "ts", "tsv", "tsx", "txt",
    "vcf", "vtt", "xml", "yaml", "yml", "zsh",
];

impl Family {
    /// Judges a file by its name.
    pub fn of(name: &[u8]) -> Self {
        let name = name.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let suffix = match name.iter().rposition(|byte| *byte == b'.') {
            Some(dot) if 0 < dot => name.get(dot + 1..).unwrap_or_default(),
            Some(_) | None => return Self::Unknown,
        };
        let suffix = suffix.to_ascii_lowercase();
        if TEXT_SUFFIXES.iter().any(|text| text.as_bytes() == suffix) {
            Self::Text
        } else {
            Self::Unknown
        }
    }
}

impl Decoding {
    /// Finds how the bytes of a file become text.
    ///
    /// # Errors
    /// They do not: [`FileError::Binary`], never for a name of [`Family::Text`].
    pub fn find(bytes: &[u8], sample: Sample, family: Family) -> Result<Self, FileError> {
        if let Some((encoding, mark_bytes)) = Encoding::for_bom(bytes) {
            return Ok(Self {
                encoding,
                mark_bytes,
            });
        }
        let plain = |encoding| Self {
            encoding,
            mark_bytes: 0,
        };
        let utf8 = Utf8::count(bytes, sample);
        if utf8.bad == 0 {
            return Ok(plain(UTF_8));
        }
        // A stray byte in a text full of longer characters is damage, not an encoding.
        if utf8.bad < utf8.long {
            return Ok(plain(UTF_8));
        }
        let guess = guess(bytes, sample);
        if is_plausible(bytes, guess, sample) {
            return Ok(plain(guess));
        }
        match family {
            Family::Text if can_decode(bytes, guess, sample) => Ok(plain(guess)),
            // Every byte is a character of this one.
            Family::Text => Ok(plain(WINDOWS_1252)),
            Family::Unknown if utf8.bad < (utf8.chars / 100).max(2) => Ok(plain(UTF_8)),
            Family::Unknown => Err(FileError::Binary),
        }
    }

    /// Returns the text of a whole file, with U+FFFD for what is none.
    pub fn decode(self, bytes: &[u8]) -> String {
        let bytes = bytes.get(self.mark_bytes..).unwrap_or_default();
        let (text, _) = self.encoding.decode_without_bom_handling(bytes);
        text.into_owned()
    }

    /// Returns the bytes of a text; nothing where the encoding lacks one of its characters.
    pub fn encode(self, text: &str) -> Option<Vec<u8>> {
        if self.encoding == UTF_16LE {
            return Some(text.encode_utf16().flat_map(u16::to_le_bytes).collect());
        }
        if self.encoding == UTF_16BE {
            return Some(text.encode_utf16().flat_map(u16::to_be_bytes).collect());
        }
        let (bytes, _, had_unmappable) = self.encoding.encode(text);
        (!had_unmappable).then(|| bytes.into_owned())
    }
}

/// What bytes are when they are read as UTF-8.
struct Utf8 {
    chars: usize,
    long: usize,
    bad: usize,
}

impl Utf8 {
    fn count(bytes: &[u8], sample: Sample) -> Self {
        let mut counted = Self {
            chars: 0,
            long: 0,
            bad: 0,
        };
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            let n_chars = chunk.valid().chars().count();
            counted.chars += n_chars;
            counted.long += chunk
                .valid()
                .chars()
                .filter(|char| !char.is_ascii())
                .count();
            let is_cut =
                sample == Sample::Head && chunks.peek().is_none() && is_incomplete(chunk.invalid());
            if !chunk.invalid().is_empty() && !is_cut {
                counted.bad += 1;
                counted.chars += 1;
            }
        }
        counted
    }
}

/// Returns whether more bytes could make a character of these.
fn is_incomplete(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

fn guess(bytes: &[u8], sample: Sample) -> &'static Encoding {
    let head = bytes
        .get(..GUESS_BYTES_MAX.min(bytes.len()))
        .unwrap_or_default();
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    detector.feed(head, sample == Sample::Whole && head.len() == bytes.len());
    detector.guess(None, Utf8Detection::Deny)
}

/// Returns whether bytes make text in an encoding, with no more of the characters that
/// texts do not have than a hundredth.
fn is_plausible(bytes: &[u8], encoding: &'static Encoding, sample: Sample) -> bool {
    let head = bytes
        .get(..GUESS_BYTES_MAX.min(bytes.len()))
        .unwrap_or_default();
    if head.contains(&0) || !can_decode(bytes, encoding, sample) {
        return false;
    }
    let (text, _) = encoding.decode_without_bom_handling(head);
    let n_odd = text.chars().filter(|char| is_odd(*char)).count();
    n_odd <= text.chars().count() / 100
}

fn is_odd(char: char) -> bool {
    char.is_control()
        && !matches!(
            char,
            '\t' | '\n' | '\r' | '\x0b' | '\x0c' | '\x08' | '\x1b' | '\u{85}'
        )
}

fn can_decode(bytes: &[u8], encoding: &'static Encoding, sample: Sample) -> bool {
    let mut decoder = encoding.new_decoder_without_bom_handling();
    let mut buffer = String::with_capacity(GUESS_BYTES_MAX);
    let mut rest = bytes;
    loop {
        let is_last = sample == Sample::Whole;
        let (result, n_read, had_errors) = decoder.decode_to_string(rest, &mut buffer, is_last);
        if had_errors {
            return false;
        }
        rest = rest.get(n_read..).unwrap_or_default();
        match result {
            CoderResult::InputEmpty => return true,
            CoderResult::OutputFull => buffer.clear(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn find(bytes: &[u8], family: Family) -> Option<&'static str> {
        let found = Decoding::find(bytes, Sample::Whole, family);
        found.ok().map(|decoding| decoding.encoding.name())
    }

    #[test]
    fn a_name_says_what_is_text() {
        for name in ["a.py", "a/b.TXT", "x.tar.json", ".hidden.md"] {
            assert_eq!(Family::of(name.as_bytes()), Family::Text, "{name}");
        }
        for name in ["a", "a.png", ".py", "py", "a.py/b", "a."] {
            assert_eq!(Family::of(name.as_bytes()), Family::Unknown, "{name}");
        }
    }

    #[test]
    fn encodings_are_found() {
        let both = |bytes: &[u8]| (find(bytes, Family::Text), find(bytes, Family::Unknown));
        let always = |name| (Some(name), Some(name));
        assert_eq!(both(b""), always("UTF-8"));
        assert_eq!(both(b"plain"), always("UTF-8"));
        assert_eq!(both("caf\u{e9} \u{20ac}".as_bytes()), always("UTF-8"));
        assert_eq!(both(b"\xef\xbb\xbfwith a mark"), always("UTF-8"));
        assert_eq!(both(b"\xff\xfeh\0i\0"), always("UTF-16LE"));
        assert_eq!(both(b"\xfe\xff\0h\0i"), always("UTF-16BE"));
        assert_eq!(
            both(b"un caf\xe9 cr\xe8me, s'il vous pla\xeet"),
            always("windows-1252")
        );
        let (japanese, _, _) = encoding_rs::SHIFT_JIS.encode("\u{3053}\u{308c}\u{306f}\u{65e5}\u{672c}\u{8a9e}\u{306e}\u{6587}\u{7ae0}\u{3067}\u{3059}\u{3002}");
        assert_eq!(both(&japanese), always("Shift_JIS"));
        let damaged = "\u{e9}\u{e8}\u{20ac}".repeat(3).into_bytes();
        let damaged = [&damaged[..], b"\xff", &damaged[..]].concat();
        assert_eq!(both(&damaged), always("UTF-8"));
    }

    #[test]
    fn what_is_no_text_is_told_by_its_bytes_unless_its_name_says_text() {
        let elf: Vec<u8> = (0..=255u8).cycle().take(4_096).collect();
        assert_eq!(find(&elf, Family::Unknown), None);
        assert!(find(&elf, Family::Text).is_some());
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x01\0\0\0\x01\0\x08\x06\0\0\0\\r\xa8f\0\xff\xfe\xfd";
        assert_eq!(find(png, Family::Unknown), None);
        // One bad byte alone makes nothing binary, as callers know it.
        assert_eq!(find(b"\x89PNG\r\n\x1a\n\0", Family::Unknown), Some("UTF-8"));
    }

    #[test]
    fn a_character_at_the_end_of_a_head_is_no_damage() {
        let bytes = &"a\u{20ac}".as_bytes()[..3];
        let head = Decoding::find(bytes, Sample::Head, Family::Unknown).unwrap();
        assert_eq!(head.encoding, UTF_8);
    }

    proptest! {
        #[test]
        fn utf8_text_is_decoded_as_it_is(text in ".*") {
            prop_assume!(!text.starts_with('\u{feff}'));
            let decoding = Decoding::find(text.as_bytes(), Sample::Whole, Family::Unknown).unwrap();
            prop_assert_eq!(decoding.decode(text.as_bytes()), text);
        }

        #[test]
        fn a_text_survives_its_encoding(text in "\\PC*", utf16 in any::<bool>()) {
            let encoding = if utf16 { UTF_16LE } else { UTF_16BE };
            let decoding = Decoding { encoding, mark_bytes: 0 };
            prop_assert_eq!(decoding.decode(&decoding.encode(&text).unwrap()), text);
        }

        #[test]
        fn a_name_that_says_text_is_never_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let decoding = Decoding::find(&bytes, Sample::Whole, Family::Text).unwrap();
            decoding.decode(&bytes);
        }
    }
}
