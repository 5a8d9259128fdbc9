//! Commands with a waiting caller on the real engine, by the agent and by the engine's exec.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::api::{Api, WORKSPACES, at_once, settings, wait};
use crate::support::daemon::Daemon;
use crate::support::docker::docker;

/// The two ways to a sandbox.
const WAYS: [&str; 2] = ["agent", "docker"];
const SOON: Duration = Duration::from_secs(10);
/// A command whose container was killed has ended within this.
const LOST_WITHIN: Duration = Duration::from_secs(2);

fn start(way: &str, changes: &[(&str, &str)]) -> (Daemon, Api) {
    let mut all = vec![("SANDBOXD_EXEC", way)];
    all.extend(changes);
    let daemon = Daemon::start(&settings(&all));
    let api = Api::of(&daemon);
    (daemon, api)
}

fn run_id(n: u32) -> String {
    format!("{n:032x}")
}

/// Runs a program that is answered with this status.
fn run(api: &Api, status: u16, asked: &Value) -> Value {
    api.json(status, "POST /sessions/s/run", Some(asked))
}

fn sh(n: u32, text: &str) -> Value {
    json!({"argv": ["sh", "-c", text], "run_id": run_id(n)})
}

fn with(mut asked: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        asked[name] = value.clone();
    }
    asked
}

/// Returns the command lines of a container's processes that contain `word`.
fn processes(container: &str, word: &str) -> Vec<String> {
    docker(&["top", container, "-eo", "pid,args"])
        .lines()
        .filter(|line| line.contains(word))
        .map(str::to_owned)
        .collect()
}

fn wait_for_process(container: &str, word: &str) {
    wait("the command runs", SOON, || {
        (!processes(container, word).is_empty()).then_some(())
    });
}

fn wait_until_gone(container: &str, word: &str, within: Duration) {
    wait("nothing of it is left", within, || {
        processes(container, word).is_empty().then_some(())
    });
}

#[test]
fn a_command_is_over_at_its_deadline_with_all_that_it_detached() {
    for way in WAYS {
        let (_daemon, api) = start(way, &[]);
        api.open_id("s");
        let container = api.container("s");
        let text = "setsid sleep 71001 & echo begun; sleep 71002";
        for as_run in [false, true] {
            let began = Instant::now();
            if as_run {
                let ran = run(
                    &api,
                    200,
                    &with(sh(1, text), &json!({"timeout_seconds": 2})),
                );
                assert_eq!(ran["timed_out"], true, "{way}: {ran}");
                assert_eq!(ran["exit_code"], Value::Null, "{way}: {ran}");
                assert_eq!(ran["stdout"], "begun\n", "{way}: {ran}");
            } else {
                let ran = api.exec_with("s", &json!({"command": text, "timeout_seconds": 2}));
                assert_eq!(ran["exit_code"], 124, "{way}: {ran}");
                assert_eq!(ran["output"], "begun\n", "{way}: {ran}");
            }
            let took = began.elapsed();
            let bounds = Duration::from_secs(2)..Duration::from_millis(2500);
            assert!(bounds.contains(&took), "{way}: {took:?}");
            let left = processes(&container, "sleep 7100");
            assert_eq!(left, Vec::<String>::new(), "{way}");
        }
        let shown = api.events("s")["events"].clone();
        assert_eq!(shown[1]["op"], "run", "{shown}");
        assert_eq!(shown[1]["detail"], "timed out", "{shown}");
    }
}

