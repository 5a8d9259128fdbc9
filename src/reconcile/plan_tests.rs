//! Enumerates every aim, fate and observation, and lets each settle.

use super::plan::{
    Blame, Container, Ending, Fate, Fit, Ghost, Image, Life, Observed, Past, Progress, Rival, Room,
    Step, Workspace, next_step,
};
use crate::session::lifecycle::{Aim, InUse, Keep};
use crate::session::record::Reason;

const AIMS: [Aim; 8] = [
    Aim::Running,
    Aim::Drowsy(Reason::Idle),
    Aim::Parked(Keep::Container),
    Aim::Parked(Keep::Files),
    Aim::Closed(Keep::Container),
    Aim::Closed(Keep::Files),
    Aim::Over(Reason::Idle),
    Aim::Gone,
];
const CONTAINERS: [Container; 14] = [
    Container::Unknown,
    Container::Keyless,
    Container::Unmade,
    Container::Lost,
    Container::Foreign,
    Container::Created,
    Container::Running(Life::Known),
    Container::Running(Life::New),
    Container::Paused,
    Container::Stopped(Fit::Same, Ending::Ended),
    Container::Stopped(Fit::Same, Ending::Oom),
    Container::Stopped(Fit::Other, Ending::Ended),
    Container::Dead,
    Container::Removing,
];
const RIVALS_AND_GHOSTS: [(Rival, Ghost); 4] = [
    (Rival::None, Ghost::None),
    (Rival::Running, Ghost::None),
    (Rival::None, Ghost::Left),
    (Rival::Running, Ghost::Left),
];
/// No state needs more steps than this to settle; the controller's bound is higher.
const STEPS_MAX: usize = 9;

/// Everything that [`next_step`] looks at.
#[derive(Clone, Copy, Debug)]
struct World {
    aim: Aim,
    fate: Fate,
    progress: Progress,
    observed: Observed,
    room: Room,
}

impl World {
    fn step(&self) -> Step {
        next_step(self.aim, self.fate, self.progress, self.observed, self.room)
    }

    /// What a faithful executor, a prompt engine and patient users make of a step;
    /// `None` where the session has come to rest.
    fn after(mut self, step: Step) -> Option<Self> {
        match step {
            Step::Settle | Step::Forget | Step::Fail(_) => return None,
            // The engine answers again.
            Step::LookAgain => {
                if self.observed.container == Container::Unknown {
                    self.observed.container = Container::Lost;
                } else {
                    self.observed.workspace = Workspace::Ready;
                }
            }
            Step::AwaitRemoval | Step::RemoveContainer => {
                self.observed.container = Container::Lost;
            }
            Step::EndGhosts => self.observed.ghost = Ghost::None,
            Step::AwaitIdle => self.observed.in_use = InUse::No,
            Step::AwaitRoom => self.room = Room::Free,
            Step::AwaitImage => self.observed.image = Image::Ready,
            Step::TakeKey => self.observed.container = Container::Unmade,
            Step::Create => self.observed.container = Container::Created,
            Step::Start | Step::Unpause => self.observed.container = Container::Running(Life::New),
            Step::Stop => self.observed.container = Container::Stopped(Fit::Same, Ending::Ended),
            Step::RemoveWorkspace | Step::RemoveUnusedWorkspace => {
                self.observed.workspace = Workspace::Absent;
            }
            Step::Park(_) => {
                self.aim = Aim::Parked(Keep::Container);
                self.progress = Progress::Pending;
            }
            Step::Close(_) => {
                self.aim = Aim::Closed(Keep::Container);
                self.progress = Progress::Pending;
            }
        }
        Some(self)
    }
}

const ROOMS: [Room; 4] = [
    Room::Free,
    Room::Full,
    Room::Taken(Past::Ran),
    Room::Taken(Past::None),
];

