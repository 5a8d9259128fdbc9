//! What listeners are told of changes in directories.

use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::api::wait;
use crate::support::daemon::Ending;
use crate::support::file_case::{FileCase, code};
use crate::support::weight::Weight;

const SOON: Duration = Duration::from_secs(10);

/// A listener of a watch.
struct Listener(BufReader<TcpStream>);

impl Listener {
    fn of(case: &FileCase, query: &str) -> Self {
        let (stream, head) = case.begin("GET", &format!("/sessions/s/files/watch{query}"));
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert!(
            head.contains("content-type: text/event-stream\r\n"),
            "{head}"
        );
        let mut listener = Self(stream);
        assert_eq!(listener.line(), Some(": watching".to_owned()));
        listener
    }

    /// Returns the next line of the body that says something; `None` at its end.
    fn line(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            assert_ne!(
                self.0.read_line(&mut line).unwrap(),
                0,
                "the body breaks off"
            );
            let size = usize::from_str_radix(line.trim(), 16);
            match (size, line.trim()) {
                (Ok(0), _) => return None,
                (Ok(_), _) | (_, "" | ":") => {}
                (Err(_), said) => return Some(said.to_owned()),
            }
        }
    }

    /// Returns the next change, such as `created ./f`.
    fn next(&mut self) -> Option<String> {
        let event = self.line()?;
        let data = self.line().unwrap();
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        let text = |field: &str| data[field].as_str().map(str::to_owned);
        assert_eq!(event, format!("event: {}", text("kind").unwrap()));
        let from = text("from").map(|from| format!(" from {from}"));
        Some(format!(
            "{} {}{}",
            text("kind").unwrap(),
            text("path").unwrap(),
            from.unwrap_or_default()
        ))
    }
}

#[test]
fn a_watch_tells_what_the_sandbox_and_its_callers_do_in_a_directory() {
    let case = FileCase::new(&[]);
    case.api.sh("s", "mkdir d");
    let mut top = Listener::of(&case, "");
    let mut below = Listener::of(&case, "?path=/workspace/d");
    case.api.sh(
        "s",
        "echo 1 > d/f; mv d/f d/g; rm d/g; mkdir d/sub; echo 2 > d/sub/deep",
    );
    // A write may be told of more than once.
    let mut last = String::new();
    let mut next = |listener: &mut Listener| loop {
        let change = listener.next();
        if change.as_deref() != Some(&*last) || !last.starts_with("modified") {
            change.clone().unwrap_or_default().clone_into(&mut last);
            return change;
        }
    };
    for expected in [
        "created /workspace/d/f",
        "modified /workspace/d/f",
        "moved /workspace/d/g from /workspace/d/f",
        "removed /workspace/d/g",
        "created /workspace/d/sub",
    ] {
        assert_eq!(next(&mut below).as_deref(), Some(expected));
    }
    assert_eq!(case.put("path=up", &[], b"x").status, 201);
    assert_eq!(top.next().as_deref(), Some("modified ./up"));
    case.api.sh("s", "rm -r d");
    assert_eq!(below.next().as_deref(), Some("removed /workspace/d/sub"));
    assert_eq!(below.next().as_deref(), Some("gone /workspace/d"));
    assert_eq!(below.next(), None);
    assert_eq!(top.next().as_deref(), Some("removed ./d"));
    let refused = |query: &str| {
        let path = format!("/sessions/s/files/watch?path={query}");
        let reply = case.api.call("GET", &path, None);
        (reply.status, code(&reply).as_str().unwrap().to_owned())
    };
    assert_eq!(refused("nowhere"), (404, "no_directory".to_owned()));
    assert_eq!(refused("up"), (404, "no_directory".to_owned()));
    assert_eq!(refused("/tmp"), (409, "by_sandbox".to_owned()));
    case.api.close("s", "");
    assert_eq!(top.next().as_deref(), Some("gone ."));
    assert_eq!(top.next(), None);
}

#[test]
fn watches_are_few_cost_little_and_end_with_the_daemon() {
    let mut case = FileCase::new(&[
        ("SANDBOXD_IDLE_TIMEOUT", "3"),
        ("SANDBOXD_CLEANUP_INTERVAL", "1"),
    ]);
    let before = Weight(case.daemon.pid()).descriptors();
    let mut listeners: Vec<Listener> = (0..8).map(|_| Listener::of(&case, "")).collect();
    let refused = case.api.call("GET", "/sessions/s/files/watch", None);
    assert_eq!(
        (refused.status, code(&refused)),
        (429, json!("file_ceiling"))
    );
    assert_eq!(refused.json().unwrap()["ceiling"]["limit"], 8);
    // Nobody reads what is more than a queue holds.
    case.api.sh(
        "s",
        "i=0; while [ $i -lt 40000 ]; do : > f$((i % 100)); i=$((i + 1)); done",
    );
    let mut told = 0;
    let listener = &mut listeners[0];
    while listener
        .next()
        .is_some_and(|change| !change.starts_with("overflow"))
    {
        told += 1;
    }
    eprintln!("{told} changes were told before the overflow");
    drop(listeners);
    wait("the watches are over", SOON, || {
        (Weight(case.daemon.pid()).descriptors() <= before + 6).then_some(())
    });
    let mut last = Listener::of(&case, "");
    wait("a watch keeps no session open", SOON * 2, || {
        (case.api.call("GET", "/sessions/s", None).status == 404).then_some(())
    });
    while last.next().is_some() {}
    case.api.open_id("s");
    let mut last = Listener::of(&case, "");
    let began = Instant::now();
    case.daemon.stop(Ending::Terminate);
    assert_eq!(last.next(), None);
    assert!(
        began.elapsed() < Duration::from_secs(4),
        "{:?}",
        began.elapsed()
    );
}
