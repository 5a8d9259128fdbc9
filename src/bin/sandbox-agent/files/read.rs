//! Reads files, and says what is at a path.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::lines::Scan;
use super::meta_of;
use super::talk::{Over, Talk};
use crate::protocol::files::{CHUNK_BYTES_MAX, Kind, Links, Meta, Say, Trouble, Until};

/// Bytes of the beginning of a line end that may lie at the end of a chunk.
const CARRIED_BYTES_MAX: usize = 2;

/// A regular file that is open for reading.
#[derive(Debug)]
pub(super) struct Opened {
    file: OwnedFd,
    /// What it was when it was opened.
    pub(super) meta: Meta,
}

/// Says what is at a path.
pub(super) fn stat(path: &[u8], links: Links) -> Result<Meta, Trouble> {
    let flags = match links {
        Links::Followed => AtFlags::empty(),
        Links::Kept => AtFlags::SYMLINK_NOFOLLOW,
    };
    Ok(meta_of(&rustix::fs::statat(CWD, path, flags)?))
}

/// Refuses what is no regular file.
pub(super) fn regular(meta: &Meta) -> Result<(), Trouble> {
    match meta.kind {
        Kind::File => Ok(()),
        Kind::Dir => Err(Trouble::IsDirectory),
        Kind::Link => Err(Errno::LOOP.into()),
        Kind::Other => Err(Trouble::Special),
    }
}

impl Opened {
    /// Opens a regular file that has at most so many bytes, without waiting for anything.
    pub(super) fn open(path: &[u8], links: Links, most: u64) -> Result<Self, Trouble> {
        // A device is not even opened: that alone may do something.
        regular(&stat(path, links)?)?;
        let mut flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        flags.set(OFlags::NOFOLLOW, links == Links::Kept);
        let file = rustix::fs::open(path, flags, Mode::empty())?;
        let meta = meta_of(&rustix::fs::fstat(&file)?);
        // It may be another one by now.
        regular(&meta)?;
        if most < meta.tag.size {
            return Err(Trouble::TooLarge(meta.tag.size));
        }
        Ok(Self { file, meta })
    }

    /// Sends a range of the file.
    pub(super) fn range(
        &self,
        from: u64,
        most: u64,
        until: Until,
        talk: &mut Talk,
    ) -> Result<Result<(), Trouble>, Over> {
        let end = from.saturating_add(most);
        let mut at = from;
        while at < end {
            let chunk = match self.chunk(at, end, Vec::new()) {
                Ok(chunk) => chunk,
                Err(why) => return Ok(Err(why)),
            };
            if chunk.is_empty() {
                break;
            }
            at = at.saturating_add(count(chunk.len()));
            let is_last = until == Until::Zero && chunk.contains(&0);
            talk.say(&Say::Bytes(chunk))?;
            if is_last {
                break;
            }
        }
        Ok(Ok(()))
    }

    /// Sends lines of the file, and how many it has.
    pub(super) fn lines(
        &self,
        from: u64,
        (offset, limit): (u64, u64),
        most: u64,
        talk: &mut Talk,
    ) -> Result<Result<Say, Trouble>, Over> {
        let end = from.saturating_add(most);
        let mut at = from;
        let mut scan = Scan::new(offset, limit);
        let mut carried = Vec::new();
        loop {
            let before = carried.len();
            let mut chunk = match self.chunk(at, end, carried) {
                Ok(chunk) => chunk,
                Err(why) => return Ok(Err(why)),
            };
            let read = chunk.len() - before;
            at = at.saturating_add(count(read));
            let mut wanted = Vec::new();
            let taken = scan.take(&chunk, read == 0, &mut wanted);
            if !wanted.is_empty() {
                talk.say(&Say::Bytes(wanted))?;
            }
            if read == 0 {
                break;
            }
            carried = chunk.split_off(taken);
        }
        let whole = at < end || self.chunk(at, at.saturating_add(1), Vec::new()) == Ok(Vec::new());
        let lines = scan.lines();
        Ok(Ok(Say::Counted { lines, whole }))
    }

    /// Reads on behind what is there already; nothing at the end.
    fn chunk(&self, from: u64, end: u64, mut behind: Vec<u8>) -> Result<Vec<u8>, Trouble> {
        let room = CHUNK_BYTES_MAX - CARRIED_BYTES_MAX;
        let left = usize::try_from(end.saturating_sub(from)).unwrap_or(usize::MAX);
        let before = behind.len();
        behind.resize(before + room.min(left), 0);
        let mut read = before;
        while let Some(rest) = behind.get_mut(read..).filter(|rest| !rest.is_empty()) {
            let at = from.saturating_add(count(read - before));
            match rustix::io::pread(&self.file, rest, at) {
                Ok(0) => break,
                Ok(n) => read += n,
                Err(Errno::INTR) => {}
                // No file is that long.
                Err(Errno::INVAL) if i64::try_from(at).is_err() => break,
                // What came before is told first.
                Err(_) if before < read => break,
                Err(errno) => return Err(errno.into()),
            }
        }
        behind.truncate(read);
        Ok(behind)
    }
}

fn count(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
