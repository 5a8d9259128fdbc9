//! Walks a tree in the order of its paths, by directory descriptors, following no link.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::kind_of;
use super::list::DIRECTORY;
use crate::protocol::files::{DEPTH_MAX, Entry, FOUND_BYTES_MAX, Kind, Page, Say, Trouble};

/// Names that wait for their turn take at most so many bytes of the sandbox's memory.
const WAITING_BYTES_MAX: usize = 16 << 20;
/// What a waiting name takes besides its own bytes.
const NAME_OVERHEAD: usize = 32;
/// The file systems by which the kernel tells of itself: reading there may have effects,
/// or no end.
const KERNEL: [u64; 3] = [0x9fa0, 0x6265_6572, 0x6462_6720];

/// A walk under way.
#[derive(Debug)]
pub(super) struct Walk {
    frames: Vec<Frame>,
    /// The path of the directory that is walked now, below the start.
    path: Vec<u8>,
    hidden: bool,
    depth: usize,
    waiting: usize,
    crosses_kernel: bool,
    end: Page,
}

/// A directory on the way down.
#[derive(Debug)]
struct Frame {
    dir: OwnedFd,
    /// Names that are still to come, in their order.
    names: VecDeque<Name>,
    /// Bytes of the path that lead to this directory.
    path_bytes: usize,
}

#[derive(Debug, PartialEq, Eq)]
struct Name {
    name: Box<[u8]>,
    kind: Kind,
}

impl Name {
    fn cost(&self) -> usize {
        NAME_OVERHEAD + self.name.len()
    }

    /// Orders names as their paths are ordered: a directory's goes on with a slash.
    fn key(&self) -> impl Iterator<Item = u8> {
        let slash = (self.kind == Kind::Dir).then_some(b'/');
        self.name.iter().copied().chain(slash)
    }
}

impl Walk {
    /// Opens the start; a link there is followed.
    pub(super) fn begin(path: &[u8], hidden: bool, depth: u32) -> Result<Self, Trouble> {
        let dir = rustix::fs::openat(CWD, path, DIRECTORY, Mode::empty())?;
        let mut walk = Self {
            frames: Vec::new(),
            path: Vec::new(),
            hidden,
            depth: usize::try_from(depth.min(DEPTH_MAX)).unwrap_or_default(),
            waiting: 0,
            crosses_kernel: is_of_the_kernel(&dir),
            end: Page::Last,
        };
        walk.enter(dir)?;
        Ok(walk)
    }

    /// Returns what comes next; nothing at the end.
    pub(super) fn next(&mut self) -> Option<Say> {
        loop {
            let frame = self.frames.last_mut()?;
            let base = frame.path_bytes;
            let Some(name) = frame.names.pop_front() else {
                self.frames.pop();
                continue;
            };
            self.waiting -= name.cost();
            self.path.truncate(base);
            if !self.hidden && name.name.starts_with(b".") {
                continue;
            }
            if !self.path.is_empty() {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(&name.name);
            let path = self.path.clone();
            if FOUND_BYTES_MAX < path.len() {
                self.note(Page::TooDeep);
                continue;
            }
            if name.kind == Kind::Dir
                && let Err(why) = self.down(&name.name)
            {
                return Some(Say::Left { path, why });
            }
            return Some(Say::Entry(Entry {
                path,
                kind: name.kind,
                size: 0,
                target: None,
            }));
        }
    }

    /// Returns how it ended.
    pub(super) fn end(&self) -> Page {
        self.end
    }

    fn note(&mut self, end: Page) {
        if self.end == Page::Last {
            self.end = end;
        }
    }

    /// Goes down into a directory of the present one.
    fn down(&mut self, name: &[u8]) -> Result<(), Trouble> {
        if self.depth < self.frames.len() {
            self.note(Page::TooDeep);
            return Ok(());
        }
        let Some(frame) = self.frames.last() else {
            return Ok(());
        };
        let flags = DIRECTORY | OFlags::NOFOLLOW;
        let dir = rustix::fs::openat(&frame.dir, name, flags, Mode::empty())?;
        if !self.crosses_kernel && is_of_the_kernel(&dir) {
            return Err(Trouble::Kernel);
        }
        self.enter(dir)
    }

    fn enter(&mut self, dir: OwnedFd) -> Result<(), Trouble> {
        let mut entries = Dir::read_from(&dir)?;
        let mut names = Vec::new();
        while let Some(entry) = entries.read() {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => {
                    match rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
                        Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                        // It went before it was looked at.
                        Err(Errno::NOENT) => continue,
                        Err(errno) => return Err(errno.into()),
                    }
                }
                known => known,
            };
            let name = Name {
                name: name.to_bytes().into(),
                kind: kind_of(kind),
            };
            if WAITING_BYTES_MAX < self.waiting + name.cost() {
                self.note(Page::TooMany);
                break;
            }
            self.waiting += name.cost();
            names.push(name);
        }
        names.sort_unstable_by(|left, right| left.key().cmp(right.key()));
        self.frames.push(Frame {
            dir,
            names: names.into(),
            path_bytes: self.path.len(),
        });
        Ok(())
    }
}

fn is_of_the_kernel(dir: impl AsFd) -> bool {
    let found = rustix::fs::fstatfs(dir);
    let kind = found
        .ok()
        .and_then(|found| u64::try_from(found.f_type).ok());
    kind.is_some_and(|kind| KERNEL.contains(&kind))
}
