//! Says why an archive is not taken in.

use std::io;

use crate::workspace::FileError;
use crate::workspace::search::Stop;

/// Why an archive is refused. What was unpacked until then is the caller's to remove.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// It cannot be received.
    #[error("receive the archive")]
    Source(#[source] io::Error),
    /// It is no archive, or was damaged on its way.
    #[error("read the archive: {0} cannot be understood")]
    Damaged(&'static str),
    /// It ends before its end.
    #[error("read the archive: it is not whole")]
    Truncated,
    /// It is written in a way that is not read here.
    #[error("read the archive: {0}")]
    Unsupported(&'static str),
    /// A member is not where or what it may be.
    #[error("unpack {}: {hazard}", String::from_utf8_lossy(path))]
    Hazard {
        /// The member's name.
        path: Vec<u8>,
        /// What is wrong with it.
        hazard: Hazard,
    },
    /// It has more than may be unpacked.
    #[error("unpack the archive: it has more than {limit} {what}")]
    TooMuch {
        /// Of what.
        what: Limit,
        /// How many there may be.
        limit: u64,
    },
    /// The directory to unpack into is not empty.
    #[error("unpack into a directory that is not empty")]
    NotEmpty,
    /// A file cannot be made.
    #[error("unpack {}", String::from_utf8_lossy(path))]
    Write {
        /// The member's name.
        path: Vec<u8>,
        /// Why.
        #[source]
        source: FileError,
    },
    /// The deadline passed, or the caller has gone.
    #[error("unpack the archive in time")]
    Stopped(Stop),
}

/// What is wrong with a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Hazard {
    /// Its name begins with a slash.
    #[error("its name is absolute")]
    Absolute,
    /// Its name has a `..`.
    #[error("its name climbs out through ..")]
    Climbs,
    /// Its name is empty, has a NUL, or is longer than a path may be.
    #[error("its name is no path")]
    NoPath,
    /// A link that the archive brought is at its place or on the way there.
    #[error("a link of the archive is on the way to its place")]
    BelowLink,
    /// Something else has its name, and cannot give way.
    #[error("something else of the archive has its name")]
    Taken,
    /// The file that it is another name of is not in the archive before it.
    #[error("it links to what is no file of the archive")]
    NoSource,
    /// Its target is empty, has a NUL, or is longer than a link may be.
    #[error("its target is no path")]
    NoTarget,
}

/// What an archive may have too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Limit {
    /// Members.
    #[error("entries")]
    Entries,
    /// Bytes when unpacked.
    #[error("bytes")]
    Bytes,
    /// Bytes as it came.
    #[error("bytes as it is sent")]
    SentBytes,
    /// Bytes unpacked for each one that came.
    #[error("bytes for each one sent")]
    Ratio,
    /// Bytes of a name or of other notes before a member.
    #[error("bytes of notes on one member")]
    Notes,
    /// Bytes of the names of directories.
    #[error("bytes of directory names")]
    Names,
}

impl ImportError {
    /// The error that a layer of reading passed on, or else one of the source.
    pub(super) fn of(error: io::Error) -> Self {
        match error.downcast::<Self>() {
            Ok(own) => own,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Self::Truncated,
            Err(error) => Self::Source(error),
        }
    }

    /// Says once more what a source's layer said: its error cannot be taken out of one
    /// that holds it.
    pub(super) fn again(&self) -> Self {
        match self {
            Self::Source(error) => Self::Source(io::Error::from(error.kind())),
            Self::Damaged(what) => Self::Damaged(what),
            Self::Unsupported(what) => Self::Unsupported(what),
            Self::TooMuch { what, limit } => Self::TooMuch {
                what: *what,
                limit: *limit,
            },
            Self::Stopped(stop) => Self::Stopped(*stop),
            Self::NotEmpty => Self::NotEmpty,
            // These are of members, which no source knows of.
            Self::Truncated | Self::Hazard { .. } | Self::Write { .. } => Self::Truncated,
        }
    }
}
