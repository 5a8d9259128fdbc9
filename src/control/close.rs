//! Ends sessions, with or without their files.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::request::WhenOpen;
use super::{Control, Refusal, unwritten};
use crate::id::{Nonce, SessionId};
use crate::reconcile::{Host, Outcome};
use crate::session::Fact;
use crate::session::record::{Marks, Purge, Reason, Record, Spec};
use crate::store::{Batch, CommitError, Expect};
use crate::workspace::Workspaces;

/// How long a caller waits for the end, which comes in any case; without an
/// engine it waits less.
const END_WAIT_MAX: Duration = Duration::from_secs(30);
/// How often a closing starts over when others change the same record.
const TRIES_MAX: usize = 16;

impl Control {
    /// Ends an open session, and waits until it has ended, for half a minute.
    pub async fn close(&self, id: &SessionId, purge: Purge) -> Result<(), Refusal> {
        self.end(id, |record| match (record, purge) {
            (Some(record), purge) if record.is_open() => Ok(Some(purge)),
            (Some(_) | None, _) => Err(Refusal::NoSession(id.clone())),
        })
        .await
    }

    /// Removes everything that an id ever had, whatever state it is in.
    ///
    /// That there was nothing is no error.
    pub async fn purge(&self, id: &SessionId, open: WhenOpen) -> Result<(), Refusal> {
        if self.0.books.store.record(id).is_none() && !self.has_files(id).await? {
            return self.knows_containers();
        }
        self.end(id, |record| {
            let is_open = record.is_some_and(Record::is_open);
            match (is_open, open) {
                (true, WhenOpen::Refuse) => Err(Refusal::StillOpen(id.clone())),
                (true, WhenOpen::Close) | (false, _) => Ok(Some(Purge::Yes)),
            }
        })
        .await
    }

    async fn has_files(&self, id: &SessionId) -> Result<bool, Refusal> {
        let Some(workspaces) = &self.0.host.workspaces else {
            return Ok(false);
        };
        self.has_workspaces()?;
        Host::on_disk(workspaces, id, Workspaces::exists)
            .await
            .map_err(|error| Refusal::EngineFailed(crate::cause::chain(&error)))
    }

    /// Writes down that a session is over, as `decide` says, and waits for it.
    async fn end(
        &self,
        id: &SessionId,
        decide: impl Fn(Option<&Record>) -> Result<Option<Purge>, Refusal>,
    ) -> Result<(), Refusal> {
        for _ in 0..TRIES_MAX {
            let before = self.0.books.store.record(id);
            let Some(purge) = decide(before.as_deref())? else {
                return Ok(());
            };
            let (record, expect) = self.ended(id, before, purge);
            let generation = record.marks.generation;
            let now = self.0.books.clock.now();
            let event = Fact::Closed.event(now, &record.spec, Some(Reason::Requested));
            let batch = Batch::new().put_record(record, expect).event(None, event);
            match self.0.books.store.commit(batch).await {
                Ok(_) => {
                    self.await_end_of(id, generation).await;
                    match purge {
                        Purge::Yes => self.0.disks.forget(id),
                        Purge::No => {}
                    }
                    return Ok(());
                }
                Err(CommitError::Conflict(_)) => {}
                Err(error) => return Err(unwritten(&error)),
            }
        }
        Err(Refusal::Closing(id.clone()))
    }

    /// The record of a session that is over, and what it replaces.
    fn ended(&self, id: &SessionId, before: Option<Arc<Record>>, purge: Purge) -> (Record, Expect) {
        let now = self.0.books.clock.now();
        if let Some(before) = before {
            let expect = Expect::Generation(before.marks.generation);
            let marks = before.marks.closed(now, purge, Reason::Requested);
            return (before.with(marks), expect);
        }
        // Files without a record, of an older installation: a record is made,
        // to be gone with them.
        let policy = self.0.policy.get();
        let alias = policy.catalogue.default_alias().clone();
        let runtime = policy
            .catalogue
            .get(&alias)
            .expect("the default is in the catalogue")
            .clone();
        let spec = Spec {
            id: id.clone(),
            alias,
            runtime,
            tenant: None,
            nonce: Nonce::random(),
            opened_at: now,
            order: self.0.books.store.next_order(),
        };
        let marks = Marks::opened(0, now).closed(now, purge, Reason::Requested);
        (Record { spec, marks }, Expect::Absent)
    }

    async fn await_end_of(&self, id: &SessionId, generation: u64) {
        let deadline = Instant::now() + END_WAIT_MAX;
        let mut generation = generation;
        loop {
            match self.outcome(id, generation, deadline).await {
                Ok(Outcome::Reached | Outcome::Gone) => return,
                // Somebody closed it again, and its end is waited for as theirs.
                Ok(Outcome::Overtaken) => match self.0.books.store.record(id) {
                    Some(record) if !record.is_open() => {
                        generation = record.marks.generation;
                    }
                    Some(_) | None => return,
                },
                // The intent stands, and the controller goes on.
                Ok(Outcome::Failed(_)) | Err(_) => {
                    tracing::info!(session = %id, "closed for its callers, and still being ended");
                    return;
                }
            }
        }
    }
}
