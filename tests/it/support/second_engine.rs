//! Runs a Docker engine of a test's own, which may be stopped, frozen and killed.
//!
//! ```text
//! unshare (pids, mounts, network)
//!   docker-init            the first process in there: with it, all of this ends
//!     containerd           of its own, as the distributions run it
//!       shims, sandboxes
//!     dockerd
//! ```
//!
//! Everything lives in namespaces of its own: whatever becomes of the test, the kernel
//! ends every process and every mount with the first process. The network is apart
//! since an engine without a bridge removes the bridge of the one beside it.
//! Control groups are the host's, where the engine's containers are found as any
//! other engine's.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::docker::{self, IMAGE};

const START_MAX: Duration = Duration::from_mins(1);
const END_MAX: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(20);
const LOG_LINES_SHOWN_MAX: usize = 15;
const ID_CHARS: usize = 64;
/// gVisor, where it is installed: a second kernel between a sandbox and the host.
const RUNTIMES: &str = r#"{"runtimes": {"runsc": {"path": "runsc", "runtimeArgs":
    ["--network=none", "--ignore-cgroups", "--platform=ptrace"]}}}"#;

/// Whether containers go on while their engine is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LiveRestore {
    /// They do.
    On,
    /// They are stopped with it, or at its next start.
    Off,
}

/// Where the engine keeps its images and containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataRoot {
    /// In its directory.
    Plain,
    /// On a disk of so many MiB.
    Disk(u32),
}

/// A process in the namespaces of an engine.
#[derive(Debug)]
struct Inside {
    /// The process that entered, waits for it and ends with it.
    entered: Child,
    pid: Pid,
}

/// An engine with a containerd, a data root and a socket of its own.
///
/// Dropping it ends every process that it ever started, and leaves nothing behind.
#[derive(Debug)]
pub(crate) struct SecondEngine {
    dir: TempDir,
    holder: Child,
    first: Pid,
    containerd: Option<Inside>,
    dockerd: Option<Inside>,
}

