//! Runs things in a live sandbox and samples what it uses.

mod alive;
mod by_agent;
mod by_engine;
pub mod commands;
pub mod desk;
pub mod files;
mod host;
mod kept;
mod killing;
pub mod reach;
pub mod request;
pub mod screen;
pub mod terminal;
pub mod usage;
