//! The containers of an engine that answers as 20.10 does.
//!
//! A call has two ends: at the first it is refused, or begins and takes a while; at the
//! second it has its effect. A name is taken from the first end of a creation on, and a
//! container shows as being removed from the first end of its removal on. While one is being
//! started, all else that is asked of it waits.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio::sync::{Mutex, mpsc};
use tokio::time::Instant;

use super::dice::Dice;
use crate::clock::Timestamp;
use crate::docker::testing::Asked;
use crate::id::{ContainerKey, SessionId};
use crate::session::blueprint::{LABEL_KEY, LABEL_SESSION};
use crate::session::testing::IMAGE;

const IMAGE_ID: &str = "sha256:1111111111111111111111111111111111111111111111111111111111111111";
const NEVER: &str = "0001-01-01T00:00:00Z";
/// The year 2025, as this engine's clock has it when it begins.
const BEGAN: Timestamp = Timestamp::from_secs(1_750_000_000);

/// An answer: a status and a body.
pub(super) type Reply = (u16, Value);

/// What a container is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    Created,
    Running,
    Exited,
}

/// A container.
#[derive(Clone, Debug)]
pub(super) struct Container {
    pub(super) id: String,
    name: String,
    image: String,
    pub(super) labels: BTreeMap<String, String>,
    mounts: Vec<(String, String)>,
    made: Timestamp,
    pub(super) doing: Doing,
    exit_code: i64,
    oom: bool,
    started: Option<Timestamp>,
    is_being_removed: bool,
    /// Held while it is being started.
    pub(super) lock: Arc<Mutex<()>>,
    /// What was written to its own file system.
    pub(super) files: BTreeSet<u64>,
}

/// A request, taken apart.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: Vec<String>,
    query: BTreeMap<String, String>,
    body: Value,
}

/// How a call goes on after its first end.
pub(super) enum Begun {
    /// It takes so long until it has its effect.
    Takes(Duration),
    /// It is answered at once.
    Refused(Reply),
}

/// All containers, and who follows their events.
#[derive(Debug)]
pub(super) struct Containers {
    began: Instant,
    dice: Dice,
    all: BTreeMap<String, Container>,
    /// Names of containers that are being made.
    being_made: BTreeSet<String>,
    images: BTreeSet<String>,
    n_made: u64,
    n_started: u64,
    /// How often it has ended, and begun again.
    pub(super) boots: u64,
    listeners: Vec<mpsc::UnboundedSender<Bytes>>,
    /// So many of a thousand events get lost, come late or come twice.
    pub(super) event_faults: u64,
}

impl Container {
    /// Returns the session that it was made for.
    pub(super) fn session(&self) -> Option<SessionId> {
        SessionId::parse(self.labels.get(LABEL_SESSION)?).ok()
    }

    /// Returns the key that it was made under.
    pub(super) fn key(&self) -> Option<&str> {
        self.labels.get(LABEL_KEY).map(String::as_str)
    }

    /// Returns the directory of the host that outlives it.
    pub(super) fn workspace(&self) -> Option<PathBuf> {
        let mounted = |(source, _): &&(String, String)| source.ends_with("/workspace");
        let found = self.mounts.iter().find(mounted);
        found.map(|(source, _)| PathBuf::from(source))
    }

    fn state(&self) -> &'static str {
        match self.doing {
            _ if self.is_being_removed => "removing",
            Doing::Created => "created",
            Doing::Running => "running",
            Doing::Exited => "exited",
        }
    }

    fn mounts(&self) -> Vec<Value> {
        let mount = |(source, target): &(String, String)| json!({"Type": "bind", "Source": source, "Destination": target});
        self.mounts.iter().map(mount).collect()
    }

    fn inspect(&self) -> Value {
        let at = |time: Option<Timestamp>| time.map_or(NEVER.to_owned(), |at| at.to_string());
        json!({
            "Id": self.id,
            "Name": format!("/{}", self.name),
            "Created": self.made.to_string(),
            "Image": IMAGE_ID,
            "Config": {"Image": self.image, "Labels": self.labels},
            "State": {
                "Status": self.state(),
                "Pid": if self.doing == Doing::Running { 4_000_000 } else { 0 },
                "ExitCode": self.exit_code,
                "OOMKilled": self.oom,
                "Error": "",
                "StartedAt": at(self.started),
                "FinishedAt": NEVER,
            },
            "Mounts": self.mounts(),
            "HostConfig": {"Runtime": "runc"},
        })
    }

    fn summary(&self) -> Value {
        json!({
            "Id": self.id,
            "Names": [format!("/{}", self.name)],
            "Image": self.image,
            "ImageID": IMAGE_ID,
            "Created": self.made.micros() / 1_000_000,
            "Labels": self.labels,
            "State": self.state(),
            "Mounts": self.mounts(),
        })
    }
}

