//! Reads what the engine says of containers.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::body::parse;
use super::error::{self, Kind};
use crate::clock::Timestamp;

/// What the engine says of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspect {
    /// Its full id.
    pub id: String,
    /// Its name, without the engine's leading slash.
    pub name: String,
    /// When it was made.
    pub created: Timestamp,
    /// The image as it was asked for.
    pub image: String,
    /// The id of the image.
    pub image_id: String,
    /// Its labels, the image's among them.
    pub labels: BTreeMap<String, String>,
    /// What it is doing.
    pub state: State,
    /// Its first process on the host; `None` while it does not run.
    pub pid: Option<u32>,
    /// The exit code of its last run; 0 where it never ran.
    pub exit_code: i64,
    /// Whether the kernel killed *something* in it for want of memory.
    ///
    /// The container itself may be running all the same.
    pub oom_killed: bool,
    /// Why its last start failed; empty where it did not.
    pub error: String,
    /// When it last started.
    pub started_at: Option<Timestamp>,
    /// When it last ended.
    pub finished_at: Option<Timestamp>,
    /// What of the host is mounted in it.
    pub mounts: Vec<MountPoint>,
    /// The OCI runtime that it was made for; empty where the engine does not tell.
    pub runtime: String,
}

/// One line of a listing of containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Its full id.
    pub id: String,
    /// Its name, without the engine's leading slash; empty where it has none.
    pub name: String,
    /// When it was made, to the second.
    pub created: Timestamp,
    /// The image as it was asked for, or its id once the name moved on.
    pub image: String,
    /// The id of the image.
    pub image_id: String,
    /// Its labels, the image's among them.
    pub labels: BTreeMap<String, String>,
    /// What it is doing.
    pub state: State,
    /// What of the host is mounted in it.
    pub mounts: Vec<MountPoint>,
}

/// What a container is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Made, and never started with success.
    Created,
    /// Running.
    Running,
    /// Frozen.
    Paused,
    /// Between two runs.
    Restarting,
    /// On its way out.
    Removing,
    /// Ended.
    Exited,
    /// Half removed; only removing it again helps.
    Dead,
}

