//! Showing and following the log of a session.

use std::time::Duration;

use clap::Parser as _;
use expect_test::expect;
use serde_json::{Value, json};

use super::{Ran, check, ran};
use crate::cli::args::{Args, Verb};
use crate::cli::exit::Exit;
use crate::cli::printer::{Printer, Streams, Terminal};
use crate::cli::{events, run};
use crate::client::scripted::{Reply, Scripted};
use crate::client::{Client, Endpoint};

fn page(seqs: std::ops::RangeInclusive<u64>, first_seq: u64) -> Reply {
    let latest = *seqs.end();
    let events: Vec<Value> = seqs
        .map(|seq| {
            json!({
                "seq": seq, "at": 1_600_000_000.5, "op": "exec", "target": format!("job {seq}"),
                "ok": true, "detail": "exit 0", "duration_ms": 12.5
            })
        })
        .collect();
    Reply::json(&json!({ "events": events, "latest_seq": latest, "first_seq": first_seq }))
}

fn nothing_new(latest: u64) -> Reply {
    Reply::json(&json!({ "events": [], "latest_seq": latest, "first_seq": 1 }))
}

#[tokio::test]
async fn events_show_a_page() {
    let server = Scripted::serve([page(3..=4, 1)]).await;
    let ran = ran(&server, &["events", "a", "--after", "2", "--limit", "2"]).await;
    check(
        &ran,
        &expect![[r"
        SEQ    TIME                      OP          RESULT  TOOK       DETAIL        TARGET
        3      2020-09-13T12:26:40.500Z  exec        ok      12.5ms     exit 0        job 3
        4      2020-09-13T12:26:40.500Z  exec        ok      12.5ms     exit 0        job 4
        --
        --
        exit 0
    "]],
    );
    assert_eq!(server.lines(), ["GET /sessions/a/events?after=2&limit=2"]);
}

/// Follows a script to its end, and returns what was printed with the failure.
async fn followed(server: &Scripted, arguments: &[&str]) -> (Ran, Exit) {
    let all = ["sandboxctl", "events", "a", "--follow"]
        .iter()
        .chain(arguments);
    let args = Args::try_parse_from(all).unwrap();
    let Verb::Events(verb) = &args.verb else {
        panic!("not events: {args:?}");
    };
    let client = Client::new(Endpoint::parse(&server.url).unwrap());
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let streams = Streams {
        stdin: &mut std::io::empty(),
        stdout: &mut stdout,
        stderr: &mut stderr,
        terminal: Terminal::Absent,
    };
    let mut printer = Printer::new(streams, &args.global);
    let poll = Duration::from_millis(1);
    let exit = match events::follow(
        &client,
        &mut printer,
        (verb.id.as_ref().unwrap(), verb.after),
        poll,
    )
    .await
    {
        Ok(exit) => exit,
        Err(failure) => failure.exit(),
    };
    let ran = Ran {
        exit: exit.code(),
        stdout: String::from_utf8(stdout).unwrap(),
        stderr: String::from_utf8(stderr).unwrap(),
    };
    (ran, exit)
}

#[tokio::test]
async fn following_goes_on_from_the_last_event_across_a_restart_of_the_service() {
    let replies = [
        page(6..=7, 1),
        nothing_new(7),
        Reply::HangUp,
        Reply::refusal(503, "starting"),
        page(8..=8, 1),
        Reply::refusal(404, "No such session: a"),
    ];
    let server = Scripted::serve(replies).await;
    let (mut ran, _) = followed(&server, &["--after", "5"]).await;
    ran.stderr = ran.stderr.replace(&server.url, "URL");
    check(
        &ran,
        &expect![[r"
        SEQ    TIME                      OP          RESULT  TOOK       DETAIL        TARGET
        6      2020-09-13T12:26:40.500Z  exec        ok      12.5ms     exit 0        job 6
        7      2020-09-13T12:26:40.500Z  exec        ok      12.5ms     exit 0        job 7
        8      2020-09-13T12:26:40.500Z  exec        ok      12.5ms     exit 0        job 8
        --
        note: failed to reach URL: connection closed before message completed; trying on
        note: the service is back
        --
        exit 3
    "]],
    );
    assert_eq!(
        server.lines(),
        [
            "GET /sessions/a/events?after=5",
            "GET /sessions/a/events?after=7&limit=200",
            "GET /sessions/a/events?after=7&limit=200",
            "GET /sessions/a/events?after=7&limit=200",
            "GET /sessions/a/events?after=7&limit=200",
            "GET /sessions/a/events?after=8&limit=200",
        ]
    );
}

#[tokio::test]
async fn following_tells_of_events_that_it_came_too_late_for() {
    let replies = [page(1..=2, 1), page(6..=6, 6), Reply::refusal(404, "gone")];
    let server = Scripted::serve(replies).await;
    let (ran, exit) = followed(&server, &[]).await;
    assert_eq!(exit, Exit::NOT_FOUND);
    assert_eq!(ran.stderr, "note: events 3 to 5 are no longer kept\n");
}

#[tokio::test]
async fn following_begins_again_where_the_session_was_opened_anew() {
    let replies = [
        page(8..=9, 1),
        nothing_new(1),
        page(1..=1, 1),
        Reply::refusal(404, "gone"),
    ];
    let server = Scripted::serve(replies).await;
    let (ran, _) = followed(&server, &["-o", "json"]).await;
    let seqs: Vec<u64> = ran
        .stdout
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).unwrap()["seq"]
                .as_u64()
                .unwrap()
        })
        .collect();
    assert_eq!(seqs, [8, 9, 1]);
    assert!(server.lines()[3].ends_with("after=1&limit=200"));
}

#[tokio::test]
async fn following_a_service_that_was_never_there_ends_at_once() {
    let server = Scripted::serve([Reply::HangUp]).await;
    let (_, exit) = followed(&server, &[]).await;
    assert_eq!(exit, Exit::UNREACHABLE);
}

#[tokio::test]
async fn an_interrupt_ends_following_well() {
    let server = Scripted::serve([page(1..=1, 1), Reply::Hang]).await;
    let all = ["sandboxctl", "--url", &server.url, "events", "a", "-f"];
    let args = Args::try_parse_from(all).unwrap();
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let streams = Streams {
        stdin: &mut std::io::empty(),
        stdout: &mut stdout,
        stderr: &mut stderr,
        terminal: Terminal::Absent,
    };
    // The user presses Ctrl-C once the first event has been asked for.
    let interrupt = async {
        while server.lines().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    let exit = run(args, None, streams, interrupt).await;
    assert_eq!((exit, stderr.as_slice()), (Exit::OK, &b""[..]));
}
