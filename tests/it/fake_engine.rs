//! The fake engine answers as the real one does, and the daemon lives on it as on that.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::api::{Api, WORKSPACES, at_once, settings, wait};
use crate::support::daemon::{Daemon, Ending};
use crate::support::docker::{IMAGE, Removed};
use crate::support::fake::{FakeEngine, Status};
use crate::support::http::Response;
use crate::support::raw_engine::RawEngine;

const SOON: Duration = Duration::from_secs(10);

/// One engine in a conversation, with what it called things.
struct Side {
    engine: RawEngine,
    names: BTreeMap<&'static str, String>,
}

/// One call, and what of its reply must be the same.
struct Step {
    call: &'static str,
    body: Option<String>,
    keep: Option<&'static str>,
    fields: &'static [&'static str],
}

/// Only the status and the words of an error.
fn step(call: &'static str) -> Step {
    Step {
        call,
        body: None,
        keep: None,
        fields: &["/message"],
    }
}

impl Step {
    fn send(mut self, body: &Value) -> Self {
        self.body = Some(body.to_string());
        self
    }

    fn send_text(mut self, body: &str) -> Self {
        self.body = Some(body.to_owned());
        self
    }

    fn keep(mut self, name: &'static str) -> Self {
        self.keep = Some(name);
        self
    }

    fn same(mut self, fields: &'static [&'static str]) -> Self {
        self.fields = fields;
        self
    }
}

impl Side {
    fn new(engine: RawEngine) -> Self {
        Self {
            engine,
            names: BTreeMap::new(),
        }
    }

    /// Makes a call; returns what is compared.
    fn ask(&mut self, step: &Step, common: &[(&str, &str)]) -> String {
        let own = self.names.iter().map(|(name, value)| (*name, &**value));
        let all: Vec<(&str, &str)> = own.chain(common.iter().copied()).collect();
        let fill = |text: &str| {
            let mut text = text.to_owned();
            for (name, value) in &all {
                text = text.replace(&format!("{{{name}}}"), value);
            }
            text
        };
        let reply = self
            .engine
            .call(&fill(step.call), step.body.as_deref().map(fill).as_deref());
        if let Some(name) = step.keep {
            let id = reply.json().unwrap_or_else(|| panic!("{}", reply.text()))["Id"].clone();
            self.names.insert(name, id.as_str().unwrap().to_owned());
        }
        self.told(step, &reply)
    }

    /// Writes what is compared, with ids by the names that they were kept under.
    fn told(&self, step: &Step, reply: &Response) -> String {
        let mut told = match reply.json() {
            Some(body) => {
                let field = |pointer: &&str| format!("{pointer}={:?}", body.pointer(pointer));
                let fields: Vec<String> = step.fields.iter().map(field).collect();
                fields.join(" ")
            }
            None => format!("{:?}", unframed(&reply.body)),
        };
        for (name, id) in &self.names {
            told = told.replace(id.as_str(), name);
        }
        format!("{} {told}", reply.status)
    }
}

/// Reads frames, since how an output is cut into them is chance; other bytes as text.
fn unframed(bytes: &[u8]) -> Vec<(u8, String)> {
    let mut read: Vec<(u8, String)> = Vec::new();
    let mut rest = bytes;
    while let [stream @ 1..=2, 0, 0, 0, a, b, c, d, after @ ..] = rest {
        let length = usize::try_from(u32::from_be_bytes([*a, *b, *c, *d])).unwrap();
        let text = String::from_utf8_lossy(&after[..length]).into_owned();
        match read.last_mut() {
            Some((last, whole)) if last == stream => whole.push_str(&text),
            Some(_) | None => read.push((*stream, text)),
        }
        rest = &after[length..];
    }
    if !rest.is_empty() {
        read.push((0, String::from_utf8_lossy(rest).into_owned()));
    }
    read
}

const STATE: &[&str] = &[
    "/State/Status",
    "/State/Running",
    "/State/Paused",
    "/State/ExitCode",
    "/State/Error",
    "/Name",
    "/Config/Image",
    "/Config/Labels",
    "/Config/WorkingDir",
    "/Config/Env",
    "/Mounts",
];
const LISTED: &[&str] = &[
    "/0/Names",
    "/0/State",
    "/0/Labels",
    "/0/Mounts",
    "/0/Image",
    "/1",
];
const EXEC: &[&str] = &[
    "/ID",
    "/Running",
    "/ExitCode",
    "/ContainerID",
    "/ProcessConfig",
];

