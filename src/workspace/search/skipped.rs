//! Tells what a walk had to leave out, and why.

use std::io;

use crate::workspace::FileError;

/// So many left-out paths are listed; the rest is counted.
pub const SKIPPED_MAX: usize = 100;
/// A listed path is cut after so many bytes.
pub const SKIPPED_PATH_BYTES_MAX: usize = 4_096;

/// What a walk left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// The first of them, in the order of the walk.
    pub listed: Vec<Left>,
    /// How many more there were.
    pub more: u64,
}

/// One path that a walk left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// The path below the start of the walk; empty for the start itself.
    pub path: Vec<u8>,
    /// Why it was left out.
    pub why: Why,
}

/// Why a path was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// The service may not read it.
    #[error("permission denied")]
    Denied,
    /// It went, or became something else, while the walk was on its way.
    #[error("it changed meanwhile")]
    Changed,
    /// It lies on another file system.
    #[error("it is on another file system")]
    Elsewhere,
    /// A line is longer than a search holds in memory.
    #[error("a line is too long to search")]
    LongLine,
    /// It is a socket, a pipe or a device.
    #[error("it is a special file")]
    Special,
    /// It was packed, but became shorter meanwhile: zeros stand for the rest.
    #[error("it became shorter while it was read, and was filled up with zeros")]
    Shrank,
    /// It was packed, but grew meanwhile: what came later is missing.
    #[error("it grew while it was read, and was cut off at its former size")]
    Grew,
    /// Its name, or a link's target, has no place in the archive.
    #[error("its name is too long")]
    LongName,
    /// The system could not read it.
    #[error("it cannot be read: {0}")]
    Unreadable(io::ErrorKind),
}

impl From<FileError> for Why {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Permission => Self::Denied,
            FileError::NotFound
            | FileError::IsDirectory
            | FileError::NotDirectory
            | FileError::Link { .. }
            | FileError::Changed
            | FileError::Moved
            | FileError::Busy
            | FileError::Exists
            | FileError::NotEmpty => Self::Changed,
            FileError::Outside => Self::Elsewhere,
            FileError::Special { .. } => Self::Special,
            FileError::NameTooLong => Self::LongName,
            FileError::NoSpace => Self::Unreadable(io::ErrorKind::StorageFull),
            FileError::Io(error) => Self::Unreadable(error.kind()),
            // These are of reading and writing texts, which no walk does.
            FileError::TooLarge { .. }
            | FileError::Binary
            | FileError::NoMatch
            | FileError::ManyMatches { .. }
            | FileError::Encoding { .. } => Self::Unreadable(io::ErrorKind::Other),
        }
    }
}

impl Skipped {
    /// Adds what was left out later.
    pub(super) fn absorb(&mut self, later: Self) {
        for left in later.listed {
            self.note(&left.path, left.why);
        }
        self.more = self.more.saturating_add(later.more);
    }

    /// Notes a path that is left out.
    pub fn note(&mut self, path: &[u8], why: Why) {
        if self.listed.len() < SKIPPED_MAX {
            let path = path.get(..SKIPPED_PATH_BYTES_MAX).unwrap_or(path).to_vec();
            self.listed.push(Left { path, why });
        } else {
            self.more = self.more.saturating_add(1);
        }
    }

    /// Returns whether nothing was left out.
    pub fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_listed_up_to_a_bound_and_then_counted() {
        let mut skipped = Skipped::default();
        assert!(skipped.is_empty());
        for _ in 0..SKIPPED_MAX + 3 {
            skipped.note(&[b'x'; SKIPPED_PATH_BYTES_MAX + 1], Why::Denied);
        }
        assert_eq!((skipped.listed.len(), skipped.more), (SKIPPED_MAX, 3));
        let longest = skipped.listed.iter().map(|left| left.path.len()).max();
        assert_eq!(longest, Some(SKIPPED_PATH_BYTES_MAX));
    }
}
