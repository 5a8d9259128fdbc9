//! Removes directory trees of any depth with a handful of descriptors.
//!
//! A tree is flattened as it is removed: a directory that is not empty is moved
//! up beside its parent, so the work never holds more than three descriptors
//! and never follows a path that the tree's owner could change.
//!
//! What cannot be removed (immutable, or a file system that is mounted there) is told
//! and passed by, and everything else goes all the same.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString};
use std::fmt;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::DIRECTORY;
use super::beneath::own_descriptors;
use crate::id::Nonce;

/// How many entries are read before they are removed and the rest is read.
const ENTRIES_MAX: usize = 4096;
/// So many of what remains are told by name; more are counted.
const LISTED_MAX: usize = 20;
/// A removal that met so many things that it cannot remove is given up.
const REMAINING_MAX: u64 = 10_000;
/// So many directories that were moved up are remembered by where they were.
const ORIGINS_MAX: usize = 100_000;
/// So often a directory is emptied again into which something was put meanwhile.
const AGAIN_MAX: u32 = 10_000;

/// What a removal could not remove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remains {
    /// The first of them.
    pub listed: Vec<Remaining>,
    /// How many there are, as far as they were counted.
    pub count: u64,
}

/// One thing that could not be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remaining {
    /// Where it was, below what was to go.
    pub path: Vec<u8>,
    /// What the system said.
    pub why: String,
}

impl Remains {
    /// Returns whether nothing remains.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn note(&mut self, path: Vec<u8>, error: Errno) {
        self.count += 1;
        if self.listed.len() < LISTED_MAX {
            let why = match error {
                Errno::XDEV => "another file system is mounted there".to_owned(),
                error => std::io::Error::from(error).to_string(),
            };
            self.listed.push(Remaining { path, why });
        }
    }

    fn join(&mut self, more: Self) {
        self.count += more.count;
        let room = LISTED_MAX.saturating_sub(self.listed.len());
        self.listed.extend(more.listed.into_iter().take(room));
    }
}

impl fmt::Display for Remains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = self.listed.iter().take(3);
        let named =
            first.map(|one| format!("{} ({})", String::from_utf8_lossy(&one.path), one.why));
        let named: Vec<String> = named.collect();
        write!(
            f,
            "{} could not be removed: {}",
            self.count,
            named.join(", ")
        )?;
        if 3 < self.count {
            f.write_str(", …")?;
        }
        Ok(())
    }
}

/// Removes `name` in `parent`, whatever it is; another may do the same meanwhile.
///
/// # Errors
/// The top itself cannot be looked at.
pub(super) fn remove_tree(parent: &OwnedFd, name: &str) -> Result<Remains, Errno> {
    let name = CString::new(name).map_err(|_| Errno::INVAL)?;
    let top = match open(parent.as_fd(), &name) {
        Ok(top) => top,
        Err(Errno::NOTDIR | Errno::LOOP) => {
            let gone = gone(rustix::fs::unlinkat(parent, &name, AtFlags::empty()));
            let mut remains = Remains::default();
            if let Err(error) = gone {
                remains.note(name.into_bytes(), error);
            }
            return Ok(remains);
        }
        Err(Errno::NOENT) => return Ok(Remains::default()),
        Err(error) => return Err(error),
    };
    let mut remains = empty(&top)?;
    if remains.is_empty()
        && let Err(error) = gone(rustix::fs::unlinkat(parent, &name, AtFlags::REMOVEDIR))
    {
        remains.note(Vec::new(), error);
    }
    Ok(remains)
}

/// Removes every tree in a directory.
pub(super) fn remove_all(parent: &OwnedFd) -> Result<Remains, Errno> {
    let mut remains = Remains::default();
    let mut stuck = BTreeSet::new();
    loop {
        let entries = entries(parent.as_fd(), &stuck)?;
        if entries.is_empty() || REMAINING_MAX <= remains.count {
            return Ok(remains);
        }
        for (name, _) in entries {
            let left = match remove_tree(parent, &name.to_string_lossy()) {
                Ok(left) => left,
                Err(error) => {
                    let mut left = Remains::default();
                    left.note(name.to_bytes().to_vec(), error);
                    left
                }
            };
            // What is there still is passed by in the next round, whatever kept it.
            stuck.insert(name);
            remains.join(left);
        }
    }
}

/// Returns whether a directory has no entry.
pub(super) fn is_empty(dir: &OwnedFd) -> Result<bool, Errno> {
    Ok(entries(dir.as_fd(), &BTreeSet::new())?.is_empty())
}

/// Removes everything in a directory.
pub(super) fn empty(top: &OwnedFd) -> Result<Remains, Errno> {
    let mut removal = Removal {
        top,
        origins: BTreeMap::new(),
        stuck: BTreeSet::new(),
        n_again: 0,
        remains: Remains::default(),
    };
    removal.run()?;
    Ok(removal.remains)
}

/// A removal under way.
struct Removal<'a> {
    top: &'a OwnedFd,
    /// Where directories were that were moved up, by their names at the top.
    origins: BTreeMap<CString, Vec<u8>>,
    /// Names at the top that are passed by.
    stuck: BTreeSet<CString>,
    n_again: u32,
    remains: Remains,
}

