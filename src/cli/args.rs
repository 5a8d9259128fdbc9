//! Defines the command line; help, man pages and completions are made from it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum, ValueHint};

mod backup;
mod copy;
mod runs;
mod workspaces;

pub use backup::Backup;
pub use workspaces::{Export, Import, Workspaces};

pub use copy::{Copy, Place};
pub use runs::{How, Kill, Logs, OneRun, Run, Runs, Shell, Variables};

use super::text;
use crate::client::{CloseFirst, EXEC_SECS_MAX, Purge, SessionState, SweepOptions, Usage};
use crate::id::{Alias, SessionId, Tenant};
use crate::wire::holds::{ENGINE_CHANGED, STORE_REBUILT, WORKSPACE_ROOT_CHANGED};

/// Ids that one command takes.
pub const IDS_MAX: usize = 1_000;
/// Events that one page holds.
pub const EVENTS_PAGE_MAX: u32 = 1_000;

const AFTER_HELP: &str = "\
Environment:
  SANDBOXD_URL         where the service is, as --url
  SANDBOXD_TOKEN       the service's token, or a session's
  SANDBOXD_TOKEN_FILE  a file that holds the token, as --token-file;
                       it goes before SANDBOXD_TOKEN

A token is never taken from the command line, which other users can read.

Exit status:
  0  done
  1  failed, or (health) degraded, or (doctor) broken
  2  wrong usage, or a removal that nobody confirmed
  3  not found
  4  token missing, wrong or unreadable
  5  conflict, such as an id that is in use
  6  a ceiling is reached
  7  the service is unreachable or did not answer in time, or (doctor) something
     could not be seen

exec, run and shell end with the status of their command instead, with 124 where the \
command was over its time, and with 125 where sandboxctl itself failed.";

const EXEC_AFTER_HELP: &str = "\
Examples:

  # One argument is text for the shell.
  sandboxctl exec s1 -- 'cd src && make 2>&1 | tail'

  # Several are a program and its arguments.
  sandboxctl exec s1 --timeout 60 -- grep -r \"it's\" .

  # With a variable, in a directory, and with input.
  sandboxctl exec s1 -e CI=1 -w src -i -- 'wc -l' < notes.txt

Ends with the status of the command, with 124 where it was over its time, and \
with 125 where sandboxctl failed or nobody knows how the command ended.";

const PURGE_AFTER_HELP: &str = "\
Examples:
  sandboxctl purge s1                  asks first
  sandboxctl purge --yes --close s1    for scripts

Succeeds where there is nothing to remove. Several ids of which some cannot be \
removed end with status 1, and with a line for each of those.";

const DOCTOR_AFTER_HELP: &str = "\
Prints a line for everything that was checked over store, engine and disk: ok, \
warn, fail, or unknown where something could not be seen, and below it what to do. \
Nothing is changed. While no service runs, `sandboxd verify` prints the same page.

Exit status:
  0  nothing is broken
  1  something is, such as a store and an engine that disagree
  7  something could not be seen, or the service is unreachable";

const SWEEP_AFTER_HELP: &str = "\
The service sweeps by itself, every SANDBOXD_CLEANUP_INTERVAL seconds, and each session \
at its own time. With --dry-run nothing is done: what is printed is what will be, and \
when, unless somebody uses it before. Without, everything is gone through now, and \
what is due is printed.

What waits beyond its time says for what: in_use, unknown (the engine or the disk does \
not tell), ghost (processes of a container that the engine has lost), or rival \
(another container works on its files).

Examples:
  sandboxctl sweep --dry-run                what the next sweep takes
  sandboxctl sweep --dry-run --within 1d    what goes within a day";
const RELEASE_AFTER_HELP: &str = "\
Holds:
  store_rebuilt   the store was lost, and its records were made anew, or a
                  backup was restored; nothing is reaped, expired or swept until this is released
  engine_changed  another engine answers than the one with the sandboxes;
                  releasing it accepts that engine, on which sessions start
                  anew with their workspaces
  workspace_root_changed
                  another directory is in place of the workspace root, such
                  as the mount point of a disk that is not mounted; releasing
                  it accepts that directory, where workspaces begin empty";

