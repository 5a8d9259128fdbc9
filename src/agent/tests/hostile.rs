//! Whatever an agent sends, it harms its own stream and nothing else.

use proptest::prelude::*;

use crate::agent::connection::Connection;
use crate::agent::protocol::frame::{FRAME_BYTES_MAX, Frame, Input};
use crate::agent::protocol::message::{Fetch, Filter, Reply, Request, Wait};
use crate::agent::protocol::output::{Output, Record, Stream};
use crate::agent::testing::{
    Heard, RUN, Scripted, exited, fetch, hello, joined, packed, record, replied, run,
};

const OTHER: &str = "ffffffffffffffffffffffffffffffff";

/// Serves lists until its stream ends.
async fn honest(mut agent: Scripted) {
    while let Heard::Request(Request::List { ask }) = agent.hear().await {
        let runs = vec![run(RUN, None)];
        agent.reply(&Reply::Runs { ask, runs }).await;
    }
}

/// Hears a fetch, says what the case says, and returns whether the stream is at its end.
async fn closes(fetch: Fetch, answer: impl FnOnce(u64) -> Vec<u8>) -> bool {
    let (bad, mut agent) = joined("bad").await;
    let (good, other) = joined("good").await;
    let other = tokio::spawn(honest(other));
    let lie = async {
        let Heard::Request(Request::Fetch { ask, .. }) = agent.hear().await else {
            panic!("it asks for output")
        };
        agent.say(&answer(ask)).await;
        // What was said is judged before this is.
        let (listed, ()) = tokio::join!(bad.list(), async {
            if let Heard::Request(Request::List { ask }) = agent.hear().await {
                let runs = Vec::new();
                agent.reply(&Reply::Runs { ask, runs }).await;
            }
        });
        listed.is_err()
    };
    let (fetched, ended) = tokio::join!(bad.fetch(fetch), lie);
    assert!(!ended || fetched.is_err());
    assert_eq!(good.list().await.unwrap(), [run(RUN, None)]);
    drop(good);
    other.await.unwrap();
    ended
}

fn output(ask: u64, records: Vec<Record>) -> Vec<u8> {
    let output = Output {
        ask,
        records,
        ..Output::default()
    };
    packed(&Frame::Output(output.pack().into()))
}

fn ended(ask: u64, json: &[u8]) -> Vec<u8> {
    let output = Output {
        ask,
        end: Some(json.to_vec()),
        ..Output::default()
    };
    packed(&Frame::Output(output.pack().into()))
}

#[tokio::test]
async fn an_answer_that_fits_its_question_closes_nothing() {
    let records = vec![record(3, 0, b"a"), record(5, 10, b"b")];
    assert!(!closes(fetch(RUN, 3), |ask| output(ask, records)).await);
    let end = serde_json::to_vec(&run(RUN, Some(exited(0)))).unwrap();
    assert!(!closes(fetch(RUN, 3), |ask| ended(ask, &end)).await);
}

#[tokio::test]
async fn frames_that_are_none_close_their_own_stream_only() {
    let length = u32::try_from(FRAME_BYTES_MAX + 1).unwrap().to_le_bytes();
    let huge = [&length[..], &[1; 100]].concat();
    assert!(closes(fetch(RUN, 0), |_| huge).await);
    assert!(closes(fetch(RUN, 0), |_| vec![0, 0, 0, 0]).await);
    assert!(closes(fetch(RUN, 0), |_| vec![1, 0, 0, 0, 9]).await);
    let input = Frame::Input(Input {
        ask: 0,
        run: RUN.to_owned(),
        ends: false,
        bytes: Vec::new(),
    });
    assert!(closes(fetch(RUN, 0), |_| packed(&input)).await);
    for text in ["{", "[]", r#"{"op":"started"}"#, r#"{"op":"x","ask":0}"#] {
        let message = packed(&Frame::Message(text.into()));
        assert!(closes(fetch(RUN, 0), |_| message).await, "{text}");
    }
    assert!(closes(fetch(RUN, 0), |_| packed(&Frame::Output(vec![1, 2].into()))).await);
}

#[tokio::test]
async fn answers_to_what_was_not_asked_close_their_own_stream_only() {
    let hi = || vec![record(0, 0, b"hi")];
    assert!(closes(fetch(RUN, 0), |ask| output(ask + 7, hi())).await);
    assert!(closes(fetch(RUN, 0), |ask| replied(&Reply::Done { ask })).await);
    assert!(closes(fetch(RUN, 0), |_| replied(&Reply::Hello(hello()))).await);
    let twice = |ask| [output(ask, hi()), output(ask, hi())].concat();
    let (bad, mut agent) = joined("bad").await;
    let (fetched, ()) = tokio::join!(bad.fetch(fetch(RUN, 0)), async {
        let Heard::Request(Request::Fetch { ask, .. }) = agent.hear().await else {
            panic!("it asks for output")
        };
        agent.say(&twice(ask)).await;
    });
    assert!(fetched.is_ok());
    bad.closed().await;
}

