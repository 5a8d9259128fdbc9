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

#[test]
fn everything_acknowledged_survives_a_kill_at_any_moment() {
    let dir = tempdir().unwrap();
    let mut acknowledged: Vec<(String, u64)> = Vec::new();
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["store::tests::kill::writes_until_it_is_killed", "--exact"])
            .args(["--ignored", "--nocapture"])
            .env(DIR_VARIABLE, dir.path())
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
        for line in reader.join().unwrap() {
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
    #[expect(
        clippy::disallowed_methods,
        reason = "the test above tells it the directory"
    )]
    let dir = std::env::var(DIR_VARIABLE).unwrap();
    let store = open_store(Path::new(&dir));
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
