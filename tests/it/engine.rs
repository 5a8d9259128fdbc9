//! Speaks with the real Docker engine of this host.
//!
//! Needs `/var/run/docker.sock` and the image `sandboxd-test/busybox:latest`. Each
//! test makes its own containers under its own label, and removes them by id.
#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeMap;
use std::time::Duration;

use sandboxd::cgroup::Cgroups;
use sandboxd::clock::Clock;
use sandboxd::docker::containers::{
    Created, Force, Label, Removed, Renamed, Started, Stopped, Unpaused,
};
use sandboxd::docker::error::Retry;
use sandboxd::docker::events::Action;
use sandboxd::docker::exec::{ExecBody, ExecCreated, ExecState};
use sandboxd::docker::frames::Stream;
use sandboxd::docker::inspect::State;
use sandboxd::docker::spec::{CreateBody, Env, HostConfig, LogConfig, Mount, RestartPolicy};
use sandboxd::docker::version::ApiVersion;
use sandboxd::docker::{Endpoint, Engine, Settings};
use sandboxd::id::InstanceId;

const SOCKET: &str = "/var/run/docker.sock";
const IMAGE: &str = "sandboxd-test/busybox:latest";
const LABEL: &str = "io.sandboxd.instance";

async fn engine() -> Engine {
    let engine = Engine::new(Endpoint::parse(SOCKET).unwrap(), Settings::default());
    if let Err(error) = engine.ping().await {
        panic!("these tests need a Docker engine at {SOCKET}: {error:?}");
    }
    let image = engine.image_inspect(IMAGE).await.unwrap();
    assert!(image.is_some(), "these tests need the image {IMAGE}");
    engine
}

/// A container that is removed at the end of its test, however that ends.
struct Container {
    engine: Engine,
    id: String,
    name: String,
    label: Label,
}

impl Container {
    async fn new() -> Self {
        Self::with(HostConfig::default()).await
    }

    async fn with(host_config: HostConfig) -> Self {
        let engine = engine().await;
        let instance = InstanceId::random().to_string();
        let name = format!("sandboxd-it-{instance}");
        let body = body(&instance, host_config);
        let Created::New(id) = engine.create(&name, &body).await.unwrap() else {
            panic!("{name} could not be created");
        };
        Self {
            engine,
            id,
            name,
            label: Label::new(LABEL, instance),
        }
    }

    async fn started() -> Self {
        let container = Self::new().await;
        let started = container.engine.start(&container.id).await.unwrap();
        assert_eq!(started, Started::Now);
        container
    }

    async fn state(&self) -> Option<State> {
        let inspect = self.engine.inspect(&self.id).await.unwrap();
        inspect.map(|inspect| inspect.state)
    }

    async fn stop(&self) -> Stopped {
        self.engine
            .stop(&self.id, Duration::from_secs(1))
            .await
            .unwrap()
    }

    async fn remove(&self) -> Removed {
        self.engine.remove(&self.id, Force::Yes).await.unwrap()
    }

    /// Runs a command; returns its stdout, its stderr and how it ended.
    async fn run(&self, exec: &ExecBody) -> (String, String, ExecState) {
        let created = self.engine.exec_create(&self.id, exec).await.unwrap();
        let ExecCreated::New(id) = created else {
            panic!("no exec: {created:?}");
        };
        let mut stream = self.engine.exec_start(&id).await.unwrap();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        while let Some(frame) = stream.next().await.unwrap() {
            match frame.stream {
                Stream::Stdout => out.extend(frame.data),
                Stream::Stderr => err.extend(frame.data),
            }
        }
        let state = self.engine.exec_inspect(&id).await.unwrap();
        (
            String::from_utf8(out).unwrap(),
            String::from_utf8(err).unwrap(),
            state.unwrap(),
        )
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let (engine, id) = (self.engine.clone(), self.id.clone());
        // A test that panicked has no runtime left to wait on.
        let removal = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(engine.remove(&id, Force::Yes))
        });
        drop(removal.join());
    }
}

