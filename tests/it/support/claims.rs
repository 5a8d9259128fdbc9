//! Collects what a daemon acknowledged, and finds every way in which that does not hold.
//!
//! It asks the daemon alone and looks at its workspaces on the disk, so it needs no
//! Docker client, and works where the engine is a stand-in.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::api::Api;
use super::daemon::Daemon;
use super::http::Response;

/// How long the daemon has after a restart until nothing is broken any more.
const SETTLE_MAX: Duration = Duration::from_mins(1);
const POLL: Duration = Duration::from_millis(250);
/// Characters of a command that its event shows.
const TARGET_CHARS_MAX: usize = 200;
/// Events that a page holds.
const EVENTS_PAGE: usize = 1_000;

/// What was acknowledged so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claims {
    open: BTreeMap<String, Opened>,
    closed: BTreeMap<String, Files>,
    purged: BTreeSet<String>,
    /// Sessions of which some operation had no reply, as they were before it.
    unsure: BTreeMap<String, Option<Opened>>,
    /// Those of them whose operation was a purge.
    half_purged: BTreeSet<String>,
    /// Tokens of openings that are over.
    dead: Vec<(String, String)>,
}

/// An opening that was acknowledged.
#[derive(Clone, Debug)]
struct Opened {
    runtime: Value,
    tenant: Value,
    created_at: Value,
    token: String,
    files: Files,
    /// Commands that were answered, with how their events tell of the ending.
    commands: Vec<(String, String)>,
}

/// Paths below the work directory, with what was written there last.
type Files = BTreeMap<String, Vec<u8>>;

impl Claims {
    /// Takes down the reply to an opening, or to an attaching.
    pub(crate) fn opened(&mut self, reply: &Value) {
        let session = &reply["session"];
        let id = session["session_id"].as_str().unwrap().to_owned();
        let token = reply["token"].as_str().unwrap().to_owned();
        // A later session of the id finds the files that the closed one left.
        let files = self.closed.remove(&id).unwrap_or_default();
        self.purged.remove(&id);
        self.unsure.remove(&id);
        let before = self.open.remove(&id).filter(|before| before.token == token);
        let (files, commands) = match before {
            Some(before) => (before.files, before.commands),
            None => (files, Vec::new()),
        };
        let opened = Opened {
            runtime: session["runtime"].clone(),
            tenant: session["tenant"].clone(),
            created_at: session["created_at"].clone(),
            token,
            files,
            commands,
        };
        self.open.insert(id, opened);
    }

    /// Takes down that a file of an open session was written; the path is relative to
    /// the work directory.
    pub(crate) fn wrote(&mut self, id: &str, path: &str, bytes: &[u8]) {
        let session = self.open.get_mut(id).expect("what is written to is open");
        session.files.insert(path.to_owned(), bytes.to_vec());
    }

    /// Takes down that a file may have been written: nothing is known of it any more.
    pub(crate) fn may_have_written(&mut self, id: &str, path: &str) {
        if let Some(session) = self.open.get_mut(id) {
            session.files.remove(path);
        }
    }

    /// Takes down the reply to a command.
    pub(crate) fn replied(&mut self, id: &str, command: &str, reply: &Value) {
        let session = self.open.get_mut(id).expect("what was commanded is open");
        let ending = match (reply["exit_code"].as_i64(), reply["reason"].as_str()) {
            (Some(code), _) => format!("exit {code}"),
            (None, reason) => reason.unwrap_or("unknown").to_owned(),
        };
        session.commands.push((command.to_owned(), ending));
    }

    /// Takes down that a session was closed and its files kept.
    pub(crate) fn closed(&mut self, id: &str) {
        if let Some(session) = self.open.remove(id) {
            self.dead.push((id.to_owned(), session.token));
            self.closed.insert(id.to_owned(), session.files);
        }
    }

    /// Takes down that nothing is left of an id.
    pub(crate) fn purged(&mut self, id: &str) {
        if let Some(session) = self.open.remove(id) {
            self.dead.push((id.to_owned(), session.token));
        }
        self.closed.remove(id);
        self.unsure.remove(id);
        self.purged.insert(id.to_owned());
    }

