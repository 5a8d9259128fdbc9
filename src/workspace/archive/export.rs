//! Packs a tree, a block at a time, as it is read.
//!
//! A member's size is written before its bytes. A file that became shorter meanwhile is
//! filled up with zeros, one that grew is cut off, and both are told. An archive that a
//! bound or a deadline would cut ends in an error, never in what looks whole.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};

use tar::EntryType;

use super::Format;
use super::header::{BLOCK, BLOCK_BYTES, Written};
use super::zst::Packer;
use crate::workspace::search::walk::Walk;
use crate::workspace::search::{Cut, Patience, Reach, Skipped, Stop, Why};
use crate::workspace::{Dir, FileError, Kind, Meta, Opened};

/// So many files with several names are remembered; later ones are packed at each name.
const LINKED_MAX: usize = 100_000;
/// The names of those have at most so many bytes together.
const LINKED_BYTES_MAX: usize = 16 << 20;

/// What an archive may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportBounds {
    /// How far the walk goes.
    pub reach: Reach,
    /// The archive has at most so many bytes before it is compressed.
    pub bytes: u64,
}

/// What was packed so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Regular files, those included that are links to one before.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Links.
    pub links: u64,
    /// Bytes of the archive before it is compressed.
    pub bytes: u64,
    /// What was left out, and files that changed their size while they were packed.
    pub skipped: Skipped,
}

/// Why an archive ends before it is whole; within the `io::Error` of a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// A bound was met.
    #[error("pack all of the workspace: it exceeds a bound ({0:?})")]
    Cut(Cut),
    /// The caller has gone.
    #[error("pack the workspace for a caller that has gone")]
    Cancelled,
}

/// An archive of a directory, to be read to its end.
#[derive(Debug)]
pub struct Export(Way);

#[derive(Debug)]
enum Way {
    Tar(Box<Tar>),
    Zst(Box<Packer<Tar>>),
}

impl Export {
    /// Begins to pack what lies in a directory. Nothing is read before the first reading.
    pub fn begin(
        dir: &Dir,
        format: Format,
        bounds: ExportBounds,
        patience: Patience,
    ) -> Result<Self, FileError> {
        let tar = Tar {
            walk: Walk::begin(dir, bounds.reach)?,
            patience,
            room: bounds.bytes,
            ready: Vec::new(),
            n_taken: 0,
            body: None,
            has_ended: false,
            linked: Linked::default(),
            exported: Exported::default(),
        };
        Ok(Self(match format {
            Format::Tar => Way::Tar(Box::new(tar)),
            Format::TarZst => Way::Zst(Box::new(Packer::new(tar))),
        }))
    }

    /// Returns what was packed so far; after the end, all of it.
    pub fn exported(&self) -> Exported {
        let tar = match &self.0 {
            Way::Tar(tar) => tar,
            Way::Zst(packer) => packer.source(),
        };
        Exported {
            skipped: tar.walk.skipped.clone(),
            ..tar.exported.clone()
        }
    }
}

impl Read for Export {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Way::Tar(tar) => tar.read(buffer),
            Way::Zst(packer) => packer.read(buffer),
        }
    }
}

#[derive(Debug)]
struct Tar {
    walk: Walk,
    patience: Patience,
    room: u64,
    /// Blocks that were made and not yet read, from `n_taken` on.
    ready: Vec<u8>,
    n_taken: usize,
    body: Option<Body>,
    has_ended: bool,
    linked: Linked,
    exported: Exported,
}

/// The bytes of the present file.
#[derive(Debug)]
struct Body {
    file: File,
    size: u64,
    left: u64,
    is_short: bool,
}

/// Files with several names, each by the one it was packed at.
#[derive(Debug, Default)]
struct Linked {
    names: BTreeMap<(u64, u64), Vec<u8>>,
    bytes: usize,
}

impl Read for Tar {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            let n_ready = self.take_ready(buffer);
            if n_ready != 0 {
                return Ok(n_ready);
            }
            if self.body.is_some() {
                return self.take_body(buffer);
            }
            if self.has_ended {
                return Ok(0);
            }
            self.step()?;
        }
    }
}

impl Tar {
    fn take_ready(&mut self, buffer: &mut [u8]) -> usize {
        let rest = self.ready.get(self.n_taken..).unwrap_or_default();
        let n_bytes = rest.len().min(buffer.len());
        for (to, from) in buffer.iter_mut().zip(rest) {
            *to = *from;
        }
        self.n_taken += n_bytes;
        if self.ready.len() <= self.n_taken {
            self.ready.clear();
            self.n_taken = 0;
        }
        n_bytes
    }

    fn take_body(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.patience.check().map_err(stopped)?;
        let Some(body) = &mut self.body else {
            return Ok(0);
        };
        let wanted = usize::try_from(body.left).unwrap_or(usize::MAX);
        let wanted = wanted.min(buffer.len());
        let buffer = buffer.get_mut(..wanted).unwrap_or_default();
        let n_read = if body.is_short {
            0
        } else {
            // A disk that fails in the middle is as a file that ends there.
            body.file.read(buffer).unwrap_or(0)
        };
        let n_read = if n_read == 0 {
            if !body.is_short {
                body.is_short = true;
                self.walk.skip(Why::Shrank);
            }
            buffer.fill(0);
            buffer.len()
        } else {
            n_read
        };
        body.left = body.left.saturating_sub(count(n_read));
        if body.left == 0 {
            self.end_body();
        }
        Ok(n_read)
    }

