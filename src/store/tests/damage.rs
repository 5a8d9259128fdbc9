//! Damages stores, and checks that the damage is noticed and nothing is thrown away.

use std::fs::File;
use std::time::Duration;

use tempfile::{TempDir, tempdir};

use super::flips::digest;
use super::*;
use crate::session::record::Status;
use crate::store::database::Database;
use crate::store::mirror::Mirror;
use crate::store::restore::restore;
use crate::store::writes::{Durability, Writes};

const DIR_VARIABLE: &str = "SANDBOXD_TEST_PROBE_DIR";
const COMMITS_VARIABLE: &str = "SANDBOXD_TEST_PROBE_COMMITS";

/// Makes a closed store with a few records.
async fn a_store() -> TempDir {
    let dir = tempdir().unwrap();
    let store = open_store(dir.path());
    for n in 0..200 {
        let session = format!("s{n}");
        let batch = Batch::new()
            .put_record(record(&session, 1), Expect::Absent)
            .event(Some(&id(&session)), event("opened"));
        store.commit(batch).await.unwrap();
    }
    store.close().await.unwrap();
    dir
}

fn database_dir(dir: &Path) -> PathBuf {
    dir.join("store/v1")
}

/// A probe in a process of its own, which runs this test binary.
pub(super) fn child_probe(dir: &Path) -> Probe {
    let exe = std::env::current_exe().unwrap();
    let run = format!(
        "{DIR_VARIABLE}=\"$2\" {COMMITS_VARIABLE}=\"$3\" exec '{}' store::tests::damage::probes --exact --ignored --nocapture",
        exe.display()
    );
    Probe::Child(script(dir, &run))
}

/// The process that tries an open.
#[test]
#[ignore = "runs as the child of other tests"]
#[expect(
    clippy::disallowed_methods,
    clippy::exit,
    clippy::print_stderr,
    reason = "it is a program, whose parent tells it what to do and reads how it ends"
)]
fn probes() {
    let [dir, commits] = [DIR_VARIABLE, COMMITS_VARIABLE].map(|name| std::env::var(name).unwrap());
    // As the program does, without what the harness makes of a failure.
    if let Err(error) = probe(Path::new(&dir), commits.parse().ok()) {
        eprintln!("{error}");
        std::process::exit(i32::from(error.exit_code()));
    }
}

fn remove_snapshots(dir: &Path) {
    for entry in fs::read_dir(database_dir(dir)).unwrap() {
        let path = entry.unwrap().path();
        if path
            .file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with("snap.")
        {
            fs::remove_file(path).unwrap();
        }
    }
}

#[tokio::test]
async fn a_half_written_snapshot_is_removed() {
    let dir = a_store().await;
    // What recovery was writing when it was killed: a name ahead of all others.
    let partial = database_dir(dir.path()).join("snap.00000000FFFFFFFF.generating");
    fs::write(&partial, [0; 20]).unwrap();
    let store = open_store(dir.path());
    assert!(!partial.exists());
    assert_eq!(store.records().len(), 200);
}

#[tokio::test]
async fn a_cut_log_is_never_taken_for_an_empty_store() {
    for n_bytes in [0, 50, 100] {
        let dir = a_store().await;
        remove_snapshots(dir.path());
        let log = File::options()
            .write(true)
            .open(database_dir(dir.path()).join("db"))
            .unwrap();
        log.set_len(n_bytes).unwrap();
        drop(log);
        let mut options = options(dir.path());
        options.probe = child_probe(dir.path());
        options.probe_deadline = Duration::from_secs(20);
        let outcome = Store::open(&options);
        assert!(
            matches!(&outcome, Err(OpenError::Corrupt { .. })),
            "cut to {n_bytes}: {outcome:?}"
        );
        let again = Store::open(&options);
        assert!(matches!(again, Err(OpenError::Corrupt { .. })));
    }
}

#[tokio::test]
async fn a_log_that_was_cut_is_noticed_wherever_it_is_cut() {
    let dir = a_store().await;
    let log = database_dir(dir.path()).join("db");
    let whole = fs::read(&log).unwrap();
    for part in 1..=19 {
        remove_snapshots(dir.path());
        let cut = &whole[..whole.len() * part / 20];
        fs::write(&log, cut).unwrap();
        let outcome = Store::open(&options(dir.path()));
        assert!(
            matches!(&outcome, Err(OpenError::Corrupt { .. })),
            "{part} twentieths: {outcome:?}"
        );
    }
    remove_snapshots(dir.path());
    fs::write(&log, &whole).unwrap();
    assert_eq!(open_store(dir.path()).records().len(), 200);
}

