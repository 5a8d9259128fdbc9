//! Works out the settings of a session's container from what the operator allows.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::record::Spec;
use crate::id::{ContainerKey, InstanceId, SessionId};
use crate::policy::{Ceilings, Policy, Source};
use crate::quantity::{ByteSize, Cpus};
use crate::secret::hex;

/// The label that makes a container ours.
pub const LABEL_INSTANCE: &str = "io.sandboxd.instance";
/// The label that joins a container to its record.
pub const LABEL_KEY: &str = "io.sandboxd.key";
/// The label that names the session, as a hint for rebuilding a lost store.
pub const LABEL_SESSION: &str = "io.sandboxd.session";
/// The label that names the runtime's alias.
pub const LABEL_RUNTIME: &str = "io.sandboxd.runtime";
/// The label that holds the hash of the settings.
pub const LABEL_SPEC: &str = "io.sandboxd.spec";
/// The label that says how commands reach the container: `agent` or `docker`.
pub const LABEL_EXEC: &str = "io.sandboxd.exec";
/// The label that holds the version of all these labels.
pub const LABEL_SCHEMA: &str = "io.sandboxd.schema";
/// The present version of the labels.
pub const SCHEMA: &str = "1";

/// The settings of a container, before the engine's own words for them.
///
/// What is the same for every sandbox (init, security options, dropped
/// capabilities, logging, restart policy) is not in here: the executor adds it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Blueprint {
    /// The image reference.
    pub image: String,
    /// The user, where it is not the image's.
    pub user: Option<String>,
    /// The directory where commands run.
    pub work_dir: String,
    /// The service's variables, and the runtime's over them.
    pub env: BTreeMap<String, String>,
    /// The host directory that is mounted at the work directory.
    pub workspace: Option<PathBuf>,
    /// Mount options of the in-memory `/tmp`.
    pub tmpfs: Option<String>,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Bytes of memory and swap together.
    pub memory_swap: Option<u64>,
    /// Billionths of a processor.
    pub nano_cpus: Option<i64>,
    /// Relative weight.
    pub cpu_shares: Option<u64>,
    /// Processes and threads.
    pub pids_limit: Option<u64>,
    /// The Docker network.
    pub network_mode: Option<String>,
    /// The OCI runtime.
    pub oci_runtime: Option<String>,
}

/// Says why a session has no container settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoBlueprint {
    /// The runtime's image has to be built first.
    #[error(
        "runtime '{0}' has to be built, and this version of sandboxd builds no images; name a ready image for it"
    )]
    NeedsBuild(String),
}

/// Works out the settings of a session's container.
pub fn blueprint(
    spec: &Spec,
    policy: &Policy,
    workspace: Option<&Path>,
) -> Result<Blueprint, NoBlueprint> {
    let image = spec
        .runtime
        .ready_image()
        .ok_or_else(|| NoBlueprint::NeedsBuild(spec.alias.to_string()))?;
    let ceilings: Ceilings = spec.runtime.ceilings.or(&policy.ceilings);
    let memory = ceilings.mem_limit.as_ref().map(ByteSize::bytes);
    let swap = ceilings.memswap_limit.as_ref().map(ByteSize::bytes);
    Ok(Blueprint {
        image: image.to_owned(),
        user: user(spec, policy).map(|uid| format!("{uid}:{uid}")),
        work_dir: policy.interior.work_dir.clone(),
        env: environment(spec, policy),
        workspace: workspace.map(Path::to_path_buf),
        tmpfs: policy
            .interior
            .tmpfs_size
            .as_ref()
            .map(|size| format!("size={size},mode=1777,exec")),
        memory,
        memory_swap: memory.map(|memory| swap.unwrap_or(memory)),
        nano_cpus: ceilings.cpus.map(Cpus::nanos),
        cpu_shares: ceilings.cpu_shares,
        pids_limit: ceilings.pids_limit,
        network_mode: ceilings.network_mode,
        oci_runtime: ceilings.oci_runtime,
    })
}

/// The user that the service imposes: on configured runtimes, not on ready images.
pub fn user(spec: &Spec, policy: &Policy) -> Option<u32> {
    match &spec.runtime.source {
        Source::Image(_) => None,
        Source::Config(config) => policy.interior.sandbox_uid.or(config.run_as_uid),
    }
}

impl Blueprint {
    /// Returns the hash that tells whether a container still has these settings.
    pub fn hash(&self) -> String {
        let text = serde_json::to_vec(self).expect("a blueprint has only string keys");
        hex(Sha256::digest(text).as_slice().get(..8).unwrap_or_default())
    }

