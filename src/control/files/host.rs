//! Carries out operations on the host's side of a work directory. Its calls block.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::asked::{Answer, Op};
use super::words;
use crate::wire::files::{
    EditResponse, ExistsResponse, FileEntry, GrepMatch, GrepResponse, ReadBytesResponse,
    ReadResponse, SkippedPath, WriteResponse,
};
use crate::workspace::search::{
    DEPTH_MAX, Expression, GlobBounds, GrepBounds, Grepped, Patience, Pattern, Query, Reach,
    SearchError, Skipped, Start, glob, grep, spell,
};
use crate::workspace::{
    Bounds, Change, Dir, Expected, Family, FileError, Kind, Old, RelPath, Replacing, Survives,
    WireName, is_absolute,
};

/// Entries that a listing shows.
pub(in crate::control) const ENTRIES_MAX: usize = 100_000;
/// Bytes of a file that are read to find lines in it.
pub(in crate::control) const SCAN_BYTES_MAX: u64 = 1 << 30;
/// Entries that a search looks at.
const SEARCHED_MAX: usize = 2_000_000;
/// Files that a search finds.
pub(super) const PATHS_MAX: usize = 100_000;
/// Bytes of what a search finds.
const FOUND_BYTES_MAX: usize = 8 << 20;
/// Lines that a search finds.
const HITS_MAX: usize = 20_000;
/// Bytes of a line that is shown.
const LINE_BYTES_MAX: usize = 64 << 10;
/// Bytes that a search for lines reads.
const SEARCH_BYTES_MAX: u64 = 16 << 30;

const REACH: Reach = Reach {
    depth: DEPTH_MAX,
    entries: SEARCHED_MAX,
};

/// What a search for lines may take.
pub(super) const GREP_BOUNDS: GrepBounds = GrepBounds {
    reach: REACH,
    hits: HITS_MAX,
    bytes: FOUND_BYTES_MAX,
    line_bytes: LINE_BYTES_MAX,
    read_bytes: SEARCH_BYTES_MAX,
};

/// What operations on files go by.
#[derive(Clone, Debug)]
pub(super) struct Site {
    /// Where relative paths begin.
    pub(super) work_dir: String,
    /// Bytes of the largest file that is read whole, and of what a reading answers.
    pub(super) bytes_max: u64,
    /// Until when a search may go on.
    pub(super) patience: Patience,
    /// What has to be there before it is written to.
    pub(super) expected: Expected,
}

impl Site {
    /// Returns a path as the sandbox has it, as it was written otherwise.
    pub(super) fn absolute(&self, path: &str) -> String {
        absolute(&self.work_dir, path)
    }

    /// Says how a file is replaced that is the expected one.
    fn replacing(&self, dir: &Dir, at: &RelPath, bytes_max: u64) -> Result<Replacing, FileError> {
        Ok(Replacing {
            expected: dir.known(at, self.expected.clone(), SCAN_BYTES_MAX)?,
            ..replacing(dir, bytes_max)?
        })
    }

    pub(super) fn bounds(&self) -> Bounds {
        Bounds {
            text_bytes_max: self.bytes_max,
            scan_bytes_max: SCAN_BYTES_MAX.max(self.bytes_max),
        }
    }
}

/// Returns a path as the sandbox has it, as it was written otherwise.
pub(super) fn absolute(work_dir: &str, path: &str) -> String {
    if is_absolute(path.as_bytes()) {
        return path.to_owned();
    }
    format!("{}/{path}", work_dir.trim_end_matches('/'))
}

/// Carries out an operation on what is at `at` in a work directory; returns what gave way
/// to something else too.
pub(super) fn carry_out(
    dir: &Dir,
    op: &Op,
    at: &RelPath,
    site: &Site,
) -> Result<(Answer, Option<Old>), FileError> {
    let Op::Write { path, bytes } = op else {
        return look_or_edit(dir, op, at, site).map(|answer| (answer, None));
    };
    let placed = dir.write_pieces(at, [bytes], site.replacing(dir, at, u64::MAX)?)?;
    let answer = Answer::Write(WriteResponse {
        path: Some(site.absolute(path)),
        etag: Some(placed.meta.etag()),
        ..WriteResponse::default()
    });
    Ok((answer, placed.old))
}

