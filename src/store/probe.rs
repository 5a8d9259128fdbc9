//! Tries to open a store in another process first, since a damaged one can hang or
//! panic inside the engine.

use std::io::{self, Read as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use super::database::Database;
use super::error::Fault;
use super::watermark;

/// Seconds that an open may take before it counts as hung.
pub const PROBE_SECS_MAX: u64 = 30;
/// The argument that makes an executable call [`probe`] with the path that follows.
const SUBCOMMAND: &str = "store-probe";
/// Bytes of the child's complaint that are kept.
const COMPLAINT_BYTES_MAX: u64 = 4_096;
/// The code with which a probe ends that found a store of a later version.
const EXIT_NEWER: u8 = 78;
/// How often to look whether the probe has ended: it delays each start.
const POLL: Duration = Duration::from_millis(2);

/// How to try an open before it is done for real.
#[derive(Clone, Debug)]
pub enum Probe {
    /// Run `<executable> store-probe <directory> [<commits>]`, which calls [`probe`] and
    /// exits with 0, or with [`ProbeError::exit_code`] after a line on standard error.
    Child(PathBuf),
    /// Open at once: a panic is caught, but a hang is not.
    InProcess,
}

/// Says why a store did not open on trial.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    /// It is damaged.
    #[error("read the store: {why}")]
    Corrupt {
        /// What was found.
        why: String,
    },
    /// It is of a later version of this program.
    #[error("read the store: it has schema {found}, of a later version")]
    NewerSchema {
        /// Its schema.
        found: u32,
    },
    /// The file system is full.
    #[error("read the store: no space is left on its file system")]
    NoSpace,
    /// Another process has it open.
    #[error("read the store: another process has it open")]
    Busy,
    /// Something failed that says nothing about the store.
    #[error("read the store: {why}")]
    Io {
        /// What failed.
        why: String,
    },
}

impl ProbeError {
    /// Returns the code with which a probing process ends.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Corrupt { .. } => 65,
            Self::Busy => 69,
            Self::NoSpace => 73,
            Self::Io { .. } => 74,
            Self::NewerSchema { .. } => EXIT_NEWER,
        }
    }
}

/// Opens the store in `dir`, reads it and closes it again.
///
/// With `acknowledged`, the number of the last commit that somebody was told of, it has
/// to hold everything up to there. One never written to is no error where that is 0.
pub fn probe(dir: &Path, acknowledged: Option<u64>) -> Result<(), ProbeError> {
    match try_open(dir, acknowledged) {
        Ok(()) => Ok(()),
        Err(Fault::NewerSchema { found }) => Err(ProbeError::NewerSchema { found }),
        Err(Fault::Corrupt(why)) => Err(ProbeError::Corrupt { why }),
        Err(Fault::NoSpace) => Err(ProbeError::NoSpace),
        Err(Fault::Busy) => Err(ProbeError::Busy),
        Err(Fault::Io(why)) => Err(ProbeError::Io { why }),
    }
}

fn try_open(dir: &Path, acknowledged: Option<u64>) -> Result<(), Fault> {
    let database = Database::open(dir)?;
    let loaded = database.load();
    database.close();
    let mirror = loaded?;
    match acknowledged {
        Some(acknowledged) => watermark::check(mirror.as_ref(), acknowledged),
        None => Ok(()),
    }
}

impl Probe {
    /// Tries the store in `dir`.
    pub(super) fn run(
        &self,
        dir: &Path,
        acknowledged: Option<u64>,
        deadline: Duration,
    ) -> Result<(), Fault> {
        match self {
            Self::Child(executable) => run_child(executable, dir, acknowledged, deadline),
            Self::InProcess => Ok(()),
        }
    }
}

fn run_child(
    executable: &Path,
    dir: &Path,
    acknowledged: Option<u64>,
    deadline: Duration,
) -> Result<(), Fault> {
    let unable = |error: io::Error| {
        Fault::Io(format!(
            "the trial open by {} could not be run: {error}",
            executable.display()
        ))
    };
    let mut child = Command::new(executable)
        .arg(SUBCOMMAND)
        .arg(dir)
        .args(acknowledged.map(|commits| commits.to_string()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(unable)?;
    let Some(status) = wait(&mut child, deadline).map_err(unable)? else {
        let stuck = is_stuck(child.id());
        child.kill().map_err(unable)?;
        // It says nothing about the store, and may not end before its disk is back.
        if stuck {
            return Err(Fault::Io(
                "a trial open waits for its disk; is the device there?".to_owned(),
            ));
        }
        child.wait().map_err(unable)?;
        let secs = deadline.as_secs_f64();
        return Err(Fault::Corrupt(format!("a trial open hung for {secs} s")));
    };
    if status.code() == Some(i32::from(EXIT_NEWER)) {
        // Sound, so that it does no harm to ask how much newer.
        return try_open(dir, None);
    }
    judge(status, &complaint(&mut child))
}

/// Tells whether a process waits in the kernel, or was stopped by somebody.
fn is_stuck(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Its name, in parentheses, may hold anything.
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    matches!(state, Some('D' | 'T' | 't'))
}

/// Waits for a child; `None` at the deadline.
fn wait(child: &mut Child, deadline: Duration) -> io::Result<Option<ExitStatus>> {
    let mut waited = Duration::ZERO;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if deadline <= waited {
            return Ok(None);
        }
        thread::sleep(POLL);
        waited += POLL;
    }
}

fn complaint(child: &mut Child) -> String {
    let mut bytes = Vec::new();
    if let Some(stderr) = child.stderr.take()
        && let Err(error) = stderr.take(COMPLAINT_BYTES_MAX).read_to_end(&mut bytes)
    {
        return error.to_string();
    }
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

fn judge(status: ExitStatus, complaint: &str) -> Result<(), Fault> {
    let why = format!("a trial open ended with {status}: {complaint}");
    match (
        status.code(),
        status.signal().and_then(Signal::from_named_raw),
    ) {
        (Some(0), _) => Ok(()),
        (Some(69), _) => Err(Fault::Busy),
        (Some(73), _) => Err(Fault::NoSpace),
        // Found corrupt, or a panic, or a crash that memory of the store caused.
        (Some(65 | 101), _)
        | (None, Some(Signal::ABORT | Signal::SEGV | Signal::BUS | Signal::FPE | Signal::ILL)) => {
            Err(Fault::Corrupt(why))
        }
        // Killed from outside, or not a probe at all: no word about the store.
        (Some(_) | None, _) => Err(Fault::Io(why)),
    }
}
