//! Writes down what the controller saw, decided and did, each time in one batch.

use std::collections::BTreeMap;

use crate::clock::Clock;
use crate::id::ContainerKey;
use crate::session::record::{Closed, Event, Marks, Notice, Parked, Purge, Reason, Record, Status};
use crate::store::{Batch, CommitError, Conflict, Expect, Store};

use super::observe::Sight;
use super::plan::{Container, Fate, Life};
use crate::session::lifecycle::Aim;

/// The store as the controller writes it; cheap to clone.
#[derive(Clone, Debug)]
pub struct Books {
    /// The store.
    pub store: Store,
    /// What time it is when something is written.
    pub clock: Clock,
}

/// Whether a change was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// It was.
    Yes,
    /// The record changed meanwhile, and so did what should be done.
    Overtaken,
}

impl Books {
    /// Notes that the aim of the record's generation is reached.
    pub async fn settle(
        &self,
        record: &Record,
        status: &Status,
        sight: &Sight,
        aim: Aim,
    ) -> Result<Written, CommitError> {
        let began = sight.observed.container == Container::Running(Life::New);
        let reached = record.marks.generation <= status.reached;
        if reached && !began && status.attempts == 0 {
            return Ok(Written::Yes);
        }
        let mut next = Status {
            reached: record.marks.generation,
            attempts: 0,
            last_error: None,
            since: self.clock.now(),
            ..status.clone()
        };
        if let Some(container) = &sight.container {
            next.container = Some(container.id.clone());
            next.spec_hash = container
                .labels
                .get(crate::session::blueprint::LABEL_SPEC)
                .cloned();
        }
        let mut op = settled(aim);
        if began {
            begin_life(&mut next, &record.marks, sight);
            op = Some(match (next.incarnation, record.marks.slept) {
                (1, _) => ("opened", None),
                (_, Some(reason)) => ("woken", Some(reason)),
                (_, None) => ("reset", None),
            });
        }
        let batch = seen(record, next);
        let batch = match op.filter(|_| !reached || began) {
            Some((op, reason)) => batch.event(None, self.fact(record, op, reason)),
            None => batch,
        };
        written(self.store.commit(batch).await)
    }

    /// Takes a fresh key, under which nothing was ever made.
    pub async fn take_key(&self, record: &Record, status: &Status) -> Result<Written, CommitError> {
        let next = Status {
            key: Some(ContainerKey::random()),
            container: None,
            started_at: None,
            spec_hash: None,
            ..status.clone()
        };
        written(self.store.commit(seen(record, next)).await)
    }

    /// Notes that a session is asleep, unless its intent changed meanwhile.
    pub async fn park(
        &self,
        record: &Record,
        status: &Status,
        sight: &Sight,
        reason: Reason,
    ) -> Result<Written, CommitError> {
        let lost = match (sight.observed.container, sight.fate) {
            (Container::Lost | Container::Keyless, Fate::Unique) => true,
            _ => status.files_lost,
        };
        let parked = Parked {
            at: self.clock.now(),
            reason,
        };
        let marks = Marks {
            parked: Some(parked),
            slept: Some(reason),
            ..raised(&record.marks)
        };
        let status = Status {
            files_lost: lost,
            ..status.clone()
        };
        let id = &record.spec.id;
        let batch = intent(record, marks)
            .put_status(id, status)
            .event(None, self.fact(record, "hibernated", Some(reason)));
        written(self.store.commit(batch).await)
    }

    /// Notes that a session is over, unless its intent changed meanwhile.
    pub async fn close(&self, record: &Record, reason: Reason) -> Result<Written, CommitError> {
        let closed = Closed {
            at: self.clock.now(),
            purge: Purge::No,
            reason,
        };
        let marks = Marks {
            closed: Some(closed),
            ..raised(&record.marks)
        };
        let op = match reason {
            Reason::StartFailed => "failed",
            _ => "reaped",
        };
        let batch = intent(record, marks).event(None, self.fact(record, op, Some(reason)));
        written(self.store.commit(batch).await)
    }

