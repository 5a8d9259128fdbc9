//! What becomes of sessions when the host reboots, when somebody removes what is
//! theirs by hand, and when the clock is set.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::support::api::{Api, WORKSPACES, settings, wait};
use crate::support::daemon::{Daemon, Ending};
use crate::support::docker::{docker, labelled, running};

/// By when everything is as it should be again.
const SETTLED: Duration = Duration::from_secs(30);
const RESYNC: (&str, &str) = ("SANDBOXD_CLEANUP_INTERVAL", "1");
const HOUR: i64 = 3600;
const TEN_YEARS: i64 = 10 * 365 * 24 * HOUR;

fn life(api: &Api, id: &str) -> (String, String) {
    let container = api.container(id);
    let pid = docker(&["inspect", "--format", "{{.State.Pid}}", &container]);
    (container, pid)
}

fn workspace(daemon: &Daemon, id: &str) -> PathBuf {
    daemon.dir().join("ws").join(id)
}

#[test]
fn after_a_reboot_sessions_are_asleep_and_wake_with_their_files() {
    let mut daemon = Daemon::start(&settings(&[
        WORKSPACES,
        ("SANDBOXD_MAX_SESSIONS", "2"),
        ("SANDBOXD_EVICT_IDLE_AFTER", "0"),
    ]));
    let api = Api::of(&daemon);
    for id in ["evicted", "a", "b"] {
        api.open_id(id);
        api.sh(id, &format!("echo {id} > whose"));
    }
    api.wait_for("evicted", "hibernated");
    // Everything on the host goes down at once, and /run is empty afterwards.
    daemon.stop(Ending::Kill);
    for container in running(&daemon.label()) {
        docker(&["kill", &container]);
    }
    let runtime = daemon.dir().join("run");
    fs::remove_dir_all(&runtime).unwrap();
    daemon.start_again();
    assert!(
        runtime.read_dir().unwrap().next().is_some(),
        "it is made again"
    );
    for id in ["a", "b"] {
        let asleep = api.wait_for(id, "hibernated");
        assert_eq!(asleep["reason"], "container_died", "{asleep}");
    }
    assert_eq!(api.info("evicted")["reason"], "evicted");
    assert_eq!(
        running(&daemon.label()),
        Vec::<String>::new(),
        "none starts unasked"
    );
    for (id, reset) in [
        ("a", "container_lost"),
        ("b", "container_lost"),
        ("evicted", "hibernated"),
    ] {
        let woken = api.exec(id, "cat whose");
        assert_eq!(woken["output"], format!("{id}\n"), "{woken}");
        assert_eq!(woken["reset_reason"], reset, "{woken}");
    }
}

#[test]
fn a_container_removed_by_hand_is_told_and_harms_no_other_session() {
    let mut daemon = Daemon::start(&settings(&[WORKSPACES, RESYNC]));
    let api = Api::of(&daemon);
    for id in ["a", "other"] {
        api.open_id(id);
        api.sh(id, &format!("echo {id} > whose"));
    }
    let untouched = life(&api, "other");
    for down in [false, true] {
        let container = api.container("a");
        if down {
            daemon.stop(Ending::Terminate);
        }
        docker(&["rm", "--force", &container]);
        if down {
            daemon.start_again();
        }
        let asleep = api.wait_for("a", "hibernated");
        assert_eq!(asleep["reason"], "container_lost", "{asleep}");
        let woken = api.exec("a", "cat whose");
        assert_eq!(woken["output"], "a\n", "{woken}");
        assert_eq!(woken["reset_reason"], "container_lost", "{woken}");
        assert_eq!(api.exec("a", ":")["reset_reason"], Value::Null, "told once");
        assert_eq!(life(&api, "other"), untouched);
        assert_eq!(labelled(&daemon.label()).len(), 2);
    }
}

/// When a workspace is removed by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Removed {
    Running,
    InUse,
    Asleep,
    WhileDown,
}

#[test]
fn a_workspace_removed_by_hand_is_told_once_as_lost_and_replaced_by_an_empty_one() {
    let mut daemon = Daemon::start(&settings(&[WORKSPACES, RESYNC]));
    let api = Api::of(&daemon);
    for id in ["a", "other"] {
        api.open_id(id);
        api.sh(id, &format!("echo {id} > whose"));
    }
    let untouched = life(&api, "other");
    for when in [
        Removed::Running,
        Removed::InUse,
        Removed::Asleep,
        Removed::WhileDown,
    ] {
        api.sh("a", "echo a > whose");
        let path = workspace(&daemon, "a");
        match when {
            Removed::Running => fs::remove_dir_all(&path).unwrap(),
            Removed::InUse => {
                let http = daemon.http();
                let command = thread::spawn(move || {
                    let asked = json!({"command": "touch begun; sleep 2; exit 7"});
                    Api::request_on(&http, "POST", "/sessions/a/exec", Some(&asked))
                });
                let begun = path.join("workspace/begun");
                wait("the command runs", SETTLED, || begun.exists().then_some(()));
                fs::remove_dir_all(&path).unwrap();
                let ended = command.join().unwrap().unwrap().json().unwrap();
                assert_eq!(ended["exit_code"], 7, "it is not cut off: {ended}");
            }
            Removed::Asleep => {
                docker(&["stop", "--time=0", &api.container("a")]);
                api.wait_for("a", "hibernated");
                fs::remove_dir_all(&path).unwrap();
            }
            Removed::WhileDown => {
                daemon.stop(Ending::Terminate);
                fs::remove_dir_all(&path).unwrap();
                daemon.start_again();
            }
        }
        let told = api.exec("a", "ls; echo new > file; cat file");
        assert_eq!(told["output"], "new\n", "{when:?}: {told}");
        assert_eq!(told["reset_reason"], "files_lost", "{when:?}: {told}");
        assert_eq!(
            api.exec("a", ":")["reset_reason"],
            Value::Null,
            "{when:?}: told once"
        );
        let kept = fs::read_to_string(path.join("workspace/file")).unwrap();
        assert_eq!(kept, "new\n", "{when:?}: it is on the host again");
        assert_eq!(api.sh("other", "cat whose"), "other", "{when:?}");
        assert_eq!(life(&api, "other"), untouched, "{when:?}");
    }
    api.close("a", "?purge=true");
    assert!(!workspace(&daemon, "a").exists());
}

