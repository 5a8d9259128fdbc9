//! Replaces a text within a file, and leaves every other byte as it is.
//!
//! What is looked for is found as text and replaced as bytes, so a file keeps its
//! encoding, its byte order mark, and even what is no text in it. In a file whose lines
//! all end with CR LF, an LF of a caller who writes no CR means such an ending.

use std::ops::Range;

use encoding_rs::{Decoder, UTF_8};

use super::beneath::{Dir, Meta};
use super::expected::Expected;
use super::path::RelPath;
use super::refused::FileError;
use super::text::{Decoding, Family, Sample};
use super::write::{Draft, Replacing, turn};

/// How often an edit begins anew because the sandbox changed the file meanwhile.
const TRIES_MAX: u32 = 8;

/// A text to be replaced by another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    /// What is looked for. An empty text is at every place between two characters.
    pub old: &'a str,
    /// What it is replaced by.
    pub new: &'a str,
    /// How often.
    pub times: Times,
}

/// How often a text may be in a file for it to be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// Once.
    Once,
    /// Once or more; each one is replaced.
    All,
}

/// What an edit did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edited {
    /// How often the text was replaced.
    pub n_replaced: u64,
    /// What the file is now.
    pub meta: Meta,
}

impl Dir {
    /// Replaces a text within a file; edits and writes of it from here wait for each other.
    ///
    /// `how.bytes_max` bounds the file before and after.
    ///
    /// # Errors
    /// The file is as it was, but for [`FileError::Moved`].
    pub fn edit(
        &self,
        path: &RelPath,
        change: Change<'_>,
        family: Family,
        how: &Replacing,
    ) -> Result<Edited, FileError> {
        let (parent, name) = self.open_parent(path)?;
        let turn = turn(&parent, &name)?;
        for _ in 0..TRIES_MAX {
            let opened = parent.open_file(&name)?;
            how.expected.check(Some(&opened.meta))?;
            let bytes = opened.read_whole(how.bytes_max)?;
            let (bytes, n_replaced) = replaced(&bytes, change, family, how.bytes_max)?;
            let as_read = Replacing {
                expected: Expected::OneOf(vec![opened.meta.etag()]),
                ..how.clone()
            };
            let draft = Draft::within(self, path, parent.clone(), as_read);
            let written = draft.and_then(|mut draft| {
                draft.append(&bytes)?;
                draft.commit_in(&turn)
            });
            match written {
                Err(FileError::Changed) => {}
                other => return other.map(|meta| Edited { n_replaced, meta }),
            }
        }
        Err(FileError::Busy)
    }
}

/// Returns the bytes of a file with a text replaced, and how often it was.
///
/// # Errors
/// They are no text; the old text is not there, or too often; the new one does not exist
/// in their encoding; they would have more than `bytes_max` bytes.
pub fn replaced(
    bytes: &[u8],
    change: Change<'_>,
    family: Family,
    bytes_max: u64,
) -> Result<(Vec<u8>, u64), FileError> {
    let decoding = Decoding::find(bytes, Sample::Whole, family)?;
    replaced_in(decoding, bytes, change, bytes_max)
}

