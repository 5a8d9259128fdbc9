//! Opening, ending, losing and waking sessions on the real engine.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::api::{Api, WORKSPACES, at_once, settings, wait};
use crate::support::daemon::Daemon;
use crate::support::docker::{docker, labelled, running};
use crate::support::http::Response;

const PERSIST: (&str, &str) = ("SANDBOXD_PERSIST_CONTAINERS", "true");
const SOON: Duration = Duration::from_secs(10);

fn start(changes: &[(&str, &str)]) -> (Daemon, Api) {
    let daemon = Daemon::start(&settings(changes));
    let api = Api::of(&daemon);
    (daemon, api)
}

/// Opens as `asked` says in so many threads at once; returns successes and refusals.
fn race(api: &Api, count: usize, asked: impl Fn(usize) -> Value + Sync) -> [Vec<Response>; 2] {
    let replies = at_once(count, |n| api.call("POST", "/sessions", Some(&asked(n))));
    let (opened, refused): (Vec<_>, Vec<_>) = replies.into_iter().partition(|r| r.status == 200);
    [opened, refused]
}

/// Checks a refusal at a ceiling.
fn assert_ceiling(reply: &Response, code: &str, ceiling: &Value) {
    let body = reply.json().unwrap();
    assert_eq!((reply.status, &body["code"]), (429, &json!(code)), "{body}");
    assert_eq!(body["ceiling"], *ceiling, "{body}");
    assert_eq!(body["retryable"], true);
    let secs: u64 = reply.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&secs), "{secs}");
    let request_id = reply.header("x-request-id").unwrap();
    assert_eq!(body["request_id"], request_id);
    assert!(!body["detail"].as_str().unwrap().is_empty());
}

/// Returns how often containers with this label were started, as the engine tells it.
fn starts(label: &str, since: u64) -> usize {
    let (since, label) = (
        format!("--since={since}"),
        format!("--filter=label={label}"),
    );
    let now = format!("--until={}", epoch_secs() + 1);
    docker(&[
        "events",
        &since,
        &now,
        &label,
        "--filter=event=start",
        "--format={{.ID}}",
    ])
    .lines()
    .count()
}

fn epoch_secs() -> u64 {
    docker(&["info", "--format", "{{.SystemTime}}"])
        .parse::<jiff::Timestamp>()
        .unwrap()
        .as_second()
        .try_into()
        .unwrap()
}

#[test]
fn fifty_parallel_opens_of_one_id_make_one_container_and_one_token() {
    let (daemon, api) = start(&[]);
    let [opened, refused] = race(&api, 50, |_| json!({"session_id": "plain"}));
    assert_eq!((opened.len(), refused.len()), (1, 49));
    for reply in &refused {
        let body = reply.json().unwrap();
        let code = body["code"].as_str().unwrap();
        assert!(
            ["session_exists", "session_opening"].contains(&code),
            "{body}"
        );
        assert_eq!(reply.status, 409);
    }
    assert_eq!(labelled(&daemon.label()).len(), 1);

    let [opened, refused] = race(&api, 50, |_| json!({"session_id": "again", "reuse": true}));
    assert!(
        refused
            .iter()
            .all(|r| r.json().unwrap()["code"] == "session_opening")
    );
    let late: Vec<Response> = at_once(10, |_| {
        api.call(
            "POST",
            "/sessions",
            Some(&json!({"session_id": "again", "reuse": true})),
        )
    });
    let mut tokens: Vec<String> = opened
        .iter()
        .chain(&late)
        .map(|reply| reply.json().unwrap()["token"].to_string())
        .collect();
    tokens.dedup();
    assert_eq!(tokens.len(), 1, "{tokens:?}");
    assert_eq!(labelled(&daemon.label()).len(), 2);
}

#[test]
fn parallel_opens_at_a_ceiling_of_five_give_exactly_five() {
    let (daemon, api) = start(&[("SANDBOXD_MAX_SESSIONS", "5")]);
    let [opened, refused] = race(&api, 20, |n| json!({"session_id": format!("c{n}")}));
    assert_eq!((opened.len(), refused.len()), (5, 15));
    let ceiling = json!({"name": "max_sessions", "limit": 5, "used": 5, "scope": "service"});
    for reply in &refused {
        assert_ceiling(reply, "resident_ceiling", &ceiling);
    }
    assert_eq!(labelled(&daemon.label()).len(), 5);
    assert_eq!(api.json(200, "GET /healthz", None)["sessions"], 5);

    let first = opened[0].json().unwrap();
    api.close(first["session"]["session_id"].as_str().unwrap(), "");
    api.open_id("after");
    assert_eq!(running(&daemon.label()).len(), 5);
}

