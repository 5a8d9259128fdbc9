//! The verifier, on the real engine: what it finds, that it changes nothing, and that
//! claims which do not hold are found.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::api::{Api, WORKSPACES, settings, wait};
use crate::support::claims::Claims;
use crate::support::daemon::{Daemon, Ending};
use crate::support::docker::{self, docker};
use crate::support::proxy::{Mode, Proxy};
use crate::support::whole;

/// How long a page may take while the engine is frozen.
const PAGE_MAX: Duration = Duration::from_secs(20);

/// Runs `sandboxd verify` on the directories of a daemon, with these settings besides.
fn verify(daemon: &Daemon, changes: &[(&str, &str)]) -> Output {
    let work = daemon.dir().to_str().unwrap();
    let scratch = daemon.dir().join("scratch");
    fs::create_dir_all(&scratch).unwrap();
    let settings = settings(changes).into_iter().map(|(name, value)| {
        let value = value.replace("{{work}}", work);
        (name, value.replace("{{image}}", docker::IMAGE))
    });
    let output = Command::new(env!("CARGO_BIN_EXE_sandboxd"))
        .arg("verify")
        .env_clear()
        .env("TMPDIR", &scratch)
        .env("SANDBOXD_TOKEN", daemon.token())
        .env("SANDBOXD_STATE_DIR", daemon.dir().join("state"))
        .env("SANDBOXD_RUNTIME_DIR", daemon.dir().join("run"))
        .envs(settings)
        .output()
        .unwrap();
    let left = fs::read_dir(&scratch).unwrap().count();
    assert_eq!(left, 0, "a copy of the store is left");
    output
}

/// Returns the names of the findings of a level on a printed page.
fn printed(output: &Output, level: &str) -> Vec<String> {
    let page = String::from_utf8(output.stdout.clone()).unwrap();
    let lines = page.lines().filter(|line| line.starts_with(level));
    let names = lines.filter_map(|line| line.split_whitespace().nth(2));
    names
        .map(|name| name.trim_end_matches(':').to_owned())
        .collect()
}

fn sandboxctl(daemon: &Daemon, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sandboxctl"))
        .args(args)
        .env_clear()
        .env("SANDBOXD_URL", daemon.url())
        .env("SANDBOXD_TOKEN", daemon.token())
        .output()
        .unwrap()
}

/// Returns every file and directory below a path, with contents and times of change.
fn tree(path: &Path) -> BTreeMap<PathBuf, (Vec<u8>, std::time::SystemTime)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        let meta = fs::symlink_metadata(&path).unwrap();
        if meta.is_dir() {
            found.extend(tree(&path));
        }
        let bytes = if meta.is_file() {
            fs::read(&path).unwrap()
        } else {
            Vec::new()
        };
        found.insert(path, (bytes, meta.modified().unwrap()));
    }
    found
}

/// Returns the containers with a label, with when each was made and started.
fn containers(label: &str) -> Vec<String> {
    let format = "{{.Id}} {{.Created}} {{.State.Status}} {{.State.StartedAt}}";
    let ids = docker::labelled(label);
    ids.iter()
        .map(|id| docker(&["inspect", "--format", format, id]))
        .collect()
}

/// Makes a container with the label of a daemon and a key that nobody knows.
fn stray(label: &str) -> String {
    let key = format!("io.sandboxd.key={}", "5".repeat(32));
    docker(&[
        "create",
        "--network",
        "none",
        "--label",
        label,
        "--label",
        &key,
        docker::IMAGE,
        "sleep",
        "60",
    ])
}

/// Returns the names of the findings of a level.
fn of_level(report: &Value, level: &str) -> Vec<String> {
    let findings = report["findings"].as_array().unwrap().iter();
    findings
        .filter(|finding| finding["level"] == level)
        .map(|finding| finding["name"].as_str().unwrap().to_owned())
        .collect()
}

fn doctor(daemon: &Daemon) -> Value {
    Api::of(daemon).json(200, "GET /doctor", None)
}

