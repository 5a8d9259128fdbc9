//! No secret is written anywhere: not to a log, an event, the store or any other file.

use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::api::{Api, WORKSPACES, settings, wait};
use crate::support::daemon::{Daemon, Ending};
use crate::support::docker::{docker, running};
use crate::support::http::Request;
use crate::support::terminal::{Coming, Seat};

const SOON: Duration = Duration::from_secs(10);

fn start(changes: &[(&str, &str)]) -> (Daemon, Api) {
    let daemon = Daemon::start(&settings(changes));
    let api = Api::of(&daemon);
    (daemon, api)
}

/// Makes secrets, and remembers each.
#[derive(Default)]
struct Secrets(Vec<String>);

impl Secrets {
    fn make(&mut self) -> String {
        let secret = format!("hush-{}", uuid::Uuid::new_v4().simple());
        self.0.push(secret.clone());
        secret
    }

    fn are_not_in(&self, what: &str, text: &str) {
        for secret in &self.0 {
            assert!(!text.contains(secret), "{what} holds {secret}");
        }
    }
}

/// Returns every file below a directory that can be read, which a socket cannot.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(files(&entry.path()));
        } else if !kind.is_socket() {
            found.push(entry.path());
        }
    }
    found
}

/// Looks for secrets in every file of a daemon that has ended; returns these files.
fn no_file_holds(daemon: &Daemon, secrets: &Secrets) -> Vec<PathBuf> {
    let key = fs::read(daemon.dir().join("state/token.key")).unwrap();
    assert!(!key.is_empty());
    let found = files(daemon.dir());
    let mut scanned = 0;
    for file in &found {
        let bytes = fs::read(file).unwrap();
        secrets.are_not_in(
            &file.display().to_string(),
            &String::from_utf8_lossy(&bytes),
        );
        let is_key = file.ends_with("state/token.key");
        let holds_key = || bytes.windows(key.len()).any(|window| window == key);
        assert!(is_key || !holds_key(), "{} holds the key", file.display());
        scanned += bytes.len();
    }
    let log = fs::read_to_string(daemon.log_path()).unwrap();
    assert!(
        log.contains("/sessions") && 10_000 < scanned,
        "nothing was scanned"
    );
    found
}

#[test]
fn no_secret_reaches_a_log_an_event_or_the_store() {
    let changes = [("SANDBOXD_LOG", "trace"), ("SANDBOXD_MAX_SESSIONS", "2")];
    let (mut daemon, api) = start(&[&[WORKSPACES], &changes[..]].concat());
    let mut secrets = Secrets(vec![daemon.token().to_owned()]);
    for _ in 0..2 {
        for id in ["a", "b"] {
            let token = api.open_id(id);
            let caller = api.with_token(&token);
            caller.sh(id, "echo hi > file");
            caller.exec(id, "exit 3");
            caller.json(404, "GET /nowhere", None);
            caller.json(
                422,
                &format!("POST /sessions/{id}/exec"),
                Some(&json!({"command": 7})),
            );
            caller.json(401, "GET /sessions", None);
            secrets.0.push(token);
        }
        api.json(429, "POST /sessions", Some(&json!({"session_id": "c"})));
        docker(&["kill", &api.container("a")]);
        api.wait_for("a", "hibernated");
        api.open(&json!({"session_id": "a", "reuse": true}));
        daemon.restart(Ending::Terminate);
        secrets.are_not_in("the session's log", &api.events("a").to_string());
        for id in ["a", "b"] {
            api.close(id, "");
        }
    }
    daemon.stop(Ending::Terminate);
    let files = no_file_holds(&daemon, &secrets);
    // The agent's directory is among what was looked through.
    let agents = daemon.dir().join("state/agent");
    assert!(files.iter().any(|file| file.starts_with(&agents)));
    wait("no container is left", SOON, || {
        running(&daemon.label()).is_empty().then_some(())
    });
}

