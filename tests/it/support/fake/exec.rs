//! Runs further commands in a container of the fake engine: real ones, on the host.

use std::io::{Read, Write as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::answers;
use super::create::{text, texts};
use super::http::{Asked, Kept, Reply, head};
use super::model::{Exec, Model, Shared, Status, fresh_id};

/// How long the output stays open for children after the command itself ended.
const OUTPUT_WAIT: Duration = Duration::from_secs(2);
const STDOUT: u8 = 1;
const STDERR: u8 = 2;

/// Prepares a command.
pub(super) fn create(model: &mut Model, wanted: &str, asked: &Asked) -> Result<Reply, Reply> {
    let body = asked.json()?;
    let argv = texts(&body["Cmd"]);
    if argv.is_empty() {
        return Err(Reply::error(400, "No exec command specified"));
    }
    let found = model.find(wanted)?;
    let (id, name) = (found.id.clone(), found.name.clone());
    match found.status {
        Status::Running => {}
        Status::Paused => {
            let text = format!("Container {name} is paused, unpause the container before exec");
            return Err(Reply::error(409, &text));
        }
        Status::Created | Status::Exited => {
            let text = format!("Container {id} is not running");
            return Err(Reply::error(409, &text));
        }
    }
    let exec = fresh_id();
    let working_dir = text(&body["WorkingDir"]);
    let words = shown(&argv);
    let prepared = Exec {
        container: id.clone(),
        argv,
        env: texts(&body["Env"]),
        working_dir: (!working_dir.is_empty()).then_some(working_dir),
        running: false,
        exit_code: None,
        pid: 0,
    };
    model.execs.insert(exec.clone(), prepared);
    model.tell(&id, &format!("exec_create: {words}"), &[("execID", &exec)]);
    Ok(Reply::Json(201, json!({ "Id": exec })))
}

/// Looks at a command.
pub(super) fn inspect(model: &Model, id: &str) -> Result<Reply, Reply> {
    let found = model.execs.get(id).ok_or_else(|| missing(id))?;
    Ok(Reply::Json(200, answers::exec(id, found)))
}

fn missing(id: &str) -> Reply {
    Reply::error(404, &format!("No such exec instance: {id}"))
}

/// The arguments as events show them.
fn shown(argv: &[String]) -> String {
    format!("{} {}", argv[0], argv[1..].join(" "))
}

/// Starts a command and passes its output on until it ends.
pub(super) fn start(shared: &Arc<Shared>, id: &str, asked: &Asked, client: &UnixStream) -> Kept {
    let how = asked.json().unwrap_or(Value::Null);
    let child = match begin(shared, id, how["Detach"] == true) {
        Ok(begun) => begun,
        Err(refused) => return refused.write(client),
    };
    shared.changed.notify_all();
    let is_detached = how["Detach"] == true;
    let to = client.try_clone().ok().filter(|_| !is_detached);
    let output = Arc::new(Output {
        to: Mutex::new(to),
        is_framed: how["Tty"] != true,
    });
    if is_detached {
        Reply::Empty(200).write(client);
    } else {
        let kind = "application/vnd.docker.raw-stream";
        output.write((head(200, Some(kind)) + "\r\n").as_bytes());
    }
    match child {
        Begun::Runs(child) => follow(shared, id, child, &output),
        Begun::Not(words) => output.frame(STDOUT, words.as_bytes()),
    }
    Kept::No
}

enum Begun {
    Runs(Child),
    /// It does not run, for this reason, which the engine reports as output.
    Not(String),
}

fn begin(shared: &Shared, id: &str, is_detached: bool) -> Result<Begun, Reply> {
    let mut model = shared.model();
    let exec = model.execs.get(id).ok_or_else(|| missing(id))?.clone();
    let container = model.find(&exec.container)?.clone();
    match container.status {
        Status::Running => {}
        Status::Paused => {
            let (name, text) = (
                &container.name,
                "is paused, unpause the container before exec",
            );
            return Err(Reply::error(409, &format!("Container {name} {text}")));
        }
        Status::Created | Status::Exited => {
            let text = format!(
                "Container {} is not running: Exited ({}) Less than a second ago",
                container.id, container.exit_code
            );
            return Err(Reply::error(500, &text));
        }
    }
    let again = match (exec.running, exec.exit_code) {
        (true, _) => Some("is already running"),
        (false, Some(_)) => Some("has already run"),
        (false, None) => None,
    };
    if let Some(again) = again {
        let text = format!("Error: Exec command {id} {again}");
        return refuse(is_detached, 409, &text);
    }
    let words = shown(&exec.argv);
    let mut command = command(&model, &exec);
    let (started, ended) = match command.spawn() {
        Ok(child) => (Ok(child), None),
        Err(error) => (Err(error), Some(126)),
    };
    let noted = model.execs.get_mut(id).expect("it was found");
    noted.exit_code = ended;
    noted.running = started.is_ok();
    noted.pid = started.as_ref().map_or(0, Child::id);
    model.tell(
        &exec.container,
        &format!("exec_start: {words}"),
        &[("execID", id)],
    );
    if let Ok(child) = started {
        model.commands_started += 1;
        return Ok(Begun::Runs(child));
    }
    let program = &exec.argv[0];
    let text = format!(
        "OCI runtime exec failed: exec failed: unable to start container process: exec: {program:?}: stat {program}: no such file or directory: unknown"
    );
    refuse(is_detached, 400, &text)
}

fn refuse(is_detached: bool, status: u16, text: &str) -> Result<Begun, Reply> {
    if is_detached {
        return Err(Reply::error(status, text));
    }
    Ok(Begun::Not(format!("{text}\r\n")))
}

/// Puts a command into the terms of the host.
fn command(model: &Model, exec: &Exec) -> Command {
    let container = &model.containers[&exec.container];
    let within = exec.working_dir.as_ref().unwrap_or(&container.working_dir);
    let directory = container.on_host(&model.dir, within);
    if !directory.exists() && exec.working_dir.is_none() {
        std::fs::create_dir_all(&directory).unwrap();
    }
    // What a command names below a mount is there, and below the working directory.
    let mut places: Vec<String> = container.mounts().into_iter().map(|(_, at)| at).collect();
    if !places.contains(&container.working_dir) {
        places.push(container.working_dir.clone());
    }
    let on_host = |word: &str| {
        let mut word = word.to_owned();
        for place in places.iter().filter(|place| 1 < place.len()) {
            let host = container.on_host(&model.dir, place);
            if !host.starts_with(place) {
                word = word.replace(&format!("{place}/"), &format!("{}/", host.display()));
            }
        }
        word
    };
    let mut command = Command::new(&exec.argv[0]);
    command
        .args(exec.argv[1..].iter().map(|word| on_host(word)))
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .envs(
            container
                .env
                .iter()
                .chain(&exec.env)
                .filter_map(|pair| pair.split_once('=')),
        )
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A signal to the command never reaches the tests.
        .process_group(0);
    command
}

/// Where output goes; a client that has gone stops nothing.
struct Output {
    to: Mutex<Option<UnixStream>>,
    is_framed: bool,
}

impl Output {
    fn write(&self, bytes: &[u8]) {
        let mut to = self.to.lock().unwrap();
        let is_lost = to.as_mut().is_some_and(|to| to.write_all(bytes).is_err());
        if is_lost {
            *to = None;
        }
    }

    fn frame(&self, stream: u8, bytes: &[u8]) {
        if !self.is_framed {
            return self.write(bytes);
        }
        let mut frame = vec![stream, 0, 0, 0];
        frame.extend(u32::try_from(bytes.len()).unwrap().to_be_bytes());
        frame.extend(bytes);
        self.write(&frame);
    }
}

fn follow(shared: &Shared, id: &str, mut child: Child, output: &Arc<Output>) {
    let (done, ended) = channel();
    pump(child.stdout.take().unwrap(), STDOUT, output, done.clone());
    pump(child.stderr.take().unwrap(), STDERR, output, done);
    let code = code(child.wait().unwrap());
    // Each of both ends says so by dropping its sender.
    match ended.recv_timeout(OUTPUT_WAIT) {
        Ok(()) | Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => {}
    }
    let mut model = shared.model();
    // Kept before the output ends, as this version does.
    let Some(exec) = model.execs.get_mut(id) else {
        return;
    };
    exec.running = false;
    exec.exit_code = Some(code);
    let container = exec.container.clone();
    let code = code.to_string();
    model.tell(
        &container,
        "exec_die",
        &[("execID", id), ("exitCode", &code)],
    );
    shared.changed.notify_all();
}

fn pump(mut from: impl Read + Send + 'static, stream: u8, output: &Arc<Output>, done: Sender<()>) {
    let output = Arc::clone(output);
    thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(length @ 1..) = from.read(&mut piece) {
            output.frame(stream, &piece[..length]);
        }
        drop(done);
    });
}

fn code(status: ExitStatus) -> i64 {
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    i64::from(code.unwrap_or(-1))
}
