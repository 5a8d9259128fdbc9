//! Runs the real daemon on directories of its own, and leaves nothing of it behind.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::docker;
use super::fake::FakeEngine;
use super::http::Http;
use super::second_engine::SecondEngine;

const START_MAX: Duration = Duration::from_secs(30);
const STOP_MAX: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);
const SIGKILL: i32 = 9;
/// How it ends when its store could not be tried.
const UNTRIED: i32 = 74;
const LOG_LINES_SHOWN_MAX: usize = 40;

/// The settings of a daemon beyond the ones that every test needs, by variable.
pub(crate) type Settings = BTreeMap<String, String>;

/// How a daemon is made to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ending {
    /// SIGTERM: it may tidy up.
    Terminate,
    /// SIGKILL: it may not.
    Kill,
}

/// A daemon with a state directory, a runtime directory, a token and a port of its own.
///
/// Dropping it purges its sessions, kills it and removes every container it made.
#[derive(Debug)]
pub(crate) struct Daemon {
    dir: TempDir,
    port: u16,
    token: String,
    settings: Settings,
    /// Shell commands that are run before the program, in its process.
    before: String,
    child: Option<Child>,
    instances: BTreeSet<String>,
    engine: Engine,
}

/// Whose containers a daemon makes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Engine {
    /// A real one's, of this address where it is not the one of all tests.
    Real(Option<String>),
    /// One's in memory, with which they are gone.
    Fake,
}

impl Daemon {
    /// Starts a daemon and waits until it answers.
    ///
    /// In `settings`, `{{work}}` stands for its directory and `{{image}}` for the image
    /// of the tests. Panics when it does not come up; the end of its log is shown then.
    pub(crate) fn start(settings: &Settings) -> Self {
        Self::prepared(settings, ":", None)
    }

    /// Starts a daemon on an engine of the test's own, which has to outlive it.
    pub(crate) fn start_on(engine: &SecondEngine, settings: &Settings) -> Self {
        let mut settings = settings.clone();
        settings.insert("SANDBOXD_DOCKER_HOST".to_owned(), engine.host());
        Self::prepared(&settings, ":", Some(engine.host()))
    }

    /// Starts a daemon in a process that a shell has prepared by `before`, such as with
    /// `ulimit`, and waits until it answers.
    pub(crate) fn start_under(settings: &Settings, before: &str) -> Self {
        Self::prepared(settings, before, None)
    }

    fn prepared(settings: &Settings, before: &str, engine: Option<String>) -> Self {
        docker::need_image();
        let mut daemon = Self::prepare(settings, Engine::Real(engine));
        before.clone_into(&mut daemon.before);
        daemon.spawn();
        daemon
    }

    /// Starts a daemon on an engine in memory, and waits until it answers.
    ///
    /// No part of it needs the real one.
    pub(crate) fn on(engine: &FakeEngine, settings: &Settings) -> Self {
        let mut daemon = Self::prepare(settings, Engine::Fake);
        let address = ("SANDBOXD_DOCKER_HOST".to_owned(), engine.address());
        // Nothing runs in its containers, so nothing dials.
        let exec = ("SANDBOXD_EXEC".to_owned(), "docker".to_owned());
        daemon.settings.extend([address, exec]);
        daemon.spawn();
        daemon
    }

    fn prepare(settings: &Settings, engine: Engine) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("sandboxd-it-")
            .tempdir()
            .unwrap();
        for name in ["state", "run", "ws"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let work = dir.path().to_str().unwrap();
        let settings = settings
            .iter()
            .map(|(name, value)| {
                let value = value
                    .replace("{{work}}", work)
                    .replace("{{image}}", docker::IMAGE);
                (name.clone(), value)
            })
            .collect();
        Self {
            port: free_port(),
            token: uuid::Uuid::new_v4().simple().to_string(),
            dir,
            settings,
            before: ":".to_owned(),
            child: None,
            instances: BTreeSet::new(),
            engine,
        }
    }

