//! The operations that a daemon is killed in.

use serde_json::{Value, json};

use super::api::Api;
use super::claims::Claims;
use super::daemon::Daemon;
use super::fake::{FakeEngine, Status};
use super::http::Response;

/// An operation, on a daemon that has the sessions `old` and `shut`, the latter closed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    /// Its name in a failure.
    pub(crate) name: &'static str,
    /// Does it, and takes down what was acknowledged, or that it had no reply.
    pub(crate) act: fn(&mut Run),
    /// Whether nothing of it is left to be done on the engine.
    pub(crate) is_over: fn(&FakeEngine) -> bool,
}

/// One run of an operation.
#[derive(Debug)]
pub(crate) struct Run {
    /// Asks the daemon.
    pub(crate) api: Api,
    /// What was acknowledged.
    pub(crate) claims: Claims,
}

impl Run {
    /// Makes a request of which the daemon may die.
    fn call(&self, method: &str, path: &str, body: &Value) -> Option<Response> {
        Api::request_on(self.api.http(), method, path, Some(body)).ok()
    }
}

fn statuses(engine: &FakeEngine, session: &str) -> Vec<Status> {
    let all = engine.containers().into_iter();
    all.filter(|one| one.labels["io.sandboxd.session"] == session)
        .map(|one| one.status)
        .collect()
}

/// Has the daemon acknowledge everything that is there before an operation.
pub(crate) fn set_up(daemon: &Daemon) -> Claims {
    let api = Api::of(daemon);
    let mut claims = Claims::default();
    claims.open(&api, &json!({"session_id": "shut"}));
    claims.write(&api, "shut", "file", b"of shut\n");
    claims.close(&api, "shut");
    claims.open(&api, &json!({"session_id": "old", "tenant": "t"}));
    claims.write(&api, "old", "file", b"of old\n");
    claims
}

/// Opens a session.
pub(crate) const OPEN: Operation = Operation {
    name: "open",
    act: |run| {
        let asked = json!({"session_id": "new", "tenant": "t"});
        match run.call("POST", "/sessions", &asked) {
            Some(reply) => {
                assert_eq!(reply.status, 200, "{}", reply.text());
                run.claims.opened(&reply.json().unwrap());
            }
            None => run.claims.unacknowledged("new"),
        }
    },
    is_over: |engine| statuses(engine, "new") == [Status::Running],
};

/// Runs a command that leaves a trace of each run.
pub(crate) const EXEC: Operation = Operation {
    name: "exec",
    act: |run| {
        let command = "echo again >> runs; exit 3";
        let asked = json!({ "command": command });
        if let Some(reply) = run.call("POST", "/sessions/old/exec", &asked) {
            let reply = reply.json().unwrap();
            assert_eq!(reply["exit_code"], 3, "{reply}");
            run.claims.replied("old", command, &reply);
            run.claims.wrote("old", "runs", b"again\n");
        }
    },
    is_over: |_| true,
};

/// Closes a session and keeps its files.
pub(crate) const CLOSE: Operation = Operation {
    name: "close",
    act: |run| match run.call("DELETE", "/sessions/old", &Value::Null) {
        Some(reply) => {
            assert_eq!(reply.status, 204, "{}", reply.text());
            run.claims.closed("old");
        }
        None => run.claims.unacknowledged("old"),
    },
    is_over: |engine| statuses(engine, "old").is_empty(),
};

/// Closes a session and everything of it.
pub(crate) const PURGE: Operation = Operation {
    name: "purge",
    act: |run| match run.call("DELETE", "/sessions/old?purge=true", &Value::Null) {
        Some(reply) => {
            assert_eq!(reply.status, 204, "{}", reply.text());
            run.claims.purged("old");
        }
        None => run.claims.may_be_purged("old"),
    },
    is_over: |engine| statuses(engine, "old").is_empty(),
};

/// One more than may run: `old` gives way, and is asleep.
pub(crate) const EVICT: Operation = Operation {
    name: "evict",
    act: OPEN.act,
    is_over: |engine| {
        statuses(engine, "new") == [Status::Running] && statuses(engine, "old").is_empty()
    },
};
