//! Writes what the fake engine says of things.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::model::{Container, Exec, Model, Status};
use crate::support::docker::IMAGE;

const IMAGE_ID: &str = "sha256:fa4efa4efa4efa4efa4efa4efa4efa4efa4efa4efa4efa4efa4efa4efa4efa4e";
const NEVER: &str = "0001-01-01T00:00:00Z";

pub(super) fn version() -> Value {
    json!({
        "Platform": {"Name": ""},
        "Components": [
            {"Name": "Engine", "Version": "20.10.24"},
            {"Name": "containerd", "Version": "1.6.20"},
            {"Name": "runc", "Version": "1.1.5"},
        ],
        "Version": "20.10.24",
        "ApiVersion": "1.41",
        "MinAPIVersion": "1.12",
        "Os": "linux",
        "Arch": "amd64",
    })
}

pub(super) fn info(model: &Model) -> Value {
    let count = |status| {
        let all = model.containers.values();
        all.filter(|one| one.status == status).count()
    };
    json!({
        "ID": model.id,
        "Name": "fake",
        "Containers": model.containers.len(),
        "ContainersRunning": count(Status::Running),
        "ContainersPaused": count(Status::Paused),
        "ServerVersion": "20.10.24",
        "Driver": "overlay2",
        "CgroupDriver": "cgroupfs",
        "CgroupVersion": "1",
        "DockerRootDir": model.dir,
        "NCPU": 2,
        "MemTotal": 8_u64 << 30,
        "Runtimes": {"runc": {"path": "runc"}},
        "DefaultRuntime": "runc",
        "LiveRestoreEnabled": false,
        "SecurityOptions": ["name=seccomp,profile=default"],
    })
}

pub(super) fn image() -> Value {
    json!({
        "Id": IMAGE_ID,
        "RepoTags": [IMAGE],
        "RepoDigests": [],
        "Created": "2026-01-01T00:00:00Z",
        "Config": {"User": "", "Env": null, "Cmd": null, "WorkingDir": "", "Labels": null},
        "Architecture": "amd64",
        "Os": "linux",
        "Size": 1_984_170,
        "VirtualSize": 1_984_170,
    })
}

pub(super) fn inspect(one: &Container) -> Value {
    let at = |time: Option<Timestamp>| time.map_or(NEVER.to_owned(), |time| time.to_string());
    let mut host = one.body["HostConfig"].clone();
    if host.is_null() {
        host = json!({});
    }
    host["Runtime"] = json!("runc");
    json!({
        "Id": one.id,
        "Created": one.created.to_string(),
        "Path": one.argv.first(),
        "Args": one.argv.get(1..).unwrap_or_default(),
        "State": {
            "Status": state(one),
            "Running": one.is_up(),
            "Paused": one.status == Status::Paused,
            "Restarting": false,
            "OOMKilled": false,
            "Dead": false,
            "Pid": one.pid,
            "ExitCode": one.exit_code,
            "Error": one.error,
            "StartedAt": at(one.started),
            "FinishedAt": at(one.finished),
        },
        "Image": IMAGE_ID,
        "Name": format!("/{}", one.name),
        "RestartCount": 0,
        "Driver": "overlay2",
        "Platform": "linux",
        "ExecIDs": null,
        "HostConfig": host,
        "Mounts": mounts(one),
        "Config": {
            "Hostname": format!("{:.12}", one.id),
            "User": one.body["User"].as_str().unwrap_or_default(),
            "Env": one.env,
            "Cmd": one.body["Cmd"],
            "Image": one.image,
            "WorkingDir": one.working_dir,
            "Entrypoint": one.body["Entrypoint"],
            "Labels": one.labels,
        },
        "NetworkSettings": {"Networks": {}},
    })
}

pub(super) fn summary(one: &Container) -> Value {
    let status = match one.status {
        Status::Created => "Created".to_owned(),
        Status::Running => "Up Less than a second".to_owned(),
        Status::Paused => "Up Less than a second (Paused)".to_owned(),
        Status::Exited => format!("Exited ({}) Less than a second ago", one.exit_code),
    };
    json!({
        "Id": one.id,
        "Names": [format!("/{}", one.name)],
        "Image": one.image,
        "ImageID": IMAGE_ID,
        "Command": one.argv.join(" "),
        "Created": one.created.as_second(),
        "Ports": [],
        "Labels": one.labels,
        "State": state(one),
        "Status": status,
        "HostConfig": {"NetworkMode": "default"},
        "NetworkSettings": {"Networks": {}},
        "Mounts": mounts(one),
    })
}

pub(super) fn stats(one: &Container) -> Value {
    if !one.is_up() {
        return json!({
            "read": NEVER,
            "preread": NEVER,
            "pids_stats": {},
            "cpu_stats": {"cpu_usage": {"total_usage": 0}},
            "precpu_stats": {"cpu_usage": {"total_usage": 0}},
            "memory_stats": {},
            "name": format!("/{}", one.name),
            "id": one.id,
        });
    }
    json!({
        "read": Timestamp::now().to_string(),
        "preread": NEVER,
        "pids_stats": {"current": 2},
        "cpu_stats": {
            "cpu_usage": {"total_usage": 68_241_295},
            "system_cpu_usage": 1_217_410_000_000_u64,
            "online_cpus": 2,
        },
        "precpu_stats": {"cpu_usage": {"total_usage": 0}},
        "memory_stats": {
            "usage": 1_077_248,
            "limit": 8_u64 << 30,
            "stats": {"total_inactive_file": 0},
        },
        "name": format!("/{}", one.name),
        "id": one.id,
    })
}

pub(super) fn exec(id: &str, exec: &Exec) -> Value {
    json!({
        "ID": id,
        "Running": exec.running,
        "ExitCode": exec.exit_code,
        "ProcessConfig": {
            "tty": false,
            "entrypoint": exec.argv.first(),
            "arguments": exec.argv.get(1..).unwrap_or_default(),
            "privileged": false,
        },
        "OpenStdin": false,
        "OpenStderr": true,
        "OpenStdout": true,
        "CanRemove": false,
        "ContainerID": exec.container,
        "DetachKeys": "",
        "Pid": exec.pid,
    })
}

/// The engine's word for what a container is doing.
pub(super) fn state(one: &Container) -> &'static str {
    match one.status {
        Status::Running => "running",
        Status::Paused => "paused",
        Status::Created | Status::Exited if one.is_being_removed => "removing",
        Status::Created => "created",
        Status::Exited => "exited",
    }
}

fn mounts(one: &Container) -> Vec<Value> {
    let mount = |(source, target)| {
        json!({
            "Type": "bind",
            "Source": source,
            "Destination": target,
            "Mode": "",
            "RW": true,
            "Propagation": "rprivate",
        })
    };
    one.mounts().into_iter().map(mount).collect()
}
