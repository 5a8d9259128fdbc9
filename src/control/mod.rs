//! What a caller may ask, without HTTP.
//!
//! A request never drives the engine to start or stop anything: it writes what
//! is wanted, has the controller nudged, and waits on a ticket. Commands on a
//! running session go straight to its sandbox, under a lease.

pub mod archives;
mod attended;
mod backup;
mod close;
mod describe;
mod disk;
mod doctor;
mod drift;
mod errand;
mod exec;
mod explain;
pub mod files;
mod holds;
mod live;
pub mod log;
pub mod metrics;
mod open;
pub mod queue;
pub mod refusal;
pub mod relief;
pub mod request;
mod rest;
mod roll;
mod run;
pub mod runs;
mod shown;
mod slots;
mod sweep;
pub mod terminals;
#[cfg(test)]
pub(crate) mod testing;
mod workspaces;

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::TaskTracker;

use crate::activity::Leases;
use crate::id::SessionId;
use crate::policy::{Current, Prewarm};
use crate::reconcile::{Books, Disks, EngineHealth, Epoch, Host, Outcome, Survey, Tickets, Work};
use crate::sandbox::commands::Runner;
use crate::sandbox::reach::Reacher;
use crate::sandbox::usage::Sampler;
use crate::secret::{Secret, TokenKey};
use crate::session::record::{Record, Status};
use crate::verify;

pub use backup::WithKey;
pub use refusal::Refusal;
pub use sweep::Sweep;
pub use workspaces::ListWorkspaces;

/// Serves requests; cheap to clone.
#[derive(Clone, Debug)]
pub struct Control(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    policy: Current,
    keys: Keys,
    books: Books,
    loop_: Loop,
    host: Host,
    reacher: Reacher,
    sampler: Sampler,
    prewarm: Prewarm,
    /// Where the doctor looks on the disk.
    disk: verify::Place,
    /// What workspaces take.
    disks: Disks,
    archives: archives::Archives,
    /// One examination at a time: each asks the engine for everything.
    examination: Mutex<()>,
    /// Held from the census to the commit, so that ceilings hold under any race.
    admission: Mutex<()>,
    slots: slots::Slots,
    /// The openings that wait at a ceiling.
    line: queue::Line,
    /// Runs commands.
    runner: Runner,
    /// The commands that somebody waits for.
    attended: attended::Attended,
    terminals: terminals::Terminals,
    /// Told resets, and counts for the health route.
    roll: roll::Roll,
    drift: drift::Drift,
    tasks: TaskTracker,
    runs: runs::Runs,
    files: files::Files,
    metrics: metrics::Metrics,
}

/// What makes somebody a caller.
#[derive(Debug)]
pub struct Keys {
    /// Good everywhere.
    pub service: Secret,
    /// What session tokens are derived from.
    pub tokens: TokenKey,
}

/// The controller, as requests reach it.
#[derive(Clone, Debug)]
pub struct Loop {
    /// Where sessions are queued.
    pub work: Work,
    /// Where a request waits for what becomes of its intent.
    pub tickets: Tickets,
    /// Who uses what.
    pub leases: Leases,
    /// Whether the engine answers.
    pub engine: EngineHealth,
    /// From when on ages are counted.
    pub epoch: Epoch,
    /// Where sweeps are asked for, and what they take.
    pub survey: Survey,
}

impl Control {
    /// Puts the parts together; starts nothing.
    pub fn new(policy: Current, keys: Keys, books: Books, loop_: Loop, place: Place) -> Self {
        let Host {
            engine, cgroups, ..
        } = &place.host;
        let runner = Runner::new(engine.clone(), place.reacher.clone(), cgroups.clone());
        Self(Arc::new(Inner {
            runner,
            attended: attended::Attended::default(),
            policy,
            keys,
            books,
            loop_,
            host: place.host,
            reacher: place.reacher,
            sampler: place.sampler,
            prewarm: place.prewarm,
            disk: place.disk,
            disks: place.disks,
            archives: archives::Archives::new(place.archive_bytes_max),
            examination: Mutex::new(()),
            admission: Mutex::new(()),
            slots: slots::Slots::default(),
            line: queue::Line::default(),
            terminals: terminals::Terminals::default(),
            roll: roll::Roll::default(),
            drift: drift::Drift::default(),
            tasks: TaskTracker::new(),
            runs: runs::Runs::default(),
            files: files::Files::default(),
            metrics: metrics::Metrics::default(),
        }))
    }

    /// Returns who a presented token makes the caller for a session.
    ///
    /// An unknown session costs the same time as a known one.
    pub fn authenticate(&self, id: &SessionId, presented: &[u8]) -> Option<request::Viewer> {
        let is_service = self.is_service_token(presented);
        let nonce = self
            .open_record(id)
            .map_or_else(crate::id::Nonce::random, |record| record.spec.nonce.clone());
        let token = self.0.keys.tokens.session_token(id, &nonce);
        let is_session = token.matches(presented);
        match (is_service, is_session) {
            (true, _) => Some(request::Viewer::Service),
            (false, true) => Some(request::Viewer::Session),
            (false, false) => None,
        }
    }

    /// Returns whether a presented token is the service token.
    pub fn is_service_token(&self, presented: &[u8]) -> bool {
        self.0.keys.service.matches(presented)
    }