#[tokio::test]
async fn a_store_that_lost_or_got_back_records_is_corrupt() {
    for (change, lost) in [(1, true), (2, false)] {
        let dir = a_store().await;
        let database = Database::open(&database_dir(dir.path())).unwrap();
        let mut writes = Writes::default();
        if lost {
            desired::remove(&mut writes, &id("s2"));
        } else {
            desired::put(&mut writes, &record("s2", 2)).unwrap();
        }
        database.apply(&writes, Durability::Synced).unwrap();
        database.close();
        for _ in 0..2 {
            match Store::open(&options(dir.path())) {
                Err(OpenError::Corrupt { why, .. }) => {
                    assert!(why.contains("should hold 200"), "{why}");
                }
                other => panic!("{change}: {other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn a_store_that_is_gone_is_never_taken_for_an_empty_one() {
    let dir = a_store().await;
    fs::rename(dir.path().join("store"), dir.path().join("elsewhere")).unwrap();
    let outcome = Store::open(&options(dir.path()));
    assert!(matches!(outcome, Err(OpenError::Corrupt { .. })));
}

#[tokio::test]
async fn a_corrupt_store_is_set_aside_under_its_date_and_the_instance_stays() {
    let dir = a_store().await;
    let instance = open_store(dir.path()).instance().clone();
    remove_snapshots(dir.path());
    fs::write(database_dir(dir.path()).join("db"), []).unwrap();
    let mut options = options(dir.path());
    options.on_corrupt = OnCorrupt::SetAside;
    options.clock = Clock::manual(Timestamp::from_secs(1_600_000_000));
    let store = Store::open(&options).unwrap();
    let aside = dir.path().join("store.corrupt-2020-09-13T12-26-40Z");
    assert_eq!(store.recovered(), Some(aside.as_path()));
    assert!(aside.join("v1/db").exists());
    assert_eq!(*store.instance(), instance);
    assert_eq!(store.records(), []);
    store.close().await.unwrap();
    let store = open_store(dir.path());
    assert_eq!(store.recovered(), None);
    // A process that ended before it had made the records anew begins again.
    let rebuilt = store.rebuilt().expect("nobody has made its records anew");
    assert!(!rebuilt.files_read && !rebuilt.containers_read && !rebuilt.confirmed);
    assert_eq!(rebuilt.set_aside, aside.display().to_string());
    for progress in [
        Progress::FilesRead,
        Progress::ContainersRead,
        Progress::Confirmed,
    ] {
        assert!(store.rebuilt().is_some());
        store.commit(Batch::new().rebuild(progress)).await.unwrap();
    }
    assert_eq!(store.rebuilt(), None);
    assert!(!store.is_unconfirmed());
}

#[tokio::test]
async fn whatever_stands_in_the_place_of_a_store_is_set_aside() {
    for rubbish in ["file", "link", "log is a directory", "nothing"] {
        let dir = a_store().await;
        let store = dir.path().join("store");
        fs::rename(&store, dir.path().join("elsewhere")).unwrap();
        match rubbish {
            "file" => fs::write(&store, "rubbish").unwrap(),
            "link" => std::os::unix::fs::symlink("/nonexistent", &store).unwrap(),
            "log is a directory" => fs::create_dir_all(store.join("v1/db")).unwrap(),
            _ => {}
        }
        let mut options = options(dir.path());
        options.on_corrupt = OnCorrupt::SetAside;
        let opened = Store::open(&options).unwrap();
        assert!(opened.is_unconfirmed(), "{rubbish}");
        let aside = opened.recovered().unwrap();
        assert!(fs::symlink_metadata(aside).is_ok(), "{rubbish}");
    }
}

#[tokio::test]
async fn a_store_whose_marker_was_never_written_is_kept() {
    let dir = a_store().await;
    let instance = open_store(dir.path()).instance().clone();
    fs::remove_file(dir.path().join("initialised")).unwrap();
    let store = open_store(dir.path());
    assert_eq!(store.records().len(), 200);
    assert_eq!(*store.instance(), instance);
    assert!(dir.path().join("initialised").exists());
}

#[tokio::test]
async fn a_corrupt_store_that_nobody_relied_on_makes_way_by_itself() {
    let dir = a_store().await;
    fs::remove_file(dir.path().join("initialised")).unwrap();
    let mut options = options(dir.path());
    options.probe = Probe::Child(script(dir.path(), "exit 65"));
    let store = Store::open(&options).unwrap();
    assert_eq!(store.records(), []);
    assert!(store.recovered().unwrap().join("v1/db").exists());
}

#[tokio::test]
async fn the_store_of_another_state_directory_is_refused() {
    let ours = a_store().await;
    let theirs = a_store().await;
    fs::rename(ours.path().join("store"), ours.path().join("elsewhere")).unwrap();
    fs::rename(theirs.path().join("store"), ours.path().join("store")).unwrap();
    let mut options = options(ours.path());
    options.on_corrupt = OnCorrupt::SetAside;
    let outcome = Store::open(&options);
    assert!(matches!(outcome, Err(OpenError::Foreign { .. })));
    assert!(ours.path().join("store/v1/db").exists());
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_left_alone() {
    let dir = a_store().await;
    let database = Database::open(&database_dir(dir.path())).unwrap();
    let mut writes = Writes::default();
    meta::put_schema(&mut writes, SCHEMA + 1);
    database.apply(&writes, Durability::Synced).unwrap();
    database.close();
    let mut options = options(dir.path());
    options.on_corrupt = OnCorrupt::SetAside;
    options.probe = child_probe(dir.path());
    let before = digest(&database_dir(dir.path()));
    let outcome = Store::open(&options);
    assert!(matches!(outcome, Err(OpenError::NewerSchema { found: 2 })));
    assert!(
        digest(&database_dir(dir.path())) == before,
        "it was changed"
    );
}

#[tokio::test]
async fn an_open_that_hangs_is_given_up_before_it_reaches_this_process() {
    let dir = a_store().await;
    let mut options = options(dir.path());
    options.probe = Probe::Child(script(dir.path(), "exec sleep 1000"));
    options.probe_deadline = Duration::from_millis(100);
    match Store::open(&options) {
        Err(OpenError::Corrupt { why, .. }) => assert!(why.contains("hung"), "{why}"),
        other => panic!("{other:?}"),
    }
    options.probe = child_probe(dir.path());
    options.probe_deadline = Duration::from_secs(20);
    assert_eq!(Store::open(&options).unwrap().records().len(), 200);
}

#[tokio::test]
async fn a_probe_that_says_nothing_about_the_store_sets_nothing_aside() {
    let dir = a_store().await;
    let mut options = options(dir.path());
    options.on_corrupt = OnCorrupt::SetAside;
    options.probe_deadline = Duration::from_secs(2);
    for body in ["exit 2", "exit 74", "kill -9 $$", "kill -STOP $$"] {
        options.probe = Probe::Child(script(dir.path(), body));
        let outcome = Store::open(&options);
        assert!(matches!(outcome, Err(OpenError::Engine { .. })), "{body}");
    }
    options.probe = Probe::Child(script(dir.path(), "exit 73"));
    assert!(matches!(Store::open(&options), Err(OpenError::NoSpace)));
    options.probe = Probe::Child(dir.path().join("missing"));
    let outcome = Store::open(&options);
    assert!(matches!(outcome, Err(OpenError::Engine { .. })));
    assert!(dir.path().join("store/v1/db").exists());
}

#[tokio::test]
async fn a_reopened_database_is_brought_back_to_what_was_acknowledged() {
    let dir = a_store().await;
    let database = Database::open(&database_dir(dir.path())).unwrap();
    let mirror = database.load().unwrap().unwrap();
    // What a failed group may leave behind: more, less and other than the mirror has.
    let mut writes = Writes::default();
    desired::put(&mut writes, &record("never", 1)).unwrap();
    desired::put(&mut writes, &record("s1", 2)).unwrap();
    desired::remove(&mut writes, &id("s2"));
    status::put(&mut writes, &id("s1"), &Status::default()).unwrap();
    events::put(&mut writes, Some(&id("s1")), 2, &event("never")).unwrap();
    events::put(&mut writes, Some(&id("never")), 1, &event("never")).unwrap();
    events::put(&mut writes, None, 1, &event("never")).unwrap();
    database.apply(&writes, Durability::Synced).unwrap();
    let changes = restore(&database, &mirror, Timestamp::ZERO).unwrap();
    let mut adjusted = mirror.clone();
    adjusted.absorb(changes);
    assert_eq!(adjusted, mirror);
    assert_eq!(database.load().unwrap(), Some(mirror));
}

#[tokio::test]
async fn a_lost_event_is_told_and_its_number_is_not_given_again() {
    let dir = a_store().await;
    let database = Database::open(&database_dir(dir.path())).unwrap();
    let mirror = database.load().unwrap().unwrap();
    let mut writes = Writes::default();
    events::remove(&mut writes, Some(&id("s1")), 1);
    database.apply(&writes, Durability::Synced).unwrap();
    let mut adjusted: Mirror = mirror.clone();
    adjusted.absorb(restore(&database, &mirror, Timestamp::ZERO).unwrap());
    let span = adjusted.logs[&Some(id("s1"))];
    assert_eq!((span.first, span.latest), (2, 2));
    assert_eq!(database.load().unwrap(), Some(adjusted));
}
