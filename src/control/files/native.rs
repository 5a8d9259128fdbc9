//! Serves files of sessions by the host alone: nothing is woken for them, and what the
//! host cannot do as the sandbox would is handed back to it.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::{Instant, timeout_at};

use super::super::errand::{Account, Entry, Noted};
use super::super::{Control, Refusal};
use super::blocking::{Left, Length};
use super::given::GivenPath;
use super::host::{ENTRIES_MAX, kind_word, replacing};
use super::refusal::{ErrorName, FileRefusal};
use super::words;
use crate::cause::chain;
use crate::id::{RequestId, SessionId};
use crate::wire::files::{FileEntry, RealpathResponse};
use crate::workspace::{
    Dir, FileError, Kind, Meta, NotAPath, Old, Place, RelPath, WireName, Workspaces, has_dot,
    is_absolute,
};

/// An operation by the host alone, on an absolute path.
#[derive(Debug)]
pub enum Native {
    /// Reads a whole file.
    Read,
    /// Replaces a file by these bytes, one piece after the other.
    Write(Vec<Bytes>),
    /// Describes a file or a directory.
    Stat,
    /// Lists a directory.
    List,
    /// Resolves a path.
    Realpath,
    /// Makes a directory and those above it.
    Mkdir,
    /// Removes a file or a tree.
    Remove,
}

/// What such an operation answers.
#[derive(Debug)]
pub enum NativeAnswer {
    /// Nothing but that it was done.
    Done,
    /// The bytes of a file.
    Bytes(Vec<u8>),
    /// A file or a directory.
    Entry(FileEntry),
    /// What is in a directory.
    Entries(Vec<FileEntry>),
    /// A path.
    Path(RealpathResponse),
}

/// Where an operation is carried out.
struct Ground {
    workspaces: Workspaces,
    dir: Dir,
    at: RelPath,
    path: GivenPath,
    work_dir: String,
    bytes_max: u64,
}

impl Native {
    /// Returns its name, as events have it.
    const fn name(&self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write(_) => "write",
            Self::Stat => "stat",
            Self::List => "ls",
            Self::Realpath => "realpath",
            Self::Mkdir => "mkdir",
            Self::Remove => "remove",
        }
    }

    /// Returns how many bytes it may add, where it writes.
    fn adds(&self) -> Option<u64> {
        match self {
            Self::Write(pieces) => {
                let bytes = pieces.iter().map(Bytes::len).sum::<usize>();
                Some(u64::try_from(bytes).unwrap_or(u64::MAX))
            }
            Self::Mkdir => Some(0),
            Self::Read | Self::Stat | Self::List | Self::Realpath | Self::Remove => None,
        }
    }

    const fn changes(&self) -> bool {
        match self {
            Self::Write(_) | Self::Mkdir | Self::Remove => true,
            Self::Read | Self::Stat | Self::List | Self::Realpath => false,
        }
    }
}

impl Control {
    /// Returns how many bytes a native write may have; refuses where there is none.
    pub fn native_write_max(&self, id: &SessionId) -> Result<u64, Refusal> {
        if self.open_record(id).is_none() {
            return Err(Refusal::NoSession(id.clone()));
        }
        if !self.has_native_writes() {
            return Err(FileRefusal::Handed("native writes are off".to_owned()).into());
        }
        Ok(self.0.policy.get().limits.max_read_bytes)
    }

    /// Returns whether files are served by the host alone.
    pub(in crate::control) fn has_native_files(&self) -> bool {
        self.0.host.workspaces.is_some()
    }

    /// Returns whether files are written by the host alone: it has to be able to give
    /// them to the sandbox's user.
    pub(in crate::control) fn has_native_writes(&self) -> bool {
        let me = rustix::process::geteuid();
        let user = self.0.policy.get().interior.sandbox_uid;
        self.has_native_files() && (me.is_root() || user.is_none_or(|uid| uid == me.as_raw()))
    }

    /// Refuses a change where there are none, or no room for it.
    async fn may_change(&self, id: &SessionId, native: &Native) -> Result<(), Refusal> {
        if native.changes() {
            self.native_write_max(id)?;
        }
        match native.adds() {
            Some(bytes) => self.has_room_for(id, bytes).await,
            None => Ok(()),
        }
    }

