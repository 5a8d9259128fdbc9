//! What the daemon makes of an engine that fails call by call, by rule.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::api::{Api, WORKSPACES, settings, wait};
use crate::support::daemon::Daemon;
use crate::support::fake::{FakeEngine, Status};
use crate::support::fault::{Action, Broken, Plan, Seeded};
use crate::support::http::Response;
use crate::support::raw_engine::RawEngine;
use crate::support::whole;

/// By when everything is in order again after the last fault.
const SETTLED: Duration = Duration::from_secs(20);
/// Bytes of memory that no answer of an engine may cost.
const MEMORY_GROWTH_MAX: u64 = 64 << 20;

/// A daemon on a fake engine, with one session that has a file.
struct World {
    daemon: Daemon,
    engine: FakeEngine,
    api: Api,
    life: (String, Value),
}

impl World {
    fn new(changes: &[(&str, &str)]) -> Self {
        let engine = FakeEngine::start();
        let daemon = Daemon::on(&engine, &settings(&[&[WORKSPACES], changes].concat()));
        let api = Api::of(&daemon);
        api.open_id("stays");
        api.sh("stays", "echo kept > file");
        let life = (
            engine.containers()[0].id.clone(),
            api.info("stays")["incarnation"].clone(),
        );
        Self {
            daemon,
            engine,
            api,
            life,
        }
    }

    /// Makes a request; whatever comes of it is in the service's own words.
    fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Response {
        let reply = self.api.call(method, path, body);
        if 400 <= reply.status {
            let code = reply.json().unwrap_or_default()["code"].clone();
            assert!(
                matches!(reply.status, 404 | 409 | 502 | 503 | 507),
                "{method} {path}: {} {}",
                reply.status,
                reply.text()
            );
            assert!(code.is_string(), "{}", reply.text());
            assert_ne!(code, "internal", "{}", reply.text());
        }
        reply
    }

    fn open(&self, id: &str) -> u16 {
        self.call("POST", "/sessions", Some(&json!({"session_id": id})))
            .status
    }

    fn exec(&self, command: &str) -> Response {
        let asked = json!({"command": command});
        self.call("POST", "/sessions/stays/exec", Some(&asked))
    }

    /// Ends all faults, and waits out those that last for a while.
    fn wait_until_served(&self) {
        self.engine.faults().follow(Plan::default());
        wait("commands run", SETTLED, || {
            (self.exec("true").status == 200).then_some(())
        });
    }

    /// Ends all faults, and checks that nothing came of them that lasts.
    fn assert_whole(&self, more: &[&str]) {
        self.wait_until_served();
        assert_eq!(self.api.sh("stays", "cat file"), "kept");
        assert_eq!(self.api.info("stays")["incarnation"], self.life.1);
        for id in more {
            if self.open(id) == 409 {
                self.api.close(id, "?purge=true");
                assert_eq!(self.open(id), 200);
            }
            assert_eq!(self.api.sh(id, "echo hi"), "hi");
        }
        let wanted = 1 + more.len();
        wait("each session has one container", SETTLED, || {
            let containers = self.engine.containers();
            let running = containers
                .iter()
                .filter(|one| one.status == Status::Running);
            (running.count() == wanted && containers.len() == wanted).then_some(())
        });
        assert!(
            self.engine
                .containers()
                .iter()
                .any(|one| one.id == self.life.0)
        );
        for id in more {
            self.api.close(id, "?purge=true");
        }
        let log = fs::read_to_string(self.daemon.log_path()).unwrap();
        assert!(!log.contains("panicked"), "{log}");
    }

    fn memory_bytes(&self) -> u64 {
        let path = format!("/proc/{}/status", self.daemon.pid());
        let status = fs::read_to_string(path).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kib = line.unwrap().split_whitespace().nth(1).unwrap();
        kib.parse::<u64>().unwrap() << 10
    }
}

fn answer(status: u16, body: &str, claims: Option<usize>) -> Action {
    Action::Answer {
        status,
        body: body.to_owned(),
        claims,
    }
}

