//! Writes down what the controller saw, decided and did, each time in one batch.
//!
//! Every write is good only for the generation that it was made for: what was
//! overtaken by a newer intent is not written, and the session looked at again.

use super::agents::exec_of;
use super::ghosts::{Haunting, is_left, remembered};
use super::observe::Sight;
use super::plan::{Container, Fate, Life};
use crate::clock::Clock;
use crate::id::ContainerKey;
use crate::session::Fact;
use crate::session::blueprint::LABEL_SPEC;
use crate::session::lifecycle::Aim;
use crate::session::record::{Event, Marks, Notice, Purge, Reason, Record, Status};
use crate::store::{Batch, CommitError, Expect, Store};

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
    ) -> Result<Written, CommitError> {
        let began = sight.observed.container == Container::Running(Life::New);
        let files_lost = status.files_lost || is_lost(sight);
        let former = remembered(&status.former, &sight.ghosts, self.clock.now());
        let exec = sight.container.as_ref().map_or(status.exec, exec_of);
        let changed = !status.has_reached(&record.marks)
            || began
            || status.attempts != 0
            || files_lost != status.files_lost
            || exec != status.exec
            || former != status.former;
        if !changed {
            return Ok(Written::Yes);
        }
        let mut next = Status {
            reached: record.marks.generation,
            attempts: 0,
            last_error: None,
            since: self.clock.now(),
            files_lost,
            exec,
            former,
            ..status.clone()
        };
        if let Some(container) = &sight.container {
            next.container = Some(container.id.clone());
            next.spec_hash = container.labels.get(LABEL_SPEC).cloned();
        }
        if !began {
            return written(self.store.commit(seen(record, next)).await);
        }
        // A life that began although the aim had been reached is not of our making.
        let asked_for = record
            .marks
            .slept
            .filter(|_| !status.has_reached(&record.marks));
        begin_life(&mut next, asked_for, sight);
        let (fact, reason) = match (next.incarnation, asked_for) {
            (1, _) => (Fact::Opened, None),
            (_, Some(reason)) => (Fact::Woken, Some(reason)),
            (_, None) => (Fact::Reset, None),
        };
        let event = fact.event(self.clock.now(), &record.spec, reason);
        written(
            self.store
                .commit(seen(record, next).event(None, event))
                .await,
        )
    }

    /// Takes a fresh key, under which nothing was ever made.
    pub async fn take_key(
        &self,
        record: &Record,
        status: &Status,
        sight: &Sight,
    ) -> Result<Written, CommitError> {
        let next = Status {
            key: Some(ContainerKey::random()),
            container: None,
            former: status.parted(self.clock.now()),
            started_at: None,
            spec_hash: None,
            files_lost: status.files_lost || is_lost(sight),
            ..status.clone()
        };
        written(self.store.commit(seen(record, next)).await)
    }

    /// Notes what the next look has to know.
    pub async fn note_status(
        &self,
        record: &Record,
        status: Status,
    ) -> Result<Written, CommitError> {
        written(self.store.commit(seen(record, status)).await)
    }

    /// Notes what is left of containers that the engine has lost, and that it is told.
    pub async fn note_ghosts(
        &self,
        record: &Record,
        status: &Status,
        left: &[Haunting],
    ) -> Result<Written, CommitError> {
        let now = self.clock.now();
        let mut former = status.parted(now);
        former.retain(|one| {
            status.container.as_ref() != Some(&one.container) || is_left(left, &one.container)
        });
        let mut batch = Batch::new();
        for one in &mut former {
            if is_left(left, &one.container) && !one.reported {
                one.reported = true;
                let mut event = Fact::Ghost.event(now, &record.spec, None);
                event
                    .facts
                    .insert("container".to_owned(), one.container.clone());
                batch = batch.event(None, event);
            }
        }
        let id = &record.spec.id;
        let status = Status {
            former,
            ..status.clone()
        };
        let batch = batch
            .expect(id, record.marks.generation)
            .put_status(id, status);
        written(self.store.commit(batch).await)
    }

    /// Notes that nothing is left of a container that the engine had lost.
    pub async fn note_ghost_ended(
        &self,
        record: &Record,
        ghost: &Haunting,
    ) -> Result<(), CommitError> {
        let mut event = Fact::GhostEnded.event(self.clock.now(), &record.spec, None);
        event
            .facts
            .insert("container".to_owned(), ghost.container.clone());
        let batch = Batch::new().event(None, event);
        self.store.commit(batch).await.map(drop)
    }

    /// Notes that a session is asleep.
    pub async fn park(
        &self,
        record: &Record,
        status: &Status,
        sight: &Sight,
        reason: Reason,
    ) -> Result<Written, CommitError> {
        let now = self.clock.now();
        let fact = match reason {
            Reason::Oom => Fact::Oom,
            Reason::Requested
            | Reason::Evicted
            | Reason::Idle
            | Reason::StartFailed
            | Reason::ContainerDied
            | Reason::ContainerLost
            | Reason::WorkspaceLost
            | Reason::Expired => Fact::Hibernated,
            Reason::WorkspaceFull => Fact::WorkspaceFull,
        };
        let files_lost = reason == Reason::WorkspaceLost || is_lost(sight);
        let status = Status {
            files_lost: status.files_lost || files_lost,
            ..status.clone()
        };
        let batch = intent(record, record.marks.parked(now, reason))
            .put_status(&record.spec.id, status)
            .event(None, fact.event(now, &record.spec, Some(reason)));
        written(self.store.commit(batch).await)
    }

    /// Notes that an opening failed, and with it that its session is over.
    pub async fn fail_opening(&self, record: &Record) -> Result<Written, CommitError> {
        let reason = Reason::StartFailed;
        let event = Fact::Failed.event(self.clock.now(), &record.spec, Some(reason));
        self.end(record, reason, event).await
    }

    /// Notes that an idle session is over, and whether its files went with it.
    pub async fn reap(
        &self,
        record: &Record,
        reason: Reason,
        fate: Fate,
    ) -> Result<Written, CommitError> {
        let mut event = Fact::Reaped.event(self.clock.now(), &record.spec, Some(reason));
        match fate {
            Fate::Durable => {}
            Fate::Unique => {
                event
                    .facts
                    .insert("files".to_owned(), "files_lost".to_owned());
            }
        }
        self.end(record, reason, event).await
    }

    /// Ends a session, files kept, together with the fact that tells of it.
    async fn end(
        &self,
        record: &Record,
        reason: Reason,
        event: Event,
    ) -> Result<Written, CommitError> {
        let marks = record.marks.closed(event.at, Purge::No, reason);
        let batch = intent(record, marks).event(None, event);
        written(self.store.commit(batch).await)
    }

    /// Drops a record of which nothing is left, and tells of it where a caller, or time,
    /// had something removed.
    pub async fn forget(&self, record: &Record, aim: Aim) -> Result<Written, CommitError> {
        let purge = record.marks.closed.as_ref().map(|closed| closed.purge);
        let why = match (purge, aim) {
            (Some(Purge::Yes), _) => Some(None),
            // Nobody asked for it: its files were unused for their time.
            (_, Aim::Gone) => Some(Some(Reason::Expired)),
            (_, Aim::Closed(_) | Aim::Over(_)) => None,
            (_, Aim::Parked(_) | Aim::Drowsy(_) | Aim::Running) => None,
        };
        let id = &record.spec.id;
        let mut batch = intent(record, record.marks.raised()).forget(id);
        if let Some(reason) = why {
            let event = Fact::Purged.event(self.clock.now(), &record.spec, reason);
            batch = batch.event(None, event);
        }
        written(self.store.commit(batch).await)
    }

    /// Notes a failed attempt, beside whatever was noted on the way to it.
    pub async fn fail(&self, record: &Record, why: &str) -> Result<Written, CommitError> {
        let status = self.store.status(&record.spec.id);
        let status = status.map(|status| (*status).clone()).unwrap_or_default();
        let next = Status {
            attempts: status.attempts.saturating_add(1),
            last_error: Some(why.to_owned()),
            ..status
        };
        written(self.store.commit(seen(record, next)).await)
    }
}

