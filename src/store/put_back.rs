//! Puts a backup in the place of the store of a state directory that no daemon uses.
//!
//! The new store is whole, on the disk and read back under another name before anything
//! that is there is touched. What is in its place is renamed and never removed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::backup::Contents;
use super::database::Database;
use super::error::{Fault, OpenError};
use super::events;
use super::files::{self, create_dir, failed, sync_dir, sync_files};
use super::journal;
use super::lock::Lock;
use super::meta::{Meta, Rebuilt};
use super::mirror::Mirror;
use super::watermark::{self, Watermark};
use super::writes::{Durability, Writes};
use super::{desired, marker, runs, status};
use crate::clock::Timestamp;
use crate::id::InstanceId;
use crate::session::record::Event;

/// Where the new store is made.
const NAME: &str = "store.restoring";
/// Rows that are written together.
const GROUP_MAX: usize = 1_000;

/// What to do with a store that is in the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InPlace {
    /// Leave it and restore nothing.
    Refuse,
    /// Rename it to `store.before-restore-<date>`.
    SetAside,
}

/// A backup that is in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutBack {
    /// Where the store is that was there.
    pub set_aside: Option<PathBuf>,
}

/// Says why a backup was not put in place; what was there is there as before.
#[derive(Debug, thiserror::Error)]
pub enum PutBackError {
    /// The state directory or a file in it could not be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A store is in the place.
    #[error("restore over {}, which holds a store: with --force it is renamed first", store.display())]
    InPlace {
        /// The store.
        store: PathBuf,
    },
    /// The state directory belongs to another instance.
    #[error(
        "restore a backup of instance {backup} into the state directory of instance {marker}: use an empty state directory, or one of that instance"
    )]
    Foreign {
        /// The instance of the state directory.
        marker: InstanceId,
        /// The instance of the backup.
        backup: InstanceId,
    },
    /// The new store does not hold what was written into it.
    #[error("restore the backup: the store that was made of it does not read back: {why}")]
    ReadBack {
        /// What is wrong.
        why: String,
    },
}

impl From<Fault> for PutBackError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::NoSpace => Self::Open(OpenError::NoSpace),
            Fault::Corrupt(why) => Self::ReadBack { why },
            Fault::NewerSchema { .. } | Fault::Busy | Fault::Io(_) => {
                Self::Open(OpenError::Engine {
                    reason: fault.to_string(),
                })
            }
        }
    }
}

/// A state directory that is held for a restore; no daemon starts on it meanwhile.
#[derive(Debug)]
pub struct Held<'a> {
    dir: &'a Path,
    _lock: Lock,
}

impl<'a> Held<'a> {
    /// Takes a state directory, which is made where it is missing.
    pub fn take(dir: &'a Path) -> Result<Self, OpenError> {
        create_dir(dir)?;
        Ok(Self {
            dir,
            _lock: Lock::take(dir)?,
        })
    }

    /// Makes sure that a backup may be put here; changes nothing.
    pub fn may_take(&self, contents: &Contents, in_place: InPlace) -> Result<(), PutBackError> {
        match marker::read(self.dir)? {
            Some(marker) if marker != *contents.instance() => {
                return Err(PutBackError::Foreign {
                    marker,
                    backup: contents.instance().clone(),
                });
            }
            Some(_) | None => {}
        }
        let store = self.dir.join("store");
        match in_place {
            InPlace::Refuse if fs::symlink_metadata(&store).is_ok() => {
                Err(PutBackError::InPlace { store })
            }
            InPlace::Refuse | InPlace::SetAside => Ok(()),
        }
    }

    /// Puts a backup in place, and a mark that has the next start look at what is on the
    /// host before anything is ended.
    pub fn put_back(
        &self,
        contents: &Contents,
        in_place: InPlace,
        now: Timestamp,
    ) -> Result<PutBack, PutBackError> {
        self.may_take(contents, in_place)?;
        let dir = self.dir;
        let (store, new) = (dir.join("store"), dir.join(NAME));
        let there = fs::symlink_metadata(&store).is_ok();
        let aside = there
            .then(|| files::free_name(&store, "store.before-restore", now))
            .transpose()?;
        let mirror = wanted(contents, aside.as_deref(), now);
        clear(&new)?;
        write(&new.join("v1"), contents, &mirror, now)?;
        sync_files(&new.join("v1"))?;
        sync_dir(&new)?;
        // From here on, whatever end this comes to, the next start finds the old store,
        // the new one, or none, which it makes up for as for a lost one.
        watermark::remove(dir)?;
        if let Some(aside) = &aside {
            fs::rename(&store, aside).map_err(failed("set aside", &store))?;
        }
        // What was on its way into the old store is not for the new one.
        let beside = aside.as_deref().unwrap_or(&store);
        journal::set_aside(dir, beside)?;
        fs::rename(&new, &store).map_err(failed("put the restored store in place of", &store))?;
        sync_dir(dir)?;
        marker::write(dir, contents.instance())?;
        Watermark::open(dir)?.note(mirror.meta.commits());
        Ok(PutBack { set_aside: aside })
    }
}

