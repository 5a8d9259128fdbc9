//! Puts a blueprint into the engine's words.

use std::collections::BTreeMap;
use std::path::Path;

use crate::docker::spec::{CreateBody, Env, HostConfig, LogConfig, Mount, RestartPolicy};
use crate::id::{ContainerKey, InstanceId};
use crate::session::blueprint::Blueprint;
use crate::session::record::Spec;

/// Capabilities of the engine's default set that no sandbox needs.
///
/// Dropping all of them breaks `chown` and package managers.
const CAPABILITIES_DROPPED: [&str; 5] = ["MKNOD", "NET_RAW", "AUDIT_WRITE", "SETFCAP", "SETPCAP"];
/// Sandboxes are ended before the host's own services when memory runs out.
const OOM_SCORE_ADJ: i32 = 500;
/// What a sandbox can write to its first process's output before it is rotated away.
const LOG_SIZE: &str = "1m";

/// Returns the engine's settings for a session's container.
pub(super) fn create_body(
    blueprint: &Blueprint,
    spec: &Spec,
    instance: &InstanceId,
    key: &ContainerKey,
) -> CreateBody {
    CreateBody {
        image: blueprint.image.clone(),
        user: blueprint.user.clone().unwrap_or_default(),
        // The image's own entrypoint is not run: a session's first process only
        // has to stay, and the init process reaps what commands leave behind.
        entrypoint: Some(Vec::new()),
        cmd: vec!["sleep".to_owned(), "infinity".to_owned()],
        working_dir: blueprint.work_dir.clone(),
        env: Env::from(blueprint.env.clone()),
        labels: blueprint.labels(instance, key, spec),
        host_config: host_config(blueprint),
    }
}

fn host_config(blueprint: &Blueprint) -> HostConfig {
    HostConfig {
        init: Some(true),
        mounts: blueprint
            .workspace
            .iter()
            .map(|source| Mount::writable(&text(source), &blueprint.work_dir))
            .collect(),
        tmpfs: blueprint
            .tmpfs
            .iter()
            .map(|options| ("/tmp".to_owned(), options.clone()))
            .collect(),
        memory: blueprint.memory,
        memory_swap: blueprint
            .memory_swap
            .map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX)),
        nano_cpus: blueprint.nano_cpus,
        cpu_shares: blueprint.cpu_shares,
        pids_limit: blueprint.pids_limit,
        network_mode: blueprint.network_mode.clone(),
        runtime: blueprint.oci_runtime.clone(),
        security_opt: vec!["no-new-privileges:true".to_owned()],
        cap_drop: CAPABILITIES_DROPPED.map(str::to_owned).to_vec(),
        log_config: Some(LogConfig {
            driver: "json-file".to_owned(),
            config: BTreeMap::from([
                ("max-size".to_owned(), LOG_SIZE.to_owned()),
                ("max-file".to_owned(), "1".to_owned()),
            ]),
        }),
        restart_policy: Some(RestartPolicy::NEVER),
        auto_remove: Some(false),
        oom_score_adj: Some(OOM_SCORE_ADJ),
    }
}

/// Workspace paths are made of the operator's root, which was checked to be text.
fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
