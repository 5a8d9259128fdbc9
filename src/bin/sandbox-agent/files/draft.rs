//! Replaces a file whole, so that nobody ever sees half of one.
//!
//! The new content goes to a file without a name, which is gone by itself if the process
//! dies, and where the file system knows none, to one with a random name. When it is whole
//! it gets the old file's mode and owner, and by a rename its place. A file that cannot be
//! replaced so, because its directory may not be written to or something is mounted on it,
//! is written to in its place once all of the content is there.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{ErrorKind, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, FlockOperation, Gid, MemfdFlags, Mode, OFlags, Uid};
use rustix::io::Errno;

use super::list::DIRECTORY;
use super::meta_of;
use super::read::regular;
use crate::protocol::files::{Meta, Tag, Trouble};

/// The mode of a new file.
const NEW_FILE: u32 = 0o644;
/// What a file keeps of its mode when it is replaced: no bit that lends its owner's rights.
const KEPT_MODE: u32 = 0o777;
/// Links that are followed to a file.
const LINKS_MAX: usize = 40;
/// How often the turn at a directory is asked for, which others hold for a moment only.
const TURNS_MAX: usize = 200;
/// The rest between two times.
const TURN_REST: Duration = Duration::from_millis(10);

/// New content on its way to its place; dropped, it leaves nothing.
#[derive(Debug)]
pub(super) struct Draft {
    dir: OwnedFd,
    name: Vec<u8>,
    /// The name that it has beside its place, while it has one.
    aside: Option<String>,
    file: File,
    place: Place,
}

/// Where the new content is until it is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In the directory.
    Beside,
    /// In memory: the directory may not be written to.
    Memory,
}

impl Draft {
    /// Begins to replace what is at a path, or at the end of the links there.
    pub(super) fn begin(path: &[u8], parents: bool) -> Result<Self, Trouble> {
        let path = settle(PathBuf::from(OsStr::from_bytes(path)))?;
        let name = path.file_name().ok_or(Trouble::IsDirectory)?.as_bytes();
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            Some(_) | None => Path::new("."),
        };
        if parents {
            make_dirs(parent)?;
        }
        let dir = match rustix::fs::open(parent, DIRECTORY, Mode::empty()) {
            // One need not be readable.
            Err(Errno::ACCESS) => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                rustix::fs::open(parent, flags, Mode::empty())?
            }
            other => other?,
        };
        let old = look(&dir, name)?;
        let (file, aside, place) = stage(&dir, name, old.is_some())?;
        Ok(Self {
            dir,
            name: name.to_vec(),
            aside,
            file,
            place,
        })
    }

    /// Appends to the new content.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        Ok(self.file.write_all(bytes)?)
    }

    /// Puts the new content in its place.
    pub(super) fn commit(mut self, expected: Option<Tag>) -> Result<Meta, Trouble> {
        // Two of these at once would each find what both expect. It is let go of with the
        // directory; who holds it for longer than a moment is none of these.
        for _ in 0..TURNS_MAX {
            let turn = FlockOperation::NonBlockingLockExclusive;
            if rustix::fs::flock(&self.dir, turn) != Err(Errno::AGAIN) {
                break;
            }
            std::thread::sleep(TURN_REST);
        }
        let old = look(&self.dir, &self.name)?;
        if expected.is_some() && expected != old.map(|old| old.tag) {
            return Err(Trouble::Changed);
        }
        if self.place == Place::Memory {
            return self.write_through();
        }
        dress(&self.file, old.as_ref())?;
        match self.put(old.as_ref()) {
            Ok(()) => Ok(meta_of(&rustix::fs::fstat(&self.file)?)),
            Err(Errno::BUSY | Errno::PERM | Errno::ACCESS | Errno::XDEV) if old.is_some() => {
                self.write_through()
            }
            Err(errno) => Err(errno.into()),
        }
    }

    fn put(&mut self, old: Option<&Meta>) -> Result<(), Errno> {
        let aside = if let Some(aside) = &self.aside {
            aside.clone()
        } else {
            let aside = name_aside();
            let number = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            let follow = AtFlags::SYMLINK_FOLLOW;
            if rustix::fs::linkat(CWD, &number, &self.dir, &aside, follow).is_err() {
                // Where a file cannot get a name it is copied to one that has.
                self.copy_aside(old)?;
            } else {
                self.aside = Some(aside);
            }
            self.aside.clone().unwrap_or_default()
        };
        rustix::fs::renameat(&self.dir, &aside, &self.dir, self.name.as_slice())?;
        self.aside = None;
        Ok(())
    }

    fn copy_aside(&mut self, old: Option<&Meta>) -> Result<(), Errno> {
        let failed = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        let (mut file, aside) = named(&self.dir)?;
        self.aside = Some(aside);
        self.file.rewind().map_err(failed)?;
        std::io::copy(&mut self.file, &mut file).map_err(failed)?;
        self.file = file;
        dress(&self.file, old)
    }

    /// Writes the new content to the file that is there.
    fn write_through(&mut self) -> Result<Meta, Trouble> {
        let mut there = open_there(&self.dir, &self.name)?;
        self.file.rewind()?;
        let length = std::io::copy(&mut self.file, &mut there)?;
        there.set_len(length)?;
        Ok(meta_of(&rustix::fs::fstat(&there)?))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(aside) = &self.aside {
            // Nobody is there who could do more.
            rustix::fs::unlinkat(&self.dir, aside, AtFlags::empty()).ok();
        }
    }
}