fn every_world() -> Vec<World> {
    let mut worlds = Vec::new();
    for aim in AIMS {
        for fate in [Fate::Durable, Fate::Unique] {
            for progress in [Progress::Pending, Progress::Reached] {
                for room in ROOMS {
                    for observed in every_observation() {
                        worlds.push(World {
                            aim,
                            fate,
                            progress,
                            observed,
                            room,
                        });
                    }
                }
            }
        }
    }
    worlds
}

fn every_observation() -> Vec<Observed> {
    let mut all = Vec::new();
    for container in CONTAINERS {
        for workspace in [
            Workspace::Unknown,
            Workspace::Off,
            Workspace::Absent,
            Workspace::Ready,
            Workspace::Unused,
        ] {
            for image in [Image::Presumed, Image::Ready, Image::Absent, Image::Refused] {
                for in_use in [InUse::No, InUse::Yes] {
                    for (rival, ghost) in RIVALS_AND_GHOSTS {
                        all.push(Observed {
                            container,
                            workspace,
                            image,
                            in_use,
                            rival,
                            ghost,
                        });
                    }
                }
            }
        }
    }
    all
}

#[test]
fn every_aim_fate_and_observation_settles_in_a_few_steps() {
    for world in every_world() {
        let mut now = world;
        let mut taken = Vec::new();
        loop {
            let step = now.step();
            taken.push(step);
            assert!(taken.len() <= STEPS_MAX, "{world:?} goes on: {taken:?}");
            match now.after(step) {
                Some(next) => now = next,
                None => break,
            }
        }
        let rest = *taken.last().unwrap();
        let over = matches!(world.aim, Aim::Gone);
        let rival = rest == Step::Fail(Blame::Rival);
        assert!(
            !over || rest == Step::Forget || rival,
            "{world:?} is to be gone, and rests with {rest:?}"
        );
    }
}

#[test]
fn a_session_that_should_run_runs_unless_there_is_a_stated_reason() {
    for world in every_world() {
        if world.aim != Aim::Running || world.progress != Progress::Pending {
            continue;
        }
        let mut now = world;
        loop {
            let step = now.step();
            let Some(next) = now.after(step) else {
                let running = matches!(now.observed.container, Container::Running(_));
                // It gave its place up, and its next use finds it another.
                let sleeps = world.room == Room::Taken(Past::Ran) && now.aim != Aim::Running;
                assert!(
                    running || sleeps || matches!(step, Step::Fail(_)),
                    "{world:?} rests as {now:?}"
                );
                break;
            };
            now = next;
        }
    }
}

/// Law 5, the half of it that is a decision; the executor holds the lease.
#[test]
fn files_go_only_when_the_aim_is_gone_and_nothing_uses_them() {
    for world in every_world() {
        if world.step() == Step::RemoveWorkspace {
            assert_eq!(world.aim, Aim::Gone);
            assert_eq!(world.observed.in_use, InUse::No);
            assert_eq!(world.observed.rival, Rival::None);
        }
    }
}

/// Law 6.
#[test]
fn a_container_that_holds_the_only_copy_of_the_files_is_never_recreated() {
    for world in every_world() {
        let is_open = !matches!(world.aim, Aim::Closed(_) | Aim::Gone);
        if world.fate == Fate::Unique && is_open {
            assert_ne!(world.step(), Step::RemoveContainer, "{world:?}");
        }
    }
}

/// Law 12, the half of it that is a decision; the executor checks the label.
#[test]
fn nothing_is_removed_on_the_strength_of_what_could_not_be_seen() {
    for world in every_world() {
        let blind = world.observed.container == Container::Unknown;
        let foreign = world.observed.container == Container::Foreign;
        let step = world.step();
        if blind {
            assert!(
                !matches!(
                    step,
                    Step::RemoveContainer
                        | Step::RemoveWorkspace
                        | Step::RemoveUnusedWorkspace
                        | Step::Forget
                        | Step::Stop
                ),
                "{world:?}: {step:?}"
            );
        }
        if foreign {
            assert!(
                !matches!(step, Step::RemoveContainer | Step::Stop | Step::Start),
                "{world:?}: {step:?}"
            );
        }
        if world.observed.workspace == Workspace::Unknown {
            assert!(!matches!(step, Step::RemoveWorkspace | Step::Forget));
        }
    }
}

