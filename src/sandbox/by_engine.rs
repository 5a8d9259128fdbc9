//! Runs a command by the engine's exec, which needs no agent in the container.

use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tracing::debug;

use super::commands::{
    COOKIE, Command, Ending, Halt, Loss, NotRun, Output, Program, Ran, Runner, SIGNALS,
    START_FAILED, TERMINATED, Task, Why,
};
use super::host::{self, Reach};
use super::kept::{Kept, Stream};
use super::killing::{kill_from_host, sweep};
use crate::docker;
use crate::docker::Engine;
use crate::docker::exec::{ExecBody, ExecCreated, ExecId, ExecStream};
use crate::docker::frames;
use crate::docker::spec::Env;
use crate::id::RunId;

/// Runs the program `$1` with both its streams in one pipe: through two, the engine
/// would pass them on in any order.
const MERGED: &str = r#"exec "$@" 2>&1"#;
/// Runs a program on the text in the first `$1` variables of the input, which it is not
/// shown. Both sides of a pipeline have a count of their own.
const FED: &str = r#"
n=$1
shift
i=0
{
  while [ "$i" -lt "$n" ]; do
    eval "printf %s \"\$SANDBOXD_STDIN_$i\""
    i=$((i + 1))
  done
} 2>/dev/null | {
  while [ "$i" -lt "$n" ]; do
    unset "SANDBOXD_STDIN_$i"
    i=$((i + 1))
  done
  exec "$@"
}
"#;
/// The variables that hold a command's input.
const STDIN: &str = "SANDBOXD_STDIN_";
/// Bytes of input in one variable: the kernel takes 128 KiB with the name.
const STDIN_PART_BYTES: usize = 100_000;
/// Bytes of input: all variables and arguments together may have 2 MiB.
const STDIN_BYTES_MAX: usize = 1 << 20;
/// How long the end of the output is waited for after a kill.
const KILLED_WAIT: Duration = Duration::from_millis(500);
/// How long the engine may take to know an exit code after the output ended.
const EXIT_CODE_WAIT_MAX: Duration = Duration::from_secs(5);
/// The first rest between two questions for the exit code; it doubles.
const EXIT_CODE_POLL: Duration = Duration::from_millis(10);

/// A command under way.
struct Errand<'r> {
    runner: &'r Runner,
    command: &'r Command<'r>,
    kept: Kept,
    /// Held once its output is large.
    room: Option<OwnedSemaphorePermit>,
}

/// How the reading of output ended before the command did.
enum Cut {
    /// It is asked to end.
    Asked(Why),
    /// Its time is over.
    Late,
    /// It wrote more than it may.
    Over,
}

/// How the reading of output ended.
enum Drained {
    /// With the output.
    Ended,
    /// The command wrote more than it may.
    Over,
}

/// Runs a command until it ends, its deadline passes, or it is asked to end.
pub(super) async fn run(
    runner: &Runner,
    command: &Command<'_>,
    halt: &Halt,
) -> Result<Ran, NotRun> {
    let output = command.task.output;
    let begun = match body(command) {
        Ok(body) => begin(runner, command, &body, halt).await?,
        Err(words) => return Ok(Ran::unstarted(output, START_FAILED, words)),
    };
    let (exec, mut stream) = match begun {
        Begun::Running(exec, stream) => (exec, stream),
        Begun::Over(ran) => return Ok(*ran),
    };
    let mut errand = Errand {
        runner,
        command,
        kept: Kept::new(output),
        room: None,
    };
    let end = tokio::select! {
        why = halt.asked() => Err(Cut::Asked(why)),
        end = timeout_at(command.deadline, errand.drain(&mut stream)) => match end {
            Ok(Ok(Drained::Ended)) => Ok(exit_of(&runner.engine, &exec).await),
            Ok(Ok(Drained::Over)) => Err(Cut::Over),
            Ok(Err(error)) => Ok(Ending::Unknown(lost(&error))),
            Err(_) => Err(Cut::Late),
        },
    };
    let ending = match end {
        Ok(Ending::Unknown(loss)) => {
            // Nobody reads it or waits for it any more, and a container may outlive its
            // engine.
            end_processes(runner, command.place.container, command.run).await;
            errand.unknown(loss).await
        }
        Ok(Ending::Exited(code)) if SIGNALS < code => errand.signalled(code).await,
        Ok(ending) => ending,
        Err(cut) => errand.cut(cut, &exec, &mut stream).await,
    };
    let ran = errand.ran(ending);
    if command.task.user.is_some() && matches!(ran.ending, Ending::StartFailed(_)) {
        // Most engines say it in the place of output.
        let words = String::from_utf8_lossy(&ran.stdout).into_owned();
        let words = words + &String::from_utf8_lossy(&ran.stderr);
        if is_about_the_user(&words) {
            return Err(NotRun::User(words.trim_end().to_owned()));
        }
    }
    Ok(ran)
}

