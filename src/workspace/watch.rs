//! Tells what changes in one directory, as the kernel tells it.
//!
//! The directory is watched through its descriptor, so what takes its path meanwhile is
//! not. Nothing in it is opened, and what happens deeper in the tree is not told. Two
//! things are not told either, since the kernel does not: writes through a memory
//! mapping, and which file a rename replaced.

use std::fs::File;
use std::io::{self, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::fs::inotify::{CreateFlags, Event, ReadFlags, Reader, WatchFlags, add_watch, init};
use rustix::io::Errno;

use super::beneath::{Dir, own_descriptors};
use super::refused::FileError;
use super::write::is_aside;

/// Bytes that are read of the kernel at a time: some hundreds of changes.
const READ_BYTES_MAX: usize = 16 << 10;

/// The most that a number of the kernel's takes as text.
const NUMBER_BYTES_MAX: u64 = 32;

const WATCHED: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR)
    // A file without a name is nobody's business before it has one.
    .union(WatchFlags::EXCL_UNLINK);

/// The end of a watch: the directory was removed, moved or unmounted.
const GONE: ReadFlags = ReadFlags::DELETE_SELF
    .union(ReadFlags::MOVE_SELF)
    .union(ReadFlags::UNMOUNT)
    .union(ReadFlags::IGNORED);

/// What happened in a directory; names are single components.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Alteration {
    /// The name is new.
    Created(Vec<u8>),
    /// What has the name got another content, mode, owner or time.
    Modified(Vec<u8>),
    /// The name is gone.
    Removed(Vec<u8>),
    /// Something got another name in the directory.
    Moved {
        /// What it was.
        from: Vec<u8>,
        /// What it is.
        to: Vec<u8>,
    },
    /// More happened than could be told.
    Overflow,
    /// The directory is not at its path any more; nothing follows.
    Gone,
}

/// Says why a directory cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum NotWatched {
    /// The kernel lets this user have no more; the setting of the kernel that says so.
    #[error("the host has no more than {limit}, its {setting}")]
    Ceiling {
        /// The setting.
        setting: &'static str,
        /// Its value; 0 where that cannot be read.
        limit: u64,
    },
    /// Something with the directory.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Says that the kernel's setting, such as `fs.inotify.max_user_watches`, allows no more.
fn ceiling(setting: &'static str) -> NotWatched {
    let path = format!("/proc/sys/{}", setting.replace('.', "/"));
    let value = || {
        let mut text = String::new();
        let file = File::open(path).ok()?;
        file.take(NUMBER_BYTES_MAX).read_to_string(&mut text).ok()?;
        text.trim().parse().ok()
    };
    let limit = value().unwrap_or(0);
    NotWatched::Ceiling { setting, limit }
}

/// A watch on a directory, which ends when it is dropped.
#[derive(Debug)]
pub struct Watch {
    fd: OwnedFd,
    /// The first half of a move, whose second may follow.
    moving: Option<(u32, Vec<u8>)>,
}

impl Watch {
    /// Begins to watch a directory.
    ///
    /// The descriptor is closed: one that is held would keep the kernel from telling that
    /// the directory is removed.
    pub fn begin(dir: Dir) -> Result<Self, NotWatched> {
        let fd = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).map_err(|error| {
            if error == Errno::MFILE {
                ceiling("fs.inotify.max_user_instances")
            } else {
                FileError::from(error).into()
            }
        })?;
        own_descriptors().map_err(FileError::from)?;
        let entry = format!("/proc/self/fd/{}", dir.fd().as_raw_fd());
        add_watch(&fd, entry, WATCHED).map_err(|error| {
            if error == Errno::NOSPC {
                ceiling("fs.inotify.max_user_watches")
            } else {
                FileError::from(error).into()
            }
        })?;
        drop(dir);
        Ok(Self { fd, moving: None })
    }

    /// Reads some of what happened since the last reading.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] where nothing did.
    pub fn read(&mut self) -> io::Result<Vec<Alteration>> {
        let mut buffer = [MaybeUninit::uninit(); READ_BYTES_MAX];
        let mut reader = Reader::new(&self.fd, &mut buffer);
        let mut told = Vec::new();
        loop {
            take(&mut self.moving, &mut told, &reader.next()?);
            if reader.is_buffer_empty() {
                return Ok(told);
            }
        }
    }

    /// Returns whether something is being moved, to where is not known yet.
    pub fn is_moving(&self) -> bool {
        self.moving.is_some()
    }

    /// Gives up waiting for the second half of a move: it led out of the directory.
    pub fn moved_out(&mut self) -> Option<Alteration> {
        self.moving
            .take()
            .map(|(_, name)| Alteration::Removed(name))
    }
}

