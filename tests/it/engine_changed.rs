//! What becomes of sessions behind whose socket another engine answers.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::{Value, json};

use crate::store_disasters::{SETTLED, exec, holds, open, sandboxctl};
use crate::support::api::{Api, WORKSPACES, settings, wait};
use crate::support::daemon::{Daemon, Ending};
use crate::support::docker::docker;
use crate::support::proxy::{Mode, Proxy};

fn pid(container: &str) -> String {
    docker(&["inspect", "--format", "{{.State.Pid}}", container])
}

/// Another engine, which has none of our containers.
struct OtherEngine {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<Vec<String>>>,
}

impl OtherEngine {
    fn listen(path: &Path, info: Value) -> Self {
        let listener = UnixListener::bind(path).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let acceptor = thread::spawn(move || {
            let mut calls = Vec::new();
            let mut streams = Vec::new();
            for stream in listener.incoming() {
                if stopping.load(Ordering::SeqCst) {
                    break;
                }
                let stream = stream.unwrap();
                let mut line = String::new();
                if BufReader::new(&stream).read_line(&mut line).is_err() {
                    continue;
                }
                streams.extend(answer(stream, &line, &info));
                calls.push(line);
            }
            calls
        });
        Self {
            path: path.to_owned(),
            stop,
            acceptor: Some(acceptor),
        }
    }

    /// Ends it; returns the calls that it was made.
    fn end(mut self) -> Vec<String> {
        self.stop.store(true, Ordering::SeqCst);
        drop(UnixStream::connect(&self.path));
        let calls = self.acceptor.take().unwrap().join().unwrap();
        fs::remove_file(&self.path).unwrap();
        calls
    }
}

/// Answers a call; returns the stream where it is to stay open.
fn answer(mut stream: UnixStream, line: &str, info: &Value) -> Option<UnixStream> {
    let (status, body) = if line.contains("/_ping") {
        ("200 OK", json!("OK"))
    } else if line.contains("/version") {
        (
            "200 OK",
            json!({"Version": "1", "ApiVersion": "1.41", "MinAPIVersion": "1.12"}),
        )
    } else if line.contains("/info") {
        ("200 OK", info.clone())
    } else if line.contains("/containers/json") {
        ("200 OK", json!([]))
    } else if line.contains("/events") {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
        return stream.write_all(head.as_bytes()).is_ok().then_some(stream);
    } else {
        ("404 Not Found", json!({"message": "No such container: x"}))
    };
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    // Who has hung up needs no answer.
    drop(stream.write_all(head.as_bytes()));
    None
}

fn socket(proxy: &Proxy) -> PathBuf {
    PathBuf::from(proxy.address().trim_start_matches("unix://"))
}

#[test]
fn behind_another_engine_nothing_is_lost_parked_or_swept_and_it_ends_by_itself() {
    let proxy = Proxy::start();
    let mut daemon = Daemon::start(&settings(&[
        WORKSPACES,
        ("SANDBOXD_DOCKER_HOST", &proxy.address()),
        ("SANDBOXD_CLEANUP_INTERVAL", "1"),
        ("SANDBOXD_IDLE_TIMEOUT", "4"),
        ("SANDBOXD_PERSIST_CONTAINERS", "1"),
    ]));
    let api = Api::of(&daemon);
    api.open_id("a");
    let life = (api.container("a"), pid(&api.container("a")));
    // Two engines of one host may share their id, but not where they keep containers.
    let known = docker(&["info", "--format", "{{.ID}}"]);
    let twin = json!({"ID": known, "DockerRootDir": "/srv/another"});
    let stranger = json!({"ID": "ANOTHER:ENGINE"});
    // While it runs and over a restart.
    for (restarts, info, found) in [
        (false, &twin, "/srv/another"),
        (false, &stranger, "ANOTHER:ENGINE"),
        (true, &stranger, "ANOTHER:ENGINE"),
    ] {
        proxy.set(Mode::Gone);
        if restarts {
            daemon.stop(Ending::Kill);
        }
        let other = OtherEngine::listen(&socket(&proxy), info.clone());
        if restarts {
            daemon.start_again();
        }
        wait("the change is noticed", SETTLED, || {
            (holds(&api) == ["engine_changed"]).then_some(())
        });
        let health = api.json(200, "GET /healthz", None);
        let reason = health["reasons"][0].as_str().unwrap();
        assert!(
            reason.contains(found) && reason.contains("release"),
            "{reason}"
        );
        for refused in [open(&api, "new"), exec(&api, "a")] {
            assert_eq!(refused.status, 503, "{}", refused.text());
            let body = refused.json().unwrap();
            assert_eq!(body["code"], "engine_unavailable");
            assert!(
                body["detail"].as_str().unwrap().contains("instead of"),
                "{body}"
            );
        }
        // Longer than a session may be idle, and several looks at everything.
        thread::sleep(Duration::from_secs(6));
        assert_eq!(api.info("a")["phase"], "running");
        let calls = other.end();
        let changes = calls.iter().filter(|call| !call.starts_with("GET"));
        assert_eq!(changes.collect::<Vec<_>>(), Vec::<&String>::new());
        proxy.set(Mode::Forward);
        wait("the known engine is back", SETTLED, || {
            holds(&api).is_empty().then_some(())
        });
        assert_eq!(api.sh("a", "echo hi"), "hi");
        assert_eq!((api.container("a"), pid(&api.container("a"))), life);
    }
}