fn sleeper(more: &Value) -> Value {
    let mut body = json!({
        "Image": IMAGE,
        "Cmd": ["sleep", "1000"],
        "WorkingDir": "/workspace",
        "Env": ["A=b", "PATH=/bin"],
        "Labels": {"test.same": "{label}"},
        "HostConfig": {
            "Init": true,
            "NetworkMode": "none",
            "LogConfig": {"Type": "none"},
            "Mounts": [{"Type": "bind", "Source": "{dir}", "Target": "/workspace"}],
        },
    });
    for (name, value) in more.as_object().unwrap() {
        body[name.as_str()] = value.clone();
    }
    body
}

fn shell(command: &str) -> Value {
    json!({"AttachStdout": true, "AttachStderr": true, "Cmd": ["/bin/sh", "-c", command]})
}

fn of_versions_and_creation() -> Vec<Step> {
    let attached = json!({"Detach": false, "Tty": false});
    vec![
        step("GET /_ping"),
        step("GET /v1.10/info"),
        step("GET /v1.52/info"),
        step("GET /v1.41/nonsense"),
        step("GET /version").same(&["/ApiVersion", "/MinAPIVersion"]),
        step("GET /v1.41/containers/no-such/json"),
        step("POST /v1.41/containers/no-such/start"),
        step("POST /v1.41/containers/no-such/stop"),
        step("POST /v1.41/containers/no-such/wait"),
        step("POST /v1.41/containers/no-such/exec").send(&shell("true")),
        step("DELETE /v1.41/containers/no-such?force=1"),
        step("GET /v1.41/exec/no-such/json"),
        step("POST /v1.41/exec/no-such/start").send(&attached),
        step("GET /v1.41/images/no-such:1/json"),
        step("POST /v1.41/images/create?fromImage=localhost:9/no/such&tag=1").same(&[]),
        step("POST /v1.41/containers/create?name={n}").send(&json!({"Image": "no-such:1"})),
        step("POST /v1.41/containers/create?name={n}").send(&json!({ "Image": IMAGE })),
        step("POST /v1.41/containers/create?name={n}").send_text("{\"Image\":"),
        step("POST /v1.41/containers/create?name=b@d").send(&sleeper(&json!({}))),
        step("POST /v1.41/containers/create?name={n}").send(&sleeper(
            &json!({"HostConfig": {"Mounts": [{"Type": "bind", "Source": "/no/such", "Target": "/w"}]}}),
        )),
        step("POST /v1.41/containers/create?name={n}")
            .send(&sleeper(&json!({"HostConfig": {"Runtime": "nope"}}))),
        step("POST /v1.41/containers/create?name={n}")
            .send(&sleeper(&json!({})))
            .keep("one")
            .same(&[]),
        step("POST /v1.41/containers/create?name={n}").send(&sleeper(&json!({}))),
        step("GET /v1.41/containers/{n}/json").same(STATE),
        step("GET /v1.41/containers/{one}/json").same(STATE),
        step("GET /v1.41/containers/json?all=1&filters={by_label}").same(LISTED),
        step("GET /v1.41/containers/json?filters={by_label}").same(LISTED),
        step("GET /v1.41/containers/json?all=1&filters={by_other}").same(LISTED),
        step("GET /v1.41/containers/json?all=1&filters=nonsense").same(&[]),
        step("GET /v1.41/containers/json?all=1&filters={unknown}"),
        step("POST /v1.41/containers/{n}/exec").send(&shell("true")),
        step("POST /v1.41/containers/{n}/kill"),
        step("POST /v1.41/containers/{n}/pause"),
        step("POST /v1.41/containers/{n}/unpause"),
        step("POST /v1.41/containers/{n}/stop?t=1"),
    ]
}

