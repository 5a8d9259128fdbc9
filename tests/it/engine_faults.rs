//! What callers see while the engine is away, silent, or loses its replies.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::api::{Api, WORKSPACES, settings, wait};
use crate::support::daemon::{Daemon, Ending, Settings};
use crate::support::docker::{docker, labelled};
use crate::support::http::Response;
use crate::support::proxy::{Mode, Proxy};

/// By when the service knows that the engine is away.
const NOTICED: Duration = Duration::from_secs(5);
/// By when it goes on after the engine is back.
const RECOVERED: Duration = Duration::from_secs(10);
/// What answers without the engine answers within this.
const AT_ONCE: Duration = Duration::from_secs(1);
/// The longest that anybody waits for an engine that is silent.
const GIVEN_UP: Duration = Duration::from_secs(12);

fn through(proxy: &Proxy) -> Settings {
    settings(&[WORKSPACES, ("SANDBOXD_DOCKER_HOST", &proxy.address())])
}

/// The ways by which commands go.
const WAYS: [&str; 2] = ["agent", "docker"];

/// The same, with commands by this way.
fn through_by(proxy: &Proxy, way: &str) -> Settings {
    let mut asked = through(proxy);
    asked.insert("SANDBOXD_EXEC".to_owned(), way.to_owned());
    asked
}

/// Makes a request and checks how long it took.
fn within(most: Duration, act: impl FnOnce() -> Response) -> Response {
    let began = Instant::now();
    let reply = act();
    let took = began.elapsed();
    assert!(took < most, "took {took:?}: {}", reply.text());
    reply
}

fn health(api: &Api) -> Value {
    api.json(200, "GET /healthz", None)
}

fn wait_for_health(api: &Api, status: &str, most: Duration) -> Value {
    wait(&format!("/healthz says {status}"), most, || {
        let health = health(api);
        (health["status"] == status).then_some(health)
    })
}

fn open(api: &Api, id: &str) -> Response {
    api.call("POST", "/sessions", Some(&json!({"session_id": id})))
}

fn exec(api: &Api, id: &str) -> Response {
    let asked = json!({"command": "echo hi"});
    api.call("POST", &format!("/sessions/{id}/exec"), Some(&asked))
}

#[track_caller]
fn assert_unavailable(reply: &Response) {
    assert_eq!(reply.status, 503, "{}", reply.text());
    assert_eq!(reply.json().unwrap()["code"], "engine_unavailable");
    assert!(reply.header("retry-after").is_some());
}

/// Checks what becomes of a command on a running session while the engine is away: an
/// agent runs it, and the engine's exec cannot.
#[track_caller]
fn assert_goes_by(way: &str, reply: &Response) {
    if way == "docker" {
        assert_unavailable(reply);
        return;
    }
    assert_eq!(reply.status, 200, "{}", reply.text());
    let ran = reply.json().unwrap();
    assert_eq!(
        (&ran["output"], &ran["exit_code"]),
        (&json!("hi\n"), &json!(0))
    );
}

/// Waits until only these sessions' containers are left.
fn wait_for_containers(daemon: &Daemon, count: usize) {
    wait(&format!("{count} containers"), RECOVERED, || {
        (labelled(&daemon.label()).len() == count).then_some(())
    });
}

/// The whole story of an outage: known, survived, and over.
fn an_outage_is_known_survived_and_over(mode: Mode) {
    for way in WAYS {
        an_outage_is_survived_by(mode, way);
    }
}

