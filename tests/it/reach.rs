//! A sandbox is reached by the agent in it wherever that can be, and by the engine where not.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sandboxd::agent::arrivals::Arrivals;
use sandboxd::agent::connection::Connection;
use sandboxd::agent::dock::Dock;
use sandboxd::agent::program::Program;
use sandboxd::agent::protocol::message::{
    Attended, Bounds, Fetch, Filter, From, Keep, Start, Stdin, Streams, Wait, What,
};
use sandboxd::docker::{Endpoint, Engine, Settings};
use sandboxd::id::{RunId, SessionId};
use sandboxd::sandbox::reach::{Reacher, Way};

use crate::support::api::{Api, WORKSPACES, settings, wait};
use crate::support::daemon::{Daemon, Ending};
use crate::support::docker::{self, IMAGE, Removed};
use crate::support::second_engine::{DataRoot, LiveRestore, SecondEngine};

const SOON: Duration = Duration::from_secs(10);
const PROGRAM: &str = "/.sandboxd/sandbox-agent";

// What the library does with the real agent.

/// A dock with the real program, and an engine.
struct Place {
    dir: tempfile::TempDir,
    dock: Dock,
    reacher: Reacher,
    program: PathBuf,
    host: Option<String>,
}

fn bounds() -> Bounds {
    Bounds {
        ring_bytes: 1 << 20,
        rings_bytes: 4 << 20,
        keep_ms: 60_000,
        runs: 8,
    }
}

fn session() -> SessionId {
    SessionId::parse("s").unwrap()
}

fn place(host: Option<String>) -> Place {
    docker::need_image();
    let dir = tempfile::tempdir().unwrap();
    let program = Program::install(dir.path(), None).unwrap();
    let program = program.expect("the agent is built in").path().to_path_buf();
    let address = host.clone().or_else(|| std::env::var("DOCKER_HOST").ok());
    let address = address.unwrap_or_else(|| "unix:///var/run/docker.sock".to_owned());
    let engine = Engine::new(Endpoint::parse(&address).unwrap(), Settings::default());
    let arrivals = Arrivals::default();
    let dock = Dock::new(dir.path().join("run"), bounds(), arrivals.clone()).unwrap();
    Place {
        reacher: Reacher::new(engine, dock.clone(), arrivals),
        dir,
        dock,
        program,
        host,
    }
}

/// How a container of a test is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Made {
    /// As sandboxd makes it.
    WithSocket,
    /// Without the directory in which its agent dials.
    WithoutSocket,
    /// Without an agent, though its label tells of one.
    Mute,
    /// Without any of it.
    Plain,
}

impl Place {
    /// Starts a container, and returns its id.
    fn container(&self, made: Made, more: &[&str]) -> String {
        let mut args = vec!["run", "--detach", "--network=none"];
        args.extend(more);
        let mount = |source: &Path, target: &str| {
            format!(
                "--mount=type=bind,src={},dst={target},readonly",
                source.display()
            )
        };
        let program = mount(&self.program, PROGRAM);
        let berth = mount(&self.dock.berth(&session()).unwrap(), "/.sandboxd/host");
        let label = "--label=io.sandboxd.exec=agent";
        let agent = [
            label,
            "--entrypoint",
            PROGRAM,
            "--tmpfs=/.sandboxd/run",
            &program,
        ];
        let (settings, command) = match made {
            Made::WithSocket => ([&agent[..], &[&berth]].concat(), &["serve"][..]),
            Made::WithoutSocket => (agent.to_vec(), &["serve"][..]),
            Made::Mute => (vec![label], &["sleep", "600"][..]),
            Made::Plain => (vec![], &["sleep", "600"][..]),
        };
        args.extend(settings);
        args.push(IMAGE);
        args.extend(command);
        match &self.host {
            None => docker::docker(&args),
            Some(host) => docker::docker_on(host, &args).unwrap(),
        }
    }

    async fn way(&self, container: &str) -> Way {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        self.reacher
            .way(&session(), container, deadline)
            .await
            .unwrap()
    }

    async fn agent(&self, container: &str) -> Connection {
        match self.way(container).await {
            Way::Agent(connection) => connection,
            Way::Engine => panic!("the agent does not answer"),
        }
    }
}

