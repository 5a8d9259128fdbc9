//! Commits batches in groups, one after the other, and reopens the database when it
//! fails.
//!
//! Everybody queued while one flush runs shares the next. What nobody waits for may wait a
//! moment for more of its kind, so that many small events cost one flush. After any fault the
//! handle is dropped, since the engine refuses every later write on it, and a
//! fresh one is opened and brought back to what was acknowledged.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tracing::{error, info, warn};

use super::ballast::Ballast;
use super::batch::{Batch, Committed};
use super::database::Database;
use super::error::{CommitError, Fault};
use super::health::Health;
use super::lock::Lock;
use super::meta::{Meta, put_journaled, put_tally};
use super::mirror::Changes;
use super::probe::Probe;
use super::restore::restore;
use super::shared::{Shared, read, write};
use super::stage::Staged;
use super::tally::Tally;
use super::watermark::Watermark;
use super::writes::{Durability, Writes};
use crate::cause::chain;
use crate::clock::{Clock, Timestamp};

/// Batches that may wait for the committer; further callers wait to queue.
pub const COMMIT_QUEUE_MAX: usize = 1_024;
/// Batches that share one flush.
const GROUP_MAX: usize = 256;
/// Attempts at one group before its callers are told.
const ATTEMPTS_MAX: u32 = 3;
const ATTEMPT_PAUSE: Duration = Duration::from_millis(20);
const REOPEN_PAUSE_MIN: Duration = Duration::from_millis(250);
const REOPEN_PAUSE_MAX: Duration = Duration::from_secs(5);
/// How often to look whether there is space for the reserve again.
const RESERVE_PAUSE: Duration = Duration::from_secs(2);
/// How long what nobody waits for may wait for more.
const LINGER_MAX: Duration = Duration::from_millis(20);

/// What the committer is asked for.
#[derive(Debug)]
pub(super) enum Request {
    Commit(Waiting),
    Close(oneshot::Sender<Result<(), Fault>>),
}

/// A batch and whoever waits for it.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) batch: Batch,
    pub(super) caller: Caller,
    /// The batch's place in the queue.
    pub(super) _place: OwnedSemaphorePermit,
}

impl Waiting {
    pub(super) fn is_awaited(&self) -> bool {
        matches!(self.caller, Caller::Waits(_))
    }
}

/// Whoever asked for a batch.
#[derive(Debug)]
pub(super) enum Caller {
    /// Waits for the outcome.
    Waits(oneshot::Sender<Result<Committed, CommitError>>),
    /// Has gone on.
    Relies {
        /// The number of the batch in the journal, if it is there.
        journaled: Option<u64>,
    },
}

/// How the database is opened, the first time and again.
#[derive(Debug)]
pub(super) struct Recipe {
    pub(super) database_dir: PathBuf,
    pub(super) probe: Probe,
    pub(super) probe_deadline: Duration,
}

/// The one that writes.
pub(super) struct Committer {
    pub(super) shared: Arc<Shared>,
    pub(super) requests: Receiver<Request>,
    pub(super) recipe: Recipe,
    pub(super) ballast: Ballast,
    pub(super) watermark: Watermark,
    pub(super) clock: Clock,
    pub(super) outage: Option<Outage>,
    /// When to look after the reserve next, if there is none.
    pub(super) tend_at: Timestamp,
    /// The claim on the state directory ends after the database is closed.
    pub(super) lock: Lock,
}

/// A fault that still stands.
#[derive(Debug)]
pub(super) struct Outage {
    fault: Fault,
    pause: Duration,
    retry_at: Timestamp,
}

enum Wake {
    Group(Vec<Waiting>, Option<oneshot::Sender<Result<(), Fault>>>),
    Close(oneshot::Sender<Result<(), Fault>>),
    Tick,
    Abandoned,
}

impl Committer {
    /// Commits until the store is closed or dropped.
    pub(super) fn run(mut self) {
        self.report();
        loop {
            match self.next() {
                Wake::Group(group, None) => {
                    self.commit(group);
                    // Without a pause between requests there is no tick.
                    if self.tend_at <= self.clock.now() {
                        self.tend();
                    }
                }
                Wake::Group(group, Some(closing)) => {
                    self.commit(group);
                    return self.close(Some(closing));
                }
                Wake::Close(closing) => return self.close(Some(closing)),
                Wake::Tick => self.tend(),
                Wake::Abandoned => return self.close(None),
            }
        }
    }

