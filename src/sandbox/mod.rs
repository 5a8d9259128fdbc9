//! Runs things in a live sandbox and samples what it uses.

pub mod commands;
pub mod desk;
mod host;
mod killing;
pub mod reach;
pub mod screen;
pub mod terminal;
pub mod usage;