/// Makes a directory and those above it.
fn make_dirs(path: &Path) -> Result<(), Trouble> {
    match std::fs::create_dir_all(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(Errno::NOTDIR.into()),
        Err(error) => Err(error.into()),
    }
}

/// Follows the links at the end of a path, of which the last may lead to nothing.
fn settle(mut path: PathBuf) -> Result<PathBuf, Trouble> {
    for _ in 0..LINKS_MAX {
        match rustix::fs::readlinkat(CWD, &path, Vec::new()) {
            Ok(target) => {
                let target = PathBuf::from(std::ffi::OsString::from_vec(target.into_bytes()));
                path = path.parent().unwrap_or(Path::new("")).join(target);
            }
            Err(Errno::INVAL | Errno::NOENT | Errno::NOTDIR) => return Ok(path),
            Err(errno) => return Err(errno.into()),
        }
    }
    Err(Errno::LOOP.into())
}

/// Looks at what is to be replaced: a regular file, or nothing.
fn look(dir: impl AsFd, name: &[u8]) -> Result<Option<Meta>, Trouble> {
    match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => {
            let meta = meta_of(&stat);
            regular(&meta).map(|()| Some(meta))
        }
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Makes the file that the new content goes to.
fn stage(
    dir: &OwnedFd,
    name: &[u8],
    is_there: bool,
) -> Result<(File, Option<String>, Place), Trouble> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let made = match rustix::fs::openat(dir, ".", flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => return Ok((File::from(file), None, Place::Beside)),
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => named(dir),
        Err(errno) => Err(errno),
    };
    match made {
        Ok((file, aside)) => Ok((file, Some(aside), Place::Beside)),
        Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) if is_there => {
            open_there(dir, name)?;
            let memory = rustix::fs::memfd_create("draft", MemfdFlags::CLOEXEC)?;
            Ok((File::from(memory), None, Place::Memory))
        }
        Err(errno) => Err(errno.into()),
    }
}

/// Makes a file with a random name in a directory.
fn named(dir: &OwnedFd) -> Result<(File, String), Errno> {
    let aside = name_aside();
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, &aside, flags, Mode::RUSR | Mode::WUSR)?;
    Ok((File::from(file), aside))
}

/// Opens the file that is there for writing.
fn open_there(dir: &OwnedFd, name: &[u8]) -> Result<File, Trouble> {
    let flags =
        OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, name, flags, Mode::empty())?;
    regular(&meta_of(&rustix::fs::fstat(&file)?))?;
    Ok(File::from(file))
}

