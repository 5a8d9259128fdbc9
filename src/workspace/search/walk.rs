//! Walks a tree in the order of its paths, by directory descriptors.
//!
//! ```text
//! frames  [start] -> [a] -> [a/b]     each: names still to come, sorted
//! fds        -        -       held    at most OPEN_MAX; one that was closed is opened
//!                                     again from the start, and must be the same one
//! ```
//!
//! Names are sorted as if those of directories ended with a slash. So paths come in the
//! order of their bytes, and what a bound cuts off is the end of the sorted list.

use std::cmp::Ordering;
use std::collections::VecDeque;

use rustix::fs::{FileType, RawDir};
use rustix::io::Errno;

use super::descent;
use super::patience::{Cut, DEPTH_MAX, Patience, Reach, Stop};
use super::skipped::{Skipped, Why};
use crate::workspace::{Dir, FileError, Kind, Meta, Opened};

/// So many directories on the way down are held open.
const OPEN_MAX: usize = 32;
/// Names that wait for their turn take at most so many bytes.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// What a waiting name takes besides its own bytes.
const NAME_OVERHEAD: usize = 32;
/// Entries are read from the system through a buffer of this size.
const BUFFER_BYTES: usize = 32 << 10;
/// So often the deadline is looked at, counted in entries.
const CHECK_EVERY: usize = 64;

/// A walk under way. Between two calls it holds only descriptors and names.
#[derive(Debug)]
pub(in crate::workspace) struct Walk {
    top: Dir,
    frames: Vec<Frame>,
    n_open: usize,
    /// The path of the present entry, below the start.
    path: Vec<u8>,
    turn: Turn,
    reach: Reach,
    n_listed: usize,
    n_seen: usize,
    waiting_bytes: usize,
    buffer: Vec<u8>,
    /// What was left out on the way.
    pub(in crate::workspace) skipped: Skipped,
    /// The bound that was met first.
    pub(in crate::workspace) cut: Option<Cut>,
}

/// What the next step does with the present entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// Nothing is there to go down into.
    Onward,
    /// The present entry is a directory to go down into.
    Down,
}

#[derive(Debug)]
struct Frame {
    dir: Option<Dir>,
    identity: (u64, u64),
    path_len: usize,
    entries: VecDeque<Entry>,
}

/// An entry of a directory.
#[derive(Debug)]
pub(in crate::workspace) struct Entry {
    pub(in crate::workspace) name: Box<[u8]>,
    pub(in crate::workspace) kind: Kind,
}

impl Entry {
    fn waiting_bytes(&self) -> usize {
        self.name.len() + NAME_OVERHEAD
    }
}

impl Walk {
    /// Begins a walk of what lies in `dir`.
    pub(in crate::workspace) fn begin(dir: &Dir, reach: Reach) -> Result<Self, FileError> {
        // Opened anew: a descriptor that is shared has one place in the listing.
        let first = dir.reopened()?;
        let start = Frame {
            identity: first.meta()?.identity,
            dir: Some(first),
            path_len: 0,
            entries: VecDeque::new(),
        };
        Ok(Self {
            top: dir.clone(),
            frames: vec![start],
            n_open: 1,
            path: Vec::new(),
            // The start is listed at the first step, which has a patience.
            turn: Turn::Down,
            reach: Reach {
                depth: reach.depth.min(DEPTH_MAX),
                entries: reach.entries,
            },
            n_listed: 0,
            n_seen: 0,
            waiting_bytes: 0,
            buffer: Vec::with_capacity(BUFFER_BYTES),
            skipped: Skipped::default(),
            cut: None,
        })
    }