#[tokio::test]
async fn output_that_was_not_asked_for_closes_its_own_stream_only() {
    let small = Fetch {
        bytes: 100,
        ..fetch(RUN, 0)
    };
    let pieces = |count: u64| -> Vec<Record> {
        (0..count)
            .map(|n| record(n, n * 30_000, &vec![b'x'; 30_000]))
            .collect()
    };
    assert!(!closes(small.clone(), |ask| output(ask, pieces(1))).await);
    assert!(closes(small, |ask| output(ask, pieces(2))).await);
    let cases = [
        ("before what was asked for", vec![record(2, 0, b"x")]),
        ("backwards", vec![record(4, 0, b"x"), record(3, 1, b"x")]),
        ("twice", vec![record(4, 0, b"x"), record(4, 1, b"x")]),
        ("overlapping", vec![record(4, 0, b"xx"), record(5, 1, b"x")]),
        ("beyond numbers", vec![record(4, u64::MAX, b"x")]),
        ("nothing", vec![]),
    ];
    for (name, records) in cases {
        assert!(
            closes(fetch(RUN, 3), |ask| output(ask, records)).await,
            "{name}"
        );
    }
    let errors = Fetch {
        streams: Filter::Err,
        ..fetch(RUN, 0)
    };
    assert!(closes(errors, |ask| output(ask, vec![record(0, 0, b"x")])).await);
    let nothing = Fetch {
        wait: Wait::No,
        ..fetch(RUN, 0)
    };
    assert!(!closes(nothing, |ask| output(ask, Vec::new())).await);
}

#[tokio::test]
async fn an_end_that_is_none_closes_its_own_stream_only() {
    let json = |run| serde_json::to_vec(&run).unwrap();
    let other = json(run(OTHER, Some(exited(0))));
    assert!(closes(fetch(RUN, 0), |ask| ended(ask, &other)).await);
    let alive = json(run(RUN, None));
    assert!(closes(fetch(RUN, 0), |ask| ended(ask, &alive)).await);
    assert!(closes(fetch(RUN, 0), |ask| ended(ask, b"{}")).await);
    let gap = |ask| {
        let output = Output {
            ask,
            gap: Some((9, 4)),
            ..Output::default()
        };
        packed(&Frame::Output(output.pack().into()))
    };
    assert!(closes(fetch(RUN, 3), gap).await);
}

async fn lists(runs: Vec<crate::agent::protocol::message::Run>) -> bool {
    let (connection, mut agent) = joined("a").await;
    let (listed, ()) = tokio::join!(connection.list(), async {
        let Heard::Request(Request::List { ask }) = agent.hear().await else {
            panic!("it asks for a list")
        };
        agent.reply(&Reply::Runs { ask, runs }).await;
    });
    listed.is_ok()
}

#[tokio::test]
async fn runs_that_cannot_be_close_their_own_stream_only() {
    assert!(lists(vec![run(RUN, None), run(OTHER, None)]).await);
    assert!(!lists(vec![run(RUN, None), run(RUN, None)]).await);
    assert!(!lists(vec![run("../../x", None)]).await);
    let many = (0..4097).map(|n| run(&format!("{n:032x}"), None)).collect();
    assert!(!lists(many).await);
}

/// Feeds a connection arbitrary frames while something is asked.
async fn survives(frames: Vec<Frame>) {
    let (bad, mut agent) = joined("bad").await;
    let clone: Connection = bad.clone();
    let asking = tokio::spawn(async move { clone.fetch(fetch(RUN, 0)).await });
    for frame in frames {
        agent.say(&packed(&frame)).await;
    }
    drop(agent);
    drop(asking.await.expect("no answer panics the caller"));
    bad.closed().await;
}

fn any_frame() -> impl Strategy<Value = Frame> {
    let records = prop::collection::vec((0u64..4, any::<bool>(), any::<u64>(), 0usize..9), 0..4);
    let output = (0u64..2, any::<Option<(u64, u64)>>(), records).prop_map(|(ask, gap, all)| {
        let records = all.into_iter().map(|(seq, out, offset, length)| Record {
            seq,
            stream: if out { Stream::Out } else { Stream::Err },
            offset,
            bytes: vec![b'x'; length].into(),
        });
        let output = Output {
            ask,
            gap,
            records: records.collect(),
            end: None,
        };
        Frame::Output(output.pack().into())
    });
    let bytes = || prop::collection::vec(any::<u8>(), 0..60);
    prop_oneof![
        output,
        bytes().prop_map(|bytes| Frame::Output(bytes.into())),
        bytes().prop_map(|bytes| Frame::Message(bytes.into())),
        (0u64..3).prop_map(|ask| Frame::Message(
            serde_json::to_vec(&Reply::Done { ask })
                .expect("a reply is JSON")
                .into()
        )),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_frames_panic_a_connection(frames in prop::collection::vec(any_frame(), 0..6)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(survives(frames));
    }
}
