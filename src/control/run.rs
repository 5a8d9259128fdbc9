//! Runs programs whose callers wait for them, each once under its id.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::time::{Instant, timeout};

use super::attended::{Answer, Assignment, Joined, Key, Memory, Stopping, Under};
use super::errand::{Entry, Errand, Met, Reset, WhenLost, may_run_as, task, why};
use super::exec::text;
use super::request::{COMMAND_BYTES_MAX, Input, Run};
use super::shown::joined;
use super::{Control, Refusal};
use crate::clock::Timestamp;
use crate::id::{RequestId, RunId, SessionId};
use crate::sandbox::commands::{
    Ending, Halt, Loss, Output, Place, Program, Ran, START_FAILED, TERMINATED, Why,
};
use crate::sandbox::request;
use crate::session::record::Record;
use crate::wire::runs::RunResponse;

/// How long a stop may take.
const STOP_WAIT_MAX: Duration = Duration::from_secs(5);

/// A program on its way, with what is needed to write it down.
struct Trip {
    errand: Errand,
    target: String,
    began: Timestamp,
    request_id: RequestId,
    output_limit: u64,
}

/// An answer, with what is written down beside it.
struct Told {
    answer: Answer,
    memory: Memory,
    why: Option<&'static str>,
    short_of_processes: bool,
}

/// What makes two requests the same.
#[derive(Serialize)]
struct Same<'r> {
    argv: &'r [String],
    env: &'r std::collections::BTreeMap<String, String>,
    cwd: Option<&'r str>,
    user: Option<&'r str>,
    stdin: Option<&'r str>,
    timeout: Option<Duration>,
}

impl Control {
    /// Runs a program and waits for it.
    ///
    /// Its time counts from here. The same request under its id waits for the same
    /// answer, and gets it for a while after the end. Dropping the future of the last
    /// who waits stops it.
    pub async fn run(&self, id: &SessionId, run: Run) -> Result<RunResponse, Refusal> {
        let record = self
            .open_record(id)
            .ok_or_else(|| Refusal::NoSession(id.clone()))?;
        may_run_as(&record, &run.options)?;
        let key = key(&record, &run.run_id);
        let mut trip = self.trip(id, run);
        let book = &self.0.attended;
        let place = || self.slot(id);
        let joined = book.join(&key, &trip.errand.digest, Instant::now(), place)?;
        let (assignment, caller) = match joined {
            Joined::Used => return Err(Refusal::RunIdUsed(key.run)),
            Joined::Answered(answer) => return Arc::unwrap_or_clone(answer),
            Joined::Along(caller) => (None, caller),
            Joined::First(assignment, caller, under) => {
                if under == Under::Another {
                    trip.errand.run = RunId::random();
                }
                (Some(assignment), caller)
            }
        };
        if let Some(assignment) = assignment {
            let control = self.clone();
            self.0
                .tasks
                .spawn(async move { Box::pin(control.travel(trip, assignment)).await });
        }
        match caller.answer().await {
            Some(answer) => Arc::unwrap_or_clone(answer),
            None => Err(Refusal::ShuttingDown),
        }
    }

    /// Stops a run; without effect where there is none, and nothing is woken.
    pub async fn stop_run(&self, id: &SessionId, run: &RunId) -> Result<(), Refusal> {
        let record = self
            .open_record(id)
            .ok_or_else(|| Refusal::NoSession(id.clone()))?;
        match self.0.attended.stop(&key(&record, run)) {
            Stopping::Over => {}
            Stopping::UnderWay(mut answer) => {
                let over = answer.wait_for(Option::is_some);
                match timeout(STOP_WAIT_MAX, over).await {
                    // As far as it could be done in that time.
                    Ok(Ok(_) | Err(_)) | Err(_) => {}
                }
            }
            Stopping::Unknown => self.stop_unattended(&record, run).await,
        }
        Ok(())
    }

    /// Whether somebody waits for a run, or for another command under this id.
    pub fn is_attended(&self, run: &RunId) -> bool {
        self.0.attended.has(run)
    }

