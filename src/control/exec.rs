//! Runs commands on sessions and writes down how they ended.

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::live::{Live, NotLive};
use super::request::{COMMAND_BYTES_MAX, Exec};
use super::slots::Slot;
use super::{Control, Refusal};
use crate::cause::chain;
use crate::clock::Timestamp;
use crate::docker;
use crate::id::{RequestId, RunId, SessionId};
use crate::sandbox::commands::{Ending, NotRun, Ran, Shell, goes_on, run_shell};
use crate::session::record::Event;
use crate::store::Batch;
use crate::wire::exec::ExecResponse;

/// Characters of an event's target; what is longer is cut and ends in `…`.
const TARGET_CHARS_MAX: usize = 200;
/// The exit code of what could not be started, as a shell has it.
const START_FAILED: i64 = 126;
/// The exit code of what was killed at its deadline, as `timeout` has it.
const TIMED_OUT: i64 = 124;
/// The exit code of what was ended by SIGKILL.
const KILLED: i64 = 137;
/// How often a command is offered to a sandbox that had ended just then.
const TRIES_MAX: usize = 3;

/// A command on its way, with what is needed to write it down.
struct Errand {
    id: SessionId,
    exec: Exec,
    began: Timestamp,
    deadline: Instant,
    _slot: Slot,
}

impl Control {
    /// Runs a command and waits for it.
    ///
    /// Its time counts from here: waking and queueing are in it. Dropping the
    /// future stops the command, since nobody waits for it any more.
    pub async fn exec(&self, id: &SessionId, exec: Exec) -> Result<ExecResponse, Refusal> {
        if self.open_record(id).is_none() {
            return Err(Refusal::NoSession(id.clone()));
        }
        let ceiling = self.0.policy.get().limits.execute_timeout;
        let allowed = exec.timeout.unwrap_or(ceiling).min(ceiling);
        let errand = Errand {
            id: id.clone(),
            exec,
            began: self.0.books.clock.now(),
            deadline: Instant::now() + allowed,
            _slot: self.slot(id)?,
        };
        let gone = CancellationToken::new();
        let waits = gone.clone().drop_guard();
        let control = self.clone();
        let task = self
            .0
            .tasks
            .spawn(async move { control.carry_out(errand, &gone).await });
        let reply = match task.await {
            Ok(reply) => reply,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        };
        drop(waits.disarm());
        reply
    }

    async fn carry_out(
        &self,
        errand: Errand,
        gone: &CancellationToken,
    ) -> Result<ExecResponse, Refusal> {
        let ending = match unfit(&errand.exec.command) {
            Some(reply) => Ok(reply),
            None => self.offer(&errand, gone).await,
        };
        self.write_down(&errand, ending.as_ref()).await;
        ending
    }

    /// Offers a command to the session's sandbox until one takes it.
    async fn offer(
        &self,
        errand: &Errand,
        gone: &CancellationToken,
    ) -> Result<ExecResponse, Refusal> {
        let Errand { id, deadline, .. } = errand;
        for _ in 0..TRIES_MAX {
            let live = tokio::select! {
                // Nothing is started for a caller that has left.
                () = gone.cancelled() => return Ok(stopped()),
                live = self.live(id, *deadline) => live,
            };
            let live = match live {
                Ok(live) => live,
                // Its time counts from its arrival, waking included.
                Err(NotLive::Late) => return Ok(late()),
                Err(NotLive::Refused(refusal)) => return Err(refusal),
            };
            let run = RunId::random();
            let shell = Shell {
                container: &live.container,
                command: &errand.exec.command,
                run: &run,
                deadline: *deadline,
            };
            match run_shell(&self.0.host.engine, shell, gone).await {
                Ok(ran) => return Ok(self.told(errand, &live, ran).await),
                // Nothing was started, so nothing is done twice.
                Err(NotRun::ContainerDown) => self.look(id, *deadline).await,
                Err(NotRun::Engine(error)) => return Err(refusal(&error)),
            }
        }
        Err(Refusal::EngineUnavailable(
            "the sandbox ended as often as it was started".to_owned(),
        ))
    }

    /// Makes the reply of what was seen of a command.
    async fn told(&self, errand: &Errand, live: &Live, ran: Ran) -> ExecResponse {
        let (exit_code, reason) = match ran.ending {
            Ending::Exited(KILLED) | Ending::Unknown(_) if self.has_ended(errand, live).await => {
                (None, Some("container_lost".to_owned()))
            }
            Ending::Exited(code) => (Some(code), None),
            Ending::StartFailed(code) => (Some(code), Some("start_failed".to_owned())),
            Ending::TimedOut => (Some(TIMED_OUT), Some("timeout".to_owned())),
            Ending::CallerGone => (None, Some("stopped".to_owned())),
            Ending::Unknown(why) => (None, Some(why)),
        };
        let output = String::from_utf8_lossy(&ran.output).into_owned();
        let mut reply = plain(output, exit_code, reason);
        reply.truncated = ran.truncated;
        if let Some((incarnation, notice)) = live.reset
            && self.0.roll.tell(&errand.id, incarnation)
        {
            reply.incarnation = Some(incarnation);
            reply.reset_reason = Some(notice.as_str().to_owned());
        }
        reply
    }

