//! Reads stored workspaces from the host, whether their sessions are open or not.
//!
//! No link is followed and no `..` accepted. It is no use of a session: nothing is
//! written down, and nothing kept awake.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::super::{Control, Refusal};
use super::given::GivenPath;
use super::host::{ENTRIES_MAX, SCAN_BYTES_MAX, kind_word, sized, sorted};
use super::refusal::FileRefusal;
use super::words;
use crate::cause::chain;
use crate::id::SessionId;
use crate::wire::files::{FileEntry, ReadBytesResponse, ReadResponse, TreeResponse};
use crate::workspace::search::{Leaf, Patience, SearchError, Start, TreeBounds, tree};
use crate::workspace::{
    Bounds, Dir, Family, FileError, Kind, NotAPath, Opened, RelPath, Window, WireName,
};

/// Bytes of the paths of one tree.
const TREE_BYTES_MAX: usize = 16 << 20;

/// How much of a tree is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The directory.
    pub path: GivenPath,
    /// Levels.
    pub depth: usize,
    /// Entries.
    pub entries: usize,
}

/// What is read of a stored workspace.
struct Stored {
    dir: Dir,
    path: RelPath,
    bytes_max: u64,
    patience: Patience,
}

/// What was looked for, which says what is missing where it is not there.
#[derive(Clone, Copy)]
enum Wanted {
    File,
    Directory,
}

impl Control {
    /// Lists a directory of a stored workspace.
    pub async fn stored_entries(
        &self,
        id: &SessionId,
        path: GivenPath,
    ) -> Result<Vec<FileEntry>, Refusal> {
        self.stored(id, path, Wanted::Directory, |stored| {
            let listing = stored.dir.open_dir(&stored.path)?.list(ENTRIES_MAX)?;
            let mut entries = Vec::with_capacity(listing.entries.len());
            for listed in listing.entries {
                let meta = listed.meta;
                // A name that came from the directory is one.
                if let (false, Ok(path)) =
                    (meta.kind == Kind::Link, stored.path.child(&listed.name))
                {
                    let is_dir = meta.kind == Kind::Dir;
                    let leaf = Leaf {
                        path: path.as_bytes().to_vec(),
                        kind: meta.kind,
                        size: (!is_dir).then_some(meta.size),
                        modified: (!is_dir).then_some((meta.modified_secs, meta.modified_nanos)),
                    };
                    entries.push(entry(&leaf));
                }
            }
            Ok(sorted(entries))
        })
        .await
    }

    /// Reads lines of a text of a stored workspace.
    pub async fn stored_lines(
        &self,
        id: &SessionId,
        path: GivenPath,
        window: Window,
    ) -> Result<ReadResponse, Refusal> {
        self.stored(id, path, Wanted::File, move |stored| {
            let opened = stored.dir.open_file(&stored.path)?;
            let family = Family::of(stored.path.as_bytes());
            let bounds = Bounds {
                text_bytes_max: stored.bytes_max,
                scan_bytes_max: SCAN_BYTES_MAX.max(stored.bytes_max),
            };
            let slice = opened.lines(window, family, bounds);
            let slice = slice.map_err(|error| sized(error, opened.meta.size))?;
            Ok(ReadResponse {
                content: words::lines(slice, window),
                etag: Some(opened.meta.etag()),
                ..ReadResponse::default()
            })
        })
        .await
    }

    /// Reads a whole file of a stored workspace.
    pub async fn stored_bytes(
        &self,
        id: &SessionId,
        path: GivenPath,
    ) -> Result<ReadBytesResponse, Refusal> {
        self.stored(id, path, Wanted::File, |stored| {
            let opened = stored.dir.open_file(&stored.path)?;
            let bytes = opened.read_whole(stored.bytes_max)?;
            Ok(ReadBytesResponse {
                content_b64: STANDARD.encode(bytes),
                etag: Some(opened.meta.etag()),
                ..ReadBytesResponse::default()
            })
        })
        .await
    }

    /// Opens a file of a stored workspace.
    pub(super) async fn stored_file(
        &self,
        id: &SessionId,
        path: GivenPath,
    ) -> Result<Opened, Refusal> {
        self.stored(id, path, Wanted::File, |stored| {
            stored.dir.open_file(&stored.path)
        })
        .await
    }

    /// Lists what lies below a directory of a stored workspace.
    pub async fn stored_tree(
        &self,
        id: &SessionId,
        extent: Extent,
    ) -> Result<TreeResponse, Refusal> {
        let bounds = TreeBounds {
            depth: extent.depth,
            entries: extent.entries,
            bytes: TREE_BYTES_MAX,
        };
        self.stored(id, extent.path, Wanted::Directory, move |stored| {
            // Only a directory has anything below it, and the start says which error it is.
            let start = Start {
                dir: &stored.dir,
                path: &stored.path,
            };
            let found = tree(start, &bounds, &stored.patience).map_err(|error| match error {
                SearchError::Start(error) => error,
                SearchError::Expression(_) | SearchError::Cancelled => FileError::Busy,
            })?;
            let truncated = found.is_truncated();
            let below = |mut leaf: Leaf| {
                if !stored.path.is_work_dir() {
                    let mut path = stored.path.as_bytes().to_vec();
                    path.push(b'/');
                    path.append(&mut leaf.path);
                    leaf.path = path;
                }
                entry(&leaf)
            };
            Ok(TreeResponse {
                entries: found.entries.into_iter().map(below).collect(),
                truncated,
            })
        })
        .await
    }

