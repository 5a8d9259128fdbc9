//! What becomes of sessions whose store is lost, cut, damaged or full of rubbish.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::support::api::{Api, WORKSPACES, settings, wait};
use crate::support::daemon::{Daemon, Ending};
use crate::support::docker::{IMAGE, Removed, docker, labelled, try_docker};
use crate::support::http::Response;
use crate::support::proxy::{Mode, Proxy};
use crate::support::whole;

/// By when everything that was begun has come to its end.
pub(crate) const SETTLED: Duration = Duration::from_secs(30);
/// Damages of the ordinary suite, and of the full size.
const ROUNDS: [u64; 2] = [6, 60];

fn store(daemon: &Daemon) -> PathBuf {
    daemon.dir().join("state/store")
}

/// Returns the number of a container's first process.
pub(crate) fn pid(container: &str) -> String {
    docker(&["inspect", "--format", "{{.State.Pid}}", container])
}

/// Returns the names of the holds that stand.
pub(crate) fn holds(api: &Api) -> Vec<String> {
    let listed = api.json(200, "GET /holds", None);
    let holds = listed["holds"].as_array().unwrap().iter();
    holds
        .map(|hold| {
            assert!(
                hold["remedy"].as_str().unwrap().contains("release"),
                "{hold}"
            );
            hold["name"].as_str().unwrap().to_owned()
        })
        .collect()
}

