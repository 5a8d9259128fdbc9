//! What outlives the daemon's end, however it comes.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::api::{Api, WORKSPACES, settings, wait};
use crate::support::daemon::{Daemon, Ending};
use crate::support::docker::{docker, labelled};
use crate::support::http::Response;

/// By when everything that was begun is whole or gone after a start.
const SETTLED: Duration = Duration::from_secs(20);
/// How commands reach a sandbox.
type Exec = (&'static str, &'static str);
const BY_AGENT: Exec = ("SANDBOXD_EXEC", "agent");
const BY_ENGINE: Exec = ("SANDBOXD_EXEC", "docker");
const HELD_BY: &str = "io.sandboxd.session";

/// Returns the engine's id and the process of a session's container.
fn life(api: &Api, id: &str) -> (String, String) {
    let container = api.container(id);
    let pid = docker(&["inspect", "--format", "{{.State.Pid}}", &container]);
    (container, pid)
}

fn ids(listed: &Value) -> Vec<String> {
    let sessions = listed["sessions"].as_array().unwrap().iter();
    sessions
        .map(|session| session["session_id"].as_str().unwrap().to_owned())
        .collect()
}

/// Returns the sessions that containers of a daemon were made for, one a container.
fn held(daemon: &Daemon) -> Vec<String> {
    let format = format!("{{{{index .Config.Labels {HELD_BY:?}}}}}");
    labelled(&daemon.label())
        .iter()
        .filter_map(|id| {
            let args = ["inspect", "--format", &format, id];
            crate::support::docker::try_docker(&args).ok()
        })
        .collect()
}

/// Waits until every listed session has one container, and nothing else has any.
fn wait_until_explained(daemon: &Daemon) -> Vec<String> {
    let api = Api::of(daemon);
    wait("every container belongs to a session", SETTLED, || {
        let listed = api.json(200, "GET /sessions", None);
        let is_settled = listed["sessions"]
            .as_array()
            .unwrap()
            .iter()
            .all(|session| session["phase"] == "running");
        let listed = ids(&listed);
        let mut held = held(daemon);
        held.sort();
        let mut wanted = listed.clone();
        wanted.sort();
        (is_settled && held == wanted).then_some(listed)
    })
}

fn everything_survives(ending: Ending, way: Exec) {
    let mut daemon = Daemon::start(&settings(&[WORKSPACES, way]));
    let api = Api::of(&daemon);
    let mut tokens = Vec::new();
    for id in ["zebra", "ape", "mole"] {
        let asked = json!({"session_id": id, "tenant": format!("t-{id}")});
        let token = api.open(&asked)["token"].as_str().unwrap().to_owned();
        let left = api.sh(id, &format!("echo {id} > here; sleep 1000 & echo $!"));
        tokens.push((id, token, left));
    }
    let before = api.json(200, "GET /sessions", None);
    let lives: Vec<_> = tokens.iter().map(|(id, ..)| life(&api, id)).collect();
    daemon.restart(ending);
    let after = api.json(200, "GET /sessions", None);
    assert_eq!(ids(&after), ["zebra", "ape", "mole"]);
    for name in [
        "tenant",
        "created_at",
        "runtime",
        "container",
        "incarnation",
    ] {
        for n in 0..3 {
            let of = |listed: &Value| listed["sessions"][n][name].clone();
            assert_eq!(of(&after), of(&before), "{name}");
        }
    }
    for ((id, token, left), before) in tokens.iter().zip(lives) {
        let own = api.with_token(token);
        assert_eq!(own.sh(id, "cat here"), *id);
        let asleep = own.sh(id, "pidof sleep");
        let asleep: Vec<&str> = asleep.split_whitespace().collect();
        assert!(asleep.contains(&left.as_str()), "{left} of {asleep:?}");
        // Without an agent the container's own program sleeps as well.
        assert_eq!(asleep.len(), if way == BY_AGENT { 1 } else { 2 });
        assert_eq!(life(&api, id), before);
        let events = own.events(id);
        let seqs: Vec<_> = events["events"]
            .as_array()
            .unwrap()
            .iter()
            .map(|event| event["seq"].as_u64().unwrap())
            .collect();
        assert_eq!(seqs, [1, 2, 3], "{events}");
    }
    assert_eq!(labelled(&daemon.label()).len(), 3);
}

