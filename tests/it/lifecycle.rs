//! Explaining sessions, putting them to sleep and waking them, on the real engine.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::api::{Api, WORKSPACES, settings, wait};
use crate::support::daemon::{Daemon, Ending};
use crate::support::docker::{IMAGE, Removed, docker, running};

const SOON: Duration = Duration::from_secs(10);

fn start(changes: &[(&str, &str)]) -> (Daemon, Api) {
    let daemon = Daemon::start(&settings(changes));
    let api = Api::of(&daemon);
    (daemon, api)
}

fn explain(api: &Api, id: &str) -> Value {
    api.json(200, &format!("GET /sessions/{id}/explain"), None)
}

/// Returns the values of these fields.
fn picked<'v>(from: &'v Value, pointers: &[&str]) -> Vec<&'v Value> {
    let found = pointers.iter().map(|pointer| from.pointer(pointer));
    found.map(|value| value.unwrap_or(&Value::Null)).collect()
}

#[test]
fn a_session_that_runs_or_gave_way_is_explained_with_what_comes_next() {
    let changes = [
        ("SANDBOXD_MAX_SESSIONS", "1"),
        ("SANDBOXD_MAX_SESSIONS_PER_TENANT", "3"),
        ("SANDBOXD_EVICT_IDLE_AFTER", "0"),
        ("SANDBOXD_IDLE_TIMEOUT", "600"),
    ];
    let (_daemon, api) = start(&[&[WORKSPACES], &changes[..]].concat());
    let opened = api.open(&json!({"session_id": "a", "tenant": "acme"}));
    let token = opened["token"].as_str().unwrap();
    let runs = explain(&api, "a");
    let fields = [
        "/aim",
        "/phase",
        "/reason",
        "/attempts",
        "/last_error",
        "/lease_count",
    ];
    assert_eq!(
        picked(&runs, &fields),
        [
            &json!("running"),
            &json!("running"),
            &Value::Null,
            &json!(0),
            &Value::Null,
            &json!(0)
        ],
        "{runs}"
    );
    assert_eq!(runs["container"]["id"], api.container("a").as_str());
    assert_eq!(
        picked(&runs, &["/container/name", "/container/state", "/drift"]),
        [&api.info("a")["container"], &json!("running"), &json!([])]
    );
    let at = runs["next"]["at"].as_f64().unwrap();
    let last_used = api.info("a")["last_activity"].as_f64().unwrap();
    assert_eq!(runs["next"]["step"], "close");
    assert!((at - last_used - 600.0).abs() < 0.01, "{runs}");
    let ceiling = |name: &str, limit: u64, used: u64, scope: &str| json!({"name": name, "limit": limit, "used": used, "scope": scope});
    let ceilings = json!([
        ceiling("max_sessions", 1, 1, "service"),
        ceiling("max_sessions_per_tenant", 3, 1, "tenant:acme"),
    ]);
    assert_eq!(runs["ceilings"], ceilings);

    assert_gives_way(&api, token);
}

/// Opens another session in the place of `a`, whose explanation says so to its own token.
fn assert_gives_way(api: &Api, token: &str) {
    api.open_id("b");
    api.wait_for("a", "hibernated");
    let own = explain(&api.with_token(token), "a");
    assert_eq!(
        picked(
            &own,
            &[
                "/aim",
                "/phase",
                "/reason",
                "/container/state",
                "/next/step"
            ]
        ),
        ["parked", "hibernated", "evicted", "absent", "close"],
        "{own}"
    );
    let at = own["next"]["at"].as_f64().unwrap();
    assert!(
        (at - own["since"].as_f64().unwrap() - 600.0).abs() < 0.01,
        "{own}"
    );
    assert_eq!(
        picked(&own, &["/container/name", "/container/id"]),
        [&Value::Null, &Value::Null],
        "its own token does not tell where it runs"
    );
    api.close("a", "");
    let gone = api.json(404, "GET /sessions/a/explain", None);
    assert_eq!(gone["code"], "no_session");
}

