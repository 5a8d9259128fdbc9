//! Reads the process, for the whole program, in this one place.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

/// Bytes of the largest file that holds settings or a secret.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads a file whole; the bytes may be a secret, so they are wiped after use.
pub type ReadFile<'a> = &'a dyn Fn(&Path) -> io::Result<Zeroizing<Vec<u8>>>;

/// What the daemon finds around itself when it starts.
#[derive(Clone)]
pub struct Surroundings<'a> {
    /// The environment. What is not UTF-8 has U+FFFD in its place.
    pub vars: BTreeMap<String, String>,
    /// The directory that relative paths start from.
    pub cwd: PathBuf,
    /// Reads files.
    pub read: ReadFile<'a>,
}

impl Surroundings<'static> {
    /// Takes a snapshot of this process.
    pub fn of_process() -> Self {
        Self {
            // The variant with `OsString`s: the other one panics on a variable that
            // is not UTF-8, whosever it is.
            vars: std::env::vars_os()
                .map(|(name, value)| {
                    let lossy = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
                    (lossy(name), lossy(value))
                })
                .collect(),
            cwd: std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/")),
            read: &read_bounded,
        }
    }
}

/// Shows the names of the variables only: a value may be a secret.
impl std::fmt::Debug for Surroundings<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Surroundings")
            .field("vars", &self.vars.keys().collect::<Vec<_>>())
            .field("cwd", &self.cwd)
            .finish_non_exhaustive()
    }
}

fn read_bounded(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(Vec::new());
    File::open(path)?
        .take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)?;
    if usize::try_from(FILE_BYTES_MAX).is_ok_and(|max| max < bytes.len()) {
        return Err(io::Error::other("the file is larger than 1 MiB"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_whole_up_to_a_bound() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "abc").unwrap();
        assert_eq!(read_bounded(&path).unwrap().as_slice(), b"abc");
        std::fs::write(&path, vec![0; (1 << 20) + 1]).unwrap();
        assert!(read_bounded(&path).is_err());
    }

    #[test]
    fn a_snapshot_shows_no_value_of_the_environment() {
        let around = Surroundings {
            vars: BTreeMap::from([("SANDBOXD_TOKEN".to_owned(), "hunter2".to_owned())]),
            ..Surroundings::of_process()
        };
        let shown = format!("{around:?}");
        assert!(shown.contains("SANDBOXD_TOKEN") && !shown.contains("hunter2"));
    }
}