/// Returns what the new store is to hold.
fn wanted(contents: &Contents, aside: Option<&Path>, now: Timestamp) -> Mirror {
    let mirror = contents.mirror();
    let set_aside = aside.map_or_else(String::new, |aside| aside.display().to_string());
    let rebuilt = Rebuilt {
        restored: Some(contents.taken_at),
        ..Rebuilt::begin(now, set_aside, "a backup was restored".to_owned())
    };
    Mirror {
        meta: Meta {
            rebuilt: Some(rebuilt),
            ..mirror.meta
        },
        logs: contents.logs(),
        ..mirror
    }
}

/// Removes what a restore left that did not come to its end.
#[expect(
    clippy::disallowed_methods,
    reason = "it is ours, two levels deep, and never was in its place"
)]
fn clear(new: &Path) -> Result<(), OpenError> {
    match fs::remove_dir_all(new) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed("remove", new)(error)),
    }
}

/// Writes a store, and reads it back by opening it again.
fn write(
    database_dir: &Path,
    contents: &Contents,
    mirror: &Mirror,
    now: Timestamp,
) -> Result<(), PutBackError> {
    create_dir(database_dir)?;
    let database = Database::open(database_dir)?;
    let written = fill(&database, contents, mirror, now);
    database.close();
    written?;
    let database = Database::open(database_dir)?;
    let read = database.load();
    database.close();
    if read?.as_ref() == Some(mirror) {
        return Ok(());
    }
    let why = "it holds something else".to_owned();
    Err(PutBackError::ReadBack { why })
}

fn fill(
    database: &Database,
    contents: &Contents,
    mirror: &Mirror,
    now: Timestamp,
) -> Result<(), Fault> {
    let mut group = Group::default();
    for record in mirror.records.values() {
        desired::put(&mut group.writes, record)?;
        group.one_more(database)?;
    }
    for (id, status) in &mirror.statuses {
        status::put(&mut group.writes, id, status)?;
        group.one_more(database)?;
    }
    for ((session, _), run) in &mirror.runs {
        runs::put(&mut group.writes, session, run)?;
        group.one_more(database)?;
    }
    let begins = beginning(contents.taken_at, now);
    for (log, span) in &mirror.logs {
        events::put(&mut group.writes, log.as_ref(), span.latest, &begins)?;
        group.one_more(database)?;
    }
    // Last: before it there is no store.
    mirror.meta.put(&mut group.writes)?;
    database.apply(&group.writes, Durability::Synced)
}

/// Rows that are yet to be written.
#[derive(Default)]
struct Group {
    writes: Writes,
    n_rows: usize,
}

impl Group {
    fn one_more(&mut self, database: &Database) -> Result<(), Fault> {
        self.n_rows += 1;
        if self.n_rows < GROUP_MAX {
            return Ok(());
        }
        database.apply(&std::mem::take(self).writes, Durability::Flushed)
    }
}

