//! Holds the open sled database; nothing outside this file and the tree modules
//! speaks to sled.
//!
//! Three properties of sled 0.34.7 shape this file. Its flush is no fsync, so the
//! log file is synced through a descriptor of our own. A snapshot that was being
//! written when the process died is taken for the newest one, so it is removed
//! before each open. And it panics where a file is not as it left it, so every
//! call is guarded.

use std::any::Any;
use std::fs::{self, File};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use sled::Transactional as _;
use sled::transaction::{ConflictableTransactionError, TransactionError};
use tracing::warn;

use super::error::{Fault, ReadError};
use super::events::{self, Page, Span};
use super::mirror::Mirror;
use super::writes::{Durability, Tree, Writes};
use super::{desired, meta, runs, status};
use crate::id::SessionId;
use crate::session::record::Event;

/// Bytes of pages that the engine keeps in memory; reads are rare.
const CACHE_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// How often sled tidies up and syncs by itself, which no acknowledgement waits for:
/// seldom, so that an idle daemon neither wakes nor troubles the disk.
const TIDY_EVERY_MS: u64 = 5_000;
/// Tries to take the engine's lock while a handle of ours is going away.
const LOCK_TRIES_MAX: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// An open database. The handles of the engine print all that they hold, so there
/// is no `Debug`.
pub(super) struct Database {
    db: sled::Db,
    meta: sled::Tree,
    desired: sled::Tree,
    status: sled::Tree,
    events: sled::Tree,
    runs: sled::Tree,
    /// A second descriptor of the log, for `fdatasync` alone.
    log: File,
}

impl Database {
    /// Opens or creates the database in a directory that exists.
    pub(super) fn open(dir: &Path) -> Result<Self, Fault> {
        for partial in remove_partial_snapshots(dir).map_err(|error| Fault::from_io(&error))? {
            warn!(file = %partial.display(), "a snapshot was left half written and is removed");
        }
        guarded("open", || {
            let db = open_engine(dir)?;
            Ok(Self {
                meta: db.open_tree(meta::TREE)?,
                desired: db.open_tree(desired::TREE)?,
                status: db.open_tree(status::TREE)?,
                events: db.open_tree(events::TREE)?,
                runs: db.open_tree(runs::TREE)?,
                log: File::open(log_path(dir)).map_err(|error| Fault::from_io(&error))?,
                db,
            })
        })
    }

    /// Reads everything but the events; `None` when nothing was ever written.
    pub(super) fn load(&self) -> Result<Option<Mirror>, Fault> {
        guarded("read", || {
            let meta = meta::load(&self.meta)?;
            // Most of a start goes by in here, and the trees know nothing of one another.
            let (records, statuses, runs, logs) = thread::scope(|scope| {
                let statuses = scope.spawn(|| status::load(&self.status));
                let runs = scope.spawn(|| runs::load(&self.runs));
                let logs = scope.spawn(|| events::load(&self.events));
                let records = desired::load(&self.desired);
                (records, joined(statuses), joined(runs), joined(logs))
            });
            let (records, statuses, runs, logs) = (records?, statuses?, runs?, logs?);
            let is_empty =
                records.is_empty() && statuses.is_empty() && runs.is_empty() && logs.is_empty();
            match meta {
                Some(meta) => Ok(Some(Mirror {
                    meta,
                    records,
                    statuses,
                    runs,
                    logs,
                })),
                None if is_empty => Ok(None),
                None => Err(Fault::Corrupt(
                    "the store holds records but not its own identity".to_owned(),
                )),
            }
        })
    }

    /// Reads up to which number it holds what was in the journal.
    pub(super) fn journaled(&self) -> Result<u64, Fault> {
        guarded("read", || meta::journaled(&self.meta))
    }

