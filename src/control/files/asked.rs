//! Says which operations on files there are, and what they answer.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use super::super::errand::Reset;
use super::given::GivenPath;
use crate::id::RequestId;
use crate::wire::files::{
    EditResponse, ExistsResponse, FileEntry, GrepResponse, ReadBytesResponse, ReadResponse,
    WriteResponse,
};
use crate::workspace::search::{Hidden, is_work_directory};
use crate::workspace::{Expected, Times, Window};

/// An operation, and the request that asks for it.
#[derive(Debug)]
pub struct Asked {
    /// What is to be done.
    pub op: Op,
    /// The path that it is about, where that is not UTF-8.
    pub path: Option<GivenPath>,
    /// What has to be there before it is written to.
    pub expected: Expected,
    /// The request.
    pub request_id: RequestId,
}

/// An operation on files; paths are as the caller wrote them.
#[derive(Debug)]
pub enum Op {
    /// Reads lines of a text.
    Read {
        /// The file.
        path: String,
        /// Which lines.
        window: Window,
    },
    /// Reads a whole file.
    ReadBytes {
        /// The file.
        path: String,
    },
    /// Replaces a file.
    Write {
        /// The file.
        path: String,
        /// Its new content.
        bytes: Vec<u8>,
    },
    /// Replaces a text within a file.
    Edit {
        /// The file.
        path: String,
        /// What is looked for.
        old: String,
        /// What it is replaced by.
        new: String,
        /// How often.
        times: Times,
    },
    /// Looks for a regular file.
    Exists {
        /// The file.
        path: String,
    },
    /// Lists a directory.
    Ls {
        /// The directory.
        path: String,
    },
    /// Finds files by a pattern.
    Glob {
        /// The pattern.
        pattern: String,
        /// Where the search begins.
        path: String,
    },
    /// Finds lines by a regular expression.
    Grep {
        /// The expression.
        pattern: String,
        /// Where the search begins; in the work directory where `None`.
        path: Option<String>,
        /// What the path of a file must fit.
        filter: Option<String>,
        /// What becomes of hidden files.
        hidden: Hidden,
    },
}

/// What an operation answers, also where it failed.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Answer {
    /// To a reading of lines.
    Read(ReadResponse),
    /// To a reading of bytes.
    Bytes(ReadBytesResponse),
    /// To a write.
    Write(WriteResponse),
    /// To an edit.
    Edit(EditResponse),
    /// Whether the file is there.
    Exists(ExistsResponse),
    /// Entries of a directory, or files that were found.
    Entries(Vec<FileEntry>),
    /// Lines that were found.
    Grep(GrepResponse),
}

impl Answer {
    /// Returns the bytes that were read; none of another answer.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::Bytes(answer) => STANDARD.decode(answer.content_b64).unwrap_or_default(),
            Self::Read(_)
            | Self::Write(_)
            | Self::Edit(_)
            | Self::Exists(_)
            | Self::Entries(_)
            | Self::Grep(_) => Vec::new(),
        }
    }
}

impl Op {
    /// Returns its name, as events have it.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Read { .. } => "read",
            Self::ReadBytes { .. } => "read_bytes",
            Self::Write { .. } => "write",
            Self::Edit { .. } => "edit",
            Self::Exists { .. } => "exists",
            Self::Ls { .. } => "ls",
            Self::Glob { .. } => "glob",
            Self::Grep { .. } => "grep",
        }
    }

    /// Returns whether it goes through a tree.
    pub(super) const fn searches(&self) -> bool {
        match self {
            Self::Glob { .. } | Self::Grep { .. } => true,
            Self::Read { .. }
            | Self::ReadBytes { .. }
            | Self::Write { .. }
            | Self::Edit { .. }
            | Self::Exists { .. }
            | Self::Ls { .. } => false,
        }
    }

    /// Returns how many bytes it may add, where it writes.
    pub(super) fn adds(&self) -> Option<u64> {
        let bytes = match self {
            Self::Write { bytes, .. } => bytes.len(),
            Self::Edit { new, .. } => new.len(),
            Self::Read { .. }
            | Self::ReadBytes { .. }
            | Self::Exists { .. }
            | Self::Ls { .. }
            | Self::Glob { .. }
            | Self::Grep { .. } => return None,
        };
        Some(u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    /// Returns what it is about, as events have it.
    pub(super) fn target(&self) -> String {
        match self {
            Self::Glob { pattern, path } => format!("{pattern} in {path}"),
            Self::Grep { pattern, .. } => pattern.clone(),
            Self::Read { path, .. }
            | Self::ReadBytes { path }
            | Self::Write { path, .. }
            | Self::Edit { path, .. }
            | Self::Exists { path }
            | Self::Ls { path } => path.clone(),
        }
    }

    /// Returns the path that it is about; nothing where that is the work directory.
    pub(super) fn root(&self) -> Option<&str> {
        match self {
            Self::Glob { path, .. } if is_work_directory(path) => None,
            Self::Grep { path, .. } => path
                .as_deref()
                .filter(|path| !path.is_empty() && *path != "." && *path != "./"),
            Self::Read { path, .. }
            | Self::ReadBytes { path }
            | Self::Write { path, .. }
            | Self::Edit { path, .. }
            | Self::Exists { path }
            | Self::Ls { path }
            | Self::Glob { path, .. } => Some(path),
        }
    }

    /// Returns how the paths that a search finds begin.
    pub(super) fn spelled_root(&self) -> &str {
        match self {
            Self::Glob { path, .. } if is_work_directory(path) => "",
            Self::Glob { path, .. } => {
                let mut path = path.as_str();
                while let Some(rest) = path.strip_prefix("./") {
                    path = rest.trim_start_matches('/');
                }
                path
            }
            Self::Grep { .. } => self.root().unwrap_or("."),
            Self::Read { .. }
            | Self::ReadBytes { .. }
            | Self::Write { .. }
            | Self::Edit { .. }
            | Self::Exists { .. }
            | Self::Ls { .. } => self.root().unwrap_or_default(),
        }
    }
}

impl Answer {
    /// Has the answer tell of a reset, where it can; returns the incarnation it tells of.
    pub(super) fn tell(&mut self, reset: Option<Reset>) -> Option<u64> {
        let reset = reset?;
        let incarnation = Some(reset.incarnation);
        let told = reset.wire();
        match self {
            Self::Read(answer) => answer.reset = told,
            Self::Bytes(answer) => answer.reset = told,
            Self::Write(answer) => answer.reset = told,
            Self::Edit(answer) => answer.reset = told,
            Self::Exists(answer) => answer.reset = told,
            Self::Grep(answer) => answer.reset = told,
            Self::Entries(_) => return None,
        }
        incarnation
    }

    /// Returns whether such an answer has a place to tell of a reset.
    pub(super) const fn can_tell(op: &Op) -> bool {
        match op {
            Op::Ls { .. } | Op::Glob { .. } => false,
            Op::Read { .. }
            | Op::ReadBytes { .. }
            | Op::Write { .. }
            | Op::Edit { .. }
            | Op::Exists { .. }
            | Op::Grep { .. } => true,
        }
    }
}
