//! Works out what batches change, and checks what they expect, before any write.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::batch::{BATCH_OPS_MAX, Batch, Committed, Expect, Op};
use super::codec::CodecError;
use super::error::{CommitError, Conflict, RunFound};
use super::events::{self, Log, Retention, Span};
use super::meta::Meta;
use super::mirror::{Changes, Mirror};
use super::runs::{ExpectRun, Place, RUNS_PER_SESSION_MAX, StoredRun};
use super::writes::{Durability, Writes};
use super::{desired, runs, status};
use crate::clock::Timestamp;
use crate::id::{RunId, SessionId};
use crate::session::record::{Event, Record, Status};

/// Events that one append removes at most when a log is longer than it may be.
const TRIM_MAX: u64 = 64;

/// What a group of batches changes, and how to write it.
#[derive(Debug, Default)]
pub(super) struct Staged {
    pub(super) changes: Changes,
    pub(super) writes: Writes,
    pub(super) durability: Durability,
}

impl Staged {
    /// Adds a batch to the group; a refused one leaves the group as it was.
    pub(super) fn add(
        &mut self,
        mirror: &Mirror,
        batch: Batch,
        retention: Retention,
    ) -> Result<Committed, CommitError> {
        if BATCH_OPS_MAX < batch.ops.len() {
            return Err(CommitError::TooManyOps {
                ops: batch.ops.len(),
            });
        }
        let mut draft = Draft {
            mirror,
            before: &self.changes,
            retention,
            staged: Self::default(),
            committed: Committed::default(),
        };
        for op in batch.ops {
            draft.apply(op)?;
        }
        let Draft {
            staged, committed, ..
        } = draft;
        self.changes.extend(staged.changes);
        self.writes.extend(staged.writes);
        self.durability = self.durability.max(staged.durability);
        Ok(committed)
    }
}

/// One batch, over what the group has staged before, over the mirror.
struct Draft<'a> {
    mirror: &'a Mirror,
    before: &'a Changes,
    retention: Retention,
    staged: Staged,
    committed: Committed,
}