/// What became of the start of a command.
enum Begun {
    Running(ExecId, ExecStream),
    Over(Box<Ran>),
}

async fn begin(
    runner: &Runner,
    command: &Command<'_>,
    body: &ExecBody,
    halt: &Halt,
) -> Result<Begun, NotRun> {
    let output = command.task.output;
    let over = |ran: Ran| Ok(Begun::Over(Box::new(ran)));
    let exec = match runner
        .engine
        .exec_create(command.place.container, body)
        .await?
    {
        ExecCreated::New(exec) => exec,
        ExecCreated::NotRunning(_) | ExecCreated::Gone => return Err(NotRun::ContainerDown),
    };
    // Only here: a start is not dropped half way, as nobody would know of the process.
    if let Some(why) = halt.is_asked() {
        return over(Ran::silent(why.ending(TERMINATED)));
    }
    match runner.engine.exec_start(&exec).await {
        Ok(stream) => Ok(Begun::Running(exec, stream)),
        // Nothing runs in a container that had stopped by then.
        Err(error) if matches!(error.status(), Some(404 | 409)) => Err(NotRun::ContainerDown),
        Err(error) if error.is_unreachable() => Err(error.into()),
        Err(error) if error.status() == Some(400) => {
            let words = error.message().unwrap_or_default().to_owned();
            if command.task.user.is_some() && is_about_the_user(&words) {
                return Err(NotRun::User(words));
            }
            over(Ran::unstarted(output, START_FAILED, words))
        }
        Err(error) => {
            let loss = lost(&error);
            end_processes(runner, command.place.container, command.run).await;
            over(Ran::silent(Ending::Unknown(loss)))
        }
    }
}

/// Whether an engine says that the image has no such user, or no such group.
fn is_about_the_user(words: &str) -> bool {
    [
        "unable to find user",
        "unable to find group",
        "no matching entries",
    ]
    .iter()
    .any(|part| words.contains(part))
}