fn look_or_edit(dir: &Dir, op: &Op, at: &RelPath, site: &Site) -> Result<Answer, FileError> {
    match op {
        Op::Read { path, window } => {
            let opened = dir.open_file(at)?;
            let family = Family::of(path.as_bytes());
            let slice = opened.lines(*window, family, site.bounds());
            let slice = slice.map_err(|error| sized(error, opened.meta.size))?;
            Ok(Answer::Read(ReadResponse {
                content: words::lines(slice, *window),
                etag: Some(opened.meta.etag()),
                ..ReadResponse::default()
            }))
        }
        Op::ReadBytes { .. } => {
            let opened = dir.open_file(at)?;
            let bytes = opened.read_whole(site.bytes_max)?;
            Ok(Answer::Bytes(ReadBytesResponse {
                content_b64: STANDARD.encode(bytes),
                etag: Some(opened.meta.etag()),
                ..ReadBytesResponse::default()
            }))
        }
        Op::Write { .. } => unreachable!("it is the one that does not come here"),
        Op::Edit {
            path,
            old,
            new,
            times,
        } => {
            let change = Change {
                old,
                new,
                times: *times,
            };
            let family = Family::of(path.as_bytes());
            let how = site.replacing(dir, at, site.bytes_max)?;
            let edited = dir.edit(at, change, family, &how)?;
            Ok(Answer::Edit(EditResponse {
                path: Some(site.absolute(path)),
                occurrences: Some(edited.n_replaced),
                etag: Some(edited.meta.etag()),
                ..EditResponse::default()
            }))
        }
        Op::Exists { .. } => match dir.stat(at)?.kind {
            Kind::File => Ok(exists(true)),
            // Only the sandbox can follow it.
            Kind::Link => Err(FileError::Link { name: Vec::new() }),
            Kind::Dir | Kind::Other => Ok(exists(false)),
        },
        Op::Ls { path } => ls(&dir.open_dir(at)?, path),
        Op::Glob { pattern, .. } => globbed(dir, op, at, (pattern, &site.patience)),
        Op::Grep { .. } => grepped(dir, op, at, &site.patience),
    }
}

/// Says how what is new in a workspace is made: it is the owner's of the whole.
pub(in crate::control) fn replacing(dir: &Dir, bytes_max: u64) -> Result<Replacing, FileError> {
    Ok(Replacing {
        owner: Some(dir.meta()?.owner),
        bytes_max,
        expected: Expected::Anything,
        survives: Survives::DaemonEnd,
    })
}

/// Tells of a file's own size where what was wanted of it is too large.
pub(in crate::control) fn sized(error: FileError, size: u64) -> FileError {
    match error {
        FileError::TooLarge { bytes, limit } => FileError::TooLarge {
            bytes: bytes.max(size),
            limit,
        },
        other => other,
    }
}

pub(super) fn bytes_answer(bytes: &[u8]) -> Answer {
    Answer::Bytes(ReadBytesResponse {
        content_b64: STANDARD.encode(bytes),
        ..ReadBytesResponse::default()
    })
}

pub(super) fn written(path: String) -> Answer {
    Answer::Write(WriteResponse {
        path: Some(path),
        ..WriteResponse::default()
    })
}

pub(super) fn edited_answer(path: String, n_replaced: u64) -> Answer {
    Answer::Edit(EditResponse {
        path: Some(path),
        occurrences: Some(n_replaced),
        ..EditResponse::default()
    })
}

pub(super) fn exists(exists: bool) -> Answer {
    Answer::Exists(ExistsResponse {
        exists,
        ..ExistsResponse::default()
    })
}

fn ls(dir: &Dir, path: &str) -> Result<Answer, FileError> {
    let listing = dir.list(ENTRIES_MAX)?;
    let mut entries = Vec::with_capacity(listing.entries.len());
    for listed in listing.entries {
        let target = match listed.meta.kind {
            Kind::Link => dir.target(&listed.name).ok(),
            Kind::File | Kind::Dir | Kind::Other => None,
        };
        let seen = Seen {
            name: listed.name,
            kind: listed.meta.kind,
            size: listed.meta.size,
            target,
        };
        entries.push(seen.entry(path));
    }
    Ok(Answer::Entries(sorted(entries)))
}

/// An entry of a directory, as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) name: Vec<u8>,
    pub(super) kind: Kind,
    pub(super) size: u64,
    /// What it says, where it is a link.
    pub(super) target: Option<Vec<u8>>,
}

impl Seen {
    /// Shows it below a directory as the caller spelled it.
    pub(super) fn entry(self, directory: &str) -> FileEntry {
        let mut shown = self.name.clone();
        if let Some(target) = &self.target {
            shown.extend_from_slice(b" -> ");
            shown.extend_from_slice(target);
        }
        let directory = directory.trim_end_matches('/');
        let path = format!("{directory}/{}", String::from_utf8_lossy(&shown));
        let whole = [directory.as_bytes(), b"/", &self.name].concat();
        FileEntry {
            path_b64: WireName::of(&whole).b64,
            name: String::from_utf8_lossy(&shown).into_owned(),
            path,
            is_dir: self.kind == Kind::Dir,
            size: Some(self.size),
            modified_at: None,
            kind: Some(kind_word(self.kind).to_owned()),
            name_b64: WireName::of(&self.name).b64,
        }
    }
}

