//! The log of the service: what was done in all sessions, and what became of them.

use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::api::{Api, WORKSPACES, settings, wait};
use crate::support::daemon::{Daemon, Ending};
use crate::support::http::Request;

fn start(changes: &[(&str, &str)]) -> (Daemon, Api) {
    let daemon = Daemon::start(&settings(&[&[WORKSPACES], changes].concat()));
    let api = Api::of(&daemon);
    (daemon, api)
}

fn log(api: &Api, query: &str) -> Value {
    api.json(200, &format!("GET /events{query}"), None)
}

/// Returns `session op` of each event that a query answers.
fn told(api: &Api, query: &str) -> Vec<String> {
    let page = log(api, query);
    let events = page["events"].as_array().unwrap();
    let word = |event: &Value, name: &str| event[name].as_str().unwrap_or("-").to_owned();
    let told = events
        .iter()
        .map(|one| word(one, "session_id") + " " + &word(one, "op"));
    told.collect()
}

#[test]
fn what_was_done_and_what_became_of_sessions_outlives_them_and_is_found_by_filters() {
    let (mut daemon, api) = start(&[]);
    api.open(&json!({"session_id": "a", "tenant": "acme"}));
    api.open_id("b");
    api.sh("a", "true");
    api.exec("b", "exit 3");
    api.exec_with("b", &json!({"command": "sleep 9", "timeout_seconds": 1}));
    api.close("a", "?purge=true");
    let all = [
        "a opened", "b opened", "a exec", "b exec", "b exec", "a closed", "a purged",
    ];
    wait("the purge is told", Duration::from_secs(10), || {
        (told(&api, "") == all).then_some(())
    });
    daemon.restart(Ending::Kill);
    assert_eq!(told(&api, ""), all, "it is on the disk");
    assert_eq!(told(&api, "?session=b"), ["b opened", "b exec", "b exec"]);
    assert_eq!(
        told(&api, "?tenant=acme"),
        ["a opened", "a exec", "a closed", "a purged"]
    );
    assert_eq!(
        told(&api, "?kind=operation"),
        ["a exec", "b exec", "b exec"]
    );
    assert_eq!(told(&api, "?kind=lifecycle&session=b"), ["b opened"]);
    assert_eq!(told(&api, "?op=purged"), ["a purged"]);
    assert_eq!(
        told(&api, "?limit=2"),
        ["a closed", "a purged"],
        "the newest"
    );
    assert_eq!(
        told(&api, "?limit=2&after=0"),
        ["a opened", "b opened"],
        "the oldest"
    );
    let late = log(&api, "?session=b&limit=1")["events"][0].clone();
    assert_eq!(late["reason"], "timeout", "{late}");
    assert!(1000.0 <= late["duration_ms"].as_f64().unwrap(), "{late}");
    assert_eq!(late["request_id"].as_str().unwrap().len(), 32, "{late}");
    let since = late["at"].as_f64().unwrap();
    assert_eq!(
        told(&api, &format!("?since={since}")),
        ["b exec", "a closed", "a purged"]
    );
    // Page by page it is the same.
    let (mut after, mut paged) = (0, Vec::new());
    loop {
        let page = log(&api, &format!("?limit=2&after={after}&kind=lifecycle"));
        paged.extend(
            page["events"]
                .as_array()
                .unwrap()
                .iter()
                .map(|one| one["op"].clone()),
        );
        after = page["next"].as_u64().unwrap();
        if after == page["latest_seq"] {
            break;
        }
    }
    assert_eq!(paged, ["opened", "opened", "closed", "purged"]);
}

#[test]
fn the_service_log_is_the_operators_alone_and_bad_questions_are_told() {
    let (daemon, api) = start(&[]);
    let token = api.open_id("a");
    for other in [Some(token.as_str()), None] {
        let reply = daemon.http().with_token(other).get("/events").unwrap();
        assert_eq!(reply.status, 401);
    }
    for query in [
        "limit=0",
        "limit=1001",
        "after=-1",
        "kind=odd",
        "since=soon",
        "session=-",
    ] {
        let reply = daemon.http().get(&format!("/events?{query}")).unwrap();
        assert_eq!(reply.status, 422, "{query}: {}", reply.text());
        let name = query.split('=').next().unwrap();
        assert!(reply.text().contains(name), "{query}: {}", reply.text());
    }
}

