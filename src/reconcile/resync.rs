//! Compares everything on record with one listing of the engine's containers.
//!
//! The listing only says which keys to look at. Nothing is changed on its word
//! but strays, and those only on the word of two complete ones.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::sync::mpsc;
use tracing::{error, warn};

use super::ghosts::{has_outlived_its_grace, hauntings};
use super::key::Key;
use super::pass::{Passes, aim_on_record};
use super::strays::Suspects;
use super::survey::{Asked, Shared, Survey, strays};
use crate::cause::chain;
use crate::docker;
use crate::docker::containers::Label;
use crate::docker::inspect::{State, Summary};
use crate::id::ContainerKey;
use crate::session::Sweeps;
use crate::session::blueprint::{LABEL_INSTANCE, LABEL_KEY};
use crate::session::lifecycle::{Aim, Keep};
use crate::session::record::{Record, Status};

/// What may have happened since the round before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// Only what a listing shows: events told the rest.
    Regular,
    /// Anything, untold: a container that runs may have been restarted, which no
    /// listing shows.
    AfterGap,
}

/// Goes through everything; remembers suspects from one pass to the next.
#[derive(Debug)]
pub struct Resync {
    passes: Passes,
    orphan_grace: Duration,
    period: Duration,
    suspects: Shared,
    sight: Sight,
    asked: mpsc::Receiver<Asked>,
}

/// Whether control groups can be seen; it is said once that they cannot.
#[derive(Debug, Default)]
struct Sight {
    lost: bool,
}

impl Sight {
    fn is_lost(&mut self, why: &str) {
        if !self.lost {
            warn!(
                why,
                "processes of containers that the engine loses cannot be found"
            );
        }
        self.lost = true;
    }
}

impl Resync {
    /// Makes a resync every `period` that lets strays be for `orphan_grace`, and what looks
    /// ahead of it.
    pub fn new(passes: Passes, orphan_grace: Duration, period: Duration) -> (Self, Survey) {
        let (survey, suspects, asked) = Survey::new(passes.clone(), orphan_grace, period);
        let resync = Self {
            passes,
            orphan_grace,
            period,
            suspects,
            sight: Sight::default(),
            asked,
        };
        (resync, survey)
    }

    /// Returns the time between two rounds.
    pub(super) fn period(&self) -> Duration {
        self.period
    }

    /// Waits until somebody asks for a round.
    pub(super) async fn asked(&mut self) -> Asked {
        match self.asked.recv().await {
            Some(asked) => asked,
            None => std::future::pending().await,
        }
    }

    /// Queues every session that has something to do, now or at its deadline, and
    /// after a gap every session that should be running.
    ///
    /// # Errors
    /// The engine gave no complete listing. Deadlines are queued all the same.
    pub async fn run(&mut self, round: Round) -> Result<(), docker::Error> {
        let listed = self.passes.listing().await;
        if let Ok(Some(listed)) = &listed {
            self.count(listed);
            self.queue_surprises(listed, round);
        }
        // What needs no engine goes on without one.
        self.queue_deadlines();
        let listed = listed?;
        if let Some(listed) = &listed {
            self.queue_haunted(listed);
        }
        match (listed, self.passes.holds().sweeps()) {
            (Some(listed), Sweeps::On) => self.sweep_strays(&listed).await,
            // Who was suspected is so from the next sweep on.
            (_, Sweeps::Off) => self.suspects.set(Suspects::new()),
            (None, Sweeps::On) => {}
        }
        Ok(())
    }

    /// Gives each container that runs its place, before anything is started.
    ///
    /// At first each has one too whose session is not yet what it should be: the engine may
    /// be at a start that an earlier run of the daemon asked for, which no listing shows. A
    /// look at it tells.
    fn count(&self, listed: &[Summary]) {
        let passes = &self.passes;
        let running: BTreeSet<&str> = listed
            .iter()
            .filter(|line| is_running(Some(line.state)))
            .filter_map(|line| line.labels.get(LABEL_KEY).map(String::as_str))
            .collect();
        let store = &passes.executor.books.store;
        let is_first = passes.residents.holders().is_none();
        for record in store.records() {
            let status = store.status(&record.spec.id);
            let Some(status) = status.as_deref() else {
                continue;
            };
            let runs = |key: &ContainerKey| running.contains(key.as_str());
            let is_unsettled = is_first && !status.has_reached(&record.marks);
            if status
                .key
                .as_ref()
                .is_some_and(|key| runs(key) || is_unsettled)
            {
                passes.residents.note(&record.spec.id);
            }
        }
        for waiting in passes.residents.counted() {
            passes.work.nudge_session(&waiting);
        }
    }

    /// Removes what is left of workspaces whose removal was cut short.
    pub async fn empty_trash(&self) {
        match self.passes.holds().sweeps() {
            Sweeps::On => self.passes.executor.empty_trash().await,
            Sweeps::Off => {}
        }
    }

    /// Has the sidecars say again what a lost store would have to be told.
    pub(super) async fn mend_sidecars(&self) {
        self.passes.executor.mend_sidecars().await;
    }

    fn queue_deadlines(&self) {
        let passes = &self.passes;
        let policy = passes.executor.policy.get();
        let store = &passes.executor.books.store;
        let now = passes.executor.books.clock.now();
        for record in store.records() {
            let (aim, deadline) = aim_on_record(passes, &policy, &record, now);
            let status = store.status(&record.spec.id);
            let reached = status.is_some_and(|status| status.has_reached(&record.marks));
            let key = Key::Session(record.spec.id.clone());
            let is_due = !reached || matches!(aim, Aim::Drowsy(_) | Aim::Over(_) | Aim::Gone);
            if is_due {
                passes.work.nudge(key);
            } else if let Some(deadline) = deadline {
                passes.work.at(key, deadline);
            }
        }
    }

