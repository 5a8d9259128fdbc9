//! The calls of the session API, each checked for its status.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::daemon::{Daemon, Settings};
use super::docker::docker;
use super::http::{Http, Request, Response};

const POLL: Duration = Duration::from_millis(25);

/// Returns settings for one runtime `bb`, changed by these.
pub(crate) fn settings(changes: &[(&str, &str)]) -> Settings {
    let base = [
        ("SANDBOXD_RUNTIMES", "bb={{image}}"),
        ("SANDBOXD_PREWARM", "0"),
    ];
    base.iter()
        .chain(changes)
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

/// Has files outlive their containers.
pub(crate) const WORKSPACES: (&str, &str) = ("SANDBOXD_WORKSPACE_ROOT", "{{work}}/ws");

/// Waits for something to be there; panics when it is not within that time.
pub(crate) fn wait<T>(what: &str, within: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + within;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "not within {within:?}: {what}");
        thread::sleep(POLL);
    }
}

/// Returns what `count` threads return that all do the same at once.
pub(crate) fn at_once<T: Send>(count: usize, act: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let barrier = std::sync::Barrier::new(count);
    thread::scope(|scope| {
        let (barrier, act) = (&barrier, &act);
        let threads: Vec<_> = (0..count)
            .map(|n| {
                scope.spawn(move || {
                    barrier.wait();
                    act(n)
                })
            })
            .collect();
        threads.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

/// A caller of a daemon.
#[derive(Clone, Debug)]
pub(crate) struct Api(Http);

impl Api {
    /// A caller with the service token.
    pub(crate) fn of(daemon: &Daemon) -> Self {
        Self(daemon.http())
    }

    /// What carries its requests.
    pub(crate) fn http(&self) -> &Http {
        &self.0
    }

    /// The same caller with another token.
    pub(crate) fn with_token(&self, token: &str) -> Self {
        Self(self.0.with_token(Some(token)))
    }

    /// Makes a request with a JSON body or none.
    pub(crate) fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Response {
        self.0.send(&request(method, path, body)).unwrap()
    }

    /// Makes a request that may find nobody, with a JSON body or none.
    pub(crate) fn request_on(
        http: &Http,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> std::io::Result<Response> {
        http.send(&request(method, path, body))
    }

    /// Begins a request and hangs up when the stream is dropped.
    pub(crate) fn begin(&self, path: &str, body: &Value) -> std::net::TcpStream {
        self.0.begin(&request("POST", path, Some(body))).unwrap()
    }

    /// Makes a request and returns the JSON of its reply, which must have this status.
    pub(crate) fn json(&self, status: u16, call: &str, body: Option<&Value>) -> Value {
        let (method, path) = call.split_once(' ').unwrap();
        let reply = self.call(method, path, body);
        assert_eq!(reply.status, status, "{call}: {}", reply.text());
        reply.json().unwrap_or(Value::Null)
    }

    /// Opens a session as `asked` says; returns the whole reply.
    pub(crate) fn open(&self, asked: &Value) -> Value {
        self.json(200, "POST /sessions", Some(asked))
    }

    /// Opens a session of this id; returns its token.
    pub(crate) fn open_id(&self, id: &str) -> String {
        let opened = self.open(&json!({"session_id": id}));
        opened["token"].as_str().unwrap().to_owned()
    }

    /// Runs a command.
    pub(crate) fn exec(&self, id: &str, command: &str) -> Value {
        self.exec_with(id, &json!({"command": command}))
    }

    /// Runs a command as `asked` says.
    pub(crate) fn exec_with(&self, id: &str, asked: &Value) -> Value {
        self.json(200, &format!("POST /sessions/{id}/exec"), Some(asked))
    }

    /// Runs a command that must succeed; returns what it printed, trimmed.
    pub(crate) fn sh(&self, id: &str, command: &str) -> String {
        let ran = self.exec(id, command);
        assert_eq!(ran["exit_code"], 0, "{command}: {ran}");
        ran["output"].as_str().unwrap().trim().to_owned()
    }

    /// Describes a session.
    pub(crate) fn info(&self, id: &str) -> Value {
        self.json(200, &format!("GET /sessions/{id}"), None)
    }

    /// Returns the session's log.
    pub(crate) fn events(&self, id: &str) -> Value {
        self.json(200, &format!("GET /sessions/{id}/events"), None)
    }

    /// Closes a session, as the query says.
    pub(crate) fn close(&self, id: &str, query: &str) {
        self.json(204, &format!("DELETE /sessions/{id}{query}"), None);
    }

    /// Waits until a session is in this phase; returns its description.
    pub(crate) fn wait_for(&self, id: &str, phase: &str) -> Value {
        let what = format!("session {id} is {phase}");
        wait(&what, Duration::from_secs(10), || {
            let info = self.info(id);
            (info["phase"] == phase).then_some(info)
        })
    }

    /// Returns the engine's id of a session's container.
    pub(crate) fn container(&self, id: &str) -> String {
        let info = self.info(id);
        let name = info["container"].as_str().unwrap();
        docker(&["inspect", "--format", "{{.Id}}", name])
    }

    /// Returns `op reason` of what became of a session, which may be gone.
    pub(crate) fn facts(&self, id: &str) -> Vec<String> {
        let path = format!("GET /events?kind=lifecycle&session={id}");
        let page = self.json(200, &path, None);
        let told = page["events"].as_array().unwrap().iter();
        told.map(|one| {
            let reason = one["reason"].as_str().unwrap_or("-");
            format!("{} {reason}", one["op"].as_str().unwrap())
        })
        .collect()
    }
}

/// Returns a request with a JSON body or none.
fn request(method: &str, path: &str, body: Option<&Value>) -> Request {
    Request {
        method: method.to_owned(),
        path: path.to_owned(),
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        body: body.map(|body| body.to_string().into_bytes()),
    }
}