#[test]
fn a_session_that_is_used_says_by_how_many_and_that_nobody_knows_until_when() {
    let (daemon, api) = start(&[WORKSPACES]);
    api.open_id("a");
    thread::scope(|scope| {
        let command = scope.spawn(|| api.exec("a", "touch begun; sleep 2"));
        let begun = daemon.dir().join("ws/a/workspace/begun");
        wait("the command runs", SOON, || begun.exists().then_some(()));
        let used = explain(&api, "a");
        assert_eq!(
            picked(&used, &["/lease_count", "/next/step", "/next/at"]),
            [&json!(1), &json!("close"), &Value::Null],
            "{used}"
        );
        command.join().unwrap();
    });
}

#[test]
fn a_start_that_keeps_failing_is_explained_with_its_cause_and_the_next_attempt() {
    let image = format!("sandboxd-test/explained-{}:1", std::process::id());
    docker(&["tag", IMAGE, &image]);
    let tag = Removed::image(&image);
    let runtimes = format!("bb={image}");
    let (_daemon, api) = start(&[WORKSPACES, ("SANDBOXD_RUNTIMES", &runtimes)]);
    api.open_id("a");
    docker(&["rm", "--force", &api.container("a")]);
    api.wait_for("a", "hibernated");
    let asleep = explain(&api, "a");
    assert_eq!(
        picked(&asleep, &["/reason", "/container/state"]),
        ["container_lost", "absent"]
    );
    drop(tag);
    let refused = api.json(
        502,
        "POST /sessions/a/exec",
        Some(&json!({"command": "true"})),
    );
    assert_eq!(refused["code"], "start_failed", "{refused}");
    let fails = wait("it waits for its next attempt", SOON, || {
        let told = explain(&api, "a");
        told["next"]["at"].is_f64().then_some(told)
    });
    assert_eq!(
        picked(
            &fails,
            &["/aim", "/phase", "/next/step", "/container/state"]
        ),
        ["running", "failed", "start", "starting"],
        "{fails}"
    );
    assert!(0 < fails["attempts"].as_u64().unwrap(), "{fails}");
    assert_eq!(fails["reason"], fails["last_error"]);
    let why = fails["last_error"].as_str().unwrap();
    assert!(why.contains(&image), "{why}");
}

#[test]
fn a_session_is_put_to_sleep_and_woken_on_request_and_both_are_told_once() {
    let (daemon, api) = start(&[WORKSPACES]);
    let token = api.open_id("a");
    api.sh("a", "echo kept > file");
    for _ in 0..2 {
        let asleep = api.json(200, "POST /sessions/a/hibernate", None);
        assert_eq!(
            picked(&asleep, &["/session_id", "/phase", "/reason", "/alive"]),
            [
                &json!("a"),
                &json!("hibernated"),
                &json!("requested"),
                &json!(false)
            ]
        );
        assert_eq!(running(&daemon.label()), Vec::<String>::new());
    }
    for _ in 0..2 {
        let awake = api.json(200, "POST /sessions/a/wake", None);
        assert_eq!(
            picked(&awake, &["/phase", "/alive", "/incarnation"]),
            [&json!("running"), &json!(true), &json!(2)]
        );
        assert_eq!(running(&daemon.label()).len(), 1);
    }
    assert_eq!(
        api.facts("a"),
        ["opened -", "hibernated requested", "woken requested"]
    );
    let told = api.with_token(&token).exec("a", "cat file");
    assert_eq!(
        (&told["output"], &told["reset_reason"]),
        (&json!("kept\n"), &json!("hibernated")),
        "its own callers are told at their next operation"
    );
    for call in ["hibernate", "wake"] {
        let own = api
            .with_token(&token)
            .call("POST", &format!("/sessions/a/{call}"), None);
        assert_eq!(own.status, 401, "{}", own.text());
        let none = api.json(404, &format!("POST /sessions/none/{call}"), None);
        assert_eq!(none["code"], "no_session");
    }
}

#[test]
fn what_is_under_way_is_not_cut_off_by_a_request_to_sleep() {
    let (daemon, api) = start(&[WORKSPACES]);
    api.open_id("a");
    thread::scope(|scope| {
        let command = scope.spawn(|| api.exec("a", "touch begun; sleep 2; echo done"));
        let begun = daemon.dir().join("ws/a/workspace/begun");
        wait("the command runs", SOON, || begun.exists().then_some(()));
        let refused = api.json(409, "POST /sessions/a/hibernate", None);
        assert_eq!(
            picked(&refused, &["/code", "/retryable"]),
            [&json!("session_in_use"), &json!(true)]
        );
        let detail = refused["detail"].as_str().unwrap();
        assert!(
            detail.contains("operations under way: 1, commands and terminals running: 1"),
            "{detail}"
        );
        assert_eq!(command.join().unwrap()["output"], "done\n");
    });
    api.json(200, "POST /sessions/a/hibernate", None);
}

