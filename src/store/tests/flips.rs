//! Flips bits of a store and cuts its files, each time another place, and checks that
//! it then opens whole or is set aside, and never anything in between.
#![expect(clippy::print_stdout, reason = "a test tells its seed and what it met")]

use std::sync::Arc;
use std::time::Duration;

use tempfile::tempdir;
use tokio::time::Instant;

use super::damage::child_probe;
use super::*;

/// Damages of the ordinary suite, and of the full size.
const ROUNDS: [u64; 2] = [30, 200];
/// How long a trial open may take here.
const PROBE_MAX: Duration = Duration::from_secs(4);
/// What an open may take beside that, on a busy machine.
const SLACK: Duration = Duration::from_secs(20);

pub(super) fn whole() -> bool {
    #[expect(clippy::disallowed_methods, reason = "it tells the size of the test")]
    let size = std::env::var("SANDBOXD_FAULTS");
    size.is_ok_and(|size| size == "whole")
}

/// A sequence of numbers that a seed determines.
pub(super) struct Dice(u64);

impl Dice {
    /// Takes a random seed and prints it, or the one of `SANDBOXD_TEST_SEED`.
    pub(super) fn thrown() -> Self {
        #[expect(clippy::disallowed_methods, reason = "it replays a run")]
        let given = std::env::var("SANDBOXD_TEST_SEED");
        let seed = given.ok().map_or_else(
            || {
                let mut bytes = [0; 8];
                getrandom::fill(&mut bytes).unwrap();
                u64::from_le_bytes(bytes)
            },
            |text| text.parse().unwrap(),
        );
        println!("SANDBOXD_TEST_SEED={seed}");
        Self(seed)
    }

