//! Gets a running sandbox for an operation, waking it where it sleeps.

use std::sync::Arc;

use tokio::time::{Instant, timeout_at};

use super::open::{Begun, refusal};
use super::{Control, Refusal, Unsettled, running};
use crate::activity::Lease;
use crate::id::SessionId;
use crate::reconcile::Host;
use crate::session::admission::{Ask, admit};
use crate::session::record::{Notice, Record, Status};
use crate::store::{Batch, Expect};
use crate::workspace::Workspaces;

/// How often a sandbox is looked for again that ended just then.
const TRIES_MAX: usize = 8;

/// A running sandbox that nothing stops while this is held.
#[derive(Debug)]
pub(super) struct Live {
    /// The engine's id of the container.
    pub(super) container: String,
    /// The reset that the next reply is to tell of, unless another was faster.
    pub(super) reset: Option<(u64, Notice)>,
    /// Keeps it running.
    _lease: Lease,
}

/// Why there is no running sandbox for an operation.
#[derive(Debug)]
pub(super) enum NotLive {
    /// The operation's time ran out while the session was being woken.
    Late,
    /// There will be none.
    Refused(Refusal),
}

impl NotLive {
    /// Puts it into the words of a caller that knows no deadline of its own.
    pub(super) fn refusal(self) -> Refusal {
        match self {
            Self::Late => late(),
            Self::Refused(refusal) => refusal,
        }
    }
}

impl From<Refusal> for NotLive {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Control {
    /// Gets a session's running sandbox, at the latest by `deadline`.
    ///
    /// A running sandbox whose agent answers is had without the engine.
    pub(super) async fn live(&self, id: &SessionId, deadline: Instant) -> Result<Live, NotLive> {
        if !self.goes_on_alone(id) {
            self.engine_answers()?;
        }
        let mut looked = false;
        for _ in 0..TRIES_MAX {
            let lease = timeout_at(deadline, self.0.loop_.leases.shared(id))
                .await
                .map_err(|_| NotLive::Late)?;
            let Some((status, container)) = self.awake(id) else {
                if let Err(refused) = Box::pin(self.wake_up(id, deadline)).await {
                    // What is refused keeps nothing awake.
                    lease.void();
                    return Err(refused);
                }
                continue;
            };
            if !looked && self.has_lost_its_files(id).await {
                // Once: where it is in use, it goes on as it is.
                looked = true;
                drop(lease);
                self.look(id, deadline).await;
                continue;
            }
            return Ok(Live {
                container,
                reset: status.notice.map(|notice| (status.incarnation, notice)),
                _lease: lease,
            });
        }
        Err(NotLive::Late)
    }

    /// Returns the container of a session that is awake, and what else is known of it.
    fn awake(&self, id: &SessionId) -> Option<(Arc<Status>, String)> {
        let record = self.open_record(id)?;
        let status = self.status(id);
        let is_awake = record.marks.parked.is_none() && status.has_reached(&record.marks);
        let container = status.container.clone().filter(|_| is_awake)?;
        Some((status, container))
    }

    /// Wakes a session where it sleeps, and waits until it runs.
    async fn wake_up(&self, id: &SessionId, deadline: Instant) -> Result<(), NotLive> {
        let record = self
            .open_record(id)
            .ok_or_else(|| Refusal::NoSession(id.clone()))?;
        let generation = if record.marks.parked.is_some() {
            // Nobody gives way for what cannot start.
            self.has_workspaces()?;
            self.may_wake(&record).await?;
            let woken = timeout_at(deadline, self.wake(&record)).await;
            match woken.map_err(|_| NotLive::Late)? {
                Ok(generation) => generation,
                Err(Begun::Overtaken) => return Ok(()),
                Err(Begun::Refused(refusal)) => return Err(refusal.into()),
            }
        } else {
            record.marks.generation
        };
        self.await_running(id, generation, deadline).await
    }

    /// Whether a session's sandbox runs and is reached whatever becomes of the engine.
    ///
    /// Behind another engine nothing is done: the sandbox may be started anew there.
    fn goes_on_alone(&self, id: &SessionId) -> bool {
        if self.0.loop_.engine.changed().is_some() {
            return false;
        }
        let status = self.status(id);
        let runs = self.open_record(id).is_some_and(|record| {
            record.marks.parked.is_none() && status.has_reached(&record.marks)
        });
        let container = status.container.as_ref().filter(|_| runs);
        container.is_some_and(|container| self.0.reacher.has_dialed(id, container))
    }

    /// Whether a session's workspace was removed by somebody else.
    async fn has_lost_its_files(&self, id: &SessionId) -> bool {
        match &self.0.host.workspaces {
            // What cannot be seen is not lost.
            Some(workspaces) => matches!(
                Host::on_disk(workspaces, id, Workspaces::exists).await,
                Ok(false)
            ),
            None => false,
        }
    }

    async fn await_running(
        &self,
        id: &SessionId,
        generation: u64,
        deadline: Instant,
    ) -> Result<(), NotLive> {
        match self.outcome(id, generation, deadline).await {
            Ok(outcome) => Ok(running(id, outcome)?),
            Err(Unsettled::Late) => Err(NotLive::Late),
            Err(unsettled) => Err(unsettled.refusal(late()).into()),
        }
    }

    /// Writes down that a sleeping session is wanted again.
    async fn wake(&self, record: &Record) -> Result<u64, Begun> {
        let _admission = self.0.admission.lock().await;
        let id = &record.spec.id;
        let policy = self.0.policy.get();
        let now = self.0.books.clock.now();
        let admission = admit(
            &self.census(),
            &policy.capacity,
            &Ask::Wake(id.clone()),
            now,
        )
        .map_err(|denied| Begun::Refused(refusal(denied, Some(id))))?;
        let marks = record.marks.woken(now);
        let generation = marks.generation;
        let expect = Expect::Generation(record.marks.generation);
        // Who failed before and was at rest since would be counted as failing.
        let batch = Batch::new()
            .put_record(record.with(marks), expect)
            .afresh(id);
        self.commit_with(batch, &admission).await?;
        Ok(generation)
    }

    /// Has a session looked at, and waits for the end of that look.
    pub(super) async fn look(&self, id: &SessionId, deadline: Instant) {
        let look = self.0.loop_.tickets.look(id);
        self.0.loop_.work.nudge_session(id);
        match timeout_at(deadline, look).await {
            // Seen, or the service stops, or time is up: whoever asked looks
            // at the record next in any case.
            Ok(Ok(()) | Err(_)) | Err(_) => {}
        }
    }
}

fn late() -> Refusal {
    Refusal::EngineUnavailable("the sandbox was not running in time".to_owned())
}
