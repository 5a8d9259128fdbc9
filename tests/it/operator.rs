//! What an operator sees and does: `sandboxctl`, containers as made, and usage.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use expect_test::expect;
use serde_json::{Value, json};

use crate::support::api::{Api, WORKSPACES, settings, wait};
use crate::support::daemon::{Daemon, Ending};
use crate::support::docker::{IMAGE, Removed, docker, labelled, running, try_docker};

const SOON: Duration = Duration::from_secs(10);

fn start(changes: &[(&str, &str)]) -> (Daemon, Api) {
    let daemon = Daemon::start(&settings(changes));
    let api = Api::of(&daemon);
    (daemon, api)
}

fn ctl(daemon: &Daemon, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandboxctl"));
    command
        .env_clear()
        .env("SANDBOXD_URL", daemon.url())
        .env("SANDBOXD_TOKEN", daemon.token())
        .args(args)
        .stdin(Stdio::null());
    command
}

/// Runs `sandboxctl ARGS`; returns what it printed and its exit status.
fn run(mut command: Command) -> (String, String, i32) {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let status = output.status.code().unwrap();
    (text(output.stdout), text(output.stderr), status)
}

#[test]
fn a_monitoring_system_is_told_how_the_service_is_and_what_was_done() {
    let (daemon, api) = start(&[WORKSPACES, ("SANDBOXD_MAX_SESSIONS", "3")]);
    let token = api.open_id("s");
    api.open_id("t");
    api.exec("s", "true");
    api.exec("s", "false");
    api.exec_with("s", &json!({"command": "sleep 9", "timeout_seconds": 1}));
    api.close("t", "");
    let nobody = daemon.http().with_token(None).get("/metrics").unwrap();
    assert_eq!(nobody.status, 401);
    let session = daemon
        .http()
        .with_token(Some(&token))
        .get("/metrics")
        .unwrap();
    assert_eq!(session.status, 401, "it is about all sessions");
    let told = daemon.http().get("/metrics").unwrap();
    let kind = told.header("content-type").unwrap();
    assert!(kind.starts_with("application/openmetrics-text"), "{kind}");
    let told = told.text();
    for line in [
        r#"sandboxd_sessions{of="running"} 1"#,
        r#"sandboxd_sessions{of="hibernated"} 0"#,
        r#"sandboxd_sandboxes{of="agent"} 1"#,
        r#"sandboxd_sandboxes{of="docker"} 0"#,
        r#"sandboxd_sessions_max{of="resident"} 3"#,
        "sandboxd_resident 1",
        "sandboxd_commands_running 0",
        r#"sandboxd_operations_total{op="exec",result="ok"} 1"#,
        r#"sandboxd_operations_total{op="exec",result="failed"} 1"#,
        r#"sandboxd_operations_total{op="exec",result="timeout"} 1"#,
        r#"sandboxd_operation_seconds_count{op="exec"} 3"#,
        r#"sandboxd_http_requests_total{method="POST",route="/sessions",status="200"} 2"#,
        r#"sandboxd_http_requests_total{method="GET",route="/metrics",status="401"} 2"#,
        "sandboxd_docker_up 1",
        "sandboxd_store_up 1",
        r#"sandboxd_held{of="engine_changed"} 0"#,
        "# EOF",
    ] {
        assert!(
            told.lines().any(|one| one == line),
            "{line} is not in\n{told}"
        );
    }
    assert!(!told.contains("\"s\""), "no session is named");
}

/// Runs `sandboxctl` with each of these lines; returns what came of it as a transcript,
/// with times and random parts made plain.
fn transcript(daemon: &Daemon, lines: &[&[&str]]) -> String {
    let told = lines.iter().map(|args| {
        let (stdout, stderr, status) = run(ctl(daemon, args));
        let ending = if status == 0 {
            String::new()
        } else {
            format!("[exit {status}]\n")
        };
        plain(&format!(
            "$ sandboxctl {}\n{stdout}{stderr}{ending}",
            args.join(" ")
        ))
    });
    told.collect()
}

