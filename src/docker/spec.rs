//! Writes the settings of a new container as the engine reads them.
//!
//! What is empty or `None` is left out, so that an engine of any version applies
//! its own default. Values are not judged here; the engine judges them.

use std::collections::BTreeMap;
use std::fmt;

use serde::ser::{SerializeSeq as _, Serializer};
use serde::{Deserialize, Serialize};

use super::outside::Source;

/// Everything about a container that is chosen when it is made.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct CreateBody {
    /// The image, by name or id.
    pub image: String,
    /// The user of its processes; the image's where empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// Replaces the image's entrypoint; `Some` of nothing removes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<Vec<String>>,
    /// Replaces the image's command.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cmd: Vec<String>,
    /// Where processes begin; the image's where empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub working_dir: String,
    /// Environment over the image's.
    #[serde(skip_serializing_if = "Env::is_empty")]
    pub env: Env,
    /// Labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// What the host grants.
    pub host_config: HostConfig,
}

/// What the host grants to a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct HostConfig {
    /// Whether the engine runs its own init as the first process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub init: Option<bool>,
    /// Directories of the host that it sees.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
    /// Memory file systems by path, with their options.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tmpfs: BTreeMap<String, String>,
    /// Memory in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Memory and swap together in bytes; equal to `memory` means no swap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_swap: Option<i64>,
    /// Billionths of a processor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nano_cpus: Option<i64>,
    /// Relative weight under contention.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_shares: Option<u64>,
    /// Processes and threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids_limit: Option<u64>,
    /// The network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_mode: Option<String>,
    /// The OCI runtime.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// Security options, such as `no-new-privileges:true`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub security_opt: Vec<String>,
    /// Capabilities taken away.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cap_drop: Vec<String>,
    /// What becomes of the output of the first process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_config: Option<LogConfig>,
    /// Whether the engine revives it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_policy: Option<RestartPolicy>,
    /// Whether the engine removes it at its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_remove: Option<bool>,
    /// How readily the kernel kills it when memory is short, -1000 to 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom_score_adj: Option<i32>,
}