#[test]
fn everything_survives_an_orderly_end() {
    everything_survives(Ending::Terminate, BY_AGENT);
}

#[test]
fn everything_survives_a_kill() {
    everything_survives(Ending::Kill, BY_AGENT);
}

#[test]
fn everything_survives_both_ends_without_agents() {
    everything_survives(Ending::Terminate, BY_ENGINE);
    everything_survives(Ending::Kill, BY_ENGINE);
}

#[test]
fn ten_restarts_in_a_row_touch_no_container() {
    let mut daemon = Daemon::start(&settings(&[WORKSPACES]));
    let api = Api::of(&daemon);
    let names = ["a", "b", "c"];
    for id in names {
        api.open_id(id);
    }
    let lives = names.map(|id| life(&api, id));
    for n in 0..10 {
        let ending = [Ending::Terminate, Ending::Kill][n % 2];
        daemon.restart(ending);
        assert_eq!(names.map(|id| life(&api, id)), lives, "restart {n}");
    }
    for id in names {
        assert_eq!(api.sh(id, "echo hi"), "hi");
        assert_eq!(api.info(id)["incarnation"], 1);
    }
}

#[test]
fn a_kill_amid_openings_leaves_each_whole_or_gone() {
    const ROUNDS: u64 = 6;
    const CALLERS: usize = 4;
    let mut daemon = Daemon::start(&settings(&[WORKSPACES, ("SANDBOXD_MAX_SESSIONS", "1000")]));
    let mut acknowledged = BTreeSet::new();
    for round in 0..ROUNDS {
        let api = Api::of(&daemon);
        let openings: Vec<_> = (0..CALLERS)
            .map(|n| {
                let http = daemon.http();
                thread::spawn(move || {
                    let mut opened = Vec::new();
                    // A reply that does not come acknowledges nothing.
                    for turn in 0.. {
                        let id = format!("r{round}-c{n}-{turn}");
                        let asked = json!({"session_id": id});
                        match Api::request_on(&http, "POST", "/sessions", Some(&asked)) {
                            Ok(reply) if reply.status == 200 => opened.push(id),
                            Ok(reply) => panic!("{}: {}", reply.status, reply.text()),
                            Err(_) => break,
                        }
                    }
                    opened
                })
            })
            .collect();
        thread::sleep(Duration::from_millis(instant(round)));
        daemon.stop(Ending::Kill);
        for opening in openings {
            acknowledged.extend(opening.join().unwrap());
        }
        daemon.start_again();
        let listed: BTreeSet<String> = wait_until_explained(&daemon).into_iter().collect();
        let lost: Vec<_> = acknowledged.difference(&listed).collect();
        assert!(lost.is_empty(), "round {round} lost {lost:?}");
        for id in &listed {
            assert_eq!(api.sh(id, "echo hi"), "hi", "round {round}, {id}");
            api.close(id, "?purge=true");
        }
        acknowledged.clear();
    }
}

/// Spreads the kills over a second, from no start to several.
fn instant(round: u64) -> u64 {
    let random = uuid::Uuid::new_v4().as_u128() % 150;
    round * 150 + u64::try_from(random).unwrap()
}

#[test]
fn a_kill_amid_closings_and_purges_delays_them_until_the_start() {
    let persist = ("SANDBOXD_PERSIST_CONTAINERS", "0");
    let mut daemon = Daemon::start(&settings(&[WORKSPACES, persist]));
    for round in 0..4 {
        let api = Api::of(&daemon);
        for id in ["closed", "purged"] {
            api.open_id(id);
            api.sh(
                id,
                "mkdir -p a/b/c; for n in $(seq 500); do echo x > a/b/c/$n; done",
            );
        }
        let ends: Vec<_> = [
            ("closed", "/sessions/closed"),
            ("purged", "/sessions/purged?purge=true"),
        ]
        .map(|(_, path)| {
            let http = daemon.http();
            thread::spawn(move || Api::request_on(&http, "DELETE", path, None))
        })
        .into();
        thread::sleep(Duration::from_millis(1 + round * 40));
        daemon.stop(Ending::Kill);
        let answered: Vec<bool> = ends
            .into_iter()
            .map(|end| end.join().unwrap().is_ok_and(|reply| reply.status == 204))
            .collect();
        daemon.start_again();
        // What was not written down before the kill is asked for again.
        for (path, answered) in [("closed", answered[0]), ("purged?purge=true", answered[1])] {
            let again = api.call("DELETE", &format!("/sessions/{path}"), None);
            assert!(again.status == 404 || !answered, "{path}: {}", again.status);
        }
        let root = daemon.dir().join("ws");
        wait("both are over", SETTLED, || {
            let is_over = labelled(&daemon.label()).is_empty()
                && !root.join("purged").exists()
                && root.join("closed/workspace/a/b/c/500").exists();
            let trash = root.join(".trash");
            let is_clean = !trash.exists() || trash.read_dir().unwrap().next().is_none();
            (is_over && is_clean).then_some(())
        });
        api.open_id("purged");
        assert_eq!(api.sh("purged", "ls"), "");
        api.close("purged", "?purge=true");
    }
}