#[test]
fn a_healthy_service_is_clean_and_its_claims_hold_through_a_kill() {
    let mut daemon = Daemon::start(&settings(&[WORKSPACES]));
    let api = Api::of(&daemon);
    let mut claims = Claims::default();
    claims.open(&api, &json!({"session_id": "kept", "tenant": "acme"}));
    claims.write(&api, "kept", "text", b"kept\n");
    claims.write(&api, "kept", "it's bytes", &[0, 255, 10, 39, 128]);
    for id in ["closed", "purged", "lost-close", "lost-purge"] {
        claims.open(&api, &json!({ "session_id": id }));
        claims.write(&api, id, "f", id.as_bytes());
    }
    claims.close(&api, "closed");
    claims.purge(&api, "purged");
    claims.unacknowledged("lost-close");
    api.close("lost-purge", "?purge=true");
    claims.unacknowledged("lost-purge");
    claims.unacknowledged("lost-open");
    let report = doctor(&daemon);
    assert_eq!(of_level(&report, "fail"), Vec::<String>::new(), "{report}");
    assert_eq!(
        of_level(&report, "unknown"),
        Vec::<String>::new(),
        "{report}"
    );
    daemon.restart(Ending::Kill);
    claims.verify(&daemon);
    daemon.restart(Ending::Terminate);
    claims.verify(&daemon);
}

#[test]
fn claims_that_do_not_hold_are_all_found() {
    let daemon = Daemon::start(&settings(&[WORKSPACES]));
    let api = Api::of(&daemon);
    let mut claims = Claims::default();
    for id in ["a", "b", "c", "d", "e"] {
        claims.open(&api, &json!({ "session_id": id }));
        claims.write(&api, id, "f", b"as it was");
    }
    claims.may_have_written("e", "f");
    assert_eq!(claims.ids(), ["a", "b", "c", "d", "e"]);
    claims.close(&api, "b");
    let ws = |path: &str| daemon.dir().join("ws").join(path);
    // Nobody wrote it through the service, nobody acknowledged the close, the purge or
    // the opening, and the command was never run.
    fs::write(ws("a/workspace/f"), "changed").unwrap();
    fs::write(ws("b/workspace/f"), "changed").unwrap();
    api.close("c", "");
    claims.purged("d");
    api.open_id("unclaimed");
    fs::write(ws("e/workspace/f"), "changed").unwrap();
    claims.replied("e", "date", &json!({"exit_code": 0}));
    let violations = claims.violations(&daemon);
    for expected in [
        "a: f was 9 bytes long, and is",
        "b: f was 9 bytes long, and differs",
        "c: it was opened, and is not listed",
        "c: its token runs no command: 401",
        "d: it is listed, and nobody opened it",
        "d: it was purged, and /sessions/d answers 200",
        "d: it was purged, and its directory is there",
        "d: an old token is answered with 200",
        "e: no event tells that \"date\" ended as exit 0",
        "unclaimed: it is listed, and nobody opened it",
    ] {
        let found = violations.iter().any(|found| found.starts_with(expected));
        assert!(found, "{expected}: {violations:#?}");
    }
    assert_eq!(violations.len(), 11, "{violations:#?}");
}

/// A stopped daemon of which a container, a workspace and a record are missing.
struct Broken {
    daemon: Daemon,
    label: String,
    /// The container that no record names.
    stray: docker::Removed,
    stray_id: String,
}

impl Broken {
    fn by_hand() -> Self {
        let mut daemon = Daemon::start(&settings(&[WORKSPACES]));
        let api = Api::of(&daemon);
        for id in ["bare", "robbed", "whole"] {
            api.open_id(id);
            api.sh(id, "echo kept > f");
        }
        let (label, bare) = (daemon.label(), api.container("bare"));
        daemon.stop(Ending::Kill);
        docker(&["rm", "--force", &bare]);
        let ws = daemon.dir().join("ws");
        fs::remove_dir_all(ws.join("robbed/workspace")).unwrap();
        fs::create_dir(ws.join("orphan")).unwrap();
        let stray_id = stray(&label);
        let stray = docker::Removed::container(&stray_id);
        Self {
            daemon,
            label,
            stray,
            stray_id,
        }
    }
}

#[test]
fn what_was_broken_by_hand_is_found_while_no_daemon_runs_and_nothing_is_changed() {
    let Broken {
        daemon,
        label,
        stray: _stray,
        stray_id,
    } = Broken::by_hand();
    let (state, ws) = (daemon.dir().join("state"), daemon.dir().join("ws"));
    let before = (tree(&state), tree(&ws), containers(&label));
    let output = verify(&daemon, &[WORKSPACES]);
    assert_eq!(before, (tree(&state), tree(&ws), containers(&label)));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let page = String::from_utf8(output.stdout.clone()).unwrap();
    let broken = ["container_missing", "workspace_missing", "stray_container"];
    assert_eq!(printed(&output, "fail"), broken, "{page}");
    for line in [
        "container_missing [bare]: ",
        "workspace_missing [robbed]: ",
        "workspace_without_record [orphan]: ",
        &format!("stray_container [{stray_id}]: "),
        "-> sandboxd removes it after SANDBOXD_ORPHAN_GRACE",
    ] {
        assert!(page.contains(line), "{line}: {page}");
    }

    // Without an engine nothing is known of containers, and the rest is found as before.
    let none = ("SANDBOXD_DOCKER_HOST", "unix:///nonexistent.sock");
    let output = verify(&daemon, &[WORKSPACES, none]);
    assert_eq!(printed(&output, "fail"), ["workspace_missing"]);
    let unknown = ["containers_unseen", "groups_unseen", "engine_unseen"];
    assert_eq!(printed(&output, "unknown"), unknown);
}

