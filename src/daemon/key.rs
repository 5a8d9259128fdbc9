//! Loads the key of all session tokens, or makes it at the first start.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::config::Config;
use crate::secret::{TOKEN_KEY_BYTES, TokenKey};
use crate::store::{ClaimError, Store};

/// Says why there is no token key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read or written.
    #[error("use the token key {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file holds something else than a key.
    #[error(
        "use the token key {}: it has {found} bytes, and a key has {TOKEN_KEY_BYTES}",
        path.display()
    )]
    Size {
        /// The file.
        path: PathBuf,
        /// Its size.
        found: usize,
    },
    /// The operating system gave no random bytes.
    #[error("make a token key")]
    Random(#[source] getrandom::Error),
    /// Tokens were derived from another key, and would all be void.
    #[error(
        "use the token key {}: put back the key that this state directory was used with",
        path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Which key the store knows.
        source: ClaimError,
    },
}

impl KeyError {
    /// Returns whether there is no file.
    pub(super) fn is_missing(&self) -> bool {
        matches!(self, Self::File { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// Returns the exit code of the program.
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::File { .. } | Self::Random(_) => 74,
            Self::Size { .. } => 78,
            Self::Foreign { source, .. } => match source {
                ClaimError::KeyMismatch { .. } => 78,
                ClaimError::Commit(_) => 74,
            },
        }
    }
}

/// Loads the configured key, or the state directory's own, which is made where
/// it is missing.
pub(super) async fn load(config: &Config, store: &Store) -> Result<TokenKey, KeyError> {
    let path = file_of(config);
    let key = if config.token_key_file.is_some() {
        read(&path)?
    } else {
        match read(&path) {
            Err(error) if error.is_missing() => make(&path)?,
            other => other?,
        }
    };
    store
        .claim_key_id(&key.id())
        .await
        .map_err(|source| KeyError::Foreign { path, source })?;
    Ok(key)
}

/// Returns the file of the key.
pub(super) fn file_of(config: &Config) -> PathBuf {
    let own = || config.state_dir.join("token.key");
    config.token_key_file.clone().unwrap_or_else(own)
}

/// Reads a key.
pub(super) fn read(path: &Path) -> Result<TokenKey, KeyError> {
    let file = |source| KeyError::File {
        path: path.to_path_buf(),
        source,
    };
    let bytes = fs::read(path).map_err(file)?;
    TokenKey::from_bytes(&bytes).ok_or_else(|| KeyError::Size {
        path: path.to_path_buf(),
        found: bytes.len(),
    })
}

/// Makes a key.
fn make(path: &Path) -> Result<TokenKey, KeyError> {
    let key = TokenKey::generate().map_err(KeyError::Random)?;
    write(path, &key)?;
    Ok(key)
}

/// Writes a key that is whole on disk before it has its name.
pub(super) fn write(path: &Path, key: &TokenKey) -> Result<(), KeyError> {
    let file = |source| KeyError::File {
        path: path.to_path_buf(),
        source,
    };
    let temporary = path.with_extension("key.tmp");
    let mut out = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)
        .map_err(file)?;
    out.write_all(key.expose()).map_err(file)?;
    out.sync_all().map_err(file)?;
    fs::rename(&temporary, path).map_err(file)?;
    if let Some(dir) = path.parent() {
        let dir = fs::File::open(dir).map_err(file)?;
        dir.sync_all().map_err(file)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_key_is_made_once_and_only_its_owner_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token.key");
        let made = make(&path).unwrap();
        assert_eq!(read(&path).unwrap().id(), made.id());
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn half_a_key_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token.key");
        fs::write(&path, [1; 16]).unwrap();
        assert!(matches!(read(&path), Err(KeyError::Size { found: 16, .. })));
    }
}