    /// Takes down that an opening, a close or a purge of the id had no reply: the session
    /// has to be there whole, or not at all.
    pub(crate) fn unacknowledged(&mut self, id: &str) {
        let before = self.open.remove(id);
        self.closed.remove(id);
        self.purged.remove(id);
        self.unsure.insert(id.to_owned(), before);
    }

    /// Takes down that a purge of the id had no reply: all of it is there, or nothing.
    pub(crate) fn may_be_purged(&mut self, id: &str) {
        self.unacknowledged(id);
        self.half_purged.insert(id.to_owned());
    }

    /// Opens a session as `asked` says, and takes it down.
    pub(crate) fn open(&mut self, api: &Api, asked: &Value) -> String {
        let reply = api.open(asked);
        self.opened(&reply);
        reply["session"]["session_id"].as_str().unwrap().to_owned()
    }

    /// Runs a command with its session's own token, and takes down its reply.
    pub(crate) fn exec(&mut self, api: &Api, id: &str, command: &str) -> Value {
        let reply = api.with_token(self.token(id)).exec(id, command);
        self.replied(id, command, &reply);
        reply
    }

    /// Writes a file by a command, and takes it down.
    pub(crate) fn write(&mut self, api: &Api, id: &str, path: &str, bytes: &[u8]) {
        let reply = self.exec(api, id, &writing(path, bytes));
        assert_eq!(reply["exit_code"], 0, "write {path} in {id}: {reply}");
        self.wrote(id, path, bytes);
    }

    /// Closes a session, keeps its files, and takes that down.
    pub(crate) fn close(&mut self, api: &Api, id: &str) {
        api.close(id, "");
        self.closed(id);
    }

    /// Purges an open session, and takes that down.
    pub(crate) fn purge(&mut self, api: &Api, id: &str) {
        api.close(id, "?purge=true");
        self.purged(id);
    }

    /// Returns the token of an open session.
    pub(crate) fn token(&self, id: &str) -> &str {
        &self.open.get(id).expect("the session is open").token
    }

    /// Returns the ids of the sessions that are open for certain.
    pub(crate) fn ids(&self) -> Vec<String> {
        self.open.keys().cloned().collect()
    }

    /// Checks every claim, and panics with all that do not hold.
    ///
    /// A daemon that was restarted gets the time of a resync first, until its own
    /// verifier finds nothing broken. Sleeping sessions are woken. What was unsure is
    /// known afterwards: such an id is open then.
    pub(crate) fn verify(&mut self, daemon: &Daemon) {
        let violations = self.violations(daemon);
        assert!(
            violations.is_empty(),
            "{} claims do not hold:\n  {}",
            violations.len(),
            violations.join("\n  ")
        );
    }

    /// Checks every claim, and returns all that do not hold.
    pub(crate) fn violations(&mut self, daemon: &Daemon) -> Vec<String> {
        let api = Api::of(daemon);
        let mut violations = broken(&api);
        self.check_listing(&api, &mut violations);
        for (id, session) in &self.open {
            check_open(&api, id, session, &mut violations);
        }
        for (id, files) in &self.closed {
            check_closed(daemon, &api, id, files, &mut violations);
        }
        for id in &self.purged {
            check_purged(daemon, &api, id, &mut violations);
        }
        for (id, token) in &self.dead {
            let reply = command(&api.with_token(token), id, "true");
            if reply.status != 401 {
                let status = reply.status;
                violations.push(format!("{id}: an old token is answered with {status}"));
            }
        }
        for (id, before) in std::mem::take(&mut self.unsure) {
            self.check_unsure(daemon, &id, before, &mut violations);
        }
        violations
    }

