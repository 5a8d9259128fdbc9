//! Stands between a daemon and the real engine, and fails on request.
//!
//! A connection carries one call, as the daemon makes them.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

use tempfile::TempDir;

const ENGINE: &str = "/var/run/docker.sock";
const HEAD_BYTES_MAX: usize = 64 << 10;
const PIECE_BYTES: usize = 16 << 10;

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// It is forwarded.
    Forward,
    /// It is accepted, and nothing is said any more, until it is forwarded after all.
    Frozen,
    /// Its connection is refused, and those that stand are cut.
    Refusing,
    /// There is no socket any more, and connections that stand are cut.
    Gone,
}

/// A way to the engine through a socket of its own.
#[derive(Debug)]
pub(crate) struct Proxy {
    dir: TempDir,
    shared: Arc<Shared>,
    acceptor: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    mode: Mode,
    /// Method and part of the path of calls whose replies are to be lost, once each.
    to_lose: Vec<(String, String)>,
    /// Method and part of the path of calls that the engine never sees, with the status
    /// and the message that they are answered with.
    answers: Vec<(String, String, u16, String)>,
    /// First lines of calls whose replies were lost.
    lost: Vec<String>,
    /// First lines of all calls.
    calls: Vec<String>,
    streams: Vec<UnixStream>,
}

impl Proxy {
    /// Starts to forward.
    pub(crate) fn start() -> Self {
        let proxy = Self::absent();
        proxy.set(Mode::Forward);
        proxy
    }

    /// Names a socket at which there is nothing yet.
    pub(crate) fn absent() -> Self {
        let state = State {
            mode: Mode::Gone,
            to_lose: Vec::new(),
            answers: Vec::new(),
            lost: Vec::new(),
            calls: Vec::new(),
            streams: Vec::new(),
        };
        Self {
            dir: tempfile::tempdir().unwrap(),
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                changed: Condvar::new(),
            }),
            acceptor: Mutex::new(None),
        }
    }

    /// Returns the engine's address for a daemon.
    pub(crate) fn address(&self) -> String {
        format!("unix://{}", self.path().display())
    }

    /// Changes what becomes of calls, those under way included.
    pub(crate) fn set(&self, mode: Mode) {
        let mut state = self.shared.state();
        state.mode = mode;
        let is_up = matches!(mode, Mode::Forward | Mode::Frozen);
        if !is_up {
            for stream in state.streams.drain(..) {
                cut(&stream);
            }
        }
        drop(state);
        self.shared.changed.notify_all();
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
        let rule = (method.to_owned(), path.to_owned());
        self.shared.state().to_lose.push(rule);
    }

    /// Has all such calls answered with an error from now on, in place of the engine.
    pub(crate) fn answer(&self, method: &str, path: &str, status: u16, message: &str) {
        let (method, path) = (method.to_owned(), path.to_owned());
        let answer = (method, path, status, message.to_owned());
        self.shared.state().answers.push(answer);
    }

    /// Has the engine answer all calls again.
    pub(crate) fn answer_nothing(&self) {
        self.shared.state().answers.clear();
    }

    /// Returns the calls whose replies were lost.
    pub(crate) fn lost(&self) -> Vec<String> {
        self.shared.state().lost.clone()
    }

    /// Returns the calls of a method.
    pub(crate) fn calls(&self, method: &str) -> Vec<String> {
        let state = self.shared.state();
        let of_method = |call: &&String| call.starts_with(method);
        state.calls.iter().filter(of_method).cloned().collect()
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

    fn path(&self) -> PathBuf {
        self.dir.path().join("engine.sock")
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.set(Mode::Gone);
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

    /// Carries one call to the engine and the reply back.
    fn carry(&self, mut client: UnixStream) -> std::io::Result<()> {
        self.state().streams.push(client.try_clone()?);
        self.thaw();
        let head = read_head(&mut client)?;
        let line = head.lines().next().unwrap_or_default().to_owned();
        let is_to_be_lost = self.note(&line);
        self.thaw();
        if let Some(answer) = self.answer_to(&line) {
            client.write_all(answer.as_bytes())?;
            cut(&client);
            return Ok(());
        }
        let mut engine = UnixStream::connect(ENGINE)?;
        self.state().streams.push(engine.try_clone()?);
        engine.write_all(head.as_bytes())?;
        let (mut from, mut to) = (client.try_clone()?, engine.try_clone()?);
        thread::spawn(move || {
            drop(std::io::copy(&mut from, &mut to));
            // The daemon closes a connection to end a call, of a stream for one.
            cut(&to);
        });
        let mut piece = [0; PIECE_BYTES];
        loop {
            let length = engine.read(&mut piece)?;
            self.thaw();
            if is_to_be_lost && length != 0 {
                self.state().lost.push(line);
                cut(&client);
                return Ok(());
            }
            if length == 0 {
                cut(&client);
                return Ok(());
            }
            client.write_all(&piece[..length])?;
        }
    }

    fn answer_to(&self, line: &str) -> Option<String> {
        let state = self.state();
        let mut answers = state.answers.iter();
        let (.., status, message) = answers.find(|(method, path, ..)| {
            line.starts_with(method.as_str()) && line.contains(path.as_str())
        })?;
        let body = serde_json::json!({ "message": message }).to_string();
        let length = body.len();
        Some(format!(
            "HTTP/1.1 {status} Fake\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        ))
    }

    /// Writes a call down and tells whether its reply is to be lost.
    fn note(&self, line: &str) -> bool {
        let mut state = self.state();
        state.calls.push(line.to_owned());
        let matches = |(method, path): &(String, String)| {
            line.starts_with(method.as_str()) && line.contains(path.as_str())
        };
        let found = state.to_lose.iter().position(matches);
        found.map(|place| state.to_lose.remove(place)).is_some()
    }
}

fn read_head(client: &mut UnixStream) -> std::io::Result<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if client.read(&mut byte)? == 0 || HEAD_BYTES_MAX < head.len() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        head.push(byte[0]);
    }
    String::from_utf8(head).map_err(|_| ErrorKind::InvalidData.into())
}

/// Ends a connection; one that has ended is as good.
fn cut(stream: &UnixStream) {
    drop(stream.shutdown(Shutdown::Both));
}

#[test]
fn a_proxy_forwards_freezes_refuses_and_loses() {
    let proxy = Proxy::start();
    let ask = || -> std::io::Result<String> {
        let mut stream = UnixStream::connect(proxy.path())?;
        stream.set_read_timeout(Some(std::time::Duration::from_millis(300)))?;
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