fn an_outage_is_survived_by(mode: Mode, way: &str) {
    let proxy = Proxy::start();
    let daemon = Daemon::start(&through_by(&proxy, way));
    let api = Api::of(&daemon);
    api.open_id("stays");
    api.open_id("leaves");
    proxy.set(mode);
    let degraded = wait_for_health(&api, "degraded", NOTICED);
    let reason = degraded["reasons"][0].as_str().unwrap().to_owned();
    assert!(reason.starts_with("engine: "), "{reason}");
    let ready = api.call("GET", "/readyz", None);
    assert_eq!(ready.status, 503);
    let listed = within(AT_ONCE, || api.call("GET", "/sessions", None));
    assert_eq!(
        listed.json().unwrap()["sessions"].as_array().unwrap().len(),
        2
    );
    assert_unavailable(&within(GIVEN_UP, || open(&api, "fails")));
    assert_goes_by(way, &within(GIVEN_UP, || exec(&api, "stays")));
    // By now the heartbeat has been silent for long: nobody waits any more.
    assert_unavailable(&within(AT_ONCE, || open(&api, "fails-too")));
    assert_goes_by(way, &within(AT_ONCE, || exec(&api, "stays")));
    let closed = within(GIVEN_UP, || api.call("DELETE", "/sessions/leaves", None));
    assert_eq!(closed.status, 204, "{}", closed.text());
    assert_eq!(api.call("GET", "/sessions/fails", None).status, 404);
    assert_eq!(labelled(&daemon.label()).len(), 2);

    proxy.set(Mode::Forward);
    wait_for_health(&api, "ok", RECOVERED);
    assert_eq!(api.call("GET", "/readyz", None).status, 200);
    assert_eq!(api.sh("stays", "echo hi"), "hi");
    wait_for_containers(&daemon, 1);
    api.open_id("fails");
    api.open_id("leaves");
    wait_for_containers(&daemon, 3);
}

#[test]
fn an_engine_that_refuses_is_known_survived_and_over() {
    an_outage_is_known_survived_and_over(Mode::Refusing);
}

#[test]
fn an_engine_whose_socket_is_gone_is_known_survived_and_over() {
    an_outage_is_known_survived_and_over(Mode::Gone);
}

#[test]
fn an_engine_that_says_nothing_is_known_survived_and_over() {
    an_outage_is_known_survived_and_over(Mode::Frozen);
}

#[test]
fn what_a_freeze_catches_fails_soon_and_leaves_nothing_behind() {
    for way in WAYS {
        a_freeze_leaves_nothing_behind(way);
    }
}

fn a_freeze_leaves_nothing_behind(way: &str) {
    let proxy = Proxy::start();
    let daemon = Daemon::start(&through_by(&proxy, way));
    let api = Api::of(&daemon);
    api.open_id("stays");
    proxy.set(Mode::Frozen);
    let command = {
        let api = api.clone();
        thread::spawn(move || within(GIVEN_UP, || exec(&api, "stays")))
    };
    let openings: Vec<_> = (0..4)
        .map(|n| {
            let api = api.clone();
            thread::spawn(move || within(GIVEN_UP, || open(&api, &format!("caught-{n}"))))
        })
        .collect();
    for opening in openings {
        assert_unavailable(&opening.join().unwrap());
    }
    assert_goes_by(way, &command.join().unwrap());
    let listed = api.json(200, "GET /sessions", None);
    assert_eq!(listed["sessions"].as_array().unwrap().len(), 1);
    proxy.set(Mode::Forward);
    wait_for_health(&api, "ok", RECOVERED);
    wait_for_containers(&daemon, 1);
    api.open_id("caught-0");
    wait_for_containers(&daemon, 2);
}

#[test]
fn a_command_under_way_goes_on_and_ends_truly_while_the_engine_is_away() {
    for mode in [Mode::Refusing, Mode::Gone, Mode::Frozen] {
        let proxy = Proxy::start();
        let daemon = Daemon::start(&through_by(&proxy, "agent"));
        let api = Api::of(&daemon);
        api.open_id("stays");
        let container = api.container("stays");
        let gate = daemon.dir().join("ws/stays/workspace/gate");
        let begun = daemon.dir().join("ws/stays/workspace/begun");
        let command = {
            let api = api.clone();
            let command = "touch begun; until [ -e gate ]; do sleep 0.1; done; echo done; exit 7";
            thread::spawn(move || api.exec("stays", command))
        };
        wait("the command runs", RECOVERED, || {
            begun.exists().then_some(())
        });
        proxy.set(mode);
        wait_for_health(&api, "degraded", NOTICED);
        std::fs::write(gate, "").unwrap();
        let ran = command.join().unwrap();
        assert_eq!(
            (&ran["output"], &ran["exit_code"]),
            (&json!("done\n"), &json!(7)),
            "{mode:?}: {ran}"
        );
        assert_eq!(health(&api)["status"], "degraded", "{mode:?}");
        proxy.set(Mode::Forward);
        wait_for_health(&api, "ok", RECOVERED);
        assert_eq!(api.container("stays"), container, "{mode:?}");
        assert_eq!(api.info("stays")["phase"], "running", "{mode:?}");
    }
}