impl Request {
    pub(super) fn new(asked: &Asked) -> Self {
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let (path, query) = asked.target.split_once('?').unwrap_or((&asked.target, ""));
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        Self {
            method: asked.method.clone(),
            path: path.split('/').skip(1).map(decoded).collect(),
            query: pairs
                .map(|(name, value)| (name.to_owned(), decoded(value)))
                .collect(),
            body: serde_json::from_slice(&asked.body).unwrap_or(Value::Null),
        }
    }

    /// Returns the method and the words of the path.
    pub(super) fn words(&self) -> (&str, Vec<&str>) {
        let path = self.path.iter().map(String::as_str).collect();
        (&self.method, path)
    }
}

impl Containers {
    pub(super) fn new(dice: Dice) -> Self {
        Self {
            began: Instant::now(),
            dice,
            all: BTreeMap::new(),
            being_made: BTreeSet::new(),
            images: BTreeSet::new(),
            n_made: 0,
            n_started: 0,
            boots: 0,
            listeners: Vec::new(),
            event_faults: 0,
        }
    }

    /// Finds a container by id or name.
    pub(super) fn find(&self, wanted: &str) -> Option<&Container> {
        let by_name = || self.all.values().find(|one| one.name == wanted);
        self.all.get(wanted).or_else(by_name)
    }

    /// Returns all containers.
    pub(super) fn all(&self) -> impl Iterator<Item = &Container> {
        self.all.values()
    }

    /// Returns those that run.
    pub(super) fn running(&self) -> impl Iterator<Item = &Container> {
        self.all().filter(|one| one.doing == Doing::Running)
    }

    /// Has a container run that nobody asked for; returns its id.
    pub(super) fn put(&mut self, session: &SessionId, key: &ContainerKey) -> String {
        self.has_image(true);
        let request = Request {
            method: "POST".to_owned(),
            path: vec!["containers".to_owned(), "create".to_owned()],
            query: BTreeMap::from([("name".to_owned(), key.to_string())]),
            body: json!({
                "Image": IMAGE,
                "Labels": {LABEL_SESSION: session.as_str(), LABEL_KEY: key.as_str()},
            }),
        };
        self.create(&request);
        let id = self.find(key.as_str()).map(|one| one.id.clone());
        let id = id.expect("it was made just now");
        self.start(&id);
        id
    }

    /// Has a container remember a file of its own.
    pub(super) fn write(&mut self, id: &str, file: u64) {
        if let Some(container) = self.all.get_mut(id) {
            container.files.insert(file);
        }
    }

    /// Ends what runs in a container.
    pub(super) fn die(&mut self, id: &str, code: i64, oom: bool) {
        let Some(container) = self.all.get_mut(id) else {
            return;
        };
        if container.doing == Doing::Running {
            container.doing = Doing::Exited;
            container.exit_code = code;
            container.oom = oom;
            self.tell(id, "die");
        }
    }

    /// Ends the engine, all that runs, and all that it was about to do.
    pub(super) fn reboot(&mut self) {
        self.boots += 1;
        self.being_made.clear();
        for container in self.all.values_mut() {
            container.is_being_removed = false;
            container.lock = Arc::default();
        }
        self.cut_events();
        let running: Vec<String> = self.running().map(|one| one.id.clone()).collect();
        for id in running {
            self.die(&id, 137, false);
        }
    }

    /// Makes such a container again, as a call does that comes late.
    pub(super) fn make_late(&mut self, like: &Container) {
        self.n_made += 1;
        let id = format!("{:064x}", self.n_made);
        let late = Container {
            id: id.clone(),
            doing: Doing::Created,
            started: None,
            lock: Arc::default(),
            files: BTreeSet::new(),
            ..like.clone()
        };
        self.all.insert(id, late);
    }

    /// Removes a container with what is its own.
    pub(super) fn destroy(&mut self, id: &str) -> Option<Container> {
        self.die(id, 137, false);
        self.tell(id, "destroy");
        self.all.remove(id)
    }

    /// Has an image there, or not.
    pub(super) fn has_image(&mut self, is_there: bool) {
        if is_there {
            self.images.insert(IMAGE.to_owned());
        } else {
            self.images.clear();
        }
    }

    /// Ends all streams of events.
    pub(super) fn cut_events(&mut self) {
        self.listeners.clear();
    }