    fn end_body(&mut self) {
        let Some(mut body) = self.body.take() else {
            return;
        };
        if !body.is_short && matches!(body.file.read(&mut [0]), Ok(1)) {
            self.walk.skip(Why::Grew);
        }
        let padding = body.size.next_multiple_of(BLOCK) - body.size;
        self.ready.resize(usize::try_from(padding).unwrap_or(0), 0);
    }

    /// Goes to the next entry and makes its header.
    fn step(&mut self) -> Result<(), io::Error> {
        let Some(kind) = self.walk.next(&self.patience).map_err(stopped)? else {
            if let Some(cut) = self.walk.cut {
                return Err(io::Error::other(ExportError::Cut(cut)));
            }
            self.has_ended = true;
            self.spend(2 * BLOCK)?;
            self.ready.resize(2 * BLOCK_BYTES, 0);
            return Ok(());
        };
        let packed = match kind {
            Kind::File => self.file()?,
            Kind::Dir => self.directory()?,
            Kind::Link => self.link()?,
            Kind::Other => Err(Why::Special),
        };
        if let Err(why) = packed {
            self.walk.skip(why);
        }
        Ok(())
    }

    fn file(&mut self) -> io::Result<Result<(), Why>> {
        let Opened { file, meta } = match self.walk.open() {
            Ok(opened) => opened,
            Err(why) => return Ok(Err(why)),
        };
        let path = self.walk.path().to_vec();
        self.exported.files += 1;
        if let Some(first) = self.linked.first(&meta, &path) {
            let written = Written {
                path: &path,
                kind: EntryType::Link,
                link: &first,
                size: 0,
            };
            self.write(written, &meta)?;
            return Ok(Ok(()));
        }
        let written = Written {
            path: &path,
            kind: EntryType::Regular,
            link: b"",
            size: meta.size,
        };
        self.write(written, &meta)?;
        if meta.size != 0 {
            self.body = Some(Body {
                file,
                size: meta.size,
                left: meta.size,
                is_short: false,
            });
        }
        Ok(Ok(()))
    }

    fn directory(&mut self) -> io::Result<Result<(), Why>> {
        let meta = match self.walk.meta() {
            Ok(meta) if meta.kind == Kind::Dir => meta,
            Ok(_) => return Ok(Err(Why::Changed)),
            Err(why) => return Ok(Err(why)),
        };
        let mut path = self.walk.path().to_vec();
        path.push(b'/');
        let written = Written {
            path: &path,
            kind: EntryType::Directory,
            link: b"",
            size: 0,
        };
        self.write(written, &meta)?;
        self.exported.directories += 1;
        Ok(Ok(()))
    }

    fn link(&mut self) -> io::Result<Result<(), Why>> {
        let looked = self.walk.target();
        let looked = looked.and_then(|target| Ok((target, self.walk.meta()?)));
        let (target, meta) = match looked {
            Ok(looked) => looked,
            Err(why) => return Ok(Err(why)),
        };
        let path = self.walk.path().to_vec();
        let written = Written {
            path: &path,
            kind: EntryType::Symlink,
            link: &target,
            size: 0,
        };
        self.write(written, &meta)?;
        self.exported.links += 1;
        Ok(Ok(()))
    }

    fn write(&mut self, written: Written<'_>, meta: &Meta) -> io::Result<()> {
        let blocks = written.blocks(meta);
        let size = written.size.checked_next_multiple_of(BLOCK);
        let size = size.and_then(|size| size.checked_add(count(blocks.len())));
        self.spend(size.unwrap_or(u64::MAX))?;
        self.ready = blocks;
        Ok(())
    }

    fn spend(&mut self, bytes: u64) -> io::Result<()> {
        match self.room.checked_sub(bytes) {
            Some(room) => {
                self.room = room;
                self.exported.bytes += bytes;
                Ok(())
            }
            None => Err(io::Error::other(ExportError::Cut(Cut::Bytes))),
        }
    }
}

impl Linked {
    /// Returns the name that a file was packed at before, if it was; else remembers it.
    fn first(&mut self, meta: &Meta, path: &[u8]) -> Option<Vec<u8>> {
        if meta.n_links <= 1 {
            return None;
        }
        if let Some(first) = self.names.get(&meta.identity) {
            return Some(first.clone());
        }
        let bytes = self.bytes + path.len();
        if self.names.len() < LINKED_MAX && bytes <= LINKED_BYTES_MAX {
            self.names.insert(meta.identity, path.to_vec());
            self.bytes = bytes;
        }
        None
    }
}

fn count(n_bytes: usize) -> u64 {
    u64::try_from(n_bytes).unwrap_or(u64::MAX)
}

fn stopped(stop: Stop) -> io::Error {
    io::Error::other(match stop {
        Stop::Late => ExportError::Cut(Cut::Late),
        Stop::Cancelled => ExportError::Cancelled,
    })
}
