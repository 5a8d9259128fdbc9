//! Why a request was refused, in the words that the caller reads.

use super::archives::ArchiveRefusal;
use super::files::refusal::FileRefusal;
use crate::id::{RunId, SessionId, Tenant};
use crate::wire::error::Ceiling;

/// A refused request; its text is the `detail` of the reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The alias is not on the allowlist.
    #[error("Unknown runtime {wanted}. Allowed: {allowed}")]
    UnknownRuntime {
        /// The alias asked for, quoted.
        wanted: String,
        /// The aliases there are.
        allowed: String,
    },
    /// Attaching needs to say to what.
    #[error("attach needs the session_id to attach to")]
    AttachWithoutId,
    /// There is neither a session nor a workspace under the id.
    #[error("Nothing to attach to: {0}")]
    NothingToAttach(SessionId),
    /// There is no such session.
    #[error("No such session: {0}")]
    NoSession(SessionId),
    /// There is no such hold, or it does not stand.
    #[error("No such hold: {0}. GET /holds lists those that stand.")]
    NoHold(String),
    /// A session is open under the id.
    #[error("Session exists: {0}")]
    Exists(SessionId),
    /// The id is being opened by another request.
    #[error("Session is opening: {0}")]
    Opening(SessionId),
    /// The id is still being closed.
    #[error("Session is closing: {0}. Try again shortly.")]
    Closing(SessionId),
    /// The session is open on another runtime.
    #[error(
        "Session {id} is open on runtime '{open_on}', not '{asked}'. Close it before changing runtime."
    )]
    OtherRuntime {
        /// The session.
        id: SessionId,
        /// Its alias.
        open_on: String,
        /// The alias asked for.
        asked: String,
    },
    /// The only copy of the files is in a container of another runtime.
    #[error(
        "Session {id} keeps its files in a container of runtime '{kept_on}'. Open it on that runtime, or purge it first."
    )]
    FilesInOtherRuntime {
        /// The session.
        id: SessionId,
        /// The alias of the container.
        kept_on: String,
    },
    /// The session is open, and only a closed one can be purged by id.
    #[error("Session {0} is open. Close it first, or ask with close=true.")]
    StillOpen(SessionId),
    /// The session cannot be put to sleep while something is under way in it.
    #[error(
        "Session {id} is in use ({by}), and what is under way is not cut off. Wait for it to end, or stop it, and try again."
    )]
    InUse {
        /// The session.
        id: SessionId,
        /// What is under way.
        by: String,
    },
    /// The session cannot be put to sleep where its files are in its container alone.
    #[error(
        "Session {0} keeps its files in its container alone, since the service has no workspace root; it is not put to sleep, which would risk the only copy. Close it, or have the operator set SANDBOXD_WORKSPACE_ROOT."
    )]
    SleepLosesFiles(SessionId),
    /// There are as many open sessions as there may be.
    #[error(
        "Service holds its ceiling of {limit} open sessions and all of them are in use. Close one before opening another."
    )]
    OpenCeiling {
        /// The ceiling.
        limit: u64,
        /// Sessions that count towards it.
        used: u64,
    },
    /// The tenant has as many sessions as it may have.
    #[error(
        "Tenant '{tenant}' already holds {used} of {limit} sessions. Release an idle session before opening another."
    )]
    TenantCeiling {
        /// The tenant.
        tenant: Tenant,
        /// The ceiling.
        limit: u64,
        /// Sessions that count towards it.
        used: u64,
    },
    /// There are as many resident sandboxes as there may be.
    #[error(
        "{}Session limit of {limit} reached. Release an idle session before opening another.",
        waking.as_ref().map(|id| format!("Cannot wake session {id}: ")).unwrap_or_default()
    )]
    ResidentCeiling {
        /// The session that was to be woken, where it was not an opening.
        waking: Option<SessionId>,
        /// The ceiling.
        limit: u64,
        /// Sessions that count towards it.
        used: u64,
    },
    /// As many commands run as may run.
    #[error("{used} of {limit} commands are running. Wait for one to end, or stop it.")]
    CommandCeiling {
        /// The ceiling.
        limit: u64,
        /// Commands that count towards it.
        used: u64,
    },
    /// As many commands run in the session as may run there.
    #[error(
        "{used} of {limit} commands are running in session {id}. Wait for one to end, or stop it."
    )]
    SessionCommandCeiling {
        /// The session.
        id: SessionId,
        /// The ceiling.
        limit: u64,
        /// Commands that count towards it.
        used: u64,
    },
    /// As many terminals are open in the session as may be.
    #[error("{used} of {limit} terminals are open in session {id}. Close one first.")]
    TtyCeiling {
        /// The session.
        id: SessionId,
        /// The ceiling.
        limit: u64,
        /// Terminals that count towards it.
        used: u64,
    },
    /// As many look at a terminal as may.
    #[error("{limit} viewers are attached to terminal {tty}. Detach one first.")]
    ViewerCeiling {
        /// Its session.
        id: SessionId,
        /// The terminal.
        tty: String,
        /// The ceiling.
        limit: u64,
    },
    /// There is no such run in the session.
    #[error("No such run: {0}")]
    NoRun(RunId),
    /// The id of a run was used for another one.
    #[error("Run id {0} was used for another request. One id runs once; make a new one.")]
    RunIdUsed(RunId),
    /// The run is over, and what was asked for needs one that goes on.
    #[error("Run {0} is over. {1}")]
    RunOver(RunId, String),
    /// The run still goes on, and what was asked for needs one that is over.
    #[error("Run {0} is running. Stop it first.")]
    RunGoesOn(RunId),
    /// The run was lost with its sandbox, for this reason.
    #[error("Run {run} is lost: {reason}")]
    RunLost {
        /// The run.
        run: RunId,
        /// `container_lost` or `agent_lost`.
        reason: String,
    },
    /// The sandbox was gone when a program was to be run, or ended under it.
    #[error("{0}")]
    SandboxEnded(String),
    /// What was asked for needs the agent, and commands reach this sandbox by the engine.
    #[error(
        "{0} needs the agent, and commands reach the sandbox of session {1} by the engine's exec"
    )]
    NeedsAgent(&'static str, SessionId),
    /// The runtime does not let callers choose the user of a command.
    #[error(
        "Runtime '{0}' does not let callers choose the user of a command. The operator allows it with users=any."
    )]
    UserNotAllowed(String),
    /// The sandbox does not know the user, or may not become it.
    #[error("The command cannot run as this user: {0}")]
    UserNotPossible(String),
    /// The sandbox does not do what was asked of one of its runs.
    #[error("The sandbox does not do this: {0}")]
    NotPossible(String),
    /// The sandbox holds as much for its runs as it may.
    #[error("The sandbox of session {id} takes no more {what}: {limit} of {limit} are there.")]
    SandboxCeiling {
        /// The session.
        id: SessionId,
        /// The stable name of the ceiling.
        name: &'static str,
        /// What there are as many of as may be.
        what: &'static str,
        /// The ceiling.
        limit: u64,
    },
    /// There is no such terminal in the session.
    #[error("No such terminal: {0}")]
    NoTty(String),
    /// The sandbox could not be built or started, and trying again will not help.
    #[error("Could not start sandbox: {0}")]
    StartFailed(String),
    /// The engine cannot be reached, or does not answer in time.
    #[error("The container engine is not available: {0}. Try again shortly.")]
    EngineUnavailable(String),
    /// The engine answered with an error.
    #[error("The container engine refused: {0}")]
    EngineFailed(String),
    /// A disk is full.
    #[error("No space left: {0}. Purge sessions that are no longer needed, or add space.")]
    NoSpace(String),
    /// More would lie, or lies, in a workspace than may.
    #[error("{}", full(id, (*limit, *used), *attempt))]
    WorkspaceFull {
        /// The session.
        id: SessionId,
        /// The ceiling, in bytes on the disk.
        limit: u64,
        /// What lies there.
        used: u64,
        /// What was refused for it.
        attempt: Attempt,
    },
    /// As many archives are packed and unpacked as may be.
    #[error("{limit} archives are being exported or imported. Try again when one is done.")]
    ArchiveCeiling {
        /// The ceiling.
        limit: u64,
    },
    /// Something with an archive.
    #[error(transparent)]
    Archive(#[from] ArchiveRefusal),
    /// The store takes no writes at the moment.
    #[error("The session store is not available: {0}. Try again shortly.")]
    StoreUnavailable(String),
    /// The sandbox and its files are gone.
    #[error("The sandbox of session {0} is gone, and its files with it")]
    SandboxGone(SessionId),
    /// Something with files.
    #[error(transparent)]
    Files(#[from] FileRefusal),
    /// The service is stopping.
    #[error("The service is shutting down. Try again shortly.")]
    ShuttingDown,
}

/// What a full workspace keeps from being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// Writing by way of the service.
    Write,
    /// Waking its session.
    Wake,
    /// Unpacking an archive.
    Import,
}

