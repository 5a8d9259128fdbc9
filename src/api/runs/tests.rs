//! Holds requests for runs to what the contract lets them be.

use std::time::Duration;

use serde_json::{Value, json};

use super::AtEnd::{Stop, Wait};
use super::*;

const ID: &str = "00000000000000000000000000000000";

async fn body(text: &str) -> JsonText {
    let request = Request::post("/").body(Body::from(text.to_owned()));
    JsonText::read(request.unwrap()).await.unwrap()
}

fn request_id() -> RequestId {
    RequestId::parse("r").unwrap()
}

/// The faults as they are sent.
fn faults<T: std::fmt::Debug>(read: Result<T, Failure>) -> Value {
    match read {
        Err(Failure::Invalid(faults)) => serde_json::to_value(faults).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// The kind and the place of every fault.
fn kinds<T: std::fmt::Debug>(read: Result<T, Failure>) -> Vec<String> {
    let faults = faults(read);
    let faults = faults.as_array().unwrap().iter();
    faults
        .map(|fault| format!("{} {}", fault["type"].as_str().unwrap(), fault["loc"]))
        .collect()
}

#[tokio::test]
async fn a_run_is_read_whole_and_what_is_unknown_is_left_alone() {
    let full = json!({
        "argv": ["sh", "-c", "x"], "env": {"A": "b"}, "timeout_seconds": 0.5, "run_id": ID,
        "cwd": "src", "user": "1000:1000", "stdin": "in", "privileged": true,
    });
    let run = read_run(&body(&full.to_string()).await, request_id()).unwrap();
    assert_eq!(run.run_id.as_str(), ID);
    assert_eq!(run.argv, ["sh", "-c", "x"]);
    assert_eq!(run.timeout, Some(Duration::from_millis(500)));
    assert_eq!(run.options.env["A"], "b");
    assert_eq!(run.options.cwd.as_deref(), Some("src"));
    assert_eq!(run.options.user.as_deref(), Some("1000:1000"));
    assert_eq!(run.options.stdin, Input::Text("in".to_owned()));

    let plain = json!({"argv": ["x"], "run_id": ID, "timeout_seconds": null, "cwd": null});
    let run = read_run(&body(&plain.to_string()).await, request_id()).unwrap();
    assert_eq!(
        (run.timeout, run.options),
        (None, crate::control::request::Options::default())
    );
}

#[expect(clippy::too_many_lines, reason = "a table")]
#[tokio::test]
async fn a_run_is_refused_field_by_field() {
    for (text, expected) in [
        (
            json!({"argv": [], "run_id": ID}),
            r#"too_short ["body","argv"]"#,
        ),
        (
            json!({"argv": "ls", "run_id": ID}),
            r#"list_type ["body","argv"]"#,
        ),
        (
            json!({"argv": null, "run_id": ID}),
            r#"list_type ["body","argv"]"#,
        ),
        (
            json!({"argv": ["a", 1], "run_id": ID}),
            r#"string_type ["body","argv",1]"#,
        ),
        (
            json!({"argv": ["a\0"], "run_id": ID}),
            r#"value_error ["body","argv",0]"#,
        ),
        (json!({"run_id": ID}), r#"missing ["body","argv"]"#),
        (json!({"argv": ["ls"]}), r#"missing ["body","run_id"]"#),
        (
            json!({"argv": ["ls"], "run_id": "xyz"}),
            r#"string_pattern_mismatch ["body","run_id"]"#,
        ),
        (
            json!({"argv": ["ls"], "run_id": "A".repeat(32)}),
            r#"string_pattern_mismatch ["body","run_id"]"#,
        ),
        (
            json!({"argv": ["ls"], "run_id": null}),
            r#"string_type ["body","run_id"]"#,
        ),
        (
            json!({"argv": ["ls"], "run_id": ID, "timeout_seconds": 0}),
            r#"greater_than ["body","timeout_seconds"]"#,
        ),
        (
            json!({"argv": ["ls"], "run_id": ID, "timeout_seconds": -1}),
            r#"greater_than ["body","timeout_seconds"]"#,
        ),
        (
            json!({"argv": ["ls"], "run_id": ID, "timeout_seconds": "x"}),
            r#"float_parsing ["body","timeout_seconds"]"#,
        ),
        (
            json!({"argv": ["ls"], "run_id": ID, "env": null}),
            r#"dict_type ["body","env"]"#,
        ),
        (
            json!({"argv": ["ls"], "run_id": ID, "env": {"A": 1}}),
            r#"string_type ["body","env","A"]"#,
        ),
        (
            json!({"argv": ["ls"], "run_id": ID, "cwd": "a\0"}),
            r#"value_error ["body","cwd"]"#,
        ),
        (
            json!({"argv": ["ls"], "run_id": ID, "user": "a b"}),
            r#"string_pattern_mismatch ["body","user"]"#,
        ),
        (
            json!({"argv": ["ls"], "run_id": ID, "stdin": true}),
            r#"string_type ["body","stdin"]"#,
        ),
    ] {
        let read = read_run(&body(&text.to_string()).await, request_id());
        assert_eq!(kinds(read), [expected], "{text}");
    }
    let text = json!({"argv": ["ls"], "run_id": "xyz", "timeout_seconds": 0}).to_string();
    assert_eq!(
        faults(read_run(&body(&text).await, request_id())),
        json!([
            {"type": "string_pattern_mismatch", "loc": ["body", "run_id"], "input": "xyz",
             "msg": "String should match pattern '^[0-9a-f]{32}$'", "ctx": {"pattern": "^[0-9a-f]{32}$"}},
            {"type": "greater_than", "loc": ["body", "timeout_seconds"], "input": 0,
             "msg": "Input should be greater than 0", "ctx": {"gt": 0.0}},
        ])
    );
}

#[expect(clippy::too_many_lines, reason = "a table")]
#[tokio::test]
async fn a_background_run_has_a_program_or_a_text_and_input_now_or_later() {
    let read = async |value: Value| read_start(&body(&value.to_string()).await, request_id());
    let start = read(
        json!({"command": "make | tail", "merge": true, "overflow": "wait",
        "stdin": true, "output_limit": 10, "run_id": ID, "timeout_seconds": 2}),
    )
    .await
    .unwrap();
    assert_eq!(start.program, Program::Shell("make | tail".to_owned()));
    assert_eq!(
        (start.streams, start.overflow),
        (Streams::Merged, Overflow::Wait)
    );
    assert_eq!(
        (start.options.stdin, start.output_limit),
        (Input::Open, Some(10))
    );
    assert_eq!(start.run_id, RunId::parse(ID).ok());

    let start = read(json!({"argv": ["x"]})).await.unwrap();
    assert_eq!(start.program, Program::Argv(vec!["x".to_owned()]));
    assert_eq!(
        (start.streams, start.overflow),
        (Streams::Split, Overflow::Drop)
    );
    assert_eq!(
        (start.run_id, start.timeout, start.output_limit),
        (None, None, None)
    );
    for (given, expected) in [
        (json!(false), Input::Closed),
        (json!(null), Input::Closed),
        (json!("true"), Input::Text("true".to_owned())),
    ] {
        let start = read(json!({"argv": ["x"], "stdin": given})).await.unwrap();
        assert_eq!(start.options.stdin, expected);
    }

    for (value, expected) in [
        (json!({}), r#"missing ["body","argv"]"#),
        (json!({"argv": null}), r#"missing ["body","argv"]"#),
        (
            json!({"argv": ["x"], "command": "x"}),
            r#"value_error ["body","command"]"#,
        ),
        (json!({"argv": []}), r#"too_short ["body","argv"]"#),
        (json!({"command": 7}), r#"string_type ["body","command"]"#),
        (
            json!({"argv": ["x"], "stdin": 1}),
            r#"string_type ["body","stdin"]"#,
        ),
        (
            json!({"argv": ["x"], "output_limit": 0}),
            r#"greater_than ["body","output_limit"]"#,
        ),
        (
            json!({"argv": ["x"], "overflow": "spill"}),
            r#"literal_error ["body","overflow"]"#,
        ),
        (
            json!({"argv": ["x"], "merge": 2}),
            r#"bool_parsing ["body","merge"]"#,
        ),
        (
            json!({"argv": ["x"], "run_id": "x"}),
            r#"string_pattern_mismatch ["body","run_id"]"#,
        ),
        (
            json!({"argv": ["x"], "env": null}),
            r#"dict_type ["body","env"]"#,
        ),
    ] {
        assert_eq!(kinds(read(value.clone()).await), [expected], "{value}");
    }
    let large = read(json!({"argv": ["cat"], "stdin": "x".repeat(600 << 10)})).await;
    assert_eq!(large.unwrap_err().status(), 413);
}

fn output(query: &str, headers: &[(&str, &str)]) -> Result<Wanted, Failure> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.insert(
            axum::http::HeaderName::from_bytes(name.as_bytes()).unwrap(),
            value.parse().unwrap(),
        );
    }
    read_output(query, &map)
}

const EVENTS: (&str, &str) = ("accept", "text/event-stream");
const BYTES: (&str, &str) = ("accept", "application/octet-stream");

#[test]
fn output_is_asked_for_by_record_or_by_byte() {
    let wanted = |encoding, from, streams, at_end| Wanted {
        encoding,
        follow: Follow {
            from,
            streams,
            at_end,
        },
    };
    for (query, headers, expected) in [
        (
            "",
            &[][..],
            wanted(Encoding::Lines, Position::Seq(0), Which::Both, Stop),
        ),
        (
            "from=7&follow=true&stream=stderr",
            &[],
            wanted(Encoding::Lines, Position::Seq(7), Which::Stderr, Wait),
        ),
        (
            "stream=stdout&offset=9",
            &[],
            wanted(Encoding::Lines, Position::Offset(9), Which::Stdout, Stop),
        ),
        (
            "follow=1",
            &[EVENTS],
            wanted(Encoding::Events, Position::Seq(0), Which::Both, Wait),
        ),
        (
            "from=2",
            &[EVENTS, ("last-event-id", "41")],
            wanted(Encoding::Events, Position::Seq(42), Which::Both, Stop),
        ),
        (
            "from=2",
            &[EVENTS, ("last-event-id", "x")],
            wanted(Encoding::Events, Position::Seq(2), Which::Both, Stop),
        ),
        (
            "from=2",
            &[("last-event-id", "41")],
            wanted(Encoding::Lines, Position::Seq(2), Which::Both, Stop),
        ),
        (
            "",
            &[BYTES],
            wanted(Encoding::Bytes, Position::Offset(0), Which::Stdout, Stop),
        ),
        (
            "stream=stderr&offset=3&follow=on",
            &[BYTES],
            wanted(Encoding::Bytes, Position::Offset(3), Which::Stderr, Wait),
        ),
    ] {
        assert_eq!(output(query, headers), Ok(expected), "{query} {headers:?}");
    }
}

#[test]
fn output_that_makes_no_sense_is_refused() {
    for (query, headers, expected) in [
        (
            "from=-1&follow=x&stream=both2&offset=y",
            &[][..],
            &[
                r#"greater_than_equal ["query","from"]"#,
                r#"bool_parsing ["query","follow"]"#,
                r#"literal_error ["query","stream"]"#,
                r#"int_parsing ["query","offset"]"#,
            ][..],
        ),
        ("offset=1", &[], &[r#"value_error ["query","offset"]"#]),
        (
            "offset=1&from=1&stream=stdout",
            &[],
            &[r#"value_error ["query","offset"]"#],
        ),
        (
            "stream=both",
            &[BYTES],
            &[r#"value_error ["query","stream"]"#],
        ),
        ("from=1", &[BYTES], &[r#"value_error ["query","from"]"#]),
    ] {
        assert_eq!(kinds(output(query, headers)), expected, "{query}");
    }
}

#[tokio::test]
async fn a_signal_is_named_or_numbered_and_must_be_given() {
    assert_eq!(read_signal(&body(r#"{"signal":"TERM"}"#).await), Ok(15));
    assert_eq!(read_signal(&body(r#"{"signal":9}"#).await), Ok(9));
    assert_eq!(
        kinds(read_signal(&body("{}").await)),
        [r#"missing ["body","signal"]"#]
    );
    let unknown = read_signal(&body(r#"{"signal":"NOPE"}"#).await);
    assert_eq!(kinds(unknown), [r#"value_error ["body","signal"]"#]);
}
