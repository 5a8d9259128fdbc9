//! Runs things in a live sandbox and samples what it uses.

pub mod commands;
mod host;
mod killing;
pub mod reach;
pub mod usage;
