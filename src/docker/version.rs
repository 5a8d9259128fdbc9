//! Agrees with an engine on a version of its API, and asks what it is.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Deserialize;

use super::body::parse;
use super::call::Call;
use super::engine::Engine;
use super::error::{Error, Kind};
use super::path::Path;

/// A version of the engine's API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ApiVersion {
    /// The first number.
    pub major: u16,
    /// The second number.
    pub minor: u16,
}

impl ApiVersion {
    /// The oldest version that is spoken here.
    pub const OLDEST: Self = Self::new(1, 41);
    /// The newest version that is spoken here.
    pub const NEWEST: Self = Self::new(1, 51);

    /// Makes a version.
    pub const fn new(major: u16, minor: u16) -> Self {
        Self { major, minor }
    }

    fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once('.')?;
        Some(Self::new(major.parse().ok()?, minor.parse().ok()?))
    }

    /// Chooses the newest version that both sides speak.
    fn agreed(server_min: Self, server_max: Self) -> Result<Self, Kind> {
        let pick = server_max.min(Self::NEWEST);
        if server_min <= pick && Self::OLDEST <= pick {
            return Ok(pick);
        }
        Err(Kind::VersionRefused {
            server_min,
            server_max,
            ours_min: Self::OLDEST,
            ours_max: Self::NEWEST,
        })
    }
}

impl fmt::Display for ApiVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// What an engine is, and the version of the API agreed on with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineVersion {
    /// The engine's own version, as it writes it.
    pub server: String,
    /// The version of the API that calls use.
    pub api: ApiVersion,
    /// The oldest version of the API that the engine speaks.
    pub api_min: ApiVersion,
    /// The newest version of the API that the engine speaks.
    pub api_max: ApiVersion,
    /// Versions of the engine's parts by name, such as `containerd`.
    pub components: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct VersionBody {
    #[serde(default)]
    version: String,
    api_version: String,
    #[serde(rename = "MinAPIVersion")]
    min_api_version: Option<String>,
    components: Option<Vec<ComponentBody>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ComponentBody {
    name: String,
    #[serde(default)]
    version: String,
}

impl EngineVersion {
    pub(super) fn call(deadline: Duration) -> Call {
        Call::get(
            "ask the engine's version",
            Path::new(&["version"]),
            deadline,
        )
    }

    pub(super) fn parse(body: &[u8]) -> Result<Self, Kind> {
        let body: VersionBody = parse("its version", body)?;
        let number = |text: &str| {
            ApiVersion::parse(text).ok_or_else(|| {
                Kind::malformed(format!("API version {:?}", super::error::message(text)))
            })
        };
        let api_max = number(&body.api_version)?;
        // An engine that names no oldest version refuses none.
        let api_min = match &body.min_api_version {
            Some(text) if !text.is_empty() => number(text)?,
            Some(_) | None => ApiVersion::new(1, 0),
        };
        let components = body.components.unwrap_or_default();
        Ok(Self {
            server: body.version,
            api: ApiVersion::agreed(api_min, api_max)?,
            api_min,
            api_max,
            components: components
                .into_iter()
                .map(|part| (part.name, part.version))
                .collect(),
        })
    }
}

/// What an engine says of itself and its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// The id that the engine gives itself, or its host's name where it gives itself
    /// another one in each answer; see [`Host::identity`].
    pub id: String,
    /// The host's name.
    pub name: String,
    /// The engine's version.
    pub server_version: String,
    /// The hierarchy of control groups: `1`, `2`, or empty where it does not say.
    pub cgroup_version: String,
    /// Who manages the control groups: `cgroupfs`, `systemd` or `none`.
    pub cgroup_driver: String,
    /// What protects the host, such as `name=seccomp,profile=default`.
    pub security_options: Vec<String>,
    /// The OCI runtimes that can be asked for.
    pub runtimes: Vec<String>,
    /// The one that is taken when none is asked for.
    pub default_runtime: String,
    /// The storage driver.
    pub driver: String,
    /// Where the engine keeps its images and containers.
    pub root_dir: String,
    /// Processors of the host.
    pub n_cpus: u32,
    /// Memory of the host in bytes.
    pub memory_bytes: u64,
    /// Whether containers go on while the engine is restarted.
    pub live_restore: bool,
}

