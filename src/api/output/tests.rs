//! Holds what readers of output get to what was written.

use std::collections::BTreeMap;

use axum::body::to_bytes;
use futures_util::StreamExt as _;
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::time::Instant;

use axum::http::HeaderValue;

use super::*;
use crate::id::RunId;

/// Pieces that come from a script, each after a while; then nothing ever comes.
struct Script(VecDeque<(Duration, Result<Option<Piece>, Refusal>)>);

impl Script {
    fn of(pieces: impl IntoIterator<Item = Piece>) -> Self {
        let all = pieces.into_iter().map(|piece| Ok(Some(piece)));
        Self(all.map(|piece| (Duration::ZERO, piece)).collect())
    }

    fn then(mut self, after: Duration, piece: Result<Option<Piece>, Refusal>) -> Self {
        self.0.push_back((after, piece));
        self
    }
}

impl Pieces for Script {
    async fn next(&mut self) -> Result<Option<Piece>, Refusal> {
        match self.0.pop_front() {
            Some((after, piece)) => {
                sleep(after).await;
                piece
            }
            None => std::future::pending().await,
        }
    }
}

fn record(seq: u64, stream: Stream, offset: u64, bytes: &[u8]) -> Record {
    let bytes = bytes.to_vec().into();
    Record {
        seq,
        stream,
        offset,
        bytes,
    }
}

fn run(stdout_bytes: u64, stderr_bytes: u64, next_seq: u64) -> Run {
    Run {
        run_id: "0".repeat(32),
        state: "exited".to_owned(),
        exit_code: Some(0),
        reason: Some("exited".to_owned()),
        ended_at: Some(2.5),
        started_at: 1.5,
        target: "true".to_owned(),
        stdout_bytes,
        stderr_bytes,
        next_seq,
        ..Run::default()
    }
}

fn reader(encoding: Encoding) -> Reader {
    Reader {
        encoding,
        bytes: ByteRange {
            of: Which::Stdout,
            next: 0,
        },
        request_id: RequestId::parse("r").unwrap(),
        stopping: CancellationToken::new(),
    }
}

