//! One run of the daemon: its own parts, put together as ever, on a simulated host.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::super::tasks::Tasks;
use super::super::{executor, passes};
use super::scene::{Line, Scene};
use crate::activity::Leases;
use crate::cgroup::Cgroups;
use crate::clock::{Clock, Timestamp};
use crate::config::{OnCorruptStore, Operation};
use crate::control::{Control, Keys, Loop, Place};
use crate::docker::outside::Outside;
use crate::docker::{Engine, Settings};
use crate::policy::{Current, Home, Policy, Prewarm, Terms};
use crate::reconcile::{Controller, Disks, EngineHealth, Host, Resync};
use crate::sandbox::reach::Reacher;
use crate::sandbox::usage::Sampler;
use crate::secret::{Secret, TokenKey};
use crate::store::Store;
use crate::store::recording::Disk;
use crate::verify;
use crate::workspace::Workspaces;

/// What an operator has set; it outlives the daemon.
#[derive(Clone, Debug)]
pub(super) struct Settled {
    pub(super) terms: Terms,
    /// Where directories are.
    pub(super) dir: PathBuf,
    /// Whether the service keeps workspaces.
    pub(super) home: Home,
    /// Calls to the engine at once.
    pub(super) calls_max: usize,
    /// What tokens are derived from.
    pub(super) tokens: TokenKey,
}

/// A daemon that runs.
pub(super) struct Life {
    pub(super) control: Control,
    pub(super) clock: Clock,
    pub(super) store: Store,
    tasks: Tasks,
    committing: tokio::task::JoinHandle<()>,
    cancel: CancellationToken,
}

impl Settled {
    /// Returns where workspaces are, if the service keeps any.
    pub(super) fn root(&self) -> Option<PathBuf> {
        match self.home {
            Home::Host => Some(self.dir.join("workspaces")),
            Home::Container => None,
        }
    }

    fn operation(&self) -> Operation {
        Operation {
            cleanup_interval: Duration::from_mins(1),
            max_workers: self.calls_max,
            max_connections: 1_024,
            max_body_bytes: 64 << 20,
            events_per_session: 200,
            service_events: 1_000,
            orphan_grace: Duration::from_mins(1),
            workspace_scan_interval: Duration::from_mins(1),
            max_archive_bytes: 1 << 30,
            on_corrupt_store: OnCorruptStore::Refuse,
            release_holds: Vec::new(),
            backup_every: None,
            backup_keep: 1,
            drain_timeout: Duration::from_secs(5),
        }
    }

    fn workspaces(&self) -> Option<Workspaces> {
        let root = self.root()?;
        let state_dir = self.dir.join("state");
        std::fs::create_dir_all(&state_dir).expect("the directory is a test's own");
        let workspaces = Workspaces::open(&root, &state_dir).expect("so is this");
        workspaces.take_turns();
        Some(workspaces)
    }
}

impl Life {
    /// Starts the daemon, at a time that the wall shows.
    pub(super) fn begin(settled: &Settled, scene: &Scene, disk: &Disk, wall: Timestamp) -> Self {
        let clock = Clock::paused(wall);
        let (store, committing) = Store::recording(disk, Arc::new(scene.clone()));
        let operation = settled.operation();
        let line = Arc::new(Line(scene.clone()));
        let engine = Engine::played(
            line,
            Settings {
                inflight_max: operation.max_workers,
                ..Settings::default()
            },
        );
        let host = Host {
            engine: engine.clone(),
            workspaces: settled.workspaces(),
            cgroups: Cgroups::new(settled.dir.join("cgroup")),
            instance: store.instance().clone(),
            agents: None,
            outside: Outside::default(),
        };
        let policy = Policy::new(settled.terms.clone(), settled.home);
        let policy = Current::new(policy.expect("the terms are valid"));
        let leases = Leases::new(clock.clone());
        let health = EngineHealth::default();
        let executor = executor(&host, &store, &clock, &policy, &leases);
        let passes = passes(executor, health.clone());
        let cancel = CancellationToken::new();
        let mut tasks = Tasks::new(cancel.clone());
        let workers = operation.max_workers.div_ceil(2);
        let controller = Controller::new(passes.clone(), workers);
        let keys = Keys {
            service: Secret::new("service".to_owned()),
            tokens: settled.tokens.clone(),
        };
        let (grace, period) = (operation.orphan_grace, operation.cleanup_interval);
        let (resync, survey) = Resync::new(passes.clone(), grace, period);
        let loop_ = Loop {
            work: passes.work.clone(),
            tickets: passes.tickets.clone(),
            leases: leases.clone(),
            engine: health.clone(),
            epoch: passes.epoch.clone(),
            survey,
        };
        let place = place(settled, host, &clock);
        let control = Control::new(policy, keys, passes.executor.books.clone(), loop_, place);
        tasks.start_controller(controller);
        tasks.follow_engine(&passes, resync, &operation);
        tasks.keep_last_uses(store.clone(), leases, control.clone());
        Self {
            control,
            clock,
            store,
            tasks,
            committing: tokio::spawn(committing),
            cancel,
        }
    }

    /// Ends as by SIGKILL.
    pub(super) async fn kill(self) {
        self.committing.abort();
        drop(self.tasks);
        drop(self.control);
        // What was cut off is dropped when it would have its turn.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    /// Ends in order.
    pub(super) async fn stop(self) {
        self.cancel.cancel();
        self.tasks.join().await;
        drop(self.control);
        self.store.close().await.expect("nothing fails at a close");
    }
}

fn place(settled: &Settled, host: Host, clock: &Clock) -> Place {
    let none = Path::new("/nonexistent");
    let reacher = Reacher::default();
    let (cgroups, engine) = (host.cgroups.clone(), host.engine.clone());
    Place {
        sampler: Sampler::new(cgroups, engine, reacher.clone(), clock.clone()),
        reacher,
        prewarm: Prewarm::No,
        disk: verify::Place {
            state_dir: none.to_owned(),
            key_file: none.join("token.key"),
            workspace_root: settled.root(),
        },
        // Nothing has a ceiling, so nothing is measured.
        disks: Disks::new(None, clock.clone()),
        archive_bytes_max: 1 << 30,
        host,
    }
}
