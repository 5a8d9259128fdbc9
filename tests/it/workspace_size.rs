//! Holds workspaces to their ceiling, and a purge of a huge one to its promises.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::api::{Api, WORKSPACES, settings, wait};
use crate::support::daemon::Daemon;
use crate::support::http::{Request, Response};

const MIB: usize = 1 << 20;

fn daemon(changes: &[(&str, &str)]) -> (Daemon, Api) {
    let mut all = vec![WORKSPACES, ("SANDBOXD_WORKSPACE_SCAN_INTERVAL", "1")];
    all.extend(changes);
    let daemon = Daemon::start(&settings(&all));
    let api = Api::of(&daemon);
    (daemon, api)
}

fn write(api: &Api, id: &str, name: &str, n_bytes: usize) -> Response {
    let request = Request {
        method: "POST".to_owned(),
        path: format!("/sessions/{id}/files/write?path=/workspace/{name}"),
        headers: Vec::new(),
        body: Some(vec![b'x'; n_bytes]),
    };
    api.http().send(&request).unwrap()
}

/// Streams a file in.
fn upload(api: &Api, id: &str, name: &str, n_bytes: usize) -> Response {
    let request = Request {
        method: "PUT".to_owned(),
        path: format!("/sessions/{id}/file?path={name}"),
        headers: Vec::new(),
        body: Some(vec![b'x'; n_bytes]),
    };
    api.http().send(&request).unwrap()
}

/// The refusal of a full workspace, which names its ceiling.
fn is_full(reply: &Response, id: &str) -> Value {
    let body = reply.json().unwrap_or_default();
    assert_eq!(
        (reply.status, &body["code"]),
        (507, &json!("workspace_full")),
        "{}",
        reply.text()
    );
    assert_eq!(body["ceiling"]["name"], "workspace_size");
    assert_eq!(body["ceiling"]["scope"], format!("session:{id}"));
    assert_eq!(body["retryable"], false);
    body
}

#[test]
fn a_sandbox_that_fills_its_workspace_is_stopped_and_wakes_once_files_were_removed() {
    let (_daemon, api) = daemon(&[("SANDBOXD_WORKSPACE_SIZE", "2m")]);
    let policy = api.json(200, "GET /policy", None);
    assert_eq!(policy["workspace_size"], "2m");
    assert_eq!(policy["workspace_size_enforced_by"], "scan");
    assert_eq!(policy["runtimes"][0]["workspace_size"], "2m");
    let token = api.open_id("a");
    api.sh("a", "echo kept > small");
    let began = Instant::now();
    // It would go on for long: it is cut off, and not let finish.
    let filling = "dd if=/dev/zero of=big bs=1M count=4 2>/dev/null; sleep 60; echo done";
    let ran = api.exec("a", filling);
    assert!(
        began.elapsed() < Duration::from_secs(30),
        "{:?}",
        began.elapsed()
    );
    assert_ne!(ran["exit_code"], 0, "{ran}");
    let info = api.wait_for("a", "hibernated");
    assert_eq!(info["reason"], "workspace_full");
    let told = api.json(200, "GET /events?session=a&op=workspace_full", None);
    let told = &told["events"][0];
    assert_eq!(
        (&told["kind"], &told["session_id"]),
        (&json!("lifecycle"), &json!("a")),
        "{told}"
    );
    // By its own token, as its client would.
    let client = api.with_token(&token);
    let refused = client.call(
        "POST",
        "/sessions/a/exec",
        Some(&json!({"command": "true"})),
    );
    let body = is_full(&refused, "a");
    assert_eq!(body["ceiling"]["limit"], 2 * MIB);
    let used = body["ceiling"]["used"].as_u64().unwrap();
    assert!(2 << 20 <= used, "{used}");
    assert!(
        body["detail"].as_str().unwrap().contains("files/remove"),
        "{body}"
    );
    is_full(&write(&client, "a", "more", 10), "a");
    // What is there is read, listed, carried off and removed all the same.
    let read = client.call(
        "POST",
        "/sessions/a/files/read",
        Some(&json!({"path": "/workspace/small"})),
    );
    assert_eq!((read.status, read.text()), (200, "kept\n".to_owned()));
    assert_eq!(api.call("GET", "/workspaces/a/export", None).status, 200);
    client.json(
        204,
        "POST /sessions/a/files/remove",
        Some(&json!({"path": "/workspace/big"})),
    );
    let woken = api.exec("a", "cat small");
    assert_eq!(
        (&woken["exit_code"], &woken["output"]),
        (&json!(0), &json!("kept\n"))
    );
    assert_eq!(woken["reset_reason"], "workspace_full");
    assert_eq!(write(&client, "a", "more", 10).status, 204);
}