/// Runs a command by an agent, and returns what it printed.
async fn said(agent: &Connection, command: &str) -> String {
    let run = RunId::random().to_string();
    let start = Start {
        run: run.clone(),
        digest: "d".to_owned(),
        what: What::Shell(command.to_owned()),
        env: BTreeMap::new(),
        cwd: None,
        user: None,
        stdin: Stdin::Closed,
        streams: Streams::Merged,
        timeout_ms: Some(20_000),
        output: Keep::First(100_000),
        attended: Attended::Yes,
    };
    let fetch = Fetch {
        run,
        from: From::Seq(0),
        streams: Filter::Both,
        bytes: 200_000,
        wait: Wait::End,
    };
    let (started, output) = tokio::join!(agent.start(start), agent.fetch(fetch));
    assert!(started.unwrap().fresh);
    let output = output.unwrap();
    assert!(output.end.is_some(), "{output:?}");
    let bytes = output.records.into_iter().flat_map(|record| record.bytes);
    String::from_utf8(bytes.collect()).unwrap()
}

#[tokio::test]
async fn an_agent_that_dials_is_reached_and_runs_commands() {
    let place = place(None);
    let id = place.container(Made::WithSocket, &[]);
    let _removed = Removed::container(&id);
    let agent = place.agent(&id).await;
    assert_eq!(said(&agent, "echo $((6 * 7))").await, "42\n");
    let again = place.agent(&id).await;
    assert!(again.is(&agent), "it is the same stream");
    let arrival = place.reacher.next_arrival().await;
    assert!(arrival.connection.is(&agent) && arrival.container == id);
    let start = Instant::now();
    for _ in 0..50 {
        said(&agent, "true").await;
    }
    eprintln!("a command takes {:?}", start.elapsed() / 50);
    docker::docker(&["kill", &id]);
    agent.closed().await;
}

#[tokio::test]
async fn an_agent_that_cannot_dial_is_reached_over_the_bridge() {
    let place = place(None);
    let id = place.container(Made::WithoutSocket, &[]);
    let _removed = Removed::container(&id);
    let agent = place.agent(&id).await;
    assert_eq!(said(&agent, "echo $((6 * 7))").await, "42\n");
    let long = said(&agent, "seq 10000").await;
    assert_eq!(long.lines().count(), 10_000);
    assert!(place.agent(&id).await.is(&agent));
    let arrival = place.reacher.next_arrival().await;
    assert!(arrival.connection.is(&agent));
}

#[tokio::test]
async fn callers_that_come_at_once_share_one_stream() {
    let place = place(None);
    let id = place.container(Made::WithoutSocket, &[]);
    let _removed = Removed::container(&id);
    let (a, b, c) = tokio::join!(place.agent(&id), place.agent(&id), place.agent(&id));
    assert!(a.is(&b) && b.is(&c));
}

#[tokio::test]
async fn an_agent_dials_again_after_its_daemon_was_gone_and_its_runs_go_on() {
    let mut place = place(None);
    let id = place.container(Made::WithSocket, &[]);
    let _removed = Removed::container(&id);
    let agent = place.agent(&id).await;
    said(&agent, "sleep 600 & echo $! > /tmp/pid").await;
    let life = agent.hello().life.clone();
    drop(agent);
    let inode = |place: &Place| {
        use std::os::unix::fs::MetadataExt as _;
        fs::metadata(place.dock.directory(&session()))
            .unwrap()
            .ino()
    };
    let before = inode(&place);
    // All that a daemon knew is gone with it.
    let address = std::env::var("DOCKER_HOST");
    let address = address.unwrap_or_else(|_| "unix:///var/run/docker.sock".to_owned());
    let engine = Engine::new(Endpoint::parse(&address).unwrap(), Settings::default());
    let arrivals = Arrivals::default();
    let root = place.dir.path().join("run");
    place.reacher = Reacher::default();
    place.dock = Dock::new(root, bounds(), arrivals.clone()).unwrap();
    place.reacher = Reacher::new(engine, place.dock.clone(), arrivals);
    let agent = place.agent(&id).await;
    assert_eq!(agent.hello().life, life);
    assert_eq!(
        said(&agent, "kill -0 $(cat /tmp/pid) && echo on").await,
        "on\n"
    );
    assert_eq!(inode(&place), before);
}

#[tokio::test]
async fn a_process_of_the_sandbox_that_is_not_its_first_is_a_stranger() {
    let place = place(None);
    let id = place.container(Made::WithSocket, &[]);
    let _removed = Removed::container(&id);
    let agent = place.agent(&id).await;
    let dial = format!("{PROGRAM} connect /.sandboxd/host/agent.sock");
    said(&agent, &format!("{dial} < /dev/null; true")).await;
    said(
        &agent,
        "rm -f /.sandboxd/host/agent.sock; touch /.sandboxd/host/x; true",
    )
    .await;
    assert!(!agent.is_closed() && place.agent(&id).await.is(&agent));
    let entries = fs::read_dir(place.dock.directory(&session())).unwrap();
    assert_eq!(entries.count(), 1, "the sandbox changes nothing in there");
}