    fn queue_surprises(&self, listed: &[Summary], round: Round) {
        let passes = &self.passes;
        let policy = passes.executor.policy.get();
        let store = &passes.executor.books.store;
        let now = passes.executor.books.clock.now();
        let by_key: BTreeMap<&str, State> = listed
            .iter()
            .filter_map(|line| Some((line.labels.get(LABEL_KEY)?.as_str(), line.state)))
            .collect();
        for record in store.records() {
            let (aim, _) = aim_on_record(passes, &policy, &record, now);
            let status = store.status(&record.spec.id);
            let seen = status
                .as_deref()
                .and_then(|status| status.key.as_ref())
                .and_then(|key| by_key.get(key.as_str()).copied());
            let may_have_restarted = round == Round::AfterGap && aim == Aim::Running;
            if may_have_restarted || is_surprising(aim, seen, &record, status.as_deref()) {
                passes.work.nudge_session(&record.spec.id);
            }
        }
    }

    /// Queues sessions of which processes are left that the engine has lost, and those
    /// whose former containers can be forgotten.
    fn queue_haunted(&mut self, listed: &[Summary]) {
        let passes = &self.passes;
        let groups = match passes.executor.host.cgroups.containers() {
            Ok(groups) => groups,
            Err(error) => {
                self.sight.is_lost(&chain(&error));
                return;
            }
        };
        let running = listed.iter().find(|line| line.state == State::Running);
        if running.is_some_and(|line| !groups.contains_key(&line.id)) {
            self.sight
                .is_lost("the engine keeps its control groups elsewhere");
        }
        let all: BTreeSet<String> = listed.iter().map(|line| line.id.clone()).collect();
        let now = passes.executor.books.clock.now();
        let store = &passes.executor.books.store;
        for record in store.records() {
            let id = &record.spec.id;
            let Some(status) = store.status(id) else {
                continue;
            };
            let is_haunted = !hauntings([(id, &*status)], &all, &groups).is_empty();
            if is_haunted || has_outlived_its_grace(&status, now) {
                passes.work.nudge_session(id);
            }
        }
    }

    async fn sweep_strays(&self, listed: &[Summary]) {
        let passes = &self.passes;
        let now = passes.now();
        let suspects = self.suspects.get();
        let verdict = strays(passes, listed, &suspects, self.orphan_grace, now);
        if 0 < verdict.held_back {
            error!(
                strays = verdict.held_back,
                containers = listed.len(),
                "more than a fifth of all containers belong to no session: none is removed; is the store complete?"
            );
        }
        for id in &verdict.remove {
            if let Err(error) = passes.executor.remove_stray(id).await {
                warn!(container = %id, error = %chain(&error), "a stray container could not be removed");
            }
        }
        self.suspects.set(verdict.suspects);
    }
}

impl Passes {
    /// Lists our containers; nothing where the engine is not the one that the store
    /// was used with: behind another, the records say nothing about what is listed.
    pub(super) async fn listing(&self) -> Result<Option<Vec<Summary>>, docker::Error> {
        let engine = &self.engine;
        let host = &self.executor.host;
        let Some(before) = engine.confirmed_soon().await else {
            return Ok(None);
        };
        let found = host.engine.info().await?.identity();
        if self.executor.books.store.engine_id().as_ref() != Some(&found) {
            engine.doubt();
            return Ok(None);
        }
        let label = Label::new(LABEL_INSTANCE, host.instance.as_str());
        let listed = host.engine.list(&label).await?;
        Ok((engine.confirmed() == Some(before)).then_some(listed))
    }

    /// Returns all containers of a listing, and those that a record owns.
    pub(super) fn explained(&self, listed: &[Summary]) -> (BTreeSet<String>, BTreeSet<String>) {
        let store = &self.executor.books.store;
        let keys: BTreeSet<String> = store
            .records()
            .iter()
            .filter_map(|record| store.status(&record.spec.id)?.key.clone())
            .map(String::from)
            .collect();
        let is_explained = |line: &&Summary| {
            let key = line.labels.get(LABEL_KEY);
            key.is_some_and(|key| keys.contains(key))
        };
        let id = |line: &Summary| line.id.clone();
        let all = listed.iter().map(id).collect();
        let explained = listed.iter().filter(is_explained).map(id).collect();
        (all, explained)
    }
}

/// Whether a listing shows something else than the record expects.
fn is_surprising(aim: Aim, seen: Option<State>, record: &Record, status: Option<&Status>) -> bool {
    let reached = status.is_some_and(|status| status.has_reached(&record.marks));
    let as_wanted = match aim {
        // A drowsy one runs on where its container holds the only copy of the files.
        Aim::Running | Aim::Drowsy(_) => seen == Some(State::Running),
        Aim::Parked(Keep::Container) | Aim::Closed(Keep::Container) => !is_running(seen),
        Aim::Parked(Keep::Files) | Aim::Closed(Keep::Files) => seen.is_none(),
        Aim::Over(_) | Aim::Gone => false,
    };
    !reached || !as_wanted
}

fn is_running(seen: Option<State>) -> bool {
    match seen {
        Some(State::Running | State::Paused | State::Restarting) => true,
        Some(State::Created | State::Removing | State::Exited | State::Dead) | None => false,
    }
}
