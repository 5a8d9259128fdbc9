//! Faults that were reported of services like this one, each as what holds here.
//!
//! `docs/reported-faults.md` lists them with the tests that hold them, of which these are
//! the ones that belong to no other file.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::api::{Api, WORKSPACES, at_once, settings, wait};
use crate::support::daemon::{Daemon, Ending};
use crate::support::docker::docker;
use crate::support::weight::Weight;
use crate::support::whole;

const SOON: Duration = Duration::from_secs(20);

fn start(changes: &[(&str, &str)]) -> (Daemon, Api) {
    let daemon = Daemon::start(&settings(&[&[WORKSPACES], changes].concat()));
    let api = Api::of(&daemon);
    (daemon, api)
}

/// Runs so many commands in a session, a few at a time.
fn run_many(api: &Api, id: &str, count: usize) {
    const AT_ONCE: usize = 8;
    for turn in 0..count / AT_ONCE {
        at_once(AT_ONCE, |n| api.sh(id, &format!(": {turn} {n}")));
    }
}

#[test]
fn the_log_of_many_commands_survives_a_kill_and_is_paged_without_a_gap() {
    let count = if whole() { 1_000 } else { 80 };
    let (mut daemon, api) = start(&[]);
    api.open_id("s");
    run_many(&api, "s", count);
    daemon.restart(Ending::Kill);
    let mut seqs: Vec<u64> = Vec::new();
    loop {
        let after = seqs.last().copied().unwrap_or(0);
        let call = format!("GET /sessions/s/events?after={after}&limit=33");
        let page = api.json(200, &call, None);
        assert_eq!(page["first_seq"], 1);
        let events = page["events"].as_array().unwrap();
        if events.is_empty() {
            break;
        }
        seqs.extend(events.iter().map(|event| event["seq"].as_u64().unwrap()));
    }
    let all: Vec<u64> = (1..=u64::try_from(count).unwrap()).collect();
    assert_eq!(seqs, all);
}

#[test]
fn descriptors_and_memory_stay_level_over_many_commands() {
    let count = if whole() { 5_000 } else { 160 };
    let (daemon, api) = start(&[]);
    api.open_id("s");
    run_many(&api, "s", 40);
    let process = Weight(daemon.pid());
    let (descriptors, resident) = (process.descriptors(), process.resident_kib());
    run_many(&api, "s", count);
    wait("the descriptors are closed", SOON, || {
        (process.descriptors() <= descriptors + 4).then_some(())
    });
    let after = process.resident_kib();
    assert!(after < resident + (8 << 10), "{resident} KiB, then {after}");
}

#[test]
fn a_session_whose_caller_hung_up_gives_way_like_any_other() {
    let (_daemon, api) = start(&[
        ("SANDBOXD_MAX_SESSIONS", "1"),
        ("SANDBOXD_EVICT_IDLE_AFTER", "1"),
    ]);
    api.open_id("left");
    let container = api.container("left");
    let stream = api.begin("/sessions/left/exec", &json!({"command": "sleep 82001"}));
    wait("the command runs", SOON, || {
        let running = docker(&["exec", &container, "ps", "-o", "args"]);
        running.contains("82001").then_some(())
    });
    let busy = api.call("POST", "/sessions", Some(&json!({"session_id": "next"})));
    assert_eq!(busy.status, 429, "{}", busy.text());
    drop(stream);
    wait("it gives way", SOON, || {
        let opened = api.call("POST", "/sessions", Some(&json!({"session_id": "next"})));
        (opened.status == 200).then_some(())
    });
    assert_eq!(api.info("left")["reason"], "evicted");
}

#[test]
fn a_command_that_waits_for_ever_holds_up_no_other() {
    let (_daemon, api) = start(&[]);
    api.open_id("s");
    api.sh("s", "mkfifo never");
    // Nothing is there to be read from its input either: that ends at once.
    assert_eq!(api.sh("s", "cat; echo ended"), "ended");
    let stream = api.begin("/sessions/s/exec", &json!({"command": "cat never"}));
    wait("it waits", SOON, || {
        api.sh("s", "pidof cat || true").parse::<u32>().ok()
    });
    let began = Instant::now();
    assert_eq!(api.sh("s", "echo hi"), "hi");
    assert!(began.elapsed() < SOON / 4, "{:?}", began.elapsed());
    drop(stream);
}

