//! What becomes of sessions when their engine is stopped, killed, frozen or full.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::api::{Api, WORKSPACES, settings, wait};
use crate::support::daemon::Daemon;
use crate::support::docker::IMAGE;
use crate::support::http::Response;
use crate::support::second_engine::{DataRoot, LiveRestore, SecondEngine};
use crate::support::whole;

/// By when the service knows that its engine is away, or back.
const NOTICED: Duration = Duration::from_secs(30);
/// By when everything is as it should be again.
///
/// An engine that was killed in mid-start may hold its calls for half a minute.
pub(crate) const SETTLED: Duration = Duration::from_mins(2);
/// The sessions that are opened at once while the engine is killed.
const OPENINGS: usize = 3;
/// The sessions that are woken at once meanwhile.
const WAKES: usize = 4;

/// How an engine goes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Away {
    Stopped,
    Killed,
}

fn resync(seconds: &'static str) -> [(&'static str, &'static str); 2] {
    [WORKSPACES, ("SANDBOXD_CLEANUP_INTERVAL", seconds)]
}

/// Waits until the service says so of itself.
pub(crate) fn wait_for_health(api: &Api, status: &str) -> Value {
    wait(&format!("/healthz says {status}"), NOTICED, || {
        let health = api.json(200, "GET /healthz", None);
        (health["status"] == status).then_some(health)
    })
}

/// Begins a command and waits until it runs.
fn begin(daemon: &Daemon, id: &str, command: &str) -> JoinHandle<std::io::Result<Response>> {
    let begun = daemon.dir().join(format!("ws/{id}/workspace/begun"));
    drop(fs::remove_file(&begun));
    let (http, path) = (daemon.http(), format!("/sessions/{id}/exec"));
    let asked = json!({"command": format!("touch begun; {command}")});
    let running = thread::spawn(move || Api::request_on(&http, "POST", &path, Some(&asked)));
    wait("the command runs", SETTLED, || begun.exists().then_some(()));
    running
}

/// Returns the engine's id of a session's container, and its process.
fn life(engine: &SecondEngine, api: &Api, id: &str) -> (String, String) {
    let container = api.info(id)["container"].as_str().unwrap().to_owned();
    let format = "{{.Id}} {{.State.Pid}}";
    let life = engine.docker(&["inspect", "--format", format, &container]);
    let (id, pid) = life.split_once(' ').unwrap();
    (id.to_owned(), pid.to_owned())
}

/// Waits until a command succeeds; returns its reply.
fn wait_for_command(api: &Api, id: &str, command: &str) -> Value {
    wait(&format!("a command works in {id}"), SETTLED, || {
        let asked = json!({"command": command});
        let reply = api.call("POST", &format!("/sessions/{id}/exec"), Some(&asked));
        let reply = (reply.status == 200).then(|| reply.json().unwrap())?;
        (reply["exit_code"] == 0).then_some(reply)
    })
}

/// Purges everything and proves from the control groups that nothing is left.
fn purge_all(engine: &SecondEngine, daemon: &Daemon, api: &Api) {
    let listed = api.json(200, "GET /sessions", None);
    for session in listed["sessions"].as_array().unwrap() {
        let id = session["session_id"].as_str().unwrap();
        api.close(id, "?purge=true");
    }
    wait("no process and no container is left", SETTLED, || {
        let left = engine.processes();
        (left.is_empty() && engine.labelled(&daemon.label()).is_empty()).then_some(())
    });
}

fn service_log(daemon: &Daemon) -> String {
    fs::read_to_string(daemon.log_path()).unwrap()
}

