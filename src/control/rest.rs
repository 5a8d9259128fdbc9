//! Puts sessions to sleep and wakes them because somebody asks for it.

use std::time::Duration;

use tokio::time::Instant;

use super::live::NotLive;
use super::open::OPEN_WAIT_MAX;
use super::request::{Sampling, Viewer};
use super::{Control, Refusal, refused, unwritten};
use crate::id::SessionId;
use crate::reconcile::Outcome;
use crate::session::Fact;
use crate::session::record::{Reason, Record};
use crate::store::{Batch, CommitError, Expect};
use crate::wire::sessions::SessionInfo;

/// How long a caller waits for a sandbox to stop, which it does in any case.
const STOP_WAIT_MAX: Duration = Duration::from_secs(30);
/// How often a session is put to sleep anew when others change the same record.
const TRIES_MAX: usize = 16;

impl Control {
    /// Puts an open session to sleep, and waits until its sandbox has stopped; one that
    /// sleeps stays as it is.
    ///
    /// What is under way in it is never cut off: such a session is refused, and so is one
    /// whose container holds the only copy of its files.
    pub async fn hibernate(&self, id: &SessionId) -> Result<SessionInfo, Refusal> {
        for _ in 0..TRIES_MAX {
            let record = self
                .open_record(id)
                .ok_or_else(|| Refusal::NoSession(id.clone()))?;
            let sleeps = record.marks.parked.is_some();
            if !(sleeps && self.status(id).has_reached(&record.marks)) {
                self.engine_answers()?;
                let laid = if sleeps {
                    Laid::Down(record.marks.generation)
                } else {
                    self.lay(&record).await?
                };
                match laid {
                    Laid::Down(generation) => self.await_rest(id, generation).await?,
                    Laid::Overtaken => continue,
                }
            }
            return self.describe(id, Sampling::Off, Viewer::Service).await;
        }
        Err(Refusal::EngineUnavailable(
            "others wake the session each time it is put to sleep".to_owned(),
        ))
    }

    /// Wakes an open session that sleeps, and waits until its sandbox runs; one that runs
    /// stays as it is, and counts as used.
    pub async fn rouse(&self, id: &SessionId) -> Result<SessionInfo, Refusal> {
        let live = self.live(id, Instant::now() + OPEN_WAIT_MAX).await;
        drop(live.map_err(NotLive::refusal)?);
        self.describe(id, Sampling::Off, Viewer::Service).await
    }

    /// Writes down that a session is to sleep, while nothing can begin to use it.
    async fn lay(&self, record: &Record) -> Result<Laid, Refusal> {
        let id = &record.spec.id;
        let status = self.status(id);
        if status.incarnation == 0 && !status.has_reached(&record.marks) {
            return Err(Refusal::Opening(id.clone()));
        }
        if self.0.host.workspaces.is_none() {
            return Err(Refusal::SleepLosesFiles(id.clone()));
        }
        let Some(_exclusive) = self.0.loop_.leases.try_exclusive(id) else {
            return Err(self.in_use(id));
        };
        let now = self.0.books.clock.now();
        let marks = record.marks.parked(now, Reason::Requested);
        let generation = marks.generation;
        let fact = Fact::Hibernated.event(now, &record.spec, Some(Reason::Requested));
        let expect = Expect::Generation(record.marks.generation);
        let batch = Batch::new()
            .put_record(record.with(marks), expect)
            .event(None, fact);
        match self.0.books.store.commit(batch).await {
            Ok(_) => Ok(Laid::Down(generation)),
            Err(CommitError::Conflict(_)) => Ok(Laid::Overtaken),
            Err(error) => Err(unwritten(&error)),
        }
    }

    /// Waits until a sandbox that is to sleep has stopped.
    async fn await_rest(&self, id: &SessionId, generation: u64) -> Result<(), Refusal> {
        let deadline = Instant::now() + STOP_WAIT_MAX;
        match self.outcome(id, generation, deadline).await {
            Ok(Outcome::Reached) => Ok(()),
            Ok(Outcome::Failed(failure)) => Err(refused(failure)),
            Ok(Outcome::Gone | Outcome::Overtaken) => Err(Refusal::NoSession(id.clone())),
            Err(unsettled) => {
                let late = "the sandbox has not stopped yet, and still will".to_owned();
                Err(unsettled.refusal(Refusal::EngineUnavailable(late)))
            }
        }
    }

    /// Says what is under way in a session.
    fn in_use(&self, id: &SessionId) -> Refusal {
        let counted = [
            (self.0.loop_.leases.count(id), "operations under way"),
            (self.0.slots.count_in(id), "commands and terminals running"),
            (self.attached_ttys(id), "terminals attached"),
        ];
        let said = counted.iter().filter(|(n, _)| 0 < *n);
        let said: Vec<String> = said.map(|(n, what)| format!("{what}: {n}")).collect();
        Refusal::InUse {
            id: id.clone(),
            // Whatever it was, it may have ended while it was counted.
            by: if said.is_empty() {
                "an operation that ends at this moment".to_owned()
            } else {
                said.join(", ")
            },
        }
    }
}

/// Whether a session was put to sleep.
enum Laid {
    /// By this generation.
    Down(u64),
    /// Somebody changed it first.
    Overtaken,
}
