//! Holds a sandbox to what it promises of a service that fails.

use std::pin::pin;
use std::task::Poll;

use futures_util::future::{join_all, poll_immediate};
use serde_json::json;

use super::*;
use crate::client::scripted::{Reply, Scripted, Seen};
use crate::wire::files::ReadResponse;

const GONE: (u16, &str) = (401, "Invalid or missing sandbox token");

fn session() -> serde_json::Value {
    json!({
        "session_id": "s1", "runtime": "bb", "tenant": null, "alive": true, "state": "running",
        "created_at": 1.0, "last_activity": 1.0, "idle_seconds": 0.0, "usage": null,
    })
}

/// A session is opened, with this token.
fn opened(token: &str) -> Reply {
    Reply::json(&json!({"session": session(), "token": token}))
}

/// The service tells its ceilings.
fn policy(secs: u64) -> Reply {
    Reply::json(&json!({
        "runtimes": [], "default_runtime": "bb", "work_dir": "/workspace", "idle_timeout": 1,
        "execute_timeout": secs, "max_read_bytes": 8, "persist_containers": false,
        "prewarm": false, "buildkit": false,
    }))
}

fn ran(output: &str) -> Reply {
    Reply::json(&json!({"output": output, "exit_code": 0, "truncated": false}))
}

fn refused((status, detail): (u16, &str)) -> Reply {
    Reply::refusal(status, detail)
}

fn builder(server: &Scripted) -> RemoteSandboxBuilder {
    RemoteSandbox::builder(&server.url, &Secret::new("service".to_owned())).session_id("s1")
}

fn sandbox(server: &Scripted) -> RemoteSandbox {
    builder(server).build().unwrap()
}

fn tokens(server: &Scripted) -> Vec<String> {
    let token = |seen: Seen| seen.header("x-sandbox-token").unwrap().to_owned();
    server.seen().into_iter().map(token).collect()
}

#[tokio::test]
async fn nothing_is_sent_until_the_first_operation_which_opens_the_session() {
    let server = Scripted::serve([opened("t1"), policy(7), ran("a"), ran("b")]).await;
    let sandbox = builder(&server)
        .tenant("acme")
        .runtime("bb")
        .build()
        .unwrap();
    sandbox.stop(Purge::No).await.unwrap();
    assert_eq!(server.n_connections(), 0);
    assert_eq!(sandbox.execute("one").await.unwrap().output, "a");
    assert_eq!(sandbox.clone().execute("two").await.unwrap().output, "b");
    assert_eq!(
        server.lines(),
        [
            "POST /sessions",
            "GET /policy",
            "POST /sessions/s1/exec",
            "POST /sessions/s1/exec",
        ]
    );
    assert_eq!(tokens(&server), ["service", "service", "t1", "t1"]);
    assert_eq!(
        server.seen()[0].body,
        r#"{"session_id":"s1","runtime":"bb","tenant":"acme","reuse":false,"attach":false}"#
    );
    assert_eq!(sandbox.server_timeout(), Some(Duration::from_secs(7)));
}

#[tokio::test]
async fn what_is_there_already_is_refused_joined_or_required_as_asked() {
    let server = Scripted::serve([]).await;
    let made = RemoteSandbox::builder(&server.url, &Secret::new("service".to_owned()));
    let made = made.build().unwrap();
    assert!(made.session_id().as_str().starts_with("remote-"));
    made.start().await.unwrap_err();
    for existing in [Existing::Refuse, Existing::Join, Existing::Require] {
        let sandbox = builder(&server).existing(existing).build().unwrap();
        sandbox.start().await.unwrap_err();
    }
    let asked = server.seen().into_iter().map(|seen| {
        let body: serde_json::Value = serde_json::from_str(&seen.body).unwrap();
        [body["reuse"] == true, body["attach"] == true]
    });
    assert_eq!(
        asked.collect::<Vec<_>>(),
        // A lost reply leaves a session under an id that was made, and nobody else has it.
        [[true, false], [false, false], [true, false], [false, true]]
    );
}

#[test]
fn what_the_service_would_refuse_is_refused_when_made() {
    let token = Secret::new("t".to_owned());
    let at = |url: &str| RemoteSandbox::builder(url, &token);
    let http = "http://127.0.0.1:1";
    for bad in [
        at(http).session_id("../x"),
        at(http).tenant("a b"),
        at(http).runtime(""),
    ] {
        let error = bad.build().unwrap_err();
        assert!(matches!(error, InvalidSandbox::Id(_)), "{error:?}");
    }
    let error = at("https://x").build().unwrap_err();
    assert!(matches!(error, InvalidSandbox::Url(_)), "{error:?}");
    let error = at(http).existing(Existing::Require).build().unwrap_err();
    assert!(matches!(error, InvalidSandbox::NoId), "{error:?}");
    let torn = Secret::new("a\nb".to_owned());
    let error = RemoteSandbox::builder(http, &torn).build().unwrap_err();
    assert!(matches!(error, InvalidSandbox::Token(_)), "{error:?}");
}

