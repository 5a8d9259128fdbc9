//! What the tests stand on.

pub(crate) mod agent_wire;
pub(crate) mod api;
pub(crate) mod case;
pub(crate) mod claims;
pub(crate) mod daemon;
pub(crate) mod desk;
pub(crate) mod docker;
pub(crate) mod fake;
pub(crate) mod fault;
pub(crate) mod file_case;
pub(crate) mod http;
pub(crate) mod matcher;
pub(crate) mod notify;
pub(crate) mod operations;
pub(crate) mod proxy;
pub(crate) mod raw_engine;
pub(crate) mod records;
pub(crate) mod scripted;
pub(crate) mod second_engine;
pub(crate) mod source;
pub(crate) mod streams;
pub(crate) mod terminal;
pub(crate) mod weight;

/// Tells whether the full size of a test was asked for, as `scripts/faults.sh` does.
pub(crate) fn whole() -> bool {
    std::env::var("SANDBOXD_FAULTS").is_ok_and(|size| size == "whole")
}