/// Makes the event that a log begins with whose earlier ones are in no backup.
fn beginning(taken_at: Timestamp, now: Timestamp) -> Event {
    Event {
        at: now,
        op: "store".to_owned(),
        target: String::new(),
        ok: true,
        detail: format!(
            "the store was restored from a backup of {taken_at}; earlier events are not in it"
        ),
        duration_us: 0,
        request_id: None,
        facts: BTreeMap::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::journal::Journal;
    use super::*;
    use crate::clock::Clock;
    use crate::id::SessionId;
    use crate::store::tests::{ended_run, event, id, open_store, options, page_all, record, run};
    use crate::store::{Batch, Expect, ExpectRun, OnCorrupt, Store};

    /// A store with a session, its runs and its log; returns a backup of it.
    async fn backed_up(dir: &Path) -> Vec<u8> {
        let store = open_store(dir);
        let a = id("a");
        let batch = Batch::new()
            .put_record(record("a", 1), Expect::Absent)
            .put_key_id("ab12".to_owned())
            .event(Some(&a), event("first"))
            .event(Some(&a), event("second"))
            .event(None, event("of the service"))
            .put_run(&a, run(1), ExpectRun::Absent)
            .put_run(&a, run(2), ExpectRun::Absent);
        store.commit(batch).await.unwrap();
        let over = Batch::new().put_run(&a, ended_run(1), ExpectRun::GoesOn);
        store.commit(over).await.unwrap();
        let lines = store.snapshot().lines(Clock::host().now(), None);
        let bytes = lines.flatten().collect();
        // What comes after it.
        let later = Batch::new().put_record(record("b", 1), Expect::Absent);
        store.commit(later).await.unwrap();
        store.close().await.unwrap();
        bytes
    }

    fn put_back(dir: &Path, backup: &[u8], in_place: InPlace) -> Result<PutBack, PutBackError> {
        let contents = Contents::read(backup).unwrap();
        let now = Clock::host().now();
        Held::take(dir).unwrap().put_back(&contents, in_place, now)
    }

    fn seqs(store: &Store, log: Option<&SessionId>) -> Vec<u64> {
        let page = store.events(log, 0, page_all()).unwrap();
        page.events.into_iter().map(|(seq, _)| seq).collect()
    }

    #[tokio::test]
    async fn a_restored_store_holds_what_the_backup_says_and_goes_on_with_its_numbers() {
        let dir = tempfile::tempdir().unwrap();
        let backup = backed_up(dir.path()).await;
        let refused = put_back(dir.path(), &backup, InPlace::Refuse);
        assert!(matches!(refused, Err(PutBackError::InPlace { .. })));
        // What was on its way into the old store when it ended stays with that.
        let (journal, _) = Journal::open(dir.path(), 1_000).unwrap();
        let late = Batch::new().event(None, event("late"));
        journal.append(late, |_, _| ()).unwrap();
        let put_back = put_back(dir.path(), &backup, InPlace::SetAside).unwrap();
        assert!(put_back.set_aside.unwrap().join("v1/db").is_file());
        let store = open_store(dir.path());
        assert_eq!(store.recovered(), None, "it is a sound one");
        let (a, b) = (id("a"), id("b"));
        assert_eq!(store.record(&a).as_deref(), Some(&record("a", 1)));
        assert_eq!(store.record(&b), None);
        assert_eq!(store.runs(&a).len(), 2);
        assert_eq!(store.runs_going_on().len(), 1);
        let rebuilt = store.rebuilt().unwrap();
        assert!(rebuilt.restored.is_some() && store.is_unconfirmed());
        assert!(!rebuilt.files_read && !rebuilt.containers_read);
        // The log begins with a word on what is missing, under a number of its own.
        assert_eq!(
            (seqs(&store, Some(&a)), seqs(&store, None)),
            (vec![3], vec![2])
        );
        let more = Batch::new().event(Some(&a), event("more"));
        let committed = store.commit(more).await.unwrap();
        assert_eq!(committed.seqs, [Some(4)]);
        assert_eq!(store.next_order(), 2);
        store.claim_key_id("ab12").await.unwrap();
        store.close().await.unwrap();
        drop(open_store(dir.path()));
    }

    #[tokio::test]
    async fn a_restore_that_was_cut_off_anywhere_is_taken_up_again() {
        let dir = tempfile::tempdir().unwrap();
        let backup = backed_up(dir.path()).await;
        let store = dir.path().join("store");
        // Before anything was renamed.
        fs::create_dir_all(dir.path().join(NAME).join("v1")).unwrap();
        fs::write(dir.path().join(NAME).join("v1/db"), "half").unwrap();
        assert!(open_store(dir.path()).record(&id("b")).is_some());
        // When the old store was, and the new one was not.
        fs::rename(&store, dir.path().join("store.before-restore-x")).unwrap();
        watermark::remove(dir.path()).unwrap();
        let again = put_back(dir.path(), &backup, InPlace::Refuse).unwrap();
        assert_eq!(again.set_aside, None);
        let opened = open_store(dir.path());
        assert!(opened.record(&id("a")).is_some() && opened.rebuilt().is_some());
        drop(opened);
        // Whoever starts the daemon instead has what is made up for a lost store.
        fs::rename(&store, dir.path().join("store.before-restore-y")).unwrap();
        watermark::remove(dir.path()).unwrap();
        let mut options = options(dir.path());
        options.on_corrupt = OnCorrupt::SetAside;
        let opened = Store::open(&options).unwrap();
        assert_eq!(opened.rebuilt().and_then(|rebuilt| rebuilt.restored), None);
        assert!(opened.is_unconfirmed());
    }

    #[tokio::test]
    async fn a_backup_of_another_instance_is_refused() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let backup = backed_up(one.path()).await;
        drop(open_store(other.path()));
        let refused = put_back(other.path(), &backup, InPlace::SetAside);
        assert!(matches!(refused, Err(PutBackError::Foreign { .. })));
        assert_eq!(open_store(other.path()).records(), []);
    }
}