impl Draft<'_> {
    fn apply(&mut self, op: Op) -> Result<(), CommitError> {
        match op {
            Op::PutRecord(record, expect) => self.put_record(*record, expect),
            Op::Check(id, generation) => self.check(&id, generation).map_err(CommitError::Conflict),
            Op::Told(id, incarnation) => self.told(id, incarnation).map_err(invalid),
            Op::Afresh(id) => self.afresh(id).map_err(invalid),
            Op::PutStatus(id, status) => self.put_status(id, *status).map_err(invalid),
            Op::Touch(id, last_used) => self.touch(&id, last_used).map_err(invalid),
            Op::Forget(id) => {
                self.forget(id);
                Ok(())
            }
            Op::PutRun(id, run, expect) => self.put_run(id, *run, expect),
            Op::DropRun(id, run) => {
                self.drop_run(id, run);
                Ok(())
            }
            Op::Event(log, event) => self.event(log, &event).map_err(invalid),
            Op::PutTokenKeyId(id) => self
                .put_meta(|meta| meta.token_key_id = Some(id))
                .map_err(invalid),
            Op::PutEngineId(id) => self
                .put_meta(|meta| meta.engine_id = Some(id))
                .map_err(invalid),
            Op::AgesFrom(instant) => self
                .put_meta(|meta| meta.ages_from = instant)
                .map_err(invalid),
            Op::Rebuild(progress) => self
                .put_meta(|meta| meta.rebuild(progress))
                .map_err(invalid),
        }
    }

    fn put_record(&mut self, record: Record, expect: Expect) -> Result<(), CommitError> {
        check(&record, self.record(&record.spec.id), expect).map_err(CommitError::Conflict)?;
        self.staged.durability = Durability::Synced;
        let order = record.spec.order;
        if self.meta().order < order {
            self.put_meta(|meta| meta.order = order).map_err(invalid)?;
        }
        self.stage_record(record).map_err(invalid)
    }

    fn check(&self, id: &SessionId, expected: u64) -> Result<(), Conflict> {
        let id = || id.clone();
        match self.record(&id()).map(|record| record.marks.generation) {
            Some(found) if found == expected => Ok(()),
            Some(found) => Err(Conflict::Changed {
                id: id(),
                expected,
                found,
            }),
            None => Err(Conflict::Missing { id: id(), expected }),
        }
    }

    fn told(&mut self, id: SessionId, incarnation: u64) -> Result<(), CodecError> {
        let layers = [&self.staged.changes.statuses, &self.before.statuses];
        let Some(status) = look(layers, &self.mirror.statuses, &id) else {
            return Ok(());
        };
        if status.incarnation != incarnation || status.notice.is_none() {
            return Ok(());
        }
        let status = Status {
            notice: None,
            ..Status::clone(status)
        };
        status::put(&mut self.staged.writes, &id, &status)?;
        let statuses = &mut self.staged.changes.statuses;
        statuses.insert(id, Some(Arc::new(status)));
        Ok(())
    }

    fn afresh(&mut self, id: SessionId) -> Result<(), CodecError> {
        let Some(status) = self.status(&id).cloned() else {
            return Ok(());
        };
        let status = Status {
            attempts: 0,
            last_error: None,
            ..status
        };
        self.put_status(id, status)
    }

    fn stage_record(&mut self, record: Record) -> Result<(), CodecError> {
        desired::put(&mut self.staged.writes, &record)?;
        let records = &mut self.staged.changes.records;
        records.insert(record.spec.id.clone(), Some(Arc::new(record)));
        Ok(())
    }

    fn put_status(&mut self, id: SessionId, status: Status) -> Result<(), CodecError> {
        if self.record(&id).is_none() || self.status(&id) == Some(&status) {
            return Ok(());
        }
        self.staged.durability = Durability::Synced;
        status::put(&mut self.staged.writes, &id, &status)?;
        let statuses = &mut self.staged.changes.statuses;
        statuses.insert(id, Some(Arc::new(status)));
        Ok(())
    }

    fn touch(&mut self, id: &SessionId, last_used: Timestamp) -> Result<(), CodecError> {
        let Some(record) = self.record(id) else {
            return Ok(());
        };
        let mut record = Record::clone(record);
        record.marks.last_used = last_used;
        self.stage_record(record)
    }

    fn put_run(
        &mut self,
        id: SessionId,
        run: StoredRun,
        expect: ExpectRun,
    ) -> Result<(), CommitError> {
        let place = (id, run.run_id.clone());
        let found = match (self.record(&place.0), self.run(&place)) {
            (None, _) => RunFound::NoSession,
            (Some(_), None) => RunFound::Absent,
            (Some(_), Some(run)) if run.ended.is_none() => RunFound::GoesOn,
            (Some(_), Some(_)) => RunFound::Over,
        };
        match (expect, found) {
            (ExpectRun::Absent, RunFound::Absent) | (ExpectRun::GoesOn, RunFound::GoesOn) => {}
            (ExpectRun::Absent | ExpectRun::GoesOn, _) => {
                let (id, run) = place;
                return Err(CommitError::Conflict(Conflict::Run { id, run, found }));
            }
        }
        self.staged.durability = Durability::Synced;
        let id = place.0.clone();
        runs::put(&mut self.staged.writes, &id, &run).map_err(invalid)?;
        self.staged.changes.runs.insert(place, Some(Arc::new(run)));
        let known = self.runs(&id);
        for run in runs::surplus(known.values(), RUNS_PER_SESSION_MAX) {
            self.drop_run(id.clone(), run);
        }
        Ok(())
    }

    fn drop_run(&mut self, id: SessionId, run: RunId) {
        let place = (id, run);
        if self.run(&place).is_none() {
            return;
        }
        self.staged.durability = Durability::Synced;
        runs::remove(&mut self.staged.writes, &place.0, &place.1);
        self.staged.changes.runs.insert(place, None);
    }

    fn forget(&mut self, id: SessionId) {
        for run in self.runs(&id).into_keys() {
            self.drop_run(id.clone(), run);
        }
        self.staged.durability = Durability::Synced;
        desired::remove(&mut self.staged.writes, &id);
        status::remove(&mut self.staged.writes, &id);
        let log = Some(id.clone());
        if let Some(span) = self.span(&log) {
            for seq in span.first..=span.latest {
                events::remove(&mut self.staged.writes, log.as_ref(), seq);
            }
        }
        self.staged.changes.logs.insert(log, None);
        self.staged.changes.statuses.insert(id.clone(), None);
        self.staged.changes.records.insert(id, None);
    }

    fn event(&mut self, log: Log, event: &Event) -> Result<(), CodecError> {
        if let Some(id) = &log
            && self.record(id).is_none()
        {
            self.committed.seqs.push(None);
            return Ok(());
        }
        let mut span = match self.span(&log) {
            Some(span) => Span {
                first: span.first,
                latest: span.latest + 1,
            },
            None => Span {
                first: 1,
                latest: 1,
            },
        };
        events::put(&mut self.staged.writes, log.as_ref(), span.latest, event)?;
        // A bound lowered by the operator is reached over several appends.
        let n_kept = span.latest - span.first + 1;
        let n_over = n_kept.saturating_sub(self.retention.of(&log));
        for _ in 0..n_over.min(TRIM_MAX) {
            events::remove(&mut self.staged.writes, log.as_ref(), span.first);
            span.first += 1;
        }
        self.committed.seqs.push(Some(span.latest));
        self.staged.changes.logs.insert(log, Some(span));
        Ok(())
    }

    fn put_meta(&mut self, change: impl FnOnce(&mut Meta)) -> Result<(), CodecError> {
        let before = self.meta().clone();
        let mut meta = before.clone();
        change(&mut meta);
        self.staged.durability = Durability::Synced;
        meta.put_changes(&before, &mut self.staged.writes)?;
        self.staged.changes.meta = Some(meta);
        Ok(())
    }

    fn meta(&self) -> &Meta {
        let staged = self.staged.changes.meta.as_ref();
        staged
            .or(self.before.meta.as_ref())
            .unwrap_or(&self.mirror.meta)
    }

    fn record(&self, id: &SessionId) -> Option<&Arc<Record>> {
        let layers = [&self.staged.changes.records, &self.before.records];
        look(layers, &self.mirror.records, id)
    }

    fn status(&self, id: &SessionId) -> Option<&Status> {
        let layers = [&self.staged.changes.statuses, &self.before.statuses];
        look(layers, &self.mirror.statuses, id).map(|status| &**status)
    }

    fn run(&self, place: &Place) -> Option<&Arc<StoredRun>> {
        let layers = [&self.staged.changes.runs, &self.before.runs];
        look(layers, &self.mirror.runs, place)
    }

    /// The runs of a session, the changes before this one among them.
    fn runs(&self, id: &SessionId) -> BTreeMap<RunId, Arc<StoredRun>> {
        let known = self.mirror.runs.range(runs::of(id));
        let mut runs: BTreeMap<_, _> = known
            .map(|((_, run), stored)| (run.clone(), Arc::clone(stored)))
            .collect();
        for layer in [&self.before.runs, &self.staged.changes.runs] {
            for ((_, run), change) in layer.range(runs::of(id)) {
                match change {
                    Some(stored) => runs.insert(run.clone(), Arc::clone(stored)),
                    None => runs.remove(run),
                };
            }
        }
        runs
    }

    fn span(&self, log: &Log) -> Option<Span> {
        let layers = [&self.staged.changes.logs, &self.before.logs];
        look(layers, &self.mirror.logs, log).copied()
    }
}

