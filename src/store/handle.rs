//! Offers the store to the rest of the program: commits, and reads from memory.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard};
use std::thread::{self, JoinHandle};

use tokio::sync::{Semaphore, oneshot, watch};
use tracing::error;

use super::backup::Snapshot;
use super::batch::{Batch, Committed};
use super::committer::{COMMIT_QUEUE_MAX, Caller, Committer, Request, Waiting};
use super::error::{ClaimError, CloseError, CommitError, OpenError, ReadError};
use super::events::{EventPage, Found, Page};
use super::files::failed;
use super::health::Health;
use super::inventory::Inventory;
use super::meta::Rebuilt;
use super::mirror::Mirror;
use super::open::{self, OpenOptions, Opened};
use super::runs::{self, StoredRun};
use super::shared::{Queue, Shared, lock, read, write};
use crate::clock::Timestamp;
use crate::id::{InstanceId, RunId, SessionId};
use crate::news::{Listener, News};
use crate::session::record::{Event, Record, Status};

/// The store of one state directory; clones share it.
#[derive(Clone)]
pub struct Store(Arc<Handle>);

impl fmt::Debug for Store {
    /// Shows whose store it is and how it is, and nothing of what it holds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("instance", &self.0.instance)
            .field("health", &self.health())
            .field("n_records", &self.mirror().records.len())
            .finish_non_exhaustive()
    }
}

/// Whether the engine is the one that the containers were made on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineMatch {
    /// None was known; this one is written down.
    First,
    /// It is.
    Same,
    /// It is not; nothing was written down.
    Different {
        /// The engine that the store knows.
        stored: String,
    },
}

/// The far end of the committer, which it owns.
struct Handle {
    shared: Arc<Shared>,
    places: Arc<Semaphore>,
    /// `None` only while the handle is dropped.
    queue: Option<Queue>,
    committer: Mutex<Option<JoinHandle<()>>>,
    /// Closed when the committer ends.
    ended: watch::Receiver<()>,
    last_order: AtomicU64,
    /// From when on things age, in microseconds: the next batch says so.
    ages_from: AtomicU64,
    instance: InstanceId,
    set_aside: Option<PathBuf>,
}

impl Store {
    /// Opens the store of a state directory and starts its committer.
    ///
    /// Blocks for as long as the trial open and the real one take.
    pub fn open(options: &OpenOptions<'_>) -> Result<Self, OpenError> {
        let Opened {
            lock,
            database,
            mirror,
            ballast,
            recipe,
            watermark,
            journal,
            set_aside,
        } = open::open(options)?;
        let last_order = AtomicU64::new(mirror.order());
        let ages_from = AtomicU64::new(mirror.meta.ages_from.micros());
        let instance = mirror.meta.instance.clone();
        let log_end = mirror.service_log_end();
        let shared = Arc::new(Shared {
            mirror: RwLock::new(mirror),
            database: RwLock::new(Some(database)),
            health: RwLock::new(Health::Ok),
            retention: options.retention(),
            journal: Some(journal),
            revision: News::default(),
            log_end: watch::Sender::new(log_end),
        });
        let (queue, requests) = channel();
        let committer = Committer {
            shared: Arc::clone(&shared),
            requests,
            recipe,
            ballast,
            watermark,
            clock: options.clock.clone(),
            outage: None,
            tend_at: Timestamp::ZERO,
            lock,
        };
        let (alive, ended) = watch::channel(());
        let committer = start(committer, alive, options.dir)?;
        Ok(Self(Arc::new(Handle {
            shared,
            places: Arc::new(Semaphore::new(COMMIT_QUEUE_MAX)),
            queue: Some(Queue::Thread(queue, committer.thread().clone())),
            committer: Mutex::new(Some(committer)),
            ended,
            last_order,
            ages_from,
            instance,
            set_aside,
        })))
    }