pub(in crate::control) const fn kind_word(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "file",
        Kind::Dir => "dir",
        Kind::Link => "link",
        Kind::Other => "other",
    }
}

/// Puts directories first, then sorts by name.
pub(in crate::control) fn sorted(mut entries: Vec<FileEntry>) -> Vec<FileEntry> {
    entries.sort_by(|a, b| (!a.is_dir, &a.name).cmp(&(!b.is_dir, &b.name)));
    entries
}

fn globbed(
    dir: &Dir,
    op: &Op,
    at: &RelPath,
    (pattern, patience): (&str, &Patience),
) -> Result<Answer, FileError> {
    let Ok(pattern) = Pattern::parse(pattern) else {
        return Ok(Answer::Entries(Vec::new()));
    };
    let bounds = GlobBounds {
        reach: REACH,
        paths: PATHS_MAX,
        bytes: FOUND_BYTES_MAX,
    };
    match glob(Start { dir, path: at }, &pattern, &bounds, patience) {
        Ok(found) => Ok(found_files(op, found.paths)),
        Err(error) => Err(start_error(error)),
    }
}

/// Shows files that were found below the root of a search.
pub(super) fn found_files(op: &Op, paths: Vec<Vec<u8>>) -> Answer {
    let root = op.spelled_root().as_bytes();
    let entry = |below: Vec<u8>| {
        let path = spell(root, &below);
        let name = below.rsplit(|byte| *byte == b'/').next();
        let name = WireName::of(name.unwrap_or_default());
        FileEntry {
            name: name.text,
            path: String::from_utf8_lossy(&path).into_owned(),
            is_dir: false,
            size: None,
            modified_at: None,
            kind: Some("file".to_owned()),
            name_b64: name.b64,
            path_b64: WireName::of(&path).b64,
        }
    };
    let mut entries: Vec<FileEntry> = paths.into_iter().map(entry).collect();
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    Answer::Entries(entries)
}

pub(super) fn start_error(error: SearchError) -> FileError {
    match error {
        SearchError::Start(error) => error,
        SearchError::Expression(_) | SearchError::Cancelled => {
            FileError::Io(std::io::Error::other(error.to_string()))
        }
    }
}

/// Reads the expression and the filter of a search, or answers that they are none.
pub(super) fn query(
    pattern: &str,
    filter: Option<&str>,
) -> Result<(Expression, Option<Pattern>), Box<Answer>> {
    let refused = |why: String| Box::new(Answer::Grep(words::not_searched(&why)));
    let expression = Expression::parse(pattern).map_err(|error| refused(error.to_string()))?;
    let filter = filter.map(Pattern::parse).transpose();
    let filter = filter.map_err(|error| refused(error.to_string()))?;
    Ok((expression, filter))
}

fn grepped(dir: &Dir, op: &Op, at: &RelPath, patience: &Patience) -> Result<Answer, FileError> {
    let Op::Grep {
        pattern,
        filter,
        hidden,
        ..
    } = op
    else {
        return Ok(Answer::Grep(GrepResponse::default()));
    };
    let (expression, filter) = match query(pattern, filter.as_deref()) {
        Ok(query) => query,
        Err(answer) => return Ok(*answer),
    };
    let query = Query {
        expression: &expression,
        filter: filter.as_ref(),
        hidden: *hidden,
    };
    match grep(Start { dir, path: at }, query, &GREP_BOUNDS, patience) {
        Ok(found) => Ok(found_lines(op, found)),
        Err(error) => Err(start_error(error)),
    }
}

/// Shows lines that were found below the root of a search.
pub(super) fn found_lines(op: &Op, found: Grepped) -> Answer {
    let root = op.spelled_root().as_bytes();
    let matches = found.hits.into_iter().map(|hit| GrepMatch {
        path: String::from_utf8_lossy(&spell(root, &hit.path)).into_owned(),
        path_b64: WireName::of(&spell(root, &hit.path)).b64,
        line_number: hit.line_number,
        line: String::from_utf8_lossy(&hit.line).into_owned(),
    });
    Answer::Grep(GrepResponse {
        matches: matches.collect(),
        error: None,
        skipped: skipped(root, &found.skipped),
        truncated: found.cut.is_some(),
        reset: crate::wire::files::ResetTold::default(),
    })
}

fn skipped(root: &[u8], skipped: &Skipped) -> Vec<SkippedPath> {
    let listed = skipped.listed.iter();
    let shown = listed.map(|left| SkippedPath {
        path: String::from_utf8_lossy(&spell(root, &left.path)).into_owned(),
        reason: left.why.to_string(),
    });
    shown.collect()
}
