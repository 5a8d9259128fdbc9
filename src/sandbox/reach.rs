//! Finds the way to a sandbox: its agent, or the engine where it has none.
//!
//! An agent dials the daemon; where it cannot, it is joined over an exec of the engine, the
//! bridge. Each session's way is sought by one caller at a time, and the others wait.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tracing::{debug, warn};

use crate::agent::arrivals::Arrivals;
use crate::agent::connection::Connection;
use crate::agent::dock::Dock;
use crate::agent::protocol::{HOST_DIR, PROGRAM};
use crate::cause::chain;
use crate::docker::Engine;
use crate::docker::duplex::Joined;
use crate::docker::exec::ExecBody;
use crate::docker::inspect::Inspect;
use crate::id::SessionId;
use crate::session::blueprint::LABEL_EXEC;

pub use crate::agent::arrivals::Arrival;

/// How long an agent that can dial is waited for before the bridge is tried.
const DIAL_WAIT: Duration = Duration::from_millis(1500);
/// How long a way is sought before commands go by the engine's exec.
const SEEK_MAX: Duration = Duration::from_secs(5);
/// How soon a bridge that did not come about is tried again.
const BRIDGE_REST: Duration = Duration::from_millis(200);
/// How long an agent that did not answer is left alone.
const SILENT_REST: Duration = Duration::from_secs(30);
/// Sessions whose ways are remembered before those without a bridge are forgotten.
const ROUTES_MAX: usize = 1024;
/// OCI runtimes that are remembered.
const RUNTIMES_MAX: usize = 64;

/// Finds the ways to sandboxes; cheap to clone.
///
/// By default there are no agents, and the engine is the only way.
#[derive(Clone, Debug, Default)]
pub struct Reacher(Option<Arc<Inner>>);

#[derive(Debug)]
struct Inner {
    engine: Engine,
    dock: Dock,
    arrivals: Arrivals,
    /// What is known of each session's way. A std mutex: it guards a map, and no await.
    routes: Mutex<BTreeMap<SessionId, Arc<Route>>>,
    /// OCI runtimes whose agents cannot dial, and are reached by the bridge.
    bridged: Mutex<BTreeSet<String>>,
}

/// What is known of the way to one container.
#[derive(Debug)]
struct Route {
    container: String,
    /// Held while a way is sought.
    seeking: tokio::sync::Mutex<()>,
    known: Mutex<Known>,
}

#[derive(Clone, Debug, Default)]
enum Known {
    #[default]
    Nothing,
    /// It was made without an agent.
    Engine,
    /// Its agent did not answer, and is not asked again before this instant.
    Silent(Instant),
    /// It is joined over an exec.
    Bridge(Connection),
}

/// A way to a sandbox.
#[derive(Clone, Debug)]
pub enum Way {
    /// Its agent.
    Agent(Connection),
    /// The engine's exec: its container was made without an agent, or that does not answer.
    Engine,
}

/// No way was found in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Late;

impl Reacher {
    /// Finds agents that dial in this dock, or that this engine joins.
    pub fn new(engine: Engine, dock: Dock, arrivals: Arrivals) -> Self {
        Self(Some(Arc::new(Inner {
            engine,
            dock,
            arrivals,
            routes: Mutex::default(),
            bridged: Mutex::default(),
        })))
    }

    /// Finds the way to the sandbox in a running container, by `deadline`.
    ///
    /// Where an agent is there, this takes no time.
    pub async fn way(
        &self,
        session: &SessionId,
        container: &str,
        deadline: Instant,
    ) -> Result<Way, Late> {
        let Some(inner) = &self.0 else {
            return Ok(Way::Engine);
        };
        if let Some(connection) = inner.dock.connection(session, container) {
            return Ok(Way::Agent(connection));
        }
        let route = inner.route(session, container);
        if let Some(way) = route.way() {
            return Ok(way);
        }
        let sought = async {
            let _seeking = route.seeking.lock().await;
            // Whoever sought before may have found it.
            if let Some(connection) = inner.dock.connection(session, container) {
                return Way::Agent(connection);
            }
            match route.way() {
                Some(way) => way,
                None => inner.seek(session, &route).await,
            }
        };
        timeout_at(deadline, sought).await.map_err(|_| Late)
    }

    /// Waits for the next new stream to an agent, each told once; for ever where there are
    /// no agents.
    ///
    /// Dropping the future loses nothing.
    pub async fn next_arrival(&self) -> Arrival {
        match &self.0 {
            Some(inner) => inner.arrivals.next().await,
            None => std::future::pending().await,
        }
    }

    /// Tells whether the agent of a container has dialed and can be asked without the engine.
    pub fn has_dialed(&self, session: &SessionId, container: &str) -> bool {
        let inner = self.0.as_ref();
        inner.is_some_and(|inner| inner.dock.connection(session, container).is_some())
    }

    /// Tells whether the agent of a container has ever dialed: its processes are seen here.
    pub fn has_known(&self, session: &SessionId, container: &str) -> bool {
        let inner = self.0.as_ref();
        inner.is_some_and(|inner| inner.dock.knew(session, container))
    }