impl Errand<'_> {
    /// Reads output until it ends. Dropping the future loses none of what was kept.
    async fn drain(&mut self, stream: &mut ExecStream) -> Result<Drained, docker::Error> {
        while let Some(frame) = stream.next().await? {
            let from = match frame.stream {
                frames::Stream::Stdout => Stream::Out,
                frames::Stream::Stderr => Stream::Err,
            };
            self.kept.push(from, &frame.data);
            if self.kept.is_over() {
                return Ok(Drained::Over);
            }
            if self.kept.is_large() && self.room.is_none() {
                self.room = self.runner.room().await;
            }
        }
        Ok(Drained::Ended)
    }

    /// Ends the command, and keeps what it prints on its way out.
    async fn cut(&mut self, cut: Cut, exec: &ExecId, stream: &mut ExecStream) -> Ending {
        match cut {
            Cut::Asked(_) => {}
            Cut::Late | Cut::Over => self.kept.cut(),
        }
        self.kill(exec, stream).await;
        match cut {
            Cut::Late => Ending::TimedOut,
            Cut::Over => Ending::OutputLimit,
            Cut::Asked(why) => {
                let state = self.runner.engine.exec_inspect(exec).await.ok().flatten();
                let code = state.and_then(|state| state.exit_code);
                why.ending(code.unwrap_or(TERMINATED))
            }
        }
    }

    /// Ends everything that carries the run's cookie, and the command itself.
    async fn kill(&mut self, exec: &ExecId, stream: &mut ExecStream) {
        let container = self.command.place.container;
        let (runner, command) = (self.runner, self.command);
        let swept = Notify::new();
        let sweeping = async {
            end_processes(runner, command.place.container, command.run).await;
            swept.notify_one();
        };
        let draining = async {
            let killed = async {
                swept.notified().await;
                sleep(KILLED_WAIT).await;
            };
            tokio::select! {
                // The stream's failure is its end as well.
                Ok(()) | Err(_) = self.drain_away(stream) => true,
                () = killed => false,
            }
        };
        let ((), ended) = tokio::join!(sweeping, draining);
        if ended {
            return;
        }
        match runner.engine.exec_inspect(exec).await {
            Ok(Some(state)) if state.running => {
                kill_from_host(container, state.pid);
                if timeout(KILLED_WAIT, self.drain_away(stream)).await.is_err() {
                    debug!(run = %command.run, "output is still open after the kill");
                }
            }
            Ok(_) | Err(_) => {}
        }
    }

    /// Reads output to its end, whatever it is: what is kept has its bound.
    async fn drain_away(&mut self, stream: &mut ExecStream) -> Result<(), docker::Error> {
        loop {
            match self.drain(stream).await? {
                Drained::Ended => return Ok(()),
                Drained::Over => {}
            }
        }
    }

    /// Tells a command that was ended by a signal from one that ended with its container.
    async fn signalled(&self, code: i64) -> Ending {
        if self.runner.goes_on(self.command.place.container).await {
            Ending::Exited(code)
        } else {
            Ending::Unknown(Loss::ContainerLost)
        }
    }

    /// Tells whether a command of unknown ending ended with its container.
    async fn unknown(&self, loss: Loss) -> Ending {
        if self.runner.goes_on(self.command.place.container).await {
            Ending::Unknown(loss)
        } else {
            Ending::Unknown(Loss::ContainerLost)
        }
    }

    fn ran(self, ending: Ending) -> Ran {
        let split = match self.command.task.output {
            Output::Split { .. } => true,
            Output::Merged { .. } => false,
        };
        let (stdout, stderr, truncated) = self.kept.into_parts();
        let (stdout, stderr, ending) = match ending {
            // The engine gives its own words as output, and some engines one code for all.
            Ending::StartFailed(_) if split => {
                let words = [stdout, stderr].concat();
                let code = code_of(&words);
                (Vec::new(), words, Ending::StartFailed(code))
            }
            ending => (stdout, stderr, ending),
        };
        Ran {
            stdout,
            stderr,
            truncated,
            _room: self.room,
            ..Ran::silent(ending)
        }
    }
}

/// Returns the exit code of a program that could not be started, as a shell has it, by
/// the engine's words.
fn code_of(words: &[u8]) -> i64 {
    let words = String::from_utf8_lossy(words);
    let is_missing = ["executable file not found", "no such file or directory"]
        .iter()
        .any(|missing| words.contains(missing));
    // A directory that is not there is no missing program.
    if is_missing && !words.contains("chdir to cwd") {
        127
    } else {
        START_FAILED
    }
}