    /// Returns a client that holds the service token.
    pub(crate) fn http(&self) -> Http {
        Http::new(self.port, &self.token)
    }

    /// Returns where it is reached.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Returns its service token.
    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// Returns the directory that holds its state, its workspaces (`ws`) and its log.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the number of its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().expect("the daemon runs").id()
    }

    /// Returns the label that its containers carry, as a filter for `docker ps`.
    pub(crate) fn label(&self) -> String {
        let marker = self.dir.path().join("state/initialised");
        let instance = marked_instance(&marker).expect("a daemon that answers has an instance");
        format!("{}={instance}", docker::INSTANCE_LABEL)
    }

    /// Ends the daemon and waits until its process is gone.
    pub(crate) fn stop(&mut self, ending: Ending) -> ExitStatus {
        self.learn_instances();
        let mut child = self
            .child
            .take()
            .expect("a daemon is stopped while it runs");
        match ending {
            Ending::Kill => child.kill().unwrap(),
            Ending::Terminate => {
                let pid = Pid::from_child(&child);
                kill_process(pid, Signal::TERM).unwrap();
            }
        }
        let end = Instant::now() + STOP_MAX;
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status;
            }
            if end < Instant::now() {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("the daemon did not end within {STOP_MAX:?}");
            }
            thread::sleep(POLL);
        }
    }

    /// Ends the daemon and starts it again on the same directories, token and port.
    pub(crate) fn restart(&mut self, ending: Ending) {
        self.stop(ending);
        self.spawn();
    }

    /// Changes a setting from the next start on.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.settings.insert(name.to_owned(), value.to_owned());
    }

    /// Starts it again after it was stopped.
    pub(crate) fn start_again(&mut self) {
        self.spawn();
    }

    /// Waits until it has ended by a kill that somebody else sent.
    pub(crate) fn wait_until_killed(&mut self) {
        let mut child = self.child.take().expect("a daemon that runs is waited for");
        let end = Instant::now() + STOP_MAX;
        while child.try_wait().unwrap().is_none() {
            assert!(
                Instant::now() < end,
                "it was not killed within {STOP_MAX:?}"
            );
            thread::sleep(POLL);
        }
        let status = child.wait().unwrap();
        assert_eq!(status.signal(), Some(SIGKILL), "{status}");
    }

    /// Tells whether its process has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        let child = self.child.as_mut();
        child.is_none_or(|child| child.try_wait().unwrap().is_some())
    }

    fn spawn(&mut self) {
        self.launch(&[]);
        if let Err(status) = self.ended_or_answers() {
            panic!("the daemon ended while it started, {status}");
        }
    }

    /// Begins to start it again, under the program that `under` names, if it names any.
    pub(crate) fn launch(&mut self, under: &[&str]) {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_path())
            .unwrap();
        let program = env!("CARGO_BIN_EXE_sandboxd");
        let child = self
            .command("/bin/sh")
            .args(["-c", &format!("{}; exec \"$0\" \"$@\"", self.before)])
            .args(under.iter().chain([&program]))
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.child = Some(child);
    }

    /// Runs the program with these arguments on the daemon's directories and settings;
    /// returns its exit code and what it said.
    pub(crate) fn run(&self, args: &[&str]) -> (i32, String) {
        let mut command = self.command(env!("CARGO_BIN_EXE_sandboxd"));
        let output = command.args(args).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        (output.status.code().expect("nobody kills it"), said)
    }

    /// Returns a command in the environment of the daemon.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .envs(inherited())
            .env("SANDBOXD_HOST", "127.0.0.1")
            // Tests may run in a container with an engine of its own, which need not answer.
            .env("SANDBOXD_CONTAINER", "none")
            .env("SANDBOXD_PORT", self.port.to_string())
            .env("SANDBOXD_TOKEN", &self.token)
            .env("SANDBOXD_STATE_DIR", self.dir.path().join("state"))
            .env("SANDBOXD_RUNTIME_DIR", self.dir.path().join("run"))
            .envs(&self.settings)
            .stdin(Stdio::null());
        command
    }

    /// Waits until it answers, or somebody has killed it; tells whether it answers.
    pub(crate) fn comes_up(&mut self) -> bool {
        let Err(status) = self.ended_or_answers() else {
            return true;
        };
        // The child in which it tries the store may be the one that was killed.
        let is_killed = status.signal() == Some(SIGKILL) || status.code() == Some(UNTRIED);
        assert!(is_killed, "it ended by itself: {status}");
        false
    }

    /// Waits until it answers, or has ended.
    fn ended_or_answers(&mut self) -> Result<(), ExitStatus> {
        let end = Instant::now() + START_MAX;
        let http = self.http();
        while !http.get("/healthz").is_ok_and(|reply| reply.status == 200) {
            let ended = self.child.as_mut().unwrap().try_wait().unwrap();
            if let Some(status) = ended {
                self.child = None;
                return Err(status);
            }
            assert!(
                Instant::now() < end,
                "the daemon does not answer after {START_MAX:?}"
            );
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// Notes whose label its containers carry, to find them when it cannot be asked, and
    /// returns the ids of its sessions.
    fn learn_instances(&mut self) -> Vec<String> {
        let Engine::Real(engine) = self.engine.clone() else {
            return Vec::new();
        };
        let listing = self
            .http()
            .get("/sessions")
            .ok()
            .and_then(|reply| reply.json());
        let sessions = listing
            .as_ref()
            .and_then(|listing| listing.get("sessions")?.as_array())
            .map_or(&[][..], Vec::as_slice);
        let text = |session: &Value, name| Some(session.get(name)?.as_str()?.to_owned());
        let containers = sessions
            .iter()
            .filter_map(|session| text(session, "container"));
        self.instances
            .extend(containers.filter_map(|name| docker::instance_on(engine.as_deref(), &name)));
        let marker = self.dir.path().join("state/initialised");
        self.instances.extend(marked_instance(&marker));
        sessions
            .iter()
            .filter_map(|session| text(session, "session_id"))
            .collect()
    }

    /// Returns the file that holds what it said.
    pub(crate) fn log_path(&self) -> PathBuf {
        self.dir.path().join("daemon.log")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let sessions = self.learn_instances();
        if let Some(mut child) = self.child.take() {
            let http = self.http();
            for id in sessions {
                if let Err(error) = http.delete(&format!("/sessions/{id}?purge=true")) {
                    eprintln!("purge session {id}: {error}");
                }
            }
            if let Err(error) = child.kill().and_then(|()| child.wait()) {
                eprintln!("kill the daemon: {error}");
            }
        }
        if let Engine::Real(engine) = &self.engine {
            docker::remove_sandboxes(engine.as_deref(), self.dir.path(), &self.instances);
        }
        if thread::panicking() {
            eprintln!(
                "--- the end of the daemon's log ---\n{}",
                tail(&self.log_path())
            );
        }
    }
}

/// Returns the instance that a state directory belongs to, by the marker in it.
fn marked_instance(marker: &Path) -> Option<String> {
    let marker: Value = serde_json::from_slice(&fs::read(marker).ok()?).ok()?;
    Some(marker.get("r")?.as_str()?.to_owned())
}

/// What a daemon takes over from the environment of the tests.
fn inherited() -> impl Iterator<Item = (OsString, OsString)> {
    const NAMES: [&str; 5] = ["PATH", "HOME", "DOCKER_HOST", "TMPDIR", "RUST_BACKTRACE"];
    std::env::vars_os().filter(|(name, _)| NAMES.iter().any(|inherited| name == *inherited))
}

/// Finds a port below the range from which the kernel takes ports of outgoing connections,
/// so that nobody is given it while a daemon restarts.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let spread = u16::try_from(std::process::id() % 9_000).unwrap();
    loop {
        let port = 20_000 + spread + NEXT.fetch_add(1, Ordering::Relaxed) % 3_000;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

fn tail(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES_SHOWN_MAX)..].join("\n")
}