    /// Goes to the next entry and returns its kind, or nothing at the end.
    pub(in crate::workspace) fn next(&mut self, patience: &Patience) -> Result<Option<Kind>, Stop> {
        if self.turn == Turn::Down {
            self.turn = Turn::Onward;
            self.go_down(patience)?;
        }
        loop {
            let Some(frame) = self.frames.last_mut() else {
                return Ok(None);
            };
            self.path.truncate(frame.path_len);
            let Some(entry) = frame.entries.pop_front() else {
                self.n_open -= usize::from(frame.dir.is_some());
                self.frames.pop();
                continue;
            };
            self.waiting_bytes = self.waiting_bytes.saturating_sub(entry.waiting_bytes());
            if !self.path.is_empty() {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(&entry.name);
            self.n_seen += 1;
            if self.n_seen.is_multiple_of(CHECK_EVERY) {
                patience.check()?;
            }
            if entry.kind == Kind::Dir {
                self.turn = Turn::Down;
            }
            return Ok(Some(entry.kind));
        }
    }

    /// Does not go down into the directory that the walk is at.
    pub(in crate::workspace) fn pass_by(&mut self) {
        self.turn = Turn::Onward;
    }

    /// Returns the path of the present entry below the start.
    pub(in crate::workspace) fn path(&self) -> &[u8] {
        &self.path
    }

    /// Returns the name of the present entry.
    pub(in crate::workspace) fn name(&self) -> &[u8] {
        let from = self.path.iter().rposition(|byte| *byte == b'/');
        let from = from.map_or(0, |at| at + 1);
        self.path.get(from..).unwrap_or_default()
    }

    /// Opens the present entry, provided that it is a regular file.
    pub(in crate::workspace) fn open(&mut self) -> Result<Opened, Why> {
        let dir = self.hold_directory()?.clone();
        Ok(dir.open_file(&descent::named(self.name())?)?)
    }

    /// Returns what is known of the present entry.
    pub(in crate::workspace) fn meta(&mut self) -> Result<Meta, Why> {
        let dir = self.hold_directory()?.clone();
        Ok(dir.stat(&descent::named(self.name())?)?)
    }

    /// Returns the target of the present entry, a link.
    pub(in crate::workspace) fn target(&mut self) -> Result<Vec<u8>, Why> {
        let dir = self.hold_directory()?.clone();
        let target = rustix::fs::readlinkat(dir.fd(), self.name(), Vec::new());
        Ok(target.map_err(FileError::from)?.into_bytes())
    }

    /// Notes that the present entry is left out.
    pub(in crate::workspace) fn skip(&mut self, why: Why) {
        self.skipped.note(&self.path, why);
    }

    /// Notes the bound that was met, unless another was met before.
    pub(in crate::workspace) fn note_cut(&mut self, cut: Cut) {
        self.cut.get_or_insert(cut);
    }

    /// Returns the directory of the present entry, opened again where it was closed.
    fn hold_directory(&mut self) -> Result<&Dir, Why> {
        let frame = self.frames.last_mut().ok_or(Why::Changed)?;
        let dir = if let Some(dir) = frame.dir.take() {
            dir
        } else {
            let path = self.path.get(..frame.path_len).unwrap_or_default();
            let dir = descent::descend(&self.top, path)?;
            if dir.meta()?.identity != frame.identity {
                return Err(Why::Changed);
            }
            self.n_open += 1;
            dir
        };
        Ok(frame.dir.insert(dir))
    }

    /// Lists the present directory, whose names come next.
    fn go_down(&mut self, patience: &Patience) -> Result<(), Stop> {
        patience.check()?;
        let is_start = self.path.is_empty();
        if self.reach.depth < self.frames.len() && !is_start {
            self.note_cut(Cut::Depth);
            return Ok(());
        }
        if !is_start && let Err(why) = self.enter() {
            self.skip(why);
            return Ok(());
        }
        self.list(patience)
    }

    fn enter(&mut self) -> Result<(), Why> {
        let above = self.hold_directory()?.clone();
        let dir = above.open_dir(&descent::named(self.name())?)?;
        let identity = dir.meta()?.identity;
        drop(above);
        if let Some(frame) = self.frames.last_mut()
            && frame.entries.is_empty()
        {
            // Nothing is left to do there.
            self.n_open -= usize::from(frame.dir.take().is_some());
        }
        if OPEN_MAX <= self.n_open {
            let highest = self.frames.iter_mut().find(|frame| frame.dir.is_some());
            if let Some(frame) = highest {
                frame.dir = None;
                self.n_open -= 1;
            }
        }
        self.frames.push(Frame {
            dir: Some(dir),
            identity,
            path_len: self.path.len(),
            entries: VecDeque::new(),
        });
        self.n_open += 1;
        Ok(())
    }

    fn list(&mut self, patience: &Patience) -> Result<(), Stop> {
        let Some(dir) = self.frames.last().and_then(|frame| frame.dir.as_ref()) else {
            return Ok(());
        };
        let room = Room {
            entries: self.reach.entries.saturating_sub(self.n_listed),
            bytes: WAITING_BYTES_MAX.saturating_sub(self.waiting_bytes),
            links: Links::Taken,
        };
        let mut listing = list(dir, &mut self.buffer, room, patience)?;
        listing.entries.sort_unstable_by(by_path);
        self.n_listed += listing.entries.len();
        self.waiting_bytes += listing.bytes;
        if listing.is_cut {
            self.note_cut(Cut::Entries);
        }
        if let Some(error) = listing.failure {
            self.skip(FileError::from(error).into());
        }
        if let Some(frame) = self.frames.last_mut() {
            frame.entries = listing.entries.into();
        }
        Ok(())
    }
}

/// How much of a directory is taken.
#[derive(Clone, Copy, Debug)]
pub(in crate::workspace) struct Room {
    pub(in crate::workspace) entries: usize,
    pub(in crate::workspace) bytes: usize,
    pub(in crate::workspace) links: Links,
}

/// Whether links are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::workspace) enum Links {
    Taken,
    LeftOut,
}