#[test]
fn a_container_that_ended_parks_its_session_and_starts_nothing() {
    for world in every_world() {
        let ended = matches!(
            world.observed.container,
            Container::Stopped(..) | Container::Lost
        );
        if world.aim == Aim::Running && world.progress == Progress::Reached && ended {
            assert!(matches!(world.step(), Step::Park(_)), "{world:?}");
        }
    }
}

#[test]
fn nothing_stops_a_sleeper_or_an_idle_session_under_its_user() {
    for world in every_world() {
        let kind = matches!(world.aim, Aim::Parked(_) | Aim::Over(_));
        let live = matches!(
            world.observed.container,
            Container::Running(_) | Container::Paused
        );
        if kind && live && world.observed.in_use == InUse::Yes {
            assert_eq!(world.step(), Step::AwaitIdle, "{world:?}");
        }
    }
}

#[test]
fn an_idle_session_is_put_to_sleep_only_where_its_files_outlive_its_container() {
    for world in every_world() {
        if world.aim != Aim::Drowsy(Reason::Idle) {
            continue;
        }
        if world.observed.in_use == InUse::Yes {
            assert!(!matches!(
                world.step(),
                Step::Park(Reason::Idle) | Step::Stop
            ));
            continue;
        }
        assert_ne!((world.step(), world.fate), (Step::Start, Fate::Durable));
        let live = matches!(
            world.observed.container,
            Container::Running(_) | Container::Paused
        );
        if !live {
            continue;
        }
        let sleeps = world.step() == Step::Park(Reason::Idle);
        assert_eq!(sleeps, world.fate == Fate::Durable, "{world:?}");
        if !sleeps {
            let awake = World {
                aim: Aim::Running,
                ..world
            };
            assert_eq!(world.step(), awake.step(), "it goes on as it is: {world:?}");
        }
    }
}

/// A process that the engine has lost may write to the files until it is gone.
#[test]
fn files_with_a_ghost_are_neither_handed_on_nor_removed() {
    for world in every_world() {
        let shares_files = world.observed.workspace != Workspace::Off;
        if world.observed.ghost == Ghost::Left {
            let step = world.step();
            let removes = matches!(
                step,
                Step::RemoveWorkspace | Step::RemoveUnusedWorkspace | Step::Forget
            );
            let hands_on = matches!(step, Step::TakeKey | Step::Create | Step::Start);
            assert!(!removes, "{world:?}: {step:?}");
            assert!(!hands_on || !shares_files, "{world:?}: {step:?}");
        }
        if world.step() == Step::EndGhosts {
            assert_eq!(world.observed.ghost, Ghost::Left);
        }
    }
}

/// Only what would share files or lose them waits for a ghost.
#[test]
fn a_ghost_keeps_no_running_sleeping_or_closed_session_from_being_as_it_is() {
    for world in every_world() {
        let mut without = world;
        without.observed.ghost = Ghost::None;
        let settled = without.step();
        if matches!(settled, Step::Settle | Step::Park(_) | Step::Close(_)) {
            assert_eq!(world.step(), settled, "{world:?}");
        }
    }
}

#[test]
fn no_container_starts_beyond_the_ceiling_or_beside_a_rival() {
    for world in every_world() {
        let step = world.step();
        if world.room != Room::Free {
            assert!(!matches!(step, Step::Create | Step::Start), "{world:?}");
        }
        if matches!(world.room, Room::Taken(_)) {
            assert_ne!(step, Step::AwaitRoom, "it would wait in vain: {world:?}");
        }
        if world.observed.rival == Rival::Running {
            assert!(
                !matches!(step, Step::Create | Step::TakeKey | Step::Start),
                "{world:?}"
            );
            let made = matches!(world.observed.container, Container::Unmade);
            if world.aim == Aim::Running && made {
                assert_eq!(step, Step::Fail(Blame::Rival));
            }
        }
    }
}
