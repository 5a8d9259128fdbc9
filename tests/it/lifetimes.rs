//! What ages and what does not, what gives way and what never does, on the real engine.

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Timespec, Timestamps};
use serde_json::{Value, json};

use crate::support::api::{Api, WORKSPACES, at_once, settings, wait};
use crate::support::daemon::{Daemon, Ending};
use crate::support::docker::{docker, labelled, running};
use crate::support::fault::{Action, Rule, Which};
use crate::support::proxy::Proxy;
use crate::support::terminal::Seat;
use crate::support::whole;

const SOON: Duration = Duration::from_secs(20);
const PERSIST: (&str, &str) = ("SANDBOXD_PERSIST_CONTAINERS", "true");
/// How late something that is due may be on a machine that does other things as well.
const LATE: Duration = Duration::from_millis(2_500);

fn start(changes: &[(&str, &str)]) -> (Daemon, Api) {
    let daemon = Daemon::start(&settings(&[&[WORKSPACES], changes].concat()));
    let api = Api::of(&daemon);
    (daemon, api)
}

/// Gives a directory and what is right in it the date of so many seconds since 1970.
fn date(dir: &Path, secs: i64) {
    let at = Timespec {
        tv_sec: secs,
        tv_nsec: 0,
    };
    let times = Timestamps {
        last_access: at,
        last_modification: at,
    };
    let entries = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    for path in entries.chain([dir.to_owned()]) {
        let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::utimensat(rustix::fs::CWD, &path, &times, flags).unwrap();
    }
}

/// Waits until something is over that is due so long after `since`, and not before.
#[track_caller]
fn assert_due(what: &str, since: Instant, due: Duration, is_over: impl Fn() -> bool) {
    wait(what, due + LATE, || is_over().then_some(()));
    let took = since.elapsed();
    assert!(due <= took + Duration::from_millis(100), "{what}: {took:?}");
    assert!(took <= due + LATE, "{what}: {took:?}");
}

#[test]
fn a_workspace_goes_when_it_was_unused_for_its_time_whatever_the_dates_of_its_files() {
    const TTL: Duration = Duration::from_secs(4);
    let (mut daemon, api) = start(&[("SANDBOXD_WORKSPACE_TTL", "4")]);
    let root = daemon.dir().join("ws");
    for id in ["old", "new", "open"] {
        api.open_id(id);
        api.sh(id, "mkdir deep; echo kept >deep/file");
        // In 2001, or in 2033: what the dates say means nothing.
        let secs = if id == "new" {
            2_000_000_000
        } else {
            1_000_000_000
        };
        date(&root.join(id).join("workspace/deep"), secs);
        date(&root.join(id).join("workspace"), secs);
        date(&root.join(id), secs);
    }
    thread::sleep(TTL + LATE);
    for id in ["old", "new", "open"] {
        assert_eq!(
            api.sh(id, "cat deep/file"),
            "kept",
            "open for longer than that"
        );
    }
    let closed = ["old", "new"].map(|id| {
        let closed = Instant::now();
        api.close(id, "");
        (id, closed)
    });
    // A restart makes nothing younger.
    daemon.restart(Ending::Kill);
    for (id, closed) in closed {
        assert_due(id, closed, TTL, || !root.join(id).exists());
    }
    // Told once nothing is left, a moment after the files.
    let told = wait("both are told", LATE, || {
        let expired = api.json(200, "GET /events?kind=lifecycle&op=expired", None);
        let told = expired["events"].as_array().unwrap().clone();
        (told.len() == 2).then_some(told)
    });
    for event in told {
        assert_eq!(event["reason"], "expired", "{event}");
    }
    assert_eq!(api.sh("open", "cat deep/file"), "kept");
}

#[test]
fn a_kept_container_goes_when_it_has_stood_still_for_its_time_and_the_files_stay() {
    const TTL: Duration = Duration::from_secs(3);
    let (daemon, api) = start(&[PERSIST, ("SANDBOXD_CONTAINER_TTL", "3")]);
    api.open_id("s");
    api.sh("s", "echo kept >file");
    let container = api.container("s");
    // Longer than its time, but at work.
    thread::sleep(TTL + Duration::from_secs(1));
    assert_eq!(api.container("s"), container);
    let stopped = Instant::now();
    api.close("s", "");
    assert_eq!(labelled(&daemon.label()), [container]);
    assert_due("the container goes", stopped, TTL, || {
        labelled(&daemon.label()).is_empty()
    });
    let all = ["opened -", "closed requested", "container_expired expired"];
    wait("it is told", LATE, || (api.facts("s") == all).then_some(()));
    api.open_id("s");
    assert_eq!(api.sh("s", "cat file"), "kept");
}