/// Operate sandboxes through the API of sandboxd.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "sandboxctl",
    version,
    disable_help_subcommand = true,
    after_long_help = AFTER_HELP,
    max_term_width = 100
)]
pub struct Args {
    /// What every verb understands.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The options that every verb understands.
#[derive(Clone, Debug, clap::Args)]
pub struct Global {
    /// Where the service is.
    #[arg(
        long,
        help = "Where the service is: http://HOST:PORT or unix:///PATH",
        global = true,
        env = "SANDBOXD_URL",
        hide_env_values = true,
        default_value = "http://127.0.0.1:8080",
        value_hint = ValueHint::Url
    )]
    pub url: String,

    /// Read the token from this file; - is standard input
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        env = "SANDBOXD_TOKEN_FILE",
        hide_env_values = true,
        value_hint = ValueHint::FilePath
    )]
    pub token_file: Option<PathBuf>,

    /// How to print
    #[arg(
        short,
        long,
        global = true,
        value_name = "FORMAT",
        value_enum,
        default_value_t
    )]
    pub output: Output,

    /// Wait at most this long for a reply (30 if not given); with exec and run,
    /// let the command run at most this long
    #[arg(
        long,
        global = true,
        value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(1..=EXEC_SECS_MAX)
    )]
    pub timeout: Option<u64>,

    /// Print tables without their first line
    #[arg(long, global = true)]
    pub no_headers: bool,
}

impl Global {
    /// Returns how long a call may take, where that was given.
    pub fn deadline(&self) -> Option<Duration> {
        self.timeout.map(Duration::from_secs)
    }
}

/// How data is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people
    #[default]
    Table,
    /// As the API has it
    Json,
}

/// What can be done.
#[derive(Clone, Debug, Subcommand)]
pub enum Verb {
    /// List open sessions
    Ls(Ls),
    /// Describe a session
    Get(Get),
    /// Explain a session: what it should be, what it is, what comes next, and why
    Explain(OneSession),
    /// Open a session, and print its id
    Open(Open),
    /// Run a command in a session, and end as it ends
    #[command(after_long_help = EXEC_AFTER_HELP)]
    Exec(Exec),
    /// Run a program in a session and end as it ends, or in the background
    #[command(after_long_help = runs::RUN_AFTER_HELP)]
    Run(Run),
    /// Sit at a terminal in a session, and end as its program ends
    #[command(after_long_help = runs::SHELL_AFTER_HELP)]
    Shell(Shell),
    /// List the runs of a session that were started in the background, or remove one
    Runs(Runs),
    /// Show what a run wrote
    Logs(Logs),
    /// Send a signal to the processes of a run
    Kill(Kill),
    /// Stop a run: TERM, and KILL two seconds later
    Stop(OneRun),
    /// Copy a file out of a session or into one
    #[command(after_long_help = copy::AFTER_HELP)]
    Cp(Copy),
    /// Show what was done in a session
    Events(Events),
    /// Close sessions; their files stay unless --purge is given
    Rm(Rm),
    /// Put sessions to sleep that nothing uses; their next use wakes them
    Hibernate(Sessions),
    /// Wake sessions, and wait until their sandboxes run
    Wake(Sessions),
    /// Remove everything that an id ever had: files, container, record and log
    #[command(after_long_help = PURGE_AFTER_HELP)]
    Purge(PurgeIds),
    /// List workspaces, whether their sessions are open or not
    Workspaces(Workspaces),
    /// Write a workspace to standard output as an archive
    #[command(after_long_help = workspaces::EXPORT_AFTER_HELP)]
    Export(Export),
    /// Take an archive from standard input into a session that is new or closed
    #[command(after_long_help = workspaces::IMPORT_AFTER_HELP)]
    Import(Import),
    /// Write a backup of the service's records to a file, or to standard output
    #[command(after_long_help = backup::BACKUP_AFTER_HELP)]
    Backup(Backup),
    /// Tell how the service is
    Health,
    /// Check the service's invariants, and say what to do where one is broken
    #[command(after_long_help = DOCTOR_AFTER_HELP)]
    Doctor,
    /// Remove now what is idle, expired or nobody's, or show what that would be
    #[command(after_long_help = SWEEP_AFTER_HELP)]
    Sweep(Sweep),
    /// Let go of a hold, which `health` tells of
    #[command(after_long_help = RELEASE_AFTER_HELP)]
    Release(Release),
}

