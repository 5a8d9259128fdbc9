//! Listing, describing and opening sessions, and the health of the service.

use expect_test::expect;
use serde_json::{Value, json};

use super::{check, ran, ran_once, session};
use crate::client::scripted::{Reply, Scripted};

#[tokio::test]
async fn ls_shows_a_line_a_session() {
    let mut asleep = session("b");
    asleep["tenant"] = json!("acme");
    asleep["phase"] = json!("frozen");
    asleep["state"] = json!("hibernated");
    let list = json!({
        "sessions": [session("long-session-id"), asleep],
        "limit": 4, "open_limit": null, "tenant_limit": null
    });
    let ran = ran_once(Reply::json(&list), &["ls"]).await;
    check(
        &ran,
        &expect![[r"
        ID               RUNTIME  TENANT  STATE    IDLE  AGE
        long-session-id  python   -       running  1m    16m
        b                python   acme    frozen   1m    16m
        --
        --
        exit 0
    "]],
    );
}

#[tokio::test]
async fn ls_samples_usage_where_it_is_asked_for() {
    let mut busy = session("a");
    busy["usage"] = json!({
        "memory_bytes": 12_897_484, "memory_limit_bytes": 1_073_741_824,
        "cpu_percent": 3.07, "pids": 7
    });
    let list = json!({
        "sessions": [busy, session("b")], "limit": null, "open_limit": null, "tenant_limit": null
    });
    let server = Scripted::serve([Reply::json(&list)]).await;
    let arguments = ["ls", "--usage", "--tenant", "t", "--state", "running"];
    let ran = ran(&server, &arguments).await;
    check(
        &ran,
        &expect![[r"
            ID  RUNTIME  TENANT  STATE    IDLE  AGE  MEM               CPU   PIDS
            a   python   -       running  1m    16m  12.2MiB / 1.0GiB  3.1%  7
            b   python   -       running  1m    16m  -                 -     -
            --
            --
            exit 0
        "]],
    );
    assert_eq!(
        server.lines(),
        ["GET /sessions?usage=true&tenant=t&state=running"]
    );
}

#[tokio::test]
async fn ls_can_print_ids_alone_or_no_header() {
    let list = Reply::json(&json!({
        "sessions": [session("a"), session("b")],
        "limit": null, "open_limit": null, "tenant_limit": null
    }));
    assert_eq!(ran_once(list.clone(), &["ls", "-q"]).await.stdout, "a\nb\n");
    let bare = ran_once(list, &["ls", "--no-headers"]).await.stdout;
    assert_eq!(bare.lines().count(), 2);
}

#[tokio::test]
async fn json_is_what_the_api_says() {
    let list = json!({
        "sessions": [session("a")], "limit": 4, "open_limit": null, "tenant_limit": null
    });
    let ran = ran_once(Reply::json(&list), &["ls", "-o", "json"]).await;
    let printed: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(printed["limit"], json!(4));
    for (name, value) in session("a").as_object().unwrap() {
        assert_eq!(&printed["sessions"][0][name], value, "{name}");
    }
}

#[tokio::test]
async fn get_describes_a_session_and_leaves_out_what_is_not_told() {
    let mut told = session("a");
    told["reason"] = json!("its container \u{1b}[2Jstopped");
    told["incarnation"] = json!(3);
    let ran = ran_once(Reply::json(&told), &["get", "a"]).await;
    check(
        &ran,
        &expect![[r"
        ID:           a
        Runtime:      python
        Tenant:       -
        State:        running
        Phase:        running
        Alive:        yes
        Created:      2020-09-13T12:26:40.000Z
        Last used:    2020-09-13T12:41:40.000Z
        Idle:         1m
        Age:          16m
        Reason:       its container \x1b[2Jstopped
        Incarnation:  3
        --
        --
        exit 0
    "]],
    );
}

#[tokio::test]
async fn open_prints_the_token_only_when_told_to() {
    let reply = Reply::json(&json!({ "session": session("a"), "token": "s3cret" }));
    let server = Scripted::serve([reply.clone(), reply.clone(), reply]).await;
    let arguments = ["open", "--id", "a", "--runtime", "python", "--reuse"];
    assert_eq!(ran(&server, &arguments).await.stdout, "a\n");
    assert_eq!(
        ran(&server, &["open", "--show-token"]).await.stdout,
        "a\ns3cret\n"
    );
    assert!(
        ran(&server, &["open", "-o", "json"])
            .await
            .stdout
            .contains("s3cret")
    );
    let sent: Value = serde_json::from_str(&server.seen()[0].body).unwrap();
    assert_eq!(
        sent,
        json!({
            "session_id": "a", "runtime": "python", "tenant": null, "reuse": true, "attach": false
        })
    );
}

#[tokio::test]
async fn health_is_0_when_ok_and_1_with_reasons_when_degraded() {
    let mut health = json!({
        "status": "ok", "sessions": 1, "limit": 4, "open_sessions": 3, "open_limit": null,
        "runtimes": ["node", "python"]
    });
    assert_eq!(ran_once(Reply::json(&health), &["health"]).await.exit, 0);
    health["status"] = json!("degraded");
    health["reasons"] = json!(["the engine does not answer", "the disk is full"]);
    let ran = ran_once(Reply::json(&health), &["health"]).await;
    check(
        &ran,
        &expect![[r"
        Status:    degraded
        Resident:  1 of 4
        Open:      3
        Runtimes:  node, python
        Reason:    the engine does not answer
        Reason:    the disk is full
        --
        --
        exit 1
    "]],
    );
}
