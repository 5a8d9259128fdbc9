//! Looks at one key and brings it one or more steps closer to what it should be.

use std::time::Duration;

use tracing::{debug, info, warn};

use super::backoff::rest;
use super::books::Written;
use super::epoch::Epoch;
use super::execute::{Case, Executor, Next, failure, in_use, unwritten};
use super::execute_agents::Forgone;
use super::health::EngineHealth;
use super::holds::Holds;
use super::key::Key;
use super::observe::{Sight, observe};
use super::plan::{Container, Past, Progress, Room, Step, next_step};
use super::residents::Residents;
use super::ticket::{Failure, Outcome, Tickets};
use super::work::Work;
use crate::clock::Timestamp;
use crate::id::SessionId;
use crate::policy::{Lifetimes, Policy};
use crate::session::admission::Standing;
use crate::session::lifecycle::{Activity, Aim, InUse, aim, lifetimes_under};
use crate::session::record::{Record, Status};

/// One look at a session takes at most so many steps before others have a turn.
pub const STEPS_MAX: usize = 16;

/// Passes over keys; cheap to clone.
#[derive(Clone, Debug)]
pub struct Passes {
    /// Acts on the host.
    pub executor: Executor,
    /// Who waits for what becomes of an intent.
    pub tickets: Tickets,
    /// Who has a place.
    pub residents: Residents,
    /// Where keys wait for their next pass.
    pub work: Work,
    /// From when on ages are counted.
    pub epoch: Epoch,
    /// Whether the engine is the one with the sandboxes.
    pub engine: EngineHealth,
}

/// So often one look at a session starts a container, of which the first may be one that
/// the engine can never start.
const STARTS_MAX: usize = 2;

/// Whether a start was the first of its container, which then holds no files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    Yes,
    No,
}

impl First {
    fn of(started: Container) -> Self {
        if started == Container::Created {
            Self::Yes
        } else {
            Self::No
        }
    }
}

/// What a session was seen to be and should be, in one moment.
struct Moment {
    record: Record,
    status: Status,
    sight: Sight,
    aim: Aim,
    deadline: Option<Timestamp>,
}

impl Moment {
    fn case(&self) -> Case<'_> {
        Case {
            record: &self.record,
            status: &self.status,
            sight: &self.sight,
            aim: self.aim,
        }
    }
}

impl Passes {
    /// Makes one pass over a key, and says when it wants the next.
    pub async fn pass(&self, key: &Key) -> Option<Timestamp> {
        match key {
            Key::Session(id) => {
                let lookers = self.tickets.begin(id);
                let again = self.session(id).await;
                lookers.end();
                again
            }
            Key::Image(reference) => self.image(reference).await,
        }
    }

    /// Tells whoever waits for a pass that panicked.
    pub(super) fn tell_panic(&self, key: &Key) {
        match key {
            Key::Session(id) => {
                let why = "sandboxd failed within; its log says how".to_owned();
                let outcome = Outcome::Failed(Failure::Engine(why));
                self.tickets.settle(id, u64::MAX, &outcome);
            }
            Key::Image(_) => {}
        }
    }

    async fn session(&self, id: &SessionId) -> Option<Timestamp> {
        let mut starts = 0;
        let mut first = First::No;
        let mut last = None;
        for _ in 0..STEPS_MAX {
            let Some(moment) = self.look(id).await else {
                self.gone(id);
                return None;
            };
            self.dismiss(&moment);
            let step = self.decide(&moment);
            let ended = matches!(moment.sight.observed.container, Container::Stopped(..));
            if 0 < starts && ended && step == Step::Start {
                match self.ended_at_once(&moment, first).await {
                    Ok(()) => {
                        first = First::No;
                        last = Some((moment, step));
                        continue;
                    }
                    Err(why) => return self.failed(&moment, step, why).await,
                }
            }
            if starts == STARTS_MAX && step == Step::Start {
                let why = Failure::Engine(NEVER_STARTS.to_owned());
                return self.failed(&moment, step, why).await;
            }
            if step == Step::Start {
                starts += 1;
                first = First::of(moment.sight.observed.container);
            }
            debug!(session = %id, aim = moment.aim.as_str(), ?step, seen = ?moment.sight.observed, "next step");
            match self.executor.execute(step, moment.case()).await {
                Ok(Next::Again) => last = Some((moment, step)),
                Ok(Next::After(span)) => return Some(self.now().plus(span)),
                Ok(Next::OnNudge) => {
                    self.await_nudge(step, &moment.record);
                    return moment.deadline;
                }
                Ok(Next::Rest) => {
                    self.at_rest(&moment);
                    return moment.deadline;
                }
                Ok(Next::Gone) => {
                    self.gone(id);
                    return None;
                }
                Err(failure) => return self.failed(&moment, step, failure).await,
            }
        }
        // A session that gets no further by so many steps is not getting anywhere, and
        // whoever waits for it would wait for ever.
        let (moment, step) = last.expect("every step but the last of a pass was followed");
        let why = Failure::Engine(format!(
            "the engine says that all is done, and after {STEPS_MAX} steps, the last {step:?}, it \
             is not; see whether it is the engine that answers at {}",
            self.executor.host.engine.endpoint()
        ));
        self.failed(&moment, step, why).await
    }