/// The arguments of `ls`.
#[derive(Clone, Debug, clap::Args)]
pub struct Ls {
    /// Show memory, processor and processes too
    #[arg(long)]
    usage: bool,

    /// Only the sessions of this tenant
    #[arg(long, value_parser = Tenant::parse)]
    pub tenant: Option<Tenant>,

    /// Only the sessions in this state
    #[arg(long, value_enum)]
    pub state: Option<State>,

    /// Print ids and nothing else
    #[arg(short, long, conflicts_with = "usage")]
    pub quiet: bool,
}

impl Ls {
    /// Returns whether to sample usage.
    pub fn usage(&self) -> Usage {
        usage(self.usage)
    }
}

/// The contract's two states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum State {
    /// Resident, or on its way there
    Running,
    /// Asleep
    Hibernated,
}

impl From<State> for SessionState {
    fn from(state: State) -> Self {
        match state {
            State::Running => Self::Running,
            State::Hibernated => Self::Hibernated,
        }
    }
}

/// The arguments of `get`.
#[derive(Clone, Debug, clap::Args)]
pub struct Get {
    /// The session
    #[arg(value_name = "ID", value_parser = SessionId::parse)]
    pub id: SessionId,

    /// Sample memory, processor and processes too
    #[arg(long)]
    usage: bool,
}

impl Get {
    /// Returns whether to sample usage.
    pub fn usage(&self) -> Usage {
        usage(self.usage)
    }
}

/// The arguments of what is about one session.
#[derive(Clone, Debug, clap::Args)]
pub struct OneSession {
    /// The session
    #[arg(value_name = "ID", value_parser = SessionId::parse)]
    pub id: SessionId,
}

/// The arguments of what is done to several sessions.
#[derive(Clone, Debug, clap::Args)]
pub struct Sessions {
    /// The sessions
    #[arg(required = true, value_name = "ID", value_parser = SessionId::parse, num_args = 1..=IDS_MAX)]
    pub ids: Vec<SessionId>,
}

/// The arguments of `open`.
#[derive(Clone, Debug, clap::Args)]
pub struct Open {
    /// The session's id; the service makes one if none is given
    #[arg(long, value_parser = SessionId::parse)]
    pub id: Option<SessionId>,

    /// The runtime, one of those that the service allows
    #[arg(long, value_name = "ALIAS", value_parser = Alias::parse)]
    pub runtime: Option<Alias>,

    /// The tenant under whose ceiling the session counts
    #[arg(long, value_parser = Tenant::parse)]
    pub tenant: Option<Tenant>,

    /// What to do where the id is in use.
    #[command(flatten)]
    pub existing: Existing,

    /// Wait this long for a place where a ceiling is reached, first come first served
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=EXEC_SECS_MAX))]
    pub wait: Option<u64>,

    /// Print the session's token on a second line
    #[arg(long)]
    pub show_token: bool,
}

/// What `open` does with an id that is in use.
#[derive(Clone, Debug, clap::Args)]
pub struct Existing {
    /// Attach where the session is open, instead of refusing
    #[arg(long, requires = "id")]
    pub reuse: bool,

    /// Attach where the session is open or has files, and refuse elsewhere
    #[arg(long, requires = "id", conflicts_with = "reuse")]
    pub attach: bool,
}

/// The arguments of `exec`.
#[derive(Clone, Debug, clap::Args)]
pub struct Exec {
    /// The session; it is woken where it sleeps
    #[arg(value_name = "ID", value_parser = SessionId::parse)]
    pub id: SessionId,

    /// How it is run.
    #[command(flatten)]
    pub how: How,

    /// The command: one argument is text for the shell, several are a program
    /// with its arguments, which reach it as they are
    #[arg(last = true, required = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<String>,
}

