//! Kills the daemon at each call to the engine and at each commit of every operation, and
//! checks after the next start that all that was acknowledged holds.
//!
//! For the n-th call, n rises until the operation is over without a kill: no step of it is
//! left out. A failure says which operation, where, the n, and every call so far.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::api::{Api, WORKSPACES, settings, wait};
use crate::support::claims::Claims;
use crate::support::daemon::{Daemon, Settings};
use crate::support::fake::{FakeEngine, Status};
use crate::support::fault::{Faults, Then, When};
use crate::support::http::Response;

/// By when an operation is over, or the daemon killed in it.
const OVER: Duration = Duration::from_secs(60);
/// The n at which an operation that is still not over has no end.
const KILLS_MAX: u64 = 200;

/// An operation, on a daemon that has the sessions `old` and `shut`, the latter closed.
#[derive(Clone, Copy)]
struct Operation {
    name: &'static str,
    act: fn(&mut Run),
    /// Whether nothing of it is left to be done.
    is_over: fn(&Run) -> bool,
}

/// One run of an operation.
struct Run<'w> {
    api: Api,
    claims: Claims,
    engine: &'w FakeEngine,
}

impl Run<'_> {
    /// Makes a request of which the daemon may die.
    fn call(&self, method: &str, path: &str, body: &Value) -> Option<Response> {
        Api::request_on(self.api.http(), method, path, Some(body)).ok()
    }

    fn statuses(&self, session: &str) -> Vec<Status> {
        let all = self.engine.containers().into_iter();
        all.filter(|one| one.labels["io.sandboxd.session"] == session)
            .map(|one| one.status)
            .collect()
    }
}

const OPEN: Operation = Operation {
    name: "open",
    act: |run| {
        let asked = json!({"session_id": "new", "tenant": "t"});
        match run.call("POST", "/sessions", &asked) {
            Some(reply) => {
                assert_eq!(reply.status, 200, "{}", reply.text());
                run.claims.opened(&reply.json().unwrap());
            }
            None => run.claims.unacknowledged("new"),
        }
    },
    is_over: |run| run.statuses("new") == [Status::Running],
};

const EXEC: Operation = Operation {
    name: "exec",
    act: |run| {
        let command = "echo again >> runs; exit 3";
        let asked = json!({ "command": command });
        if let Some(reply) = run.call("POST", "/sessions/old/exec", &asked) {
            let reply = reply.json().unwrap();
            assert_eq!(reply["exit_code"], 3, "{reply}");
            run.claims.replied("old", command, &reply);
            run.claims.wrote("old", "runs", b"again\n");
        }
    },
    is_over: |_| true,
};

const CLOSE: Operation = Operation {
    name: "close",
    act: |run| match run.call("DELETE", "/sessions/old", &Value::Null) {
        Some(reply) => {
            assert_eq!(reply.status, 204, "{}", reply.text());
            run.claims.closed("old");
        }
        None => run.claims.unacknowledged("old"),
    },
    is_over: |run| run.statuses("old").is_empty(),
};

const PURGE: Operation = Operation {
    name: "purge",
    act: |run| match run.call("DELETE", "/sessions/old?purge=true", &Value::Null) {
        Some(reply) => {
            assert_eq!(reply.status, 204, "{}", reply.text());
            run.claims.purged("old");
        }
        None => run.claims.may_be_purged("old"),
    },
    is_over: |run| run.statuses("old").is_empty(),
};

/// One more than may run: `old` gives way, and is asleep.
const EVICT: Operation = Operation {
    name: "evict",
    act: OPEN.act,
    is_over: |run| run.statuses("new") == [Status::Running] && run.statuses("old").is_empty(),
};

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

