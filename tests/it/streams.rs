//! Streams to agents that break while the agents live: they are made again, and nothing is
//! lost or done twice.

use std::io::{BufRead as _, BufReader, Read as _};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::api::{Api, settings, wait};
use crate::support::daemon::Daemon;
use crate::support::docker::docker;
use crate::support::http::Request;
use crate::support::streams::break_streams;
use crate::support::terminal::Seat;

const SOON: Duration = Duration::from_secs(15);
/// A command whose agent does not come back is given up within this.
const LOST_WITHIN: Duration = Duration::from_secs(18);

fn start() -> (Daemon, Api) {
    let daemon = Daemon::start(&settings(&[]));
    let api = Api::of(&daemon);
    api.open_id("s");
    // From here on its agent is there.
    assert_eq!(api.sh("s", "cat /proc/1/comm"), "sandbox-agent");
    (daemon, api)
}

/// Does something while the streams break again and again; returns how many did.
fn while_streams_break<T: Send>(daemon: &Daemon, act: impl FnOnce() -> T + Send) -> (T, usize) {
    thread::scope(|scope| {
        let acting = scope.spawn(act);
        let mut broken = 0;
        while !acting.is_finished() {
            thread::sleep(Duration::from_millis(150));
            broken += break_streams(daemon);
        }
        (acting.join().unwrap(), broken)
    })
}

fn counted(most: u32) -> String {
    (1..=most).map(|n| n.to_string() + "\n").collect()
}

/// Prints the numbers from 1 to 100,000 in 50 pieces.
const LONG: &str = "echo begun >> traces; n=0; while [ $n -lt 50 ]; do \
                    seq $((n * 2000 + 1)) $((n * 2000 + 2000)); n=$((n + 1)); sleep 0.04; done";

#[test]
fn a_command_whose_stream_breaks_runs_once_and_its_output_is_whole() {
    let (daemon, api) = start();
    let command = "echo begun >> traces; for n in $(seq 60); do echo $n; sleep 0.04; done; exit 3";
    let (ran, broken) = while_streams_break(&daemon, || api.exec("s", command));
    assert!(1 < broken, "{broken}");
    assert_eq!(ran["exit_code"], 3, "{ran}");
    assert_eq!(ran["output"], counted(60));
    assert_eq!(api.sh("s", "cat traces"), "begun");
}

#[test]
fn a_run_of_much_output_whose_stream_breaks_runs_once_and_its_output_is_whole() {
    let (daemon, api) = start();
    let asked = json!({"argv": ["sh", "-c", LONG], "run_id": "7".repeat(32)});
    let (ran, broken) = while_streams_break(&daemon, || {
        api.json(200, "POST /sessions/s/run", Some(&asked))
    });
    assert!(1 < broken, "{broken}");
    assert_eq!(ran["exit_code"], 0, "{}", ran["stderr"]);
    assert!(
        ran["stdout"] == counted(100_000),
        "it is not what was written"
    );
    assert_eq!(api.sh("s", "cat traces"), "begun");
}

#[test]
fn a_follower_whose_stream_breaks_misses_nothing_and_reads_nothing_twice() {
    let (daemon, api) = start();
    let asked = json!({"command": LONG, "overflow": "wait"});
    let run = api.json(201, "POST /sessions/s/runs", Some(&asked));
    let path = format!(
        "/sessions/s/runs/{}/output?follow=true",
        run["run_id"].as_str().unwrap()
    );
    let bytes = Request {
        method: "GET".to_owned(),
        path: path.clone(),
        headers: vec![("accept".to_owned(), "application/octet-stream".to_owned())],
        body: None,
    };
    let ((records, bytes), broken) = while_streams_break(&daemon, || {
        thread::scope(|scope| {
            let raw = scope.spawn(|| api.http().send(&bytes).unwrap());
            let records = api.call("GET", &path, None).text();
            (records, raw.join().unwrap())
        })
    });
    assert!(1 < broken, "{broken}");
    assert!(
        bytes.text() == counted(100_000),
        "the bytes are not what was written"
    );
    let records: Vec<Value> = records
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let (end, records) = records.split_last().unwrap();
    assert_eq!(end["end"]["exit_code"], 0, "{end}");
    for (n, record) in records.iter().enumerate() {
        assert_eq!(record["seq"], n, "{record}");
    }
    let text: String = records
        .iter()
        .map(|one| one["data"].as_str().unwrap())
        .collect();
    assert!(
        text == counted(100_000),
        "the records are not what was written"
    );
    assert_eq!(api.sh("s", "cat traces"), "begun");
}

#[test]
fn a_terminal_whose_stream_breaks_goes_on_where_it_was() {
    let (daemon, api) = start();
    let asked = json!({"cols": 80, "rows": 40});
    let tty = api.json(200, "POST /sessions/s/ttys", Some(&asked));
    let tty = tty["tty_id"].as_str().unwrap();
    let mut seat = Seat::at(&daemon, "s", tty, "");
    seat.hears_writer(true);
    seat.types("PS1=; stty -echo; clear\n");
    seat.until("an empty screen", |seat| seat.sees().trim().is_empty());
    for n in 1..=8 {
        seat.types(&format!("echo line-{n}\n"));
        seat.until_sees(&format!("line-{n}"));
        assert_eq!(break_streams(&daemon), 1);
        // What is typed into a breaking stream may be lost; nobody can tell.
        wait("the stream is made again", SOON, || {
            let list = api.json(200, "GET /sessions/s/runs", None);
            let has = list["runs"][0]["next_seq"].as_u64()?;
            (0 < has).then_some(())
        });
        thread::sleep(Duration::from_millis(300));
    }
    let expected: String = (1..=8)
        .map(|n| ["line-", &n.to_string(), "\n"].concat())
        .collect();
    assert!(seat.sees().contains(expected.trim()), "{}", seat.sees());
    seat.types("exit 5\n");
    assert_eq!(
        seat.hears(),
        json!({"type": "exit", "exit_code": 5, "reason": "exited"})
    );
}