fn body(instance: &str, host_config: HostConfig) -> CreateBody {
    CreateBody {
        image: IMAGE.to_owned(),
        entrypoint: Some(Vec::new()),
        cmd: argv(&["sleep", "infinity"]),
        labels: BTreeMap::from([(LABEL.to_owned(), instance.to_owned())]),
        host_config: HostConfig {
            init: Some(true),
            network_mode: Some("none".to_owned()),
            restart_policy: Some(RestartPolicy::NEVER),
            ..host_config
        },
        ..CreateBody::default()
    }
}

fn argv(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn shell(script: &str) -> ExecBody {
    ExecBody {
        argv: argv(&["sh", "-c", script]),
        ..ExecBody::default()
    }
}

#[tokio::test]
async fn the_engine_says_what_it_is() {
    let engine = engine().await;
    let version = engine.version().await.unwrap();
    assert!(!version.server.is_empty());
    assert!(ApiVersion::OLDEST <= version.api && version.api <= ApiVersion::NEWEST);
    let host = engine.info().await.unwrap();
    assert!(!host.id.is_empty());
    assert!(["1", "2"].contains(&host.cgroup_version.as_str()));
    assert!(host.runtimes.contains(&host.default_runtime));
}

#[tokio::test]
async fn a_container_goes_from_creation_to_removal_and_every_step_may_be_repeated() {
    let container = Container::new().await;
    let engine = &container.engine;
    let before = Clock::host().now();
    assert_eq!(container.state().await, Some(State::Created));
    assert_eq!(container.stop().await, Stopped::Already);

    assert_eq!(engine.start(&container.id).await.unwrap(), Started::Now);
    assert_eq!(engine.start(&container.id).await.unwrap(), Started::Already);
    let inspect = engine.inspect(&container.name).await.unwrap().unwrap();
    assert_eq!(
        (&inspect.id, &inspect.name),
        (&container.id, &container.name)
    );
    assert_eq!(inspect.state, State::Running);
    assert_eq!(inspect.image, IMAGE);
    assert!(inspect.pid.is_some() && inspect.finished_at.is_none());
    assert!(before < inspect.started_at.unwrap());
    assert!(container.label.is_in(&inspect.labels));
    assert_eq!(
        engine.unpause(&container.id).await.unwrap(),
        Unpaused::NotPaused
    );

    assert_eq!(container.stop().await, Stopped::Now);
    assert_eq!(container.stop().await, Stopped::Already);
    let inspect = engine.inspect(&container.id).await.unwrap().unwrap();
    assert_eq!((inspect.state, inspect.pid), (State::Exited, None));
    assert_eq!(inspect.exit_code, 143);
    assert!(inspect.started_at < inspect.finished_at);

    assert_eq!(container.remove().await, Removed::Now);
    assert_eq!(container.remove().await, Removed::Gone);
    assert_eq!(container.state().await, None);
    assert_eq!(engine.start(&container.id).await.unwrap(), Started::Gone);
    assert_eq!(container.stop().await, Stopped::Gone);
    assert_eq!(engine.unpause(&container.id).await.unwrap(), Unpaused::Gone);
}

#[tokio::test]
async fn a_taken_name_and_a_missing_image_are_outcomes_of_a_creation() {
    let container = Container::new().await;
    let engine = &container.engine;
    let mut body = body("x", HostConfig::default());
    let created = engine.create(&container.name, &body).await.unwrap();
    assert_eq!(created, Created::NameTaken);
    body.image = "sandboxd-test/no-such-image:latest".to_owned();
    let created = engine.create("sandboxd-it-none", &body).await.unwrap();
    assert_eq!(created, Created::NoSuchImage);
    let name = format!("{}-b", container.name);
    let renamed = engine.rename(&container.id, &name).await.unwrap();
    assert_eq!(renamed, Renamed::Now);
    let inspect = engine.inspect(&container.id).await.unwrap().unwrap();
    assert_eq!(inspect.name, name);
}

#[tokio::test]
async fn a_missing_directory_of_the_host_is_refused_and_not_made() {
    let engine = engine().await;
    let missing = "/nonexistent/sandboxd-it";
    let settings = HostConfig {
        mounts: vec![Mount::writable(missing, "/workspace")],
        ..HostConfig::default()
    };
    let refused = engine
        .create("sandboxd-it-unmade", &body("x", settings))
        .await;
    let error = refused.unwrap_err();
    assert_eq!((error.status(), error.retry()), (Some(400), Retry::Never));
    assert!(!std::path::Path::new(missing).exists());
}

#[tokio::test]
async fn every_setting_reaches_the_container() {
    let workspace = tempfile::tempdir().unwrap();
    let source = workspace.path().to_str().unwrap();
    let container = Container::with(HostConfig {
        mounts: vec![
            Mount::writable(source, "/workspace"),
            Mount::read_only(source, "/seen"),
        ],
        tmpfs: BTreeMap::from([("/tmp".to_owned(), "size=1m,mode=1777,exec".to_owned())]),
        memory: Some(64 << 20),
        memory_swap: Some(64 << 20),
        nano_cpus: Some(500_000_000),
        cpu_shares: Some(512),
        pids_limit: Some(32),
        security_opt: argv(&["no-new-privileges:true"]),
        cap_drop: argv(&["MKNOD", "NET_RAW"]),
        log_config: Some(LogConfig {
            driver: "json-file".to_owned(),
            config: BTreeMap::from([("max-size".to_owned(), "1m".to_owned())]),
        }),
        auto_remove: Some(false),
        oom_score_adj: Some(500),
        ..HostConfig::default()
    })
    .await;
    container.engine.start(&container.id).await.unwrap();
    let script = "echo hi > /workspace/file; cat /seen/file; echo x > /seen/no || echo refused; \
                  stat -f -c %b /tmp; grep NoNewPrivs /proc/self/status; cat /proc/1/oom_score_adj";
    let (out, _, state) = container.run(&shell(script)).await;
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines, ["hi", "refused", "256", "NoNewPrivs:\t1", "500"]);
    assert_eq!(state.exit_code, Some(0));
    let inspect = container
        .engine
        .inspect(&container.id)
        .await
        .unwrap()
        .unwrap();
    let sources: Vec<&str> = inspect.mounts.iter().map(|m| m.source.as_str()).collect();
    assert_eq!(sources, [source, source]);
    let sample = Cgroups::default().sample(&container.id).unwrap();
    assert_eq!(sample.memory_limit_bytes, Some(64 << 20));
}

