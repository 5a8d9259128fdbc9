//! What becomes of runs when the daemon dies, when its store is lost, while nobody looks,
//! and when their sandboxes go.

use std::fs;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::api::{Api, WORKSPACES, settings, wait};
use crate::support::daemon::{Daemon, Ending};
use crate::support::docker::docker;
use crate::support::http::Request;

const SOON: Duration = Duration::from_secs(20);

fn start(changes: &[(&str, &str)]) -> (Daemon, Api) {
    let daemon = Daemon::start(&settings(changes));
    let api = Api::of(&daemon);
    (daemon, api)
}

/// Starts a run in the background; returns its path.
fn begin(api: &Api, session: &str, asked: &Value) -> String {
    let run = api.json(201, &format!("POST /sessions/{session}/runs"), Some(asked));
    let id = run["run_id"].as_str().unwrap();
    format!("/sessions/{session}/runs/{id}")
}

fn describe(api: &Api, path: &str) -> Value {
    api.json(200, &format!("GET {path}"), None)
}

fn ended(api: &Api, path: &str) -> Value {
    wait("the run is over", SOON, || {
        let run = describe(api, path);
        (run["state"] != "running").then_some(run)
    })
}

fn status(api: &Api, path: &str) -> u16 {
    api.call("GET", path, None).status
}

fn runs_in(container: &str, word: &str) -> bool {
    docker(&["top", container, "-eo", "pid,args"]).contains(word)
}

fn follow(path: &str) -> Request {
    Request {
        method: "GET".to_owned(),
        path: format!("{path}/output?follow=true"),
        ..Request::default()
    }
}

/// Joins all output, which must begin with the first record and miss none.
fn whole_output(api: &Api, path: &str) -> String {
    let reply = api.http().send(&follow(path)).unwrap();
    assert_eq!(reply.status, 200, "{}", reply.text());
    let text = reply.text();
    let mut whole = String::new();
    for (n, line) in text.lines().enumerate() {
        let record: Value = serde_json::from_str(line).unwrap();
        if record.get("end").is_some() {
            return whole;
        }
        assert_eq!(record["seq"], n, "{record}");
        whole.push_str(record["data"].as_str().unwrap());
    }
    panic!("it has no end");
}

#[test]
fn commands_whose_callers_went_with_the_daemon_are_ended_and_runs_in_the_background_go_on() {
    let (mut daemon, api) = start(&[]);
    api.open_id("s");
    let container = api.container("s");
    begin(&api, "s", &json!({"command": "sleep 71400; true"}));
    let command = "trap '' TERM; sleep 71401; sleep 71402";
    let exec = api.begin("/sessions/s/exec", &json!({"command": command}));
    let asked = json!({"argv": ["sh", "-c", "sleep 71403; true"], "run_id": "a".repeat(32)});
    let run = api.begin("/sessions/s/run", &asked);
    wait("all run", SOON, || {
        let all = ["71400", "71401", "71403"];
        all.iter()
            .all(|word| runs_in(&container, word))
            .then_some(())
    });
    daemon.stop(Ending::Kill);
    drop((exec, run));
    assert!(runs_in(&container, "71401") && runs_in(&container, "71403"));
    daemon.start_again();
    wait("nobody waits for them", SOON, || {
        let left = ["71401", "71402", "71403"];
        let any = left.iter().any(|word| runs_in(&container, word));
        (!any).then_some(())
    });
    assert!(runs_in(&container, "71400"));
}

#[test]
fn a_run_that_waits_for_a_reader_waits_through_a_kill_of_the_daemon_and_loses_nothing() {
    let (mut daemon, api) = start(&[("SANDBOXD_RUN_RING_BYTES", "65536")]);
    api.open_id("s");
    let path = begin(
        &api,
        "s",
        &json!({"command": "seq 100000; echo over > over", "overflow": "wait"}),
    );
    wait("its ring is full", SOON, || {
        (50_000 < describe(&api, &path)["stdout_bytes"].as_u64().unwrap()).then_some(())
    });
    daemon.restart(Ending::Kill);
    assert_eq!(describe(&api, &path)["state"], "running");
    assert_eq!(api.exec("s", "cat over")["exit_code"], 1);
    let expected: String = (1..=100_000).map(|n| n.to_string() + "\n").collect();
    assert!(
        whole_output(&api, &path) == expected,
        "it is not what was written"
    );
    assert_eq!(ended(&api, &path)["exit_code"], 0);
}

