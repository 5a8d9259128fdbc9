//! Checks what callers may rely on of stored runs.

use tempfile::tempdir;

use super::*;

/// A store with the sessions `a` and `aa`, and a run of the first.
async fn a_store(dir: &Path) -> Store {
    let store = open_store(dir);
    let batch = Batch::new()
        .put_record(record("a", 1), Expect::Absent)
        .put_record(record("aa", 1), Expect::Absent)
        .put_run(&id("a"), run(1), ExpectRun::Absent);
    store.commit(batch).await.unwrap();
    store
}

fn ids(store: &Store, session: &str) -> Vec<RunId> {
    let runs = store.runs(&id(session)).into_iter();
    runs.map(|run| run.run_id.clone()).collect()
}

fn found(outcome: &Result<Committed, CommitError>) -> Option<RunFound> {
    match outcome {
        Err(CommitError::Conflict(Conflict::Run { found, .. })) => Some(*found),
        Err(_) | Ok(_) => None,
    }
}

#[tokio::test]
async fn a_run_is_acknowledged_only_after_it_is_flushed() {
    let dir = tempdir().unwrap();
    let store = a_store(&dir.path().join("state")).await;
    for n in 2..10 {
        let batch = Batch::new().put_run(&id("a"), run(n), ExpectRun::Absent);
        store.commit(batch).await.unwrap();
        if n % 2 == 0 {
            let batch = Batch::new().put_run(&id("a"), ended_run(n), ExpectRun::GoesOn);
            store.commit(batch).await.unwrap();
        }
        let crashed = dir.path().join(format!("crashed-{n}"));
        copy(&dir.path().join("state"), &crashed);
        let wanted = if n % 2 == 0 { ended_run(n) } else { run(n) };
        let found = open_store(&crashed).run(&id("a"), &wanted.run_id);
        assert_eq!(found.as_deref(), Some(&wanted));
    }
}

#[tokio::test]
async fn a_run_begins_once_and_ends_once() {
    let dir = tempdir().unwrap();
    let store = a_store(dir.path()).await;
    let a = id("a");
    let begin = |n| Batch::new().put_run(&a, run(n), ExpectRun::Absent);
    let end = |n| {
        Batch::new()
            .put_run(&a, ended_run(n), ExpectRun::GoesOn)
            .event(Some(&a), event("exit 3"))
    };
    assert_eq!(found(&store.commit(begin(1)).await), Some(RunFound::GoesOn));
    assert_eq!(found(&store.commit(end(2)).await), Some(RunFound::Absent));
    let ends = futures_util::future::join_all([1, 1, 1].map(|n| store.commit(end(n)))).await;
    let outcomes: Vec<_> = ends.iter().map(found).collect();
    assert_eq!(outcomes, [None, Some(RunFound::Over), Some(RunFound::Over)]);
    assert_eq!(found(&store.commit(begin(1)).await), Some(RunFound::Over));
    let page = store.events(Some(&a), 0, page_all()).unwrap();
    assert_eq!(page.latest_seq, 1, "its end is told once");
    let nowhere = Batch::new().put_run(&id("b"), run(1), ExpectRun::Absent);
    assert_eq!(
        found(&store.commit(nowhere).await),
        Some(RunFound::NoSession)
    );
}

#[tokio::test]
async fn a_forgotten_session_leaves_no_run_and_its_neighbour_keeps_its_own() {
    let dir = tempdir().unwrap();
    let store = a_store(dir.path()).await;
    let batch = Batch::new()
        .put_run(&id("aa"), run(1), ExpectRun::Absent)
        // In the same batch as what it removes.
        .put_run(&id("a"), run(2), ExpectRun::Absent)
        .forget(&id("a"));
    store.commit(batch).await.unwrap();
    store.close().await.unwrap();
    let store = open_store(dir.path());
    assert_eq!(ids(&store, "a"), []);
    assert_eq!(ids(&store, "aa"), [run(1).run_id]);
    assert_eq!(store.inventory().runs, [id("aa")].into());
    let batch = Batch::new().drop_run(&id("aa"), &run(1).run_id);
    store.commit(batch.clone()).await.unwrap();
    store.commit(batch).await.unwrap();
    assert_eq!(ids(&store, "aa"), []);
}