#[test]
fn a_command_whose_container_dies_while_the_engine_is_away_has_no_exit_code() {
    let proxy = Proxy::start();
    let daemon = Daemon::start(&through_by(&proxy, "agent"));
    let api = Api::of(&daemon);
    api.open_id("a");
    let container = api.container("a");
    let begun = daemon.dir().join("ws/a/workspace/begun");
    let command = {
        let api = api.clone();
        thread::spawn(move || api.exec("a", "touch begun; sleep 1234"))
    };
    wait("the command runs", RECOVERED, || {
        begun.exists().then_some(())
    });
    proxy.set(Mode::Gone);
    wait_for_health(&api, "degraded", NOTICED);
    docker(&["kill", &container]);
    let ran = command.join().unwrap();
    assert_eq!(ran["exit_code"], Value::Null, "{ran}");
    assert_eq!(ran["reason"], "container_lost", "{ran}");
    assert_unavailable(&within(GIVEN_UP, || exec(&api, "a")));
    proxy.set(Mode::Forward);
    wait_for_health(&api, "ok", RECOVERED);
    assert_eq!(api.exec("a", "echo hi")["output"], "hi\n");
}

#[test]
fn an_orderly_end_does_not_wait_for_a_silent_engine() {
    let proxy = Proxy::start();
    let mut daemon = Daemon::start(&through(&proxy));
    let api = Api::of(&daemon);
    let token = api.open_id("stays");
    proxy.set(Mode::Frozen);
    let http = daemon.http();
    let opening = thread::spawn(move || {
        let asked = json!({"session_id": "caught"});
        Api::request_on(&http, "POST", "/sessions", Some(&asked))
    });
    thread::sleep(Duration::from_millis(300));
    let began = Instant::now();
    assert_eq!(daemon.stop(Ending::Terminate).code(), Some(0));
    let took = began.elapsed();
    assert!(took < GIVEN_UP, "{took:?}");
    let refused = opening.join().unwrap();
    assert!(refused.is_err() || refused.is_ok_and(|reply| reply.status == 503));
    proxy.set(Mode::Forward);
    daemon.start_again();
    assert_eq!(api.with_token(&token).sh("stays", "echo hi"), "hi");
    // It was told of no session, and has one whole or none.
    wait("the opening is whole or gone", RECOVERED, || {
        let listed = api.json(200, "GET /sessions", None);
        let listed = listed["sessions"].as_array().unwrap().clone();
        let is_settled = listed.iter().all(|session| session["phase"] == "running");
        let containers = labelled(&daemon.label()).len();
        (is_settled && containers == listed.len()).then_some(())
    });
}

#[test]
fn a_daemon_started_without_its_engine_serves_and_recovers() {
    a_daemon_serves_and_recovers_that_started_in(Mode::Gone);
}

#[test]
fn a_daemon_started_with_a_silent_engine_serves_and_recovers() {
    a_daemon_serves_and_recovers_that_started_in(Mode::Frozen);
}

fn a_daemon_serves_and_recovers_that_started_in(mode: Mode) {
    let proxy = Proxy::absent();
    proxy.set(mode);
    let daemon = Daemon::start(&through(&proxy));
    let api = Api::of(&daemon);
    wait_for_health(&api, "degraded", NOTICED);
    assert_unavailable(&within(GIVEN_UP, || open(&api, "early")));
    proxy.set(Mode::Forward);
    wait_for_health(&api, "ok", RECOVERED);
    api.open_id("early");
    assert_eq!(api.sh("early", "echo hi"), "hi");
}

