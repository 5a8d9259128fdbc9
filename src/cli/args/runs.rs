//! Defines the verbs that run programs and look after them.

use std::collections::BTreeMap;

use clap::ValueHint;

use crate::client::FollowRun;
use crate::id::{RunId, SessionId};

pub(super) const RUN_AFTER_HELP: &str = "\
Examples:

  # A program and its arguments, which reach it as they are.
  sandboxctl run s1 --timeout 60 -- grep -r \"it's\" .

  # In the background: its id is printed, and it goes on.
  run=$(sandboxctl run -d s1 -- make test)
  sandboxctl logs s1 \"$run\" -f

Without -d it ends with the status of the program, with 124 where that was over its \
time, and with 125 where sandboxctl failed or the program was ended otherwise. exec \
takes text for the shell instead of a program.";

pub(super) const SHELL_AFTER_HELP: &str = "\
Examples:

  # Its shell, and another program.
  sandboxctl shell s1
  sandboxctl shell s1 -w src -- python3

  # Back to the one that was left.
  sandboxctl shell s1 --attach \"$tty\"

Ctrl-P Ctrl-Q leaves the terminal, and what runs there goes on; so does a signal, or \
the end of the connection. Otherwise it ends with the status of the program, and with \
125 where sandboxctl failed or nobody knows how the program ended.";

/// Variables of a command.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Variables {
    /// Set a variable, over those of the sandbox; may be given often
    #[arg(short, long, value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,
}

impl Variables {
    /// Returns them; the last of equal names wins.
    pub fn env(&self) -> BTreeMap<String, String> {
        self.env.iter().cloned().collect()
    }
}

/// How a command is run.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct How {
    /// Its variables.
    #[command(flatten)]
    variables: Variables,

    /// Begin in this directory; relative to the work directory
    #[arg(short, long, value_name = "DIRECTORY")]
    pub workdir: Option<String>,

    /// Run as this user, where the runtime lets callers choose: a name or a number,
    /// and a group after a colon
    #[arg(short, long)]
    pub user: Option<String>,

    /// Read standard input to its end, as text, and let the command read it
    #[arg(short = 'i', long)]
    pub stdin: bool,
}

impl How {
    /// Returns the variables; the last of equal names wins.
    pub fn env(&self) -> BTreeMap<String, String> {
        self.variables.env()
    }
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        Some(_) | None => Err("write NAME=VALUE".to_owned()),
    }
}

/// The arguments of `run`.
#[derive(Clone, Debug, clap::Args)]
pub struct Run {
    /// The session; it is woken where it sleeps
    #[arg(value_name = "ID", value_parser = SessionId::parse)]
    pub id: SessionId,

    /// Start it in the background, and print its id
    #[arg(short, long)]
    pub detach: bool,

    /// How it is run.
    #[command(flatten)]
    pub how: How,

    /// The program and its arguments, which reach it as they are
    #[arg(last = true, required = true, value_name = "PROGRAM", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<String>,
}

/// The arguments of `shell`.
#[derive(Clone, Debug, clap::Args)]
pub struct Shell {
    /// The session; it is woken where it sleeps
    #[arg(value_name = "ID", value_parser = SessionId::parse)]
    pub id: SessionId,

    /// Come back to this terminal, and write there, instead of opening one
    #[arg(
        long,
        value_name = "TTY",
        value_parser = RunId::parse,
        conflicts_with_all = ["env", "workdir", "user", "command"]
    )]
    pub attach: Option<RunId>,

    /// Its variables.
    #[command(flatten)]
    pub env: Variables,

    /// Begin in this directory; relative to the work directory
    #[arg(short, long, value_name = "DIRECTORY")]
    pub workdir: Option<String>,

    /// Run as this user, where the runtime lets callers choose: a name or a number,
    /// and a group after a colon
    #[arg(short, long)]
    pub user: Option<String>,

    /// The program and its arguments; a shell if not given
    #[arg(last = true, value_name = "PROGRAM", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<String>,
}

/// The arguments of `runs`.
#[derive(Clone, Debug, clap::Args)]
pub struct Runs {
    /// The session
    #[arg(value_name = "ID", value_parser = SessionId::parse)]
    pub id: SessionId,

    /// Remove this run, which has to be over, and its output instead; may be given often
    #[arg(long, value_name = "RUN", value_parser = RunId::parse)]
    pub rm: Vec<RunId>,
}

/// Names a run of a session.
#[derive(Clone, Debug, clap::Args)]
pub struct OneRun {
    /// The session
    #[arg(value_name = "ID", value_parser = SessionId::parse)]
    pub id: SessionId,

    /// The run, as `runs` shows it
    #[arg(value_name = "RUN", value_parser = RunId::parse)]
    pub run: RunId,
}

/// The arguments of `logs`.
#[derive(Clone, Debug, clap::Args)]
pub struct Logs {
    /// Of which run.
    #[command(flatten)]
    pub of: OneRun,

    /// Go on showing what it writes, until it ends or this is interrupted
    #[arg(short, long)]
    follow: bool,

    /// Begin with this record
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub since_seq: u64,
}

impl Logs {
    /// Returns whether to go on.
    pub fn follow(&self) -> FollowRun {
        if self.follow {
            FollowRun::Yes
        } else {
            FollowRun::No
        }
    }
}

/// The arguments of `kill`.
#[derive(Clone, Debug, clap::Args)]
pub struct Kill {
    /// Which run.
    #[command(flatten)]
    pub of: OneRun,

    /// The signal: its name or its number
    #[arg(short, long, default_value = "KILL")]
    pub signal: String,
}
