//! Runs a shell command in a running container and waits for how it ends.
//!
//! The engine's exec carries it: output is bounded while it streams, and a
//! command past its deadline is killed with everything it started. An ending
//! that nobody saw is unknown, and never an exit code.

use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::host::{self, Reach};
use super::killing::{kill_from_host, sweep};
use crate::docker;
use crate::docker::Engine;
use crate::docker::exec::{ExecBody, ExecCreated, ExecId, ExecStream};
use crate::docker::inspect::State;
use crate::docker::spec::Env;
use crate::id::RunId;

/// Bytes of output that are kept; what comes after is read and dropped.
pub const OUTPUT_BYTES_MAX: usize = 100_000;
/// Runs the shell command `$1` with both its streams in one pipe: through two, the
/// engine would pass them on in any order.
const MERGED: &str = r#"exec /bin/sh -c "$1" 2>&1"#;
/// The variable that marks every process of a run.
pub const COOKIE: &str = "SANDBOXD_RUN";
/// How long a command has between the request to end and its kill.
pub(super) const GRACE: Duration = Duration::from_secs(2);
/// How long the end of the output is waited for after a kill.
const KILLED_WAIT: Duration = Duration::from_millis(500);
/// How long the engine may take to know an exit code after the output ended.
const EXIT_CODE_WAIT_MAX: Duration = Duration::from_secs(5);
/// The first rest between two questions for the exit code; it doubles.
const EXIT_CODE_POLL: Duration = Duration::from_millis(10);
/// How long a command may take that only shows that its container goes on.
const PROBE_WAIT_MAX: Duration = Duration::from_secs(3);
/// How long the engine may take to know that a container ended.
const END_WAIT_MAX: Duration = Duration::from_secs(1);
/// The rest between two looks at a container that may have ended.
const END_POLL: Duration = Duration::from_millis(50);

/// A shell command to run.
#[derive(Clone, Debug)]
pub struct Shell<'c> {
    /// The engine's id of the container.
    pub container: &'c str,
    /// The text for `sh -c`.
    pub command: &'c str,
    /// The cookie of this run.
    pub run: &'c RunId,
    /// When it is killed.
    pub deadline: Instant,
}

/// What a command printed and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// The first [`OUTPUT_BYTES_MAX`] bytes of both streams, in order of arrival.
    pub output: Vec<u8>,
    /// Whether there was more.
    pub truncated: bool,
    /// How it ended.
    pub ending: Ending,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By itself, with this code.
    Exited(i64),
    /// It never began: the program could not be started, for the reason in the output.
    StartFailed(i64),
    /// It was killed at its deadline.
    TimedOut,
    /// It was killed since nobody waits for it any more.
    CallerGone,
    /// Nobody saw it, for this reason.
    Unknown(String),
}

