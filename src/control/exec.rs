//! Runs shell commands whose callers wait for them.

use tokio::time::Instant;

use super::errand::{Entry, Errand, Met, Reset, WhenLost, may_run_as, task, why};
use super::request::{COMMAND_BYTES_MAX, Exec};
use super::slots::Slot;
use super::{Control, Refusal};
use crate::clock::Timestamp;
use crate::id::{RequestId, RunId, SessionId};
use crate::sandbox::commands::{Ending, Halt, Output, Program, Ran, START_FAILED};
use crate::wire::exec::ExecResponse;

/// Bytes of output that are kept; what comes after is read and dropped.
const OUTPUT_BYTES_MAX: usize = 100_000;
/// The exit code of what was killed at its deadline, as `timeout` has it.
const TIMED_OUT: i64 = 124;

/// A shell command on its way, with what is needed to write it down.
struct Shell {
    errand: Errand,
    began: Timestamp,
    request_id: RequestId,
    _slot: Slot,
}

impl Shell {
    fn command(&self) -> &str {
        match &self.errand.task.program {
            Program::Shell(command) => command,
            Program::Argv(_) => "",
        }
    }
}

/// A reply, with what is written down beside it.
struct Told {
    reply: ExecResponse,
    why: Option<&'static str>,
    short_of_processes: bool,
}

/// Lets a command know when its caller has left.
struct Waits(Halt);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl Control {
    /// Runs a command and waits for it.
    ///
    /// Its time counts from here: waking and queueing are in it. Dropping the
    /// future stops the command, since nobody waits for it any more.
    pub async fn exec(&self, id: &SessionId, exec: Exec) -> Result<ExecResponse, Refusal> {
        let record = self
            .open_record(id)
            .ok_or_else(|| Refusal::NoSession(id.clone()))?;
        may_run_as(&record, &exec.options)?;
        let ceiling = self.0.policy.get().limits.execute_timeout;
        let allowed = exec.timeout.unwrap_or(ceiling).min(ceiling);
        let run = RunId::random();
        let output = Output::Merged {
            first: OUTPUT_BYTES_MAX,
        };
        // It may be large, and is held once.
        let program = Program::Shell(exec.command);
        let shell = Shell {
            errand: Errand {
                id: id.clone(),
                // The id was never used, so it tells the request from any other.
                digest: run.to_string(),
                run,
                task: task(program, exec.options, output),
                deadline: Instant::now() + allowed,
                when_lost: WhenLost::StartEmpty,
            },
            began: self.0.books.clock.now(),
            request_id: exec.request_id,
            _slot: self.slot(id)?,
        };
        let halt = Halt::default();
        let waits = Waits(halt.clone());
        let control = self.clone();
        let task = self
            .0
            .tasks
            .spawn(async move { Box::pin(control.carry_out(shell, &halt)).await });
        let reply = match task.await {
            Ok(reply) => reply,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        };
        drop(waits);
        reply
    }

    async fn carry_out(&self, shell: Shell, halt: &Halt) -> Result<ExecResponse, Refusal> {
        let _attended = self.0.attended.watch(&shell.errand.run);
        let mut leftover = None;
        let told = match unfit(shell.command()) {
            Some(reply) => Ok(bare(reply, None)),
            None => match self.offer(&shell.errand, halt).await {
                Ok(Met::Ran(mut ran, reset)) => {
                    leftover = ran.leftover.take();
                    Ok(told(ran, reset))
                }
                Ok(Met::Late) => Ok(bare(late(), Some("timeout"))),
                Ok(Met::Halted(_)) => Ok(bare(stopped(), Some("caller_gone"))),
                Err(refusal) => Err(refusal),
            },
        };
        let forgetting = async {
            if let Some(leftover) = leftover {
                leftover.forget().await;
            }
        };
        tokio::join!(self.write_exec_down(&shell, told.as_ref().ok()), forgetting);
        told.map(|told| told.reply)
    }

    async fn write_exec_down(&self, shell: &Shell, told: Option<&Told>) {
        let detail = match told.map(|told| (told.reply.exit_code, &told.reply.reason)) {
            Some((Some(code), _)) => format!("exit {code}"),
            Some((None, Some(reason))) => reason.clone(),
            Some((None, None)) => "unknown".to_owned(),
            // The contract has it so for an operation that was refused.
            None => String::new(),
        };
        let entry = Entry {
            op: "exec",
            target: shell.command(),
            ok: told.is_some_and(|told| told.reply.exit_code == Some(0)),
            detail,
            why: told.and_then(|told| told.why),
            began: shell.began,
            request_id: &shell.request_id,
            told: told.and_then(|told| told.reply.incarnation),
            short_of_processes: told.is_some_and(|told| told.short_of_processes),
        };
        self.write_down(&shell.errand.id, entry).await;
    }
}

/// Makes the reply of what was seen of a command.
fn told(ran: Ran, reset: Option<Reset>) -> Told {
    let (exit_code, reason) = match ran.ending {
        Ending::Exited(code) => (Some(code), None),
        Ending::OutOfMemory(code)
        | Ending::StartFailed(code)
        | Ending::Stopped(code)
        | Ending::Signalled(code) => (Some(code), why(&ran.ending)),
        Ending::TimedOut => (Some(TIMED_OUT), why(&ran.ending)),
        Ending::CallerGone => (None, Some("stopped")),
        Ending::OutputLimit | Ending::Unknown(_) => (None, why(&ran.ending)),
    };
    let output = text(ran.stdout);
    let mut reply = plain(output, exit_code, reason.map(str::to_owned));
    reply.truncated = ran.truncated;
    if let Some(Reset {
        incarnation,
        reason,
    }) = reset
    {
        reply.incarnation = Some(incarnation);
        reply.reset_reason = Some(reason);
    }
    Told {
        why: why(&ran.ending),
        short_of_processes: ran.short_of_processes,
        reply,
    }
}

/// Reads output as text; what is none becomes U+FFFD.
pub(super) fn text(bytes: Vec<u8>) -> String {
    match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
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

/// A reply of which there is no more to tell.
fn bare(reply: ExecResponse, why: Option<&'static str>) -> Told {
    Told {
        reply,
        why,
        short_of_processes: false,
    }
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
}