#[test]
fn a_tenants_ceiling_holds_in_a_race_and_a_close_frees_the_place() {
    let (_daemon, api) = start(&[("SANDBOXD_MAX_SESSIONS_PER_TENANT", "2")]);
    let [opened, refused] = race(
        &api,
        8,
        |n| json!({"session_id": format!("t{n}"), "tenant": "acme"}),
    );
    assert_eq!((opened.len(), refused.len()), (2, 6));
    let ceiling =
        json!({"name": "max_sessions_per_tenant", "limit": 2, "used": 2, "scope": "tenant:acme"});
    for reply in &refused {
        assert_ceiling(reply, "tenant_ceiling", &ceiling);
    }
    api.open(&json!({"tenant": "other"}));
    api.open(&json!({}));
    let first = opened[0].json().unwrap();
    api.close(first["session"]["session_id"].as_str().unwrap(), "");
    api.open(&json!({"tenant": "acme"}));
}

#[test]
fn a_lost_container_parks_its_session_which_wakes_on_use_and_tells_so_once() {
    let (daemon, api) = start(&[WORKSPACES, ("SANDBOXD_CLEANUP_INTERVAL", "1")]);
    let began = epoch_secs();
    let token = api.open_id("s");
    let caller = api.with_token(&token);
    caller.sh("s", "echo kept > file");
    let mut lives = 1;
    for (args, reason) in [
        (&["kill"][..], "container_died"),
        (&["rm", "--force"][..], "container_lost"),
    ] {
        let container = api.container("s");
        docker(&[args, &[container.as_str()]].concat());
        let info = api.wait_for("s", "hibernated");
        assert_eq!(info["reason"], reason, "{info}");
        assert_eq!(
            (&info["state"], &info["alive"]),
            (&json!("hibernated"), &json!(false))
        );
        // Long enough for a resync, which must not start it either.
        thread::sleep(Duration::from_millis(1500));
        assert_eq!(starts(&daemon.label(), began), lives);
        assert_eq!(running(&daemon.label()), Vec::<String>::new());

        lives += 1;
        let woken = caller.exec("s", "cat file");
        assert_eq!(woken["output"], "kept\n", "{woken}");
        assert_eq!(
            (&woken["incarnation"], &woken["reset_reason"]),
            (&json!(lives), &json!("container_lost"))
        );
        let next = caller.exec("s", "true");
        assert_eq!(
            (&next["incarnation"], &next["reset_reason"]),
            (&Value::Null, &Value::Null)
        );
        assert_eq!(api.info("s")["incarnation"], lives);
        assert_eq!(starts(&daemon.label(), began), lives);
    }
    let events = caller.events("s");
    let targets: Vec<&Value> = events["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| &e["target"])
        .collect();
    assert_eq!(
        targets,
        ["echo kept > file", "cat file", "true", "cat file", "true"]
    );
    assert_eq!(labelled(&daemon.label()).len(), 1);
}

#[test]
fn files_that_went_with_their_container_are_told_lost_once() {
    let (_daemon, api) = start(&[]);
    let token = api.open_id("s");
    let caller = api.with_token(&token);
    caller.sh("s", "echo x > file");
    docker(&["rm", "--force", &api.container("s")]);
    let info = api.wait_for("s", "lost");
    assert_eq!(
        (&info["state"], &info["alive"]),
        (&json!("running"), &json!(false))
    );
    assert_eq!(info["reason"], "container_lost");
    let woken = at_once(8, |_| caller.exec("s", "ls"));
    let told: Vec<&Value> = woken
        .iter()
        .filter(|ran| ran["reset_reason"] != Value::Null)
        .collect();
    assert_eq!(told.len(), 1, "{woken:?}");
    let woken = told[0];
    assert_eq!(
        (&woken["output"], &woken["exit_code"]),
        (&json!(""), &json!(0))
    );
    assert_eq!(
        (&woken["incarnation"], &woken["reset_reason"]),
        (&json!(2), &json!("files_lost"))
    );
    assert_eq!(caller.exec("s", "true")["reset_reason"], Value::Null);
    assert_eq!(api.info("s")["phase"], "running");
}

#[test]
fn a_stopped_container_that_holds_the_only_files_is_started_and_never_made_anew() {
    let (_daemon, api) = start(&[]);
    let token = api.open_id("s");
    let caller = api.with_token(&token);
    caller.sh("s", "echo x > file; echo y > /etc/mine");
    let container = api.container("s");
    docker(&["stop", "--time", "1", &container]);
    assert_eq!(api.wait_for("s", "hibernated")["reason"], "container_died");
    let woken = caller.exec("s", "cat file /etc/mine");
    assert_eq!(
        (&woken["output"], &woken["reset_reason"]),
        (&json!("x\ny\n"), &json!("container_lost"))
    );
    assert_eq!(api.container("s"), container);
}

#[test]
fn a_close_keeps_what_is_to_be_kept_and_a_purge_keeps_nothing() {
    let (daemon, api) = start(&[WORKSPACES, PERSIST]);
    api.open_id("s");
    api.sh("s", "echo x > file; echo y > /etc/mine");
    let container = api.container("s");
    api.close("s", "");
    assert_eq!(running(&daemon.label()), Vec::<String>::new());
    assert_eq!(labelled(&daemon.label()), [container.as_str()]);
    api.open_id("s");
    assert_eq!(api.container("s"), container);
    assert_eq!(api.sh("s", "cat file /etc/mine"), "x\ny");

    api.close("s", "?purge=true");
    assert_eq!(labelled(&daemon.label()), Vec::<String>::new());
    assert!(!daemon.dir().join("ws/s").exists());
    let attach = json!({"session_id": "s", "attach": true});
    let refused = api.json(404, "POST /sessions", Some(&attach));
    assert_eq!(refused["code"], "nothing_to_attach");
}

#[test]
fn a_container_that_is_not_kept_goes_with_the_close_and_its_files_stay() {
    let (daemon, api) = start(&[WORKSPACES]);
    api.open_id("s");
    api.sh("s", "echo x > file");
    let began = Instant::now();
    api.close("s", "");
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(labelled(&daemon.label()), Vec::<String>::new());
    let file = daemon.dir().join("ws/s/workspace/file");
    assert_eq!(fs::read_to_string(file).unwrap(), "x\n");
}

#[test]
fn everything_of_an_id_is_purged_in_whatever_state_it_is() {
    let (daemon, api) = start(&[WORKSPACES, PERSIST]);
    let ws = daemon.dir().join("ws");
    for id in ["open", "closed", "asleep"] {
        api.open_id(id);
        api.sh(id, "echo x > file");
    }
    api.close("closed", "");
    docker(&["kill", &api.container("asleep")]);
    api.wait_for("asleep", "hibernated");
    fs::create_dir_all(ws.join("stored/workspace/deep")).unwrap();
    fs::write(ws.join("stored/workspace/deep/file"), "x").unwrap();

    for id in ["open", "asleep"] {
        let refused = api.json(409, &format!("DELETE /workspaces/{id}"), None);
        assert_eq!(refused["code"], "session_open", "{refused}");
        assert!(ws.join(id).join("workspace/file").exists());
        api.json(204, &format!("DELETE /workspaces/{id}?close=true"), None);
    }
    for id in ["closed", "stored", "never"] {
        api.json(204, &format!("DELETE /workspaces/{id}"), None);
    }
    for id in ["open", "asleep", "closed", "stored", "never"] {
        assert!(!ws.join(id).exists(), "{id}");
        api.json(404, &format!("GET /sessions/{id}"), None);
        api.json(204, &format!("DELETE /workspaces/{id}"), None);
    }
    assert_eq!(labelled(&daemon.label()), Vec::<String>::new());
    let token = api.open_id("open");
    assert_eq!(api.with_token(&token).events("open")["latest_seq"], 0);
}

/// Waits until a session counts as idle for as long as it takes to give way.
fn wait_until_idle(api: &Api, id: &str) {
    wait(&format!("{id} is idle"), SOON, || {
        let idle = api.info(id)["idle_seconds"].as_f64()?;
        (1.0 < idle).then_some(())
    });
}

/// Returns the largest number of containers that ran at once while `act` did.
fn most_running(label: &str, act: impl FnOnce()) -> usize {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut most = 0;
            while !done.load(Ordering::Relaxed) {
                most = most.max(running(label).len());
            }
            most
        });
        act();
        done.store(true, Ordering::Relaxed);
        watch.join().unwrap()
    })
}

