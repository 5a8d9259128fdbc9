//! Decides the one thing that comes next for a session.
//!
//! [`next_step`] is one exhaustive match over what the session should be and
//! what was seen of it. It is the whole of the controller's judgement: the
//! executor acts on its answer, and then everything is looked at again.

use crate::session::lifecycle::{Aim, InUse, Keep};
use crate::session::record::Reason;

/// What was seen of a session on the host, a moment ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Its container.
    pub container: Container,
    /// Its workspace.
    pub workspace: Workspace,
    /// Its image.
    pub image: Image,
    /// Whether something uses it.
    pub in_use: InUse,
    /// Whether a container that we do not manage works on its files.
    pub rival: Rival,
    /// Whether processes are left of a container that the engine has lost.
    pub ghost: Ghost,
}

/// What was seen of a session's container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Container {
    /// The engine did not tell. It is not the same as an absent one.
    Unknown,
    /// The record owns no key, so there is nothing to look for.
    Keyless,
    /// A key was taken, and nothing was made under it yet.
    Unmade,
    /// There was one, and it is gone.
    Lost,
    /// The name is taken by a container that is not ours.
    Foreign,
    /// Made and never started.
    Created,
    /// It runs.
    Running(Life),
    /// It is frozen.
    Paused,
    /// It ended.
    Stopped(Fit, Ending),
    /// The engine failed to remove it.
    Dead,
    /// The engine is removing it.
    Removing,
}

/// Whether a running container is in the life that the status knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It is.
    Known,
    /// It was started since.
    New,
}

/// Whether a container can serve the session as it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It can.
    Same,
    /// It was made for another runtime.
    Other,
}

/// How a container ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Its first process ended, or somebody stopped it.
    Ended,
    /// It ran out of memory.
    Oom,
}

/// What was seen of a session's workspace on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workspace {
    /// The disk did not tell.
    Unknown,
    /// The service keeps no workspaces.
    Off,
    /// There is none.
    Absent,
    /// It is there.
    Ready,
    /// It was made for a start that failed, and nothing was put in it.
    Unused,
}

/// What is known of a session's image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Image {
    /// Nobody has looked: it is taken to be there until a create says otherwise.
    Presumed,
    /// It is there.
    Ready,
    /// It is not, and is being fetched or will be.
    Absent,
    /// It cannot be had.
    Refused,
}

/// Whether a container that we do not manage works on the session's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rival {
    /// None does.
    None,
    /// One does, so that a container of ours would be a second writer.
    Running,
}

/// Whether processes are left of a container that the engine has lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ghost {
    /// None are, or none can be seen.
    None,
    /// Some are, and may write to the session's files.
    Left,
}

/// Where the only copy of the session's files is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// On the host: they outlive the container.
    Durable,
    /// In the container: they go with it.
    Unique,
}

/// Whether the aim of the present generation was reached before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Not yet.
    Pending,
    /// It was.
    Reached,
}

/// Whether one more container may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// It may.
    Free,
    /// As many run as may, though some are on their way out.
    Full,
    /// As many run as may, and none is on its way out.
    Taken(Past),
}

/// Whether a session has run before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Past {
    /// It has: its next use finds it a place, or is told that there is none.
    Ran,
    /// It never did, and whoever opens it waits.
    None,
}

/// The one thing that comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing: all is as it should be. The status says so if it does not yet.
    Settle,
    /// Look again after a backoff: something could not be seen.
    LookAgain,
    /// Look again when the engine has finished removing the container.
    AwaitRemoval,
    /// Look again when nothing uses the session.
    AwaitIdle,
    /// Look again when a container has stopped elsewhere.
    AwaitRoom,
    /// Look again when the image is there.
    AwaitImage,
    /// Take a fresh container key, on record before anything is made under it.
    TakeKey,
    /// Make the container, and the workspace that it mounts.
    Create,
    /// Start the container, with the workspace that it mounts.
    Start,
    /// Thaw the container.
    Unpause,
    /// Stop the container and keep it.
    Stop,
    /// Remove the container.
    RemoveContainer,
    /// Remove the workspace with everything in it.
    RemoveWorkspace,
    /// Remove the workspace directory, provided that it is empty.
    RemoveUnusedWorkspace,
    /// Drop the record: nothing of the session is left.
    Forget,
    /// Put on record that the session is asleep, for this reason.
    Park(Reason),
    /// Put on record that the session is over, for this reason.
    Close(Reason),
    /// End what is left of containers that the engine has lost.
    EndGhosts,
    /// Give up, for this reason, until something changes.
    Fail(Blame),
}

