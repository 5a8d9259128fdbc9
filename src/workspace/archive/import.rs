//! Unpacks an archive into an empty directory that nobody else uses yet.
//!
//! Everything is made below the directory's descriptor through no link, belongs to the
//! sandbox's user, and has permission bits only. Links are made as they are, also those
//! that lead out: the sandbox may make such links itself, and the host follows none.
//! Anything wrong refuses the archive as a whole; the caller then removes the directory,
//! and puts it in its place only after all went well.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader, Read, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, Uid};
use rustix::io::Errno;

use super::Format;
use super::members::{Member, MemberKind, Members};
use super::refusal::{Hazard, ImportError, Limit};
use super::zst::Expander;
use crate::workspace::beneath::own;
use crate::workspace::search::{Patience, Skipped, Why};
use crate::workspace::{Dir, FileError, Kind, NotAPath, Owner, PATH_BYTES_MAX, RelPath};

/// Before so many bytes are unpacked, their ratio to what was sent is not looked at.
const RATIO_FREE_BYTES: u64 = 64 << 20;
/// The names of directories have at most so many bytes together.
const NAMES_BYTES_MAX: usize = 64 << 20;
/// Bytes go from the archive to a file through a buffer of this size.
const BUFFER_BYTES: usize = 64 << 10;

/// What an archive may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportBounds {
    /// Headers, which are members and notes on them.
    pub entries: u64,
    /// Bytes of the archive when it is expanded.
    pub bytes: u64,
    /// Bytes as they are sent.
    pub sent_bytes: u64,
    /// Bytes expanded for each one sent, looked at beyond the first 64 MiB.
    pub ratio: u64,
}

/// What was unpacked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Regular files, further names of the same file included.
    pub files: u64,
    /// Directories that the archive names.
    pub directories: u64,
    /// Links.
    pub links: u64,
    /// Bytes of files.
    pub bytes: u64,
    /// Devices and FIFOs, which were left out.
    pub skipped: Skipped,
}

/// Unpacks an archive into an empty directory.
///
/// The source is read to its end, also beyond the archive's. After an error the directory
/// has a part of the archive in it.
pub fn import<R: Read>(
    source: R,
    format: Format,
    (into, owner): (&Dir, Option<Owner>),
    bounds: &ImportBounds,
    patience: &Patience,
) -> Result<Imported, ImportError> {
    let listing = into.names(1).map_err(fault(b""))?;
    if !listing.entries.is_empty() {
        return Err(ImportError::NotEmpty);
    }
    let sent = Cell::new(0);
    let source = BufReader::new(Sent {
        source,
        n_bytes: &sent,
        limit: bounds.sent_bytes,
        patience,
    });
    let expanded: Box<dyn Read + '_> = match format {
        Format::Tar => Box::new(source),
        Format::TarZst => Box::new(Expander::new(source)),
    };
    let measured = Measured {
        source: expanded,
        sent: &sent,
        n_bytes: 0,
        bounds,
        patience,
    };
    let mut unpacking = Unpacking {
        into,
        owner,
        parent: (RelPath::work_dir(), into.clone()),
        directories: Vec::new(),
        names_bytes: 0,
        imported: Imported::default(),
    };
    let mut members = Members::new(measured, bounds.entries);
    while let Some(member) = members.next()? {
        patience.check().map_err(ImportError::Stopped)?;
        unpacking.unpack(&member, &mut members)?;
    }
    // What follows says nothing, but is received, and held against its checksum.
    members.drain()?;
    unpacking.finish()
}

/// Counts what is sent.
struct Sent<'a, R> {
    source: R,
    n_bytes: &'a Cell<u64>,
    limit: u64,
    patience: &'a Patience,
}

impl<R: Read> Read for Sent<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Err(stop) = self.patience.check() {
            return Err(io::Error::other(ImportError::Stopped(stop)));
        }
        let n_read = self.source.read(buffer)?;
        let sent = self.n_bytes.get().saturating_add(count(n_read));
        self.n_bytes.set(sent);
        too_much(sent, Limit::SentBytes, self.limit)?;
        Ok(n_read)
    }
}

/// Counts what comes out of the compression.
struct Measured<'a> {
    source: Box<dyn Read + 'a>,
    sent: &'a Cell<u64>,
    n_bytes: u64,
    bounds: &'a ImportBounds,
    patience: &'a Patience,
}

impl Read for Measured<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // A little that is sent can expand to a lot.
        if let Err(stop) = self.patience.check() {
            return Err(io::Error::other(ImportError::Stopped(stop)));
        }
        let n_read = self.source.read(buffer)?;
        self.n_bytes = self.n_bytes.saturating_add(count(n_read));
        too_much(self.n_bytes, Limit::Bytes, self.bounds.bytes)?;
        if RATIO_FREE_BYTES < self.n_bytes {
            let ratio = self.n_bytes / self.sent.get().max(1);
            too_much(ratio, Limit::Ratio, self.bounds.ratio)?;
        }
        Ok(n_read)
    }
}