#[test]
fn a_run_whose_record_was_lost_with_the_store_is_found_with_its_sandbox() {
    let (mut daemon, api) = start(&[WORKSPACES]);
    let api_a = api.with_token(&api.open_id("a"));
    let command = "n=0; while [ ! -e stop ]; do n=$((n+1)); echo $n; sleep 0.05; done; exit 6";
    let asked = json!({"command": command, "run_id": "b".repeat(32)});
    let path = begin(&api_a, "a", &asked);
    for _ in 0..3 {
        daemon.stop(Ending::Kill);
        fs::remove_dir_all(daemon.dir().join("state/store")).unwrap();
        daemon.start_again();
        wait("it is on record again", SOON, || {
            (status(&api_a, &path) == 200).then_some(())
        });
        assert_eq!(describe(&api_a, &path)["state"], "running");
    }
    // The same request finds it, and another one does not take its id.
    api_a.json(200, "POST /sessions/a/runs", Some(&asked));
    let other = json!({"command": "true", "run_id": "b".repeat(32)});
    api_a.json(409, "POST /sessions/a/runs", Some(&other));
    api_a.sh("a", "touch stop");
    let text = whole_output(&api_a, &path);
    let expected: String = (1..=text.lines().count())
        .map(|n| n.to_string() + "\n")
        .collect();
    assert_eq!(text, expected);
    assert_eq!(ended(&api_a, &path)["exit_code"], 6);
    let events = api_a.events("a");
    let events = events["events"].as_array().unwrap().iter();
    assert_eq!(events.filter(|one| one["op"] == "run").count(), 1);
}

#[test]
fn a_session_idles_under_a_run_unless_its_runtime_or_a_follower_keeps_it_awake() {
    let runtimes = "bb={{image}},awake={{image}};keep_awake=true";
    let (_daemon, api) = start(&[
        ("SANDBOXD_RUNTIMES", runtimes),
        ("SANDBOXD_IDLE_TIMEOUT", "3"),
        ("SANDBOXD_CLEANUP_INTERVAL", "1"),
    ]);
    api.open(&json!({"session_id": "awake", "runtime": "awake"}));
    let asked = json!({"command": "echo begun; sleep 12"});
    let kept = begin(&api, "awake", &asked);
    api.open(&json!({"session_id": "followed", "runtime": "bb"}));
    let followed = begin(&api, "followed", &asked);
    api.open(&json!({"session_id": "plain", "runtime": "bb"}));
    begin(&api, "plain", &asked);
    let mut told = String::new();
    thread::scope(|scope| {
        let follower = scope.spawn(|| api.http().send(&follow(&followed)).unwrap());
        wait("the idle one is closed", SOON, || {
            (status(&api, "/sessions/plain") == 404).then_some(())
        });
        assert_eq!(describe(&api, &kept)["state"], "running");
        assert_eq!(describe(&api, &followed)["state"], "running");
        told = follower.join().unwrap().text();
    });
    assert!(told.contains("\"exit_code\":0"), "{told}");
    // Nothing keeps them from idling any more.
    for id in ["awake", "followed"] {
        wait("it is closed, too", SOON, || {
            (status(&api, &format!("/sessions/{id}")) == 404).then_some(())
        });
    }
}

#[test]
fn a_run_is_forgotten_when_it_was_over_for_as_long_as_runs_are_kept() {
    let (_daemon, api) = start(&[
        ("SANDBOXD_RUN_KEEP", "1"),
        ("SANDBOXD_CLEANUP_INTERVAL", "1"),
    ]);
    api.open_id("s");
    let goes_on = begin(&api, "s", &json!({"command": "sleep 71500"}));
    let over = begin(&api, "s", &json!({"command": "echo x; exit 4"}));
    wait("it is forgotten", SOON, || {
        let reply = api.call("GET", &over, None);
        if reply.status == 200 {
            // As long as it is known, its ending is the one that it had.
            let run = reply.json().unwrap();
            assert!(run["reason"].is_null() || run["exit_code"] == 4, "{run}");
        }
        (reply.status == 404).then_some(())
    });
    assert_eq!(status(&api, &format!("{over}/output")), 404);
    assert_eq!(describe(&api, &goes_on)["state"], "running");
    let listed = api.json(200, "GET /sessions/s/runs", None);
    assert_eq!(listed["runs"].as_array().unwrap().len(), 1);
}

