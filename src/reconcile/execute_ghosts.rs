//! Ends what is left of containers that the engine has lost.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::{error, info};

use super::execute::{Case, Executor, Next, failure, unwritten};
use super::ghosts::{Haunting, Knowledge, Verdict, judge, knowledge};
use super::ticket::Failure;
use crate::cause::chain;
use crate::docker;
use crate::docker::containers::Label;
use crate::session::blueprint::LABEL_INSTANCE;
use crate::store::EngineMatch;

/// The rest between the two listings that both have to miss a container.
const LISTING_REST: Duration = Duration::from_secs(1);
/// How long processes may take to end that were killed.
const KILLED_WAIT_MAX: Duration = Duration::from_secs(5);
/// The rest between two kills of what is left.
const KILL_POLL: Duration = Duration::from_millis(50);

/// Whether ghosts were written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Noted {
    /// They were, just now.
    Now,
    /// They had been.
    Before,
}

impl Executor {
    /// Writes ghosts down that were not told of yet.
    pub(super) async fn note_ghosts(&self, case: Case<'_>) -> Result<Noted, Failure> {
        let told = |container: &str| {
            let mut former = case.status.former.iter();
            former.any(|one| one.container == container && one.reported)
        };
        let ghosts = &case.sight.ghosts;
        if ghosts.iter().all(|ghost| told(&ghost.container)) {
            return Ok(Noted::Before);
        }
        for ghost in ghosts.iter().filter(|ghost| !told(&ghost.container)) {
            error!(
                session = %case.record.spec.id,
                container = %ghost.container,
                processes = ghost.processes,
                remedy = %ghost.remedy(),
                "the engine has lost a container whose processes still run"
            );
        }
        let noted = self.books.note_ghosts(case.record, case.status, ghosts);
        noted
            .await
            .map(|_| Noted::Now)
            .map_err(|error| unwritten(&error))
    }

    /// Ends what is left of a session's former containers, where that may be.
    ///
    /// # Errors
    /// Something is left; the failure names it, and what an operator can do.
    pub(super) async fn end_ghosts(&self, case: Case<'_>) -> Result<Next, Failure> {
        if self.note_ghosts(case).await? == Noted::Now {
            return Ok(Next::Again);
        }
        for ghost in &case.sight.ghosts {
            let knowledge = self
                .knowledge(&ghost.container)
                .await
                .map_err(|error| failure(&error))?;
            let ended = match judge(knowledge) {
                Verdict::Kill => self.kill_ghost(ghost).await,
                Verdict::Leave => Err(match knowledge {
                    Knowledge::OtherEngine => "another engine than before answers".to_owned(),
                    Knowledge::Shown | Knowledge::Lost => {
                        "the engine shows the container again".to_owned()
                    }
                }),
            };
            ended.map_err(|why| left(ghost, &why))?;
            info!(session = %case.record.spec.id, container = %ghost.container, "a ghost was ended");
            let noted = self.books.note_ghost_ended(case.record, ghost).await;
            noted.map_err(|error| unwritten(&error))?;
        }
        Ok(Next::Again)
    }

    /// Asks the engine what it knows of a container that it seems to have lost.
    async fn knowledge(&self, container: &str) -> Result<Knowledge, docker::Error> {
        let engine = &self.host.engine;
        let id = engine.info().await?.identity();
        match self.books.store.claim_engine_id(&id).await {
            Ok(EngineMatch::First | EngineMatch::Same) => {}
            // What cannot be compared is not known.
            Ok(EngineMatch::Different { .. }) | Err(_) => return Ok(Knowledge::OtherEngine),
        }
        let first = self.listed().await?;
        sleep(LISTING_REST).await;
        let second = self.listed().await?;
        let found = engine.inspect(container).await?.is_some();
        Ok(knowledge([&first, &second], found, container))
    }

    async fn listed(&self) -> Result<BTreeSet<String>, docker::Error> {
        let label = Label::new(LABEL_INSTANCE, self.host.instance.as_str());
        let listed = self.host.engine.list(&label).await?;
        Ok(listed.into_iter().map(|line| line.id).collect())
    }

    /// Kills until nothing is left.
    async fn kill_ghost(&self, ghost: &Haunting) -> Result<(), String> {
        let give_up = Instant::now() + KILLED_WAIT_MAX;
        loop {
            match self.host.cgroups.kill(&ghost.container) {
                Ok(0) => return Ok(()),
                Ok(left) if give_up < Instant::now() => {
                    return Err(format!("{left} of its processes do not end"));
                }
                Ok(_) => sleep(KILL_POLL).await,
                Err(error) => {
                    return Err(format!("its processes cannot be killed: {}", chain(&error)));
                }
            }
        }
    }
}

/// Says what is left, why, and what to do.
fn left(ghost: &Haunting, why: &str) -> Failure {
    let Haunting {
        container,
        processes,
    } = ghost;
    Failure::Unavailable(format!(
        "{processes} processes of its former container {container} still run although the engine has lost it, and may write to the same files; {why}. End them on the host: {}",
        ghost.remedy()
    ))
}
