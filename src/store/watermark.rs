//! Remembers beside the store how far it had got, so that a log that lost its end
//! is not taken for a whole one.
//!
//! To the engine below a log that was cut looks like one whose end was never
//! written: it opens with what is left. The number of each commit is in the
//! database, and here as well once that commit is on the disk. It is written
//! without a sync, which is enough to survive the end of the process; and since it
//! is never ahead of what was synced, a loss of power cannot make it lie.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use tracing::warn;

use super::error::{Fault, OpenError};
use super::files::{failed, sync_dir};
use super::mirror::Mirror;
use super::tally;

const NAME: &str = "committed";
/// Digits of the largest number, and a line end: the size never changes.
const BYTES: usize = 21;

/// The file, open for as long as the store is.
#[derive(Debug)]
pub(super) struct Watermark {
    file: File,
    /// Whether the last write failed, which is told once.
    failing: bool,
}

impl Watermark {
    /// Opens the file of a state directory, at 0 where it is missing.
    pub(super) fn open(dir: &Path) -> Result<Self, OpenError> {
        let path = dir.join(NAME);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(failed("open", &path))?;
        let watermark = Self {
            file,
            failing: false,
        };
        if watermark.read().is_none() {
            watermark.write(0).map_err(failed("write", &path))?;
        }
        Ok(watermark)
    }

    /// Notes that everything up to a commit is on the disk.
    pub(super) fn note(&mut self, commits: u64) {
        match self.write(commits) {
            Ok(()) => self.failing = false,
            // Without it a cut log may go unnoticed; nothing else depends on it.
            Err(error) if !self.failing => {
                self.failing = true;
                warn!(%error, "how far the store has got is not written down");
            }
            Err(_) => {}
        }
    }

    /// Returns the last commit that was noted, 0 where none is known.
    pub(super) fn acknowledged(&self) -> u64 {
        self.read().unwrap_or(0)
    }

    fn read(&self) -> Option<u64> {
        let mut bytes = [0; BYTES];
        self.file.read_exact_at(&mut bytes, 0).ok()?;
        std::str::from_utf8(&bytes).ok()?.trim_end().parse().ok()
    }

    fn write(&self, commits: u64) -> io::Result<()> {
        let text = format!("{commits:020}\n");
        self.file.write_all_at(text.as_bytes(), 0)
    }
}

/// Checks that a store holds everything up to a commit, and all the rows of its last.
pub(super) fn check(mirror: Option<&Mirror>, acknowledged: u64) -> Result<(), Fault> {
    match mirror {
        Some(mirror) => {
            let commits = mirror.meta.commits();
            if commits < acknowledged {
                return Err(Fault::Corrupt(format!(
                    "it ends with commit {commits}, and commit {acknowledged} was acknowledged"
                )));
            }
            tally::check(mirror)
        }
        None if 0 < acknowledged => Err(Fault::Corrupt("it opens empty".to_owned())),
        None => Ok(()),
    }
}

/// Forgets how far a store had got that is set aside.
pub(super) fn remove(dir: &Path) -> Result<(), OpenError> {
    let path = dir.join(NAME);
    match fs::remove_file(&path) {
        Ok(()) => sync_dir(dir),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed("remove", &path)(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::InstanceId;
    use crate::store::meta::Meta;
    use crate::store::tally::Tally;

    /// A store that ends with a commit.
    fn ending_with(commits: u64) -> Mirror {
        let tally = Tally {
            commits,
            ..Tally::default()
        };
        Mirror::empty(Meta {
            tally: Some(tally),
            ..Meta::new(InstanceId::random())
        })
    }

    #[test]
    fn a_database_behind_its_watermark_is_corrupt_and_one_ahead_of_it_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let mut watermark = Watermark::open(dir.path()).unwrap();
        watermark.note(7);
        drop(watermark);
        let known = Watermark::open(dir.path()).unwrap().acknowledged();
        for behind in [None, Some(&ending_with(6))] {
            assert!(matches!(check(behind, known), Err(Fault::Corrupt(_))));
        }
        for commits in [7, u64::MAX] {
            assert_eq!(check(Some(&ending_with(commits)), known), Ok(()));
        }
        remove(dir.path()).unwrap();
        let known = Watermark::open(dir.path()).unwrap().acknowledged();
        assert_eq!(check(None, known), Ok(()));
    }

    #[test]
    fn a_watermark_that_says_nothing_accuses_nobody() {
        let dir = tempfile::tempdir().unwrap();
        for rubbish in ["", "12", "not a number at all!!"] {
            fs::write(dir.path().join(NAME), rubbish).unwrap();
            let watermark = Watermark::open(dir.path()).unwrap();
            assert_eq!(watermark.acknowledged(), 0, "{rubbish:?}");
        }
    }
}
