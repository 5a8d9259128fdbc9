//! The agent as the first process of a container.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sandboxd::agent::protocol::message::{Cause, Wait, Why};

use crate::support::agent_wire::{BoxedAgent, argv, shell, until};
use crate::support::docker::{IMAGE, Removed, docker, need_image};

use super::text;

fn boxed(options: &[&str]) -> BoxedAgent {
    need_image();
    BoxedAgent::start(IMAGE, options)
}

#[test]
fn orphans_leave_no_zombie_and_no_run_behind() {
    let agent = boxed(&[]);
    let mut caller = agent.host.accept();
    let (_, run) = caller.run(&shell("for i in $(seq 600); do (sleep 0.2 &) ; done"));
    assert_eq!(run.end.unwrap().code, Some(0));
    until("the orphans are reaped", || {
        let (out, _) = caller.run(&shell("ls -d /proc/[0-9]* 2>/dev/null | wc -l"));
        out.trim().parse::<u32>().unwrap() <= 4
    });
}

#[test]
fn a_deadline_ends_what_left_its_session_and_its_environment() {
    let agent = boxed(&[]);
    let mut caller = agent.host.accept();
    let mut start = shell("setsid sleep 1000 & env -i setsid sleep 1001 & sleep 1002");
    start.timeout_ms = Some(300);
    let (_, run) = caller.run(&start);
    assert_eq!(run.end.unwrap().cause, Cause::Timeout);
    let (out, _) = caller.run(&shell("ps | grep 'sleep 10' | grep -v grep"));
    assert_eq!(out, "");
}

#[test]
fn a_fork_bomb_is_ended_and_the_next_run_works() {
    let agent = boxed(&["--pids-limit", "64"]);
    let mut caller = agent.host.accept();
    let mut start = shell(
        "trap '' TERM
        bomb() { bomb & bomb & (setsid sh -c 'while :; do sleep 1 & done' &) ; bomb; }
        bomb 2>/dev/null &
        exec sleep 1000",
    );
    start.timeout_ms = Some(500);
    let began = Instant::now();
    let (_, run) = caller.run(&start);
    assert_eq!(run.end.unwrap().cause, Cause::Timeout);
    eprintln!("ended after {:?}", began.elapsed());
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
    let (out, run) = caller.run(&shell("echo still here; ls -d /proc/[0-9]* | wc -l"));
    assert_eq!(run.end.unwrap().code, Some(0), "{out}");
    assert!(out.starts_with("still here\n"), "{out}");
}

#[test]
fn a_process_too_many_is_told_in_words() {
    let agent = boxed(&["--pids-limit", "8"]);
    let mut caller = agent.host.accept();
    let full = shell("for i in 1 2 3 4 5 6; do sleep 1000 & done; echo full; wait");
    caller.start(&full).unwrap();
    caller.fetch(&full.run, 0, Wait::Some).unwrap();
    let (out, run) = caller.run(&argv(&["true"]));
    let end = run.end.unwrap();
    assert_eq!((end.cause, end.code), (Cause::StartFailed, Some(126)));
    let words = "sandboxd: true: not started: the sandbox has as many processes as it may\n";
    assert_eq!(out, words);
}