impl SecondEngine {
    /// Starts an engine that has the image of the tests, and waits until it answers.
    pub(crate) fn start(live_restore: LiveRestore, data_root: DataRoot) -> Self {
        docker::need_image();
        let dir = tempfile::Builder::new()
            .prefix("sandboxd-engine-")
            .tempdir()
            .unwrap();
        for name in ["data", "exec", "ctd"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        fs::write(dir.path().join("daemon.json"), RUNTIMES).unwrap();
        let mut holder = Command::new("unshare")
            .args(["--pid", "--mount", "--net", "--fork", "--kill-child"])
            .args(["--mount-proc", "sh", "-c", FIRST])
            .env("DISK", disk(dir.path(), data_root))
            .env("DATA", dir.path().join("data"))
            .env("READY", dir.path().join("ready"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(dir.path().join("first.log")).unwrap())
            .spawn()
            .unwrap();
        let first = only_child(&mut holder);
        let mut engine = Self {
            dir,
            holder,
            first,
            containerd: None,
            dockerd: None,
        };
        let ready = engine.dir.path().join("ready");
        engine.wait("its namespaces are there", || ready.exists());
        engine.start_containerd();
        engine.start_again(live_restore);
        engine.import();
        engine
    }

    /// Returns the address of its socket, for `DOCKER_HOST`.
    pub(crate) fn host(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// Returns its socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("docker.sock")
    }

    /// Returns the directory in which its images and containers are.
    ///
    /// A disk of its own is mounted there for the engine alone.
    pub(crate) fn data_root(&self) -> PathBuf {
        let seen = format!("/proc/{}/root", self.first.as_raw_nonzero());
        Path::new(&seen).join(self.dir.path().join("data").strip_prefix("/").unwrap())
    }

    /// Runs `docker ARGS` on it.
    pub(crate) fn docker(&self, args: &[&str]) -> String {
        docker::docker_on(&self.host(), args)
            .unwrap_or_else(|why| panic!("docker {}: {why}", args.join(" ")))
    }

    /// Returns the full ids of the containers that carry a label, running or not.
    pub(crate) fn labelled(&self, label: &str) -> Vec<String> {
        let filter = format!("label={label}");
        let ids = self.docker(&["ps", "--all", "--quiet", "--no-trunc", "--filter", &filter]);
        ids.lines().map(str::to_owned).collect()
    }

    /// Returns the processes of each container that it ever started and that has any,
    /// as the control groups tell it.
    pub(crate) fn processes(&self) -> BTreeMap<String, Vec<u32>> {
        let with_processes = |id: String| {
            let procs = groups_of(&id)
                .into_iter()
                .find_map(|group| fs::read_to_string(group.join("cgroup.procs")).ok())?;
            let pids: Vec<u32> = procs.lines().map(|pid| pid.parse().unwrap()).collect();
            (!pids.is_empty()).then_some((id, pids))
        };
        self.ever_started()
            .into_iter()
            .filter_map(with_processes)
            .collect()
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn stop(&mut self) {
        self.end_dockerd(Signal::TERM);
    }

    /// Kills it.
    pub(crate) fn kill(&mut self) {
        self.end_dockerd(Signal::KILL);
    }

    /// Has it stand still: its socket takes connections and says nothing.
    pub(crate) fn freeze(&self) {
        kill_process(self.running().pid, Signal::STOP).unwrap();
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self) {
        let dockerd = self.running();
        // What waits for it stands still with it.
        kill_process(Pid::from_child(&dockerd.entered), Signal::CONT).unwrap();
        kill_process(dockerd.pid, Signal::CONT).unwrap();
    }

    /// Starts it after it ended, and waits until it answers.
    pub(crate) fn start_again(&mut self, live_restore: LiveRestore) {
        self.begin_again(live_restore);
        self.wait_until_it_answers();
    }

    /// Starts it after it ended.
    pub(crate) fn begin_again(&mut self, live_restore: LiveRestore) {
        let path = |name: &str| self.dir.path().join(name).display().to_string();
        // A socket of one that was killed is in the way of nobody but the tests.
        drop(fs::remove_file(self.socket()));
        let host = self.host();
        let mut args = vec![
            "dockerd".to_owned(),
            format!("--host={host}"),
            format!("--data-root={}", path("data")),
            format!("--exec-root={}", path("exec")),
            format!("--pidfile={}", path("docker.pid")),
            format!("--containerd={}", path("ctd/c.sock")),
            "--bridge=none".to_owned(),
            "--iptables=false".to_owned(),
            "--exec-opt=native.cgroupdriver=cgroupfs".to_owned(),
            format!("--config-file={}", path("daemon.json")),
        ];
        if live_restore == LiveRestore::On {
            args.push("--live-restore".to_owned());
        }
        self.dockerd = Some(self.enter(&args, "dockerd.log"));
    }

    /// Runs `ctr ARGS` on its containerd, beside the engine; returns what it prints.
    pub(crate) fn ctr(&self, args: &[&str]) -> String {
        let output = Command::new("nsenter")
            .args(["--mount", "--pid", "--net", "--target"])
            .arg(self.first.as_raw_nonzero().to_string())
            .args(["ctr", "--namespace", "moby", "--address"])
            .arg(self.dir.path().join("ctd/c.sock"))
            .args(args)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "ctr {args:?}: {said}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Kills its containerd; the shims and the sandboxes go on.
    pub(crate) fn kill_containerd(&mut self) {
        let containerd = self.containerd.take().expect("containerd runs");
        end(containerd, Signal::KILL);
    }

    /// Starts its containerd, after it was killed.
    pub(crate) fn start_containerd(&mut self) {
        let path = |name: &str| self.dir.path().join(name).display().to_string();
        let config = format!(
            "version = 2\nroot = '{}'\nstate = '{}'\ndisabled_plugins = ['io.containerd.grpc.v1.cri']\n[grpc]\naddress = '{}'\n",
            path("ctd/root"),
            path("ctd/state"),
            path("ctd/c.sock"),
        );
        fs::write(path("ctd/config.toml"), config).unwrap();
        let args = ["containerd", "--config", &path("ctd/config.toml")].map(str::to_owned);
        self.containerd = Some(self.enter(&args, CONTAINERD_LOG));
        let socket = self.dir.path().join("ctd/c.sock");
        self.wait("containerd answers", || {
            std::os::unix::net::UnixStream::connect(&socket).is_ok()
        });
    }

    /// Waits until the engine answers.
    pub(crate) fn wait_until_it_answers(&mut self) {
        let host = self.host();
        self.wait("the engine answers", || {
            docker::docker_on(&host, &["version", "--format", "{{.Server.Version}}"]).is_ok()
        });
    }

    fn import(&self) {
        let copy = format!("docker save {IMAGE} | docker --host {} load", self.host());
        let output = Command::new("sh")
            .args(["-c", &copy])
            .env_remove("DOCKER_HOST")
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "copy the image: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    fn running(&self) -> &Inside {
        self.dockerd.as_ref().expect("the engine runs")
    }

    fn end_dockerd(&mut self, signal: Signal) {
        let dockerd = self.dockerd.take().expect("the engine runs");
        end(dockerd, signal);
    }

    /// Starts a program in the namespaces.
    fn enter(&self, args: &[String], log: &str) -> Inside {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.dir.path().join(log))
            .unwrap();
        let mut entered = Command::new("nsenter")
            .args(["--mount", "--pid", "--net", "--target"])
            .arg(self.first.as_raw_nonzero().to_string())
            .args(args)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let pid = only_child(&mut entered);
        Inside { entered, pid }
    }

    fn wait(&mut self, what: &str, mut is_so: impl FnMut() -> bool) {
        let end = Instant::now() + START_MAX;
        while !is_so() {
            let ended = [&mut self.containerd, &mut self.dockerd]
                .into_iter()
                .flatten()
                .find_map(|inside| inside.entered.try_wait().unwrap());
            assert!(
                ended.is_none() && Instant::now() < end,
                "not so: {what}; ended {ended:?}\n{}",
                self.last_words()
            );
            thread::sleep(POLL);
        }
    }

    fn last_words(&self) -> String {
        let tail = |name: &str| {
            let text = fs::read_to_string(self.dir.path().join(name)).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let from = lines.len().saturating_sub(LOG_LINES_SHOWN_MAX);
            format!("--- {name} ---\n{}", lines[from..].join("\n"))
        };
        [tail("first.log"), tail(CONTAINERD_LOG), tail("dockerd.log")].join("\n")
    }

    /// Returns the ids of all containers that were ever started, also of those that
    /// the engine has forgotten: containerd writes each of them down.
    fn ever_started(&self) -> BTreeSet<String> {
        let log = fs::read_to_string(self.dir.path().join(CONTAINERD_LOG)).unwrap_or_default();
        log.split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|word| word.len() == ID_CHARS && word.bytes().all(|b| b.is_ascii_hexdigit()))
            .map(str::to_owned)
            .collect()
    }
}

impl Drop for SecondEngine {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("{}", self.last_words());
        }
        if let Err(error) = kill_process(self.first, Signal::KILL) {
            eprintln!("end the engine's first process: {error}");
        }
        drop(self.holder.wait());
        for mut inside in [self.dockerd.take(), self.containerd.take()]
            .into_iter()
            .flatten()
        {
            drop(inside.entered.kill());
            drop(inside.entered.wait());
        }
        // The kernel empties the groups and leaves them.
        let end = Instant::now() + END_MAX;
        for id in self.ever_started() {
            for group in groups_of(&id) {
                while let Err(error) = fs::remove_dir(&group) {
                    if end < Instant::now() {
                        eprintln!("left behind: {}: {error}", group.display());
                        break;
                    }
                    thread::sleep(POLL);
                }
            }
        }
    }
}

