//! Finds out what is asked of the fake engine and answers it.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::http::{Asked, Kept, Reply};
use super::model::{Container, Model, Shared, Status};
use super::{answers, create, events, exec};
use crate::support::fault::cut;

const STOP_GRACE_SECS: u64 = 10;

/// Answers one request.
pub(super) fn answer(shared: &Arc<Shared>, asked: &Asked, client: &UnixStream) -> Kept {
    if let Some(refused) = asked.refused_version() {
        return refused.write(client);
    }
    let path: Vec<&str> = asked.path.iter().map(String::as_str).collect();
    match (asked.method.as_str(), path.as_slice()) {
        ("GET", ["events"]) => events::follow(shared, asked, client),
        ("POST", ["exec", id, "start"]) => exec::start(shared, id, asked, client),
        ("POST", ["containers", wanted, "start"]) if dies(shared, wanted) => {
            cut(client);
            Kept::No
        }
        _ => {
            let reply = reply(shared, asked, &path).unwrap_or_else(|error| error);
            shared.changed.notify_all();
            reply.write(client)
        }
    }
}

/// Goes down in the middle of a start, where that was asked for.
fn dies(shared: &Shared, wanted: &str) -> bool {
    let mut model = shared.model();
    let id = match model.find(wanted) {
        Ok(found) if found.status == Status::Created => found.id.clone(),
        Ok(_) | Err(_) => return false,
    };
    if !std::mem::take(&mut model.dies_in_start) {
        return false;
    }
    model.of(&id).is_poisoned = true;
    model.go_down();
    shared.changed.notify_all();
    true
}

fn reply(shared: &Arc<Shared>, asked: &Asked, path: &[&str]) -> Result<Reply, Reply> {
    match (asked.method.as_str(), path) {
        ("GET", ["_ping"]) => Ok(Reply::Text(200, "OK".to_owned())),
        ("HEAD", ["_ping"]) => Ok(Reply::Empty(200)),
        ("GET", ["version"]) => Ok(Reply::Json(200, answers::version())),
        ("GET", ["info"]) => Ok(Reply::Json(200, answers::info(&shared.model()))),
        (_, ["images", rest @ ..]) => of_images(asked, rest),
        (_, ["containers", rest @ ..]) => of_containers(shared, asked, rest),
        ("GET", ["exec", id, "json"]) => exec::inspect(&shared.model(), id),
        _ => Err(Reply::error(404, "page not found")),
    }
}

fn of_images(asked: &Asked, path: &[&str]) -> Result<Reply, Reply> {
    match (asked.method.as_str(), path) {
        ("POST", ["create"]) => {
            let name = asked.query.get("fromImage").map_or("", String::as_str);
            let text = match name.split_once('/') {
                Some((host, _)) if host.contains(':') => {
                    format!("Get \"http://{host}/v2/\": dial tcp: connect: connection refused")
                }
                _ => format!(
                    "pull access denied for {name}, repository does not exist or may require 'docker login'"
                ),
            };
            let status = if text.starts_with("Get") { 500 } else { 404 };
            Err(Reply::error(status, &text))
        }
        ("GET", [name @ .., "json"]) if !name.is_empty() => {
            let name = name.join("/");
            if Model::has_image(&name) {
                return Ok(Reply::Json(200, answers::image()));
            }
            let text = format!("no such image: {name}: No such image: {name}");
            Err(Reply::error(404, &text))
        }
        _ => Err(Reply::error(404, "page not found")),
    }
}

