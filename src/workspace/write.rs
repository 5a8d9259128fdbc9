//! Replaces a file whole, so that nobody ever sees half of one.
//!
//! The new content goes to a file without a name (`O_TMPFILE`), which the sandbox cannot
//! see, and which is gone by itself if the daemon dies. When it is whole it gets its mode
//! and its owner, a random name beside the old file, and by a rename the old one's place.
//! Where the file system knows no files without names, it has the random name from the
//! beginning.
//!
//! The directory is held throughout: what is moved to its path meanwhile is never
//! written to. If it was itself moved, the file moved with it, which is told.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd as _, AsRawFd as _};

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::beneath::{Dir, Kind, Meta, Owner, own, own_descriptors};
use super::locks::{self, Turn};
use super::path::RelPath;
use super::refused::FileError;
use crate::id::Nonce;

/// The mode of a new file.
const NEW_FILE: u32 = 0o644;
/// What a file keeps of its mode when it is replaced: no bit that lends its owner's rights.
const KEPT_MODE: u32 = 0o777;

/// How a file is replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacing {
    /// Who owns what is new: the file, and directories above it.
    pub owner: Option<Owner>,
    /// Bytes of the new content.
    pub bytes_max: u64,
    /// What has to be there before.
    pub expected: Expected,
    /// What it survives.
    pub survives: Survives,
}

/// What has to be at a path before it is written to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Expected {
    /// A file or nothing.
    #[default]
    Anything,
    /// Nothing (`If-None-Match: *`).
    Nothing,
    /// A file (`If-Match: *`).
    Something,
    /// A file with one of these tags, as of [`Meta::etag`] (`If-Match`).
    OneOf(Vec<String>),
    /// Nothing, or a file with none of these tags (`If-None-Match`).
    NoneOf(Vec<String>),
}

/// What a finished write survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Survives {
    /// The end of the daemon.
    #[default]
    DaemonEnd,
    /// A loss of power too: the file and its directory are synced.
    PowerLoss,
}

/// New content that is on its way to its place; dropped, it leaves nothing.
#[derive(Debug)]
pub struct Draft {
    top: Dir,
    parent_path: RelPath,
    parent: Dir,
    name: RelPath,
    /// The name it has beside its place, while it has one.
    aside: Option<String>,
    file: File,
    n_bytes: u64,
    how: Replacing,
}

impl Dir {
    /// Replaces a file by these bytes.
    pub fn write(&self, path: &RelPath, bytes: &[u8], how: Replacing) -> Result<Meta, FileError> {
        let mut draft = self.draft(path, how)?;
        draft.append(bytes)?;
        draft.commit()
    }

    /// Begins to replace a file, which changes with [`Draft::commit`].
    ///
    /// Directories above it are made. What can be refused is refused now.
    pub fn draft(&self, path: &RelPath, how: Replacing) -> Result<Draft, FileError> {
        let (parent_path, name) = path.split().ok_or(FileError::IsDirectory)?;
        let parent = match self.make_dirs(&parent_path, how.owner) {
            Err(FileError::Exists) => Err(FileError::NotDirectory),
            other => other,
        }?;
        let name = RelPath::work_dir().child(name).expect("it is one name");
        how.expected.check(look(&parent, &name)?.as_ref())?;
        let (file, aside) = nameless(&parent)?;
        Ok(Draft {
            top: self.clone(),
            parent_path,
            parent,
            name,
            aside,
            file,
            n_bytes: 0,
            how,
        })
    }
}

