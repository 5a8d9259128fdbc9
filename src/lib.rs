//! sandboxd owns the Docker socket and rents containers to applications.
//!
//! The modules are listed lowest layer first; a module names only modules above
//! it in this list.
#![forbid(unsafe_code)]

// Words: no I/O; nothing but `news` is waited for.
pub mod cause;
pub mod clock;
pub mod id;
pub mod news;
pub mod quantity;
pub mod secret;
pub mod wire;

// Decisions: pure, `now` is an argument.
pub mod policy;
pub mod session;

// Adapters: one outside thing each; they do not know one another.
pub mod activity;
pub mod agent;
pub mod cgroup;
pub mod docker;
pub mod store;
pub mod workspace;

// Engines: what makes the host as it should be, and runs things in it.
pub mod reconcile;
pub mod sandbox;

// What checks them all, and changes nothing.
pub mod verify;

// What a caller may ask, without HTTP.
pub mod control;

// Edges: how the outside reaches all of it.
pub mod api;
pub mod client;
pub mod config;

pub mod cli;
pub mod telemetry;

// The whole of it.
pub mod daemon;
