//! A connection hands each answer to whoever asked, and holds nothing without a bound.

use crate::agent::connection::{Connection, Error, NoAgent};
use crate::agent::protocol::frame::{FRAME_BYTES_MAX, INPUT_BYTES_MAX};
use crate::agent::protocol::message::{Reply, Request, Usage, Why};
use crate::agent::protocol::output::Output;
use crate::agent::testing::{
    Heard, RUN, bounds, exited, fetch, hello, joined, opened_with, record, replied, run, session,
    start,
};
use crate::id::RunId;

fn run_id() -> RunId {
    RunId::parse(RUN).unwrap()
}

#[tokio::test]
async fn each_answer_reaches_whoever_asked_in_whatever_order_they_come() {
    let (connection, mut agent) = joined("a").await;
    let agent = async {
        let mut asks = Vec::new();
        for _ in 0..3 {
            match agent.hear().await {
                Heard::Request(Request::Start { ask, .. } | Request::Fetch { ask, .. }) => {
                    asks.push(ask);
                }
                Heard::Request(Request::List { ask }) => asks.push(ask),
                other => panic!("{other:?}"),
            }
        }
        let [started, fetched, listed] = asks[..] else {
            panic!("{asks:?}")
        };
        let listed = Reply::Runs {
            ask: listed,
            runs: vec![run(RUN, None)],
        };
        agent.reply(&listed).await;
        let end = serde_json::to_vec(&run(RUN, Some(exited(0)))).unwrap();
        let output = Output {
            ask: fetched,
            gap: None,
            records: vec![record(0, 0, b"hi")],
            end: Some(end),
        };
        agent.output(&output).await;
        let started = Reply::Started {
            ask: started,
            run: run(RUN, None),
            fresh: true,
        };
        agent.reply(&started).await;
    };
    let (started, fetched, listed, ()) = tokio::join!(
        connection.start(start(RUN)),
        connection.fetch(fetch(RUN, 0)),
        connection.list(),
        agent
    );
    assert!(started.unwrap().fresh);
    assert_eq!(fetched.unwrap().records, [record(0, 0, b"hi")]);
    assert_eq!(listed.unwrap(), [run(RUN, None)]);
    assert!(!connection.is_closed());
}

#[tokio::test]
async fn what_a_sandbox_uses_is_asked_and_an_older_agent_refuses() {
    let (connection, mut agent) = joined("a").await;
    let told = Usage {
        memory_bytes: Some(1000),
        cpu_ns: Some(7),
        ..Usage::default()
    };
    let (used, ()) = tokio::join!(connection.usage(), async {
        let Heard::Request(Request::Usage { ask }) = agent.hear().await else {
            panic!("it asks what the sandbox uses")
        };
        agent.reply(&Reply::Usage { ask, usage: told }).await;
    });
    assert_eq!(used.unwrap(), told);
    let (refused, ()) = tokio::join!(connection.usage(), async {
        let Heard::Request(Request::Usage { ask }) = agent.hear().await else {
            panic!("it asks what the sandbox uses")
        };
        let failed = Reply::Failed {
            ask,
            why: Why::Bad,
            text: "the request is not understood".to_owned(),
        };
        agent.reply(&failed).await;
    });
    assert!(matches!(refused, Err(Error::Refused(Why::Bad, _))));
    assert!(!connection.is_closed());
}

#[tokio::test]
async fn a_refusal_is_told_in_one_bounded_line() {
    let (connection, mut agent) = joined("a").await;
    let id = run_id();
    let stopped = connection.stop(&id);
    let (stopped, ()) = tokio::join!(stopped, async {
        let Heard::Request(Request::Stop { ask, .. }) = agent.hear().await else {
            panic!("it asks for a stop")
        };
        let failed = Reply::Failed {
            ask,
            why: Why::NoRun,
            text: "no\n".to_owned() + &"x".repeat(5000),
        };
        agent.reply(&failed).await;
    });
    let Err(Error::Refused(Why::NoRun, words)) = stopped else {
        panic!("{stopped:?}")
    };
    assert!(words.starts_with("no x") && words.len() == 1024, "{words}");
}

#[tokio::test]
async fn a_fetch_that_nobody_waits_for_is_taken_back_and_may_be_answered_once() {
    let (connection, mut agent) = joined("a").await;
    let mut fetch_it = Box::pin(connection.fetch(fetch(RUN, 0)));
    let ask = tokio::select! {
        _ = &mut fetch_it => panic!("nobody answers"),
        heard = agent.hear() => match heard {
            Heard::Request(Request::Fetch { ask, .. }) => ask,
            other => panic!("{other:?}"),
        },
    };
    drop(fetch_it);
    let heard = agent.hear().await;
    let Heard::Request(Request::Cancel { ask: cancelled }) = heard else {
        panic!("{heard:?}")
    };
    assert_eq!(cancelled, ask);
    let late = Output {
        ask,
        records: vec![record(0, 0, b"late")],
        ..Output::default()
    };
    agent.output(&late).await;
    let list = async {
        let Heard::Request(Request::List { ask }) = agent.hear().await else {
            panic!("it asks for a list")
        };
        let runs = Vec::new();
        agent.reply(&Reply::Runs { ask, runs }).await;
    };
    let (listed, ()) = tokio::join!(connection.list(), list);
    assert_eq!(listed.unwrap(), []);
    agent.output(&late).await;
    connection.closed().await;
}

