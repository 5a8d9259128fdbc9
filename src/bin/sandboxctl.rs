//! The operator command's entry point.
#![forbid(unsafe_code)]

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use sandboxd::cli::args::Args;
use sandboxd::cli::{Exit, Streams, Terminal, run};
use sandboxd::secret::Secret;

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(told) => {
            // Help and version are told this way too, and are no failure.
            let exit = u8::try_from(told.exit_code()).unwrap_or(Exit::USAGE.code());
            return match told.print() {
                Ok(()) => ExitCode::from(exit),
                Err(_) => Exit::FAILED.into(),
            };
        }
    };
    // Read here and not by clap, so that it can be no option and shows nowhere.
    let token = std::env::var_os("SANDBOXD_TOKEN")
        .map(|token| Secret::new(token.to_string_lossy().into_owned()));
    let mut stderr = io::stderr().lock();
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            return match writeln!(stderr, "error: failed to start a runtime: {error}") {
                Ok(()) | Err(_) => Exit::FAILED.into(),
            };
        }
    };
    let terminal = if io::stdin().is_terminal() && stderr.is_terminal() {
        Terminal::Attached
    } else {
        Terminal::Absent
    };
    let streams = Streams {
        stdin: &mut io::stdin().lock(),
        stdout: &mut io::stdout().lock(),
        stderr: &mut stderr,
        terminal,
    };
    runtime
        .block_on(run(args, token, streams, interrupted()))
        .into()
}

/// Waits for Ctrl-C; without a handler for it, for ever.
async fn interrupted() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