#[test]
fn a_run_ends_with_its_sandbox_and_is_forgotten_with_its_session() {
    let (_daemon, api) = start(&[
        WORKSPACES,
        ("SANDBOXD_MAX_SESSIONS", "1"),
        ("SANDBOXD_EVICT_IDLE_AFTER", "0"),
    ]);
    api.open_id("a");
    let path = begin(&api, "a", &json!({"command": "sleep 71600"}));
    let tty = api.json(200, "POST /sessions/a/ttys", Some(&json!({})));
    // It gives way to another.
    api.open_id("b");
    assert_eq!(api.info("a")["phase"], "hibernated");
    let lost = |path: &str| {
        let reply = api.call("GET", path, None);
        let body = reply.json().unwrap();
        assert_eq!(
            (reply.status, &body["reason"]),
            (410, &json!("container_lost")),
            "{body}"
        );
        assert_eq!(body["code"], "run_lost");
    };
    lost(&path);
    lost(&format!(
        "/sessions/a/runs/{}",
        tty["run_id"].as_str().unwrap()
    ));
    lost(&format!("{path}/output?follow=true"));
    let ttys = api.json(200, "GET /sessions/a/ttys", None);
    assert_eq!(ttys["ttys"], json!([]));
    api.close("b", "");
    let again = begin(&api, "a", &json!({"command": "sleep 71601"}));
    api.close("a", "");
    assert_eq!(status(&api, &again), 404, "the session is closed");
    // Whether or not a closed session's runs are still known in its next opening, none of
    // them is said to go on.
    api.open_id("a");
    for path in [&path, &again] {
        let reply = api.call("GET", path, None);
        assert!(matches!(reply.status, 404 | 410), "{}", reply.text());
    }
    let last = begin(&api, "a", &json!({"command": "sleep 71602"}));
    api.close("a", "?purge=true");
    assert_eq!(status(&api, &last), 404);
    api.open_id("a");
    for path in [&path, &again, &last] {
        assert_eq!(status(&api, path), 404);
    }
    let listed = api.json(200, "GET /sessions/a/runs", None);
    assert_eq!(listed["runs"], json!([]));
}

#[test]
fn without_agents_runs_and_terminals_say_that_they_need_one() {
    let (_daemon, api) = start(&[("SANDBOXD_EXEC", "docker")]);
    api.open_id("s");
    for (call, asked) in [
        ("POST /sessions/s/runs", json!({"command": "true"})),
        ("POST /sessions/s/ttys", json!({})),
    ] {
        let refused = api.json(501, call, Some(&asked));
        assert_eq!(refused["code"], "needs_agent", "{call}: {refused}");
    }
    let runs = api.json(200, "GET /sessions/s/runs", None);
    assert_eq!(runs["runs"], json!([]), "a refused run leaves no trace");
    let ttys = api.json(200, "GET /sessions/s/ttys", None);
    assert_eq!(ttys["ttys"], json!([]));
    assert_eq!(api.sh("s", "echo fine"), "fine");
}

#[test]
fn a_run_out_of_memory_is_told_from_one_that_was_killed() {
    let runtime = "bb={{image}};mem_limit=64m";
    let (_daemon, api) = start(&[("SANDBOXD_RUNTIMES", runtime)]);
    api.open_id("s");
    let hungry = "tail -c 500000000 /dev/zero";
    for (command, reason, code) in [
        (format!("exec {hungry}"), "oom", json!(137)),
        // The shell lives on and tells of its child.
        (format!("{hungry}; exit $?"), "oom", json!(137)),
        ("kill -9 $$".to_owned(), "signal", json!(137)),
        ("exit 137".to_owned(), "exited", json!(137)),
    ] {
        let path = begin(&api, "s", &json!({"command": command}));
        let run = ended(&api, &path);
        assert_eq!(run["reason"], reason, "{command}: {run}");
        assert_eq!(run["exit_code"], code, "{command}: {run}");
    }
    assert_eq!(api.info("s")["incarnation"], 1, "its sandbox has gone on");
}

