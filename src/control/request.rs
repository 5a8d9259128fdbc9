//! What callers ask for, already checked.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::id::{RequestId, RunId, SessionId, Tenant};

/// Bytes of the longest command: the kernel takes no longer argument (`MAX_ARG_STRLEN`,
/// 32 pages with the zero at the end).
pub const COMMAND_BYTES_MAX: usize = (128 << 10) - 1;

/// Asks for a session to be opened or attached to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// The id; one is made where none is given.
    pub id: Option<SessionId>,
    /// The alias as the client wrote it; `None` or empty takes the default.
    pub runtime: Option<String>,
    /// The tenant.
    pub tenant: Option<Tenant>,
    /// What to do where the id is known already.
    pub attach: Attach,
}

/// What opening does with an id that is known already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attach {
    /// Refuse: the session must be new.
    Never,
    /// Attach to an open session, and open one where there is none.
    Reuse,
    /// Attach to an open session or to a workspace, and refuse where there is neither.
    Only,
}

/// What a listing shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List {
    /// Whether resources are sampled.
    pub usage: Sampling,
    /// Only this tenant's.
    pub tenant: Option<Tenant>,
    /// Only those in this state: `running` or `hibernated`.
    pub state: Option<String>,
    /// At most so many; all where `None`.
    pub limit: Option<usize>,
    /// Continue after this place in the order of opening, as the page before said.
    pub cursor: Option<u64>,
}

/// Whether resources are sampled for a description.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sampling {
    /// `usage` is `null`.
    #[default]
    Off,
    /// `usage` is sampled now.
    On,
}

/// Who looks, which decides how much is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Viewer {
    /// A holder of the session's own token.
    Session,
    /// A holder of the service token, who also sees container and image.
    Service,
}

/// How a command is run, beside what it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Variables over those of the sandbox.
    pub env: BTreeMap<String, String>,
    /// Where it begins; relative to the work directory.
    pub cwd: Option<String>,
    /// Its user, as `name`, `uid`, `name:group` or `uid:gid`; the sandbox's where `None`.
    pub user: Option<String>,
    /// What it reads.
    pub stdin: Input,
}

/// What a command reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Input {
    /// Nothing.
    #[default]
    Closed,
    /// What is sent later; only in the background.
    Open,
    /// This text.
    Text(String),
}

/// What is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// A program and its arguments, passed literally; at least one.
    Argv(Vec<String>),
    /// The text for `sh -c`.
    Shell(String),
}

/// Asks for a program to be run and waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Its id; one id runs once.
    pub run_id: RunId,
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// How.
    pub options: Options,
    /// The longest it may run; the service's ceiling where `None`, and at most that.
    pub timeout: Option<Duration>,
    /// The request that asks.
    pub request_id: RequestId,
}

/// Asks for a run in the background.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// Its id; one is made where none is given.
    pub run_id: Option<RunId>,
    /// What is run.
    pub program: Program,
    /// How.
    pub options: Options,
    /// The longest it may run.
    pub timeout: Option<Duration>,
    /// Bytes that it may write before it is ended.
    pub output_limit: Option<u64>,
    /// Whether its streams are one.
    pub streams: Streams,
    /// What happens when its ring is full.
    pub overflow: Overflow,
    /// The request that asks.
    pub request_id: RequestId,
}

/// Whether the streams of a run are one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Streams {
    /// Apart.
    #[default]
    Split,
    /// One, in the order of writing.
    Merged,
}

/// What happens when the ring of a run is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// The oldest output goes.
    #[default]
    Drop,
    /// The run waits for a follower.
    Wait,
}

/// Which output of a run is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Follow {
    /// Where it begins.
    pub from: Position,
    /// Of which streams.
    pub streams: Which,
    /// What happens at the end of what is there.
    pub at_end: AtEnd,
}

/// Where output begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// With this record.
    Seq(u64),
    /// At this byte of a single stream.
    Offset(u64),
}

/// Which streams are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Both.
    Both,
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// What happens when all output that is there was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtEnd {
    /// The reading ends.
    Stop,
    /// It goes on with the run, to its end.
    Wait,
}

/// Whether a run's input ends with what is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// More may follow.
    No,
    /// It ends.
    Yes,
}

/// Asks for a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenTty {
    /// What runs in it; the first shell of the sandbox where `None`.
    pub argv: Option<Vec<String>>,
    /// How; its input is open whatever this says.
    pub options: Options,
    /// Columns, 1 to 1,000.
    pub cols: u16,
    /// Rows, 1 to 1,000.
    pub rows: u16,
    /// The request that asks.
    pub request_id: RequestId,
}

/// Asks for a shell command to be run and waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exec {
    /// The text for `sh -c`.
    pub command: String,
    /// How.
    pub options: Options,
    /// The longest it may run; the service's ceiling where `None`, and at most that.
    pub timeout: Option<Duration>,
    /// The request that asks.
    pub request_id: RequestId,
}

/// Which part of a session's log is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Events {
    /// Only those with a higher sequence number.
    pub after: u64,
    /// The oldest so many; the newest 200 where `None`.
    pub limit: Option<usize>,
}

/// What purging by id does with a session that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenOpen {
    /// It is refused.
    Refuse,
    /// It is closed first.
    Close,
}