fn garbage() -> Vec<Action> {
    let html = "<html><body>It works!</body></html>";
    vec![
        answer(200, html, None),
        answer(200, "", None),
        answer(200, "{}", None),
        answer(200, "null", None),
        answer(200, "[]", None),
        answer(200, "[{\"Id\":\"x\"}]", None),
        answer(200, "{\"Id\":\"x\"", Some(100_000)),
        answer(200, "[ ]garbage", Some(3)),
        answer(404, html, None),
        answer(404, r#"{"message":"page not found"}"#, None),
        answer(409, html, None),
        answer(500, html, None),
        answer(503, "", Some(10)),
    ]
}

/// The calls that the daemon asks an engine by, of each kind.
const KINDS: [(&str, &str); 7] = [
    ("GET", "/containers/json"),
    ("GET", "/containers/*/json"),
    ("POST", "/containers/create"),
    ("POST", "/containers/*/start"),
    ("POST", "/containers/*/exec"),
    ("POST", "/exec/*/start"),
    ("GET", "/exec/*/json"),
];

#[test]
fn truncated_or_garbage_answers_are_a_typed_error_and_never_a_wrong_belief() {
    let world = World::new(&[("SANDBOXD_CLEANUP_INTERVAL", "1")]);
    for (method, path) in KINDS {
        for action in garbage() {
            world
                .engine
                .faults()
                .follow(Plan::every(method, path, action));
            world.open("other");
            let ran = world.exec("echo hi");
            if ran.status == 200 {
                let ran = ran.json().unwrap();
                let is_known = ran["exit_code"] == 0 && ran["output"] == "hi\n";
                let is_unknown = ran["exit_code"].is_null() && ran["reason"].is_string();
                assert!(is_known || is_unknown, "{ran}");
            }
            world.engine.faults().follow(Plan::default());
            world.call("DELETE", "/sessions/other?purge=true", None);
        }
        world.assert_whole(&["other"]);
    }
}

#[test]
fn a_reply_that_is_cut_anywhere_is_never_half_believed() {
    let world = World::new(&[]);
    let longest = 4_000;
    let step = if whole() { 1 } else { 211 };
    for (method, path) in [
        ("GET", "/containers/*/json"),
        ("POST", "/containers/create"),
        ("POST", "/containers/*/exec"),
        ("GET", "/exec/*/json"),
    ] {
        let is_creation = path.ends_with("create");
        for bytes in (0..longest).step_by(if is_creation { step * 2 } else { step }) {
            let faults = world.engine.faults();
            faults.follow(Plan::nth(method, path, 1, Action::Cut { bytes }));
            if is_creation {
                let opened = world.open("other");
                assert!(matches!(opened, 200 | 502 | 503), "{opened}");
                assert!(world.engine.containers().len() <= 2);
                faults.follow(Plan::default());
                world.call("DELETE", "/sessions/other?purge=true", None);
            } else {
                let ran = world.exec("echo hi");
                if let Some(ran) = ran.json().filter(|_| ran.status == 200) {
                    let is_known = ran["exit_code"] == 0 && ran["output"] == "hi\n";
                    let is_unknown = ran["exit_code"].is_null() && ran["reason"].is_string();
                    assert!(is_known || is_unknown, "{ran}");
                }
            }
        }
        world.assert_whole(&["other"]);
    }
}

#[test]
fn a_listing_that_is_cut_anywhere_takes_nothing_away() {
    let world = World::new(&[
        ("SANDBOXD_CLEANUP_INTERVAL", "1"),
        ("SANDBOXD_ORPHAN_GRACE", "0"),
    ]);
    let cuts = if whole() { 60 } else { 4 };
    for n in 0..cuts {
        let bytes = 150 + n * 1_500 / cuts;
        let faults = world.engine.faults();
        faults.follow(Plan::every(
            "GET",
            "/containers/json",
            Action::Cut { bytes },
        ));
        let count = || {
            let lists = |line: &String| line.contains("/containers/json");
            world
                .engine
                .proxy()
                .calls("GET")
                .iter()
                .filter(|line| lists(line))
                .count()
        };
        let before = count();
        wait("two listings are cut", SETTLED, || {
            (before + 2 <= count()).then_some(())
        });
        assert_eq!(world.api.info("stays")["phase"], "running");
    }
    world.assert_whole(&[]);
}

#[test]
fn a_command_is_never_re_run_after_a_lost_reply() {
    let world = World::new(&[]);
    let kinds = [
        ("POST", "/containers/*/exec"),
        ("POST", "/exec/*/start"),
        ("GET", "/exec/*/json"),
    ];
    let mut told = Vec::new();
    for (method, path) in kinds {
        for action in [
            Action::DropRequest,
            Action::DropReply,
            Action::Cut { bytes: 20 },
            Action::Cut { bytes: 205 },
            Action::Refuse { ms: 300 },
            Action::Delay { ms: 300 },
            Action::Replay,
            Action::CorruptFrame(Broken::Stream(9)),
        ] {
            world.wait_until_served();
            let plan = Plan::nth(method, path, 1, action.clone());
            world.engine.faults().follow(plan);
            let ran = world.exec(&format!("echo {} >> runs; echo hi", told.len()));
            let body = ran.json().unwrap();
            let runs = match (ran.status, &body["exit_code"]) {
                (200, Value::Null) => {
                    assert!(body["reason"].is_string(), "{body}");
                    0..=1
                }
                (200, code) => {
                    assert_eq!(code, 0, "{body}");
                    1..=1
                }
                // Told that it did not run.
                _ => 0..=0,
            };
            told.push((format!("{method} {path} {action:?}: {body}"), runs));
        }
    }
    world.wait_until_served();
    let ran = world.api.sh("stays", "cat runs");
    for (n, (what, wanted)) in told.iter().enumerate() {
        let times = ran.lines().filter(|line| *line == n.to_string()).count();
        assert!(wanted.contains(&times), "it ran {times} times: {what}");
    }
    world.assert_whole(&[]);
}

#[test]
fn a_frame_that_claims_a_gibibyte_costs_no_memory() {
    let world = World::new(&[]);
    let before = world.memory_bytes();
    for broken in [
        Broken::Length(1 << 30),
        Broken::Length(u32::MAX),
        Broken::Stream(9),
        Broken::Stream(255),
    ] {
        let action = Action::CorruptFrame(broken);
        let plan = Plan::every("POST", "/exec/*/start", action);
        world.engine.faults().follow(plan);
        for _ in 0..3 {
            let ran = world.exec("echo hi").json().unwrap();
            assert!(ran["exit_code"].is_null(), "{ran}");
            assert!(ran["reason"].is_string(), "{ran}");
        }
    }
    let grown = world.memory_bytes().saturating_sub(before);
    assert!(grown < MEMORY_GROWTH_MAX, "{grown} bytes");
    world.assert_whole(&[]);
}

#[test]
fn lost_and_repeated_calls_leave_one_container_or_none() {
    let world = World::new(&[]);
    let actions = [
        Action::DropRequest,
        Action::DropReply,
        Action::Cut { bytes: 30 },
        Action::Replay,
        Action::Delay { ms: 200 },
        Action::Refuse { ms: 400 },
    ];
    for (method, path) in [
        ("POST", "/containers/create"),
        ("POST", "/containers/*/start"),
        ("DELETE", "/containers/*"),
        ("GET", "/containers/*/json"),
    ] {
        for action in &actions {
            let plan = Plan::nth(method, path, 1, action.clone());
            world.engine.faults().follow(plan);
            // Told that it failed, asking again helps.
            let opened = world.open("other");
            if opened != 200 {
                wait("it opens", SETTLED, || {
                    (world.open("other") == 200).then_some(())
                });
            }
            assert_eq!(world.api.sh("other", "echo hi"), "hi");
            let closed = world.call("DELETE", "/sessions/other?purge=true", None);
            assert_eq!(closed.status, 204, "{method} {path} {action:?}");
            wait(
                &format!("it is gone after {method} {path} {action:?}"),
                SETTLED,
                || (world.engine.containers().len() == 1).then_some(()),
            );
        }
    }
    world.assert_whole(&["other"]);
}

#[test]
fn a_name_that_is_taken_by_nothing_fails_the_opening_and_hangs_nobody() {
    let world = World::new(&[]);
    let taken = r#"{"message":"Conflict. The container name is already in use"}"#;
    let plan = Plan::every("POST", "/containers/create", answer(409, taken, None));
    world.engine.faults().follow(plan);
    let asked = json!({"session_id": "other"});
    let reply = world.call("POST", "/sessions", Some(&asked));
    assert_eq!(reply.status, 502, "{}", reply.text());
    assert!(reply.text().contains("is taken"), "{}", reply.text());
    world.assert_whole(&["other"]);
}

#[test]
fn an_engine_that_only_says_that_it_starts_fails_the_opening_and_hangs_nobody() {
    let world = World::new(&[]);
    let plan = Plan::every("POST", "/containers/*/start", answer(204, "", None));
    world.engine.faults().follow(plan);
    let asked = json!({"session_id": "other"});
    let reply = world.call("POST", "/sessions", Some(&asked));
    assert_eq!(reply.status, 502, "{}", reply.text());
    let why = "could not start its container";
    assert!(reply.text().contains(why), "{}", reply.text());
    world.assert_whole(&["other"]);
}

#[test]
fn a_lost_reply_to_a_stop_stops_once_on_the_fake_engine() {
    let world = World::new(&[("SANDBOXD_PERSIST_CONTAINERS", "1")]);
    for action in [
        Action::DropReply,
        Action::DropRequest,
        Action::Replay,
        Action::Cut { bytes: 12 },
    ] {
        let plan = Plan::nth("POST", "/containers/*/stop", 1, action);
        world.engine.faults().follow(plan);
        world.api.close("stays", "");
        wait("it has stopped", SETTLED, || {
            (world.engine.containers()[0].status == Status::Exited).then_some(())
        });
        assert_eq!(world.open("stays"), 200);
        assert_eq!(world.api.sh("stays", "cat file"), "kept");
        assert_eq!(world.engine.containers().len(), 1);
        assert_eq!(world.engine.containers()[0].id, world.life.0);
    }
}

#[test]
fn an_event_stream_that_stalls_or_reorders_delays_nothing_beyond_the_resync() {
    for action in [
        Action::StallEvents { after: 0 },
        Action::StallEvents { after: 1 },
        Action::ReorderEvents,
        Action::Hang,
        Action::DropRequest,
    ] {
        let engine = FakeEngine::start_with(Plan::every("GET", "/events", action.clone()));
        let asked = settings(&[WORKSPACES, ("SANDBOXD_CLEANUP_INTERVAL", "2")]);
        let daemon = Daemon::on(&engine, &asked);
        let api = Api::of(&daemon);
        api.open_id("a");
        let raw = RawEngine::at(&engine.socket());
        let id = engine.containers()[0].id.clone();
        let began = Instant::now();
        assert_eq!(
            raw.json(&format!("POST /containers/{id}/kill"), None).0,
            204
        );
        let parked = api.wait_for("a", "hibernated");
        assert_eq!(parked["reason"], "container_died", "{action:?}");
        let took = began.elapsed();
        assert!(took < Duration::from_secs(8), "{action:?}: {took:?}");
        // Used, it wakes, and nothing that is told late puts it to rest again.
        assert_eq!(api.sh("a", "echo hi"), "hi");
        let again = api.info("a");
        assert_eq!(
            (&again["phase"], &again["incarnation"]),
            (&json!("running"), &json!(2))
        );
    }
}

#[test]
fn a_start_in_which_the_engine_dies_gets_another_container() {
    let world = World::new(&[]);
    world.engine.die_in_next_start();
    let opened = world.open("other");
    if opened != 200 {
        wait("it opens", SETTLED, || {
            (world.open("other") == 200).then_some(())
        });
    }
    assert_eq!(world.api.sh("other", "echo hi"), "hi");
    assert_eq!(world.api.sh("stays", "cat file"), "kept");
    wait("what never starts is gone", SETTLED, || {
        let all = world.engine.containers();
        (all.len() == 2 && all.iter().all(|one| one.status == Status::Running)).then_some(())
    });
}

#[test]
fn a_command_whose_engine_restarts_has_an_unknown_end() {
    let world = World::new(&[]);
    let before = world.engine.commands_started();
    let ran = std::thread::scope(|scope| {
        let ran = scope.spawn(|| world.exec("echo begun; sleep 30"));
        wait("it runs", SETTLED, || {
            (before < world.engine.commands_started()).then_some(())
        });
        world.engine.restart();
        ran.join().unwrap()
    });
    let ran = ran.json().unwrap();
    assert!(
        ran["exit_code"].is_null() && ran["reason"].is_string(),
        "{ran}"
    );
    // It wakes on its next use; only its life is another one.
    assert_eq!(world.api.sh("stays", "cat file"), "kept");
}

#[test]
fn chance_by_a_seed_leaves_everything_whole() {
    let seeds = if whole() { 20 } else { 3 };
    for seed in 0..seeds {
        let world = World::new(&[("SANDBOXD_CLEANUP_INTERVAL", "2")]);
        let actions = vec![
            Action::DropRequest,
            Action::DropReply,
            Action::Cut { bytes: 40 },
            Action::Cut { bytes: 400 },
            Action::Refuse { ms: 100 },
            Action::Delay { ms: 100 },
            Action::CorruptFrame(Broken::Length(1 << 30)),
            answer(200, "<html>", None),
            answer(500, "", None),
            Action::StallEvents { after: 3 },
            Action::ReorderEvents,
        ];
        // Whether the engine is there at all is not left to chance.
        let mut plan = Plan::every("GET", "/_ping", Action::Pass);
        plan.seeded = Some(Seeded {
            seed,
            percent: 15,
            actions,
        });
        world.engine.faults().follow(plan);
        for n in 0..8 {
            let id = format!("s{}", n % 3);
            world.open(&id);
            let path = format!("/sessions/{id}/exec");
            world.call("POST", &path, Some(&json!({"command": "echo x >> log"})));
            if n % 4 == 3 {
                world.call("DELETE", &format!("/sessions/{id}?purge=true"), None);
            }
        }
        world.wait_until_served();
        for id in ["s0", "s1", "s2"] {
            world.call("DELETE", &format!("/sessions/{id}?purge=true"), None);
        }
        wait("only one session is left", SETTLED, || {
            (world.engine.containers().len() == 1).then_some(())
        });
        assert_eq!(world.api.sh("stays", "cat file"), "kept", "seed {seed}");
        world.assert_whole(&["s0"]);
    }
}
