//! A service without an engine, for tests of what lies above it, and uses of a session
//! that do nothing, for tests of what lies below.

use crate::activity::Leases;
use crate::cgroup::Cgroups;
use crate::clock::Clock;
use crate::docker::{Endpoint, Engine, Settings};
use crate::id::SessionId;
use crate::policy::{Current, Prewarm};
use crate::reconcile::{Books, Disks, EngineHealth, Epoch, Host, Tickets, Work};
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
const USE_WAIT_MAX: std::time::Duration = std::time::Duration::from_mins(5);

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
    };
    Control::new(
        Current::new(testing::policy()),
        Keys {
            service,
            tokens: TokenKey::generate().unwrap(),
        },
        Books {
            store: store.clone(),
            clock: clock.clone(),
        },
        Loop {
            work: Work::new(clock.clone()),
            tickets: Tickets::default(),
            leases: Leases::new(clock.clone()),
            engine: EngineHealth::default(),
            epoch: Epoch::begin(clock.now(), &store),
        },
        Place {
            host,
            reacher: crate::sandbox::reach::Reacher::default(),
            sampler: Sampler::new(Cgroups::default(), engine, clock.clone()),
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
