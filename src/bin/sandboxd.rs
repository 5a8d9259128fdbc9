//! The daemon's entry point.
#![forbid(unsafe_code)]

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use sandboxd::config::args::{Command, EXIT_CONFIG, EXIT_IO, EXIT_USAGE};
use sandboxd::config::{Args, Config, Surroundings, check};

/// The exit code of a part that is not there.
const EXIT_UNAVAILABLE: u8 = 69;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return usage(&error),
    };
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
        None => {
            complain("sandboxd: this build checks configurations and does not serve yet");
            ExitCode::from(EXIT_UNAVAILABLE)
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
