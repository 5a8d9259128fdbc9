//! Runs contract cases: written conversations with a server, and what must come of them.
//!
//! `tests/contract/*.json` hold books of cases. A step is an object whose `do` names it:
//!
//! | step | fields |
//! | --- | --- |
//! | `open` | `id`; `with`: further fields of the request; `token`: the name to keep its token under |
//! | `exec` | `id`, `command`; `timeout_secs`, `output`, `exit_code`, `truncated`, `within_secs`; `save`: the name to keep the output under |
//! | `request` | `call`: method and path; `as`: `service`, `nobody` or a token; `send`: JSON, or `body`: text; `status`, `json`, `within_secs`; `save`: names and the JSON pointers to keep under them |
//! | `restart` | `by`: `terminate` or `kill` |
//! | `docker` | `args`; `stdout` |
//!
//! | `begin` | `as_name`, `ask`: the fields of a `request`, which goes on while others are made |
//! | `join` | `name`: the request that was begun under it, whose reply is judged now |
//!
//! Expectations are those of `matcher`. `{{name}}` is filled in everywhere: `id` to `id4`,
//! `tenant` and `run` are made for each case, other names are what earlier steps kept.

use std::collections::BTreeMap;
use std::io;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::daemon::{Ending, Settings};
use super::docker::try_docker;
use super::http::{Http, Request, Response};
use super::matcher::differences;

/// Cases with the settings of the daemons that they need.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Book {
    /// Settings by the name of their profile.
    pub(crate) profiles: BTreeMap<String, Settings>,
    /// In the order in which they run.
    pub(crate) cases: Vec<Case>,
}

/// One conversation.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    /// What holds, as a sentence.
    pub(crate) name: String,
    /// The profile that it needs.
    pub(crate) profile: String,
    /// Each a [`Step`], once its names are filled in.
    pub(crate) steps: Vec<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
