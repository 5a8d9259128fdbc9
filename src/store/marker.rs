//! Remembers beside the store that it was initialised, and for which instance.
//!
//! A damaged database can open empty. This file is why that is noticed, and why a
//! store made anew keeps the instance that the labels of containers carry.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use super::codec;
use super::error::OpenError;
use super::files::{failed, sync_dir};
use crate::id::InstanceId;

const NAME: &str = "initialised";

/// Reads the marker; `None` when the state directory never held a store.
pub fn read(dir: &Path) -> Result<Option<InstanceId>, OpenError> {
    let path = dir.join(NAME);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("read", &path)(error)),
    };
    let instance = codec::decode(&bytes)
        .map_err(|error| failed("understand", &path)(io::Error::other(error)))?;
    Ok(Some(instance))
}

/// Writes the marker for good.
pub(super) fn write(dir: &Path, instance: &InstanceId) -> Result<(), OpenError> {
    let path = dir.join(NAME);
    let temporary = dir.join("initialised.new");
    let bytes =
        codec::encode(instance).map_err(|error| failed("write", &path)(io::Error::other(error)))?;
    let write = || -> io::Result<()> {
        let mut file = File::create(&temporary)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, &path)
    };
    write().map_err(failed("write", &path))?;
    sync_dir(dir)
}
