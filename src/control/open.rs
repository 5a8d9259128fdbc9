//! Opens sessions, and attaches to those that are open.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

use super::live::NotLive;
use super::queue::{Patience, Queuing};
use super::request::{Attach, Open, Sampling, Viewer};
use super::{Control, Refusal, Unsettled, running, unwritten};
use crate::activity::Lease;
use crate::cause::chain;
use crate::id::{Alias, ContainerKey, Nonce, SessionId, Tenant};
use crate::policy::{Policy, Runtime};
use crate::reconcile::{Host, Outcome, Written};
use crate::session::Fact;
use crate::session::admission::{Admission, Ask, Denied, admit};
use crate::session::record::{Closed, Marks, Purge, Reason, Record, Spec, Status};
use crate::store::{Batch, CommitError, Expect, Health};
use crate::wire::sessions::SessionCreated;
use crate::workspace::Workspaces;

/// How long an opening waits for its sandbox, a fetch of its image included.
pub(super) const OPEN_WAIT_MAX: Duration = Duration::from_mins(10);
/// How long an opening waits for the end of an earlier session of its id.
const CLOSING_WAIT_MAX: Duration = Duration::from_secs(30);
/// How often an opening starts over when others change the same records.
const TRIES_MAX: usize = 16;

/// What an opening found under its id.
enum Found {
    Nothing,
    Open(Arc<Record>),
    Over(Arc<Record>),
    Closing(Arc<Record>),
}

/// The alias and the runtime that an opening asked for.
pub(super) struct Wanted {
    pub(super) alias: Alias,
    pub(super) runtime: Runtime,
    pub(super) tenant: Option<Tenant>,
}

impl Control {
    /// Opens a session, or attaches to one, and waits until its sandbox runs; at a ceiling
    /// it waits for a place, for as long as the caller has patience.
    pub async fn open(&self, open: Open, patience: Patience) -> Result<SessionCreated, Refusal> {
        let id = open.id.clone().unwrap_or_else(SessionId::random);
        let mut queuing = self.queuing(patience);
        loop {
            queuing.begin_attempt();
            match self.open_now(&id, &open, &mut queuing).await {
                Ok(created) => return Ok(created),
                Err(refused) => {
                    let tenant = open.tenant.as_ref();
                    self.line_up(&mut queuing, tenant, refused).await?;
                }
            }
        }
    }

    async fn open_now(
        &self,
        id: &SessionId,
        open: &Open,
        queuing: &mut Queuing,
    ) -> Result<SessionCreated, Refusal> {
        let policy = self.0.policy.get();
        let wanted = wanted(&policy, open)?;
        if open.attach == Attach::Only && open.id.is_none() {
            return Err(Refusal::AttachWithoutId);
        }
        for _ in 0..TRIES_MAX {
            let admission = self.0.admission.lock().await;
            let before = match self.found(id) {
                Found::Open(record) => {
                    drop(admission);
                    return self.attach(&record, open).await;
                }
                Found::Closing(record) => {
                    drop(admission);
                    self.await_end(&record).await?;
                    continue;
                }
                Found::Over(record) => Some(record),
                Found::Nothing => None,
            };
            self.may_grow()?;
            self.may_begin(id, open.attach, before.as_deref(), &wanted)
                .await?;
            let Some(lease) = self.0.loop_.leases.try_shared(id) else {
                // Something of an earlier life is being removed at this moment.
                drop(admission);
                drop(self.0.loop_.leases.shared(id).await);
                continue;
            };
            // Nobody passes by those who wait.
            if let Some(refused) = self.0.line.before(queuing.place(), wanted.tenant.as_ref()) {
                lease.void();
                return Err(refused);
            }
            let begun = self.begin(id, before.as_deref(), &wanted, &policy).await;
            drop(admission);
            match begun {
                Ok(generation) => {
                    queuing.leave();
                    return self.opened(id, generation, lease).await;
                }
                Err(Begun::Overtaken) => {}
                Err(Begun::Refused(refusal)) => {
                    lease.void();
                    return Err(refusal);
                }
            }
        }
        Err(Refusal::Opening(id.clone()))
    }

