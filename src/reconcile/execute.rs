//! Does the one thing that was decided; the only place that changes the host.
//!
//! Each act is harmless when repeated, and none is judged by its reply alone:
//! everything is looked at again afterwards.

use std::time::Duration;

use tracing::{debug, info, warn};

use super::agents::exec_of;
use super::books::{Books, Written};
use super::execute_agents::Forgone;
use super::execute_ghosts::Noted;
use super::host::Host;
use super::images::Images;
use super::observe::{Blind, Sight};
use super::plan::{Blame, Container, Ending, Fate, Step, Workspace};
use super::sidecars::sidecar;
use super::ticket::Failure;
use crate::activity::Leases;
use crate::cause::chain;
use crate::docker;
use crate::docker::containers::{Created, Force, Removed};
use crate::docker::error::Retry;
use crate::policy::Current;
use crate::session::blueprint::{Blueprint, blueprint, container_name, user};
use crate::session::lifecycle::{Aim, InUse};
use crate::session::record::{Exec, Reason, Record, Spec, Status};
use crate::store::CommitError;
use crate::workspace::{WorkspaceError, Workspaces};

/// How long a container has between the request to stop and its kill.
///
/// Its first process is the agent, which ends at once, or an init that passes the request
/// on, so that only a command that ignores it costs the whole time.
const STOP_GRACE: Duration = Duration::from_secs(10);
/// How soon a removal that the engine is busy with is looked at again.
const REMOVAL_POLL: Duration = Duration::from_millis(200);
/// How often a container is looked for whose name is taken: one that is being made has
/// its name before it can be looked at.
const NAMESAKE_LOOKS_MAX: usize = 10;
/// How soon a session that could not be taken exclusively is looked at again.
const IDLE_POLL: Duration = Duration::from_millis(500);
/// How soon it is looked again whether there is room, which a stop elsewhere tells sooner.
const ROOM_POLL: Duration = Duration::from_secs(5);

/// What follows an act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Look at the session again, at once.
    Again,
    /// Look at it again after this long.
    After(Duration),
    /// Look at it again when it is nudged, since somebody else has to act first.
    OnNudge,
    /// It is as it should be.
    Rest,
    /// Its record is gone.
    Gone,
}

/// Everything that a pass knows of its session.
#[derive(Clone, Copy, Debug)]
pub struct Case<'p> {
    /// What was asked for.
    pub record: &'p Record,
    /// What was last done.
    pub status: &'p Status,
    /// What was seen.
    pub sight: &'p Sight,
    /// What it should be.
    pub aim: Aim,
}

/// Acts on the host.
#[derive(Clone, Debug)]
pub struct Executor {
    /// The host.
    pub host: Host,
    /// What is written down on the way.
    pub books: Books,
    /// Which images are there.
    pub images: Images,
    /// Who uses what.
    pub leases: Leases,
    /// What the operator allows.
    pub policy: Current,
}

/// Why an opening that was admitted finds no place.
const NO_ROOM: &str = "as many sandboxes run as may, and none of them is about to stop; try again";

impl Executor {
    /// Does one step for a session.
    pub async fn execute(&self, step: Step, case: Case<'_>) -> Result<Next, Failure> {
        let Case { record, status, .. } = case;
        self.note_intent(case).await;
        match step {
            Step::Settle => self.settle(case).await,
            Step::LookAgain => Err(case.sight.blind.as_ref().map_or_else(
                || Failure::Unavailable("the host could not be looked at".to_owned()),
                unseen,
            )),
            Step::AwaitRemoval => Ok(Next::After(REMOVAL_POLL)),
            Step::AwaitIdle => Ok(Next::After(IDLE_POLL)),
            Step::AwaitRoom => Ok(Next::After(ROOM_POLL)),
            Step::AwaitImage => {
                self.await_image(&record.spec);
                Ok(Next::OnNudge)
            }
            Step::TakeKey => {
                let written = self.books.take_key(record, status, case.sight).await;
                written
                    .map(|_| Next::Again)
                    .map_err(|error| unwritten(&error))
            }
            Step::Create => self.create(case).await,
            Step::Start => self.start(case).await,
            Step::Unpause => {
                self.engine_call(self.host.engine.unpause(container_id(case)?).await)?;
                Ok(Next::Again)
            }
            Step::Stop => self.stop(case).await,
            Step::RemoveContainer => self.remove_container(case).await,
            Step::RemoveWorkspace => self.remove_workspace(case).await,
            Step::RemoveUnusedWorkspace => self.remove_unused_workspace(&record.spec).await,
            Step::Forget => {
                self.close_dock(case);
                self.forget(case).await
            }
            Step::EndGhosts => self.end_ghosts(case).await,
            Step::Park(reason) => self.park(case, reason).await,
            Step::Close(reason) => {
                let Some(_exclusive) = self.leases.try_exclusive(&record.spec.id) else {
                    return Ok(Next::After(IDLE_POLL));
                };
                let written = self.books.reap(record, reason, case.sight.fate).await;
                written
                    .map(|_| Next::Again)
                    .map_err(|error| unwritten(&error))
            }
            Step::Fail(blame) => Err(self.blame(blame, record, status)),
        }
    }

