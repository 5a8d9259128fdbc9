//! Running programs, and looking after those in the background.

use expect_test::expect;
use serde_json::{Value, json};

use super::{Person, check, no_content, ran, ran_once, run_as};
use crate::client::scripted::{Reply, Scripted};

const RUN: &str = "00000000000000000000000000000000";

fn ended(fields: &Value) -> Reply {
    let mut reply = json!({
        "stdout": "", "stderr": "", "exit_code": null, "timed_out": false,
        "output_limited": false, "output_limit": null
    });
    for (name, value) in fields.as_object().unwrap() {
        reply[name] = value.clone();
    }
    Reply::json(&reply)
}

fn run(fields: &Value) -> Value {
    let mut run = json!({
        "run_id": RUN, "state": "running", "exit_code": null, "signal": null, "reason": null,
        "started_at": 1_600_000_000.25, "ended_at": null, "target": "make test",
        "stdout_bytes": 0, "stderr_bytes": 0, "first_seq": 0, "next_seq": 0, "truncated": false
    });
    for (name, value) in fields.as_object().unwrap() {
        run[name] = value.clone();
    }
    run
}

#[tokio::test]
async fn run_keeps_streams_apart_and_passes_the_exit_code_on() {
    let reply = ended(&json!({"stdout": "\u{1b}[1mout", "stderr": "err\n", "exit_code": 3}));
    let ran = ran_once(reply, &["run", "a", "--", "make", "test"]).await;
    assert_eq!(
        (ran.exit, ran.stdout.as_str(), ran.stderr.as_str()),
        (3, "\u{1b}[1mout", "err\n")
    );
}

#[tokio::test]
async fn run_says_what_the_streams_do_not() {
    for (reply, exit, said) in [
        (
            json!({"timed_out": true}),
            124,
            "note: the program was over its time and was stopped\n",
        ),
        (
            json!({"output_limited": true, "output_limit": 10_485_760}),
            125,
            "error: the program wrote more than 10.0MiB and was stopped\nhint: run it with -d, and its output is kept in a ring instead\n",
        ),
        (
            json!({"reason": "agent_lost"}),
            125,
            "error: nobody knows how the program ended (agent_lost)\n",
        ),
        (
            json!({"exit_code": 0, "reset_reason": "oom"}),
            0,
            "note: the sandbox was reset before this program (oom)\n",
        ),
    ] {
        let ran = ran_once(ended(&reply), &["run", "a", "--", "x"]).await;
        assert_eq!((ran.exit, ran.stderr.as_str()), (exit, said), "{reply}");
    }
    for status in [401, 404, 409, 410, 422, 429, 501, 503] {
        let ran = ran_once(Reply::refusal(status, "no"), &["run", "a", "--", "x"]).await;
        assert_eq!(ran.exit, 125, "{status}");
    }
}

#[tokio::test]
async fn how_a_command_is_run_reaches_the_service() {
    let exec = Reply::json(&json!({ "output": "", "exit_code": 0, "truncated": false }));
    let server = Scripted::serve([exec, ended(&json!({"exit_code": 0}))]).await;
    let how = [
        "-e", "A=1", "--env", "B=x=y", "-e", "A=2", "-w", "src", "-u", "0:0", "-i", "--", "cat",
        "-",
    ];
    for verb in ["exec", "run"] {
        let arguments: Vec<&str> = [verb, "a"].into_iter().chain(how).collect();
        let ran = run_as(Person::Piping(b"in\n"), &server.url, &arguments).await;
        assert_eq!((ran.exit, ran.stderr.as_str()), (0, ""));
    }
    let mut sent = server
        .seen()
        .into_iter()
        .map(|seen| serde_json::from_str::<Value>(&seen.body).unwrap());
    let how = json!({"env": {"A": "2", "B": "x=y"}, "cwd": "src", "user": "0:0", "stdin": "in\n"});
    let mut exec = how.clone();
    exec["command"] = json!("cat -");
    exec["timeout_seconds"] = json!(null);
    assert_eq!(sent.next(), Some(exec));
    let mut run = sent.next().unwrap();
    let id = run["run_id"].take();
    assert_eq!(id.as_str().unwrap().len(), 32);
    let mut expected = how;
    expected["argv"] = json!(["cat", "-"]);
    expected["timeout_seconds"] = json!(null);
    expected["run_id"] = json!(null);
    assert_eq!(run, expected);
}