    fn next(&self) -> Wake {
        let first = match self.pause() {
            None => self.requests.recv().map_err(|_| Wake::Abandoned),
            Some(pause) => self
                .requests
                .recv_timeout(pause)
                .map_err(|error| match error {
                    RecvTimeoutError::Timeout => Wake::Tick,
                    RecvTimeoutError::Disconnected => Wake::Abandoned,
                }),
        };
        let mut group = match first {
            Ok(Request::Commit(waiting)) => vec![waiting],
            Ok(Request::Close(closing)) => return Wake::Close(closing),
            Err(wake) => return wake,
        };
        let linger_until = self.clock.now().plus(LINGER_MAX);
        let mut lingers = true;
        while group.len() < GROUP_MAX {
            match self.requests.try_recv() {
                Ok(Request::Commit(waiting)) => group.push(waiting),
                Ok(Request::Close(closing)) => return Wake::Group(group, Some(closing)),
                // Nobody else is waiting; who has left is noticed next time.
                Err(_) if !lingers || group.iter().any(Waiting::is_awaited) => break,
                Err(_) => lingers = self.linger(linger_until),
            }
        }
        Wake::Group(group, None)
    }

    /// Sleeps until somebody waits, and says whether there is time left for that. Who does
    /// not wait does not wake it either.
    fn linger(&self, until: Timestamp) -> bool {
        thread::park_timeout(until.since(self.clock.now()));
        self.clock.now() < until
    }

    /// Returns how long to wait for a request before looking after ourselves; a
    /// healthy store waits without waking up.
    fn pause(&self) -> Option<Duration> {
        let outage = self.outage.as_ref().map(|outage| outage.pause);
        let reserve = (!self.ballast.is_kept()).then_some(RESERVE_PAUSE);
        outage.or(reserve)
    }

    fn commit(&mut self, group: Vec<Waiting>) {
        let mut staged = Staged::default();
        let mut outcomes = Vec::with_capacity(group.len());
        let mut journaled = None;
        {
            let mirror = read(&self.shared.mirror);
            for waiting in group {
                let max = self.shared.retention;
                let outcome = staged.add(&mirror, waiting.batch, max);
                if let Caller::Relies { journaled: Some(n) } = &waiting.caller {
                    journaled = Some(*n);
                }
                outcomes.push((waiting.caller, outcome));
            }
        }
        if !staged.writes.is_empty()
            && let Err(fault) = self.carry_out(staged, journaled)
        {
            for (caller, _) in outcomes {
                answer(caller, Err(fault.clone().into()));
            }
            return;
        }
        for (caller, outcome) in outcomes {
            answer(caller, outcome);
        }
        if let (Some(n), Some(journal)) = (journaled, &self.shared.journal) {
            journal.committed(n);
        }
    }

    /// Writes a group, with its number, and shows it to readers.
    fn carry_out(&mut self, staged: Staged, journaled: Option<u64>) -> Result<(), Fault> {
        let Staged {
            mut changes,
            mut writes,
            durability,
        } = staged;
        let numbered = match durability {
            Durability::Synced => Some(self.number(&mut changes, &mut writes)?),
            // Events and uses change no sum, and a loss of power may take them back.
            Durability::Flushed => None,
        };
        if let Some(n) = journaled {
            put_journaled(&mut writes, n)?;
        }
        self.persist(&writes, durability)?;
        self.shared.absorb(changes);
        if let Some(commits) = numbered {
            self.watermark.note(commits);
        }
        Ok(())
    }

    /// Gives a group the next number, with what the rows add up to after it.
    fn number(&self, changes: &mut Changes, writes: &mut Writes) -> Result<u64, Fault> {
        let mirror = read(&self.shared.mirror);
        let tally = Tally::after(&mirror, changes);
        let meta = changes.meta.take().unwrap_or_else(|| mirror.meta.clone());
        changes.meta = Some(Meta {
            tally: Some(tally),
            ..meta
        });
        put_tally(writes, tally)?;
        Ok(tally.commits)
    }