#[test]
fn a_session_with_the_only_copy_of_its_files_in_its_container_is_not_put_to_sleep() {
    let (_daemon, api) = start(&[("SANDBOXD_PERSIST_CONTAINERS", "true")]);
    api.open_id("a");
    let refused = api.json(409, "POST /sessions/a/hibernate", None);
    assert_eq!(refused["code"], "sleep_loses_files", "{refused}");
    assert_eq!(api.info("a")["phase"], "running");
    let awake = api.json(200, "POST /sessions/a/wake", None);
    assert_eq!(awake["phase"], "running");
}

#[test]
fn a_wake_on_request_is_admitted_like_any_other() {
    let (_daemon, api) = start(&[WORKSPACES, ("SANDBOXD_MAX_SESSIONS", "1")]);
    api.open_id("a");
    api.json(200, "POST /sessions/a/hibernate", None);
    api.open_id("b");
    let refused = api.json(429, "POST /sessions/a/wake", None);
    assert_eq!(refused["code"], "resident_ceiling", "{refused}");
    api.json(200, "POST /sessions/b/hibernate", None);
    assert_eq!(
        api.json(200, "POST /sessions/a/wake", None)["phase"],
        "running"
    );
}

#[test]
fn an_idle_session_sleeps_on_time_although_there_is_room_and_a_busy_one_does_not() {
    let (daemon, api) = start(&[WORKSPACES, ("SANDBOXD_HIBERNATE_IDLE_AFTER", "2")]);
    assert_eq!(
        api.json(200, "GET /policy", None)["hibernate_idle_after"],
        2
    );
    let token = api.open_id("idle");
    api.sh("idle", "echo kept > file");
    api.open_id("busy");
    thread::scope(|scope| {
        let command = scope.spawn(|| api.exec("busy", "sleep 5; echo done"));
        let awake = explain(&api, "idle");
        assert_eq!(awake["next"]["step"], "stop", "{awake}");
        let asleep = api.wait_for("idle", "hibernated");
        assert_eq!(asleep["reason"], "idle", "{asleep}");
        let slept = explain(&api, "idle")["since"].as_f64().unwrap();
        let due = awake["next"]["at"].as_f64().unwrap();
        assert!((0.0..1.5).contains(&(slept - due)), "{due} {slept}");
        assert_eq!(api.info("busy")["phase"], "running");
        assert_eq!(command.join().unwrap()["output"], "done\n");
    });
    api.wait_for("busy", "hibernated");
    assert_eq!(running(&daemon.label()), Vec::<String>::new());
    let woken = api.with_token(&token).exec("idle", "cat file");
    assert_eq!(
        (&woken["output"], &woken["reset_reason"]),
        (&json!("kept\n"), &json!("hibernated"))
    );
    assert_eq!(
        api.facts("idle"),
        ["opened -", "hibernated idle", "woken idle"]
    );
}

/// Has the ceiling of sandboxes hold although sessions could give way one day.
const ONE_PLACE: [(&str, &str); 3] = [
    WORKSPACES,
    ("SANDBOXD_MAX_SESSIONS", "1"),
    ("SANDBOXD_EVICT_IDLE_AFTER", "3600"),
];

/// Opens a session of this id, with the query; returns status and code of the reply.
fn open_with(api: &Api, id: &str, query: &str) -> (u16, Value) {
    let asked = json!({"session_id": id});
    let reply = api.call("POST", &format!("/sessions{query}"), Some(&asked));
    (reply.status, reply.json().unwrap()["code"].clone())
}

