//! Opens what is in a workspace, and nothing else.
//!
//! Untrusted code owns the tree, and changes it while it is walked. So nothing is opened
//! by a path of the host: each opening begins at a descriptor that is held, and the
//! kernel resolves the rest in one go, refusing `..`, links and mounts on the way. A
//! directory that is moved while it is held stays in the workspace: a sandbox has no
//! other mount to which it could move it.
//!
//! Mounts are refused (`RESOLVE_NO_XDEV`) since no sandbox can make one on the host. One
//! that is there was made by the operator, shows something else than the workspace, and
//! the sandbox may see something else in its place: so it is not this one's to serve.
//!
//! A file is found before it is opened: a descriptor of the path alone (`O_PATH`) says
//! what it is without touching it, and only a regular file is then opened, through that
//! very descriptor. A FIFO blocks nobody, and no driver hears of the opening of a device.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use rustix::fs::{
    AtFlags, CWD, Dir as Entries, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Uid,
};
use rustix::io::Errno;

use super::path::RelPath;
use super::refused::FileError;

/// How often an opening is tried again that the kernel could not finish for changes.
const AGAIN_MAX: u32 = 64;

/// A directory of a session's workspace, held open; cheap to clone. Its calls block.
#[derive(Clone, Debug)]
pub struct Dir(Arc<OwnedFd>);

/// Who owns what is made in a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

/// What something in a workspace is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Link,
    /// A FIFO, a socket or a device.
    Other,
}

/// What is known of something without opening it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// What it is.
    pub kind: Kind,
    /// Its bytes, as far as it has a size.
    pub size: u64,
    /// When its content was last changed, in seconds since 1970.
    pub modified_secs: i64,
    /// The part of a second of that.
    pub modified_nanos: u32,
    /// When it itself was last changed, in seconds since 1970; no sandbox can set that.
    pub changed_secs: i64,
    /// The part of a second of that.
    pub changed_nanos: u32,
    /// Its permission bits, at most 0o7777.
    pub mode: u32,
    /// Who owns it.
    pub owner: Owner,
    /// The device and the inode: two with the same are one.
    pub identity: (u64, u64),
    /// How many names it has.
    pub n_links: u64,
    /// Bytes on the disk; fewer than `size` for a file with holes.
    pub disk_bytes: u64,
}

/// A regular file that was opened for reading.
#[derive(Debug)]
pub struct Opened {
    /// The file.
    pub file: File,
    /// What it was when it was opened.
    pub meta: Meta,
}

/// The names in a directory, in the order of the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing<T> {
    /// What was read of them.
    pub entries: Vec<T>,
    /// Whether these are all.
    pub extent: Extent,
}

/// Whether a listing is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Everything is in it.
    Complete,
    /// The bound was reached, and there is more.
    Truncated,
}

/// A name in a directory, as the directory has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Named {
    /// The name: one component, never `.` or `..`.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: Kind,
}

/// A name in a directory with what is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name: one component, never `.` or `..`.
    pub name: Vec<u8>,
    /// What it is.
    pub meta: Meta,
}