#[tokio::test]
async fn input_that_cannot_be_sent_is_told_before_anything_is_run() {
    let large: &'static [u8] = vec![b'x'; 524_289].leak();
    for (input, why) in [
        (large, "it has more than 524288 bytes"),
        (b"\xff", "it is not text in UTF-8"),
    ] {
        let server = Scripted::serve([]).await;
        let arguments = ["run", "-d", "-i", "a", "--", "cat"];
        let ran = run_as(Person::Piping(input), &server.url, &arguments).await;
        assert_eq!((ran.exit, server.lines().len()), (2, 0));
        assert!(ran.stderr.contains(why), "{}", ran.stderr);
    }
}

#[tokio::test]
async fn run_in_the_background_prints_the_id_and_nothing_else() {
    let server = Scripted::serve([Reply::json(&run(&json!({})))]).await;
    let arguments = ["run", "-d", "a", "--timeout", "60", "--", "make", "test"];
    let ran = ran(&server, &arguments).await;
    assert_eq!(
        (ran.exit, ran.stdout.as_str(), ran.stderr.as_str()),
        (0, format!("{RUN}\n").as_str(), "")
    );
    assert_eq!(
        serde_json::from_str::<Value>(&server.seen()[0].body).unwrap(),
        json!({"argv": ["make", "test"], "timeout_seconds": 60.0, "merge": false})
    );
    let refused = ran_once(Reply::refusal(429, "no"), &arguments).await;
    assert_eq!(refused.exit, 6);
}

