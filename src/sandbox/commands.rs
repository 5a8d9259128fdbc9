//! Runs a command in a sandbox, by whichever way there is, and waits for how it ends.
//!
//! Output is bounded while it streams, and a command past its deadline is killed with
//! everything it started. An ending that nobody saw is unknown, and never an exit code.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::by_agent::{self, Leftover};
use super::by_engine;
use super::reach::{Reacher, Way};
use crate::cgroup::Cgroups;
use crate::docker;
use crate::docker::Engine;
use crate::id::{RunId, SessionId};

/// The variable that marks every process of a run.
pub const COOKIE: &str = crate::agent::protocol::COOKIE;
/// Bytes that are shown of each stream of a command that was ended for its time or its
/// output.
pub const HEAD_BYTES_MAX: usize = 65_536;
/// The exit code of what could not be started, as a shell has it.
pub const START_FAILED: i64 = 126;
/// The exit code of what was ended by SIGKILL.
pub(super) const KILLED: i64 = 137;
/// The exit code of what was ended by SIGTERM.
pub const TERMINATED: i64 = 143;
/// The exit codes above this one may tell of a signal.
pub(super) const SIGNALS: i64 = 128;
/// Commands at once that hold more than [`LARGE_OUTPUT_BYTES`] of output; the others
/// wait, with their output in the sandbox.
pub const LARGE_OUTPUTS_MAX: usize = 8;
/// Bytes of output that any command may have in memory.
pub const LARGE_OUTPUT_BYTES: usize = 1 << 20;

/// Runs commands in sandboxes; cheap to clone.
#[derive(Clone, Debug)]
pub struct Runner {
    pub(super) engine: Engine,
    pub(super) reacher: Reacher,
    cgroups: Cgroups,
    /// Room for output of more than [`LARGE_OUTPUT_BYTES`].
    pub(super) large: Arc<Semaphore>,
}

/// A command to run.
#[derive(Clone, Copy, Debug)]
pub struct Command<'c> {
    /// In which container.
    pub place: Place<'c>,
    /// What is run, and how.
    pub task: &'c Task,
    /// Its id, and the cookie of its processes.
    pub run: &'c RunId,
    /// Tells this request from another one under the same id.
    pub digest: &'c str,
    /// When it is killed.
    pub deadline: Instant,
}

/// Where a command is run.
#[derive(Clone, Copy, Debug)]
pub struct Place<'c> {
    /// The session.
    pub session: &'c SessionId,
    /// The engine's id of its container.
    pub container: &'c str,
    /// The directory to which others are relative.
    pub work_dir: &'c str,
}

/// What is run, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// What is run.
    pub program: Program,
    /// Variables over those of the sandbox.
    pub env: BTreeMap<String, String>,
    /// Where it begins; relative to the work directory.
    pub cwd: Option<String>,
    /// Its user; the sandbox's where `None`.
    pub user: Option<String>,
    /// What it reads; nothing where `None`.
    pub stdin: Option<String>,
    /// What becomes of its output.
    pub output: Output,
}

/// What is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// A program and its arguments, passed literally.
    Argv(Vec<String>),
    /// The text for `/bin/sh -c`.
    Shell(String),
}

/// What becomes of a command's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Both streams become one, of which the first so many bytes are kept.
    Merged {
        /// Bytes; what comes after is read and dropped.
        first: usize,
    },
    /// The streams stay apart, and all is kept.
    Split {
        /// Bytes of both together; the command is ended when it writes more.
        limit: u64,
    },
}

