//! Whose state directory and whose containers these are, and how a daemon ends
//! that may not or cannot have its own.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::api::{Api, WORKSPACES, settings, wait};
use crate::support::daemon::{Daemon, Ending};
use crate::support::docker::{IMAGE, INSTANCE_LABEL, Removed, docker, labelled, try_docker};

const END_MAX: Duration = Duration::from_secs(20);
/// Strays that may go at once however few containers there are, and one more.
const TOO_MANY_STRAYS: usize = 4;

/// Runs a daemon that is to end by itself; returns its exit code and what it said.
fn run_to_end(args: &[&str], state: &Path, changes: &[(&str, &str)]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandboxd"));
    command
        .args(args)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("SANDBOXD_HOST", "127.0.0.1")
        .env("SANDBOXD_PORT", "0")
        .env("SANDBOXD_TOKEN", "a-service-token-of-a-test")
        .env("SANDBOXD_STATE_DIR", state)
        .env("SANDBOXD_RUNTIME_DIR", state.with_extension("run"))
        .env("SANDBOXD_RUNTIMES", format!("bb={IMAGE}"))
        .env("SANDBOXD_PREWARM", "0")
        .envs(changes.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let end = Instant::now() + END_MAX;
    while child.try_wait().unwrap().is_none() {
        if end < Instant::now() {
            child.kill().unwrap();
            let Output { stderr, .. } = child.wait_with_output().unwrap();
            panic!("it went on: {}", String::from_utf8_lossy(&stderr));
        }
        thread::sleep(Duration::from_millis(20));
    }
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output().unwrap();
    let said = [stdout, stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    (status.code().unwrap(), said)
}

/// Makes a container as another would have, removed at the end of the test.
fn container(name: &str, labels: &[&str]) -> (String, Removed) {
    let labels = labels.iter().flat_map(|label| ["--label", label]);
    let args: Vec<&str> = ["run", "--detach", "--network=none", "--name", name]
        .into_iter()
        .chain(labels)
        .chain([IMAGE, "sleep", "1000"])
        .collect();
    (docker(&args), Removed::container(name))
}

fn unique(name: &str) -> String {
    format!("{name}-{}", uuid::Uuid::new_v4().simple())
}

fn runs(container: &str) -> bool {
    try_docker(&["inspect", "--format", "{{.State.Running}}", container])
        .is_ok_and(|state| state == "true")
}

/// Returns the engine's id of a session's container and its process.
fn life(api: &Api, id: &str) -> (String, String) {
    let container = api.container(id);
    let pid = docker(&["inspect", "--format", "{{.State.Pid}}", &container]);
    (container, pid)
}

#[test]
fn a_second_daemon_on_a_state_directory_ends_and_names_the_first() {
    let daemon = Daemon::start(&settings(&[WORKSPACES]));
    let api = Api::of(&daemon);
    api.open_id("a");
    let (code, said) = run_to_end(&[], &daemon.dir().join("state"), &[]);
    assert_eq!(code, 69, "{said}");
    assert!(said.contains(&format!("pid {}", daemon.pid())), "{said}");
    assert_eq!(api.sh("a", "echo hi"), "hi");
}

#[test]
fn two_daemons_on_one_engine_leave_each_other_s_sessions_alone() {
    let changes = [
        WORKSPACES,
        ("SANDBOXD_CLEANUP_INTERVAL", "1"),
        ("SANDBOXD_ORPHAN_GRACE", "1"),
    ];
    let quiet = Daemon::start(&settings(&changes));
    let mut busy = Daemon::start(&settings(&changes));
    let (still, loud) = (Api::of(&quiet), Api::of(&busy));
    for id in ["a", "b"] {
        still.open_id(id);
        still.sh(id, "echo quiet > whose");
    }
    let lives = ["a", "b"].map(|id| life(&still, id));
    for round in 0..3 {
        for id in ["a", "b"] {
            loud.open_id(id);
            assert_eq!(loud.sh(id, "ls"), "");
        }
        loud.close("a", "?purge=true");
        match round % 2 {
            0 => busy.restart(Ending::Kill),
            _ => busy.restart(Ending::Terminate),
        }
        loud.close("b", "?purge=true");
    }
    // Long enough for resyncs of both to take the other's for strays.
    thread::sleep(Duration::from_secs(3));
    assert_eq!(["a", "b"].map(|id| life(&still, id)), lives);
    assert_eq!(still.sh("a", "cat whose"), "quiet");
    assert_eq!(labelled(&quiet.label()).len(), 2);
    wait("the other has none left", END_MAX, || {
        labelled(&busy.label()).is_empty().then_some(())
    });
}

#[test]
fn only_strays_of_ours_go_and_only_after_two_looks_and_a_grace() {
    let daemon = Daemon::start(&settings(&[
        WORKSPACES,
        ("SANDBOXD_CLEANUP_INTERVAL", "1"),
        ("SANDBOXD_ORPHAN_GRACE", "4"),
    ]));
    let api = Api::of(&daemon);
    api.open_id("a");
    let kept = life(&api, "a");
    let other = format!("{INSTANCE_LABEL}={}", uuid::Uuid::new_v4());
    let (unlabelled, _unlabelled) = container(&unique("sandboxd-stray"), &[]);
    let (foreign, _foreign) = container(&unique("sandboxd-foreign"), &[&other]);
    let made = Instant::now();
    let (stray, _stray) = container(&unique("sandboxd-ours"), &[&daemon.label()]);
    let gone = wait("the stray is gone", END_MAX, || {
        let found = try_docker(&["inspect", "--format", "{{.Id}}", &stray]);
        found.is_err().then(|| made.elapsed())
    });
    assert!(Duration::from_secs(4) <= gone, "it went after {gone:?}");
    let log = fs::read_to_string(daemon.log_path()).unwrap();
    let line = log
        .lines()
        .find(|line| line.contains("removing a container that no session owns"));
    assert!(line.is_some_and(|line| line.contains(&stray)), "{line:?}");
    assert!(runs(&unlabelled) && runs(&foreign));
    assert_eq!(life(&api, "a"), kept);
}

#[test]
fn too_many_strays_at_once_are_left_and_complained_of() {
    let mut daemon = Daemon::start(&settings(&[
        WORKSPACES,
        ("SANDBOXD_CLEANUP_INTERVAL", "1"),
        ("SANDBOXD_ORPHAN_GRACE", "1"),
    ]));
    // All at once, as they are when the records are what is missing.
    daemon.stop(Ending::Terminate);
    let strays: Vec<_> = (0..TOO_MANY_STRAYS)
        .map(|_| container(&unique("sandboxd-many"), &[&daemon.label()]))
        .collect();
    daemon.start_again();
    wait("the daemon complains", END_MAX, || {
        let log = fs::read_to_string(daemon.log_path()).unwrap();
        log.contains("more than a fifth of all containers belong to no session")
            .then_some(())
    });
    thread::sleep(Duration::from_secs(2));
    assert!(strays.iter().all(|(id, _)| runs(id)));
}

#[test]
fn a_wrong_command_line_ends_with_64() {
    let dir = tempfile::tempdir().unwrap();
    let (code, said) = run_to_end(&["--no-such-option"], &dir.path().join("s"), &[]);
    assert_eq!(code, 64, "{said}");
    assert!(said.contains("--no-such-option"), "{said}");
}

#[test]
fn a_wrong_configuration_ends_with_78() {
    let dir = tempfile::tempdir().unwrap();
    let wrong = [("SANDBOXD_MAX_SESSIONS", "many")];
    let (code, said) = run_to_end(&[], &dir.path().join("s"), &wrong);
    assert_eq!(code, 78, "{said}");
    assert!(said.contains("SANDBOXD_MAX_SESSIONS"), "{said}");
}

#[test]
fn a_port_that_is_taken_ends_with_74() {
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("s");
    let (code, said) = run_to_end(&[], &state, &[("SANDBOXD_PORT", &port)]);
    assert_eq!(code, 74, "{said}");
    assert!(said.contains(&port), "{said}");
}

#[test]
fn a_foreign_token_key_ends_with_78_and_changes_nothing() {
    let mut daemon = Daemon::start(&settings(&[WORKSPACES]));
    let api = Api::of(&daemon);
    let token = api.open_id("a");
    assert_eq!(daemon.stop(Ending::Terminate).code(), Some(0));
    let key = daemon.dir().join("other.key");
    fs::write(&key, [7; 32]).unwrap();
    let state = daemon.dir().join("state");
    let (code, said) = run_to_end(
        &[],
        &state,
        &[("SANDBOXD_TOKEN_KEY_FILE", key.to_str().unwrap())],
    );
    assert_eq!(code, 78, "{said}");
    assert!(said.contains("other.key"), "{said}");
    daemon.start_again();
    assert_eq!(api.with_token(&token).sh("a", "echo hi"), "hi");
}

#[test]
fn a_corrupt_store_ends_with_65_and_is_left_alone() {
    let mut daemon = Daemon::start(&settings(&[WORKSPACES]));
    let api = Api::of(&daemon);
    let token = api.open_id("a");
    assert_eq!(daemon.stop(Ending::Terminate).code(), Some(0));
    let state = daemon.dir().join("state");
    let database = state.join("store/v1/db");
    let whole = fs::read(&database).unwrap();
    let cut = &whole[..whole.len() / 3];
    fs::write(&database, cut).unwrap();
    for _ in 0..2 {
        let refuse = [("SANDBOXD_ON_CORRUPT_STORE", "refuse")];
        let (code, said) = run_to_end(&[], &state, &refuse);
        assert_eq!(code, 65, "{said}");
        assert!(said.contains("corrupt"), "{said}");
        assert_eq!(fs::read(&database).unwrap(), cut);
    }
    assert_eq!(labelled(&daemon.label()).len(), 1);
    fs::write(&database, &whole).unwrap();
    daemon.start_again();
    assert_eq!(api.with_token(&token).sh("a", "echo hi"), "hi");
}