async fn text(script: Script, encoding: Encoding) -> String {
    let reply = answer(script, reader(encoding)).await.unwrap();
    assert_eq!(reply.headers()["content-type"], encoding.content_type());
    assert_eq!(reply.headers()["cache-control"], "no-store");
    let bytes = to_bytes(reply.into_body(), 1 << 20).await.unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Reads bytes from an offset on: what came, and whether it came to a proper end.
async fn raw(script: Script, of: Which, next: u64) -> Result<(Vec<u8>, bool), Failure> {
    let reader = Reader {
        bytes: ByteRange { of, next },
        ..reader(Encoding::Bytes)
    };
    let mut body = answer(script, reader).await?.into_body().into_data_stream();
    let mut all = Vec::new();
    while let Some(piece) = body.next().await {
        match piece {
            Ok(bytes) => all.extend_from_slice(&bytes),
            Err(_) => return Ok((all, false)),
        }
    }
    Ok((all, true))
}

fn whole() -> Script {
    Script::of([
        Piece::Gap(0, 3),
        Piece::Output(vec![
            record(3, Stream::Out, 9, "hé\"\n".as_bytes()),
            record(4, Stream::Err, 0, b"\xff\xfe"),
        ]),
        Piece::End(run(14, 2, 5)),
    ])
}

const END: &str = r#"{"run_id":"00000000000000000000000000000000","state":"exited","exit_code":0,"signal":null,"reason":"exited","started_at":1.5,"ended_at":2.5,"target":"true","stdout_bytes":14,"stderr_bytes":2,"first_seq":0,"next_seq":5,"truncated":false}"#;

#[tokio::test]
async fn lines_are_records_gaps_and_the_end() {
    let expected = format!(
        "{}\n{}\n{}\n{{\"end\":{END}}}\n",
        r#"{"gap":{"from":0,"to":3}}"#,
        r#"{"seq":3,"stream":"stdout","data":"hé\"\n"}"#,
        r#"{"seq":4,"stream":"stderr","b64":"//4="}"#,
    );
    assert_eq!(text(whole(), Encoding::Lines).await, expected);
}

#[tokio::test]
async fn events_carry_the_record_after_which_reading_goes_on() {
    let expected = format!(
        "event: gap\nid: 2\ndata: {}\n\nevent: output\nid: 3\ndata: {}\n\nevent: output\nid: 4\ndata: {}\n\nevent: end\nid: 4\ndata: {END}\n\n",
        r#"{"from":0,"to":3}"#,
        r#"{"seq":3,"stream":"stdout","data":"hé\"\n"}"#,
        r#"{"seq":4,"stream":"stderr","b64":"//4="}"#,
    );
    assert_eq!(text(whole(), Encoding::Events).await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_reader_of_events_hears_a_heartbeat_and_nothing_is_lost_by_it() {
    let late = Piece::Output(vec![record(0, Stream::Out, 0, b"x")]);
    let script = Script::of([])
        .then(HEARTBEAT * 2 + HEARTBEAT / 2, Ok(Some(late)))
        .then(Duration::ZERO, Ok(Some(Piece::End(run(1, 0, 1)))));
    let text = text(script, Encoding::Events).await;
    assert!(
        text.starts_with(":\n\n:\n\nevent: output\nid: 0\n"),
        "{text}"
    );
    assert!(text.contains("event: end\n"), "{text}");
}

#[tokio::test]
async fn bytes_are_those_of_one_stream_from_an_offset_on() {
    let script = || {
        Script::of([
            Piece::Output(vec![
                record(0, Stream::Out, 0, b"hello "),
                record(1, Stream::Err, 0, b"oops"),
                record(2, Stream::Out, 6, b"\xff world"),
            ]),
            Piece::End(run(13, 4, 3)),
        ])
    };
    for (of, next, expected) in [
        (Which::Stdout, 0, &b"hello \xff world"[..]),
        (Which::Stdout, 3, b"lo \xff world"),
        (Which::Stdout, 6, b"\xff world"),
        (Which::Stdout, 13, b""),
        (Which::Stderr, 2, b"ps"),
    ] {
        let read = raw(script(), of, next).await.unwrap();
        assert_eq!(read, (expected.to_vec(), true), "{of:?} {next}");
    }
    let beyond = raw(script(), Which::Stdout, 14).await;
    assert!(
        matches!(beyond, Ok((_, false)) | Err(Failure::NoSuchOutput(_))),
        "{beyond:?}"
    );
}

#[tokio::test]
async fn first_bytes_that_are_gone_are_refused_and_later_ones_break_the_connection() {
    let gone = Script::of([
        Piece::Gap(0, 1),
        Piece::Output(vec![record(1, Stream::Out, 5, b"late")]),
    ]);
    let failure = raw(gone, Which::Stdout, 0).await.unwrap_err();
    assert_eq!(
        (failure.status().as_u16(), failure.code()),
        (416, "no_such_output")
    );
    assert!(
        failure
            .text()
            .starts_with("Bytes 0 to 5 of stdout are not kept"),
        "{}",
        failure.text()
    );

    // The end tells of what was lost before it.
    let gone = Script::of([Piece::Gap(0, 1), Piece::End(run(5, 0, 1))]);
    assert!(raw(gone, Which::Stdout, 0).await.is_err());

    let later = Script::of([
        Piece::Output(vec![record(0, Stream::Out, 0, b"early")]),
        Piece::Gap(1, 2),
        Piece::Output(vec![record(2, Stream::Out, 9, b"late")]),
    ]);
    let read = raw(later, Which::Stdout, 0).await;
    assert_eq!(read, Ok((b"early".to_vec(), false)));
}

#[tokio::test]
async fn a_gap_of_the_other_stream_alone_breaks_nothing() {
    let script = Script::of([
        Piece::Output(vec![record(0, Stream::Out, 0, b"one ")]),
        Piece::Gap(1, 9),
        Piece::Output(vec![record(9, Stream::Out, 4, b"two")]),
        Piece::End(run(7, 1000, 10)),
    ]);
    assert_eq!(
        raw(script, Which::Stdout, 0).await,
        Ok((b"one two".to_vec(), true))
    );
}

#[tokio::test]
async fn a_run_that_goes_on_ends_bytes_where_they_are() {
    let running = Run {
        state: "running".to_owned(),
        ..run(100, 0, 1)
    };
    let script = Script::of([
        Piece::Output(vec![record(0, Stream::Out, 0, b"so far")]),
        Piece::End(running),
    ]);
    assert_eq!(
        raw(script, Which::Stdout, 0).await,
        Ok((b"so far".to_vec(), true))
    );
}

fn lost() -> Refusal {
    Refusal::RunLost {
        run: RunId::parse(&"0".repeat(32)).unwrap(),
        reason: "container_lost".to_owned(),
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_lost_at_once_has_a_status_and_what_is_lost_later_a_last_line() {
    for encoding in [Encoding::Lines, Encoding::Events, Encoding::Bytes] {
        let at_once = Script::of([]).then(Duration::ZERO, Err(lost()));
        let failure = answer(at_once, reader(encoding)).await.unwrap_err();
        assert_eq!(failure.status(), 410, "{encoding:?}");
    }
    let later = || {
        Script::of([Piece::Output(vec![record(0, Stream::Out, 0, b"x")])])
            .then(Duration::from_secs(1), Err(lost()))
    };
    let lines = text(later(), Encoding::Lines).await;
    let last: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!(last["error"]["code"], "run_lost");
    assert_eq!(last["error"]["reason"], "container_lost");
    let events = text(later(), Encoding::Events).await;
    assert!(
        events.contains("event: error\ndata: {\"detail\":\"Run 0"),
        "{events}"
    );
    assert_eq!(
        raw(later(), Which::Stdout, 0).await,
        Ok((b"x".to_vec(), false))
    );
}

#[tokio::test(start_paused = true)]
async fn the_head_does_not_wait_long_for_a_run_that_says_nothing() {
    let began = Instant::now();
    let reply = answer(Script::of([]), reader(Encoding::Lines))
        .await
        .unwrap();
    assert_eq!(began.elapsed(), HEAD_WAIT_MAX);
    let mut body = reply.into_body().into_data_stream();
    assert!(timeout(Duration::from_hours(1), body.next()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_stopping_service_ends_replies_so_that_none_is_taken_for_whole() {
    for encoding in [Encoding::Lines, Encoding::Events, Encoding::Bytes] {
        let reader = reader(encoding);
        let stopping = reader.stopping.clone();
        let script = Script::of([Piece::Output(vec![record(0, Stream::Out, 0, b"x")])]);
        let mut body = answer(script, reader)
            .await
            .unwrap()
            .into_body()
            .into_data_stream();
        let first = body.next().await.unwrap().unwrap();
        assert!(first.windows(1).any(|byte| byte == b"x"));
        stopping.cancel();
        let last = body.next().await.unwrap();
        match encoding {
            Encoding::Bytes => assert!(last.is_err()),
            Encoding::Lines | Encoding::Events => {
                let last = String::from_utf8(last.unwrap().to_vec()).unwrap();
                assert!(
                    last.contains(r#""code":"shutting_down","retryable":true"#),
                    "{last}"
                );
                assert!(body.next().await.is_none());
            }
        }
    }
}

#[tokio::test]
async fn nothing_is_read_before_its_reader_took_what_was_read_before() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    struct Endless(Arc<AtomicU64>);

    impl Pieces for Endless {
        async fn next(&mut self) -> Result<Option<Piece>, Refusal> {
            let seq = self.0.fetch_add(1, Ordering::Relaxed);
            let records = vec![record(seq, Stream::Out, seq * 32_768, &vec![b'x'; 32_768]); 4];
            Ok(Some(Piece::Output(records)))
        }
    }

    let asked = Arc::new(AtomicU64::new(0));
    let pieces = Endless(Arc::clone(&asked));
    let reply = answer(pieces, reader(Encoding::Lines)).await.unwrap();
    let mut body = reply.into_body().into_data_stream();
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    // Two records are written at once, so every second write needs an answer.
    for n_writes in 1..=6u64 {
        let written = body.next().await.unwrap().unwrap();
        assert!(
            written.len() < WRITE_BYTES_MAX + 33_000,
            "{}",
            written.len()
        );
        assert_eq!(asked.load(Ordering::Relaxed), n_writes.div_ceil(2));
    }
}

#[test]
fn the_first_encoding_that_is_accepted_is_taken_and_lines_otherwise() {
    let accepted = |values: &[&str]| {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(ACCEPT, HeaderValue::from_str(value).unwrap());
        }
        Encoding::accepted(&headers)
    };
    for (values, expected) in [
        (&[][..], Encoding::Lines),
        (&["*/*"], Encoding::Lines),
        (&["application/x-ndjson"], Encoding::Lines),
        (&["text/event-stream"], Encoding::Events),
        (&["Application/Octet-Stream"], Encoding::Bytes),
        (
            &["image/png, text/event-stream;q=0.5, */*"],
            Encoding::Events,
        ),
        (
            &["application/octet-stream;q=0, text/event-stream"],
            Encoding::Events,
        ),
        (&["image/png", "application/octet-stream"], Encoding::Bytes),
        (&["image/png"], Encoding::Lines),
        (&[""], Encoding::Lines),
    ] {
        assert_eq!(accepted(values), expected, "{values:?}");
    }
}

proptest! {
    #[test]
    fn what_was_written_is_read_back_from_lines(pieces in proptest::collection::vec((any::<bool>(), proptest::collection::vec(any::<u8>(), 1..40)), 0..20)) {
        let mut out = Vec::new();
        let mut written: BTreeMap<&str, Vec<u8>> = BTreeMap::new();
        for (seq, (is_err, bytes)) in (0..).zip(&pieces) {
            let (stream, name) = if *is_err { (Stream::Err, "stderr") } else { (Stream::Out, "stdout") };
            written.entry(name).or_default().extend_from_slice(bytes);
            write_line(&mut out, &line(&record(seq, stream, 0, bytes)));
        }
        let mut found: BTreeMap<&str, Vec<u8>> = BTreeMap::new();
        for (seq, read) in (0..).zip(std::str::from_utf8(&out).unwrap().lines()) {
            let Ok(OutputLine::Output(chunk)) = serde_json::from_str(read) else {
                panic!("{read}");
            };
            prop_assert_eq!(chunk.seq, seq);
            let name = if chunk.stream == "stderr" { "stderr" } else { "stdout" };
            let bytes = match (chunk.data, chunk.b64) {
                (Some(text), None) => text.into_bytes(),
                (None, Some(b64)) => STANDARD.decode(b64).unwrap(),
                other => panic!("{other:?}"),
            };
            found.entry(name).or_default().extend(bytes);
        }
        prop_assert_eq!(found, written);
    }

    #[test]
    fn an_event_is_one_line_of_data_whatever_was_written(bytes in proptest::collection::vec(any::<u8>(), 1..80)) {
        let mut out = Vec::new();
        write_event(&mut out, &line(&record(7, Stream::Out, 0, &bytes)));
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.split('\n').collect();
        prop_assert_eq!(lines.len(), 5);
        prop_assert!(!text.contains('\r'));
        let data = lines[2].strip_prefix("data: ").unwrap_or_default();
        prop_assert!(serde_json::from_str::<OutputLine>(data).is_ok());
    }
}

#[test]
fn shapes_of_lines_are_told_apart_when_read() {
    for (text, expected) in [
        (json!({"seq": 0, "stream": "stdout", "data": ""}), "output"),
        (json!({"gap": {"from": 0, "to": 1}}), "gap"),
        (json!({"end": run(0, 0, 0)}), "end"),
        (json!({"error": {"detail": "x"}}), "error"),
    ] {
        let line: OutputLine = serde_json::from_value(text.clone()).unwrap();
        let kind = match line {
            OutputLine::Output(_) => "output",
            OutputLine::Gap { .. } => "gap",
            OutputLine::End { .. } => "end",
            OutputLine::Error { .. } => "error",
        };
        assert_eq!(kind, expected, "{text}");
    }
}