#[test]
fn a_fork_bomb_meets_its_ceiling_and_leaves_a_session_that_works() {
    for way in WAYS {
        let runtime = "bb={{image}};pids_limit=40";
        let (_daemon, api) = start(way, &[("SANDBOXD_RUNTIMES", runtime)]);
        api.open_id("s");
        let container = api.container("s");
        let bomb = "(trap '' TERM; while :; do sleep 71003 & done) & exec sleep 71003";
        thread::scope(|scope| {
            let bombing = scope.spawn(|| run(&api, 200, &sh(2, bomb)));
            wait("it is at its ceiling", SOON, || {
                (30 < processes(&container, "sleep 71003").len()).then_some(())
            });
            let path = format!("POST /sessions/s/runs/{}/stop", run_id(2));
            api.json(204, &path, None);
            let ran = bombing.join().unwrap();
            assert_ne!(ran["exit_code"], 0, "{way}: {ran}");
        });
        wait_until_gone(&container, "sleep 71003", SOON);
        assert_eq!(api.sh("s", "echo fine"), "fine", "{way}");
    }
}

#[test]
fn a_container_killed_under_a_command_ends_the_call_at_once_with_the_reason() {
    for way in WAYS {
        let (_daemon, api) = start(way, &[WORKSPACES]);
        api.open_id("s");
        for as_run in [false, true] {
            api.sh("s", ":");
            let container = api.container("s");
            let (ended, reply) = thread::scope(|scope| {
                let calling = scope.spawn(|| {
                    let reply = if as_run {
                        run(&api, 410, &sh(3, "sleep 71004"))
                    } else {
                        api.exec("s", "sleep 71004")
                    };
                    (Instant::now(), reply)
                });
                wait_for_process(&container, "sleep 71004");
                let killed = Instant::now();
                docker(&["kill", &container]);
                let (at, reply) = calling.join().unwrap();
                (at.duration_since(killed), reply)
            });
            assert!(ended < LOST_WITHIN, "{way}: {ended:?}");
            if as_run {
                let text = "the container stopped while the command was running";
                assert_eq!(reply["detail"], text, "{way}: {reply}");
            } else {
                let seen = (&reply["exit_code"], &reply["reason"]);
                assert_eq!(seen, (&Value::Null, &json!("container_lost")), "{way}");
            }
        }
        // The same request is answered alike, and not run again.
        run(&api, 410, &sh(3, "sleep 71004"));
        assert_eq!(run(&api, 200, &sh(4, "echo healed"))["stdout"], "healed\n");
    }
}

#[test]
fn a_run_whose_files_went_with_its_container_is_refused() {
    let (_daemon, api) = start("agent", &[]);
    api.open_id("s");
    docker(&["rm", "-f", &api.container("s")]);
    for n in [5, 6] {
        let reply = run(&api, 410, &sh(n, "echo x"));
        assert_eq!(
            reply["detail"],
            "The sandbox of session s is gone, and its files with it"
        );
    }
    let ran = api.exec("s", "echo empty");
    assert_eq!(ran["reset_reason"], "files_lost", "{ran}");
    api.close("s", "");
}

#[test]
fn a_child_in_the_background_holds_up_no_reply_and_lives_on() {
    for way in WAYS {
        let (_daemon, api) = start(way, &[]);
        api.open_id("s");
        let began = Instant::now();
        let ran = run(&api, 200, &sh(7, "sleep 71005 & echo done"));
        let seen = (&ran["stdout"], &ran["exit_code"]);
        assert_eq!(seen, (&json!("done\n"), &json!(0)), "{way}: {ran}");
        assert!(began.elapsed() < Duration::from_millis(3500), "{way}");
        assert_eq!(processes(&api.container("s"), "sleep 71005").len(), 1);
        // A stop of what is over ends nothing of what it left.
        let path = format!("POST /sessions/s/runs/{}/stop", run_id(7));
        api.json(204, &path, None);
        assert_eq!(processes(&api.container("s"), "sleep 71005").len(), 1);
    }
}

#[test]
fn a_client_that_hangs_up_stops_its_command() {
    for way in WAYS {
        let (_daemon, api) = start(way, &[]);
        api.open_id("s");
        let container = api.container("s");
        let run = ("/sessions/s/run", sh(8, "setsid sleep 71006 & sleep 71006"));
        let command = json!({"command": "setsid sleep 71006 & sleep 71006"});
        for (path, asked) in [run, ("/sessions/s/exec", command)] {
            let calling = api.begin(path, &asked);
            wait_for_process(&container, "sleep 71006");
            drop(calling);
            wait_until_gone(&container, "sleep 71006", Duration::from_secs(4));
        }
    }
}