#[test]
fn writes_through_the_api_end_at_the_ceiling_of_the_runtime() {
    let (_daemon, api) = daemon(&[
        (
            "SANDBOXD_RUNTIMES",
            "bb={{image}};workspace_size=4m,free={{image}}",
        ),
        ("SANDBOXD_WORKSPACE_SCAN_INTERVAL", "3600"),
    ]);
    api.open_id("a");
    assert_eq!(write(&api, "a", "f1", 2 * MIB).status, 204);
    assert_eq!(write(&api, "a", "f2", MIB).status, 204);
    is_full(&write(&api, "a", "f3", 2 * MIB), "a");
    let content_b64 = "eHh4".repeat(MIB / 2);
    let legacy = json!({"path": "f4", "content_b64": content_b64});
    is_full(&api.call("POST", "/sessions/a/write", Some(&legacy)), "a");
    is_full(&upload(&api, "a", "f5", 2 * MIB), "a");
    assert_eq!(upload(&api, "a", "f2", MIB / 2).status, 200);
    assert_eq!(
        api.sh("a", "ls -A"),
        "f1\nf2",
        "what was refused left nothing"
    );
    // Nothing is refused on an old figure.
    api.sh("a", "rm f1");
    assert_eq!(write(&api, "a", "f3", 2 * MIB).status, 204);
    let listed = api.json(200, "GET /workspaces", None);
    assert_eq!(listed["workspaces"][0]["limit"], 4 * MIB);
    // An archive is held to it as well.
    let mut header = tar::Header::new_gnu();
    header.set_size(5 << 20);
    header.set_mode(0o644);
    header.as_old_mut().name[0] = b'z';
    header.set_cksum();
    let mut archive = header.as_bytes().to_vec();
    archive.resize(archive.len() + (5 << 20) + 1_024, 0);
    let import = |id: &str, query: &str| {
        let request = Request {
            method: "PUT".to_owned(),
            path: format!("/workspaces/{id}/import{query}"),
            headers: Vec::new(),
            body: Some(archive.clone()),
        };
        api.http().send(&request).unwrap()
    };
    is_full(&import("b", ""), "b");
    assert_eq!(import("b", "?runtime=free").status, 200);
    api.open(&json!({"session_id": "c", "runtime": "free"}));
    assert_eq!(write(&api, "c", "f", 6 * MIB).status, 204);
}

#[test]
fn an_idle_sandbox_over_its_ceiling_is_stopped_too_and_its_waking_is_refused() {
    let (daemon, api) = daemon(&[("SANDBOXD_WORKSPACE_SIZE", "2m")]);
    api.open_id("a");
    let mounted = daemon.dir().join("ws/a/workspace");
    fs::write(mounted.join("big"), vec![b'x'; 3 * MIB]).unwrap();
    api.wait_for("a", "hibernated");
    let attach = json!({"session_id": "a", "reuse": true});
    is_full(&api.call("POST", "/sessions", Some(&attach)), "a");
    // A file with holes takes less than its length.
    fs::remove_file(mounted.join("big")).unwrap();
    let holes = fs::File::create(mounted.join("holes")).unwrap();
    holes.set_len(1 << 40).unwrap();
    assert_eq!(api.call("POST", "/sessions", Some(&attach)).status, 200);
    thread::sleep(Duration::from_secs(3));
    assert_eq!(api.info("a")["phase"], "running");
}

/// A directory in memory, where two hundred thousand files are made in seconds.
fn in_memory() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let within = if memory.is_dir() {
        memory
    } else {
        Path::new("/tmp")
    };
    tempfile::Builder::new()
        .prefix("sandboxd-it-")
        .tempdir_in(within)
        .unwrap()
}

#[test]
fn the_service_works_on_while_a_huge_workspace_is_purged_and_tells_what_remains() {
    let memory = in_memory();
    let root = memory.path().join("ws");
    let (daemon, api) = daemon(&[
        ("SANDBOXD_WORKSPACE_ROOT", root.to_str().unwrap()),
        ("SANDBOXD_LOG_FORMAT", "json"),
    ]);
    api.open_id("works");
    api.open_id("huge");
    api.close("huge", "");
    let files = root.join("huge/workspace");
    for dir in 0..2_000 {
        let dir = files.join(format!("d{}/\u{202e}{dir} \n'", dir % 50));
        fs::create_dir_all(&dir).unwrap();
        for file in 0..100 {
            fs::File::create(dir.join(format!("-f {file}"))).unwrap();
        }
    }
    let mount = files.join("d7/mount");
    fs::create_dir(&mount).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "tmpfs"])
        .arg(&mount)
        .status();
    assert!(
        mounted.unwrap().success(),
        "this test mounts a file system and needs the right to do so"
    );
    fs::write(mount.join("of somebody else"), "x").unwrap();
    let slowest = thread::scope(|scope| {
        let purging = scope.spawn(|| api.json(204, "DELETE /workspaces/huge", None));
        let mut slowest = Duration::ZERO;
        while !purging.is_finished() {
            let began = Instant::now();
            assert_eq!(api.call("GET", "/healthz", None).status, 200);
            assert_eq!(api.sh("works", "echo on"), "on");
            slowest = slowest.max(began.elapsed());
        }
        purging.join().unwrap();
        slowest
    });
    assert!(slowest < Duration::from_secs(3), "{slowest:?}");
    assert!(!root.join("huge").exists());
    // What was mounted by somebody else is there still, and told with its path.
    let told = wait("it is told", Duration::from_secs(10), || {
        let log = fs::read_to_string(daemon.log_path()).unwrap();
        log.lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .find(|line| line.to_string().contains("workspace/d7/mount"))
    });
    assert!(told.to_string().contains("huge"), "{told}");
    let trash = root.join(".trash");
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let here = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    let here: Vec<&str> = here
        .filter(|path| path.starts_with(trash.to_str().unwrap()))
        .collect();
    assert_eq!(here.len(), 1);
    assert!(Path::new(here[0]).join("of somebody else").exists());
    assert!(
        Command::new("umount")
            .arg(here[0])
            .status()
            .unwrap()
            .success()
    );
}