/// Something of the host inside a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct MountPoint {
    /// Its kind: `bind`, `volume`, `tmpfs`.
    #[serde(default, rename = "Type")]
    pub kind: String,
    /// The name of the volume; empty where it is none.
    #[serde(default)]
    pub name: String,
    /// The path on the host; of a volume that of all of it, whatever part is mounted.
    #[serde(default)]
    pub source: String,
    /// The path in the container.
    #[serde(default)]
    pub destination: String,
    /// What keeps the volume; empty where it is none.
    #[serde(default)]
    pub driver: String,
    /// Whether the container may write.
    #[serde(default, rename = "RW")]
    pub is_writable: bool,
    /// The part of a volume that is mounted; empty where it is all of it.
    #[serde(skip)]
    pub subpath: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct InspectBody {
    id: String,
    name: String,
    created: String,
    image: String,
    config: ConfigBody,
    state: StateBody,
    mounts: Option<Vec<MountPoint>>,
    host_config: Option<HostConfigBody>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HostConfigBody {
    runtime: Option<String>,
    mounts: Option<Vec<MountBody>>,
}

/// A mount as it was asked for, which alone tells the part of a volume.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct MountBody {
    #[serde(default)]
    target: String,
    volume_options: Option<VolumeOptionsBody>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct VolumeOptionsBody {
    #[serde(default)]
    subpath: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ConfigBody {
    #[serde(default)]
    image: String,
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct StateBody {
    status: String,
    #[serde(default)]
    pid: u32,
    #[serde(default)]
    exit_code: i64,
    #[serde(default, rename = "OOMKilled")]
    oom_killed: bool,
    #[serde(default)]
    error: String,
    #[serde(default)]
    started_at: String,
    #[serde(default)]
    finished_at: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SummaryBody {
    id: String,
    names: Option<Vec<String>>,
    created: i64,
    image: String,
    #[serde(rename = "ImageID")]
    image_id: String,
    labels: Option<BTreeMap<String, String>>,
    state: String,
    mounts: Option<Vec<MountPoint>>,
}

impl Inspect {
    pub(super) fn parse(body: &[u8]) -> Result<Self, Kind> {
        let body: InspectBody = parse("a container", body)?;
        let created = instant(&body.created)?;
        let (runtime, asked) = match body.host_config {
            Some(config) => (config.runtime, config.mounts.unwrap_or_default()),
            None => (None, Vec::new()),
        };
        let mut mounts = body.mounts.unwrap_or_default();
        for mount in &mut mounts {
            mount.subpath = subpath(&asked, &mount.destination);
        }
        Ok(Self {
            id: body.id,
            name: bare(&body.name),
            created: created.unwrap_or(Timestamp::ZERO),
            image: body.config.image,
            image_id: body.image,
            labels: body.config.labels.unwrap_or_default(),
            state: State::parse(&body.state.status)?,
            pid: Some(body.state.pid).filter(|pid| 0 < *pid),
            exit_code: body.state.exit_code,
            oom_killed: body.state.oom_killed,
            error: error::message(&body.state.error),
            started_at: instant(&body.state.started_at)?,
            finished_at: instant(&body.state.finished_at)?,
            mounts,
            runtime: runtime.unwrap_or_default(),
        })
    }

    /// Tells whether something of the host is mounted at this path of the container.
    pub fn mounts_at(&self, path: &str) -> bool {
        self.mounts.iter().any(|mount| mount.destination == path)
    }
}

impl Summary {
    /// Reads a listing; one line that makes no sense spoils all of it, since a
    /// listing with a gap is worse than none.
    pub(super) fn parse_list(body: &[u8]) -> Result<Vec<Self>, Kind> {
        let lines: Vec<SummaryBody> = parse("a list of containers", body)?;
        lines.into_iter().map(Self::from_body).collect()
    }

    fn from_body(body: SummaryBody) -> Result<Self, Kind> {
        // A container may have further names, `/other/alias`, by old-style links.
        let names = body.names.unwrap_or_default();
        let own = names.iter().find(|name| name.matches('/').count() <= 1);
        Ok(Self {
            id: body.id,
            name: own
                .or(names.first())
                .map(|name| bare(name))
                .unwrap_or_default(),
            created: Timestamp::from_secs(u64::try_from(body.created).unwrap_or(0)),
            image: body.image,
            image_id: body.image_id,
            labels: body.labels.unwrap_or_default(),
            state: State::parse(&body.state)?,
            mounts: body.mounts.unwrap_or_default(),
        })
    }
}

impl State {
    /// Parses a state; one that is not known is an error, never a guess.
    fn parse(text: &str) -> Result<Self, Kind> {
        match text {
            "created" | "configured" | "initialized" => Ok(Self::Created),
            "running" | "stopping" => Ok(Self::Running),
            "paused" => Ok(Self::Paused),
            "restarting" => Ok(Self::Restarting),
            "removing" => Ok(Self::Removing),
            "exited" | "stopped" => Ok(Self::Exited),
            "dead" => Ok(Self::Dead),
            other => Err(Kind::malformed(format!(
                "a container in state {:?}",
                error::message(other)
            ))),
        }
    }
}

/// Returns which part of a volume was asked for at this path of the container.
fn subpath(asked: &[MountBody], destination: &str) -> String {
    let path = |text: &str| std::path::PathBuf::from(text);
    asked
        .iter()
        .filter(|mount| path(&mount.target) == path(destination))
        .find_map(|mount| Some(mount.volume_options.as_ref()?.subpath.clone()))
        .unwrap_or_default()
}

fn bare(name: &str) -> String {
    name.strip_prefix('/').unwrap_or(name).to_owned()
}

/// Reads an instant; the engine's year 1, or nothing at all, is never.
fn instant(text: &str) -> Result<Option<Timestamp>, Kind> {
    if text.is_empty() {
        return Ok(None);
    }
    let at: jiff::Timestamp = text
        .parse()
        .map_err(|_| Kind::malformed(format!("the time {:?}", error::message(text))))?;
    let micros = u64::try_from(at.as_microsecond()).ok();
    Ok(micros.map(Timestamp::from_micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_container_is_read_whole() {
        let body = include_bytes!("../../tests/fixtures/docker/inspect-running-1.41.json");
        let expected = Inspect {
            id: "28ea5b6f2d42bf8e869e8b2abebd12ce2ce18f0bac55eabf5bd4b6d870e27a49".to_owned(),
            name: "rec-fix-1".to_owned(),
            created: Timestamp::from_micros(1_796_015_204_374_080),
            image: "sandboxd-test/busybox:latest".to_owned(),
            image_id: "sha256:e4f23fb4f58281867b31ec5379e2f4eca69a05c3bf8ea672fc998d1caac0a1c5"
                .to_owned(),
            labels: BTreeMap::from([("a.b".to_owned(), "1".to_owned())]),
            state: State::Running,
            pid: Some(10652),
            exit_code: 0,
            oom_killed: false,
            error: String::new(),
            started_at: Some(Timestamp::from_micros(1_796_015_204_819_875)),
            finished_at: None,
            mounts: Vec::new(),
            runtime: "runc".to_owned(),
        };
        assert_eq!(Inspect::parse(body).unwrap(), expected);
    }

    #[test]
    fn a_newer_engine_s_unknown_fields_are_passed_over() {
        let body = include_bytes!("../../tests/fixtures/docker/inspect-exited-1.52.json");
        let inspect = Inspect::parse(body).unwrap();
        assert_eq!(inspect.state, State::Exited);
        assert_eq!((inspect.pid, inspect.exit_code), (None, 137));
        assert!(inspect.oom_killed);
        assert_eq!(
            inspect.mounts,
            [MountPoint {
                kind: "bind".to_owned(),
                name: String::new(),
                source: "/var/lib/sandboxd/w/s1/workspace".to_owned(),
                destination: "/workspace".to_owned(),
                driver: String::new(),
                is_writable: true,
                subpath: String::new(),
            }]
        );
    }

    #[test]
    fn a_listing_is_read_whole_or_not_at_all() {
        let body = include_bytes!("../../tests/fixtures/docker/list-1.41.json");
        let list = Summary::parse_list(body).unwrap();
        assert_eq!(list.len(), 1);
        assert_eq!(list[0].name, "rec-fix-1");
        assert_eq!(list[0].state, State::Running);
        assert_eq!(list[0].created, Timestamp::from_secs(1_796_015_204));
        assert_eq!(Summary::parse_list(b"[]").unwrap(), []);
        for bad in [
            &b""[..],
            b"null",
            b"{}",
            b"[{}]",
            b"[",
            &body[..body.len() - 2],
            br#"[{"Id":"a","Names":["/a"],"Created":1,"Image":"i","ImageID":"s","State":"odd"}]"#,
        ] {
            assert!(Summary::parse_list(bad).is_err());
        }
    }

    #[test]
    fn the_year_one_is_never() {
        assert_eq!(instant("0001-01-01T00:00:00Z").unwrap(), None);
        assert_eq!(instant("").unwrap(), None);
        assert!(instant("soon").is_err());
        assert_eq!(
            instant("2020-09-13T14:26:40.250000999+02:00").unwrap(),
            Some(Timestamp::from_micros(1_600_000_000_250_000))
        );
    }
}
