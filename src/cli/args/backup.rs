//! The arguments of `backup`.

use std::path::{Path, PathBuf};

use clap::ValueHint;

use crate::client::BackupKey;

/// What the manual says of `backup`.
pub(super) const BACKUP_AFTER_HELP: &str = "\
A backup is of one moment, however long it takes, and everything that the service \
had answered before is in it. It holds the records of sessions, open and closed, and \
of runs in the background; it does not hold their events, nor any files.

The file is for its owner alone, and in its place only once it is whole. The digest \
in its last line is checked when it is written and when it is restored.

Examples:
  sandboxctl backup /var/backups/sandboxd.jsonl
  sandboxctl backup | age -r age1... > sandboxd.jsonl.age

sandboxd restore FILE puts it back while no daemon runs.";

/// The arguments of `backup`.
#[derive(Clone, Debug, clap::Args)]
pub struct Backup {
    /// Where it goes; standard output if not given, or -
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: Option<PathBuf>,

    /// Have the key of all session tokens in it, to restore it on another host; whoever
    /// reads it can use every session
    #[arg(long)]
    with_key: bool,
}

impl Backup {
    /// Returns the file that it goes to; none for standard output.
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref().filter(|file| *file != Path::new("-"))
    }

    /// Returns whether the key is in it.
    pub fn key(&self) -> BackupKey {
        if self.with_key {
            BackupKey::Take
        } else {
            BackupKey::Leave
        }
    }
}
