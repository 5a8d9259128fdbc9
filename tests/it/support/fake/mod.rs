//! A Docker engine of the version 20.10 in memory, on a unix socket.
//!
//! It answers as the real one does, odd answers included; `fake_engine.rs` asks both the
//! same and compares. Commands run on the host, in the directory that a container mounts
//! at their working directory, so that they have real effects there. They are the tests'
//! own commands: nothing confines them.

mod answers;
mod create;
mod events;
mod exec;
mod http;
mod model;
mod routes;

use std::collections::BTreeMap;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tempfile::TempDir;

use super::fault::{Faults, Plan, cut, read_request};
use super::proxy::Proxy;

pub(crate) use model::Status;
use model::{Model, Shared};

/// An engine in memory behind a proxy; it and everything it runs end when it is dropped.
#[derive(Debug)]
pub(crate) struct FakeEngine {
    proxy: Proxy,
    dir: TempDir,
    shared: Arc<Shared>,
    server: Mutex<Option<Server>>,
}

#[derive(Debug)]
struct Server {
    acceptor: JoinHandle<()>,
    streams: Arc<Mutex<Streams>>,
}

#[derive(Debug, Default)]
struct Streams {
    is_over: bool,
    opened: u64,
    open: BTreeMap<u64, UnixStream>,
}

/// What a test sees of a container without asking the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Its name.
    pub(crate) name: String,
    /// Its id.
    pub(crate) id: String,
    /// What it is doing.
    pub(crate) status: Status,
    /// Its labels.
    pub(crate) labels: BTreeMap<String, String>,
}

impl FakeEngine {
    /// Starts an engine that has the image of the tests and no container.
    pub(crate) fn start() -> Self {
        Self::start_with(Plan::default())
    }

    /// Starts an engine some of whose calls go wrong.
    pub(crate) fn start_with(plan: Plan) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("sandboxd-fake-")
            .tempdir()
            .unwrap();
        let shared = Arc::new(Shared::new(Model::new(dir.path())));
        let server = Server::start(&dir.path().join("engine.sock"), &shared);
        Self {
            proxy: Proxy::before(&dir.path().join("engine.sock"), plan),
            dir,
            shared,
            server: Mutex::new(Some(server)),
        }
    }

    /// Returns the engine's address for a daemon.
    pub(crate) fn address(&self) -> String {
        self.proxy.address()
    }

    /// Returns where the engine itself listens, where nothing goes wrong.
    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("engine.sock")
    }

    /// Returns what stands before it.
    pub(crate) fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    /// Returns what goes wrong call by call.
    pub(crate) fn faults(&self) -> &Faults {
        self.proxy.faults()
    }

    /// Returns its containers, the oldest first.
    pub(crate) fn containers(&self) -> Vec<Seen> {
        let model = self.shared.model();
        let mut all: Vec<_> = model.containers.values().collect();
        all.sort_by_key(|container| container.created);
        let seen = all.into_iter().map(|container| Seen {
            name: container.name.clone(),
            id: container.id.clone(),
            status: container.status,
            labels: container.labels.clone(),
        });
        seen.collect()
    }

    /// Returns how many commands were started so far.
    pub(crate) fn commands_started(&self) -> u64 {
        self.shared.model().commands_started
    }

    /// Goes down and comes up, as one without live-restore: what ran is stopped, and
    /// execs and events are forgotten.
    pub(crate) fn restart(&self) {
        self.stop();
        self.start_again();
    }

    /// Has it die in the middle of the next start, and come up again.
    ///
    /// The container of that start stays created, and no start of it ever succeeds.
    pub(crate) fn die_in_next_start(&self) {
        self.shared.model().dies_in_start = true;
    }

    /// Has removals take this long.
    pub(crate) fn slow_removals(&self, by: Duration) {
        self.shared.model().removal_takes = by;
    }

    fn stop(&self) {
        if let Some(server) = self.server.lock().unwrap().take() {
            server.stop(&self.socket());
        }
        self.shared.model().go_down();
        self.shared.changed.notify_all();
    }

    fn start_again(&self) {
        let server = Server::start(&self.socket(), &self.shared);
        *self.server.lock().unwrap() = Some(server);
    }
}

impl Drop for FakeEngine {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Server {
    fn start(socket: &std::path::Path, shared: &Arc<Shared>) -> Self {
        let listener = UnixListener::bind(socket).unwrap();
        let streams = Arc::new(Mutex::new(Streams::default()));
        let (shared, open) = (Arc::clone(shared), Arc::clone(&streams));
        let acceptor = thread::spawn(move || {
            loop {
                let (client, _) = listener.accept().unwrap();
                let Some(number) = open.lock().unwrap().admit(&client) else {
                    return;
                };
                let (shared, open) = (Arc::clone(&shared), Arc::clone(&open));
                thread::spawn(move || {
                    serve(&shared, &client);
                    cut(&client);
                    open.lock().unwrap().open.remove(&number);
                });
            }
        });
        Self { acceptor, streams }
    }

    fn stop(self, socket: &std::path::Path) {
        self.streams.lock().unwrap().close();
        // Wakes it from waiting for a connection.
        drop(UnixStream::connect(socket));
        self.acceptor.join().unwrap();
        std::fs::remove_file(socket).unwrap();
    }
}

impl Streams {
    fn admit(&mut self, client: &UnixStream) -> Option<u64> {
        if self.is_over {
            return None;
        }
        self.opened += 1;
        self.open.insert(self.opened, client.try_clone().ok()?);
        Some(self.opened)
    }

    fn close(&mut self) {
        self.is_over = true;
        for stream in std::mem::take(&mut self.open).values() {
            cut(stream);
        }
    }
}

/// Answers one request after another until the connection ends.
fn serve(shared: &Arc<Shared>, client: &UnixStream) {
    let Ok(mut from) = client.try_clone() else {
        return;
    };
    while let Ok(Some(request)) = read_request(&mut from) {
        let asked = http::Asked::new(request);
        if routes::answer(shared, &asked, client) == http::Kept::No {
            return;
        }
    }
}
