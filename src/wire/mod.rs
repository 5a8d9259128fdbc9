//! The HTTP contract as serde types, shared by the server, the client and the CLI.
//!
//! Fields of the contract are always written, `null` included. Fields that this
//! service adds are left out where they say nothing.

pub mod backup;
pub mod doctor;
pub mod error;
pub mod events;
pub mod exec;
pub mod explain;
pub mod files;
pub mod holds;
pub mod runs;
pub mod service;
pub mod sessions;
pub mod sweep;
pub mod ttys;
pub(crate) mod visible;
pub mod workspaces;