    /// Drops what is remembered of sessions that are open no more.
    pub fn prune(&self) {
        let open = |id: &SessionId| self.open_record(id).is_some();
        self.0.loop_.leases.retain(open);
        self.0.roll.retain(open);
        self.0.drift.retain(open);
        self.0.attended.prune(Instant::now(), open);
        let store = &self.0.books.store;
        let containers: BTreeSet<String> = store
            .records()
            .iter()
            .filter(|record| record.is_open())
            .filter_map(|record| store.status(&record.spec.id)?.container.clone())
            .collect();
        self.0
            .sampler
            .retain(|container| containers.contains(container));
    }

    /// Waits for commands under way to end; new ones are not kept out. Runs in the
    /// background go on, and are not watched any more.
    pub async fn drained(&self) {
        self.0.terminals.stop();
        self.0.runs.leave().await;
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    /// Returns the record of an open session.
    fn open_record(&self, id: &SessionId) -> Option<Arc<Record>> {
        self.0
            .books
            .store
            .record(id)
            .filter(|record| record.is_open())
    }

    /// Refuses at once what could only wait for the engine in vain.
    fn engine_answers(&self) -> Result<(), Refusal> {
        match self.0.loop_.engine.lost() {
            None => Ok(()),
            Some(why) => Err(Refusal::EngineUnavailable(why.to_string())),
        }
    }

    /// Refuses what takes an id to be free, while the containers of a lost store are not
    /// on record again: one of that id may be there, with the only copy of its files.
    fn knows_containers(&self) -> Result<(), Refusal> {
        match self.0.books.store.rebuilt() {
            Some(rebuilt) if !rebuilt.containers_read => Err(Refusal::EngineUnavailable(
                "the store was lost, and the containers are not on record again yet".to_owned(),
            )),
            Some(_) | None => Ok(()),
        }
    }

    /// Refuses at once what needs workspaces that are not there.
    fn has_workspaces(&self) -> Result<(), Refusal> {
        self.holds().strange().map_or(Ok(()), |strange| {
            let why = format!("failed to {}", strange.why);
            Err(Refusal::EngineUnavailable(why))
        })
    }

    /// Waits for what becomes of an intent, until `deadline`, the end of the
    /// service, or the loss of the engine that was to act on it.
    async fn outcome(
        &self,
        id: &SessionId,
        generation: u64,
        deadline: Instant,
    ) -> Result<Outcome, Unsettled> {
        loop {
            let ticket = self.0.loop_.tickets.intent(id, generation);
            self.0.loop_.work.nudge_session(id);
            let outcome = tokio::select! {
                biased;
                settled = ticket => settled.map_err(|_| Unsettled::Stopping)?,
                why = self.0.loop_.engine.until_lost() => {
                    return Err(Unsettled::EngineLost(why));
                }
                () = sleep_until(deadline) => return Err(Unsettled::Late),
            };
            // What is gone may be an earlier session of the id, which had the
            // last word just as this one began.
            let stands = self
                .open_record(id)
                .is_some_and(|record| record.marks.generation == generation);
            if outcome != Outcome::Gone || !stands {
                return Ok(outcome);
            }
        }
    }

    fn status(&self, id: &SessionId) -> Arc<Status> {
        self.0.books.store.status(id).unwrap_or_default()
    }
}

/// Why it is not known what becomes of an intent, which stands all the same.
enum Unsettled {
    /// The deadline passed.
    Late,
    /// The engine does not answer, for this reason.
    EngineLost(Arc<str>),
    /// The service is stopping.
    Stopping,
}

impl Unsettled {
    /// Puts it into the caller's words, where `late` says what was waited for.
    fn refusal(self, late: Refusal) -> Refusal {
        match self {
            Self::Late => late,
            Self::EngineLost(why) => Refusal::EngineUnavailable(why.to_string()),
            Self::Stopping => Refusal::ShuttingDown,
        }
    }
}

/// Where sandboxes are and how they are sampled.
#[derive(Debug)]
pub struct Place {
    /// The engine and the workspaces.
    pub host: Host,
    /// The ways to sandboxes.
    pub reacher: Reacher,
    /// What sandboxes use.
    pub sampler: Sampler,
    /// Whether images are fetched at start.
    pub prewarm: Prewarm,
    /// Where things are on the disk.
    pub disk: verify::Place,
    /// What workspaces take.
    pub disks: Disks,
    /// Bytes of the largest archive, before it is compressed.
    pub archive_bytes_max: u64,
}

/// Puts a commit that failed into the caller's words.
fn unwritten(error: &crate::store::CommitError) -> Refusal {
    refused(crate::reconcile::unwritten(error))
}

/// Puts a failure of the controller into the caller's words.
fn refused(failure: crate::reconcile::Failure) -> Refusal {
    use crate::reconcile::Failure;
    match failure {
        Failure::Refused(why) | Failure::Engine(why) => Refusal::StartFailed(why),
        Failure::Unavailable(why) => Refusal::EngineUnavailable(why),
        Failure::NoSpace(why) => Refusal::NoSpace(why),
        Failure::Store(why) => Refusal::StoreUnavailable(why),
    }
}

/// Puts the outcome of an intent to run into the caller's words.
fn running(id: &SessionId, outcome: Outcome) -> Result<(), Refusal> {
    match outcome {
        Outcome::Reached => Ok(()),
        Outcome::Failed(failure) => Err(refused(failure)),
        Outcome::Gone | Outcome::Overtaken => Err(Refusal::NoSession(id.clone())),
    }
}