/// Has commands get secrets in their variables and as input, which they count; and one be
/// refused that has some.
fn give_to_commands(api: &Api, secrets: &mut Secrets) {
    let counts = "printf %s \"$KEY\" | wc -c; wc -c";
    let mut asked = |program: (&str, Value)| {
        let (env, stdin) = (json!({"KEY": secrets.make()}), secrets.make());
        let mut asked = json!({"env": env, "stdin": stdin});
        asked[program.0] = program.1;
        asked
    };
    let exec = asked(("command", json!(counts)));
    assert_eq!(api.exec_with("s", &exec)["output"], "37\n37\n");
    let mut run = asked(("argv", json!(["sh", "-c", counts])));
    run["run_id"] = json!("1".repeat(32));
    let call = "POST /sessions/s/run";
    assert_eq!(api.json(200, call, Some(&run))["stdout"], "37\n37\n");
    // The same id with another secret, as a second program's; and what makes no sense.
    run["env"]["KEY"] = json!(secrets.make());
    api.json(200, call, Some(&run));
    let mut bad = json!({"command": 7, "stdin": secrets.make(), "env": {}});
    bad["env"]["A=B"] = json!(secrets.make());
    api.json(422, "POST /sessions/s/exec", Some(&bad));
    let failed = json!({"command": "exit 3", "env": {"KEY": secrets.make()}});
    api.exec_with("s", &failed);
    let late = json!({"command": "sleep 1000", "timeout_seconds": 1, "stdin": secrets.make()});
    api.exec_with("s", &late);
}

/// Has a run in the background get secrets, and a terminal, which a ticket opens.
fn give_to_runs(daemon: &Daemon, api: &Api, secrets: &mut Secrets) {
    let asked = json!({
        "command": "printf %s \"$KEY\" | wc -c; head -c 37 | wc -c; sleep 1000",
        "stdin": true, "env": {"KEY": secrets.make()},
    });
    let run = api.json(201, "POST /sessions/s/runs", Some(&asked));
    let run = format!("/sessions/s/runs/{}", run["run_id"].as_str().unwrap());
    let sent = api.http().send(&Request {
        method: "POST".to_owned(),
        path: format!("{run}/stdin"),
        headers: vec![(
            "content-type".to_owned(),
            "application/octet-stream".to_owned(),
        )],
        body: Some(secrets.make().into_bytes()),
    });
    assert!((200..300).contains(&sent.unwrap().status));
    wait("the run has read it", SOON, || {
        let output = api.call("GET", &format!("{run}/output"), None).text();
        (output.matches("37\\n").count() == 2).then_some(())
    });
    let text = json!({"argv": ["cat"], "stdin": secrets.make()});
    api.json(201, "POST /sessions/s/runs", Some(&text));

    let asked = json!({"env": {"KEY": secrets.make()}});
    let tty = api.json(200, "POST /sessions/s/ttys", Some(&asked));
    let made = api.json(200, "POST /sessions/s/tickets", None);
    let ticket = made["ticket"].as_str().unwrap().to_owned();
    let query = format!("?ticket={ticket}");
    let coming = Coming {
        query: &query,
        ..Coming::default()
    };
    secrets.0.push(ticket);
    let tty = tty["tty_id"].as_str().unwrap();
    let mut seat = Seat::come(daemon, "s", tty, &coming).unwrap();
    seat.types("echo ${#KEY} characters\n");
    seat.until_sees("37 characters");
    // A ticket that was used, and one in the wrong place, are refused and not told either.
    assert_eq!(Seat::come(daemon, "s", tty, &coming).err(), Some(401));
    let bare = api.http().with_token(None);
    let refused = bare.get(&format!("/sessions/s/ttys{query}")).unwrap();
    assert_eq!(refused.status, 401);
}

fn what_commands_are_given_stays_with_them(exec: &str) {
    let changes = [("SANDBOXD_LOG", "trace"), ("SANDBOXD_EXEC", exec)];
    let (mut daemon, api) = start(&[&[WORKSPACES], &changes[..]].concat());
    let mut secrets = Secrets::default();
    api.open_id("s");
    give_to_commands(&api, &mut secrets);
    if exec == "agent" {
        give_to_runs(&daemon, &api, &mut secrets);
        let listed = ["runs", "ttys"].map(|what| {
            let call = format!("GET /sessions/s/{what}");
            api.json(200, &call, None).to_string()
        });
        secrets.are_not_in("a listing", &listed.concat());
    }
    daemon.restart(Ending::Terminate);
    let asked = json!({"command": "wc -c", "stdin": secrets.make()});
    assert_eq!(api.exec_with("s", &asked)["output"], "37\n");
    secrets.are_not_in("the session's log", &api.events("s").to_string());
    let said = docker(&["logs", &api.container("s")]);
    secrets.are_not_in("what the container's program said", &said);
    daemon.stop(Ending::Terminate);
    no_file_holds(&daemon, &secrets);
}

#[test]
fn what_commands_are_given_is_not_written_anywhere_by_way_of_an_agent() {
    what_commands_are_given_stays_with_them("agent");
}

#[test]
fn what_commands_are_given_is_not_written_anywhere_by_way_of_the_engine() {
    what_commands_are_given_stays_with_them("docker");
}