#[test]
fn a_bomb_left_behind_by_a_command_is_bounded_and_goes_with_the_sandbox() {
    let runtime = "bb={{image}};pids_limit=40";
    let (_daemon, api) = start(&[("SANDBOXD_RUNTIMES", runtime), WORKSPACES]);
    api.open_id("s");
    let bomb = "(while :; do sleep 71700 & done) > /dev/null 2>&1 &";
    let ran = api.exec("s", &format!("{bomb} exit 0"));
    assert_eq!(ran["exit_code"], 0, "{ran}");
    let container = api.container("s");
    wait("it has all the processes there may be", SOON, || {
        let top = docker(&["top", &container, "-eo", "pid,args"]);
        (20 < top.matches("sleep 71700").count()).then_some(())
    });
    // What is asked now is answered, whatever it is.
    let ran = api.exec_with("s", &json!({"command": "true", "timeout_seconds": 5}));
    assert!(!ran["exit_code"].is_null(), "{ran}");
    api.json(200, "GET /sessions/s/runs", None);
    api.close("s", "?purge=true");
    assert_eq!(status(&api, "/sessions/s"), 404);
    // Of a run in the background it is ended by its id.
    api.open_id("s");
    let path = begin(
        &api,
        "s",
        &json!({"command": format!("{bomb} exec sleep 71701")}),
    );
    let container = api.container("s");
    wait("it has all the processes there may be", SOON, || {
        let top = docker(&["top", &container, "-eo", "pid,args"]);
        (20 < top.matches("sleep 71700").count()).then_some(())
    });
    api.json(204, &format!("POST {path}/stop"), None);
    assert_eq!(ended(&api, &path)["reason"], "stopped");
    wait("nothing of it is left", SOON, || {
        (!runs_in(&container, "sleep 717")).then_some(())
    });
    assert_eq!(api.sh("s", "echo fine"), "fine");
}

#[test]
fn what_cannot_be_run_as_asked_is_told_the_same_of_every_command() {
    let runtime = "bb={{image}};users=any";
    for way in ["agent", "docker"] {
        let (_daemon, api) = start(&[("SANDBOXD_RUNTIMES", runtime), ("SANDBOXD_EXEC", way)]);
        api.open_id("s");
        let run_id = "c".repeat(32);
        let mut calls = vec![
            ("exec", json!({"command": "true"})),
            ("run", json!({"argv": ["true"], "run_id": run_id})),
        ];
        if way == "agent" {
            calls.push(("runs", json!({"command": "true", "run_id": run_id})));
            calls.push(("ttys", json!({})));
        }
        for (route, asked) in &calls {
            let mut asked = asked.clone();
            asked["user"] = json!("nosuchuser");
            let refused = api.json(403, &format!("POST /sessions/s/{route}"), Some(&asked));
            assert_eq!(
                refused["code"], "user_not_possible",
                "{way} {route}: {refused}"
            );
            let words = refused["detail"].as_str().unwrap();
            assert!(words.contains("nosuchuser"), "{way} {route}: {words}");
        }
        if way == "docker" {
            continue;
        }
        let path = begin(&api, "s", &json!({"command": "sleep 71800"}));
        let signal = format!("{path}/signal");
        let sent = api.call("POST", &signal, Some(&json!({"signal": 34})));
        if sent.status != 204 {
            assert_eq!(sent.status, 409, "{}", sent.text());
            assert_eq!(sent.json().unwrap()["code"], "not_possible");
            api.json(204, &format!("POST {path}/stop"), None);
        }
        ended(&api, &path);
        api.json(204, &format!("DELETE {path}"), None);
        // What was refused left no trace, and its id can be used.
        let runs = api.json(200, "GET /sessions/s/runs", None);
        assert_eq!(runs["runs"], json!([]));
        for (asked, code) in [
            (json!({"command": "true", "cwd": "/no/such"}), 126),
            (json!({"argv": ["/no/such"]}), 127),
            (json!({"argv": ["/etc/passwd"]}), 126),
        ] {
            let path = begin(&api, "s", &asked);
            let run = ended(&api, &path);
            assert_eq!(run["reason"], "start_failed", "{run}");
            assert_eq!(run["exit_code"], code, "{run}");
            assert_eq!(run["state"], "exited", "{run}");
        }
    }
}
