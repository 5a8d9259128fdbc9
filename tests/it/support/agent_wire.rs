//! Speaks with an agent over its stream, one question after another.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use sandboxd::agent::protocol::frame::{Decoder, Frame, Input};
use sandboxd::agent::protocol::message::{
    AgentHello, Attended, Bounds, DaemonHello, Fetch, Filter, From, Keep, Reply, Request, Run,
    Start, Stdin, Streams, Wait, What, Why,
};
use sandboxd::agent::protocol::output::{OUTPUT_BYTES_MAX, Output};
use sandboxd::agent::protocol::{HOST_DIR, HOST_SOCKET, OWN_DIR, PROGRAM, VERSION};
use tempfile::TempDir;

use super::docker::{Removed, docker};

const PATIENCE: Duration = Duration::from_secs(30);

/// The bounds that tests set.
pub(crate) const BOUNDS: Bounds = Bounds {
    ring_bytes: 1 << 20,
    rings_bytes: 8 << 20,
    keep_ms: 600_000,
    runs: 64,
};

/// Returns the agent's program: the one of `SANDBOXD_TEST_AGENT`, or one that is built.
pub(crate) fn agent_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        if let Ok(given) = std::env::var("SANDBOXD_TEST_AGENT") {
            return PathBuf::from(given);
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let built = Command::new(env!("CARGO"))
            .args([
                "build",
                "--release",
                "--quiet",
                "--locked",
                "--target",
                &target,
            ])
            .arg("--manifest-path")
            .arg(root.join("src/bin/sandbox-agent/Cargo.toml"))
            .arg("--target-dir")
            .arg(root.join("target/agent"))
            .env("RUSTFLAGS", "-C target-feature=+crt-static")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .status();
        assert!(built.unwrap().success(), "the agent does not build");
        root.join("target/agent")
            .join(target)
            .join("release/sandbox-agent")
    })
}

/// What carries frames to an agent.
pub(crate) enum Carrier {
    /// A stream that the agent dialed, or that leads to its own socket.
    Socket(UnixStream),
    /// The streams of a bridge.
    Bridge(Child, ChildStdin, ChildStdout),
}

impl Carrier {
    fn read(&mut self, buffer: &mut [u8]) -> usize {
        match self {
            Self::Socket(socket) => socket.read(buffer),
            Self::Bridge(_, _, from) => from.read(buffer),
        }
        .unwrap_or_else(|error| panic!("no answer from the agent: {error}"))
    }

    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Self::Socket(socket) => socket.write_all(bytes),
            Self::Bridge(_, to, _) => to.write_all(bytes).and_then(|()| to.flush()),
        }
    }
}

/// An answer that was not asked for yet by the test.
enum Answer {
    Reply(Reply),
    Output(Output),
}

/// Why something was not done.
pub(crate) type Refused = (Why, String);

/// A daemon's side of a stream.
pub(crate) struct Caller {
    /// How the agent introduced itself.
    pub(crate) hello: AgentHello,
    carrier: Carrier,
    decoder: Decoder,
    asks: u64,
    answers: BTreeMap<u64, Answer>,
}

/// Returns the request that most tests vary.
pub(crate) fn start(what: What) -> Start {
    static RUNS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    let n = RUNS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    Start {
        run: format!("{:016x}{n:016x}", std::process::id()),
        digest: "digest".to_owned(),
        what,
        env: BTreeMap::new(),
        cwd: None,
        user: None,
        stdin: Stdin::Closed,
        streams: Streams::Merged,
        timeout_ms: None,
        output: Keep::First(100_000),
        attended: Attended::Yes,
    }
}

/// Returns the request for a text of the shell.
pub(crate) fn shell(text: &str) -> Start {
    start(What::Shell(text.to_owned()))
}

/// Returns the request for a program.
pub(crate) fn argv(words: &[&str]) -> Start {
    start(What::Argv(
        words.iter().map(|word| (*word).to_owned()).collect(),
    ))
}

