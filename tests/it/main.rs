//! Integration tests: the real daemon on a real Docker engine, and the laws of the sources.
#![forbid(unsafe_code)]
#![expect(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a test fails by panicking, says what it saw, and waits in real time"
)]

mod support;

mod artifacts;
mod commands;
mod contract;
mod disk;
mod engine;
mod engine_faults;
mod laws;
mod limits;
mod operator;
mod ownership;
mod regressions;
mod reported;
mod sessions;
mod size;
mod survival;
mod unit;
