//! Stands between a daemon and an engine, and fails on request.
//!
//! It fails as a whole, by [`Mode`], and call by call, by a [`Plan`]. Every call of the
//! daemon has a connection of its own.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tempfile::TempDir;

use super::fault::{
    Action, After, Faults, Log, Plan, Received, Rule, Shape, Then, When, Which, cut, read_request,
    received_until_closed,
};

const ENGINE: &str = "/var/run/docker.sock";
const PIECE_BYTES: usize = 16 << 10;

/// What becomes of all calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// They are forwarded, as the plan says.
    Forward,
    /// They are accepted, and nothing is said any more, until they are forwarded after all.
    Frozen,
    /// Their connections are refused, and those that stand are cut.
    Refusing,
    /// There is no socket any more, and connections that stand are cut.
    Gone,
}

/// A way to the engine through a socket of its own.
///
/// Dropping it while a test panics prints what it decided.
#[derive(Debug)]
pub(crate) struct Proxy {
    _dir: TempDir,
    shared: Arc<Shared>,
    acceptor: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    engine: PathBuf,
    socket: PathBuf,
    faults: Faults,
    state: Mutex<State>,
    changed: Condvar,
    /// Held by who changes what is at the socket.
    place: Mutex<()>,
}

#[derive(Debug)]
struct State {
    mode: Mode,
    /// What is open now, by the order of its opening.
    streams: BTreeMap<u64, UnixStream>,
    opened: u64,
}

/// A connection that is cut when everything is, until this is dropped.
struct Registered<'s> {
    shared: &'s Shared,
    number: u64,
}

impl Proxy {
    /// Starts to forward to the real engine.
    pub(crate) fn start() -> Self {
        let proxy = Self::absent();
        proxy.set(Mode::Forward);
        proxy
    }

    /// Names a socket at which there is nothing yet.
    pub(crate) fn absent() -> Self {
        Self::absent_before(Path::new(ENGINE))
    }

    /// Starts to forward to the engine at a socket.
    pub(crate) fn before(engine: &Path, plan: Plan) -> Self {
        let proxy = Self::absent_before(engine);
        proxy.faults().follow(plan);
        proxy.set(Mode::Forward);
        proxy
    }