#[test]
fn without_a_workspace_root_the_time_of_workspaces_ends_no_container() {
    let daemon = Daemon::start(&settings(&[PERSIST, ("SANDBOXD_WORKSPACE_TTL", "1")]));
    let api = Api::of(&daemon);
    api.open_id("s");
    api.sh("s", "echo kept >file");
    let container = api.container("s");
    api.close("s", "");
    thread::sleep(Duration::from_secs(1) + LATE);
    assert_eq!(labelled(&daemon.label()), [container]);
    api.open_id("s");
    assert_eq!(api.sh("s", "cat file"), "kept");
}

/// Ways to look at a session.
const LOOKS: &[&str] = &[
    "/sessions/s",
    "/sessions/s?usage=true",
    "/sessions/s/events",
    "/sessions/s/explain",
    "/sessions/s/runs",
    "/sessions/s/ttys",
    "/sessions",
    "/sessions?usage=true",
    "/events",
    "/healthz",
    "/metrics",
    "/policy",
    "/workspaces",
];

/// Looks at a session in every way, and asks for what is refused; none is a use of it.
fn look_and_fail(api: &Api) {
    for look in LOOKS {
        let reply = api.call("GET", look, None);
        assert!(
            matches!(reply.status, 200 | 404),
            "{look}: {}",
            reply.text()
        );
    }
    let stranger = api.with_token("not-the-token-of-anybody");
    let none = "0".repeat(32);
    let refused = [
        (
            &stranger,
            "/sessions/s/exec",
            json!({"command": "true"}),
            401,
        ),
        (api, "/sessions/s/exec", json!({"command": 5}), 422),
        (
            api,
            "/sessions/s/exec",
            json!({"command": "true", "timeout_seconds": "x"}),
            422,
        ),
        (
            api,
            "/sessions/s/write",
            json!({"path": "f", "content_b64": "?"}),
            400,
        ),
        (api, "/sessions", json!({"session_id": "s"}), 409),
        (
            api,
            "/sessions",
            json!({"session_id": "s", "reuse": true, "runtime": "gone"}),
            400,
        ),
        (
            api,
            &format!("/sessions/s/runs/{none}/stop"),
            json!({}),
            204,
        ),
    ];
    for (caller, path, asked, status) in refused {
        let reply = caller.call("POST", path, Some(&asked));
        let is_closed = reply.status == 404;
        let is_open_again = (path, reply.status) == ("/sessions", 200);
        assert!(
            !is_open_again,
            "it was closed in between, which is nothing to look at"
        );
        assert!(
            reply.status == status || is_closed,
            "{path}: {}",
            reply.text()
        );
    }
}

#[test]
fn looks_polls_and_requests_that_fail_keep_nothing_awake_and_wake_nothing() {
    const AFTER: Duration = Duration::from_secs(2);
    let (daemon, api) = start(&[("SANDBOXD_HIBERNATE_IDLE_AFTER", "2")]);
    api.open_id("s");
    api.sh("s", "true");
    let used = Instant::now();
    assert_due("it sleeps on time", used, AFTER, || {
        look_and_fail(&api);
        api.info("s")["phase"] == "hibernated"
    });
    for _ in 0..5 {
        look_and_fail(&api);
    }
    assert_eq!(api.info("s")["phase"], "hibernated");
    assert_eq!(running(&daemon.label()), Vec::<String>::new());
    // It is closed on time as well, counted from when it fell asleep.
    let (_daemon, api) = start(&[("SANDBOXD_IDLE_TIMEOUT", "2")]);
    api.open_id("s");
    let used = Instant::now();
    assert_due("it is closed on time", used, AFTER, || {
        let looks = ["/sessions/s", "/sessions/s/events", "/sessions/s/explain"];
        let replies = looks.map(|look| api.call("GET", look, None).status);
        replies.contains(&404)
    });
}

/// Something that is under way in the session `s` until this is dropped, if it ends so.
enum Work {
    Call(TcpStream),
    Seat(Box<Seat>),
    Run(String),
}

