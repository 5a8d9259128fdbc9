//! Explaining sessions, putting them to sleep and waking them.

use expect_test::expect;
use serde_json::json;

use super::{check, ran, ran_once, session};
use crate::client::scripted::{Reply, Scripted};

#[tokio::test]
async fn explain_shows_what_is_and_what_comes_next() {
    let explained = json!({
        "aim": "running", "phase": "failed", "reason": "no such image", "since": 1_700_000_000.0,
        "next": {"step": "start", "at": 1_700_000_002.5}, "attempts": 3,
        "last_error": "no such image", "drift": ["settings", "runtime"],
        "container": {"name": "sandboxd-a-1234abcd", "id": null, "state": "starting"},
        "lease_count": 1,
        "ceilings": [{"name": "max_sessions", "limit": 2, "used": 1, "scope": "service"}],
    });
    let server = Scripted::serve([Reply::json(&explained)]).await;
    let ran = ran(&server, &["explain", "a"]).await;
    check(
        &ran,
        &expect![[r"
        Should be:        running
        Is:               failed
        Since:            2023-11-14T22:13:20.000Z
        Reason:           no such image
        Failed attempts:  3
        Last error:       no such image
        Next:             start at 2023-11-14T22:13:22.500Z
        In use by:        1
        Container:        sandboxd-a-1234abcd
        Container is:     starting
        Drifted:          settings, runtime
        Ceiling:          max_sessions 1 of 2 (service)
        --
        --
        exit 0
    "]],
    );
    assert_eq!(server.lines(), ["GET /sessions/a/explain"]);
}

#[tokio::test]
async fn hibernate_and_wake_name_each_session_and_tell_which_did_not() {
    let in_use = "Session b is in use (operations under way: 1).";
    let server = Scripted::serve([
        Reply::json(&session("a")),
        Reply::refusal(409, in_use),
        Reply::json(&session("a")),
    ])
    .await;
    let slept = ran(&server, &["hibernate", "a", "b"]).await;
    check(
        &slept,
        &expect![[r"
        a
        --
        error: b: Session b is in use (operations under way: 1).
        --
        exit 1
    "]],
    );
    let woken = ran(&server, &["wake", "a", "-o", "json"]).await;
    check(
        &woken,
        &expect![[r#"
        [
          {
            "session_id": "a",
            "woken": true,
            "code": null,
            "error": null
          }
        ]
        --
        --
        exit 0
    "#]],
    );
    assert_eq!(
        server.lines(),
        [
            "POST /sessions/a/hibernate",
            "POST /sessions/b/hibernate",
            "POST /sessions/a/wake"
        ]
    );
    let refused = ran_once(Reply::refusal(409, in_use), &["hibernate", "b"]).await;
    check(
        &refused,
        &expect![[r"
        --
        error: Session b is in use (operations under way: 1).
        --
        exit 5
    "]],
    );
}

#[tokio::test]
async fn open_waits_for_a_place_only_where_it_is_asked_to() {
    let reply = Reply::json(&json!({ "session": session("a"), "token": "s3cret" }));
    let server = Scripted::serve([reply.clone(), reply]).await;
    for arguments in [&["open"][..], &["open", "--wait", "60"]] {
        assert_eq!(ran(&server, arguments).await.stdout, "a\n");
    }
    assert_eq!(server.lines(), ["POST /sessions", "POST /sessions?wait=60"]);
}