fn replaced_in(
    decoding: Decoding,
    bytes: &[u8],
    change: Change<'_>,
    bytes_max: u64,
) -> Result<(Vec<u8>, u64), FileError> {
    let (mark, body) = bytes.split_at(decoding.mark_bytes);
    let body = Body::new(decoding, body);
    let (old, new) = body.in_its_endings(change);
    let new = decoding.encode(&new).ok_or(FileError::Encoding {
        encoding: decoding.encoding.name(),
    })?;
    let (mut count, mut n_removed) = (0, 0);
    body.each(&old, |range| {
        count += 1;
        n_removed += range.len();
    });
    match (count, change.times) {
        (0, _) => return Err(FileError::NoMatch),
        (2.., Times::Once) => return Err(FileError::ManyMatches { count: wide(count) }),
        (_, Times::Once | Times::All) => {}
    }
    let size = new
        .len()
        .saturating_mul(count)
        .saturating_add(bytes.len() - n_removed);
    if bytes_max < wide(size) {
        return Err(FileError::TooLarge {
            bytes: wide(size),
            limit: bytes_max,
        });
    }
    let mut out = Vec::with_capacity(size);
    out.extend_from_slice(mark);
    let mut from = 0;
    body.each(&old, |range| {
        out.extend_from_slice(body.bytes.get(from..range.start).unwrap_or_default());
        out.extend_from_slice(&new);
        from = range.end;
    });
    out.extend_from_slice(body.bytes.get(from..).unwrap_or_default());
    Ok((out, wide(count)))
}

/// The bytes of a file behind its mark, with their text where that is something else.
struct Body<'a> {
    bytes: &'a [u8],
    legacy: Option<(Decoding, String)>,
}

impl<'a> Body<'a> {
    fn new(decoding: Decoding, bytes: &'a [u8]) -> Self {
        let unmarked = Decoding {
            mark_bytes: 0,
            ..decoding
        };
        let legacy = (decoding.encoding != UTF_8).then(|| (unmarked, unmarked.decode(bytes)));
        Self { bytes, legacy }
    }

    /// Writes a change with the line endings of the file.
    fn in_its_endings(&self, change: Change<'_>) -> (String, String) {
        let text = match &self.legacy {
            Some((_, text)) => text.as_bytes(),
            None => self.bytes,
        };
        let is_ours = change.old.contains('\r') || change.new.contains('\r');
        let adapt = |text: &str| text.replace('\n', "\r\n");
        if !is_ours && is_crlf(text) {
            (adapt(change.old), adapt(change.new))
        } else {
            (change.old.to_owned(), change.new.to_owned())
        }
    }

    /// Finds a text from the left; none of the findings overlaps another.
    fn each(&self, old: &str, mut found: impl FnMut(Range<usize>)) {
        let Some((decoding, text)) = &self.legacy else {
            return each_in_utf8(self.bytes, old, found);
        };
        let mut walk = Walk {
            decoder: decoding.encoding.new_decoder_without_bom_handling(),
            bytes: self.bytes,
            n_bytes: 0,
            n_text: 0,
        };
        for (at, _) in text.match_indices(old) {
            let start = walk.to(at);
            let end = walk.to(at + old.len());
            // Within bytes that stand for several characters there is no place.
            if let (Some(start), Some(end)) = (start, end) {
                found(start..end);
            }
        }
    }
}

/// Finds a text between bytes that are no UTF-8; none of those is ever part of a finding.
fn each_in_utf8(bytes: &[u8], old: &str, mut found: impl FnMut(Range<usize>)) {
    let mut from = 0;
    let mut is_open = true;
    for chunk in bytes.utf8_chunks() {
        for (at, _) in chunk.valid().match_indices(old) {
            found(from + at..from + at + old.len());
        }
        from += chunk.valid().len() + chunk.invalid().len();
        is_open = !chunk.invalid().is_empty();
    }
    // Behind the last character there is one more place for nothing.
    if old.is_empty() && is_open {
        found(from..from);
    }
}

/// A walk along bytes and their text at once.
struct Walk<'a> {
    decoder: Decoder,
    bytes: &'a [u8],
    n_bytes: usize,
    n_text: usize,
}

impl Walk<'_> {
    /// Goes on to a place in the text; returns its place in the bytes if it has one.
    fn to(&mut self, text: usize) -> Option<usize> {
        let mut out = [0; 32];
        while self.n_text < text {
            let byte = self.bytes.get(self.n_bytes..=self.n_bytes);
            let (_, _, written, _) =
                self.decoder
                    .decode_to_utf8(byte.unwrap_or_default(), &mut out, byte.is_none());
            self.n_text += written;
            if byte.is_none() {
                break;
            }
            self.n_bytes += 1;
        }
        (self.n_text == text).then_some(self.n_bytes)
    }
}

