//! Fills the disk under a store.

use std::fs::File;
use std::io::Write as _;
use std::time::Duration;

use tempfile::{TempDir, tempdir};

use super::*;

/// A small file system in memory, for as long as the value lives.
struct SmallDisk(TempDir);

impl SmallDisk {
    fn mount() -> Self {
        let dir = tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=24m", "tmpfs"])
            .arg(dir.path())
            .status()
            .unwrap();
        assert!(
            mounted.success(),
            "this test mounts a tmpfs and needs the right to do so"
        );
        Self(dir)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Takes all the space that is left.
    fn fill(&self) {
        let mut filler = File::options()
            .create(true)
            .append(true)
            .open(self.path().join("filler"))
            .unwrap();
        while filler.write_all(&[1; 4_096]).is_ok() {}
    }

    fn free(&self) {
        fs::remove_file(self.path().join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}

async fn open_session(store: &Store, session: &str) -> Result<Committed, CommitError> {
    let mut record = record(session, 1);
    record.spec.runtime.description = "x".repeat(8_000);
    let batch = Batch::new()
        .put_record(record, Expect::Absent)
        .event(None, event(session));
    store.commit(batch).await
}

/// Waits for the store to heal by itself.
async fn healed(store: &Store) {
    let mut tries = 0;
    while store.health() != Health::Ok {
        tries += 1;
        assert!(tries < 200, "not healed: {:?}", store.health());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_full_disk_fails_commits_loses_nothing_and_heals_when_there_is_space() {
    let disk = SmallDisk::mount();
    let state = disk.path().join("state");
    let store = open_store(&state);
    assert_eq!(store.health(), Health::Ok);
    let mut acknowledged = Vec::new();
    let mut n = 0;
    let refused = loop {
        n += 1;
        assert!(n < 5_000, "the disk never filled");
        disk.fill();
        let session = format!("s{n}");
        match open_session(&store, &session).await {
            Ok(_) => acknowledged.push(session),
            Err(CommitError::NoSpace) => break session,
            Err(other) => panic!("{other:?}"),
        }
    };
    assert!(matches!(store.health(), Health::Full { .. }));
    assert!(!acknowledged.is_empty());
    assert_eq!(store.records().len(), acknowledged.len(), "reads go on");
    disk.free();
    healed(&store).await;
    assert!(state.join("ballast").exists(), "the reserve is there again");
    open_session(&store, "later").await.unwrap();
    store.close().await.unwrap();

    let store = open_store(&state);
    for session in &acknowledged {
        assert!(store.record(&id(session)).is_some(), "{session}");
    }
    assert!(store.record(&id("later")).is_some());
    assert_eq!(store.record(&id(&refused)), None);
    let events = store.events(None, 0, Page::Newest(2)).unwrap().events;
    let details: Vec<_> = events.iter().map(|(_, event)| &event.detail).collect();
    assert_eq!(details, [acknowledged.last().unwrap(), "later"]);
    store.close().await.unwrap();
}

#[tokio::test]
async fn the_reserve_lets_sessions_be_closed_on_a_full_disk() {
    let disk = SmallDisk::mount();
    let store = open_store(&disk.path().join("state"));
    for n in 0..100 {
        open_session(&store, &format!("s{n}")).await.unwrap();
    }
    disk.fill();
    for n in 0..100 {
        let forgotten = Batch::new().forget(&id(&format!("s{n}")));
        store.commit(forgotten).await.unwrap();
    }
    assert_eq!(store.records(), []);
    disk.free();
    healed(&store).await;
    store.close().await.unwrap();
}
