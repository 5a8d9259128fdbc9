//! A store whose disk is in memory, and keeps what it was told to keep.
//!
//! Batches are judged and grouped as ever; what takes their place on a disk is a copy of
//! the mirror, one of what was written out and one of what was synced. So a simulation can
//! let a daemon die between any two commits, or let the power fail, and go on from what a
//! disk would have had.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::committer::{Request, Waiting, answer};
use super::error::Fault;
use super::events::Retention;
use super::handle::Store;
use super::health::Health;
use super::meta::Meta;
use super::mirror::Mirror;
use super::shared::{Shared, read};
use super::stage::Staged;
use super::writes::Durability;
use crate::id::InstanceId;
use crate::news::News;
use crate::session::record::Record;

/// Events that a log keeps: nobody reads them here.
const EVENTS_MAX: u64 = 8;

/// A disk; clones are the same one, and it outlives the stores on it.
#[derive(Clone, Debug)]
pub(crate) struct Disk(Arc<Mutex<Platters>>);

#[derive(Debug)]
struct Platters {
    written: Mirror,
    synced: Mirror,
}

/// How the commit of a group goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Course {
    /// How long the disk takes.
    pub(crate) takes: Duration,
    /// How it ends.
    pub(crate) end: End,
}

/// How the commit of a group ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It is on the disk, and whoever waits is told.
    Told,
    /// The disk fails, and whoever waits is told.
    Fails,
    /// Nothing was written, and nobody hears any more: the daemon is about to end.
    LostBefore,
    /// It is on the disk, and nobody hears of it.
    LostAfter,
}

/// Who decides how commits go, and sees what they change.
pub(crate) trait Observer: Send + Sync {
    /// Decides how the next commit goes.
    fn course(&self) -> Course;

    /// Hears that a commit has ended and that nobody is told.
    fn lost(&self);

    /// Sees a record change on the disk.
    fn changed(&self, before: Option<&Record>, after: Option<&Record>);
}

impl Disk {
    /// Makes a disk with an empty store on it.
    pub(crate) fn new() -> Self {
        let empty = Mirror::empty(Meta::new(InstanceId::random()));
        Self(Arc::new(Mutex::new(Platters {
            written: empty.clone(),
            synced: empty,
        })))
    }

    /// Forgets what was not synced.
    pub(crate) fn lose_power(&self) {
        let mut platters = self.platters();
        platters.written = platters.synced.clone();
    }

    fn platters(&self) -> MutexGuard<'_, Platters> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store {
    /// Opens the store on a disk; nothing is committed unless the future beside it runs.
    pub(crate) fn recording(
        disk: &Disk,
        observer: Arc<dyn Observer>,
    ) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let shared = Arc::new(Shared {
            mirror: RwLock::new(disk.platters().written.clone()),
            database: RwLock::new(None),
            health: RwLock::new(Health::Ok),
            retention: Retention {
                session: EVENTS_MAX,
                service: EVENTS_MAX,
            },
            journal: None,
            revision: News::default(),
            log_end: watch::Sender::new(0),
        });
        let (queue, requests) = mpsc::unbounded_channel();
        let (alive, ended) = watch::channel(());
        let store = Self::over(Arc::clone(&shared), queue, ended);
        let recorder = Recorder {
            shared,
            disk: disk.clone(),
            observer,
        };
        let committing = async move {
            recorder.run(requests).await;
            drop(alive);
        };
        (store, committing)
    }
}

/// The one that writes.
struct Recorder {
    shared: Arc<Shared>,
    disk: Disk,
    observer: Arc<dyn Observer>,
}

impl Recorder {
    async fn run(self, mut requests: mpsc::UnboundedReceiver<Request>) {
        while let Some(first) = requests.recv().await {
            let mut group = Vec::new();
            let mut closing = None;
            let mut next = Some(first);
            while let Some(request) = next.take() {
                match request {
                    Request::Commit(waiting) => {
                        group.push(waiting);
                        next = requests.try_recv().ok();
                    }
                    Request::Close(told) => closing = Some(told),
                }
            }
            self.commit(group).await;
            if let Some(told) = closing {
                drop(told.send(Ok(())));
                return;
            }
        }
    }

