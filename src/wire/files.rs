//! Files of sessions and of stored workspaces.

use serde::{Deserialize, Serialize};

/// Asks for lines of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadRequest {
    /// Relative to the work directory, or absolute.
    pub path: String,
    /// The first line, counted from zero.
    #[serde(default)]
    pub offset: u64,
    /// How many lines at most.
    pub limit: u64,
}

/// Told once after the sandbox was reset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResetTold {
    /// Which life of the sandbox this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<u64>,
    /// Why it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset_reason: Option<String>,
}

/// Lines of a file, or why there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadResponse {
    /// The lines, or a sentence that begins with `Error:` or `[Error`.
    pub content: String,
    /// Why the file could not be read, only where it could not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What tells this content of the file from others, where the host has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// Told once after a reset.
    #[serde(flatten)]
    pub reset: ResetTold,
}

/// Asks about a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathRequest {
    /// Relative to the work directory, or absolute.
    pub path: String,
}

/// The bytes of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadBytesResponse {
    /// In base64; empty where they cannot be read.
    pub content_b64: String,
    /// Why they cannot, only where they cannot: an empty file can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What tells this content of the file from others, where the host has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// Told once after a reset.
    #[serde(flatten)]
    pub reset: ResetTold,
}

/// Replaces a file whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteRequest {
    /// Relative to the work directory, or absolute.
    pub path: String,
    /// The new content in base64.
    pub content_b64: String,
}

/// What became of a write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteResponse {
    /// The absolute path, where it was written.
    pub path: Option<String>,
    /// Why it was not.
    pub error: Option<String>,
    /// What tells this content of the file from others, where the host has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// Told once after a reset.
    #[serde(flatten)]
    pub reset: ResetTold,
}

/// Replaces a text within a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EditRequest {
    /// Relative to the work directory, or absolute.
    pub path: String,
    /// What is looked for.
    pub old_string: String,
    /// What it is replaced by.
    pub new_string: String,
    /// Whether it may be there more than once.
    #[serde(default)]
    pub replace_all: bool,
}

/// What became of an edit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EditResponse {
    /// The absolute path, where it was edited.
    pub path: Option<String>,
    /// Why it was not.
    pub error: Option<String>,
    /// How often the text was replaced.
    pub occurrences: Option<u64>,
    /// What tells this content of the file from others, where the host has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// Told once after a reset.
    #[serde(flatten)]
    pub reset: ResetTold,
}

/// Whether a regular file is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExistsResponse {
    /// Whether it is.
    pub exists: bool,
    /// Told once after a reset.
    #[serde(flatten)]
    pub reset: ResetTold,
}

/// A file or a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Its name; of a listed link, `name -> target`.
    pub name: String,
    /// Its path, as the request spelled what it lies in.
    pub path: String,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// Its bytes.
    pub size: Option<u64>,
    /// When its content was last changed, in UTC, where stored workspaces are listed.
    pub modified_at: Option<String>,
    /// `file`, `dir`, `link` or `other`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The name's bytes in base64, where they are not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name_b64: Option<String>,
    /// The path's bytes in base64, where they are not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_b64: Option<String>,
}

/// Asks for files whose paths fit a pattern.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GlobRequest {
    /// A base name without a slash, or a path below `path`.
    pub pattern: String,
    /// Where the search begins; `/`, `.` and nothing mean the work directory.
    pub path: String,
}

/// Asks for lines that match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrepRequest {
    /// A regular expression.
    pub pattern: String,
    /// A file or a directory; the work directory where `None`.
    #[serde(default)]
    pub path: Option<String>,
    /// What the path of a file must fit.
    #[serde(default)]
    pub glob: Option<String>,
    /// Whether hidden files and directories are passed by.
    pub ignore_hidden: bool,
}

/// Lines that match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrepResponse {
    /// In the order of paths and lines.
    pub matches: Vec<GrepMatch>,
    /// Why nothing was searched.
    pub error: Option<String>,
    /// What could not be searched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<SkippedPath>,
    /// Whether a bound ended the search early.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// Told once after a reset.
    #[serde(flatten)]
    pub reset: ResetTold,
}

/// A line that matches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrepMatch {
    /// The file, as the request spelled what it lies in.
    pub path: String,
    /// Counted from 1.
    pub line_number: u64,
    /// The line without its end.
    pub line: String,
    /// The path's bytes in base64, where they are not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_b64: Option<String>,
}

/// A path that a search left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedPath {
    /// The path.
    pub path: String,
    /// Why.
    pub reason: String,
}

/// A file that was taken in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uploaded {
    /// The absolute path.
    pub path: String,
    /// Its bytes.
    pub size: u64,
    /// The SHA-256 of its bytes, in hexadecimal digits.
    pub sha256: String,
    /// What tells it from others, as the header `ETag` has it without quotes; of files of
    /// the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// Told once after a reset.
    #[serde(flatten)]
    pub reset: ResetTold,
}

/// A change in a directory that is watched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChange {
    /// `created`, `modified`, `removed`, `moved`, `overflow` or `gone`.
    pub kind: String,
    /// The path, as the request spelled the directory; of `overflow` and `gone` the
    /// directory.
    pub path: String,
    /// The bytes of the path in base64, where they are not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_b64: Option<String>,
    /// What the path was before it was moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The bytes of that in base64, where they are not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_b64: Option<String>,
}

/// Where a path leads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RealpathResponse {
    /// The absolute path.
    pub path: String,
    /// The path's bytes in base64, where they are not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_b64: Option<String>,
}

/// Asks for what lies below a directory of a stored workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeRequest {
    /// The directory.
    pub path: String,
    /// Levels, 1 to 64.
    pub max_depth: u64,
    /// Entries, 1 to 100,000.
    pub max_entries: u64,
}

/// What lies below a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeResponse {
    /// Breadth first, without links.
    pub entries: Vec<FileEntry>,
    /// Whether something is missing.
    pub truncated: bool,
}

/// Asks for the trees of several stored workspaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreesRequest {
    /// 1 to 100 ids.
    pub sessions: Vec<String>,
    /// The directory in each.
    pub path: String,
    /// Levels, 1 to 64.
    pub max_depth: u64,
    /// Entries of each, 1 to 100,000.
    pub max_entries: u64,
}

/// The trees of several stored workspaces, in the order of the request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreesResponse {
    /// One for each.
    pub results: Vec<TreeResult>,
}

/// The tree of one workspace, or why there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeResult {
    /// Its id.
    pub session_id: String,
    /// The tree.
    pub tree: Option<TreeResponse>,
    /// Why there is none.
    pub error: Option<String>,
    /// The status that it would have had alone.
    pub status_code: Option<u16>,
}