    fn absent_before(engine: &Path) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let state = State {
            mode: Mode::Gone,
            streams: BTreeMap::new(),
            opened: 0,
        };
        Self {
            shared: Arc::new(Shared {
                engine: engine.to_owned(),
                socket: dir.path().join("engine.sock"),
                faults: Faults::new(Plan::default()),
                state: Mutex::new(state),
                changed: Condvar::new(),
                place: Mutex::default(),
            }),
            _dir: dir,
            acceptor: Mutex::new(None),
        }
    }

    /// Returns the engine's address for a daemon.
    pub(crate) fn address(&self) -> String {
        format!("unix://{}", self.path().display())
    }

    /// Returns what goes wrong call by call.
    pub(crate) fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    /// Changes what becomes of calls, those under way included.
    pub(crate) fn set(&self, mode: Mode) {
        let mut state = self.shared.state();
        state.mode = mode;
        let is_up = matches!(mode, Mode::Forward | Mode::Frozen);
        if !is_up {
            for stream in std::mem::take(&mut state.streams).values() {
                cut(stream);
            }
        }
        drop(state);
        self.shared.changed.notify_all();
        let _place = self.shared.place.lock().unwrap();
        let mut acceptor = self.acceptor.lock().unwrap();
        match (is_up, acceptor.take()) {
            (true, Some(running)) => *acceptor = Some(running),
            (true, None) => *acceptor = Some(self.listen()),
            (false, Some(running)) => {
                // Wakes it from waiting for a connection.
                drop(UnixStream::connect(self.path()));
                running.join().unwrap();
            }
            (false, None) => {}
        }
        if mode == Mode::Gone {
            self.remove_socket();
        }
    }

    /// Has the engine's reply to the next such call lost, after the engine has acted.
    pub(crate) fn lose_reply(&self, method: &str, path: &str) {
        let path = format!("**{path}**");
        let rule = Rule::new(method, &path, Which::Nth(1), Action::DropReply);
        self.faults().add(rule);
    }

    /// Has all such calls answered with an error from now on, in place of the engine.
    pub(crate) fn answer(&self, method: &str, path: &str, status: u16, message: &str) {
        let answer = Action::Answer {
            status,
            body: serde_json::json!({ "message": message }).to_string(),
            claims: None,
        };
        let path = format!("**{path}**");
        self.faults()
            .add(Rule::new(method, &path, Which::Every, answer));
    }

    /// Has the engine answer all calls again.
    pub(crate) fn answer_nothing(&self) {
        self.faults().follow(Plan::default());
    }

    /// Returns the calls whose replies were lost.
    pub(crate) fn lost(&self) -> Vec<String> {
        let log = self.log();
        let lost = log
            .decisions()
            .iter()
            .filter(|decision| decision.action == Action::DropReply);
        lost.map(|decision| decision.line.clone()).collect()
    }

    /// Returns the calls of a method.
    pub(crate) fn calls(&self, method: &str) -> Vec<String> {
        let log = self.log();
        let lines = log.decisions().iter().map(|decision| decision.line.clone());
        lines.filter(|line| line.starts_with(method)).collect()
    }

    /// Returns what was decided about each call so far.
    pub(crate) fn log(&self) -> Log {
        self.faults().log()
    }

    fn listen(&self) -> JoinHandle<()> {
        self.remove_socket();
        let listener = UnixListener::bind(self.path()).unwrap();
        let shared = Arc::clone(&self.shared);
        thread::spawn(move || {
            loop {
                let (client, _) = listener.accept().unwrap();
                if matches!(shared.state().mode, Mode::Refusing | Mode::Gone) {
                    return;
                }
                let shared = Arc::clone(&shared);
                // A connection that breaks is what this is for.
                thread::spawn(move || drop(shared.carry(client)));
            }
        })
    }

    fn remove_socket(&self) {
        match std::fs::remove_file(self.path()) {
            Ok(()) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound),
        }
    }

    fn path(&self) -> &Path {
        &self.shared.socket
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("--- what was decided about each call ---\n{}", self.log());
        }
        self.set(Mode::Gone);
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.shared.state().streams.remove(&self.number);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Waits while nothing is to be said.
    fn thaw(&self) {
        let state = self.state();
        let frozen = |state: &mut State| state.mode == Mode::Frozen;
        drop(self.changed.wait_while(state, frozen).unwrap());
    }

    /// Has a connection cut when everything is; one that comes too late is cut at once.
    fn register(&self, stream: &UnixStream) -> std::io::Result<Registered<'_>> {
        let mut state = self.state();
        if !matches!(state.mode, Mode::Forward | Mode::Frozen) {
            return Err(ErrorKind::ConnectionAborted.into());
        }
        state.opened += 1;
        let number = state.opened;
        state.streams.insert(number, stream.try_clone()?);
        Ok(Registered {
            shared: self,
            number,
        })
    }

    /// Carries one call to the engine and the reply back, or does what was decided.
    fn carry(&self, mut client: UnixStream) -> std::io::Result<()> {
        let _registered = self.register(&client)?;
        self.thaw();
        let Some(request) = read_request(&mut client)? else {
            return Ok(());
        };
        let decided = self.faults.decide(request.line());
        let dropped = self.faults.reach(&decided, When::Before) == Then::Drop;
        self.thaw();
        if dropped {
            cut(&client);
            return Ok(());
        }
        match &decided.action {
            Action::Refuse { ms } => {
                cut(&client);
                return self.refuse(Duration::from_millis(*ms));
            }
            Action::Hang => {
                received_until_closed(&client);
                return Ok(());
            }
            Action::DropRequest => {
                cut(&client);
                return Ok(());
            }
            Action::Answer {
                status,
                body,
                claims,
            } => {
                client.write_all(&answer(*status, body, *claims))?;
                cut(&client);
                return Ok(());
            }
            Action::Delay { ms } => thread::sleep(Duration::from_millis(*ms)),
            Action::Replay => {
                let (mut first, _registered) = self.send(&request)?;
                first.read_exact(&mut [0])?;
                cut(&first);
            }
            Action::Pass
            | Action::DropReply
            | Action::Cut { .. }
            | Action::CorruptFrame(_)
            | Action::StallEvents { .. }
            | Action::ReorderEvents => {}
        }
        let (mut engine, _registered) = self.send(&request)?;
        let (from, to) = (client.try_clone()?, engine.try_clone()?);
        thread::spawn(move || {
            received_until_closed(&from);
            // The daemon closes a connection to end a call, of a stream for one.
            cut(&to);
        });
        let acted = || self.faults.reach(&decided, When::After);
        let carried = self.pass_on(&mut engine, &client, decided.action.clone(), acted);
        cut(&client);
        cut(&engine);
        carried
    }

    fn send(&self, request: &Received) -> std::io::Result<(UnixStream, Registered<'_>)> {
        let mut engine = UnixStream::connect(&self.engine)?;
        let registered = self.register(&engine)?;
        engine.write_all(&request.bytes())?;
        Ok((engine, registered))
    }

    fn pass_on(
        &self,
        engine: &mut UnixStream,
        mut client: &UnixStream,
        action: Action,
        acted: impl FnOnce() -> Then,
    ) -> std::io::Result<()> {
        let mut shape = Shape::new(action);
        let mut acted = Some(acted);
        let mut piece = [0; PIECE_BYTES];
        loop {
            let length = engine.read(&mut piece)?;
            self.thaw();
            if length == 0 {
                return client.write_all(&shape.rest());
            }
            if acted.take().is_some_and(|acted| acted() == Then::Drop) {
                return Ok(());
            }
            let (passed, after) = shape.piece(&piece[..length]);
            client.write_all(&passed)?;
            if after == After::Cut {
                return Ok(());
            }
        }
    }

    /// Refuses connections for a while: a socket at which nobody listens takes the place.
    fn refuse(&self, how_long: Duration) -> std::io::Result<()> {
        let _place = self.place.lock().unwrap();
        if self.state().mode != Mode::Forward {
            return Ok(());
        }
        let aside = self.socket.with_extension("aside");
        std::fs::rename(&self.socket, &aside)?;
        drop(UnixListener::bind(&self.socket)?);
        thread::sleep(how_long);
        std::fs::rename(&aside, &self.socket)
    }
}

