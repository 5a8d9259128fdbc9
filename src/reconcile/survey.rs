//! Tells what the next sweep takes, by the judgement of the controller itself: the same
//! records, the same look at the host and the same next step, which is not taken here.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::pass::Passes;
use super::plan::{Blame, Container, Observed, Progress, Room, Step, Workspace, next_step};
use super::strays::{Suspects, Verdict, judge};
use crate::clock::Timestamp;
use crate::docker;
use crate::docker::inspect::Summary;
use crate::id::SessionId;
use crate::session::blueprint::LABEL_KEY;
use crate::session::lifecycle::{Aim, InUse};
use crate::session::record::Record;
use crate::session::sweep::{Taking, takings};
use crate::session::{Hold, Sweeps};

/// What one survey lists at most.
pub const ITEMS_MAX: usize = 1_000;
/// Sweeps that were asked for and wait for their turn.
const ASKED_MAX: usize = 16;

/// One thing that is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// What is done.
    pub deed: Deed,
    /// Its session, where it has one.
    pub session: Option<SessionId>,
    /// The engine's id of its container, where that is known.
    pub container: Option<String>,
    /// Why: the words of events, or `stray`.
    pub reason: &'static str,
    /// From when on the limit counts.
    pub since: Timestamp,
    /// How long that may be; none where a caller asked for it.
    pub limit: Option<Duration>,
    /// When it is due.
    pub at: Timestamp,
    /// What it waits for beyond that, where it does.
    pub waits_for: Option<&'static str>,
}

/// What is done to something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deed {
    /// A session falls asleep.
    Hibernate,
    /// A session is closed, and keeps its files.
    Close,
    /// A container goes.
    RemoveContainer,
    /// A workspace goes, with everything in it.
    RemoveWorkspace,
    /// A record goes of which nothing is left on the host.
    Forget,
}

/// What the next sweep takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// What is taken, by the order of opening; strays come last.
    pub items: Vec<Item>,
    /// Whether there is more than was listed.
    pub more: bool,
    /// The holds that keep everything else from being taken.
    pub holds: Vec<Hold>,
    /// Strays that are kept since there are too many of them at once.
    pub strays_held_back: usize,
    /// Everything that is due by then was looked for.
    pub until: Timestamp,
}

/// Looks ahead of the sweeps, and has one made now; cheap to clone.
#[derive(Clone, Debug)]
pub struct Survey {
    passes: Passes,
    orphan_grace: Duration,
    period: Duration,
    suspects: Shared,
    asks: mpsc::Sender<Asked>,
}

/// Who asked for a sweep is told what became of it.
pub(super) type Asked = oneshot::Sender<Result<(), docker::Error>>;

/// The strays under suspicion, as the sweeps and the survey know them.
#[derive(Clone, Debug, Default)]
pub(super) struct Shared(Arc<Mutex<Suspects>>);

impl Shared {
    // A std lock: it is held for a copy, never across an await.
    pub(super) fn get(&self) -> Suspects {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(super) fn set(&self, suspects: Suspects) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = suspects;
    }
}

/// Says why no sweep was made.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The engine did not tell what it has.
    #[error("list the engine's containers")]
    Engine(#[from] docker::Error),
    /// The service is stopping.
    #[error("sweep: the service is stopping")]
    Stopping,
}

impl Survey {
    /// Makes one for sweeps every `period` that let strays be for `orphan_grace`, and
    /// returns where they are asked for.
    pub(super) fn new(
        passes: Passes,
        orphan_grace: Duration,
        period: Duration,
    ) -> (Self, Shared, mpsc::Receiver<Asked>) {
        let (asks, asked) = mpsc::channel(ASKED_MAX);
        let suspects = Shared::default();
        let survey = Self {
            passes,
            orphan_grace,
            period,
            suspects: suspects.clone(),
            asks,
        };
        (survey, suspects, asked)
    }

    /// Returns the time between two sweeps.
    pub fn period(&self) -> Duration {
        self.period
    }

    /// Lists what is taken within a time, if nothing is used meanwhile; takes nothing.
    ///
    /// # Errors
    /// The engine gave no complete listing.
    pub async fn look(&self, within: Duration) -> Result<Listing, SweepError> {
        let now = self.passes.now();
        let until = now.plus(within);
        let standing = self.passes.holds().standing();
        let mut listing = Listing {
            holds: standing.into_iter().map(|standing| standing.hold).collect(),
            until,
            ..Listing::default()
        };
        let listed = self.passes.listing().await?;
        let listed = listed.unwrap_or_default();
        let keys: BTreeSet<&str> = listed
            .iter()
            .filter_map(|line| line.labels.get(LABEL_KEY).map(String::as_str))
            .collect();
        for record in self.passes.executor.books.store.records() {
            for taking in self.takings(&record, &keys, (now, until)) {
                if ITEMS_MAX <= listing.items.len() {
                    listing.more = true;
                    return Ok(listing);
                }
                let items = self.items(&record, taking, now).await;
                let sleeps = !items.is_empty() && matches!(taking.aim, Aim::Drowsy(_));
                listing.items.extend(items);
                if sleeps {
                    break;
                }
            }
        }
        match self.passes.holds().sweeps() {
            Sweeps::On => self.list_strays(&mut listing, &listed),
            Sweeps::Off => {}
        }
        Ok(listing)
    }

    /// Has everything gone through now, and waits until that is done; what is found due is
    /// queued for the controller by then.
    ///
    /// # Errors
    /// The engine gave no complete listing; what needs none was queued all the same.
    pub async fn sweep(&self) -> Result<(), SweepError> {
        let (told, outcome) = oneshot::channel();
        let asked = self.asks.send(told).await;
        asked.map_err(|_| SweepError::Stopping)?;
        outcome.await.map_err(|_| SweepError::Stopping)??;
        Ok(())
    }