#[test]
fn an_engine_of_a_test_leaves_nothing_behind() {
    let mut engine = SecondEngine::start(LiveRestore::On, DataRoot::Disk(64));
    let run = ["run", "--detach", "--init", "--network=none"];
    let id = engine.docker(&[&run[..], &[IMAGE, "sleep", "1000"]].concat());
    engine.kill();
    let processes = engine.processes();
    assert_eq!(processes.keys().collect::<Vec<_>>(), [&id]);
    engine.start_again(LiveRestore::On);
    engine.kill_containerd();
    let dir = engine.socket().parent().unwrap().to_owned();
    drop(engine);
    for pid in &processes[&id] {
        assert!(!Path::new("/proc").join(pid.to_string()).exists());
    }
    let group = Path::new("/sys/fs/cgroup/memory/docker").join(&id);
    assert!(!group.exists() && !dir.exists());
    let disks = fs::read_dir("/sys/block").unwrap().filter_map(|block| {
        fs::read_to_string(block.unwrap().path().join("loop/backing_file")).ok()
    });
    let ours = dir.to_str().unwrap();
    assert_eq!(disks.filter(|file| file.contains(ours)).count(), 0);
}

#[test]
fn commands_of_an_engine_that_went_away_have_no_exit_code_and_sessions_heal() {
    // An agent is joined by way of this engine: its processes have other numbers here.
    commands_are_lost_and_sessions_heal("agent");
}

#[test]
fn commands_by_the_exec_of_an_engine_that_went_away_have_no_exit_code_and_sessions_heal() {
    commands_are_lost_and_sessions_heal("docker");
}

fn commands_are_lost_and_sessions_heal(way: &'static str) {
    let mut engine = SecondEngine::start(LiveRestore::Off, DataRoot::Plain);
    let changes = [&resync("3600")[..], &[("SANDBOXD_EXEC", way)]].concat();
    let daemon = Daemon::start_on(&engine, &settings(&changes));
    let api = Api::of(&daemon);
    // The first process of a container without an agent is a sleep as well.
    let sleeps = if way == "docker" { "1\n" } else { "0\n" };
    for id in ["busy", "idle"] {
        api.open_id(id);
        api.sh(id, &format!("echo {id} > whose"));
    }
    let ways = [
        (Away::Stopped, LiveRestore::Off),
        (Away::Killed, LiveRestore::Off),
        // Killed, so that its containers go on, and found again from now on.
        (Away::Killed, LiveRestore::On),
        (Away::Stopped, LiveRestore::On),
    ];
    for (away, live_restore) in ways {
        let what = format!("{away:?}, live restore {live_restore:?}");
        let lives = ["busy", "idle"].map(|id| life(&engine, &api, id));
        let incarnation = api.info("busy")["incarnation"].as_u64().unwrap();
        let command = begin(&daemon, "busy", "sleep 1234");
        match away {
            Away::Stopped => engine.stop(),
            Away::Killed => engine.kill(),
        }
        let ending = command.join().unwrap().unwrap();
        assert_eq!(ending.status, 200, "{what}: {}", ending.text());
        let ending = ending.json().unwrap();
        assert_eq!(ending["exit_code"], Value::Null, "{what}: {ending}");
        assert!(ending["reason"].is_string(), "{what}: {ending}");
        let health = wait_for_health(&api, "degraded");
        assert!(
            health["reasons"][0].to_string().contains("engine"),
            "{health}"
        );
        engine.start_again(live_restore);
        wait_for_health(&api, "ok");
        match live_restore {
            LiveRestore::Off => {
                for id in ["busy", "idle"] {
                    let asleep = api.wait_for(id, "hibernated");
                    assert_eq!(asleep["reason"], "container_died", "{what}: {asleep}");
                }
                assert_eq!(
                    engine.processes(),
                    BTreeMap::new(),
                    "{what}: none starts unasked"
                );
                let reply = wait_for_command(&api, "busy", "cat whose");
                assert_eq!(reply["output"], "busy\n", "{what}");
                assert_eq!(reply["reset_reason"], "container_lost", "{what}: {reply}");
                assert_eq!(api.info("busy")["incarnation"], incarnation + 1, "{what}");
            }
            LiveRestore::On => {
                let found = ["busy", "idle"].map(|id| life(&engine, &api, id));
                assert_eq!(found, lives, "{what}: adopted as they are");
                wait("the lost command is ended", SETTLED, || {
                    let reply = wait_for_command(&api, "busy", "pidof sleep | wc -w");
                    (reply["output"] == sleeps).then_some(())
                });
                assert_eq!(api.info("busy")["incarnation"], incarnation, "{what}");
            }
        }
        assert_eq!(api.sh("idle", "cat whose"), "idle", "{what}");
        assert_eq!(engine.labelled(&daemon.label()).len(), 2, "{what}");
    }
    purge_all(&engine, &daemon, &api);
}