#[test]
fn lost_replies_make_no_second_container_and_lose_no_session() {
    let proxy = Proxy::start();
    let daemon = Daemon::start(&through(&proxy));
    let api = Api::of(&daemon);
    for (n, (method, path)) in [("POST", "/containers/create"), ("POST", "/start")]
        .into_iter()
        .enumerate()
    {
        let id = format!("lost-{n}");
        proxy.lose_reply(method, path);
        let reply = open(&api, &id);
        assert_eq!(proxy.lost().len(), n + 1, "{:?}", proxy.lost());
        match reply.status {
            200 => {}
            // Told that it failed: then it has failed, and asking again helps.
            503 => drop(api.open_id(&id)),
            status => panic!("{status}: {}", reply.text()),
        }
        assert_eq!(api.sh(&id, "echo hi"), "hi");
        wait_for_containers(&daemon, n + 1);
    }
    let before = proxy.lost().len();
    proxy.lose_reply("DELETE", "/containers/");
    api.close("lost-0", "");
    api.close("lost-1", "?purge=true");
    wait_for_containers(&daemon, 0);
    assert_eq!(proxy.lost().len(), before + 1);
    api.open_id("lost-0");
    assert_eq!(api.sh("lost-0", "echo hi"), "hi");
    wait_for_containers(&daemon, 1);
}

#[test]
fn a_lost_reply_to_a_stop_still_stops_once() {
    let proxy = Proxy::start();
    let mut asked = through(&proxy);
    asked.insert("SANDBOXD_PERSIST_CONTAINERS".to_owned(), "1".to_owned());
    let daemon = Daemon::start(&asked);
    let api = Api::of(&daemon);
    api.open_id("a");
    api.sh("a", "echo kept > /root-file");
    let container = api.container("a");
    proxy.lose_reply("POST", "/stop");
    api.close("a", "");
    assert_eq!(proxy.lost().len(), 1);
    wait("the container has stopped", RECOVERED, || {
        let state = docker(&["inspect", "--format", "{{.State.Status}}", &container]);
        (state == "exited").then_some(())
    });
    api.open_id("a");
    assert_eq!(api.container("a"), container);
    assert_eq!(api.sh("a", "cat /root-file"), "kept");
    wait_for_containers(&daemon, 1);
}

#[test]
fn an_image_that_cannot_be_had_fails_at_once_in_the_engine_s_words() {
    let asked = [
        WORKSPACES,
        (
            "SANDBOXD_RUNTIMES",
            "bb={{image}},none=localhost:9/no/such-image:1",
        ),
    ];
    let daemon = Daemon::start(&settings(&asked));
    let api = Api::of(&daemon);
    let asked = json!({"session_id": "a", "runtime": "none"});
    for _ in 0..2 {
        let most = Duration::from_secs(20);
        let reply = within(most, || api.call("POST", "/sessions", Some(&asked)));
        assert_eq!(reply.status, 502, "{}", reply.text());
        let detail = reply.json().unwrap()["detail"].to_string();
        assert!(detail.contains("localhost:9"), "{detail}");
        assert_eq!(api.call("GET", "/sessions/a", None).status, 404);
    }
    api.open_id("a");
    assert_eq!(api.sh("a", "echo hi"), "hi");
    wait_for_containers(&daemon, 1);
}