    fn found(&self, id: &SessionId) -> Found {
        let Some(record) = self.0.books.store.record(id) else {
            return Found::Nothing;
        };
        let settled = self.status(id).has_reached(&record.marks);
        match (&record.marks.closed, settled) {
            (None, _) => Found::Open(record),
            // What is to go whole is never opened again: it has to be gone first.
            (
                Some(Closed {
                    purge: Purge::Yes, ..
                }),
                _,
            )
            | (Some(_), false) => Found::Closing(record),
            (Some(_), true) => Found::Over(record),
        }
    }

    /// Waits for an earlier session of the id to end.
    async fn await_end(&self, record: &Record) -> Result<(), Refusal> {
        let id = &record.spec.id;
        let deadline = Instant::now() + CLOSING_WAIT_MAX;
        match self.outcome(id, record.marks.generation, deadline).await {
            Ok(Outcome::Failed(failure)) => Err(super::refused(failure)),
            Ok(Outcome::Reached | Outcome::Overtaken | Outcome::Gone) => Ok(()),
            Err(unsettled) => Err(unsettled.refusal(Refusal::Closing(id.clone()))),
        }
    }

    /// Refuses to begin what there is no engine or no disk for.
    fn may_grow(&self) -> Result<(), Refusal> {
        match self.0.books.store.health() {
            Health::Ok => {
                self.engine_answers()?;
                self.knows_containers()?;
                self.has_workspaces()
            }
            Health::Full { reason } => Err(Refusal::NoSpace(reason.to_string())),
            Health::Degraded { reason } => Err(Refusal::StoreUnavailable(reason.to_string())),
        }
    }

    /// Checks what an opening needs beside a place.
    async fn may_begin(
        &self,
        id: &SessionId,
        attach: Attach,
        before: Option<&Record>,
        wanted: &Wanted,
    ) -> Result<(), Refusal> {
        let workspaces = self.0.host.workspaces.as_ref();
        if let (None, Some(before)) = (workspaces, before)
            && before.spec.alias != wanted.alias
            && self.status(id).container.is_some()
        {
            return Err(Refusal::FilesInOtherRuntime {
                id: id.clone(),
                kept_on: before.spec.alias.to_string(),
            });
        }
        match attach {
            Attach::Never | Attach::Reuse => return Ok(()),
            Attach::Only => {}
        }
        let nothing = || Refusal::NothingToAttach(id.clone());
        let workspaces = workspaces.ok_or_else(nothing)?;
        let exists = Host::on_disk(workspaces, id, Workspaces::exists)
            .await
            .map_err(|error| Refusal::StartFailed(chain(&error)))?;
        if exists { Ok(()) } else { Err(nothing()) }
    }

    /// Admits and writes the intent, in one batch with whoever gives way.
    async fn begin(
        &self,
        id: &SessionId,
        before: Option<&Record>,
        wanted: &Wanted,
        policy: &Policy,
    ) -> Result<u64, Begun> {
        let now = self.0.books.clock.now();
        let ask = Ask::Open(wanted.tenant.clone());
        let admission = admit(&self.census(), &policy.capacity, &ask, now)
            .map_err(|denied| Begun::Refused(refusal(denied, None)))?;
        let (expect, generation) = match before {
            None => (Expect::Absent, 1),
            Some(before) => {
                let generation = before.marks.generation;
                (Expect::Generation(generation), generation + 1)
            }
        };
        let record = Record {
            spec: Spec {
                id: id.clone(),
                alias: wanted.alias.clone(),
                runtime: wanted.runtime.clone(),
                tenant: wanted.tenant.clone(),
                nonce: Nonce::random(),
                opened_at: now,
                order: self.0.books.store.next_order(),
            },
            marks: Marks::opened(generation, now),
        };
        let old = self.status(id);
        let status = Status {
            reached: old.reached,
            // On record before anything is made under it, and in the same commit.
            key: old.key.clone().or_else(|| Some(ContainerKey::random())),
            container: old.container.clone(),
            spec_hash: old.spec_hash.clone(),
            former: old.former.clone(),
            since: now,
            ..Status::default()
        };
        let batch = Batch::new()
            .put_record(record, expect)
            .put_status(id, status);
        self.commit_with(batch, &admission).await?;
        self.0.roll.forget(id);
        self.0.loop_.work.nudge_session(id);
        Ok(generation)
    }