#[test]
fn remains_of_a_removal_that_was_cut_short_go_at_the_start() {
    let mut daemon = Daemon::start(&settings(&[WORKSPACES]));
    daemon.stop(Ending::Kill);
    let trash = daemon.dir().join("ws/.trash");
    let remains = trash.join("0123456789abcdef0123456789abcdef");
    std::fs::create_dir_all(remains.join("workspace/a/b")).unwrap();
    std::fs::write(remains.join("workspace/a/secret"), "x").unwrap();
    daemon.start_again();
    wait("the trash is empty", SETTLED, || {
        trash.read_dir().unwrap().next().is_none().then_some(())
    });
}

/// Begins a command that takes long; waits until it runs.
fn begin_long_command(daemon: &Daemon) -> thread::JoinHandle<std::io::Result<Response>> {
    let http = daemon.http();
    let command = thread::spawn(move || {
        let asked = json!({"command": "sleep 1234 & touch begun; wait"});
        Api::request_on(&http, "POST", "/sessions/a/exec", Some(&asked))
    });
    let begun = daemon.dir().join("ws/a/workspace/begun");
    wait("the command runs", SETTLED, || begun.exists().then_some(()));
    command
}

/// Returns how many processes of the long command there are, by their command line.
fn left_of_long_command(api: &Api) -> String {
    let count = "n=0; for p in /proc/[0-9]*/cmdline; do \
                 [ \"$(tr '\\0' ' ' < $p)\" = 'sleep 1234 ' ] && n=$((n+1)); done; echo $n";
    api.sh("a", count)
}

#[test]
fn a_kill_amid_a_command_leaves_a_session_that_works() {
    let mut daemon = Daemon::start(&settings(&[WORKSPACES]));
    let api = Api::of(&daemon);
    api.open_id("a");
    let before = life(&api, "a");
    let command = begin_long_command(&daemon);
    assert_eq!(left_of_long_command(&api), "1");
    daemon.restart(Ending::Kill);
    assert!(command.join().unwrap().is_err());
    assert_eq!(api.sh("a", "echo hi"), "hi");
    wait("nothing is left of what nobody waits for", SETTLED, || {
        (left_of_long_command(&api) == "0").then_some(())
    });
    assert_eq!(life(&api, "a"), before);
    api.close("a", "?purge=true");
    assert!(labelled(&daemon.label()).is_empty());
}

fn an_orderly_end_does_not_wait(way: Exec) {
    let drain = ("SANDBOXD_DRAIN_TIMEOUT", "1");
    let mut daemon = Daemon::start(&settings(&[WORKSPACES, drain, way]));
    let api = Api::of(&daemon);
    api.open_id("a");
    let command = begin_long_command(&daemon);
    assert_eq!(left_of_long_command(&api), "1");
    let began = Instant::now();
    let status = daemon.stop(Ending::Terminate);
    let took = began.elapsed();
    assert_eq!(status.code(), Some(0));
    assert!(took < Duration::from_secs(8), "{took:?}");
    drop(command.join().unwrap());
    daemon.start_again();
    assert_eq!(left_of_long_command(&api), "0", "the command is ended");
}

#[test]
fn an_orderly_end_does_not_wait_for_a_long_command() {
    an_orderly_end_does_not_wait(BY_AGENT);
    an_orderly_end_does_not_wait(BY_ENGINE);
}
