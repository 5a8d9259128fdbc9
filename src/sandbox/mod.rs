//! Runs things in a live sandbox and samples what it uses.

pub mod commands;
mod kept;
mod by_agent;
mod by_engine;
mod alive;
mod host;
mod killing;
pub mod reach;
pub mod usage;