#[test]
fn the_most_idle_session_sleeps_for_another_and_never_more_than_the_ceiling_run() {
    let changes = [
        ("SANDBOXD_MAX_SESSIONS", "2"),
        ("SANDBOXD_EVICT_IDLE_AFTER", "1"),
    ];
    let (daemon, api) = start(&[&[WORKSPACES], &changes[..]].concat());
    let most = most_running(&daemon.label(), || {
        let token = api.open_id("a");
        api.sh("a", "echo x > file");
        api.open_id("b");
        wait_until_idle(&api, "b");
        api.open_id("c");
        let asleep = api.info("a");
        assert_eq!(
            (&asleep["phase"], &asleep["reason"]),
            (&json!("hibernated"), &json!("evicted"))
        );
        wait_until_idle(&api, "c");
        let woken = api.with_token(&token).exec("a", "cat file");
        assert_eq!(
            (&woken["output"], &woken["reset_reason"]),
            (&json!("x\n"), &json!("hibernated"))
        );
        assert_eq!(api.info("b")["phase"], "hibernated");
        assert_eq!(api.info("c")["phase"], "running");
    });
    assert_eq!(most, 2);
    assert_eq!(api.json(200, "GET /healthz", None)["sessions"], 2);
}

#[test]
fn a_session_that_runs_a_command_never_gives_way() {
    let changes = [
        ("SANDBOXD_MAX_SESSIONS", "2"),
        ("SANDBOXD_EVICT_IDLE_AFTER", "0"),
    ];
    let (daemon, api) = start(&[&[WORKSPACES], &changes[..]].concat());
    api.open_id("busy");
    api.open_id("idle");
    thread::scope(|scope| {
        let command = scope.spawn(|| api.exec("busy", "touch begun; sleep 4; echo done"));
        let begun = daemon.dir().join("ws/busy/workspace/begun");
        wait("the command runs", SOON, || begun.exists().then_some(()));
        api.sh("idle", "true");
        api.open_id("other");
        assert_eq!(api.info("busy")["phase"], "running");
        assert_eq!(api.info("idle")["phase"], "hibernated");
        let ran = command.join().unwrap();
        assert_eq!(
            (&ran["output"], &ran["exit_code"]),
            (&json!("done\n"), &json!(0))
        );
    });
}

