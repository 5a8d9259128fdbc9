//! The daemon in a container of the engine that it speaks to.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::api::wait;
use crate::support::docker::{IMAGE, docker, need_image, try_docker};
use crate::support::http::{Http, Request};

/// A base with the libraries that programs of the tests are linked with.
const BASE: &str = "sandboxd-test/debian:latest";
const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const WITHIN: Duration = Duration::from_mins(1);

/// A daemon in a container, which goes at its end with its sandboxes and volumes.
struct Contained {
    name: String,
    volumes: Vec<String>,
    _dir: tempfile::TempDir,
}

impl Contained {
    /// Starts it with these arguments to `docker run` and these variables, in which `{{dir}}`
    /// is a directory of the host and `{{name}}` begins the names of its volumes.
    fn start(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        need_image();
        let dir = tempfile::tempdir().unwrap();
        let unique = dir.path().file_name().unwrap().to_str().unwrap();
        let name = format!("sandboxd-it{unique}");
        let place = |text: &str| {
            text.replace("{{dir}}", dir.path().to_str().unwrap())
                .replace("{{name}}", &name)
        };
        let program = env!("CARGO_BIN_EXE_sandboxd");
        let mut run = vec![
            "run".to_owned(),
            "--detach".to_owned(),
            format!("--name={name}"),
            format!("--volume={program}:/sandboxd:ro"),
            "--volume=/var/run/docker.sock:/var/run/docker.sock".to_owned(),
            "--publish=127.0.0.1::8080".to_owned(),
            "--env=SANDBOXD_HOST=0.0.0.0".to_owned(),
            "--env=SANDBOXD_PREWARM=0".to_owned(),
            format!("--env=SANDBOXD_TOKEN={TOKEN}"),
            format!("--env=SANDBOXD_RUNTIMES=bb={}", IMAGE),
        ];
        run.extend(
            variables
                .iter()
                .map(|(name, value)| format!("--env={name}={}", place(value))),
        );
        run.extend(arguments.iter().map(|one| place(one)));
        run.extend([BASE.to_owned(), "/sandboxd".to_owned()]);
        docker(&run.iter().map(String::as_str).collect::<Vec<_>>());
        let volumes = ["state", "workspaces"].map(|one| format!("{name}-{one}"));
        Self {
            name,
            volumes: volumes.to_vec(),
            _dir: dir,
        }
    }

    fn log(&self) -> String {
        let name = self.name.as_str();
        let output = std::process::Command::new("docker")
            .args(["logs", name])
            .output();
        String::from_utf8_lossy(&output.unwrap().stderr).into_owned()
    }

    /// Waits until it serves, and returns who speaks to it.
    fn http(&self) -> Http {
        let answers = || {
            let port = docker(&["port", &self.name, "8080/tcp"]);
            let port = port
                .lines()
                .next()?
                .rsplit(':')
                .next()?
                .trim()
                .parse()
                .ok()?;
            let http = Http::new(port, TOKEN);
            http.get("/healthz").ok()?;
            Some(http)
        };
        wait(&format!("it serves: {}", self.log()), WITHIN, answers)
    }

    /// Waits until it has ended; returns its exit code.
    fn exit_code(&self) -> i32 {
        let ended = || {
            let format = "--format={{.State.Running}} {{.State.ExitCode}}";
            let state = docker(&["inspect", format, &self.name]);
            state.trim().strip_prefix("false ")?.parse().ok()
        };
        wait("it ends", WITHIN, ended)
    }

    /// Its own container and those of its sandboxes, whose ids begin with its name.
    fn containers(&self) -> Vec<String> {
        let name = format!("name={}", self.name);
        let ids = docker(&["ps", "--all", "--quiet", "--no-trunc", "--filter", &name]);
        ids.lines().map(str::to_owned).collect()
    }

    fn say(&self, http: &Http, status: u16, call: &str, body: Option<&Value>) -> Value {
        let (method, path) = call.split_once(' ').unwrap();
        let request = Request {
            method: method.to_owned(),
            path: path.to_owned(),
            body: body.map(|body| serde_json::to_vec(body).unwrap()),
            ..Request::default()
        };
        let reply = http.send(&request).unwrap();
        assert_eq!(
            reply.status,
            status,
            "{call}: {}\n{}",
            reply.text(),
            self.log()
        );
        reply.json().unwrap_or(Value::Null)
    }
}

impl Drop for Contained {
    fn drop(&mut self) {
        // The daemon first: it would make good what goes.
        drop(try_docker(&["rm", "--force", &self.name]));
        for container in self.containers() {
            drop(try_docker(&["rm", "--force", "--volumes", &container]));
        }
        for volume in &self.volumes {
            drop(try_docker(&["volume", "rm", "--force", volume]));
        }
    }
}