    /// Goes on after a container ended as soon as it was started: without an agent, where it
    /// is that which cannot be run.
    async fn ended_at_once(&self, moment: &Moment, first: First) -> Result<(), Failure> {
        let forgone = match first {
            First::Yes => self.executor.forgo_ended_agent(moment.case()).await?,
            First::No => Forgone::No,
        };
        match forgone {
            Forgone::Yes => Ok(()),
            Forgone::No => Err(Executor::ended_at_once(&moment.sight)),
        }
    }

    /// Looks at what is there of a session.
    ///
    /// What another engine says of our sessions says nothing about them. A doubt that came
    /// up meanwhile, as happens when the engine is just back, is most often over at once.
    async fn sight(&self, record: &Record, status: &Status) -> Sight {
        let used = if record.lets_finish() {
            in_use(&self.executor.leases, &record.spec.id)
        } else {
            InUse::No
        };
        let mut looks = 0;
        loop {
            let before = self.engine.confirmed_soon().await;
            let mut sight = observe(
                &self.executor.host,
                &self.executor.images,
                used,
                record,
                status,
            )
            .await;
            looks += 1;
            if before.is_some() && self.engine.confirmed() == before {
                return sight;
            }
            if before.is_none() || looks == LOOKS_MAX {
                let why = self.engine.trouble();
                sight.distrust(why.as_deref().unwrap_or(UNCONFIRMED));
                return sight;
            }
        }
    }

    /// Returns what lifetimes hold for a session, and what is known of its use.
    pub(super) fn ageing(
        &self,
        policy: &Policy,
        record: &Record,
        now: Timestamp,
    ) -> (Lifetimes, Activity) {
        let sweeps = self.holds().sweeps();
        let leases = &self.executor.leases;
        let activity = self.epoch.ageing(leases, record, sweeps, now);
        let lifetimes = lifetimes_under(sweeps, policy.home(), &policy.lifetimes, &record.marks);
        (lifetimes, activity)
    }

    /// Looks at a session for whoever takes no step.
    pub(super) async fn seen(&self, record: &Record) -> (Status, Sight) {
        let status = self.executor.books.store.status(&record.spec.id);
        let status = status.map(|status| (*status).clone()).unwrap_or_default();
        let sight = self.sight(record, &status).await;
        (status, sight)
    }

    async fn look(&self, id: &SessionId) -> Option<Moment> {
        let store = &self.executor.books.store;
        let record = store.record(id)?;
        let status = store.status(id).map(|status| (*status).clone());
        let status = status.unwrap_or_default();
        let sight = self.sight(&record, &status).await;
        let policy = self.executor.policy.get();
        let (aim, deadline) = aim_on_record(self, &policy, &record, self.now());
        Some(Moment {
            record: (*record).clone(),
            status,
            sight,
            aim,
            deadline,
        })
    }

    fn decide(&self, moment: &Moment) -> Step {
        let Moment {
            record,
            status,
            sight,
            aim,
            ..
        } = moment;
        let progress = if status.has_reached(&record.marks) {
            Progress::Reached
        } else {
            Progress::Pending
        };
        let room = match self.room(&record.spec.id, *aim, progress, sight.observed.container) {
            Room::Full if self.all_stay_but(&record.spec.id) => Room::Taken(past(status)),
            room => room,
        };
        next_step(*aim, sight.fate, progress, sight.observed, room)
    }

