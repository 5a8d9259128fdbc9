//! Keeps the fake engine's containers and what becomes of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use super::events::Events;
use super::http::Reply;
use crate::support::docker::IMAGE;

const SIGTERM: i64 = 15;
const SIGKILL: i64 = 9;

/// The model, and a way to wait for its changes.
#[derive(Debug)]
pub(super) struct Shared {
    model: Mutex<Model>,
    pub(super) changed: Condvar,
}

/// All that the engine knows.
#[derive(Debug)]
pub(super) struct Model {
    /// Names the engine's state.
    pub(super) id: String,
    /// Holds what containers have of their own.
    pub(super) dir: PathBuf,
    pub(super) containers: BTreeMap<String, Container>,
    pub(super) execs: BTreeMap<String, Exec>,
    pub(super) events: Events,
    pub(super) commands_started: u64,
    pub(super) dies_in_start: bool,
    pub(super) removal_takes: Duration,
    next_pid: i64,
}

/// What a container is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Created,
    Running,
    Paused,
    Exited,
}

/// What its first process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    /// It sleeps until a signal ends it.
    Sleeps,
    /// It sleeps, and as the first process it is deaf to what it does not handle.
    SleepsDeaf,
    /// It ends at once.
    Ends(i64),
    /// There is no such program.
    Missing,
}

#[derive(Clone, Debug)]
pub(super) struct Container {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) created: Timestamp,
    pub(super) image: String,
    pub(super) argv: Vec<String>,
    pub(super) env: Vec<String>,
    pub(super) working_dir: String,
    pub(super) labels: BTreeMap<String, String>,
    /// What it was created with.
    pub(super) body: Value,
    pub(super) program: Program,
    pub(super) status: Status,
    pub(super) pid: i64,
    pub(super) exit_code: i64,
    pub(super) error: String,
    pub(super) started: Option<Timestamp>,
    pub(super) finished: Option<Timestamp>,
    /// No start of it ever succeeds.
    pub(super) is_poisoned: bool,
    pub(super) is_being_removed: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Exec {
    pub(super) container: String,
    pub(super) argv: Vec<String>,
    pub(super) env: Vec<String>,
    pub(super) working_dir: Option<String>,
    pub(super) running: bool,
    pub(super) exit_code: Option<i64>,
    /// Zero where it never ran.
    pub(super) pid: u32,
}

impl Shared {
    pub(super) fn new(model: Model) -> Self {
        Self {
            model: Mutex::new(model),
            changed: Condvar::new(),
        }
    }