    /// Writes until it succeeds or the attempts are used up.
    fn persist(&mut self, writes: &Writes, durability: Durability) -> Result<(), Fault> {
        if let Some(outage) = &self.outage
            && self.clock.now() < outage.retry_at
        {
            return Err(outage.fault.clone());
        }
        let mut attempt = 1;
        loop {
            let Err(fault) = self.attempt(writes, durability) else {
                self.recovered();
                return Ok(());
            };
            self.suffer(fault.clone());
            if ATTEMPTS_MAX <= attempt {
                return Err(fault);
            }
            thread::sleep(ATTEMPT_PAUSE * attempt);
            attempt += 1;
        }
    }

    fn attempt(&self, writes: &Writes, durability: Durability) -> Result<(), Fault> {
        self.ensure_open()?;
        match &*read(&self.shared.database) {
            Some(database) => database.apply(writes, durability),
            None => Err(Fault::Io("the store is not open".to_owned())),
        }
    }

    /// Opens the database again if a fault has closed it.
    fn ensure_open(&self) -> Result<(), Fault> {
        if read(&self.shared.database).is_some() {
            return Ok(());
        }
        let recipe = &self.recipe;
        recipe
            .probe
            .run(&recipe.database_dir, None, recipe.probe_deadline)?;
        let database = Database::open(&recipe.database_dir)?;
        let restored = restore(&database, &read(&self.shared.mirror), self.clock.now());
        match restored {
            Ok(changes) => {
                self.shared.absorb(changes);
                *write(&self.shared.database) = Some(database);
                Ok(())
            }
            Err(fault) => {
                database.close();
                Err(fault)
            }
        }
    }

    /// Takes note of a fault and lets go of the poisoned handle.
    fn suffer(&mut self, fault: Fault) {
        let poisoned = write(&self.shared.database).take();
        if let Some(database) = poisoned {
            database.close();
        }
        if fault == Fault::NoSpace {
            self.ballast.spend();
        }
        let pause = if let Some(outage) = &self.outage {
            REOPEN_PAUSE_MAX.min(outage.pause * 2)
        } else {
            warn!(%fault, "the store takes no writes");
            REOPEN_PAUSE_MIN
        };
        self.outage = Some(Outage {
            fault,
            pause,
            retry_at: self.clock.now().plus(pause),
        });
        self.report();
    }

    fn recovered(&mut self) {
        if self.outage.take().is_some() {
            info!("the store takes writes again");
            self.report();
        }
    }

    /// Tries to end an outage, and to have a reserve again.
    fn tend(&mut self) {
        if self.outage.is_some() {
            match self.ensure_open() {
                Ok(()) => self.recovered(),
                Err(fault) => self.suffer(fault),
            }
        }
        if self.outage.is_none() && !self.ballast.is_kept() {
            self.ballast.remake();
            self.report();
        }
        self.tend_at = self.clock.now().plus(RESERVE_PAUSE);
    }

    /// Publishes how the store is.
    fn report(&self) {
        let health = match &self.outage {
            Some(Outage {
                fault: fault @ Fault::NoSpace,
                ..
            }) => Health::full(&fault.to_string()),
            Some(outage) => Health::degraded(&outage.fault.to_string()),
            None if self.ballast.is_kept() => Health::Ok,
            None => Health::full("little space is left on the file system of the store"),
        };
        let mut published = write(&self.shared.health);
        if *published != health {
            *published = health;
        }
    }

    fn close(self, closing: Option<oneshot::Sender<Result<(), Fault>>>) {
        let database = write(&self.shared.database).take();
        let synced = match database {
            // Events and uses were flushed only.
            Some(database) => {
                let synced = database.sync();
                database.close();
                synced
            }
            None => Ok(()),
        };
        *write(&self.shared.health) = Health::degraded("the store is closed");
        drop(self.lock);
        match closing {
            Some(closing) => {
                if let Err(Err(fault)) = closing.send(synced) {
                    error!(%fault, "the last sync of the store failed");
                }
            }
            None => {
                if let Err(fault) = synced {
                    error!(%fault, "the last sync of the store failed");
                }
            }
        }
    }
}

pub(super) fn answer(caller: Caller, outcome: Result<Committed, CommitError>) {
    match (caller, outcome) {
        // The caller may have gone; what it asked for stands all the same.
        (Caller::Waits(reply), outcome) => drop(reply.send(outcome)),
        (Caller::Relies { .. }, Ok(_)) => {}
        (Caller::Relies { .. }, Err(error)) => {
            warn!(error = %chain(&error), "an event could not be written down");
        }
    }
}