/// A changed intent, good only if nobody else changed it first.
fn intent(record: &Record, marks: Marks) -> Batch {
    let expected = Expect::Generation(record.marks.generation);
    Batch::new().put_record(record.with(marks), expected)
}

/// What was seen of a session, good only for the intent it was seen under.
fn seen(record: &Record, status: Status) -> Batch {
    let id = &record.spec.id;
    Batch::new()
        .expect(id, record.marks.generation)
        .put_status(id, status)
}

/// Whether the only copy of the files is gone with a container.
fn is_lost(sight: &Sight) -> bool {
    match (sight.observed.container, sight.fate) {
        (Container::Lost, Fate::Unique) => true,
        (_, Fate::Unique | Fate::Durable) => false,
    }
}

/// Begins the next life of a sandbox, which the next caller is told of.
fn begin_life(status: &mut Status, slept: Option<Reason>, sight: &Sight) {
    status.incarnation += 1;
    status.started_at = sight
        .container
        .as_ref()
        .and_then(|container| container.started_at);
    status.notice = match (status.incarnation, status.files_lost, slept) {
        (1, _, _) => None,
        (_, true, _) => Some(Notice::FilesLost),
        (_, false, Some(Reason::Evicted | Reason::Idle | Reason::Requested)) => {
            Some(Notice::Hibernated)
        }
        (_, false, Some(Reason::Oom)) => Some(Notice::Oom),
        (_, false, Some(Reason::WorkspaceFull)) => Some(Notice::WorkspaceFull),
        (_, false, _) => Some(Notice::ContainerLost),
    };
    status.files_lost = false;
}

fn written<T>(committed: Result<T, CommitError>) -> Result<Written, CommitError> {
    match committed {
        Ok(_) => Ok(Written::Yes),
        Err(CommitError::Conflict(_)) => Ok(Written::Overtaken),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::testing;
    use crate::store::{OpenOptions, Probe};

    #[tokio::test]
    async fn a_failure_takes_nothing_back_that_was_noted_before_it() {
        let (dir, clock) = (tempfile::tempdir().unwrap(), Clock::host());
        let options = OpenOptions::new(dir.path(), Probe::InProcess, clock.clone());
        let store = Store::open(&options).unwrap();
        let books = Books { store, clock };
        let record = testing::record("a");
        let (id, expect) = (record.spec.id.clone(), Expect::Absent);
        let batch = Batch::new().put_record(record.clone(), expect);
        let batch = batch.put_status(&id, Status::default());
        books.store.commit(batch).await.unwrap();
        let noted = Status {
            container: Some("c".to_owned()),
            files_lost: true,
            ..Status::default()
        };
        books.note_status(&record, noted.clone()).await.unwrap();
        books.fail(&record, "out of order").await.unwrap();
        let kept = books.store.status(&id).unwrap();
        let failed = Status {
            attempts: 1,
            last_error: Some("out of order".to_owned()),
            ..noted
        };
        assert_eq!(*kept, failed);
    }
}
