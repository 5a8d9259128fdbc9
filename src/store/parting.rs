//! Remembers beside the store how it was when it was closed in order.
//!
//! To the engine below a log that was cut looks like one whose end was never
//! written, and it opens with what is left, or with nothing. After an orderly end
//! it is known what there has to be, and this file says so until the next open.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::codec;
use super::database::log_path;
use super::error::{Fault, OpenError};
use super::files::{failed, sync_dir};

const NAME: &str = "closed";

/// What the store was when it was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Parting {
    log_bytes: u64,
    records: u64,
}

impl Parting {
    /// Takes down a database that is closed.
    pub(super) fn of(database_dir: &Path, records: usize) -> io::Result<Self> {
        Ok(Self {
            log_bytes: fs::metadata(log_path(database_dir))?.len(),
            records: u64::try_from(records).unwrap_or(u64::MAX),
        })
    }

    /// Checks the log before anything opens it, which would change it.
    pub(super) fn check_log(&self, database_dir: &Path) -> Result<(), Fault> {
        let path = log_path(database_dir);
        let found = fs::metadata(path)
            .map_err(|error| Fault::from_io(&error))?
            .len();
        if found < self.log_bytes {
            let had = self.log_bytes;
            let why = format!("its log has {found} bytes, and had {had} when it was closed");
            return Err(Fault::Corrupt(why));
        }
        Ok(())
    }

    /// Checks what was read of the store.
    pub(super) fn check_records(&self, found: usize) -> Result<(), Fault> {
        if u64::try_from(found) == Ok(self.records) {
            return Ok(());
        }
        let had = self.records;
        let why = format!("it holds {found} sessions, and held {had} when it was closed");
        Err(Fault::Corrupt(why))
    }

    /// Writes it for good.
    pub(super) fn write(&self, dir: &Path) -> Result<(), OpenError> {
        let path = dir.join(NAME);
        let temporary = dir.join("closed.new");
        let bytes =
            codec::encode(self).map_err(|error| failed("write", &path)(io::Error::other(error)))?;
        let write = || -> io::Result<()> {
            let mut file = File::create(&temporary)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            fs::rename(&temporary, &path)
        };
        write().map_err(failed("write", &path))?;
        sync_dir(dir)
    }
}

/// Reads it; `None` when the store was not closed in order, or never.
pub(super) fn read(dir: &Path) -> Result<Option<Parting>, OpenError> {
    let path = dir.join(NAME);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("read", &path)(error)),
    };
    let parting = codec::decode(&bytes)
        .map_err(|error| failed("understand", &path)(io::Error::other(error)))?;
    Ok(Some(parting))
}

/// Removes it for good, before anything is written that it does not know of.
pub(super) fn remove(dir: &Path) -> Result<(), OpenError> {
    let path = dir.join(NAME);
    match fs::remove_file(&path) {
        Ok(()) => sync_dir(dir),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed("remove", &path)(error)),
    }
}
