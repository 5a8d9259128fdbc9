//! Tries a store on a copy, so that one that is damaged stays as it was found.
//!
//! To open a log the engine below may cut it, and writes a snapshot beside it. So a
//! child first opens a copy, since a damaged one can hang or kill the process, and sees
//! whether it holds what was acknowledged.

use std::fs;
use std::io;
use std::path::Path;

use tracing::warn;

use super::committer::Recipe;
use super::error::{Fault, OpenError};
use super::files::{create_dir, failed};
use super::probe::Probe;

/// Where the copy lies in the state directory.
const NAME: &str = "store.trial";

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
    let copied = copy_database(&recipe.database_dir, &copy, snapshots);
    let tried = match copied {
        Ok(()) => recipe
            .probe
            .run(&copy, Some(acknowledged), recipe.probe_deadline),
        Err(OpenError::NoSpace) => {
            remove(&trial)?;
            warn!("there is no space to try the store on a copy; it is tried itself");
            let acknowledged = Some(acknowledged);
            recipe
                .probe
                .run(&recipe.database_dir, acknowledged, recipe.probe_deadline)
        }
        Err(error) => Err(Fault::Io(crate::cause::chain(&error))),
    };
    remove(&trial)?;
    tried
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