    /// Begins a stream of events.
    pub(super) fn listen(&mut self) -> mpsc::UnboundedReceiver<Bytes> {
        let (listener, events) = mpsc::unbounded_channel();
        self.listeners.retain(|one| !one.is_closed());
        self.listeners.push(listener);
        events
    }

    fn now(&self) -> Timestamp {
        BEGAN.plus(self.began.elapsed())
    }

    fn tell(&mut self, id: &str, action: &str) {
        let Some(container) = self.all.get(id) else {
            return;
        };
        let event = json!({
            "Type": "container",
            "Action": action,
            "Actor": {"ID": id, "Attributes": container.labels},
            "time": self.now().micros() / 1_000_000,
        });
        let line = Bytes::from(format!("{event}\n"));
        let is_odd = self.dice.chance(self.event_faults);
        for listener in &self.listeners {
            match (is_odd, self.dice.below(3)) {
                (false, _) => drop(listener.send(line.clone())),
                (true, 0) => {}
                (true, 1) => {
                    drop(listener.send(line.clone()));
                    drop(listener.send(line.clone()));
                }
                (true, _) => {
                    let (listener, line) = (listener.clone(), line.clone());
                    let late = self.dice.span(Duration::ZERO, Duration::from_secs(20));
                    tokio::spawn(async move {
                        tokio::time::sleep(late).await;
                        drop(listener.send(line));
                    });
                }
            }
        }
    }

    /// The first end of a call.
    pub(super) fn begin(&mut self, request: &Request) -> Begun {
        let brief = Duration::from_millis(1 + self.dice.below(10));
        match request.words() {
            ("POST", path) if path == ["containers", "create"] => self.begin_create(request),
            ("POST", path) if matches!(path[..], ["containers", _, "stop"]) => {
                match self.find(path[1]).map(|one| one.doing) {
                    None => Begun::Refused(no_container(path[1])),
                    Some(Doing::Created | Doing::Exited) => Begun::Refused((304, Value::Null)),
                    // Some heed the request to end, and others have to be killed.
                    Some(Doing::Running) if self.dice.chance(150) => {
                        let grace = request.query.get("t").and_then(|text| text.parse().ok());
                        Begun::Takes(Duration::from_secs(grace.unwrap_or(10)))
                    }
                    Some(Doing::Running) => Begun::Takes(brief * 10),
                }
            }
            ("DELETE", path) if matches!(path[..], ["containers", _]) => {
                self.begin_remove(path[1], brief)
            }
            ("POST", path) if matches!(path[..], ["containers", _, "start"]) => {
                Begun::Takes(brief * 20)
            }
            _ => Begun::Takes(brief),
        }
    }

    fn begin_create(&mut self, request: &Request) -> Begun {
        let name = request.query.get("name").cloned().unwrap_or_default();
        let image = request.body["Image"].as_str().unwrap_or_default();
        if !self.images.contains(image) {
            let words = format!("No such image: {image}");
            return Begun::Refused(error(404, &words));
        }
        let mounts = mounts_of(&request.body);
        let missing = mounts
            .iter()
            .find(|(source, _)| !Path::new(source).exists());
        if let Some((source, _)) = missing {
            let words = format!(
                "invalid mount config for type \"bind\": bind source path does not exist: {source}"
            );
            return Begun::Refused(error(400, &words));
        }
        if self.being_made.contains(&name) || self.find(&name).is_some() {
            let words = format!("Conflict. The container name \"/{name}\" is already in use");
            return Begun::Refused(error(409, &words));
        }
        self.being_made.insert(name);
        Begun::Takes(Duration::from_millis(20 + self.dice.below(200)))
    }

    fn begin_remove(&mut self, wanted: &str, brief: Duration) -> Begun {
        let Some(id) = self.find(wanted).map(|one| one.id.clone()) else {
            return Begun::Refused(no_container(wanted));
        };
        let container = self.all.get_mut(&id).expect("it was found");
        if container.is_being_removed {
            let words = format!("removal of container {wanted} is already in progress");
            return Begun::Refused(error(409, &words));
        }
        container.is_being_removed = true;
        self.die(&id, 137, false);
        let takes = if self.dice.chance(50) {
            self.dice
                .span(Duration::from_secs(1), Duration::from_secs(8))
        } else {
            brief
        };
        Begun::Takes(takes)
    }

