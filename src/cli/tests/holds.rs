//! Letting go of what holds the service back.

use expect_test::expect;

use super::{Person, check, no_content, ran, run_as};
use crate::client::scripted::{Reply, Scripted};

#[tokio::test]
async fn a_hold_is_released_only_on_a_yes() {
    let server = Scripted::serve([no_content(), no_content()]).await;
    let release = ["release", "store_rebuilt"];
    for (typed, exit) in [("y\n", 0), ("n\n", 2), ("", 2)] {
        let ran = run_as(Person::Typing(typed), &server.url, &release).await;
        assert_eq!(ran.exit, exit, "{typed:?}");
        assert!(ran.stderr.starts_with("let go of store_rebuilt"));
    }
    assert_eq!(ran(&server, &release).await.exit, 2, "nobody is there");
    assert_eq!(
        ran(&server, &["release", "engine_changed", "-y"])
            .await
            .exit,
        0
    );
    let called = [
        "DELETE /holds/store_rebuilt",
        "DELETE /holds/engine_changed",
    ];
    assert_eq!(server.lines(), called);
}

#[tokio::test]
async fn a_hold_that_does_not_stand_is_told_and_one_that_is_none_is_not_asked_for() {
    let body = r#"{"detail":"No such hold: engine_changed.","code":"no_hold","retryable":false,"request_id":"r"}"#;
    let server = Scripted::serve([Reply::Answer(404, body.to_owned())]).await;
    let ran_it = ran(&server, &["release", "engine_changed", "--yes"]).await;
    check(
        &ran_it,
        &expect![[r"
            --
            error: No such hold: engine_changed.
            hint: sandboxctl health shows the holds that stand
            --
            exit 3
        "]],
    );
    assert_eq!(server.lines().len(), 1);
}