    /// Makes a store whose batches are committed by a task of a test.
    #[cfg(test)]
    pub(super) fn over(
        shared: Arc<Shared>,
        queue: tokio::sync::mpsc::UnboundedSender<Request>,
        ended: watch::Receiver<()>,
    ) -> Self {
        let mirror = read(&shared.mirror);
        let (order, instance) = (mirror.order(), mirror.meta.instance.clone());
        let ages_from = AtomicU64::new(mirror.meta.ages_from.micros());
        drop(mirror);
        Self(Arc::new(Handle {
            shared,
            places: Arc::new(Semaphore::new(COMMIT_QUEUE_MAX)),
            queue: Some(Queue::Task(queue)),
            committer: Mutex::new(None),
            ended,
            last_order: AtomicU64::new(order),
            ages_from,
            instance,
            set_aside: None,
        }))
    }

    /// Commits a batch and waits until it is as durable as its kind promises.
    ///
    /// Records, statuses, identities and removals are on the disk then. Events and
    /// touches, where a batch holds nothing else, are out of this process: they
    /// survive its end but not a loss of power. Readers see the batch from then on.
    ///
    /// Dropping the future after its first poll may cancel nothing: a batch that is
    /// queued is committed.
    pub async fn commit(&self, batch: Batch) -> Result<Committed, CommitError> {
        let (reply, outcome) = oneshot::channel();
        self.queue(batch, Caller::Waits(reply)).await?;
        outcome.await.map_err(|_| CommitError::Closed)?
    }

    /// Has a batch committed within a moment, and waits for its place in the queue alone:
    /// for what nobody relies on, such as the event of a look at something.
    ///
    /// Whatever is committed afterwards comes after it, and so does a [`Store::settled`].
    pub async fn commit_soon(&self, batch: Batch) -> Result<(), CommitError> {
        self.queue(batch, Caller::Relies { journaled: None }).await
    }

    /// Has events committed within a moment, and returns when they are out of this
    /// process: they survive its end from then on, as with [`Store::commit`]. Gives the
    /// batch back where that is not possible here: it holds something else than events, or
    /// there is no room.
    ///
    /// Writes to a file, so this is for threads that may block.
    pub fn jot(&self, batch: Batch) -> Result<(), Batch> {
        let Ok(place) = Arc::clone(&self.0.places).try_acquire_owned() else {
            return Err(batch);
        };
        let Some(journal) = &self.0.shared.journal else {
            return Err(batch);
        };
        let queued = journal.append(batch, |batch, n| {
            self.send(Request::Commit(Waiting {
                batch,
                caller: Caller::Relies { journaled: Some(n) },
                _place: place,
            }))
        })?;
        // Where the committer has ended, the next start finds it in the journal.
        drop(queued);
        Ok(())
    }

    /// Waits until everything that was queued before is committed or has failed.
    pub async fn settled(&self) -> Result<(), CommitError> {
        self.commit(Batch::new()).await.map(drop)
    }

    async fn queue(&self, batch: Batch, caller: Caller) -> Result<(), CommitError> {
        let places = Arc::clone(&self.0.places);
        let place = places
            .acquire_owned()
            .await
            .map_err(|_| CommitError::Closed)?;
        self.send(Request::Commit(Waiting {
            batch: self.aged(batch),
            caller,
            _place: place,
        }))
    }

    /// Has a batch say from when on things age, unless that is on the disk.
    fn aged(&self, batch: Batch) -> Batch {
        let ages_from = Timestamp::from_micros(self.0.ages_from.load(Ordering::Relaxed));
        if self.ages_from() == ages_from {
            batch
        } else {
            batch.ages_from(ages_from)
        }
    }

    /// Returns the instant that nothing is taken to be older than; zero where there is none.
    pub fn ages_from(&self) -> Timestamp {
        self.mirror().meta.ages_from
    }

    /// Has nothing taken to be older than this instant, in later runs too.
    ///
    /// It is on the disk in a moment, and before whatever is committed from now on.
    pub fn age_from(&self, instant: Timestamp) {
        self.0.ages_from.store(instant.micros(), Ordering::Relaxed);
        let Ok(place) = Arc::clone(&self.0.places).try_acquire_owned() else {
            return;
        };
        let sent = self.send(Request::Commit(Waiting {
            batch: self.aged(Batch::new()),
            caller: Caller::Relies { journaled: None },
            _place: place,
        }));
        // Where the committer has ended, nothing is committed any more.
        drop(sent);
    }

