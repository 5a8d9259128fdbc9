//! Kills the daemon at each call to the engine and at each commit of every operation, and
//! checks after the next start that all that was acknowledged holds.
//!
//! For the n-th call, n rises until the operation is over without a kill: no step of it is
//! left out. A failure says which operation, where, the n, and every call so far.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::api::{Api, WORKSPACES, settings, wait};
use crate::support::claims::Claims;
use crate::support::daemon::{Daemon, Settings};
use crate::support::fake::FakeEngine;
use crate::support::fault::{Faults, Target, Then, When};
use crate::support::operations::{CLOSE, EVICT, EXEC, OPEN, Operation, PURGE, Run, set_up};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

/// By when an operation is over, or the daemon killed in it.
const OVER: Duration = Duration::from_mins(1);
/// How long nothing is asked of the engine when a start is over.
const QUIET: Duration = Duration::from_millis(300);
/// The n at which an operation that is still not over has no end.
const KILLS_MAX: u64 = 200;

/// Where an operation is killed.
#[derive(Clone, Copy, Debug)]
enum Where {
    /// At the n-th call to the engine.
    Call(When),
    /// At the n-th system call of this name of a thread.
    System(&'static str),
}

fn matrix_settings(operation: Operation) -> Settings {
    let most = if operation.name == "evict" { "1" } else { "8" };
    settings(&[
        WORKSPACES,
        ("SANDBOXD_MAX_SESSIONS", most),
        ("SANDBOXD_EVICT_IDLE_AFTER", "0"),
    ])
}

/// Sets up the daemon of a case.
fn start(engine: &FakeEngine, operation: Operation) -> (Daemon, Run) {
    let daemon = Daemon::on(engine, &matrix_settings(operation));
    let run = Run {
        api: Api::of(&daemon),
        claims: set_up(&daemon),
    };
    wait("what was closed has no container", OVER, || {
        (engine.containers().len() == 1).then_some(())
    });
    (daemon, run)
}

/// What came of one case.
enum Came {
    /// The operation was over before its n-th call.
    Clean,
    /// The daemon was killed, and these claims do not hold after its next start.
    Killed(Vec<String>),
}

fn case(operation: Operation, at: Where, n: u64) -> Came {
    let engine = FakeEngine::start();
    let (mut daemon, mut run) = start(&engine, operation);
    let gun = Gun::aim(&daemon, engine.faults(), at, n);
    (operation.act)(&mut run);
    let end = Instant::now() + OVER;
    while !daemon.has_ended() && !(operation.is_over)(&engine) {
        assert!(Instant::now() < end, "{} is not over", operation.name);
        thread::sleep(Duration::from_millis(5));
    }
    // A process that was killed is there for a while, and says nothing any more.
    let is_silent = run.api.http().get("/healthz").is_err();
    let has_fired = gun.put_away(engine.faults()) || is_silent;
    if !has_fired {
        return Came::Clean;
    }
    daemon.wait_until_killed();
    daemon.start_again();
    Came::Killed(violations(&daemon, &engine, &mut run.claims))
}

/// Returns every claim that does not hold, and then how it came to be.
fn violations(daemon: &Daemon, engine: &FakeEngine, claims: &mut Claims) -> Vec<String> {
    let mut violations = claims.violations(daemon);
    violations.extend(leftovers(daemon, engine, claims));
    if !violations.is_empty() {
        violations.push(engine.faults().log().to_string());
        violations.push(fs::read_to_string(daemon.log_path()).unwrap_or_default());
    }
    violations
}

/// Returns what is left that should not be, past what the service itself can tell.
fn leftovers(daemon: &Daemon, engine: &FakeEngine, claims: &Claims) -> Vec<String> {
    let mut found = Vec::new();
    let ids = claims.ids();
    for id in &ids {
        let all = engine.containers();
        let of_id = all
            .iter()
            .filter(|one| one.labels["io.sandboxd.session"] == *id);
        let count = of_id.count();
        if 1 < count {
            found.push(format!("{id} has {count} containers"));
        }
    }
    for one in engine.containers() {
        let session = &one.labels["io.sandboxd.session"];
        if !ids.contains(session) {
            found.push(format!("container {} is of no session", one.name));
        }
    }
    let runs = daemon.dir().join("ws/old/workspace/runs");
    let runs = fs::read_to_string(runs).unwrap_or_default();
    if 1 < runs.lines().count() {
        found.push("a command ran again by itself".to_owned());
    }
    let trash = daemon.dir().join("ws/.trash");
    if fs::read_dir(trash).is_ok_and(|mut entries| entries.next().is_some()) {
        found.push("the trash is not empty".to_owned());
    }
    found
}

/// Kills a start that finds an unfinished purge, and an engine that had stopped everything.
fn restart_case(at: Where, n: u64) -> Came {
    let engine = FakeEngine::start();
    let (mut daemon, mut run) = start(&engine, PURGE);
    run.claims.open(&run.api, &json!({"session_id": "kept"}));
    run.claims.write(&run.api, "kept", "file", b"of kept\n");
    engine
        .faults()
        .on_call(Target::Nth(1), When::Before, kill(daemon.pid()));
    (PURGE.act)(&mut run);
    daemon.wait_until_killed();
    engine.restart();
    let has_come_up = match at {
        Where::Call(when) => {
            let pid = Arc::new(OnceLock::new());
            let known = Arc::clone(&pid);
            engine
                .faults()
                .on_call(Target::Nth(n), when, move || kill(*known.wait())());
            daemon.launch(&[]);
            pid.set(daemon.pid()).unwrap();
            daemon.comes_up() && !settles(&mut daemon, &engine)
        }
        Where::System(name) => {
            let (trace, inject) = tracing(name, n);
            let strace = ["strace", "-f", "-D", "-qq", "-o", "/dev/null"];
            daemon.launch(&[&strace[..], &["-e", &trace, "-e", &inject]].concat());
            let tracer = tracer(&mut daemon);
            let has_come_up = daemon.comes_up() && !settles(&mut daemon, &engine);
            if let Some(tracer) = tracer {
                // It has ended with the daemon, unless it waits for a thread that is gone.
                let _has_ended = kill_process(tracer, Signal::KILL).is_err();
            }
            has_come_up
        }
    };
    engine.faults().unhook();
    if has_come_up {
        return Came::Clean;
    }
    daemon.start_again();
    Came::Killed(violations(&daemon, &engine, &mut run.claims))
}

/// Waits until a start has nothing left to do; returns whether it was killed in it.
fn settles(daemon: &mut Daemon, engine: &FakeEngine) -> bool {
    let calls = || {
        let log = engine.faults().log();
        let lines = log.decisions().iter();
        lines.filter(|call| !call.line.contains("_ping")).count()
    };
    let (mut before, mut since) = (calls(), Instant::now());
    while since.elapsed() < QUIET && !daemon.has_ended() {
        thread::sleep(Duration::from_millis(5));
        if calls() != before {
            (before, since) = (calls(), Instant::now());
        }
    }
    let is_killed = daemon.has_ended();
    if is_killed {
        daemon.wait_until_killed();
    }
    is_killed
}

/// Returns who traces a daemon, or none where it has ended.
fn tracer(daemon: &mut Daemon) -> Option<Pid> {
    let path = format!("/proc/{}/status", daemon.pid());
    loop {
        let status = fs::read_to_string(&path).unwrap_or_default();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("TracerPid:"));
        let tracer = line.and_then(|line| Pid::from_raw(line.trim().parse().unwrap()));
        if tracer.is_some() || daemon.has_ended() {
            return tracer;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// What kills the daemon.
enum Gun {
    Hook,
    Strace(Child),
}

impl Gun {
    /// Aims at the n-th call from now on.
    fn aim(daemon: &Daemon, faults: &Faults, at: Where, n: u64) -> Self {
        match at {
            Where::Call(when) => {
                faults.on_call(Target::Nth(n), when, kill(daemon.pid()));
                Self::Hook
            }
            Where::System(name) => Self::Strace(attach(daemon.pid(), name, n)),
        }
    }

    /// Takes it away, and tells whether it has fired for certain.
    fn put_away(self, faults: &Faults) -> bool {
        match self {
            Self::Hook => !faults.unhook(),
            Self::Strace(mut strace) => {
                // Asked to end, it may wait for a thread that is gone. What it traced
                // goes on without it.
                strace.kill().unwrap();
                strace.wait().unwrap();
                false
            }
        }
    }
}

/// Kills a process, and has the call that it waits for end.
pub(crate) fn kill(pid: u32) -> impl FnOnce() -> Then + Send {
    move || {
        let pid = i32::try_from(pid).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
        Then::Drop
    }
}

/// Has strace kill a process as one of its threads makes its n-th such system call.
///
/// It counts the calls of each thread apart. All syncs of commits are made by one thread.
fn attach(pid: u32, name: &str, n: u64) -> Child {
    let (trace, inject) = tracing(name, n);
    let mut strace = Command::new("strace")
        .args(["-f", "-o", "/dev/null", "-e", &trace, "-e", &inject])
        .args(["-p", &pid.to_string()])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|why| {
            panic!("strace is missing, `bash scripts/test.sh` installs it: {why}")
        });
    // It says so once it has stopped every thread.
    let mut said = BufReader::new(strace.stderr.as_mut().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.contains("attached"), "{line}");
    strace
}

/// What strace is told to trace, and to inject.
fn tracing(name: &str, n: u64) -> (String, String) {
    let inject = format!("inject={name}:signal=KILL:when={n}");
    (format!("trace={name}"), inject)
}

/// Kills an operation at its first call, its second, and so on; returns how many there are.
fn walk(name: &str, at: Where, case: impl Fn(u64) -> Came) -> Result<u64, String> {
    for n in 1..KILLS_MAX {
        match case(n) {
            Came::Clean => return Ok(n - 1),
            Came::Killed(violations) if violations.is_empty() => {}
            Came::Killed(violations) => {
                let text = violations.join("\n  ");
                return Err(format!("{name} {at:?} {n}:\n  {text}"));
            }
        }
    }
    Err(format!("{name} {at:?} has no end"))
}

const CALLS: [Where; 2] = [Where::Call(When::Before), Where::Call(When::After)];

/// Walks several ways at once.
fn walk_all(name: &str, ways: &[Where], case: impl Fn(Where, u64) -> Came + Sync) {
    let failures = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for at in ways {
            let (failures, case) = (&failures, &case);
            scope.spawn(move || match walk(name, *at, |n| case(*at, n)) {
                Ok(kills) => {
                    eprintln!("{name} {at:?}: {kills} kills");
                    assert_ne!(kills, 0, "{name} {at:?}: nothing was killed");
                }
                Err(failure) => failures.lock().unwrap().push(failure),
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn killed_at_any_call(operation: Operation) {
    walk_all(operation.name, &CALLS, |at, n| case(operation, at, n));
}

/// At each sync of a commit, and at each write of the threads that write.
fn killed_at_any_commit(operation: Operation) {
    let ways = [Where::System("fdatasync"), Where::System("pwrite64")];
    walk_all(operation.name, &ways, |at, n| case(operation, at, n));
}

/// At each change of the workspaces.
fn killed_on_disk(operation: Operation, names: &[&'static str]) {
    let ways: Vec<_> = names.iter().copied().map(Where::System).collect();
    walk_all(operation.name, &ways, |at, n| case(operation, at, n));
}

#[test]
fn a_start_that_is_killed_at_any_call_is_made_good_by_the_next() {
    walk_all("restart", &CALLS, restart_case);
}

#[test]
fn a_start_that_is_killed_at_any_write_is_made_good_by_the_next() {
    let ways = ["fdatasync", "fsync", "pwrite64", "rename"].map(Where::System);
    walk_all("restart", &ways, restart_case);
}

#[test]
fn an_opening_that_is_killed_at_any_call_is_whole_or_gone() {
    killed_at_any_call(OPEN);
}

#[test]
fn a_command_that_is_killed_at_any_call_runs_once_at_most() {
    killed_at_any_call(EXEC);
}

#[test]
fn a_closing_that_is_killed_at_any_call_keeps_the_files() {
    killed_at_any_call(CLOSE);
}

#[test]
fn a_purge_that_is_killed_at_any_call_leaves_all_or_nothing() {
    killed_at_any_call(PURGE);
}

#[test]
fn an_eviction_that_is_killed_at_any_call_loses_neither_session() {
    killed_at_any_call(EVICT);
}

#[test]
fn an_opening_that_is_killed_at_any_commit_is_whole_or_gone() {
    killed_at_any_commit(OPEN);
    killed_on_disk(OPEN, &["mkdirat", "renameat"]);
}

#[test]
fn a_command_that_is_killed_at_any_commit_runs_once_at_most() {
    // The event of a command is flushed, and not synced.
    let ways = [Where::System("pwrite64")];
    walk_all(EXEC.name, &ways, |at, n| case(EXEC, at, n));
}

#[test]
fn a_closing_that_is_killed_at_any_commit_keeps_the_files() {
    killed_at_any_commit(CLOSE);
}

#[test]
fn a_purge_that_is_killed_at_any_commit_leaves_all_or_nothing() {
    killed_at_any_commit(PURGE);
    killed_on_disk(PURGE, &["renameat", "unlinkat"]);
}

#[test]
fn an_eviction_that_is_killed_at_any_commit_loses_neither_session() {
    killed_at_any_commit(EVICT);
}