/// What a directory holds, as far as there was room.
#[derive(Debug, Default)]
pub(in crate::workspace) struct Listing {
    pub(in crate::workspace) entries: Vec<Entry>,
    pub(in crate::workspace) is_cut: bool,
    /// Why the rest could not be read.
    pub(in crate::workspace) failure: Option<Errno>,
    bytes: usize,
}

/// Lists a directory that has just been opened.
pub(in crate::workspace) fn list(
    dir: &Dir,
    buffer: &mut Vec<u8>,
    room: Room,
    patience: &Patience,
) -> Result<Listing, Stop> {
    let mut listing = Listing::default();
    buffer.clear();
    buffer.reserve(BUFFER_BYTES);
    let mut entries = RawDir::new(dir.fd(), buffer.spare_capacity_mut());
    let mut n_read = 0_usize;
    while let Some(entry) = entries.next() {
        n_read += 1;
        if n_read.is_multiple_of(CHECK_EVERY) {
            patience.check()?;
        }
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                listing.failure = Some(error);
                break;
            }
        };
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        let kind = match entry.file_type() {
            FileType::Unknown => {
                let meta = descent::named(name).and_then(|path| Ok(dir.stat(&path)?));
                match meta {
                    Ok(meta) => meta.kind,
                    // It went before it was looked at.
                    Err(_) => continue,
                }
            }
            known => Kind::of(known),
        };
        if kind == Kind::Link && room.links == Links::LeftOut {
            continue;
        }
        let entry = Entry {
            name: name.into(),
            kind,
        };
        let bytes = listing.bytes + entry.waiting_bytes();
        if room.entries <= listing.entries.len() || room.bytes < bytes {
            listing.is_cut = true;
            break;
        }
        listing.bytes = bytes;
        listing.entries.push(entry);
    }
    Ok(listing)
}

/// Orders names as their paths are ordered: a directory's goes on with a slash.
fn by_path(left: &Entry, right: &Entry) -> Ordering {
    fn tail(entry: &Entry) -> &'static [u8] {
        if entry.kind == Kind::Dir { b"/" } else { b"" }
    }
    let shorter = left.name.len().min(right.name.len());
    let (left_head, left_rest) = left.name.split_at(shorter);
    let (right_head, right_rest) = right.name.split_at(shorter);
    left_head.cmp(right_head).then_with(|| {
        let left_rest = left_rest.iter().chain(tail(left));
        left_rest.cmp(right_rest.iter().chain(tail(right)))
    })
}
