//! What becomes of a service whose engine speaks no version that it knows.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;

use serde_json::json;

use crate::engine_disasters::{SETTLED, wait_for_health};
use crate::support::api::{Api, WORKSPACES, settings, wait};
use crate::support::daemon::Daemon;

/// Answers as an engine that speaks none of the API's versions that are spoken here.
fn serve_versions(listener: &UnixListener, oldest: &str, newest: &str) {
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { return };
        let mut line = String::new();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        if reader.read_line(&mut line).is_err() {
            continue;
        }
        let (status, body) = match line.split(' ').nth(1).unwrap_or_default() {
            "/_ping" => ("200 OK", "OK".to_owned()),
            "/version" => {
                let versions =
                    json!({"Version": "x", "ApiVersion": newest, "MinAPIVersion": oldest});
                ("200 OK", versions.to_string())
            }
            "/the-end" => return,
            _ => (
                "400 Bad Request",
                r#"{"message":"client version is not supported"}"#.to_owned(),
            ),
        };
        let length = body.len();
        let reply = format!(
            "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        );
        drop(stream.write_all(reply.as_bytes()));
    }
}

#[test]
fn an_engine_of_another_age_is_named_with_its_versions_until_it_is_upgraded() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("engine.sock");
    let address = format!("unix://{}", socket.display());
    for (oldest, newest) in [("1.12", "1.24"), ("1.99", "2.3")] {
        let listener = UnixListener::bind(&socket).unwrap();
        let server = thread::spawn(move || serve_versions(&listener, oldest, newest));
        let daemon = Daemon::start(&settings(&[WORKSPACES, ("SANDBOXD_DOCKER_HOST", &address)]));
        let api = Api::of(&daemon);
        let health = wait_for_health(&api, "degraded");
        let reason = health["reasons"][0].to_string();
        assert!(
            reason.contains(&format!("API {oldest} to {newest}")),
            "{reason}"
        );
        assert!(reason.contains("upgrade the older of the two"), "{reason}");
        assert!(
            fs::read_to_string(daemon.log_path())
                .unwrap()
                .contains("upgrade the older of the two")
        );
        let refused = api.call("POST", "/sessions", Some(&json!({"session_id": "a"})));
        assert_eq!(refused.status, 503, "{}", refused.text());
        assert!(refused.text().contains("upgrade"), "{}", refused.text());
        // The upgrade: another engine is at the same place.
        let mut last = UnixStream::connect(&socket).unwrap();
        last.write_all(b"GET /the-end HTTP/1.1\r\n\r\n").unwrap();
        server.join().unwrap();
        fs::remove_file(&socket).unwrap();
        std::os::unix::fs::symlink("/var/run/docker.sock", &socket).unwrap();
        wait_for_health(&api, "ok");
        wait("an opening works", SETTLED, || {
            let reply = api.call("POST", "/sessions", Some(&json!({"session_id": "a"})));
            (reply.status == 200).then_some(())
        });
        assert_eq!(api.sh("a", "echo hi"), "hi");
        drop(daemon);
        fs::remove_file(&socket).unwrap();
    }
}
