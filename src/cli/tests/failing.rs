//! What is said when something fails, and what is never said.

use clap::Parser as _;
use expect_test::expect;
use serde_json::json;

use super::{Person, check, ran, ran_once, run_as};
use crate::cli::args::Args;
use crate::client::scripted::{Reply, Scripted};

#[tokio::test]
async fn every_refusal_ends_with_its_exit_code_and_says_why() {
    let table = [
        (400, 1),
        (401, 4),
        (403, 4),
        (404, 3),
        (408, 7),
        (409, 5),
        (410, 3),
        (413, 1),
        (422, 1),
        (429, 6),
        (500, 1),
        (502, 1),
        (503, 1),
        (504, 7),
        (507, 1),
    ];
    for (status, exit) in table {
        let ran = ran_once(Reply::refusal(status, "because"), &["get", "a"]).await;
        assert_eq!((ran.exit, ran.stdout.as_str()), (exit, ""), "{status}");
        assert!(ran.stderr.starts_with("error: because"), "{}", ran.stderr);
    }
}

#[tokio::test]
async fn a_ceiling_is_named_in_the_hint() {
    let refusal = json!({
        "detail": "Session limit of 2 reached.", "code": "ceiling", "retryable": true,
        "ceiling": { "name": "max_sessions", "limit": 2, "used": 2, "scope": "service" }
    });
    let ran = ran_once(Reply::Answer(429, refusal.to_string()), &["open"]).await;
    check(
        &ran,
        &expect![[r"
        --
        error: Session limit of 2 reached.
        hint: max_sessions of service is in use (2 of 2): close a session with sandboxctl rm, or raise it
        --
        exit 6
    "]],
    );
}

#[tokio::test]
async fn a_message_of_the_service_cannot_drive_the_terminal() {
    let refusal = Reply::refusal(409, "taken\u{1b}]0;owned\u{7}\nerror: \u{202e}forged");
    let ran = ran_once(refusal, &["open"]).await;
    check(
        &ran,
        &expect![[r"
        --
        error: taken\x1b]0;owned\x07\x0aerror: \u{202e}forged
        hint: --reuse attaches to a session that is open
        --
        exit 5
    "]],
    );
}

#[tokio::test]
async fn a_service_that_is_not_there_is_7_with_a_hint() {
    let ran = run_as(Person::Nobody, "unix:///nonexistent/socket", &["ls"]).await;
    check(
        &ran,
        &expect![[r"
        --
        error: failed to reach unix:///nonexistent/socket: No such file or directory (os error 2)
        hint: is sandboxd running there? --url or SANDBOXD_URL says where the service is
        --
        exit 7
    "]],
    );
    let ran = ran_once(Reply::HangUp, &["ls"]).await;
    assert_eq!(ran.exit, 7);
}

#[tokio::test]
async fn a_service_that_does_not_answer_is_7_with_a_hint() {
    let ran = ran_once(Reply::Hang, &["ls", "--timeout", "1"]).await;
    check(
        &ran,
        &expect![[r"
        --
        error: failed to get a reply within 1s
        hint: --timeout SECONDS waits longer; what was asked for may still happen
        --
        exit 7
    "]],
    );
}

#[tokio::test]
async fn a_wrong_url_is_wrong_usage() {
    let ran = run_as(Person::Nobody, "localhost:8080", &["ls"]).await;
    assert_eq!(ran.exit, 2);
}

#[tokio::test]
async fn a_token_never_appears_in_help_or_errors() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, "hunter2\u{1}").unwrap();
    let file = file.to_str().unwrap();

    let server = Scripted::serve([Reply::refusal(401, "Invalid or missing sandbox token")]).await;
    let refused = ran(&server, &["ls"]).await;
    assert_eq!(server.seen()[0].header("x-sandbox-token"), Some("hunter2"));
    let unsendable = ran(&server, &["ls", "--token-file", file]).await;
    assert_eq!((refused.exit, unsendable.exit), (4, 4));

    let mut told = vec![refused.stderr, unsendable.stderr];
    for arguments in [
        &["--help"][..],
        &["exec", "--help"],
        &["--token", "hunter2", "ls"],
        &["--token=hunter2", "ls"],
        &["ls", "--token", "hunter2"],
        &["ls", "--token=hunter2"],
    ] {
        let all = ["sandboxctl"].iter().chain(arguments);
        told.push(Args::try_parse_from(all).unwrap_err().to_string());
    }
    for text in told {
        assert!(!text.contains("hunter"), "{text}");
    }
}

#[tokio::test]
async fn a_token_file_goes_before_the_environment() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, "from-file\n").unwrap();
    let server = Scripted::serve([]).await;
    ran(&server, &["ls", "--token-file", file.to_str().unwrap()]).await;
    run_as(
        Person::Typing("typed\n"),
        &server.url,
        &["ls", "--token-file", "-"],
    )
    .await;
    let sent: Vec<_> = server
        .seen()
        .iter()
        .map(|seen| seen.header("x-sandbox-token").unwrap().to_owned())
        .collect();
    assert_eq!(sent, ["from-file", "typed"]);
}
