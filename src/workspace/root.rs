//! Tells the workspace root from any other directory in its place.
//!
//! A root whose file system is not mounted looks like one from which somebody removed
//! all workspaces. So the root has a mark, a file with a random name in it, and the
//! state directory a note of that mark. A directory without the noted mark is another
//! one: what it shows of workspaces is *unknown*, and nothing is made in it. It is
//! looked at by its path each time, since that is what the engine mounts from.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{Mode, OFlags, Stat};
use rustix::io::Errno;

use super::{DIRECTORY, WorkspaceError, fault};
use crate::clock::Timestamp;
use crate::id::Nonce;

/// The mark's name in the root.
pub const ROOT_MARK: &str = ".sandboxd-root";
/// The note's name in the state directory.
pub const ROOT_NOTE: &str = "workspace-root";
/// Bytes of the longest mark that is read.
const MARK_BYTES_MAX: usize = 64;

/// The root, wherever its path leads at the moment.
#[derive(Debug)]
pub(super) struct Root {
    pub(super) path: PathBuf,
    note: Option<PathBuf>,
    inner: Mutex<Inner>,
    #[cfg(test)]
    takes_turns: std::sync::atomic::AtomicBool,
}

#[derive(Debug)]
struct Inner {
    mark: Nonce,
    held: Option<Held>,
    strange: Option<Strange>,
}

/// The root's directory as it was opened, with what tells it from others.
#[derive(Debug)]
struct Held {
    dir: Arc<OwnedFd>,
    place: (u64, u64),
}

/// Another directory than the root in its place, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strange {
    /// Since when, as far as it was noticed.
    pub since: Timestamp,
    /// What there is instead.
    pub why: String,
}

impl Root {
    /// Takes the root at a path, with the note of its mark; the first time, the directory
    /// is made where it is missing, marked, and the mark noted.
    pub(super) fn open(path: &Path, note: Option<PathBuf>) -> Result<Self, WorkspaceError> {
        let known = match &note {
            Some(note) => read_note(note)?,
            None => None,
        };
        let (mark, held) = if let Some(mark) = known {
            (mark, None)
        } else {
            let (mark, held) = take(path, note.as_deref())?;
            (mark, Some(held))
        };
        let inner = Inner {
            mark,
            held,
            strange: None,
        };
        Ok(Self {
            path: path.to_path_buf(),
            note,
            inner: Mutex::new(inner),
            #[cfg(test)]
            takes_turns: std::sync::atomic::AtomicBool::default(),
        })
    }

    #[cfg(test)]
    pub(super) fn take_turns(&self) {
        let order = std::sync::atomic::Ordering::Relaxed;
        self.takes_turns.store(true, order);
    }

    #[cfg(test)]
    pub(super) fn takes_turns(&self) -> bool {
        let order = std::sync::atomic::Ordering::Relaxed;
        self.takes_turns.load(order)
    }

    /// Returns the root's directory, once it has proved to be the one of before.
    pub(super) fn dir(&self) -> Result<Arc<OwnedFd>, WorkspaceError> {
        let mut inner = self.inner();
        let Inner { mark, held, .. } = &mut *inner;
        let proved = self.prove(mark, held.as_ref());
        *held = Some(proved?);
        let held = held.as_ref().expect("it was put there just now");
        Ok(Arc::clone(&held.dir))
    }

    fn prove(&self, mark: &Nonce, held: Option<&Held>) -> Result<Held, WorkspaceError> {
        let stat = rustix::fs::stat(&self.path).map_err(|error| match error {
            Errno::NOENT | Errno::NOTDIR => self.other("there is no such directory"),
            error => fault("look at the workspace root", &self.path)(error),
        })?;
        let held = match held.filter(|held| held.place == place(&stat)) {
            Some(held) => Held {
                dir: Arc::clone(&held.dir),
                place: held.place,
            },
            None => hold(&self.path)?,
        };
        match read_mark(&held.dir).map_err(fault("read the mark of", &self.path))? {
            Some(found) if found == *mark => Ok(held),
            Some(_) => Err(self.other("it has the mark of another root")),
            None => Err(self.other("it has no mark")),
        }
    }

