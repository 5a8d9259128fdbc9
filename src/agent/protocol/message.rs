//! The requests of the daemon and the answers of the agent.
//!
//! Every request but `Hello` carries a number, `ask`, and is answered once under it:
//! by a [`Reply`], or by a [`super::output::Output`] for a `Fetch`. Answers come in
//! any order.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What the daemon asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "op")]
pub enum Request {
    /// The first frame of a stream.
    Hello(DaemonHello),
    /// Starts a run, or attaches to the one of that id; answered by `Started`.
    Start {
        /// The number of the request.
        ask: u64,
        /// What to start.
        start: Box<Start>,
    },
    /// Asks for output; answered by an `Output` once there is any, or the run has ended.
    Fetch {
        /// The number of the request.
        ask: u64,
        /// What is wanted.
        fetch: Fetch,
    },
    /// Gives up a `Fetch` or an input that was not answered yet; it is not answered then.
    Cancel {
        /// The number of that request.
        ask: u64,
    },
    /// Sends a signal to a run's process group; answered by `Done`.
    Signal {
        /// The number of the request.
        ask: u64,
        /// The run.
        run: String,
        /// The number of the signal.
        signal: i32,
    },
    /// Ends a run: TERM to its group, two seconds, then KILL to all that carries its
    /// cookie; answered by `Done` at once, and its end is fetched.
    Stop {
        /// The number of the request.
        ask: u64,
        /// The run.
        run: String,
    },
    /// Changes the size of a run's terminal; answered by `Done`.
    Resize {
        /// The number of the request.
        ask: u64,
        /// The run.
        run: String,
        /// The new size.
        size: Size,
    },
    /// Asks for all runs that are known; answered by `Runs`.
    List {
        /// The number of the request.
        ask: u64,
    },
    /// Asks what the sandbox uses; answered by `Usage`. An older agent fails it as `Bad`.
    Usage {
        /// The number of the request.
        ask: u64,
    },
    /// Forgets an ended run and its output, but not that its id was used; answered by `Done`.
    Forget {
        /// The number of the request.
        ask: u64,
        /// The run.
        run: String,
    },
}

/// How the daemon introduces itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonHello {
    /// [`super::VERSION`].
    pub version: u32,
    /// The bounds that hold from now on.
    pub bounds: Bounds,
}

/// What the agent may take at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// Bytes of output kept of one run.
    pub ring_bytes: u64,
    /// Bytes of output kept of all runs.
    pub rings_bytes: u64,
    /// Milliseconds for which an ended run is kept.
    pub keep_ms: u64,
    /// Runs at once.
    pub runs: u32,
}

/// What to start, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// Its id: 32 hex digits. One id runs once.
    pub run: String,
    /// Tells a repeated request from another one under the same id.
    pub digest: String,
    /// What it is.
    pub what: What,
    /// Variables over those of the container.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Where it begins; the container's directory where `None`, and relative to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Its user, as `name`, `uid`, `name:group` or `uid:gid`; the agent's own where `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// What it reads.
    pub stdin: Stdin,
    /// Where it writes.
    pub streams: Streams,
    /// Milliseconds after which it is ended with [`Cause::Timeout`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// What becomes of its output.
    pub output: Keep,
    /// Whether somebody waits for it: the daemon ends such a run when it finds it after
    /// a restart of its own.
    pub attended: Attended,
}

/// What is run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A program and its arguments, passed literally; found by `PATH`.
    Argv(Vec<String>),
    /// A text for `/bin/sh -c`.
    Shell(String),
}

/// What a run reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stdin {
    /// Nothing: it is at its end.
    Closed,
    /// What arrives in `Input` frames.
    Open,
    /// This text, and then its end.
    Text(String),
}

/// Where a run writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Streams {
    /// Both streams into one, in the order of writing.
    Merged,
    /// Apart.
    Split,
    /// To a terminal of this size, which it reads from as well.
    Tty(Size),
}

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Columns.
    pub cols: u16,
    /// Rows.
    pub rows: u16,
}

/// What becomes of a run's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// The first so many bytes; the rest is read, counted and dropped, and the run is
    /// `truncated`.
    First(u64),
    /// A ring; the oldest records go when it is full.
    Newest {
        /// The run is ended with [`Cause::OutputLimit`] once it wrote more than this.
        limit: Option<u64>,
    },
    /// A ring; the run waits for its reader when it is full. What was fetched is dropped
    /// first.
    All {
        /// The run is ended with [`Cause::OutputLimit`] once it wrote more than this.
        limit: Option<u64>,
    },
}

