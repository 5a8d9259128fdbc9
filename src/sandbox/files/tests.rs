//! Whatever a clerk says, it harms its own answer and nothing else.

use tokio::sync::mpsc;

use super::*;
use crate::agent::protocol::files::{self, Entry, Meta, Page, Tag, Trouble};
use crate::agent::protocol::message::{Reply, Request};
use crate::agent::protocol::output::Output;
use crate::agent::testing::{Heard, Scripted, exited, joined, record, run};
use crate::workspace::search::Hidden;
use crate::workspace::{Bounds, Family, Window};

const WINDOW: Window = Window {
    offset: 0,
    limit: 10,
};
const BOUNDS: Bounds = Bounds {
    text_bytes_max: 1000,
    scan_bytes_max: 1 << 30,
};

fn meta(size: u64) -> Say {
    Say::Meta(Meta {
        kind: files::Kind::File,
        mode: 0o644,
        uid: 0,
        gid: 0,
        tag: tag(size),
    })
}

fn tag(size: u64) -> Tag {
    Tag {
        device: 1,
        inode: 2,
        size,
        modified_secs: 0,
        modified_nanos: 0,
        changed_secs: 0,
        changed_nanos: 0,
    }
}

fn entry(path: &str) -> Say {
    Say::Entry(Entry {
        path: path.as_bytes().to_vec(),
        kind: files::Kind::File,
        size: 0,
        target: None,
    })
}

fn bytes(count: usize) -> Say {
    Say::Bytes(vec![b'x'; count])
}

/// Says the same to every request that is answered, as bytes, and ends with its input.
async fn serve(mut agent: Scripted, mut answer: impl FnMut(&Ask) -> Vec<u8>) {
    let (mut decoder, mut ready, mut waiting) = (Decoder::default(), Vec::new(), None);
    let (mut seq, mut offset, mut is_over) = (0, 0, false);
    let mut id = String::new();
    loop {
        match agent.hear().await {
            Heard::End => return,
            Heard::Input(input) => {
                decoder.push(&input.bytes);
                while let Some(ask) = decoder.next_as(Ask::parse).unwrap() {
                    ready.extend(answer(&ask));
                }
                is_over |= input.ends;
                agent.reply(&Reply::Done { ask: input.ask }).await;
            }
            Heard::Request(Request::Start { ask, start }) => {
                id.clone_from(&start.run);
                let mut run = run(&start.run, None);
                run.digest = start.digest;
                let fresh = true;
                agent.reply(&Reply::Started { ask, run, fresh }).await;
            }
            Heard::Request(Request::Fetch { ask, .. }) => waiting = Some(ask),
            Heard::Request(Request::Cancel { .. }) => waiting = None,
            Heard::Request(Request::Stop { ask, .. }) => {
                is_over = true;
                agent.reply(&Reply::Done { ask }).await;
            }
            Heard::Request(Request::Forget { ask, .. }) => agent.reply(&Reply::Done { ask }).await,
            Heard::Request(other) => panic!("{other:?}"),
        }
        if let Some(ask) = waiting.filter(|_| is_over || !ready.is_empty()) {
            let piece: Vec<u8> = ready.drain(..ready.len().min(30_000)).collect();
            let mut output = Output {
                ask,
                ..Output::default()
            };
            if piece.is_empty() {
                let end = run(&id, Some(exited(0)));
                output.end = Some(serde_json::to_vec(&end).unwrap());
            } else {
                let length = u64::try_from(piece.len()).unwrap();
                output.records = vec![record(seq, offset, &piece)];
                (seq, offset) = (seq + 1, offset + length);
            }
            agent.output(&output).await;
            waiting = None;
        }
    }
}

fn packed(said: &[Say]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for say in said {
        say.put(&mut bytes).unwrap();
    }
    bytes
}

async fn begun(connection: Connection) -> Clerk {
    let deadline = Instant::now() + Duration::from_mins(1);
    let large = Arc::new(Semaphore::new(1));
    let run = RunId::random();
    Clerk::begin(connection, &run, deadline, large)
        .await
        .unwrap()
}

/// Has a clerk that says this work on something.
async fn with<T>(
    said: impl FnMut(&Ask) -> Vec<u8> + Send + 'static,
    work: impl AsyncFnOnce(&mut Clerk) -> Told<T>,
) -> Told<T> {
    let (connection, agent) = joined("s").await;
    let serving = tokio::spawn(serve(agent, said));
    let mut clerk = begun(connection.clone()).await;
    let done = work(&mut clerk).await;
    clerk.end().await;
    assert!(!connection.is_closed(), "other runs go on");
    drop(connection);
    serving.await.unwrap();
    done
}

#[track_caller]
fn is_lost<T: std::fmt::Debug>(told: &Told<T>, what: &str) {
    assert!(matches!(told, Err(Failed::Lost(_))), "{what}: {told:?}");
}

