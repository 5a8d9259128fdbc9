//! Runs in the background: started once, followed, fed, signalled, and found again.

use std::io::{BufRead as _, BufReader};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::api::{Api, WORKSPACES, settings, wait};
use crate::support::daemon::{Daemon, Ending};
use crate::support::docker::docker;
use crate::support::http::Request;

/// By when what was done to a run is to be seen.
const SEEN: Duration = Duration::from_secs(15);
const SESSION: &str = "a";
const THREE_LINES: &str =
    "for n in 1 2 3; do echo out $n; echo err $n >&2; sleep 0.2; done; exit 4";

/// A daemon with the session `a`.
fn a_session(changes: &[(&str, &str)]) -> (Daemon, Api) {
    let daemon = Daemon::start(&settings(changes));
    let api = Api::of(&daemon);
    api.open_id(SESSION);
    (daemon, api)
}

fn path(run: &Value) -> String {
    let id = run["run_id"].as_str().unwrap();
    format!("/sessions/{SESSION}/runs/{id}")
}

/// Starts a run that must be new.
fn start(api: &Api, asked: &Value) -> Value {
    let call = format!("POST /sessions/{SESSION}/runs");
    let run = api.json(201, &call, Some(asked));
    assert_eq!(run["state"], "running", "{run}");
    run
}

fn sh(api: &Api, command: &str) -> Value {
    start(api, &json!({"command": command}))
}

fn describe(api: &Api, run: &Value) -> Value {
    api.json(200, &format!("GET {}", path(run)), None)
}

fn ended(api: &Api, run: &Value) -> Value {
    wait("the run is over", SEEN, || {
        let run = describe(api, run);
        (run["state"] != "running").then_some(run)
    })
}

fn post(api: &Api, path: &str, body: &[u8]) -> u16 {
    let request = Request {
        method: "POST".to_owned(),
        path: path.to_owned(),
        headers: vec![(
            "content-type".to_owned(),
            "application/octet-stream".to_owned(),
        )],
        body: Some(body.to_vec()),
    };
    api.http().send(&request).unwrap().status
}