/// A directory or file of the host inside a container.
///
/// The engine refuses a source that is missing, where the older `Binds` would
/// make an empty directory in its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Mount {
    #[serde(rename = "Type")]
    kind: MountKind,
    /// The path on the host, or the name of the volume.
    pub source: String,
    /// The path in the container.
    pub target: String,
    /// Whether the container may only read.
    pub read_only: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    bind_options: Option<BindOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    volume_options: Option<VolumeOptions>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum MountKind {
    Bind,
    Volume,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
struct VolumeOptions {
    /// Nothing of the image is copied into it.
    no_copy: bool,
    subpath: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
struct BindOptions {
    propagation: Propagation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Propagation {
    Rprivate,
}

impl Mount {
    /// Mounts what the container may write to.
    pub fn of(source: &Source, target: &str) -> Self {
        match source {
            Source::Path(path) => Self::writable(&path.to_string_lossy(), target),
            Source::Elsewhere(path) => Self {
                bind_options: None,
                ..Self::writable(&path.to_string_lossy(), target)
            },
            Source::Part { volume, subpath } => Self {
                kind: MountKind::Volume,
                source: volume.clone(),
                bind_options: None,
                volume_options: Some(VolumeOptions {
                    no_copy: true,
                    subpath: subpath.to_string_lossy().into_owned(),
                }),
                ..Self::writable("", target)
            },
        }
    }

    /// The same, which the container may only read.
    #[must_use]
    pub fn only_to_read(self) -> Self {
        Self {
            read_only: true,
            ..self
        }
    }

    /// Binds a path of the host that the container may write to.
    pub fn writable(source: &str, target: &str) -> Self {
        Self {
            kind: MountKind::Bind,
            source: source.to_owned(),
            target: target.to_owned(),
            read_only: false,
            bind_options: Some(BindOptions {
                propagation: Propagation::Rprivate,
            }),
            volume_options: None,
        }
    }

    /// Binds a path of the host that the container may only read.
    pub fn read_only(source: &str, target: &str) -> Self {
        Self::writable(source, target).only_to_read()
    }
}

/// A log driver with its options.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct LogConfig {
    /// The driver.
    #[serde(rename = "Type")]
    pub driver: String,
    /// Its options.
    pub config: BTreeMap<String, String>,
}

/// When the engine revives a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct RestartPolicy {
    name: RestartName,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum RestartName {
    No,
}

impl RestartPolicy {
    /// The engine never revives it.
    pub const NEVER: Self = Self {
        name: RestartName::No,
    };
}

/// Environment variables; their values show in no `Debug` output.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Env(BTreeMap<String, String>);

impl Env {
    /// Tells whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets a variable.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.0.insert(name.into(), value.into());
    }

    /// Returns the value of a variable.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

impl From<BTreeMap<String, String>> for Env {
    fn from(variables: BTreeMap<String, String>) -> Self {
        Self(variables)
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Env {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(variables: I) -> Self {
        let owned = variables.into_iter().map(|(k, v)| (k.into(), v.into()));
        Self(owned.collect())
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Serialize for Env {
    /// Writes a list of `NAME=value`, as the engine has it.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            list.serialize_element(&format!("{name}={value}"))?;
        }
        list.end()
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn full() -> CreateBody {
        CreateBody {
            image: "busybox:latest".to_owned(),
            user: "1000".to_owned(),
            entrypoint: Some(Vec::new()),
            cmd: vec!["sleep".to_owned(), "infinity".to_owned()],
            working_dir: "/workspace".to_owned(),
            env: Env::from_iter([("LANG", "C.UTF-8"), ("TOKEN", "hunter2")]),
            labels: BTreeMap::from([("io.sandboxd.instance".to_owned(), "0af".to_owned())]),
            host_config: HostConfig {
                init: Some(true),
                mounts: vec![
                    Mount::writable("/var/lib/s/workspace", "/workspace"),
                    Mount::read_only("/usr/lib/s/agent", "/.agent"),
                ],
                tmpfs: BTreeMap::from([("/tmp".to_owned(), "size=64m,mode=1777,exec".to_owned())]),
                memory: Some(1 << 29),
                memory_swap: Some(1 << 29),
                nano_cpus: Some(500_000_000),
                cpu_shares: Some(512),
                pids_limit: Some(128),
                network_mode: Some("none".to_owned()),
                runtime: Some("runc".to_owned()),
                security_opt: vec!["no-new-privileges:true".to_owned()],
                cap_drop: vec!["MKNOD".to_owned()],
                log_config: Some(LogConfig {
                    driver: "json-file".to_owned(),
                    config: BTreeMap::from([("max-file".to_owned(), "1".to_owned())]),
                }),
                restart_policy: Some(RestartPolicy::NEVER),
                auto_remove: Some(false),
                oom_score_adj: Some(500),
            },
        }
    }

    #[test]
    fn a_container_is_written_as_the_engine_reads_it() {
        expect![[r#"
            {
              "Image": "busybox:latest",
              "User": "1000",
              "Entrypoint": [],
              "Cmd": [
                "sleep",
                "infinity"
              ],
              "WorkingDir": "/workspace",
              "Env": [
                "LANG=C.UTF-8",
                "TOKEN=hunter2"
              ],
              "Labels": {
                "io.sandboxd.instance": "0af"
              },
              "HostConfig": {
                "Init": true,
                "Mounts": [
                  {
                    "Type": "bind",
                    "Source": "/var/lib/s/workspace",
                    "Target": "/workspace",
                    "ReadOnly": false,
                    "BindOptions": {
                      "Propagation": "rprivate"
                    }
                  },
                  {
                    "Type": "bind",
                    "Source": "/usr/lib/s/agent",
                    "Target": "/.agent",
                    "ReadOnly": true,
                    "BindOptions": {
                      "Propagation": "rprivate"
                    }
                  }
                ],
                "Tmpfs": {
                  "/tmp": "size=64m,mode=1777,exec"
                },
                "Memory": 536870912,
                "MemorySwap": 536870912,
                "NanoCpus": 500000000,
                "CpuShares": 512,
                "PidsLimit": 128,
                "NetworkMode": "none",
                "Runtime": "runc",
                "SecurityOpt": [
                  "no-new-privileges:true"
                ],
                "CapDrop": [
                  "MKNOD"
                ],
                "LogConfig": {
                  "Type": "json-file",
                  "Config": {
                    "max-file": "1"
                  }
                },
                "RestartPolicy": {
                  "Name": "no"
                },
                "AutoRemove": false,
                "OomScoreAdj": 500
              }
            }"#]]
        .assert_eq(&serde_json::to_string_pretty(&full()).unwrap());
    }

    #[test]
    fn a_part_of_a_volume_is_written_as_newer_engines_read_it() {
        let part = Source::Part {
            volume: "ws".to_owned(),
            subpath: "a/workspace".into(),
        };
        expect![[r#"{"Type":"volume","Source":"ws","Target":"/w","ReadOnly":true,"VolumeOptions":{"NoCopy":true,"Subpath":"a/workspace"}}"#]]
            .assert_eq(&serde_json::to_string(&Mount::of(&part, "/w").only_to_read()).unwrap());
        let path = Source::Path("/var/lib/s/workspace".into());
        assert_eq!(
            Mount::of(&path, "/w"),
            Mount::writable("/var/lib/s/workspace", "/w")
        );
        // An engine refuses a propagation for what lies in its own directory.
        let path = Source::Elsewhere("/var/lib/docker/volumes/ws/_data/a".into());
        expect![[r#"{"Type":"bind","Source":"/var/lib/docker/volumes/ws/_data/a","Target":"/w","ReadOnly":false}"#]]
            .assert_eq(&serde_json::to_string(&Mount::of(&path, "/w")).unwrap());
    }

    #[test]
    fn what_is_not_chosen_is_left_to_the_engine() {
        let body = CreateBody {
            image: "x".to_owned(),
            ..CreateBody::default()
        };
        assert_eq!(
            serde_json::to_string(&body).unwrap(),
            r#"{"Image":"x","HostConfig":{}}"#
        );
    }

    #[test]
    fn the_environment_shows_its_names_and_not_its_values() {
        let shown = format!("{:?}", full());
        assert!(shown.contains("TOKEN") && !shown.contains("hunter2"));
    }
}
