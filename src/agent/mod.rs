//! Speaks with the agent in every sandbox.

pub mod connection;
pub mod protocol;
