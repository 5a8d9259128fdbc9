//! Opens a state directory, step by step, so that a damaged store is noticed before
//! anything relies on it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tracing::warn;

use super::ballast::Ballast;
use super::committer::Recipe;
use super::database::{Database, log_path};
use super::error::{Fault, OpenError};
use super::events::Retention;
use super::files::{self, create_dir, sync_dir, sync_files};
use super::journal::{self, Journal};
use super::lock::Lock;
use super::marker;
use super::meta::{self, Meta, Rebuilt};
use super::mirror::Mirror;
use super::probe::{PROBE_SECS_MAX, Probe};
use super::stage::Staged;
use super::trial::{self, Snapshots};
use super::watermark::{self, Watermark};
use super::writes::{Durability, Writes};
use crate::clock::{Clock, Timestamp};
use crate::id::InstanceId;

/// Events that a session's log keeps where the operator says nothing.
pub const EVENTS_PER_SESSION_MAX: u64 = 10_000;
/// Events that the service's log keeps where the operator says nothing: some 40 MB.
pub const SERVICE_EVENTS_MAX: u64 = 100_000;

/// What to do with a store that cannot be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnCorrupt {
    /// Leave it in place and do not open.
    Refuse,
    /// Rename it to `store.corrupt-<date>` and begin a new one, of the same instance,
    /// whose records are to be made anew: [`super::Store::rebuilt`].
    SetAside,
}

/// How to open a store.
#[derive(Clone, Debug)]
pub struct OpenOptions<'a> {
    /// The state directory; made, for us alone, where it is missing.
    pub dir: &'a Path,
    /// How to try the open before it is done for real.
    pub probe: Probe,
    /// Tells the date for a store set aside, and paces retries.
    pub clock: Clock,
    /// What to do with a store that cannot be trusted.
    pub on_corrupt: OnCorrupt,
    /// Events that each session's log keeps; at least 1.
    pub events_per_session_max: u64,
    /// Events that the service's log keeps; at least 1.
    pub service_events_max: u64,
    /// How long the trial open may take.
    pub(super) probe_deadline: Duration,
}

impl<'a> OpenOptions<'a> {
    /// Makes options that refuse a corrupt store and keep the usual number of events.
    pub fn new(dir: &'a Path, probe: Probe, clock: Clock) -> Self {
        Self {
            dir,
            probe,
            clock,
            on_corrupt: OnCorrupt::Refuse,
            events_per_session_max: EVENTS_PER_SESSION_MAX,
            service_events_max: SERVICE_EVENTS_MAX,
            probe_deadline: Duration::from_secs(PROBE_SECS_MAX),
        }
    }
}

impl OpenOptions<'_> {
    /// Returns how many events are kept.
    pub(super) fn retention(&self) -> Retention {
        Retention {
            session: self.events_per_session_max,
            service: self.service_events_max,
        }
    }
}

/// A state directory that was opened.
pub(super) struct Opened {
    pub(super) lock: Lock,
    pub(super) database: Database,
    pub(super) mirror: Mirror,
    pub(super) ballast: Ballast,
    pub(super) recipe: Recipe,
    pub(super) watermark: Watermark,
    pub(super) journal: Journal,
    /// Where the former store went, if it was set aside.
    pub(super) set_aside: Option<PathBuf>,
}

/// What the state directory held before.
enum Before {
    /// A store of this instance.
    Initialised(InstanceId),
    /// No store that anybody relied on; a new one is to be of this instance.
    Fresh(InstanceId),
    /// One of this instance that was lost; the new one is to make up for it.
    Lost(InstanceId, Rebuilt),
}

enum Refusal {
    Corrupt(String),
    Other(OpenError),
}

impl From<OpenError> for Refusal {
    fn from(error: OpenError) -> Self {
        Self::Other(error)
    }
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Corrupt(why) => Self::Corrupt(why),
            Fault::NoSpace => Self::Other(OpenError::NoSpace),
            Fault::NewerSchema { found } => Self::Other(OpenError::NewerSchema { found }),
            Fault::Busy | Fault::Io(_) => Self::Other(OpenError::Engine {
                reason: fault.to_string(),
            }),
        }
    }
}