    /// Says why a container that was just started has ended already.
    pub fn ended_at_once(sight: &Sight) -> Failure {
        let code = sight.container.as_ref().map_or(-1, |seen| seen.exit_code);
        let exec = sight.container.as_ref().map(exec_of).unwrap_or_default();
        let why = match (sight.observed.container, exec) {
            (Container::Stopped(_, Ending::Oom), _) => "it ran out of memory",
            (_, Exec::Agent) => {
                "its first process, the agent of sandboxd, was ended from without, or found no memory"
            }
            (_, Exec::Docker) => "is there a program named sleep in the image?",
        };
        Failure::Engine(format!(
            "its container ended as soon as it was started, with exit code {code}; {why}"
        ))
    }

    /// Removes a container of ours that no record explains.
    pub async fn remove_stray(&self, id: &str) -> Result<(), docker::Error> {
        info!(container = id, "removing a container that no session owns");
        self.host.engine.remove(id, Force::Yes).await.map(drop)
    }

    /// Fetches an image.
    pub async fn fetch(&self, reference: &str) -> Result<(), docker::Error> {
        if self.host.engine.image_inspect(reference).await?.is_none() {
            info!(image = reference, "pulling");
            self.host.engine.pull(reference).await?;
        }
        Ok(())
    }

    async fn settle(&self, case: Case<'_>) -> Result<Next, Failure> {
        self.open_dock(case);
        if !case.sight.ghosts.is_empty() {
            if self.note_ghosts(case).await? == Noted::Now {
                return Ok(Next::Again);
            }
            // Nothing is handed on or removed, so the session is as it should be.
            if let Err(failure) = self.end_ghosts(case).await {
                debug!(session = %case.record.spec.id, error = %failure, "a ghost is still there");
            }
        }
        let settled = self
            .books
            .settle(case.record, case.status, case.sight)
            .await;
        match settled.map_err(|error| unwritten(&error))? {
            Written::Yes => Ok(Next::Rest),
            Written::Overtaken => Ok(Next::Again),
        }
    }

    async fn park(&self, case: Case<'_>, reason: Reason) -> Result<Next, Failure> {
        // One whose container has ended is put to sleep whoever uses it. One that runs is
        // so only while nobody can begin to.
        let exclusive = match case.aim {
            Aim::Drowsy(_) => match self.leases.try_exclusive(&case.record.spec.id) {
                Some(exclusive) => Some(exclusive),
                None => return Ok(Next::After(IDLE_POLL)),
            },
            Aim::Running | Aim::Parked(_) | Aim::Closed(_) | Aim::Over(_) | Aim::Gone => None,
        };
        let parked = self
            .books
            .park(case.record, case.status, case.sight, reason);
        let written = parked.await;
        drop(exclusive);
        written
            .map(|_| Next::Again)
            .map_err(|error| unwritten(&error))
    }

    fn await_image(&self, spec: &Spec) {
        if let Some(reference) = spec.runtime.ready_image() {
            self.images.wait(reference, &spec.id);
        }
    }