impl Draft {
    /// Appends to the new content.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        let limit = self.how.bytes_max;
        let more = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let bytes_then = self.n_bytes.saturating_add(more);
        if limit < bytes_then {
            return Err(FileError::TooLarge {
                bytes: bytes_then,
                limit,
            });
        }
        self.file.write_all(bytes)?;
        self.n_bytes = bytes_then;
        Ok(())
    }

    /// Puts the new content in its place; returns what is there now.
    ///
    /// An old file's mode and owner stay; its other names, if it has any, keep the old
    /// content.
    ///
    /// # Errors
    /// The old content is as it was, but for [`FileError::Moved`]: then the new one is
    /// wherever its directory is now.
    pub fn commit(self) -> Result<Meta, FileError> {
        let turn = self.turn()?;
        self.commit_in(&turn)
    }

    /// Puts the new content in its place for one who has the turn at it.
    pub(super) fn commit_in(mut self, _turn: &Turn) -> Result<Meta, FileError> {
        let old = look(&self.parent, &self.name)?;
        self.how.expected.check(old.as_ref())?;
        self.dress(old.as_ref())?;
        if self.how.survives == Survives::PowerLoss {
            rustix::fs::fdatasync(&self.file)?;
        }
        self.put().map_err(|error| match error {
            // The directory was removed: nothing can be put there any more.
            Errno::NOENT => FileError::Moved,
            Errno::EXIST => FileError::Changed,
            error => error.into(),
        })?;
        if self.how.survives == Survives::PowerLoss {
            rustix::fs::fsync(self.parent.fd())?;
        }
        let now = self
            .top
            .open_dir(&self.parent_path)
            .and_then(|now| now.meta());
        if now.map(|meta| meta.identity).ok() != Some(self.parent.meta()?.identity) {
            return Err(FileError::Moved);
        }
        Ok(Meta::of(&rustix::fs::fstat(&self.file)?))
    }

    fn turn(&self) -> Result<Turn, FileError> {
        turn(&self.parent, &self.name)
    }

    /// Gives the new content its owner and its mode.
    fn dress(&self, old: Option<&Meta>) -> Result<(), FileError> {
        let owner = old.map_or(self.how.owner, |old| Some(old.owner));
        let mode = old.map_or(NEW_FILE, |old| old.mode & KEPT_MODE);
        let now = Meta::of(&rustix::fs::fstat(&self.file)?).owner;
        if owner.is_some_and(|owner| owner != now) {
            own(self.file.as_fd(), owner)?;
        }
        // Last: a new owner takes bits away.
        rustix::fs::fchmod(&self.file, Mode::from_raw_mode(mode))?;
        Ok(())
    }

    fn put(&mut self) -> Result<(), Errno> {
        let parent = self.parent.fd();
        let aside = match &self.aside {
            Some(aside) => aside.clone(),
            None => {
                let aside = name_aside();
                let number = self.file.as_raw_fd().to_string();
                let descriptors = own_descriptors()?;
                // The entry of a descriptor leads to its file, whatever has a name.
                let follow = AtFlags::SYMLINK_FOLLOW;
                rustix::fs::linkat(descriptors, &number, parent, &aside, follow)?;
                self.aside.insert(aside).clone()
            }
        };
        let how = match self.how.expected {
            Expected::Nothing => RenameFlags::NOREPLACE,
            Expected::Anything | Expected::Something | Expected::OneOf(_) | Expected::NoneOf(_) => {
                RenameFlags::empty()
            }
        };
        rustix::fs::renameat_with(parent, &aside, parent, self.name.as_bytes(), how)?;
        self.aside = None;
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(aside) = &self.aside {
            match rustix::fs::unlinkat(self.parent.fd(), aside, AtFlags::empty()) {
                // Nobody is there who could do more.
                Ok(()) | Err(_) => {}
            }
        }
    }
}

impl Expected {
    /// Checks what is there.
    pub fn check(&self, there: Option<&Meta>) -> Result<(), FileError> {
        let has = |tags: &[String]| {
            let etag = there.map(Meta::etag);
            etag.is_some_and(|etag| tags.contains(&etag))
        };
        let is_met = match self {
            Self::Anything => true,
            Self::Nothing => there.is_none(),
            Self::Something => there.is_some(),
            Self::OneOf(tags) => has(tags),
            Self::NoneOf(tags) => !has(tags),
        };
        is_met.then_some(()).ok_or(FileError::Changed)
    }
}

/// Waits for the turn at a file of a directory.
pub(super) fn turn(parent: &Dir, name: &RelPath) -> Result<Turn, FileError> {
    Ok(locks::wait(parent.meta()?.identity, name.as_bytes()))
}

/// Looks at what is to be replaced: a regular file, or nothing.
fn look(parent: &Dir, name: &RelPath) -> Result<Option<Meta>, FileError> {
    let meta = match parent.stat(name) {
        Ok(meta) => meta,
        Err(FileError::NotFound) => return Ok(None),
        Err(error) => return Err(error),
    };
    let name = name.as_bytes().to_vec();
    match meta.kind {
        Kind::File => Ok(Some(meta)),
        Kind::Dir => Err(FileError::IsDirectory),
        Kind::Link => Err(FileError::Link { name }),
        Kind::Other => Err(FileError::Special { name }),
    }
}

/// Makes a file in a directory, without a name where the file system can.
fn nameless(parent: &Dir) -> Result<(File, Option<String>), FileError> {
    let how = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
    match parent.open(&RelPath::work_dir(), how | OFlags::TMPFILE) {
        Ok(file) => return Ok((File::from(file), None)),
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {}
        Err(error) => return Err(error.into()),
    }
    named(parent).map(|(file, aside)| (file, Some(aside)))
}

/// Makes a file with a random name in a directory.
fn named(parent: &Dir) -> Result<(File, String), FileError> {
    let how = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
    let aside = name_aside();
    let path = RelPath::work_dir()
        .child(aside.as_bytes())
        .expect("it is one name");
    let file = parent.open(&path, how | OFlags::CREATE | OFlags::EXCL)?;
    Ok((File::from(file), aside))
}

/// Returns a name that nobody can foretell, however long the name beside it is.
fn name_aside() -> String {
    format!(".sandboxd-{}.tmp", Nonce::random())
}