    /// Commits an admitted change together with those that give way for it.
    pub(super) async fn commit_with(
        &self,
        batch: Batch,
        admission: &Admission,
    ) -> Result<(), Begun> {
        let now = self.0.books.clock.now();
        let mut batch = batch;
        let store = &self.0.books.store;
        for (victim, ends) in [(&admission.park, Ends::No), (&admission.close, Ends::Yes)] {
            let Some(victim) = victim else { continue };
            // What changed since the census is no victim any more.
            let record = store
                .record(&victim.id)
                .filter(|record| record.marks.generation == victim.generation)
                .ok_or(Begun::Overtaken)?;
            let (marks, fact) = match ends {
                Ends::No => (record.marks.parked(now, Reason::Evicted), Fact::Evicted),
                Ends::Yes => {
                    let closed = record.marks.closed(now, Purge::No, Reason::Evicted);
                    (closed, Fact::Closed)
                }
            };
            let fact = fact.event(now, &record.spec, Some(Reason::Evicted));
            batch = batch
                .put_record(record.with(marks), Expect::Generation(victim.generation))
                .event(None, fact);
        }
        match store.commit(batch).await {
            Ok(_) => {}
            Err(CommitError::Conflict(_)) => return Err(Begun::Overtaken),
            Err(error) => return Err(Begun::Refused(unwritten(&error))),
        }
        for victim in [&admission.park, &admission.close].into_iter().flatten() {
            self.0.loop_.work.nudge_session(&victim.id);
        }
        Ok(())
    }

    async fn opened(
        &self,
        id: &SessionId,
        generation: u64,
        lease: Lease,
    ) -> Result<SessionCreated, Refusal> {
        let deadline = Instant::now() + OPEN_WAIT_MAX;
        match self.outcome(id, generation, deadline).await {
            // Somebody closed it while it was opening.
            Ok(Outcome::Overtaken | Outcome::Gone) => {
                return Err(Refusal::Closing(id.clone()));
            }
            Ok(outcome) => running(id, outcome)?,
            Err(unsettled) => {
                match unsettled {
                    Unsettled::Late | Unsettled::EngineLost(_) => {
                        self.withdraw(id, generation).await;
                    }
                    // The next start goes on with it.
                    Unsettled::Stopping => {}
                }
                let late = "the sandbox did not start in time".to_owned();
                return Err(unsettled.refusal(Refusal::EngineUnavailable(late)));
            }
        }
        drop(lease);
        self.created(id).await
    }

    /// Takes an opening back whose caller is told that it failed, so that no
    /// session comes up later behind its back.
    async fn withdraw(&self, id: &SessionId, generation: u64) {
        let Some(record) = self.open_record(id) else {
            return;
        };
        if record.marks.generation != generation {
            return;
        }
        match self.0.books.fail_opening(&record).await {
            Ok(Written::Yes) => self.0.loop_.work.nudge_session(id),
            // It was closed by somebody else, the controller for one.
            Ok(Written::Overtaken) => {}
            Err(error) => {
                warn!(session = %id, error = %chain(&error), "an opening could not be taken back");
            }
        }
    }

