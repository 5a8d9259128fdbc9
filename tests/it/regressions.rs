//! What once went wrong, on the real engine, and must not come back.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::api::{Api, WORKSPACES, at_once, settings, wait};
use crate::support::daemon::{Daemon, Ending};
use crate::support::docker::{IMAGE, Removed, docker, labelled, running};

const PERSIST: (&str, &str) = ("SANDBOXD_PERSIST_CONTAINERS", "true");
const RESYNC_EACH_SECOND: (&str, &str) = ("SANDBOXD_CLEANUP_INTERVAL", "1");
const SOON: Duration = Duration::from_secs(10);
/// A start that fails is tried again, but not more often than this in all.
const STARTS_MAX: usize = 3;
/// So many openings at most may catch a container between its start and its end.
const TAKEN_FOR_RUNNING_MAX: usize = 5;

fn start(changes: &[(&str, &str)]) -> (Daemon, Api) {
    let daemon = Daemon::start(&settings(changes));
    let api = Api::of(&daemon);
    (daemon, api)
}

fn unique(name: &str) -> String {
    format!("{name}-{}", uuid::Uuid::new_v4().simple())
}

/// Returns what a reply tells of a reset.
fn told(ran: &Value) -> &Value {
    assert_eq!(ran["exit_code"], 0, "{ran}");
    &ran["reset_reason"]
}

/// Runs two commands, of which the first is told of this reset and the second of none.
#[track_caller]
fn assert_told_once(api: &Api, id: &str, reason: &str) {
    let ran = api.exec(id, "true");
    assert_eq!(told(&ran), reason, "{ran}");
    let ran = api.exec(id, "true");
    assert_eq!(told(&ran), &Value::Null, "{ran}");
}

/// Has the container of a session end, and waits until the session is asleep.
fn put_to_sleep(api: &Api, id: &str) -> String {
    let container = api.container(id);
    docker(&["kill", &container]);
    let info = api.wait_for(id, "hibernated");
    assert_eq!(info["reason"], "container_died", "{info}");
    container
}

/// Returns how often containers with this label were started since then, as the engine
/// tells it.
fn starts(label: &str, since: &str) -> usize {
    let until = docker(&["info", "--format", "{{.SystemTime}}"]);
    let started = docker(&[
        "events",
        &format!("--since={since}"),
        &format!("--until={until}"),
        &format!("--filter=label={label}"),
        "--filter=event=start",
        "--format={{.ID}}",
    ]);
    started.lines().count()
}

#[test]
fn no_shell_of_a_sandbox_keeps_a_command_past_its_deadline() {
    let (daemon, api) = start(&[WORKSPACES]);
    api.open_id("s");
    let endless = "#!/bin/busybox sh\\nwhile :; do /bin/busybox sleep 1000; done\\n";
    let replace = format!("printf '{endless}' > /bin/x && chmod +x /bin/x && mv /bin/x /bin/sh");
    // After a kill, whether the container goes on is tried with a shell as well.
    let killed = format!("{replace} && kill -KILL $$");
    for (command, code) in [(killed.as_str(), 137), ("echo never printed", 124)] {
        let began = Instant::now();
        let asked = json!({"command": command, "timeout_seconds": 1});
        let ran = api.exec_with("s", &asked);
        let took = began.elapsed();
        assert!(took < SOON, "{took:?}: {ran}");
        assert_eq!(
            (&ran["exit_code"], &ran["output"]),
            (&json!(code), &json!("")),
            "{ran}"
        );
    }
    let began = Instant::now();
    api.close("s", "?purge=true");
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    assert_eq!(labelled(&daemon.label()), Vec::<String>::new());
    assert!(!daemon.dir().join("ws/s").exists());
}