#[tokio::test]
async fn a_reading_that_is_not_what_was_asked_for_is_given_up() {
    let truth = [meta(3), bytes(3), Say::Done];
    let told = with(
        move |ask| match ask {
            Ask::Open { .. } => packed(&truth[..1]),
            _ => packed(&truth[1..]),
        },
        async |clerk| clerk.whole(b"f", 100).await,
    );
    assert_eq!(told.await.unwrap(), (b"xxx".to_vec(), tag(3)));
    let lies: [(&str, Vec<Say>); 7] = [
        (
            "more than was asked for",
            vec![bytes(60), bytes(60), Say::Done],
        ),
        ("nothing again and again", vec![Say::Bytes(Vec::new())]),
        ("an entry", vec![entry("a")]),
        ("a page", vec![Say::Page(Page::Last)]),
        ("another meta", vec![meta(1)]),
        (
            "lines",
            vec![Say::Counted {
                lines: 1,
                whole: true,
            }],
        ),
        (
            "something left out",
            vec![Say::Left {
                path: Vec::new(),
                why: Trouble::Bad,
            }],
        ),
    ];
    for (what, lie) in lies {
        let told = with(
            move |ask| match ask {
                Ask::Open { .. } => packed(&[meta(3)]),
                _ => packed(&lie),
            },
            async |clerk| clerk.whole(b"f", 100).await,
        );
        is_lost(&told.await, what);
    }
    let length = [&2_000_000_u32.to_le_bytes()[..], &[4; 100]].concat();
    for garbage in [
        length,
        vec![0; 4],
        vec![1, 0, 0, 0, 99],
        vec![2, 0, 0, 0, 3, 9],
    ] {
        let told = with(
            move |_| garbage.clone(),
            async |clerk| clerk.whole(b"f", 100).await,
        );
        is_lost(&told.await, "no frames");
    }
}

#[tokio::test]
async fn a_file_that_was_small_when_it_was_opened_is_held_to_its_bound_all_the_same() {
    let told = with(
        |ask| match ask {
            Ask::Open { .. } => packed(&[meta(3)]),
            _ => packed(&[bytes(101), Say::Done]),
        },
        async |clerk| clerk.whole(b"f", 100).await,
    );
    let told = told.await;
    assert!(
        matches!(
            told,
            Err(Failed::File(FileError::TooLarge {
                bytes: 101,
                limit: 100
            }))
        ),
        "{told:?}"
    );
}

#[tokio::test]
async fn lines_are_bounded_whatever_is_said_of_them() {
    let lines = |said: Vec<Say>| {
        with(
            move |ask| match ask {
                Ask::Open { .. } => packed(&[meta(1 << 40)]),
                Ask::Range { .. } => {
                    let mut head: Vec<Say> = (0..16).map(|_| bytes(64 << 10)).collect();
                    head.push(Say::Done);
                    packed(&head)
                }
                _ => packed(&said),
            },
            async |clerk| clerk.lines(b"f", WINDOW, Family::Text, BOUNDS).await,
        )
    };
    let counted = |lines| Say::Counted { lines, whole: true };
    let told = lines(vec![Say::Bytes(b"a\nb\n".to_vec()), counted(2)]).await;
    assert!(told.is_ok(), "{told:?}");
    // A false count is the sandbox's own affair.
    let told = lines(vec![Say::Bytes(b"a\nb\n".to_vec()), counted(u64::MAX)]).await;
    assert!(told.is_ok(), "{told:?}");
    let told = lines(vec![bytes(1001), counted(1)]).await;
    let is_too_large = matches!(told, Err(Failed::File(FileError::TooLarge { .. })));
    assert!(is_too_large, "{told:?}");
    let ends = vec![Say::Bytes(vec![b'\n'; 60_000])];
    is_lost(&lines(ends).await, "more lines than were asked for");
    is_lost(&lines(vec![Say::Done]).await, "no count");
}

#[tokio::test]
async fn a_listing_or_a_walk_that_cannot_be_one_is_given_up() {
    let long = "n".repeat(300);
    let lies: [(&str, Vec<Say>); 5] = [
        ("a path", vec![entry("a/b")]),
        ("a name that no system has", vec![entry(&long)]),
        ("no page", vec![entry("a"); 1025]),
        ("more, and nothing", vec![Say::Page(Page::More)]),
        ("bytes", vec![bytes(1)]),
    ];
    for (what, lie) in lies {
        let said = packed(&lie);
        let told = with(
            move |ask| match ask {
                Ask::List { .. } => packed(&[Say::Done]),
                _ => said.clone(),
            },
            async |clerk| clerk.list(b"d", 10_000).await,
        );
        is_lost(&told.await, what);
    }
    let sought = Sought {
        root: b"d",
        hidden: Hidden::Searched,
        filter: None,
        entries: 2000,
    };
    for (what, lie) in [
        ("no page", vec![entry("a"); 1025]),
        ("more, and nothing", vec![Say::Page(Page::More)]),
        ("bytes", vec![bytes(1)]),
    ] {
        let said = packed(&lie);
        let told = with(
            move |ask| match ask {
                Ask::Walk { .. } => packed(&[Say::Done]),
                _ => said.clone(),
            },
            async |clerk| clerk.find(sought, &mut |_| true).await,
        );
        is_lost(&told.await, what);
    }
    // One that has no end is cut.
    let page = [vec![entry("a"); 1024], vec![Say::Page(Page::More)]].concat();
    let page = packed(&page);
    let told = with(
        move |ask| match ask {
            Ask::Walk { .. } => packed(&[Say::Done]),
            _ => page.clone(),
        },
        async |clerk| clerk.find(sought, &mut |_| true).await,
    );
    assert_eq!(
        told.await.unwrap(),
        Some(crate::workspace::search::Cut::Entries)
    );
}