/// Begins a write of a file that goes on for as long as nobody ends it.
fn slow_upload(daemon: &Daemon) -> TcpStream {
    let address = daemon.url();
    let mut stream = TcpStream::connect(address.trim_start_matches("http://")).unwrap();
    let head = format!(
        "PUT /sessions/s/file?path=slow HTTP/1.1\r\nhost: x\r\nx-sandbox-token: {}\r\ncontent-length: 1000000\r\n\r\n",
        daemon.token()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&[b'x'; 1000]).unwrap();
    stream
}

fn begin_work(kind: &str, daemon: &Daemon, api: &Api) -> Work {
    let sleep = json!({"command": "touch begun; sleep 300"});
    match kind {
        "command" => Work::Call(api.begin("/sessions/s/exec", &sleep)),
        "upload" => Work::Call(slow_upload(daemon)),
        "terminal" => {
            let made = api.json(200, "POST /sessions/s/ttys", Some(&json!({})));
            let tty = made["tty_id"].as_str().unwrap();
            Work::Seat(Box::new(Seat::at(daemon, "s", tty, "")))
        }
        "run" => {
            let run = api.json(201, "POST /sessions/s/runs", Some(&sleep));
            Work::Run(format!(
                "/sessions/s/runs/{}/stop",
                run["run_id"].as_str().unwrap()
            ))
        }
        other => panic!("{other}"),
    }
}

#[test]
fn what_is_under_way_is_never_evicted_nor_put_to_sleep_nor_reaped() {
    // A second after the last use it would give way, sleep, or be closed.
    let cases = [
        ("SANDBOXD_EVICT_IDLE_AFTER", "1"),
        ("SANDBOXD_HIBERNATE_IDLE_AFTER", "1"),
        ("SANDBOXD_IDLE_TIMEOUT", "1"),
    ];
    at_once(cases.len(), |n| {
        let (name, _) = cases[n];
        let (daemon, api) = start(&[
            cases[n],
            ("SANDBOXD_RUNTIMES", "bb={{image}};keep_awake=true"),
            ("SANDBOXD_MAX_SESSIONS", "1"),
        ]);
        let another = || {
            let asked = json!({"session_id": "another"});
            api.call("POST", "/sessions", Some(&asked)).status
        };
        for kind in ["command", "upload", "terminal", "run"] {
            api.open_id("s");
            let work = begin_work(kind, &daemon, &api);
            let began = Instant::now();
            while began.elapsed() < Duration::from_secs(4) {
                assert_eq!(another(), 429, "{name}, {kind}");
                assert_eq!(api.info("s")["phase"], "running", "{name}, {kind}");
                thread::sleep(Duration::from_millis(200));
            }
            match work {
                Work::Call(stream) => drop(stream),
                Work::Seat(seat) => drop(seat),
                Work::Run(stop) => {
                    api.json(204, &format!("POST {stop}"), Some(&json!({})));
                }
            }
            if kind == "terminal" {
                // Its shell goes on, and keeps its session as any run does.
                let ttys = api.json(200, "GET /sessions/s/ttys", None);
                let tty = ttys["ttys"][0]["tty_id"].as_str().unwrap();
                api.json(204, &format!("DELETE /sessions/s/ttys/{tty}"), None);
            }
            wait(&format!("{name}: it makes room after {kind}"), SOON, || {
                (another() == 200).then_some(())
            });
            api.close("another", "?purge=true");
            drop(api.call("DELETE", "/workspaces/s?close=true", None));
        }
    });
}

