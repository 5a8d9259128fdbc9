//! Kills the daemon at the named steps of operations on the real engine.

use std::fs;
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::kill_matrix::kill;
use crate::support::api::{Api, WORKSPACES, settings, wait};
use crate::support::daemon::{Daemon, Ending};
use crate::support::docker::{docker, labelled};
use crate::support::fault::{Target, When};
use crate::support::operations::{CLOSE, EXEC, OPEN, Operation, PURGE, Run, set_up};
use crate::support::proxy::Proxy;

/// By when everything is whole or gone after the next start.
const SETTLED: Duration = Duration::from_secs(20);

fn killed_at(operation: Operation, when: When, call: (&'static str, &'static str)) {
    killed_with(operation, when, call, &[]);
}

/// Has a container outlive the closing of its session.
const KEPT: (&str, &str) = ("SANDBOXD_PERSIST_CONTAINERS", "1");

fn killed_with(
    operation: Operation,
    when: When,
    (method, path): (&'static str, &'static str),
    changes: &[(&str, &str)],
) {
    let proxy = Proxy::start();
    let address = proxy.address();
    let place = [WORKSPACES, ("SANDBOXD_DOCKER_HOST", address.as_str())];
    let mut daemon = Daemon::start(&settings(&[&place, changes].concat()));
    let mut run = Run {
        api: Api::of(&daemon),
        claims: set_up(&daemon),
    };
    let target = Target::Next(method, path);
    proxy.faults().on_call(target, when, kill(daemon.pid()));
    (operation.act)(&mut run);
    daemon.wait_until_killed();
    daemon.start_again();
    run.claims.verify(&daemon);
    let kept = usize::from(changes.contains(&KEPT));
    let wanted = run.claims.ids().len() + kept;
    wait("each session has one container", SETTLED, || {
        (labelled(&daemon.label()).len() == wanted).then_some(())
    });
    let runs = daemon.dir().join("ws/old/workspace/runs");
    let runs = fs::read_to_string(runs).unwrap_or_default();
    assert!(runs.lines().count() <= 1, "a command ran again by itself");
}

const CREATE: (&str, &str) = ("POST", "/containers/create");
const START: (&str, &str) = ("POST", "/containers/*/start");
const STOP: (&str, &str) = ("POST", "/containers/*/stop");
const REMOVE: (&str, &str) = ("DELETE", "/containers/*");
const EXEC_START: (&str, &str) = ("POST", "/exec/*/start");

#[test]
fn an_opening_killed_after_the_container_was_made_is_whole_or_gone() {
    killed_at(OPEN, When::After, CREATE);
}

#[test]
fn an_opening_killed_before_the_container_is_started_is_whole_or_gone() {
    killed_at(OPEN, When::Before, START);
}

#[test]
fn an_opening_killed_after_the_container_was_started_is_whole_or_gone() {
    killed_at(OPEN, When::After, START);
}

#[test]
fn a_closing_killed_after_the_container_was_stopped_keeps_the_files() {
    killed_with(CLOSE, When::After, STOP, &[KEPT]);
}

#[test]
fn a_closing_killed_after_the_container_was_removed_keeps_the_files() {
    killed_at(CLOSE, When::After, REMOVE);
}

#[test]
fn a_purge_killed_after_the_container_was_removed_leaves_nothing() {
    killed_at(PURGE, When::After, REMOVE);
}

#[test]
fn a_command_in_the_middle_of_which_the_daemon_is_killed_runs_once() {
    killed_with(
        EXEC,
        When::After,
        EXEC_START,
        &[("SANDBOXD_EXEC", "docker")],
    );
}

#[test]
fn a_command_of_an_agent_in_the_middle_of_which_the_daemon_is_killed_runs_once_and_is_ended() {
    let changes = [WORKSPACES, ("SANDBOXD_EXEC", "agent")];
    let mut daemon = Daemon::start(&settings(&changes));
    let api = Api::of(&daemon);
    let mut claims = set_up(&daemon);
    let container = api.container("old");
    let runs = daemon.dir().join("ws/old/workspace/runs");
    let command = {
        let http = daemon.http();
        let asked = json!({"command": "echo again >> runs; sleep 81002; echo over >> runs"});
        thread::spawn(move || {
            Api::request_on(&http, "POST", "/sessions/old/exec", Some(&asked)).map(drop)
        })
    };
    let begun = || fs::read_to_string(&runs).unwrap_or_default();
    wait("the command runs", SETTLED, || {
        (begun() == "again\n").then_some(())
    });
    daemon.restart(Ending::Kill);
    assert!(command.join().unwrap().is_err(), "it has no reply");
    wait("the command is ended", SETTLED, || {
        let left = docker(&["exec", &container, "ps", "-o", "args"]);
        (!left.contains("81002")).then_some(())
    });
    claims.verify(&daemon);
    assert_eq!(api.sh("old", "cat runs"), "again", "it ran once");
    assert_eq!(api.container("old"), container);
}