#[tokio::test]
async fn an_exec_gives_its_output_and_its_end() {
    let container = Container::started().await;
    let exec = ExecBody {
        env: Env::from_iter([("GREETING", "hello")]),
        working_dir: Some("/tmp".to_owned()),
        user: Some("1000".to_owned()),
        ..shell("echo $GREETING $PWD $(id -u); echo oops >&2; exit 7")
    };
    let (out, err, state) = container.run(&exec).await;
    assert_eq!(
        (out.as_str(), err.as_str()),
        ("hello /tmp 1000\n", "oops\n")
    );
    assert_eq!((state.running, state.exit_code), (false, Some(7)));
    assert!(state.pid.is_some());
}

#[tokio::test]
async fn a_long_output_arrives_whole() {
    let container = Container::started().await;
    let exec = shell("head -c 5000000 /dev/zero | tr '\\0' x");
    let (out, err, state) = container.run(&exec).await;
    assert_eq!((out.len(), err.len()), (5_000_000, 0));
    assert_eq!(state.exit_code, Some(0));
}

#[tokio::test]
async fn a_program_that_cannot_start_ends_without_a_pid() {
    let container = Container::started().await;
    let exec = ExecBody {
        argv: argv(&["/no/such/program"]),
        ..ExecBody::default()
    };
    let (out, _, state) = container.run(&exec).await;
    assert!(out.contains("OCI runtime exec failed"), "{out}");
    assert_eq!((state.running, state.pid), (false, None));
    assert!(matches!(state.exit_code, Some(126 | 127)), "{state:?}");
}