/// Opens a state directory.
pub(super) fn open(options: &OpenOptions<'_>) -> Result<Opened, OpenError> {
    let dir = options.dir;
    let is_new = !dir.exists();
    create_dir(dir)?;
    if is_new && let Some(parent) = dir.parent().filter(|path| path != &Path::new("")) {
        sync_dir(parent)?;
    }
    let lock = Lock::take(dir)?;
    let recipe = Recipe {
        database_dir: dir.join("store").join("v1"),
        probe: options.probe.clone(),
        probe_deadline: options.probe_deadline,
    };
    let mut ballast = Ballast::keep(dir);
    let marked = marker::read(dir)?;
    let mut lost: Option<Lost> = None;
    let (database, mirror, watermark) = loop {
        let before = match (&marked, &lost) {
            (Some(instance), None) => Before::Initialised(instance.clone()),
            (Some(instance), Some(lost)) => Before::Lost(instance.clone(), lost.rebuilt.clone()),
            (None, _) => Before::Fresh(InstanceId::random()),
        };
        let watermark = match Watermark::open(dir) {
            Err(OpenError::NoSpace) if ballast.is_kept() => {
                ballast.spend();
                continue;
            }
            opened => opened?,
        };
        let tried = try_out(dir, &recipe, &watermark, options.clock.now());
        match tried.and_then(|()| open_database(dir, &recipe, before, &watermark)) {
            Ok((database, mirror)) => break (database, mirror, watermark),
            // Recovery writes, too: the reserve is for that as well.
            Err(Refusal::Other(OpenError::NoSpace)) if ballast.is_kept() => ballast.spend(),
            Err(Refusal::Corrupt(why)) if lost.is_none() => {
                // Without a marker nothing was ever acknowledged from this store.
                let wanted = marked
                    .as_ref()
                    .map_or(OnCorrupt::SetAside, |_| options.on_corrupt);
                lost = Some(make_way(dir, wanted, why, options.clock.now())?);
            }
            Err(Refusal::Corrupt(why)) => return Err(corrupt(dir, why)),
            Err(Refusal::Other(error)) => return Err(error),
        }
    };
    let mut mirror = mirror;
    let journal = match catch_up(dir, &database, &mut mirror, options.retention()) {
        Ok(journal) => journal,
        Err(error) => {
            database.close();
            return Err(error);
        }
    };
    Ok(Opened {
        lock,
        database,
        mirror,
        ballast,
        recipe,
        watermark,
        journal,
        set_aside: lost.map(|lost| lost.aside),
    })
}

/// Appends to the logs what was on its way to them when the process ended.
fn catch_up(
    dir: &Path,
    database: &Database,
    mirror: &mut Mirror,
    retention: Retention,
) -> Result<Journal, OpenError> {
    let refused = |fault: Fault| OpenError::Engine {
        reason: fault.to_string(),
    };
    let committed = database.journaled().map_err(refused)?;
    let (journal, left) = Journal::open(dir, committed)?;
    let mut staged = Staged::default();
    for batch in left.batches {
        if let Err(error) = staged.add(mirror, batch, retention) {
            warn!(%error, "an event of the journal is left out");
        }
    }
    if !staged.writes.is_empty() {
        let mut writes = staged.writes;
        meta::put_journaled(&mut writes, left.last).map_err(|error| refused(error.into()))?;
        let applied = database.apply(&writes, Durability::Flushed);
        applied.map_err(refused)?;
        mirror.absorb(staged.changes);
    }
    journal.clear();
    Ok(journal)
}

/// A store that was set aside.
struct Lost {
    aside: PathBuf,
    rebuilt: Rebuilt,
}

/// Sets a corrupt store aside if that is wanted, and says where it is now.
fn make_way(dir: &Path, wanted: OnCorrupt, why: String, now: Timestamp) -> Result<Lost, OpenError> {
    match wanted {
        OnCorrupt::Refuse => Err(corrupt(dir, why)),
        OnCorrupt::SetAside => {
            let store = dir.join("store");
            if !store.is_symlink() && !store.exists() {
                // Where the store is gone altogether, an empty directory says so.
                create_dir(&store)?;
            }
            let aside = files::set_aside(&store, now)?;
            watermark::remove(dir)?;
            journal::set_aside(dir, &aside)?;
            warn!(%why, to = %aside.display(), "a corrupt store is set aside");
            let rebuilt = Rebuilt::begin(now, aside.display().to_string(), why);
            Ok(Lost { aside, rebuilt })
        }
    }
}

