//! Lists a directory as it has its entries.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags};
use rustix::io::Errno;

use super::meta_of;
use crate::protocol::files::{Entry, Kind, Say, Trouble};

/// How a directory is opened that is read.
pub(super) const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// A listing under way.
#[derive(Debug)]
pub(super) struct Listing {
    dir: OwnedFd,
    entries: Dir,
}

impl Listing {
    /// Opens a directory.
    pub(super) fn begin(path: &[u8]) -> Result<Self, Trouble> {
        let dir = rustix::fs::openat(CWD, path, DIRECTORY, Mode::empty())?;
        let entries = Dir::read_from(&dir)?;
        Ok(Self { dir, entries })
    }

    /// Returns what comes next; nothing at the end.
    pub(super) fn next(&mut self) -> Result<Option<Say>, Trouble> {
        while let Some(entry) = self.entries.read() {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let stat = match rustix::fs::statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                // It went before it was looked at.
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(errno.into()),
            };
            let meta = meta_of(&stat);
            let target = match meta.kind {
                Kind::Link => rustix::fs::readlinkat(&self.dir, name, Vec::new()).ok(),
                Kind::File | Kind::Dir | Kind::Other => None,
            };
            return Ok(Some(Say::Entry(Entry {
                path: name.to_bytes().to_vec(),
                kind: meta.kind,
                size: meta.tag.size,
                target: target.map(std::ffi::CString::into_bytes),
            })));
        }
        Ok(None)
    }
}