impl Caller {
    /// Greets the agent at the other end.
    pub(crate) fn greet(carrier: Carrier, bounds: Bounds) -> Self {
        let hello = AgentHello {
            version: 0,
            life: String::new(),
            uid: 0,
            files: 0,
        };
        let mut caller = Self {
            hello,
            carrier,
            decoder: Decoder::default(),
            asks: 0,
            answers: BTreeMap::new(),
        };
        let version = VERSION;
        caller.send(&Request::Hello(DaemonHello { version, bounds }));
        match caller.receive() {
            Some(Frame::Message(json)) => match serde_json::from_slice(&json).unwrap() {
                Reply::Hello(hello) => caller.hello = hello,
                other => panic!("not greeted: {other:?}"),
            },
            other => panic!("not greeted: {other:?}"),
        }
        caller
    }

    /// Sends bytes as they are.
    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        self.carrier.write(bytes).unwrap();
    }

    /// Waits for the end of the stream.
    pub(crate) fn is_closed(&mut self) -> bool {
        while self.receive().is_some() {}
        true
    }

    /// Ends the stream.
    pub(crate) fn hang_up(self) {
        match self.carrier {
            Carrier::Socket(socket) => socket.shutdown(Shutdown::Both).unwrap(),
            Carrier::Bridge(mut child, to, _) => {
                drop(to);
                assert!(child.wait().unwrap().success());
            }
        }
    }

    fn send(&mut self, request: &Request) {
        let mut bytes = Vec::new();
        let json = serde_json::to_vec(request).unwrap();
        Frame::Message(json.into()).put(&mut bytes).unwrap();
        self.send_raw(&bytes);
    }

    fn receive(&mut self) -> Option<Frame> {
        let mut piece = vec![0; 256 << 10];
        loop {
            if let Some(frame) = self.decoder.next().unwrap() {
                return Some(frame);
            }
            let read = self.carrier.read(&mut piece);
            if read == 0 {
                return None;
            }
            self.decoder.push(&piece[..read]);
        }
    }

    fn ask(&mut self, request: impl FnOnce(u64) -> Request) -> u64 {
        self.asks += 1;
        let asked = request(self.asks);
        self.send(&asked);
        self.asks
    }

    fn answer(&mut self, ask: u64) -> Answer {
        loop {
            if let Some(answer) = self.answers.remove(&ask) {
                return answer;
            }
            let frame = self.receive().expect("the stream is open");
            let (of, answer) = match frame {
                Frame::Output(packed) => {
                    let output = Output::unpack(packed).unwrap();
                    (output.ask, Answer::Output(output))
                }
                Frame::Message(json) => {
                    let reply: Reply = serde_json::from_slice(&json).unwrap();
                    let of = match &reply {
                        Reply::Hello(_) => panic!("greeted twice"),
                        Reply::Started { ask, .. }
                        | Reply::Runs { ask, .. }
                        | Reply::Usage { ask, .. }
                        | Reply::Done { ask }
                        | Reply::Failed { ask, .. } => *ask,
                    };
                    (of, Answer::Reply(reply))
                }
                Frame::Input(_) => panic!("an agent gives no input"),
            };
            self.answers.insert(of, answer);
        }
    }

    fn done(&mut self, ask: u64) -> Result<(), Refused> {
        match self.answer(ask) {
            Answer::Reply(Reply::Done { .. }) => Ok(()),
            Answer::Reply(Reply::Failed { why, text, .. }) => Err((why, text)),
            Answer::Reply(other) => panic!("{other:?}"),
            Answer::Output(other) => panic!("{other:?}"),
        }
    }

    /// Starts a run; tells whether this started it.
    pub(crate) fn start(&mut self, start: &Start) -> Result<(Run, bool), Refused> {
        let start = Box::new(start.clone());
        let ask = self.ask(|ask| Request::Start { ask, start });
        match self.answer(ask) {
            Answer::Reply(Reply::Started { run, fresh, .. }) => Ok((run, fresh)),
            Answer::Reply(Reply::Failed { why, text, .. }) => Err((why, text)),
            Answer::Reply(other) => panic!("{other:?}"),
            Answer::Output(other) => panic!("{other:?}"),
        }
    }

    /// Asks for output and does not wait for the answer.
    pub(crate) fn ask_output(&mut self, fetch: &Fetch) -> u64 {
        let fetch = fetch.clone();
        self.ask(|ask| Request::Fetch { ask, fetch })
    }

    /// Waits for the answer to a request for output.
    pub(crate) fn output(&mut self, ask: u64) -> Result<Output, Refused> {
        match self.answer(ask) {
            Answer::Output(output) => Ok(output),
            Answer::Reply(Reply::Failed { why, text, .. }) => Err((why, text)),
            Answer::Reply(other) => panic!("{other:?}"),
        }
    }

    /// Fetches output.
    pub(crate) fn fetch(&mut self, run: &str, seq: u64, wait: Wait) -> Result<Output, Refused> {
        let ask = self.ask_output(&fetch(run, seq, wait));
        self.output(ask)
    }

    /// Starts a run and fetches all that it writes and its end, in one go.
    pub(crate) fn run(&mut self, start: &Start) -> (String, Run) {
        let boxed = Box::new(start.clone());
        self.ask(|ask| Request::Start { ask, start: boxed });
        let started = self.asks;
        let ask = self.ask_output(&fetch(&start.run, 0, Wait::End));
        match self.answer(started) {
            Answer::Reply(Reply::Started { .. }) => {}
            Answer::Reply(other) => panic!("{other:?}"),
            Answer::Output(other) => panic!("{other:?}"),
        }
        let mut output = self.output(ask).unwrap();
        let mut bytes = Vec::new();
        loop {
            let next = output.records.last().map_or(0, |record| record.seq + 1);
            bytes.extend(output.records.into_iter().flat_map(|record| record.bytes));
            if let Some(end) = output.end {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                return (text, serde_json::from_slice(&end).unwrap());
            }
            output = self.fetch(&start.run, next, Wait::End).unwrap();
        }
    }

    /// Gives a run input, and does not wait until it was taken.
    pub(crate) fn ask_input(&mut self, run: &str, bytes: &[u8], ends: bool) -> u64 {
        self.asks += 1;
        let (ask, run, bytes) = (self.asks, run.to_owned(), bytes.to_vec());
        let mut frame = Vec::new();
        let input = Input {
            ask,
            run,
            ends,
            bytes,
        };
        Frame::Input(input).put(&mut frame).unwrap();
        self.send_raw(&frame);
        ask
    }

    /// Gives a run input.
    pub(crate) fn input(&mut self, run: &str, bytes: &[u8], ends: bool) -> Result<(), Refused> {
        let ask = self.ask_input(run, bytes, ends);
        self.done(ask)
    }

    /// Waits until something is done that was asked for under this number.
    pub(crate) fn wait_done(&mut self, ask: u64) -> Result<(), Refused> {
        self.done(ask)
    }

    /// Asks for something that is done or refused.
    pub(crate) fn order(&mut self, request: impl FnOnce(u64) -> Request) -> Result<(), Refused> {
        let ask = self.ask(request);
        self.done(ask)
    }

    /// Takes a request back.
    pub(crate) fn cancel(&mut self, ask: u64) {
        self.send(&Request::Cancel { ask });
    }

    /// Tells whether a request was answered meanwhile.
    pub(crate) fn was_answered(&self, ask: u64) -> bool {
        self.answers.contains_key(&ask)
    }

    /// Lists all runs.
    pub(crate) fn list(&mut self) -> Vec<Run> {
        let ask = self.ask(|ask| Request::List { ask });
        match self.answer(ask) {
            Answer::Reply(Reply::Runs { runs, .. }) => runs,
            Answer::Reply(other) => panic!("{other:?}"),
            Answer::Output(other) => panic!("{other:?}"),
        }
    }
}