    /// Stops a run that nobody waits for, if its sandbox is awake.
    async fn stop_unattended(&self, record: &Record, run: &RunId) {
        let status = self.status(&record.spec.id);
        let is_awake = record.marks.parked.is_none() && status.has_reached(&record.marks);
        let Some(container) = status.container.as_ref().filter(|_| is_awake) else {
            return;
        };
        let policy = self.0.policy.get();
        let place = Place {
            session: &record.spec.id,
            container,
            work_dir: &policy.interior.work_dir,
        };
        let deadline = Instant::now() + STOP_WAIT_MAX;
        self.0.runner.stop(place, run, deadline).await;
    }

    fn trip(&self, id: &SessionId, run: Run) -> Trip {
        let policy = self.0.policy.get();
        let ceiling = policy.limits.execute_timeout;
        let allowed = run.timeout.unwrap_or(ceiling).min(ceiling);
        let limit = policy.limits.runs.output_limit;
        let digest = digest(&run);
        let target = joined(&run.argv);
        let program = Program::Argv(run.argv);
        Trip {
            errand: Errand {
                id: id.clone(),
                run: run.run_id,
                digest,
                task: task(program, run.options, Output::Split { limit }),
                deadline: Instant::now() + allowed,
                when_lost: WhenLost::Refuse,
            },
            target,
            began: self.0.books.clock.now(),
            request_id: run.request_id,
            output_limit: limit,
        }
    }

    /// Offers a program to the sandbox, under a name of its own where its id was used
    /// for another program that had a caller as well, and is over.
    async fn offer_anew(&self, trip: &mut Trip, halt: &Halt) -> Result<Met, Refusal> {
        let _attended = self.0.attended.watch(&trip.errand.run);
        let met = self.offer(&trip.errand, halt).await;
        let is_stored = || self.0.books.store.run(&trip.errand.id, &trip.errand.run);
        match met {
            Err(Refusal::RunIdUsed(_)) if is_stored().is_none() => {}
            met => return met,
        }
        trip.errand.run = RunId::random();
        let _attended = self.0.attended.watch(&trip.errand.run);
        self.offer(&trip.errand, halt).await
    }

    async fn travel(&self, mut trip: Trip, assignment: Assignment) {
        let mut leftover = None;
        let told = match unfit(&trip.errand.task.program) {
            Some(words) => told(Ran::unstarted_program(words), None, trip.output_limit),
            None => match Box::pin(self.offer_anew(&mut trip, &assignment.halt)).await {
                Ok(Met::Ran(mut ran, reset)) => {
                    leftover = ran.leftover.take();
                    told(ran, reset, trip.output_limit)
                }
                Ok(Met::Late) => told(Ran::silent(Ending::TimedOut), None, trip.output_limit),
                Ok(Met::Halted(why)) => {
                    let ending = match why {
                        Why::Stopped => Ending::Stopped(TERMINATED),
                        Why::CallerGone => Ending::CallerGone,
                    };
                    told(Ran::silent(ending), None, trip.output_limit)
                }
                Err(refusal) => Told {
                    answer: Err(refusal),
                    memory: Memory::Drop,
                    why: None,
                    short_of_processes: false,
                },
            },
        };
        let forgetting = async {
            if let Some(leftover) = leftover {
                leftover.forget().await;
            }
        };
        tokio::join!(self.write_run_down(&trip, &told), forgetting);
        assignment.settle(told.answer, told.memory, Instant::now());
    }

    async fn write_run_down(&self, trip: &Trip, told: &Told) {
        let ran = told.answer.as_ref().ok();
        let entry = Entry {
            op: "run",
            target: &trip.target,
            ok: ran.is_some_and(|ran| ran.exit_code == Some(0)),
            detail: detail(&told.answer),
            why: told.why,
            began: trip.began,
            request_id: &trip.request_id,
            told: ran.and_then(|ran| ran.incarnation),
            short_of_processes: told.short_of_processes,
        };
        self.write_down(&trip.errand.id, entry).await;
    }
}