fn too_much(n: u64, what: Limit, limit: u64) -> io::Result<()> {
    if n <= limit {
        Ok(())
    } else {
        Err(io::Error::other(ImportError::TooMuch { what, limit }))
    }
}

struct Unpacking<'a> {
    into: &'a Dir,
    owner: Option<Owner>,
    /// The directory of the last member: most often the next one's too.
    parent: (RelPath, Dir),
    /// What directories are to be in the end, when nothing more is made in them.
    directories: Vec<Finish>,
    names_bytes: usize,
    imported: Imported,
}

struct Finish {
    path: RelPath,
    mode: u32,
    modified_secs: i64,
}

impl Unpacking<'_> {
    fn unpack<R: Read>(
        &mut self,
        member: &Member,
        members: &mut Members<R>,
    ) -> Result<(), ImportError> {
        let path = path_of(&member.path).map_err(hazard(&member.path))?;
        match &member.kind {
            MemberKind::Special => self.imported.skipped.note(&member.path, Why::Special),
            MemberKind::Directory => self.directory(path, member)?,
            _ if path.is_work_dir() => return Err(hazard(&member.path)(Hazard::NoPath)),
            MemberKind::File => self.file(&path, member, members)?,
            MemberKind::Link(target) => self.link(&path, member, target)?,
            MemberKind::HardLink(source) => self.hard_link(&path, member, source)?,
        }
        Ok(())
    }

    fn directory(&mut self, path: RelPath, member: &Member) -> Result<(), ImportError> {
        self.imported.directories += 1;
        if path.is_work_dir() {
            return Ok(());
        }
        self.into
            .make_dirs(&path, self.owner)
            .map_err(|error| blocked(&member.path, error))?;
        self.names_bytes += path.as_bytes().len();
        if NAMES_BYTES_MAX < self.names_bytes {
            return Err(ImportError::TooMuch {
                what: Limit::Names,
                limit: count(NAMES_BYTES_MAX),
            });
        }
        self.directories.push(Finish {
            path,
            // Its owner, and the service as its owner, can always remove what is in it.
            mode: member.mode & 0o777 | 0o700,
            modified_secs: member.modified_secs,
        });
        Ok(())
    }

    fn file<R: Read>(
        &mut self,
        path: &RelPath,
        member: &Member,
        members: &mut Members<R>,
    ) -> Result<(), ImportError> {
        let failed = refused(&member.path);
        let (dir, name) = self.place(path, member)?;
        let create = || {
            let flags =
                OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::openat(dir.fd(), name.as_bytes(), flags, Mode::RUSR | Mode::WUSR)
        };
        let made: OwnedFd = match create() {
            Err(Errno::EXIST) => {
                give_way(&dir, &name, member)?;
                create()
            }
            made => made,
        }
        .map_err(&failed)?;
        let mut file = File::from(made);
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let n_read = members.read(&mut buffer)?;
            let Some(read @ [_, ..]) = buffer.get(..n_read) else {
                break;
            };
            file.write_all(read)
                .map_err(|error| fault(&member.path)(error.into()))?;
        }
        own(file.as_fd(), self.owner).map_err(&failed)?;
        rustix::fs::fchmod(&file, Mode::from_raw_mode(member.mode & 0o777)).map_err(&failed)?;
        rustix::fs::futimens(&file, &times(member.modified_secs)).map_err(&failed)?;
        self.imported.files += 1;
        self.imported.bytes = self.imported.bytes.saturating_add(member.size);
        Ok(())
    }

    fn link(&mut self, path: &RelPath, member: &Member, target: &[u8]) -> Result<(), ImportError> {
        if target.is_empty() || target.contains(&0) || PATH_BYTES_MAX <= target.len() {
            return Err(hazard(&member.path)(Hazard::NoTarget));
        }
        let failed = refused(&member.path);
        let (dir, name) = self.place(path, member)?;
        let create = || rustix::fs::symlinkat(target, dir.fd(), name.as_bytes());
        match create() {
            Err(Errno::EXIST) => {
                give_way(&dir, &name, member)?;
                create()
            }
            made => made,
        }
        .map_err(&failed)?;
        if let Some(Owner { uid, gid }) = self.owner {
            let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            rustix::fs::chownat(dir.fd(), name.as_bytes(), uid, gid, flags).map_err(&failed)?;
        }
        let (times, flags) = (times(member.modified_secs), AtFlags::SYMLINK_NOFOLLOW);
        rustix::fs::utimensat(dir.fd(), name.as_bytes(), &times, flags).map_err(&failed)?;
        self.imported.links += 1;
        Ok(())
    }

    fn hard_link(
        &mut self,
        path: &RelPath,
        member: &Member,
        source: &[u8],
    ) -> Result<(), ImportError> {
        let dangerous = hazard(&member.path);
        let from = path_of(source).map_err(&dangerous)?;
        // A link, which could lead out, is no source, and none is followed on the way.
        let found = self.into.stat(&from);
        let identity = match found {
            Ok(meta) if meta.kind == Kind::File => meta.identity,
            Ok(_) | Err(_) => return Err(dangerous(Hazard::NoSource)),
        };
        let failed = refused(&member.path);
        let (from_dir, from_name) = self.into.open_parent(&from).map_err(fault(&member.path))?;
        let (dir, name) = self.place(path, member)?;
        let create = || {
            let (from, to) = (from_name.as_bytes(), name.as_bytes());
            rustix::fs::linkat(from_dir.fd(), from, dir.fd(), to, AtFlags::empty())
        };
        match create() {
            // It is that file already, perhaps by the very same name.
            Err(Errno::EXIST) if dir.stat(&name).is_ok_and(|meta| meta.identity == identity) => {
                Ok(())
            }
            Err(Errno::EXIST) => {
                give_way(&dir, &name, member)?;
                create()
            }
            made => made,
        }
        .map_err(&failed)?;
        self.imported.files += 1;
        Ok(())
    }

    /// Opens the directory that a member is in, made where it is missing.
    fn place(&mut self, path: &RelPath, member: &Member) -> Result<(Dir, RelPath), ImportError> {
        let no_path = || hazard(&member.path)(Hazard::NoPath);
        let (above, name) = path.split().ok_or_else(no_path)?;
        let name = RelPath::work_dir().child(name).map_err(|_| no_path())?;
        if self.parent.0 != above {
            let dir = self.into.make_dirs(&above, self.owner);
            let dir = dir.map_err(|error| blocked(&member.path, error))?;
            self.parent = (above, dir);
        }
        Ok((self.parent.1.clone(), name))
    }

    /// Gives directories their modes and times, the innermost of each first.
    fn finish(self) -> Result<Imported, ImportError> {
        for directory in self.directories.iter().rev() {
            let failed = refused(directory.path.as_bytes());
            let dir = self.into.open_dir(&directory.path);
            let dir = dir.map_err(fault(directory.path.as_bytes()))?;
            let mode = Mode::from_raw_mode(directory.mode);
            rustix::fs::fchmod(dir.fd(), mode).map_err(&failed)?;
            rustix::fs::futimens(dir.fd(), &times(directory.modified_secs)).map_err(&failed)?;
        }
        Ok(self.imported)
    }
}

