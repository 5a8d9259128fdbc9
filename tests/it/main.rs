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

mod agent;
mod application;
mod archives;
mod artifacts;
mod backup;
mod commands;
mod contract;
mod copied_files;
mod crowds;
mod disk;
mod doctor;
mod documents;
mod each_setting;
mod engine;
mod engine_changed;
mod engine_disasters;
mod engine_faults;
mod engine_version;
mod fake_engine;
mod fake_engine_faults;
mod file_attacks;
mod host_disasters;
mod images;
mod in_container;
mod inside;
mod kill_matrix;
mod kill_steps;
mod laws;
mod lifecycle;
mod lifetimes;
mod limits;
mod operator;
mod ownership;
mod reach;
mod regressions;
mod remote_sandbox;
mod reported;
mod runs_adoption;
mod runs_background;
mod runs_foreground;
mod secrets;
mod service_log;
mod sessions;
mod shell;
mod size;
mod store_disasters;
mod streamed_files;
mod streams;
mod survival;
mod sweep;
mod terminals;
mod unit;
mod watched_files;
mod workspace_root;
mod workspace_size;
