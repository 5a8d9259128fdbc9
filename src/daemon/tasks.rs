//! Owns the tasks that run for as long as the daemon does.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::task::{Id, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use super::copies::{Plan, keep_copies};
use super::notify;
use crate::activity::Leases;
use crate::cause::chain;
use crate::clock::Clock;
use crate::config::{Config, Operation};
use crate::control::Control;
use crate::docker::containers::Label;
use crate::reconcile::{
    Controller, Disks, Identifier, Passes, Pulse, Resync, Scan, Watched, events, go_round, ping,
    root,
};
use crate::session::blueprint::LABEL_INSTANCE;
use crate::store::{BATCH_OPS_MAX, Batch, Store};

/// How long a last use may be known to the memory alone.
const LAST_USE_PERIOD: Duration = Duration::from_secs(5);
/// How long the tasks have to end before they are dropped.
const JOIN_WAIT_MAX: Duration = Duration::from_secs(10);

/// The daemon's own tasks; none of them ends before the daemon does.
pub(super) struct Tasks {
    set: JoinSet<()>,
    names: BTreeMap<Id, &'static str>,
    cancel: CancellationToken,
}

/// Which task ended.
pub(super) struct Ended {
    pub(super) part: &'static str,
}

impl Tasks {
    pub(super) fn new(cancel: CancellationToken) -> Self {
        Self {
            set: JoinSet::new(),
            names: BTreeMap::new(),
            cancel,
        }
    }

    pub(super) fn start_controller(&mut self, controller: Controller) {
        let cancel = self.cancel.clone();
        self.spawn("the controller", controller.run(cancel));
    }

    pub(super) fn follow_engine(&mut self, passes: &Passes, resync: Resync, operation: &Operation) {
        let health = &passes.engine;
        let engine = passes.executor.host.engine.clone();
        let instance = &passes.executor.host.instance;
        let label = Label::new(LABEL_INSTANCE, instance.as_str());
        let cancel = || self.cancel.clone();
        let identifier = Identifier {
            host: passes.executor.host.clone(),
            books: passes.executor.books.clone(),
            policy: passes.executor.policy.clone(),
            health: health.clone(),
            releases: operation.release_holds.clone(),
        };
        let pinging = ping(engine.clone(), health.clone(), cancel());
        let watched = Watched {
            engine,
            label,
            work: passes.work.clone(),
            books: passes.executor.books.clone(),
        };
        let following = events(watched, health.clone(), cancel());
        let going_round = go_round(resync, health.clone(), cancel());
        self.spawn("the engine's identity", identifier.run(cancel()));
        self.spawn("the engine's heartbeat", pinging);
        self.spawn("the engine's events", following);
        self.spawn("the resync", going_round);
        if let Some(workspaces) = passes.executor.host.workspaces.clone() {
            let clock = passes.executor.books.clock.clone();
            let watching = root(workspaces, clock, health.clone(), self.cancel.clone());
            self.spawn("the watch on the workspace root", watching);
        }
    }

    /// Begins to measure workspaces; returns what is known of them.
    pub(super) fn measure_workspaces(&mut self, passes: &Passes, interval: Duration) -> Disks {
        let books = passes.executor.books.clone();
        let workspaces = passes.executor.host.workspaces.clone();
        let disks = Disks::new(workspaces, books.clock.clone());
        let scan = Scan {
            disks: disks.clone(),
            books,
            leases: passes.executor.leases.clone(),
            policy: passes.executor.policy.clone(),
            work: passes.work.clone(),
        };
        let cancel = self.cancel.clone();
        self.spawn("the measuring of workspaces", scan.run(interval, cancel));
        disks
    }

    pub(super) fn keep_last_uses(&mut self, store: Store, leases: Leases, control: Control) {
        let cancel = self.cancel.clone();
        self.spawn("the keeper of last uses", async move {
            loop {
                let stopping = tokio::select! {
                    biased;
                    () = cancel.cancelled() => true,
                    () = tokio::time::sleep(LAST_USE_PERIOD) => false,
                };
                keep(&store, &leases).await;
                control.prune();
                control.forget_old_runs().await;
                if stopping {
                    return;
                }
            }
        });
    }

    pub(super) fn adopt_runs(&mut self, control: Control) {
        let cancel = self.cancel.clone();
        self.spawn("the adoption of runs", async move {
            control.adopt_runs(cancel).await;
        });
    }

    pub(super) fn watch_store(&mut self, store: Store) {
        let cancel = self.cancel.clone();
        self.spawn("the store", async move {
            tokio::select! {
                () = cancel.cancelled() => {}
                () = store.ended() => {}
            }
        });
    }

    /// Keeps copies of the store, where they are wanted.
    pub(super) fn keep_copies(&mut self, config: &Config, store: &Store, clock: &Clock) {
        let operation = &config.operation;
        let Some(every) = operation.backup_every else {
            return;
        };
        let plan = Plan {
            dir: config.state_dir.join("backups"),
            every,
            keep: operation.backup_keep,
        };
        let (store, clock, cancel) = (store.clone(), clock.clone(), self.cancel.clone());
        self.spawn(
            "the keeper of copies",
            keep_copies(plan, store, clock, cancel),
        );
    }

    pub(super) fn feed_watchdog(&mut self, pulse: Pulse, clock: Clock) {
        let cancel = self.cancel.clone();
        self.spawn("the watchdog", notify::feed_watchdog(pulse, clock, cancel));
    }

    /// Waits for the first task to end, which none should.
    pub(super) async fn first_end(&mut self) -> Ended {
        match self.set.join_next_with_id().await {
            Some(Ok((task, ()))) => self.ended(task),
            Some(Err(failed)) => {
                error!(error = %failed, "an essential task failed");
                self.ended(failed.id())
            }
            None => std::future::pending().await,
        }
    }

    /// Waits for all tasks to end after they were cancelled.
    pub(super) async fn join(mut self) {
        let all = async {
            while let Some(ended) = self.set.join_next().await {
                if let Err(failed) = ended {
                    warn!(error = %failed, "a task failed at the end");
                }
            }
        };
        if tokio::time::timeout(JOIN_WAIT_MAX, all).await.is_err() {
            warn!("tasks were dropped at the end");
        }
    }

    fn spawn(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let id = self.set.spawn(task).id();
        self.names.insert(id, name);
    }

    fn ended(&self, task: Id) -> Ended {
        let part = self.names.get(&task).copied().unwrap_or("a task");
        Ended { part }
    }
}

/// Hands last uses to the store, as many at a time as it takes.
async fn keep(store: &Store, leases: &Leases) {
    for uses in leases.take_dirty().chunks(BATCH_OPS_MAX) {
        let batch = uses
            .iter()
            .fold(Batch::new(), |batch, (id, at)| batch.touch(id, *at));
        if let Err(error) = store.commit(batch).await {
            warn!(error = %chain(&error), "last uses could not be kept");
        }
    }
}
