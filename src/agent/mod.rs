//! Speaks with the agent in every sandbox.

pub mod connection;
#[expect(
    clippy::should_implement_trait,
    reason = "a decoder gives its next frame or an error, and goes on after it has given none"
)]
pub mod protocol;

#[cfg(test)]
mod protocol_tests;