#[test]
fn what_is_older_than_what_is_kept_is_told_to_be_gone() {
    let (_daemon, api) = start(&[("SANDBOXD_SERVICE_EVENTS", "1000")]);
    api.open_id("a");
    for n in 0..1020 {
        let path = json!({"path": format!("f{n}")});
        api.json(200, "POST /sessions/a/exists", Some(&path));
    }
    let page = log(&api, "?after=0&limit=1000");
    assert_eq!(page["events"].as_array().unwrap().len(), 1000);
    assert_eq!(
        (&page["first_seq"], &page["latest_seq"]),
        (&json!(22), &json!(1021))
    );
    let mut followed = Followed::begin(&api, "?after=5");
    assert_eq!(
        followed.next(),
        ("gap".to_owned(), None, json!({"from": 6, "to": 22}))
    );
    assert_eq!(followed.next().1, Some(22));
}

/// A reader of server-sent events.
struct Followed(BufReader<TcpStream>);

impl Followed {
    fn begin(api: &Api, query: &str) -> Self {
        Self::begin_after(api, query, None)
    }

    fn begin_after(api: &Api, query: &str, last: Option<u64>) -> Self {
        let mut headers = vec![("accept".to_owned(), "text/event-stream".to_owned())];
        headers.extend(last.map(|last| ("last-event-id".to_owned(), last.to_string())));
        let request = Request {
            method: "GET".to_owned(),
            path: format!("/events{query}"),
            headers,
            body: None,
        };
        let mut reader = BufReader::new(api.http().begin(&request).unwrap());
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert!(line.contains(" 200 "), "{line}");
        Self(reader)
    }

    /// Waits for the next event: its kind, its id and its data.
    fn next(&mut self) -> (String, Option<u64>, Value) {
        let (mut kind, mut id) = (None, None);
        loop {
            let mut line = String::new();
            assert_ne!(self.0.read_line(&mut line).unwrap(), 0, "the reply ended");
            let line = line.trim_end();
            if let Some(named) = line.strip_prefix("event: ") {
                kind = Some(named.to_owned());
            } else if let Some(numbered) = line.strip_prefix("id: ") {
                id = Some(numbered.parse().unwrap());
            } else if let (Some(data), Some(kind)) = (line.strip_prefix("data: "), &kind) {
                return (kind.clone(), id, serde_json::from_str(data).unwrap());
            }
        }
    }
}

#[test]
fn whoever_follows_is_told_at_once_and_goes_on_where_he_was() {
    let (mut daemon, api) = start(&[]);
    api.open_id("a");
    let mut followed = Followed::begin(&api, "");
    let (kind, first, event) = followed.next();
    assert_eq!(
        (kind.as_str(), first, &event["op"]),
        ("lifecycle", Some(1), &json!("opened"))
    );
    api.sh("a", "echo told");
    let (kind, second, event) = followed.next();
    assert_eq!((kind.as_str(), second), ("operation", Some(2)));
    assert_eq!(
        (&event["target"], &event["session_id"]),
        (&json!("echo told"), &json!("a"))
    );
    drop(followed);
    api.sh("a", "echo meanwhile");
    daemon.restart(Ending::Terminate);
    let mut followed = Followed::begin_after(&api, "?op=exec", second);
    assert_eq!(followed.next().2["target"], "echo meanwhile");
}

#[test]
fn sandboxctl_shows_the_log_of_the_service_where_no_session_is_named() {
    let (daemon, api) = start(&[]);
    api.open(&json!({"session_id": "a", "tenant": "acme"}));
    api.open_id("b");
    api.sh("a", "echo one");
    let shown = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sandboxctl"));
        command
            .env("SANDBOXD_URL", daemon.url())
            .env("SANDBOXD_TOKEN", daemon.token());
        let output = command.arg("events").args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let all = shown(&[]);
    assert_eq!(all.lines().count(), 4, "{all}");
    assert!(all.contains("SESSION"), "{all}");
    assert!(!shown(&["a"]).contains("SESSION"), "a session's own log");
    let lifecycle = shown(&["a", "--kind", "lifecycle", "--since", "1h"]);
    assert!(
        lifecycle.contains("opened") && !lifecycle.contains("echo"),
        "{lifecycle}"
    );
    assert_eq!(
        shown(&["--tenant", "nobody"]).lines().count(),
        1,
        "the header"
    );
    let page: Value = serde_json::from_str(&shown(&["-o", "json", "--op", "exec"])).unwrap();
    assert_eq!(page["events"][0]["target"], "echo one");
}