fn key(record: &Record, run: &RunId) -> Key {
    Key {
        session: record.spec.id.clone(),
        nonce: record.spec.nonce.clone(),
        run: run.clone(),
    }
}

/// Tells a request from another one under the same id.
fn digest(run: &Run) -> String {
    let options = &run.options;
    let same = Same {
        argv: &run.argv,
        env: &options.env,
        cwd: options.cwd.as_deref(),
        user: options.user.as_deref(),
        stdin: match &options.stdin {
            Input::Text(text) => Some(text),
            Input::Closed | Input::Open => None,
        },
        timeout: run.timeout,
    };
    request::digest(&same)
}

/// Says why a program cannot be started with these arguments, whatever it is.
fn unfit(program: &Program) -> Option<String> {
    let words = match program {
        Program::Argv(argv) => argv.as_slice(),
        Program::Shell(text) => std::slice::from_ref(text),
    };
    if words.iter().any(|word| word.contains('\0')) {
        return Some("embedded null byte\n".to_owned());
    }
    let longest = words.iter().map(String::len).max().unwrap_or(0);
    (COMMAND_BYTES_MAX < longest).then(|| {
        format!(
            "argument list too long: one argument has {longest} bytes, and at most {COMMAND_BYTES_MAX} can be given\n"
        )
    })
}

/// Makes the answer of what was seen of a program.
fn told(ran: Ran, reset: Option<Reset>, output_limit: u64) -> Told {
    let why = why(&ran.ending);
    let short_of_processes = ran.short_of_processes;
    let (exit_code, reason) = match ran.ending {
        Ending::Exited(code) => (Some(code), None),
        Ending::OutOfMemory(code)
        | Ending::StartFailed(code)
        | Ending::Stopped(code)
        | Ending::Signalled(code) => (Some(code), why),
        // Fields of their own say it.
        Ending::TimedOut | Ending::OutputLimit => (None, None),
        Ending::CallerGone => (None, Some("stopped")),
        Ending::Unknown(Loss::ContainerLost) => {
            let text = "the container stopped while the command was running".to_owned();
            return Told {
                answer: Err(Refusal::SandboxEnded(text)),
                memory: Memory::Keep,
                why,
                short_of_processes,
            };
        }
        Ending::Unknown(_) => (None, why),
    };
    let is_over = ran.ending == Ending::OutputLimit;
    let was_ended = is_over || ran.ending == Ending::TimedOut;
    // What is not whole is never shown as if it were.
    let is_lossy = ran.truncated && !was_ended;
    let reason = reason.or(is_lossy.then_some("output_lost"));
    let (incarnation, reset_reason) = match reset {
        Some(reset) => (Some(reset.incarnation), Some(reset.reason)),
        None => (None, None),
    };
    let answer = Ok(RunResponse {
        timed_out: ran.ending == Ending::TimedOut,
        output_limited: is_over,
        output_limit: is_over.then_some(output_limit),
        stdout: text(ran.stdout),
        stderr: text(ran.stderr),
        exit_code,
        reason: reason.map(str::to_owned),
        incarnation,
        reset_reason,
    });
    Told {
        answer,
        memory: Memory::Keep,
        why,
        short_of_processes,
    }
}

/// Says how a run ended, as its event has it.
fn detail(answer: &Answer) -> String {
    match answer {
        Ok(ran) => match (ran.timed_out, ran.output_limited, ran.exit_code) {
            (true, _, _) => "timed out".to_owned(),
            (false, true, _) => "output limit".to_owned(),
            (false, false, Some(code)) => format!("exit {code}"),
            (false, false, None) => ran.reason.clone().unwrap_or_default(),
        },
        Err(Refusal::SandboxEnded(_) | Refusal::SandboxGone(_)) => "sandbox gone".to_owned(),
        Err(_) => String::new(),
    }
}

