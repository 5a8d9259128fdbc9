//! Tries a store on a copy, so that one that is damaged stays as it was found.
//!
//! To open a log the engine below may cut it, and writes a snapshot beside it. So a
//! child first opens a copy, since a damaged one can hang or kill the process, and sees
//! whether it holds what was acknowledged.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::fs::statvfs;
use tracing::warn;

use super::committer::Recipe;
use super::error::{Fault, OpenError};
use super::files::{create_dir, failed};
use super::probe::Probe;

/// Where the copy lies in the state directory.
const NAME: &str = "store.trial";

/// The slowest that a database is read on a trial before it counts as hung.
const BYTES_PER_SEC_MIN: u64 = 8 * 1024 * 1024;
/// Space that a copy leaves to whatever else lies on the file system.
const SPACE_LEFT_MIN: u64 = 1024 * 1024;

/// Whether the engine's snapshots are copied with its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Snapshots {
    /// As they are.
    With,
    /// The engine has to read the whole log.
    Without,
}

/// Has a copy of the database opened, which has to hold everything up to the commit
/// `acknowledged`.
///
/// Where there is no space for a copy, the database itself is tried. Without a child
/// nothing is tried at all.
pub(super) fn run(
    dir: &Path,
    recipe: &Recipe,
    snapshots: Snapshots,
    acknowledged: u64,
) -> Result<(), Fault> {
    match &recipe.probe {
        Probe::Child(_) => {}
        Probe::InProcess => return Ok(()),
    }
    let trial = dir.join(NAME);
    remove(&trial)?;
    let copy = trial.join("v1");
    let size = size_of(&recipe.database_dir);
    let deadline = deadline(recipe.probe_deadline, size);
    let copied = if has_room(dir, size) {
        copy_database(&recipe.database_dir, &copy, snapshots)
    } else {
        Err(OpenError::NoSpace)
    };
    let tried = match copied {
        Ok(()) => recipe.probe.run(&copy, Some(acknowledged), deadline),
        Err(OpenError::NoSpace) => {
            remove(&trial)?;
            warn!("there is no space to try the store on a copy; it is tried itself");
            let acknowledged = Some(acknowledged);
            recipe
                .probe
                .run(&recipe.database_dir, acknowledged, deadline)
        }
        Err(error) => Err(Fault::Io(crate::cause::chain(&error))),
    };
    remove(&trial)?;
    tried
}

/// Returns how long the trial of a database of so many bytes may take: a large one on a
/// slow disk is no hung one.
fn deadline(base: Duration, bytes: u64) -> Duration {
    base + Duration::from_secs(bytes / BYTES_PER_SEC_MIN)
}

/// Returns whether a copy of so many bytes leaves space to those who write meanwhile.
fn has_room(dir: &Path, bytes: u64) -> bool {
    // A file system that does not say is tried.
    statvfs(dir).map_or(true, |stat| {
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        bytes.saturating_add(SPACE_LEFT_MIN) <= free
    })
}

/// Returns the bytes of the files right in a directory, as far as they can be seen.
fn size_of(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let sizes = entries.filter_map(|entry| Some(entry.metadata().ok()?.len()));
    sizes.fold(0, u64::saturating_add)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the copy is ours and two levels deep"
)]
fn remove(trial: &Path) -> Result<(), Fault> {
    match fs::remove_dir_all(trial) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Fault::from_io(&error)),
    }
}

/// Copies the engine's files, with those a level below.
fn copy_database(from: &Path, to: &Path, snapshots: Snapshots) -> Result<(), OpenError> {
    create_dir(to)?;
    let copy = || -> io::Result<()> {
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            let name = entry.file_name();
            let is_snapshot = name.to_string_lossy().starts_with("snap.");
            if entry.file_type()?.is_dir() {
                fs::create_dir_all(to.join(&name))?;
                for below in fs::read_dir(entry.path())? {
                    let below = below?;
                    if below.file_type()?.is_file() {
                        fs::copy(below.path(), to.join(&name).join(below.file_name()))?;
                    }
                }
            } else if !is_snapshot || snapshots == Snapshots::With {
                fs::copy(entry.path(), to.join(&name))?;
            }
        }
        Ok(())
    };
    copy().map_err(failed("copy the database", from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_store_has_longer_to_open_and_no_copy_takes_the_last_space() {
        let base = Duration::from_secs(30);
        assert_eq!(deadline(base, 4_096), base);
        assert_eq!(deadline(base, 80 * 1024 * 1024), Duration::from_secs(40));
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("db"), [0; 5_000]).unwrap();
        assert_eq!(size_of(dir.path()), 5_000);
        assert!(has_room(dir.path(), 0) && !has_room(dir.path(), u64::MAX));
    }
}