    /// Drops a record of which nothing is left, unless it changed meanwhile.
    pub async fn forget(&self, record: &Record) -> Result<Written, CommitError> {
        let purged = record
            .marks
            .closed
            .as_ref()
            .is_some_and(|closed| closed.purge == Purge::Yes);
        let op = if purged { "purged" } else { "forgotten" };
        let batch = intent(record, raised(&record.marks))
            .forget(&record.spec.id)
            .event(None, self.fact(record, op, None));
        written(self.store.commit(batch).await)
    }

    /// Notes a failed attempt.
    pub async fn fail(
        &self,
        record: &Record,
        status: &Status,
        why: &str,
    ) -> Result<Written, CommitError> {
        let next = Status {
            attempts: status.attempts.saturating_add(1),
            last_error: Some(why.to_owned()),
            ..status.clone()
        };
        written(self.store.commit(seen(record, next)).await)
    }

    fn fact(&self, record: &Record, op: &str, reason: Option<Reason>) -> Event {
        let spec = &record.spec;
        let mut facts = BTreeMap::from([("runtime".to_owned(), spec.alias.to_string())]);
        if let Some(tenant) = &spec.tenant {
            facts.insert("tenant".to_owned(), tenant.to_string());
        }
        Event {
            at: self.clock.now(),
            op: op.to_owned(),
            target: spec.id.to_string(),
            ok: true,
            detail: reason.map_or_else(String::new, |reason| reason.as_str().to_owned()),
            duration_us: 0,
            request_id: None,
            facts,
        }
    }
}

/// A changed intent, good only if nobody else changed it first.
fn intent(record: &Record, marks: Marks) -> Batch {
    let expected = Expect::Generation(record.marks.generation);
    let spec = record.spec.clone();
    Batch::new().put_record(Record { spec, marks }, expected)
}

/// What was seen of a session, good only for the intent it was seen under.
fn seen(record: &Record, status: Status) -> Batch {
    let id = &record.spec.id;
    Batch::new()
        .expect(id, record.marks.generation)
        .put_status(id, status)
}

/// The fact that a session at rest is worth, if any.
fn settled(aim: Aim) -> Option<(&'static str, Option<Reason>)> {
    match aim {
        Aim::Closed(_) => Some(("closed", None)),
        Aim::Parked(_) => Some(("stopped", None)),
        Aim::Running | Aim::Over(_) | Aim::Gone => None,
    }
}

/// Begins the next life of a sandbox, which the next caller is told of.
fn begin_life(status: &mut Status, marks: &Marks, sight: &Sight) {
    status.incarnation += 1;
    status.started_at = sight
        .container
        .as_ref()
        .and_then(|container| container.started_at);
    status.notice = match (status.incarnation, status.files_lost, marks.slept) {
        (1, _, _) => None,
        (_, true, _) => Some(Notice::FilesLost),
        (_, false, Some(Reason::Evicted | Reason::Idle | Reason::Requested)) => {
            Some(Notice::Hibernated)
        }
        (_, false, Some(Reason::Oom)) => Some(Notice::Oom),
        (_, false, _) => Some(Notice::ContainerLost),
    };
    status.files_lost = false;
}

fn raised(marks: &Marks) -> Marks {
    Marks {
        generation: marks.generation + 1,
        ..marks.clone()
    }
}

fn written<T>(committed: Result<T, CommitError>) -> Result<Written, CommitError> {
    match committed {
        Ok(_) => Ok(Written::Yes),
        Err(CommitError::Conflict(
            Conflict::Exists { .. }
            | Conflict::Missing { .. }
            | Conflict::Changed { .. }
            | Conflict::NotRaised { .. },
        )) => Ok(Written::Overtaken),
        Err(error) => Err(error),
    }
}