/// Makes an image whose `sleep` ends at once; it is removed at the end of the test.
fn image_that_ends_at_once() -> (String, Removed) {
    let name = unique("sandboxd-ends");
    let made = Removed::container(&name);
    let script = "rm /bin/sleep && printf '#!/bin/sh\\nexit 3\\n' > /bin/sleep \
                  && chmod +x /bin/sleep";
    docker(&[
        "run",
        "--network=none",
        "--name",
        &name,
        IMAGE,
        "sh",
        "-c",
        script,
    ]);
    let image = format!("sandboxd-test/{name}:1");
    docker(&["commit", &name, &image]);
    drop(made);
    let removed = Removed::image(&image);
    (image, removed)
}

/// Opens a session whose container ends at once; checks that this fails, that nothing is
/// started more often than it may be, and that nothing is left of it.
fn no_storm(changes: &[(&str, &str)]) -> (Daemon, Api) {
    let (daemon, api) = start(&[&[WORKSPACES, RESYNC_EACH_SECOND], changes].concat());
    let asked = json!({"session_id": "s", "runtime": "ends"});
    let open = || {
        let since = docker(&["info", "--format", "{{.SystemTime}}"]);
        let began = Instant::now();
        let reply = api.call("POST", "/sessions", Some(&asked));
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
        if reply.status == 200 {
            // A busy engine still took it for running when it was looked at.
            assert_eq!(api.wait_for("s", "hibernated")["reason"], "container_died");
        }
        // Long enough for resyncs, which must not start anything either.
        thread::sleep(Duration::from_millis(1500));
        let started = starts(&daemon.label(), &since);
        assert!((1..=STARTS_MAX).contains(&started), "{started} starts");
        reply
    };
    let refused = (0..TAKEN_FOR_RUNNING_MAX).find_map(|_| {
        let reply = open();
        if reply.status == 200 {
            api.close("s", "?purge=true");
            return None;
        }
        Some(reply)
    });
    let refused = refused.expect("an opening fails");
    assert_eq!(refused.status, 502, "{}", refused.text());
    assert_eq!(refused.json().unwrap()["code"], "start_failed");
    api.json(404, "GET /sessions/s", None);
    wait("nothing of it is left", SOON, || {
        let is_gone = labelled(&daemon.label()).is_empty() && !daemon.dir().join("ws/s").exists();
        is_gone.then_some(())
    });
    (daemon, api)
}

