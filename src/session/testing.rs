//! Good values for tests to start from.

use std::collections::BTreeMap;
use std::time::Duration;

use super::record::{Marks, Record, Spec};
use crate::clock::Timestamp;
use crate::id::{Alias, Nonce, SessionId};
use crate::policy::{
    Capacity, Catalogue, Ceilings, Interior, Lifetimes, Limits, Persist, Policy, Runtime, Source,
};
use crate::quantity::{ByteSize, Cpus};

/// The image that live tests run on.
pub(crate) const IMAGE: &str = "sandboxd-test/busybox:latest";

pub(crate) fn runtime() -> Runtime {
    Runtime {
        source: Source::Image(IMAGE.to_owned()),
        description: String::new(),
        ceilings: Ceilings::default(),
    }
}

pub(crate) fn policy() -> Policy {
    let alias = Alias::parse("bb").unwrap();
    Policy {
        catalogue: Catalogue::new(BTreeMap::from([(alias.clone(), runtime())]), alias).unwrap(),
        capacity: Capacity {
            max_sessions: Some(20),
            ..Capacity::default()
        },
        ceilings: Ceilings {
            mem_limit: Some(ByteSize::parse("1g").unwrap()),
            cpus: Some(Cpus::new(2.0).unwrap()),
            pids_limit: Some(512),
            network_mode: Some("none".to_owned()),
            ..Ceilings::default()
        },
        lifetimes: Lifetimes {
            idle_timeout: Duration::from_mins(30),
            workspace_ttl: None,
            container_ttl: None,
            persist: Persist::No,
        },
        interior: Interior {
            work_dir: "/workspace".to_owned(),
            tmpfs_size: Some("64m".to_owned()),
            sandbox_uid: None,
        },
        limits: Limits {
            execute_timeout: Duration::from_mins(5),
            max_read_bytes: 8 << 20,
            max_running_commands: 256,
        },
    }
}

pub(crate) fn record(id: &str) -> Record {
    let now = Timestamp::from_secs(1_700_000_000);
    Record {
        spec: Spec {
            id: SessionId::parse(id).unwrap(),
            alias: Alias::parse("bb").unwrap(),
            runtime: runtime(),
            tenant: None,
            nonce: Nonce::random(),
            opened_at: now,
            order: 1,
        },
        marks: Marks {
            generation: 1,
            last_used: now,
            parked: None,
            closed: None,
            slept: None,
        },
    }
}