fn of_running_and_commands() -> Vec<Step> {
    let attached = json!({"Detach": false, "Tty": false});
    let missing = json!({"AttachStdout": true, "AttachStderr": true, "Cmd": ["/no/such"]});
    vec![
        step("POST /v1.41/containers/{n}/start"),
        step("POST /v1.41/containers/{n}/start"),
        step("GET /v1.41/containers/{n}/json").same(STATE),
        step("DELETE /v1.41/containers/{n}"),
        step("POST /v1.41/containers/{n}/unpause"),
        step("POST /v1.41/containers/{n}/pause"),
        step("POST /v1.41/containers/{n}/pause"),
        step("GET /v1.41/containers/{n}/json").same(STATE),
        step("POST /v1.41/containers/{n}/exec").send(&shell("true")),
        step("DELETE /v1.41/containers/{n}"),
        step("POST /v1.41/containers/{n}/unpause"),
        step("POST /v1.41/containers/{n}/exec").send(&json!({"Cmd": []})),
        step("POST /v1.41/containers/{n}/exec")
            .send(&shell("echo out; cat kept; exit 7"))
            .keep("exec")
            .same(&[]),
        step("GET /v1.41/exec/{exec}/json").same(EXEC),
        step("POST /v1.41/exec/{exec}/start").send(&attached),
        step("GET /v1.41/exec/{exec}/json").same(EXEC),
        step("POST /v1.41/exec/{exec}/start").send(&attached),
        step("POST /v1.41/exec/{exec}/start").send(&json!({"Detach": true})),
        step("POST /v1.41/containers/{n}/exec")
            .send(&missing)
            .keep("missing")
            .same(&[]),
        step("POST /v1.41/exec/{missing}/start").send(&attached),
        step("GET /v1.41/exec/{missing}/json").same(EXEC),
        step("POST /v1.41/containers/{n}/exec")
            .send(&missing)
            .keep("detached")
            .same(&[]),
        step("POST /v1.41/exec/{detached}/start").send(&json!({"Detach": true})),
        step("POST /v1.41/containers/{n}/exec")
            .send(&shell("echo plain"))
            .keep("tty")
            .same(&[]),
        step("POST /v1.41/exec/{tty}/start").send(&json!({"Detach": false, "Tty": true})),
        step("POST /v1.41/containers/{n}/exec")
            .send(&shell("kill -9 $$"))
            .keep("killed")
            .same(&[]),
        step("POST /v1.41/exec/{killed}/start").send(&attached),
        step("GET /v1.41/exec/{killed}/json").same(EXEC),
        step("POST /v1.41/containers/{n}/exec")
            .send(&shell("true"))
            .keep("late")
            .same(&[]),
        step("GET /v1.41/containers/{n}/logs?stdout=1"),
    ]
}

fn of_stopping_and_removal() -> Vec<Step> {
    let attached = json!({"Detach": false, "Tty": false});
    let deaf = sleeper(&json!({"HostConfig": {"NetworkMode": "none"}}));
    vec![
        step("POST /v1.41/containers/{n}/rename?name={n}"),
        step("POST /v1.41/containers/{n}/rename?name={n}-2"),
        step("GET /v1.41/containers/{n}/json"),
        step("POST /v1.41/containers/{n}-2/rename?name={n}"),
        step("POST /v1.41/containers/{n}/stop?t=5"),
        step("POST /v1.41/containers/{n}/stop?t=5"),
        step("GET /v1.41/containers/{n}/json").same(STATE),
        step("POST /v1.41/exec/{late}/start").send(&attached),
        step("POST /v1.41/containers/{n}/kill"),
        step("POST /v1.41/containers/{n}/wait").same(&["/StatusCode"]),
        step("GET /v1.41/containers/{n}/stats?stream=0&one-shot=1").same(&[
            "/cpu_stats/cpu_usage/total_usage",
            "/memory_stats",
            "/pids_stats",
        ]),
        step("POST /v1.41/containers/{n}/start"),
        step("POST /v1.41/containers/{n}/pause"),
        step("POST /v1.41/containers/{n}/stop?t=1"),
        step("POST /v1.41/containers/{n}/start"),
        step("POST /v1.41/containers/{n}/kill?signal=KILL"),
        step("POST /v1.41/containers/{n}/wait").same(&["/StatusCode"]),
        step("GET /v1.41/containers/{n}/json").same(STATE),
        step("POST /v1.41/containers/create?name={n}-deaf")
            .send(&deaf)
            .keep("deaf")
            .same(&[]),
        step("POST /v1.41/containers/{n}-deaf/rename?name={n}").same(&[]),
        step("POST /v1.41/containers/{n}-deaf/start"),
        step("POST /v1.41/containers/{n}-deaf/stop?t=1"),
        step("GET /v1.41/containers/{n}-deaf/json").same(&["/State/Status", "/State/ExitCode"]),
        step("DELETE /v1.41/containers/{n}-deaf?force=1"),
    ]
}