#[tokio::test]
async fn ten_operations_at_once_open_one_session_or_are_all_told_why_not() {
    let full = Reply::refusal(429, "Session limit of 1 reached");
    let mut script = vec![full, opened("t1"), policy(7)];
    script.extend((0..10).map(|_| ran("x")));
    let server = Scripted::serve(script).await;
    let sandbox = sandbox(&server);
    let at_once = || join_all((0..10).map(|_| sandbox.execute("x")));
    for failed in at_once().await {
        let failure = failed.unwrap_err();
        assert!(
            matches!(failure, OperationFailure::Open { .. }),
            "{failure:?}"
        );
        assert_eq!((failure.status(), failure.retryable()), (Some(429), true));
        assert!(failure.explain().contains("Session limit of 1 reached"));
    }
    assert_eq!(server.lines(), ["POST /sessions"]);
    for ran in at_once().await {
        assert_eq!(ran.unwrap().output, "x");
    }
    let openings = server.lines().into_iter();
    assert_eq!(openings.filter(|line| line == "POST /sessions").count(), 2);
}

#[tokio::test]
async fn a_caller_that_leaves_an_opening_holds_nobody_up_and_nothing_is_opened_twice() {
    let server = Scripted::serve([opened("t1"), policy(7), ran("x")]).await;
    let sandbox = sandbox(&server);
    {
        let mut first = pin!(sandbox.execute("never"));
        assert!(poll_immediate(&mut first).await.is_none());
    }
    assert_eq!(sandbox.execute("x").await.unwrap().output, "x");
    let lines = server.lines();
    assert_eq!(lines.len(), 3, "{lines:?}");
}

#[tokio::test]
async fn a_session_that_the_service_ended_is_opened_again_and_the_operation_carried_out_there() {
    for gone in [GONE, (404, "No such session: s1"), (410, "gone")] {
        let script = [
            opened("t1"),
            policy(7),
            ran("a"),
            refused(gone),
            opened("t2"),
            policy(7),
            ran("b"),
        ];
        let server = Scripted::serve(script).await;
        let sandbox = sandbox(&server);
        assert_eq!(sandbox.execute("one").await.unwrap().output, "a");
        assert_eq!(sandbox.take_reset(), None);
        assert_eq!(sandbox.execute("two").await.unwrap().output, "b");
        let reset = sandbox.take_reset().unwrap();
        assert_eq!(reset.reset_reason.as_deref(), Some(SESSION_ENDED));
        assert_eq!(sandbox.take_reset(), None);
        assert_eq!(tokens(&server)[3..], ["t1", "service", "service", "t2"]);
    }
}

#[tokio::test]
async fn a_session_is_opened_again_once_for_an_operation_and_for_no_other_404() {
    let script = [
        opened("t1"),
        policy(7),
        refused(GONE),
        opened("t2"),
        policy(7),
        refused(GONE),
        Reply::refusal(404, "Not Found"),
    ];
    let server = Scripted::serve(script).await;
    let sandbox = sandbox(&server);
    let failure = sandbox.execute("x").await.unwrap_err();
    assert_eq!(failure.status(), Some(401));
    let failure = sandbox.execute("x").await.unwrap_err();
    assert_eq!(failure.status(), Some(404));
    assert_eq!(server.lines().len(), 7);
}

#[tokio::test]
async fn faults_of_an_operation_are_returned_and_it_is_not_sent_again() {
    let script = [
        opened("t1"),
        policy(7),
        Reply::HangUp,
        Reply::refusal(429, "too many commands"),
        Reply::Answer(200, "<html>".to_owned()),
        Reply::Answer(500, "Internal Server Error".to_owned()),
        ran("x"),
    ];
    let server = Scripted::serve(script).await;
    let sandbox = sandbox(&server);
    let mut codes = Vec::new();
    for _ in 0..4 {
        let failure = sandbox.execute("x").await.unwrap_err();
        assert!(
            failure.explain().starts_with("Error: failed to be served"),
            "{failure:?}"
        );
        codes.push(failure.error().unwrap().code().to_owned());
    }
    assert_eq!(
        codes,
        ["unreachable", "ceiling", "malformed_reply", "server_error"]
    );
    assert_eq!(sandbox.execute("x").await.unwrap().output, "x");
    assert_eq!(server.lines().len(), 7);
}