/// Why a session cannot be what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// Its image cannot be had.
    Image,
    /// Its container's name is taken.
    Name,
    /// Its container is dead and holds the only copy of the files.
    Dead,
    /// A container that we do not manage works on its files.
    Rival,
    /// As many run as may, and all of them stay.
    Room,
}

/// Decides the one thing that comes next.
pub fn next_step(aim: Aim, fate: Fate, progress: Progress, observed: Observed, room: Room) -> Step {
    match aim {
        Aim::Running => towards_running(fate, progress, observed, room),
        Aim::Drowsy(reason) => towards_sleep(reason, fate, progress, observed)
            .unwrap_or_else(|| towards_running(fate, progress, observed, room)),
        Aim::Parked(keep) => towards_parked(keep, fate, observed),
        Aim::Closed(keep) => towards_closed(keep, observed),
        Aim::Over(reason) => match observed.in_use {
            InUse::Yes => Step::AwaitIdle,
            InUse::No => Step::Close(reason),
        },
        Aim::Gone => towards_gone(observed),
    }
}

fn towards_running(fate: Fate, progress: Progress, observed: Observed, room: Room) -> Step {
    match (observed.container, progress) {
        (Container::Unknown, _) => Step::LookAgain,
        // What ran and is gone is a fact to be recorded, not to be undone in a
        // storm: the next use wakes the session.
        (Container::Lost | Container::Keyless, Progress::Reached) => {
            Step::Park(Reason::ContainerLost)
        }
        (Container::Stopped(_, Ending::Ended), Progress::Reached) => {
            Step::Park(Reason::ContainerDied)
        }
        (Container::Stopped(_, Ending::Oom), Progress::Reached) => Step::Park(Reason::Oom),
        (Container::Keyless | Container::Lost, Progress::Pending) => {
            prepared(observed, room, Step::TakeKey)
        }
        (Container::Unmade, _) => prepared(observed, room, Step::Create),
        (Container::Foreign, _) => Step::Fail(Blame::Name),
        (Container::Created, _) => started(observed, room),
        (Container::Stopped(Fit::Same, _), Progress::Pending) => started(observed, room),
        (Container::Stopped(Fit::Other, _), Progress::Pending) => match fate {
            Fate::Durable => Step::RemoveContainer,
            Fate::Unique => started(observed, room),
        },
        (Container::Running(_), Progress::Pending) => Step::Settle,
        (Container::Running(_), Progress::Reached) => match observed.in_use {
            // What uses it is not cut off; the next use finds it so again.
            InUse::Yes => Step::Settle,
            InUse::No if is_cut_off(fate, observed.workspace) => Step::Park(Reason::WorkspaceLost),
            InUse::No => Step::Settle,
        },
        (Container::Paused, _) => Step::Unpause,
        (Container::Dead, _) => match fate {
            Fate::Durable => Step::RemoveContainer,
            Fate::Unique => Step::Fail(Blame::Dead),
        },
        (Container::Removing, _) => Step::AwaitRemoval,
    }
}

/// Whether the workspace was removed under a container that mounts it: nothing can be
/// written to it any more, and only a start mounts another.
fn is_cut_off(fate: Fate, workspace: Workspace) -> bool {
    match (fate, workspace) {
        (Fate::Durable, Workspace::Absent) => true,
        (Fate::Durable, Workspace::Unknown | Workspace::Off) => false,
        (Fate::Durable, Workspace::Ready | Workspace::Unused) => false,
        (Fate::Unique, _) => false,
    }
}

/// Goes on to `then` once image, room and workspace are there.
fn prepared(observed: Observed, room: Room, then: Step) -> Step {
    match (observed.rival, observed.image, room) {
        (Rival::Running, _, _) => Step::Fail(Blame::Rival),
        (Rival::None, Image::Refused, _) => Step::Fail(Blame::Image),
        (Rival::None, Image::Absent, _) => Step::AwaitImage,
        (Rival::None, Image::Presumed | Image::Ready, Room::Free) => with_workspace(observed, then),
        (Rival::None, Image::Presumed | Image::Ready, full) => without_room(full),
    }
}

/// Starts what exists, once there is room for it and its workspace is there.
fn started(observed: Observed, room: Room) -> Step {
    match (observed.rival, room) {
        (Rival::Running, _) => Step::Fail(Blame::Rival),
        (Rival::None, Room::Free) => with_workspace(observed, Step::Start),
        (Rival::None, full) => without_room(full),
    }
}

/// Waits for a place, unless none will become free: what was admitted and could not start
/// was not counted meanwhile.
fn without_room(room: Room) -> Step {
    match room {
        Room::Free | Room::Full => Step::AwaitRoom,
        Room::Taken(Past::Ran) => Step::Park(Reason::Evicted),
        Room::Taken(Past::None) => Step::Fail(Blame::Room),
    }
}