    /// Whether the container ended with its command: then that is the reason, and
    /// the code, if there is one, is not one that the command gave.
    async fn has_ended(&self, errand: &Errand, live: &Live) -> bool {
        let ended = !goes_on(&self.0.host.engine, &live.container).await;
        if ended {
            self.0.loop_.work.nudge_session(&errand.id);
        }
        ended
    }

    /// Appends to the session's log, on disk before the reply.
    async fn write_down(&self, errand: &Errand, ending: Result<&ExecResponse, &Refusal>) {
        let now = self.0.books.clock.now();
        let took = now.since(errand.began).as_micros();
        let detail = match ending {
            Ok(reply) => match (reply.exit_code, &reply.reason) {
                (Some(code), _) => format!("exit {code}"),
                (None, Some(reason)) => reason.clone(),
                (None, None) => "unknown".to_owned(),
            },
            // The contract has it so for an operation that was refused.
            Err(_) => String::new(),
        };
        let event = Event {
            at: now,
            op: "exec".to_owned(),
            target: shortened(&errand.exec.command),
            ok: ending.is_ok_and(|reply| reply.exit_code == Some(0)),
            detail,
            duration_us: u64::try_from(took).unwrap_or(u64::MAX),
            request_id: Some(request_id(&errand.exec.request_id)),
            facts: std::collections::BTreeMap::new(),
        };
        let mut batch = Batch::new().event(Some(&errand.id), event);
        if let Some(incarnation) = ending.ok().and_then(|reply| reply.incarnation) {
            batch = batch.told(&errand.id, incarnation);
        }
        if let Err(error) = self.0.books.store.commit(batch).await {
            warn!(session = %errand.id, error = %chain(&error), "an event could not be written down");
        }
    }
}

/// The reply to a command that no shell can be started with.
fn unfit(command: &str) -> Option<ExecResponse> {
    if command.contains('\0') {
        return Some(plain("Error: embedded null byte".to_owned(), Some(1), None));
    }
    // The engine would keep all of it, in its memory and in its log of events, to hear the
    // same from the kernel.
    (COMMAND_BYTES_MAX < command.len()).then(|| {
        let bytes = command.len();
        let text = format!(
            "Error: argument list too long: the command has {bytes} bytes, and at most {COMMAND_BYTES_MAX} can be started. Write it to a file and run that.",
        );
        plain(text, Some(START_FAILED), Some("start_failed".to_owned()))
    })
}

fn request_id(id: &RequestId) -> String {
    id.to_string()
}

/// The reply to a command whose time was over before it was run.
fn late() -> ExecResponse {
    plain(String::new(), Some(TIMED_OUT), Some("timeout".to_owned()))
}

/// The reply that nobody waits for.
fn stopped() -> ExecResponse {
    plain(String::new(), None, Some("stopped".to_owned()))
}

fn plain(output: String, exit_code: Option<i64>, reason: Option<String>) -> ExecResponse {
    ExecResponse {
        output,
        exit_code,
        truncated: false,
        reason,
        incarnation: None,
        reset_reason: None,
    }
}

fn shortened(target: &str) -> String {
    match target.char_indices().nth(TARGET_CHARS_MAX) {
        None => target.to_owned(),
        Some((end, _)) => {
            let mut cut = target.get(..end).unwrap_or(target).to_owned();
            cut.push('…');
            cut
        }
    }
}

/// Puts a failed engine call into the caller's words.
fn refusal(error: &docker::Error) -> Refusal {
    let text = chain(error);
    if error.is_no_space() {
        Refusal::NoSpace(text)
    } else if error.status().is_some() {
        Refusal::EngineFailed(text)
    } else {
        Refusal::EngineUnavailable(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_told_to_be_too_long_exactly_where_the_kernel_would() {
        assert_eq!(unfit(&"x".repeat(COMMAND_BYTES_MAX)), None);
        let told = unfit(&"x".repeat(COMMAND_BYTES_MAX + 1)).unwrap();
        assert_eq!(told.exit_code, Some(START_FAILED));
        assert_eq!(told.reason.as_deref(), Some("start_failed"));
        assert!(told.output.contains("131072"), "{}", told.output);
    }

    #[test]
    fn a_long_target_is_cut_at_200_characters_whatever_their_bytes() {
        assert_eq!(shortened(&"x".repeat(200)).chars().count(), 200);
        let cut = shortened(&"é".repeat(500));
        assert_eq!(cut.chars().count(), 201);
        assert!(cut.ends_with('…'));
    }
}
