//! Builds the service out of its parts, starts them in order and stops them in
//! reverse.

mod agents;
mod backup;
mod copies;
mod descriptors;
mod draft;
mod key;
mod notify;
mod outside;
mod rebuild;
#[cfg(test)]
mod simulation;
mod tasks;
mod verify;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::activity::Leases;
use crate::api;
use crate::cause::chain;
use crate::cgroup::Cgroups;
use crate::clock::Clock;
use crate::config::Config;
use crate::control::{Control, Keys, Loop, Place};
use crate::docker::outside::Outside;
use crate::docker::{self, Endpoint, Engine};
use crate::policy::{Current, Prewarm};
use crate::reconcile::{
    Books, Controller, Disks, EngineHealth, Epoch, Executor, Host, Images, Key, Passes,
    RebuildError, Residents, Resync, Tickets, Work,
};
use crate::sandbox::reach::Reacher;
use crate::sandbox::usage::Sampler;
use crate::session::Hold;
use crate::store::{OpenError, Store};
use crate::verify::NotBorrowed;
use crate::workspace::Workspaces;

use tasks::{Ended, Tasks};

pub use backup::{BackupFailure, Restored, Tokens, backup, restore};
pub use outside::NotTranslated;
pub use verify::{Verdict, verify};

/// How long commands under way have to be ended after the last connection.
const COMMANDS_WAIT_MAX: Duration = Duration::from_secs(4);