impl Host {
    /// Names the engine with its containers; another name behind the same socket is
    /// another engine.
    ///
    /// The id alone is not enough: engines before 24 that share a host share it, since
    /// it is made from a key in `/etc/docker`. No two of them keep their containers in
    /// one place.
    pub fn identity(&self) -> String {
        if self.root_dir.is_empty() {
            self.id.clone()
        } else {
            format!("{} in {}", self.id, self.root_dir)
        }
    }

    /// Tells whether an option of that name is among the security options.
    pub fn has_security_option(&self, name: &str) -> bool {
        self.security_options.iter().any(|option| {
            option
                .split(',')
                .any(|part| part.strip_prefix("name=").unwrap_or(part) == name)
        })
    }

    fn parse(body: &[u8]) -> Result<Self, Kind> {
        let body: HostBody = parse("its description of the host", body)?;
        let runtimes = body.runtimes.unwrap_or_default();
        Ok(Self {
            id: match body.buildah_version {
                None if !body.id.is_empty() => body.id,
                // Podman makes another id up for each answer.
                Some(_) | None => body.name.clone(),
            },
            name: body.name,
            server_version: body.server_version,
            cgroup_version: body.cgroup_version,
            cgroup_driver: body.cgroup_driver,
            security_options: body.security_options.unwrap_or_default(),
            runtimes: runtimes.into_iter().map(|(name, _)| name).collect(),
            default_runtime: body.default_runtime,
            driver: body.driver,
            root_dir: body.docker_root_dir,
            n_cpus: body.ncpu,
            memory_bytes: body.mem_total,
            live_restore: body.live_restore_enabled,
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HostBody {
    #[serde(rename = "ID")]
    id: String,
    /// Only Podman has it.
    buildah_version: Option<String>,
    #[serde(default)]
    name: String,
    #[serde(default)]
    server_version: String,
    #[serde(default)]
    cgroup_version: String,
    #[serde(default)]
    cgroup_driver: String,
    security_options: Option<Vec<String>>,
    runtimes: Option<serde_json::Map<String, serde_json::Value>>,
    #[serde(default)]
    default_runtime: String,
    #[serde(default)]
    driver: String,
    #[serde(default)]
    docker_root_dir: String,
    #[serde(default, rename = "NCPU")]
    ncpu: u32,
    #[serde(default)]
    mem_total: u64,
    #[serde(default)]
    live_restore_enabled: bool,
}

impl Engine {
    /// Asks for a sign of life.
    ///
    /// Waits for no other call, so that a busy engine is not taken for a dead one.
    pub async fn ping(&self) -> Result<(), Error> {
        let call = Call::get(
            "ping the engine",
            Path::new(&["_ping"]),
            self.deadlines().ping,
        );
        self.call_unversioned(call).await.map(drop)
    }

    /// Asks whether the engine is there and speaks a version of the API that is
    /// spoken here: one that is there and is not understood is of no use.
    pub async fn alive(&self) -> Result<(), Error> {
        self.ping().await?;
        if self.has_agreed() {
            return Ok(());
        }
        self.agree_within(self.deadlines().ping).await.map(drop)
    }

    /// Asks what the engine is and agrees anew on the version of the API.
    pub async fn version(&self) -> Result<EngineVersion, Error> {
        self.agree_within(self.deadlines().look).await
    }

    async fn agree_within(&self, deadline: Duration) -> Result<EngineVersion, Error> {
        let answer = self.call_unversioned(EngineVersion::call(deadline)).await?;
        let version = EngineVersion::parse(&answer.body)
            .map_err(|kind| self.failure("agree on a version of the API", kind))?;
        self.agree_on(Some(version.api));
        Ok(version)
    }

    /// Asks what the engine says of itself and its host.
    pub async fn info(&self) -> Result<Host, Error> {
        const NAME: &str = "ask what the engine's host is";
        let call = Call::get(NAME, Path::new(&["info"]), self.deadlines().look);
        let answer = self.call(call).await?;
        Host::parse(&answer.body).map_err(|kind| self.failure(NAME, kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_that_both_speak_is_agreed_on() {
        let v = ApiVersion::new;
        for (min, max, agreed) in [
            (v(1, 12), v(1, 41), Some(v(1, 41))),
            (v(1, 24), v(1, 47), Some(v(1, 47))),
            (v(1, 44), v(1, 52), Some(v(1, 51))),
            (v(1, 51), v(1, 60), Some(v(1, 51))),
            (v(1, 52), v(1, 60), None),
            (v(1, 12), v(1, 40), None),
            (v(2, 0), v(2, 3), None),
        ] {
            assert_eq!(ApiVersion::agreed(min, max).ok(), agreed, "{min} to {max}");
        }
    }

    #[test]
    fn a_refused_version_names_both_ranges() {
        let body = br#"{"ApiVersion":"1.40","MinAPIVersion":"1.12","Version":"19.03"}"#;
        assert_eq!(
            EngineVersion::parse(body).unwrap_err().to_string(),
            "the engine speaks API 1.12 to 1.40, and this daemon 1.41 to 1.51: upgrade the older of the two"
        );
    }

    #[test]
    fn an_engine_is_described_by_its_version() {
        let body = include_bytes!("../../tests/fixtures/docker/version-1.41.json");
        let version = EngineVersion::parse(body).unwrap();
        assert_eq!(version.server, "20.10.24+dfsg1");
        assert_eq!(version.api, ApiVersion::new(1, 41));
        assert_eq!(version.api_min, ApiVersion::new(1, 12));
        assert_eq!(
            version.components.get("containerd").map(String::as_str),
            Some("1.6.20~ds1")
        );
    }

    #[test]
    fn an_engine_that_makes_up_its_id_is_the_same_engine_in_each_answer() {
        let answer = |id: &str, root: &str| {
            let body = serde_json::json!({
                "ID": id, "Name": "host", "DockerRootDir": root, "BuildahVersion": "1.28.2",
            });
            Host::parse(body.to_string().as_bytes()).unwrap().identity()
        };
        assert_eq!(answer("1", "/var/lib/a"), answer("2", "/var/lib/a"));
        assert_ne!(answer("1", "/var/lib/a"), answer("1", "/var/lib/b"));
        let unnamed = br#"{"ID":"","Name":"host","DockerRootDir":"/var/lib/docker"}"#;
        assert_eq!(
            Host::parse(unnamed).unwrap().identity(),
            "host in /var/lib/docker"
        );
        let docker = br#"{"ID":"ABCD:EFGH","Name":"host","DockerRootDir":"/d"}"#;
        assert_eq!(Host::parse(docker).unwrap().identity(), "ABCD:EFGH in /d");
    }

    #[test]
    fn the_hierarchy_of_control_groups_is_told_by_old_and_new_engines() {
        let old = include_bytes!("../../tests/fixtures/docker/info-1.41.json");
        let old = Host::parse(old).unwrap();
        assert_eq!((old.cgroup_version.as_str(), old.n_cpus), ("1", 2));
        assert_eq!(old.default_runtime, "runc");
        assert!(old.runtimes.contains(&"runc".to_owned()));
        assert!(old.has_security_option("seccomp"));
        assert!(!old.has_security_option("rootless"));
        assert!(!old.live_restore);

        let new = include_bytes!("../../tests/fixtures/docker/info-1.52-cgroup2.json");
        let new = Host::parse(new).unwrap();
        assert_eq!(new.cgroup_version, "2");
        assert_eq!(new.cgroup_driver, "systemd");
        assert!(new.has_security_option("cgroupns"));
    }
}
