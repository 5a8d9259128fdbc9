//! Takes room for new content, and lets go of the old.
//!
//! A file that takes the place of another is written out by the file system at the rename, and
//! ext4 first looks for room for it then. Both are kept from the reply here: the room is taken
//! in one go before anything is written, and the writing out begins right after the reply,
//! together with the freeing of the old content.

use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{Advice, FallocateFlags};
use rustix::io::Errno;

use super::beneath::{Meta, READ_FLAGS, reopen};
use super::refused::FileError;

/// A file that was put in its place.
#[derive(Debug)]
pub struct Placed {
    /// What is there now.
    pub meta: Meta,
    /// Whether it was new.
    pub arrival: Arrival,
    /// What was there before.
    pub old: Option<Old>,
}

/// A file that gave way to another.
///
/// When this is dropped the new content begins to be written out, and the old one's room is
/// freed, unless somebody else has it still. That blocks, and takes longer than all the rest
/// of a small write.
#[derive(Debug)]
pub struct Old {
    _held: OwnedFd,
    bytes: u64,
    /// What took its place, where nobody has it written out yet.
    new: Option<OwnedFd>,
}

impl Old {
    /// Takes a file that is to be replaced and has so many bytes.
    pub(super) fn new(held: OwnedFd, bytes: u64) -> Self {
        Self {
            _held: held,
            bytes,
            new: None,
        }
    }

    /// Notes what took its place, which is to be written out.
    ///
    /// The file system does so itself, at the rename, for what has no room on the disk yet.
    pub(super) fn gives_way_to(mut self, new: &File) -> Self {
        // To read from alone: what is open for writing, no program can be started from.
        // Where there are no descriptors left it is written out in its own time.
        self.new = reopen(new.as_fd(), READ_FLAGS).ok();
        self
    }

    /// Returns how many bytes it has.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Old {
    fn drop(&mut self) {
        // What was itself replaced or removed by now need not reach the disk.
        let is_there = |new: &&OwnedFd| rustix::fs::fstat(new).is_ok_and(|meta| 0 < meta.st_nlink);
        if let Some(new) = self.new.as_ref().filter(is_there) {
            // The advice is that nobody reads it soon, of which the file system makes that it
            // writes it out, without anybody waiting for it. What it does not is written out
            // in its own time.
            match rustix::fs::fadvise(new, 0, None, Advice::DontNeed) {
                Ok(()) | Err(_) => {}
            }
        }
    }
}

/// Whether a file took the place of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Nothing was there.
    New,
    /// Its old content is gone.
    Replaced,
}

/// Takes room on the disk for a file of so many bytes; returns whether the file system can.
///
/// So a disk that is full says so before anything is written, and the file system need not
/// find a place for it at the rename, before the reply.
pub(super) fn reserve(file: &File, bytes: u64) -> Result<bool, FileError> {
    if bytes == 0 {
        return Ok(false);
    }
    match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, bytes) {
        Ok(()) => Ok(true),
        Err(error @ (Errno::NOSPC | Errno::DQUOT)) => Err(error.into()),
        // Whatever is wrong with the file, writing to it tells.
        Err(_) => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::Command;

    use super::*;
    use crate::workspace::{Dir, Expected, RelPath, Replacing, Survives};

    /// A directory, and what writes these pieces to its file `f`.
    fn ground() -> (tempfile::TempDir, impl Fn(&[Vec<u8>]) -> Placed) {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::held(File::open(temp.path()).unwrap().into());
        let write = move |pieces: &[Vec<u8>]| {
            let how = Replacing {
                owner: None,
                bytes_max: u64::MAX,
                expected: Expected::Anything,
                survives: Survives::DaemonEnd,
            };
            let path = RelPath::parse(b"f").unwrap();
            dir.write_pieces(&path, pieces, how).unwrap()
        };
        (temp, write)
    }

    #[test]
    fn a_file_in_many_pieces_is_whole_and_takes_no_more_room_than_it_has_bytes() {
        let (temp, write) = ground();
        let file = temp.path().join("f");
        let pieces: Vec<Vec<u8>> = (0..3_000_u32).map(|n| n.to_string().into_bytes()).collect();
        let placed = write(&pieces);
        assert_eq!(std::fs::read(&file).unwrap(), pieces.concat());
        let rounded = placed.meta.size.next_multiple_of(4_096);
        assert!(placed.meta.disk_bytes <= rounded, "{:?}", placed.meta);
        // What gives way is let go of with no word to what took its place.
        let again = write(&[b"new".to_vec()]);
        drop(again.old.unwrap());
        assert_eq!(std::fs::read(&file).unwrap(), b"new");
        let empty = write(&[Vec::new(), Vec::new()]);
        assert_eq!((empty.meta.size, empty.arrival), (0, Arrival::Replaced));
    }

    #[test]
    fn a_program_that_was_just_written_can_be_started_at_once() {
        let (temp, write) = ground();
        let file = temp.path().join("f");
        write(&[b"old".to_vec()]);
        std::fs::set_permissions(&file, Permissions::from_mode(0o755)).unwrap();
        let placed = write(&[b"#!/bin/sh\nexit 7\n".to_vec()]);
        let old = placed.old.unwrap();
        assert!(old.new.is_some());
        let ended = Command::new(&file).status().unwrap();
        assert_eq!(ended.code(), Some(7), "before the old content is let go of");
    }
}
