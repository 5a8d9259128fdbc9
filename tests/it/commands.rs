//! Running commands in sandboxes on the real engine, and how they end.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::api::{Api, WORKSPACES, at_once, settings, wait};
use crate::support::daemon::Daemon;
use crate::support::docker::{IMAGE, Removed, docker, try_docker};

const SOON: Duration = Duration::from_secs(10);
/// A command past its deadline is asked to end, and killed two seconds later.
const KILLED_WITHIN: Duration = Duration::from_millis(2500);
const OUTPUT_MAX: usize = 100_000;

fn start(changes: &[(&str, &str)]) -> (Daemon, Api) {
    let daemon = Daemon::start(&settings(changes));
    let api = Api::of(&daemon);
    (daemon, api)
}

/// Returns the command lines of a container's processes that contain `word`.
fn processes(container: &str, word: &str) -> Vec<String> {
    docker(&["exec", container, "ps", "-o", "args"])
        .lines()
        .filter(|line| line.contains(word))
        .map(str::to_owned)
        .collect()
}

/// Waits until nothing whose command line contains `word` runs.
fn wait_until_gone(container: &str, word: &str, within: Duration) {
    let what = format!("no process {word:?} is left");
    wait(&what, within, || {
        processes(container, word).is_empty().then_some(())
    });
}

#[test]
fn a_command_past_its_deadline_is_dead_in_time_with_all_that_it_started() {
    let (_daemon, api) = start(&[]);
    api.open_id("s");
    let container = api.container("s");
    let plain = "echo begun; sleep 70001";
    let stubborn = "trap '' TERM; (trap '' TERM; while :; do sleep 70002; done) & \
                    setsid sh -c 'trap \"\" TERM; sleep 70003' & \
                    sh -c 'setsid sleep 70004 &' ; echo begun; sleep 70005";
    for command in [plain, stubborn] {
        let began = Instant::now();
        let asked = json!({"command": command, "timeout_seconds": 1});
        let ran = api.exec_with("s", &asked);
        let took = began.elapsed();
        assert_eq!(
            (&ran["exit_code"], &ran["reason"]),
            (&json!(124), &json!("timeout")),
            "{ran}"
        );
        assert_eq!(ran["output"], "begun\n");
        let second = Duration::from_secs(1);
        assert!(
            second <= took && took <= second + KILLED_WITHIN,
            "{took:?}: {command}"
        );
        assert_eq!(processes(&container, "sleep 7000"), Vec::<String>::new());
    }
    assert_eq!(api.sh("s", "echo fine"), "fine");
}

#[test]
fn a_fork_bomb_is_dead_after_its_deadline() {
    let runtime = "bb={{image}};pids_limit=40";
    let (_daemon, api) = start(&[("SANDBOXD_RUNTIMES", runtime)]);
    api.open_id("s");
    let command = "for i in $(seq 10); do setsid sleep 70006 & done; \
                   (trap '' TERM; while :; do sleep 70007 & done) & exec sleep 70008";
    let asked = json!({"command": command, "timeout_seconds": 2});
    let ran = api.exec_with("s", &asked);
    assert_eq!(ran["exit_code"], 124, "{ran}");
    let left = processes(&api.container("s"), "sleep 7000");
    assert_eq!(left, Vec::<String>::new());
    assert_eq!(api.sh("s", "echo fine"), "fine");
}

fn memory_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib << 10
}

#[test]
fn endless_output_is_cut_while_it_streams_and_costs_no_memory() {
    let (daemon, api) = start(&[]);
    api.open_id("s");
    api.sh("s", "yes | head -c 1000000");
    let before = memory_bytes(daemon.pid());
    let mut most = 0;
    let ran = thread::scope(|scope| {
        let asked = json!({"command": "yes", "timeout_seconds": 3});
        let command = scope.spawn({
            let api = api.clone();
            move || api.exec_with("s", &asked)
        });
        while !command.is_finished() {
            most = most.max(memory_bytes(daemon.pid()));
            thread::sleep(Duration::from_millis(50));
        }
        command.join().unwrap()
    });
    assert!(most < before + (16 << 20), "{before} bytes became {most}");
    assert_eq!(
        (&ran["exit_code"], &ran["truncated"]),
        (&json!(124), &json!(true))
    );
    assert_eq!(
        ran["output"].as_str().unwrap(),
        "y\n".repeat(OUTPUT_MAX / 2)
    );
}