    /// Makes the workspace where it is missing, with the sidecar of this opening.
    async fn make_workspace(&self, spec: &Spec) -> Result<(), Failure> {
        let Some(workspaces) = &self.host.workspaces else {
            return Ok(());
        };
        let sidecar = sidecar(spec, None);
        let owner = user(spec, &self.policy.get());
        Host::on_disk(workspaces, &spec.id, move |workspaces, _| {
            workspaces.ensure(&sidecar, owner)
        })
        .await
        .map_err(|error| undone_on_disk(&error))
    }

    pub(super) fn blueprint(&self, spec: &Spec) -> Result<Blueprint, Failure> {
        let workspace = self.host.mounted(&spec.id);
        blueprint(spec, &self.policy.get(), workspace.as_deref())
            .map_err(|error| Failure::Refused(error.to_string()))
    }

    async fn create(&self, case: Case<'_>) -> Result<Next, Failure> {
        self.note_files_lost(case).await?;
        let Case { record, status, .. } = case;
        let spec = &record.spec;
        let blueprint = self.blueprint(spec)?;
        self.make_workspace(spec).await?;
        match self.engine_call(self.make(case, &blueprint).await)? {
            Created::New(_) => Ok(Next::Again),
            Created::NameTaken => {
                let key = status.key.as_ref();
                let name = key.map_or_else(String::new, |key| container_name(&spec.id, key));
                self.look_at_namesake(case, &name).await
            }
            Created::NoSuchImage => {
                self.images.missing(&blueprint.image);
                Ok(Next::Again)
            }
        }
    }

    /// Goes on after the engine said that a name is taken: by a container of ours from a
    /// call whose reply was lost, or by somebody else's. Where it shows neither, the name
    /// is good for nothing, and another key has another name.
    async fn look_at_namesake(&self, case: Case<'_>, name: &str) -> Result<Next, Failure> {
        for _ in 0..NAMESAKE_LOOKS_MAX {
            if self
                .engine_call(self.host.engine.inspect(name).await)?
                .is_some()
            {
                return Ok(Next::Again);
            }
            tokio::time::sleep(REMOVAL_POLL).await;
        }
        let Case {
            record,
            status,
            sight,
            ..
        } = case;
        let written = self.books.take_key(record, status, sight).await;
        written.map_err(|error| unwritten(&error))?;
        Err(Failure::Engine(format!(
            "the engine says that the name {name} is taken, and shows no container of that name"
        )))
    }

    /// Writes down that a workspace is gone which an earlier life had, before an empty
    /// one is made in its place; returns the status that says so, where it is news.
    async fn note_files_lost(&self, case: Case<'_>) -> Result<Option<Status>, Failure> {
        let Case { record, status, .. } = case;
        let seen = case.sight.observed.workspace;
        let had_files = 0 < status.incarnation && case.sight.fate == Fate::Durable;
        if seen != Workspace::Absent || !had_files || status.files_lost {
            return Ok(None);
        }
        warn!(session = %record.spec.id, "its workspace was removed by somebody else: it goes on with an empty one");
        let lost = Status {
            files_lost: true,
            ..status.clone()
        };
        let noted = self.books.note_status(record, lost.clone()).await;
        noted.map(|_| Some(lost)).map_err(|error| unwritten(&error))
    }

    async fn start(&self, case: Case<'_>) -> Result<Next, Failure> {
        let noted = self.note_files_lost(case).await?;
        let case = Case {
            status: noted.as_ref().unwrap_or(case.status),
            ..case
        };
        let id = container_id(case)?;
        let seen = &case.sight.observed;
        let is_made = seen.container == Container::Created && seen.workspace != Workspace::Absent;
        if !is_made {
            self.make_workspace(&case.record.spec).await?;
        }
        self.prepare_agent(case).await?;
        let Err(error) = self.host.engine.start(id).await else {
            return Ok(Next::Again);
        };
        // An engine that was killed meanwhile may lose it, with a process that runs. One
        // that started needs no commit of its own: it is noted with its first life, and
        // the engine shows it under its name until then.
        self.note_container(case).await?;
        if !error.is_poisoned_start() {
            return match self.forgo_agent(case, &error).await? {
                Forgone::Yes => Ok(Next::Again),
                Forgone::No => Err(failure(&error)),
            };
        }
        let why = chain(&error);
        if holds_files(case.sight) {
            return Err(Failure::Engine(format!(
                "{why}; the container holds the only copy of its files: end what is left of it with: ctr -n moby tasks kill -s 9 {id}; ctr -n moby tasks rm {id}; ctr -n moby containers rm {id}"
            )));
        }
        // It never starts again: a new one is made under a new key.
        warn!(session = %case.record.spec.id, container = id, error = %why, "the engine was killed while it started this container: making another");
        self.engine_call(self.host.engine.remove(id, Force::Yes).await)?;
        Ok(Next::Again)
    }

