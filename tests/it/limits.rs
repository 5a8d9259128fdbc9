//! What becomes of the service when descriptors, memory or places for commands run out.

use std::fs::{self, OpenOptions};
use std::io::{BufReader, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::json;

use crate::support::api::{Api, WORKSPACES, at_once, settings, wait};
use crate::support::daemon::{Daemon, Ending};
use crate::support::docker::docker;
use crate::support::http::{Response, read_response};
use crate::support::weight::{MemoryCeiling, Weight};
use crate::support::whole;

/// By when everything is as before once a load is gone.
const RECOVERED: Duration = Duration::from_secs(30);
/// What needs no engine answers within this, whatever else goes on.
const PROMPT: Duration = Duration::from_secs(3);
/// How long the use of the processor is watched.
const WATCHED: Duration = Duration::from_secs(2);
/// Descriptors that may come and go by themselves: looks at the engine.
const DESCRIPTORS_SPREAD: usize = 6;

fn weight(daemon: &Daemon) -> Weight {
    Weight(daemon.pid())
}

/// Opens a connection on which nothing is asked.
fn idle(daemon: &Daemon) -> TcpStream {
    let address = daemon.url();
    TcpStream::connect(address.trim_start_matches("http://")).unwrap()
}

/// Waits until no more descriptors are open than `before`, but for a look at the engine.
fn wait_for_descriptors(daemon: &Daemon, before: usize) {
    wait("the descriptors are closed", RECOVERED, || {
        (weight(daemon).descriptors() <= before + DESCRIPTORS_SPREAD).then_some(())
    });
}

/// Checks that a reply sheds load with a reason, by this code.
#[track_caller]
fn assert_shed(reply: &Response, status: u16, code: &str, ceiling: &str) {
    assert_eq!(reply.status, status, "{}", reply.text());
    let body = reply.json().unwrap();
    assert_eq!(body["code"], code, "{body}");
    assert_eq!(body["ceiling"]["name"], ceiling, "{body}");
    assert_eq!(body["retryable"], true, "{body}");
    assert!(reply.header("retry-after").is_some(), "{body}");
}

/// The processor is not used up by a service that can do nothing.
#[track_caller]
fn assert_at_rest(daemon: &Daemon) {
    let before = weight(daemon).processor_time();
    thread::sleep(WATCHED);
    let used = weight(daemon).processor_time().saturating_sub(before);
    assert!(used < WATCHED / 4, "{used:?} of {WATCHED:?}");
}

/// Waits until the service is well and runs commands, and checks that it is the same one.
fn assert_recovers(daemon: &Daemon, api: &Api, pid: u32) {
    wait("the service is well", RECOVERED, || {
        let health = daemon.http().get("/healthz").ok()?.json()?;
        (health["status"] == "ok").then_some(())
    });
    assert_eq!(daemon.pid(), pid);
    assert_eq!(api.sh("s", "cat kept"), "kept");
    api.open_id("later");
    assert_eq!(api.sh("later", "echo hi"), "hi");
    api.close("later", "?purge=true");
}

#[test]
fn a_daemon_with_few_descriptors_warns_sheds_load_with_a_reason_and_recovers() {
    let mut daemon = Daemon::start_under(&settings(&[WORKSPACES]), "ulimit -n 128");
    let api = Api::of(&daemon);
    let log = fs::read_to_string(daemon.log_path()).unwrap();
    let warning = log.lines().find(|line| line.contains("open files"));
    let warning = warning.expect("the limit is warned about");
    for part in [
        "WARN",
        "limit=128",
        "needed=1884",
        "LimitNOFILE=",
        "ulimit -n",
        "SANDBOXD_MAX_CONNECTIONS",
    ] {
        assert!(warning.contains(part), "{part}: {warning}");
    }
    api.open_id("s");
    api.sh("s", "echo kept >kept");
    let (pid, before) = (daemon.pid(), weight(&daemon).descriptors());

    let held: Vec<TcpStream> = (0..60).map(|_| idle(&daemon)).collect();
    // Sixteen have a place; the others were told that they have none.
    let replies = held.iter().skip(16).map(|stream| {
        stream.set_read_timeout(Some(RECOVERED)).unwrap();
        read_response(&mut BufReader::new(stream)).unwrap()
    });
    for reply in replies {
        assert_shed(&reply, 503, "connection_ceiling", "max_connections");
    }
    assert!(weight(&daemon).descriptors() < 128);
    let asked = json!({"command": "echo hi"});
    for reply in at_once(40, |_| api.call("POST", "/sessions/s/exec", Some(&asked))) {
        assert_shed(&reply, 503, "connection_ceiling", "max_connections");
    }
    assert_at_rest(&daemon);
    drop(held);

    // Commands alone: as many as there are connections, and each is run or shed.
    let outcome = wait("a place is free", RECOVERED, || {
        let replies = at_once(60, |_| {
            api.call(
                "POST",
                "/sessions/s/exec",
                Some(&json!({"command": "sleep 3; echo hi"})),
            )
        });
        let (ran, shed): (Vec<_>, Vec<_>) =
            replies.into_iter().partition(|reply| reply.status == 200);
        (!ran.is_empty()).then_some((ran, shed))
    });
    for reply in &outcome.0 {
        let body = reply.json().unwrap();
        assert_eq!(
            (&body["output"], &body["exit_code"]),
            (&json!("hi\n"), &json!(0)),
            "{body}"
        );
    }
    assert!(!outcome.1.is_empty(), "sixty do not fit");
    for reply in &outcome.1 {
        assert_shed(reply, 503, "connection_ceiling", "max_connections");
    }
    assert_recovers(&daemon, &api, pid);
    wait_for_descriptors(&daemon, before);
    daemon.restart(Ending::Kill);
    assert_eq!(api.sh("s", "cat kept"), "kept");
}

#[test]
fn descriptors_that_run_out_under_way_cost_no_session_and_no_processor_time() {
    let mut daemon = Daemon::start(&settings(&[WORKSPACES]));
    let api = Api::of(&daemon);
    api.open_id("s");
    api.sh("s", "echo kept >kept");
    let (pid, before) = (daemon.pid(), weight(&daemon).descriptors());
    let process = Pid::from_raw(i32::try_from(pid).unwrap());
    let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
    let few = Rlimit {
        current: Some(u64::try_from(before).unwrap() + 2),
        maximum,
    };
    let normal = prlimit(process, Resource::Nofile, few).unwrap();

    let held: Vec<TcpStream> = (0..20).map(|_| idle(&daemon)).collect();
    let asked = json!({"command": "echo hi"});
    thread::scope(|scope| {
        let calls: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| api.call("POST", "/sessions/s/exec", Some(&asked))))
            .collect();
        let opening =
            scope.spawn(|| api.call("POST", "/sessions", Some(&json!({"session_id": "new"}))));
        assert_at_rest(&daemon);
        prlimit(process, Resource::Nofile, normal).unwrap();
        drop(held);
        for call in calls {
            let reply = call.join().unwrap();
            assert!(matches!(reply.status, 200 | 503), "{}", reply.text());
        }
        let opened = opening.join().unwrap();
        assert!(matches!(opened.status, 200 | 503), "{}", opened.text());
    });
    assert_recovers(&daemon, &api, pid);
    wait_for_descriptors(&daemon, before);
    daemon.restart(Ending::Kill);
    assert_eq!(api.sh("s", "cat kept"), "kept");
}