#[test]
fn a_child_left_in_the_background_lives_on_and_holds_up_nothing() {
    let (_daemon, api) = start(&[]);
    api.open_id("s");
    let began = Instant::now();
    let ran = api.exec("s", "sleep 70010 & echo done");
    assert_eq!(
        (&ran["output"], &ran["exit_code"]),
        (&json!("done\n"), &json!(0)),
        "{ran}"
    );
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(processes(&api.container("s"), "sleep 70010").len(), 1);
}

#[test]
fn exit_codes_and_bytes_reach_the_caller_as_they_are() {
    let (_daemon, api) = start(&[]);
    api.open_id("s");
    for (command, output, code) in [
        ("", "", 0),
        ("exit 3", "", 3),
        ("kill -9 $$", "", 137),
        ("kill -15 $$", "", 143),
        ("exit 255", "", 255),
        ("printf '\\377\\376abc'", "\u{fffd}\u{fffd}abc", 0),
        ("printf 'a\\000b'", "a\0b", 0),
        ("cat", "", 0),
        ("echo ä; echo err >&2", "ä\nerr\n", 0),
    ] {
        let ran = api.exec("s", command);
        let found = (ran["output"].as_str().unwrap(), &ran["exit_code"]);
        assert_eq!(found, (output, &json!(code)), "{command}: {ran}");
    }
    let ran = api.exec("s", "no-such-program");
    assert_eq!(ran["exit_code"], 127, "{ran}");
    let ran = api.exec("s", "echo a\0b");
    assert_eq!(
        (&ran["output"], &ran["exit_code"]),
        (&json!("Error: embedded null byte"), &json!(1))
    );
    for (count, truncated) in [(OUTPUT_MAX, false), (OUTPUT_MAX + 1, true)] {
        let ran = api.exec("s", &format!("head -c {count} /dev/zero | tr '\\0' x"));
        assert_eq!(ran["truncated"], truncated);
        assert_eq!(ran["output"].as_str().unwrap(), "x".repeat(OUTPUT_MAX));
    }
}

/// Makes an image that holds `sleep` and nothing else.
fn image_without_shell(dir: &Path) -> Removed {
    let image = format!("sandboxd-test/noshell:{}", std::process::id());
    let seed = docker(&["create", IMAGE, "true"]);
    let _seed = Removed::container(&seed);
    fs::create_dir_all(dir.join("root/bin")).unwrap();
    let binary = dir.join("root/bin/sleep");
    docker(&[
        "cp",
        "--follow-link",
        &format!("{seed}:/bin/busybox"),
        binary.to_str().unwrap(),
    ]);
    let tar = dir.join("root.tar");
    let tar = tar.to_str().unwrap();
    let packed = Command::new("tar")
        .args(["-C", dir.join("root").to_str().unwrap(), "-cf", tar, "."])
        .status();
    assert!(packed.unwrap().success());
    docker(&["import", tar, &image]);
    Removed::image(&image)
}

#[test]
fn an_image_without_a_shell_says_so_with_the_engines_words() {
    let dir = tempfile::tempdir().unwrap();
    let _image = image_without_shell(dir.path());
    let runtime = format!("bb=sandboxd-test/noshell:{}", std::process::id());
    let (_daemon, api) = start(&[("SANDBOXD_RUNTIMES", &runtime)]);
    api.open_id("s");
    let ran = api.exec("s", "echo hi");
    let output = ran["output"].as_str().unwrap();
    assert!(output.contains("/bin/sh"), "{ran}");
    assert!(
        [json!(126), json!(127)].contains(&ran["exit_code"]),
        "{ran}"
    );
    assert_eq!(ran["reason"], "start_failed");
    assert_eq!(api.info("s")["phase"], "running");
    api.close("s", "?purge=true");
}

