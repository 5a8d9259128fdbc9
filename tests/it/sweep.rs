//! What a sweep takes is listed before, by the judgement that takes it.

use std::fs;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::store_disasters::{SETTLED, holds, ids, sandboxctl, wait_for_adoption};
use crate::support::api::{Api, WORKSPACES, settings, wait};
use crate::support::daemon::{Daemon, Ending};
use crate::support::docker::{IMAGE, Removed, docker, running, try_docker};
use crate::support::fake::FakeEngine;

/// Lists what is due within some seconds, or until the next sweep.
fn dry_run(api: &Api, within: Option<u64>) -> Value {
    let within = within.map_or_else(String::new, |secs| format!("&within={secs}"));
    let report = api.json(200, &format!("POST /sweep?dry_run=true{within}"), None);
    assert_eq!(report["dry_run"], true);
    report
}

/// Returns who is taken, what is done, to what, and why.
fn taken(report: &Value) -> Vec<[String; 4]> {
    let items = report["items"].as_array().unwrap().iter();
    items
        .map(|item| {
            ["session_id", "what", "kind", "reason"]
                .map(|field| item[field].as_str().unwrap_or("-").to_owned())
        })
        .collect()
}

fn item(words: [&str; 4]) -> [String; 4] {
    words.map(str::to_owned)
}

/// Waits for an event of the service about a session; returns it.
fn event(api: &Api, op: &str, id: &str) -> Value {
    wait(&format!("{id} is {op}"), SETTLED, || {
        let page = api.json(200, &format!("GET /events?op={op}&session={id}"), None);
        page["events"].as_array()?.first().cloned()
    })
}

#[test]
fn a_dry_run_takes_nothing_and_lists_what_is_then_taken_for_that_reason_at_that_time() {
    let daemon = Daemon::start(&settings(&[
        WORKSPACES,
        ("SANDBOXD_IDLE_TIMEOUT", "12"),
        ("SANDBOXD_HIBERNATE_IDLE_AFTER", "10"),
        ("SANDBOXD_WORKSPACE_TTL", "12"),
        ("SANDBOXD_CLEANUP_INTERVAL", "300"),
    ]));
    let api = Api::of(&daemon);
    api.open_id("idle");
    api.sh("idle", "echo idle > f");
    api.open_id("over");
    api.sh("over", "echo over > f");
    api.close("over", "");
    let file = daemon.dir().join("ws/over/workspace/f");
    let label = daemon.label();
    let before = running(&label);
    assert!(
        taken(&dry_run(&api, Some(0))).is_empty(),
        "nothing is due yet"
    );
    let report = dry_run(&api, None);
    let listed = [
        item(["idle", "hibernate", "session", "idle"]),
        item(["over", "remove", "workspace", "expired"]),
    ];
    assert_eq!(taken(&report), listed, "{report}");
    let (code, said) = sandboxctl(&daemon, &["sweep", "--dry-run", "--within", "1h"]);
    assert!(
        code == 0 && said.contains("hibernate") && said.contains("expired"),
        "{said}"
    );
    assert_eq!(running(&label), before, "and nothing was done");
    assert!(file.exists());
    assert_eq!(ids(&api), ["idle"]);

    let due = |n: usize| report["items"][n]["at"].as_f64().unwrap();
    let limit = |n: usize| report["items"][n]["limit"].as_f64().unwrap();
    assert_eq!((limit(0), limit(1)), (10.0, 12.0));
    let asleep = event(&api, "hibernated", "idle");
    assert_eq!(asleep["reason"], "idle", "{asleep}");
    let gone = event(&api, "expired", "over");
    assert_eq!(gone["reason"], "expired", "{gone}");
    for (told, n) in [(asleep, 0), (gone, 1)] {
        let late = told["at"].as_f64().unwrap() - due(n);
        assert!((0.0..10.0).contains(&late), "{told} was due at {}", due(n));
    }
    assert!(!file.exists());
    let listed = [item(["idle", "close", "session", "idle"])];
    assert_eq!(taken(&dry_run(&api, None)), listed, "what comes then");
    assert_eq!(event(&api, "reaped", "idle")["reason"], "idle");
}