impl Ran {
    fn unstarted_program(words: String) -> Self {
        let mut ran = Self::silent(Ending::StartFailed(START_FAILED));
        ran.stderr = words.into_bytes();
        ran
    }
}

#[cfg(test)]
mod tests {
    use super::super::request::Options;
    use super::*;

    fn request() -> Run {
        Run {
            run_id: RunId::random(),
            argv: vec!["ls".to_owned(), "-l".to_owned()],
            options: Options::default(),
            timeout: None,
            request_id: RequestId::random(),
        }
    }

    #[test]
    fn requests_are_the_same_whoever_asks_and_differ_in_all_that_matters() {
        let one = request();
        assert_eq!(digest(&one), digest(&request()));
        let changes: [fn(&mut Run); 6] = [
            |run| run.argv = vec!["ls -l".to_owned()],
            |run| run.timeout = Some(Duration::from_secs(1)),
            |run| run.options.cwd = Some("ls".to_owned()),
            |run| run.options.user = Some("ls".to_owned()),
            |run| run.options.stdin = Input::Text(String::new()),
            |run| {
                run.options.env.insert("A".to_owned(), "b".to_owned());
            },
        ];
        let mut seen = std::collections::BTreeSet::from([digest(&one)]);
        for change in changes {
            let mut other = request();
            change(&mut other);
            assert!(seen.insert(digest(&other)), "{other:?}");
        }
    }

    #[test]
    fn every_ending_has_an_answer_and_a_line_in_the_log() {
        let shown = |ending: Ending| {
            let told = told(Ran::silent(ending), None, 7);
            let code = told.answer.as_ref().ok().and_then(|ran| ran.exit_code);
            (code, detail(&told.answer), told.why)
        };
        let line = |text: &str| text.to_owned();
        let cases = [
            (Ending::Exited(0), (Some(0), line("exit 0"), None)),
            (
                Ending::OutOfMemory(137),
                (Some(137), line("exit 137"), Some("oom")),
            ),
            (
                Ending::StartFailed(127),
                (Some(127), line("exit 127"), Some("start_failed")),
            ),
            (Ending::TimedOut, (None, line("timed out"), Some("timeout"))),
            (
                Ending::OutputLimit,
                (None, line("output limit"), Some("output_limit")),
            ),
            (
                Ending::Stopped(143),
                (Some(143), line("exit 143"), Some("stopped")),
            ),
            (
                Ending::Signalled(129),
                (Some(129), line("exit 129"), Some("signal")),
            ),
            (
                Ending::CallerGone,
                (None, line("stopped"), Some("caller_gone")),
            ),
            (
                Ending::Unknown(Loss::ContainerLost),
                (None, line("sandbox gone"), Some("container_lost")),
            ),
            (
                Ending::Unknown(Loss::AgentLost),
                (None, line("agent_lost"), Some("agent_lost")),
            ),
        ];
        for (ending, expected) in cases {
            assert_eq!(shown(ending.clone()), expected, "{ending:?}");
        }
        let limited = told(Ran::silent(Ending::OutputLimit), None, 7)
            .answer
            .unwrap();
        assert_eq!(
            (limited.output_limited, limited.output_limit),
            (true, Some(7))
        );
        assert_eq!(detail(&Err(Refusal::ShuttingDown)), "");
        let mut lossy = Ran::silent(Ending::Exited(0));
        lossy.truncated = true;
        let reason = told(lossy, None, 7).answer.unwrap().reason;
        assert_eq!(reason.as_deref(), Some("output_lost"));
    }

    #[test]
    fn arguments_that_no_program_can_be_given_are_refused_in_words() {
        let argv = |word: String| Program::Argv(vec!["ls".to_owned(), word]);
        assert_eq!(unfit(&argv("x".repeat(COMMAND_BYTES_MAX))), None);
        assert!(unfit(&argv("x".repeat(COMMAND_BYTES_MAX + 1))).is_some());
        assert!(unfit(&argv("a\0b".to_owned())).is_some());
    }
}