#[test]
fn a_container_killed_in_mid_command_is_no_exit_code() {
    let (daemon, api) = start(&[WORKSPACES]);
    for (id, args) in [
        ("killed", &["kill"][..]),
        ("removed", &["rm", "--force"][..]),
    ] {
        api.open_id(id);
        let container = api.container(id);
        thread::scope(|scope| {
            let command = scope.spawn(|| {
                (
                    api.exec(id, "echo begun > begun; echo out; sleep 60"),
                    Instant::now(),
                )
            });
            let begun = daemon.dir().join("ws").join(id).join("workspace/begun");
            wait("the command runs", SOON, || begun.exists().then_some(()));
            docker(&[args, &[container.as_str()]].concat());
            let killed = Instant::now();
            let (ran, ended) = command.join().unwrap();
            assert_eq!(
                (&ran["exit_code"], &ran["reason"]),
                (&Value::Null, &json!("container_lost")),
                "{id}: {ran}"
            );
            assert_eq!(ran["output"], "out\n");
            let took = ended.saturating_duration_since(killed);
            assert!(took < Duration::from_secs(2), "{took:?}");
        });
        api.wait_for(id, "hibernated");
        let events = api.events(id);
        let last = &events["events"][0];
        assert_eq!(
            (&last["detail"], &last["ok"]),
            (&json!("container_lost"), &json!(false))
        );
        let next = api.exec(id, "echo fine");
        assert_eq!(
            (&next["output"], &next["reset_reason"]),
            (&json!("fine\n"), &json!("container_lost"))
        );
    }
}

#[test]
fn a_caller_that_hangs_up_stops_its_command() {
    let (_daemon, api) = start(&[]);
    api.open_id("s");
    let container = api.container("s");
    let asked = json!({"command": "sleep 70020 & sleep 70021"});
    let stream = api.begin("/sessions/s/exec", &asked);
    wait("the command runs", SOON, || {
        (!processes(&container, "sleep 70021").is_empty()).then_some(())
    });
    drop(stream);
    wait_until_gone(&container, "sleep 7002", Duration::from_secs(5));
    let event = wait("its end is written down", SOON, || {
        api.events("s")["events"].get(0).cloned()
    });
    assert_eq!(
        (&event["detail"], &event["ok"]),
        (&json!("stopped"), &json!(false)),
        "{event}"
    );
}