/// Writes an agent that ends with this code as soon as it starts.
fn agent_that_ends_at_once(dir: &Path, code: u8) -> String {
    let path = dir.join("agent");
    fs::write(&path, format!("#!/bin/sh\nexit {code}\n")).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_container_that_ends_as_soon_as_it_starts_fails_its_opening_and_is_not_started_in_a_storm() {
    let (image, _image) = image_that_ends_at_once();
    let runtimes = format!("bb={{{{image}}}},ends={image}");
    let runtimes = ("SANDBOXD_RUNTIMES", runtimes.as_str());
    let (_daemon, api) = no_storm(&[runtimes, ("SANDBOXD_EXEC", "docker")]);
    api.open(&json!({"session_id": "s", "runtime": "bb"}));
    assert_eq!(api.sh("s", "echo hi"), "hi");
    let dir = tempfile::tempdir().unwrap();
    // An agent that ends by itself, and one that seems not to be able to run in the image,
    // which cannot do without one either.
    for code in [3, 127] {
        let agent = agent_that_ends_at_once(dir.path(), code);
        no_storm(&[runtimes, ("SANDBOXD_AGENT", &agent)]);
    }
}

#[test]
fn an_agent_that_ends_at_once_is_done_without_where_it_seems_unable_to_run() {
    let dir = tempfile::tempdir().unwrap();
    let agent = agent_that_ends_at_once(dir.path(), 127);
    let (daemon, api) = start(&[RESYNC_EACH_SECOND, ("SANDBOXD_AGENT", &agent)]);
    // What ends within milliseconds may be seen running once, and is then no start that
    // failed; the next one is another chance to see it.
    let is_done_without = |id: &String| {
        api.open_id(id);
        let path = format!("/sessions/{id}/exec");
        let reply = api.call("POST", &path, Some(&json!({"command": "echo hi"})));
        reply.status == 200 && api.info(id)["exec"] == "docker"
    };
    let found = (0..8).map(|n| format!("s-{n}")).find(is_done_without);
    assert!(found.is_some(), "none was made without the agent");
    let since = docker(&["info", "--format", "{{.SystemTime}}"]);
    api.open_id("next");
    assert_eq!(api.sh("next", "echo hi"), "hi");
    assert_eq!(api.info("next")["exec"], "docker");
    let started = starts(&daemon.label(), &since);
    assert!(started <= 1, "the next did not try again: {started}");
}

#[test]
fn a_lost_container_with_the_only_files_is_told_even_where_it_was_asleep() {
    let (_daemon, api) = start(&[RESYNC_EACH_SECOND]);
    for id in ["used-at-once", "seen-first"] {
        api.open_id(id);
        api.sh(id, "echo x > file");
        let container = put_to_sleep(&api, id);
        docker(&["rm", &container]);
    }
    let replies = at_once(4, |_| api.exec("used-at-once", "ls"));
    let resets: Vec<&Value> = replies
        .iter()
        .map(told)
        .filter(|reset| !reset.is_null())
        .collect();
    assert_eq!(resets, ["files_lost"], "{replies:?}");
    let outputs = replies.iter().map(|ran| &ran["output"]);
    assert!(outputs.clone().all(|output| output == ""), "{replies:?}");

    wait("the loss is seen", SOON, || {
        (api.info("seen-first")["phase"] == "lost").then_some(())
    });
    assert_told_once(&api, "seen-first", "files_lost");
    assert_eq!(api.info("seen-first")["phase"], "running");
}

#[test]
fn an_expired_container_goes_although_the_daemon_was_down() {
    let changes = [WORKSPACES, PERSIST, ("SANDBOXD_CONTAINER_TTL", "6")];
    let (mut daemon, api) = start(&changes);
    api.open_id("s");
    api.sh("s", "echo x > file");
    let container = api.container("s");
    api.close("s", "");
    let label = daemon.label();
    daemon.stop(Ending::Terminate);
    assert_eq!(labelled(&label), [container.as_str()]);
    thread::sleep(Duration::from_secs(7));
    daemon.start_again();
    // Well before its time would be up if it counted from the start only.
    wait(
        "the expired container is gone",
        Duration::from_secs(4),
        || labelled(&label).is_empty().then_some(()),
    );
    assert!(daemon.dir().join("ws/s/workspace/file").exists());
    api.open_id("s");
    assert_eq!(api.sh("s", "cat file"), "x");
    assert_ne!(api.container("s"), container);
}

#[test]
fn a_reset_is_told_to_the_first_command_although_an_attach_did_the_waking() {
    let (daemon, api) = start(&[WORKSPACES]);
    api.open_id("s");
    put_to_sleep(&api, "s");
    for asked in [
        json!({"session_id": "s", "attach": true}),
        json!({"session_id": "s", "reuse": true}),
    ] {
        let attached = api.open(&asked);
        assert_eq!(attached["session"]["alive"], true, "{attached}");
        assert_eq!(attached["session"]["incarnation"], 2, "{attached}");
    }
    assert_eq!(running(&daemon.label()).len(), 1);
    assert_told_once(&api, "s", "container_lost");
    assert_eq!(api.info("s")["incarnation"], 2);
}

/// Returns the ids of one page of the listing, and where the next begins.
fn page(api: &Api, cursor: Option<&str>) -> (Vec<String>, Option<String>) {
    let cursor = cursor.map_or_else(String::new, |at| format!("&cursor={at}"));
    let listed = api.json(200, &format!("GET /sessions?limit=2{cursor}"), None);
    let ids = listed["sessions"].as_array().unwrap().iter();
    let ids = ids
        .map(|session| session["session_id"].as_str().unwrap().to_owned())
        .collect();
    (ids, listed["next"].as_str().map(str::to_owned))
}

#[test]
fn a_listing_goes_on_although_the_session_at_its_cursor_was_closed() {
    let (_daemon, api) = start(&[]);
    let ids = ["e", "d", "c", "b", "a"];
    for id in ids {
        api.open_id(id);
    }
    let (first, next) = page(&api, None);
    assert_eq!(first, ["e", "d"]);
    let next = next.unwrap();
    api.close("d", "?purge=true");
    let (second, after) = page(&api, Some(&next));
    assert_eq!(second, ["c", "b"]);
    // One that is opened again is a new session, and comes last.
    api.open_id("d");
    let (third, end) = page(&api, after.as_deref());
    assert_eq!((third, end), (vec!["a".to_owned(), "d".to_owned()], None));
}

/// Waits until a session is asleep or no longer in this life.
fn wait_until_noticed(api: &Api, id: &str, incarnation: u64) {
    wait("the end of a life is noticed", SOON, || {
        let info = api.info(id);
        (info["incarnation"] != incarnation || info["phase"] == "hibernated").then_some(())
    });
}

#[test]
fn a_restart_of_the_container_by_hand_is_told_as_a_container_lost() {
    let changes = [
        WORKSPACES,
        ("SANDBOXD_MAX_SESSIONS", "1"),
        ("SANDBOXD_EVICT_IDLE_AFTER", "0"),
    ];
    let (mut daemon, api) = start(&changes);
    api.open_id("s");
    api.sh("s", "echo kept > file");
    api.open_id("other");
    assert_eq!(api.info("s")["reason"], "evicted");
    api.close("other", "?purge=true");
    assert_told_once(&api, "s", "hibernated");

    let container = api.container("s");
    let restart = || docker(&["restart", "--time", "0", &container]);
    // Unseen, so that it is found running in a life that nobody asked for.
    daemon.stop(Ending::Terminate);
    restart();
    daemon.start_again();
    wait_until_noticed(&api, "s", 2);
    assert_told_once(&api, "s", "container_lost");
    assert_eq!(api.info("s")["incarnation"], 3);
    // Seen, so that it may be put to sleep in between.
    restart();
    wait_until_noticed(&api, "s", 3);
    assert_told_once(&api, "s", "container_lost");
    assert_eq!(api.info("s")["incarnation"], 4);
    assert_eq!(api.sh("s", "cat file"), "kept");
}

#[test]
fn a_purge_leaves_files_alone_that_a_predecessor_works_on() {
    let (daemon, api) = start(&[WORKSPACES, RESYNC_EACH_SECOND]);
    // The predecessor's name holds nothing but the id, which is all the engine's.
    let id = unique("s");
    api.open_id(&id);
    api.sh(&id, "echo x > file");
    api.close(&id, "");
    let workspace = daemon.dir().join("ws").join(&id).join("workspace");
    let volume = format!("{}:/workspace", workspace.display());
    let name = format!("sandboxd-{id}");
    let predecessor = Removed::container(&name);
    docker(&[
        "run",
        "--detach",
        "--network=none",
        "--name",
        &name,
        "--volume",
        &volume,
        IMAGE,
        "sleep",
        "1000",
    ]);
    api.json(204, &format!("DELETE /workspaces/{id}"), None);
    // Long enough for resyncs, which must not remove them either.
    thread::sleep(Duration::from_millis(2500));
    assert!(workspace.join("file").exists());
    assert_eq!(docker(&["exec", &name, "cat", "/workspace/file"]), "x");
    drop(predecessor);
    wait("the files are gone", SOON, || {
        (!workspace.parent().unwrap().exists()).then_some(())
    });
    api.open_id(&id);
    assert_eq!(api.sh(&id, "ls"), "");
}