    /// Writes down which container there is, where that was not known yet.
    pub(super) async fn note_container(&self, case: Case<'_>) -> Result<(), Failure> {
        let seen = container_id(case)?;
        if case.status.container.as_deref() == Some(seen) {
            return Ok(());
        }
        let noted = self
            .books
            .note_status(
                case.record,
                Status {
                    container: Some(seen.to_owned()),
                    ..case.status.clone()
                },
            )
            .await;
        noted.map(drop).map_err(|error| unwritten(&error))
    }

    async fn stop(&self, case: Case<'_>) -> Result<Next, Failure> {
        let session = &case.record.spec.id;
        let exclusive = self.leases.try_exclusive(session);
        let is_over = matches!(case.aim, Aim::Closed(_) | Aim::Gone);
        if exclusive.is_none() && !is_over && case.record.lets_finish() {
            return Ok(Next::After(IDLE_POLL));
        }
        self.engine_call(self.host.engine.stop(container_id(case)?, STOP_GRACE).await)?;
        Ok(Next::Again)
    }

    async fn remove_container(&self, case: Case<'_>) -> Result<Next, Failure> {
        let marks = &case.record.marks;
        // What is over and expires may be opened anew at this moment, with what it has.
        let _exclusive = if marks.closed.is_some() && case.status.has_reached(marks) {
            match self.leases.try_exclusive(&case.record.spec.id) {
                Some(exclusive) => Some(exclusive),
                None => return Ok(Next::After(IDLE_POLL)),
            }
        } else {
            None
        };
        if !self.is_intended_still(case.record) {
            return Ok(Next::Again);
        }
        // The engine forgets it even where a process of it goes on.
        self.note_container(case).await?;
        match self.engine_call(
            self.host
                .engine
                .remove(container_id(case)?, Force::Yes)
                .await,
        )? {
            Removed::Now | Removed::Gone => {
                self.tell_expiry(case).await;
                Ok(Next::Again)
            }
            Removed::InProgress => Ok(Next::After(REMOVAL_POLL)),
        }
    }

    /// Whether what was decided by a record is still what is wanted.
    fn is_intended_still(&self, record: &Record) -> bool {
        let now = self.books.store.record(&record.spec.id);
        now.is_some_and(|now| now.marks.generation == record.marks.generation)
    }

    async fn remove_workspace(&self, case: Case<'_>) -> Result<Next, Failure> {
        let Some(workspaces) = &self.host.workspaces else {
            return Ok(Next::Again);
        };
        let id = &case.record.spec.id;
        let Some(exclusive) = self.leases.try_exclusive(id) else {
            return Ok(Next::After(IDLE_POLL));
        };
        // What is removed is what this very intent gave up: under the lease no
        // opening can be on its way that the record does not show.
        if !self.is_intended_still(case.record) || case.aim != Aim::Gone {
            return Ok(Next::Again);
        }
        let remains = Host::on_disk(workspaces, id, Workspaces::remove)
            .await
            .map_err(|error| undone_on_disk(&error))?;
        drop(exclusive);
        self.tell_remains(&case.record.spec, &remains).await;
        Ok(Next::Again)
    }

    async fn remove_unused_workspace(&self, spec: &Spec) -> Result<Next, Failure> {
        let Some(workspaces) = &self.host.workspaces else {
            return Ok(Next::Again);
        };
        let Some(_exclusive) = self.leases.try_exclusive(&spec.id) else {
            return Ok(Next::After(IDLE_POLL));
        };
        Host::on_disk(workspaces, &spec.id, |workspaces, id| {
            workspaces.remove_unused(id)
        })
        .await
        .map_err(|error| undone_on_disk(&error))?;
        Ok(Next::Again)
    }

