//! Gets a running sandbox for an operation, waking it where it sleeps.

use tokio::time::{Instant, timeout_at};

use super::open::{Begun, refusal};
use super::{Control, Refusal, running};
use crate::activity::Lease;
use crate::id::SessionId;
use crate::session::admission::{Ask, admit};
use crate::session::record::{Marks, Notice, Record};
use crate::store::{Batch, Expect};

/// How often a sandbox is looked for again that ended just then.
const TRIES_MAX: usize = 8;

/// A running sandbox that nothing stops while this is held.
#[derive(Debug)]
pub(super) struct Live {
    /// The engine's id of the container.
    pub(super) container: String,
    /// The reset that this operation's reply is the first to tell of.
    pub(super) reset: Option<(u64, Notice)>,
    /// Keeps it running.
    _lease: Lease,
}

impl Control {
    /// Gets a session's running sandbox, at the latest by `deadline`.
    pub(super) async fn live(&self, id: &SessionId, deadline: Instant) -> Result<Live, Refusal> {
        self.engine_answers()?;
        for _ in 0..TRIES_MAX {
            let lease = timeout_at(deadline, self.0.loop_.leases.shared(id))
                .await
                .map_err(|_| late())?;
            let record = self
                .open_record(id)
                .ok_or_else(|| Refusal::NoSession(id.clone()))?;
            let status = self.status(id);
            let reached = record.marks.generation <= status.reached;
            match (&record.marks.parked, reached, &status.container) {
                (Some(_), _, _) => {
                    let generation = match self.wake(&record).await {
                        Ok(generation) => generation,
                        Err(Begun::Overtaken) => continue,
                        Err(Begun::Refused(refusal)) => return Err(refusal),
                    };
                    self.await_running(id, generation, deadline).await?;
                }
                (None, false, _) | (None, true, None) => {
                    let generation = record.marks.generation;
                    self.await_running(id, generation, deadline).await?;
                }
                (None, true, Some(container)) => {
                    let notice = self.0.roll.tell(id, &status);
                    return Ok(Live {
                        container: container.clone(),
                        reset: notice.map(|notice| (status.incarnation, notice)),
                        _lease: lease,
                    });
                }
            }
        }
        Err(late())
    }

    async fn await_running(
        &self,
        id: &SessionId,
        generation: u64,
        deadline: Instant,
    ) -> Result<(), Refusal> {
        match self.outcome(id, generation, deadline).await {
            Ok(outcome) => running(id, outcome),
            Err(unsettled) => Err(unsettled.refusal(late())),
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
        let marks = Marks {
            generation: record.marks.generation + 1,
            last_used: now,
            parked: None,
            ..record.marks.clone()
        };
        let generation = marks.generation;
        let spec = record.spec.clone();
        let expect = Expect::Generation(record.marks.generation);
        let batch = Batch::new().put_record(Record { spec, marks }, expect);
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