#[test]
fn a_crowd_of_commands_past_their_deadline_is_dead_although_descriptors_are_few() {
    let children = if whole() { 24 } else { 16 };
    let daemon = Daemon::start_under(&settings(&[]), "ulimit -n 128");
    let api = Api::of(&daemon);
    api.open_id("s");
    let container = api.container("s");
    let asked = json!({
        "command": format!(
            "trap '' TERM; for n in $(seq {children}); do setsid sleep 81001 & done; sleep 81001"
        ),
        "timeout_seconds": 5,
    });
    // As many as there are connections for; each has more processes than there are
    // descriptors left.
    let replies = at_once(16, |_| api.call("POST", "/sessions/s/exec", Some(&asked)));
    for reply in replies {
        assert_eq!(
            reply.json().unwrap()["reason"],
            "timeout",
            "{}",
            reply.text()
        );
    }
    wait("no process is left", RECOVERED, || {
        let left = docker(&["exec", &container, "ps", "-o", "args"]);
        (!left.contains("81001")).then_some(())
    });
}

/// Asks for a command of so many bytes, with the body in pieces, and reads the reply
/// although the service may not have read all of it; none where it gave up reading.
fn large_command(daemon: &Daemon, bytes: usize) -> Option<Response> {
    const PIECE: &[u8] = &[b'x'; 64 << 10];
    let frame = br#"{"command":""}"#;
    let head = format!(
        "POST /sessions/s/exec HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-sandbox-token: {}\r\ncontent-length: {}\r\n\r\n",
        daemon.token(),
        bytes + frame.len()
    );
    let mut stream = idle(daemon);
    stream
        .set_read_timeout(Some(Duration::from_secs(90)))
        .unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&frame[..frame.len() - 2]).unwrap();
    let mut left = bytes;
    while 0 < left {
        let piece = &PIECE[..left.min(PIECE.len())];
        if stream.write_all(piece).is_err() {
            break;
        }
        left -= piece.len();
    }
    if left == 0 {
        stream.write_all(&frame[frame.len() - 2..]).ok()?;
    }
    read_response(&mut BufReader::new(stream)).ok()
}