#[tokio::test]
async fn a_container_that_does_not_run_takes_no_exec() {
    let container = Container::new().await;
    let (engine, id) = (&container.engine, &container.id);
    let exec = shell("true");
    let created = engine.exec_create(id, &exec).await.unwrap();
    assert!(matches!(created, ExecCreated::NotRunning(words) if words.contains("not running")));
    container.remove().await;
    let created = engine.exec_create(id, &exec).await.unwrap();
    assert_eq!(created, ExecCreated::Gone);
}

#[tokio::test]
async fn only_containers_with_the_label_are_listed() {
    let (one, other) = (Container::new().await, Container::started().await);
    let list = one.engine.list(&one.label).await.unwrap();
    assert_eq!(list.len(), 1);
    assert_eq!((&list[0].id, &list[0].name), (&one.id, &one.name));
    assert_eq!(list[0].state, State::Created);
    assert_eq!(list[0].image, IMAGE);
    let list = one.engine.list(&other.label).await.unwrap();
    assert_eq!(list[0].state, State::Running);
    let none = Label::new(LABEL, InstanceId::random().to_string());
    assert_eq!(one.engine.list(&none).await.unwrap(), []);
}

#[tokio::test]
async fn events_of_labelled_containers_arrive_in_their_order() {
    let (container, other) = (Container::new().await, Container::new().await);
    let engine = &container.engine;
    let mut events = engine.events(&container.label).await.unwrap();
    engine.start(&other.id).await.unwrap();
    engine.start(&container.id).await.unwrap();
    container.stop().await;
    container.remove().await;
    let mut seen = Vec::new();
    while seen.last() != Some(&Action::Destroy) {
        let next = tokio::time::timeout(Duration::from_secs(10), events.next());
        let event = next.await.unwrap().unwrap();
        assert_eq!(event.container, container.id);
        assert!(container.label.is_in(&event.attributes));
        if event.action == Action::Die {
            assert_eq!(event.exit_code(), Some(143));
        }
        seen.push(event.action);
    }
    let expected = [Action::Start, Action::Die, Action::Stop, Action::Destroy];
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn the_control_groups_say_what_the_engine_says() {
    let container = Container::started().await;
    let cgroups = Cgroups::default();
    // A container has started before its first process has started the next.
    let has_both = || cgroups.sample(&container.id).unwrap().pids == Some(2);
    while !has_both() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let stats = container
        .engine
        .stats(&container.id)
        .await
        .unwrap()
        .unwrap();
    let sample = cgroups.sample(&container.id).unwrap();
    assert!(sample.memory_bytes.abs_diff(stats.memory_bytes()) < 4 << 20);
    let cpu_apart = Duration::from_nanos(sample.cpu_ns.abs_diff(stats.cpu_total_ns));
    assert!(cpu_apart < Duration::from_secs(1), "{cpu_apart:?}");
    assert_eq!(sample.memory_limit_bytes, None);
    assert_eq!((sample.pids, stats.pids), (Some(2), Some(2)));

    container.stop().await;
    assert_eq!(cgroups.sample(&container.id), None);
    assert_eq!(container.engine.stats(&container.id).await.unwrap(), None);
}

#[tokio::test]
async fn a_pull_from_a_registry_that_is_not_there_fails_and_may_be_tried_again() {
    let engine = engine().await;
    let error = engine.pull("127.0.0.1:9/none/such").await.unwrap_err();
    assert_eq!(error.retry(), Retry::Backoff);
    assert!(
        error.message().unwrap().contains("127.0.0.1:9"),
        "{error:?}"
    );
    let missing = "sandboxd-test/no-such-image:latest";
    assert_eq!(engine.image_inspect(missing).await.unwrap(), None);
}