fn lines(text: &str) -> Vec<Value> {
    let lines = text.lines().filter(|line| !line.is_empty());
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Reads a run's output, to the end of what the query asks for.
fn output(api: &Api, run: &Value, query: &str) -> Vec<Value> {
    let reply = api.call("GET", &format!("{}/output?{query}", path(run)), None);
    assert_eq!(reply.status, 200, "{}", reply.text());
    lines(&reply.text())
}

/// Joins the data of one stream.
fn data(records: &[Value], stream: &str) -> String {
    let records = records.iter().filter(|one| one["stream"] == stream);
    records
        .map(|one| one["data"].as_str().unwrap())
        .collect::<String>()
}

/// Checks that no record is missing between the first and the last, and that no gap is told.
fn is_whole(records: &[Value]) {
    let seqs: Vec<u64> = records
        .iter()
        .filter_map(|one| one["seq"].as_u64())
        .collect();
    for pair in seqs.windows(2) {
        assert_eq!(pair[0] + 1, pair[1], "{records:?}");
    }
    assert!(records.iter().all(|one| one.get("gap").is_none()));
}

fn events_of_runs(api: &Api) -> Vec<Value> {
    let events = api.events(SESSION);
    let events = events["events"].as_array().unwrap().iter();
    events.filter(|one| one["op"] == "run").cloned().collect()
}

#[test]
fn a_run_is_started_once_under_its_id_and_listed() {
    let (_daemon, api) = a_session(&[]);
    let id = "00112233445566778899aabbccddeeff";
    let asked = json!({"command": "echo once >> traces; sleep 1000", "run_id": id});
    let run = start(&api, &asked);
    assert_eq!(run["run_id"], id);
    let call = format!("POST /sessions/{SESSION}/runs");
    let again = api.json(200, &call, Some(&asked));
    assert_eq!(
        (&again["run_id"], &again["state"]),
        (&run["run_id"], &json!("running"))
    );
    api.json(409, &call, Some(&json!({"command": "true", "run_id": id})));
    let other = sh(&api, "sleep 1000");
    let listed = api.json(200, &format!("GET /sessions/{SESSION}/runs"), None);
    let listed: Vec<&Value> = listed["runs"].as_array().unwrap().iter().collect();
    assert_eq!(listed.len(), 2);
    assert_eq!(listed[0]["run_id"], id);
    assert_eq!(listed[1]["run_id"], other["run_id"]);
    wait("it has begun", SEEN, || {
        (api.exec(SESSION, "cat traces")["output"] == "once\n").then_some(())
    });
    api.json(409, &format!("DELETE {}", path(&run)), None);
    api.json(
        404,
        &format!("GET /sessions/{SESSION}/runs/{}", "f".repeat(32)),
        None,
    );
}

/// Requests with the state, the reason, the code and the line in the log of their end.
type Told = (Value, &'static str, &'static str, Value, &'static str);

fn endings() -> Vec<Told> {
    let row = |asked, state, reason, code, detail| (asked, state, reason, code, detail);
    let (none, sh) = (Value::Null, |command: &str| json!({"command": command}));
    let late = json!({"command": "sleep 1000", "timeout_seconds": 0.3});
    let loud = json!({"command": "yes", "output_limit": 5000});
    let missing = json!({"argv": ["/no/such"]});
    vec![
        row(sh("exit 0"), "exited", "exited", json!(0), "exit 0"),
        row(sh("exit 3"), "exited", "exited", json!(3), "exit 3"),
        row(missing, "exited", "start_failed", json!(127), "exit 127"),
        row(
            sh("kill -SEGV $$"),
            "killed",
            "signal",
            json!(139),
            "signal 11",
        ),
        row(late, "killed", "timeout", none.clone(), "timed out"),
        row(loud, "killed", "output_limit", none, "output limit"),
    ]
}

#[test]
fn every_ending_has_its_reason_and_is_told_once() {
    let (_daemon, api) = a_session(&[]);
    let table = endings();
    for (asked, state, reason, code, detail) in &table {
        let call = format!("POST /sessions/{SESSION}/runs");
        let run = api.json(201, &call, Some(asked));
        let run = ended(&api, &run);
        assert_eq!(run["state"], *state, "{run}");
        assert_eq!(run["reason"], *reason, "{run}");
        assert_eq!(run["exit_code"], *code, "{run}");
        let told = wait("its end is told", SEEN, || events_of_runs(&api).pop());
        assert_eq!(told["detail"], *detail, "{told}");
    }
    let stopped = sh(&api, "sleep 1000");
    assert!((200..300).contains(&post(&api, &format!("{}/stop", path(&stopped)), b"")));
    assert_eq!(ended(&api, &stopped)["reason"], "stopped");
    let signalled = sh(&api, "sleep 1000");
    let signal = format!("POST {}/signal", path(&signalled));
    let reply = api.call(
        "POST",
        &format!("{}/signal", path(&signalled)),
        Some(&json!({"signal": "INT"})),
    );
    assert!((200..300).contains(&reply.status), "{}", reply.text());
    let run = ended(&api, &signalled);
    assert_eq!(
        (&run["reason"], &run["signal"]),
        (&json!("signal"), &json!(2))
    );
    api.json(409, &signal, Some(&json!({"signal": "INT"})));
    let events = wait("all are told", SEEN, || {
        let events = events_of_runs(&api);
        (table.len() + 2 <= events.len()).then_some(events)
    });
    assert_eq!(events.len(), table.len() + 2, "{events:?}");
    // What is over can be forgotten, and is gone then.
    api.json(204, &format!("DELETE {}", path(&run)), None);
    api.json(404, &format!("GET {}", path(&run)), None);
}

#[test]
fn a_follower_reads_from_its_own_place_to_the_end() {
    let (_daemon, api) = a_session(&[]);
    let run = sh(&api, THREE_LINES);
    let all = output(&api, &run, "follow=true");
    is_whole(&all);
    assert_eq!(data(&all, "stdout"), "out 1\nout 2\nout 3\n");
    assert_eq!(data(&all, "stderr"), "err 1\nerr 2\nerr 3\n");
    let end = &all.last().unwrap()["end"];
    assert_eq!(
        (&end["state"], &end["exit_code"]),
        (&json!("exited"), &json!(4))
    );
    let (from, rest) = (&all[2]["seq"], &all[2..]);
    let again = output(&api, &run, &format!("from={from}"));
    assert_eq!(again, rest, "what was read can be read again");
    // Whoever looks at it later is told that its output is there.
    assert_eq!(end["first_seq"], 0, "{end}");
    assert_eq!(&describe(&api, &run), end);
    let listed = api.json(200, &format!("GET /sessions/{SESSION}/runs"), None);
    assert_eq!(&listed["runs"][0], end);
    let call = format!("POST /sessions/{SESSION}/runs");
    let repeated = api.json(
        200,
        &call,
        Some(&json!({"command": THREE_LINES, "run_id": run["run_id"]})),
    );
    assert_eq!(&repeated, end);
    let errors = output(&api, &run, "stream=stderr");
    assert_eq!(data(&errors, "stderr"), "err 1\nerr 2\nerr 3\n");
    assert_eq!(data(&errors, "stdout"), "");
}

#[test]
fn a_run_reads_what_it_is_sent_until_its_input_is_closed() {
    let (_daemon, api) = a_session(&[]);
    let run = start(&api, &json!({"argv": ["cat"], "stdin": true}));
    let stdin = format!("{}/stdin", path(&run));
    for word in ["one ", "two "] {
        assert!((200..300).contains(&post(&api, &stdin, word.as_bytes())));
    }
    let close = format!("{stdin}?close=true");
    assert!((200..300).contains(&post(&api, &close, b"three")));
    let all = output(&api, &run, "follow=true");
    assert_eq!(data(&all, "stdout"), "one two three");
    assert_eq!(all.last().unwrap()["end"]["exit_code"], 0);
    assert_eq!(post(&api, &stdin, b"late"), 409);
    // Text that comes with the request, also more than goes along with a start.
    let text = "0123456789abcdef".repeat(20_000);
    let run = start(&api, &json!({"argv": ["wc", "-c"], "stdin": text}));
    let all = output(&api, &run, "follow=true");
    assert_eq!(data(&all, "stdout").trim(), text.len().to_string());
}

#[test]
fn a_follower_that_leaves_stops_nothing() {
    let (_daemon, api) = a_session(&[]);
    let run = sh(&api, "while :; do date; sleep 0.1; done");
    let request = Request {
        method: "GET".to_owned(),
        path: format!("{}/output?follow=true", path(&run)),
        ..Request::default()
    };
    let mut follower = BufReader::new(api.http().begin(&request).unwrap());
    let mut line = String::new();
    while !line.contains("\"seq\"") {
        line.clear();
        assert_ne!(follower.read_line(&mut line).unwrap(), 0);
    }
    drop(follower);
    let before = describe(&api, &run)["next_seq"].as_u64().unwrap();
    wait("it goes on", SEEN, || {
        let now = describe(&api, &run);
        assert_eq!(now["state"], "running");
        (before + 2 < now["next_seq"].as_u64().unwrap()).then_some(())
    });
}

fn a_run_outlives_the_daemon(ending: Ending) {
    let (mut daemon, api) = a_session(&[WORKSPACES]);
    let run = sh(
        &api,
        "n=0; while [ ! -e stop ]; do n=$((n+1)); echo $n; sleep 0.02; done; exit 7",
    );
    let short = sh(&api, "sleep 1; exit 5");
    wait("it has written", SEEN, || {
        (3 < describe(&api, &run)["next_seq"].as_u64().unwrap()).then_some(())
    });
    daemon.stop(ending);
    // Long enough for the other one to end while nobody looks.
    thread::sleep(Duration::from_millis(1_500));
    daemon.start_again();
    let again = api.json(
        200,
        &format!("POST /sessions/{SESSION}/runs"),
        Some(&json!({
            "command": "n=0; while [ ! -e stop ]; do n=$((n+1)); echo $n; sleep 0.02; done; exit 7",
            "run_id": run["run_id"],
        })),
    );
    assert_eq!(again["state"], "running");
    assert_eq!(again["started_at"], run["started_at"]);
    let missed = ended(&api, &short);
    assert_eq!(
        (&missed["reason"], &missed["exit_code"]),
        (&json!("exited"), &json!(5))
    );
    api.sh(SESSION, "touch stop");
    let all = output(&api, &run, "from=0&follow=true");
    is_whole(&all);
    let counted: Vec<u64> = data(&all, "stdout")
        .lines()
        .map(|line| line.parse().unwrap())
        .collect();
    let expected: Vec<u64> = (1..=u64::try_from(counted.len()).unwrap()).collect();
    assert_eq!(counted, expected);
    assert_eq!(all.last().unwrap()["end"]["exit_code"], 7);
    let events = wait("both ends are told", SEEN, || {
        let events = events_of_runs(&api);
        (2 <= events.len()).then_some(events)
    });
    assert_eq!(events.len(), 2, "{events:?}");
}

#[test]
fn a_run_outlives_an_orderly_end_of_the_daemon_and_no_output_is_missing() {
    a_run_outlives_the_daemon(Ending::Terminate);
}

#[test]
fn a_run_outlives_a_kill_of_the_daemon_and_no_output_is_missing() {
    a_run_outlives_the_daemon(Ending::Kill);
}

#[test]
fn a_run_that_was_lost_with_its_container_says_so_and_is_never_given_an_ending() {
    let (_daemon, api) = a_session(&[WORKSPACES]);
    let run = sh(&api, "sleep 1000");
    docker(&["kill", &api.container(SESSION)]);
    let call = format!("GET {}", path(&run));
    wait("it is lost", SEEN, || {
        let (method, path) = call.split_once(' ').unwrap();
        let reply = api.call(method, path, None);
        (reply.status == 410).then(|| assert!(reply.text().contains("container_lost")))
    });
    let events = wait("it is told", SEEN, || {
        let events = events_of_runs(&api);
        (!events.is_empty()).then_some(events)
    });
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(
        (&events[0]["detail"], &events[0]["ok"]),
        (&json!("sandbox gone"), &json!(false))
    );
    let listed = api.json(200, &format!("GET /sessions/{SESSION}/runs"), None);
    assert_eq!(listed["runs"][0]["state"], "lost");
    assert_eq!(listed["runs"][0]["exit_code"], Value::Null);
    // Looking has woken nothing, and another life of the sandbox changes nothing.
    assert_eq!(api.info(SESSION)["phase"], "hibernated");
    api.sh(SESSION, "true");
    api.json(410, &call, None);
    let request = json!({"command": "sleep 1000", "run_id": run["run_id"]});
    api.json(
        410,
        &format!("POST /sessions/{SESSION}/runs"),
        Some(&request),
    );
    api.json(204, &format!("DELETE {}", path(&run)), None);
    api.json(404, &call, None);
}

#[test]
fn a_run_that_nobody_may_start_leaves_no_trace() {
    let (_daemon, api) = a_session(&[("SANDBOXD_MAX_SESSION_COMMANDS", "1")]);
    let call = format!("POST /sessions/{SESSION}/runs");
    let user = json!({"command": "true", "user": "root"});
    assert!(
        (400..500).contains(
            &api.call("POST", &format!("/sessions/{SESSION}/runs"), Some(&user))
                .status
        )
    );
    let first = sh(&api, "sleep 1000");
    api.json(429, &call, Some(&json!({"command": "true"})));
    let listed = api.json(200, &format!("GET /sessions/{SESSION}/runs"), None);
    assert_eq!(listed["runs"].as_array().unwrap().len(), 1);
    post(&api, &format!("{}/stop", path(&first)), b"");
    ended(&api, &first);
    wait("its place is free", SEEN, || {
        let reply = api.call(
            "POST",
            &format!("/sessions/{SESSION}/runs"),
            Some(&json!({"command": "true"})),
        );
        (reply.status == 201).then_some(())
    });
}
