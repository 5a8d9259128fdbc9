//! Makes, renames and syncs the files around the database.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use super::error::OpenError;
use crate::clock::Timestamp;

/// Sibling names tried when one with the same date is taken.
const SIBLINGS_MAX: u32 = 100;

/// Makes an error about a file.
pub(super) fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> OpenError {
    move |source| match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => OpenError::NoSpace,
        _ => OpenError::Io {
            doing,
            path: path.to_owned(),
            source,
        },
    }
}

/// Creates a directory for us alone, with its parents, unless it is there.
pub(super) fn create_dir(path: &Path) -> Result<(), OpenError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(failed("create the directory", path))
}

/// Waits until the entries of a directory are on the disk.
pub(super) fn sync_dir(path: &Path) -> Result<(), OpenError> {
    File::open(path)
        .and_then(|dir| dir.sync_all())
        .map_err(failed("sync the directory", path))
}

/// Waits until the files right below a directory, and their names, are on the disk.
pub(super) fn sync_files(dir: &Path) -> Result<(), OpenError> {
    let sync_each = || -> io::Result<()> {
        for entry in fs::read_dir(dir)? {
            File::open(entry?.path())?.sync_all()?;
        }
        Ok(())
    };
    sync_each().map_err(failed("sync the files of", dir))?;
    sync_dir(dir)
}

/// Moves the engine's snapshots of a database into a dated directory within it, where
/// the engine does not look, and returns how many there were.
pub(super) fn set_snapshots_aside(database_dir: &Path, now: Timestamp) -> Result<u64, OpenError> {
    let aside = database_dir.join(format!("corrupt-{}Z", dated(now)));
    let mut n_aside = 0;
    let mut move_all = || -> io::Result<()> {
        if !database_dir.is_dir() {
            return Ok(());
        }
        for entry in fs::read_dir(database_dir)? {
            let name = entry?.file_name();
            if name.to_string_lossy().starts_with("snap.") {
                DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(&aside)?;
                fs::rename(database_dir.join(&name), aside.join(&name))?;
                n_aside += 1;
            }
        }
        Ok(())
    };
    move_all().map_err(failed("set aside the snapshots of", database_dir))?;
    Ok(n_aside)
}

fn dated(now: Timestamp) -> String {
    let date: String = now.to_string().chars().take(19).collect();
    date.replace(':', "-")
}

/// Renames `store` to a dated name beside it and returns that name.
pub(super) fn set_aside(store: &Path, now: Timestamp) -> Result<PathBuf, OpenError> {
    let aside = free_name(store, "store.corrupt", now)?;
    fs::rename(store, &aside).map_err(failed("set aside", store))?;
    if let Some(parent) = store.parent() {
        sync_dir(parent)?;
    }
    Ok(aside)
}

/// Finds a dated name beside `store` that nothing has, beginning with `prefix`.
pub(super) fn free_name(store: &Path, prefix: &str, now: Timestamp) -> Result<PathBuf, OpenError> {
    let date = dated(now);
    (1..=SIBLINGS_MAX)
        .map(|n| {
            let suffix = if n == 1 {
                String::new()
            } else {
                format!(".{n}")
            };
            store.with_file_name(format!("{prefix}-{date}Z{suffix}"))
        })
        .find(|name| fs::symlink_metadata(name).is_err())
        .ok_or_else(|| failed("set aside", store)(io::Error::from(io::ErrorKind::AlreadyExists)))
}
