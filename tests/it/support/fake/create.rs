//! Judges the settings of a new container as the engine does, and makes it.

use std::path::Path;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::http::{Asked, Reply};
use super::model::{Container, Model, Program, Status, fresh_id};

/// Creates a container.
pub(super) fn create(model: &mut Model, asked: &Asked) -> Result<Reply, Reply> {
    let body = asked.json()?;
    let name = asked.query.get("name").cloned().unwrap_or_default();
    let image = text(&body["Image"]);
    if !Model::has_image(&image) {
        return Err(Reply::error(404, &format!("No such image: {image}")));
    }
    let argv: Vec<String> = texts(&body["Entrypoint"])
        .into_iter()
        .chain(texts(&body["Cmd"]))
        .collect();
    if argv.is_empty() {
        return Err(Reply::error(400, "No command specified"));
    }
    let runtime = text(&body["HostConfig"]["Runtime"]);
    if !matches!(runtime.as_str(), "" | "runc") {
        let text = format!("Unknown runtime specified {runtime}");
        return Err(Reply::error(400, &text));
    }
    judge_mounts(&body)?;
    let id = fresh_id();
    let name = if name.is_empty() {
        format!("fake_{id:.12}")
    } else {
        name
    };
    judge_name(model, &name)?;
    let labels = body["Labels"].as_object();
    let labels = labels.map_or_else(Default::default, |labels| {
        labels
            .iter()
            .map(|(name, value)| (name.clone(), text(value)))
            .collect()
    });
    let container = Container {
        id: id.clone(),
        name,
        created: Timestamp::now(),
        image,
        program: program(&argv, body["HostConfig"]["Init"] == true),
        argv,
        env: texts(&body["Env"]),
        working_dir: text(&body["WorkingDir"]),
        labels,
        body,
        status: Status::Created,
        pid: 0,
        exit_code: 0,
        error: String::new(),
        started: None,
        finished: None,
        is_poisoned: false,
        is_being_removed: false,
    };
    model.containers.insert(id.clone(), container);
    model.tell(&id, "create", &[]);
    Ok(Reply::Json(201, json!({"Id": id, "Warnings": []})))
}

/// Gives a container another name.
pub(super) fn rename(model: &mut Model, wanted: &str, asked: &Asked) -> Result<Reply, Reply> {
    let name = asked.query.get("name").cloned().unwrap_or_default();
    let found = model.find(wanted)?;
    let (id, before) = (found.id.clone(), found.name.clone());
    if before == name {
        let text = "Renaming a container with the same name as its current name";
        return Err(Reply::error(400, text));
    }
    judge_name(model, &name)?;
    model.of(&id).name = name;
    model.tell(&id, "rename", &[("oldName", &format!("/{before}"))]);
    Ok(Reply::Empty(204))
}

fn judge_name(model: &Model, name: &str) -> Result<(), Reply> {
    let is_good = |letter: char| letter.is_ascii_alphanumeric() || "_.-".contains(letter);
    let begins_well = name.starts_with(|letter: char| letter.is_ascii_alphanumeric());
    if !begins_well || !name.chars().all(is_good) {
        let text =
            format!("Invalid container name ({name}), only [a-zA-Z0-9][a-zA-Z0-9_.-] are allowed");
        return Err(Reply::error(400, &text));
    }
    match model.containers.values().find(|other| other.name == name) {
        None => Ok(()),
        Some(other) => Err(Reply::error(
            409,
            &format!(
                "Conflict. The container name \"/{name}\" is already in use by container \"{}\". You have to remove (or rename) that container to be able to reuse that name.",
                other.id
            ),
        )),
    }
}

fn judge_mounts(body: &Value) -> Result<(), Reply> {
    let mounts = body["HostConfig"]["Mounts"].as_array();
    for mount in mounts.map_or(&[][..], Vec::as_slice) {
        let source = text(&mount["Source"]);
        if mount["Type"] == "bind" && !Path::new(&source).exists() {
            return Err(Reply::error(400, &missing_source(&source)));
        }
    }
    Ok(())
}

/// What the engine says of a directory that is not there.
pub(super) fn missing_source(source: &str) -> String {
    format!("invalid mount config for type \"bind\": bind source path does not exist: {source}")
}

fn program(argv: &[String], init: bool) -> Program {
    let words: Vec<&str> = argv.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["true" | "/bin/true"] => Program::Ends(0),
        ["false" | "/bin/false"] => Program::Ends(1),
        ["sh" | "/bin/sh", "-c", command] if command.starts_with("exit ") => {
            let code = command.trim_start_matches("exit ").parse();
            Program::Ends(code.unwrap_or(2))
        }
        // An init is there, and ends with its child.
        [missing, ..] if missing.starts_with("/no/") && init => Program::Ends(127),
        [missing, ..] if missing.starts_with("/no/") => Program::Missing,
        _ if init => Program::Sleeps,
        _ => Program::SleepsDeaf,
    }
}

pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Reads a text as a list of one, as the engine does.
pub(super) fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::Array(list) => list.iter().map(text).collect(),
        Value::String(one) => vec![one.clone()],
        _ => Vec::new(),
    }
}