    async fn commit(&self, group: Vec<Waiting>) {
        let course = self.observer.course();
        tokio::time::sleep(course.takes).await;
        match course.end {
            End::Told | End::LostAfter => {}
            End::Fails => {
                for waiting in group {
                    let fault = Fault::Io("the disk fails".to_owned());
                    answer(waiting.caller, Err(fault.into()));
                }
                return;
            }
            End::LostBefore => {
                self.observer.lost();
                return std::future::pending().await;
            }
        }
        let mut staged = Staged::default();
        let mut outcomes = Vec::new();
        {
            let mirror = read(&self.shared.mirror);
            for waiting in group {
                let outcome = staged.add(&mirror, waiting.batch, self.shared.retention);
                outcomes.push((waiting.caller, outcome));
            }
        }
        if !staged.writes.is_empty() {
            self.write(staged);
        }
        if course.end == End::LostAfter {
            self.observer.lost();
            std::future::pending::<()>().await;
        }
        for (caller, outcome) in outcomes {
            answer(caller, outcome);
        }
    }

    fn write(&self, staged: Staged) {
        let changes = staged.changes;
        {
            let mirror = read(&self.shared.mirror);
            for (id, after) in &changes.records {
                let before = mirror.records.get(id);
                self.observer
                    .changed(before.map(|record| &**record), after.as_deref());
            }
        }
        self.shared.absorb(changes);
        let mut platters = self.disk.platters();
        platters.written = read(&self.shared.mirror).clone();
        match staged.durability {
            Durability::Flushed => {}
            // What was written before is synced with it.
            Durability::Synced => platters.synced = platters.written.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::session::record::Status;
    use crate::session::testing;
    use crate::store::{Batch, Expect};

    struct Quiet;

    impl Observer for Quiet {
        fn course(&self) -> Course {
            Course {
                takes: Duration::from_millis(1),
                end: End::Told,
            }
        }

        fn lost(&self) {}

        fn changed(&self, _before: Option<&Record>, _after: Option<&Record>) {}
    }

    #[tokio::test(start_paused = true)]
    async fn what_failed_under_an_earlier_intent_is_forgotten_and_nothing_else_is() {
        let (store, committing) = Store::recording(&Disk::new(), Arc::new(Quiet));
        let _committing = tokio::spawn(committing);
        let record = testing::record("a");
        let id = record.spec.id.clone();
        let failing = Status {
            attempts: 3,
            last_error: Some("out of order".to_owned()),
            container: Some("c".to_owned()),
            reached: 7,
            ..Status::default()
        };
        let batch = Batch::new().put_record(record, Expect::Absent);
        let batch = batch.put_status(&id, failing.clone());
        store.commit(batch).await.unwrap();
        store.commit(Batch::new().afresh(&id)).await.unwrap();
        let afresh = Status {
            attempts: 0,
            last_error: None,
            ..failing
        };
        assert_eq!(*store.status(&id).unwrap(), afresh);
    }

    #[tokio::test(start_paused = true)]
    async fn a_loss_of_power_takes_back_what_was_not_synced_and_nothing_else() {
        let disk = Disk::new();
        let (store, committing) = Store::recording(&disk, Arc::new(Quiet));
        let committing = tokio::spawn(committing);
        let record = testing::record("a");
        let id = record.spec.id.clone();
        let used = record.marks.last_used;
        let batch = Batch::new().put_record(record.clone(), Expect::Absent);
        store.commit(batch).await.unwrap();
        let later = Timestamp::from_secs(1_800_000_000);
        store.commit(Batch::new().touch(&id, later)).await.unwrap();
        drop(store);
        committing.await.unwrap();
        let last_used = |disk: &Disk| {
            let (store, _) = Store::recording(disk, Arc::new(Quiet));
            store.record(&id).unwrap().marks.last_used
        };
        assert_eq!(last_used(&disk), later);
        disk.lose_power();
        assert_eq!(last_used(&disk), used);
    }
}
