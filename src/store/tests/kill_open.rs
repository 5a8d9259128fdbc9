//! Kills a process while it opens the store, where the engine below writes snapshots.
#![expect(clippy::print_stdout, reason = "a test tells its seed and what it met")]

use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use tempfile::tempdir;
use tokio::time::Instant;

use super::flips::{Dice, whole};
use super::*;

const DIR_VARIABLE: &str = "SANDBOXD_TEST_STORE_DIR";
/// Kills of the ordinary suite, and of the full size.
const ROUNDS: [u64; 2] = [60, 500];
/// Records that are there throughout.
const ROWS: u64 = 2_000;
/// By when an opening process has begun to write a snapshot, or never does.
const SNAPSHOT_WAIT_MAX: Duration = Duration::from_millis(500);

fn opener(dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "store::tests::kill_open::opens_until_it_is_killed",
            "--exact",
        ])
        .args(["--ignored", "--nocapture"])
        .env(DIR_VARIABLE, dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn is_writing_a_snapshot(database_dir: &Path) -> bool {
    let entries = fs::read_dir(database_dir).into_iter().flatten();
    let mut names = entries.flatten().map(|entry| entry.file_name());
    names.any(|name| name.to_string_lossy().ends_with(".generating"))
}

#[tokio::test]
async fn no_kill_during_an_open_or_its_snapshot_costs_a_row_or_the_store() {
    let mut dice = Dice::thrown();
    let dir = tempdir().unwrap();
    let store = open_store(dir.path());
    for n in 0..ROWS {
        let batch = Batch::new().put_record(record(&format!("s{n}"), 1), Expect::Absent);
        store.commit(batch).await.unwrap();
    }
    store.close().await.unwrap();
    let database_dir = dir.path().join("store/v1");
    let (mut n_aimed, mut n_left) = (0, 0);
    for round in 0..ROUNDS[usize::from(whole())] {
        let mut child = opener(dir.path());
        let began = Instant::now();
        if round % 2 == 0 {
            let span = Duration::from_micros(dice.below(60_000));
            while began.elapsed() < span {
                thread::yield_now();
            }
        } else {
            while began.elapsed() < SNAPSHOT_WAIT_MAX && !is_writing_a_snapshot(&database_dir) {
                thread::yield_now();
            }
            n_aimed += u64::from(is_writing_a_snapshot(&database_dir));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        n_left += u64::from(is_writing_a_snapshot(&database_dir));
        // The rows are looked at now and then only, so that kills meet what kills left.
        if round % 5 == 4 {
            let store = open_store(dir.path());
            let n_rows = store
                .records()
                .iter()
                .filter(|r| r.spec.id.as_str() != "more")
                .count();
            assert_eq!(u64::try_from(n_rows).unwrap(), ROWS, "round {round}");
            // A commit, so that the next open has something to recover.
            touch(&store, round).await;
            store.close().await.unwrap();
        }
    }
    println!("{n_aimed} kills hit a snapshot being written, {n_left} left one behind");
    assert_ne!(n_left, 0, "no kill hit a snapshot being written");
}

async fn touch(store: &Store, round: u64) {
    for n in 0..ROWS / 10 {
        let at = Timestamp::from_secs(1_700_000_100 + round);
        let batch = Batch::new().touch(&id(&format!("s{n}")), at);
        store.commit(batch).await.unwrap();
    }
}

/// The process that is killed; it opens the store again and again.
#[tokio::test]
#[ignore = "runs until it is killed, by the test above"]
async fn opens_until_it_is_killed() {
    #[expect(
        clippy::disallowed_methods,
        reason = "the test above tells it the directory"
    )]
    let dir = std::env::var(DIR_VARIABLE).unwrap();
    for round in 0.. {
        let store = open_store(Path::new(&dir));
        touch(&store, round).await;
        store.close().await.unwrap();
    }
}