/// Pours what a clerk finds, of which somebody takes so many pieces.
async fn poured(
    said: impl FnMut(&Ask) -> Vec<u8> + Send + 'static,
    pieces: usize,
) -> (Told<()>, Vec<String>) {
    let (to, mut from) = mpsc::channel(1);
    let taking = tokio::spawn(async move {
        let mut taken = Vec::new();
        while taken.len() < pieces
            && let Some(piece) = from.recv().await
        {
            taken.push(format!("{piece:?}"));
        }
        taken
    });
    let sought = Sought {
        root: b"d",
        hidden: Hidden::Searched,
        filter: None,
        entries: 2000,
    };
    let told = with(said, async move |clerk| clerk.pour(sought, &to).await).await;
    (told, taking.await.unwrap())
}

#[tokio::test]
async fn a_search_hands_on_what_it_finds_and_no_more_than_is_taken() {
    let mut is_open = false;
    let mut honest = move |ask: &Ask| match ask {
        Ask::Walk { .. } => packed(&[Say::Done]),
        Ask::More { .. } => packed(&[entry("a"), entry("b"), Say::Page(Page::Last)]),
        Ask::Open { path, .. } => {
            is_open = path == b"d/b";
            packed(&[if is_open {
                meta(2)
            } else {
                Say::Failed(Trouble::Special)
            }])
        }
        _ if is_open => packed(&[bytes(1), bytes(1), Say::Done]),
        _ => packed(&[Say::Failed(Trouble::Bad)]),
    };
    let (told, pieces) = poured(honest, usize::MAX).await;
    told.unwrap();
    let expected = [
        "Left([97], Special)",
        "File([98])",
        "Bytes([120])",
        "Bytes([120])",
        "End(Ok(()))",
    ];
    assert_eq!(pieces, expected);
    // Whoever has enough is not waited for.
    let (told, pieces) = poured(honest, 2).await;
    told.unwrap();
    assert_eq!(pieces, expected[..2]);
    let lie = move |ask: &Ask| match ask {
        Ask::Range { .. } => packed(&[bytes(1), entry("x")]),
        ask => honest(ask),
    };
    let (told, _) = poured(lie, usize::MAX).await;
    is_lost(&told, "an entry in the midst of a file");
}

#[tokio::test]
async fn an_agent_that_ends_at_once_was_never_begun() {
    let (connection, agent) = joined("s").await;
    let serving = tokio::spawn(serve(agent, |_| Vec::new()));
    let mut clerk = begun(connection).await;
    clerk.connection.input(&clerk.run, &[], true).await.unwrap();
    let told = clerk.kind(b"f").await;
    assert!(matches!(told, Err(Failed::NotBegun(_))), "{told:?}");
    clerk.end().await;
    serving.abort();
}

#[tokio::test(start_paused = true)]
async fn large_answers_wait_for_room_and_one_that_says_nothing_any_more_loses_its_own() {
    let said = |ask: &Ask| match ask {
        Ask::Open { .. } => packed(&[meta(3 << 20)]),
        // It never ends.
        _ => packed(&vec![bytes(64 << 10); 32]),
    };
    let large = Arc::new(Semaphore::new(1));
    let clerk = async || {
        let (connection, agent) = joined("s").await;
        let serving = tokio::spawn(serve(agent, said));
        let deadline = Instant::now() + Duration::from_hours(1);
        let large = Arc::clone(&large);
        let clerk = Clerk::begin(connection, &RunId::random(), deadline, large).await;
        (clerk.unwrap(), serving)
    };
    let (mut one, _serving) = clerk().await;
    let (mut other, _waiting) = clerk().await;
    let began = Instant::now();
    is_lost(&one.whole(b"f", 10 << 20).await, "silence");
    assert!(began.elapsed() < 2 * SILENCE_MAX);
    assert_eq!(large.available_permits(), 0);
    let waits = timeout(Duration::from_mins(10), other.whole(b"f", 10 << 20));
    assert!(waits.await.is_err(), "there is no room");
    drop(one);
    assert_eq!(large.available_permits(), 1);
}
