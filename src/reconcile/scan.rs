//! Goes round the workspaces and measures them, and stops what is over its ceiling.
//!
//! One at a time, a few entries and then a rest, on threads where blocking hurts nobody.
//! Measured are those of running sandboxes, those that were used since they were last
//! measured, and others once a day.

use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::books::Books;
use super::disks::{Disks, Figure, Pace};
use super::work::Work;
use crate::activity::Leases;
use crate::cause::chain;
use crate::id::SessionId;
use crate::policy::Current;
use crate::quantity::ByteSize;
use crate::session::Fact;
use crate::session::disk::{Candidate, Over, Writer, due, over};
use crate::session::record::Reason;
use crate::store::{Batch, CommitError, Expect};

/// How often a session is looked at again that changed while it was being stopped.
const TRIES_MAX: usize = 8;
/// Nobody's removal of a file brings the next round nearer than this.
const ROUND_REST: Duration = Duration::from_secs(1);

/// What goes round the workspaces.
#[derive(Clone, Debug)]
pub struct Scan {
    /// What is measured.
    pub disks: Disks,
    /// What is on record, and where a stop is written down.
    pub books: Books,
    /// When sessions were last used.
    pub leases: Leases,
    /// The ceilings.
    pub policy: Current,
    /// Where sessions are queued that are to stop.
    pub work: Work,
}

impl Scan {
    /// Goes round for as long as the daemon runs, `interval` apart.
    pub async fn run(self, interval: Duration, cancel: CancellationToken) {
        loop {
            tokio::select! {
                () = cancel.cancelled() => return,
                () = self.round(&cancel) => {}
            }
            // Where something is known to have changed, it is not waited for.
            let soon = async {
                self.disks.changed().await;
                sleep(ROUND_REST).await;
            };
            tokio::select! {
                () = cancel.cancelled() => return,
                () = sleep(interval) => {}
                () = soon => {}
            }
        }
    }

    async fn round(&self, cancel: &CancellationToken) {
        let Some(workspaces) = self.disks.workspaces().cloned() else {
            return;
        };
        let listed = match tokio::task::spawn_blocking(move || workspaces.homes()).await {
            Ok(listed) => listed,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        };
        let ids = match listed {
            Ok(ids) => ids,
            Err(error) => {
                debug!(error = %chain(&error), "workspaces could not be listed to be measured");
                return;
            }
        };
        self.disks.retain(&ids);
        let candidates = ids.into_iter().map(|id| self.candidate(id)).collect();
        for id in due(candidates, self.books.clock.now()) {
            let measured = self
                .disks
                .measure(&id, Pace::Background, cancel.child_token())
                .await;
            if let Some(figure) = measured {
                self.judge(&id, figure).await;
            }
        }
    }

    fn candidate(&self, id: SessionId) -> Candidate {
        let record = self.books.store.record(&id);
        let marks = record.as_ref().map(|record| &record.marks);
        let runs = marks.is_some_and(|marks| marks.closed.is_none() && marks.parked.is_none());
        let stored = marks.map(|marks| marks.last_used);
        let last_used = self.leases.last_used(&id).max(stored);
        let measured = self.disks.believed(&id);
        Candidate {
            writer: if runs { Writer::Sandbox } else { Writer::None },
            last_used,
            measured,
            id,
        }
    }

    /// Has a session stopped that is over its ceiling.
    async fn judge(&self, id: &SessionId, figure: Figure) {
        for _ in 0..TRIES_MAX {
            let Some(record) = self.books.store.record(id) else {
                return;
            };
            let status = self.books.store.status(id);
            let runs = status.is_some_and(|status| status.has_reached(&record.marks));
            // One that is on its way up is stopped by the next round: somebody waits for it.
            if !record.is_open() || record.marks.parked.is_some() || !runs {
                return;
            }
            let ceilings = self.policy.get().ceilings_of(&record.spec.runtime);
            let limit = ceilings.workspace_size.as_ref().map(ByteSize::bytes);
            let Some(Over { limit, used }) = over(limit, figure.bytes, 0) else {
                return;
            };
            let now = self.books.clock.now();
            let reason = Reason::WorkspaceFull;
            let mut event = Fact::WorkspaceFull.event(now, &record.spec, Some(reason));
            let facts = [("limit", limit), ("used", used)];
            event
                .facts
                .extend(facts.map(|(name, bytes)| (name.to_owned(), bytes.to_string())));
            let expect = Expect::Generation(record.marks.generation);
            let batch = Batch::new()
                .put_record(record.with(record.marks.parked(now, reason)), expect)
                .event(None, event);
            match self.books.store.commit(batch).await {
                Ok(_) => {
                    info!(session = %id, limit, used, "stopped: more lies in its workspace than may");
                    self.work.nudge_session(id);
                    return;
                }
                Err(CommitError::Conflict(_)) => {}
                Err(error) => {
                    warn!(session = %id, error = %chain(&error), "a session over its ceiling could not be stopped");
                    return;
                }
            }
        }
    }
}
