//! Replaces a text within a file, and leaves every other byte as it is.
//!
//! What is looked for is found as text and replaced as bytes, so a file keeps its
//! encoding, its byte order mark, and even what is no text in it. In a file whose lines
//! all end with CR LF, an LF of a caller who writes no CR means such an ending.

use std::ops::Range;

use encoding_rs::{Decoder, UTF_8};

use super::beneath::{Dir, Meta};
use super::path::RelPath;
use super::refused::FileError;
use super::text::{Decoding, Family, Sample};
use super::write::{Expected, Replacing, turn};

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
            // Begun from the top, since that is from where the path is checked at the end.
            let written = self.draft(path, as_read).and_then(|mut draft| {
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