fn with_workspace(observed: Observed, then: Step) -> Step {
    match (observed.workspace, observed.ghost) {
        (Workspace::Unknown, _) => Step::LookAgain,
        // It would be a second writer. Without a workspace they share nothing.
        (Workspace::Absent | Workspace::Ready | Workspace::Unused, Ghost::Left) => Step::EndGhosts,
        // What is missing is made on the way, and what is there stays as it is.
        (Workspace::Absent | Workspace::Ready | Workspace::Unused, Ghost::None)
        | (Workspace::Off, _) => then,
    }
}

/// Drops what is left of a record or of its files, once no process can use them.
fn without_ghosts(observed: Observed, then: Step) -> Step {
    match observed.ghost {
        Ghost::Left => Step::EndGhosts,
        Ghost::None => then,
    }
}

/// What puts a session to sleep that nobody uses; `None` where it is handled as one that is
/// to run: where its container holds the only copy of the files, which sleep would put at
/// risk, and where it has ended, which is the better reason.
fn towards_sleep(
    reason: Reason,
    fate: Fate,
    progress: Progress,
    observed: Observed,
) -> Option<Step> {
    match (observed.in_use, observed.container, fate, progress) {
        (_, _, Fate::Unique, _) => None,
        (InUse::Yes, _, Fate::Durable, _) => Some(Step::AwaitIdle),
        (InUse::No, Container::Unknown, Fate::Durable, _) => Some(Step::LookAgain),
        (
            InUse::No,
            Container::Stopped(..) | Container::Lost | Container::Keyless,
            Fate::Durable,
            Progress::Reached,
        ) => None,
        (InUse::No, _, Fate::Durable, _) => Some(Step::Park(reason)),
    }
}

fn towards_parked(keep: Keep, fate: Fate, observed: Observed) -> Step {
    match observed.container {
        Container::Unknown => Step::LookAgain,
        Container::Keyless | Container::Unmade | Container::Lost | Container::Foreign => {
            Step::Settle
        }
        Container::Running(_) | Container::Paused => match observed.in_use {
            InUse::Yes => Step::AwaitIdle,
            InUse::No => Step::Stop,
        },
        Container::Created | Container::Stopped(..) => match (keep, fate) {
            (Keep::Container, _) | (Keep::Files, Fate::Unique) => Step::Settle,
            (Keep::Files, Fate::Durable) => Step::RemoveContainer,
        },
        Container::Dead => match fate {
            Fate::Durable => Step::RemoveContainer,
            Fate::Unique => Step::Settle,
        },
        Container::Removing => Step::AwaitRemoval,
    }
}

fn towards_closed(keep: Keep, observed: Observed) -> Step {
    match observed.container {
        Container::Unknown => Step::LookAgain,
        Container::Keyless | Container::Unmade | Container::Lost | Container::Foreign => {
            match observed.workspace {
                Workspace::Unknown => Step::LookAgain,
                Workspace::Ready => Step::Settle,
                Workspace::Unused => without_ghosts(observed, Step::RemoveUnusedWorkspace),
                Workspace::Off | Workspace::Absent => without_ghosts(observed, Step::Forget),
            }
        }
        Container::Running(_) | Container::Paused => match keep {
            Keep::Container => Step::Stop,
            // Its caller said that it is over: nothing in it is worth a grace.
            Keep::Files => Step::RemoveContainer,
        },
        Container::Stopped(..) => match keep {
            Keep::Container => Step::Settle,
            Keep::Files => Step::RemoveContainer,
        },
        // It never ran, so nothing was ever put in it.
        Container::Created => Step::RemoveContainer,
        Container::Dead => Step::RemoveContainer,
        Container::Removing => Step::AwaitRemoval,
    }
}

fn towards_gone(observed: Observed) -> Step {
    match observed.container {
        Container::Unknown => Step::LookAgain,
        Container::Created
        | Container::Running(_)
        | Container::Paused
        | Container::Stopped(..)
        | Container::Dead => Step::RemoveContainer,
        Container::Removing => Step::AwaitRemoval,
        Container::Keyless | Container::Unmade | Container::Lost | Container::Foreign => {
            match (observed.workspace, observed.in_use) {
                (Workspace::Unknown, _) => Step::LookAgain,
                (Workspace::Ready | Workspace::Unused, InUse::Yes) => Step::AwaitIdle,
                (Workspace::Ready | Workspace::Unused, InUse::No) => match observed.rival {
                    Rival::Running => Step::Fail(Blame::Rival),
                    Rival::None => without_ghosts(observed, Step::RemoveWorkspace),
                },
                (Workspace::Off | Workspace::Absent, _) => without_ghosts(observed, Step::Forget),
            }
        }
    }
}