#[test]
fn a_frozen_engine_is_told_fast_and_its_commands_end_truly_when_it_thaws() {
    let engine = SecondEngine::start(LiveRestore::Off, DataRoot::Plain);
    let daemon = Daemon::start_on(&engine, &settings(&resync("3600")));
    let api = Api::of(&daemon);
    api.open_id("a");
    let before = life(&engine, &api, "a");
    let command = begin(&daemon, "a", "sleep 2; echo done; exit 7");
    engine.freeze();
    wait_for_health(&api, "degraded");
    let began = Instant::now();
    wait("openings are refused", NOTICED, || {
        let reply = api.call("POST", "/sessions", Some(&json!({"session_id": "b"})));
        (reply.status == 503).then_some(())
    });
    assert!(began.elapsed() < NOTICED);
    engine.thaw();
    wait_for_health(&api, "ok");
    let ending = command.join().unwrap().unwrap().json().unwrap();
    let is_true = ending["exit_code"] == 7 && ending["output"] == "done\n";
    assert!(is_true || ending["exit_code"].is_null(), "{ending}");
    assert_eq!(wait_for_command(&api, "a", "echo hi")["output"], "hi\n");
    assert_eq!(life(&engine, &api, "a"), before);
    // What the engine was asked for before it stood still may be made, and goes again.
    wait("nothing is left of a refused opening", SETTLED, || {
        (engine.labelled(&daemon.label()).len() == 1).then_some(())
    });
    let listed = api.json(200, "GET /sessions", None);
    assert_eq!(listed["sessions"].as_array().unwrap().len(), 1, "{listed}");
    purge_all(&engine, &daemon, &api);
}

#[test]
fn sessions_outlive_a_containerd_that_is_killed_and_no_exit_code_is_invented() {
    let mut engine = SecondEngine::start(LiveRestore::Off, DataRoot::Plain);
    let daemon = Daemon::start_on(&engine, &settings(&resync("1")));
    let api = Api::of(&daemon);
    api.open_id("a");
    api.sh("a", "echo kept > file");
    let command = begin(&daemon, "a", "sleep 2; echo done; exit 7");
    engine.kill_containerd();
    engine.start_containerd();
    let ending = command.join().unwrap().unwrap().json().unwrap();
    let code = &ending["exit_code"];
    assert!(code.is_null() || *code == 7, "{ending}");
    assert_eq!(wait_for_command(&api, "a", "cat file")["output"], "kept\n");
    assert_eq!(engine.labelled(&daemon.label()).len(), 1);
    assert_eq!(engine.processes().len(), 1, "one container has processes");
    purge_all(&engine, &daemon, &api);
}

/// Has the engine forget a container whose processes go on.
fn forget(engine: &mut SecondEngine, container: &str) {
    engine.kill();
    let kept = engine.data_root().join("containers").join(container);
    fs::remove_dir_all(kept).unwrap();
    engine.start_again(LiveRestore::On);
}

