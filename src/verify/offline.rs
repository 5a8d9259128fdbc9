//! Reads the store of a daemon that does not run, and leaves its state directory as it is.
//!
//! The engine below the store writes when it opens, so a copy is opened instead.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use super::look::Stock;
use crate::cause::chain;
use crate::clock::Clock;
use crate::id::Nonce;
use crate::store::{OpenError, OpenOptions, Probe, Store};

/// Bytes of the owner's note that are read.
const NOTE_BYTES_MAX: u64 = 256;
/// Directories below the state directory that are copied; the store nests fewer.
const DEPTH_MAX: usize = 8;
/// What of the state directory is the store's.
const STORE_PARTS: [&str; 4] = ["initialised", "closed", "committed", "store"];

/// A state directory that no daemon uses while this is held.
#[derive(Debug)]
pub struct Borrowed {
    /// The store, opened from a copy.
    pub stock: Stock,
    // Dropped in this order: the copy goes after its store.
    _copy: Option<Copy>,
    _lock: Option<File>,
}

/// Says why a state directory was not borrowed.
#[derive(Debug, thiserror::Error)]
pub enum NotBorrowed {
    /// A daemon uses it.
    #[error(
        "look at the state directory: it belongs to a running sandboxd (pid {}); ask that one with `sandboxctl doctor`",
        pid.map_or_else(|| "unknown".to_owned(), |pid| pid.to_string())
    )]
    Busy {
        /// The owner, where it has written itself down.
        pid: Option<u32>,
    },
    /// It could not be locked or copied.
    #[error("{doing} {}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Takes the state directory's lock and opens a copy of its store; blocks.
///
/// The copy lies in `scratch`, takes as much space as the store, and goes with the
/// returned value.
pub fn borrow(
    state_dir: &Path,
    scratch: &Path,
    probe: Probe,
    clock: Clock,
) -> Result<Borrowed, NotBorrowed> {
    let lock = lock(state_dir)?;
    let is_there = |part: &str| state_dir.join(part).exists();
    if !is_there("initialised") && !is_there("store") {
        return Ok(Borrowed {
            stock: Stock::Nothing,
            _copy: None,
            _lock: lock,
        });
    }
    let copy = Copy::make(state_dir, scratch)?;
    let stock = match Store::open(&OpenOptions::new(&copy.0, probe, clock)) {
        Ok(store) => Stock::Open(store),
        Err(error) => unopened(&error),
    };
    Ok(Borrowed {
        stock,
        _copy: Some(copy),
        _lock: lock,
    })
}

fn unopened(error: &OpenError) -> Stock {
    let why = chain(error);
    match error {
        OpenError::Corrupt { .. } | OpenError::NewerSchema { .. } | OpenError::Foreign { .. } => {
            Stock::Broken(why)
        }
        OpenError::Busy { .. }
        | OpenError::NoSpace
        | OpenError::Engine { .. }
        | OpenError::Io { .. } => Stock::Unseen(why),
    }
}

/// Takes the lock without writing to it; `None` where no daemon has ever made one.
fn lock(state_dir: &Path) -> Result<Option<File>, NotBorrowed> {
    let path = state_dir.join("LOCK");
    let failed = |doing| failed(doing, &path);
    let mut file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("open")(error)),
    };
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Err(NotBorrowed::Busy {
            pid: owner(&mut file),
        }),
        Err(TryLockError::Error(error)) => Err(failed("lock")(error)),
    }
}

fn owner(file: &mut File) -> Option<u32> {
    let mut note = String::new();
    file.take(NOTE_BYTES_MAX).read_to_string(&mut note).ok()?;
    note.lines().next()?.parse().ok()
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> NotBorrowed {
    let path = path.to_owned();
    move |source| NotBorrowed::Io {
        doing,
        path,
        source,
    }
}

/// A copy of what of a state directory is the store's, for us alone.
#[derive(Debug)]
struct Copy(PathBuf);

impl Copy {
    fn make(state_dir: &Path, scratch: &Path) -> Result<Self, NotBorrowed> {
        let path = scratch.join(format!("sandboxd-verify-{}", Nonce::random()));
        make_dir(&path).map_err(failed("make the directory", &path))?;
        let copy = Self(path);
        for part in STORE_PARTS {
            let from = state_dir.join(part);
            copy_tree(&from, &copy.0.join(part), DEPTH_MAX).map_err(failed("copy", &from))?;
        }
        Ok(copy)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        if let Err(error) = remove_tree(&self.0, DEPTH_MAX) {
            tracing::warn!(copy = %self.0.display(), %error, "a copy of the store is left");
        }
    }
}

fn make_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// Copies files and directories; what is missing, and what is neither, is left out.
fn copy_tree(from: &Path, to: &Path, depth: usize) -> io::Result<()> {
    let meta = match fs::symlink_metadata(from) {
        Ok(meta) => meta,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if meta.is_file() {
        return fs::copy(from, to).map(drop);
    }
    if !meta.is_dir() || depth == 0 {
        return Ok(());
    }
    make_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        copy_tree(&entry.path(), &to.join(entry.file_name()), depth - 1)?;
    }
    Ok(())
}

/// Removes a tree that we made ourselves, and that nobody else can change.
fn remove_tree(path: &Path, depth: usize) -> io::Result<()> {
    if depth == 0 || !fs::symlink_metadata(path)?.is_dir() {
        return fs::remove_file(path);
    }
    for entry in fs::read_dir(path)? {
        remove_tree(&entry?.path(), depth - 1)?;
    }
    fs::remove_dir(path)
}