    async fn forget(&self, case: Case<'_>) -> Result<Next, Failure> {
        let record = case.record;
        match self
            .books
            .forget(record, case.aim)
            .await
            .map_err(|error| unwritten(&error))?
        {
            Written::Yes => {
                self.leases.forget(&record.spec.id);
                Ok(Next::Gone)
            }
            Written::Overtaken => Ok(Next::Again),
        }
    }

    fn blame(&self, blame: Blame, record: &Record, status: &Status) -> Failure {
        let spec = &record.spec;
        match blame {
            Blame::Image => {
                let refused = spec
                    .runtime
                    .ready_image()
                    .and_then(|reference| self.images.leave(reference, &spec.id));
                refused.unwrap_or_else(|| match self.blueprint(spec) {
                    Err(failure) => failure,
                    Ok(print) => Failure::Refused(format!("image {} cannot be had", print.image)),
                })
            }
            Blame::Name => {
                let name = status.key.as_ref().map_or_else(
                    || spec.id.to_string(),
                    |key| container_name(&spec.id, key),
                );
                Failure::Refused(format!(
                    "the name {name} is taken by a container that sandboxd does not manage; remove or rename it"
                ))
            }
            Blame::Room => Failure::Unavailable(NO_ROOM.to_owned()),
            Blame::Dead => Failure::Refused(
                "its container is dead and holds the only copy of its files; remove it by hand, or purge the session"
                    .to_owned(),
            ),
            Blame::Rival => Failure::Refused(format!(
                "container {} works on the same workspace and is not managed by sandboxd; stop it first",
                crate::session::blueprint::predecessor_name(&spec.id)
            )),
        }
    }

    #[expect(clippy::unused_self, reason = "reads as one with the calls it wraps")]
    fn engine_call<T>(&self, result: Result<T, docker::Error>) -> Result<T, Failure> {
        result.map_err(|error| failure(&error))
    }
}

/// Whether a container goes with the only copy of the session's files.
pub(super) fn holds_files(sight: &Sight) -> bool {
    match (sight.observed.container, sight.fate) {
        // It never ran.
        (Container::Created, _) => false,
        (_, Fate::Unique) => true,
        (_, Fate::Durable) => false,
    }
}

/// The engine's id of the container that was seen.
pub(super) fn container_id(case: Case<'_>) -> Result<&str, Failure> {
    case.sight
        .container
        .as_ref()
        .map(|container| container.id.as_str())
        .ok_or_else(|| Failure::Unavailable("its container was not seen".to_owned()))
}

/// Says what a failed engine call means for a session.
pub(super) fn failure(error: &docker::Error) -> Failure {
    let text = chain(error);
    if error.is_no_space() {
        return Failure::NoSpace(text);
    }
    match (error.status(), error.retry()) {
        (Some(_), Retry::Never) => Failure::Refused(text),
        (Some(_), Retry::Backoff) => Failure::Engine(text),
        (None, Retry::Never) => Failure::Refused(text),
        (None, Retry::Backoff) => Failure::Unavailable(text),
    }
}

fn unseen(blind: &Blind) -> Failure {
    match blind {
        Blind::Engine(error) => failure(error),
        Blind::Disk(error) => Failure::Unavailable(chain(error)),
        Blind::Distrusted(why) => Failure::Unavailable(why.clone()),
    }
}

fn undone_on_disk(error: &WorkspaceError) -> Failure {
    let text = chain(error);
    if error.is_no_space() {
        Failure::NoSpace(text)
    } else {
        Failure::Engine(text)
    }
}

/// Says what a failed commit means for a session.
pub fn unwritten(error: &CommitError) -> Failure {
    let text = chain(error);
    match error {
        CommitError::NoSpace => Failure::NoSpace(text),
        _ => Failure::Store(text),
    }
}

/// Tells whether a use is going on.
pub(super) fn in_use(leases: &Leases, id: &crate::id::SessionId) -> InUse {
    if 0 < leases.count(id) {
        InUse::Yes
    } else {
        InUse::No
    }
}
