//! What each setting changes, for those whose effect no other test shows.
//!
//! `docs/configuration.md` names the test of every setting.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::api::{Api, WORKSPACES, at_once, settings, wait};
use crate::support::daemon::{Daemon, Ending};
use crate::support::docker::docker;
use crate::support::fault::{Action, Rule, Which};
use crate::support::http::Http;
use crate::support::proxy::Proxy;

const SOON: Duration = Duration::from_secs(20);
const TOKEN: &str = "a-service-token-that-nobody-guesses";

/// A daemon without an engine, and with these settings alone.
struct Bare {
    child: Child,
    dir: TempDir,
}

impl Bare {
    /// Starts it with these settings and arguments, in which `{{work}}` is its directory.
    fn start(dir: TempDir, changes: &[(&str, &str)], args: &[&str]) -> Self {
        let log = File::create(dir.path().join("log")).unwrap();
        let place = |text: &str| text.replace("{{work}}", dir.path().to_str().unwrap());
        let child = Command::new(env!("CARGO_BIN_EXE_sandboxd"))
            .args(args.iter().map(|arg| place(arg)))
            .env_clear()
            .env("SANDBOXD_STATE_DIR", dir.path().join("state"))
            .env("SANDBOXD_RUNTIME_DIR", dir.path().join("run"))
            .env("SANDBOXD_DOCKER_HOST", "unix:///nobody/is/there.sock")
            .envs(changes.iter().map(|(name, value)| (name, place(value))))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { child, dir }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    /// Waits until it serves; returns the address that its log names.
    fn address(&self) -> SocketAddr {
        wait("the log names the address", SOON, || {
            let log = self.log();
            let (_, rest) = log.split_once("address")?;
            // As text or as JSON.
            let mut words = rest.split(['=', '"', ' ', '\n']);
            words.find_map(|word| word.parse().ok())
        })
    }

    /// Waits until it answers on the loopback; returns who speaks to it with the token.
    fn http(&self, token: &str) -> Http {
        let http = Http::new(self.address().port(), token);
        wait("it answers", SOON, || http.get("/healthz").ok().map(drop));
        http
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).unwrap();
    }
}

fn dir() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn status(http: &Http) -> u16 {
    http.get("/policy").unwrap().status
}

#[test]
fn it_listens_where_host_and_port_say_and_names_a_port_that_was_picked() {
    let changes = [("SANDBOXD_TOKEN", TOKEN), ("SANDBOXD_HOST", "127.0.0.3")];
    let picked = Bare::start(dir(), &changes, &["--port", "0"]).address();
    assert_eq!(picked.ip(), Ipv4Addr::new(127, 0, 0, 3));
    let free = TcpListener::bind("127.0.0.3:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let asked = port.to_string();
    let fixed = [&changes[..], &[("SANDBOXD_PORT", &asked)]].concat();
    let bare = Bare::start(dir(), &fixed, &[]);
    assert_eq!(bare.address().port(), port);
    assert!(TcpStream::connect(("127.0.0.3", port)).is_ok());
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
}

#[test]
fn the_token_is_the_one_of_the_setting_or_of_the_file() {
    let of_file = dir();
    fs::write(of_file.path().join("token"), format!("{TOKEN}\n")).unwrap();
    let cases = [
        (dir(), ("SANDBOXD_TOKEN", TOKEN)),
        (of_file, ("SANDBOXD_TOKEN_FILE", "{{work}}/token")),
    ];
    for (dir, named) in cases {
        let bare = Bare::start(dir, &[named, ("SANDBOXD_PORT", "0")], &[]);
        let http = bare.http(TOKEN);
        assert_eq!(status(&http), 200);
        assert_eq!(status(&http.with_token(Some("another"))), 401);
        assert_eq!(status(&http.with_token(None)), 401);
    }
}

#[test]
fn a_file_of_settings_is_read_and_the_environment_wins_over_it() {
    let dir = dir();
    let text = format!(
        "SANDBOXD_TOKEN={TOKEN}\nSANDBOXD_PORT=0\nSANDBOXD_MAX_SESSIONS=7\n\
         SANDBOXD_IDLE_TIMEOUT=70\nSANDBOXD_RUNTIMES=first=img,second=img\n\
         SANDBOXD_DEFAULT_RUNTIME=second\n"
    );
    fs::write(dir.path().join("env"), text).unwrap();
    let changes = [
        ("SANDBOXD_CONFIG", "{{work}}/env"),
        ("SANDBOXD_IDLE_TIMEOUT", "90"),
    ];
    let bare = Bare::start(dir, &changes, &[]);
    let policy = bare.http(TOKEN).get("/policy").unwrap().json().unwrap();
    let told = ["max_sessions", "idle_timeout", "default_runtime"].map(|name| &policy[name]);
    assert_eq!(told, [&json!(7), &json!(90), &json!("second")]);
}

#[test]
fn the_state_lies_in_the_state_directory() {
    let changes = [
        ("SANDBOXD_TOKEN", TOKEN),
        ("SANDBOXD_PORT", "0"),
        ("SANDBOXD_STATE_DIR", "{{work}}/elsewhere"),
    ];
    let bare = Bare::start(dir(), &changes, &[]);
    bare.http(TOKEN);
    let there = |name: &str| bare.dir.path().join(name).exists();
    assert!(there("elsewhere/store") && there("elsewhere/token.key"));
    assert!(!there("state"));
}

#[test]
fn the_log_has_the_levels_and_the_form_that_are_set() {
    let base = [("SANDBOXD_TOKEN", TOKEN), ("SANDBOXD_PORT", "0")];
    let of = |changes: &[(&str, &str)]| {
        let bare = Bare::start(dir(), &[&base, changes].concat(), &[]);
        bare.http(TOKEN);
        bare.log()
    };
    let json = of(&[("SANDBOXD_LOG_FORMAT", "json"), ("SANDBOXD_LOG", "debug")]);
    for line in json.lines() {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}"));
        assert!(line["level"].is_string(), "{line}");
    }
    let text = of(&[("SANDBOXD_LOG", "sandboxd=info")]);
    assert!(
        text.contains(" INFO ") && !text.contains(" DEBUG "),
        "{text}"
    );
    // Without the line that names its port nobody finds it, so this one has its own.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
    let port = free.unwrap().port();
    let changes = [
        ("SANDBOXD_TOKEN", TOKEN),
        ("SANDBOXD_PORT", &*port.to_string()),
        ("SANDBOXD_LOG", "error"),
    ];
    let bare = Bare::start(dir(), &changes, &[]);
    let http = Http::new(port, TOKEN);
    wait("it answers", SOON, || http.get("/healthz").ok().map(drop));
    assert!(!bare.log().contains(" INFO "), "{}", bare.log());
}

