//! Defines the command line of the daemon.

use std::path::PathBuf;

use clap::{CommandFactory as _, Parser, Subcommand};

/// The exit code of a command line that is not one.
pub const EXIT_USAGE: u8 = 64;
/// The exit code of output that nobody takes.
pub const EXIT_IO: u8 = 74;
/// The exit code of a configuration that does not hold.
pub const EXIT_CONFIG: u8 = 78;

/// What a manual says beyond the flags.
const NOTES: &str = "\
Every setting, with its default and an example, is in docs/configuration.md; \
`sandboxd check` prints those in force and where each came from.

Signals: SIGTERM and SIGINT stop the daemon in order. Sandboxes go on running, \
and the next start finds them again, as it does after SIGKILL.

Files: STATE_DIR/store holds sessions and their events, STATE_DIR/token.key the \
key of all session tokens, STATE_DIR/LOCK the number of the daemon that runs. \
WORKSPACE_ROOT/ID/workspace holds the files of a session.

STATE_DIR/backups holds copies of the store, for sandboxd restore.

STATE_DIR/store.corrupt-DATE is a store that was lost: its sessions were made anew \
from their workspaces and containers, and nothing is reaped, expired or swept until \
sandboxctl release store_rebuilt says that they are right.

Exit codes: 0 stopped in order; 64 the command line is none; 65 the store is \
newer than this program, another's, or corrupt where that is to be refused; 69 the state directory belongs to a running \
daemon; 70 an essential part failed; 74 a file, a directory or the port cannot \
be used; 78 the configuration does not hold.";

/// What a manual says of `verify`.
const VERIFY_NOTES: &str = "\
Changes nothing, and holds the lock of the state directory meanwhile, so that no \
daemon starts. The engine need not run; what cannot be seen is told as unknown. A \
copy of the store lies in the system's temporary directory until the end. While a \
daemon runs, `sandboxctl doctor` asks it for the same page.

Exit codes: 0 nothing is broken; 1 an invariant is broken, such as a store and an \
engine that disagree; 65 the store is corrupt or newer than this program; 69 a \
daemon runs; 74 the state directory cannot be read; 75 something could not be \
seen; 78 the configuration does not hold.";

/// What a manual says of `backup`.
const BACKUP_NOTES: &str = "\
While a daemon runs on the state directory, it is asked for the backup, by its \
address and its token; else the store is read under the directory's lock, from a copy \
in the system's temporary directory. A backup is of one moment. It holds the records \
of sessions, open and closed, and of runs in the background; it does not hold their \
events, nor any files. It is JSON lines, of which the last has a digest of all others. \
The daemon keeps such copies in STATE_DIR/backups by itself.

Exit codes: 0 it is written; 65 the store is corrupt or newer than this program; 66 \
there is no store; 69 a daemon runs that does not give it; 74 a file cannot be read or \
written; 78 the configuration does not hold.";

/// What a manual says of `restore`.
const RESTORE_NOTES: &str = "\
Works while no daemon runs. The digest is checked first: a damaged backup changes \
nothing. A store that is there is renamed to store.before-restore-DATE and never \
removed.

The next start compares the records with the workspaces and containers of the host: \
what was opened after the backup is taken over, what was closed after it stays closed, \
and what runs goes on. Nothing is reaped, expired or swept until sandboxctl release \
store_rebuilt says that the sessions are right. One that was purged after the backup is \
on record again, asleep and without files: purge it again.

Exit codes: 0 it is in place; 65 the backup is damaged, newer than this program, or \
another instance's; 69 a daemon runs; 73 a store is there, and --force was not given; \
74 a file cannot be read or written; 78 the configuration does not hold, or the key of \
the tokens is not here.";