#[test]
fn an_image_of_a_single_program_runs_it() {
    need_image();
    let name = format!("sandboxd-scratch-{}", uuid::Uuid::new_v4().simple());
    let source = docker(&["create", IMAGE, "true"]);
    let _source = Removed::container(&source);
    let mut copy = Command::new("docker")
        .args([
            "cp",
            "--follow-link",
            &format!("{source}:/bin/busybox"),
            "-",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let imported = Command::new("docker")
        .args(["import", "-", &name])
        .stdin(copy.stdout.take().unwrap())
        .stdout(Stdio::null())
        .status();
    assert!(copy.wait().unwrap().success() && imported.unwrap().success());
    let _image = Removed::image(&name);
    let agent = BoxedAgent::start(&name, &[]);
    let mut caller = agent.host.accept();
    let (out, run) = caller.run(&argv(&["/busybox", "echo", "alone"]));
    assert_eq!((out.as_str(), run.end.unwrap().code), ("alone\n", Some(0)));
    let (out, run) = caller.run(&shell("true"));
    assert_eq!(
        (out.as_str(), run.end.unwrap().code),
        ("sandboxd: /bin/sh: not found\n", Some(127))
    );
    let mut start = argv(&["/busybox", "id", "-u"]);
    start.user = Some("1234".to_owned());
    assert_eq!(caller.run(&start).0, "1234\n");
}

#[test]
fn a_container_of_another_user_is_served_within_what_that_may() {
    let agent = boxed(&["--user", "1000:1000"]);
    let mut caller = agent.host.accept();
    assert_eq!(caller.hello.uid, 1000);
    let (out, _) = caller.run(&shell(
        "id -u; cat /proc/self/oom_score_adj; cat /proc/1/environ",
    ));
    assert!(
        out.starts_with("1000\n1000\n") && out.contains("ermission denied"),
        "{out}"
    );
    let mut start = shell("true");
    start.user = Some("root".to_owned());
    assert_eq!(caller.start(&start).unwrap_err().0, Why::User);
    let mut start = shell("setsid sleep 1000 & sleep 1000");
    start.timeout_ms = Some(200);
    assert_eq!(caller.run(&start).1.end.unwrap().cause, Cause::Timeout);
    assert_eq!(caller.run(&shell("ps | grep -c 'sleep 1[0]00'")).0, "0\n");
}

#[test]
fn a_bridge_of_the_engines_exec_carries_the_same_frames() {
    let agent = boxed(&[]);
    let mut dialed = agent.host.accept();
    let start = shell("head -c 3000000 /dev/zero");
    let mut start = start;
    start.output = sandboxd::agent::protocol::message::Keep::All { limit: None };
    let mut caller = agent.bridge();
    assert!(dialed.is_closed());
    assert_eq!(caller.run(&start).0.len(), 3_000_000);
    let output = caller.fetch(&start.run, 0, Wait::End).unwrap();
    assert!(output.end.is_none() || output.gap.is_some() || text(&output).is_empty());
    // Nothing within the sandbox is taken for the engine.
    let (out, _) = caller.run(&shell(
        "timeout 2 /.sandboxd/sandbox-agent connect < /dev/zero; echo $?",
    ));
    assert!(out.ends_with("0\n"), "{out}");
    assert!(!caller.list().is_empty());
    caller.hang_up();
}

#[test]
fn a_term_ends_the_container_at_once() {
    let agent = boxed(&[]);
    let mut caller = agent.host.accept();
    caller
        .start(&shell("trap '' TERM; while :; do sleep 1; done"))
        .unwrap();
    let began = Instant::now();
    docker(&["stop", "--time", "20", &agent.name]);
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    let code = docker(&["inspect", "--format", "{{.State.ExitCode}}", &agent.name]);
    assert_eq!(code, "0");
    assert!(caller.is_closed());
}

#[test]
fn a_daemon_that_was_started_again_is_dialed() {
    let mut agent = boxed(&[]);
    let mut caller = agent.host.accept();
    let start = shell("sleep 0.2; echo kept");
    caller.start(&start).unwrap();
    agent.host.replace();
    caller.hang_up();
    let began = Instant::now();
    let mut caller = agent.host.accept();
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(
        text(&caller.fetch(&start.run, 0, Wait::End).unwrap()),
        "kept\n"
    );
}

#[test]
fn a_command_in_a_container_is_quick() {
    let agent = boxed(&[]);
    let mut caller = agent.host.accept();
    let mut took: Vec<Duration> = (0..200)
        .map(|_| {
            let began = Instant::now();
            caller.run(&argv(&["/bin/true"]));
            began.elapsed()
        })
        .collect();
    took.sort();
    eprintln!(
        "`true`: median {:?}, p95 {:?}, least {:?}",
        took[100], took[190], took[0]
    );
    assert!(took[100] < Duration::from_millis(20), "{:?}", took[100]);
}