/// Says why the daemon ended, with the code that it ends with.
#[derive(Debug, thiserror::Error)]
pub enum Fatal {
    /// The store cannot be used.
    #[error("open the state directory {}", dir.display())]
    Store {
        /// The state directory.
        dir: PathBuf,
        /// What is wrong with it.
        source: OpenError,
    },
    /// The records of a lost store cannot be made anew.
    #[error("rebuild the store")]
    Rebuild(#[source] RebuildError),
    /// The token key cannot be used.
    #[error(transparent)]
    Key(#[from] key::KeyError),
    /// The engine's address is none.
    #[error("use the engine's address {address:?}")]
    Endpoint {
        /// What was configured.
        address: String,
        /// What is wrong with it.
        source: docker::endpoint::InvalidEndpoint,
    },
    /// It is not known where the daemon's directories are for the engine.
    #[error(transparent)]
    NotTranslated(#[from] NotTranslated),
    /// A directory or the port cannot be used.
    #[error("{what}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The state directory of a service that should not run cannot be looked at.
    #[error(transparent)]
    NotBorrowed(NotBorrowed),
    /// A backup was not made or not put back.
    #[error(transparent)]
    Backup(#[from] BackupFailure),
    /// A part without which nothing works has ended.
    #[error("go on without {part}, which ended")]
    Ended {
        /// The part.
        part: &'static str,
    },
}

impl Fatal {
    /// Returns the exit code of the program.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Store { source, .. } => code_of(source),
            Self::Backup(error) => error.exit_code(),
            Self::Key(error) => error.exit_code(),
            Self::NotTranslated(error) => error.exit_code(),
            Self::Endpoint { .. } => 78,
            Self::Rebuild(_) | Self::Io { .. } => 74,
            Self::NotBorrowed(NotBorrowed::Busy { .. }) => 69,
            Self::NotBorrowed(NotBorrowed::Io { .. }) => 74,
            Self::Ended { .. } => 70,
        }
    }
}

/// Returns the exit code of the program where the store does not open.
fn code_of(error: &OpenError) -> u8 {
    match error {
        OpenError::Busy { .. } => 69,
        OpenError::Corrupt { .. } | OpenError::NewerSchema { .. } | OpenError::Foreign { .. } => 65,
        OpenError::NoSpace | OpenError::Engine { .. } | OpenError::Io { .. } => 74,
    }
}

/// Runs the service until it is asked to stop by SIGTERM or SIGINT.
///
/// Sandboxes go on when it stops, and are found again at the next start.
pub async fn run(config: Config) -> Result<(), Fatal> {
    say_what_is_missing(&config);
    let clock = Clock::host();
    let cancel = CancellationToken::new();
    let engine = engine(&config)?;
    let outside = outside::find(&config, &engine).await?;
    let store = rebuild::open_store(&config, &clock).await?;
    let tokens = key::load(&config, &store).await?;
    let mut host = host(&config, &store, engine, outside)?;
    let reacher = agents::board(&config, &mut host)?;
    if let Some(workspaces) = &host.workspaces {
        look_at_root(&config, workspaces, &clock)?;
    }
    rebuild::rebuild(&config, &store, &host, &clock).await?;
    let listener = listen(&config).await?;
    let policy = Current::new(config.policy.clone());
    let leases = Leases::new(clock.clone());
    let health = EngineHealth::default();
    let executor = executor(&host, &store, &clock, &policy, &leases);
    let passes = passes(executor, health.clone());
    let mut tasks = Tasks::new(cancel.clone());
    // The other half of the engine's calls is for commands and for looks, so that
    // slow stops and starts never keep a command from its sandbox.
    let workers = config.operation.max_workers.div_ceil(2);
    let controller = Controller::new(passes.clone(), workers);
    let disks = tasks.measure_workspaces(&passes, config.operation.workspace_scan_interval);
    let pulse = controller.pulse();
    let operation = &config.operation;
    let (grace, period) = (operation.orphan_grace, operation.cleanup_interval);
    let (resync, survey) = Resync::new(passes.clone(), grace, period);
    let control = Control::new(
        policy,
        Keys {
            service: config.service_token.clone(),
            tokens,
        },
        passes.executor.books.clone(),
        Loop {
            work: passes.work.clone(),
            tickets: passes.tickets.clone(),
            leases: leases.clone(),
            engine: health.clone(),
            epoch: passes.epoch.clone(),
            survey,
        },
        place(&config, host, reacher, disks, &clock),
    );
    tasks.start_controller(controller);
    tasks.follow_engine(&passes, resync, &config.operation);
    tasks.keep_last_uses(store.clone(), leases, control.clone());
    tasks.adopt_runs(control.clone());
    tasks.watch_store(store.clone());
    tasks.keep_copies(&config, &store, &clock);
    tasks.feed_watchdog(pulse, clock);
    prewarm(&config, &passes.work);
    let served = serve(&config, listener, control.clone(), &mut tasks).await;
    wind_down(&control, &cancel, tasks).await;
    if let Err(error) = store.close().await {
        warn!(error = %chain(&error), "the store was not closed in order");
    }
    served
}

/// Ends what is under way, in the reverse of the order in which it was started.
async fn wind_down(control: &Control, cancel: &CancellationToken, tasks: Tasks) {
    notify::stopping();
    info!("stopping; sandboxes go on");
    if tokio::time::timeout(COMMANDS_WAIT_MAX, control.drained())
        .await
        .is_err()
    {
        warn!("commands were still being ended");
    }
    cancel.cancel();
    tasks.join().await;
}

fn place(config: &Config, host: Host, reacher: Reacher, disks: Disks, clock: &Clock) -> Place {
    let (cgroups, engine) = (host.cgroups.clone(), host.engine.clone());
    Place {
        sampler: Sampler::new(cgroups, engine, reacher.clone(), clock.clone()),
        reacher,
        host,
        prewarm: config.prewarm,
        disk: verify::place(config),
        disks,
        archive_bytes_max: config.operation.max_archive_bytes,
    }
}

/// Tells the operator of settings that are understood and have no effect yet.
fn say_what_is_missing(config: &Config) {
    if config.ui_enabled {
        warn!("SANDBOXD_UI_ENABLED has no effect: this version has no dashboard");
    }
    if config.policy_overrides.is_some() {
        warn!(
            "SANDBOXD_POLICY_OVERRIDES has no effect: this version takes no live changes of policy"
        );
    }
}

fn engine(config: &Config) -> Result<Engine, Fatal> {
    let endpoint = Endpoint::parse(&config.docker).map_err(|source| Fatal::Endpoint {
        address: config.docker.clone(),
        source,
    })?;
    let settings = docker::Settings {
        inflight_max: config.operation.max_workers,
        ..docker::Settings::default()
    };
    Ok(Engine::new(endpoint, settings))
}

fn host(config: &Config, store: &Store, engine: Engine, outside: Outside) -> Result<Host, Fatal> {
    let workspaces = config
        .workspace_root
        .as_deref()
        .map(|root| Workspaces::open(root, &config.state_dir))
        .transpose()
        .map_err(|error| Fatal::Io {
            what: "open the workspace root".to_owned(),
            source: Box::new(error),
        })?;
    Ok(Host {
        engine,
        workspaces,
        cgroups: Cgroups::default(),
        instance: store.instance().clone(),
        agents: None,
        outside,
    })
}

/// Says at start that the workspace root is not the one of before, or accepts it where the
/// operator says so; what an import left half done is set aside.
fn look_at_root(config: &Config, workspaces: &Workspaces, clock: &Clock) -> Result<(), Fatal> {
    workspaces.check(clock.now());
    if let Err(error) = workspaces.abandon_incoming() {
        warn!(error = %chain(&error), "what was left of interrupted imports stays for now");
    }
    let Some(strange) = workspaces.strange() else {
        return Ok(());
    };
    let hold = Hold::WorkspaceRootChanged;
    if !config.operation.release_holds.contains(&hold) {
        error!(why = %strange.why, "the workspaces are not where they were: sessions wait for them, or for `sandboxctl release workspace_root_changed`");
        return Ok(());
    }
    warn!(why = %strange.why, "another workspace root is accepted, as SANDBOXD_RELEASE_HOLDS says");
    workspaces.accept().map_err(|error| Fatal::Io {
        what: "accept the workspace root".to_owned(),
        source: Box::new(error),
    })
}

async fn listen(config: &Config) -> Result<TcpListener, Fatal> {
    let address = format!("{}:{}", bracketed(&config.listen.host), config.listen.port);
    TcpListener::bind(&address)
        .await
        .map_err(|error| Fatal::Io {
            what: format!("listen on {address}"),
            source: Box::new(error),
        })
}

/// Puts an IPv6 address into the brackets that a port needs beside it.
fn bracketed(host: &str) -> String {
    if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]")
    } else {
        host.to_owned()
    }
}