#[test]
fn openings_wait_for_a_place_first_come_first_served_and_nobody_passes_them_by() {
    let (_daemon, api) = start(&ONE_PLACE);
    api.open_id("a");
    thread::scope(|scope| {
        let waits = |id: &'static str| {
            let api = &api;
            let waiter = scope.spawn(move || open_with(api, id, "?wait=60"));
            // Long enough to be in the line.
            thread::sleep(Duration::from_millis(500));
            waiter
        };
        let (first, second) = (waits("first"), waits("second"));
        assert!(!first.is_finished() && !second.is_finished());
        let closed = Instant::now();
        api.close("a", "");
        assert_eq!(first.join().unwrap().0, 200);
        assert!(
            closed.elapsed() < Duration::from_secs(5),
            "{:?}",
            closed.elapsed()
        );
        assert!(!second.is_finished());
        let refused = (429, json!("resident_ceiling"));
        assert_eq!(open_with(&api, "hasty", ""), refused);
        api.json(200, "POST /sessions/first/hibernate", None);
        assert_eq!(second.join().unwrap().0, 200);
    });
    assert_eq!(api.info("second")["phase"], "running");
}

#[test]
fn an_opening_that_waited_in_vain_is_refused_as_without_a_wait() {
    let changes = [
        ("SANDBOXD_OPEN_WAIT_MAX", "2"),
        ("SANDBOXD_OPEN_QUEUE_MAX", "1"),
    ];
    let (_daemon, api) = start(&[&ONE_PLACE[..], &changes].concat());
    api.open_id("a");
    let refused = (429, json!("resident_ceiling"));
    for (query, least) in [
        ("", 0.0),
        ("?wait=0", 0.0),
        ("?wait=1", 1.0),
        ("?wait=9999", 2.0),
    ] {
        let began = Instant::now();
        assert_eq!(open_with(&api, "b", query), refused, "{query}");
        let took = began.elapsed().as_secs_f64();
        assert!((least..least + 0.9).contains(&took), "{query}: {took}");
    }
    thread::scope(|scope| {
        let waiter = scope.spawn(|| open_with(&api, "b", "?wait=2"));
        thread::sleep(Duration::from_millis(500));
        let began = Instant::now();
        assert_eq!(open_with(&api, "c", "?wait=2"), refused, "the line is full");
        assert!(began.elapsed() < Duration::from_secs(1));
        assert_eq!(waiter.join().unwrap(), refused);
    });
}

#[test]
fn a_caller_that_leaves_gives_up_its_place_in_the_line() {
    let (_daemon, api) = start(&ONE_PLACE);
    api.open_id("a");
    let gone = api.begin("/sessions?wait=60", &json!({"session_id": "gone"}));
    thread::sleep(Duration::from_millis(500));
    thread::scope(|scope| {
        let next = scope.spawn(|| open_with(&api, "next", "?wait=60"));
        thread::sleep(Duration::from_millis(500));
        drop(gone);
        thread::sleep(Duration::from_millis(500));
        api.close("a", "");
        assert_eq!(next.join().unwrap().0, 200);
    });
    api.json(404, "GET /sessions/gone", None);
}

#[test]
fn a_tenant_at_its_own_ceiling_holds_up_nobody_else() {
    let changes = [
        ("SANDBOXD_MAX_SESSIONS", "3"),
        ("SANDBOXD_MAX_SESSIONS_PER_TENANT", "1"),
    ];
    let (_daemon, api) = start(&[&[WORKSPACES], &changes[..]].concat());
    let open = |id: &str, tenant: &str| {
        let asked = json!({"session_id": id, "tenant": tenant});
        api.call("POST", "/sessions?wait=60", Some(&asked)).status
    };
    assert_eq!(open("a", "acme"), 200);
    thread::scope(|scope| {
        let waits = scope.spawn(|| open("b", "acme"));
        thread::sleep(Duration::from_millis(500));
        assert_eq!(open("c", "other"), 200);
        assert!(!waits.is_finished());
        api.close("a", "");
        assert_eq!(waits.join().unwrap(), 200);
    });
}

#[test]
fn an_orderly_end_of_the_service_refuses_those_who_wait_at_once() {
    let (mut daemon, api) = start(&ONE_PLACE);
    api.open_id("a");
    thread::scope(|scope| {
        let waiter = scope.spawn(|| open_with(&api, "b", "?wait=60"));
        thread::sleep(Duration::from_millis(500));
        let began = Instant::now();
        daemon.restart(Ending::Terminate);
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "{:?}",
            began.elapsed()
        );
        assert_eq!(waiter.join().unwrap(), (503, json!("shutting_down")));
    });
    assert_eq!(api.info("a")["phase"], "running");
}