    /// Sees to it that a place is held by whoever runs or is about to.
    fn room(&self, id: &SessionId, aim: Aim, progress: Progress, seen: Container) -> Room {
        match (seen, aim, progress) {
            (Container::Running(_) | Container::Paused, _, _) => {
                self.residents.note(id);
                Room::Free
            }
            // It may run for all we know: its place stays as it is.
            (Container::Unknown | Container::Removing, _, _) => Room::Free,
            (_, Aim::Running | Aim::Drowsy(_), Progress::Pending) => {
                let policy = self.executor.policy.get();
                self.residents.claim(id, policy.capacity.max_sessions)
            }
            (_, _, _) => {
                self.release(id);
                Room::Free
            }
        }
    }

    /// Whether everybody else who has a place stays, so that none becomes free.
    fn all_stay_but(&self, id: &SessionId) -> bool {
        let store = &self.executor.books.store;
        let stays = |other: &SessionId| {
            let (record, status) = (store.record(other), store.status(other));
            record.is_some_and(|record| {
                let reached = status
                    .as_ref()
                    .is_some_and(|it| it.has_reached(&record.marks));
                let standing = Standing::of(&record, status.as_deref());
                reached && standing == Some(Standing::Resident)
            })
        };
        let holders = self.residents.holders();
        holders.is_some_and(|holders| holders.iter().filter(|other| *other != id).all(stays))
    }

    fn release(&self, id: &SessionId) {
        for waiting in self.residents.release(id) {
            self.work.nudge_session(&waiting);
        }
    }

    fn await_nudge(&self, step: Step, record: &Record) {
        if step == Step::AwaitImage {
            self.release(&record.spec.id);
            if let Some(reference) = record.spec.runtime.ready_image() {
                self.work.nudge(Key::Image(reference.to_owned()));
            }
        }
    }

    fn at_rest(&self, moment: &Moment) {
        let marks = &moment.record.marks;
        let id = &moment.record.spec.id;
        if !moment.status.has_reached(marks) {
            info!(session = %id, phase = moment.aim.as_str(), "settled");
        }
        self.tickets.settle(id, marks.generation, &Outcome::Reached);
    }

    fn gone(&self, id: &SessionId) {
        self.release(id);
        // Whoever waits for a newer session of this id finds its record, and goes
        // on waiting.
        self.tickets.settle(id, u64::MAX, &Outcome::Gone);
    }

    /// Lets those go who wait for an intent that a later one has ended.
    ///
    /// They hold the session in use while they wait, and its end waits for them.
    fn dismiss(&self, moment: &Moment) {
        let spec = &moment.record.spec;
        if matches!(moment.aim, Aim::Running | Aim::Drowsy(_)) {
            return;
        }
        if let Some(reference) = spec.runtime.ready_image() {
            self.executor.images.leave(reference, &spec.id);
        }
        if !moment.record.is_open() {
            let before = moment.record.marks.generation.saturating_sub(1);
            self.tickets.settle(&spec.id, before, &Outcome::Overtaken);
        }
    }

    /// Writes a failure down, tells who waits, and says when to try again.
    async fn failed(&self, moment: &Moment, step: Step, why: Failure) -> Option<Timestamp> {
        let Moment {
            record,
            status,
            aim,
            ..
        } = moment;
        let id = &record.spec.id;
        warn!(session = %id, ?step, error = %why, "a step failed");
        let books = &self.executor.books;
        // Whoever opened it is told now and may ask again; a session that never
        // ran must not come up later behind its caller's back.
        if !may_run(moment.sight.observed.container, step, &why) {
            self.release(id);
        }
        let is_stillborn = *aim == Aim::Running && status.incarnation == 0;
        let written = if is_stillborn {
            books.fail_opening(record).await
        } else {
            books.fail(record, &why.to_string()).await
        };
        let outcome = Outcome::Failed(why);
        self.tickets.settle(id, record.marks.generation, &outcome);
        let later = self.now().plus(rest(status.attempts.saturating_add(1)));
        match written {
            Ok(Written::Yes) if !is_stillborn => Some(later),
            Ok(Written::Yes | Written::Overtaken) => Some(self.now()),
            Err(error) => {
                warn!(session = %id, error = %unwritten(&error), "the failure could not be written down");
                Some(later)
            }
        }
    }

