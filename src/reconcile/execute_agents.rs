//! Makes containers with an agent in them, and without one where none can run.

use tracing::warn;

use super::agents::{Aboard, Agents, exec_of, hides, is_unable, never_began};
use super::execute::{Case, Executor, container_id, failure, holds_files};
use super::plan::Container;
use super::settings::{create_body, mounts};
use super::ticket::Failure;
use crate::agent::protocol::PROGRAM;
use crate::cause::chain;
use crate::docker;
use crate::docker::archive::PackedFile;
use crate::docker::containers::{Created, Force};
use crate::docker::inspect::Inspect;
use crate::session::blueprint::{Blueprint, container_name};
use crate::session::record::Exec;

/// Permissions of the program in a container.
const PROGRAM_MODE: u32 = 0o555;

/// Whether a container was replaced by one that can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Forgone {
    /// It is gone, and the next is made without an agent.
    Yes,
    /// It is not the agent that keeps it from starting.
    No,
}

impl Executor {
    /// Makes a container, with the agent in it where one can be.
    pub(super) async fn make(
        &self,
        case: Case<'_>,
        print: &Blueprint,
    ) -> Result<Created, docker::Error> {
        let session = &case.record.spec.id;
        let aboard = match &self.host.agents {
            Some(agents) => agents.aboard(session, print).seen_by(&self.host.outside),
            None => Aboard::No,
        };
        let made = self.make_with(case, print, &aboard).await;
        match (&self.host.agents, made) {
            (Some(agents), Err(error)) if hides(&error, &aboard) => {
                warn!(%session, error = %chain(&error), "the engine does not see this host's files: agents are put into containers, and reached over the engine");
                agents.note_hidden();
                self.make_with(case, print, &Aboard::Copied).await
            }
            (_, made) => made,
        }
    }

    async fn make_with(
        &self,
        case: Case<'_>,
        print: &Blueprint,
        aboard: &Aboard,
    ) -> Result<Created, docker::Error> {
        let Case { record, status, .. } = case;
        let key = status
            .key
            .as_ref()
            .expect("a container is made only under a key on record");
        let instance = &self.host.instance;
        let mounts = mounts(print, aboard, &self.host.outside);
        let body = create_body((print, mounts), &record.spec, (instance, key), aboard);
        let name = container_name(&record.spec.id, key);
        self.host.engine.create(&name, &body).await
    }

    /// Makes ready what the agent of a container needs, before that starts.
    pub(super) async fn prepare_agent(&self, case: Case<'_>) -> Result<(), Failure> {
        let (Some(agents), Some(container)) = (&self.host.agents, &case.sight.container) else {
            return Ok(());
        };
        if exec_of(container) == Exec::Docker {
            return Ok(());
        }
        let session = &case.record.spec.id;
        agents.make_ready(session, container).map_err(|error| {
            Failure::Unavailable(format!("make the socket of its agent: {error}"))
        })?;
        let is_new = case.sight.observed.container == Container::Created;
        if is_new && !container.mounts_at(PROGRAM) {
            self.put_agent(agents, container).await?;
        }
        Ok(())
    }

    /// Puts the agent's program into a container that does not see it on the host.
    async fn put_agent(&self, agents: &Agents, container: &Inspect) -> Result<(), Failure> {
        let program = agents.program().clone();
        let bytes = match tokio::task::spawn_blocking(move || program.bytes()).await {
            Ok(bytes) => bytes,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        };
        let bytes =
            bytes.map_err(|error| Failure::Engine(format!("read the agent's program: {error}")))?;
        let file = PackedFile {
            path: PROGRAM.trim_start_matches('/'),
            mode: PROGRAM_MODE,
            bytes: &bytes,
        };
        let put = self.host.engine.put_file(&container.id, file).await;
        // One that is gone is missed by what comes next.
        put.map(drop).map_err(|error| failure(&error))
    }

    /// Takes a container away that cannot start since its agent cannot be run, and sees to
    /// it that the next is made without one. Only one that never ran is taken away.
    pub(super) async fn forgo_agent(
        &self,
        case: Case<'_>,
        error: &docker::Error,
    ) -> Result<Forgone, Failure> {
        if !is_unable(error) {
            return Ok(Forgone::No);
        }
        let why = chain(error);
        if case.sight.observed.container != Container::Created || holds_files(case.sight) {
            return Err(Failure::Engine(format!(
                "the agent in its container cannot be started any more: {why}; purge the session, or close it and open it anew"
            )));
        }
        self.make_without(case, &why).await
    }

    /// The same for a container that ended as soon as it was started for the first time.
    pub(super) async fn forgo_ended_agent(&self, case: Case<'_>) -> Result<Forgone, Failure> {
        let began = case.sight.container.as_ref().is_none_or(|container| {
            let agents = self.host.agents.as_ref();
            !never_began(container)
                || agents
                    .is_none_or(|agents| agents.dock().knew(&case.record.spec.id, &container.id))
        });
        if began {
            return Ok(Forgone::No);
        }
        self.make_without(case, "it ended at once").await
    }

    async fn make_without(&self, case: Case<'_>, why: &str) -> Result<Forgone, Failure> {
        let (Some(agents), Some(container)) = (&self.host.agents, &case.sight.container) else {
            return Ok(Forgone::No);
        };
        if exec_of(container) == Exec::Docker {
            return Ok(Forgone::No);
        }
        let print = self.blueprint(&case.record.spec)?;
        warn!(session = %case.record.spec.id, image = print.image, why, "the agent cannot be run in this image: commands go by the engine's exec");
        agents.note_unable(&print);
        self.note_container(case).await?;
        let removed = self
            .host
            .engine
            .remove(container_id(case)?, Force::Yes)
            .await;
        removed.map_err(|error| failure(&error))?;
        Ok(Forgone::Yes)
    }

    /// Lets the agent of a session dial where its container runs, and nobody where it is
    /// certain that it does not.
    pub(super) fn open_dock(&self, case: Case<'_>) {
        let Some(agents) = &self.host.agents else {
            return;
        };
        let session = &case.record.spec.id;
        match (case.sight.observed.container, &case.sight.container) {
            (Container::Running(_), Some(container)) => agents.expect(session, container),
            (Container::Running(_) | Container::Paused, _) => {}
            (Container::Unknown | Container::Removing | Container::Foreign, _) => {}
            (
                Container::Keyless
                | Container::Unmade
                | Container::Lost
                | Container::Created
                | Container::Stopped(..)
                | Container::Dead,
                _,
            ) => agents.dock().leave(session),
        }
    }

    /// Gives up the place of a session whose record goes.
    pub(super) fn close_dock(&self, case: Case<'_>) {
        if let Some(agents) = &self.host.agents {
            agents.dock().leave(&case.record.spec.id);
        }
    }
}