/// Sets up the daemon of a case, with all that was acknowledged before the operation.
fn set_up(engine: &FakeEngine, operation: Operation) -> (Daemon, Claims) {
    let daemon = Daemon::on(engine, &matrix_settings(operation));
    let api = Api::of(&daemon);
    let mut claims = Claims::default();
    claims.open(&api, &json!({"session_id": "shut"}));
    claims.write(&api, "shut", "file", b"of shut\n");
    claims.close(&api, "shut");
    claims.open(&api, &json!({"session_id": "old", "tenant": "t"}));
    claims.write(&api, "old", "file", b"of old\n");
    wait("what was closed has no container", OVER, || {
        (engine.containers().len() == 1).then_some(())
    });
    (daemon, claims)
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
    let (mut daemon, claims) = set_up(&engine, operation);
    let gun = Gun::aim(&daemon, engine.faults(), at, n);
    let mut run = Run {
        api: Api::of(&daemon),
        claims,
        engine: &engine,
    };
    (operation.act)(&mut run);
    let end = Instant::now() + OVER;
    while !daemon.has_ended() && !(operation.is_over)(&run) {
        assert!(Instant::now() < end, "{} is not over", operation.name);
        thread::sleep(Duration::from_millis(5));
    }
    let has_fired = gun.put_away(engine.faults()) || daemon.has_ended();
    if !has_fired {
        return Came::Clean;
    }
    daemon.wait_until_killed();
    daemon.start_again();
    let mut violations = run.claims.violations(&daemon);
    violations.extend(leftovers(&daemon, &engine, &run.claims));
    if !violations.is_empty() {
        violations.push(format!("{}", engine.faults().log()));
        let log = fs::read_to_string(daemon.log_path()).unwrap_or_default();
        violations.push(log);
    }
    Came::Killed(violations)
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
                faults.on_call(n, when, kill(daemon.pid()));
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
fn kill(pid: u32) -> impl FnOnce() -> Then + Send {
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
    let strace = Command::new("strace")
        .args(["-f", "-qq", "-o", "/dev/null"])
        .args(["-e", &format!("trace={name}")])
        .args(["-e", &format!("inject={name}:signal=KILL:when={n}")])
        .args(["-p", &pid.to_string()])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|why| {
            panic!("strace is missing, `bash scripts/test.sh` installs it: {why}")
        });
    wait("strace is attached to every thread", OVER, || {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        threads
            .into_iter()
            .all(|thread| {
                let status = thread.unwrap().path().join("status");
                let status = fs::read_to_string(status).unwrap_or_default();
                status.contains(&format!("TracerPid:\t{}\n", strace.id()))
            })
            .then_some(())
    });
    strace
}

/// Kills an operation at its first call, its second, and so on; returns how many there are.
fn walk(operation: Operation, at: Where) -> Result<u64, String> {
    for n in 1..KILLS_MAX {
        match case(operation, at, n) {
            Came::Clean => return Ok(n - 1),
            Came::Killed(violations) if violations.is_empty() => {}
            Came::Killed(violations) => {
                let text = violations.join("\n  ");
                return Err(format!("{} {at:?} {n}:\n  {text}", operation.name));
            }
        }
    }
    Err(format!("{} {at:?} has no end", operation.name))
}

const CALLS: [Where; 2] = [Where::Call(When::Before), Where::Call(When::After)];

/// Walks several ways at once.
fn walk_all(walks: &[(Operation, Where)]) {
    let failures = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for (operation, at) in walks {
            let failures = &failures;
            scope.spawn(move || match walk(*operation, *at) {
                Ok(kills) => {
                    eprintln!("{} {at:?}: {kills} kills", operation.name);
                    assert_ne!(kills, 0, "{} {at:?}: nothing was killed", operation.name);
                }
                Err(failure) => failures.lock().unwrap().push(failure),
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn killed_at_any_call(operation: Operation) {
    walk_all(&CALLS.map(|at| (operation, at)));
}

/// At each sync of a commit, and at each write of the threads that write.
fn killed_at_any_commit(operation: Operation) {
    let syncs = (operation, Where::System("fdatasync"));
    let writes = (operation, Where::System("pwrite64"));
    walk_all(&[syncs, writes]);
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
}

#[test]
fn a_command_that_is_killed_at_any_commit_runs_once_at_most() {
    // The event of a command is flushed, and not synced.
    walk_all(&[(EXEC, Where::System("pwrite64"))]);
}

#[test]
fn a_closing_that_is_killed_at_any_commit_keeps_the_files() {
    killed_at_any_commit(CLOSE);
}

#[test]
fn a_purge_that_is_killed_at_any_commit_leaves_all_or_nothing() {
    killed_at_any_commit(PURGE);
}

#[test]
fn an_eviction_that_is_killed_at_any_commit_loses_neither_session() {
    killed_at_any_commit(EVICT);
}