fn corrupt(dir: &Path, why: String) -> OpenError {
    OpenError::Corrupt {
        store: dir.join("store"),
        why,
    }
}

/// Tries what is there on a copy; one that only opens without its snapshots, and holds
/// everything then, loses them: its log is what counts.
fn try_out(
    dir: &Path,
    recipe: &Recipe,
    watermark: &Watermark,
    now: Timestamp,
) -> Result<(), Refusal> {
    let database_dir = &recipe.database_dir;
    if !log_path(database_dir).is_file() {
        return Ok(());
    }
    let acknowledged = watermark.acknowledged();
    match trial::run(dir, recipe, Snapshots::With, acknowledged) {
        // What an earlier build left cannot be checked well enough for that.
        Err(Fault::Corrupt(why)) if 0 < acknowledged => {
            let without = trial::run(dir, recipe, Snapshots::Without, acknowledged);
            without.map_err(|_| Refusal::Corrupt(why.clone()))?;
            let n_aside = files::set_snapshots_aside(database_dir, now)?;
            warn!(%why, snapshots = n_aside, "the store's snapshots were damaged; its log is whole");
            Ok(())
        }
        tried => Ok(tried?),
    }
}

fn open_database(
    dir: &Path,
    recipe: &Recipe,
    before: Before,
    watermark: &Watermark,
) -> Result<(Database, Mirror), Refusal> {
    let database_dir = &recipe.database_dir;
    let has_log = log_path(database_dir).is_file();
    match &before {
        Before::Initialised(_) if !has_log => {
            return Err(Refusal::Corrupt("its log is gone".to_owned()));
        }
        Before::Initialised(_) | Before::Fresh(_) | Before::Lost(..) => {}
    }
    create_dir(database_dir)?;
    let database = Database::open(database_dir)?;
    let loaded = database.load().and_then(|mirror| match (mirror, &before) {
        (None, Before::Initialised(_)) => Err(Fault::Corrupt("it opens empty".to_owned())),
        (mirror, _) => {
            watermark::check(mirror.as_ref(), watermark.acknowledged())?;
            Ok(mirror)
        }
    });
    let mirror = match loaded {
        Ok(Some(mirror)) => identify(dir, before, mirror),
        Ok(None) => initialise(dir, &database, before),
        Err(fault) => Err(fault.into()),
    };
    match mirror {
        Ok(mirror) => Ok((database, mirror)),
        Err(refusal) => {
            database.close();
            Err(refusal)
        }
    }
}

/// Checks that the store belongs to this state directory.
fn identify(dir: &Path, before: Before, mirror: Mirror) -> Result<Mirror, Refusal> {
    let store = &mirror.meta.instance;
    match before {
        Before::Initialised(marker) if marker != *store => {
            return Err(Refusal::Other(OpenError::Foreign {
                marker,
                store: store.clone(),
            }));
        }
        Before::Initialised(_) => {}
        // A process ended between the first commit and the marker.
        Before::Fresh(_) | Before::Lost(..) => marker::write(dir, store)?,
    }
    Ok(mirror)
}

/// Writes the first words of a store, and only then the marker that expects them.
fn initialise(dir: &Path, database: &Database, before: Before) -> Result<Mirror, Refusal> {
    let (instance, rebuilt) = match before {
        Before::Initialised(instance) | Before::Fresh(instance) => (instance, None),
        // In the first batch: a process that ends before the records are made
        // anew must not leave a store that looks like one that never had any.
        Before::Lost(instance, rebuilt) => (instance, Some(rebuilt)),
    };
    let meta = Meta {
        rebuilt,
        ..Meta::new(instance)
    };
    let mut writes = Writes::default();
    meta.put(&mut writes).map_err(Fault::from)?;
    database.apply(&writes, Durability::Synced)?;
    let store = dir.join("store");
    sync_files(&store.join("v1"))?;
    sync_dir(&store)?;
    sync_dir(dir)?;
    marker::write(dir, &meta.instance)?;
    Ok(Mirror::empty(meta))
}