impl Removal<'_> {
    fn run(&mut self) -> Result<(), Errno> {
        // Each round removes every file and every directory that is there when it
        // begins; what moved up meanwhile is the next round's.
        loop {
            let entries = entries(self.top.as_fd(), &self.stuck)?;
            if entries.is_empty() || REMAINING_MAX <= self.remains.count {
                return Ok(());
            }
            for (name, kind) in entries {
                let done = match kind {
                    FileType::Directory => self.flatten(&name),
                    _ => gone(rustix::fs::unlinkat(self.top, &name, AtFlags::empty())),
                };
                if let Err(error) = done {
                    self.remains.note(self.origin(&name), error);
                    self.stuck.insert(name);
                }
            }
        }
    }

    /// Empties the directory `name` at the top, moving its own directories up.
    fn flatten(&mut self, name: &CString) -> Result<(), Errno> {
        let dir = match open(self.top.as_fd(), name) {
            Ok(dir) => dir,
            Err(Errno::NOENT) => return Ok(()),
            // Something else took the name meanwhile; it goes like any file.
            Err(Errno::NOTDIR | Errno::LOOP) => {
                return gone(rustix::fs::unlinkat(self.top, name, AtFlags::empty()));
            }
            Err(error) => return Err(error),
        };
        let origin = self.origin(name);
        let mut stuck = BTreeSet::new();
        loop {
            let entries = entries(dir.as_fd(), &stuck)?;
            if entries.is_empty() || REMAINING_MAX <= self.remains.count {
                break;
            }
            for (child, kind) in entries {
                let path = [origin.as_slice(), b"/", child.to_bytes()].concat();
                if let Err(error) = self.take(&dir, (&child, kind), &path) {
                    self.remains.note(path, error);
                    stuck.insert(child);
                }
            }
        }
        if !stuck.is_empty() {
            self.stuck.insert(name.clone());
            return Ok(());
        }
        match rustix::fs::unlinkat(self.top, name, AtFlags::REMOVEDIR) {
            // Something was put in meanwhile: the next round takes it.
            Err(Errno::NOTEMPTY | Errno::EXIST) if self.n_again < AGAIN_MAX => {
                self.n_again += 1;
                Ok(())
            }
            other => {
                gone(other)?;
                self.origins.remove(name);
                Ok(())
            }
        }
    }

    /// Removes a child of a directory, or moves it up.
    fn take(
        &mut self,
        dir: &OwnedFd,
        (child, kind): (&CString, FileType),
        path: &[u8],
    ) -> Result<(), Errno> {
        let flags = match kind {
            FileType::Directory => AtFlags::REMOVEDIR,
            _ => AtFlags::empty(),
        };
        let unlink = || gone(rustix::fs::unlinkat(dir, child, flags));
        let unlinked = match unlink() {
            // Its owner made it read-only; the service may be that owner.
            Err(Errno::ACCESS) => {
                rustix::fs::fchmod(dir, Mode::RWXU)?;
                unlink()
            }
            other => other,
        };
        match unlinked {
            Err(Errno::NOTEMPTY | Errno::EXIST) if flags == AtFlags::REMOVEDIR => {
                let up = Nonce::random();
                let rename = || gone(rustix::fs::renameat(dir, child, self.top, up.as_str()));
                match rename() {
                    // A directory that moves has its parent written into it.
                    Err(Errno::ACCESS) => {
                        make_writable(dir.as_fd(), child)?;
                        rename()
                    }
                    other => other,
                }?;
                if let (true, Ok(up)) =
                    (self.origins.len() < ORIGINS_MAX, CString::new(up.as_str()))
                {
                    self.origins.insert(up, path.to_vec());
                }
                Ok(())
            }
            other => other,
        }
    }

    /// Where something at the top was, as far as it is remembered.
    fn origin(&self, name: &CString) -> Vec<u8> {
        let known = self.origins.get(name);
        known.cloned().unwrap_or_else(|| name.to_bytes().to_vec())
    }
}

/// Opens a directory, unless a link or a mount is in its place.
fn open(parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    match open_as(parent, name, DIRECTORY) {
        Err(Errno::ACCESS) => {
            make_writable(parent, name)?;
            open_as(parent, name, DIRECTORY)
        }
        other => other,
    }
}

/// Lets the service, where it owns a directory, do in it what it wants.
fn make_writable(parent: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    let found = open_as(
        parent,
        name,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
    )?;
    // By the descriptor, so that it is this directory and no other.
    let number = found.as_raw_fd().to_string();
    rustix::fs::chmodat(own_descriptors()?, number, Mode::RWXU, AtFlags::empty())
}

fn open_as(parent: BorrowedFd<'_>, name: &CStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    rustix::fs::openat2(parent, name, flags, Mode::empty(), resolve)
}

/// Takes what is gone already as removed.
fn gone(result: Result<(), Errno>) -> Result<(), Errno> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

/// Reads the next entries of a directory but for those, with their kinds.
fn entries(
    dir: BorrowedFd<'_>,
    but: &BTreeSet<CString>,
) -> Result<Vec<(CString, FileType)>, Errno> {
    let mut found = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." || but.contains(name) {
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

#[cfg(test)]
mod tests;
