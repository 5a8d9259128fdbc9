//! Running commands.

use expect_test::expect;
use serde_json::json;

use super::{check, ran, ran_once};
use crate::client::scripted::{Reply, Scripted};

#[tokio::test]
async fn exec_passes_output_and_exit_code_through() {
    for code in [0, 1, 3, 124, 126, 127, 137, 255] {
        let reply =
            json!({ "output": "\u{1b}[1mraw\u{1b}[0m", "exit_code": code, "truncated": false });
        let ran = ran_once(Reply::json(&reply), &["exec", "a", "--", "true"]).await;
        assert_eq!(
            (
                i64::from(ran.exit),
                ran.stdout.as_str(),
                ran.stderr.as_str()
            ),
            (code, "\u{1b}[1mraw\u{1b}[0m", "")
        );
    }
}

#[tokio::test]
async fn exec_without_an_ending_is_125_with_the_reason() {
    let reply = json!({
        "output": "half", "exit_code": null, "truncated": true,
        "reason": "container_lost", "reset_reason": "oom"
    });
    let ran = ran_once(Reply::json(&reply), &["exec", "a", "--", "true"]).await;
    check(
        &ran,
        &expect![[r"
        half--
        note: the sandbox was reset before this command (oom)
        note: the output is cut; the command printed more
        error: nobody knows how the command ended (container_lost)
        --
        exit 125
    "]],
    );
}

#[tokio::test]
async fn exec_says_that_a_command_was_over_its_time() {
    let reply = json!({ "output": "", "exit_code": 124, "truncated": false, "reason": "timeout" });
    let ran = ran_once(Reply::json(&reply), &["exec", "a", "--", "true"]).await;
    check(
        &ran,
        &expect![[r"
        --
        note: the command was over its time and was killed
        --
        exit 124
    "]],
    );
}

#[tokio::test]
async fn exec_quotes_a_program_and_takes_one_argument_as_shell_text() {
    let done = Reply::json(&json!({ "output": "", "exit_code": 0, "truncated": false }));
    let server = Scripted::serve([done.clone(), done]).await;
    ran(
        &server,
        &[
            "exec",
            "a",
            "--timeout",
            "5",
            "--",
            "echo",
            "a b",
            "--timeout",
        ],
    )
    .await;
    ran(&server, &["exec", "a", "--", "echo a | wc -c"]).await;
    let sent = server
        .seen()
        .into_iter()
        .map(|seen| seen.body)
        .collect::<Vec<_>>();
    assert_eq!(
        sent,
        [
            r#"{"command":"echo 'a b' --timeout","timeout_seconds":5}"#,
            r#"{"command":"echo a | wc -c","timeout_seconds":null}"#,
        ]
    );
}

#[tokio::test]
async fn whatever_keeps_exec_from_running_is_125() {
    for status in [401, 404, 409, 410, 422, 429, 500, 503] {
        let ran = ran_once(Reply::refusal(status, "no"), &["exec", "a", "--", "x"]).await;
        assert_eq!(ran.exit, 125, "{status}");
    }
    assert_eq!(
        ran_once(Reply::HangUp, &["exec", "a", "--", "x"])
            .await
            .exit,
        125
    );
}