fn of_programs() -> Vec<Step> {
    let with = |argv: &[&str], host: &Value| {
        sleeper(&json!({"Cmd": argv, "Labels": {}, "HostConfig": host}))
    };
    let host = |init: bool| json!({"Init": init, "NetworkMode": "none"});
    let (alone, init) = (host(false), host(true));
    let mut steps = Vec::new();
    for (argv, host, name) in [
        (&["true"][..], &alone, "true"),
        (&["sh", "-c", "exit 3"][..], &init, "three"),
        (&["/no/such"][..], &init, "missing-to-init"),
        (&["/no/such"][..], &alone, "missing-program"),
    ] {
        steps.extend([
            step("POST /v1.41/containers/create?name={n}-p")
                .send(&with(argv, host))
                .keep(name)
                .same(&[]),
            // Its words name directories of the engine.
            step("POST /v1.41/containers/{n}-p/start").same(&[]),
            step("POST /v1.41/containers/{n}-p/wait").same(&["/StatusCode"]),
            step("GET /v1.41/containers/{n}-p/json").same(&["/State/Status", "/State/ExitCode"]),
            step("DELETE /v1.41/containers/{n}-p?force=1"),
        ]);
    }
    steps.push(step("DELETE /v1.41/containers/{n}?force=1"));
    steps.push(step("DELETE /v1.41/containers/{n}?force=1"));
    steps
}

