//! Speaks with the agent in every sandbox.

pub mod connection;
pub mod protocol;

#[cfg(test)]
mod protocol_tests;
