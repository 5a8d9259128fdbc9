//! Kills the daemon at the named steps of operations on the real engine.

use std::time::Duration;

use crate::kill_matrix::kill;
use crate::support::api::{Api, WORKSPACES, settings, wait};
use crate::support::daemon::Daemon;
use crate::support::docker::labelled;
use crate::support::fault::{Target, When};
use crate::support::operations::{CLOSE, EXEC, OPEN, Operation, PURGE, Run, set_up};
use crate::support::proxy::Proxy;

/// By when everything is whole or gone after the next start.
const SETTLED: Duration = Duration::from_secs(20);

/// What becomes of a container whose session is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Containers {
    Removed,
    Kept,
}

fn killed_at(operation: Operation, when: When, call: (&'static str, &'static str)) {
    killed_with(operation, when, call, Containers::Removed);
}

fn killed_with(
    operation: Operation,
    when: When,
    (method, path): (&'static str, &'static str),
    closed: Containers,
) {
    let proxy = Proxy::start();
    let address = proxy.address();
    let mut changes = vec![WORKSPACES, ("SANDBOXD_DOCKER_HOST", address.as_str())];
    if closed == Containers::Kept {
        changes.push(("SANDBOXD_PERSIST_CONTAINERS", "1"));
    }
    let mut daemon = Daemon::start(&settings(&changes));
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
    let kept = usize::from(closed == Containers::Kept);
    let wanted = run.claims.ids().len() + kept;
    wait("each session has one container", SETTLED, || {
        (labelled(&daemon.label()).len() == wanted).then_some(())
    });
    let runs = daemon.dir().join("ws/old/workspace/runs");
    let runs = std::fs::read_to_string(runs).unwrap_or_default();
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
    killed_with(CLOSE, When::After, STOP, Containers::Kept);
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
    killed_at(EXEC, When::After, EXEC_START);
}