    /// Carries out an operation on a session's files by the host alone.
    pub async fn native(
        &self,
        id: &SessionId,
        (native, path): (Native, GivenPath),
        request_id: &RequestId,
    ) -> Result<NativeAnswer, Refusal> {
        let began = self.0.books.clock.now();
        let policy = self.0.policy.get();
        let ceiling = policy.limits.execute_timeout;
        let deadline = Instant::now() + ceiling;
        if self.open_record(id).is_none() {
            return Err(Refusal::NoSession(id.clone()));
        }
        self.may_change(id, &native).await?;
        let Some(workspaces) = self.0.host.workspaces.clone() else {
            return Err(FileRefusal::Handed("native files are off".to_owned()).into());
        };
        self.has_workspaces()?;
        let removes = matches!(native, Native::Remove);
        let late = || Refusal::from(FileRefusal::TooSlow(ceiling.as_secs()));
        let lease = timeout_at(deadline, self.0.loop_.leases.shared(id));
        let lease = lease.await.map_err(|_| late())?;
        let room = Arc::clone(&self.0.files.room).acquire_owned();
        let permit = timeout_at(deadline, room).await.map_err(|_| late())?;
        if self.open_record(id).is_none() {
            return Err(Refusal::NoSession(id.clone()));
        }
        let (session, bytes_max) = (id.clone(), policy.limits.max_read_bytes);
        let work_dir = policy.interior.work_dir.clone();
        let length = if removes { Length::Long } else { Length::Short };
        let account = Account {
            op: native.name(),
            target: path.lossy().to_owned(),
            began,
            request_id: request_id.clone(),
        };
        let (control, its_account) = (self.clone(), account.clone());
        let work = move || {
            let _permit = permit;
            let changes = native.changes();
            let mut old = None;
            let done = Ground::find(workspaces, &session, path, (work_dir, bytes_max));
            let done = done.and_then(|ground| {
                let done = ground.carry_out(&native, &mut old);
                done.map_err(|error| ground.refusal(error, &native))
            });
            // This thread may block, and spares the reply two others.
            let noted = if changes {
                control.jot_down(&session, entry_of(&its_account, &done))
            } else {
                Noted::No
            };
            if done.is_err() {
                lease.void();
            }
            let bytes = native.adds().unwrap_or_default();
            let bytes = bytes + old.as_ref().map_or(0, Old::bytes);
            let left = changes.then(|| Left::of((old, native), bytes));
            ((done, noted), left)
        };
        let done = self
            .0
            .files
            .hands
            .answer_first((length, deadline), work)
            .await;
        let (done, noted) = done.unwrap_or_else(|| (Err(late()), Noted::No));
        if removes {
            self.0.disks.note_removed(id);
        }
        let entry = || entry_of(&account, &done);
        self.see_noted(id, noted, entry).await;
        done
    }
}

fn entry_of<'a>(account: &'a Account, done: &Result<NativeAnswer, Refusal>) -> Entry<'a> {
    let detail = done.as_ref().err().map(detail).unwrap_or_default();
    account.entry(done.is_ok(), detail, None)
}

impl Ground {
    /// Finds the host's side of a path.
    fn find(
        workspaces: Workspaces,
        id: &SessionId,
        path: GivenPath,
        (work_dir, bytes_max): (String, u64),
    ) -> Result<Self, Refusal> {
        let at = place(&work_dir, &path)?;
        let dir = match workspaces.enter(id) {
            Ok(Some(dir)) => dir,
            Ok(None) => return Err(named(ErrorName::FileNotFound, missing(&path)).into()),
            Err(error) => return Err(FileRefusal::Broken(chain(&error)).into()),
        };
        Ok(Self {
            workspaces,
            dir,
            at,
            path,
            work_dir,
            bytes_max,
        })
    }

    /// Carries an operation out; leaves what gave way to something else in `old`.
    fn carry_out(&self, native: &Native, old: &mut Option<Old>) -> Result<NativeAnswer, FileError> {
        let (dir, at) = (&self.dir, &self.at);
        match native {
            Native::Read => {
                let bytes = dir.open_file(at)?.read_whole(self.bytes_max)?;
                Ok(NativeAnswer::Bytes(bytes))
            }
            Native::Write(pieces) => {
                *old = dir
                    .write_pieces(at, pieces, replacing(dir, self.bytes_max)?)?
                    .old;
                Ok(NativeAnswer::Done)
            }
            Native::Stat => {
                let meta = dir.stat(at)?;
                let whole = self.absolute(at);
                let name = whole.rsplit(|byte| *byte == b'/').next();
                let name = name.unwrap_or_default();
                let mut entry = entry(name, &meta, &whole)?;
                self.path.lossy().clone_into(&mut entry.path);
                Ok(NativeAnswer::Entry(entry))
            }
            Native::List => {
                let mut entries = Vec::new();
                for listed in dir.open_dir(at)?.list(ENTRIES_MAX)?.entries {
                    let mut whole = self.absolute(at);
                    whole.push(b'/');
                    whole.extend_from_slice(&listed.name);
                    entries.push(entry(&listed.name, &listed.meta, &whole)?);
                }
                entries.sort_by(|a, b| a.name.cmp(&b.name));
                Ok(NativeAnswer::Entries(entries))
            }
            Native::Realpath => {
                match dir.stat(at) {
                    Ok(meta) if meta.kind == Kind::Link => {
                        let name = at.name().unwrap_or_default().to_vec();
                        return Err(FileError::Link { name });
                    }
                    // What is missing is kept as it is written.
                    Ok(_) | Err(FileError::NotFound | FileError::NotDirectory) => {}
                    Err(error) => return Err(error),
                }
                let whole = WireName::of(&self.absolute(at));
                Ok(NativeAnswer::Path(RealpathResponse {
                    path: whole.text,
                    path_b64: whole.b64,
                }))
            }
            Native::Mkdir => {
                dir.make_dirs(at, Some(dir.meta()?.owner))?;
                Ok(NativeAnswer::Done)
            }
            Native::Remove => {
                let remains = self.workspaces.discard(dir, at)?;
                if !remains.is_empty() {
                    tracing::warn!(path = %self.path, %remains, "what was removed from a workspace is partly in the trash still");
                }
                Ok(NativeAnswer::Done)
            }
        }
    }

