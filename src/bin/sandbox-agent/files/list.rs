//! Lists a directory as it has its entries.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags};
use rustix::io::Errno;

use super::{kind_of, meta_of};
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
            let (kind, size) = match rustix::fs::statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW)
            {
                Ok(stat) => {
                    let meta = meta_of(&stat);
                    (meta.kind, meta.tag.size)
                }
                // It went before it was looked at.
                Err(Errno::NOENT) => continue,
                // Its name may be seen and nothing else.
                Err(_) => (kind_of(entry.file_type()), 0),
            };
            let target = match kind {
                Kind::Link => rustix::fs::readlinkat(&self.dir, name, Vec::new()).ok(),
                Kind::File | Kind::Dir | Kind::Other => None,
            };
            return Ok(Some(Say::Entry(Entry {
                path: name.to_bytes().to_vec(),
                kind,
                size,
                target: target.map(std::ffi::CString::into_bytes),
            })));
        }
        Ok(None)
    }
}