#[test]
fn sixty_four_commands_run_at_once_in_one_session() {
    let (_daemon, api) = start(&[]);
    api.open_id("s");
    let began = Instant::now();
    let outputs = at_once(64, |n| api.sh("s", &format!("sleep 2; echo {n}")));
    let expected: Vec<String> = (0..64).map(|n| n.to_string()).collect();
    assert_eq!(outputs, expected);
    assert!(
        began.elapsed() < Duration::from_secs(40),
        "{:?}",
        began.elapsed()
    );
    let events = api.events("s");
    assert_eq!(events["latest_seq"], 64);
    let seqs: Vec<u64> = events["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["seq"].as_u64().unwrap())
        .collect();
    assert_eq!(seqs, (1..=64).collect::<Vec<_>>());
}

#[test]
fn at_the_ceiling_of_running_commands_the_next_is_refused() {
    let (daemon, api) = start(&[WORKSPACES, ("SANDBOXD_MAX_RUNNING_COMMANDS", "2")]);
    api.open_id("s");
    thread::scope(|scope| {
        let waiting = "n=$(mktemp began.XXXXXX); while [ ! -e go ]; do sleep 0.05; done";
        let commands = [(); 2].map(|()| scope.spawn(|| api.exec("s", waiting)));
        let dir = daemon.dir().join("ws/s/workspace");
        wait("both run", SOON, || {
            (2 <= fs::read_dir(&dir).unwrap().count()).then_some(())
        });
        let refused = api.call(
            "POST",
            "/sessions/s/exec",
            Some(&json!({"command": "true"})),
        );
        let body = refused.json().unwrap();
        assert_eq!(
            (refused.status, &body["code"]),
            (429, &json!("command_ceiling"))
        );
        assert!(refused.header("retry-after").is_some());
        let ceiling =
            json!({"name": "max_running_commands", "limit": 2, "used": 2, "scope": "service"});
        assert_eq!(body["ceiling"], ceiling);
        fs::write(dir.join("go"), "").unwrap();
        for command in commands {
            assert_eq!(command.join().unwrap()["exit_code"], 0);
        }
    });
    assert_eq!(api.sh("s", "echo fine"), "fine");
}

#[test]
fn every_command_is_written_down_with_its_ending_and_its_time() {
    let (_daemon, api) = start(&[]);
    let token = api.open_id("s");
    let caller = api.with_token(&token);
    caller.exec("s", "sleep 0.3");
    caller.exec("s", "exit 3");
    caller.exec_with("s", &json!({"command": "sleep 9", "timeout_seconds": 1}));
    caller.exec("s", "a\0b");
    let page = caller.events("s");
    let told: Vec<Value> = page["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| json!([e["seq"], e["op"], e["target"], e["ok"], e["detail"]]))
        .collect();
    assert_eq!(
        told,
        [
            json!([1, "exec", "sleep 0.3", true, "exit 0"]),
            json!([2, "exec", "exit 3", false, "exit 3"]),
            json!([3, "exec", "sleep 9", false, "exit 124"]),
            json!([4, "exec", "a\0b", false, "exit 1"]),
        ]
    );
    assert_eq!(
        (&page["latest_seq"], &page["first_seq"]),
        (&json!(4), &json!(1))
    );
    let took = |n: usize| page["events"][n]["duration_ms"].as_f64().unwrap();
    assert!((300.0..2_000.0).contains(&took(0)), "{page}");
    assert!((1_000.0..3_500.0).contains(&took(2)), "{page}");
    let later = caller.json(200, "GET /sessions/s/events?after=3", None);
    assert_eq!(later["events"].as_array().unwrap().len(), 1);
}

#[test]
fn a_container_that_somebody_froze_is_thawed_and_serves() {
    let (_daemon, api) = start(&[]);
    api.open_id("s");
    let container = api.container("s");
    docker(&["pause", &container]);
    let ran = api.exec("s", "echo fine");
    assert_eq!(
        (&ran["output"], &ran["exit_code"]),
        (&json!("fine\n"), &json!(0)),
        "{ran}"
    );
    assert_eq!(ran["reset_reason"], Value::Null);
    docker(&["pause", &container]);
    wait("it is thawed without being asked", SOON, || {
        let state = docker(&["inspect", "--format", "{{.State.Status}}", &container]);
        (state == "running").then_some(())
    });
}

#[test]
fn a_session_that_is_closed_ends_its_commands() {
    let (_daemon, api) = start(&[]);
    api.open_id("s");
    let container = api.container("s");
    thread::scope(|scope| {
        let asked = json!({"command": "sleep 70030"});
        let command = scope.spawn({
            let api = api.clone();
            move || api.call("POST", "/sessions/s/exec", Some(&asked))
        });
        wait("the command runs", SOON, || {
            (!processes(&container, "sleep 70030").is_empty()).then_some(())
        });
        let began = Instant::now();
        api.close("s", "");
        let reply = command.join().unwrap();
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "{:?}",
            began.elapsed()
        );
        assert_eq!(
            reply.json().unwrap()["reason"],
            "container_lost",
            "{}",
            reply.text()
        );
    });
    assert!(try_docker(&["inspect", &container]).is_err());
}
