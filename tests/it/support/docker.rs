//! Asks the Docker engine through its command line client, apart from the code under test.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// The image that every test runs its sandboxes from.
pub(crate) const IMAGE: &str = "sandboxd-test/busybox:latest";

/// The label that makes a container a sandbox of some daemon.
pub(crate) const INSTANCE_LABEL: &str = "io.sandboxd.instance";

/// Runs `docker ARGS` and returns what it prints, without the last line end.
pub(crate) fn docker(args: &[&str]) -> String {
    try_docker(args).unwrap_or_else(|why| {
        panic!("docker {}: {why}\nthese tests need a Docker engine: `bash scripts/test.sh` finds or starts one", args.join(" "))
    })
}

/// Runs `docker ARGS`; the error is what the client complains of.
pub(crate) fn try_docker(args: &[&str]) -> Result<String, String> {
    let output = Command::new("docker")
        .args(args)
        .output()
        .map_err(|error| format!("start the docker client: {error}"))?;
    if output.status.success() {
        let text = String::from_utf8_lossy(&output.stdout);
        return Ok(text.trim_end_matches('\n').to_owned());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

/// Runs `docker ARGS` on the engine at this address, which may not answer: it is given
/// half a minute.
pub(crate) fn docker_on(host: &str, args: &[&str]) -> Result<String, String> {
    let output = Command::new("timeout")
        .args(["30", "docker", "--host", host])
        .args(args)
        .env_remove("DOCKER_HOST")
        .output()
        .map_err(|error| format!("start the docker client: {error}"))?;
    if output.status.success() {
        let text = String::from_utf8_lossy(&output.stdout);
        return Ok(text.trim_end_matches('\n').to_owned());
    }
    Err(format!(
        "{} {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    ))
}

/// Panics with the remedy where the engine or the image of the tests is missing.
pub(crate) fn need_image() {
    let found = docker(&["image", "ls", "--quiet", IMAGE]);
    assert!(
        !found.is_empty(),
        "the image {IMAGE} is missing: `bash scripts/test.sh` makes it"
    );
}

/// Runs `docker ARGS` on an engine, by its address, or on the one of all tests.
fn ask(engine: Option<&str>, args: &[&str]) -> Result<String, String> {
    match engine {
        Some(host) => docker_on(host, args),
        None => try_docker(args),
    }
}

/// Returns the instance that owns a container of an engine.
pub(crate) fn instance_on(engine: Option<&str>, container: &str) -> Option<String> {
    let format = format!("{{{{index .Config.Labels {INSTANCE_LABEL:?}}}}}");
    let instance = ask(engine, &["inspect", "--format", &format, container]).ok()?;
    (!instance.is_empty()).then_some(instance)
}

/// Removes every sandbox of an engine that mounts something below `dir` or belongs to
/// one of `instances`.
pub(crate) fn remove_sandboxes(engine: Option<&str>, dir: &Path, instances: &BTreeSet<String>) {
    // One call for all: there may be hundreds that are nobody's here.
    let filter = format!("label={INSTANCE_LABEL}");
    let format = format!("{{{{.ID}}}} {{{{.Label {INSTANCE_LABEL:?}}}}} {{{{.Mounts}}}}");
    let list = [
        "ps",
        "--all",
        "--no-trunc",
        "--filter",
        &filter,
        "--format",
        &format,
    ];
    let Ok(rows) = ask(engine, &list) else {
        return;
    };
    let below = format!("{}/", dir.display());
    for row in rows.lines() {
        let mut words = row.splitn(3, ' ');
        let mut word = || words.next().unwrap_or_default();
        let (id, owner, mounts) = (word(), word(), word());
        let mounts_ours = mounts.split(',').any(|source| source.starts_with(&below));
        if (mounts_ours || instances.contains(owner))
            && let Err(why) = ask(engine, &["rm", "--force", id])
        {
            eprintln!("left behind: container {id}: {why}");
        }
    }
}

/// Returns the full ids of the containers that carry a label, running or not.
pub(crate) fn labelled(label: &str) -> Vec<String> {
    let filter = format!("label={label}");
    let ids = docker(&["ps", "--all", "--quiet", "--no-trunc", "--filter", &filter]);
    ids.lines().map(str::to_owned).collect()
}

/// Returns the full ids of the containers that carry a label and run.
pub(crate) fn running(label: &str) -> Vec<String> {
    let filter = format!("label={label}");
    let ids = docker(&["ps", "--quiet", "--no-trunc", "--filter", &filter]);
    ids.lines().map(str::to_owned).collect()
}

/// A container or an image of a test, removed when dropped.
#[derive(Debug)]
pub(crate) struct Removed(&'static [&'static str], String);

impl Removed {
    /// Has a container removed, by name or id.
    pub(crate) fn container(name: &str) -> Self {
        Self(&["rm", "--force"], name.to_owned())
    }

    /// Has an image removed.
    pub(crate) fn image(reference: &str) -> Self {
        Self(&["image", "rm", "--force"], reference.to_owned())
    }
}

impl Drop for Removed {
    fn drop(&mut self) {
        let args: Vec<&str> = self.0.iter().copied().chain([self.1.as_str()]).collect();
        if let Err(why) = try_docker(&args) {
            eprintln!("left behind: {}: {why}", self.1);
        }
    }
}