/// What a command printed and how it ended.
#[derive(Debug)]
pub struct Ran {
    /// Standard output; of merged streams, both.
    pub stdout: Vec<u8>,
    /// Standard error; empty where the streams are merged.
    pub stderr: Vec<u8>,
    /// Whether there was more.
    pub truncated: bool,
    /// How it ended.
    pub ending: Ending,
    /// Whether the sandbox was refused processes meanwhile, at its ceiling of them.
    pub short_of_processes: bool,
    /// What the agent still keeps of it.
    pub leftover: Option<Leftover>,
    /// Held for as long as a large output is.
    pub(super) _room: Option<OwnedSemaphorePermit>,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By itself, with this code.
    Exited(i64),
    /// The kernel killed it, or what it waited for, for want of memory; with this code.
    OutOfMemory(i64),
    /// It never began: the program could not be started, for the reason in the output.
    StartFailed(i64),
    /// It was killed at its deadline.
    TimedOut,
    /// It was ended since it wrote more than it may.
    OutputLimit,
    /// It was ended on request, with this code.
    Stopped(i64),
    /// A signal on request ended it, with this code.
    Signalled(i64),
    /// It was killed since nobody waits for it any more.
    CallerGone,
    /// Nobody saw it.
    Unknown(Loss),
}

/// Why nobody saw how a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Its container ended under it.
    ContainerLost,
    /// The agent does not answer any more, and its container goes on.
    AgentLost,
    /// The engine went away under it.
    EngineLost,
    /// The engine started anew, and knows it no more.
    EngineRestarted,
    /// The engine did not say in time.
    ExitCodeUnknown,
}

impl Loss {
    /// Returns the stable word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ContainerLost => "container_lost",
            Self::AgentLost => "agent_lost",
            Self::EngineLost => "engine_lost",
            Self::EngineRestarted => "engine_restarted",
            Self::ExitCodeUnknown => "exit_code_unknown",
        }
    }
}

/// Why a command was not run. Nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum NotRun {
    /// The container is not running.
    #[error("the container is not running")]
    ContainerDown,
    /// No way to the sandbox was found in time.
    #[error("the sandbox could not be reached in time")]
    Late,
    /// The id was used for another request.
    #[error("the id was used for another request")]
    Conflict,
    /// The run of that id is over, and its output not kept any more.
    #[error("the run is over")]
    Over,
    /// As many run in the sandbox as its agent may have.
    #[error("as many commands run in the sandbox as may")]
    Ceiling,
    /// The sandbox does not know its user, or may not become it; in its words.
    #[error("its user is not possible: {0}")]
    User(String),
    /// The engine did not take it.
    #[error(transparent)]
    Engine(#[from] docker::Error),
}

/// Asks a command to end before its time; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Halt {
    gone: CancellationToken,
    stop: CancellationToken,
}

/// Why a command is asked to end before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Nobody waits for it any more.
    CallerGone,
    /// Somebody asked for it.
    Stopped,
}

impl Halt {
    /// Has it end since nobody waits for it any more.
    pub fn leave(&self) {
        self.gone.cancel();
    }

    /// Has it end on request.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Returns why it is asked to end, where it is.
    pub fn is_asked(&self) -> Option<Why> {
        match (self.stop.is_cancelled(), self.gone.is_cancelled()) {
            (true, _) => Some(Why::Stopped),
            (false, true) => Some(Why::CallerGone),
            (false, false) => None,
        }
    }

    /// Waits until it is asked to end.
    pub async fn asked(&self) -> Why {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Why::Stopped,
            () = self.gone.cancelled() => Why::CallerGone,
        }
    }
}

impl Why {
    /// Returns the ending of a command that was ended for it, with this code.
    pub(super) const fn ending(self, code: i64) -> Ending {
        match self {
            Self::CallerGone => Ending::CallerGone,
            Self::Stopped => Ending::Stopped(code),
        }
    }
}

impl Ran {
    /// A command of which nothing was seen but its ending.
    pub fn silent(ending: Ending) -> Self {
        Self {
            stdout: Vec::new(),
            stderr: Vec::new(),
            truncated: false,
            ending,
            short_of_processes: false,
            leftover: None,
            _room: None,
        }
    }

    /// A command that could not be started, for the reason in these words.
    pub(super) fn unstarted(output: Output, code: i64, words: impl Into<Vec<u8>>) -> Self {
        let mut ran = Self::silent(Ending::StartFailed(code));
        match output {
            Output::Merged { .. } => ran.stdout = words.into(),
            Output::Split { .. } => ran.stderr = words.into(),
        }
        ran
    }
}

/// What the kernel has refused a container so far, where that can be seen.
struct Strain {
    oom_kills: Option<u64>,
    pids_refused: Option<u64>,
}