    /// Applies all writes or none, and waits until they are as durable as asked.
    pub(super) fn apply(&self, writes: &Writes, durability: Durability) -> Result<(), Fault> {
        guarded("write", || {
            let batches = [
                Tree::Meta,
                Tree::Desired,
                Tree::Status,
                Tree::Events,
                Tree::Runs,
            ]
            .map(|tree| writes.batch(tree));
            let [to_meta, to_desired, to_status, to_events, to_runs] = &batches;
            let trees = (
                &self.meta,
                &self.desired,
                &self.status,
                &self.events,
                &self.runs,
            );
            trees
                .transaction(|(meta, desired, status, events, runs)| {
                    meta.apply_batch(to_meta)?;
                    desired.apply_batch(to_desired)?;
                    status.apply_batch(to_status)?;
                    events.apply_batch(to_events)?;
                    runs.apply_batch(to_runs)?;
                    Ok::<(), ConflictableTransactionError<()>>(())
                })
                .map_err(|error| match error {
                    TransactionError::Storage(error) => Fault::from(error),
                    TransactionError::Abort(()) => Fault::Io("a transaction aborted".to_owned()),
                })?;
            self.db.flush()?;
            match durability {
                Durability::Flushed => Ok(()),
                Durability::Synced => self.sync(),
            }
        })
    }

    /// Waits until what was flushed is on the disk.
    pub(super) fn sync(&self) -> Result<(), Fault> {
        self.log.sync_data().map_err(|error| Fault::from_io(&error))
    }

    /// Reads a page of a log.
    pub(super) fn events(
        &self,
        log: Option<&SessionId>,
        span: Span,
        after: u64,
        page: Page,
    ) -> Result<Vec<(u64, Event)>, ReadError> {
        let found = self.search(log, span, after, (page, &|_| true));
        found.map(|(events, _)| events)
    }

    /// Looks for events in a log; see [`events::search`].
    pub(super) fn search(
        &self,
        log: Option<&SessionId>,
        span: Span,
        after: u64,
        wanted: (Page, &dyn Fn(&Event) -> bool),
    ) -> Result<(Vec<(u64, Event)>, u64), ReadError> {
        let search = || events::search(&self.events, log, span, after, wanted);
        catch_unwind(AssertUnwindSafe(search)).unwrap_or_else(|panic| {
            Err(ReadError::Engine {
                reason: panic_text(&*panic),
            })
        })
    }

    /// Lets go of the database, however broken it is.
    pub(super) fn close(self) {
        let closed = guarded("close", || {
            drop(self);
            Ok(())
        });
        if let Err(fault) = closed {
            warn!(%fault, "the store did not close cleanly");
        }
    }
}

/// Returns the path of the engine's log.
pub(super) fn log_path(dir: &Path) -> PathBuf {
    dir.join("db")
}

fn open_engine(dir: &Path) -> Result<sled::Db, Fault> {
    let config = sled::Config::new()
        .path(dir)
        .cache_capacity(CACHE_BYTES_MAX)
        .flush_every_ms(Some(TIDY_EVERY_MS))
        .mode(sled::Mode::LowSpace);
    let mut tries = 1;
    loop {
        match config.open().map_err(Fault::from) {
            // Threads of a handle just dropped hold the lock for a moment.
            Err(Fault::Busy) if tries < LOCK_TRIES_MAX => {
                tries += 1;
                thread::sleep(LOCK_PAUSE);
            }
            opened => return opened,
        }
    }
}

/// Removes snapshots that were being written when a process died.
///
/// The engine would take one for the newest snapshot and report corruption. Its
/// log is what counts, so nothing is lost with them.
fn remove_partial_snapshots(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut removed = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("snap.") && name.ends_with(".generating") {
            fs::remove_file(entry.path())?;
            removed.push(entry.path());
        }
    }
    Ok(removed)
}

/// Turns a panic of the engine into a fault.
fn guarded<T>(doing: &str, work: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    // The handle is dropped after any fault, so a state it left half changed is
    // not looked at again.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        Err(Fault::Corrupt(format!(
            "the engine panicked on {doing}: {}",
            panic_text(&*panic)
        )))
    })
}

/// Waits for a thread; its panic goes on here.
fn joined<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    text.chars().take(200).collect()
}