    fn takings(
        &self,
        record: &Record,
        keys: &BTreeSet<&str>,
        span: (Timestamp, Timestamp),
    ) -> Vec<Taking> {
        let passes = &self.passes;
        let policy = passes.executor.policy.get();
        let (lifetimes, activity) = passes.ageing(&policy, record, span.0);
        let takings = takings(&record.marks, &lifetimes, activity, span).into_iter();
        let status = passes.executor.books.store.status(&record.spec.id);
        let key = status.as_ref().and_then(|status| status.key.as_ref());
        let has_container = key.is_some_and(|key| keys.contains(key.as_str()));
        // What is over and has its files alone is as it should be, and needs no look.
        takings
            .filter(|taking| has_container || !matches!(taking.aim, Aim::Closed(_)))
            .collect()
    }

    /// Looks at a session as its pass would, and says what that would do to it then.
    async fn items(&self, record: &Record, taking: Taking, now: Timestamp) -> Vec<Item> {
        let (status, sight) = self.passes.seen(record).await;
        let observed = if taking.at <= now {
            sight.observed
        } else {
            // Nobody is to use it until then.
            Observed {
                in_use: InUse::No,
                ..sight.observed
            }
        };
        let progress = if status.has_reached(&record.marks) {
            Progress::Reached
        } else {
            Progress::Pending
        };
        // No start is asked about, so that no room for one is.
        let step = next_step(taking.aim, sight.fate, progress, observed, Room::Full);
        let item = |deed, waits_for| Item {
            deed,
            session: Some(record.spec.id.clone()),
            container: status.container.clone(),
            reason: taking.reason.as_str(),
            since: taking.since,
            limit: taking.limit,
            at: taking.at,
            waits_for,
        };
        let deeds = deeds(taking.aim, step, observed).into_iter();
        let waits_for = waits_for(step);
        deeds.map(|deed| item(deed, waits_for)).collect()
    }

    fn list_strays(&self, listing: &mut Listing, listed: &[Summary]) {
        let suspects = self.suspects.get();
        let grace = self.orphan_grace;
        let verdict = strays(&self.passes, listed, &suspects, grace, listing.until);
        listing.strays_held_back = verdict.held_back;
        for id in verdict.remove {
            if ITEMS_MAX <= listing.items.len() {
                listing.more = true;
                return;
            }
            let since = suspects.get(&id).copied().unwrap_or(listing.until);
            listing.items.push(Item {
                deed: Deed::RemoveContainer,
                session: None,
                container: Some(id),
                reason: "stray",
                since,
                limit: Some(grace),
                at: since.plus(grace),
                waits_for: None,
            });
        }
    }
}

/// Says which containers of a complete listing no record explains, and may go.
pub(super) fn strays(
    passes: &Passes,
    listed: &[Summary],
    before: &Suspects,
    grace: Duration,
    now: Timestamp,
) -> Verdict {
    let (all, explained) = passes.explained(listed);
    judge(&all, &explained, before, grace, now)
}

/// Says what comes of a session whose aim this is, once the step was taken, and those
/// after it.
fn deeds(aim: Aim, step: Step, observed: Observed) -> Vec<Deed> {
    match (aim, step) {
        (_, Step::Park(_)) => vec![Deed::Hibernate],
        (_, Step::Close(_)) => vec![Deed::Close],
        (Aim::Drowsy(_), Step::AwaitIdle) => vec![Deed::Hibernate],
        (Aim::Over(_), Step::AwaitIdle) => vec![Deed::Close],
        (Aim::Gone, _) => remains(observed),
        (Aim::Closed(_), Step::RemoveContainer | Step::LookAgain | Step::AwaitRemoval) => {
            vec![Deed::RemoveContainer]
        }
        (Aim::Running | Aim::Drowsy(_) | Aim::Over(_) | Aim::Parked(_) | Aim::Closed(_), _) => {
            Vec::new()
        }
    }
}

/// Says what there is of a session of which nothing is to be left.
fn remains(observed: Observed) -> Vec<Deed> {
    let container = match observed.container {
        Container::Keyless | Container::Unmade | Container::Lost | Container::Foreign => None,
        Container::Unknown
        | Container::Created
        | Container::Running(_)
        | Container::Paused
        | Container::Stopped(..)
        | Container::Dead
        | Container::Removing => Some(Deed::RemoveContainer),
    };
    let workspace = match observed.workspace {
        Workspace::Off | Workspace::Absent => None,
        Workspace::Unknown | Workspace::Ready | Workspace::Unused => Some(Deed::RemoveWorkspace),
    };
    let both: BTreeSet<_> = [container, workspace].into_iter().flatten().collect();
    if both.is_empty() {
        return vec![Deed::Forget];
    }
    both.into_iter().collect()
}

/// Says what a step waits for, where it takes nothing by itself.
fn waits_for(step: Step) -> Option<&'static str> {
    match step {
        Step::AwaitIdle => Some("in_use"),
        Step::LookAgain => Some("unknown"),
        Step::EndGhosts => Some("ghost"),
        Step::Fail(Blame::Rival) => Some("rival"),
        Step::AwaitRemoval
        | Step::AwaitRoom
        | Step::AwaitImage
        | Step::Fail(Blame::Image | Blame::Name | Blame::Dead | Blame::Room)
        | Step::Settle
        | Step::TakeKey
        | Step::Create
        | Step::Start
        | Step::Unpause
        | Step::Stop
        | Step::RemoveContainer
        | Step::RemoveWorkspace
        | Step::RemoveUnusedWorkspace
        | Step::Forget
        | Step::Park(_)
        | Step::Close(_) => None,
    }
}
