//! Opens what lies below a directory descriptor, and never anything else.
//!
//! Every call names one path below a descriptor that is held. The kernel refuses
//! links, `..` and mounts on the way, so a tree that changes meanwhile can make an
//! opening fail and cannot lead it out.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

/// A longer path is opened in pieces: the system takes at most 4,096 bytes at once.
const PIECE_BYTES_MAX: usize = 4_000;
/// A kernel that saw a rename at the wrong moment asks for another try.
const TRIES_MAX: usize = 16;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);
const REGULAR: OFlags = OFlags::RDONLY;
/// Neither waits for the other end of a pipe nor takes a terminal.
const ALWAYS: OFlags = OFlags::CLOEXEC
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);
const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// What a file is known by, however often it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::workspace) struct Identity {
    dev: u64,
    ino: u64,
}

impl Identity {
    /// Returns the identity that a status tells.
    pub(in crate::workspace) fn of(stat: &Stat) -> Self {
        Self {
            dev: stat.st_dev,
            ino: stat.st_ino,
        }
    }

    /// Returns the identity of what a descriptor holds.
    pub(in crate::workspace) fn held(fd: impl AsFd) -> Result<Self, Errno> {
        rustix::fs::fstat(fd).map(|stat| Self::of(&stat))
    }
}

/// Returns the kind of file that a status tells.
pub(in crate::workspace) fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Opens the directory at a relative path, or `dir` itself at an empty one.
pub(in crate::workspace) fn open_directory(
    dir: BorrowedFd<'_>,
    path: &[u8],
) -> Result<OwnedFd, Errno> {
    if path.is_empty() {
        return open(dir, b".", DIRECTORY);
    }
    let mut held: Option<OwnedFd> = None;
    for piece in pieces(path) {
        let from = held.as_ref().map_or(dir, AsFd::as_fd);
        held = Some(open(from, piece, DIRECTORY)?);
    }
    held.ok_or(Errno::NOENT)
}

/// Opens a regular file at a relative path, whose last part is the file's name.
///
/// What is there is looked at before it is opened, since opening a device can act on it.
/// Anything but a regular file is refused with `INVAL`.
pub(in crate::workspace) fn open_regular(
    dir: BorrowedFd<'_>,
    path: &[u8],
) -> Result<(File, Stat), Errno> {
    let (parent, name) = match path.iter().rposition(|byte| *byte == b'/') {
        None => (None, path),
        Some(at) => {
            let (parent, name) = path.split_at(at);
            let name = name.get(1..).unwrap_or_default();
            (Some(open_directory(dir, parent)?), name)
        }
    };
    let from = parent.as_ref().map_or(dir, AsFd::as_fd);
    let seen = status(from, name)?;
    match kind(&seen) {
        FileType::RegularFile => {}
        FileType::Symlink => return Err(Errno::LOOP),
        FileType::Directory => return Err(Errno::ISDIR),
        _ => return Err(Errno::INVAL),
    }
    let file = open(from, name, REGULAR)?;
    let stat = rustix::fs::fstat(&file)?;
    if Identity::of(&stat) != Identity::of(&seen) || kind(&stat) != FileType::RegularFile {
        return Err(Errno::STALE);
    }
    Ok((File::from(file), stat))
}

/// Returns the status of a name in a directory; a link's own, not its target's.
pub(in crate::workspace) fn status(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Stat, Errno> {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
}

/// Returns the status of a relative path without opening its last part.
pub(in crate::workspace) fn status_below(dir: BorrowedFd<'_>, path: &[u8]) -> Result<Stat, Errno> {
    match path.iter().rposition(|byte| *byte == b'/') {
        None if path.is_empty() => rustix::fs::fstat(dir),
        None => status(dir, path),
        Some(at) => {
            let (parent, name) = path.split_at(at);
            let parent = open_directory(dir, parent)?;
            status(parent.as_fd(), name.get(1..).unwrap_or_default())
        }
    }
}

fn open(dir: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    for _ in 0..TRIES_MAX {
        match rustix::fs::openat2(dir, path, flags | ALWAYS, Mode::empty(), BENEATH) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            // An old kernel, or a filter of system calls that does not know this one.
            Err(Errno::NOSYS) => return open_by_parts(dir, path, flags),
            opened => return opened,
        }
    }
    Err(Errno::STALE)
}

fn open_by_parts(dir: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let mut parts = path.split(|byte| *byte == b'/').peekable();
    let mut held: Option<OwnedFd> = None;
    while let Some(part) = parts.next() {
        let flags = if parts.peek().is_some() {
            DIRECTORY
        } else {
            flags
        };
        if part.is_empty() || part == b".." {
            return Err(Errno::XDEV);
        }
        let from = held.as_ref().map_or(dir, AsFd::as_fd);
        held = Some(rustix::fs::openat(
            from,
            part,
            flags | ALWAYS,
            Mode::empty(),
        )?);
    }
    held.ok_or(Errno::NOENT)
}

/// Cuts a path between its parts into pieces that the system takes.
fn pieces(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = path;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = match rest.get(..PIECE_BYTES_MAX) {
            None => rest.len(),
            // A part has at most 255 bytes; a longer one is refused by the system.
            Some(head) => head
                .iter()
                .rposition(|byte| *byte == b'/')
                .unwrap_or(rest.len()),
        };
        let (piece, tail) = rest.split_at(end);
        rest = tail.strip_prefix(b"/").unwrap_or(tail);
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn root(dir: &tempfile::TempDir) -> OwnedFd {
        rustix::fs::open(dir.path(), DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap()
    }

    #[test]
    fn a_path_is_cut_between_its_parts() {
        let path = vec![b"0123456789".as_slice(); 1_000].join(&b'/');
        let cut: Vec<_> = pieces(&path).collect();
        assert!(cut.iter().all(|piece| piece.len() <= PIECE_BYTES_MAX));
        assert_eq!(cut.join(&b'/'), path);
        assert_eq!(pieces(b"").count(), 0);
    }

    #[test]
    fn no_link_no_climb_and_no_absolute_path_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("in/deep")).unwrap();
        std::fs::write(dir.path().join("in/deep/f"), "x").unwrap();
        symlink("in", dir.path().join("link")).unwrap();
        symlink("/etc", dir.path().join("out")).unwrap();
        symlink("f", dir.path().join("in/deep/l")).unwrap();
        let root = root(&dir);
        for by_parts in [false, true] {
            let open = |path: &[u8]| {
                if by_parts {
                    open_by_parts(root.as_fd(), path, DIRECTORY)
                } else {
                    open_directory(root.as_fd(), path)
                }
            };
            assert!(open(b"in/deep").is_ok());
            for path in ["link", "out", "link/deep", "..", "in/../..", "/etc", "in/no"] {
                assert!(open(path.as_bytes()).is_err(), "{path} by parts: {by_parts}");
            }
        }
        assert!(open_regular(root.as_fd(), b"in/deep/f").is_ok());
        for path in ["in/deep/l", "in/deep", "link/deep/f", "out/passwd", "../f", "in/no"] {
            assert!(open_regular(root.as_fd(), path.as_bytes()).is_err(), "{path}");
        }
    }

    #[test]
    fn a_pipe_is_refused_without_waiting_for_its_other_end() {
        let dir = tempfile::tempdir().unwrap();
        let made = std::process::Command::new("mkfifo")
            .arg(dir.path().join("pipe"))
            .status();
        assert!(made.unwrap().success());
        let refused = open_regular(root(&dir).as_fd(), b"pipe").unwrap_err();
        assert_eq!(refused, Errno::INVAL);
    }
}
