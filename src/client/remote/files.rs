//! The operations on the files of a sandbox.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use super::{OperationFailure, RemoteSandbox};
use crate::wire::files::{
    EditRequest, EditResponse, ExistsResponse, FileEntry, GlobRequest, GrepMatch, GrepRequest,
    GrepResponse, PathRequest, ReadBytesResponse, ReadRequest, ReadResponse, SkippedPath,
    WriteRequest, WriteResponse,
};

/// Lines that are read where nothing else is asked.
pub const LINES_DEFAULT: u64 = 2_000;

/// Which lines of a file are read; the first [`LINES_DEFAULT`] where nothing else is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLines {
    /// The first line, counted from zero.
    pub offset: u64,
    /// How many at most; at least 1.
    pub limit: u64,
}

impl Default for FileLines {
    fn default() -> Self {
        Self {
            offset: 0,
            limit: LINES_DEFAULT,
        }
    }
}

/// How often a text is replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplaceText {
    /// Once; it is a failure for it to be there more often.
    #[default]
    Once,
    /// Wherever it is.
    Everywhere,
}

/// What an edit did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edited {
    /// The absolute path of the file.
    pub path: String,
    /// How often the text was replaced.
    pub occurrences: u64,
}

/// Whether a search looks into what begins with a dot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SearchHidden {
    /// It passes it by.
    #[default]
    No,
    /// It does.
    Yes,
}

/// Where a search looks; the default is the whole work directory but hidden files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrepOptions {
    /// A file or a directory.
    pub path: Option<String>,
    /// What the path of a file must fit.
    pub glob: Option<String>,
    /// Whether hidden files and directories are searched.
    pub hidden: SearchHidden,
}

/// What a search found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The lines that match, in the order of paths and lines.
    pub matches: Vec<GrepMatch>,
    /// What could not be searched.
    pub skipped: Vec<SkippedPath>,
    /// Whether a bound ended the search early.
    pub truncated: bool,
}

/// A path is relative to the work directory or absolute.
impl RemoteSandbox {
    /// Reads lines of a text, without the ending of the last one.
    ///
    /// Where there are more lines, the text ends in a note that says so; where there are
    /// none at `offset`, it is `[End of file]`. Fails where the file is not there, is no
    /// text or is too large for the service.
    pub async fn read(&self, path: &str, lines: FileLines) -> Result<String, OperationFailure> {
        let request = ReadRequest {
            path: path.to_owned(),
            offset: lines.offset,
            limit: lines.limit,
        };
        let reply: ReadResponse = self.operate("read", &request, None).await?;
        self.0.told(reply.reset);
        told(reply.error)?;
        Ok(reply.content)
    }

    /// Reads a whole file, which may be empty.
    ///
    /// Fails where it is not there, cannot be read or is too large for the service.
    pub async fn read_bytes(&self, path: &str) -> Result<Bytes, OperationFailure> {
        let reply: ReadBytesResponse = self.operate("read_bytes", &at(path), None).await?;
        self.0.told(reply.reset);
        told(reply.error)?;
        let bytes = STANDARD.decode(&reply.content_b64);
        bytes
            .map(Bytes::from)
            .map_err(|error| OperationFailure::Told(format!("read_bytes of {path}: {error}")))
    }

    /// Replaces a file whole, and makes the directories above it; returns its absolute path.
    ///
    /// The service takes a body of 16 MiB, which is a file of 12.
    pub async fn write(
        &self,
        path: &str,
        content: impl AsRef<[u8]>,
    ) -> Result<String, OperationFailure> {
        let request = WriteRequest {
            path: path.to_owned(),
            content_b64: STANDARD.encode(content),
        };
        let reply: WriteResponse = self.operate("write", &request, None).await?;
        self.0.told(reply.reset);
        told(reply.error)?;
        Ok(reply.path.unwrap_or(request.path))
    }

    /// Replaces a text within a file; encoding, line endings and mode stay.
    ///
    /// Fails where the text is not there, or more than once where it is to be replaced once.
    pub async fn edit(
        &self,
        path: &str,
        (old, new): (&str, &str),
        replace: ReplaceText,
    ) -> Result<Edited, OperationFailure> {
        let request = EditRequest {
            path: path.to_owned(),
            old_string: old.to_owned(),
            new_string: new.to_owned(),
            replace_all: replace == ReplaceText::Everywhere,
        };
        let reply: EditResponse = self.operate("edit", &request, None).await?;
        self.0.told(reply.reset);
        told(reply.error)?;
        Ok(Edited {
            path: reply.path.unwrap_or(request.path),
            occurrences: reply.occurrences.unwrap_or_default(),
        })
    }

    /// Whether a regular file is there, links followed.
    pub async fn exists(&self, path: &str) -> Result<bool, OperationFailure> {
        let reply: ExistsResponse = self.operate("exists", &at(path), None).await?;
        self.0.told(reply.reset);
        Ok(reply.exists)
    }

    /// Lists a directory, directories first; nothing where there is no such directory.
    pub async fn ls(&self, path: &str) -> Result<Vec<FileEntry>, OperationFailure> {
        self.operate("ls", &at(path), None).await
    }

    /// Finds regular files below `path`; `/` and `.` are the work directory.
    ///
    /// A pattern without a slash is a base name at any depth, `**` stands for any
    /// directories. Nothing is found below what is not there.
    pub async fn glob(
        &self,
        pattern: &str,
        path: &str,
    ) -> Result<Vec<FileEntry>, OperationFailure> {
        let request = GlobRequest {
            pattern: pattern.to_owned(),
            path: path.to_owned(),
        };
        self.operate("glob", &request, None).await
    }

    /// Finds lines that match an expression in the syntax of Rust's `regex` crate.
    ///
    /// Fails where the expression is none, or there is nothing to search.
    pub async fn grep(
        &self,
        pattern: &str,
        options: &GrepOptions,
    ) -> Result<Found, OperationFailure> {
        let request = GrepRequest {
            pattern: pattern.to_owned(),
            path: options.path.clone(),
            glob: options.glob.clone(),
            ignore_hidden: options.hidden == SearchHidden::No,
        };
        let reply: GrepResponse = self.operate("grep", &request, None).await?;
        self.0.told(reply.reset);
        told(reply.error)?;
        Ok(Found {
            matches: reply.matches,
            skipped: reply.skipped,
            truncated: reply.truncated,
        })
    }
}

fn at(path: &str) -> PathRequest {
    PathRequest {
        path: path.to_owned(),
    }
}

/// Makes a failure of what the service says instead of an answer.
fn told(error: Option<String>) -> Result<(), OperationFailure> {
    error.map_or(Ok(()), |text| {
        let text = text.strip_prefix("Error: ").unwrap_or(&text);
        Err(OperationFailure::Told(text.trim_end().to_owned()))
    })
}
