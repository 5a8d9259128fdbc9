//! Keeps what callers want and what was last seen, on disk, in sled.
//!
//! ```text
//!   Store::commit ──queue──▶ committer (one thread) ──▶ sled ──flush, fdatasync──▶ disk
//!                                 │ only then
//!                                 ▼
//!   Store::record, records ◀── mirror (memory)         then the caller is answered
//! ```
//!
//! Events of what callers did need not wait for that: [`Store::jot`] writes them into a
//! journal beside the database, from which the committer takes them.
//!
//! Readers look at the mirror, so they never see what a crash could take back.
//! Each tree has one module that knows its keys and values; all writes pass the
//! committer.

mod backup;
mod batch;
mod codec;
mod error;
mod handle;
mod health;
mod inventory;
mod open;
mod probe;

mod desired;
mod events;
mod meta;
mod runs;
mod status;

mod committer;
mod database;
mod mirror;
mod put_back;
mod restore;
mod shared;
mod stage;
mod tally;
mod trial;
mod writes;

mod ballast;
mod files;
mod journal;
mod lock;
mod marker;
mod watermark;

#[cfg(test)]
pub(crate) mod recording;
#[cfg(test)]
mod tests;

pub use backup::{BackupError, Contents, Lines, Snapshot};
pub use batch::{BATCH_OPS_MAX, Batch, Committed, Expect};
pub use codec::{CodecError, VALUE_BYTES_MAX};
pub use committer::COMMIT_QUEUE_MAX;
pub use error::{ClaimError, CloseError, CommitError, Conflict, OpenError, ReadError, RunFound};
pub use events::{
    EVENTS_PAGE_BYTES_MAX, EVENTS_PAGE_MAX, EVENTS_SCANNED_MAX, EventPage, Found, Page,
};
pub use handle::{EngineMatch, Store};
pub use health::Health;
pub use inventory::Inventory;
pub use marker::read as marked_instance;
pub use meta::{Progress, Rebuilt, SCHEMA};
pub use open::{EVENTS_PER_SESSION_MAX, OnCorrupt, OpenOptions, SERVICE_EVENTS_MAX};
pub use probe::{PROBE_SECS_MAX, Probe, ProbeError, probe};
pub use put_back::{Held, InPlace, PutBack, PutBackError};
pub use runs::{ExpectRun, RUNS_PER_SESSION_MAX, RunCause, RunEnded, StoredRun, TtySize};
