//! Claims a state directory for one process.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process;

use super::error::OpenError;
use super::files::failed;

/// Bytes of the owner's note that are read.
const NOTE_BYTES_MAX: u64 = 256;

/// The claim; it ends when this is dropped, or with the process.
#[derive(Debug)]
pub(super) struct Lock(File);

impl Lock {
    /// Takes the lock of a state directory, without waiting for it.
    pub(super) fn take(dir: &Path) -> Result<Self, OpenError> {
        let path = dir.join("LOCK");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(failed("open", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::Busy {
                    pid: owner(&mut file),
                });
            }
            Err(TryLockError::Error(source)) => return Err(failed("lock", &path)(source)),
        }
        let note = format!("{}\n{}\n", process::id(), env!("CARGO_PKG_VERSION"));
        // The note is for people; the lock holds without it, on a full disk too.
        let noted = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(note.as_bytes()));
        if let Err(error) = noted {
            tracing::warn!(%error, "the owner of the state directory is not written down");
        }
        Ok(Self(file))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Said aloud: a child between fork and exec still holds the descriptor.
        if let Err(error) = self.0.unlock() {
            tracing::warn!(%error, "the lock of the state directory is left to the kernel");
        }
    }
}

fn owner(file: &mut File) -> Option<u32> {
    let mut note = String::new();
    file.take(NOTE_BYTES_MAX).read_to_string(&mut note).ok()?;
    note.lines().next()?.parse().ok()
}
