//! Knows contents by their SHA-256, as 64 hexadecimal digits.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use super::beneath::Dir;
use super::expected::Expected;
use super::path::RelPath;
use super::refused::FileError;

/// Digits of a digest.
const DIGITS: usize = 64;

/// The digest of a content that comes in pieces.
#[derive(Clone, Debug, Default)]
pub struct ContentDigest(Sha256);

impl ContentDigest {
    /// Adds the next piece.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the digits of all pieces, in lower case.
    pub fn digits(self) -> String {
        let mut digits = String::with_capacity(DIGITS);
        for byte in self.0.finalize() {
            write!(digits, "{byte:02x}").expect("a text takes what is written to it");
        }
        digits
    }

    /// Returns the digits of a content.
    pub fn of(bytes: &[u8]) -> String {
        let mut digest = Self::default();
        digest.add(bytes);
        digest.digits()
    }

    /// Returns whether a text is a digest; no tag of a file is one.
    pub fn is(text: &str) -> bool {
        text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    }
}

impl Dir {
    /// Puts tags in the place of digests, so that what was compared by its content is
    /// compared by its tag from then on.
    ///
    /// # Errors
    /// [`FileError::Changed`] where the file is none of those expected;
    /// [`FileError::TooLarge`] where it has more bytes than are read for that.
    pub fn known(
        &self,
        path: &RelPath,
        expected: Expected,
        bytes_max: u64,
    ) -> Result<Expected, FileError> {
        let Expected::OneOf(tags) = &expected else {
            return Ok(expected);
        };
        if !tags.iter().any(|tag| ContentDigest::is(tag)) {
            return Ok(expected);
        }
        let opened = match self.open_file(path) {
            Err(FileError::NotFound) => return Err(FileError::Changed),
            other => other?,
        };
        let etag = opened.meta.etag();
        if !tags.contains(&etag) {
            let (mut digest, mut n_bytes) = (ContentDigest::default(), 0_u64);
            for chunk in opened.chunks(0, bytes_max.saturating_add(1)) {
                let chunk = chunk?;
                n_bytes += u64::try_from(chunk.len()).unwrap_or(u64::MAX);
                digest.add(&chunk);
            }
            if bytes_max < n_bytes {
                let bytes = n_bytes.max(opened.meta.size);
                let limit = bytes_max;
                return Err(FileError::TooLarge { bytes, limit });
            }
            let digits = digest.digits();
            if !tags.iter().any(|tag| tag.eq_ignore_ascii_case(&digits)) {
                return Err(FileError::Changed);
            }
        }
        Ok(Expected::OneOf(vec![etag]))
    }
}

#[cfg(test)]
mod tests {
    use super::super::beneath::tests::{path, workspace};
    use super::*;

    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn a_content_is_known_by_its_digest_however_it_came() {
        let mut digest = ContentDigest::default();
        digest.add(b"a");
        digest.add(b"bc");
        assert_eq!(digest.digits(), ABC);
        assert_eq!(ContentDigest::of(b"abc"), ABC);
        assert!(ContentDigest::is(ABC) && !ContentDigest::is("1-2-3.4-5.6"));
    }

    #[test]
    fn a_digest_stands_for_the_tag_of_the_file_that_has_it() {
        let (temp, dir) = workspace();
        std::fs::write(temp.path().join("f"), "abc").unwrap();
        let tag = dir.stat(&path("f")).unwrap().etag();
        let known = |tags: &[&str]| {
            let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
            dir.known(&path("f"), Expected::OneOf(tags), 3)
        };
        for tags in [
            &[ABC][..],
            &[&ABC.to_uppercase()],
            &["x", ABC],
            &[ABC, &tag],
        ] {
            assert_eq!(known(tags).unwrap(), Expected::OneOf(vec![tag.clone()]));
        }
        let other = "0".repeat(64);
        assert!(matches!(known(&[&other]), Err(FileError::Changed)));
        assert_eq!(
            known(&["x"]).unwrap(),
            Expected::OneOf(vec!["x".to_owned()])
        );
        std::fs::write(temp.path().join("f"), "abcd").unwrap();
        assert!(matches!(
            known(&[ABC]),
            Err(FileError::TooLarge { bytes: 4, limit: 3 })
        ));
        let missing = dir.known(&path("g"), Expected::OneOf(vec![other]), 3);
        assert!(matches!(missing, Err(FileError::Changed)));
    }
}