#[test]
fn what_another_engine_held_back_stays_held_back_when_that_one_goes_away() {
    let proxy = Proxy::start();
    let daemon = Daemon::start(&settings(&[
        WORKSPACES,
        ("SANDBOXD_DOCKER_HOST", &proxy.address()),
        ("SANDBOXD_CLEANUP_INTERVAL", "1"),
        ("SANDBOXD_IDLE_TIMEOUT", "10"),
    ]));
    let api = Api::of(&daemon);
    let token = api.open_id("a");
    let life = (api.container("a"), pid(&api.container("a")));
    proxy.set(Mode::Gone);
    let other = OtherEngine::listen(&socket(&proxy), json!({"ID": "ANOTHER:ENGINE"}));
    wait("the change is noticed", SETTLED, || {
        (holds(&api) == ["engine_changed"]).then_some(())
    });
    let since = api.json(200, "GET /holds", None)["holds"][0]["since"].clone();
    other.end();
    // Longer than a session may be idle, and several looks at everything.
    thread::sleep(Duration::from_secs(14));
    let held = api.json(200, "GET /holds", None);
    assert_eq!(held["holds"][0]["since"], since, "{held}");
    assert_eq!(api.info("a")["phase"], "running", "nobody ended it");
    proxy.set(Mode::Forward);
    wait("the known engine is back", SETTLED, || {
        holds(&api).is_empty().then_some(())
    });
    // It has its whole time again, since nobody could use it.
    thread::sleep(Duration::from_secs(3));
    assert_eq!(api.with_token(&token).sh("a", "echo hi"), "hi");
    assert_eq!((api.container("a"), pid(&api.container("a"))), life);
}

#[test]
fn another_engine_that_is_accepted_gets_the_sessions_with_their_files() {
    let proxy = Proxy::start();
    let daemon = Daemon::start(&settings(&[
        WORKSPACES,
        ("SANDBOXD_DOCKER_HOST", &proxy.address()),
    ]));
    let api = Api::of(&daemon);
    api.open_id("a");
    api.sh("a", "echo hi > f");
    proxy.set(Mode::Gone);
    let other = OtherEngine::listen(&socket(&proxy), json!({"ID": "ANOTHER:ENGINE"}));
    wait("the change is noticed", SETTLED, || {
        (holds(&api) == ["engine_changed"]).then_some(())
    });
    api.json(204, "DELETE /holds/engine_changed", None);
    let parked = api.wait_for("a", "hibernated");
    assert_eq!(
        parked["state_detail"].as_str().unwrap_or("container_lost"),
        "container_lost"
    );
    assert_eq!(
        api.call("DELETE", "/holds/engine_changed", None).status,
        404
    );
    other.end();
    proxy.set(Mode::Forward);
    // Now the first engine is the other one.
    wait("the change back is noticed", SETTLED, || {
        (holds(&api) == ["engine_changed"]).then_some(())
    });
    let (code, said) = sandboxctl(&daemon, &["release", "engine_changed", "--yes"]);
    assert_eq!(code, 0, "{said}");
    wait("it starts anew", SETTLED, || {
        (exec(&api, "a").status == 200).then_some(())
    });
    assert_eq!(api.sh("a", "cat f"), "hi");
    let held: Value = api.json(404, "DELETE /holds/nonsense", None);
    assert_eq!(held["code"], "no_hold");
}