    /// Returns a number below `limit`, which is above 0.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}

/// Reads all files of a database.
pub(super) fn digest(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let mut files: Vec<_> = entries
        .filter(|entry| entry.path().is_file())
        .map(|entry| {
            (
                PathBuf::from(entry.file_name()),
                fs::read(entry.path()).unwrap(),
            )
        })
        .collect();
    files.sort();
    files
}

/// Damages one file of a database; says what was done.
fn damage(database_dir: &Path, dice: &mut Dice) -> String {
    let mut files: Vec<PathBuf> = fs::read_dir(database_dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file() && path.metadata().unwrap().len() != 0)
        .collect();
    files.sort();
    // The log is what counts, so it gets half of all damage.
    let log = database_dir.join("db");
    let path = if dice.below(2) == 0 {
        log
    } else {
        files[usize::try_from(dice.below(u64::try_from(files.len()).unwrap())).unwrap()].clone()
    };
    let mut bytes = fs::read(&path).unwrap();
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let place = usize::try_from(dice.below(u64::try_from(bytes.len()).unwrap())).unwrap();
    let done = match dice.below(4) {
        0 => {
            bytes.truncate(place);
            format!("{name} cut to {place}")
        }
        1 => {
            let end = bytes.len().min(place + 4_096);
            bytes[place..end].fill(0);
            format!("{name} zeroed from {place} to {end}")
        }
        _ => {
            bytes[place] ^= 1 << dice.below(8);
            format!("{name} flipped at {place}")
        }
    };
    fs::write(&path, bytes).unwrap();
    // Without its snapshot the engine reads the whole log.
    if dice.below(2) == 0 {
        for path in files {
            if path
                .file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with("snap.")
            {
                fs::remove_file(path).unwrap();
            }
        }
        return format!("{done}, and its snapshots removed");
    }
    done
}

type Rows = BTreeMap<SessionId, (Arc<Record>, Option<Arc<crate::session::Status>>)>;

fn rows(store: &Store) -> Rows {
    let row = |record: Arc<Record>| {
        let id = record.spec.id.clone();
        let status = store.status(&id);
        (id, (record, status))
    };
    store.records().into_iter().map(row).collect()
}

/// Makes a store as a kill leaves it, with records of several generations.
async fn a_killed_store() -> (tempfile::TempDir, Rows) {
    let dir = tempdir().unwrap();
    let mut store = open_store(dir.path());
    for n in 0..150_u64 {
        if n == 100 {
            // Only recovery writes a snapshot.
            store.close().await.unwrap();
            store = open_store(dir.path());
        }
        let session = format!("s{n}");
        let batch = Batch::new()
            .put_record(record(&session, 1), Expect::Absent)
            .event(Some(&id(&session)), event("opened"));
        store.commit(batch).await.unwrap();
        if n % 3 == 0 {
            let next = Batch::new().put_record(record(&session, 2), Expect::Generation(1));
            store.commit(next).await.unwrap();
        }
        if n % 10 == 0 {
            store
                .commit(Batch::new().forget(&id(&session)))
                .await
                .unwrap();
        }
    }
    let rows = rows(&store);
    let left = tempdir().unwrap();
    copy(dir.path(), left.path());
    store.close().await.unwrap();
    (left, rows)
}

#[tokio::test]
async fn a_damaged_snapshot_costs_nothing_but_itself() {
    let (dir, wanted) = a_killed_store().await;
    let database_dir = dir.path().join("store/v1");
    let entries = fs::read_dir(&database_dir).unwrap();
    let mut paths = entries.map(|entry| entry.unwrap().path());
    let is_snapshot = |path: &PathBuf| path.to_string_lossy().contains("/snap.");
    let snapshot = paths.find(is_snapshot).expect("recovery writes one");
    let mut bytes = fs::read(&snapshot).unwrap();
    for byte in &mut bytes {
        *byte ^= 0x55;
    }
    fs::write(&snapshot, bytes).unwrap();
    let scripts = tempdir().unwrap();
    let mut options = options(dir.path());
    options.probe = child_probe(scripts.path());
    options.probe_deadline = PROBE_MAX;
    let store = Store::open(&options).unwrap();
    assert!(rows(&store) == wanted);
    assert_eq!((store.recovered(), store.is_unconfirmed()), (None, false));
    assert!(!dir.path().join("store.trial").exists());
}

#[tokio::test]
async fn a_damaged_store_opens_whole_or_is_set_aside_and_never_hangs() {
    let mut dice = Dice::thrown();
    let (pristine, wanted) = a_killed_store().await;
    let (mut n_whole, mut n_aside) = (0, 0);
    let control = tempdir().unwrap();
    copy(pristine.path(), control.path());
    assert!(
        rows(&open_store(control.path())) == wanted,
        "it opens undamaged"
    );
    for round in 0..ROUNDS[usize::from(whole())] {
        let dir = tempdir().unwrap();
        copy(pristine.path(), dir.path());
        let done = damage(&dir.path().join("store/v1"), &mut dice);
        let damaged = digest(&dir.path().join("store/v1"));
        let scripts = tempdir().unwrap();
        let mut options = options(dir.path());
        options.probe = child_probe(scripts.path());
        options.probe_deadline = PROBE_MAX;
        options.on_corrupt = OnCorrupt::SetAside;
        let began = Instant::now();
        let store =
            Store::open(&options).unwrap_or_else(|error| panic!("{round}: {done}: {error:?}"));
        assert!(began.elapsed() < PROBE_MAX + SLACK, "{round}: {done}");
        if let Some(aside) = store.recovered() {
            n_aside += 1;
            println!("{done}: {}", store.rebuilt().unwrap().why);
            assert_eq!(
                digest(&aside.join("v1")),
                damaged,
                "{round}: {done}: it was changed"
            );
            assert!(store.is_unconfirmed() && store.records().is_empty());
        } else {
            n_whole += 1;
            assert!(
                rows(&store) == wanted,
                "{round}: {done}: opened with other rows"
            );
        }
        store.close().await.unwrap();
    }
    println!("{n_whole} opened whole, {n_aside} were set aside");
}