#[test]
fn a_container_of_nobody_is_listed_and_goes_with_a_sweep_that_somebody_asks_for() {
    let daemon = Daemon::start(&settings(&[
        ("SANDBOXD_ORPHAN_GRACE", "3"),
        ("SANDBOXD_CLEANUP_INTERVAL", "3600"),
    ]));
    let api = Api::of(&daemon);
    api.open_id("a");
    let name = format!("stray-{}", uuid::Uuid::new_v4().simple());
    let label = daemon.label();
    let args = ["run", "--detach", "--network=none", "--name", &name];
    let rest = ["--label", &label, IMAGE, "sleep", "1000"];
    let stray = docker(&[&args[..], &rest].concat());
    let guard = Removed::container(&name);
    let swept = api.json(200, "POST /sweep", None);
    assert_eq!(
        (&swept["dry_run"], &swept["items"]),
        (&json!(false), &json!([]))
    );
    // It was seen once. A second look after its grace takes it.
    let report = dry_run(&api, Some(60));
    let items = report["items"].as_array().unwrap();
    assert_eq!(items.len(), 1, "{report}");
    assert_eq!(
        (&items[0]["container"], &items[0]["reason"]),
        (&json!(stray), &json!("stray"))
    );
    assert!(
        taken(&dry_run(&api, Some(0))).is_empty(),
        "its grace is not over"
    );
    thread::sleep(Duration::from_millis(3_500));
    assert!(
        try_docker(&["inspect", &stray]).is_ok(),
        "looks took nothing"
    );
    let (code, said) = sandboxctl(&daemon, &["sweep"]);
    assert!(code == 0 && said.contains("stray"), "{said}");
    wait("the stray is gone", SETTLED, || {
        try_docker(&["inspect", &stray]).is_err().then_some(())
    });
    assert_eq!(api.sh("a", "echo yes"), "yes", "and nothing else");
    std::mem::forget(guard);
}

#[test]
fn a_session_that_can_sleep_is_listed_with_its_sleep_and_another_one_with_its_end() {
    let engine = FakeEngine::start();
    let idle = [("SANDBOXD_IDLE_TIMEOUT", "2000")];
    let mut daemon = Daemon::on(&engine, &settings(&idle));
    let api = Api::of(&daemon);
    // Its container has the only copy of its files, whatever is set later.
    api.open_id("old");
    let root = daemon.dir().join("ws");
    daemon.set("SANDBOXD_WORKSPACE_ROOT", root.to_str().unwrap());
    daemon.set("SANDBOXD_HIBERNATE_IDLE_AFTER", "1000");
    daemon.restart(Ending::Terminate);
    api.open_id("new");
    let listed = [
        item(["old", "close", "session", "idle"]),
        item(["new", "hibernate", "session", "idle"]),
    ];
    assert_eq!(taken(&dry_run(&api, Some(3_600))), listed);
    assert!(taken(&dry_run(&api, Some(500))).is_empty());
}

#[test]
fn what_a_hold_keeps_is_not_listed_and_the_hold_is() {
    let engine = FakeEngine::start();
    let short = [WORKSPACES, ("SANDBOXD_IDLE_TIMEOUT", "3600")];
    let mut daemon = Daemon::on(&engine, &settings(&short));
    let api = Api::of(&daemon);
    let a = api.with_token(&api.open_id("a"));
    assert_eq!(a.call("POST", "/sweep", None).status, 401);
    let refused = api.call("POST", "/sweep?dry_run=perhaps", None);
    assert_eq!(refused.status, 422);
    let listed = [item(["a", "close", "session", "idle"])];
    assert_eq!(taken(&dry_run(&api, Some(7_200))), listed);
    daemon.stop(Ending::Kill);
    fs::remove_dir_all(daemon.dir().join("state/store")).unwrap();
    daemon.start_again();
    wait_for_adoption(&api);
    assert_eq!(holds(&api), ["store_rebuilt"]);
    let report = dry_run(&api, Some(7_200));
    assert_eq!(report["holds"], json!(["store_rebuilt"]));
    assert!(taken(&report).is_empty(), "{report}");
    let (code, said) = sandboxctl(&daemon, &["sweep", "--dry-run"]);
    assert!(code == 0 && said.contains("store_rebuilt"), "{said}");
}
