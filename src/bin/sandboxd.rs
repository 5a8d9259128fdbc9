//! The daemon's entry point.
#![forbid(unsafe_code)]

use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory as _, FromArgMatches as _};
use sandboxd::cause::chain;
use sandboxd::client::BackupKey;
use sandboxd::config::args::{Command, EXIT_CONFIG, EXIT_IO, EXIT_USAGE};
use sandboxd::config::{Args, Config, Loaded, Surroundings, check};
use sandboxd::daemon::Tokens;
use sandboxd::store::InPlace;
use sandboxd::{daemon, store, telemetry};

/// The version with the commit, which only the program itself shows: a manual
/// that held it would be stale at every commit.
const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (",
    env!("SANDBOXD_COMMIT"),
    ")"
);

/// How long work on files has to end after everything else has.
const SHUTDOWN_WAIT_MAX: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let args = Args::command()
        .version(VERSION)
        .try_get_matches()
        .and_then(|matches| Args::from_arg_matches(&matches));
    let args = match args {
        Ok(args) => args,
        Err(error) => return usage(&error),
    };
    if let Some(Command::StoreProbe { dir, commits }) = &args.command {
        return probe(dir, *commits);
    }
    let loaded = match Config::load(&args, &Surroundings::of_process()) {
        Ok(loaded) => loaded,
        Err(problems) => {
            complain(&problems.to_string());
            return ExitCode::from(EXIT_CONFIG);
        }
    };
    match args.command {
        Some(Command::Check) => match io::stdout().write_all(check::report(&loaded).as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::from(EXIT_IO),
        },
        Some(Command::Verify) => verify(loaded),
        Some(Command::Backup { file, with_key }) => {
            let key = if with_key {
                BackupKey::Take
            } else {
                BackupKey::Leave
            };
            backup(loaded, file.as_deref(), key)
        }
        Some(Command::Restore {
            file,
            force,
            void_tokens,
        }) => {
            let in_place = if force {
                InPlace::SetAside
            } else {
                InPlace::Refuse
            };
            let tokens = if void_tokens {
                Tokens::Void
            } else {
                Tokens::Keep
            };
            restore(loaded, &file, in_place, tokens)
        }
        Some(Command::StoreProbe { .. }) | None => serve(loaded),
    }
}

fn serve(loaded: Loaded) -> ExitCode {
    if let Err(error) = telemetry::init(&loaded.config.log) {
        complain(&format!("sandboxd: {}", chain(&error)));
        return ExitCode::from(EXIT_CONFIG);
    }
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    match run(daemon::run(loaded.config)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(code) => code,
    }
}

/// Prints what is to be found of a service that does not run.
fn verify(loaded: Loaded) -> ExitCode {
    let copies = std::env::temp_dir();
    let verdict = match run(daemon::verify(loaded.config, &copies)) {
        Ok(verdict) => verdict,
        Err(code) => return code,
    };
    match io::stdout().write_all(verdict.report.to_string().as_bytes()) {
        Ok(()) => ExitCode::from(verdict.exit_code),
        Err(_) => ExitCode::from(EXIT_IO),
    }
}

/// Writes a backup of the store.
fn backup(loaded: Loaded, file: Option<&Path>, key: BackupKey) -> ExitCode {
    let to = file.filter(|file| *file != Path::new("-"));
    let copies = std::env::temp_dir();
    match run(daemon::backup(loaded.config, &copies, to, key)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(code) => code,
    }
}

/// Puts a backup in the place of the store, and says what comes of it.
fn restore(loaded: Loaded, file: &Path, in_place: InPlace, tokens: Tokens) -> ExitCode {
    let restored = match run(daemon::restore(loaded.config, file, in_place, tokens)) {
        Ok(restored) => restored,
        Err(code) => return code,
    };
    let mut text = format!(
        "restored {} sessions as of {}\n",
        restored.n_sessions, restored.taken_at
    );
    if let Some(aside) = &restored.set_aside {
        text.push_str("the store that was there is in ");
        text.push_str(&aside.display().to_string());
        text.push('\n');
    }
    text.push_str(
        "the next start compares them with what is on the host, and ends nothing by itself \
         until `sandboxctl release store_rebuilt`\n",
    );
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(EXIT_IO),
    }
}

/// Runs something of the daemon to its end; says why it failed, and with which code.
fn run<T>(work: impl Future<Output = Result<T, daemon::Fatal>>) -> Result<T, ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| {
            complain(&format!("sandboxd: failed to start: {error}"));
            ExitCode::from(EXIT_IO)
        })?;
    let ended = runtime.block_on(work);
    // The removal of a large tree is taken up again by the next start.
    runtime.shutdown_timeout(SHUTDOWN_WAIT_MAX);
    ended.map_err(|fatal| {
        complain(&format!("sandboxd: failed to {}", chain(&fatal)));
        ExitCode::from(fatal.exit_code())
    })
}

fn probe(dir: &Path, commits: Option<u64>) -> ExitCode {
    match store::probe(dir, commits) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error.to_string());
            ExitCode::from(error.exit_code())
        }
    }
}

/// Prints help, the version or what is wrong with the command line.
fn usage(error: &clap::Error) -> ExitCode {
    let printed = error.print();
    if printed.is_ok() && !error.use_stderr() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(EXIT_USAGE)
    }
}

// Nobody is left to tell when standard error is gone; the exit code stands.
fn complain(text: &str) {
    drop(writeln!(io::stderr(), "{text}"));
}