fn set_aside(daemon: &Daemon) -> Vec<PathBuf> {
    let entries = fs::read_dir(daemon.dir().join("state")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let is_aside = |path: &PathBuf| path.to_string_lossy().contains("store.corrupt-");
    paths.filter(is_aside).collect()
}

/// Returns the ids of the open sessions.
pub(crate) fn ids(api: &Api) -> Vec<String> {
    let listed = api.json(200, "GET /sessions", None);
    let sessions = listed["sessions"].as_array().unwrap().iter();
    sessions
        .map(|session| session["session_id"].as_str().unwrap().to_owned())
        .collect()
}

/// Waits until the containers are on record again.
pub(crate) fn wait_for_adoption(api: &Api) {
    wait("the containers are on record", SETTLED, || {
        let health = api.json(200, "GET /healthz", None);
        let pending = health.to_string().contains("still to be taken over");
        (!pending).then_some(())
    });
}

/// Asks for a session.
pub(crate) fn open(api: &Api, id: &str) -> Response {
    api.call("POST", "/sessions", Some(&json!({"session_id": id})))
}

/// Asks for a command.
pub(crate) fn exec(api: &Api, id: &str) -> Response {
    let asked = json!({"command": "true"});
    api.call("POST", &format!("/sessions/{id}/exec"), Some(&asked))
}

/// Runs `sandboxctl`; returns its exit code and what it said.
pub(crate) fn sandboxctl(daemon: &Daemon, args: &[&str]) -> (i32, String) {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_sandboxctl"))
        .args(args)
        .env("SANDBOXD_URL", daemon.url())
        .env("SANDBOXD_TOKEN", daemon.token())
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    (
        output.status.code().unwrap(),
        String::from_utf8_lossy(&said).into_owned(),
    )
}

/// A way to lose a store, with its name.
type Loss = (&'static str, fn(&Path));

const LOSSES: [Loss; 4] = [
    ("removed", |store| fs::remove_dir_all(store).unwrap()),
    ("replaced by rubbish", |store| {
        fs::remove_dir_all(store).unwrap();
        fs::create_dir_all(store.join("v1")).unwrap();
        for name in ["db", "conf", "snap.0000"] {
            fs::write(store.join("v1").join(name), [0xa5; 5_000]).unwrap();
        }
    }),
    ("replaced by a file", |store| {
        fs::remove_dir_all(store).unwrap();
        fs::write(store, "rubbish").unwrap();
    }),
    ("cut to half its log", |store| {
        let log = store.join("v1/db");
        let bytes = fs::read(&log).unwrap();
        fs::write(&log, &bytes[..bytes.len() / 2]).unwrap();
    }),
];

#[test]
fn a_lost_store_is_rebuilt_with_the_same_tokens_while_processes_go_on() {
    let mut daemon = Daemon::start(&settings(&[
        WORKSPACES,
        ("SANDBOXD_MAX_OPEN_SESSIONS", "3"),
        ("SANDBOXD_MAX_SESSIONS", "3"),
    ]));
    let api = Api::of(&daemon);
    let opened = api.open(&json!({"session_id": "a", "tenant": "acme"}));
    let a = api.with_token(opened["token"].as_str().unwrap());
    let b = api.with_token(&api.open_id("b"));
    let over = api.with_token(&api.open_id("over"));
    over.sh("over", "echo kept > f");
    api.close("over", "");
    a.sh("a", "echo hi > f");
    let sleeper = a.sh("a", "sleep 9999 > /dev/null 2>&1 & echo $!");
    let lives = ["a", "b"].map(|id| (api.container(id), pid(&api.container(id))));
    for (round, (how, lose)) in LOSSES.iter().enumerate() {
        daemon.stop(Ending::Kill);
        lose(&store(&daemon));
        daemon.start_again();
        wait_for_adoption(&api);
        assert_eq!(ids(&api), ["a", "b"], "{how}");
        assert_eq!(a.info("a")["tenant"], "acme", "{how}");
        assert_eq!(
            a.sh("a", &format!("kill -0 {sleeper} && cat f")),
            "hi",
            "{how}"
        );
        assert_eq!(b.sh("b", "echo yes"), "yes", "{how}");
        assert_eq!(
            ["a", "b"].map(|id| (api.container(id), pid(&api.container(id)))),
            lives
        );
        assert_eq!(
            exec(&over, "over").status,
            401,
            "{how}: what was closed stays closed"
        );
        assert_eq!(labelled(&daemon.label()).len(), 2, "{how}");
        assert_eq!(holds(&api), ["store_rebuilt"], "{how}");
        let health = api.json(200, "GET /healthz", None);
        assert_eq!(health["status"], "degraded");
        assert!(
            health["reasons"][0]
                .as_str()
                .unwrap()
                .starts_with("store_rebuilt: ")
        );
        assert_eq!(
            api.call("GET", "/readyz", None).status,
            200,
            "it does its work"
        );
        assert_eq!(
            set_aside(&daemon).len(),
            round + 1,
            "{how}: nothing is deleted"
        );
    }
}

#[test]
fn a_hold_outlives_restarts_until_an_operator_lets_go_of_it() {
    let mut daemon = Daemon::start(&settings(&[WORKSPACES]));
    let api = Api::of(&daemon);
    api.open_id("over");
    api.sh("over", "echo kept > f");
    api.close("over", "");
    daemon.stop(Ending::Kill);
    fs::remove_dir_all(store(&daemon)).unwrap();
    daemon.start_again();
    wait_for_adoption(&api);
    daemon.restart(Ending::Kill);
    assert_eq!(holds(&api), ["store_rebuilt"]);
    let (code, said) = sandboxctl(&daemon, &["health"]);
    assert!(code == 1 && said.contains("store_rebuilt"), "{said}");
    let (code, _) = sandboxctl(&daemon, &["release", "store_rebuilt"]);
    assert_eq!(code, 2, "nobody confirmed it");
    let (code, said) = sandboxctl(&daemon, &["release", "store_rebuilt", "--yes"]);
    assert_eq!(code, 0, "{said}");
    let (code, _) = sandboxctl(&daemon, &["release", "store_rebuilt", "--yes"]);
    assert_eq!(code, 3, "it does not stand any more");
    assert_eq!(api.json(200, "GET /healthz", None)["status"], "ok");
    api.open_id("over");
    assert_eq!(api.sh("over", "cat f"), "kept");
}

#[test]
fn a_setting_confirms_an_earlier_rebuild_and_never_the_one_of_its_own_start() {
    let mut daemon = Daemon::start(&settings(&[WORKSPACES]));
    let api = Api::of(&daemon);
    let a = api.with_token(&api.open_id("a"));
    daemon.stop(Ending::Kill);
    fs::remove_dir_all(store(&daemon)).unwrap();
    daemon.set("SANDBOXD_RELEASE_HOLDS", "store_rebuilt");
    daemon.start_again();
    wait_for_adoption(&api);
    assert_eq!(holds(&api), ["store_rebuilt"]);
    daemon.restart(Ending::Terminate);
    assert!(holds(&api).is_empty());
    assert_eq!(a.sh("a", "echo hi"), "hi");
}

#[test]
fn nothing_is_swept_from_a_rebuilt_store_before_an_operator_confirms_it() {
    let mut daemon = Daemon::start(&settings(&[
        WORKSPACES,
        ("SANDBOXD_IDLE_TIMEOUT", "3"),
        ("SANDBOXD_WORKSPACE_TTL", "3"),
        ("SANDBOXD_CLEANUP_INTERVAL", "1"),
        ("SANDBOXD_ORPHAN_GRACE", "1"),
        ("SANDBOXD_MAX_OPEN_SESSIONS", "2"),
        ("SANDBOXD_MAX_SESSIONS", "1"),
        ("SANDBOXD_EVICT_IDLE_AFTER", "0"),
    ]));
    let api = Api::of(&daemon);
    api.open_id("over");
    api.sh("over", "echo kept > f");
    api.close("over", "");
    api.open_id("asleep");
    api.open_id("idle");
    daemon.stop(Ending::Kill);
    fs::remove_dir_all(store(&daemon)).unwrap();
    let name = format!("stray-{}", uuid::Uuid::new_v4().simple());
    let (label, session) = (daemon.label(), "io.sandboxd.session=idle");
    let args = [
        "run",
        "--detach",
        "--network=none",
        "--name",
        &name,
        "--label",
        &label,
    ];
    let key = "io.sandboxd.key=00000000000000000000000000000000";
    let rest = [
        "--label",
        session,
        "--label",
        key,
        "--label",
        "io.sandboxd.runtime=bb",
    ];
    let stray = docker(&[&args[..], &rest, &[IMAGE, "sleep", "1000"]].concat());
    let guard = Removed::container(&name);
    // Without it the stray would be the newer of the two that run.
    docker(&["stop", "--time=0", &stray]);
    daemon.start_again();
    wait_for_adoption(&api);
    let workspace = daemon.dir().join("ws/over/workspace/f");
    // As long as everything takes that is to be held back, twice over.
    thread::sleep(Duration::from_secs(8));
    assert_eq!(ids(&api), ["asleep", "idle"]);
    assert!(workspace.exists() && try_docker(&["inspect", &stray]).is_ok());
    let refused = open(&api, "more");
    assert_eq!(
        refused.status,
        429,
        "no sleeper is closed for it: {}",
        refused.text()
    );
    assert_eq!(refused.json().unwrap()["code"], "open_ceiling");
    api.close("idle", "");
    assert_eq!(ids(&api), ["asleep"], "a caller closes what it likes");
    api.json(204, "DELETE /workspaces/idle", None);
    assert!(!daemon.dir().join("ws/idle").exists(), "and purges it");
    let (code, said) = sandboxctl(&daemon, &["release", "store_rebuilt", "--yes"]);
    assert_eq!(code, 0, "{said}");
    wait("all of it is swept", SETTLED, || {
        let swept = ids(&api).is_empty()
            && !workspace.exists()
            && try_docker(&["inspect", &stray]).is_err();
        swept.then_some(())
    });
    std::mem::forget(guard);
}

#[test]
fn without_an_engine_a_rebuilt_daemon_serves_and_makes_no_second_container() {
    let proxy = Proxy::start();
    let address = proxy.address();
    for workspaces in [true, false] {
        let mut changes = vec![("SANDBOXD_DOCKER_HOST", address.as_str())];
        if workspaces {
            changes.push(WORKSPACES);
        }
        let mut daemon = Daemon::start(&settings(&changes));
        let api = Api::of(&daemon);
        let a = api.with_token(&api.open_id("a"));
        a.sh("a", "echo hi > f");
        let life = (api.container("a"), pid(&api.container("a")));
        daemon.stop(Ending::Kill);
        fs::remove_dir_all(store(&daemon)).unwrap();
        proxy.set(Mode::Gone);
        daemon.start_again();
        assert_eq!(holds(&api), ["store_rebuilt"]);
        if workspaces {
            assert_eq!(a.info("a")["session_id"], "a", "its token is good at once");
            assert_eq!(exec(&a, "a").status, 503);
        }
        assert_eq!(open(&api, "new").status, 503);
        if !workspaces {
            assert_eq!(
                open(&api, "a").status,
                503,
                "its container is not known yet"
            );
            let purge = api.call("DELETE", "/workspaces/a", None);
            assert_eq!(purge.status, 503, "nobody knows what there is of it");
        }
        proxy.set(Mode::Forward);
        wait_for_adoption(&api);
        wait("it runs", SETTLED, || {
            let run = exec(&api, "a");
            (run.status == 200).then_some(())
        });
        assert_eq!((api.container("a"), pid(&api.container("a"))), life);
        assert_eq!(api.sh("a", "cat f"), "hi");
        assert_eq!(labelled(&daemon.label()).len(), 1);
        // Without a sidecar nothing tells the old token.
        assert_eq!(exec(&a, "a").status, if workspaces { 200 } else { 401 });
    }
}

#[test]
fn a_rebuild_that_is_not_wanted_is_refused_with_65_and_the_store_is_left_in_place() {
    let mut daemon = Daemon::start(&settings(&[WORKSPACES]));
    Api::of(&daemon).open_id("a");
    daemon.stop(Ending::Kill);
    let log = store(&daemon).join("v1/db");
    fs::write(&log, [0; 3_000]).unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_sandboxd"))
        .env("SANDBOXD_TOKEN", daemon.token())
        .env("SANDBOXD_PORT", "0")
        .env("SANDBOXD_STATE_DIR", daemon.dir().join("state"))
        .env("SANDBOXD_RUNTIME_DIR", daemon.dir().join("run"))
        .env("SANDBOXD_ON_CORRUPT_STORE", "refuse")
        .env("SANDBOXD_RUNTIMES", format!("bb={IMAGE}"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(65), "{said}");
    assert!(
        said.contains("it is corrupt") && said.contains("rebuilt"),
        "{said}"
    );
    assert!(log.exists() && set_aside(&daemon).is_empty());
    daemon.start_again();
}

#[test]
fn a_store_damaged_anywhere_costs_no_token_and_brings_none_back() {
    let mut dice = Dice::thrown();
    let mut daemon = Daemon::start(&settings(&[WORKSPACES]));
    let api = Api::of(&daemon);
    let open: Vec<_> = ["a", "b"]
        .map(|id| (id, api.with_token(&api.open_id(id))))
        .into();
    let over = api.with_token(&api.open_id("over"));
    api.close("over", "");
    for round in 0..ROUNDS[usize::from(whole())] {
        daemon.stop(Ending::Kill);
        let done = dice.damage(&store(&daemon).join("v1"));
        daemon.start_again();
        wait_for_adoption(&api);
        for (id, token) in &open {
            assert_eq!(token.sh(id, "echo yes"), "yes", "{round}: {done}: {id}");
        }
        assert_eq!(exec(&over, "over").status, 401, "{round}: {done}");
        assert_eq!(labelled(&daemon.label()).len(), 2, "{round}: {done}");
    }
}

/// Numbers that a printed seed determines.
struct Dice(u64);

impl Dice {
    fn thrown() -> Self {
        let given = std::env::var("SANDBOXD_TEST_SEED");
        let seed = given.map_or_else(
            |_| u64::from(uuid::Uuid::new_v4().as_fields().0),
            |text| text.parse().unwrap(),
        );
        eprintln!("SANDBOXD_TEST_SEED={seed}");
        Self(seed)
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }

    fn damage(&mut self, database: &Path) -> String {
        let entries = fs::read_dir(database).unwrap();
        let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        files.retain(|path| path.is_file() && path.metadata().unwrap().len() != 0);
        files.sort();
        let path = match self.below(2) {
            0 => database.join("db"),
            _ => files[self.below(files.len())].clone(),
        };
        let mut bytes = fs::read(&path).unwrap();
        let place = self.below(bytes.len());
        let cut = self.below(3) == 0;
        if cut {
            bytes.truncate(place);
        } else {
            bytes[place] ^= 1 << self.below(8);
        }
        fs::write(&path, bytes).unwrap();
        let how = if cut { "cut" } else { "flipped" };
        format!("{} {how} at {place}", path.display())
    }
}

#[test]
fn nobody_opens_an_id_whose_container_is_not_on_record_again_yet() {
    let proxy = Proxy::start();
    // Without workspaces its files are in the container alone.
    let mut daemon = Daemon::start(&settings(&[
        ("SANDBOXD_DOCKER_HOST", &proxy.address()),
        ("SANDBOXD_PERSIST_CONTAINERS", "1"),
    ]));
    let api = Api::of(&daemon);
    api.open_id("a");
    api.sh("a", "echo kept > /tmp/f");
    let life = (api.container("a"), pid(&api.container("a")));
    daemon.stop(Ending::Kill);
    fs::remove_dir_all(store(&daemon)).unwrap();
    // It answers, and does not say for a while which engine it is.
    for _ in 0..5 {
        proxy.lose_reply("GET", "/info");
    }
    daemon.start_again();
    let refused = open(&api, "a");
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.text().contains("not on record again"));
    assert_eq!(
        api.call("DELETE", "/workspaces/a", None).status,
        503,
        "nor is it purged as if it were not there"
    );
    let early = api.call("DELETE", "/holds/store_rebuilt", None);
    assert_eq!(early.status, 503, "nobody can have looked at it yet");
    wait_for_adoption(&api);
    assert_eq!(api.sh("a", "cat /tmp/f"), "kept");
    assert_eq!((api.container("a"), pid(&api.container("a"))), life);
    assert_eq!(labelled(&daemon.label()).len(), 1);
}

#[test]
fn a_setting_left_in_place_confirms_no_rebuild_that_was_cut_off() {
    let proxy = Proxy::start();
    let mut daemon = Daemon::start(&settings(&[
        WORKSPACES,
        ("SANDBOXD_DOCKER_HOST", &proxy.address()),
        ("SANDBOXD_RELEASE_HOLDS", "store_rebuilt"),
    ]));
    let api = Api::of(&daemon);
    let token = api.open_id("a");
    daemon.stop(Ending::Kill);
    fs::remove_dir_all(store(&daemon)).unwrap();
    proxy.set(Mode::Gone);
    daemon.start_again();
    // The engine has not answered yet.
    daemon.restart(Ending::Kill);
    assert_eq!(holds(&api), ["store_rebuilt"]);
    proxy.set(Mode::Forward);
    wait_for_adoption(&api);
    assert_eq!(holds(&api), ["store_rebuilt"]);
    assert_eq!(api.with_token(&token).sh("a", "echo hi"), "hi");
    daemon.restart(Ending::Kill);
    assert_eq!(holds(&api), Vec::<String>::new());
}

#[test]
fn sidecars_of_an_earlier_build_and_those_that_were_lost_are_written_anew_at_a_start() {
    let mut daemon = Daemon::start(&settings(&[WORKSPACES]));
    let api = Api::of(&daemon);
    let tokens = ["old", "gone", "over"].map(|id| api.with_token(&api.open_id(id)));
    api.close("over", "");
    let beside = |id: &str| daemon.dir().join("ws").join(id).join(".sandboxd.json");
    let written = ["old", "gone", "over"].map(|id| (beside(id), fs::read(beside(id)).unwrap()));
    daemon.stop(Ending::Kill);
    let mut old: serde_json::Value = serde_json::from_slice(&written[0].1).unwrap();
    for name in ["v", "opened_at", "order", "life"] {
        old.as_object_mut().unwrap().remove(name);
    }
    fs::write(&written[0].0, old.to_string()).unwrap();
    fs::remove_file(&written[1].0).unwrap();
    // As if it could not be written when it was closed.
    let open_still = String::from_utf8(written[2].1.clone()).unwrap();
    let (head, _) = open_still.split_once("\"life\"").unwrap();
    fs::write(&written[2].0, format!("{head}\"life\":\"open\"}}")).unwrap();
    daemon.start_again();
    wait("they are written anew", SETTLED, || {
        let whole = |(path, text): &(PathBuf, Vec<u8>)| fs::read(path).ok().as_ref() == Some(text);
        written.iter().all(whole).then_some(())
    });
    daemon.stop(Ending::Kill);
    fs::remove_dir_all(store(&daemon)).unwrap();
    for container in labelled(&daemon.label()) {
        docker(&["rm", "--force", &container]);
    }
    daemon.start_again();
    wait_for_adoption(&api);
    assert_eq!(tokens[0].sh("old", "echo hi"), "hi");
    assert_eq!(tokens[1].sh("gone", "echo hi"), "hi");
    assert_eq!(exec(&tokens[2], "over").status, 401);
}