    async fn image(&self, reference: &str) -> Option<Timestamp> {
        if self.engine.confirmed_soon().await.is_none() {
            return Some(self.now().plus(rest(1)));
        }
        let images = &self.executor.images;
        let (waiting, again) = match self.executor.fetch(reference).await {
            Ok(()) => (images.ready(reference), None),
            Err(error) => {
                let why = failure(&error).about(reference);
                warn!(image = reference, error = %why, "an image could not be had");
                let again = match why {
                    Failure::Unavailable(_) | Failure::Engine(_) | Failure::NoSpace(_) => {
                        Some(self.now().plus(IMAGE_REST))
                    }
                    Failure::Refused(_) | Failure::Store(_) => None,
                };
                (images.refused(reference, why), again)
            }
        };
        for id in waiting {
            self.work.nudge_session(&id);
        }
        again
    }

    /// Returns what holds the service back.
    pub fn holds(&self) -> Holds {
        Holds {
            books: self.executor.books.clone(),
            engine: self.engine.clone(),
            workspaces: self.executor.host.workspaces.clone(),
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.executor.books.clock.now()
    }
}

/// Why a session whose containers the engine cannot start is tried again later.
const NEVER_STARTS: &str =
    "the engine could not start its container, nor another that was made in its place";

/// Whether a container may run after a step failed that was taken when this was seen of it.
fn may_run(seen: Container, step: Step, why: &Failure) -> bool {
    match seen {
        Container::Unknown | Container::Running(_) | Container::Paused | Container::Removing => {
            true
        }
        // A start may have happened, or be under way, unless the engine says that it failed:
        // the next look tells.
        Container::Created | Container::Stopped(..) => match why {
            Failure::Engine(_) | Failure::Refused(_) => false,
            Failure::Unavailable(_) | Failure::NoSpace(_) | Failure::Store(_) => {
                step == Step::Start
            }
        },
        Container::Keyless
        | Container::Unmade
        | Container::Lost
        | Container::Foreign
        | Container::Dead => false,
    }
}

fn past(status: &Status) -> Past {
    if status.incarnation == 0 {
        Past::None
    } else {
        Past::Ran
    }
}

/// How often a session is looked at whose engine came into doubt under the look.
const LOOKS_MAX: usize = 3;

/// Why sessions wait while nobody knows which engine answers.
const UNCONFIRMED: &str = "it is not known yet whether the engine is the one with the sandboxes";

/// How long an image that could not be fetched rests; who needs it asks sooner.
const IMAGE_REST: Duration = Duration::from_mins(5);

/// Returns what a session should be, as its records have it, and when that changes.
pub(super) fn aim_on_record(
    passes: &Passes,
    policy: &Policy,
    record: &Record,
    now: Timestamp,
) -> (Aim, Option<Timestamp>) {
    let (lifetimes, activity) = passes.ageing(policy, record, now);
    aim(&record.marks, &lifetimes, activity, now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcile::plan::{Ending, Fit};

    /// A ceiling holds for what may run too: only an answer says that a start failed.
    #[test]
    fn a_start_without_an_answer_keeps_its_place() {
        let ended = Container::Stopped(Fit::Same, Ending::Ended);
        let why = "a reason".to_owned();
        let lost = Failure::Unavailable(why.clone());
        let unwritten = Failure::Store(why.clone());
        let answered = Failure::Engine(why);
        for seen in [Container::Created, ended] {
            assert!(may_run(seen, Step::Start, &lost));
            assert!(may_run(seen, Step::Start, &unwritten));
            assert!(!may_run(seen, Step::Start, &answered));
            assert!(!may_run(seen, Step::RemoveContainer, &lost));
        }
        assert!(may_run(Container::Unknown, Step::LookAgain, &lost));
        assert!(!may_run(Container::Unmade, Step::Create, &lost));
    }
}