#[tokio::test]
async fn runs_are_a_table_without_anything_that_a_terminal_obeys() {
    let list = json!({"runs": [
        run(&json!({"state": "exited", "exit_code": 0, "reason": "exited",
            "ended_at": 1_600_000_090.5, "stdout_bytes": 2000, "stderr_bytes": 48})),
        run(&json!({"state": "killed", "signal": 9, "reason": "signal", "ended_at": 1_600_000_001.0})),
        run(&json!({"state": "lost", "reason": "agent_lost", "target": "\u{1b}[2J"})),
        run(&json!({})),
    ]});
    let ran = ran_once(Reply::json(&list), &["runs", "a"]).await;
    check(
        &ran,
        &expect![[r"
            RUN                               STATE    EXIT        STARTED                   RAN  BYTES   TARGET
            00000000000000000000000000000000  exited   0           2020-09-13T12:26:40.250Z  1m   2.0KiB  make test
            00000000000000000000000000000000  killed   signal 9    2020-09-13T12:26:40.250Z  0s   0B      make test
            00000000000000000000000000000000  lost     agent_lost  2020-09-13T12:26:40.250Z  -    0B      \x1b[2J
            00000000000000000000000000000000  running  -           2020-09-13T12:26:40.250Z  -    0B      make test
            --
            --
            exit 0
        "]],
    );
}

fn lines(lines: &[Value]) -> Reply {
    let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
    Reply::Answer(200, lines.join("\n") + "\n")
}

#[tokio::test]
async fn logs_show_each_stream_where_it_belongs_and_what_is_missing() {
    let output = lines(&[
        json!({"gap": {"from": 0, "to": 3}}),
        json!({"seq": 3, "stream": "stdout", "data": "out "}),
        json!({"seq": 4, "stream": "stdout", "b64": "b2s="}),
        json!({"seq": 5, "stream": "stderr", "data": "err"}),
        json!({"end": run(&json!({"state": "exited", "exit_code": 1}))}),
    ]);
    let ran = ran_once(output, &["logs", "a", RUN]).await;
    assert_eq!(
        (ran.exit, ran.stdout.as_str(), ran.stderr.as_str()),
        (0, "out ok", "note: records 0 to 2 are no longer kept\nerr")
    );
}

#[tokio::test]
async fn following_goes_on_where_it_broke_off() {
    let end = json!({"end": run(&json!({"state": "exited", "exit_code": 0}))});
    let stopping = json!({"error": {"detail": "The service is shutting down.",
        "code": "shutting_down", "retryable": true, "request_id": "r"}});
    let server = Scripted::serve([
        lines(&[
            json!({"seq": 7, "stream": "stdout", "data": "one "}),
            stopping,
        ]),
        Reply::refusal(503, "not yet"),
        lines(&[json!({"seq": 8, "stream": "stdout", "data": "two "})]),
        lines(&[json!({"seq": 9, "stream": "stdout", "data": "three"}), end]),
    ])
    .await;
    let ran = ran(&server, &["logs", "a", RUN, "-f", "--since-seq", "7"]).await;
    assert_eq!((ran.exit, ran.stdout.as_str()), (0, "one two three"));
    assert_eq!(
        ran.stderr,
        "note: The service is shutting down. (status 503, request r); trying on\nnote: the output broke off; trying on\n"
    );
    let asked = |from| format!("GET /sessions/a/runs/{RUN}/output?from={from}&follow=true");
    assert_eq!(server.lines(), [asked(7), asked(8), asked(8), asked(9)]);
}

#[tokio::test]
async fn logs_that_are_not_whole_are_no_success() {
    let part = lines(&[json!({"seq": 0, "stream": "stdout", "data": "x"})]);
    let ran = ran_once(part, &["logs", "a", RUN]).await;
    assert_eq!((ran.exit, ran.stdout.as_str()), (1, "x"));
    let lost = json!({"error": {"detail": "Run 0 is lost: agent_lost", "code": "run_lost",
        "retryable": false, "request_id": "r", "reason": "agent_lost"}});
    let ran = ran_once(lines(&[lost]), &["logs", "-f", "a", RUN]).await;
    check(
        &ran,
        &expect![[r"
            --
            error: Run 0 is lost: agent_lost
            hint: sandboxctl runs ID shows the runs of a session
            --
            exit 3
        "]],
    );
}

#[tokio::test]
async fn kill_and_stop_print_what_they_did_it_to() {
    let server = Scripted::serve([no_content(), no_content(), no_content()]).await;
    for arguments in [
        &["kill", "a", RUN][..],
        &["kill", "-s", "hup", "a", RUN],
        &["stop", "a", RUN],
    ] {
        let ran = ran(&server, arguments).await;
        assert_eq!((ran.exit, ran.stdout), (0, format!("{RUN}\n")));
    }
    let seen: Vec<String> = server
        .seen()
        .into_iter()
        .map(|seen| format!("{} {}", seen.line, seen.body))
        .collect();
    let under = format!("POST /sessions/a/runs/{RUN}");
    assert_eq!(
        seen,
        [
            format!(r#"{under}/signal {{"signal":"KILL"}}"#),
            format!(r#"{under}/signal {{"signal":"hup"}}"#),
            format!("{under}/stop "),
        ]
    );
}

#[tokio::test]
async fn runs_that_are_over_are_removed_one_by_one() {
    let other = "1".repeat(32);
    let conflict = Reply::refusal(409, "It goes on");
    let server = Scripted::serve([no_content(), conflict]).await;
    let ran = ran(&server, &["runs", "a", "--rm", RUN, "--rm", &other]).await;
    assert_eq!((ran.exit, ran.stdout), (5, format!("{RUN}\n")));
    assert_eq!(
        server.lines(),
        [
            format!("DELETE /sessions/a/runs/{RUN}"),
            format!("DELETE /sessions/a/runs/{other}"),
        ]
    );
}

#[tokio::test]
async fn a_shell_without_a_terminal_is_refused_before_anything_is_sent() {
    let server = Scripted::serve([]).await;
    let ran = ran(&server, &["shell", "a"]).await;
    check(
        &ran,
        &expect![[r"
            --
            error: failed to sit at a terminal: standard input or output is none
            hint: exec and run need none
            --
            exit 125
        "]],
    );
    assert_eq!(server.n_connections(), 0);
}
