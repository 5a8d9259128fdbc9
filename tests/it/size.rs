//! What many sessions on record cost: nothing that grows with them is asked of the engine.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::api::{Api, WORKSPACES, settings, wait};
use crate::support::daemon::{Daemon, Ending};
use crate::support::proxy::{Mode, Proxy};
use crate::support::records::{Was, fill};
use crate::support::whole;

const SETTLED: Duration = Duration::from_secs(30);
/// Calls by which a start finds out what there is: version, listing, events, what engine
/// it is. Each may be made anew once, when the stream of events opens.
const CALLS_AT_START_MAX: usize = 12;

fn count() -> u64 {
    if whole() { 10_000 } else { 1_000 }
}

/// Makes a daemon behind the proxy with so many sessions on record, to be started again.
///
/// A test ends it by a kill: nothing of these sessions is there to be purged.
fn filled(proxy: &Proxy, count: u64, were: &[Was]) -> Daemon {
    let changes = [WORKSPACES, ("SANDBOXD_DOCKER_HOST", &proxy.address())];
    let mut daemon = Daemon::start(&settings(&changes));
    daemon.stop(Ending::Terminate);
    fill(&daemon.dir().join("state"), count, were);
    daemon
}

/// Returns the calls that were made of the engine, but for its heartbeat.
fn calls(proxy: &Proxy) -> Vec<String> {
    let mut calls = proxy.calls("");
    calls.retain(|call| !call.contains("/_ping"));
    calls
}

/// Waits until the engine has been asked nothing but for a sign of life for a while.
fn settle(proxy: &Proxy) -> usize {
    let mut last = (usize::MAX, Instant::now());
    wait("the start is over", SETTLED, || {
        let made = calls(proxy);
        let has_listed = made.iter().any(|call| call.contains("/info"));
        if made.len() != last.0 {
            last = (made.len(), Instant::now());
        }
        (has_listed && Duration::from_secs(2) < last.1.elapsed()).then_some(made.len())
    })
}

#[test]
fn a_start_with_many_sessions_on_record_asks_the_engine_a_few_things_once() {
    let proxy = Proxy::start();
    let mut daemon = filled(&proxy, count(), &[Was::Parked, Was::Closed]);
    let before = calls(&proxy).len();
    daemon.start_again();
    let made = settle(&proxy) - before;
    assert!(made <= CALLS_AT_START_MAX, "{:?}", &calls(&proxy)[before..]);
    daemon.stop(Ending::Kill);
}

#[test]
fn a_listing_asks_the_engine_nothing() {
    let proxy = Proxy::start();
    let mut daemon = filled(&proxy, count(), &[Was::Parked]);
    daemon.start_again();
    let api = Api::of(&daemon);
    let before = settle(&proxy);
    for _ in 0..5 {
        let listed = api.json(200, "GET /sessions", None);
        let sessions = listed["sessions"].as_array().unwrap();
        assert_eq!(u64::try_from(sessions.len()).unwrap(), count());
        assert_eq!(sessions[7]["phase"], "hibernated");
        assert_eq!(api.info("r-7")["phase"], "hibernated");
        api.events("r-7");
        api.json(200, "GET /healthz", None);
    }
    assert_eq!(calls(&proxy)[before..], [""; 0]);
    daemon.stop(Ending::Kill);
}

#[test]
fn many_sessions_are_listed_at_once_while_the_engine_says_nothing() {
    const OPEN: u64 = 1_000;
    let proxy = Proxy::start();
    let mut daemon = filled(&proxy, OPEN, &[Was::Running, Was::Parked]);
    proxy.set(Mode::Frozen);
    daemon.start_again();
    let ctl = PathBuf::from(env!("CARGO_BIN_EXE_sandboxctl"));
    let environment = BTreeMap::from([
        ("SANDBOXD_URL", daemon.url()),
        ("SANDBOXD_TOKEN", daemon.token().to_owned()),
    ]);
    let began = Instant::now();
    let listed = Command::new(ctl)
        .arg("ls")
        .env_clear()
        .envs(environment)
        .output()
        .unwrap();
    let took = began.elapsed();
    assert!(listed.status.success(), "{listed:?}");
    let lines = String::from_utf8(listed.stdout).unwrap().lines().count();
    assert!(OPEN <= u64::try_from(lines).unwrap(), "{lines}");
    // Generous, for a debug build on a busy machine: what waits for the engine takes longer.
    assert!(took < Duration::from_secs(3), "{took:?}");
    daemon.stop(Ending::Kill);
}
