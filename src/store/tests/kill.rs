//! Kills a writing process at random moments and looks for what it was promised.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use tempfile::tempdir;

use super::*;

const DIR_VARIABLE: &str = "SANDBOXD_TEST_STORE_DIR";
const ROUNDS: u32 = 20;

fn random_millis(below: u64) -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).unwrap();
    u64::from_le_bytes(bytes) % below
}

/// Starts one of the tests below, kills it, and returns what it printed.
fn kill_after_a_while(test: &str, dir: &Path) -> Vec<String> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([&format!("store::tests::kill::{test}"), "--exact"])
        .args(["--ignored", "--nocapture"])
        .env(DIR_VARIABLE, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let reader = thread::spawn(move || -> Vec<String> {
        let lines = stdout.split(b'\n').map(Result::unwrap);
        lines
            .map(|line| String::from_utf8_lossy(&line).into_owned())
            .collect()
    });
    thread::sleep(Duration::from_millis(random_millis(250)));
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap()
}

#[expect(
    clippy::disallowed_methods,
    reason = "the test that starts this one tells it the directory"
)]
fn store_of_the_killer() -> Store {
    let dir = std::env::var(DIR_VARIABLE).unwrap();
    open_store(Path::new(&dir))
}

#[test]
fn everything_acknowledged_survives_a_kill_at_any_moment() {
    let dir = tempdir().unwrap();
    let mut acknowledged: Vec<(String, u64)> = Vec::new();
    for round in 0..ROUNDS {
        for line in kill_after_a_while("writes_until_it_is_killed", dir.path()) {
            // A line is whole if it has all three words and the full stop.
            if let ["acknowledged", session, seq, "."] = *line.split(' ').collect::<Vec<_>>() {
                acknowledged.push((session.to_owned(), seq.parse().unwrap()));
            }
        }
        let store = open_store(dir.path());
        let latest = store.events(None, 0, Page::Newest(1)).unwrap().latest_seq;
        for (session, seq) in &acknowledged {
            assert!(
                store.record(&id(session)).is_some(),
                "round {round}: {session}"
            );
            assert!(*seq <= latest, "round {round}: event {seq} of {latest}");
        }
        let n_records = u64::try_from(store.records().len()).unwrap();
        assert_eq!(n_records, latest, "each batch was applied whole");
    }
    assert!(!acknowledged.is_empty(), "no round lasted long enough");
}

/// The process that is killed.
#[tokio::test]
#[ignore = "runs until it is killed, by the test above"]
async fn writes_until_it_is_killed() {
    let store = store_of_the_killer();
    let write = async || {
        loop {
            let session = SessionId::random();
            let mut record = record(session.as_str(), 1);
            record.spec.order = store.next_order();
            let batch = Batch::new()
                .put_record(record, Expect::Absent)
                .event(None, event("opened"));
            let committed = store.commit(batch).await.unwrap();
            let seq = committed.seqs[0].unwrap();
            let line = format!("acknowledged {session} {seq} .\n");
            std::io::stdout().write_all(line.as_bytes()).unwrap();
        }
    };
    tokio::join!(write(), write(), write(), write());
}

#[test]
fn an_event_that_was_jotted_survives_a_kill_at_any_moment_and_comes_once() {
    let dir = tempdir().unwrap();
    let mut n_jotted = 0;
    for round in 0..ROUNDS {
        for line in kill_after_a_while("jots_until_it_is_killed", dir.path()) {
            if let ["jotted", n, "."] = *line.split(' ').collect::<Vec<_>>() {
                n_jotted = n_jotted.max(n.parse().unwrap());
            }
        }
        let store = open_store(dir.path());
        let log = store.events(None, 0, Page::Newest(1)).unwrap();
        assert!(
            n_jotted <= log.latest_seq,
            "round {round}: {n_jotted} were jotted, {} are there",
            log.latest_seq
        );
        for (seq, event) in store.events(None, 0, page_all()).unwrap().events {
            assert_eq!(event.detail, seq.to_string(), "round {round}");
        }
    }
    assert!(n_jotted > 0, "no round lasted long enough");
}

/// The process that is killed.
#[tokio::test]
#[ignore = "runs until it is killed, by the test above"]
async fn jots_until_it_is_killed() {
    let store = store_of_the_killer();
    let mut n = *store.service_log_end().borrow();
    loop {
        n += 1;
        let batch = Batch::new().event(None, event(&n.to_string()));
        match store.jot(batch) {
            Ok(()) => {}
            // The queue is full.
            Err(batch) => drop(store.commit(batch).await.unwrap()),
        }
        let line = format!("jotted {n} .\n");
        std::io::stdout().write_all(line.as_bytes()).unwrap();
    }
}