#[test]
fn a_refused_opening_costs_nobody_their_session_and_of_two_of_one_id_one_opens() {
    let (_daemon, api) = start(&[
        ("SANDBOXD_MAX_SESSIONS", "2"),
        ("SANDBOXD_MAX_OPEN_SESSIONS", "3"),
        ("SANDBOXD_MAX_SESSIONS_PER_TENANT", "1"),
        (
            "SANDBOXD_RUNTIMES",
            "bb={{image}},gone=sandboxd-test/no-such:1",
        ),
    ]);
    for id in ["asleep", "later"] {
        api.open_id(id);
        api.json(200, &format!("POST /sessions/{id}/hibernate"), None);
    }
    api.open(&json!({"session_id": "acme", "tenant": "acme"}));
    let phases = || {
        let all = api.json(200, "GET /sessions", None);
        let all = all["sessions"].as_array().unwrap().clone();
        let phase =
            |one: &Value| format!("{} {}", one["session_id"], one["phase"]).replace('"', "");
        all.iter().map(phase).collect::<Vec<_>>()
    };
    let before = ["asleep hibernated", "later hibernated", "acme running"];
    assert_eq!(phases(), before);
    // The tenant is at its ceiling, and the runtime is none: a place is not even looked for.
    let of_tenant = json!({"session_id": "x", "tenant": "acme"});
    assert_eq!(
        api.json(429, "POST /sessions", Some(&of_tenant))["code"],
        "tenant_ceiling"
    );
    let of_none = json!({"session_id": "x", "runtime": "none"});
    api.json(400, "POST /sessions", Some(&of_none));
    assert_eq!(phases(), before);
    // Of many for one id at the ceiling one opens, and one sleeper makes room.
    let opened = at_once(20, |_| {
        api.call("POST", "/sessions", Some(&json!({"session_id": "x"})))
            .status
    });
    let count = |status: u16| opened.iter().filter(|found| **found == status).count();
    assert_eq!((count(200), count(409)), (1, 19), "{opened:?}");
    assert_eq!(phases(), ["later hibernated", "acme running", "x running"]);
    // At the ceiling of what runs nobody gives way, and no sleeper is closed for nothing.
    let full = json!({"session_id": "y"});
    assert_eq!(
        api.json(429, "POST /sessions", Some(&full))["code"],
        "resident_ceiling"
    );
    assert_eq!(phases(), ["later hibernated", "acme running", "x running"]);
}

#[test]
fn a_session_that_is_being_woken_is_no_victim() {
    let proxy = Proxy::start();
    let (_daemon, api) = start(&[
        ("SANDBOXD_DOCKER_HOST", &proxy.address()),
        ("SANDBOXD_MAX_SESSIONS", "1"),
        ("SANDBOXD_MAX_OPEN_SESSIONS", "1"),
        ("SANDBOXD_EVICT_IDLE_AFTER", "0"),
    ]);
    let token = api.open_id("woken");
    api.sh("woken", "echo kept >file");
    api.json(200, "POST /sessions/woken/hibernate", None);
    let delay = Action::Delay { ms: 1_500 };
    let rule = Rule::new("POST", "**/containers/*/start", Which::Every, delay);
    proxy.faults().add(rule);
    thread::scope(|scope| {
        let command = scope.spawn(|| api.with_token(&token).sh("woken", "cat file"));
        wait("it is being woken", SOON, || {
            (api.info("woken")["phase"] == "waking").then_some(())
        });
        let another = json!({"session_id": "another"});
        let refused = api.json(429, "POST /sessions", Some(&another));
        assert_eq!(refused["code"], "open_ceiling", "{refused}");
        assert_eq!(command.join().unwrap(), "kept");
    });
}

#[test]
fn a_fetch_that_hangs_is_given_up_by_a_close_and_its_place_is_free_again() {
    let proxy = Proxy::start();
    let rule = Rule::new("POST", "**/images/create**", Which::Every, Action::Hang);
    proxy.faults().add(rule);
    let (_daemon, api) = start(&[
        ("SANDBOXD_DOCKER_HOST", &proxy.address()),
        ("SANDBOXD_MAX_SESSIONS", "1"),
        (
            "SANDBOXD_RUNTIMES",
            "bb={{image}},gone=sandboxd-test/no-such:1",
        ),
    ]);
    let asked = json!({"session_id": "hangs", "runtime": "gone"});
    thread::scope(|scope| {
        let opening = scope.spawn(|| api.call("POST", "/sessions", Some(&asked)));
        wait("it waits for its image", SOON, || {
            let calls = proxy.calls("POST");
            let fetches = |call: &String| call.contains("/images/create");
            calls.iter().any(fetches).then_some(())
        });
        assert_eq!(api.info("hangs")["phase"], "opening");
        let full = json!({"session_id": "s", "runtime": "bb"});
        api.json(429, "POST /sessions", Some(&full));
        let began = Instant::now();
        api.close("hangs", "?purge=true");
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "{:?}",
            began.elapsed()
        );
        api.open(&full);
        let refused = opening.join().unwrap();
        assert_eq!(refused.status, 409, "{}", refused.text());
    });
}