enum Step {
    Open(Open),
    Exec(Exec),
    Request(Box<Ask>),
    Restart(Restart),
    Docker(Docker),
    Begin(Begin),
    Join(Join),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Open {
    id: String,
    #[serde(default)]
    with: Map<String, Value>,
    token: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exec {
    id: String,
    command: String,
    timeout_secs: Option<u64>,
    output: Option<Value>,
    exit_code: Option<Value>,
    truncated: Option<Value>,
    within_secs: Option<f64>,
    save: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ask {
    call: String,
    #[serde(rename = "as", default = "service")]
    caller: String,
    send: Option<Value>,
    body: Option<String>,
    status: Value,
    json: Option<Value>,
    within_secs: Option<f64>,
    #[serde(default)]
    save: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Restart {
    by: Ending,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Docker {
    args: Vec<String>,
    stdout: Value,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Begin {
    as_name: String,
    ask: Box<Ask>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Join {
    name: String,
}

/// A request that goes on; its reply, and how long that took.
type Pending = (Box<Ask>, JoinHandle<io::Result<(Response, Duration)>>);

fn service() -> String {
    "service".to_owned()
}

impl Book {
    /// Reads a book and every step in it; panics at the first that does not parse.
    pub(crate) fn parse(text: &str) -> Self {
        let book: Self = serde_json::from_str(text).unwrap();
        for case in &book.cases {
            assert!(
                book.profiles.contains_key(&case.profile),
                "{}: no such profile",
                case.name
            );
            for (index, step) in case.steps.iter().enumerate() {
                if let Err(error) = Step::deserialize(step) {
                    panic!("{}: step {index}: {error}", case.name);
                }
            }
        }
        book
    }
}

/// A server under test.
pub(crate) struct Server<'a> {
    /// Spoken to with the service token.
    pub(crate) http: Http,
    /// Ends it and starts it again in the same place.
    pub(crate) restart: &'a mut dyn FnMut(Ending),
}

/// Runs a case, closes what it opened, and returns what went wrong, a line each.
///
/// A case ends at the first step that goes wrong.
pub(crate) fn run_case(case: &Case, server: &mut Server<'_>) -> Vec<String> {
    let mut run = Run::new(server);
    let mut problems = Vec::new();
    for (index, step) in case.steps.iter().enumerate() {
        let lines = run.step(step);
        problems.extend(lines.iter().map(|line| format!("step {index}: {line}")));
        if !problems.is_empty() {
            break;
        }
    }
    run.purge();
    problems
}

struct Run<'a, 's> {
    server: &'a mut Server<'s>,
    names: BTreeMap<String, String>,
    opened: Vec<String>,
    pending: BTreeMap<String, Pending>,
}

impl<'a, 's> Run<'a, 's> {
    fn new(server: &'a mut Server<'s>) -> Self {
        let fresh = |prefix: &str| {
            let random = uuid::Uuid::new_v4().simple().to_string();
            format!("{prefix}-{random:.12}")
        };
        let names = [
            ("id", "c"),
            ("id2", "d"),
            ("id3", "e"),
            ("id4", "f"),
            ("tenant", "t"),
        ]
        .map(|(name, prefix)| (name.to_owned(), fresh(prefix)));
        let mut names = BTreeMap::from(names);
        let run = uuid::Uuid::new_v4().simple().to_string();
        names.insert("run".to_owned(), run);
        Self {
            server,
            names,
            opened: Vec::new(),
            pending: BTreeMap::new(),
        }
    }

    fn step(&mut self, step: &Value) -> Vec<String> {
        match serde_json::from_value(fill(step, &self.names)).unwrap() {
            Step::Open(open) => self.ask(&open.into_ask()),
            Step::Exec(exec) => self.ask(&exec.into_ask()),
            Step::Request(ask) => self.ask(&ask),
            Step::Restart(Restart { by }) => {
                (self.server.restart)(by);
                Vec::new()
            }
            Step::Begin(Begin { as_name, ask }) => {
                let (http, request) = (self.http_of(&ask), ask.request());
                let reply = std::thread::spawn(move || timed(&http, &request));
                self.pending.insert(as_name, (ask, reply));
                Vec::new()
            }
            Step::Join(Join { name }) => {
                let (ask, reply) = self.pending.remove(&name).expect("a request was begun");
                match reply.join().unwrap() {
                    Ok((reply, took)) => ask.problems(&reply, took),
                    Err(error) => vec![format!("{}: no reply: {error}", ask.call)],
                }
            }
            Step::Docker(Docker { args, stdout }) => {
                let args: Vec<&str> = args.iter().map(String::as_str).collect();
                match try_docker(&args) {
                    Ok(text) => prefixed("docker", &differences(&stdout, &Value::String(text))),
                    Err(why) => vec![format!("docker {}: {why}", args.join(" "))],
                }
            }
        }
    }

    fn http_of(&self, ask: &Ask) -> Http {
        match ask.caller.as_str() {
            "service" => self.server.http.clone(),
            "nobody" => self.server.http.with_token(None),
            token => self.server.http.with_token(Some(token)),
        }
    }

    fn ask(&mut self, ask: &Ask) -> Vec<String> {
        let (reply, took) = match timed(&self.http_of(ask), &ask.request()) {
            Ok(timed) => timed,
            Err(error) => return vec![format!("{}: no reply: {error}", ask.call)],
        };
        let mut lines = ask.problems(&reply, took);
        let body = reply.json().unwrap_or_default();
        if ask.call == "POST /sessions"
            && reply.status == 200
            && let Some(Value::String(id)) = body.pointer("/session/session_id")
        {
            self.opened.push(id.clone());
        }
        if !lines.is_empty() {
            return lines;
        }
        for (name, pointer) in &ask.save {
            match body.pointer(pointer) {
                Some(Value::String(text)) => {
                    self.names.insert(name.clone(), text.trim_end().to_owned());
                }
                _ => lines.push(format!(
                    "{}: no text at {pointer} to keep as {name}",
                    ask.call
                )),
            }
        }
        lines
    }

    /// A session that its case closed is not there any more, which is as good.
    fn purge(&self) {
        for id in &self.opened {
            if let Err(error) = self
                .server
                .http
                .delete(&format!("/sessions/{id}?purge=true"))
            {
                eprintln!("purge session {id}: {error}");
            }
        }
    }
}

fn timed(http: &Http, request: &Request) -> io::Result<(Response, Duration)> {
    let started = Instant::now();
    http.send(request).map(|reply| (reply, started.elapsed()))
}

impl Open {
    fn into_ask(self) -> Ask {
        let mut send = self.with;
        send.insert("session_id".to_owned(), json!(self.id));
        let session = json!({"session_id": self.id, "alive": true, "state": "running"});
        Ask {
            call: "POST /sessions".to_owned(),
            caller: service(),
            send: Some(Value::Object(send)),
            body: None,
            status: json!(200),
            json: Some(json!({"session": session, "token": {"$len_min": 32}})),
            within_secs: None,
            save: self
                .token
                .map(|name| (name, "/token".to_owned()))
                .into_iter()
                .collect(),
        }
    }
}

impl Exec {
    fn into_ask(self) -> Ask {
        let mut send = json!({"command": self.command});
        if let Some(secs) = self.timeout_secs {
            send["timeout_seconds"] = json!(secs);
        }
        let expected = [
            ("output", self.output),
            ("exit_code", self.exit_code),
            ("truncated", self.truncated),
        ];
        let expected = expected
            .into_iter()
            .filter_map(|(name, wanted)| Some((name.to_owned(), wanted?)));
        Ask {
            call: format!("POST /sessions/{}/exec", self.id),
            caller: service(),
            send: Some(send),
            body: None,
            status: json!(200),
            json: Some(Value::Object(expected.collect())),
            within_secs: self.within_secs,
            save: self
                .save
                .map(|name| (name, "/output".to_owned()))
                .into_iter()
                .collect(),
        }
    }
}

impl Ask {
    fn request(&self) -> Request {
        let (method, path) = self.call.split_once(' ').unwrap();
        let json = self.send.as_ref().map(Value::to_string);
        let kind = ("content-type".to_owned(), "application/json".to_owned());
        let body = json.or_else(|| self.body.clone());
        Request {
            method: method.to_owned(),
            path: path.to_owned(),
            headers: body.iter().map(|_| kind.clone()).collect(),
            body: body.map(String::into_bytes),
        }
    }

    fn problems(&self, reply: &Response, took: Duration) -> Vec<String> {
        if !differences(&self.status, &json!(reply.status)).is_empty() {
            let (status, wanted, text) = (reply.status, &self.status, reply.text());
            return vec![format!(
                "{}: status {status}, wanted {wanted}: {text}",
                self.call
            )];
        }
        let mut lines = Vec::new();
        match (&self.json, reply.json()) {
            (Some(wanted), Some(found)) => {
                lines = prefixed(&self.call, &differences(wanted, &found));
            }
            (Some(_), None) => lines.push(format!("{}: not JSON: {}", self.call, reply.text())),
            (None, _) => {}
        }
        let limit = self.within_secs.map(Duration::from_secs_f64);
        if limit.is_some_and(|limit| limit < took) {
            lines.push(format!(
                "{}: took {took:.2?}, more than {limit:?}",
                self.call
            ));
        }
        lines
    }
}

fn prefixed(prefix: &str, lines: &[String]) -> Vec<String> {
    lines
        .iter()
        .map(|line| format!("{prefix}: {line}"))
        .collect()
}

/// Puts values in for `{{name}}`; braces around anything else are left as they are.
///
/// Panics at a name that nothing was kept under.
fn fill(value: &Value, names: &BTreeMap<String, String>) -> Value {
    match value {
        Value::String(text) => Value::String(fill_text(text, names)),
        Value::Array(items) => items.iter().map(|item| fill(item, names)).collect(),
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(key, value)| (key.clone(), fill(value, names)));
            Value::Object(fields.collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn fill_text(text: &str, names: &BTreeMap<String, String>) -> String {
    let is_name = |name: &str| {
        !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let (mut filled, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("{{") {
        filled.push_str(before);
        match after.split_once("}}") {
            Some((name, after)) if is_name(name) => {
                let value = names.get(name);
                filled.push_str(value.unwrap_or_else(|| panic!("nothing was kept as {name}")));
                rest = after;
            }
            _ => {
                filled.push_str("{{");
                rest = after;
            }
        }
    }
    filled + rest
}