/// A wall clock that a test sets, and that a daemon started with it reads.
struct FakeClock(PathBuf);

impl FakeClock {
    const LIBRARIES: [&str; 2] = ["faketime/libfaketimeMT.so.1", "faketime/libfaketime.so.1"];

    /// Returns the clock and what a daemon needs to read it.
    fn new(dir: &Path) -> (Self, Vec<(&'static str, String)>) {
        let library = fs::read_dir("/usr/lib")
            .unwrap()
            .flat_map(|entry| Self::LIBRARIES.map(|name| entry.as_ref().unwrap().path().join(name)))
            .find(|path| path.exists())
            .expect("libfaketime is missing: `bash scripts/test.sh` installs it");
        let file = dir.join("clock");
        let clock = Self(file.clone());
        clock.step(0);
        let variables = vec![
            ("LD_PRELOAD", library.to_str().unwrap().to_owned()),
            ("FAKETIME_TIMESTAMP_FILE", file.to_str().unwrap().to_owned()),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            // Only the wall clock is ever set; what measures spans is not.
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("DONT_FAKE_MONOTONIC", "1".to_owned()),
        ];
        (clock, variables)
    }

    /// Sets it so many seconds off the host's.
    fn step(&self, seconds: i64) {
        let temporary = self.0.with_extension("new");
        fs::write(&temporary, format!("{seconds:+}s\n")).unwrap();
        fs::rename(temporary, &self.0).unwrap();
    }
}

/// Returns how many seconds a daemon's clock is off, as a new session shows it.
fn seconds_off(api: &Api) -> f64 {
    api.open_id("clock");
    let created = api.info("clock")["created_at"].as_f64().unwrap();
    api.close("clock", "?purge=true");
    let host = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    created - host.as_secs_f64()
}

fn assert_off(found: f64, wanted: i64) {
    let wanted = f64::from(i32::try_from(wanted).unwrap());
    assert!(
        (found - wanted).abs() < 60.0,
        "off by {found} instead of {wanted}"
    );
}

#[test]
fn a_wall_clock_that_is_set_reaps_nothing_and_makes_nothing_last_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let (clock, variables) = FakeClock::new(dir.path());
    let lifetimes = [
        WORKSPACES,
        RESYNC,
        ("SANDBOXD_IDLE_TIMEOUT", "600"),
        // Longer than the hour: a daemon that was down for an hour is not told from one
        // whose clock was set by it.
        ("SANDBOXD_WORKSPACE_TTL", "7200"),
    ];
    let mut with_clock = settings(&lifetimes);
    with_clock.extend(
        variables
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value)),
    );
    let mut daemon = Daemon::start(&with_clock);
    let api = Api::of(&daemon);
    for id in ["a", "closed"] {
        api.open_id(id);
        api.sh(id, &format!("echo {id} > whose"));
    }
    api.close("closed", "");
    let before = life(&api, "a");
    let kept = workspace(&daemon, "closed").join("workspace/whose");
    let nothing_is_reaped = |api: &Api, what: &str| {
        // Several resyncs look at everything meanwhile.
        thread::sleep(Duration::from_millis(2500));
        assert_eq!(life(api, "a"), before, "{what}");
        assert_eq!(fs::read_to_string(&kept).unwrap(), "closed\n", "{what}");
    };
    for offset in [HOUR, TEN_YEARS, 0, -HOUR] {
        clock.step(offset);
        nothing_is_reaped(&api, &format!("{offset} s off while it runs"));
    }
    for offset in [TEN_YEARS, HOUR, -HOUR, TEN_YEARS] {
        daemon.stop(Ending::Kill);
        clock.step(offset);
        daemon.start_again();
        // It is this clock that the daemon reads.
        assert_off(seconds_off(&api), offset);
        nothing_is_reaped(&api, &format!("{offset} s off from a start on"));
    }
    // Used and closed by a clock that is ten years ahead, which is then set right.
    api.open_id("later");
    api.sh("later", "echo later > whose");
    api.close("later", "");
    api.sh("a", "echo hi");
    daemon.stop(Ending::Terminate);
    clock.step(0);
    daemon.set("SANDBOXD_IDLE_TIMEOUT", "3");
    daemon.set("SANDBOXD_WORKSPACE_TTL", "3");
    daemon.start_again();
    wait("nothing lasts for ever", SETTLED, || {
        let listed = api.json(200, "GET /sessions", None);
        let none_open = listed["sessions"].as_array().unwrap().is_empty();
        let gone = ["a", "closed", "later"].map(|id| !workspace(&daemon, id).exists());
        (none_open && gone == [true; 3]).then_some(())
    });
}
