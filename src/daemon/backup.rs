//! Writes a backup of the store, whether a daemon runs or not, and puts one back.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use super::draft::Draft;
use super::{Fatal, key};
use crate::client::{self, BackupKey, Client, Endpoint};
use crate::clock::{Clock, Timestamp};
use crate::config::{Config, Listen};
use crate::secret::TokenKey;
use crate::store::{BackupError, Contents, Held, InPlace, Probe, PutBackError};
use crate::verify::{NotBorrowed, Stock, borrow};
use crate::wire::backup::BACKUP_BYTES_MAX;

/// What becomes of the tokens of sessions in a restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tokens {
    /// They stay good, for which their key has to be there or in the backup.
    Keep,
    /// All get new ones.
    Void,
}

/// A backup that was put back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Sessions on record, open or not.
    pub n_sessions: usize,
    /// When the store was like that.
    pub taken_at: Timestamp,
    /// Where the store is that was there.
    pub set_aside: Option<PathBuf>,
}

/// Says why there is no backup, or why one was not put back.
#[derive(Debug, thiserror::Error)]
pub enum BackupFailure {
    /// There is nothing to make a backup of.
    #[error("find a store in {}", dir.display())]
    Nothing {
        /// The state directory.
        dir: PathBuf,
    },
    /// The store cannot be trusted.
    #[error("read the store: {0}")]
    Broken(String),
    /// The store could not be read.
    #[error("read the store: {0}")]
    Unseen(String),
    /// The daemon that runs gives none.
    #[error("ask the running daemon for a backup")]
    Ask(#[source] client::Error),
    /// Nobody knows where the daemon that runs listens.
    #[error(
        "ask the running daemon for a backup at {address}: name its address to `sandboxctl backup`"
    )]
    Address {
        /// What is configured.
        address: String,
    },
    /// A file could not be read or written.
    #[error("{doing} {}", path.display())]
    File {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is larger than any that is written.
    #[error("read {}: it has more than {BACKUP_BYTES_MAX} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// It cannot be used.
    #[error("restore {}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: BackupError,
    },
    /// It was not put back.
    #[error(transparent)]
    PutBack(#[from] PutBackError),
    /// Tokens were derived from a key that is not here.
    #[error("restore the tokens: they come from the key {wanted}, which is neither in the backup nor in {}: put that key back, or give every session a new token with --void-tokens", path.display())]
    NoKey {
        /// The name of the key.
        wanted: String,
        /// Where it should be.
        path: PathBuf,
    },
}

impl BackupFailure {
    /// Returns the exit code of the program.
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::Nothing { .. } => 66,
            Self::Broken(_) | Self::Unusable { .. } | Self::TooLarge { .. } => 65,
            Self::Ask(_) | Self::Address { .. } => 69,
            Self::Unseen(_) | Self::File { .. } => 74,
            Self::PutBack(error) => match error {
                PutBackError::InPlace { .. } => 73,
                PutBackError::Foreign { .. } => 65,
                PutBackError::ReadBack { .. } => 74,
                PutBackError::Open(error) => super::code_of(error),
            },
            Self::NoKey { .. } => 78,
        }
    }
}

/// Writes a backup to a file, or to standard output where none is named.
///
/// While a daemon runs on the state directory it is asked for it, by its address and its
/// token. Else the store is read from a copy in `scratch`, under the directory's lock.
///
/// # Errors
/// There is no store, it cannot be read, or the file cannot be written.
pub async fn backup(
    config: Config,
    scratch: &Path,
    to: Option<&Path>,
    key: BackupKey,
) -> Result<(), Fatal> {
    let opening = {
        let (dir, scratch) = (config.state_dir.clone(), scratch.to_owned());
        let probe = std::env::current_exe().map_or(Probe::InProcess, Probe::Child);
        move || borrow(&dir, &scratch, probe, Clock::host())
    };
    let borrowed = match tokio::task::spawn_blocking(opening).await {
        Ok(Err(NotBorrowed::Busy { .. })) => return ask(&config, to, key).await,
        Ok(borrowed) => borrowed?,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    };
    let snapshot = match &borrowed.stock {
        Stock::Open(store) => store.snapshot(),
        Stock::Nothing => {
            let dir = config.state_dir.clone();
            return Err(BackupFailure::Nothing { dir }.into());
        }
        Stock::Broken(why) => return Err(BackupFailure::Broken(why.clone()).into()),
        Stock::Unseen(why) => return Err(BackupFailure::Unseen(why.clone()).into()),
    };
    let key = match key {
        BackupKey::Leave => None,
        BackupKey::Take => Some(key::read(&key::file_of(&config))?),
    };
    let mut sink = Sink::begin(to)?;
    for line in snapshot.lines(Clock::host().now(), key.as_ref()) {
        sink.write(&line)?;
    }
    Ok(sink.finish()?)
}

/// Has the daemon that runs tell it.
async fn ask(config: &Config, to: Option<&Path>, key: BackupKey) -> Result<(), Fatal> {
    let Listen { host, port } = &config.listen;
    let address = format!("{}:{port}", super::bracketed(&reachable(host)));
    let unknown = || BackupFailure::Address {
        address: address.clone(),
    };
    if *port == 0 {
        return Err(unknown().into());
    }
    let endpoint = Endpoint::parse(&format!("http://{address}")).map_err(|_| unknown())?;
    let client = Client::new(endpoint)
        .with_token(&config.service_token)
        .map_err(BackupFailure::Ask)?;
    let mut pieces = client.backup(key).await.map_err(BackupFailure::Ask)?;
    let mut sink = Sink::begin(to)?;
    while let Some(piece) = pieces.next().await.map_err(BackupFailure::Ask)? {
        sink.write(&piece)?;
    }
    Ok(sink.finish()?)
}

