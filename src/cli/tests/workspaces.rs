//! Listing workspaces, and carrying them off and back.

use expect_test::expect;
use serde_json::{Value, json};

use super::{Person, check, ran, ran_once, run_as};
use crate::client::scripted::{Reply, Scripted};

fn workspace(id: &str) -> Value {
    json!({
        "session_id": id, "open": false, "bytes": null, "files": null, "measured_at": null,
        "limit": null, "last_used": null, "runtime": null, "tenant": null
    })
}

fn pages() -> [Reply; 2] {
    let mut measured = workspace("a");
    for (name, value) in [
        ("open", json!(true)),
        ("bytes", json!(12_897_484)),
        ("files", json!(70)),
        ("limit", json!(1_073_741_824)),
        ("last_used", json!(1_600_000_000.5)),
        ("runtime", json!("python")),
        ("tenant", json!("acme")),
    ] {
        measured[name] = value;
    }
    [
        Reply::json(&json!({ "workspaces": [measured], "next": "a" })),
        Reply::json(&json!({ "workspaces": [workspace("b")], "next": null })),
    ]
}

#[tokio::test]
async fn workspaces_are_listed_over_all_pages_and_what_is_unknown_is_a_dash() {
    let server = Scripted::serve(pages()).await;
    let shown = ran(&server, &["workspaces"]).await;
    check(
        &shown,
        &expect![[r"
            ID  SESSION  RUNTIME  TENANT  SIZE              FILES  LAST USED
            a   open     python   acme    12.2MiB / 1.0GiB  70     2020-09-13T12:26:40.500Z
            b   closed   -        -       -                 -      -
            --
            --
            exit 0
        "]],
    );
    let asked = ["GET /workspaces", "GET /workspaces?cursor=a"];
    assert_eq!(server.lines(), asked);
    let server = Scripted::serve(pages()).await;
    let quiet = ran(&server, &["workspaces", "--quiet"]).await;
    assert_eq!(quiet.stdout, "a\nb\n");
    let server = Scripted::serve(pages()).await;
    let all = ran(&server, &["workspaces", "-o", "json"]).await;
    let all: Value = serde_json::from_str(&all.stdout).unwrap();
    assert_eq!(all["workspaces"].as_array().unwrap().len(), 2);
    assert_eq!(all["next"], Value::Null);
}

#[tokio::test]
async fn an_export_is_printed_to_the_byte_and_a_refusal_prints_nothing() {
    let server = Scripted::serve([Reply::Answer(200, "the archive\n\x1b".to_owned())]).await;
    let exported = ran(&server, &["export", "a", "--format", "tar"]).await;
    assert_eq!(
        (exported.exit, exported.stdout.as_str()),
        (0, "the archive\n\x1b")
    );
    assert_eq!(server.lines(), ["GET /workspaces/a/export?format=tar"]);
    let none = json!({"detail": "No workspace for session: a", "code": "no_workspace"});
    let refused = ran_once(Reply::Answer(404, none.to_string()), &["export", "a"]).await;
    assert_eq!((refused.exit, refused.stdout.as_str()), (3, ""));
    assert!(refused.stderr.contains("hint: sandboxctl workspaces shows"));
}

#[tokio::test]
async fn an_import_sends_what_is_piped_and_prints_the_id() {
    let done = json!({
        "session_id": "a", "files": 1, "directories": 0, "links": 0, "bytes": 3,
        "skipped": [{"path": "fifo", "reason": "it is a special file"}], "n_skipped": 1
    });
    let server = Scripted::serve([Reply::json(&done)]).await;
    let arguments = [
        "import",
        "a",
        "--replace",
        "--runtime",
        "py",
        "--tenant",
        "t",
    ];
    let sent = run_as(Person::Piping(b"an archive"), &server.url, &arguments).await;
    check(
        &sent,
        &expect![[r"
            a
            --
            note: 1 devices, pipes and sockets were left out
            --
            exit 0
        "]],
    );
    let asked = "PUT /workspaces/a/import?replace=true&runtime=py&tenant=t";
    assert_eq!(server.lines(), [asked]);
    assert_eq!(server.seen()[0].body, "an archive");
    for (code, hint) in [
        ("workspace_not_empty", "--replace"),
        ("session_open", "sandboxctl rm"),
    ] {
        let why = json!({"detail": "no", "code": code}).to_string();
        let refused = ran_once(Reply::Answer(409, why), &["import", "a"]).await;
        assert_eq!(refused.exit, 5);
        assert!(refused.stderr.contains(hint), "{}", refused.stderr);
    }
}