fn full(id: &SessionId, (limit, used): (u64, u64), attempt: Attempt) -> String {
    let (refused, remedy) = match attempt {
        Attempt::Write => (
            "Nothing is written that would go beyond",
            "Remove files first",
        ),
        Attempt::Wake => (
            "It is not woken",
            "Remove files with POST /sessions/{session_id}/files/remove, which needs no sandbox, \
             or export and purge it",
        ),
        Attempt::Import => ("The archive is not taken in", "Send a smaller one"),
    };
    format!(
        "The workspace of session {id} holds {used} bytes of the {limit} that it may. {refused}. \
         {remedy}; the operator can raise workspace_size."
    )
}

impl Refusal {
    /// Returns the ceiling that refused, if one did.
    pub fn ceiling(&self) -> Option<Ceiling> {
        let service = || "service".to_owned();
        let session = |id: &SessionId| format!("session:{id}");
        let (name, limit, used, scope) = match self {
            Self::OpenCeiling { limit, used } => ("max_open_sessions", limit, used, service()),
            Self::TenantCeiling {
                tenant,
                limit,
                used,
            } => {
                let scope = format!("tenant:{tenant}");
                ("max_sessions_per_tenant", limit, used, scope)
            }
            Self::ResidentCeiling { limit, used, .. } => ("max_sessions", limit, used, service()),
            Self::CommandCeiling { limit, used } => {
                ("max_running_commands", limit, used, service())
            }
            Self::SessionCommandCeiling { id, limit, used } => {
                ("max_session_commands", limit, used, session(id))
            }
            Self::TtyCeiling { id, limit, used } => ("max_session_ttys", limit, used, session(id)),
            Self::ViewerCeiling { id, limit, .. } => ("tty_viewers", limit, limit, session(id)),
            Self::WorkspaceFull {
                id, limit, used, ..
            } => ("workspace_size", limit, used, session(id)),
            Self::ArchiveCeiling { limit } => ("archives", limit, limit, service()),
            Self::SandboxCeiling {
                id, name, limit, ..
            } => (*name, limit, limit, session(id)),
            Self::Files(refusal) => return refusal.ceiling(),
            Self::UnknownRuntime { .. }
            | Self::UserNotPossible(_)
            | Self::NotPossible(_)
            | Self::NoRun(_)
            | Self::RunIdUsed(_)
            | Self::RunOver(..)
            | Self::RunGoesOn(_)
            | Self::RunLost { .. }
            | Self::SandboxEnded(_)
            | Self::NeedsAgent(..)
            | Self::UserNotAllowed(_)
            | Self::NoTty(_)
            | Self::AttachWithoutId
            | Self::NothingToAttach(_)
            | Self::NoSession(_)
            | Self::NoHold(_)
            | Self::Exists(_)
            | Self::Opening(_)
            | Self::Closing(_)
            | Self::OtherRuntime { .. }
            | Self::FilesInOtherRuntime { .. }
            | Self::StillOpen(_)
            | Self::InUse { .. }
            | Self::SleepLosesFiles(_)
            | Self::StartFailed(_)
            | Self::EngineUnavailable(_)
            | Self::EngineFailed(_)
            | Self::NoSpace(_)
            | Self::Archive(_)
            | Self::StoreUnavailable(_)
            | Self::SandboxGone(_)
            | Self::ShuttingDown => return None,
        };
        Some(ceiling(name, *limit, *used, scope))
    }
}

pub(super) fn ceiling(name: &str, limit: u64, used: u64, scope: String) -> Ceiling {
    Ceiling {
        name: name.to_owned(),
        limit,
        used,
        scope,
    }
}
