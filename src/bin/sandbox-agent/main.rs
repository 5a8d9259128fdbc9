//! Runs the commands of sandboxd in a container, as its first process.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::process::DumpableBehavior;
use signal_hook::consts::{SIGCHLD, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

use crate::agent::{Agent, Signals, Ways};
use crate::mortal::Mortal;
use crate::protocol::{HOST_DIR, HOST_SOCKET, OWN_DIR, OWN_SOCKET};

mod agent;
mod answer;
mod clock;
mod connect;
mod fetches;
mod files;
mod hunt;
mod launch;
mod link;
mod mortal;
mod processes;
#[path = "../../agent/protocol/mod.rs"]
#[expect(
    clippy::struct_field_names,
    dead_code,
    unreachable_pub,
    reason = "the daemon compiles these files as well, and speaks the other half"
)]
mod protocol;
mod reach;
mod ring;
mod run;
mod runs;
mod streams;
mod system;
mod tape;
mod text;
mod usage;
mod user;

const USAGE: &str = "usage: sandbox-agent serve [--dial SOCKET] [--listen SOCKET]
       sandbox-agent connect [SOCKET]
       sandbox-agent files
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args_os()
        .skip(1)
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["serve", options @ ..] => serve(options),
        ["connect"] => connect::join(&Path::new(OWN_DIR).join(OWN_SOCKET)),
        ["files"] => files::serve(),
        ["connect", path] => connect::join(Path::new(path)),
        _ => Err(USAGE.to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            // Nobody may read it; there is nothing else to tell it to.
            writeln!(std::io::stderr(), "sandbox-agent: {why}").ok();
            ExitCode::FAILURE
        }
    }
}

fn serve(options: &[&str]) -> Result<(), String> {
    let mut dial = Path::new(HOST_DIR).join(HOST_SOCKET);
    let mut listen = Path::new(OWN_DIR).join(OWN_SOCKET);
    for option in options.chunks(2) {
        match option {
            ["--dial", path] => dial = PathBuf::from(path),
            ["--listen", path] => listen = PathBuf::from(path),
            _ => return Err(USAGE.to_owned()),
        }
    }
    system::lean_heap();
    system::default_signals();
    system::keep_descriptors();
    let mut signals = signals().map_err(|error| format!("wait for signals: {error}"))?;
    let mortal = Mortal::open();
    // What runs in the sandbox as the same user cannot read or trace the agent.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).ok();
    // As the first process it gets the orphans anyway; elsewhere it asks for them.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).ok();
    Agent::new(Ways::new(dial, &listen), mortal).serve(&mut signals);
    Ok(())
}

fn signals() -> std::io::Result<Signals> {
    let (child, on_child) = UnixStream::pair()?;
    let (end, on_end) = UnixStream::pair()?;
    child.set_nonblocking(true)?;
    pipe::register(SIGCHLD, on_child)?;
    pipe::register(SIGTERM, on_end.try_clone()?)?;
    pipe::register(SIGINT, on_end)?;
    Ok(Signals { child, end })
}