/// Rents containers of this host to applications over HTTP.
///
/// Every flag has a variable of the same meaning; the flag wins. The service token
/// has no flag, since every user of a host reads the command lines of others.
#[expect(clippy::doc_markdown, reason = "clap prints these lines as they are")]
#[derive(Clone, Debug, Default, Parser)]
#[command(
    name = "sandboxd",
    version,
    max_term_width = 100,
    disable_help_subcommand = true,
    after_long_help = NOTES
)]
pub struct Args {
    /// What to do instead of serving
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Read settings from a file of NAME=VALUE lines (SANDBOXD_CONFIG)
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<String>,
    /// Listen on this address (SANDBOXD_HOST)
    #[arg(long, global = true, value_name = "ADDRESS")]
    pub host: Option<String>,
    /// Listen on this port; 0 lets the system choose (SANDBOXD_PORT)
    #[arg(long, global = true, value_name = "PORT")]
    pub port: Option<String>,
    /// Keep the store and the key here (SANDBOXD_STATE_DIR)
    #[arg(long, global = true, value_name = "DIR")]
    pub state_dir: Option<String>,
    /// Keep the sockets of sandboxes here (SANDBOXD_RUNTIME_DIR)
    #[arg(long, global = true, value_name = "DIR")]
    pub runtime_dir: Option<String>,
    /// Keep the files of sessions here (SANDBOXD_WORKSPACE_ROOT)
    #[arg(long, global = true, value_name = "DIR")]
    pub workspace_root: Option<String>,
    /// Reach the Docker Engine at this unix socket (SANDBOXD_DOCKER_HOST)
    #[arg(long, global = true, value_name = "unix://PATH")]
    pub docker_host: Option<String>,
    /// Log this much: a level or directives (SANDBOXD_LOG)
    #[arg(long, global = true, value_name = "LEVEL")]
    pub log: Option<String>,
    /// Log in this form: text or json (SANDBOXD_LOG_FORMAT)
    #[arg(long, global = true, value_name = "FORMAT")]
    pub log_format: Option<String>,
}

/// What the daemon does instead of serving.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// Check the configuration and print what holds and where it came from
    Check,
    /// Check store, engine and disk while no daemon runs, and print what was found
    #[command(after_long_help = VERIFY_NOTES)]
    Verify,
    /// Write a backup of the store, whether a daemon runs or not
    #[command(after_long_help = BACKUP_NOTES)]
    Backup {
        /// Where it goes; standard output if not given, or -
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
        /// Have the key of all session tokens in it, to restore it on another host;
        /// whoever reads it can use every session
        #[arg(long)]
        with_key: bool,
    },
    /// Put a backup in the place of the store while no daemon runs
    #[command(after_long_help = RESTORE_NOTES)]
    Restore {
        /// The backup
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Rename a store that is there, instead of refusing
        #[arg(long)]
        force: bool,
        /// Give every session a new token, where the key of their tokens is lost
        #[arg(long)]
        void_tokens: bool,
    },
    /// Open a store and close it again, in a process that may hang or die of it
    #[command(hide = true)]
    StoreProbe {
        /// The directory of the store
        dir: PathBuf,
        /// The number of the last commit that it has to hold
        commits: Option<u64>,
    },
}

/// Returns the definition of the command line, for manuals and completions.
pub fn command() -> clap::Command {
    Args::command()
}

impl Args {
    /// Returns what was given for a flag, named without its dashes.
    pub fn value(&self, flag: &str) -> Option<&str> {
        let given = match flag {
            "config" => &self.config,
            "host" => &self.host,
            "port" => &self.port,
            "state-dir" => &self.state_dir,
            "runtime-dir" => &self.runtime_dir,
            "workspace-root" => &self.workspace_root,
            "docker-host" => &self.docker_host,
            "log" => &self.log,
            "log-format" => &self.log_format,
            _ => &None,
        };
        given.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::super::settings::SETTINGS;
    use super::*;

    #[test]
    fn every_flag_of_the_table_exists_names_its_variable_and_is_read() {
        Args::command().debug_assert();
        let command = Args::command();
        for setting in SETTINGS.iter() {
            let Some(flag) = setting.flag else { continue };
            let args = Args::try_parse_from(["sandboxd", &format!("--{flag}"), "x"]).unwrap();
            assert_eq!(args.value(flag), Some("x"), "{flag}");
            let known = command
                .get_arguments()
                .find(|arg| arg.get_long() == Some(flag));
            let help = known.unwrap().get_help().unwrap().to_string();
            assert!(help.contains(setting.name), "{flag}: {help}");
        }
    }

    #[test]
    fn no_flag_takes_the_token() {
        for words in [["--token", "x"], ["--service-token", "x"]] {
            assert!(Args::try_parse_from(["sandboxd"].iter().chain(&words)).is_err());
        }
    }

    #[test]
    fn flags_go_before_or_after_the_command() {
        let args = Args::try_parse_from(["sandboxd", "check", "--port", "1"]).unwrap();
        assert_eq!(
            (args.command.clone(), args.value("port")),
            (Some(Command::Check), Some("1"))
        );
    }
}