    pub(super) fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Model {
    pub(super) fn new(dir: &Path) -> Self {
        Self {
            id: fresh_id(),
            dir: dir.to_owned(),
            containers: BTreeMap::new(),
            execs: BTreeMap::new(),
            events: Events::default(),
            commands_started: 0,
            dies_in_start: false,
            removal_takes: Duration::ZERO,
            // Above every number that the kernel gives, so that nobody is taken for it.
            next_pid: 1 << 30,
        }
    }

    /// Tells whether there is such an image.
    pub(super) fn has_image(reference: &str) -> bool {
        reference == IMAGE || format!("{reference}:latest") == IMAGE
    }

    /// Finds a container by id, name, or the beginning of its id.
    pub(super) fn find(&self, wanted: &str) -> Result<&Container, Reply> {
        let name = wanted.strip_prefix('/').unwrap_or(wanted);
        let mut all = self.containers.values();
        all.clone()
            .find(|one| one.id == wanted || one.name == name)
            .or_else(|| all.find(|one| !wanted.is_empty() && one.id.starts_with(wanted)))
            .ok_or_else(|| Reply::error(404, &format!("No such container: {wanted}")))
    }

    /// Returns a container that was found.
    pub(super) fn of(&mut self, id: &str) -> &mut Container {
        self.containers.get_mut(id).expect("it was found")
    }

    /// Notes an event of a container.
    pub(super) fn tell(&mut self, id: &str, action: &str, more: &[(&str, &str)]) {
        if let Some(container) = self.containers.get(id) {
            self.events.push(container, action, more);
        }
    }

    /// Starts a container.
    pub(super) fn start(&mut self, wanted: &str) -> Result<Reply, Reply> {
        let found = self.find(wanted)?;
        let id = found.id.clone();
        match found.status {
            Status::Running => return Ok(Reply::Empty(304)),
            Status::Paused => {
                let text = "cannot start a paused container, try unpause instead";
                return Err(Reply::error(409, text));
            }
            Status::Created | Status::Exited => {}
        }
        if found.is_poisoned {
            return Err(Reply::error(500, "id already in use"));
        }
        if found.program == Program::Missing {
            let program = found.argv.first().cloned().unwrap_or_default();
            let text = format!(
                "failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: exec: {program:?}: stat {program}: no such file or directory: unknown"
            );
            let container = self.of(&id);
            container.exit_code = 127;
            container.error.clone_from(&text);
            return Err(Reply::error(400, &text));
        }
        self.next_pid += 1;
        let pid = self.next_pid;
        let container = self.of(&id);
        container.status = Status::Running;
        container.pid = pid;
        container.exit_code = 0;
        container.error = String::new();
        container.started = Some(Timestamp::now());
        let program = container.program;
        self.tell(&id, "start", &[]);
        if let Program::Ends(code) = program {
            self.die(&id, code);
        }
        Ok(Reply::Empty(204))
    }

    /// Ends a container's processes.
    pub(super) fn die(&mut self, id: &str, code: i64) {
        let container = self.of(id);
        container.status = Status::Exited;
        container.pid = 0;
        container.exit_code = code;
        container.finished = Some(Timestamp::now());
        self.kill_commands(|exec| exec.container == id);
        // What was prepared and never ran is forgotten.
        self.execs
            .retain(|_, exec| exec.container != id || exec.running || exec.exit_code.is_some());
        self.tell(id, "die", &[("exitCode", &code.to_string())]);
    }

    /// Sends a signal to the first process of a container that runs.
    pub(super) fn signal(&mut self, id: &str, signal: i64) {
        self.tell(id, "kill", &[("signal", &signal.to_string())]);
        if self.of(id).status == Status::Paused {
            self.of(id).status = Status::Running;
            self.tell(id, "unpause", &[]);
        }
        let is_heard = match self.of(id).program {
            Program::SleepsDeaf => signal == SIGKILL,
            Program::Sleeps | Program::Ends(_) | Program::Missing => true,
        };
        if is_heard {
            self.die(id, 128 + signal);
        }
    }

    /// Removes a container and what it had of its own.
    pub(super) fn destroy(&mut self, id: &str) {
        self.tell(id, "destroy", &[]);
        self.containers.remove(id);
        self.execs.retain(|_, exec| exec.container != id);
        // It may never have had anything.
        drop(std::fs::remove_dir_all(self.dir.join(id)));
    }

    /// Ends as an engine without live-restore does.
    pub(super) fn go_down(&mut self) {
        let is_up = |one: &&Container| matches!(one.status, Status::Running | Status::Paused);
        let running = self.containers.values().filter(is_up);
        let running: Vec<_> = running.map(|one| one.id.clone()).collect();
        for id in running {
            self.die(&id, 128 + SIGTERM);
        }
        self.kill_commands(|_| true);
        self.execs.clear();
        self.events.go_down();
    }

    fn kill_commands(&mut self, which: impl Fn(&Exec) -> bool) {
        for exec in self
            .execs
            .values()
            .filter(|exec| exec.running && which(exec))
        {
            let pid = i32::try_from(exec.pid).ok().and_then(Pid::from_raw);
            if let Some(pid) = pid {
                // It may have ended a moment ago.
                let _ended = kill_process_group(pid, Signal::KILL).is_err();
            }
        }
    }
}

impl Container {
    /// Returns the number of its first process, or zero.
    pub(super) fn is_up(&self) -> bool {
        matches!(self.status, Status::Running | Status::Paused)
    }