    fn other(&self, why: &str) -> WorkspaceError {
        let source = format!(
            "it is not the directory that has the workspaces, {why}: mount that one again, or accept this one with `sandboxctl release workspace_root_changed`: sessions then go on with empty workspaces"
        );
        WorkspaceError {
            what: "use the workspace root",
            path: self.path.clone(),
            source: io::Error::other(source),
        }
    }

    /// Looks whether it is the root; returns whether that has changed.
    pub(super) fn check(&self, now: Timestamp) -> bool {
        let found = self.dir().err();
        let mut inner = self.inner();
        let before = inner.strange.take();
        let was_strange = before.is_some();
        inner.strange = found.map(|error| Strange {
            since: before.map_or(now, |before| before.since),
            why: crate::cause::chain(&error),
        });
        was_strange != inner.strange.is_some()
    }

    pub(super) fn strange(&self) -> Option<Strange> {
        self.inner().strange.clone()
    }

    /// Takes what is at the path for the root from now on.
    pub(super) fn accept(&self) -> Result<(), WorkspaceError> {
        let (mark, held) = take(&self.path, self.note.as_deref())?;
        *self.inner() = Inner {
            mark,
            held: Some(held),
            strange: None,
        };
        Ok(())
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells whether a directory is the root that a note tells of; `None` where none does.
///
/// # Errors
/// The note or the mark could not be read.
pub fn is_noted(root: &Path, note: &Path) -> io::Result<Option<bool>> {
    let Some(noted) = read_note(note).map_err(|error| error.source)? else {
        return Ok(None);
    };
    let held = hold(root).map_err(|error| error.source)?;
    Ok(Some(read_mark(&held.dir)? == Some(noted)))
}

/// Makes the root where it is missing, marks it where it is not marked, and notes the mark.
fn take(path: &Path, note: Option<&Path>) -> Result<(Nonce, Held), WorkspaceError> {
    fs::create_dir_all(path).map_err(failed("make the workspace root", path))?;
    let held = hold(path)?;
    rustix::fs::fchmod(&held.dir, Mode::RWXU).map_err(fault("protect the workspace root", path))?;
    let read = || read_mark(&held.dir).map_err(fault("read the mark of", path));
    let mark = if let Some(mark) = read()? {
        mark
    } else {
        write_mark(&held.dir, &Nonce::random()).map_err(fault("mark", path))?;
        // Another daemon that shares the root may have been faster.
        read()?.ok_or_else(|| fault("mark", path)(Errno::INVAL))?
    };
    if let Some(note) = note {
        write_note(note, &mark).map_err(failed("note the workspace root in", note))?;
    }
    Ok((mark, held))
}

fn hold(path: &Path) -> Result<Held, WorkspaceError> {
    let fault = |what| fault(what, path);
    let dir = rustix::fs::open(path, DIRECTORY, Mode::empty())
        .map_err(fault("open the workspace root"))?;
    let stat = rustix::fs::fstat(&dir).map_err(fault("look at the workspace root"))?;
    Ok(Held {
        dir: Arc::new(dir),
        place: place(&stat),
    })
}

fn place(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// Reads the mark of a directory; nothing where it has none that can be read as one.
fn read_mark(dir: &OwnedFd) -> Result<Option<Nonce>, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(dir, ROOT_MARK, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT | Errno::LOOP) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = [0; MARK_BYTES_MAX];
    let n_read = rustix::io::read(&file, &mut bytes)?;
    let text = bytes.get(..n_read).unwrap_or_default();
    Ok(parse(text))
}

fn write_mark(dir: &OwnedFd, mark: &Nonce) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    // Made under another name first, so that nobody ever reads half of it.
    let temporary = format!("{ROOT_MARK}.{mark}");
    let file = rustix::fs::openat(dir, &temporary, flags, Mode::RUSR | Mode::WUSR)?;
    let written = rustix::io::write(&file, format!("{mark}\n").as_bytes())
        .and_then(|_| rustix::fs::fsync(&file))
        .and_then(|()| {
            rustix::fs::linkat(
                dir,
                &temporary,
                dir,
                ROOT_MARK,
                rustix::fs::AtFlags::empty(),
            )
        });
    rustix::fs::unlinkat(dir, &temporary, rustix::fs::AtFlags::empty())?;
    match written {
        Ok(()) | Err(Errno::EXIST) => rustix::fs::fsync(dir),
        Err(error) => Err(error),
    }
}

fn read_note(path: &Path) -> Result<Option<Nonce>, WorkspaceError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("read", path)(error)),
    };
    // A note that says nothing is not taken for none: it would accept any root.
    let mark = parse(&bytes).ok_or_else(|| {
        let why =
            "it does not name a mark; write the text of WORKSPACE_ROOT/.sandboxd-root into it";
        failed("understand", path)(io::Error::other(why))
    })?;
    Ok(Some(mark))
}