    /// Returns a path as the sandbox has it.
    fn absolute(&self, at: &RelPath) -> Vec<u8> {
        let mut whole = self.work_dir.trim_end_matches('/').as_bytes().to_vec();
        if !at.is_work_dir() {
            whole.push(b'/');
            whole.extend_from_slice(at.as_bytes());
        }
        whole
    }

    /// Puts an error into the words that callers know.
    fn refusal(&self, error: FileError, native: &Native) -> Refusal {
        let name = String::from_utf8_lossy(self.at.name().unwrap_or_default()).into_owned();
        let refused = match error {
            FileError::NotFound => named(ErrorName::FileNotFound, missing(&self.path)),
            FileError::IsDirectory if matches!(native, Native::Remove) => named(
                ErrorName::Value,
                "refusing to remove the working directory".to_owned(),
            ),
            FileError::IsDirectory if self.at.is_work_dir() => named(
                ErrorName::IsADirectory,
                "the work directory is a directory".to_owned(),
            ),
            FileError::IsDirectory => {
                named(ErrorName::IsADirectory, format!("{name} is a directory"))
            }
            FileError::NotDirectory => named(
                ErrorName::NotADirectory,
                format!("[Errno 20] Not a directory: '{name}'"),
            ),
            FileError::Exists => named(
                ErrorName::FileExists,
                format!("[Errno 17] File exists: '{name}'"),
            ),
            FileError::TooLarge { bytes, limit } => {
                let over = words::over_limit(bytes, limit);
                let over = over.strip_prefix("File").unwrap_or(&over);
                FileRefusal::Handed(format!("{name}{over}"))
            }
            FileError::NameTooLong => {
                FileRefusal::Handed(format!("{name} is too long to write beside"))
            }
            FileError::NoSpace => return Refusal::NoSpace("the workspace".to_owned()),
            error if error.is_for_the_sandbox() => FileRefusal::Handed(error.to_string()),
            error => FileRefusal::Broken(chain(&error)),
        };
        refused.into()
    }
}

/// Says where the host has a path, or why it has not.
fn place(work_dir: &str, path: &GivenPath) -> Result<RelPath, FileRefusal> {
    let handed = |why: &str| Err(FileRefusal::Handed(format!("{path} {why}")));
    if !is_absolute(path.as_bytes()) {
        let message = format!("path must be absolute: '{path}'");
        return Err(named(ErrorName::Value, message));
    }
    match Place::of(work_dir.as_bytes(), path.as_bytes()) {
        Err(error @ NotAPath::Nul) => Err(named(ErrorName::Value, error.to_string())),
        Err(error) => Err(FileRefusal::Handed(error.to_string())),
        Ok(Place::Climbs) => handed("climbs out through .."),
        Ok(Place::Outside) => handed("is outside the work directory"),
        Ok(Place::Inside(_)) if has_dot(path.as_bytes()) => handed("is not normalized"),
        Ok(Place::Inside(at)) => Ok(at),
    }
}

fn named(name: ErrorName, message: String) -> FileRefusal {
    FileRefusal::Named { name, message }
}

fn missing(path: &GivenPath) -> String {
    format!("[Errno 2] No such file or directory: '{path}'")
}

/// Shows what is at a path, provided that it is a file or a directory.
fn entry(name: &[u8], meta: &Meta, whole: &[u8]) -> Result<FileEntry, FileError> {
    match meta.kind {
        Kind::File | Kind::Dir => {}
        Kind::Link => return Err(FileError::Link { name: name.into() }),
        Kind::Other => return Err(FileError::Special { name: name.into() }),
    }
    let name = WireName::of(name);
    let is_dir = meta.kind == Kind::Dir;
    Ok(FileEntry {
        name: name.text,
        path: String::from_utf8_lossy(whole).into_owned(),
        is_dir,
        size: (!is_dir).then_some(meta.size),
        modified_at: None,
        kind: Some(kind_word(meta.kind).to_owned()),
        name_b64: name.b64,
        path_b64: WireName::of(whole).b64,
    })
}

/// Says how a refused operation ended, as its event has it.
fn detail(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Files(FileRefusal::Handed(_)) => "via the sandbox".to_owned(),
        Refusal::Files(FileRefusal::Named { name, .. }) => match name {
            ErrorName::FileNotFound => "not found".to_owned(),
            ErrorName::IsADirectory
            | ErrorName::NotADirectory
            | ErrorName::FileExists
            | ErrorName::Value => name.as_str().to_owned(),
        },
        other => other.to_string(),
    }
}