#[test]
fn a_ghost_is_reported_and_ended_before_its_files_are_handed_on() {
    let mut engine = SecondEngine::start(LiveRestore::On, DataRoot::Plain);
    let daemon = Daemon::start_on(&engine, &settings(&resync("3600")));
    let api = Api::of(&daemon);
    api.open_id("a");
    api.sh("a", "echo kept > file");
    let (ghost, _) = life(&engine, &api, "a");
    forget(&mut engine, &ghost);
    assert_eq!(engine.labelled(&daemon.label()), Vec::<String>::new());
    assert!(engine.processes().contains_key(&ghost), "it is a ghost");
    wait_for_health(&api, "ok");
    let reply = wait_for_command(&api, "a", "cat file");
    assert_eq!(reply["output"], "kept\n");
    let (container, _) = life(&engine, &api, "a");
    let left: Vec<_> = engine.processes().into_keys().collect();
    assert_eq!(left, [container], "one writer, and it is the new one");
    let log = service_log(&daemon);
    let line = log
        .lines()
        .find(|line| line.contains("has lost a container"));
    let line = line.expect("it is reported");
    assert!(
        line.contains(&format!("ctr -n moby tasks kill -s 9 {ghost}")),
        "{line}"
    );
    purge_all(&engine, &daemon, &api);
}

#[test]
fn a_purge_ends_a_ghost_before_the_files_go() {
    let mut engine = SecondEngine::start(LiveRestore::On, DataRoot::Plain);
    let daemon = Daemon::start_on(&engine, &settings(&resync("3600")));
    let api = Api::of(&daemon);
    api.open_id("a");
    let (ghost, _) = life(&engine, &api, "a");
    forget(&mut engine, &ghost);
    wait_for_health(&api, "ok");
    api.close("a", "?purge=true");
    wait("its files are gone", SETTLED, || {
        (!daemon.dir().join("ws/a").exists()).then_some(())
    });
    assert_eq!(engine.processes(), BTreeMap::new());
    assert!(service_log(&daemon).contains(&ghost));
}

/// Leaves a task in containerd under a container's id, as an engine does that is
/// killed while it starts the container.
fn poison(engine: &mut SecondEngine, dir: &Path, container: &str) {
    let root = dir.join("root");
    let (host, path) = (engine.host(), root.display());
    let unpack =
        format!("mkdir {path} && docker --host {host} export {container} | tar -C {path} -x");
    let unpacked = Command::new("sh").args(["-c", &unpack]).status().unwrap();
    assert!(unpacked.success());
    let root = root.to_str().unwrap();
    engine.kill();
    engine.ctr(&[
        "run",
        "--detach",
        "--rootfs",
        root,
        container,
        "/bin/sleep",
        "1000",
    ]);
    engine.start_again(LiveRestore::Off);
}

#[test]
fn a_container_that_the_engine_can_never_start_again_is_replaced_under_a_new_key() {
    let mut engine = SecondEngine::start(LiveRestore::Off, DataRoot::Plain);
    let persist = ("SANDBOXD_PERSIST_CONTAINERS", "1");
    let changes = [&resync("3600")[..], &[persist]].concat();
    let daemon = Daemon::start_on(&engine, &settings(&changes));
    let api = Api::of(&daemon);
    api.open_id("a");
    api.sh("a", "echo kept > file");
    let (poisoned, _) = life(&engine, &api, "a");
    engine.docker(&["stop", "--time=0", &poisoned]);
    api.wait_for("a", "hibernated");
    poison(&mut engine, daemon.dir(), &poisoned);
    wait_for_health(&api, "ok");
    assert_eq!(wait_for_command(&api, "a", "cat file")["output"], "kept\n");
    let (container, _) = life(&engine, &api, "a");
    assert_ne!(container, poisoned);
    assert_eq!(engine.labelled(&daemon.label()), [container]);
    let log = service_log(&daemon);
    assert_eq!(
        log.matches("the engine was killed while it started")
            .count(),
        1
    );
    engine.ctr(&["tasks", "kill", "-s", "9", &poisoned]);
    purge_all(&engine, &daemon, &api);
}