/// Returns whether there are line feeds, each behind a carriage return.
fn is_crlf(text: &[u8]) -> bool {
    let mut before = None;
    let mut is_crlf = false;
    for byte in text {
        if *byte == b'\n' {
            if before != Some(b'\r') {
                return false;
            }
            is_crlf = true;
        }
        before = Some(*byte);
    }
    is_crlf
}

fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use encoding_rs::{EUC_KR, Encoding, GBK, SHIFT_JIS, UTF_16BE, UTF_16LE, WINDOWS_1252};
    use proptest::prelude::*;

    use super::super::beneath::tests::{path, workspace};
    use super::super::write::Survives;
    use super::*;

    fn how() -> Replacing {
        Replacing {
            owner: None,
            bytes_max: 1 << 20,
            expected: Expected::Anything,
            survives: Survives::DaemonEnd,
        }
    }

    fn all<'a>(old: &'a str, new: &'a str) -> Change<'a> {
        Change {
            old,
            new,
            times: Times::All,
        }
    }

    fn edited(bytes: &[u8], old: &str, new: &str) -> Result<(Vec<u8>, u64), FileError> {
        replaced(bytes, all(old, new), Family::Text, 1 << 20)
    }

    #[test]
    fn occurrences_are_counted_as_the_contract_has_it() {
        let once = |bytes: &[u8], old| {
            let change = Change {
                old,
                new: "x",
                times: Times::Once,
            };
            replaced(bytes, change, Family::Text, 100)
        };
        assert_eq!(once(b"a b c", "b").unwrap(), (b"a x c".to_vec(), 1));
        assert!(matches!(once(b"a b c", "d"), Err(FileError::NoMatch)));
        assert!(matches!(
            once(b"aaaa", "aa"),
            Err(FileError::ManyMatches { count: 2 })
        ));
        assert!(matches!(
            once(b"abc", ""),
            Err(FileError::ManyMatches { count: 4 })
        ));
        assert_eq!(once(b"", "").unwrap(), (b"x".to_vec(), 1));
        assert_eq!(edited(b"aaaa", "aa", "b").unwrap(), (b"bb".to_vec(), 2));
        assert_eq!(
            edited("a\u{e9}".as_bytes(), "", "-").unwrap().0,
            "-a-\u{e9}-".as_bytes()
        );
        let binary: Vec<u8> = (0..=255).cycle().take(4_096).collect();
        let refused = replaced(&binary, all("a", "b"), Family::Unknown, 9_999);
        assert!(matches!(refused, Err(FileError::Binary)));
        let large = replaced(b"aaaa", all("a", "bbb"), Family::Text, 11);
        assert!(matches!(
            large,
            Err(FileError::TooLarge {
                bytes: 12,
                limit: 11
            })
        ));
    }

    #[test]
    fn what_is_not_touched_stays_as_it_is_byte_for_byte() {
        let (bytes, _) = edited(b"\xef\xbb\xbfa\r\nb\nc\r", "b", "x\ny").unwrap();
        assert_eq!(
            bytes, b"\xef\xbb\xbfa\r\nx\ny\nc\r",
            "mixed endings are left alone"
        );
        let damaged = "\u{20ac}\u{20ac}b\u{20ac}".as_bytes();
        let damaged = [damaged, b"\xff\xe2\x82", damaged].concat();
        let (bytes, count) = edited(&damaged, "b", "c").unwrap();
        assert_eq!(count, 2);
        let expected: Vec<_> = damaged
            .iter()
            .map(|byte| if *byte == b'b' { b'c' } else { *byte })
            .collect();
        assert_eq!(bytes, expected);
        let latin = b"un caf\xe9 cr\xe8me, s'il vous pla\xeet";
        let (bytes, _) = edited(latin, "cr\u{e8}me", "br\u{fb}l\u{e9}").unwrap();
        assert_eq!(bytes, b"un caf\xe9 br\xfbl\xe9, s'il vous pla\xeet");
        let refused = edited(latin, "vous", "\u{65e5}");
        assert!(matches!(
            refused,
            Err(FileError::Encoding {
                encoding: "windows-1252"
            })
        ));
    }

    #[test]
    fn line_feeds_are_the_endings_of_the_file() {
        let crlf = b"a\r\nb\r\nc\r\n";
        assert_eq!(edited(crlf, "a\nb", "x\ny").unwrap().0, b"x\r\ny\r\nc\r\n");
        assert_eq!(
            edited(crlf, "b", "x\ny").unwrap().0,
            b"a\r\nx\r\ny\r\nc\r\n"
        );
        assert_eq!(edited(crlf, "a\r\nb", "x\ny").unwrap().0, b"x\ny\r\nc\r\n");
        let utf16 = b"\xff\xfea\0\r\0\n\0b\0";
        assert_eq!(
            edited(utf16, "a\n", "c\n").unwrap().0,
            b"\xff\xfec\0\r\0\n\0b\0"
        );
    }

    #[test]
    fn half_a_character_is_never_taken_for_another() {
        let decoding = |encoding| Decoding {
            encoding,
            mark_bytes: 0,
        };
        // The second byte of this one is a backslash.
        let so = b"\x83\x5c\x5c";
        let (bytes, count) = replaced_in(decoding(SHIFT_JIS), so, all("\\", "/"), 9).unwrap();
        assert_eq!((&bytes[..], count), (&b"\x83\x5c/"[..], 1));
        // A line feed and an a lie across two characters of this one.
        let wide = b"\x01\x0a\x00\x61";
        let refused = replaced_in(decoding(UTF_16BE), wide, all("\n", ""), 9);
        assert!(matches!(refused, Err(FileError::NoMatch)));
    }

    #[test]
    fn an_edit_keeps_mode_and_owner_and_makes_nothing() {
        let (temp, dir) = workspace();
        let file = temp.path().join("f.sh");
        std::fs::write(&file, "echo a").unwrap();
        std::os::unix::fs::chown(&file, Some(77), Some(88)).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o750)).unwrap();
        let edited = dir
            .edit(&path("f.sh"), all("a", "b"), Family::Text, &how())
            .unwrap();
        assert_eq!(edited.n_replaced, 1);
        assert_eq!(std::fs::read(&file).unwrap(), b"echo b");
        let meta = std::fs::metadata(&file).unwrap();
        assert_eq!(
            (meta.uid(), meta.gid(), meta.mode() & 0o777),
            (77, 88, 0o750)
        );
        let refused = dir.edit(&path("no/f"), all("a", "b"), Family::Text, &how());
        assert!(matches!(refused, Err(FileError::NotFound)));
        assert!(!temp.path().join("no").exists());
        let stale = Replacing {
            expected: Expected::OneOf(vec!["stale".to_owned()]),
            ..how()
        };
        let refused = dir.edit(&path("f.sh"), all("b", "c"), Family::Text, &stale);
        assert!(matches!(refused, Err(FileError::Changed)));
    }

    #[test]
    fn parallel_edits_of_a_file_all_count() {
        const EDITS: u32 = 40;
        let (temp, dir) = workspace();
        let slots = |n| {
            let slots: Vec<_> = (0..6).map(|slot| format!("slot {slot}: {n};\n")).collect();
            slots.concat()
        };
        std::fs::write(temp.path().join("f"), slots(0)).unwrap();
        std::thread::scope(|scope| {
            for slot in 0..6 {
                let dir = &dir;
                scope.spawn(move || {
                    for n in 0..EDITS {
                        let old = format!("slot {slot}: {n};");
                        let new = format!("slot {slot}: {};", n + 1);
                        dir.edit(&path("f"), all(&old, &new), Family::Text, &how())
                            .unwrap();
                    }
                });
            }
        });
        let kept = std::fs::read_to_string(temp.path().join("f")).unwrap();
        assert_eq!(kept, slots(EDITS));
    }

    /// Texts whose characters these encodings all have.
    fn text(chars: &str) -> impl Strategy<Value = String> {
        let chars: Vec<_> = chars.chars().collect();
        proptest::collection::vec(proptest::sample::select(chars), 0..30)
            .prop_map(|chars| chars.into_iter().collect())
    }

    fn short(chars: &str) -> impl Strategy<Value = String> {
        let chars: Vec<_> = chars.chars().collect();
        proptest::collection::vec(proptest::sample::select(chars), 0..3)
            .prop_map(|chars| chars.into_iter().collect())
    }

    const COMMON: &str = "ab\\\n";
    const CJK: &str = "ab\\\n\u{4e00}\u{4e2d}\u{5341}\u{3042}\u{30bd}\u{8868}";

    fn in_encodings(chars: &'static str) -> Vec<&'static Encoding> {
        if chars == CJK {
            vec![SHIFT_JIS, GBK, UTF_16LE, UTF_16BE, UTF_8]
        } else {
            vec![WINDOWS_1252, EUC_KR, UTF_16LE, UTF_8]
        }
    }

    proptest! {
        #[test]
        fn an_edit_is_a_replacement_of_text_in_every_encoding(
            (text, old, new, encoding) in proptest::sample::select(vec![COMMON, CJK])
                .prop_flat_map(|chars| (
                    text(chars), short(chars), short(chars),
                    proptest::sample::select(in_encodings(chars)),
                )),
        ) {
            let decoding = Decoding { encoding, mark_bytes: 0 };
            let bytes = decoding.encode(&text).unwrap();
            prop_assume!(decoding.decode(&bytes) == text);
            let found = replaced_in(decoding, &bytes, all(&old, &new), 1 << 20);
            match text.matches(&*old).count() {
                0 => prop_assert!(matches!(found, Err(FileError::NoMatch))),
                count => {
                    let (bytes, n_replaced) = found.unwrap();
                    prop_assert_eq!(decoding.decode(&bytes), text.replace(&old, &new));
                    prop_assert_eq!(n_replaced, u64::try_from(count).unwrap());
                }
            }
        }

        #[test]
        fn in_a_file_of_cr_lf_an_edit_is_that_of_its_lines(
            text in text(COMMON), old in short(COMMON), new in short(COMMON),
        ) {
            prop_assume!(text.contains('\n') && !old.is_empty());
            let crlf = |text: &str| text.replace('\n', "\r\n");
            let found = edited(crlf(&text).as_bytes(), &old, &new);
            if text.contains(&old) {
                let expected = crlf(&text.replace(&old, &new));
                prop_assert_eq!(String::from_utf8(found.unwrap().0).unwrap(), expected);
            } else {
                prop_assert!(matches!(found, Err(FileError::NoMatch)));
            }
        }

        #[test]
        fn an_edit_there_and_back_leaves_any_bytes_as_they_were(
            bytes in proptest::collection::vec(
                proptest::sample::select(b"ab\n\r\x00\x80\xc3\xa9\xe2\x82\xac\xff".to_vec()), 0..60),
        ) {
            let decoding = Decoding { encoding: UTF_8, mark_bytes: 0 };
            let there = replaced_in(decoding, &bytes, all("a", "\u{1f600}"), 1 << 20);
            if let Ok((there, count)) = there {
                let (back, again) =
                    replaced_in(decoding, &there, all("\u{1f600}", "a"), 1 << 20).unwrap();
                prop_assert_eq!(back, bytes);
                prop_assert_eq!(count, again);
            }
        }
    }
}