impl Runner {
    /// Makes a runner for the sandboxes of one engine.
    pub fn new(engine: Engine, reacher: Reacher, cgroups: Cgroups) -> Self {
        Self {
            engine,
            reacher,
            cgroups,
            large: Arc::new(Semaphore::new(LARGE_OUTPUTS_MAX)),
        }
    }

    /// Runs a command until it ends, its deadline passes, or it is asked to end.
    ///
    /// # Errors
    /// Only where the command certainly did not start; afterwards every outcome is
    /// an [`Ending`].
    pub async fn run(&self, command: &Command<'_>, halt: &Halt) -> Result<Ran, NotRun> {
        let container = command.place.container;
        let before = self.strain(container);
        let way = tokio::select! {
            biased;
            // Nothing is started for a caller that has left.
            why = halt.asked() => return Ok(Ran::silent(why.ending(TERMINATED))),
            way = self.way(command.place, command.deadline) => way?,
        };
        let mut ran = match way {
            Way::Agent(connection) => by_agent::run(self, connection, command, halt).await?,
            Way::Engine => by_engine::run(self, command, halt).await?,
        };
        if ran.ending != Ending::Exited(0) {
            let after = self.strain(container);
            ran.short_of_processes = has_risen(before.pids_refused, after.pids_refused);
            if ran.ending == Ending::Exited(KILLED) && has_risen(before.oom_kills, after.oom_kills)
            {
                ran.ending = Ending::OutOfMemory(KILLED);
            }
        }
        Ok(ran)
    }

    /// Stops a command that is none of ours to wait for, where there is one; tries no
    /// longer than to the deadline.
    pub async fn stop(&self, place: Place<'_>, run: &RunId, deadline: Instant) {
        let stopped = async {
            match self.way(place, deadline).await {
                Ok(Way::Agent(connection)) => match connection.stop(run).await {
                    Ok(()) => {}
                    Err(error) => debug!(%run, %error, "a run was not stopped"),
                },
                Ok(Way::Engine) => by_engine::end_processes(self, place.container, run).await,
                // Nothing runs there, or nothing is known to.
                Err(_) => {}
            }
        };
        if timeout_at(deadline, stopped).await.is_err() {
            debug!(%run, "a run was not stopped in time");
        }
    }

    /// Finds the way to a sandbox, by the deadline.
    pub(super) async fn way(&self, place: Place<'_>, deadline: Instant) -> Result<Way, NotRun> {
        let Place {
            session, container, ..
        } = place;
        tokio::select! {
            biased;
            way = self.reacher.way(session, container, deadline) => {
                way.map_err(|_| NotRun::Late)
            }
            // Nobody answers in a container that ended unseen.
            () = self.ended(container) => Err(NotRun::ContainerDown),
        }
    }

    /// Waits for room for a large output.
    pub(super) async fn room(&self) -> Option<OwnedSemaphorePermit> {
        // It is never closed.
        Arc::clone(&self.large).acquire_owned().await.ok()
    }

    fn strain(&self, container: &str) -> Strain {
        Strain {
            oom_kills: self.cgroups.oom_kills(container),
            pids_refused: self.cgroups.pids_refused(container),
        }
    }
}

/// Whether a count is known to have risen.
fn has_risen(before: Option<u64>, after: Option<u64>) -> bool {
    matches!((before, after), (Some(before), Some(after)) if before < after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_is_not_seen_has_not_risen() {
        assert!(has_risen(Some(1), Some(2)));
        for (before, after) in [
            (None, Some(2)),
            (Some(2), None),
            (Some(2), Some(2)),
            (Some(2), Some(0)),
        ] {
            assert!(!has_risen(before, after), "{before:?} {after:?}");
        }
    }

    #[tokio::test]
    async fn a_stop_is_told_from_a_caller_that_left_even_where_both_are() {
        let halt = Halt::default();
        halt.leave();
        assert_eq!(halt.asked().await, Why::CallerGone);
        halt.stop();
        assert_eq!(halt.asked().await, Why::Stopped);
    }
}