/// Makes these calls at once; each succeeds or says why it does not.
fn call_at_once(daemon: &Daemon, calls: Vec<(String, Value)>) -> Vec<JoinHandle<()>> {
    let call = |(path, asked): (String, Value)| {
        let http = daemon.http();
        thread::spawn(move || {
            let reply = Api::request_on(&http, "POST", &path, Some(&asked)).unwrap();
            let says_why = reply.json().is_some_and(|body| body["detail"].is_string());
            let what = format!("{path}: {} {}", reply.status, reply.text());
            assert!(reply.status == 200 || says_why, "{what}");
        })
    };
    calls.into_iter().map(call).collect()
}

/// The kills that an ordinary run makes, and those of a whole one.
const KILLS: (u64, u64) = (2, 40);

#[test]
fn no_ghost_of_an_engine_killed_in_mid_start_goes_unreported_or_stays() {
    let mut engine = SecondEngine::start(LiveRestore::Off, DataRoot::Plain);
    let daemon = Daemon::start_on(&engine, &settings(&resync("1")));
    let api = Api::of(&daemon);
    let kept: Vec<String> = (0..WAKES).map(|n| format!("kept-{n}")).collect();
    for id in &kept {
        api.open_id(id);
        api.sh(id, &format!("echo {id} > whose"));
        engine.docker(&["kill", &life(&engine, &api, id).0]);
        api.wait_for(id, "hibernated");
    }
    let kills = if whole() { KILLS.1 } else { KILLS.0 };
    for round in 0..kills {
        let opened: Vec<String> = (0..OPENINGS).map(|n| format!("r{round}-{n}")).collect();
        let wakes = kept.iter().map(|id| {
            let asked = json!({"command": "cat whose"});
            (format!("/sessions/{id}/exec"), asked)
        });
        let openings = opened
            .iter()
            .map(|id| ("/sessions".to_owned(), json!({"session_id": id})));
        let calls = call_at_once(&daemon, wakes.chain(openings).collect());
        thread::sleep(Duration::from_millis(100 + 90 * (round % 8)));
        engine.kill();
        for call in calls {
            call.join().unwrap();
        }
        // Without live restore, all fall asleep and are woken in the next round.
        engine.start_again(match round % 4 {
            3 => LiveRestore::On,
            _ => LiveRestore::Off,
        });
        wait("the engine is back", SETTLED, || {
            (api.json(200, "GET /healthz", None)["status"] == "ok").then_some(())
        });
        let listed = api.json(200, "GET /sessions", None);
        let listed = listed["sessions"].as_array().unwrap().iter();
        let open: BTreeSet<&str> = listed
            .map(|session| session["session_id"].as_str().unwrap())
            .collect();
        if round % 2 == 0 {
            for id in &open {
                wait_for_command(&api, id, "echo hi");
            }
        }
        // What the engine does not list has no process, once it was looked at.
        wait("no ghost is left", SETTLED, || {
            let listed: BTreeSet<String> = engine.labelled(&daemon.label()).into_iter().collect();
            let left: BTreeSet<String> = engine.processes().into_keys().collect();
            left.is_subset(&listed).then_some(())
        });
        for id in open.iter().filter(|id| id.starts_with('r')) {
            api.close(id, "?purge=true");
        }
    }
    for id in &kept {
        assert_eq!(
            wait_for_command(&api, id, "cat whose")["output"],
            format!("{id}\n")
        );
    }
    purge_all(&engine, &daemon, &api);
    let log = service_log(&daemon);
    let count = |words: &str| log.matches(words).count();
    eprintln!(
        "{kills} kills: {} poisoned starts, {} ghosts, {} ended",
        count("the engine was killed while it started"),
        count("has lost a container"),
        count("a ghost was ended"),
    );
}

/// Takes all the space that is left of the engine's disk.
fn fill(engine: &SecondEngine) {
    let mut filler = fs::File::create(engine.data_root().join("filler")).unwrap();
    for size in [1 << 20, 4096, 1] {
        while filler.write_all(&vec![b'x'; size]).is_ok() {}
    }
    drop(filler.sync_all());
}