#[test]
fn a_setting_without_effect_is_told_at_the_start() {
    let changes = [
        ("SANDBOXD_TOKEN", TOKEN),
        ("SANDBOXD_PORT", "0"),
        ("SANDBOXD_UI_ENABLED", "true"),
        ("SANDBOXD_POLICY_OVERRIDES", "{{work}}/policy.json"),
    ];
    let bare = Bare::start(dir(), &changes, &[]);
    let http = bare.http(TOKEN);
    assert_eq!(http.get("/ui").unwrap().status, 404);
    let log = bare.log();
    for name in ["SANDBOXD_UI_ENABLED", "SANDBOXD_POLICY_OVERRIDES"] {
        let told = format!("{name} has no effect");
        let line = log.lines().find(|line| line.contains(&told));
        assert!(line.is_some_and(|line| line.contains("WARN")), "{log}");
    }
}

fn start(changes: &[(&str, &str)]) -> (Daemon, Api) {
    let daemon = Daemon::start(&settings(&[&[WORKSPACES], changes].concat()));
    let api = Api::of(&daemon);
    (daemon, api)
}

#[test]
fn a_sandbox_has_the_ceilings_and_the_inside_that_are_set() {
    let (_daemon, api) = start(&[
        ("SANDBOXD_MEM_LIMIT", "96m"),
        ("SANDBOXD_MEMSWAP_LIMIT", "128m"),
        ("SANDBOXD_CPUS", "0.5"),
        ("SANDBOXD_CPU_SHARES", "512"),
        ("SANDBOXD_PIDS_LIMIT", "77"),
        ("SANDBOXD_NETWORK_MODE", "bridge"),
        ("SANDBOXD_TMPFS_SIZE", "5m"),
        ("SANDBOXD_WORK_DIR", "/srv/app"),
    ]);
    api.open_id("s");
    let seen: Value = serde_json::from_str(&docker(&["inspect", &api.container("s")])).unwrap();
    let host = &seen[0]["HostConfig"];
    let told = [
        "Memory",
        "MemorySwap",
        "NanoCpus",
        "CpuShares",
        "PidsLimit",
        "NetworkMode",
    ]
    .map(|name| host[name].clone());
    let wanted = json!([96 << 20, 128 << 20, 500_000_000, 512, 77, "bridge"]);
    assert_eq!(json!(told), wanted);
    // And the sandbox itself sees it so.
    let inside = "pwd; grep -c eth0 /proc/net/dev; df -k /tmp | tail -n 1 | awk '{print $2}'";
    assert_eq!(api.sh("s", inside), "/srv/app\n1\n5120");
}

