//! What becomes of sessions whose workspace root is not the directory that it was: its
//! file system is not mounted, or something else is in its place.

use std::fs;
use std::time::Duration;

use serde_json::Value;

use crate::store_disasters::{exec, holds, open, sandboxctl};
use crate::support::api::{Api, WORKSPACES, settings, wait};
use crate::support::daemon::{Daemon, Ending};

/// By when everything is as it should be again.
const SETTLED: Duration = Duration::from_secs(30);
const HOLD: &str = "workspace_root_changed";

/// A daemon with one session that runs, one asleep and one closed, each with a file.
fn filled() -> (Daemon, Api) {
    let daemon = Daemon::start(&settings(&[
        WORKSPACES,
        ("SANDBOXD_CLEANUP_INTERVAL", "1"),
        ("SANDBOXD_MAX_SESSIONS", "1"),
        ("SANDBOXD_EVICT_IDLE_AFTER", "0"),
    ]));
    let api = Api::of(&daemon);
    for id in ["closed", "asleep", "runs"] {
        api.open_id(id);
        api.sh(id, &format!("echo {id} > whose"));
        if id == "closed" {
            api.close(id, "");
        }
    }
    api.wait_for("asleep", "hibernated");
    (daemon, api)
}

/// Puts something else in the place of the root, as `put` does, and has it put back
/// what was there.
fn with_another_root(
    daemon: &mut Daemon,
    is_down: bool,
    put: impl FnOnce(&std::path::Path),
    meanwhile: impl FnOnce(&mut Daemon),
) {
    let root = daemon.dir().join("ws");
    let aside = daemon.dir().join("ws.aside");
    if is_down {
        daemon.stop(Ending::Kill);
    }
    fs::rename(&root, &aside).unwrap();
    put(&root);
    if is_down {
        daemon.start_again();
    }
    meanwhile(daemon);
    match fs::remove_dir_all(&root) {
        Ok(()) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}"),
    }
    fs::rename(&aside, &root).unwrap();
}

fn wait_for_hold(api: &Api) {
    wait("the root is noticed", SETTLED, || {
        (holds(api) == [HOLD]).then_some(())
    });
    let health = api.json(200, "GET /healthz", None);
    assert_eq!(health["status"], "degraded", "{health}");
}

#[test]
fn another_directory_in_place_of_the_workspace_root_is_no_loss_of_files() {
    let (mut daemon, api) = filled();
    for (is_down, is_there) in [(true, true), (true, false), (false, true), (false, false)] {
        let put = |root: &std::path::Path| {
            if is_there {
                fs::create_dir(root).unwrap();
            }
        };
        with_another_root(&mut daemon, is_down, put, |daemon| {
            wait_for_hold(&api);
            let refused = exec(&api, "asleep");
            assert_eq!(refused.status, 503, "{}", refused.text());
            assert!(refused.text().contains(HOLD), "{}", refused.text());
            for id in ["new", "closed"] {
                let refused = open(&api, id);
                assert_eq!(refused.status, 503, "{id}: {}", refused.text());
            }
            // Some rounds later nothing was given up.
            std::thread::sleep(Duration::from_secs(3));
            let root = daemon.dir().join("ws");
            let made = fs::read_dir(&root).map_or(0, Iterator::count);
            assert_eq!(made, 0, "nothing is made in the wrong place");
            assert_eq!(api.exec("runs", "cat whose")["output"], "runs\n");
        });
        // It ends by itself.
        wait("the root is back", SETTLED, || {
            holds(&api).is_empty().then_some(())
        });
        api.open_id("closed");
        assert_eq!(api.sh("closed", "cat whose"), "closed");
        api.close("closed", "");
        for id in ["runs", "asleep", "runs"] {
            let told = api.exec(id, "cat whose");
            assert_eq!(told["output"], format!("{id}\n"), "{told}");
            assert_ne!(told["reset_reason"], "files_lost", "{told}");
        }
    }
}

#[test]
fn an_operator_may_take_another_directory_as_the_workspace_root() {
    let (mut daemon, api) = filled();
    daemon.stop(Ending::Terminate);
    let root = daemon.dir().join("ws");
    fs::remove_dir_all(&root).unwrap();
    daemon.start_again();
    wait_for_hold(&api);
    let (code, said) = sandboxctl(&daemon, &["release", HOLD, "--yes"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(holds(&api), Vec::<String>::new());
    let told = api.exec("asleep", "ls; echo new > f; cat f");
    assert_eq!(told["output"], "new\n", "{told}");
    assert_eq!(told["reset_reason"], "files_lost", "{told}");
    assert_eq!(api.exec("asleep", ":")["reset_reason"], Value::Null);
    daemon.restart(Ending::Terminate);
    assert_eq!(holds(&api), Vec::<String>::new(), "it is known from now on");
    // The setting does the same, for the start that it is set for.
    daemon.stop(Ending::Terminate);
    fs::remove_dir_all(&root).unwrap();
    daemon.set("SANDBOXD_RELEASE_HOLDS", HOLD);
    daemon.start_again();
    assert_eq!(holds(&api), Vec::<String>::new());
    assert_eq!(api.exec("asleep", "ls")["output"], "");
}