    /// Returns where a path of the container is on the host.
    pub(super) fn on_host(&self, dir: &Path, path: &str) -> PathBuf {
        let mounts = self.mounts();
        let below = |target: &str| {
            let rest = path.strip_prefix(target)?;
            (rest.is_empty() || rest.starts_with('/'))
                .then(|| rest.trim_start_matches('/').to_owned())
        };
        for (source, target) in &mounts {
            if let Some(rest) = below(target) {
                return Path::new(source).join(rest);
            }
        }
        dir.join(&self.id).join(path.trim_start_matches('/'))
    }

    /// Returns source and target of what is mounted in it.
    pub(super) fn mounts(&self) -> Vec<(String, String)> {
        let list = self.body["HostConfig"]["Mounts"].as_array();
        let text = |mount: &Value, name: &str| mount[name].as_str().unwrap_or_default().to_owned();
        list.map_or(&[][..], Vec::as_slice)
            .iter()
            .map(|mount| (text(mount, "Source"), text(mount, "Target")))
            .collect()
    }
}

impl Shared {
    /// Stops a container: asks it to end, and kills it after `grace`.
    pub(super) fn stop(&self, wanted: &str, grace: Duration) -> Result<Reply, Reply> {
        let mut model = self.model();
        let found = model.find(wanted)?;
        let id = found.id.clone();
        if !found.is_up() {
            return Ok(Reply::Empty(304));
        }
        model.signal(&id, SIGTERM);
        self.changed.notify_all();
        let end = Instant::now() + grace;
        let is_up = |model: &Model| model.containers.get(&id).is_some_and(Container::is_up);
        while is_up(&model) && Instant::now() < end {
            let left = end.saturating_duration_since(Instant::now());
            model = self.changed.wait_timeout(model, left).unwrap().0;
        }
        if is_up(&model) {
            model.signal(&id, SIGKILL);
        }
        model.tell(&id, "stop", &[]);
        self.changed.notify_all();
        Ok(Reply::Empty(204))
    }

    /// Removes a container.
    pub(super) fn remove(&self, wanted: &str, force: bool) -> Result<Reply, Reply> {
        let mut model = self.model();
        let found = model.find(wanted)?;
        let id = found.id.clone();
        if found.is_being_removed {
            let text = format!("removal of container {wanted} is already in progress");
            return Err(Reply::error(409, &text));
        }
        if found.is_up() && !force {
            let (state, advice) = match found.status {
                Status::Paused => ("paused", "Unpause and then stop"),
                Status::Running | Status::Created | Status::Exited => ("running", "Stop"),
            };
            let text = format!(
                "You cannot remove a {state} container {id}. {advice} the container before attempting removal or force remove"
            );
            return Err(Reply::error(409, &text));
        }
        model.of(&id).is_being_removed = true;
        if model.of(&id).is_up() {
            model.signal(&id, SIGKILL);
        }
        self.changed.notify_all();
        let takes = model.removal_takes;
        if !takes.is_zero() {
            drop(model);
            std::thread::sleep(takes);
            model = self.model();
        }
        if model.containers.contains_key(&id) {
            model.destroy(&id);
        }
        self.changed.notify_all();
        Ok(Reply::Empty(204))
    }

    /// Waits until a container does not run.
    pub(super) fn wait(&self, wanted: &str) -> Result<i64, Reply> {
        let mut model = self.model();
        let id = model.find(wanted)?.id.clone();
        let lives = model.events.lives;
        while model.events.lives == lives && model.containers.get(&id).is_some_and(Container::is_up)
        {
            model = self.changed.wait(model).unwrap();
        }
        Ok(model.containers.get(&id).map_or(0, |one| one.exit_code))
    }
}

/// Makes an id as the engine's are.
pub(super) fn fresh_id() -> String {
    let half = || uuid::Uuid::new_v4().simple().to_string();
    half() + &half()
}
