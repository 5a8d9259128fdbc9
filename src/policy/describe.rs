//! Tells a policy to clients: the answer of `GET /policy`.

use std::time::Duration;

use super::{Persist, Policy, Prewarm, Runtime, RuntimeConfig, Source};
use crate::id::Alias;
use crate::quantity::{ByteSize, Cpus};
use crate::wire::service::{RuntimePolicy, ServicePolicy, WORKSPACE_SIZE_BY_SCAN};

/// Describes a policy as clients read it, with the effective ceilings of each runtime.
pub fn describe(policy: &Policy, prewarm: Prewarm) -> ServicePolicy {
    let ceilings = &policy.ceilings;
    ServicePolicy {
        runtimes: policy
            .catalogue
            .iter()
            .map(|(alias, runtime)| describe_runtime(policy, alias, runtime))
            .collect(),
        default_runtime: policy.catalogue.default_alias().to_string(),
        max_sessions: policy.capacity.max_sessions,
        max_open_sessions: policy.capacity.max_open_sessions,
        max_sessions_per_tenant: policy.capacity.max_sessions_per_tenant,
        evict_idle_after: secs(policy.capacity.evict_idle_after),
        mem_limit: text(ceilings.mem_limit.as_ref()),
        memswap_limit: text(ceilings.memswap_limit.as_ref()),
        cpus: ceilings.cpus.map(Cpus::get),
        cpu_shares: ceilings.cpu_shares,
        pids_limit: ceilings.pids_limit,
        network_mode: ceilings.network_mode.clone(),
        oci_runtime: ceilings.oci_runtime.clone(),
        workspace_size: text(ceilings.workspace_size.as_ref()),
        // Quotas of the file system are not used.
        workspace_size_enforced_by: WORKSPACE_SIZE_BY_SCAN.to_owned(),
        work_dir: policy.interior.work_dir.clone(),
        idle_timeout: policy.lifetimes.idle_timeout.as_secs(),
        hibernate_idle_after: secs(policy.lifetimes.hibernate_idle_after),
        execute_timeout: policy.limits.execute_timeout.as_secs(),
        max_read_bytes: policy.limits.max_read_bytes,
        persist_containers: match policy.lifetimes.persist {
            Persist::No => false,
            Persist::Yes => true,
        },
        sandbox_uid: policy.interior.sandbox_uid,
        workspace_ttl: secs(policy.lifetimes.workspace_ttl),
        container_ttl: secs(policy.lifetimes.container_ttl),
        tmpfs_size: policy.interior.tmpfs_size.clone(),
        prewarm: match prewarm {
            Prewarm::No => false,
            Prewarm::Yes => true,
        },
        // Images are built by the engine's classic builder: this says so to clients that
        // would do otherwise.
        buildkit: false,
        // Who serves files knows whether it does without the sandbox, and says so here.
        native_files: false,
        native_writes: false,
        native_realpath: false,
    }
}

fn describe_runtime(policy: &Policy, alias: &Alias, runtime: &Runtime) -> RuntimePolicy {
    let ceilings = policy.ceilings_of(runtime);
    let image = image(&runtime.source);
    RuntimePolicy {
        alias: alias.to_string(),
        description: description(runtime, &image),
        image,
        builds: match &runtime.source {
            Source::Image(_) => false,
            Source::Config(_) => true,
        },
        mem_limit: text(ceilings.mem_limit.as_ref()),
        memswap_limit: text(ceilings.memswap_limit.as_ref()),
        cpus: ceilings.cpus.map(Cpus::get),
        cpu_shares: ceilings.cpu_shares,
        pids_limit: ceilings.pids_limit,
        network_mode: ceilings.network_mode,
        oci_runtime: ceilings.oci_runtime,
        workspace_size: text(ceilings.workspace_size.as_ref()),
    }
}

fn image(source: &Source) -> String {
    match source {
        Source::Image(image) => image.clone(),
        Source::Config(config) => match (&config.image, &config.base_image) {
            (Some(image), _) => image.clone(),
            (None, base) => format!(
                "{} + {} package(s)",
                base.as_deref().unwrap_or_default(),
                config.packages.len()
            ),
        },
    }
}

fn description(runtime: &Runtime, image: &str) -> String {
    if !runtime.description.is_empty() {
        return runtime.description.clone();
    }
    match &runtime.source {
        Source::Image(_) => image.to_owned(),
        Source::Config(config) if !config.description.is_empty() => config.description.clone(),
        Source::Config(config) => format!("built from {}", origin(config)),
    }
}