    /// Returns the record of a session.
    pub fn record(&self, id: &SessionId) -> Option<Arc<Record>> {
        self.mirror().records.get(id).map(Arc::clone)
    }

    /// Returns every record, in the order of opening.
    pub fn records(&self) -> Vec<Arc<Record>> {
        let mut records: Vec<_> = self.mirror().records.values().map(Arc::clone).collect();
        records.sort_by_key(|record| record.spec.order);
        records
    }

    /// Returns every open record with its status, in the order of opening, as they were
    /// at one moment.
    pub fn open_entries(&self) -> Vec<(Arc<Record>, Option<Arc<Status>>)> {
        let mirror = self.mirror();
        // Both are in the order of the ids: one walk finds each status.
        let mut statuses = mirror.statuses.iter().peekable();
        let mut entries = Vec::new();
        for (id, record) in &mirror.records {
            if !record.is_open() {
                continue;
            }
            while statuses.next_if(|(other, _)| *other < id).is_some() {}
            let status = statuses.next_if(|(other, _)| *other == id);
            let status = status.map(|(_, status)| Arc::clone(status));
            entries.push((record.spec.order, Arc::clone(record), status));
        }
        drop(mirror);
        entries.sort_unstable_by_key(|(order, ..)| *order);
        let entries = entries.into_iter();
        entries
            .map(|(_, record, status)| (record, status))
            .collect()
    }

    /// Returns the status of a session.
    pub fn status(&self, id: &SessionId) -> Option<Arc<Status>> {
        self.mirror().statuses.get(id).map(Arc::clone)
    }

    /// Returns the runs of a session that were started in the background, the oldest
    /// first.
    pub fn runs(&self, session: &SessionId) -> Vec<Arc<StoredRun>> {
        let mirror = self.mirror();
        let runs = mirror.runs.range(runs::of(session));
        let mut runs: Vec<_> = runs.map(|(_, run)| Arc::clone(run)).collect();
        drop(mirror);
        runs.sort_by_key(|run| run.started_at);
        runs
    }

    /// Returns a run of a session.
    pub fn run(&self, session: &SessionId, run: &RunId) -> Option<Arc<StoredRun>> {
        let place = (session.clone(), run.clone());
        self.mirror().runs.get(&place).map(Arc::clone)
    }

    /// Returns every run that goes on, as far as is known, with its session.
    pub fn runs_going_on(&self) -> Vec<(SessionId, Arc<StoredRun>)> {
        let mirror = self.mirror();
        let runs = mirror.runs.iter().filter(|(_, run)| run.ended.is_none());
        runs.map(|((session, _), run)| (session.clone(), Arc::clone(run)))
            .collect()
    }

    /// Returns the runs whose ending was written down before a moment, with their
    /// sessions.
    pub fn runs_over_before(&self, moment: Timestamp) -> Vec<(SessionId, RunId)> {
        let is_old = |run: &StoredRun| {
            let ended = run.ended.as_ref();
            ended.is_some_and(|ended| ended.noted_at < moment)
        };
        let mirror = self.mirror();
        let runs = mirror.runs.iter().filter(|(_, run)| is_old(run));
        runs.map(|(place, _)| place.clone()).collect()
    }

    /// Returns everything that the store holds but the events, of one moment.
    pub fn inventory(&self) -> Inventory {
        let health = self.health();
        let mirror = self.mirror();
        let statuses = &mirror.statuses;
        let sessions = mirror.records.iter().map(|(id, record)| {
            let status = statuses.get(id).map(Arc::clone);
            (id.clone(), (Arc::clone(record), status))
        });
        Inventory {
            health,
            instance: mirror.meta.instance.clone(),
            token_key_id: mirror.meta.token_key_id.clone(),
            engine_id: mirror.meta.engine_id.clone(),
            sessions: sessions.collect(),
            runs: mirror.runs.keys().map(|(id, _)| id.clone()).collect(),
            logs: mirror.logs.keys().flatten().cloned().collect(),
        }
    }