#[test]
fn one_id_runs_once_and_is_stopped_only_when_all_its_callers_have_gone() {
    for way in WAYS {
        let (_daemon, api) = start(way, &[]);
        api.open_id("s");
        let container = api.container("s");
        let asked = sh(9, "echo x >> count; sleep 71007; echo y");
        let first = api.begin("/sessions/s/run", &asked);
        wait_for_process(&container, "sleep 71007");
        thread::scope(|scope| {
            let second = scope.spawn(|| run(&api, 200, &asked));
            run(&api, 409, &sh(9, "echo other"));
            // Nothing shows that the second waits as well.
            thread::sleep(Duration::from_secs(1));
            drop(first);
            thread::sleep(Duration::from_millis(500));
            assert_eq!(processes(&container, "sleep 71007").len(), 2, "{way}");
            let path = format!("POST /sessions/s/runs/{}/stop", run_id(9));
            api.json(204, &path, None);
            let ran = second.join().unwrap();
            let seen = (&ran["exit_code"], &ran["timed_out"], &ran["reason"]);
            let expected = (&json!(143), &json!(false), &json!("stopped"));
            assert_eq!(seen, expected, "{way}: {ran}");
            assert_eq!(run(&api, 200, &asked), ran, "{way}");
        });
        assert_eq!(api.sh("s", "cat count"), "x", "{way}");
        assert_eq!(processes(&container, "sleep 71007"), Vec::<String>::new());
    }
}

#[test]
fn the_ceiling_of_a_session_names_itself_and_leaves_others_their_places() {
    let (_daemon, api) = start("agent", &[("SANDBOXD_MAX_SESSION_COMMANDS", "2")]);
    api.open_id("s");
    api.open_id("other");
    let container = api.container("s");
    let busy: Vec<_> = (0..2)
        .map(|_| api.begin("/sessions/s/exec", &json!({"command": "sleep 71008"})))
        .collect();
    wait("both run", SOON, || {
        (processes(&container, "sleep 71008").len() == 2).then_some(())
    });
    let refused = api.call(
        "POST",
        "/sessions/s/exec",
        Some(&json!({"command": "echo"})),
    );
    assert_eq!(refused.status, 429);
    let body = refused.json().unwrap();
    let ceiling =
        json!({"name": "max_session_commands", "limit": 2, "used": 2, "scope": "session:s"});
    assert_eq!(body["ceiling"], ceiling, "{body}");
    assert_eq!(api.sh("other", "echo fine"), "fine");
    drop(busy);
    wait("there is room again", SOON, || {
        let reply = api.call(
            "POST",
            "/sessions/s/exec",
            Some(&json!({"command": "echo"})),
        );
        (reply.status == 200).then_some(())
    });
}

#[test]
fn a_stuck_command_delays_no_other() {
    for way in WAYS {
        let (_daemon, api) = start(way, &[]);
        api.open_id("s");
        let stuck = json!({"command": "trap '' TERM; while :; do sleep 71009; done"});
        let _stuck: Vec<_> = (0..8)
            .map(|_| api.begin("/sessions/s/exec", &stuck))
            .collect();
        let container = api.container("s");
        wait("all run", SOON, || {
            (8 <= processes(&container, "sleep 71009").len()).then_some(())
        });
        let took = at_once(4, |_| {
            let began = Instant::now();
            assert_eq!(api.sh("s", "echo fine"), "fine");
            began.elapsed()
        });
        let slowest = took.into_iter().max().unwrap();
        assert!(slowest < Duration::from_secs(2), "{way}: {slowest:?}");
    }
}