    /// The second end of a call: its effect, and its answer.
    pub(super) fn finish(&mut self, request: &Request) -> Reply {
        let (method, path) = request.words();
        match (method, &path[..]) {
            ("GET", ["_ping"]) => (200, json!("OK")),
            ("GET", ["version"]) => (
                200,
                json!({"Version": "20.10.24", "ApiVersion": "1.41", "MinAPIVersion": "1.12"}),
            ),
            ("GET", ["info"]) => (200, info()),
            ("GET", ["containers", "json"]) => (200, self.all().map(Container::summary).collect()),
            ("POST", ["containers", "create"]) => self.create(request),
            ("GET", ["containers", wanted, "json"]) => match self.find(wanted) {
                Some(found) => (200, found.inspect()),
                None => no_container(wanted),
            },
            ("POST", ["containers", wanted, "start"]) => self.start(wanted),
            ("POST", ["containers", wanted, "stop"]) => {
                let Some(id) = self.find(wanted).map(|one| one.id.clone()) else {
                    return no_container(wanted);
                };
                self.die(&id, 143, false);
                self.tell(&id, "stop");
                (204, Value::Null)
            }
            ("DELETE", ["containers", wanted]) => {
                let Some(id) = self.find(wanted).map(|one| one.id.clone()) else {
                    return no_container(wanted);
                };
                self.destroy(&id);
                (204, Value::Null)
            }
            ("GET", ["images", name, "json"]) if self.images.contains(*name) => {
                (200, json!({"Id": IMAGE_ID, "RepoTags": [name]}))
            }
            ("GET", ["images", name, "json"]) => error(404, &format!("No such image: {name}")),
            ("POST", ["images", "create"]) => {
                self.has_image(true);
                (200, json!({"status": "Pull complete"}))
            }
            other => panic!("the simulated engine knows no {other:?}"),
        }
    }

    fn create(&mut self, request: &Request) -> Reply {
        let name = request.query.get("name").cloned().unwrap_or_default();
        self.being_made.remove(&name);
        self.n_made += 1;
        let id = format!("{:064x}", self.n_made);
        let labels = request.body["Labels"].as_object();
        let labels = labels.into_iter().flatten();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let container = Container {
            id: id.clone(),
            name,
            image: text(&request.body["Image"]),
            labels: labels
                .map(|(name, value)| (name.clone(), text(value)))
                .collect(),
            mounts: mounts_of(&request.body),
            made: self.now(),
            doing: Doing::Created,
            exit_code: 0,
            oom: false,
            started: None,
            is_being_removed: false,
            lock: Arc::default(),
            files: BTreeSet::new(),
        };
        self.all.insert(id.clone(), container);
        (201, json!({"Id": id, "Warnings": []}))
    }

    fn start(&mut self, wanted: &str) -> Reply {
        let Some(id) = self.find(wanted).map(|one| one.id.clone()) else {
            return no_container(wanted);
        };
        self.n_started += 1;
        // Two starts never have the same time.
        let now = self.now().plus(Duration::from_micros(self.n_started));
        let container = self.all.get_mut(&id).expect("it was found");
        if container.is_being_removed {
            let words = "container is marked for removal and cannot be started";
            return error(409, words);
        }
        if container.doing == Doing::Running {
            return (304, Value::Null);
        }
        let missing = |(source, _): &&(String, String)| !Path::new(source).exists();
        if let Some((source, _)) = container.mounts.iter().find(missing) {
            return error(400, &format!("bind source path does not exist: {source}"));
        }
        container.doing = Doing::Running;
        container.started = Some(now);
        container.exit_code = 0;
        container.oom = false;
        self.tell(&id, "start");
        (204, Value::Null)
    }
}

fn mounts_of(body: &Value) -> Vec<(String, String)> {
    let text = |mount: &Value, name: &str| mount[name].as_str().unwrap_or_default().to_owned();
    let mounts = body["HostConfig"]["Mounts"].as_array();
    mounts
        .into_iter()
        .flatten()
        .filter(|mount| mount["Type"] == "bind")
        .map(|mount| (text(mount, "Source"), text(mount, "Target")))
        .collect()
}

/// An error as the engine words it.
pub(super) fn error(status: u16, message: &str) -> Reply {
    (status, json!({ "message": message }))
}

fn no_container(wanted: &str) -> Reply {
    error(404, &format!("No such container: {wanted}"))
}

fn info() -> Value {
    json!({
        "ID": "SIMU:LATE",
        "Name": "simulated",
        "ServerVersion": "20.10.24",
        "Driver": "overlay2",
        "CgroupDriver": "cgroupfs",
        "CgroupVersion": "1",
        "DockerRootDir": "/simulated",
        "NCPU": 2,
        "MemTotal": 8_u64 << 30,
        "Runtimes": {"runc": {"path": "runc"}},
        "DefaultRuntime": "runc",
        "LiveRestoreEnabled": false,
        "SecurityOptions": ["name=seccomp,profile=default"],
    })
}
