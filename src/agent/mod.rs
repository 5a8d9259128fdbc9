//! Speaks with the agent in every sandbox.

pub mod arrivals;
pub mod check;
pub mod connection;
pub mod dock;
pub mod program;
#[expect(
    clippy::should_implement_trait,
    reason = "a decoder gives its next frame or an error, and goes on after it has given none"
)]
pub mod protocol;

mod asks;
mod berth;
mod stream;

#[cfg(test)]
mod protocol_files_tests;
#[cfg(test)]
mod protocol_tests;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
