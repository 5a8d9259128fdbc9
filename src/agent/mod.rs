//! Speaks with the agent in every sandbox.

pub mod check;
pub mod connection;
pub mod protocol;

mod asks;
mod stream;