/// Returns where a daemon of this host is reached that listens on an address.
fn reachable(host: &str) -> String {
    match host {
        "0.0.0.0" => "127.0.0.1",
        "::" | "[::]" => "::1",
        host => host,
    }
    .to_owned()
}

/// Where a backup goes.
enum Sink {
    File(PathBuf, Draft),
    Standard,
}

impl Sink {
    fn begin(to: Option<&Path>) -> Result<Self, BackupFailure> {
        Ok(match to {
            Some(to) => {
                let draft = Draft::begin(to).map_err(|source| unwritten(to, source))?;
                Self::File(to.to_owned(), draft)
            }
            None => Self::Standard,
        })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), BackupFailure> {
        match self {
            Self::File(to, draft) => draft.write(bytes).map_err(|source| unwritten(to, source)),
            Self::Standard => {
                let written = io::stdout().write_all(bytes);
                written.map_err(|source| unwritten(Path::new("-"), source))
            }
        }
    }

    fn finish(self) -> Result<(), BackupFailure> {
        match self {
            Self::File(to, draft) => draft.finish().map_err(|source| unwritten(&to, source)),
            Self::Standard => {
                let flushed = io::stdout().flush();
                flushed.map_err(|source| unwritten(Path::new("-"), source))
            }
        }
    }
}

fn unwritten(path: &Path, source: io::Error) -> BackupFailure {
    BackupFailure::File {
        doing: "write",
        path: path.to_owned(),
        source,
    }
}

/// Puts a backup back while no daemon runs; a damaged one changes nothing.
///
/// The next start looks at what is on the host before it ends anything, and holds sweeps
/// until an operator has confirmed the outcome.
///
/// # Errors
/// A daemon runs, the backup cannot be used, or something is in its way.
pub async fn restore(
    config: Config,
    file: &Path,
    in_place: InPlace,
    tokens: Tokens,
) -> Result<Restored, Fatal> {
    let file = file.to_owned();
    let work = move || put_back(&config, &file, in_place, tokens);
    match tokio::task::spawn_blocking(work).await {
        Ok(restored) => restored,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}

fn put_back(
    config: &Config,
    file: &Path,
    in_place: InPlace,
    tokens: Tokens,
) -> Result<Restored, Fatal> {
    let bytes = read(file)?;
    let mut contents = Contents::read(&bytes).map_err(|source| BackupFailure::Unusable {
        path: file.to_owned(),
        source,
    })?;
    drop(bytes);
    let held = Held::take(&config.state_dir).map_err(|source| Fatal::Store {
        dir: config.state_dir.clone(),
        source,
    })?;
    let failed = |error: PutBackError| Fatal::from(BackupFailure::from(error));
    held.may_take(&contents, in_place).map_err(failed)?;
    let path = key::file_of(config);
    let here = match key::read(&path) {
        Ok(key) => Some(key),
        Err(error) if error.is_missing() => None,
        Err(error) => return Err(error.into()),
    };
    match key_of(&contents, here.as_ref(), tokens) {
        KeyOf::Here => {}
        KeyOf::Backup(key) => key::write(&path, &key)?,
        KeyOf::New => contents.void_tokens(),
        KeyOf::Nowhere(wanted) => return Err(BackupFailure::NoKey { wanted, path }.into()),
    }
    let now = Clock::host().now();
    let put_back = held.put_back(&contents, in_place, now).map_err(failed)?;
    Ok(Restored {
        n_sessions: contents.n_sessions(),
        taken_at: contents.taken_at,
        set_aside: put_back.set_aside,
    })
}

/// Which key the tokens come from after a restore.
enum KeyOf {
    /// The one that is there, or that the next start makes.
    Here,
    /// The one in the backup, which has to be written.
    Backup(TokenKey),
    /// Another than before.
    New,
    /// The one of this name, which is not there.
    Nowhere(String),
}

fn key_of(contents: &Contents, here: Option<&TokenKey>, tokens: Tokens) -> KeyOf {
    let Some(wanted) = contents.token_key_id() else {
        return KeyOf::Here;
    };
    match (here, &contents.key, tokens) {
        (Some(here), _, _) if here.id() == wanted => KeyOf::Here,
        (_, _, Tokens::Void) => KeyOf::New,
        (None, Some(key), Tokens::Keep) => KeyOf::Backup(key.clone()),
        // A key that is there may be another instance's: it is not written over.
        (Some(_), _, Tokens::Keep) | (None, None, Tokens::Keep) => {
            KeyOf::Nowhere(wanted.to_owned())
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, BackupFailure> {
    let failed = |source| BackupFailure::File {
        doing: "read",
        path: path.to_owned(),
        source,
    };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    let mut bounded = file.take(BACKUP_BYTES_MAX + 1);
    bounded.read_to_end(&mut bytes).map_err(failed)?;
    if BACKUP_BYTES_MAX < u64::try_from(bytes.len()).unwrap_or(u64::MAX) {
        let path = path.to_owned();
        return Err(BackupFailure::TooLarge { path });
    }
    Ok(bytes)
}
