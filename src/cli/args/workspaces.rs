//! The arguments of the verbs for workspaces.

use clap::ValueEnum;

use crate::client::{ArchiveFormat, ImportOptions, WriteOver};
use crate::id::{Alias, SessionId, Tenant};

pub(super) const EXPORT_AFTER_HELP: &str = "\
Examples:
  sandboxctl export s1 > s1.tar.zst
  sandboxctl export s1 --format tar | tar -t

The session may be open; files that change meanwhile are cut off or filled up at \
the size that they had. Sockets, pipes and devices are left out. Ends with another \
status than 0 where the archive is not whole.";

pub(super) const IMPORT_AFTER_HELP: &str = "\
Examples:
  sandboxctl import s2 < s1.tar.zst
  tar -c . | sandboxctl import s2 --runtime python

The archive is tar, plain or compressed by zstd. It is taken in whole or not at \
all, and only by a session that is new or closed.";

/// The arguments of `workspaces`.
#[derive(Clone, Debug, clap::Args)]
pub struct Workspaces {
    /// Print ids and nothing else
    #[arg(short, long)]
    pub quiet: bool,
}

/// The arguments of `export`.
#[derive(Clone, Debug, clap::Args)]
pub struct Export {
    /// The id of the workspace; whether its session is open or closed
    #[arg(value_name = "ID", value_parser = SessionId::parse)]
    pub id: SessionId,

    /// How the archive is written
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// How an archive is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Plain tar
    Tar,
    /// Tar compressed by zstd
    #[default]
    #[value(name = "tar.zst")]
    TarZst,
}

impl From<Format> for ArchiveFormat {
    fn from(format: Format) -> Self {
        match format {
            Format::Tar => Self::Tar,
            Format::TarZst => Self::TarZst,
        }
    }
}

/// The arguments of `import`.
#[derive(Clone, Debug, clap::Args)]
pub struct Import {
    /// The id that gets the files
    #[arg(value_name = "ID", value_parser = SessionId::parse)]
    pub id: SessionId,

    /// Have the archive take the place of files that are there, instead of refusing
    #[arg(long)]
    replace: bool,

    /// The runtime of an id that is not known yet
    #[arg(long, value_name = "ALIAS", value_parser = Alias::parse)]
    runtime: Option<Alias>,

    /// The tenant of an id that is not known yet
    #[arg(long, value_parser = Tenant::parse)]
    tenant: Option<Tenant>,
}

impl Import {
    /// Returns how the archive is taken in.
    pub fn options(&self) -> ImportOptions {
        ImportOptions {
            replace: if self.replace {
                WriteOver::Yes
            } else {
                WriteOver::No
            },
            runtime: self.runtime.clone(),
            tenant: self.tenant.clone(),
        }
    }
}