    /// Does some reading of a stored workspace.
    async fn stored<T: Send + 'static>(
        &self,
        id: &SessionId,
        path: GivenPath,
        wanted: Wanted,
        read: impl FnOnce(&Stored) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, Refusal> {
        let workspaces = self.0.host.workspaces.clone();
        let workspaces = workspaces.ok_or(FileRefusal::NoWorkspaces)?;
        self.has_workspaces()?;
        let policy = self.0.policy.get();
        let ceiling = policy.limits.execute_timeout;
        let deadline = Instant::now() + ceiling;
        let late = || Refusal::from(FileRefusal::TooSlow(ceiling.as_secs()));
        let room = Arc::clone(&self.0.files.room).acquire_owned();
        let permit = timeout_at(deadline, room).await.map_err(|_| late())?;
        let gone = CancellationToken::new();
        let clock = self.0.books.clock.clone();
        let until = clock.now().plus(ceiling);
        let patience = Patience::new(clock, until, gone.clone());
        let caller = gone.drop_guard();
        let (id, bytes_max) = (id.clone(), policy.limits.max_read_bytes);
        let work_dir = policy.interior.work_dir.clone();
        let work = tokio::task::spawn_blocking(move || {
            let _held = permit;
            let dir = match workspaces.enter(&id) {
                Ok(Some(dir)) => dir,
                Ok(None) => return Err(FileRefusal::NoWorkspace(id)),
                Err(error) => return Err(FileRefusal::Broken(chain(&error))),
            };
            let at = RelPath::stored(work_dir.as_bytes(), path.as_bytes());
            let at = at.map_err(|error| no_path(error, path.lossy(), wanted))?;
            let stored = Stored {
                dir,
                path: at,
                bytes_max,
                patience,
            };
            read(&stored).map_err(|error| refused(&error, &stored.path.to_string(), wanted))
        });
        let done = timeout_at(deadline, work).await.map_err(|_| late())?;
        drop(caller);
        match done {
            Ok(done) => Ok(done?),
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }
}

fn no_path(error: NotAPath, path: &str, wanted: Wanted) -> FileRefusal {
    match error {
        NotAPath::Climbs => FileRefusal::Outside(path.to_owned()),
        NotAPath::Nul => FileRefusal::Unreadable(error.to_string()),
        NotAPath::Empty | NotAPath::TooLong | NotAPath::NameTooLong => missing(path, wanted),
    }
}

fn missing(path: &str, wanted: Wanted) -> FileRefusal {
    match wanted {
        Wanted::File => FileRefusal::NoFile(path.to_owned()),
        Wanted::Directory => FileRefusal::NoDirectory(path.to_owned()),
    }
}

fn refused(error: &FileError, path: &str, wanted: Wanted) -> FileRefusal {
    match error {
        FileError::NotFound
        | FileError::IsDirectory
        | FileError::NotDirectory
        | FileError::NameTooLong => missing(path, wanted),
        FileError::Link { .. } | FileError::Special { .. } | FileError::Outside => {
            FileRefusal::Outside(path.to_owned())
        }
        FileError::TooLarge { bytes, limit } => {
            FileRefusal::Unreadable(words::over_limit(*bytes, *limit))
        }
        FileError::Binary => FileRefusal::Unreadable(error.to_string()),
        other => FileRefusal::Broken(chain(other)),
    }
}

/// Shows an entry by its path below the workspace.
fn entry(leaf: &Leaf) -> FileEntry {
    let name = leaf.path.rsplit(|byte| *byte == b'/').next();
    let name = WireName::of(name.unwrap_or_default());
    FileEntry {
        name: name.text,
        path: String::from_utf8_lossy(&leaf.path).into_owned(),
        is_dir: leaf.kind == Kind::Dir,
        size: leaf.size,
        modified_at: leaf.modified.and_then(|(secs, nanos)| iso(secs, nanos)),
        kind: Some(kind_word(leaf.kind).to_owned()),
        name_b64: name.b64,
        path_b64: WireName::of(&leaf.path).b64,
    }
}

/// Writes a time as Python's `isoformat` does, in UTC.
fn iso(secs: i64, nanos: u32) -> Option<String> {
    let at = jiff::Timestamp::from_second(secs).ok()?;
    let text = at.strftime("%Y-%m-%dT%H:%M:%S").to_string();
    Some(match nanos / 1_000 {
        0 => format!("{text}+00:00"),
        micros => format!("{text}.{micros:06}+00:00"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_python_does() {
        let told = |nanos| iso(1_796_000_619, nanos);
        let micros = "2026-11-30T01:03:39.737463+00:00".to_owned();
        assert_eq!(told(737_463_999), Some(micros));
        assert_eq!(told(999), Some("2026-11-30T01:03:39+00:00".to_owned()));
    }
}