#[test]
fn what_the_engine_never_does_is_asked_of_it_at_a_bounded_rate() {
    let proxy = Proxy::start();
    let daemon = Daemon::start(&settings(&[
        WORKSPACES,
        ("SANDBOXD_DOCKER_HOST", &proxy.address()),
        ("SANDBOXD_CLEANUP_INTERVAL", "600"),
    ]));
    let api = Api::of(&daemon);
    let poisoned = "failed to create shim: id already in use";
    let taken = "Conflict. The container name is already in use by container 0123";
    for (id, method, path, status, message) in [
        ("start", "POST", "/start", 500, poisoned),
        ("create", "POST", "/containers/create", 409, taken),
        ("fails", "POST", "/containers/create", 500, "out of order"),
        ("stop", "POST", "/stop", 500, "out of order"),
    ] {
        api.open_id(id);
        api.sh(id, "echo kept > f");
        if id != "stop" {
            docker(&["rm", "--force", &api.container(id)]);
            api.wait_for(id, "hibernated");
        }
        let before = proxy.calls(method).len();
        proxy.answer(method, path, status, message);
        let began = Instant::now();
        let (http, name) = (daemon.http(), id.to_owned());
        let asked = thread::spawn(move || {
            let command = json!({"command": ":"});
            if name == "stop" {
                return Api::request_on(&http, "DELETE", "/sessions/stop", None);
            }
            let path = format!("/sessions/{name}/exec");
            Api::request_on(&http, "POST", &path, Some(&command))
        });
        thread::sleep(Duration::from_secs(5));
        let calls = proxy.calls(method).len() - before;
        let told = asked.join().unwrap().unwrap();
        // Some rounds, each with twice the rest of the one before.
        assert!(calls <= 25, "{id}: {calls} calls in five seconds");
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "{id}: {:?}",
            began.elapsed()
        );
        proxy.answer_nothing();
        if id != "stop" {
            assert_eq!(told.status, 502, "{id}: {}", told.text());
            // An attempt that was under way may still be told to have failed.
            wait(&format!("{id} heals"), RECOVERED, || {
                let asked = json!({"command": "cat f"});
                let reply = api.call("POST", &format!("/sessions/{id}/exec"), Some(&asked));
                assert!(matches!(reply.status, 200 | 502), "{id}: {}", reply.text());
                (reply.status == 200).then(|| {
                    assert_eq!(reply.json().unwrap()["output"], "kept\n", "{id}");
                })
            });
        }
    }
}

#[test]
fn what_was_noted_before_an_attempt_failed_stays_noted() {
    let proxy = Proxy::start();
    let daemon = Daemon::start(&through(&proxy));
    let api = Api::of(&daemon);
    api.open_id("a");
    api.sh("a", "echo lost > f");
    docker(&["rm", "--force", &api.container("a")]);
    api.wait_for("a", "hibernated");
    std::fs::remove_dir_all(daemon.dir().join("ws/a")).unwrap();
    // The workspace is made anew before the container, and then is there.
    proxy.answer("POST", "/containers/create", 500, "out of order");
    let asked = json!({"command": ":"});
    let refused = api.call("POST", "/sessions/a/exec", Some(&asked));
    assert_eq!(refused.status, 502, "{}", refused.text());
    proxy.answer_nothing();
    let told = api.exec("a", "ls");
    assert_eq!(told["output"], "", "{told}");
    assert_eq!(told["reset_reason"], "files_lost", "{told}");
}

#[test]
fn an_opening_costs_two_commits_and_a_command_none_that_is_synced() {
    let proxy = Proxy::start();
    let daemon = Daemon::start(&through(&proxy));
    let api = Api::of(&daemon);
    // The first one of an engine puts that on record, and has the image looked for.
    api.open_id("first");
    let commits = || -> u64 {
        let text = std::fs::read_to_string(daemon.dir().join("state/committed")).unwrap();
        text.trim().parse().unwrap()
    };
    let first = docker(&["inspect", "--format", "{{.Id}}", &api.container("first")]);
    let calls = || {
        let calls = ["POST", "GET"].map(|method| proxy.calls(method));
        let calls = calls.iter().flatten();
        // What the heartbeat and the resync ask for is no part of it, nor is a last look at
        // the other one.
        calls
            .filter(|call| call.contains("/containers/") || call.contains("/exec/"))
            .filter(|call| !call.contains(&first))
            .count()
    };
    let (before, called) = (commits(), calls());
    api.open_id("a");
    let (opened, made) = (commits() - before, calls() - called);
    api.sh("a", ":");
    let (ran, asked) = (commits() - before - opened, calls() - called - made);
    assert_eq!((opened, ran), (2, 0), "{made} and {asked} calls");
    assert!(
        made <= 8 && asked <= 3,
        "{made} and {asked} calls: {:?}",
        proxy.calls("GET")
    );
}