impl AsRawFd for Watch {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// Adds to what is told what an event of the kernel says.
fn take(moving: &mut Option<(u32, Vec<u8>)>, told: &mut Vec<Alteration>, event: &Event<'_>) {
    let flags = event.events();
    let name = event.file_name().map(|name| name.to_bytes().to_vec());
    let earlier = moving.take();
    if let (Some((cookie, from)), Some(to)) = (&earlier, &name)
        && flags.contains(ReadFlags::MOVED_TO)
        && *cookie == event.cookie()
    {
        // Where it came from is ours: a write that has come to its end.
        told.push(if is_aside(from) {
            Alteration::Modified(to.clone())
        } else {
            let (from, to) = (from.clone(), to.clone());
            Alteration::Moved { from, to }
        });
        return;
    }
    if let Some((_, from)) = earlier
        && !is_aside(&from)
    {
        told.push(Alteration::Removed(from));
    }
    if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
        told.push(Alteration::Overflow);
    } else if flags.intersects(GONE) {
        told.push(Alteration::Gone);
    } else if let Some(name) = name {
        if flags.contains(ReadFlags::MOVED_FROM) {
            *moving = Some((event.cookie(), name));
        } else if !is_hidden(flags, &name) {
            let one = one(flags, name);
            // A large write is told of once for each reading, not for each page.
            if told.last() != Some(&one) {
                told.push(one);
            }
        }
    }
}

/// Returns whether an event is about a file that has no name, or none that will stay.
///
/// The kernel tells of a new mode, owner or time of a file without a name under its number;
/// a file that is really called so is told of but for these.
fn is_hidden(flags: ReadFlags, name: &[u8]) -> bool {
    let number = name.strip_prefix(b"#");
    let is_number = number.is_some_and(|number| number.iter().all(u8::is_ascii_digit));
    is_aside(name) || (flags == ReadFlags::ATTRIB && is_number)
}

fn one(flags: ReadFlags, name: Vec<u8>) -> Alteration {
    if flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
        Alteration::Created(name)
    } else if flags.contains(ReadFlags::DELETE) {
        Alteration::Removed(name)
    } else {
        Alteration::Modified(name)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::beneath::tests::{path, workspace};
    use super::super::expected::Expected;
    use super::super::write::{Replacing, Survives};
    use super::*;

    /// Reads until nothing is left.
    fn all(watch: &mut Watch) -> Vec<Alteration> {
        let mut all = Vec::new();
        loop {
            match watch.read() {
                Ok(told) => all.extend(told),
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                    all.extend(watch.moved_out());
                    return all;
                }
            }
        }
    }

    fn created(name: &str) -> Alteration {
        Alteration::Created(name.into())
    }

    fn modified(name: &str) -> Alteration {
        Alteration::Modified(name.into())
    }

    fn removed(name: &str) -> Alteration {
        Alteration::Removed(name.into())
    }

    #[test]
    fn a_watch_tells_what_happens_in_its_directory_and_not_below() {
        let (temp, dir) = workspace();
        std::fs::create_dir(temp.path().join("sub")).unwrap();
        let mut watch = Watch::begin(dir.clone()).unwrap();
        let file = temp.path().join("f");
        std::fs::write(&file, "x").unwrap();
        assert_eq!(all(&mut watch), [created("f"), modified("f")]);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(all(&mut watch), [modified("f")]);
        std::fs::rename(&file, temp.path().join("g")).unwrap();
        let moved = Alteration::Moved {
            from: b"f".to_vec(),
            to: b"g".to_vec(),
        };
        assert_eq!(all(&mut watch), [moved]);
        std::fs::rename(temp.path().join("g"), temp.path().join("sub/g")).unwrap();
        std::fs::write(temp.path().join("sub/h"), "below").unwrap();
        assert_eq!(all(&mut watch), [removed("g")]);
        std::fs::rename(temp.path().join("sub/g"), &file).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(all(&mut watch), [created("f"), removed("f")]);
    }

    #[test]
    fn a_write_of_ours_is_one_change_of_the_file_and_no_other() {
        let (_temp, dir) = workspace();
        let mut watch = Watch::begin(dir.clone()).unwrap();
        let how = Replacing {
            owner: None,
            bytes_max: 100,
            expected: Expected::Anything,
            survives: Survives::DaemonEnd,
        };
        let mut draft = dir.draft(&path("f"), how).unwrap();
        draft.append(b"content").unwrap();
        assert_eq!(all(&mut watch), []);
        draft.commit().unwrap();
        assert_eq!(all(&mut watch), [modified("f")]);
    }

    #[test]
    fn a_directory_that_is_removed_or_moved_is_gone() {
        let (temp, dir) = workspace();
        for name in ["removed", "moved"] {
            std::fs::create_dir(temp.path().join(name)).unwrap();
            let watched = dir.open_dir(&path(name)).unwrap();
            let mut watch = Watch::begin(watched).unwrap();
            if name == "moved" {
                std::fs::rename(temp.path().join(name), temp.path().join("away")).unwrap();
            } else {
                std::fs::remove_dir(temp.path().join(name)).unwrap();
            }
            assert_eq!(all(&mut watch).first(), Some(&Alteration::Gone), "{name}");
        }
    }

    #[test]
    fn more_than_the_kernel_keeps_is_an_overflow() {
        let (temp, dir) = workspace();
        let mut watch = Watch::begin(dir).unwrap();
        let kept = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
        let kept: u32 = kept.trim().parse().unwrap();
        let (one, other) = (temp.path().join("a"), temp.path().join("b"));
        std::fs::write(&one, "").unwrap();
        for nth in 0..=kept / 2 {
            let (from, to) = if nth % 2 == 0 {
                (&one, &other)
            } else {
                (&other, &one)
            };
            std::fs::rename(from, to).unwrap();
        }
        assert_eq!(all(&mut watch).last(), Some(&Alteration::Overflow));
    }
}
