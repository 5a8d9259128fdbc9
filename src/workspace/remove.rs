//! Removes directory trees of any depth with a handful of descriptors.
//!
//! A tree is flattened as it is removed: a directory that is not empty is moved
//! up beside its parent, so the work never holds more than three descriptors
//! and never follows a path that the tree's owner could change.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode};
use rustix::io::Errno;

use super::DIRECTORY;
use crate::id::Nonce;

/// Removes `name` in `parent`, whatever it is; another may do the same meanwhile.
pub(super) fn remove_tree(parent: &OwnedFd, name: &str) -> Result<(), Errno> {
    let top = match rustix::fs::openat(parent, name, DIRECTORY, Mode::empty()) {
        Ok(top) => top,
        Err(Errno::NOTDIR | Errno::LOOP) => {
            return gone(rustix::fs::unlinkat(parent, name, AtFlags::empty()));
        }
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error),
    };
    empty(&top)?;
    gone(rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR))
}

/// Returns whether a directory has no entry.
pub(super) fn is_empty(dir: &OwnedFd) -> Result<bool, Errno> {
    Ok(entries(dir.as_fd())?.is_empty())
}

/// Removes everything in a directory.
pub(super) fn empty(top: &OwnedFd) -> Result<(), Errno> {
    // Each round removes every file and every directory that is there when it
    // begins; what moved up meanwhile is the next round's.
    loop {
        let entries = entries(top.as_fd())?;
        if entries.is_empty() {
            return Ok(());
        }
        for (name, kind) in entries {
            match kind {
                FileType::Directory => flatten(top, &name)?,
                _ => gone(rustix::fs::unlinkat(top, &name, AtFlags::empty()))?,
            }
        }
    }
}

/// Empties the directory `name` in `top`, moving its own directories up to `top`.
fn flatten(top: &OwnedFd, name: &CString) -> Result<(), Errno> {
    let dir = match rustix::fs::openat(top, name, DIRECTORY, Mode::empty()) {
        Ok(dir) => dir,
        Err(Errno::NOENT) => return Ok(()),
        // Something else took the name meanwhile; it goes like any file.
        Err(Errno::NOTDIR | Errno::LOOP) => {
            return gone(rustix::fs::unlinkat(top, name, AtFlags::empty()));
        }
        Err(error) => return Err(error),
    };
    for (child, kind) in entries(dir.as_fd())? {
        match kind {
            FileType::Directory => match rustix::fs::unlinkat(&dir, &child, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(Errno::NOTEMPTY | Errno::EXIST) => {
                    let up = Nonce::random();
                    gone(rustix::fs::renameat(&dir, &child, top, up.as_str()))?;
                }
                Err(error) => return Err(error),
            },
            _ => gone(rustix::fs::unlinkat(&dir, &child, AtFlags::empty()))?,
        }
    }
    match rustix::fs::unlinkat(top, name, AtFlags::REMOVEDIR) {
        // Something was put in meanwhile: the next round takes it.
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
        other => gone(other),
    }
}

/// Takes what is gone already as removed.
fn gone(result: Result<(), Errno>) -> Result<(), Errno> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

/// How many entries are read before they are removed and the rest is read.
const ENTRIES_MAX: usize = 4096;

/// Reads the next entries of a directory, with their kinds.
fn entries(dir: BorrowedFd<'_>) -> Result<Vec<(CString, FileType)>, Errno> {
    let mut found = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => {
                let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
                FileType::from_raw_mode(stat.st_mode)
            }
            known => known,
        };
        found.push((name.to_owned(), kind));
        if ENTRIES_MAX <= found.len() {
            break;
        }
    }
    Ok(found)
}