#[test]
fn at_the_ceiling_of_open_sessions_the_longest_sleeper_is_closed() {
    let changes = [
        ("SANDBOXD_MAX_SESSIONS", "1"),
        ("SANDBOXD_MAX_OPEN_SESSIONS", "2"),
        ("SANDBOXD_EVICT_IDLE_AFTER", "0"),
    ];
    let (daemon, api) = start(&[&[WORKSPACES], &changes[..]].concat());
    api.open_id("a");
    api.sh("a", "echo x > file");
    api.open_id("b");
    assert_eq!(api.info("a")["phase"], "hibernated");
    api.open_id("c");
    api.json(404, "GET /sessions/a", None);
    assert_eq!(api.info("b")["phase"], "hibernated");
    assert!(daemon.dir().join("ws/a/workspace/file").exists());
    let health = api.json(200, "GET /healthz", None);
    assert_eq!(
        (&health["sessions"], &health["open_sessions"]),
        (&json!(1), &json!(2))
    );
}

#[test]
fn an_idle_session_is_reaped_on_time_and_a_busy_one_is_not() {
    let (daemon, api) = start(&[WORKSPACES, ("SANDBOXD_IDLE_TIMEOUT", "2")]);
    api.open_id("busy");
    thread::scope(|scope| {
        let command = scope.spawn(|| api.exec("busy", "sleep 5; echo done"));
        api.open_id("idle");
        let opened = Instant::now();
        let gone = |id: &str| {
            let reply = api.call("GET", &format!("/sessions/{id}"), None);
            (reply.status == 404).then_some(())
        };
        wait("the idle session is gone", SOON, || gone("idle"));
        let took = opened.elapsed();
        let on_time = Duration::from_millis(1900)..Duration::from_millis(3500);
        assert!(on_time.contains(&took), "{took:?}");
        let ran = command.join().unwrap();
        assert_eq!(
            (&ran["output"], &ran["exit_code"]),
            (&json!("done\n"), &json!(0))
        );
        let ended = Instant::now();
        wait("the other is gone as well", SOON, || gone("busy"));
        assert!(on_time.contains(&ended.elapsed()), "{:?}", ended.elapsed());
    });
    wait("the containers are gone", SOON, || {
        labelled(&daemon.label()).is_empty().then_some(())
    });
    assert!(daemon.dir().join("ws/idle/workspace").exists());
}