fn of_containers(shared: &Arc<Shared>, asked: &Asked, path: &[&str]) -> Result<Reply, Reply> {
    match (asked.method.as_str(), path) {
        ("GET", ["json"]) => list(&shared.model(), asked),
        ("POST", ["create"]) => create::create(&mut shared.model(), asked),
        ("GET", [wanted, "json"]) => {
            let model = shared.model();
            Ok(Reply::Json(200, answers::inspect(model.find(wanted)?)))
        }
        ("GET", [wanted, "stats"]) => {
            let model = shared.model();
            Ok(Reply::Json(200, answers::stats(model.find(wanted)?)))
        }
        ("GET", [wanted, "logs"]) => {
            let model = shared.model();
            let driver = &model.find(wanted)?.body["HostConfig"]["LogConfig"]["Type"];
            if driver == "none" {
                let text = "configured logging driver does not support reading";
                return Err(Reply::error(501, text));
            }
            Ok(Reply::Text(200, String::new()))
        }
        ("POST", [wanted, "start"]) => shared.model().start(wanted),
        ("POST", [wanted, "stop"]) => {
            let grace = asked.query.get("t").and_then(|text| text.parse().ok());
            shared.stop(
                wanted,
                Duration::from_secs(grace.unwrap_or(STOP_GRACE_SECS)),
            )
        }
        ("POST", [wanted, "kill"]) => kill(&mut shared.model(), wanted, asked),
        ("POST", [wanted, "pause"]) => pause(&mut shared.model(), wanted),
        ("POST", [wanted, "unpause"]) => unpause(&mut shared.model(), wanted),
        ("POST", [wanted, "rename"]) => create::rename(&mut shared.model(), wanted, asked),
        ("POST", [wanted, "wait"]) => {
            let code = shared.wait(wanted)?;
            let body = json!({"Error": null, "StatusCode": code});
            Ok(Reply::Json(200, body))
        }
        ("POST", [wanted, "exec"]) => exec::create(&mut shared.model(), wanted, asked),
        ("DELETE", [wanted]) => shared.remove(wanted, asked.flag("force")),
        _ => Err(Reply::error(404, "page not found")),
    }
}

fn list(model: &Model, asked: &Asked) -> Result<Reply, Reply> {
    const KNOWN: [&str; 4] = ["id", "label", "name", "status"];
    let filters = asked.filters()?;
    if let Some(unknown) = filters.keys().find(|name| !KNOWN.contains(&name.as_str())) {
        return Err(Reply::error(400, &format!("Invalid filter '{unknown}'")));
    }
    let all = asked.flag("all") || filters.contains_key("status");
    let fits = |one: &&Container| {
        (all || one.is_up())
            && filters.iter().all(|(name, values)| match name.as_str() {
                "label" => values.iter().all(|label| has_label(one, label)),
                "name" => values.iter().any(|name| one.name.contains(name.as_str())),
                "id" => values.iter().any(|id| one.id.starts_with(id.as_str())),
                _ => values.iter().any(|state| answers::state(one) == state),
            })
    };
    let mut found: Vec<_> = model.containers.values().filter(fits).collect();
    found.sort_by_key(|one| std::cmp::Reverse(one.created));
    let lines: Vec<Value> = found.into_iter().map(answers::summary).collect();
    Ok(Reply::Json(200, Value::Array(lines)))
}

fn has_label(one: &Container, label: &str) -> bool {
    match label.split_once('=') {
        Some((name, value)) => one.labels.get(name).is_some_and(|found| found == value),
        None => one.labels.contains_key(label),
    }
}

fn kill(model: &mut Model, wanted: &str, asked: &Asked) -> Result<Reply, Reply> {
    let found = model.find(wanted)?;
    let id = found.id.clone();
    if !found.is_up() {
        let text = format!("Cannot kill container: {wanted}: Container {id} is not running");
        return Err(Reply::error(409, &text));
    }
    let name = asked.query.get("signal").map_or("KILL", String::as_str);
    let signal = match name.trim_start_matches("SIG") {
        "HUP" | "1" => 1,
        "INT" | "2" => 2,
        "TERM" | "15" => 15,
        "KILL" | "9" | "" => 9,
        _ => return Err(Reply::error(400, &format!("Invalid signal: {name}"))),
    };
    model.signal(&id, signal);
    Ok(Reply::Empty(204))
}

fn pause(model: &mut Model, wanted: &str) -> Result<Reply, Reply> {
    let found = model.find(wanted)?;
    let id = found.id.clone();
    match found.status {
        Status::Running => {}
        Status::Paused => {
            let text = format!("Container {id} is already paused");
            return Err(Reply::error(409, &text));
        }
        Status::Created | Status::Exited => {
            let text = format!("Container {id} is not running");
            return Err(Reply::error(409, &text));
        }
    }
    model.of(&id).status = Status::Paused;
    model.tell(&id, "pause", &[]);
    Ok(Reply::Empty(204))
}

fn unpause(model: &mut Model, wanted: &str) -> Result<Reply, Reply> {
    let found = model.find(wanted)?;
    let id = found.id.clone();
    if found.status != Status::Paused {
        let text = format!("Container {id} is not paused");
        return Err(Reply::error(500, &text));
    }
    model.of(&id).status = Status::Running;
    model.tell(&id, "unpause", &[]);
    Ok(Reply::Empty(204))
}
