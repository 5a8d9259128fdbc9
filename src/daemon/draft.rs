//! Writes a file that is in its place only once it is whole and on the disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// A file that is not in its place yet; dropped before, it goes.
#[derive(Debug)]
pub(super) struct Draft {
    file: File,
    temporary: PathBuf,
    to: PathBuf,
}

impl Draft {
    /// Begins a file for its owner alone, beside its place.
    ///
    /// One that an earlier process left is written over.
    pub(super) fn begin(to: &Path) -> io::Result<Self> {
        let name = to.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let temporary = to.with_file_name(format!(".{}.part", name.to_string_lossy()));
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        Ok(Self {
            file,
            temporary,
            to: to.to_owned(),
        })
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    /// Puts it in its place, for good.
    pub(super) fn finish(self) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.temporary, &self.to)?;
        let dir = self.to.parent().filter(|dir| *dir != Path::new(""));
        File::open(dir.unwrap_or(Path::new(".")))?.sync_all()
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        match fs::remove_file(&self.temporary) {
            // It is in its place, or nobody is there who could do more.
            Ok(()) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_draft_is_in_its_place_only_once_it_is_finished_and_for_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("b.jsonl");
        let n_files = || fs::read_dir(dir.path()).unwrap().count();
        let mut draft = Draft::begin(&to).unwrap();
        draft.write(b"half").unwrap();
        assert!(!to.exists());
        drop(draft);
        assert_eq!(n_files(), 0);
        let mut draft = Draft::begin(&to).unwrap();
        draft.write(b"whole").unwrap();
        draft.finish().unwrap();
        assert_eq!(fs::read(&to).unwrap(), b"whole");
        assert_eq!(n_files(), 1);
        let mode = fs::metadata(&to).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