#[test]
fn the_oci_runtime_is_the_one_that_is_set() {
    let (_daemon, api) = start(&[("SANDBOXD_OCI_RUNTIME", "no-such-runtime")]);
    let refused = api.json(502, "POST /sessions", Some(&json!({"session_id": "s"})));
    let detail = refused["detail"].as_str().unwrap();
    assert!(detail.contains("no-such-runtime"), "{detail}");
}

#[test]
fn the_sockets_of_sandboxes_lie_in_the_runtime_directory() {
    let (daemon, api) = start(&[("SANDBOXD_RUNTIME_DIR", "{{work}}/sockets")]);
    api.open_id("s");
    let format = "{{range .Mounts}}{{println .Source}}{{end}}";
    let mounts = docker(&["inspect", "--format", format, &api.container("s")]);
    let sockets = daemon.dir().join("sockets");
    let below = mounts
        .lines()
        .map(Path::new)
        .find(|source| source.starts_with(&sockets));
    let found = below.map_or_else(|| panic!("{mounts}"), PathBuf::from);
    assert!(found.is_dir(), "{}", found.display());
    assert_eq!(fs::read_dir(daemon.dir().join("run")).unwrap().count(), 0);
}

#[test]
fn ready_images_are_fetched_at_the_start_only_where_that_is_set() {
    for (prewarm, wanted) in [("1", 1), ("0", 0)] {
        let proxy = Proxy::start();
        // It is not there, and is not to be had either.
        proxy.answer("POST", "/images/create", 404, "no such image");
        let daemon = Daemon::start(&settings(&[
            ("SANDBOXD_DOCKER_HOST", &proxy.address()),
            (
                "SANDBOXD_RUNTIMES",
                "bb={{image}},gone=sandboxd-test/no-such:1",
            ),
            ("SANDBOXD_PREWARM", prewarm),
        ]));
        let fetched = || {
            let calls = proxy.calls("POST");
            calls
                .iter()
                .filter(|call| call.contains("/images/create"))
                .count()
        };
        if 0 < wanted {
            wait("it is fetched", SOON, || {
                (wanted <= fetched()).then_some(())
            });
        } else {
            Api::of(&daemon).open_id("s");
            assert_eq!(fetched(), 0);
        }
    }
}

#[test]
fn the_workers_bound_how_much_is_started_at_once() {
    const OPENINGS: usize = 4;
    let slow = Duration::from_millis(700);
    let took = ["2", "32"].map(|workers| {
        let proxy = Proxy::start();
        let delay = Action::Delay {
            ms: u64::try_from(slow.as_millis()).unwrap(),
        };
        let rule = Rule::new("POST", "**/containers/*/start", Which::Every, delay);
        proxy.faults().add(rule);
        let (_daemon, api) = start(&[
            ("SANDBOXD_DOCKER_HOST", &proxy.address()),
            ("SANDBOXD_MAX_WORKERS", workers),
        ]);
        let began = Instant::now();
        at_once(OPENINGS, |n| api.open_id(&format!("s{n}")));
        began.elapsed()
    });
    // Half of two workers start one sandbox after the other.
    let in_turn = slow * u32::try_from(OPENINGS).unwrap();
    assert!(in_turn <= took[0], "{took:?}");
    assert!(took[1] + slow < took[0], "{took:?}");
}

#[test]
fn of_each_session_as_many_events_are_kept_as_are_set() {
    let (_daemon, api) = start(&[("SANDBOXD_EVENTS_PER_SESSION", "200")]);
    api.open_id("s");
    at_once(8, |_| {
        for _ in 0..26 {
            api.json(200, "POST /sessions/s/exists", Some(&json!({"path": "x"})));
        }
    });
    let page = api.json(200, "GET /sessions/s/events?after=0&limit=1", None);
    assert_eq!(
        (&page["latest_seq"], &page["first_seq"]),
        (&json!(208), &json!(9)),
        "{page}"
    );
}

#[test]
fn a_command_runs_no_longer_than_is_set_whatever_its_caller_asks_for() {
    let (_daemon, api) = start(&[("SANDBOXD_EXECUTE_TIMEOUT", "1")]);
    api.open_id("s");
    let asked = [
        json!({"command": "sleep 300"}),
        json!({"command": "sleep 300", "timeout_seconds": 200}),
    ];
    for asked in asked {
        let began = Instant::now();
        let ran = api.exec_with("s", &asked);
        assert_eq!(ran["reason"], "timeout", "{ran}");
        let took = began.elapsed();
        assert!(Duration::from_secs(1) <= took && took < SOON, "{took:?}");
    }
}