/// Returns a request for all output from a record on.
pub(crate) fn fetch(run: &str, seq: u64, wait: Wait) -> Fetch {
    Fetch {
        run: run.to_owned(),
        from: From::Seq(seq),
        streams: Filter::Both,
        bytes: u32::try_from(OUTPUT_BYTES_MAX).unwrap(),
        wait,
    }
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "waited for too long: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A socket that agents dial.
pub(crate) struct Host {
    dir: TempDir,
    listener: UnixListener,
}

impl Host {
    /// Listens in a new directory.
    pub(crate) fn new() -> Self {
        let dir = TempDir::new().unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let listener = listen(&dir.path().join(HOST_SOCKET));
        Self { dir, listener }
    }

    /// Returns the directory.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join(HOST_SOCKET)
    }

    /// Listens anew, as a daemon does that was started again.
    pub(crate) fn replace(&mut self) {
        std::fs::remove_file(self.socket()).unwrap();
        self.listener = listen(&self.socket());
    }

    /// Waits for an agent to dial, and greets it.
    pub(crate) fn accept(&self) -> Caller {
        self.accept_with(BOUNDS)
    }

    /// Waits for an agent to dial, and greets it with other bounds.
    pub(crate) fn accept_with(&self, bounds: Bounds) -> Caller {
        self.listener.set_nonblocking(true).unwrap();
        let mut accepted = None;
        until("the agent dials", || {
            accepted = self.listener.accept().ok();
            accepted.is_some()
        });
        let (socket, _) = accepted.unwrap();
        socket.set_nonblocking(false).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Caller::greet(Carrier::Socket(socket), bounds)
    }
}