/// The arguments of `events`.
#[derive(Clone, Debug, clap::Args)]
pub struct Events {
    /// The session whose own log is shown; without one, or with a filter, the log of the
    /// service: all sessions, and what became of them
    #[arg(value_name = "ID", value_parser = SessionId::parse)]
    pub id: Option<SessionId>,

    /// Which of the service's events are shown
    #[command(flatten)]
    pub filter: EventFilter,

    /// Only what came after this sequence number
    #[arg(long, value_name = "N")]
    pub after: Option<u64>,

    /// At most so many, the oldest first; the newest 200 if not given
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(EVENTS_PAGE_MAX))
    )]
    pub limit: Option<u32>,

    /// Go on showing what is done, until interrupted or the session is gone
    #[arg(short, long, conflicts_with = "limit")]
    pub follow: bool,
}

/// Which events of the service's log are shown.
#[derive(Clone, Debug, Default, PartialEq, clap::Args)]
pub struct EventFilter {
    /// Only those of this tenant's sessions
    #[arg(long, value_name = "NAME", value_parser = Tenant::parse)]
    pub tenant: Option<Tenant>,

    /// Only operations, what became of sessions, or neither
    #[arg(long, value_parser = ["operation", "lifecycle", "service"])]
    pub kind: Option<String>,

    /// Only this operation, such as exec, or this fact, such as hibernated
    #[arg(long, value_name = "NAME")]
    pub op: Option<String>,

    /// Only those of the last while, such as 90s, 10m, 2h or 1d
    #[arg(long, value_name = "SPAN", value_parser = text::read_span)]
    pub since: Option<Duration>,
}

impl EventFilter {
    /// Tells whether all are shown.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The arguments of `rm`.
#[derive(Clone, Debug, clap::Args)]
pub struct Rm {
    /// The sessions
    #[arg(required = true, value_name = "ID", value_parser = SessionId::parse, num_args = 1..=IDS_MAX)]
    pub ids: Vec<SessionId>,

    /// Remove their files too
    #[arg(long)]
    purge: bool,

    /// Do not ask before files are removed
    #[arg(short, long)]
    pub yes: bool,
}

impl Rm {
    /// Returns whether files go too.
    pub fn purge(&self) -> Purge {
        if self.purge { Purge::Yes } else { Purge::No }
    }
}

/// The arguments of `purge`.
#[derive(Clone, Debug, clap::Args)]
pub struct PurgeIds {
    /// The ids; whether their sessions are open, closed or unknown
    #[arg(required = true, value_name = "ID", value_parser = SessionId::parse, num_args = 1..=IDS_MAX)]
    pub ids: Vec<SessionId>,

    /// Close a session that is open, instead of refusing
    #[arg(long)]
    close: bool,

    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
}

impl PurgeIds {
    /// Returns whether open sessions are closed.
    pub fn close(&self) -> CloseFirst {
        if self.close {
            CloseFirst::Yes
        } else {
            CloseFirst::No
        }
    }
}

/// The arguments of `release`.
#[derive(Clone, Debug, clap::Args)]
pub struct Release {
    /// The hold
    #[arg(value_name = "NAME", value_parser = [STORE_REBUILT, ENGINE_CHANGED, WORKSPACE_ROOT_CHANGED])]
    pub name: String,

    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
}

/// The arguments of `sweep`.
#[derive(Clone, Debug, clap::Args)]
pub struct Sweep {
    /// Do nothing but show what is taken, and why
    #[arg(long)]
    dry_run: bool,

    /// Show what is due within this time, such as 90s, 10m, 2h or 1d; until the next
    /// sweep if not given
    #[arg(long, value_name = "SPAN", requires = "dry_run", value_parser = text::read_span)]
    within: Option<Duration>,
}

impl Sweep {
    /// Returns what is asked of the service.
    pub fn asked(&self) -> SweepOptions {
        if self.dry_run {
            SweepOptions::Look(self.within)
        } else {
            SweepOptions::Act
        }
    }
}

fn usage(asked: bool) -> Usage {
    if asked { Usage::Sample } else { Usage::Skip }
}

/// Returns the whole definition, for man pages and completions.
pub fn command() -> clap::Command {
    <Args as clap::CommandFactory>::command()
}