#[test]
fn a_full_data_root_refuses_openings_and_wakes_leaves_nothing_and_heals() {
    let engine = SecondEngine::start(LiveRestore::Off, DataRoot::Disk(40));
    let daemon = Daemon::start_on(&engine, &settings(&resync("3600")));
    let api = Api::of(&daemon);
    api.open_id("asleep");
    api.sh("asleep", "echo kept > file");
    let (container, _) = life(&engine, &api, "asleep");
    engine.docker(&["kill", &container]);
    api.wait_for("asleep", "hibernated");
    wait("its container is gone", SETTLED, || {
        engine.labelled(&daemon.label()).is_empty().then_some(())
    });
    fill(&engine);
    for _ in 0..2 {
        let refused = api.call("POST", "/sessions", Some(&json!({"session_id": "new"})));
        assert_eq!(refused.status, 507, "{}", refused.text());
        assert_eq!(refused.json().unwrap()["code"], "no_space");
    }
    let asked = json!({"command": "cat file"});
    let refused = api.call("POST", "/sessions/asleep/exec", Some(&asked));
    assert_eq!(refused.status, 507, "{}", refused.text());
    let tries = || service_log(&daemon).matches("a step failed").count();
    let before = tries();
    thread::sleep(Duration::from_secs(5));
    assert!(tries() - before < 6, "it is tried again at leisure");
    assert_eq!(api.call("GET", "/sessions/new", None).status, 404);
    assert!(!daemon.dir().join("ws/new").exists());
    assert_eq!(engine.labelled(&daemon.label()), Vec::<String>::new());
    fs::remove_file(engine.data_root().join("filler")).unwrap();
    assert_eq!(
        wait_for_command(&api, "asleep", "cat file")["output"],
        "kept\n"
    );
    api.open_id("new");
    assert_eq!(engine.labelled(&daemon.label()).len(), 2);
    purge_all(&engine, &daemon, &api);
}

#[test]
fn behind_another_engine_nothing_is_made_or_lost_until_the_known_one_is_back() {
    let mut known = SecondEngine::start(LiveRestore::On, DataRoot::Plain);
    let other = SecondEngine::start(LiveRestore::Off, DataRoot::Plain);
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("engine.sock");
    let point_to = |engine: &SecondEngine| {
        let next = dir.path().join("next");
        std::os::unix::fs::symlink(engine.socket(), &next).unwrap();
        fs::rename(next, &socket).unwrap();
    };
    point_to(&known);
    let address = format!("unix://{}", socket.display());
    let daemon = Daemon::start(&settings(
        &[&resync("1")[..], &[("SANDBOXD_DOCKER_HOST", &address)]].concat(),
    ));
    let api = Api::of(&daemon);
    api.open_id("a");
    api.sh("a", "echo kept > file");
    let before = life(&known, &api, "a");
    let running = known.processes();
    known.kill();
    point_to(&other);
    let health = wait("another engine is told of", SETTLED, || {
        let health = api.json(200, "GET /healthz", None);
        health
            .to_string()
            .contains("engine_changed")
            .then_some(health)
    });
    assert_eq!(health["status"], "degraded", "{health}");
    let asked = json!({"command": "cat file"});
    let refused = api.call("POST", "/sessions/a/exec", Some(&asked));
    assert_eq!(refused.status, 503, "{}", refused.text());
    let refused = api.call("POST", "/sessions", Some(&json!({"session_id": "b"})));
    assert_eq!(refused.status, 503, "{}", refused.text());
    // Several resyncs look at it meanwhile.
    thread::sleep(Duration::from_secs(3));
    assert_eq!(other.docker(&["ps", "--all", "--quiet"]), "");
    assert_eq!(known.processes(), running, "the sandbox goes on");
    known.start_again(LiveRestore::On);
    point_to(&known);
    wait_for_health(&api, "ok");
    assert_eq!(wait_for_command(&api, "a", "cat file")["output"], "kept\n");
    assert_eq!(life(&known, &api, "a"), before);
    purge_all(&known, &daemon, &api);
}
