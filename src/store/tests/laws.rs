//! Checks what callers may rely on while nothing goes wrong.

use std::process;

use futures_util::future::join_all;
use tempfile::tempdir;

use super::*;
use crate::session::record::Status;

fn seqs(page: &EventPage) -> Vec<u64> {
    page.events.iter().map(|(seq, _)| *seq).collect()
}

fn opened(session: &str) -> Batch {
    Batch::new().put_record(record(session, 1), Expect::Absent)
}

#[tokio::test]
async fn an_intent_is_acknowledged_only_after_it_is_flushed() {
    let dir = tempdir().unwrap();
    let store = open_store(&dir.path().join("state"));
    for n in 0..10 {
        let session = format!("s{n}");
        store.commit(opened(&session)).await.unwrap();
        let crashed = dir.path().join(format!("crashed-{n}"));
        copy(&dir.path().join("state"), &crashed);
        let found = open_store(&crashed).record(&id(&session));
        assert_eq!(found.as_deref(), Some(&record(&session, 1)));
    }
}

#[tokio::test]
async fn an_event_is_acknowledged_only_after_it_is_flushed() {
    let dir = tempdir().unwrap();
    let store = open_store(&dir.path().join("state"));
    for n in 1..=10 {
        store
            .commit(Batch::new().event(None, event("exit 0")))
            .await
            .unwrap();
        let crashed = dir.path().join(format!("crashed-{n}"));
        copy(&dir.path().join("state"), &crashed);
        let page = open_store(&crashed).events(None, 0, page_all()).unwrap();
        assert_eq!(page.latest_seq, n);
    }
}

