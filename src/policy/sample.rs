//! The policy that tests start from: the documented defaults.

use std::time::Duration;

use super::{
    Capacity, Ceilings, Home, Interior, Lifetimes, Limits, Persist, Policy, Terms, builtins,
};
use crate::quantity::{ByteSize, Cpus};

/// Returns the terms of an operator who configured nothing.
pub(crate) fn terms() -> Terms {
    Terms {
        catalogue: builtins::default_catalogue(),
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
            hibernate_idle_after: None,
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
            max_upload_bytes: 10 << 30,
            max_running_commands: 256,
            open_queue_max: 100,
            open_wait_max: Duration::from_mins(5),
            runs: crate::policy::RunLimits {
                per_session: 64,
                ttys_per_session: 16,
                background_timeout: None,
                output_limit: 10 << 20,
                ring_bytes: 1 << 20,
                rings_bytes: 8 << 20,
                keep: Duration::from_mins(10),
            },
        },
    }
}

/// Returns the policy of an operator who configured a workspace root only.
pub(crate) fn policy() -> Policy {
    Policy::new(terms(), Home::Host).expect("the defaults are valid")
}