/// A later member takes the place of an earlier one, unless that is a directory.
fn give_way(dir: &Dir, name: &RelPath, member: &Member) -> Result<(), ImportError> {
    match dir.stat(name) {
        Ok(meta) if meta.kind == Kind::Dir => Err(hazard(&member.path)(Hazard::Taken)),
        Ok(_) => dir.remove_file(name).map_err(fault(&member.path)),
        Err(error) => Err(fault(&member.path)(error)),
    }
}

/// Reads a member's name: relative, without `..`; its `.` and doubled slashes go.
fn path_of(name: &[u8]) -> Result<RelPath, Hazard> {
    if name.starts_with(b"/") {
        return Err(Hazard::Absolute);
    }
    if name.is_empty() {
        return Err(Hazard::NoPath);
    }
    RelPath::stored(b"/", name).map_err(|error| match error {
        NotAPath::Climbs => Hazard::Climbs,
        NotAPath::Empty | NotAPath::Nul | NotAPath::TooLong | NotAPath::NameTooLong => {
            Hazard::NoPath
        }
    })
}

fn times(modified_secs: i64) -> Timestamps {
    Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: modified_secs,
            tv_nsec: 0,
        },
    }
}

fn count(n_bytes: usize) -> u64 {
    u64::try_from(n_bytes).unwrap_or(u64::MAX)
}

fn hazard(path: &[u8]) -> impl Fn(Hazard) -> ImportError {
    move |hazard| ImportError::Hazard {
        path: path.to_vec(),
        hazard,
    }
}

fn blocked(path: &[u8], error: FileError) -> ImportError {
    match error {
        FileError::Link { .. } => hazard(path)(Hazard::BelowLink),
        FileError::NotDirectory | FileError::Exists => hazard(path)(Hazard::Taken),
        error => fault(path)(error),
    }
}

fn fault(path: &[u8]) -> impl Fn(FileError) -> ImportError {
    move |source| ImportError::Write {
        path: path.to_vec(),
        source,
    }
}

fn refused(path: &[u8]) -> impl Fn(Errno) -> ImportError {
    move |error| fault(path)(error.into())
}