#[tokio::test]
async fn a_service_that_is_not_there_fails_every_operation_and_panics_none() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let sandbox = RemoteSandbox::builder(&url, &Secret::new("t".to_owned()));
    let sandbox = sandbox.build().unwrap();
    let lines = FileLines::default();
    let options = GrepOptions::default();
    let failures = [
        sandbox.execute("x").await.unwrap_err(),
        sandbox.read("x", lines).await.unwrap_err(),
        sandbox.read_bytes("x").await.unwrap_err(),
        sandbox.write("x", "y").await.unwrap_err(),
        sandbox
            .edit("x", ("a", "b"), ReplaceText::Once)
            .await
            .unwrap_err(),
        sandbox.exists("x").await.unwrap_err(),
        sandbox.ls(".").await.unwrap_err(),
        sandbox.glob("*", ".").await.unwrap_err(),
        sandbox.grep("x", &options).await.unwrap_err(),
        sandbox.info().await.unwrap_err(),
        sandbox.usage().await.unwrap_err(),
        sandbox.stop(Purge::Yes).await.unwrap_err(),
    ];
    for failure in failures {
        assert_eq!(
            failure.error().unwrap().code(),
            "unreachable",
            "{failure:?}"
        );
        assert!(failure.retryable());
    }
    assert!(!sandbox.alive().await);
}

#[tokio::test(start_paused = true)]
async fn an_operation_is_waited_for_ten_seconds_beyond_what_it_may_take() {
    // A service that does not tell its ceiling is taken to have the sandbox's own timeout.
    for (tells, secs) in [(policy(7), 17), (Reply::refusal(500, "no"), 70)] {
        let script = [opened("t1"), tells, Reply::Hang, Reply::Hang];
        let server = Scripted::serve(script).await;
        let sandbox = sandbox(&server);
        let after = |failure: OperationFailure| match failure.error() {
            Some(Error::Timeout { after }) => after.as_secs(),
            other => panic!("{other:?}"),
        };
        assert_eq!(after(sandbox.execute("x").await.unwrap_err()), secs);
        let asked = ExecRequest {
            timeout_seconds: Some(2),
            ..ExecRequest::default()
        };
        assert_eq!(after(sandbox.execute_with(&asked).await.unwrap_err()), 12);
    }
}

#[tokio::test]
async fn a_stopped_sandbox_is_opened_again_by_its_next_use() {
    let done = || Reply::Answer(204, String::new());
    let script = [
        opened("t1"),
        policy(7),
        done(),
        opened("t2"),
        policy(7),
        ran("x"),
        done(),
    ];
    let server = Scripted::serve(script).await;
    let sandbox = sandbox(&server);
    sandbox.start().await.unwrap();
    sandbox.start().await.unwrap();
    sandbox.stop(Purge::No).await.unwrap();
    sandbox.stop(Purge::No).await.unwrap();
    assert_eq!(sandbox.server_timeout(), None);
    assert_eq!(sandbox.execute("x").await.unwrap().output, "x");
    sandbox.stop(Purge::Yes).await.unwrap();
    assert_eq!(sandbox.take_reset(), None, "a stop of one's own is no news");
    assert_eq!(
        server.lines(),
        [
            "POST /sessions",
            "GET /policy",
            "DELETE /sessions/s1",
            "POST /sessions",
            "GET /policy",
            "POST /sessions/s1/exec",
            "DELETE /workspaces/s1?close=true",
        ]
    );
    assert_eq!(tokens(&server)[2], "t1");
    assert_eq!(tokens(&server)[6], "service");
}

#[tokio::test]
async fn what_comes_while_a_sandbox_is_stopped_waits_and_opens_it_again() {
    let script = [
        opened("t1"),
        policy(7),
        Reply::Answer(204, String::new()),
        opened("t2"),
        policy(7),
        ran("x"),
    ];
    let server = Scripted::serve(script).await;
    let sandbox = sandbox(&server);
    sandbox.start().await.unwrap();
    let (first, second, ran) = tokio::join!(
        sandbox.stop(Purge::No),
        sandbox.stop(Purge::No),
        sandbox.execute("x")
    );
    first.unwrap();
    second.unwrap();
    assert_eq!(ran.unwrap().output, "x");
    assert_eq!(
        server.lines()[2..],
        [
            "DELETE /sessions/s1",
            "POST /sessions",
            "GET /policy",
            "POST /sessions/s1/exec",
        ]
    );
}

#[tokio::test]
async fn a_sandbox_that_was_never_started_is_purged_by_its_id() {
    let server = Scripted::serve([Reply::Answer(204, String::new())]).await;
    sandbox(&server).stop(Purge::Yes).await.unwrap();
    assert_eq!(server.lines(), ["DELETE /workspaces/s1?close=true"]);
    assert_eq!(tokens(&server), ["service"]);
}