/// Has a sandbox and the daemon see each other's files, and the sandbox end.
fn files_are_seen_from_both_sides(daemon: &Contained, http: &Http) -> Value {
    let id = format!("{}-s", daemon.name);
    let opened = json!({"session_id": id});
    daemon.say(http, 200, "POST /sessions", Some(&opened));
    let write = json!({"path": "from-outside", "content_b64": "bw=="});
    daemon.say(
        http,
        200,
        &format!("POST /sessions/{id}/write"),
        Some(&write),
    );
    let command = json!({"command": "cat from-outside; printf i > from-inside"});
    let ran = daemon.say(
        http,
        200,
        &format!("POST /sessions/{id}/exec"),
        Some(&command),
    );
    assert_eq!(
        (&ran["output"], &ran["exit_code"]),
        (&json!("o"), &json!(0))
    );
    let read = json!({"path": "from-inside"});
    let archived = daemon.say(
        http,
        200,
        &format!("POST /workspaces/{id}/read"),
        Some(&read),
    );
    assert_eq!(archived["content"], json!("i"));
    let seen = daemon.say(http, 200, &format!("GET /sessions/{id}?usage=true"), None);
    daemon.say(
        http,
        204,
        &format!("DELETE /sessions/{id}?purge=true"),
        None,
    );
    assert_eq!(daemon.containers().len(), 1, "only its own is left");
    seen
}

const PLACES: [(&str, &str); 3] = [
    ("SANDBOXD_STATE_DIR", "/var/lib/sandboxd/state"),
    ("SANDBOXD_RUNTIME_DIR", "/var/lib/sandboxd/run"),
    ("SANDBOXD_WORKSPACE_ROOT", "/workspaces"),
];

#[test]
fn a_daemon_in_a_container_and_its_sandboxes_share_volumes_and_directories_of_the_host() {
    let volumes: &[&str] = &[
        "--volume={{name}}-state:/var/lib/sandboxd",
        "--volume={{name}}-workspaces:/workspaces",
    ];
    let directories: &[&str] = &[
        "--volume={{dir}}/state:/var/lib/sandboxd",
        "--volume={{dir}}/ws:/workspaces",
        // Its own name tells nothing then, and its agents dial.
        "--hostname=elsewhere",
        "--pid=host",
    ];
    let groups = [volumes, &["--volume=/sys/fs/cgroup:/sys/fs/cgroup:ro"]].concat();
    for (arguments, source) in [
        (volumes, "agent"),
        (directories, "agent"),
        (groups.as_slice(), "host"),
    ] {
        let daemon = Contained::start(arguments, &PLACES);
        let http = daemon.http();
        let seen = files_are_seen_from_both_sides(&daemon, &http);
        assert_eq!(seen["exec"], json!("agent"), "{arguments:?}");
        assert_eq!(seen["usage"]["source"], json!(source), "{seen}");
        assert_eq!(
            seen["usage"]["memory_limit_bytes"],
            json!(1 << 30),
            "{seen}"
        );
    }
}

#[test]
fn a_directory_that_no_sandbox_could_be_given_keeps_the_daemon_from_starting() {
    let state = "--volume={{name}}-state:/var/lib/sandboxd";
    let workspaces = "--volume={{name}}-workspaces:/workspaces";
    let read_only = "--volume={{name}}-workspaces:/workspaces:ro";
    for (arguments, setting, why) in [
        (
            vec![workspaces],
            "SANDBOXD_STATE_DIR",
            "the container's own layer",
        ),
        (
            vec![state],
            "SANDBOXD_WORKSPACE_ROOT",
            "the container's own layer",
        ),
        (
            vec![state, "--tmpfs=/workspaces"],
            "SANDBOXD_WORKSPACE_ROOT",
            "--tmpfs",
        ),
        (
            vec![state, read_only],
            "SANDBOXD_WORKSPACE_ROOT",
            "read-only",
        ),
        (
            vec![
                workspaces,
                "--tmpfs=/run",
                state,
                "--env=SANDBOXD_RUNTIME_DIR=/run/sandboxd",
            ],
            "SANDBOXD_RUNTIME_DIR",
            "--tmpfs",
        ),
    ] {
        let daemon = Contained::start(&arguments, &PLACES);
        assert_eq!(daemon.exit_code(), 78, "{arguments:?}: {}", daemon.log());
        let log = daemon.log();
        assert!(
            log.contains(setting) && log.contains(why),
            "{arguments:?}: {log}"
        );
    }
}

#[test]
fn a_container_that_the_operator_names_is_found_or_is_an_error() {
    let arguments = [
        "--volume={{name}}-state:/var/lib/sandboxd",
        "--volume={{name}}-workspaces:/workspaces",
    ];
    let named = [&PLACES[..], &[("SANDBOXD_CONTAINER", "{{name}}")]].concat();
    let daemon = Contained::start(&arguments, &named);
    files_are_seen_from_both_sides(&daemon, &daemon.http());
    let unknown = [&PLACES[..], &[("SANDBOXD_CONTAINER", "{{name}}-other")]].concat();
    let daemon = Contained::start(&arguments, &unknown);
    assert_eq!(daemon.exit_code(), 78);
    assert!(
        daemon.log().contains("SANDBOXD_CONTAINER"),
        "{}",
        daemon.log()
    );
}

#[test]
fn a_container_that_sees_the_paths_of_the_host_needs_no_translation() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| -> PathBuf { dir.path().join(name) };
    let shown = |path: &Path| path.display().to_string();
    let same = format!("--volume={0}:{0}", shown(dir.path()));
    let (state, run, ws) = (shown(&path("s")), shown(&path("r")), shown(&path("w")));
    let variables = [
        ("SANDBOXD_STATE_DIR", state.as_str()),
        ("SANDBOXD_RUNTIME_DIR", run.as_str()),
        ("SANDBOXD_WORKSPACE_ROOT", ws.as_str()),
        ("SANDBOXD_CONTAINER", "none"),
    ];
    let daemon = Contained::start(&[same.as_str()], &variables);
    files_are_seen_from_both_sides(&daemon, &daemon.http());
}