    /// Tells whether the agent of a session is asked, as far as is known.
    pub fn reaches_agents(&self, session: &SessionId) -> bool {
        self.0.as_ref().is_some_and(|inner| {
            let route = inner.routes().get(session).cloned();
            route.is_none_or(|route| match &*route.known() {
                Known::Nothing | Known::Bridge(_) => true,
                Known::Silent(_) | Known::Engine => {
                    inner.dock.connection(session, &route.container).is_some()
                }
            })
        })
    }
}

impl Route {
    /// Returns the way that is known and good now.
    fn way(&self) -> Option<Way> {
        match &*self.known() {
            Known::Nothing => None,
            Known::Engine => Some(Way::Engine),
            Known::Silent(until) => (Instant::now() < *until).then_some(Way::Engine),
            Known::Bridge(connection) => {
                (!connection.is_closed()).then(|| Way::Agent(connection.clone()))
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, known: Known) {
        *self.known() = known;
    }
}

impl Inner {
    fn routes(&self) -> MutexGuard<'_, BTreeMap<SessionId, Arc<Route>>> {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what is known of the way to a container; another container of the session
    /// has another way.
    fn route(&self, session: &SessionId, container: &str) -> Arc<Route> {
        let mut routes = self.routes();
        if let Some(route) = routes.get(session)
            && route.container == container
        {
            return Arc::clone(route);
        }
        if ROUTES_MAX <= routes.len() {
            routes.retain(|_, route| {
                matches!(&*route.known(), Known::Bridge(connection) if !connection.is_closed())
            });
        }
        let route = Arc::new(Route {
            container: container.to_owned(),
            seeking: tokio::sync::Mutex::default(),
            known: Mutex::default(),
        });
        routes.insert(session.clone(), Arc::clone(&route));
        route
    }

    /// Looks at the container, and waits for its agent or joins it.
    async fn seek(&self, session: &SessionId, route: &Route) -> Way {
        let Ok(Some(container)) = self.engine.inspect(&route.container).await else {
            // The engine's exec says what is wrong with it.
            return Way::Engine;
        };
        if container.labels.get(LABEL_EXEC).map(String::as_str) != Some("agent") {
            route.note(Known::Engine);
            return Way::Engine;
        }
        let Some(pid) = container.pid else {
            return Way::Engine;
        };
        let dials = container.mounts_at(HOST_DIR);
        if dials && !self.dock.expects(session, &container.id) {
            match self.dock.berth(session) {
                Ok(_) => self.dock.expect(session, &container.id, pid),
                Err(error) => debug!(%session, %error, "its agent cannot dial"),
            }
        }
        let found = self.reach(session, &container, dials);
        if let Ok(connection) = timeout_at(Instant::now() + SEEK_MAX, found).await {
            match connection {
                Reached::Dialed(connection) => {
                    self.bridged().remove(&container.runtime);
                    return Way::Agent(connection);
                }
                Reached::Joined(connection) => {
                    self.note_bridge(session, route, connection.clone());
                    if dials {
                        self.note_runtime(&container.runtime);
                    }
                    return Way::Agent(connection);
                }
            }
        }
        warn!(%session, container = route.container, "its agent does not answer: commands go by the engine's exec, and it is asked again later");
        route.note(Known::Silent(Instant::now() + SILENT_REST));
        Way::Engine
    }

    /// Waits for the agent to dial, and joins it when it does not.
    async fn reach(&self, session: &SessionId, container: &Inspect, dials: bool) -> Reached {
        let may_dial = dials && !self.dock.is_apart();
        let patience = if may_dial && !self.bridged().contains(&container.runtime) {
            DIAL_WAIT
        } else {
            Duration::ZERO
        };
        let dialed = async {
            if dials {
                self.dock.dialed(session, &container.id).await
            } else {
                std::future::pending().await
            }
        };
        let joined = async {
            sleep_until(Instant::now() + patience).await;
            loop {
                match self.join(session, &container.id).await {
                    Ok(connection) => return connection,
                    Err(why) => debug!(%session, why, "its agent was not joined"),
                }
                sleep(BRIDGE_REST).await;
            }
        };
        tokio::select! {
            biased;
            connection = dialed => Reached::Dialed(connection),
            connection = joined => Reached::Joined(connection),
        }
    }

    /// Joins the agent of a container over an exec of the engine.
    async fn join(&self, session: &SessionId, container: &str) -> Result<Connection, String> {
        let body = ExecBody {
            argv: vec![PROGRAM.to_owned(), "connect".to_owned()],
            ..ExecBody::default()
        };
        let joined = self.engine.exec_joined(container, &body).await;
        let stream = match joined.map_err(|error| chain(&error))? {
            Joined::Now(stream) => stream,
            Joined::NotRunning(words) => return Err(words),
            Joined::Gone => return Err("the container is gone".to_owned()),
        };
        Connection::open(stream, session, self.dock.bounds())
            .await
            .map_err(|error| chain(&error))
    }

    fn note_bridge(&self, session: &SessionId, route: &Route, connection: Connection) {
        route.note(Known::Bridge(connection.clone()));
        self.arrivals.note(Arrival {
            session: session.clone(),
            container: route.container.clone(),
            connection,
        });
    }

    fn note_runtime(&self, runtime: &str) {
        let mut bridged = self.bridged();
        if RUNTIMES_MAX <= bridged.len() {
            bridged.pop_first();
        }
        bridged.insert(runtime.to_owned());
    }

    fn bridged(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.bridged.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How an agent was reached.
enum Reached {
    Dialed(Connection),
    Joined(Connection),
}