#[test]
fn options_reach_a_command_either_way() {
    for way in WAYS {
        let (_daemon, api) = start(way, &[]);
        api.open_id("s");
        api.sh("s", "mkdir -p sub");
        let options = json!({"env": {"A": "b c"}, "cwd": "sub", "stdin": "one\ntwo 'q' \"$A\"\n"});
        let command = "pwd; echo \"$A\"; cat";
        let expected = "/workspace/sub\nb c\none\ntwo 'q' \"$A\"\n";
        let ran = api.exec_with("s", &with(json!({"command": command}), &options));
        assert_eq!(ran["output"], expected, "{way}: {ran}");
        let ran = run(&api, 200, &with(sh(10, command), &options));
        assert_eq!(ran["stdout"], expected, "{way}: {ran}");
        let large = json!({"stdin": "x".repeat(400_000)});
        let ran = run(&api, 200, &with(sh(11, "wc -c"), &large));
        assert_eq!(
            ran["stdout"].as_str().unwrap().trim(),
            "400000",
            "{way}: {ran}"
        );
        let refused = api.call(
            "POST",
            "/sessions/s/run",
            Some(&with(sh(12, "id"), &json!({"user": "root"}))),
        );
        assert_eq!(refused.json().unwrap()["code"], "user_not_allowed", "{way}");
    }
}

#[test]
fn a_program_that_cannot_be_started_says_so_as_a_shell_does() {
    for way in WAYS {
        let (_daemon, api) = start(way, &[]);
        api.open_id("s");
        let cases = [("no-such-program", 127), ("", 127), ("/etc/passwd", 126)];
        for (n, (program, code)) in (20..).zip(cases) {
            let ran = run(&api, 200, &json!({"argv": [program], "run_id": run_id(n)}));
            assert_eq!(ran["exit_code"], code, "{way}: {program:?}: {ran}");
            assert_ne!(ran["stderr"], "", "{way}: {program:?}: {ran}");
            assert_eq!(ran["stdout"], "", "{way}: {program:?}: {ran}");
        }
    }
}

#[test]
fn output_beyond_the_limit_ends_a_run_and_output_within_it_is_whole() {
    for way in WAYS {
        let (_daemon, api) = start(way, &[("SANDBOXD_RUN_OUTPUT_LIMIT", "3000000")]);
        api.open_id("s");
        let text = |bytes: u32| format!("head -c {bytes} /dev/zero | tr '\\0' a; echo e >&2");
        // With 8 of them at once, there is room for all.
        let lengths = at_once(12, |n| {
            let n = u32::try_from(n).unwrap();
            let ran = run(&api, 200, &sh(30 + n, &text(2_900_000)));
            let length = ran["stdout"].as_str().unwrap().len();
            assert_eq!(ran["stderr"], "e\n", "{way}: {length}: {}", ran["reason"]);
            length
        });
        assert_eq!(lengths, [2_900_000; 12], "{way}");
        let ran = run(
            &api,
            200,
            &sh(50, &format!("{}; sleep 71010", text(3_100_000))),
        );
        assert_eq!(ran["output_limited"], true, "{way}");
        assert_eq!(ran["output_limit"], 3_000_000, "{way}");
        assert_eq!(ran["exit_code"], Value::Null, "{way}");
        assert_eq!(ran["stdout"].as_str().unwrap().len(), 65_536, "{way}");
    }
}

#[test]
fn a_command_out_of_memory_is_told_from_one_that_was_killed() {
    for way in WAYS {
        let runtime = "bb={{image}};mem_limit=64m";
        let (_daemon, api) = start(way, &[("SANDBOXD_RUNTIMES", runtime)]);
        api.open_id("s");
        let hungry = "exec tail -c 500000000 /dev/zero";
        let ran = api.exec("s", hungry);
        let seen = (&ran["exit_code"], &ran["reason"]);
        assert_eq!(seen, (&json!(137), &json!("oom")), "{way}: {ran}");
        let ran = api.exec("s", "kill -9 $$");
        let seen = (&ran["exit_code"], &ran["reason"]);
        assert_eq!(seen, (&json!(137), &Value::Null), "{way}: {ran}");
    }
}