#[test]
fn a_kept_container_is_opened_again_by_the_rule_and_the_reply_says_so() {
    let runtimes = "bb={{image}},other={{image}};mem_limit=80m";
    let (mut daemon, api) = start(&[
        PERSIST,
        ("SANDBOXD_RUNTIMES", runtimes),
        ("SANDBOXD_MEM_LIMIT", "64m"),
    ]);
    let open = |runtime: &str| {
        let opened = api.open(&json!({"session_id": "s", "runtime": runtime}));
        let info = &opened["session"];
        let memory = ["inspect", "--format", "{{.HostConfig.Memory}}"];
        let memory = docker(&[&memory[..], &[&api.container("s")]].concat());
        let mine = api.sh("s", "cat /etc/mine 2>/dev/null || echo none");
        let at = format!("{memory} of {mine}");
        (at, info["runtime"].clone(), info["drifted"].clone())
    };
    let told =
        |at: &str, runtime: &str, drifted: bool| (at.to_owned(), json!(runtime), json!(drifted));
    let (small, large) = (64 << 20, 80 << 20);
    assert_eq!(open("bb"), told(&format!("{small} of none"), "bb", false));
    api.sh("s", "echo installed >/etc/mine; echo kept >file");
    api.close("s", "");
    // Of the same runtime: what was installed is worth more than what was changed since.
    daemon.stop(Ending::Terminate);
    daemon.set("SANDBOXD_MEM_LIMIT", "72m");
    daemon.start_again();
    assert_eq!(
        open("bb"),
        told(&format!("{small} of installed"), "bb", true)
    );
    api.close("s", "");
    // Of another runtime: the container is another, and the files are the same.
    assert_eq!(
        open("other"),
        told(&format!("{large} of none"), "other", false)
    );
    assert_eq!(api.sh("s", "cat file"), "kept");
}

#[test]
fn falling_asleep_is_prompt_and_so_is_an_orderly_end_with_many_sessions() {
    let count = if whole() { 50 } else { 6 };
    let (mut daemon, api) = start(&[("SANDBOXD_MAX_SESSIONS", "100")]);
    let ids: Vec<String> = (0..count).map(|n| format!("s{n}")).collect();
    for id in &ids {
        api.open_id(id);
        api.sh(id, "trap '' TERM INT HUP; sleep 1000 >/dev/null & echo $!");
    }
    let began = Instant::now();
    daemon.restart(Ending::Terminate);
    let took = began.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
    let mut slept: Vec<Duration> = ids
        .iter()
        .map(|id| {
            let began = Instant::now();
            api.json(200, &format!("POST /sessions/{id}/hibernate"), None);
            began.elapsed()
        })
        .collect();
    slept.sort();
    let p95 = slept[slept.len() * 95 / 100];
    eprintln!("an orderly end and a start in {took:?}; asleep within {p95:?} (95 of 100)");
    // The engine's own grace is ten seconds.
    assert!(p95 < Duration::from_secs(4), "{slept:?}");
}

#[test]
fn why_a_session_sleeps_or_is_gone_is_told_whatever_ended_it() {
    let (_daemon, api) = start(&[
        ("SANDBOXD_MAX_SESSIONS", "1"),
        ("SANDBOXD_MAX_OPEN_SESSIONS", "2"),
        ("SANDBOXD_EVICT_IDLE_AFTER", "0"),
        ("SANDBOXD_IDLE_TIMEOUT", "4"),
        ("SANDBOXD_WORKSPACE_TTL", "4"),
    ]);
    // It gives way to the second, and is closed for the third.
    for id in ["first", "second", "third"] {
        api.open_id(id);
    }
    api.json(200, "POST /sessions/third/hibernate", None);
    api.close("third", "?purge=true");
    let slept = api.json(200, "GET /sessions/second/explain", None);
    assert_eq!(
        (&slept["phase"], &slept["reason"]),
        (&json!("hibernated"), &json!("evicted"))
    );
    let all = |id: &str, last: &str| {
        wait(&format!("{id} is {last}"), SOON, || {
            let told = api.facts(id);
            told.last().is_some_and(|fact| fact == last).then_some(told)
        })
    };
    assert_eq!(
        all("first", "expired expired"),
        [
            "opened -",
            "evicted evicted",
            "closed evicted",
            "expired expired"
        ]
    );
    assert_eq!(
        all("second", "expired expired"),
        [
            "opened -",
            "evicted evicted",
            "reaped idle",
            "expired expired"
        ]
    );
    assert_eq!(
        all("third", "purged -"),
        [
            "opened -",
            "hibernated requested",
            "closed requested",
            "purged -"
        ]
    );
}