const CONTAINERD_LOG: &str = "containerd.log";

/// What the first process does before it waits: sockets of shims, and the key that
/// makes an engine another one, are kept in places that no setting moves, and a disk of the engine's own is mounted.
const FIRST: &str = r#"
set -e
mkdir -p /run/containerd
mount -t tmpfs tmpfs /run/containerd
mkdir -p /etc/docker
mount -t tmpfs tmpfs /etc/docker
[ -z "$DISK" ] || mount -o loop "$DISK" "$DATA"
: >"$READY"
exec $(command -v docker-init || command -v tini) -s -- sleep infinity
"#;

/// Makes the file of a disk, where one is asked for; its path is empty otherwise.
fn disk(dir: &Path, data_root: DataRoot) -> PathBuf {
    match data_root {
        DataRoot::Plain => PathBuf::new(),
        DataRoot::Disk(mib) => {
            let path = dir.join("disk");
            let file = fs::File::create(&path).unwrap();
            file.set_len(u64::from(mib) << 20).unwrap();
            let made = Command::new("mkfs.ext4")
                .args(["-q", "-F", "-m", "0"])
                .arg(&path)
                .output()
                .unwrap();
            assert!(made.status.success(), "{made:?}");
            path
        }
    }
}

/// Returns the control groups of a container, one for each controller.
fn groups_of(id: &str) -> Vec<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    let mut places = vec![root.to_path_buf()];
    places.extend(
        fs::read_dir(root)
            .unwrap()
            .map(|entry| entry.unwrap().path()),
    );
    places
        .into_iter()
        .map(|place| place.join("docker").join(id))
        .filter(|group| group.is_dir())
        .collect()
}

/// Returns the process that another one has forked.
fn only_child(parent: &mut Child) -> Pid {
    let pid = parent.id();
    let children = format!("/proc/{pid}/task/{pid}/children");
    let end = Instant::now() + START_MAX;
    loop {
        let listed = fs::read_to_string(&children).unwrap_or_default();
        let child = listed.split_whitespace().next();
        if let Some(child) = child.and_then(|child| Pid::from_raw(child.parse().ok()?)) {
            return child;
        }
        let ended = parent.try_wait().unwrap();
        assert!(
            ended.is_none() && Instant::now() < end,
            "no process was forked: {ended:?}"
        );
        thread::sleep(POLL);
    }
}

/// Ends a process and waits until it is gone.
fn end(mut inside: Inside, signal: Signal) {
    kill_process(inside.pid, signal).unwrap();
    let until = Instant::now() + END_MAX;
    while inside.entered.try_wait().unwrap().is_none() {
        assert!(Instant::now() < until, "it does not end on {signal:?}");
        thread::sleep(POLL);
    }
}