#[test]
fn bodies_and_output_without_end_fit_into_96_mib() {
    const LARGEST: usize = (16 << 20) - 14;
    let (bodies, endless) = if whole() { (64, 32) } else { (24, 16) };
    let ceiling = MemoryCeiling::new(96 << 20);
    let changes = [WORKSPACES, ("SANDBOXD_MAX_BODY_BYTES", "16777216")];
    let daemon = Daemon::start_under(&settings(&changes), &ceiling.enter());
    let api = Api::of(&daemon);
    api.open_id("s");
    api.sh("s", "echo kept >kept");
    let (pid, before) = (daemon.pid(), weight(&daemon).resident_kib());

    let yes = json!({"command": "yes", "timeout_seconds": 10});
    thread::scope(|scope| {
        let printing = scope.spawn(|| at_once(endless, |_| api.exec_with("s", &yes)));
        let replies = at_once(bodies, |_| large_command(&daemon, LARGEST));
        let (read, shed): (Vec<_>, Vec<_>) = replies
            .into_iter()
            .flatten()
            .partition(|reply| reply.status == 200);
        assert!(!read.is_empty(), "one fits");
        for reply in &read {
            assert_eq!(reply.json().unwrap()["reason"], "start_failed");
        }
        assert!(!shed.is_empty(), "not all fit");
        for reply in &shed {
            assert_shed(reply, 503, "body_ceiling", "max_body_bytes");
        }
        // Small bodies go past the large ones.
        let ran = printing.join().unwrap();
        assert!(ran.iter().all(|ran| ran["reason"] == "timeout"), "{ran:?}");
        assert!(ran.iter().any(|ran| ran["truncated"] == true), "{ran:?}");
    });
    let peak = weight(&daemon).resident_kib_peak();
    assert_eq!(ceiling.kills(), 0, "peak {peak} KiB");
    assert_recovers(&daemon, &api, pid);
    // Eight times over, so that a body which stayed would be seen.
    for _ in 0..8 {
        let reply = large_command(&daemon, LARGEST).unwrap();
        assert_eq!(reply.status, 200);
    }
    let after = weight(&daemon).resident_kib();
    eprintln!("resident: {before} KiB before, {peak} at most, {after} after");
    assert!(
        after < before + (16 << 10),
        "{before} KiB before, {after} after"
    );
}