fn executor(
    host: &Host,
    store: &Store,
    clock: &Clock,
    policy: &Current,
    leases: &Leases,
) -> Executor {
    Executor {
        host: host.clone(),
        books: Books {
            store: store.clone(),
            clock: clock.clone(),
        },
        images: Images::default(),
        leases: leases.clone(),
        policy: policy.clone(),
    }
}

fn passes(executor: Executor, engine: EngineHealth) -> Passes {
    let Books { store, clock } = executor.books.clone();
    Passes {
        executor,
        tickets: Tickets::default(),
        residents: Residents::default(),
        work: Work::new(clock.clone()),
        epoch: Epoch::begin(clock.now(), &store),
        engine,
    }
}

/// Queues the catalogue's ready images, so that no caller waits for one.
fn prewarm(config: &Config, work: &Work) {
    match config.prewarm {
        Prewarm::No => return,
        Prewarm::Yes => {}
    }
    for (_, runtime) in config.policy.catalogue.iter() {
        if let Some(reference) = runtime.ready_image() {
            work.nudge(Key::Image(reference.to_owned()));
        }
    }
}

/// Serves until a signal comes or an essential part ends.
async fn serve(
    config: &Config,
    listener: TcpListener,
    control: Control,
    tasks: &mut Tasks,
) -> Result<(), Fatal> {
    let operation = &config.operation;
    let connections_max = descriptors::connections(descriptors::Wanted {
        connections: operation.max_connections,
        commands: config.policy.limits.max_running_commands,
        calls: operation.max_workers,
        agents: agents::descriptors(config),
    });
    let settings = api::Settings {
        connections_max,
        body_bytes_max: operation.max_body_bytes,
        drain_timeout: config.operation.drain_timeout,
        ..api::Settings::default()
    };
    let address = listener.local_addr();
    let stop = CancellationToken::new();
    let serving = api::serve(listener, control, settings, stop.clone().cancelled_owned());
    let mut serving = std::pin::pin!(serving);
    let mut signals = Signals::new().map_err(|error| Fatal::Io {
        what: "listen for signals".to_owned(),
        source: Box::new(error),
    })?;
    if let Ok(address) = address {
        info!(%address, version = env!("CARGO_PKG_VERSION"), "serving");
    }
    notify::ready();
    let why = tokio::select! {
        // It ends only when it is told to.
        _ = &mut serving => return Err(Fatal::Ended { part: "the server" }),
        name = signals.next() => {
            info!(signal = name, "asked to stop");
            Ok(())
        }
        Ended { part } = tasks.first_end() => Err(Fatal::Ended { part }),
    };
    notify::stopping();
    stop.cancel();
    let drained = serving.await;
    if 0 < drained.dropped {
        warn!(connections = drained.dropped, "requests were cut off");
    }
    why
}

/// The signals that ask the daemon to stop.
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
