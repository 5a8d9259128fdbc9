//! Puts a blueprint into the engine's words.

use std::collections::BTreeMap;
use std::path::Path;

use super::agents::Aboard;
use crate::agent::protocol::{HOST_DIR, OWN_DIR, PROGRAM};
use crate::docker::outside::Outside;
use crate::docker::spec::{CreateBody, Env, HostConfig, LogConfig, Mount, RestartPolicy};
use crate::id::{ContainerKey, InstanceId};
use crate::session::blueprint::{Blueprint, LABEL_EXEC};
use crate::session::record::{Exec, Spec};

/// Capabilities of the engine's default set that no sandbox needs.
///
/// Dropping all of them breaks `chown` and package managers.
const CAPABILITIES_DROPPED: [&str; 5] = ["MKNOD", "NET_RAW", "AUDIT_WRITE", "SETFCAP", "SETPCAP"];
/// Sandboxes are ended before the host's own services when memory runs out.
const OOM_SCORE_ADJ: i32 = 500;
/// What a sandbox can write to its first process's output before it is rotated away.
const LOG_SIZE: &str = "1m";
/// The memory file system of the agent's socket; the agent may be any user.
const OWN_OPTIONS: &str = "size=64k,nr_inodes=16,mode=1777";

/// Returns the engine's settings for a session's container.
pub(super) fn create_body(
    (blueprint, mounts): (&Blueprint, Vec<Mount>),
    spec: &Spec,
    (instance, key): (&InstanceId, &ContainerKey),
    aboard: &Aboard,
) -> CreateBody {
    let exec = aboard.exec();
    // The image's own entrypoint is not run: a session's first process only has to stay,
    // and reap what commands leave behind.
    let (entrypoint, cmd) = match exec {
        Exec::Agent => (vec![PROGRAM.to_owned()], vec!["serve".to_owned()]),
        Exec::Docker => (Vec::new(), vec!["sleep".to_owned(), "infinity".to_owned()]),
    };
    let mut labels = blueprint.labels(instance, key, spec);
    // Not among what the hash is made of: neither is a setting of the operator's.
    labels.insert(LABEL_EXEC.to_owned(), exec.as_str().to_owned());
    CreateBody {
        image: blueprint.image.clone(),
        user: blueprint.user.clone().unwrap_or_default(),
        entrypoint: Some(entrypoint),
        cmd,
        working_dir: blueprint.work_dir.clone(),
        env: Env::from(blueprint.env.clone()),
        labels,
        host_config: HostConfig {
            mounts,
            ..host_config(blueprint, aboard)
        },
    }
}

fn host_config(blueprint: &Blueprint, aboard: &Aboard) -> HostConfig {
    HostConfig {
        init: Some(match aboard.exec() {
            // It does what an init does.
            Exec::Agent => false,
            Exec::Docker => true,
        }),
        mounts: Vec::new(),
        tmpfs: tmpfs(blueprint, aboard.exec()),
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

/// Returns what of the host a container sees.
pub(super) fn mounts(blueprint: &Blueprint, aboard: &Aboard, outside: &Outside) -> Vec<Mount> {
    let mount = |path: &Path, target: &str| Mount::of(&outside.source(path), target);
    let workspace = blueprint
        .workspace
        .iter()
        .map(|path| mount(path, &blueprint.work_dir));
    let agent = match aboard {
        Aboard::No | Aboard::Copied => Vec::new(),
        Aboard::Mounted { program, directory } => vec![
            mount(program, PROGRAM).only_to_read(),
            mount(directory, HOST_DIR).only_to_read(),
        ],
    };
    workspace.chain(agent).collect()
}

fn tmpfs(blueprint: &Blueprint, exec: Exec) -> BTreeMap<String, String> {
    let tmp = blueprint
        .tmpfs
        .iter()
        .map(|options| ("/tmp", options.as_str()));
    let own = match exec {
        Exec::Agent => Some((OWN_DIR, OWN_OPTIONS)),
        Exec::Docker => None,
    };
    tmp.chain(own)
        .map(|(path, options)| (path.to_owned(), options.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use expect_test::expect;

    use super::*;
    use crate::session::blueprint::blueprint;
    use crate::session::testing;

    /// Returns what differs by the way in which commands reach the container.
    fn made(aboard: &Aboard) -> String {
        let spec = testing::record("a").spec;
        let print = blueprint(&spec, &testing::policy(), Some(Path::new("/ws/a"))).unwrap();
        let ids = (&InstanceId::random(), &ContainerKey::random());
        let mounts = mounts(&print, aboard, &Outside::default());
        let body = create_body((&print, mounts), &spec, ids, aboard);
        let host = &body.host_config;
        let mounts = host
            .mounts
            .iter()
            .map(|one| format!("{} -> {} {}", one.source, one.target, one.read_only));
        let tmpfs = host.tmpfs.keys().cloned();
        format!(
            "{:?} {:?} init {:?} label {}\n{}\n{}",
            body.entrypoint.unwrap_or_default(),
            body.cmd,
            host.init,
            body.labels[LABEL_EXEC],
            mounts.collect::<Vec<_>>().join(", "),
            tmpfs.collect::<Vec<_>>().join(", "),
        )
    }

    #[test]
    fn the_first_process_is_the_agent_where_one_can_be() {
        let mounted = Aboard::Mounted {
            program: PathBuf::from("/state/agent/1/sandbox-agent"),
            directory: PathBuf::from("/run/sandboxd/1/2"),
        };
        expect![[r#"
            ["/.sandboxd/sandbox-agent"] ["serve"] init Some(false) label agent
            /ws/a -> /workspace false, /state/agent/1/sandbox-agent -> /.sandboxd/sandbox-agent true, /run/sandboxd/1/2 -> /.sandboxd/host true
            /.sandboxd/run, /tmp"#]]
        .assert_eq(&made(&mounted));
        expect![[r#"
            ["/.sandboxd/sandbox-agent"] ["serve"] init Some(false) label agent
            /ws/a -> /workspace false
            /.sandboxd/run, /tmp"#]]
        .assert_eq(&made(&Aboard::Copied));
        expect![[r#"
            [] ["sleep", "infinity"] init Some(true) label docker
            /ws/a -> /workspace false
            /tmp"#]]
        .assert_eq(&made(&Aboard::No));
    }
}