/// Makes instants, short spans and the hexadecimal ends of names plain.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    for word in text.split_inclusive([' ', '\n']) {
        let bare = word.trim_end();
        let end = word.get(bare.len()..).unwrap_or_default();
        let shown = plain_word(bare);
        plain.push_str(&shown);
        if end == " " {
            // The columns of a table stay where they are.
            let pad = bare.len().saturating_sub(shown.len());
            plain.push_str(&" ".repeat(pad));
        }
        plain.push_str(end);
    }
    plain
}

fn plain_word(word: &str) -> String {
    let is_span = |unit| {
        let number = word.strip_suffix(unit);
        number.is_some_and(|number| number.parse::<f64>().is_ok())
    };
    let is_key = |tail: &str| tail.len() == 8 && tail.bytes().all(|b| b.is_ascii_hexdigit());
    match word.rsplit_once('-') {
        _ if word.parse::<jiff::Timestamp>().is_ok() => "INSTANT".to_owned(),
        _ if is_span("ms") => "0.0ms".to_owned(),
        _ if is_span("s") => "0s".to_owned(),
        Some((head, tail)) if is_key(tail) => format!("{head}-KEY"),
        _ => word.to_owned(),
    }
}

#[test]
fn sandboxctl_opens_and_shows_sessions_and_runs_commands() {
    let (daemon, _api) = start(&[WORKSPACES, ("SANDBOXD_MAX_SESSIONS", "3")]);
    let lines: &[&[&str]] = &[
        &["ls"],
        &["open", "--id", "s1", "--tenant", "acme"],
        &["open", "--id", "s2"],
        &["open", "--id", "s1"],
        &["ls"],
        &["get", "s1"],
        &["exec", "s1", "--", "echo out; exit 5"],
        &["exec", "s1", "--", "echo", "it's", "a  b"],
        &["exec", "--timeout", "1", "s1", "--", "sleep 30"],
        &["exec", "none", "--", "true"],
        &["events", "s1"],
        &["health"],
    ];
    expect![[r"
        $ sandboxctl ls
        ID  RUNTIME  TENANT  STATE  IDLE  AGE
        $ sandboxctl open --id s1 --tenant acme
        s1
        $ sandboxctl open --id s2
        s2
        $ sandboxctl open --id s1
        error: Session exists: s1
        hint: --reuse attaches to a session that is open
        [exit 5]
        $ sandboxctl ls
        ID  RUNTIME  TENANT  STATE    IDLE  AGE
        s1  bb       acme    running  0s    0s
        s2  bb       -       running  0s    0s
        $ sandboxctl get s1
        ID:           s1
        Runtime:      bb
        Tenant:       acme
        State:        running
        Phase:        running
        Alive:        yes
        Created:      INSTANT
        Last used:    INSTANT
        Idle:         0s
        Age:          0s
        Container:    sandboxd-s1-KEY
        Image:        sandboxd-test/busybox:latest
        Exec:         agent
        Incarnation:  1
        $ sandboxctl exec s1 -- echo out; exit 5
        out
        [exit 5]
        $ sandboxctl exec s1 -- echo it's a  b
        it's a  b
        $ sandboxctl exec --timeout 1 s1 -- sleep 30
        note: the command was over its time and was killed
        [exit 124]
        $ sandboxctl exec none -- true
        error: No such session: none
        hint: sandboxctl ls shows the sessions that are open
        [exit 125]
        $ sandboxctl events s1
        SEQ    TIME                      OP          RESULT  TOOK       DETAIL        TARGET
        1      INSTANT                   exec        failed  0.0ms      exit 5        echo out; exit 5
        2      INSTANT                   exec        ok      0.0ms      exit 0        echo 'it'\''s' 'a  b'
        3      INSTANT                   exec        failed  0.0ms      exit 124      sleep 30
        $ sandboxctl health
        Status:    ok
        Resident:  2 of 3
        Open:      2
        Runtimes:  bb
    "]].assert_eq(&transcript(&daemon, lines));
}

#[test]
fn sandboxctl_wakes_closes_and_purges_and_asks_before_files_go() {
    let (daemon, api) = start(&[WORKSPACES]);
    api.open_id("s1");
    api.open_id("s2");
    docker(&["kill", &api.container("s2")]);
    api.wait_for("s2", "hibernated");
    let lines: &[&[&str]] = &[
        &["ls", "--state", "hibernated"],
        &["exec", "s2", "--", "true"],
        &["rm", "s2"],
        &["rm", "s2"],
        &["purge", "s1"],
        &["purge", "--yes", "s1"],
        &["purge", "--yes", "--close", "s1"],
        &["purge", "--yes", "s2", "never"],
        &["ls", "--quiet"],
    ];
    expect![[r"
        $ sandboxctl ls --state hibernated
        ID  RUNTIME  TENANT  STATE       IDLE  AGE
        s2  bb       -       hibernated  0s    0s
        $ sandboxctl exec s2 -- true
        note: the sandbox was reset before this command (container_lost)
        $ sandboxctl rm s2
        s2
        $ sandboxctl rm s2
        error: No such session: s2
        hint: sandboxctl ls shows the sessions that are open
        [exit 3]
        $ sandboxctl purge s1
        error: nothing is removed without a confirmation, and there is no terminal to ask on
        hint: --yes confirms it
        [exit 2]
        $ sandboxctl purge --yes s1
        error: Session s1 is open. Close it first, or ask with close=true.
        hint: --close closes a session that is open
        [exit 5]
        $ sandboxctl purge --yes --close s1
        s1
        $ sandboxctl purge --yes s2 never
        s2
        never
        $ sandboxctl ls --quiet
    "]]
    .assert_eq(&transcript(&daemon, lines));
    assert_eq!(labelled(&daemon.label()), Vec::<String>::new());
    for id in ["s1", "s2"] {
        assert!(!daemon.dir().join("ws").join(id).exists(), "{id}");
    }
}

#[test]
fn sandboxctl_tells_why_it_failed_by_its_exit_status() {
    let (mut daemon, api) = start(&[("SANDBOXD_MAX_SESSIONS", "1")]);
    let token = api.open_id("s");
    let status = |command: Command| run(command).2;
    assert_eq!(status(ctl(&daemon, &["get", "none"])), 3);
    let mut wrong = ctl(&daemon, &["ls"]);
    wrong.env("SANDBOXD_TOKEN", &token);
    assert_eq!(status(wrong), 4);
    let mut own = ctl(&daemon, &["get", "s"]);
    own.env("SANDBOXD_TOKEN", &token);
    assert_eq!(status(own), 0);
    assert_eq!(status(ctl(&daemon, &["open", "--id", "s"])), 5);
    assert_eq!(status(ctl(&daemon, &["open"])), 6);
    assert_eq!(status(ctl(&daemon, &["purge", "s"])), 2);
    api.close("s", "");
    daemon.stop(Ending::Terminate);
    assert_eq!(status(ctl(&daemon, &["ls"])), 7);
    assert_eq!(status(ctl(&daemon, &["exec", "s", "--", "true"])), 125);
}

/// A `sandboxctl` that runs, with the lines that it prints.
struct Following {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Following {
    fn start(mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    fn next(&self) -> String {
        self.lines.recv_timeout(SOON).unwrap()
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        if let Err(error) = self.child.kill().and_then(|()| self.child.wait()) {
            eprintln!("end sandboxctl: {error}");
        }
    }
}

#[test]
fn events_are_followed_across_a_restart_and_none_is_missed_or_shown_twice() {
    let (mut daemon, api) = start(&[]);
    api.open_id("s");
    api.sh("s", "echo 1");
    let mut following = Following::start(ctl(
        &daemon,
        &["events", "--follow", "s", "--output", "json"],
    ));
    let seq = |line: String| serde_json::from_str::<Value>(&line).unwrap()["seq"].clone();
    assert_eq!(seq(following.next()), 1);
    api.sh("s", "echo 2");
    assert_eq!(seq(following.next()), 2);
    for ending in [Ending::Terminate, Ending::Kill] {
        let n = api.events("s")["latest_seq"].as_u64().unwrap();
        api.sh("s", "echo before");
        daemon.restart(ending);
        api.sh("s", "echo after");
        assert_eq!(seq(following.next()), n + 1);
        assert_eq!(seq(following.next()), n + 2);
    }
    assert_eq!(running(&daemon.label()).len(), 1);
    api.close("s", "");
    let status = following.child.wait().unwrap();
    assert_eq!(status.code(), Some(3), "the session is gone");
    assert!(following.lines.recv_timeout(SOON).is_err());
}

/// Returns the only thing that is in a directory.
fn only_entry(directory: &Path) -> PathBuf {
    let mut entries = fs::read_dir(directory).unwrap();
    let entry = entries.next().unwrap().unwrap().path();
    assert!(entries.next().is_none(), "{}", directory.display());
    entry
}

/// Returns the settings of session `s` of a daemon that has this directory.
fn documented_settings(dir: &Path) -> Value {
    let workspace = dir.join("ws/s/workspace");
    let read_only = |source: PathBuf, target: &str| {
        json!({
            "Type": "bind", "Source": source, "Target": target, "ReadOnly": true,
            "BindOptions": {"Propagation": "rprivate"},
        })
    };
    let program = only_entry(&dir.join("state/agent")).join("sandbox-agent");
    let dock = only_entry(&only_entry(&dir.join("run")));
    let gib = 1 << 30;
    json!({
        "config": {
            "Image": IMAGE, "User": "", "Entrypoint": ["/.sandboxd/sandbox-agent"],
            "Cmd": ["serve"], "WorkingDir": "/workspace",
        },
        "host": {
            "Init": false, "Binds": null,
            "Tmpfs": {
                "/tmp": "size=64m,mode=1777,exec",
                "/.sandboxd/run": "size=64k,nr_inodes=16,mode=1777",
            },
            "Mounts": [
                {
                    "Type": "bind", "Source": workspace, "Target": "/workspace",
                    "BindOptions": {"Propagation": "rprivate"},
                },
                read_only(program, "/.sandboxd/sandbox-agent"),
                read_only(dock, "/.sandboxd/host"),
            ],
            "Memory": gib, "MemorySwap": gib, "NanoCpus": 2_000_000_000, "CpuShares": 0,
            "PidsLimit": 512, "NetworkMode": "none", "Runtime": "runc",
            "SecurityOpt": ["no-new-privileges:true"],
            "CapDrop": ["MKNOD", "NET_RAW", "AUDIT_WRITE", "SETFCAP", "SETPCAP"], "CapAdd": null,
            "LogConfig": {"Type": "json-file", "Config": {"max-size": "1m", "max-file": "1"}},
            "RestartPolicy": {"Name": "no", "MaximumRetryCount": 0}, "AutoRemove": false,
            "OomScoreAdj": 500, "Privileged": false, "PortBindings": null,
        },
    })
}

#[test]
fn a_container_is_made_with_the_documented_settings() {
    let runtimes = format!(
        r#"{{"bb": "{IMAGE}", "cfg": {{"runtime": {{"name": "cfg", "image": "{IMAGE}"}}, "cpu_shares": 512}}}}"#
    );
    let changes = [
        ("SANDBOXD_RUNTIMES", runtimes.as_str()),
        ("SANDBOXD_SANDBOX_UID", "1234"),
    ];
    let (daemon, api) = start(&[&[WORKSPACES], &changes[..]].concat());
    api.open(&json!({"session_id": "s", "runtime": "bb"}));
    let id = api.container("s");
    let seen: Value = serde_json::from_str(&docker(&["inspect", &id])).unwrap();
    let (config, host) = (&seen[0]["Config"], &seen[0]["HostConfig"]);
    let picked = json!({
        "config": pick(config, &["Image", "User", "Entrypoint", "Cmd", "WorkingDir"]),
        "host": pick(host, &[
            "Init", "Binds", "Mounts", "Tmpfs", "Memory", "MemorySwap", "NanoCpus", "CpuShares",
            "PidsLimit", "NetworkMode", "Runtime", "SecurityOpt", "CapDrop", "CapAdd", "LogConfig",
            "RestartPolicy", "AutoRemove", "OomScoreAdj", "Privileged", "PortBindings",
        ]),
    });
    assert_eq!(picked, documented_settings(daemon.dir()));

    let labels = &config["Labels"];
    let key = labels["io.sandboxd.key"].as_str().unwrap();
    let name = format!("sandboxd-s-{}", key.get(..8).unwrap());
    assert_eq!(seen[0]["Name"], format!("/{name}"));
    assert_eq!(api.info("s")["container"], name.as_str());
    let label = format!(
        "io.sandboxd.instance={}",
        labels["io.sandboxd.instance"].as_str().unwrap()
    );
    assert_eq!(label, daemon.label());
    let told = ["session", "runtime", "schema", "exec"];
    let told = told.map(|name| &labels[format!("io.sandboxd.{name}")]);
    assert_eq!(
        told,
        [&json!("s"), &json!("bb"), &json!("1"), &json!("agent")]
    );
    assert_eq!(labels["io.sandboxd.spec"].as_str().unwrap().len(), 16);

    api.open(&json!({"session_id": "c", "runtime": "cfg"}));
    let format = "{{.Config.User}} {{.HostConfig.CpuShares}}";
    assert_eq!(
        docker(&["inspect", "--format", format, &api.container("c")]),
        "1234:1234 512"
    );
    assert_eq!(
        api.sh(
            "c",
            "touch mine; id -u; echo ${UV_SYSTEM_PYTHON-none}; echo $LANG"
        ),
        "1234\nnone\nC.UTF-8"
    );
}

fn pick(from: &Value, names: &[&str]) -> Value {
    let null_where_empty = |value: &Value| {
        let is_empty = value.as_array().is_some_and(Vec::is_empty)
            || value.as_object().is_some_and(serde_json::Map::is_empty);
        if is_empty { Value::Null } else { value.clone() }
    };
    names
        .iter()
        .map(|name| ((*name).to_owned(), null_where_empty(&from[*name])))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

#[test]
fn usage_is_what_the_control_groups_say() {
    let (_daemon, api) = start(&[("SANDBOXD_MEM_LIMIT", "64m")]);
    for id in ["a", "b"] {
        api.open_id(id);
    }
    let sample = || api.json(200, "GET /sessions/a?usage=true", None)["usage"].clone();
    let unknown = sample()["cpu_percent"].clone();
    assert_eq!(unknown, Value::Null, "nothing was sampled before");
    // Nothing runs in it but the agent, which has one thread.
    let first = wait("its agent is alone", SOON, || {
        let usage = sample();
        (usage["pids"] == 1).then_some(usage)
    });
    assert_eq!(first["memory_limit_bytes"], 64 << 20);
    let memory = |usage: &Value| usage["memory_bytes"].as_u64().unwrap();
    assert!((1..8 << 20).contains(&memory(&first)), "{first}");
    // What is begun and kept is counted, to the process and nearly to the byte.
    api.sh("a", "for n in 1 2 3; do sleep 1000 & done");
    api.sh("a", "head -c 20000000 /dev/zero > /tmp/kept");
    let more = sample();
    assert_eq!(more["pids"], 4, "{more}");
    let grown = memory(&more).saturating_sub(memory(&first));
    assert!((20_000_000..24_000_000).contains(&grown), "{first}, {more}");
    api.sh("a", "head -c 100000000 /dev/zero | md5sum");
    let busy = sample()["cpu_percent"].as_f64().unwrap();
    assert!((1.0..=210.0).contains(&busy), "{busy}");

    let listing = api.json(200, "GET /sessions?usage=true", None);
    for session in listing["sessions"].as_array().unwrap() {
        assert_eq!(
            session["usage"]["memory_limit_bytes"],
            64 << 20,
            "{session}"
        );
    }
    assert!(listing["sessions"][0]["usage"]["cpu_percent"].is_number());
    assert_eq!(api.info("a")["usage"], Value::Null);
    docker(&["kill", &api.container("b")]);
    api.wait_for("b", "hibernated");
    let asleep = api.json(200, "GET /sessions/b?usage=true", None);
    assert_eq!(asleep["usage"], Value::Null);
}

#[test]
fn containers_that_are_not_ours_are_left_alone_and_a_second_writer_is_refused() {
    let changes = [
        ("SANDBOXD_CLEANUP_INTERVAL", "1"),
        ("SANDBOXD_ORPHAN_GRACE", "1"),
    ];
    let (daemon, api) = start(&[&[WORKSPACES], &changes[..]].concat());
    let id = format!("w{}", std::process::id());
    let run = |name: &str, label: &str| {
        let args = [
            "run",
            "--detach",
            "--network=none",
            "--init",
            "--label",
            label,
            "--name",
            name,
        ];
        docker(&[&args[..], &[IMAGE, "sleep", "infinity"]].concat());
        Removed::container(name)
    };
    let (rival, twin) = (format!("sandboxd-{id}"), format!("sandboxd-{id}-01234567"));
    let (foreign, stray) = (
        format!("sandboxd-{id}-89abcdef"),
        format!("sandboxd-{id}-stray"),
    );
    let _rival = run(&rival, "nothing=here");
    let _twin = run(&twin, "nothing=here");
    let _foreign = run(&foreign, "io.sandboxd.instance=another");
    let stray_guard = run(&stray, &daemon.label());

    let refused = api.json(502, "POST /sessions", Some(&json!({"session_id": id})));
    let detail = refused["detail"].as_str().unwrap();
    assert!(
        detail.contains(&format!("container {rival} works on the same workspace")),
        "{detail}"
    );
    assert!(detail.contains("stop it first"), "{detail}");
    // Its own label makes the stray ours; the sweep that takes it had to spare the others.
    wait("the stray is swept", SOON, || {
        try_docker(&["inspect", &stray]).is_err().then_some(())
    });
    std::mem::forget(stray_guard);
    for name in [&rival, &twin, &foreign] {
        assert_eq!(
            docker(&["inspect", "--format", "{{.State.Running}}", name]),
            "true",
            "{name}"
        );
    }
    docker(&["stop", "--time", "1", &rival]);
    api.open_id(&id);
    assert_eq!(
        docker(&["inspect", "--format", "{{.State.Running}}", &twin]),
        "true"
    );
}

#[test]
fn a_session_whose_containers_name_was_taken_leaves_that_container_alone() {
    let (_daemon, api) = start(&[WORKSPACES]);
    api.open_id("s");
    let name = api.info("s")["container"].as_str().unwrap().to_owned();
    docker(&["rm", "--force", &name]);
    docker(&["create", "--name", &name, IMAGE, "true"]);
    let _taken = Removed::container(&name);
    api.wait_for("s", "hibernated");
    api.sh("s", "true");
    assert_ne!(api.info("s")["container"], name.as_str());
    assert_eq!(
        docker(&["inspect", "--format", "{{.State.Status}}", &name]),
        "created"
    );
}