    async fn attach(&self, record: &Record, open: &Open) -> Result<SessionCreated, Refusal> {
        let id = &record.spec.id;
        let status = self.status(id);
        let opening = status.incarnation == 0 && !status.has_reached(&record.marks);
        if opening {
            return Err(Refusal::Opening(id.clone()));
        }
        match open.attach {
            Attach::Never => return Err(Refusal::Exists(id.clone())),
            Attach::Reuse | Attach::Only => {}
        }
        if let Some(asked) = &open.runtime
            && asked != record.spec.alias.as_str()
        {
            return Err(Refusal::OtherRuntime {
                id: id.clone(),
                open_on: record.spec.alias.to_string(),
                asked: asked.clone(),
            });
        }
        if record.marks.parked.is_some() {
            let live = self.live(id, Instant::now() + OPEN_WAIT_MAX).await;
            drop(live.map_err(NotLive::refusal)?);
        } else {
            self.0.loop_.leases.touch(id);
        }
        self.note_attached(record).await;
        self.created(id).await
    }

    async fn note_attached(&self, record: &Record) {
        let event = Fact::Attached.event(self.0.books.clock.now(), &record.spec, None);
        let batch = Batch::new().event(None, event);
        if let Err(error) = self.0.books.store.commit(batch).await {
            warn!(session = %record.spec.id, error = %chain(&error), "an event could not be written down");
        }
    }

    async fn created(&self, id: &SessionId) -> Result<SessionCreated, Refusal> {
        let record = self
            .open_record(id)
            .ok_or_else(|| Refusal::NoSession(id.clone()))?;
        let token = self.0.keys.tokens.session_token(id, &record.spec.nonce);
        Ok(SessionCreated {
            session: self.describe(id, Sampling::Off, Viewer::Service).await?,
            token: token.expose().to_owned(),
        })
    }
}

/// Whether giving way ends a session.
enum Ends {
    /// It falls asleep.
    No,
    /// It is closed.
    Yes,
}

/// Why an intent was not written.
pub(super) enum Begun {
    /// Somebody changed one of the records first.
    Overtaken,
    /// It may not be.
    Refused(Refusal),
}

pub(super) fn wanted(policy: &Policy, open: &Open) -> Result<Wanted, Refusal> {
    let unknown = |wanted: &str| Refusal::UnknownRuntime {
        wanted: quoted(wanted),
        allowed: policy.catalogue.aliases(),
    };
    let alias = match open.runtime.as_deref() {
        None | Some("") => policy.catalogue.default_alias().clone(),
        Some(text) => Alias::parse(text).map_err(|_| unknown(text))?,
    };
    let runtime = policy
        .catalogue
        .get(&alias)
        .ok_or_else(|| unknown(alias.as_str()))?
        .clone();
    Ok(Wanted {
        alias,
        runtime,
        tenant: open.tenant.clone(),
    })
}

/// Quotes a text as the contract's clients know it.
fn quoted(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    let mut quoted = String::from(quote);
    for c in text.chars() {
        match c {
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            c if c == quote => quoted.extend(['\\', c]),
            c => quoted.push(c),
        }
    }
    quoted.push(quote);
    quoted
}

/// Puts a denied admission into the caller's words.
pub(super) fn refusal(denied: Denied, waking: Option<&SessionId>) -> Refusal {
    match denied {
        Denied::Open { limit, used } => Refusal::OpenCeiling { limit, used },
        Denied::Tenant {
            tenant,
            limit,
            used,
        } => Refusal::TenantCeiling {
            tenant,
            limit,
            used,
        },
        Denied::Resident { limit, used } => Refusal::ResidentCeiling {
            waking: waking.cloned(),
            limit,
            used,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_alias_reads_as_the_contract_has_it() {
        assert_eq!(quoted("evil"), "'evil'");
        assert_eq!(quoted("it's"), "\"it's\"");
        assert_eq!(quoted("a'\"b"), "'a\\'\"b'");
    }
}
