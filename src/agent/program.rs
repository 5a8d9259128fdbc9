//! Keeps the agent's program on the disk, named by what it holds.
//!
//! A container keeps the program that it was made with, so another version never takes the
//! place of one: each has a directory of its own.

use std::io::{self, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::secret::hex;

/// The program that was built with this daemon; empty where none was.
static EMBEDDED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/sandbox-agent"));

/// The directory of all versions, in the state directory.
const DIRECTORY: &str = "agent";
/// The name of the program.
const NAME: &str = "sandbox-agent";
/// The name under which it is written before it takes its place.
const NEW_NAME: &str = "sandbox-agent.new";
/// Everybody may run it, and nobody change it.
const MODE: u32 = 0o555;
/// Bytes of the hash that names a version.
const HASH_BYTES: usize = 8;
/// Bytes of the largest program that is taken for one.
const PROGRAM_BYTES_MAX: u64 = 64 << 20;

/// The agent's program on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    path: PathBuf,
}

/// Why there is no program on the disk.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// The one that was configured cannot be read.
    #[error("read the agent's program {}", path.display())]
    Read {
        /// Where it should be.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It cannot be written.
    #[error("write the agent's program {}", path.display())]
    Write {
        /// Where it should go.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl Program {
    /// Puts the program into the state directory, where it is not there as it should be;
    /// `None` where the daemon was built without one and no other is configured.
    pub fn install(state: &Path, configured: Option<&Path>) -> Result<Option<Self>, ProgramError> {
        let other;
        let bytes = match configured {
            None if EMBEDDED.is_empty() => return Ok(None),
            None => EMBEDDED,
            Some(path) => {
                other = read(path).map_err(|source| ProgramError::Read {
                    path: path.to_path_buf(),
                    source,
                })?;
                &other
            }
        };
        let directory = state.join(DIRECTORY).join(version(bytes));
        let path = directory.join(NAME);
        if !is_sound(&path, bytes) {
            write(&directory, bytes).map_err(|source| ProgramError::Write {
                path: path.clone(),
                source,
            })?;
        }
        Ok(Some(Self { path }))
    }

    /// Returns where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads it.
    pub fn bytes(&self) -> io::Result<Vec<u8>> {
        read(&self.path)
    }
}

fn version(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    hex(hash.as_slice().get(..HASH_BYTES).unwrap_or_default())
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let length = std::fs::metadata(path)?.len();
    if PROGRAM_BYTES_MAX < length {
        return Err(io::Error::other(format!("it has {length} bytes")));
    }
    std::fs::read(path)
}

fn is_sound(path: &Path, bytes: &[u8]) -> bool {
    let mode = std::fs::symlink_metadata(path).map(|seen| (seen.is_file(), seen.mode() & 0o7777));
    matches!(mode, Ok((true, MODE))) && read(path).is_ok_and(|found| found == bytes)
}

/// Writes it beside its place and moves it there, so that no half of it is ever run.
fn write(directory: &Path, bytes: &[u8]) -> io::Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(directory)?;
    let new = directory.join(NEW_NAME);
    match std::fs::remove_file(&new) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o700)
        .open(&new)?;
    file.write_all(bytes)?;
    file.set_permissions(std::fs::Permissions::from_mode(MODE))?;
    file.sync_all()?;
    drop(file);
    std::fs::rename(&new, directory.join(NAME))?;
    std::fs::File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configured(dir: &Path, bytes: &[u8]) -> PathBuf {
        let path = dir.join("built");
        std::fs::write(&path, bytes).unwrap();
        path
    }

    #[test]
    fn each_version_has_a_place_of_its_own_and_is_left_alone_there() {
        let dir = tempfile::tempdir().unwrap();
        let one = configured(dir.path(), b"one");
        let first = Program::install(dir.path(), Some(&one)).unwrap().unwrap();
        let inode = || std::fs::metadata(first.path()).unwrap().ino();
        let before = inode();
        assert_eq!(
            std::fs::metadata(first.path()).unwrap().mode() & 0o7777,
            MODE
        );
        assert!(
            first
                .path()
                .starts_with(dir.path().join("agent/7692c3ad3540bb80"))
        );
        let again = Program::install(dir.path(), Some(&one)).unwrap().unwrap();
        assert_eq!((&again, inode()), (&first, before));
        let two = configured(dir.path(), b"two");
        let second = Program::install(dir.path(), Some(&two)).unwrap().unwrap();
        assert_ne!(second, first);
        assert_eq!(first.bytes().unwrap(), b"one");
    }

    #[test]
    fn a_program_that_was_damaged_is_written_anew() {
        let dir = tempfile::tempdir().unwrap();
        let one = configured(dir.path(), b"one");
        let program = Program::install(dir.path(), Some(&one)).unwrap().unwrap();
        let damages: [fn(&Path); 3] = [
            |path| std::fs::remove_file(path).unwrap(),
            |path| {
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
                std::fs::write(path, b"on").unwrap();
            },
            |path| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap(),
        ];
        for damage in damages {
            damage(program.path());
            // As a daemon that was killed in the middle leaves it.
            let half = program.path().with_file_name(NEW_NAME);
            std::fs::write(half, b"o").unwrap();
            Program::install(dir.path(), Some(&one)).unwrap();
            assert!(is_sound(program.path(), b"one"));
        }
    }

    #[test]
    fn a_configured_program_that_is_missing_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let missing = Program::install(dir.path(), Some(&dir.path().join("none")));
        assert!(matches!(missing, Err(ProgramError::Read { .. })));
    }
}