#[tokio::test]
async fn a_container_without_an_agent_is_left_to_the_engine_at_once() {
    let place = place(None);
    let id = place.container(Made::Plain, &[]);
    let _removed = Removed::container(&id);
    let start = Instant::now();
    for _ in 0..100 {
        assert!(matches!(place.way(&id).await, Way::Engine));
    }
    assert!(
        start.elapsed() < Duration::from_secs(1),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test]
async fn an_agent_that_does_not_answer_is_waited_for_once() {
    let place = place(None);
    let id = place.container(Made::Mute, &[]);
    let _removed = Removed::container(&id);
    assert!(matches!(place.way(&id).await, Way::Engine));
    let start = Instant::now();
    assert!(matches!(place.way(&id).await, Way::Engine));
    assert!(
        start.elapsed() < Duration::from_secs(1),
        "{:?}",
        start.elapsed()
    );
    assert!(!place.reacher.reaches_agents(&session()));
}

#[tokio::test]
async fn a_sandbox_of_gvisor_is_reached_over_the_bridge() {
    let engine = SecondEngine::start(LiveRestore::Off, DataRoot::Plain);
    let place = place(Some(engine.host()));
    let id = place.container(Made::WithSocket, &["--runtime=runsc"]);
    let agent = place.agent(&id).await;
    let kernel = said(&agent, "dmesg | head -1; echo $((6 * 7))").await;
    assert!(
        kernel.contains("gVisor") && kernel.ends_with("42\n"),
        "{kernel}"
    );
}

// What the daemon does.

/// Counts the streams to agents that a daemon holds.
fn streams_of(daemon: &Daemon) -> usize {
    let mut dialed = BTreeSet::new();
    for id in docker::running(&daemon.label()) {
        let pid = docker::docker(&["inspect", "--format", "{{.State.Pid}}", &id]);
        // The kernel lists both ends where the stream was dialed.
        let table = fs::read_to_string(format!("/proc/{pid}/net/unix")).unwrap_or_default();
        let ends = table.lines().filter(|line| line.contains("/agent.sock"));
        dialed.extend(ends.map(|line| {
            let inode = line.split_whitespace().nth(6).unwrap();
            PathBuf::from(format!("socket:[{inode}]"))
        }));
    }
    let open = fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap();
    open.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok())
        .filter(|target| dialed.contains(target))
        .count()
}

fn wait_for_streams(daemon: &Daemon, count: usize) {
    wait("the agents have dialed", SOON, || {
        (streams_of(daemon) == count).then_some(())
    });
}

#[test]
fn a_session_has_an_agent_that_finds_the_daemon_again_after_any_end_of_it() {
    let mut daemon = Daemon::start(&settings(&[WORKSPACES]));
    let api = Api::of(&daemon);
    api.open_id("a");
    api.open_id("b");
    assert_eq!(api.info("a")["exec"], "agent");
    wait_for_streams(&daemon, 2);
    for ending in [Ending::Terminate, Ending::Kill] {
        daemon.restart(ending);
        wait_for_streams(&daemon, 2);
        assert_eq!(api.info("a")["exec"], "agent");
        assert_eq!(api.info("a")["incarnation"], 1);
    }
    let start = Instant::now();
    docker::docker(&["stop", &api.container("a")]);
    api.wait_for("a", "hibernated");
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
    wait_for_streams(&daemon, 1);
    api.sh("a", "true");
    wait_for_streams(&daemon, 2);
    api.close("a", "?purge=true");
    api.close("b", "?purge=true");
    wait_for_streams(&daemon, 0);
    let run = fs::read_dir(daemon.dir().join("run"))
        .unwrap()
        .next()
        .unwrap();
    wait("the directories of sessions are gone", SOON, || {
        let mut left = fs::read_dir(run.as_ref().unwrap().path()).unwrap();
        left.next().is_none().then_some(())
    });
}