    fn check_listing(&self, api: &Api, violations: &mut Vec<String>) {
        let listing = api.json(200, "GET /sessions", None);
        let listed: BTreeMap<&str, &Value> = listing["sessions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|session| (session["session_id"].as_str().unwrap(), session))
            .collect();
        for (id, claimed) in &self.open {
            let Some(session) = listed.get(id.as_str()) else {
                violations.push(format!("{id}: it was opened, and is not listed"));
                continue;
            };
            for (name, claimed) in [
                ("runtime", &claimed.runtime),
                ("tenant", &claimed.tenant),
                ("created_at", &claimed.created_at),
            ] {
                if session[name] != *claimed {
                    let found = &session[name];
                    violations.push(format!("{id}: {name} was {claimed}, and is {found}"));
                }
            }
        }
        for id in listed.keys() {
            if !self.open.contains_key(*id) && !self.unsure.contains_key(*id) {
                violations.push(format!("{id}: it is listed, and nobody opened it"));
            }
        }
    }

    /// Checks that a session is there whole or not at all; it is open afterwards.
    fn check_unsure(
        &mut self,
        daemon: &Daemon,
        id: &str,
        before: Option<Opened>,
        violations: &mut Vec<String>,
    ) {
        let api = Api::of(daemon);
        let found = api.call("GET", &format!("/sessions/{id}"), None);
        let created_at = found.json().map(|info| info["created_at"].clone());
        match (found.status, &before) {
            (200, Some(before)) if created_at.as_ref() == Some(&before.created_at) => {
                // Nothing came of a close: all of it is as it was.
                check_open(&api, id, before, violations);
            }
            (200 | 404, _) => {}
            (status, _) => violations.push(format!("{id}: it is described with {status}")),
        }
        let has_files = home(daemon, id).exists();
        let asked = json!({"session_id": id, "reuse": true});
        let opened = patiently(|| api.call("POST", "/sessions", Some(&asked)));
        let Some(reply) = opened.json().filter(|_| matches!(opened.status, 200 | 201)) else {
            let text = opened.text();
            violations.push(format!("{id}: it cannot be opened: {text}"));
            return;
        };
        let is_anew = found.status == 404;
        self.opened(&reply);
        let was_purged = self.half_purged.remove(id) && is_anew;
        if let (true, Some(before)) = (is_anew, before) {
            self.dead.push((id.to_owned(), before.token));
            let workspace = home(daemon, id).join("workspace");
            let mut kept = before
                .files
                .keys()
                .filter(|path| workspace.join(path).exists());
            if let Some(path) = kept.next().filter(|_| was_purged) {
                violations.push(format!("{id}: it was purged, and {path} is there again"));
            }
            let files = if has_files && !was_purged {
                before.files
            } else {
                Files::new()
            };
            if let Some(session) = self.open.get_mut(id) {
                session.files = files;
            }
        }
        check_open(&api, id, &self.open[id], violations);
    }
}

/// Returns what the daemon's own verifier finds broken, once that has settled.
fn broken(api: &Api) -> Vec<String> {
    let end = Instant::now() + SETTLE_MAX;
    loop {
        let reply = api.call("GET", "/doctor", None);
        let report = reply.json().unwrap_or(Value::Null);
        let broken = match (reply.status, report["findings"].as_array()) {
            (200, Some(findings)) => findings
                .iter()
                .filter(|finding| finding["level"] == "fail")
                .map(|finding| format!("doctor: {finding}"))
                .collect(),
            (status, _) => vec![format!("the doctor answers {status}: {}", reply.text())],
        };
        if broken.is_empty() || end < Instant::now() {
            return broken;
        }
        thread::sleep(POLL);
    }
}

fn check_open(api: &Api, id: &str, session: &Opened, violations: &mut Vec<String>) {
    let own = api.with_token(&session.token);
    let ran = command(&own, id, "true");
    let code = ran.json().map(|reply| reply["exit_code"].clone());
    if ran.status != 200 || code != Some(json!(0)) {
        let (status, text) = (ran.status, ran.text());
        violations.push(format!("{id}: its token runs no command: {status} {text}"));
        return;
    }
    for (path, bytes) in &session.files {
        let (reading, expected) = match std::str::from_utf8(bytes) {
            Ok(text) => (format!("cat {}", quoted(path)), text.to_owned()),
            Err(_) => (format!("od -An -v -tx1 {}", quoted(path)), hex(bytes)),
        };
        let reply = command(&own, id, &reading);
        let found = reply.json().unwrap_or(Value::Null);
        let output = found["output"].as_str().unwrap_or_default();
        let is_text = reading.starts_with("cat");
        let output = if is_text {
            output.to_owned()
        } else {
            joined(output)
        };
        if reply.status != 200 || found["exit_code"] != 0 || output != expected {
            let length = bytes.len();
            violations.push(format!(
                "{id}: {path} was {length} bytes long, and is {found}"
            ));
        }
    }
    check_log(&own, id, session, violations);
}

/// Checks that the log tells of every command that was answered.
fn check_log(own: &Api, id: &str, session: &Opened, violations: &mut Vec<String>) {
    let mut told: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut after = 0;
    loop {
        let path = format!("/sessions/{id}/events?after={after}&limit={EVENTS_PAGE}");
        let page = own.call("GET", &path, None).json().unwrap_or(Value::Null);
        let Some(events) = page["events"]
            .as_array()
            .filter(|events| !events.is_empty())
        else {
            break;
        };
        for event in events {
            let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
            *told.entry((text("target"), text("detail"))).or_insert(0) += 1;
            after = event["seq"].as_u64().unwrap_or(u64::MAX);
        }
    }
    for (command, ending) in &session.commands {
        let mut target: String = command.chars().take(TARGET_CHARS_MAX).collect();
        if target.len() < command.len() {
            target.push('…');
        }
        match told.get_mut(&(target, ending.clone())) {
            Some(left) if 0 < *left => *left -= 1,
            Some(_) | None => {
                violations.push(format!(
                    "{id}: no event tells that {command:?} ended as {ending}"
                ));
            }
        }
    }
}

fn check_closed(daemon: &Daemon, api: &Api, id: &str, files: &Files, violations: &mut Vec<String>) {
    let found = api.call("GET", &format!("/sessions/{id}"), None).status;
    if found != 404 {
        violations.push(format!(
            "{id}: it was closed, and is described with {found}"
        ));
    }
    let workspace = home(daemon, id).join("workspace");
    // Without workspaces the files went with the container.
    if !workspace.exists() && !has_workspaces(daemon) {
        return;
    }
    for (path, bytes) in files {
        match std::fs::read(workspace.join(path)) {
            Ok(found) if found == *bytes => {}
            Ok(found) => {
                let (was, is) = (bytes.len(), found.len());
                violations.push(format!(
                    "{id}: {path} was {was} bytes long, and differs: {is}"
                ));
            }
            Err(error) => violations.push(format!("{id}: {path} cannot be read: {error}")),
        }
    }
}

fn check_purged(daemon: &Daemon, api: &Api, id: &str, violations: &mut Vec<String>) {
    for path in [format!("/sessions/{id}"), format!("/sessions/{id}/events")] {
        let status = api.call("GET", &path, None).status;
        if status != 404 {
            violations.push(format!("{id}: it was purged, and {path} answers {status}"));
        }
    }
    if home(daemon, id).exists() {
        violations.push(format!("{id}: it was purged, and its directory is there"));
    }
    // A container without a record is the doctor's to find, and so is a log.
}

/// Runs a command, again while the daemon or the engine says to come back.
fn command(api: &Api, id: &str, command: &str) -> Response {
    let path = format!("/sessions/{id}/exec");
    patiently(|| api.call("POST", &path, Some(&json!({ "command": command }))))
}

fn patiently(call: impl Fn() -> Response) -> Response {
    let end = Instant::now() + SETTLE_MAX;
    loop {
        let reply = call();
        let is_under_way = |body: Value| body["code"] == "session_opening";
        let is_to_wait =
            matches!(reply.status, 429 | 503) || reply.json().is_some_and(is_under_way);
        if !is_to_wait || end < Instant::now() {
            return reply;
        }
        thread::sleep(POLL);
    }
}

fn home(daemon: &Daemon, id: &str) -> std::path::PathBuf {
    daemon.dir().join("ws").join(id)
}

/// Whether the daemon keeps workspaces: then its root holds something.
fn has_workspaces(daemon: &Daemon) -> bool {
    std::fs::read_dir(daemon.dir().join("ws")).is_ok_and(|mut entries| entries.next().is_some())
}

/// Returns a command that writes these bytes, whatever they are.
fn writing(path: &str, bytes: &[u8]) -> String {
    let octal = bytes.iter().fold(String::new(), |mut octal, byte| {
        write!(octal, "\\{byte:03o}").unwrap();
        octal
    });
    format!("printf '{octal}' > {}", quoted(path))
}

fn quoted(path: &str) -> String {
    format!("'{}'", path.replace('\'', r"'\''"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    })
}

fn joined(dump: &str) -> String {
    dump.split_whitespace().collect()
}