/// Looks through the layers of changes, latest first, down to the base.
fn look<'a, K: Ord, V>(
    layers: [&'a BTreeMap<K, Option<V>>; 2],
    base: &'a BTreeMap<K, V>,
    key: &K,
) -> Option<&'a V> {
    for layer in layers {
        if let Some(found) = layer.get(key) {
            return found.as_ref();
        }
    }
    base.get(key)
}

fn check(new: &Record, found: Option<&Arc<Record>>, expect: Expect) -> Result<(), Conflict> {
    let id = || new.spec.id.clone();
    let found = found.map(|record| record.marks.generation);
    match (expect, found) {
        (Expect::Absent, None) => Ok(()),
        (Expect::Absent, Some(found)) => Err(Conflict::Exists { id: id(), found }),
        (Expect::Generation(expected), None) => Err(Conflict::Missing { id: id(), expected }),
        (Expect::Generation(expected), Some(found)) if found != expected => {
            Err(Conflict::Changed {
                id: id(),
                expected,
                found,
            })
        }
        (Expect::Generation(expected), Some(_)) if new.marks.generation <= expected => {
            Err(Conflict::NotRaised {
                id: id(),
                expected,
                new: new.marks.generation,
            })
        }
        (Expect::Generation(_), Some(_)) => Ok(()),
    }
}

fn invalid(error: CodecError) -> CommitError {
    CommitError::Value(Arc::new(error))
}
