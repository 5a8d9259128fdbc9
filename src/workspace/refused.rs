//! Says why a file was not read or written, in the kinds that callers tell apart.

use std::io;

use rustix::io::Errno;

/// Why something with a file of a workspace failed.
///
/// Whether it is an error at all, is handed to the sandbox or is a status of its own, is
/// for the caller to say.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// Nothing has that path.
    #[error("no such file or directory")]
    NotFound,
    /// A directory is where a file was wanted.
    #[error("it is a directory")]
    IsDirectory,
    /// A file is where a directory was wanted, at the end of the path or on the way.
    #[error("it is not a directory")]
    NotDirectory,
    /// Something is there already.
    #[error("it exists already")]
    Exists,
    /// The directory has entries.
    #[error("the directory is not empty")]
    NotEmpty,
    /// The host refuses it.
    #[error("permission denied")]
    Permission,
    /// A symbolic link is at the end of the path or on the way; none is followed.
    #[error("{} is a symbolic link", lossy(name))]
    Link {
        /// The link's name.
        name: Vec<u8>,
    },
    /// A FIFO, a socket or a device; none is opened.
    #[error("{} is not a regular file", lossy(name))]
    Special {
        /// Its name.
        name: Vec<u8>,
    },
    /// It leads out of the workspace: another file system is mounted there.
    #[error("it is outside the work directory")]
    Outside,
    /// A name or the whole path is longer than the file system takes.
    #[error("the name is too long")]
    NameTooLong,
    /// The file has more bytes than were asked for at most.
    #[error("it is {bytes} bytes, over the {limit}-byte limit")]
    TooLarge {
        /// What it has, or had when reading was given up.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The file is not the one that the caller knows.
    #[error("the file is not the expected one")]
    Changed,
    /// The directory was moved meanwhile, so that what was written is not at its path.
    #[error("the directory was moved meanwhile")]
    Moved,
    /// The sandbox changes the same paths too fast.
    #[error("the files change too fast")]
    Busy,
    /// The disk is full, or the quota used up.
    #[error("no space is left")]
    NoSpace,
    /// The file has no text.
    #[error("[Binary File]")]
    Binary,
    /// What was to be edited is not there.
    #[error("the text is not in the file")]
    NoMatch,
    /// What was to be edited is there more than once.
    #[error("the text is there {count} times")]
    ManyMatches {
        /// How often.
        count: u64,
    },
    /// The new text has characters that the file's encoding has not.
    #[error("the encoding {encoding} has no place for the new text")]
    Encoding {
        /// The encoding's name.
        encoding: &'static str,
    },
    /// Anything else.
    #[error("use the file")]
    Io(#[source] io::Error),
}

impl From<Errno> for FileError {
    fn from(error: Errno) -> Self {
        match error {
            Errno::NOENT => Self::NotFound,
            Errno::ISDIR => Self::IsDirectory,
            Errno::NOTDIR => Self::NotDirectory,
            Errno::EXIST => Self::Exists,
            Errno::NOTEMPTY => Self::NotEmpty,
            Errno::ACCESS | Errno::PERM | Errno::ROFS => Self::Permission,
            Errno::LOOP => Self::Link { name: Vec::new() },
            Errno::XDEV => Self::Outside,
            Errno::NAMETOOLONG => Self::NameTooLong,
            Errno::AGAIN => Self::Busy,
            Errno::NOSPC | Errno::DQUOT => Self::NoSpace,
            error => Self::Io(error.into()),
        }
    }
}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(errno) => Self::from(errno),
            None => Self::Io(error),
        }
    }
}

impl FileError {
    /// Returns whether the sandbox's own view could serve what this one refuses.
    pub fn is_for_the_sandbox(&self) -> bool {
        match self {
            Self::Link { .. }
            | Self::Special { .. }
            | Self::Outside
            | Self::Permission
            | Self::Moved
            | Self::Busy
            | Self::TooLarge { .. } => true,
            Self::NotFound
            | Self::IsDirectory
            | Self::NotDirectory
            | Self::Exists
            | Self::NotEmpty
            | Self::NameTooLong
            | Self::Changed
            | Self::NoSpace
            | Self::Binary
            | Self::NoMatch
            | Self::ManyMatches { .. }
            | Self::Encoding { .. }
            | Self::Io(_) => false,
        }
    }
}

fn lossy(name: &[u8]) -> String {
    if name.is_empty() {
        return "it".to_owned();
    }
    String::from_utf8_lossy(name).into_owned()
}