#[test]
fn without_agents_containers_are_made_the_old_way_and_those_with_one_still_serve() {
    let mut daemon = Daemon::start(&settings(&[WORKSPACES]));
    let api = Api::of(&daemon);
    api.open_id("a");
    daemon.set("SANDBOXD_EXEC", "docker");
    daemon.restart(Ending::Terminate);
    api.open_id("d");
    for id in ["a", "d"] {
        assert_eq!(api.info(id)["exec"], "docker");
        assert_eq!(api.info(id)["drifted"], false);
        assert_eq!(api.sh(id, "echo on"), "on");
    }
    let format = "{{json .Config.Cmd}} {{.HostConfig.Init}}";
    let made = docker::docker(&["inspect", "--format", format, &api.container("d")]);
    assert_eq!(made, r#"["sleep","infinity"] true"#);
    daemon.set("SANDBOXD_EXEC", "agent");
    daemon.restart(Ending::Kill);
    wait_for_streams(&daemon, 1);
    assert_eq!(api.info("a")["exec"], "agent");
    assert_eq!(api.info("d")["exec"], "docker");
    assert_eq!(api.info("d")["drifted"], false);
}

/// Returns a program that no kernel here runs: of another architecture, or of none.
fn unable(dir: &Path, is_elf: bool) -> PathBuf {
    let path = dir.join(if is_elf { "elf" } else { "text" });
    let mut bytes = b"no program".to_vec();
    if is_elf {
        bytes = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\xff\0\x01\0\0\0".to_vec();
        bytes.resize(4096, 0);
    }
    fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn where_the_agent_cannot_run_containers_are_made_without_it() {
    for (is_elf, workspaces) in [(true, true), (false, false)] {
        let dir = tempfile::tempdir().unwrap();
        let program = unable(dir.path(), is_elf);
        let program = ("SANDBOXD_AGENT", program.to_str().unwrap());
        let changes = [program, WORKSPACES];
        let changes = if workspaces {
            &changes[..]
        } else {
            &changes[..1]
        };
        let daemon = Daemon::start(&settings(changes));
        let api = Api::of(&daemon);
        let first = Instant::now();
        api.open_id("first");
        let first = first.elapsed();
        let second = Instant::now();
        api.open_id("second");
        eprintln!(
            "the first took {first:?}, the second {:?}",
            second.elapsed()
        );
        for id in ["first", "second"] {
            let info = api.info(id);
            assert_eq!(
                (&info["exec"], &info["incarnation"]),
                (&"docker".into(), &1.into())
            );
            assert_eq!(api.sh(id, "echo on"), "on");
            assert!(info["reason"].is_null(), "{info}");
        }
        assert_eq!(
            docker::labelled(&daemon.label()).len(),
            2,
            "none is left over"
        );
    }
}

#[test]
fn a_container_whose_agent_cannot_run_any_more_is_not_replaced() {
    let daemon = Daemon::start(&settings(&[]));
    let api = Api::of(&daemon);
    api.open_id("s");
    api.sh("s", "echo precious > file");
    let container = api.container("s");
    docker::docker(&["stop", &container]);
    api.wait_for("s", "hibernated");
    let agent = daemon.dir().join("state/agent");
    let version = fs::read_dir(&agent)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let program = version.join("sandbox-agent");
    fs::rename(&program, version.join("away")).unwrap();
    let asked = serde_json::json!({"command": "cat file"});
    let refused = api.call("POST", "/sessions/s/exec", Some(&asked));
    assert!(500 <= refused.status, "{}", refused.text());
    assert!(
        refused.text().contains("sandbox-agent"),
        "{}",
        refused.text()
    );
    fs::rename(version.join("away"), &program).unwrap();
    wait("it wakes", Duration::from_secs(30), || {
        let reply = api.call("POST", "/sessions/s/exec", Some(&asked));
        (reply.status == 200 && reply.text().contains("precious")).then_some(())
    });
    assert_eq!(api.container("s"), container);
}

#[test]
fn an_engine_that_does_not_see_our_files_gets_the_agent_into_its_containers() {
    // The daemon has a runtime directory that the engine does not see.
    let hidden = "exec unshare --mount /bin/sh -c \
                  'mount -t tmpfs hidden $SANDBOXD_RUNTIME_DIR && exec \"$0\" \"$@\"' \"$0\" \"$@\"";
    let daemon = Daemon::start_under(&settings(&[WORKSPACES]), hidden);
    let api = Api::of(&daemon);
    for id in ["first", "second"] {
        api.open_id(id);
        assert_eq!(api.info(id)["exec"], "agent");
        let container = api.container(id);
        let format = "{{len .Mounts}} {{json .Config.Entrypoint}}";
        let made = docker::docker(&["inspect", "--format", format, &container]);
        assert_eq!(made, format!(r#"1 ["{PROGRAM}"]"#));
        assert_eq!(api.sh(id, "echo on"), "on");
    }
    let place = place(None);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let agent = place.agent(&api.container("second")).await;
        assert_eq!(said(&agent, "echo $((6 * 7))").await, "42\n");
    });
    docker::docker(&["stop", &api.container("first")]);
    api.wait_for("first", "hibernated");
    assert_eq!(api.sh("first", "echo on"), "on");
}