/// Calls what needs no engine until it is told to stop; returns how long the slowest took.
fn slowest_look(api: &Api, is_over: &AtomicBool) -> Duration {
    let mut slowest = Duration::ZERO;
    while !is_over.load(Ordering::Relaxed) {
        for call in ["GET /healthz", "GET /sessions", "GET /sessions/s0"] {
            let began = Instant::now();
            api.json(200, call, None);
            slowest = slowest.max(began.elapsed());
        }
    }
    slowest
}

/// Sends many commands at once, each of which has to be shed, and meanwhile looks and stops
/// a session.
fn rush(api: &Api, count: usize, ceiling: usize) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watching = scope.spawn(|| slowest_look(api, &is_over));
        let closing = scope.spawn(|| {
            let began = Instant::now();
            api.close("bystander", "");
            began.elapsed()
        });
        let asked = json!({"command": "echo never"});
        let replies = at_once(count, |n| {
            api.call("POST", &format!("/sessions/s{}/exec", n % 4), Some(&asked))
        });
        is_over.store(true, Ordering::Relaxed);
        for reply in &replies {
            assert_shed(reply, 429, "command_ceiling", "max_running_commands");
            assert_eq!(reply.json().unwrap()["ceiling"]["limit"], ceiling);
        }
        let (slowest, closed) = (watching.join().unwrap(), closing.join().unwrap());
        eprintln!("slowest look {slowest:?}, close {closed:?}");
        assert!(slowest < PROMPT, "{slowest:?}");
        assert!(closed < RECOVERED, "{closed:?}");
    });
}

/// Opens four sessions, each with a pipe that its commands wait at.
fn gates(daemon: &Daemon, api: &Api) -> Vec<fs::File> {
    let gate = |n: usize| {
        let id = format!("s{n}");
        api.open_id(&id);
        api.sh(&id, "mkfifo gate");
        let gate = daemon.dir().join(format!("ws/{id}/workspace/gate"));
        // For both, so that neither side waits for the other to open it.
        let mut both = OpenOptions::new();
        both.read(true).write(true).open(gate).unwrap()
    };
    (0..4).map(gate).collect()
}

#[test]
fn a_rush_beyond_the_ceiling_of_commands_is_shed_and_starves_nobody() {
    let (ceiling, count) = if whole() { (256, 1000) } else { (32, 150) };
    let per_session = ceiling / 4;
    let changes = [
        WORKSPACES,
        ("SANDBOXD_MAX_RUNNING_COMMANDS", &ceiling.to_string()),
        ("SANDBOXD_MAX_CONNECTIONS", "2048"),
    ];
    let daemon = Daemon::start(&settings(&changes));
    let api = Api::of(&daemon);
    let gates = gates(&daemon, &api);
    api.open_id("bystander");
    let process = weight(&daemon);
    let (descriptors, threads) = (process.descriptors(), process.threads());
    let resident = process.resident_kib();
    thread::scope(|scope| {
        let api = &api;
        let held: Vec<_> = (0..ceiling)
            .map(|n| {
                let command = format!("touch began.{n}; read line <gate; echo {n}");
                scope.spawn(move || api.sh(&format!("s{}", n / per_session), &command))
            })
            .collect();
        wait("every command has begun", RECOVERED, || {
            let begun = (0..4).map(|n| {
                let dir = daemon.dir().join(format!("ws/s{n}/workspace"));
                fs::read_dir(dir).unwrap().count() - 1
            });
            (begun.sum::<usize>() == ceiling).then_some(())
        });
        rush(api, count, ceiling);
        for mut gate in &gates {
            gate.write_all(&vec![b'\n'; per_session]).unwrap();
        }
        for (n, held) in held.into_iter().enumerate() {
            assert_eq!(held.join().unwrap(), n.to_string());
        }
    });
    assert_eq!(daemon.pid(), process.0);
    assert_eq!(api.sh("s0", "echo hi"), "hi");
    wait_for_descriptors(&daemon, descriptors);
    wait("the threads have ended", RECOVERED, || {
        (process.threads() <= threads + 4).then_some(())
    });
    let after = process.resident_kib();
    eprintln!("resident: {resident} KiB before, {after} after");
    assert!(
        after < resident + (24 << 10),
        "{resident} KiB before, {after} after"
    );
}
