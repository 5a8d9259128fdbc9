//! Keeps some space back, so that sessions can still be closed on a full disk.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;

/// Bytes that are kept back.
pub(super) const BALLAST_BYTES: u64 = 8 * 1024 * 1024;

/// Space that is given up at the first write that finds none.
#[derive(Debug)]
pub(super) struct Ballast {
    path: PathBuf,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Kept,
    Spent,
}

impl Ballast {
    /// Sets the space aside, or finds it there; without enough space it is spent.
    pub(super) fn keep(dir: &Path) -> Self {
        let mut ballast = Self {
            path: dir.join("ballast"),
            state: State::Spent,
        };
        let size = fs::metadata(&ballast.path).map_or(0, |meta| meta.len());
        if size == BALLAST_BYTES {
            ballast.state = State::Kept;
        } else {
            ballast.remake();
        }
        ballast
    }

    pub(super) fn is_kept(&self) -> bool {
        self.state == State::Kept
    }

    /// Gives the space up.
    pub(super) fn spend(&mut self) {
        match fs::remove_file(&self.path) {
            Ok(()) => tracing::warn!("the disk is full: the reserve of the store is given up"),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(%error, "the reserve of the store cannot be given up"),
        }
        self.state = State::Spent;
    }

    /// Sets the space aside again, once there is twice as much.
    pub(super) fn remake(&mut self) {
        let made = self.has_room().and_then(|room| {
            if !room {
                return Ok(State::Spent);
            }
            allocate(&self.path).map(|()| State::Kept)
        });
        self.state = made.unwrap_or_else(|error| {
            tracing::debug!(%error, "the reserve of the store cannot be made");
            State::Spent
        });
        if self.state == State::Spent
            && let Err(error) = fs::remove_file(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::debug!(%error, "half a reserve is left behind");
        }
    }

    fn has_room(&self) -> io::Result<bool> {
        let parent = self.path.parent().unwrap_or(&self.path);
        let stat = statvfs(parent)?;
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        Ok(2 * BALLAST_BYTES <= free)
    }
}

fn allocate(path: &Path) -> io::Result<()> {
    let mut file = File::create(path)?;
    match fallocate(&file, FallocateFlags::empty(), 0, BALLAST_BYTES) {
        Ok(()) => Ok(()),
        // Some file systems cannot: write it out.
        Err(Errno::OPNOTSUPP) => {
            for _ in 0..BALLAST_BYTES / 4_096 {
                file.write_all(&[0; 4_096])?;
            }
            file.sync_all()
        }
        Err(error) => Err(error.into()),
    }
}
