//! A service without an engine, for tests of what lies above it, and uses of a session
//! that do nothing, for tests of what lies below.

use std::time::Duration;

use crate::activity::Leases;
use crate::cgroup::Cgroups;
use crate::clock::Clock;
use crate::docker::{Endpoint, Engine, Settings};
use crate::id::SessionId;
use crate::policy::{Current, Prewarm};
use crate::reconcile::{
    Books, Disks, EngineHealth, Epoch, Executor, Host, Images, Passes, Residents, Resync, Tickets,
    Work,
};
use crate::sandbox::usage::Sampler;
use crate::secret::{Secret, TokenKey};
use crate::session::testing;
use crate::store::{OpenOptions, Probe, Store};

use super::live::{Live, NotLive};
use super::{Control, Keys, Loop, Place, Refusal};

/// A use of a session, for as long as it is held.
#[derive(Debug)]
pub(crate) struct Use(Live);

impl Use {
    /// Returns the engine's id of the container that is used.
    pub(crate) fn container(&self) -> &str {
        &self.0.container
    }
}

impl Control {
    /// Begins to use a session as an operation does, waking it where it sleeps.
    pub(crate) async fn begin_use(&self, id: &SessionId) -> Result<Use, Refusal> {
        let deadline = tokio::time::Instant::now() + USE_WAIT_MAX;
        let live = self.live(id, deadline).await;
        live.map(Use).map_err(NotLive::refusal)
    }
}

/// How long a use waits for its sandbox.
const USE_WAIT_MAX: Duration = Duration::from_mins(5);

/// Makes a service with an empty store, no engine and no controller.
pub(crate) fn without_engine(service: Secret) -> Control {
    let clock = Clock::host();
    // The store goes on with the open files after the directory is gone.
    let dir = tempfile::tempdir().unwrap();
    let options = OpenOptions::new(dir.path(), Probe::InProcess, clock.clone());
    let store = Store::open(&options).unwrap();
    let endpoint = Endpoint::parse("unix:///nonexistent/engine.sock").unwrap();
    let engine = Engine::new(endpoint, Settings::default());
    let host = Host {
        engine: engine.clone(),
        workspaces: None,
        cgroups: Cgroups::default(),
        instance: store.instance().clone(),
        agents: None,
        outside: crate::docker::outside::Outside::default(),
    };
    let books = Books {
        store: store.clone(),
        clock: clock.clone(),
    };
    let policy = Current::new(testing::policy());
    let leases = Leases::new(clock.clone());
    let passes = Passes {
        executor: Executor {
            host: host.clone(),
            books: books.clone(),
            images: Images::default(),
            leases: leases.clone(),
            policy: policy.clone(),
        },
        tickets: Tickets::default(),
        residents: Residents::default(),
        work: Work::new(clock.clone()),
        epoch: Epoch::begin(clock.now(), &store),
        engine: EngineHealth::default(),
    };
    let (_, survey) = Resync::new(passes.clone(), Duration::ZERO, Duration::ZERO);
    Control::new(
        policy,
        Keys {
            service,
            tokens: TokenKey::generate().unwrap(),
        },
        books,
        Loop {
            work: passes.work,
            tickets: passes.tickets,
            leases,
            engine: passes.engine,
            epoch: passes.epoch,
            survey,
        },
        Place {
            host,
            reacher: crate::sandbox::reach::Reacher::default(),
            sampler: Sampler::new(
                Cgroups::default(),
                engine,
                crate::sandbox::reach::Reacher::default(),
                clock.clone(),
            ),
            prewarm: Prewarm::No,
            disk: crate::verify::Place {
                state_dir: dir.path().to_owned(),
                key_file: dir.path().join("token.key"),
                workspace_root: None,
            },
            disks: Disks::new(None, clock),
            archive_bytes_max: 1 << 30,
        },
    )
}