/// A container whose first process stands still, until this is dropped.
struct Frozen(String);

impl Frozen {
    fn new(container: String) -> Self {
        docker(&["kill", "--signal", "STOP", &container]);
        Self(container)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        docker(&["kill", "--signal", "CONT", &self.0]);
    }
}

#[test]
fn an_agent_that_does_not_come_back_is_said_to_be_lost_and_no_ending_is_made_up() {
    let (daemon, api) = start();
    let container = api.container("s");
    let tty = api.json(200, "POST /sessions/s/ttys", Some(&json!({})));
    let mut seat = Seat::at(&daemon, "s", tty["tty_id"].as_str().unwrap(), "");
    seat.hears_writer(true);
    let asked = json!({"command": "while :; do echo on; sleep 0.1; done"});
    let run = api.json(201, "POST /sessions/s/runs", Some(&asked));
    let path = format!("/sessions/s/runs/{}", run["run_id"].as_str().unwrap());
    let asked = json!({
        "argv": ["sh", "-c", "echo begun; sleep 71300"],
        "run_id": "8".repeat(32),
    });
    let frozen = thread::scope(|scope| {
        let exec = scope.spawn(|| {
            let ran = api.exec("s", "echo begun; sleep 71301");
            (ran, Instant::now())
        });
        let ran = scope.spawn(|| {
            let reply = api.call("POST", "/sessions/s/run", Some(&asked));
            (reply.status, reply.json().unwrap())
        });
        wait("both run", SOON, || {
            let all = docker(&["top", &container, "-eo", "pid,args"]);
            (all.contains("sleep 71300") && all.contains("sleep 71301")).then_some(())
        });
        let frozen = Frozen::new(container.clone());
        let began = Instant::now();
        assert_eq!(break_streams(&daemon), 1);
        let (exec, at) = exec.join().unwrap();
        let took = at.duration_since(began);
        assert!(took < LOST_WITHIN, "{took:?}");
        assert_eq!(exec["exit_code"], Value::Null, "{exec}");
        assert_eq!(exec["reason"], "agent_lost", "{exec}");
        assert_eq!(exec["output"], "begun\n", "{exec}");
        // Its sandbox goes on, so what it wrote by then is shown.
        let (status, body) = ran.join().unwrap();
        assert_eq!(status, 200, "{body}");
        assert_eq!(body["exit_code"], Value::Null, "{body}");
        assert_eq!(body["reason"], "agent_lost", "{body}");
        assert_eq!(body["stdout"], "begun\n", "{body}");
        assert_eq!(
            seat.hears(),
            json!({"type": "exit", "exit_code": null, "reason": "agent_lost"})
        );
        frozen
    });
    // Nobody has seen it end.
    let seen = api.json(200, &format!("GET {path}"), None);
    assert_eq!(seen["state"], "running", "{seen}");
    drop(frozen);
    wait("it is seen again", SOON, || {
        let reply = api.call("GET", &format!("{path}/output"), None);
        (reply.status == 200).then_some(())
    });
    let first = api.json(200, &format!("GET {path}"), None);
    wait("it goes on", SOON, || {
        let now = api.json(200, &format!("GET {path}"), None);
        (first["next_seq"].as_u64() < now["next_seq"].as_u64()).then_some(())
    });
    // What nobody waits for any more was ended.
    let all = docker(&["top", &container, "-eo", "pid,args"]);
    assert!(!all.contains("sleep 7130"), "{all}");
}

#[test]
fn a_follower_waits_for_a_stream_that_is_away_and_then_goes_on() {
    let (daemon, api) = start();
    let container = api.container("s");
    let asked = json!({"command": "for n in $(seq 30); do echo $n; sleep 0.1; done"});
    let run = api.json(201, "POST /sessions/s/runs", Some(&asked));
    let request = Request {
        method: "GET".to_owned(),
        path: format!(
            "/sessions/s/runs/{}/output?follow=true",
            run["run_id"].as_str().unwrap()
        ),
        ..Request::default()
    };
    let mut follower = BufReader::new(api.http().begin(&request).unwrap());
    let mut line = String::new();
    while !line.contains("\"seq\"") {
        line.clear();
        assert_ne!(follower.read_line(&mut line).unwrap(), 0);
    }
    let frozen = Frozen::new(container);
    assert_eq!(break_streams(&daemon), 1);
    thread::sleep(Duration::from_secs(4));
    drop(frozen);
    let mut rest = String::new();
    follower.read_to_string(&mut rest).unwrap();
    let all = format!("{line}{rest}");
    let text: String = all
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|one| Some(one.get("data")?.as_str()?.to_owned()))
        .collect();
    assert_eq!(text, counted(30));
    assert!(all.contains("\"end\""), "{all}");
}