fn origin(config: &RuntimeConfig) -> &str {
    let origin = config.base_image.as_deref().or(config.image.as_deref());
    origin.unwrap_or_default()
}

fn secs(span: Option<Duration>) -> Option<u64> {
    span.map(|span| span.as_secs())
}

fn text(size: Option<&ByteSize>) -> Option<String> {
    size.map(ToString::to_string)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::{Catalogue, Ceilings, Home, builtins, sample};
    use super::*;

    fn described(entries: Vec<(&str, Source, &str)>) -> Vec<RuntimePolicy> {
        let runtimes: BTreeMap<Alias, Runtime> = entries
            .into_iter()
            .map(|(alias, source, description)| {
                let runtime = Runtime {
                    source,
                    description: description.to_owned(),
                    ceilings: Ceilings {
                        pids_limit: Some(64),
                        ..Ceilings::default()
                    },
                    keep_awake: crate::policy::KeepAwake::No,
                    users: crate::policy::Users::Own,
                };
                (Alias::parse(alias).unwrap(), runtime)
            })
            .collect();
        let first = runtimes.keys().next().unwrap().clone();
        let mut terms = sample::terms();
        terms.catalogue = Catalogue::new(runtimes, first).unwrap();
        describe(&Policy::new(terms, Home::Host).unwrap(), Prewarm::Yes).runtimes
    }

    fn built_in(name: &str) -> Source {
        Source::Config(Box::new(builtins::get(name).unwrap()))
    }

    #[test]
    fn image_description_and_builds_follow_the_source() {
        let mut mute = builtins::get("python-web").unwrap();
        mute.description.clear();
        let found: Vec<(String, String, bool)> = described(vec![
            ("a", Source::Image("img:1".to_owned()), ""),
            ("b", Source::Image("img:1".to_owned()), "said"),
            ("c", built_in("go"), ""),
            ("d", built_in("python-analytics"), ""),
            ("e", Source::Config(Box::new(mute)), ""),
            ("f", built_in("coding"), "said"),
        ])
        .into_iter()
        .map(|runtime| (runtime.image, runtime.description, runtime.builds))
        .collect();
        let row = |image: &str, text: &str, builds| (image.to_owned(), text.to_owned(), builds);
        assert_eq!(
            found,
            [
                row("img:1", "img:1", false),
                row("img:1", "said", false),
                row("golang:1.23-alpine", "Go toolchain", true),
                row(
                    "python:3.12-slim + 3 package(s)",
                    "DuckDB and Polars — same work in a third of the memory",
                    true
                ),
                row(
                    "python:3.12-slim + 4 package(s)",
                    "built from python:3.12-slim",
                    true
                ),
                row("python:3.12-slim + 0 package(s)", "said", true),
            ]
        );
    }

    #[test]
    fn a_runtime_reports_its_own_ceiling_or_the_services() {
        let found = described(vec![("a", Source::Image("img:1".to_owned()), "")]);
        assert_eq!(found[0].pids_limit, Some(64));
        assert_eq!(found[0].mem_limit.as_deref(), Some("1g"));
        assert_eq!(found[0].network_mode.as_deref(), Some("none"));
    }

    #[test]
    fn the_policy_of_the_defaults_reads_as_documented() {
        let found = serde_json::to_value(describe(&sample::policy(), Prewarm::Yes)).unwrap();
        let mut found = found.as_object().unwrap().clone();
        found.remove("runtimes");
        let wanted = serde_json::json!({
            "default_runtime": "coding", "max_sessions": 20, "max_open_sessions": null,
            "max_sessions_per_tenant": null, "evict_idle_after": null, "mem_limit": "1g",
            "memswap_limit": null, "cpus": 2.0, "cpu_shares": null, "pids_limit": 512,
            "network_mode": "none", "oci_runtime": null, "work_dir": "/workspace",
            "idle_timeout": 1800, "execute_timeout": 300, "max_read_bytes": 8_388_608,
            "persist_containers": false, "sandbox_uid": null, "workspace_ttl": null,
            "container_ttl": null, "tmpfs_size": "64m", "prewarm": true, "buildkit": false,
            "native_files": false, "native_writes": false, "native_realpath": false,
            "workspace_size": null, "workspace_size_enforced_by": "scan",
        });
        assert_eq!(serde_json::Value::Object(found), wanted);
    }
}