#[tokio::test]
async fn what_goes_on_and_what_is_long_over_are_told_apart() {
    let dir = tempdir().unwrap();
    let store = a_store(dir.path()).await;
    let batch = Batch::new()
        .put_run(&id("aa"), run(2), ExpectRun::Absent)
        .put_run(&id("aa"), ended_run(2), ExpectRun::GoesOn);
    store.commit(batch).await.unwrap();
    let going_on = store.runs_going_on().into_iter();
    let going_on: Vec<_> = going_on.map(|(id, run)| (id, run.run_id.clone())).collect();
    assert_eq!(going_on, [(id("a"), run(1).run_id)]);
    let noted_at = ended_run(2).ended.unwrap().noted_at;
    assert_eq!(store.runs_over_before(noted_at), []);
    let later = Timestamp::from_micros(noted_at.micros() + 1);
    assert_eq!(store.runs_over_before(later), [(id("aa"), run(2).run_id)]);
}

#[tokio::test]
async fn of_too_many_runs_the_oldest_that_are_over_go_and_none_that_goes_on() {
    let dir = tempdir().unwrap();
    let store = a_store(dir.path()).await;
    let most = u32::try_from(RUNS_PER_SESSION_MAX).unwrap();
    let batch = (2..=most).fold(Batch::new(), |batch, n| {
        batch.put_run(&id("a"), run(n), ExpectRun::Absent)
    });
    store.commit(batch).await.unwrap();
    for n in [7, 5, 9] {
        let batch = Batch::new().put_run(&id("a"), ended_run(n), ExpectRun::GoesOn);
        store.commit(batch).await.unwrap();
    }
    for n in 1..=2 {
        let batch = Batch::new().put_run(&id("a"), run(most + n), ExpectRun::Absent);
        store.commit(batch).await.unwrap();
    }
    let kept = |store: &Store| {
        let runs = [1, 5, 7, 9, most + 2].map(|n| store.run(&id("a"), &run(n).run_id));
        (store.runs(&id("a")).len(), runs.map(|run| run.is_some()))
    };
    let wanted = (RUNS_PER_SESSION_MAX, [true, false, false, true, true]);
    assert_eq!(kept(&store), wanted);
    store.close().await.unwrap();
    assert_eq!(kept(&open_store(dir.path())), wanted);
}

#[tokio::test]
async fn runs_are_listed_in_the_order_of_their_start() {
    let dir = tempdir().unwrap();
    let store = a_store(dir.path()).await;
    let early = StoredRun {
        started_at: Timestamp::from_secs(1),
        ..run(99)
    };
    let batch = Batch::new().put_run(&id("a"), early, ExpectRun::Absent);
    store.commit(batch).await.unwrap();
    assert_eq!(ids(&store, "a"), [run(99).run_id, run(1).run_id]);
}

#[tokio::test]
async fn a_database_that_lost_a_run_or_its_end_is_brought_back_or_refused() {
    let dir = tempdir().unwrap();
    let store = a_store(dir.path()).await;
    let batch = Batch::new().put_run(&id("a"), ended_run(1), ExpectRun::GoesOn);
    store.commit(batch).await.unwrap();
    store.close().await.unwrap();
    let database_dir = dir.path().join("store/v1");
    for before in [None, Some(run(1))] {
        let database = database::Database::open(&database_dir).unwrap();
        let mirror = database.load().unwrap().unwrap();
        let mut writes = writes::Writes::default();
        match &before {
            None => crate::store::runs::remove(&mut writes, &id("a"), &run(1).run_id),
            Some(before) => crate::store::runs::put(&mut writes, &id("a"), before).unwrap(),
        }
        let synced = writes::Durability::Synced;
        database.apply(&writes, synced).unwrap();
        assert_ne!(database.load().unwrap().unwrap(), mirror);
        database.close();
        let outcome = Store::open(&options(dir.path()));
        assert!(matches!(outcome, Err(OpenError::Corrupt { .. })));
        let database = database::Database::open(&database_dir).unwrap();
        restore::restore(&database, &mirror, Timestamp::ZERO).unwrap();
        assert_eq!(database.load().unwrap().unwrap(), mirror);
        database.close();
        let store = open_store(dir.path());
        let found = store.run(&id("a"), &run(1).run_id);
        assert_eq!(found.as_deref(), Some(&ended_run(1)));
        store.close().await.unwrap();
    }
}