fn write_note(path: &Path, mark: &Nonce) -> io::Result<()> {
    let temporary = path.with_extension("new");
    let mut file = File::create(&temporary)?;
    file.write_all(format!("{mark}\n").as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

fn parse(text: &[u8]) -> Option<Nonce> {
    Nonce::parse(std::str::from_utf8(text).ok()?.trim_end()).ok()
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> WorkspaceError {
    let path = path.to_path_buf();
    move |source| WorkspaceError { what, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Timestamp = Timestamp::from_secs(1_000);

    #[test]
    fn a_directory_without_the_noted_mark_is_not_the_root_until_it_is_accepted() {
        let dir = tempfile::tempdir().unwrap();
        let (path, note) = (dir.path().join("ws"), dir.path().join(ROOT_NOTE));
        let open = || Root::open(&path, Some(note.clone())).unwrap();
        let root = open();
        root.dir().unwrap();
        assert!(!root.check(T0));
        let aside = dir.path().join("aside");
        fs::rename(&path, &aside).unwrap();
        for is_there in [false, true] {
            if is_there {
                fs::create_dir(&path).unwrap();
            }
            for root in [&root, &open()] {
                let error = crate::cause::chain(&root.dir().unwrap_err());
                assert!(error.contains("release workspace_root_changed"), "{error}");
            }
        }
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0, "it is left alone");
        assert_eq!(is_noted(&path, &note).unwrap(), Some(false));
        assert!(root.check(T0.plus(std::time::Duration::from_secs(1))));
        assert!(!root.check(T0.plus(std::time::Duration::from_secs(2))));
        let since = root.strange().unwrap().since;
        assert_eq!(since, T0.plus(std::time::Duration::from_secs(1)));
        root.accept().unwrap();
        assert_eq!(root.strange(), None);
        for root in [&root, &open()] {
            root.dir().unwrap();
        }
        assert_eq!(is_noted(&path, &note).unwrap(), Some(true));
        // The one of before is another one by now.
        fs::rename(&path, dir.path().join("accepted")).unwrap();
        fs::rename(&aside, &path).unwrap();
        root.dir().unwrap_err();
    }

    #[test]
    fn a_root_that_comes_back_is_used_by_itself_and_one_that_moved_keeps_its_mark() {
        let dir = tempfile::tempdir().unwrap();
        let (path, note) = (dir.path().join("ws"), dir.path().join(ROOT_NOTE));
        let root = Root::open(&path, Some(note.clone())).unwrap();
        let moved = dir.path().join("moved");
        fs::rename(&path, &moved).unwrap();
        root.dir().unwrap_err();
        Root::open(&moved, Some(note.clone()))
            .unwrap()
            .dir()
            .unwrap();
        fs::rename(&moved, &path).unwrap();
        root.dir().unwrap();
        // A state directory that is new takes the mark that is there.
        fs::remove_file(&note).unwrap();
        Root::open(&path, Some(note.clone())).unwrap();
        root.dir().unwrap();
        fs::write(&note, "rubbish").unwrap();
        Root::open(&path, Some(note)).unwrap_err();
    }
}