    /// Returns the labels of the container.
    pub fn labels(
        &self,
        instance: &InstanceId,
        key: &ContainerKey,
        spec: &Spec,
    ) -> BTreeMap<String, String> {
        [
            (LABEL_INSTANCE, instance.to_string()),
            (LABEL_KEY, key.to_string()),
            (LABEL_SESSION, spec.id.to_string()),
            (LABEL_RUNTIME, spec.alias.to_string()),
            (LABEL_SPEC, self.hash()),
            (LABEL_SCHEMA, SCHEMA.to_owned()),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
    }
}

/// Returns the name of a session's container.
pub fn container_name(id: &SessionId, key: &ContainerKey) -> String {
    format!("sandboxd-{id}-{}", key.short())
}

/// Returns the name that the predecessor gave a session's container.
pub fn predecessor_name(id: &SessionId) -> String {
    format!("sandboxd-{id}")
}

const ENVIRONMENT: [(&str, &str); 25] = [
    ("GIT_CONFIG_COUNT", "5"),
    ("GIT_CONFIG_KEY_0", "safe.directory"),
    ("GIT_CONFIG_VALUE_0", "*"),
    ("GIT_CONFIG_KEY_1", "user.name"),
    ("GIT_CONFIG_VALUE_1", "Agent"),
    ("GIT_CONFIG_KEY_2", "user.email"),
    ("GIT_CONFIG_VALUE_2", "agent@sandbox.local"),
    ("GIT_CONFIG_KEY_3", "init.defaultBranch"),
    ("GIT_CONFIG_VALUE_3", "main"),
    ("GIT_CONFIG_KEY_4", "advice.detachedHead"),
    ("GIT_CONFIG_VALUE_4", "false"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("PYTHONUNBUFFERED", "1"),
    ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
    ("PIP_NO_INPUT", "1"),
    ("PIP_ROOT_USER_ACTION", "ignore"),
    ("UV_SYSTEM_PYTHON", "1"),
    ("UV_CONCURRENT_DOWNLOADS", "2"),
    ("UV_CONCURRENT_INSTALLS", "2"),
    ("UV_COMPILE_BYTECODE", "1"),
    ("DEBIAN_FRONTEND", "noninteractive"),
    ("NO_COLOR", "1"),
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("LANG", "C.UTF-8"),
];

fn environment(spec: &Spec, policy: &Policy) -> BTreeMap<String, String> {
    let mut env: BTreeMap<&str, &str> = ENVIRONMENT.into_iter().collect();
    if user(spec, policy).is_some() {
        // An unprivileged user has a virtual environment of its own instead.
        env.remove("UV_SYSTEM_PYTHON");
    }
    if let Source::Config(config) = &spec.runtime.source {
        env.extend(
            config
                .env_vars
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str())),
        );
    }
    env.into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Home;
    use crate::session::testing;

    #[test]
    fn the_settings_follow_the_runtime_and_then_the_service() {
        let policy = testing::policy();
        let spec = testing::record("a").spec;
        let print = blueprint(&spec, &policy, Some(Path::new("/ws/a/workspace"))).unwrap();
        assert_eq!(print.memory, Some(1 << 30));
        assert_eq!(print.memory_swap, print.memory, "no swap unless asked for");
        assert_eq!(print.nano_cpus, Some(2_000_000_000));
        assert_eq!(print.tmpfs.as_deref(), Some("size=64m,mode=1777,exec"));
        assert_eq!(
            print.env.get("GIT_CONFIG_COUNT").map(String::as_str),
            Some("5")
        );
    }

    #[test]
    fn the_hash_changes_with_the_settings_and_with_nothing_else() {
        let policy = testing::policy();
        let spec = testing::record("a").spec;
        let hash = |policy: &Policy| blueprint(&spec, policy, None).unwrap().hash();
        assert_eq!(hash(&policy), hash(&policy.clone()));
        let mut other = testing::terms();
        other.ceilings.pids_limit = Some(7);
        let other = Policy::new(other, Home::Host).unwrap();
        assert_ne!(hash(&policy), hash(&other));
    }

    #[test]
    fn a_container_name_holds_the_id_and_the_key_and_fits() {
        let id = SessionId::parse(&"x".repeat(64)).unwrap();
        let name = container_name(&id, &ContainerKey::random());
        assert_eq!(name.len(), 64 + 9 + 9);
    }
}