/// Makes the request for a command, or says why it cannot be one.
fn body(command: &Command<'_>) -> Result<ExecBody, String> {
    let Task { env, cwd, user, .. } = command.task;
    let parts = parts(command.task.stdin.as_deref())?;
    let mut all = Env::from(env.clone());
    for (n, part) in parts.iter().enumerate() {
        all.set(format!("{STDIN}{n}"), *part);
    }
    all.set(COOKIE, command.run.as_str());
    Ok(ExecBody {
        argv: argv(command.task, parts.len()),
        env: all,
        working_dir: cwd
            .as_deref()
            .map(|cwd| beneath(command.place.work_dir, cwd)),
        user: user.clone(),
    })
}

/// Cuts the input into as many variables as it needs.
fn parts(stdin: Option<&str>) -> Result<Vec<&str>, String> {
    let Some(mut rest) = stdin else {
        return Ok(Vec::new());
    };
    if STDIN_BYTES_MAX < rest.len() || rest.contains('\0') {
        let bytes = rest.len();
        return Err(format!(
            "standard input of {bytes} bytes cannot be given without the agent: at most {STDIN_BYTES_MAX}, and no zero byte",
        ));
    }
    let mut parts = Vec::new();
    while STDIN_PART_BYTES < rest.len() {
        let (part, after) = rest.split_at(rest.floor_char_boundary(STDIN_PART_BYTES));
        parts.push(part);
        rest = after;
    }
    parts.push(rest);
    Ok(parts)
}

/// Returns the program and its arguments, within a shell only where one is needed: to
/// merge its streams, or to give it input.
fn argv(task: &Task, n_parts: usize) -> Vec<String> {
    let own = match &task.program {
        Program::Argv(argv) => argv.clone(),
        Program::Shell(text) => ["/bin/sh", "-c", text].map(str::to_owned).to_vec(),
    };
    let merged = match task.output {
        Output::Merged { .. } => [MERGED, "/bin/sh"].as_slice(),
        Output::Split { .. } => &[],
    };
    let count = n_parts.to_string();
    let fed = if n_parts == 0 {
        [].as_slice()
    } else {
        &[FED, "/bin/sh", &count]
    };
    let mut words = Vec::new();
    for wrap in [fed, merged] {
        if !wrap.is_empty() {
            words.extend(["/bin/sh", "-c"].map(str::to_owned));
            words.extend(wrap.iter().map(|word| (*word).to_owned()));
        }
    }
    words.extend(own);
    words
}

/// Returns a directory as the engine takes it, absolute.
fn beneath(work_dir: &str, cwd: &str) -> String {
    if cwd.starts_with('/') {
        cwd.to_owned()
    } else {
        format!("{}/{cwd}", work_dir.trim_end_matches('/'))
    }
}

/// Asks for the exit code of an exec whose output has ended.
///
/// The end of the output proves nothing: an engine that dies ends it as well.
pub(super) async fn exit_of(engine: &Engine, exec: &ExecId) -> Ending {
    let give_up = Instant::now() + EXIT_CODE_WAIT_MAX;
    let mut rest = EXIT_CODE_POLL;
    loop {
        match engine.exec_inspect(exec).await {
            Ok(Some(state)) => match (state.running, state.exit_code, state.pid) {
                (false, Some(code @ (126 | 127)), None) => return Ending::StartFailed(code),
                (false, Some(code), _) => return Ending::Exited(code),
                (true, _, _) | (false, None, _) => {}
            },
            Ok(None) => return Ending::Unknown(Loss::EngineRestarted),
            Err(error) => return Ending::Unknown(lost(&error)),
        }
        if give_up < Instant::now() {
            return Ending::Unknown(Loss::ExitCodeUnknown);
        }
        sleep(rest).await;
        rest *= 2;
    }
}

/// Ends everything that carries a run's cookie: from the host, or from within where the
/// host cannot see it.
pub(super) async fn end_processes(runner: &Runner, container: &str, run: &RunId) {
    match host::sweep(container, run).await {
        Reach::Seen => {}
        Reach::Unseen => sweep(&runner.engine, container, run).await,
    }
}