#[test]
fn what_was_broken_by_hand_is_found_by_the_daemon_which_parks_what_lost_its_container() {
    let Broken {
        mut daemon,
        label,
        stray: _stray,
        ..
    } = Broken::by_hand();
    let ws = daemon.dir().join("ws");
    daemon.start_again();
    let broken = ["workspace_missing", "stray_container"];
    let report = wait("the daemon has settled", Duration::from_secs(30), || {
        let report = doctor(&daemon);
        (of_level(&report, "fail") == broken).then_some(report)
    });
    assert_eq!(
        (&report["verdict"], &report["counts"]["fail"]),
        (&json!("fail"), &json!(2))
    );
    let before = (tree(&ws), containers(&label));
    let output = sandboxctl(&daemon, &["doctor"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(printed(&output, "fail"), broken);
    let output = sandboxctl(&daemon, &["doctor", "--output", "json"]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(of_level(&json, "fail"), broken);
    assert_eq!(before, (tree(&ws), containers(&label)));

    let output = verify(&daemon, &[WORKSPACES]);
    assert_eq!(output.status.code(), Some(69));
    let told = String::from_utf8(output.stderr).unwrap();
    for word in [&daemon.pid().to_string(), "sandboxctl doctor"] {
        assert!(told.contains(word), "{word}: {told}");
    }
}

#[test]
fn a_lowered_ceiling_is_found_to_be_exceeded() {
    let conf = ("SANDBOXD_CONFIG", "{{work}}/conf");
    let high = "SANDBOXD_MAX_SESSIONS=3\n";
    // The file has to be there before the daemon is, and the directory is the daemon's.
    let mut daemon = Daemon::start(&settings(&[WORKSPACES, ("SANDBOXD_MAX_SESSIONS", "3")]));
    let api = Api::of(&daemon);
    for id in ["a", "b"] {
        api.open(&json!({"session_id": id, "tenant": "acme"}));
    }
    let report = doctor(&daemon);
    assert_eq!(of_level(&report, "fail"), Vec::<String>::new(), "{report}");
    daemon.stop(Ending::Terminate);
    fs::write(daemon.dir().join("conf"), high).unwrap();
    let well = verify(&daemon, &[WORKSPACES, conf]);
    assert_eq!(printed(&well, "fail"), Vec::<String>::new());
    assert_eq!(well.status.code(), Some(0), "{well:?}");
    let low = "SANDBOXD_MAX_SESSIONS=1\nSANDBOXD_MAX_OPEN_SESSIONS=1\nSANDBOXD_MAX_SESSIONS_PER_TENANT=1\n";
    fs::write(daemon.dir().join("conf"), low).unwrap();
    let output = verify(&daemon, &[WORKSPACES, conf]);
    let over = ["resident_over", "open_over", "tenant_over", "running_over"];
    assert_eq!(printed(&output, "fail"), over);
}

#[test]
fn a_frozen_engine_leaves_things_unknown_and_nothing_broken() {
    let proxy = Proxy::start();
    let address = proxy.address();
    let daemon = Daemon::start(&settings(&[WORKSPACES, ("SANDBOXD_DOCKER_HOST", &address)]));
    Api::of(&daemon).open_id("s");
    proxy.set(Mode::Frozen);
    let unknown = ["containers_unseen", "groups_unseen", "engine_unseen"];
    // At once, and again when the heartbeat has missed it.
    for _ in 0..2 {
        let asked = Instant::now();
        let report = doctor(&daemon);
        assert!(asked.elapsed() < PAGE_MAX, "{:?}", asked.elapsed());
        assert_eq!(of_level(&report, "unknown"), unknown, "{report}");
        assert_eq!(of_level(&report, "fail"), Vec::<String>::new(), "{report}");
        assert_eq!(report["verdict"], "unknown");
    }
    assert_eq!(sandboxctl(&daemon, &["doctor"]).status.code(), Some(7));
    proxy.set(Mode::Forward);
    wait("the engine is seen again", Duration::from_secs(30), || {
        let report = doctor(&daemon);
        of_level(&report, "unknown").is_empty().then_some(())
    });
    assert_eq!(sandboxctl(&daemon, &["doctor"]).status.code(), Some(0));
}

#[test]
fn a_state_directory_that_was_never_used_is_told_from_a_broken_one() {
    let mut daemon = Daemon::start(&settings(&[]));
    daemon.stop(Ending::Terminate);
    let state = daemon.dir().join("state");
    let log = state.join("store/v1/db");
    let bytes = fs::read(&log).unwrap();
    fs::write(&log, &bytes[..bytes.len() / 2]).unwrap();
    let before = tree(&state);
    let output = verify(&daemon, &[]);
    assert_eq!(before, tree(&state));
    assert_eq!(output.status.code(), Some(65), "{output:?}");
    assert_eq!(printed(&output, "fail"), ["store_broken"]);
    assert_eq!(printed(&output, "unknown")[..1], ["records_unseen"]);
    for entry in fs::read_dir(&state).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
    }
    let output = verify(&daemon, &[]);
    assert!(
        printed(&output, "warn").contains(&"no_store".to_owned()),
        "{output:?}"
    );
    assert_eq!(fs::read_dir(&state).unwrap().count(), 0);
}

#[test]
fn a_store_that_lost_its_end_is_found_while_no_daemon_runs() {
    let mut daemon = Daemon::start(&settings(&[WORKSPACES]));
    let api = Api::of(&daemon);
    api.open_id("a");
    let store = daemon.dir().join("state/store");
    daemon.stop(Ending::Kill);
    // What was there before the last commits.
    let earlier = daemon.dir().join("earlier");
    copy_tree(&store, &earlier);
    daemon.start_again();
    api.open_id("lost");
    daemon.stop(Ending::Kill);
    fs::remove_dir_all(&store).unwrap();
    copy_tree(&earlier, &store);
    let output = verify(&daemon, &[WORKSPACES]);
    assert_eq!(printed(&output, "fail"), ["store_broken"], "{output:?}");
    assert_eq!(output.status.code(), Some(65), "{output:?}");
}

fn copy_tree(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status();
    assert!(copied.unwrap().success());
}

#[test]
fn a_name_in_the_root_that_drives_terminals_is_printed_as_plain_text() {
    let mut daemon = Daemon::start(&settings(&[WORKSPACES]));
    let name = "\u{1b}]0;owned\u{7}\u{1b}[2J\nok      I1       all_is_well\u{9b}31m\u{202e}";
    fs::create_dir(daemon.dir().join("ws").join(name)).unwrap();
    let by_daemon = sandboxctl(&daemon, &["doctor"]);
    daemon.stop(Ending::Terminate);
    for output in [by_daemon, verify(&daemon, &[WORKSPACES])] {
        let page = String::from_utf8(output.stdout.clone()).unwrap();
        assert!(page.contains("strange_entry"), "{page}");
        let hostile = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!page.contains(hostile), "{page:?}");
        assert!(!page.contains("\nok      I1       all_is_well"), "{page}");
    }
}

#[test]
fn nothing_is_found_broken_while_sessions_come_and_go() {
    let looks = if whole() { 50 } else { 12 };
    let daemon = Daemon::start(&settings(&[
        WORKSPACES,
        ("SANDBOXD_CLEANUP_INTERVAL", "1"),
        ("SANDBOXD_MAX_SESSIONS", "3"),
        ("SANDBOXD_EVICT_IDLE_AFTER", "0"),
    ]));
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        for n in 0..4 {
            let (api, ended) = (Api::of(&daemon), &ended);
            scope.spawn(move || {
                let id = format!("s{n}");
                let path = format!("/sessions/{id}");
                for round in 0.. {
                    if ended.load(Ordering::SeqCst) {
                        return;
                    }
                    // What is refused, for want of a place, is tried again.
                    api.call("POST", "/sessions", Some(&json!({"session_id": id})));
                    let asked = json!({"command": "echo x > f"});
                    api.call("POST", &format!("{path}/exec"), Some(&asked));
                    let purge = if round % 3 == 0 { "" } else { "?purge=true" };
                    api.call("DELETE", &format!("{path}{purge}"), None);
                }
            });
        }
        let found: Vec<Value> = (0..looks)
            .map(|_| doctor(&daemon))
            .filter(|report| !matches!(report["verdict"].as_str(), Some("ok" | "warn")))
            .collect();
        ended.store(true, Ordering::SeqCst);
        let broken: Vec<_> = found
            .iter()
            .map(|report| {
                (
                    of_level(report, "fail"),
                    of_level(report, "unknown"),
                    report,
                )
            })
            .collect();
        assert!(broken.is_empty(), "{broken:#?}");
    });
}