#[tokio::test]
async fn batches_that_share_a_flush_are_applied_in_the_order_of_the_queue() {
    let dir = tempdir().unwrap();
    let store = open_store(dir.path());
    // As many as one task may send before the runtime makes it yield.
    let batches = (0..100_u64).map(|n| {
        let batch = match n {
            0 => opened("a"),
            n => Batch::new().put_record(record("a", n + 1), Expect::Generation(n)),
        };
        store.commit(batch.event(Some(&id("a")), event(&n.to_string())))
    });
    let committed: Vec<_> = join_all(batches).await;
    for (n, committed) in (1..).zip(&committed) {
        assert_eq!(committed.as_ref().unwrap().seqs, [Some(n)]);
    }
    store.close().await.unwrap();
    let store = open_store(dir.path());
    assert_eq!(store.record(&id("a")).unwrap().marks.generation, 100);
    let page = store.events(Some(&id("a")), 0, page_all()).unwrap();
    let details: Vec<_> = page.events.iter().map(|(_, e)| e.detail.clone()).collect();
    assert_eq!(details, (0..100).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_conflict_leaves_nothing_of_its_batch_and_all_of_its_neighbours() {
    let dir = tempdir().unwrap();
    let store = open_store(dir.path());
    store.commit(opened("a")).await.unwrap();
    let refused = Batch::new()
        .event(Some(&id("a")), event("refused"))
        .put_status(&id("a"), Status::default())
        .put_record(record("b", 1), Expect::Absent)
        .put_record(record("a", 9), Expect::Generation(8));
    let mut outcomes = join_all([
        store.commit(opened("before")),
        store.commit(refused),
        store.commit(opened("after")),
    ])
    .await;
    assert!(outcomes.remove(0).is_ok());
    assert!(matches!(
        outcomes.remove(0),
        Err(CommitError::Conflict(Conflict::Changed {
            expected: 8,
            found: 1,
            ..
        }))
    ));
    assert!(outcomes.remove(0).is_ok());
    store.close().await.unwrap();
    let reopened = open_store(dir.path());
    for store in [store, reopened.clone()] {
        assert_eq!(store.record(&id("a")).unwrap().marks.generation, 1);
        assert_eq!(store.record(&id("b")), None);
        assert_eq!(store.status(&id("a")), None);
        assert!(store.record(&id("before")).is_some() && store.record(&id("after")).is_some());
    }
    let page = reopened.events(Some(&id("a")), 0, page_all()).unwrap();
    assert_eq!(page.latest_seq, 0);
}

#[tokio::test]
async fn what_a_batch_expects_is_checked() {
    let dir = tempdir().unwrap();
    let store = open_store(dir.path());
    store.commit(opened("a")).await.unwrap();
    let refusals = [
        (record("a", 2), Expect::Absent),
        (record("b", 2), Expect::Generation(1)),
        (record("a", 3), Expect::Generation(2)),
        (record("a", 1), Expect::Generation(1)),
    ];
    let mut conflicts = Vec::new();
    for (record, expect) in refusals {
        let batch = Batch::new().put_record(record, expect);
        match store.commit(batch).await {
            Err(CommitError::Conflict(conflict)) => conflicts.push(conflict),
            other => panic!("{other:?}"),
        }
    }
    let (a, b) = (id("a"), id("b"));
    assert_eq!(
        conflicts,
        [
            Conflict::Exists {
                id: a.clone(),
                found: 1
            },
            Conflict::Missing { id: b, expected: 1 },
            Conflict::Changed {
                id: a.clone(),
                expected: 2,
                found: 1
            },
            Conflict::NotRaised {
                id: a,
                expected: 1,
                new: 1
            },
        ]
    );
}

#[tokio::test]
async fn a_touch_moves_the_last_use_and_no_generation() {
    let dir = tempdir().unwrap();
    let store = open_store(dir.path());
    store.commit(opened("a")).await.unwrap();
    let now = Timestamp::from_secs(1_800_000_000);
    let batch = Batch::new().touch(&id("a"), now).touch(&id("gone"), now);
    store.commit(batch).await.unwrap();
    let mut expected = record("a", 1);
    expected.marks.last_used = now;
    assert_eq!(store.records(), [std::sync::Arc::new(expected)]);
}

#[tokio::test]
async fn a_forgotten_session_leaves_nothing_and_takes_nothing_new() {
    let dir = tempdir().unwrap();
    let store = open_store(dir.path());
    let a = id("a");
    let batch = opened("a")
        .put_status(&a, Status::default())
        .event(Some(&a), event("one"))
        .event(Some(&a), event("two"));
    store.commit(batch).await.unwrap();
    store.commit(Batch::new().forget(&a)).await.unwrap();
    let late = Batch::new()
        .put_status(&a, Status::default())
        .event(Some(&a), event("late"));
    assert_eq!(store.commit(late).await.unwrap().seqs, [None]);
    store.close().await.unwrap();
    let store = open_store(dir.path());
    assert_eq!((store.record(&a), store.status(&a)), (None, None));
    let again = opened("a").event(Some(&a), event("one"));
    assert_eq!(store.commit(again).await.unwrap().seqs, [Some(1)]);
    let page = store.events(Some(&a), 0, page_all()).unwrap();
    assert_eq!(seqs(&page), [1]);
}

#[tokio::test]
async fn events_are_numbered_without_gaps_and_the_oldest_go_first() {
    let dir = tempdir().unwrap();
    let mut options = options(dir.path());
    options.events_per_session_max = 5;
    let store = Store::open(&options).unwrap();
    let a = id("a");
    store.commit(opened("a")).await.unwrap();
    for n in 1..=12_u64 {
        let batch = Batch::new().event(Some(&a), event(&n.to_string()));
        assert_eq!(store.commit(batch).await.unwrap().seqs, [Some(n)]);
    }
    store.close().await.unwrap();
    let store = Store::open(&options).unwrap();
    let read = |after, page| store.events(Some(&a), after, page).unwrap();
    let all = read(0, page_all());
    assert_eq!((all.first_seq, all.latest_seq), (8, 12));
    assert_eq!(seqs(&all), [8, 9, 10, 11, 12]);
    assert_eq!(seqs(&read(0, Page::Newest(2))), [11, 12]);
    assert_eq!(seqs(&read(9, Page::Oldest(2))), [10, 11]);
    assert_eq!(seqs(&read(11, Page::Newest(9))), [12]);
    assert_eq!(seqs(&read(12, page_all())), Vec::<u64>::new());
    assert_eq!(seqs(&read(u64::MAX, page_all())), Vec::<u64>::new());
    let batch = Batch::new().event(Some(&a), event("13"));
    assert_eq!(store.commit(batch).await.unwrap().seqs, [Some(13)]);
}

#[tokio::test]
async fn who_waits_for_the_service_s_log_to_grow_is_told_of_its_end_and_of_no_other() {
    let dir = tempdir().unwrap();
    let store = open_store(dir.path());
    let mut end = store.service_log_end();
    assert_eq!(*end.borrow(), 0);
    let commit = |batch: Batch| store.commit(batch);
    commit(Batch::new().event(None, event("a"))).await.unwrap();
    assert_eq!(*end.wait_for(|end| 0 < *end).await.unwrap(), 1);
    commit(opened("a").event(Some(&id("a")), event("b")))
        .await
        .unwrap();
    assert!(!end.has_changed().unwrap(), "that is another log");
    drop(store);
    // What is in the log at the start is no news.
    let store = open_store(dir.path());
    assert_eq!(*store.service_log_end().borrow(), 1);
}

#[tokio::test]
async fn a_log_stays_apart_from_the_logs_of_its_neighbours() {
    let dir = tempdir().unwrap();
    let store = open_store(dir.path());
    // Ids of which one begins another, and the service log before all.
    for session in ["a", "a-", "a.b", "aa"] {
        let batch = opened(session)
            .event(Some(&id(session)), event(session))
            .event(None, event("service"));
        store.commit(batch).await.unwrap();
    }
    let forgotten = Batch::new().forget(&id("a"));
    store.commit(forgotten).await.unwrap();
    store.close().await.unwrap();
    let store = open_store(dir.path());
    for (session, expected) in [("a", 0), ("a-", 1), ("a.b", 1), ("aa", 1)] {
        let page = store.events(Some(&id(session)), 0, page_all()).unwrap();
        assert_eq!(page.latest_seq, expected, "{session}");
        assert!(page.events.iter().all(|(_, event)| event.detail == session));
    }
    let service = store.events(None, 0, page_all()).unwrap();
    assert_eq!(seqs(&service), [1, 2, 3, 4]);
}

#[tokio::test]
async fn a_page_of_large_events_is_cut_by_bytes_but_never_empty() {
    let dir = tempdir().unwrap();
    let store = open_store(dir.path());
    let large = "x".repeat(60 * 1024);
    for _ in 0..20 {
        let batch = Batch::new().event(None, event(&large));
        store.commit(batch).await.unwrap();
    }
    let page = store.events(None, 0, page_all()).unwrap();
    assert_eq!(seqs(&page), (1..=18).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_batch_that_cannot_be_stored_is_refused_whole() {
    let dir = tempdir().unwrap();
    let store = open_store(dir.path());
    let too_large = event(&"x".repeat(VALUE_BYTES_MAX));
    let outcome = store.commit(opened("a").event(None, too_large)).await;
    assert!(matches!(outcome, Err(CommitError::Value(_))));
    let too_many = (0..=BATCH_OPS_MAX).fold(opened("a"), |batch, _| batch.forget(&id("b")));
    let outcome = store.commit(too_many).await;
    assert!(matches!(outcome, Err(CommitError::TooManyOps { .. })));
    assert_eq!(store.records(), []);
}

#[tokio::test]
async fn records_are_listed_in_the_order_of_opening_and_no_place_is_given_twice() {
    let dir = tempdir().unwrap();
    let store = open_store(dir.path());
    for session in ["c", "a", "b"] {
        let mut record = record(session, 1);
        record.spec.order = store.next_order();
        let batch = Batch::new().put_record(record, Expect::Absent);
        store.commit(batch).await.unwrap();
    }
    store.commit(Batch::new().forget(&id("b"))).await.unwrap();
    store.close().await.unwrap();
    let store = open_store(dir.path());
    let ids: Vec<_> = store.records().iter().map(|r| r.spec.id.clone()).collect();
    assert_eq!(ids, [id("c"), id("a")]);
    assert_eq!(
        store.next_order(),
        4,
        "place 3 was that of a record now gone"
    );
}

#[tokio::test]
async fn a_second_open_of_a_state_directory_names_the_owner() {
    let dir = tempdir().unwrap();
    let store = open_store(dir.path());
    let error = Store::open(&options(dir.path())).unwrap_err();
    assert!(matches!(error, OpenError::Busy { pid: Some(pid) } if pid == process::id()));
    assert!(error.to_string().contains("belongs to a running sandboxd"));
    store.close().await.unwrap();
    drop(open_store(dir.path()));
}

#[tokio::test]
async fn a_closed_store_still_answers_reads_and_refuses_commits() {
    let dir = tempdir().unwrap();
    let store = open_store(dir.path());
    store.commit(opened("a")).await.unwrap();
    store.close().await.unwrap();
    store.close().await.unwrap();
    store.ended().await;
    let outcome = store.commit(opened("b")).await;
    assert!(matches!(outcome, Err(CommitError::Closed)));
    assert!(store.record(&id("a")).is_some());
}

#[tokio::test]
async fn a_close_commits_what_is_queued() {
    let dir = tempdir().unwrap();
    let store = open_store(dir.path());
    let commits = join_all((0..50).map(|_| store.commit(Batch::new().event(None, event("x")))));
    let (committed, closed) = tokio::join!(commits, store.close());
    closed.unwrap();
    assert!(committed.iter().all(Result::is_ok));
}

#[tokio::test]
async fn a_store_belongs_to_one_token_key_and_one_engine() {
    let dir = tempdir().unwrap();
    let store = open_store(dir.path());
    let instance = store.instance().clone();
    store.claim_key_id("k1").await.unwrap();
    assert_eq!(
        store.claim_engine_id("e1").await.unwrap(),
        EngineMatch::First
    );
    store.close().await.unwrap();
    let store = open_store(dir.path());
    assert_eq!(*store.instance(), instance);
    store.claim_key_id("k1").await.unwrap();
    assert!(matches!(
        store.claim_key_id("k2").await,
        Err(ClaimError::KeyMismatch { stored, .. }) if stored == "k1"
    ));
    assert_eq!(
        store.claim_engine_id("e1").await.unwrap(),
        EngineMatch::Same
    );
    let different = EngineMatch::Different {
        stored: "e1".to_owned(),
    };
    assert_eq!(store.claim_engine_id("e2").await.unwrap(), different);
    let accepted = Batch::new().put_engine_id("e2".to_owned());
    store.commit(accepted).await.unwrap();
    // One that was written without its data root takes the first that comes with it.
    for id in ["e2", "e2 in /here", "e2 in /here"] {
        let matched = store.claim_engine_id(id).await.unwrap();
        assert_eq!(matched, EngineMatch::Same, "{id}");
    }
    let different = EngineMatch::Different {
        stored: "e2 in /here".to_owned(),
    };
    for id in ["e2 in /there", "e2", "e20 in /here"] {
        assert_eq!(store.claim_engine_id(id).await.unwrap(), different, "{id}");
    }
}

#[test]
fn each_tree_has_one_owning_module() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store");
    let owners = [
        ("Tree::Meta", "meta.rs"),
        ("Tree::Desired", "desired.rs"),
        ("Tree::Status", "status.rs"),
        ("Tree::Events", "events.rs"),
        ("Tree::Runs", "runs.rs"),
    ];
    for entry in fs::read_dir(sources).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        // The database hands each tree its share of the writes.
        if path.is_dir() || name == "database.rs" {
            continue;
        }
        let source = fs::read_to_string(&path).unwrap();
        for (tree, owner) in owners {
            assert!(!source.contains(tree) || name == owner, "{tree} in {name}");
        }
    }
}

#[test]
fn the_state_directory_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempdir().unwrap();
    let state = dir.path().join("a/b");
    drop(open_store(&state));
    let mode = fs::metadata(&state).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[tokio::test]
async fn the_debug_text_of_a_store_shows_nothing_that_is_stored() {
    let dir = tempdir().unwrap();
    let store = open_store(dir.path());
    store.commit(opened("a")).await.unwrap();
    let text = format!("{store:?}");
    assert!(text.contains("n_records: 1"), "{text}");
    assert!(!text.contains(record("a", 1).spec.nonce.as_str()));
}

/// Not a law: tells what a commit costs, for whoever changes the committer.
#[tokio::test]
#[ignore = "measures"]
#[expect(clippy::print_stdout, reason = "the figures are what it is for")]
async fn what_a_commit_costs() {
    let dir = tempdir().unwrap();
    let store = open_store(dir.path());
    store
        .commit(Batch::new().put_record(record("a", 1), Expect::Absent))
        .await
        .unwrap();
    for (kind, n) in [("warm", 500_u64), ("intent", 4_000), ("event", 4_000)] {
        let mut took = Vec::new();
        for _ in 0..n {
            let generation = store.record(&id("a")).unwrap().marks.generation;
            let batch = match kind {
                "event" => Batch::new().event(None, event("x")),
                _ => Batch::new()
                    .put_record(record("a", generation + 1), Expect::Generation(generation)),
            };
            let began = tokio::time::Instant::now();
            store.commit(batch).await.unwrap();
            took.push(began.elapsed());
        }
        took.sort_unstable();
        let at = |share: usize| took[took.len() * share / 100].as_micros();
        println!(
            "{kind}: p50 {} us, p90 {} us, p99 {} us",
            at(50),
            at(90),
            at(99)
        );
    }
}