#[test]
fn attach_reaches_what_is_there_and_makes_nothing_new() {
    let (daemon, api) = start(&[
        WORKSPACES,
        ("SANDBOXD_RUNTIMES", "bb={{image}},other={{image}}"),
    ]);
    let attach = |status, asked: Value| {
        let mut asked = asked;
        asked["attach"] = json!(true);
        api.json(status, "POST /sessions", Some(&asked))
    };
    assert_eq!(
        attach(400, json!({"runtime": "zz"}))["code"],
        "unknown_runtime"
    );
    assert_eq!(
        attach(400, json!({}))["detail"],
        "attach needs the session_id to attach to"
    );
    assert_eq!(
        attach(404, json!({"session_id": "never"}))["detail"],
        "Nothing to attach to: never"
    );
    assert!(!daemon.dir().join("ws/never").exists());

    let token = api.open_id("s");
    api.sh("s", "echo x > file");
    assert_eq!(
        attach(200, json!({"session_id": "s"}))["token"],
        token.as_str()
    );
    assert_eq!(
        attach(200, json!({"session_id": "s", "reuse": true}))["token"],
        token.as_str()
    );
    assert_eq!(
        attach(409, json!({"session_id": "s", "runtime": "other"}))["code"],
        "other_runtime"
    );
    docker(&["kill", &api.container("s")]);
    api.wait_for("s", "hibernated");
    let woken = attach(200, json!({"session_id": "s"}));
    assert_eq!(
        (&woken["token"], &woken["session"]["alive"]),
        (&json!(token), &json!(true))
    );

    api.close("s", "");
    let again = attach(200, json!({"session_id": "s", "runtime": "other"}));
    let fresh = again["token"].as_str().unwrap();
    assert_ne!(fresh, token);
    assert_eq!(api.with_token(fresh).sh("s", "cat file"), "x");
    api.with_token(&token).json(401, "GET /sessions/s", None);
    api.close("s", "?purge=true");
    attach(404, json!({"session_id": "s"}));
}

#[test]
fn a_kept_container_alone_is_nothing_to_attach_to() {
    let (_daemon, api) = start(&[PERSIST]);
    api.open_id("s");
    api.close("s", "");
    api.json(
        404,
        "POST /sessions",
        Some(&json!({"session_id": "s", "attach": true})),
    );
}

#[test]
fn an_opening_that_cannot_succeed_is_told_at_once_and_leaves_nothing() {
    let runtimes = "bb={{image}},built=@python-datascience,gone=sandboxd-test/no-such:1";
    let changes = [
        ("SANDBOXD_RUNTIMES", runtimes),
        ("SANDBOXD_MAX_SESSIONS", "1"),
    ];
    let (daemon, api) = start(&[&[WORKSPACES], &changes[..]].concat());
    for (runtime, says) in [
        ("built", "name a ready image for it"),
        ("gone", "sandboxd-test/no-such"),
    ] {
        let began = Instant::now();
        let asked = json!({"session_id": "s", "runtime": runtime, "tenant": "t"});
        let refused = api.json(502, "POST /sessions", Some(&asked));
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "{:?}",
            began.elapsed()
        );
        let detail = refused["detail"].as_str().unwrap();
        assert!(detail.starts_with("Could not start sandbox: "), "{detail}");
        assert!(detail.contains(says), "{detail}");
        assert_eq!(refused["code"], "start_failed");

        api.json(404, "GET /sessions/s", None);
        assert_eq!(labelled(&daemon.label()), Vec::<String>::new());
        wait("its directory is gone", SOON, || {
            (!daemon.dir().join("ws/s").exists()).then_some(())
        });
        api.open(&json!({"session_id": "s", "runtime": "bb"}));
        api.close("s", "?purge=true");
    }
    assert_eq!(api.json(200, "GET /sessions", None)["sessions"], json!([]));
}

#[test]
fn whatever_happens_to_an_id_at_once_it_ends_as_the_last_caller_wants() {
    let (daemon, api) = start(&[WORKSPACES]);
    let open = json!({"session_id": "s", "reuse": true});
    let statuses = at_once(6, |n| {
        let calls: [(&str, &str, Option<Value>); 4] = [
            ("POST", "/sessions", Some(open.clone())),
            (
                "POST",
                "/sessions/s/exec",
                Some(json!({"command": "echo x > file"})),
            ),
            ("DELETE", "/sessions/s", None),
            ("DELETE", "/workspaces/s?close=true", None),
        ];
        (0..8)
            .map(|turn| {
                let (method, path, body) = &calls[(n + turn) % 4];
                api.call(method, path, body.as_ref()).status
            })
            .collect::<Vec<u16>>()
    });
    let expected = [200, 204, 404, 409];
    let odd: Vec<&u16> = statuses
        .iter()
        .flatten()
        .filter(|status| !expected.contains(status))
        .collect();
    assert!(odd.is_empty(), "{statuses:?}");
    api.json(204, "DELETE /workspaces/s?close=true", None);
    assert_eq!(labelled(&daemon.label()), Vec::<String>::new());
    assert!(!daemon.dir().join("ws/s").exists());
    let token = api.open_id("s");
    assert_eq!(api.with_token(&token).sh("s", "ls"), "");
}