/// Whether somebody waits for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attended {
    /// A caller does.
    Yes,
    /// It runs in the background.
    No,
}

/// Which output is wanted, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fetch {
    /// The run.
    pub run: String,
    /// Where to begin.
    pub from: From,
    /// Records of other streams are left out.
    pub streams: Filter,
    /// Bytes of one answer, heads of records included; the agent may give less.
    pub bytes: u32,
    /// What is waited for.
    pub wait: Wait,
}

/// Where output begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum From {
    /// With this record.
    Seq(u64),
    /// At this byte of the stream that the filter names.
    Offset(u64),
}

/// Which streams are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Filter {
    /// Both.
    Both,
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// What an answer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// Nothing: an empty answer tells that there is no output yet.
    No,
    /// Any record, a gap, or the end of the run.
    Some,
    /// The end of the run, or as many bytes as one answer holds.
    End,
    /// The end of the run, which comes alone: no record is given with it and none counts
    /// as fetched, wherever the request begins.
    Over,
}

/// What the agent answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "op")]
pub enum Reply {
    /// The first frame of a stream.
    Hello(AgentHello),
    /// A run was started, or is there already.
    Started {
        /// The number of the request.
        ask: u64,
        /// How it is now.
        run: Run,
        /// Whether this request started it.
        fresh: bool,
    },
    /// All runs that are known, the oldest first.
    Runs {
        /// The number of the request.
        ask: u64,
        /// The runs.
        runs: Vec<Run>,
    },
    /// What the sandbox uses.
    Usage {
        /// The number of the request.
        ask: u64,
        /// As its own control group tells.
        usage: Usage,
    },
    /// It was done.
    Done {
        /// The number of the request.
        ask: u64,
    },
    /// It was not done.
    Failed {
        /// The number of the request.
        ask: u64,
        /// Why.
        why: Why,
        /// In words; at most 1 KiB.
        text: String,
    },
}

/// What a sandbox uses at one moment; what its control group does not tell is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Memory in use in bytes, without the inactive file cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// The ceiling of its memory in bytes, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit_bytes: Option<u64>,
    /// Processor time so far, in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ns: Option<u64>,
    /// Processes and threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
}

/// How the agent introduces itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentHello {
    /// The version that it speaks.
    pub version: u32,
    /// Random, made when it started: another value means another life of the sandbox.
    pub life: String,
    /// Its user.
    pub uid: u32,
    /// The version of [`super::files`] that its program speaks; 0 where it does not work
    /// on files, as those before it did not.
    #[serde(default)]
    pub files: u32,
}

/// Why something was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// There is no such run, or it was forgotten.
    NoRun,
    /// The id was used for another request.
    Conflict,
    /// The run has ended, or its input was closed.
    Over,
    /// As many runs are there as may be.
    Ceiling,
    /// The user is not there, or the agent may not become it.
    User,
    /// The request has no sense, or not for this run.
    Bad,
}

/// A run as the agent knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Its id.
    pub run: String,
    /// Of the request that started it.
    pub digest: String,
    /// Whether somebody waits for it.
    pub attended: Attended,
    /// The size of its terminal, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// Milliseconds since it was started.
    pub age_ms: u64,
    /// Bytes that it wrote to standard output.
    pub stdout_bytes: u64,
    /// Bytes that it wrote to standard error.
    pub stderr_bytes: u64,
    /// The first record that is kept.
    pub first_seq: u64,
    /// The record that comes next.
    pub next_seq: u64,
    /// Whether output was dropped.
    pub truncated: bool,
    /// How it ended, once it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<End>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Why.
    pub cause: Cause,
    /// The exit code of its first process, where it ended by itself or on a request; 126
    /// or 127 for one that was not started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// The signal that ended its first process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Milliseconds that it ran.
    pub ran_ms: u64,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// By itself, or by a signal from within the sandbox.
    Exited,
    /// It could not be started; the words are in its output.
    StartFailed,
    /// Its time was over.
    Timeout,
    /// It wrote more than it may.
    OutputLimit,
    /// It was stopped on request.
    Stopped,
    /// A signal on request ended it.
    Signal,
}