#[test]
fn a_file_is_read_whole_up_to_the_size_that_is_set() {
    let (_daemon, api) = start(&[("SANDBOXD_MAX_READ_BYTES", "1000")]);
    api.open_id("s");
    api.sh("s", "yes | head -c 1000 >fits; yes | head -c 1001 >more");
    let read = |path: &str| {
        let asked = json!({"path": path});
        let read = api.json(200, "POST /sessions/s/read", Some(&asked));
        read["content"].as_str().unwrap().to_owned()
    };
    assert!(read("fits").starts_with("y\ny\n"));
    let refused = read("more");
    assert!(
        refused.contains("over the 1000-byte read limit"),
        "{refused}"
    );
}

#[test]
fn as_many_connections_are_served_as_are_set() {
    let changes = [
        ("SANDBOXD_TOKEN", TOKEN),
        ("SANDBOXD_PORT", "0"),
        ("SANDBOXD_MAX_CONNECTIONS", "3"),
    ];
    let bare = Bare::start(dir(), &changes, &[]);
    let http = bare.http(TOKEN);
    let held: Vec<_> = (0..3)
        .map(|_| TcpStream::connect(bare.address()).unwrap())
        .collect();
    let refused = http.get("/healthz").unwrap();
    let body = refused.json().unwrap();
    assert_eq!(
        (
            refused.status,
            &body["ceiling"]["name"],
            &body["ceiling"]["limit"]
        ),
        (503, &json!("max_connections"), &json!(3)),
        "{body}"
    );
    drop(held);
    wait("there is a place", SOON, || {
        let reply = http.get("/healthz").ok()?;
        (reply.status == 200).then_some(())
    });
}

#[test]
fn what_is_under_way_gets_as_long_as_is_set_when_the_service_stops() {
    for (secs, finishes) in [("20", true), ("0", false)] {
        let (mut daemon, api) = start(&[("SANDBOXD_DRAIN_TIMEOUT", secs)]);
        api.open_id("s");
        let http = daemon.http();
        let command = thread::spawn(move || {
            let asked = json!({"command": "touch begun; sleep 8; echo done"});
            Api::request_on(&http, "POST", "/sessions/s/exec", Some(&asked))
        });
        let begun = daemon.dir().join("ws/s/workspace/begun");
        wait("the command runs", SOON, || begun.exists().then_some(()));
        let began = Instant::now();
        assert!(daemon.stop(Ending::Terminate).success());
        let took = began.elapsed();
        let reply = command.join().unwrap().ok();
        let ran = reply.and_then(|reply| reply.json()).unwrap_or_default();
        assert_eq!(ran["output"] == "done\n", finishes, "{secs} s: {ran}");
        assert_eq!(
            Duration::from_secs(6) < took,
            finishes,
            "{secs} s: {took:?}"
        );
    }
}

/// Starts a run in the background; returns its path.
fn begin(api: &Api, asked: &Value) -> String {
    let run = api.json(201, "POST /sessions/s/runs", Some(asked));
    format!("/sessions/s/runs/{}", run["run_id"].as_str().unwrap())
}

fn ended(api: &Api, path: &str) -> Value {
    wait("the run is over", SOON, || {
        let run = api.json(200, &format!("GET {path}"), None);
        (run["state"] != "running").then_some(run)
    })
}

#[test]
fn a_background_run_goes_on_no_longer_than_is_set() {
    let (_daemon, api) = start(&[("SANDBOXD_BACKGROUND_TIMEOUT", "1")]);
    api.open_id("s");
    let began = Instant::now();
    let run = ended(&api, &begin(&api, &json!({"command": "sleep 300"})));
    assert_eq!(run["reason"], "timeout", "{run}");
    assert!(Duration::from_secs(1) <= began.elapsed());
}

#[test]
fn of_all_runs_of_a_sandbox_as_much_output_is_kept_as_is_set() {
    let (_daemon, api) = start(&[
        ("SANDBOXD_RUN_RING_BYTES", "65536"),
        ("SANDBOXD_SESSION_RINGS_BYTES", "65536"),
    ]);
    api.open_id("s");
    let write = || {
        let path = begin(&api, &json!({"command": "head -c 50000 /dev/zero"}));
        assert_eq!(ended(&api, &path)["exit_code"], 0);
        path
    };
    let output = |path: &str| {
        let reply = api.call("GET", &format!("{path}/output"), None);
        (reply.status, reply.body.len())
    };
    let first = write();
    let (status, bytes) = output(&first);
    assert!(status == 200 && 50_000 < bytes, "{status}: {bytes} bytes");
    let second = write();
    let (status, bytes) = output(&second);
    assert!(status == 200 && 50_000 < bytes, "{status}: {bytes} bytes");
    let (status, bytes) = output(&first);
    assert!(
        bytes < 10_000,
        "what ended first goes first: {status}, {bytes} bytes"
    );
}