#[tokio::test]
async fn a_start_that_nobody_waits_for_is_not_taken_back() {
    let (connection, mut agent) = joined("a").await;
    let mut starting = Box::pin(connection.start(start(RUN)));
    let ask = tokio::select! {
        _ = &mut starting => panic!("nobody answers"),
        heard = agent.hear() => match heard {
            Heard::Request(Request::Start { ask, .. }) => ask,
            other => panic!("{other:?}"),
        },
    };
    drop(starting);
    let started = Reply::Started {
        ask,
        run: run(RUN, None),
        fresh: true,
    };
    agent.reply(&started).await;
    let (listed, ()) = tokio::join!(connection.list(), async {
        let heard = agent.hear().await;
        let Heard::Request(Request::List { ask }) = heard else {
            panic!("nothing was taken back: {heard:?}")
        };
        let runs = Vec::new();
        agent.reply(&Reply::Runs { ask, runs }).await;
    });
    assert_eq!(listed.unwrap(), []);
}

#[tokio::test]
async fn input_goes_in_pieces_and_ends_with_the_last() {
    let (connection, mut agent) = joined("a").await;
    let text = vec![b'x'; INPUT_BYTES_MAX + 1];
    let run = run_id();
    let (given, pieces) = tokio::join!(connection.input(&run, &text, true), async {
        let mut pieces = Vec::new();
        while pieces.len() < 2 {
            let Heard::Input(input) = agent.hear().await else {
                panic!("it gives input")
            };
            agent.reply(&Reply::Done { ask: input.ask }).await;
            pieces.push((input.bytes.len(), input.ends));
        }
        pieces
    });
    given.unwrap();
    assert_eq!(pieces, [(INPUT_BYTES_MAX, false), (1, true)]);
}

#[tokio::test]
async fn a_request_beyond_a_frame_is_refused_and_the_stream_goes_on() {
    let (connection, _agent) = joined("a").await;
    let mut huge = start(RUN);
    huge.cwd = Some("x".repeat(FRAME_BYTES_MAX));
    let refused = connection.start(huge).await;
    assert!(
        matches!(refused, Err(Error::Refused(Why::Bad, _))),
        "{refused:?}"
    );
    assert!(!connection.is_closed());
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_reads_nothing_grows_no_memory_and_is_given_up() {
    let (connection, agent) = joined("a").await;
    let mut asked = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let connection = connection.clone();
        asked.spawn(async move {
            connection
                .input(&run_id(), &vec![0; INPUT_BYTES_MAX], false)
                .await
        });
    }
    for _ in 0..1000 {
        tokio::task::yield_now().await;
        assert!(connection.unwritten_bytes() <= (2 << 20) + 8);
    }
    while let Some(given) = asked.join_next().await {
        assert_eq!(given.unwrap(), Err(Error::Closed));
    }
    assert!(connection.is_closed());
    drop(agent);
}

#[tokio::test]
async fn whoever_waits_is_told_when_the_stream_ends_and_so_is_whoever_asks_later() {
    let (connection, agent) = joined("a").await;
    let clone = connection.clone();
    let waiting = tokio::spawn(async move { clone.fetch(fetch(RUN, 0)).await });
    drop(agent);
    assert_eq!(waiting.await.unwrap(), Err(Error::Closed));
    connection.closed().await;
    assert_eq!(connection.list().await, Err(Error::Closed));
}

#[tokio::test]
async fn a_stream_closes_with_its_last_clone() {
    let (connection, mut agent) = joined("a").await;
    drop(connection);
    assert!(matches!(agent.hear().await, Heard::End));
}

#[tokio::test]
async fn only_an_introduction_in_our_language_opens_a_stream() {
    let mut old = hello();
    old.version = 99;
    let error = opened_with(&replied(&Reply::Hello(old))).await.unwrap_err();
    assert!(error.to_string().contains("speaks version 99"), "{error}");
    let mut odd = hello();
    odd.life = "x\n".to_owned();
    assert!(opened_with(&replied(&Reply::Hello(odd))).await.is_err());
    assert!(
        opened_with(&replied(&Reply::Done { ask: 0 }))
            .await
            .is_err()
    );
    assert!(opened_with(b"GET / HTTP/1.1\r\n\r\n").await.is_err());
    let opened = opened_with(&replied(&Reply::Hello(hello()))).await;
    assert_eq!(opened.unwrap().hello(), &hello());
}

#[tokio::test(start_paused = true)]
async fn who_does_not_introduce_itself_in_time_is_not_waited_for() {
    let (ours, _theirs) = tokio::io::duplex(1 << 16);
    let opened = Connection::open(ours, &session("a"), bounds()).await;
    assert!(matches!(opened, Err(NoAgent::Late)), "{opened:?}");
}