/// Gives the new content the owner and the mode of the old, as far as that may be done.
fn dress(file: &File, old: Option<&Meta>) -> Result<(), Errno> {
    let now = meta_of(&rustix::fs::fstat(file)?);
    if let Some(old) = old.filter(|old| (old.uid, old.gid) != (now.uid, now.gid)) {
        let (uid, gid) = (Uid::from_raw(old.uid), Gid::from_raw(old.gid));
        match rustix::fs::fchown(file, Some(uid), Some(gid)) {
            // As with every command: what another has made anew belongs to that one.
            Ok(()) | Err(Errno::PERM) => {}
            Err(errno) => return Err(errno),
        }
    }
    // Last: a new owner takes bits away.
    let mode = old.map_or(NEW_FILE, |old| old.mode & KEPT_MODE);
    rustix::fs::fchmod(file, Mode::from_raw_mode(mode))
}

/// Returns a name that nobody can foretell.
fn name_aside() -> String {
    let mut bytes = [0; 16];
    let flags = rustix::rand::GetRandomFlags::empty();
    rustix::rand::getrandom(&mut bytes, flags).ok();
    format!(".sandboxd-{:032x}.tmp", u128::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::path::PathBuf;

    use super::{Draft, Errno, Place, named};

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("draft-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    fn begin(path: &std::path::Path) -> Draft {
        Draft::begin(path.as_os_str().as_encoded_bytes(), false).unwrap()
    }

    fn names(path: &std::path::Path) -> usize {
        std::fs::read_dir(path).unwrap().count()
    }

    #[test]
    fn a_draft_with_a_name_works_like_one_without_and_is_gone_when_it_is_dropped() {
        let dir = directory("named");
        let with_name = || {
            let mut draft = begin(&dir.join("f"));
            let (file, aside) = named(&draft.dir).unwrap();
            (draft.file, draft.aside) = (file, Some(aside));
            draft.append(b"new").unwrap();
            draft
        };
        let draft = with_name();
        assert_eq!(names(&dir), 1);
        drop(draft);
        assert_eq!(names(&dir), 0);
        with_name().commit(None).unwrap();
        assert_eq!(names(&dir), 1);
        assert_eq!(std::fs::read(dir.join("f")).unwrap(), b"new");
        std::fs::remove_file(dir.join("f")).unwrap();
        std::fs::remove_dir(dir).unwrap();
    }

    #[test]
    fn content_that_cannot_get_a_name_is_copied_and_from_memory_written_through() {
        let dir = directory("copied");
        let file = dir.join("f");
        std::fs::write(&file, "something longer").unwrap();
        let mut draft = begin(&file);
        draft.append(b"copied").unwrap();
        draft.copy_aside(None).unwrap();
        draft.commit(None).unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"copied");
        let before = std::fs::metadata(&file).unwrap().ino();
        let mut draft = begin(&file);
        let memory = rustix::fs::memfd_create("draft", super::MemfdFlags::CLOEXEC).unwrap();
        (draft.file, draft.place) = (memory.into(), Place::Memory);
        draft.append(b"in it").unwrap();
        draft.commit(None).unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"in it");
        assert_eq!(std::fs::metadata(&file).unwrap().ino(), before);
        assert_eq!(names(&dir), 1);
        std::fs::remove_file(&file).unwrap();
        assert_eq!(
            begin(&file).commit(Some(tag())),
            Err(super::Trouble::Changed)
        );
        std::fs::remove_dir(&dir).unwrap();
        let gone = Draft::begin(file.as_os_str().as_encoded_bytes(), false);
        assert_eq!(gone.unwrap_err(), Errno::NOENT.into());
    }

    fn tag() -> super::Tag {
        super::Tag {
            device: 0,
            inode: 0,
            size: 0,
            modified_secs: 0,
            modified_nanos: 0,
            changed_secs: 0,
            changed_nanos: 0,
        }
    }
}
