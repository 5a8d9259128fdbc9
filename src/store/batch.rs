//! Describes changes that are committed together or not at all.

use super::meta::Progress;
use super::runs::{ExpectRun, StoredRun};
use crate::clock::Timestamp;
use crate::id::{RunId, SessionId};
use crate::session::record::{Event, Record, Status};

/// Changes of the largest batch.
pub const BATCH_OPS_MAX: usize = 1_024;

/// What a batch expects of a record before it replaces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// There is none.
    Absent,
    /// There is one of this generation; the new one has a higher one.
    Generation(u64),
}

/// Changes that are committed together or not at all, in the order of the calls.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub(super) ops: Vec<Op>,
}

#[derive(Clone, Debug)]
pub(super) enum Op {
    PutRecord(Box<Record>, Expect),
    Check(SessionId, u64),
    Told(SessionId, u64),
    Afresh(SessionId),
    PutStatus(SessionId, Box<Status>),
    Touch(SessionId, Timestamp),
    Forget(SessionId),
    Event(Option<SessionId>, Box<Event>),
    PutRun(SessionId, Box<StoredRun>, ExpectRun),
    DropRun(SessionId, RunId),
    PutTokenKeyId(String),
    PutEngineId(String),
    AgesFrom(Timestamp),
    Rebuild(Progress),
}

impl Batch {
    /// Makes a batch that changes nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Inserts or replaces a record; the batch fails where `expect` does not hold.
    #[must_use]
    pub fn put_record(self, record: Record, expect: Expect) -> Self {
        self.with(Op::PutRecord(Box::new(record), expect))
    }

    /// Replaces the status of a session; without effect when it has no record, and
    /// without a write when nothing differs.
    #[must_use]
    pub fn put_status(self, id: &SessionId, status: Status) -> Self {
        self.with(Op::PutStatus(id.clone(), Box::new(status)))
    }

    /// Says when a session was last used; without effect when it has no record.
    ///
    /// The generation stays. A touch is flushed as an event is, not synced.
    #[must_use]
    pub fn touch(self, id: &SessionId, last_used: Timestamp) -> Self {
        self.with(Op::Touch(id.clone(), last_used))
    }

    /// Inserts or replaces a run of a session; the batch fails where the session has no
    /// record, or `expect` does not hold.
    ///
    /// Where the session has more than [`super::RUNS_PER_SESSION_MAX`] then, the oldest
    /// that are over go.
    #[must_use]
    pub fn put_run(self, session: &SessionId, run: StoredRun, expect: ExpectRun) -> Self {
        self.with(Op::PutRun(session.clone(), Box::new(run), expect))
    }

    /// Forgets a run of a session, if there is one of that id.
    #[must_use]
    pub fn drop_run(self, session: &SessionId, run: &RunId) -> Self {
        self.with(Op::DropRun(session.clone(), run.clone()))
    }

    /// Removes the record of a session, its status, its runs and its events, if there are
    /// any.
    #[must_use]
    pub fn forget(self, id: &SessionId) -> Self {
        self.with(Op::Forget(id.clone()))
    }

    /// Appends to the log of a session, or to that of the service.
    ///
    /// Without effect when the session has no record: its log went with it.
    #[must_use]
    pub fn event(self, session: Option<&SessionId>, event: Event) -> Self {
        self.with(Op::Event(session.cloned(), Box::new(event)))
    }

    /// Writes down which token key the store belongs to.
    #[must_use]
    pub fn put_key_id(self, id: String) -> Self {
        self.with(Op::PutTokenKeyId(id))
    }

    /// Writes down which engine the containers live on.
    #[must_use]
    pub fn put_engine_id(self, id: String) -> Self {
        self.with(Op::PutEngineId(id))
    }

    /// Has nothing taken to be older than this instant.
    #[must_use]
    pub(super) fn ages_from(self, instant: Timestamp) -> Self {
        self.with(Op::AgesFrom(instant))
    }

    /// Takes down how far the rebuild has got, where one is under way.
    #[must_use]
    pub fn rebuild(self, progress: Progress) -> Self {
        self.with(Op::Rebuild(progress))
    }

    /// Holds the batch to a session whose record has this generation.
    #[must_use]
    pub fn expect(self, id: &SessionId, generation: u64) -> Self {
        self.with(Op::Check(id.clone(), generation))
    }

    /// Notes that a caller was told of the reset that began this incarnation; a
    /// later reset stays to be told.
    #[must_use]
    pub fn told(self, id: &SessionId, incarnation: u64) -> Self {
        self.with(Op::Told(id.clone(), incarnation))
    }

    /// Forgets the failed attempts of a session, whatever else its status says: what
    /// failed under an earlier intent says nothing about this one.
    #[must_use]
    pub fn afresh(self, id: &SessionId) -> Self {
        self.with(Op::Afresh(id.clone()))
    }

    fn with(mut self, op: Op) -> Self {
        self.ops.push(op);
        self
    }
}

/// What a committed batch was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// The sequence number of each [`Batch::event`], in the order of the calls;
    /// `None` for one whose session has no record.
    pub seqs: Vec<Option<u64>>,
}