    /// Returns everything that the store holds at one commit, but for the events.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.mirror().clone())
    }

    /// Returns the number of the last commit of a record, a status or a run.
    pub fn last_commit(&self) -> u64 {
        self.mirror().meta.commits()
    }

    /// Returns a number that changes with every change of a record or a status.
    pub fn revision(&self) -> u64 {
        self.0.shared.revision.changes()
    }

    /// Tells of each change of that number from now on.
    pub fn changes(&self) -> Listener {
        self.0.shared.revision.listen()
    }

    /// Returns the next place in the order of opening; never the same twice, also
    /// not after a restart if a record with it was committed.
    pub fn next_order(&self) -> u64 {
        // Records that were made anew have places of their own.
        let given = self.mirror().meta.order;
        self.0.last_order.fetch_max(given, Ordering::Relaxed);
        self.0.last_order.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Reads a page of the events after `after` from a session's log, or the service's.
    ///
    /// Reads the disk where the page is not in memory. A page holds at most
    /// `EVENTS_PAGE_MAX` events, and fewer where they are large; never none while
    /// there is one.
    pub fn events(
        &self,
        session: Option<&SessionId>,
        after: u64,
        page: Page,
    ) -> Result<EventPage, ReadError> {
        let Some(span) = self.mirror().logs.get(&session.cloned()).copied() else {
            return Ok(EventPage {
                events: Vec::new(),
                latest_seq: 0,
                first_seq: 0,
            });
        };
        let database = read(&self.0.shared.database);
        let database = database.as_ref().ok_or(ReadError::Unavailable)?;
        Ok(EventPage {
            events: database.events(session, span, after, page)?,
            latest_seq: span.latest,
            first_seq: span.first,
        })
    }

    /// Looks for events that fit, after `after`, in the service's log.
    ///
    /// Reads the disk. A look goes through at most `EVENTS_SCANNED_MAX` events and returns
    /// as many as a page holds: whoever wants more looks again, behind what was seen.
    pub fn search_service_log(
        &self,
        after: u64,
        page: Page,
        fits: &dyn Fn(&Event) -> bool,
    ) -> Result<Found, ReadError> {
        let Some(span) = self.mirror().logs.get(&None).copied() else {
            return Ok(Found {
                events: Vec::new(),
                seen: after,
                latest_seq: 0,
                first_seq: 0,
            });
        };
        let database = read(&self.0.shared.database);
        let database = database.as_ref().ok_or(ReadError::Unavailable)?;
        let (events, seen) = database.search(None, span, after, (page, fits))?;
        Ok(Found {
            events,
            seen,
            latest_seq: span.latest,
            first_seq: span.first,
        })
    }

    /// Returns the last sequence number of the service's log, 0 where there is none, and
    /// tells of each change of it from now on.
    pub fn service_log_end(&self) -> watch::Receiver<u64> {
        self.0.shared.log_end.subscribe()
    }

    /// Tells whether the store takes writes.
    pub fn health(&self) -> Health {
        read(&self.0.shared.health).clone()
    }

    /// Returns what marks everything that this state directory owns.
    pub fn instance(&self) -> &InstanceId {
        &self.0.instance
    }

    /// Returns where a corrupt store was set aside at this open, if one was.
    pub fn recovered(&self) -> Option<&Path> {
        self.0.set_aside.as_deref()
    }

    /// Returns how far the records of a lost store are made anew, while that is not
    /// done and confirmed.
    pub fn rebuilt(&self) -> Option<Rebuilt> {
        self.mirror().meta.rebuilt.clone()
    }

    /// Returns whether the records of a lost store were made anew, and nobody has
    /// confirmed them.
    pub fn is_unconfirmed(&self) -> bool {
        let rebuilt = &self.mirror().meta.rebuilt;
        rebuilt.as_ref().is_some_and(|rebuilt| !rebuilt.confirmed)
    }

    /// Binds the store to another engine than before.
    pub async fn accept_engine_id(&self, id: &str) -> Result<(), ClaimError> {
        self.claim(Batch::new().put_engine_id(id.to_owned())).await
    }

    /// Returns the engine that the store was used with.
    pub fn engine_id(&self) -> Option<String> {
        self.mirror().meta.engine_id.clone()
    }

    /// Binds the store to a token key at the first call; later ones must name it.
    pub async fn claim_key_id(&self, id: &str) -> Result<(), ClaimError> {
        let stored = self.mirror().meta.token_key_id.clone();
        match stored {
            Some(stored) if stored == id => Ok(()),
            Some(stored) => Err(ClaimError::KeyMismatch {
                stored,
                offered: id.to_owned(),
            }),
            None => self.claim(Batch::new().put_key_id(id.to_owned())).await,
        }
    }

    /// Binds the store to an engine at the first call; later ones compare.
    ///
    /// To accept another engine for good, there is [`Store::accept_engine_id`].
    pub async fn claim_engine_id(&self, id: &str) -> Result<EngineMatch, ClaimError> {
        let stored = self.mirror().meta.engine_id.clone();
        match stored {
            Some(stored) if stored == id => Ok(EngineMatch::Same),
            // Earlier builds wrote the first word of it, which is all they compared.
            Some(stored) if id.split(' ').next() == Some(stored.as_str()) => {
                self.claim(Batch::new().put_engine_id(id.to_owned()))
                    .await?;
                Ok(EngineMatch::Same)
            }
            Some(stored) => Ok(EngineMatch::Different { stored }),
            None => {
                self.claim(Batch::new().put_engine_id(id.to_owned()))
                    .await?;
                Ok(EngineMatch::First)
            }
        }
    }

    /// Commits what is queued, closes the database and gives the state directory up.
    ///
    /// Later commits fail with [`CommitError::Closed`]; records can still be read. A
    /// second close does nothing.
    pub async fn close(&self) -> Result<(), CloseError> {
        self.0.places.close();
        let (closing, closed) = oneshot::channel();
        let synced = match self.send(Request::Close(closing)) {
            Ok(()) => closed.await.unwrap_or(Ok(())),
            Err(_) => Ok(()),
        };
        let committer = lock(&self.0.committer).take();
        if let Some(committer) = committer {
            let joined = tokio::task::spawn_blocking(move || committer.join()).await;
            if !matches!(joined, Ok(Ok(()))) {
                return Err(CloseError::Panicked);
            }
        }
        synced.map_err(|fault| CloseError::Sync {
            reason: fault.to_string(),
        })
    }

    /// Waits until the committer has ended, be it by a close or by a panic.
    ///
    /// Nothing can be committed from then on: unless the store was closed, the
    /// process should end.
    pub async fn ended(&self) {
        let mut ended = self.0.ended.clone();
        while ended.changed().await.is_ok() {}
    }

    async fn claim(&self, batch: Batch) -> Result<(), ClaimError> {
        self.commit(batch)
            .await
            .map(drop)
            .map_err(ClaimError::Commit)
    }

    fn mirror(&self) -> RwLockReadGuard<'_, Mirror> {
        read(&self.0.shared.mirror)
    }

    fn send(&self, request: Request) -> Result<(), CommitError> {
        let queue = self.0.queue.as_ref().ok_or(CommitError::Closed)?;
        queue.send(request)
    }
}

impl Drop for Handle {
    /// Ends the committer, after what is queued, where nobody closed the store.
    fn drop(&mut self) {
        if let Some(Queue::Thread(queue, thread)) = self.queue.take() {
            drop(queue);
            thread.unpark();
        }
        let committer = lock(&self.committer).take();
        if let Some(committer) = committer
            && committer.join().is_err()
        {
            error!("the committer of the store panicked");
        }
    }
}

fn start(
    committer: Committer,
    alive: watch::Sender<()>,
    dir: &Path,
) -> Result<JoinHandle<()>, OpenError> {
    let shared = Arc::clone(&committer.shared);
    thread::Builder::new()
        .name("store".to_owned())
        .spawn(move || {
            let run = AssertUnwindSafe(|| committer.run());
            let outcome = catch_unwind(run);
            if outcome.is_err() {
                *write(&shared.health) = Health::degraded("the committer panicked");
            }
            drop(alive);
            if let Err(panic) = outcome {
                resume_unwind(panic);
            }
        })
        .map_err(failed("start the committer for", dir))
}