/// Why a command was not run.
#[derive(Debug, thiserror::Error)]
pub enum NotRun {
    /// The container is not running, so nothing happened.
    #[error("the container is not running")]
    ContainerDown,
    /// The engine did not take it. Nothing was started.
    #[error(transparent)]
    Engine(#[from] docker::Error),
}

/// Output as it is kept, with a bound.
#[derive(Debug, Default)]
struct Kept {
    bytes: Vec<u8>,
    truncated: bool,
}

impl Kept {
    fn push(&mut self, piece: &[u8]) {
        let room = OUTPUT_BYTES_MAX - self.bytes.len();
        let fits = piece.get(..room.min(piece.len())).unwrap_or_default();
        self.bytes.extend_from_slice(fits);
        self.truncated |= fits.len() < piece.len();
    }
}

/// Runs a command until it ends, its deadline passes, or `gone` says that nobody
/// waits for it.
///
/// # Errors
/// Only where the command certainly did not start; afterwards every outcome is
/// an [`Ending`].
pub async fn run_shell(
    engine: &Engine,
    shell: Shell<'_>,
    gone: &CancellationToken,
) -> Result<Ran, NotRun> {
    let body = ExecBody {
        argv: ["/bin/sh", "-c", MERGED, "/bin/sh", shell.command]
            .map(str::to_owned)
            .to_vec(),
        env: Env::from_iter([(COOKIE, shell.run.as_str())]),
        working_dir: None,
        user: None,
    };
    let created = engine.exec_create(shell.container, &body).await;
    // As large as the command: it need not lie here while that runs.
    drop(body);
    let exec = match created? {
        ExecCreated::New(exec) => exec,
        ExecCreated::NotRunning(_) | ExecCreated::Gone => return Err(NotRun::ContainerDown),
    };
    if gone.is_cancelled() {
        return Ok(Ran {
            output: Vec::new(),
            truncated: false,
            ending: Ending::CallerGone,
        });
    }
    let mut stream = match engine.exec_start(&exec).await {
        Ok(stream) => stream,
        // Nothing runs in a container that had stopped by then.
        Err(error) if matches!(error.status(), Some(404 | 409)) => {
            return Err(NotRun::ContainerDown);
        }
        Err(error) if error.is_unreachable() => return Err(error.into()),
        Err(error) => {
            return Ok(Ran {
                output: Vec::new(),
                truncated: false,
                ending: Ending::Unknown(lost(&error)),
            });
        }
    };
    let mut kept = Kept::default();
    let end = tokio::select! {
        () = gone.cancelled() => Err(Ending::CallerGone),
        end = timeout_at(shell.deadline, drain(&mut stream, &mut kept)) => {
            end.map_err(|_| Ending::TimedOut)
        }
    };
    let ending = match end {
        Ok(Ok(())) => exit_of(engine, &exec).await,
        Ok(Err(error)) => Ending::Unknown(lost(&error)),
        Err(killed) => {
            kill(engine, &shell, &exec, &mut stream, &mut kept).await;
            killed
        }
    };
    if matches!(ending, Ending::Unknown(_)) {
        end_lost(engine, &shell).await;
    }
    Ok(Ran {
        output: kept.bytes,
        truncated: kept.truncated,
        ending,
    })
}

/// Reads output until it ends. Dropping the future loses none of what was kept.
async fn drain(stream: &mut ExecStream, kept: &mut Kept) -> Result<(), docker::Error> {
    while let Some(frame) = stream.next().await? {
        kept.push(&frame.data);
    }
    Ok(())
}

/// Ends what is left of a command whose ending nobody saw, as nobody reads it or
/// waits for it any more: a container may outlive its engine.
async fn end_lost(engine: &Engine, shell: &Shell<'_>) {
    match host::sweep(shell.container, shell.run).await {
        Reach::Seen => {}
        Reach::Unseen => sweep(engine, shell.container, shell.run).await,
    }
}

/// Ends everything that carries the run's cookie, and keeps what it prints on its way out.
async fn kill(
    engine: &Engine,
    shell: &Shell<'_>,
    exec: &ExecId,
    stream: &mut ExecStream,
    kept: &mut Kept,
) {
    let swept = Notify::new();
    let sweeping = async {
        match host::sweep(shell.container, shell.run).await {
            Reach::Seen => {}
            Reach::Unseen => sweep(engine, shell.container, shell.run).await,
        }
        swept.notify_one();
    };
    let draining = async {
        let killed = async {
            swept.notified().await;
            sleep(KILLED_WAIT).await;
        };
        tokio::select! {
            // The stream's failure is its end as well.
            Ok(()) | Err(_) = drain(stream, kept) => true,
            () = killed => false,
        }
    };
    let ((), ended) = tokio::join!(sweeping, draining);
    if ended {
        return;
    }
    match engine.exec_inspect(exec).await {
        Ok(Some(state)) if state.running => {
            kill_from_host(shell.container, state.pid);
            if timeout(KILLED_WAIT, drain(stream, kept)).await.is_err() {
                debug!(run = %shell.run, "output is still open after the kill");
            }
        }
        Ok(_) | Err(_) => {}
    }
}

/// Asks for the exit code of an exec whose output has ended.
///
/// The end of the output proves nothing: an engine that dies ends it as well.
async fn exit_of(engine: &Engine, exec: &ExecId) -> Ending {
    let give_up = Instant::now() + EXIT_CODE_WAIT_MAX;
    let mut rest = EXIT_CODE_POLL;
    loop {
        match engine.exec_inspect(exec).await {
            Ok(Some(state)) => match (state.running, state.exit_code, state.pid) {
                (false, Some(code @ (126 | 127)), None) => return Ending::StartFailed(code),
                (false, Some(code), _) => return Ending::Exited(code),
                (true, _, _) | (false, None, _) => {}
            },
            Ok(None) => return Ending::Unknown("engine_restarted".to_owned()),
            Err(error) => return Ending::Unknown(lost(&error)),
        }
        if give_up < Instant::now() {
            return Ending::Unknown("exit_code_unknown".to_owned());
        }
        sleep(rest).await;
        rest *= 2;
    }
}

/// Tells whether a container goes on after a command in it ended by a kill.
///
/// The kernel kills what is in a container when its first process ends, and the
/// engine learns of the command's end before it learns of the container's. So its
/// word that the container runs proves nothing yet; a further command that runs
/// does.
pub async fn goes_on(engine: &Engine, container: &str) -> bool {
    let body = ExecBody {
        argv: ["/bin/sh", "-c", ":"].map(str::to_owned).to_vec(),
        ..ExecBody::default()
    };
    let ran = async {
        let ExecCreated::New(exec) = engine.exec_create(container, &body).await? else {
            return Ok(false);
        };
        let mut stream = engine.exec_start(&exec).await?;
        drain(&mut stream, &mut Kept::default()).await?;
        Ok::<_, docker::Error>(exit_of(engine, &exec).await == Ending::Exited(0))
    };
    // The shell is the sandbox's own, and may never end.
    if matches!(timeout(PROBE_WAIT_MAX, ran).await, Ok(Ok(true))) {
        return true;
    }
    // It may be short of processes instead, so its end has to be told as well.
    let give_up = Instant::now() + END_WAIT_MAX;
    while Instant::now() < give_up {
        match engine.inspect(container).await {
            Ok(Some(seen)) => match seen.state {
                State::Running | State::Paused => sleep(END_POLL).await,
                State::Created
                | State::Restarting
                | State::Removing
                | State::Exited
                | State::Dead => return false,
            },
            Ok(None) => return false,
            // Nobody knows, and what was seen of the command is all there is.
            Err(_) => return true,
        }
    }
    true
}

fn lost(error: &docker::Error) -> String {
    debug!(%error, "an exec was lost");
    "engine_lost".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_bound_is_whole_and_one_byte_more_is_not() {
        let mut kept = Kept::default();
        kept.push(&vec![b'a'; OUTPUT_BYTES_MAX]);
        assert!(!kept.truncated);
        kept.push(b"b");
        assert!(kept.truncated);
        assert_eq!(kept.bytes.len(), OUTPUT_BYTES_MAX);
    }
}