#[test]
fn processes_that_ignore_signals_do_not_hold_up_a_stop() {
    let (_daemon, api) = start(&[]);
    api.open_id("s");
    api.sh("s", "trap '' TERM INT HUP; sleep 1000 & echo $!");
    let began = Instant::now();
    api.close("s", "");
    // The engine's own grace is ten seconds.
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn orphans_are_reaped_and_leave_room_for_commands() {
    let (_daemon, api) = start(&[("SANDBOXD_PIDS_LIMIT", "64")]);
    api.open_id("s");
    api.sh("s", "for n in $(seq 200); do (sleep 0 &); done");
    wait("nothing dead is left", SOON, || {
        let states = api.sh("s", "cat /proc/[0-9]*/stat 2>/dev/null | cut -d ' ' -f 3");
        (!states.contains('Z')).then_some(())
    });
    assert_eq!(
        api.sh("s", "for n in $(seq 20); do sleep 1 & done; wait; echo hi"),
        "hi"
    );
}

#[test]
fn sandboxctl_ends_with_its_command_whatever_it_is_connected_to() {
    let rounds = if whole() { 100 } else { 4 };
    let (daemon, api) = start(&[]);
    api.open_id("s");
    for round in 0..rounds {
        for input in [Stdio::null(), Stdio::piped()] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_sandboxctl"));
            command
                .env_clear()
                .env("SANDBOXD_URL", daemon.url())
                .env("SANDBOXD_TOKEN", daemon.token())
                .args(["exec", "s", "--", &format!("echo {round}; exit 3")])
                .stdin(input)
                .stdout(Stdio::piped())
                .stderr(Stdio::null());
            let mut child = command.spawn().unwrap();
            // What is piped in stays open: it must not be waited for.
            let open_input = child.stdin.take();
            let status = wait("it ends", SOON, || child.try_wait().unwrap());
            assert_eq!(status.code(), Some(3));
            drop(open_input);
            let mut said = String::new();
            let mut output = child.stdout.take().unwrap();
            std::io::Read::read_to_string(&mut output, &mut said).unwrap();
            assert_eq!(said, format!("{round}\n"));
        }
    }
}

#[test]
fn changed_settings_leave_running_sandboxes_alone_and_are_told() {
    let (mut daemon, api) = start(&[("SANDBOXD_MEM_LIMIT", "64m")]);
    api.open_id("s");
    api.sh("s", "echo kept >file; sleep 1000 & echo $!");
    let before = (api.container("s"), api.sh("s", "pidof sleep"));
    assert_eq!(api.info("s")["drifted"], false);
    daemon.stop(Ending::Terminate);
    daemon.set("SANDBOXD_MEM_LIMIT", "96m");
    daemon.start_again();
    assert_eq!(api.info("s")["drifted"], true);
    let listed = api.json(200, "GET /sessions", None);
    assert_eq!(listed["sessions"][0]["drifted"], true);
    assert_eq!((api.container("s"), api.sh("s", "pidof sleep")), before);
    assert_eq!(api.sh("s", "cat file"), "kept");
    api.open_id("new");
    assert_eq!(api.info("new")["drifted"], false);
}

#[test]
fn a_use_at_the_very_end_of_a_session_is_served_whole_or_refused() {
    let rounds = if whole() { 60 } else { 6 };
    let (_daemon, api) = start(&[("SANDBOXD_IDLE_TIMEOUT", "1")]);
    let mut count = 0;
    api.open_id("s");
    for round in 0..rounds {
        // Just as the session is due, give or take a little each round.
        thread::sleep(Duration::from_millis(970 + 10 * (round % 6)));
        let asked = json!({"command": "echo x >>used; wc -l <used"});
        let reply = api.call("POST", "/sessions/s/exec", Some(&asked));
        if reply.status == 404 {
            wait("its id is free", SOON, || {
                let opened = api.call("POST", "/sessions", Some(&json!({"session_id": "s"})));
                (opened.status == 200).then_some(())
            });
            continue;
        }
        assert_eq!(reply.status, 200, "{}", reply.text());
        count += 1;
        let ran: Value = reply.json().unwrap();
        assert_eq!(ran["output"], format!("{count}\n"), "round {round}: {ran}");
    }
}