fn answer(status: u16, body: &str, claims: Option<usize>) -> Vec<u8> {
    let is_json = serde_json::from_str::<serde_json::Value>(body).is_ok();
    let kind = if is_json {
        "application/json"
    } else {
        "text/html"
    };
    let length = claims.unwrap_or(body.len());
    format!(
        "HTTP/1.1 {status} Fault\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

#[test]
fn a_proxy_forwards_freezes_refuses_and_loses() {
    let proxy = Proxy::start();
    let ask = || -> std::io::Result<String> {
        let mut stream = UnixStream::connect(proxy.path())?;
        stream.set_read_timeout(Some(Duration::from_millis(300)))?;
        stream.write_all(b"GET /_ping HTTP/1.1\r\nhost: d\r\nconnection: close\r\n\r\n")?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply)?;
        Ok(reply)
    };
    assert!(ask().unwrap().starts_with("HTTP/1.1 200"));
    proxy.lose_reply("GET", "/_ping");
    assert_eq!(ask().unwrap(), "");
    assert_eq!(proxy.lost(), ["GET /_ping HTTP/1.1"]);
    proxy.set(Mode::Frozen);
    assert_eq!(ask().unwrap_err().kind(), ErrorKind::WouldBlock);
    for (mode, kind) in [
        (Mode::Refusing, ErrorKind::ConnectionRefused),
        (Mode::Gone, ErrorKind::NotFound),
    ] {
        proxy.set(mode);
        assert_eq!(ask().unwrap_err().kind(), kind);
    }
    proxy.set(Mode::Forward);
    assert!(ask().unwrap().starts_with("HTTP/1.1 200"));
    assert_eq!(proxy.calls("POST"), Vec::<String>::new());
}