fn listen(path: &Path) -> UnixListener {
    let listener = UnixListener::bind(path).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o777)).unwrap();
    listener
}

/// An agent as a plain process of this host.
pub(crate) struct LocalAgent {
    /// Its process.
    pub(crate) process: Child,
    /// The socket that it dials.
    pub(crate) host: Host,
}

impl LocalAgent {
    /// Starts it; it dials at once.
    pub(crate) fn start() -> Self {
        let host = Host::new();
        let process = Command::new(agent_program())
            .args(["serve", "--dial"])
            .arg(host.socket())
            .arg("--listen")
            .arg(host.dir().join("own.sock"))
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env_remove("TERM")
            .spawn()
            .unwrap();
        Self { process, host }
    }
}

impl Drop for LocalAgent {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).ok();
        self.process.wait().ok();
    }
}

/// An agent as the first process of a container.
pub(crate) struct BoxedAgent {
    /// The container.
    pub(crate) name: String,
    /// The socket that it dials.
    pub(crate) host: Host,
    _removed: Removed,
}

impl BoxedAgent {
    /// Starts it in a container of an image, with further options of `docker run`.
    pub(crate) fn start(image: &str, options: &[&str]) -> Self {
        let host = Host::new();
        let name = format!("sandboxd-agent-{}", uuid::Uuid::new_v4().simple());
        let removed = Removed::container(&name);
        let program = format!("{}:{PROGRAM}:ro", agent_program().display());
        let socket = format!("{}:{HOST_DIR}:ro", host.dir().display());
        let mut words = vec!["run", "--detach", "--name", &name, "--network", "none"];
        words.extend([
            "--volume", &program, "--volume", &socket, "--tmpfs", OWN_DIR,
        ]);
        words.extend(["--entrypoint", PROGRAM]);
        words.extend(options);
        words.extend([image, "serve"]);
        docker(&words);
        Self {
            name,
            host,
            _removed: removed,
        }
    }

    /// Reaches it by a bridge.
    pub(crate) fn bridge(&self) -> Caller {
        let mut child = Command::new("docker")
            .args(["exec", "--interactive", &self.name, PROGRAM, "connect"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Caller::greet(Carrier::Bridge(child, to, from), BOUNDS)
    }
}