fn lost(error: &docker::Error) -> Loss {
    debug!(%error, "an exec was lost");
    Loss::EngineLost
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(program: Program, output: Output) -> Task {
        Task {
            program,
            env: std::collections::BTreeMap::new(),
            cwd: None,
            user: None,
            stdin: None,
            output,
        }
    }

    #[test]
    fn a_program_runs_in_a_shell_only_where_one_is_needed() {
        let ls = || Program::Argv(vec!["ls".to_owned(), "a b".to_owned()]);
        let split = Output::Split { limit: 1 };
        let merged = Output::Merged { first: 1 };
        let cases: [(Task, usize, &[&str]); 4] = [
            (task(ls(), split), 0, &["ls", "a b"]),
            (
                task(ls(), merged),
                0,
                &["/bin/sh", "-c", MERGED, "/bin/sh", "ls", "a b"],
            ),
            (
                task(Program::Shell("ls".to_owned()), split),
                0,
                &["/bin/sh", "-c", "ls"],
            ),
            (
                task(ls(), split),
                2,
                &["/bin/sh", "-c", FED, "/bin/sh", "2", "ls", "a b"],
            ),
        ];
        for (task, n, expected) in cases {
            assert_eq!(argv(&task, n), expected);
        }
    }

    #[test]
    fn input_is_cut_between_characters_and_refused_where_it_cannot_be_given() {
        assert_eq!(parts(None).unwrap(), Vec::<&str>::new());
        assert_eq!(parts(Some("")).unwrap(), [""]);
        let text = "é".repeat(STDIN_PART_BYTES);
        let cut = parts(Some(&text)).unwrap();
        assert_eq!(cut.concat(), text);
        assert!(cut.iter().all(|part| part.len() <= STDIN_PART_BYTES));
        assert!(parts(Some(&"x".repeat(STDIN_BYTES_MAX))).is_ok());
        assert!(parts(Some(&"x".repeat(STDIN_BYTES_MAX + 1))).is_err());
        assert!(parts(Some("a\0b")).is_err());
    }

    #[test]
    fn the_shell_feeds_a_program_exactly_the_text_and_hides_how() {
        let text = "it's \"$HOME\" `x` \\n %s\n".repeat(20_000);
        let given = parts(Some(&text)).unwrap();
        let mut task = task(
            Program::Argv(
                ["sh", "-c", "cat; env | grep SANDBOXD_STDIN; exit 7"]
                    .map(str::to_owned)
                    .to_vec(),
            ),
            Output::Split { limit: 1 },
        );
        task.stdin = Some(text.clone());
        let words = argv(&task, given.len());
        let ran = std::process::Command::new(&words[0])
            .args(&words[1..])
            .envs(
                given
                    .iter()
                    .enumerate()
                    .map(|(n, part)| (format!("{STDIN}{n}"), *part)),
            )
            .output()
            .unwrap();
        assert!(ran.stdout == text.as_bytes(), "{}", ran.stdout.len());
        assert_eq!((ran.status.code(), ran.stderr), (Some(7), Vec::new()));
    }

    #[test]
    fn a_missing_program_is_told_from_one_that_may_not_be_run() {
        for (words, code) in [
            ("exec: \"x\": executable file not found in $PATH", 127),
            ("exec: \"/x\": stat /x: no such file or directory", 127),
            ("exec: \"/etc\": permission denied", 126),
            (
                "chdir to cwd (\"/x\") set in config.json failed: no such file or directory",
                126,
            ),
        ] {
            assert_eq!(code_of(words.as_bytes()), code, "{words}");
        }
    }

    #[test]
    fn a_directory_is_absolute_for_the_engine() {
        assert_eq!(beneath("/workspace", "a/b"), "/workspace/a/b");
        assert_eq!(beneath("/", "a"), "/a");
        assert_eq!(beneath("/workspace", "/etc"), "/etc");
    }
}