#[test]
fn the_fake_engine_answers_as_the_real_one() {
    let fake = FakeEngine::start();
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("kept"), "kept\n").unwrap();
    let name = format!("same-{}", uuid::Uuid::new_v4().simple());
    let label = format!("test.same={name}");
    let filter = |text: String| text.replace('"', "%22").replace('=', "%3D");
    let common = [
        ("n", name.as_str()),
        ("label", name.as_str()),
        ("dir", dir.path().to_str().unwrap()),
        (
            "by_label",
            &filter(format!("%7B\"label\":[\"{label}\"]%7D")),
        ),
        (
            "by_other",
            &filter(format!("%7B\"label\":[\"{label}x\"]%7D")),
        ),
        ("unknown", &filter("%7B\"nonsense\":[\"x\"]%7D".to_owned())),
    ];
    // After a failure nothing of it stays.
    let _removed = [
        Removed::container(&name),
        Removed::container(&format!("{name}-deaf")),
        Removed::container(&format!("{name}-p")),
    ];
    let mut real = Side::new(RawEngine::real());
    let mut played = Side::new(RawEngine::at(&fake.socket()));
    let followed = [&real, &played].map(|side| side.engine.events_until_destroy(&label));
    let steps = [
        of_versions_and_creation(),
        of_running_and_commands(),
        of_stopping_and_removal(),
        of_programs(),
    ];
    let mut differences = Vec::new();
    for step in steps.into_iter().flatten() {
        let (wanted, found) = (real.ask(&step, &common), played.ask(&step, &common));
        if wanted != found {
            differences.push(format!("{}\n  real {wanted}\n  fake {found}", step.call));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    let [wanted, found] = followed.map(|events| told(&events.join().unwrap()).join("\n"));
    assert_eq!(found, wanted, "fake {found}\nreal {wanted}");
}

/// Writes down what happened, each as its action and what else is known of it.
fn told(events: &[Value]) -> Vec<String> {
    let told = events.iter().map(|event| {
        let attributes = event["Actor"]["Attributes"].as_object().unwrap();
        let more = ["exitCode", "signal", "image", "name", "oldName"]
            .map(|name| attributes.get(name).cloned().unwrap_or_default());
        format!("{} {} {more:?}", event["Type"], event["Action"])
    });
    // When a command's end is told is the scheduler's.
    let (mut ends, mut rest): (Vec<_>, Vec<_>) = told.partition(|line| line.contains("exec_die"));
    ends.sort();
    rest.extend(ends);
    rest
}

/// Plays the usual life of sessions; returns what a caller saw of it.
fn usual_life(daemon: &mut Daemon) -> Vec<String> {
    let api = Api::of(daemon);
    let mut seen = Vec::new();
    let mut ran = |api: &Api, id: &str, command: &str| {
        let ran = api.exec(id, command);
        seen.push(format!(
            "{command}: {} {} {}",
            ran["output"], ran["exit_code"], ran["truncated"]
        ));
    };
    let token = api.open_id("a");
    let own = api.with_token(&token);
    ran(&own, "a", "echo hi; echo there >&2; exit 3");
    ran(&own, "a", "echo kept > file; cat /workspace/file");
    ran(&own, "a", "/no/such/program 2>&-");
    let late = api.exec_with(
        "a",
        &json!({"command": "echo x; sleep 60", "timeout_seconds": 1}),
    );
    let attached = api.open(&json!({"session_id": "a", "reuse": true}));
    assert_eq!(attached["token"], token, "attaching gives the same session");
    // Of two only one may run, and one that was parked wakes when it is used.
    api.open_id("b");
    assert_eq!(api.wait_for("a", "hibernated")["reason"], "evicted");
    ran(&own, "a", "cat file");
    api.wait_for("b", "hibernated");
    daemon.restart(Ending::Kill);
    ran(&own, "a", "cat file");
    daemon.restart(Ending::Terminate);
    ran(&own, "a", "cat file");
    // Closed, its files stay, and an opening of that id finds them.
    api.close("a", "");
    assert_eq!(own.call("GET", "/sessions/a", None).status, 401);
    api.open_id("a");
    ran(&api, "a", "cat file");
    api.close("a", "?purge=true");
    api.open_id("a");
    ran(&api, "a", "cat file 2>&-");
    let described = api.info("a");
    for name in [
        "phase",
        "state",
        "alive",
        "incarnation",
        "runtime",
        "reason",
    ] {
        seen.push(format!("{name} {}", described[name]));
    }
    for name in ["exit_code", "timed_out", "output"] {
        seen.push(format!("late {name} {}", late[name]));
    }
    let usage = api.json(200, "GET /sessions/a?usage=true", None);
    assert!(usage.to_string().contains("memory"), "{usage}");
    for id in ["a", "b"] {
        api.close(id, "?purge=true");
    }
    let left: Vec<String> = fs::read_dir(daemon.dir().join("ws"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.starts_with('.'))
        .collect();
    assert_eq!(left, [""; 0]);
    seen
}

#[test]
fn the_daemon_lives_on_the_fake_engine_as_on_the_real_one() {
    let asked = settings(&[
        WORKSPACES,
        ("SANDBOXD_MAX_SESSIONS", "1"),
        ("SANDBOXD_EVICT_IDLE_AFTER", "0"),
    ]);
    let fake = FakeEngine::start();
    let [wanted, found] = std::thread::scope(|scope| {
        let real = scope.spawn(|| usual_life(&mut Daemon::start(&asked)));
        let played = scope.spawn(|| usual_life(&mut Daemon::on(&fake, &asked)));
        [real, played].map(|one| one.join().unwrap())
    });
    assert_eq!(found, wanted);
    wait("nothing is left on the engine", SOON, || {
        fake.containers().is_empty().then_some(())
    });
}

#[test]
fn a_removal_under_way_is_told_from_one_that_is_done() {
    let fake = FakeEngine::start();
    let engine = RawEngine::at(&fake.socket());
    let body = json!({"Image": IMAGE, "Cmd": ["sleep", "1"]});
    engine.json("POST /containers/create?name=x", Some(&body));
    fake.slow_removals(Duration::from_millis(500));
    let mut statuses = at_once(8, |_| engine.json("DELETE /containers/x?force=1", None).0);
    statuses.sort_unstable();
    assert_eq!(statuses[0], 204, "{statuses:?}");
    assert!(
        statuses[1..].iter().all(|status| *status == 409),
        "{statuses:?}"
    );
    assert_eq!(engine.json("DELETE /containers/x", None).0, 404);
}

#[test]
fn an_engine_that_restarts_stops_containers_and_forgets_commands() {
    let fake = FakeEngine::start();
    let engine = RawEngine::at(&fake.socket());
    let body = json!({"Image": IMAGE, "Cmd": ["sleep", "1"], "HostConfig": {"Init": true}});
    engine.json("POST /containers/create?name=x", Some(&body));
    engine.json("POST /containers/x/start", None);
    let (_, exec) = engine.json("POST /containers/x/exec", Some(&shell("true")));
    let exec = exec["Id"].as_str().unwrap().to_owned();
    let look = |path: &str| engine.json(&format!("GET {path}"), None);
    assert_eq!(look(&format!("/exec/{exec}/json")).0, 200);
    fake.restart();
    assert_eq!(look(&format!("/exec/{exec}/json")).0, 404);
    let (_, found) = look("/containers/x/json");
    assert_eq!(found["State"]["ExitCode"], 143);
    assert_eq!(fake.containers()[0].status, Status::Exited);
    // What dies in the middle of a start leaves a container that never starts again.
    engine.json("POST /containers/create?name=y", Some(&body));
    fake.die_in_next_start();
    let reply = std::panic::catch_unwind(|| engine.json("POST /containers/y/start", None));
    assert!(reply.is_err(), "it was answered");
    for _ in 0..2 {
        let (status, said) = engine.json("POST /containers/y/start", None);
        assert_eq!(status, 500);
        assert_eq!(said["message"], "id already in use");
    }
    assert_eq!(look("/containers/y/json").1["State"]["Status"], "created");
    assert_eq!(engine.json("DELETE /containers/y?force=1", None).0, 204);
}