/// Says why files of workspaces cannot be used on this host.
#[derive(Debug, thiserror::Error)]
#[error(
    "open files beneath a directory: the kernel refuses openat2, which files of workspaces need (Linux 5.6 or later, and a seccomp profile that knows it)"
)]
pub struct Unsupported(#[source] std::io::Error);

/// Makes sure, at start, that this kernel can open beneath a directory.
///
/// # Errors
/// It cannot, or `/proc` is not what it should be.
pub fn probe() -> Result<(), Unsupported> {
    let unsupported = |error: Errno| Unsupported(error.into());
    let root = rustix::fs::openat(CWD, c"/", DIR_FLAGS, Mode::empty()).map_err(unsupported)?;
    open_at(root.as_fd(), b"proc", OFlags::PATH, ResolveFlags::empty()).map_err(unsupported)?;
    own_descriptors().map_err(unsupported)?;
    Ok(())
}

const DIR_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// How a regular file is opened to be read from.
pub(super) const READ_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

impl Dir {
    /// Takes a directory that is known to be a workspace's, or within one.
    pub(super) fn held(fd: OwnedFd) -> Self {
        Self(Arc::new(fd))
    }

    /// Opens the directory `path` below `parent`, crossing mounts that the operator made.
    pub(super) fn enter(parent: BorrowedFd<'_>, path: &str) -> Result<Self, Errno> {
        open_at(parent, path.as_bytes(), DIR_FLAGS, ResolveFlags::empty()).map(Self::held)
    }

    /// Opens a directory; this one for the work directory's path.
    pub fn open_dir(&self, path: &RelPath) -> Result<Self, FileError> {
        if path.is_work_dir() {
            return Ok(self.clone());
        }
        match self.open(path, DIR_FLAGS) {
            Ok(fd) => Ok(Self::held(fd)),
            Err(error) => Err(self.told(path, error)),
        }
    }

    /// Opens a regular file for reading, without waiting for anything.
    pub fn open_file(&self, path: &RelPath) -> Result<Opened, FileError> {
        let (found, meta) = self.find(path)?;
        let name = path.name().unwrap_or_default();
        match meta.kind {
            Kind::File => {}
            Kind::Dir => return Err(FileError::IsDirectory),
            Kind::Link => return Err(FileError::Link { name: name.into() }),
            Kind::Other => return Err(FileError::Special { name: name.into() }),
        }
        let file = File::from(reopen(found.as_fd(), READ_FLAGS)?);
        let meta = Meta::of(&rustix::fs::fstat(&file)?);
        Ok(Opened { file, meta })
    }

    /// Says what is at a path; a link at its end is a link.
    pub fn stat(&self, path: &RelPath) -> Result<Meta, FileError> {
        self.find(path).map(|(_, meta)| meta)
    }

    /// Says what this directory itself is.
    pub fn meta(&self) -> Result<Meta, FileError> {
        Ok(Meta::of(&rustix::fs::fstat(&*self.0)?))
    }

    /// Reads at most so many names of this directory, with what each one is.
    ///
    /// It costs little: nothing is looked at but the directory.
    pub fn names(&self, entries_max: usize) -> Result<Listing<Named>, FileError> {
        self.each(entries_max, |name, kind| {
            let kind = match kind {
                FileType::Unknown => match self.stat_name(name)? {
                    Some(meta) => meta.kind,
                    None => return Ok(None),
                },
                known => Kind::of(known),
            };
            let name = name.to_bytes().to_vec();
            Ok(Some(Named { name, kind }))
        })
    }

    /// Reads at most so many entries of this directory, with what is known of each.
    ///
    /// What went away meanwhile is left out.
    pub fn list(&self, entries_max: usize) -> Result<Listing<Entry>, FileError> {
        self.each(entries_max, |name, _| {
            Ok(self.stat_name(name)?.map(|meta| Entry {
                name: name.to_bytes().to_vec(),
                meta,
            }))
        })
    }

    /// Returns what a link in this directory says, without following it.
    pub fn target(&self, name: &[u8]) -> Result<Vec<u8>, FileError> {
        let target = rustix::fs::readlinkat(&*self.0, name, Vec::new())?;
        Ok(target.into_bytes())
    }

    /// Makes a directory and those above it, as far as they are missing, and opens it.
    ///
    /// What is made has mode 0755 and the given owner; what is there stays as it is.
    pub fn make_dirs(&self, path: &RelPath, owner: Option<Owner>) -> Result<Self, FileError> {
        // Most often it is there.
        match self.open_dir(path) {
            Err(FileError::NotFound) => {}
            Err(FileError::NotDirectory) if self.is_file_there(path) => {
                return Err(FileError::Exists);
            }
            other => return other,
        }
        let mut dir = self.clone();
        for name in path.names() {
            dir = dir.make_dir(name, owner)?;
        }
        Ok(dir)
    }

    /// Removes a file, a link or something special, by the path without following it.
    pub fn remove_file(&self, path: &RelPath) -> Result<(), FileError> {
        self.unlink(path, AtFlags::empty())
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, path: &RelPath) -> Result<(), FileError> {
        self.unlink(path, AtFlags::REMOVEDIR)
    }

    /// Opens this directory once more, with a place of its own in its listing.
    pub(super) fn reopened(&self) -> Result<Self, FileError> {
        Ok(Self::held(self.open(&RelPath::work_dir(), DIR_FLAGS)?))
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Opens the directory that a path is in; with it comes the path's last name.
    pub(super) fn open_parent(&self, path: &RelPath) -> Result<(Self, RelPath), FileError> {
        let (parent, name) = path.split().ok_or(FileError::IsDirectory)?;
        let name = RelPath::work_dir().child(name).expect("it is one name");
        Ok((self.open_dir(&parent)?, name))
    }

    /// Makes one directory in this one, where it is missing, and opens it.
    fn make_dir(&self, name: &[u8], owner: Option<Owner>) -> Result<Self, FileError> {
        let path = RelPath::work_dir().child(name).expect("it is one name");
        match rustix::fs::mkdirat(&*self.0, name, Mode::RWXU) {
            Ok(()) => {}
            Err(Errno::EXIST) => return self.open_dir(&path),
            Err(error) => return Err(error.into()),
        }
        let made = self.open_dir(&path)?;
        let stat = rustix::fs::fstat(&*made.0)?;
        // Another directory may have been moved to the name meanwhile. It is the
        // sandbox's already; only one of ours is handed over.
        if stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_mode & 0o777 == 0o700 {
            rustix::fs::fchmod(&*made.0, Mode::from_raw_mode(0o755))?;
            own(made.0.as_fd(), owner)?;
        }
        Ok(made)
    }

    fn is_file_there(&self, path: &RelPath) -> bool {
        self.stat(path).is_ok_and(|meta| meta.kind != Kind::Dir)
    }

    fn unlink(&self, path: &RelPath, how: AtFlags) -> Result<(), FileError> {
        let (parent, name) = self.open_parent(path)?;
        Ok(rustix::fs::unlinkat(&*parent.0, name.as_bytes(), how)?)
    }

    /// Finds what is at a path, without opening it.
    pub(super) fn find(&self, path: &RelPath) -> Result<(OwnedFd, Meta), FileError> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = match self.open(path, flags) {
            Ok(found) => found,
            Err(error) => return Err(self.told(path, error)),
        };
        let meta = Meta::of(&rustix::fs::fstat(&found)?);
        Ok((found, meta))
    }

    pub(super) fn open(&self, path: &RelPath, flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = if path.is_work_dir() {
            b"."
        } else {
            path.as_bytes()
        };
        open_at(self.0.as_fd(), path, flags, ResolveFlags::NO_XDEV)
    }

    /// Says of an error which name it is about, as far as that can still be seen.
    fn told(&self, path: &RelPath, error: Errno) -> FileError {
        if error != Errno::LOOP {
            return error.into();
        }
        let mut prefix = RelPath::work_dir();
        for name in path.names() {
            let Ok(longer) = prefix.child(name) else {
                break;
            };
            prefix = longer;
            match self.open(&prefix, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC) {
                Ok(found) if is_link(&found) => return FileError::Link { name: name.into() },
                Ok(_) => {}
                Err(_) => break,
            }
        }
        let name = path.name().unwrap_or_default();
        FileError::Link { name: name.into() }
    }

    fn stat_name(&self, name: &std::ffi::CStr) -> Result<Option<Meta>, FileError> {
        match rustix::fs::statat(&*self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(Meta::of(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn each<T>(
        &self,
        entries_max: usize,
        mut take: impl FnMut(&std::ffi::CStr, FileType) -> Result<Option<T>, FileError>,
    ) -> Result<Listing<T>, FileError> {
        let mut entries = Vec::new();
        // Opened anew, so that two who list the same directory do not share a place.
        for entry in Entries::read_from(&*self.0)? {
            let entry = match entry {
                Ok(entry) => entry,
                // The directory itself was removed.
                Err(Errno::NOENT) => break,
                Err(error) => return Err(error.into()),
            };
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            if entries_max <= entries.len() {
                let extent = Extent::Truncated;
                return Ok(Listing { entries, extent });
            }
            entries.extend(take(name, entry.file_type())?);
        }
        let extent = Extent::Complete;
        Ok(Listing { entries, extent })
    }
}

impl Kind {
    pub(super) fn of(kind: FileType) -> Self {
        match kind {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Dir,
            FileType::Symlink => Self::Link,
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => Self::Other,
        }
    }
}

impl Meta {
    #[expect(
        clippy::useless_conversion,
        reason = "the count has another type on other architectures"
    )]
    pub(super) fn of(stat: &Stat) -> Self {
        let nanos = |nanos| u32::try_from(nanos).unwrap_or(0);
        Self {
            kind: Kind::of(FileType::from_raw_mode(stat.st_mode)),
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified_secs: stat.st_mtime,
            modified_nanos: nanos(stat.st_mtime_nsec),
            changed_secs: stat.st_ctime,
            changed_nanos: nanos(stat.st_ctime_nsec),
            mode: stat.st_mode & 0o7777,
            owner: Owner {
                uid: stat.st_uid,
                gid: stat.st_gid,
            },
            identity: (stat.st_dev, stat.st_ino),
            n_links: stat.st_nlink.into(),
            disk_bytes: u64::try_from(stat.st_blocks)
                .unwrap_or(0)
                .saturating_mul(512),
        }
    }
}

/// Gives what is made to its owner.
pub(super) fn own(fd: BorrowedFd<'_>, owner: Option<Owner>) -> Result<(), Errno> {
    match owner {
        Some(Owner { uid, gid }) => {
            rustix::fs::fchown(fd, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
        }
        None => Ok(()),
    }
}

fn is_link(found: &OwnedFd) -> bool {
    rustix::fs::fstat(found).is_ok_and(|stat| Meta::of(&stat).kind == Kind::Link)
}

fn open_at(
    dir: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    more: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let resolve =
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | more;
    let mut tries = 0;
    loop {
        match rustix::fs::openat2(dir, path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) if tries < AGAIN_MAX => tries += 1,
            other => return other,
        }
    }
}

/// Opens anew what a descriptor has, and nothing that took its name meanwhile.
pub(super) fn reopen(found: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
    let descriptors = own_descriptors()?;
    let name = found.as_raw_fd().to_string();
    rustix::fs::openat(descriptors, name.as_str(), flags, Mode::empty())
}

/// Returns `/proc/self/fd` of the process; its entries are the descriptors themselves.
pub(super) fn own_descriptors() -> Result<BorrowedFd<'static>, Errno> {
    /// What `statfs` says of a proc file system.
    const PROC_MAGIC: u64 = 0x9fa0;
    static DESCRIPTORS: OnceLock<OwnedFd> = OnceLock::new();
    if let Some(descriptors) = DESCRIPTORS.get() {
        return Ok(descriptors.as_fd());
    }
    let opened = rustix::fs::openat(CWD, c"/proc/self/fd", DIR_FLAGS, Mode::empty())?;
    if u64::try_from(rustix::fs::fstatfs(&opened)?.f_type) != Ok(PROC_MAGIC) {
        return Err(Errno::NOSYS);
    }
    Ok(DESCRIPTORS.get_or_init(|| opened).as_fd())
}

#[cfg(test)]
pub(super) mod tests;
