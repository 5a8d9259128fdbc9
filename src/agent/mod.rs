//! Speaks with the agent in every sandbox.

pub mod arrivals;
pub mod check;
pub mod connection;
pub mod dock;
pub mod program;
pub mod protocol;

mod asks;
mod berth;
mod stream;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