#[tokio::test]
async fn a_stop_that_fails_is_returned_and_leaves_the_session_to_be_used_or_stopped_again() {
    let script = [
        opened("t1"),
        policy(7),
        Reply::HangUp,
        ran("x"),
        refused(GONE),
    ];
    let server = Scripted::serve(script).await;
    let sandbox = sandbox(&server);
    sandbox.start().await.unwrap();
    let failure = sandbox.stop(Purge::No).await.unwrap_err();
    assert_eq!(failure.error().unwrap().code(), "unreachable");
    assert_eq!(sandbox.execute("x").await.unwrap().output, "x");
    // One that is gone already is closed.
    sandbox.stop(Purge::No).await.unwrap();
    assert_eq!(server.lines().len(), 5);
}

#[tokio::test]
async fn what_was_on_its_way_does_not_bring_a_stopped_sandbox_back() {
    let server = Scripted::serve([opened("t1"), policy(7)]).await;
    let sandbox = sandbox(&server);
    sandbox.start().await.unwrap();
    let session = sandbox.0.current().unwrap();
    let n_stops = sandbox.0.n_stops();
    let mut stop = pin!(sandbox.stop(Purge::No));
    assert!(matches!(futures_util::poll!(&mut stop), Poll::Pending));
    let stopped = sandbox.0.lost(&session, n_stops).unwrap_err();
    assert!(matches!(stopped, OperationFailure::Stopped));
    assert_eq!(server.lines().len(), 2);
}

#[tokio::test]
async fn what_the_service_says_of_a_file_is_told_and_a_file_that_says_the_same_is_read() {
    let told = ReadResponse {
        content: "Error: File 'x' not found".to_owned(),
        ..ReadResponse::default()
    };
    let failed = ReadResponse {
        error: Some("File 'x' not found".to_owned()),
        ..told.clone()
    };
    let script = [
        opened("t1"),
        policy(7),
        Reply::json(&told),
        Reply::json(&failed),
        Reply::json(&json!({"content_b64": ""})),
        Reply::json(&json!({"content_b64": "", "error": "File 'x' not found"})),
        Reply::json(&json!({"content_b64": "***"})),
        Reply::json(&json!({"matches": [], "error": "Error: grep: x\n"})),
        Reply::json(&json!({"path": null, "error": "no", "occurrences": null})),
        Reply::json(&json!({"exists": true, "incarnation": 2, "reset_reason": "oom"})),
    ];
    let server = Scripted::serve(script).await;
    let sandbox = sandbox(&server);
    let lines = FileLines::default();
    let says = |failure: OperationFailure| failure.explain();
    assert_eq!(sandbox.read("x", lines).await.unwrap(), told.content);
    let missing = "Error: File 'x' not found";
    assert_eq!(says(sandbox.read("x", lines).await.unwrap_err()), missing);
    assert_eq!(sandbox.read_bytes("x").await.unwrap(), "");
    assert_eq!(says(sandbox.read_bytes("x").await.unwrap_err()), missing);
    let odd = says(sandbox.read_bytes("x").await.unwrap_err());
    assert!(odd.starts_with("Error: read_bytes of x: "), "{odd}");
    let options = GrepOptions::default();
    let bad = says(sandbox.grep("[", &options).await.unwrap_err());
    assert_eq!(bad, "Error: grep: x");
    let edit = sandbox.edit("x", ("a", "b"), ReplaceText::Everywhere).await;
    assert_eq!(says(edit.unwrap_err()), "Error: no");
    assert!(sandbox.exists("x").await.unwrap());
    let reset = sandbox.take_reset().unwrap();
    assert_eq!(
        (reset.incarnation, reset.reset_reason.as_deref()),
        (Some(2), Some("oom"))
    );
    let bodies: Vec<String> = server.seen().into_iter().map(|seen| seen.body).collect();
    assert_eq!(bodies[2], r#"{"path":"x","offset":0,"limit":2000}"#);
    assert!(bodies[8].contains(r#""replace_all":true"#));
}

#[test]
fn a_sandbox_and_what_it_returns_go_between_threads() {
    fn goes<T: Send + Sync + Clone + 'static>() {}
    fn travels<T: Send>(_: T) {}
    goes::<RemoteSandbox>();
    goes::<OperationFailure>();
    let token = Secret::new("hush".to_owned());
    let sandbox = RemoteSandbox::builder("http://127.0.0.1:1", &token);
    assert!(!format!("{sandbox:?}").contains("hush"));
    let sandbox = sandbox.build().unwrap();
    travels(sandbox.execute("x"));
    travels(sandbox.stop(Purge::Yes));
    assert!(!format!("{sandbox:?}").contains("hush"));
}
