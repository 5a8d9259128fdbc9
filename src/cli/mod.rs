//! The operator's command line: a client of the HTTP API and of nothing else.
//!
//! Data goes to standard output and messages to standard error. Whatever comes
//! from the service is shown with its control characters escaped; with
//! `--output json` it is the API's JSON.

pub mod args;

mod backup;
mod copy;
mod doctor;
mod events;
mod exec;
mod exit;
mod explain;
mod failure;
mod health;
mod holds;
mod log;
mod paging;
mod printer;
mod removal;
mod rest;
mod run;
mod runs;
mod sessions;
mod shell;
mod sweep;
mod text;
mod token;
mod workspaces;

#[cfg(test)]
mod tests;

pub use exit::Exit;
pub use printer::{Streams, Terminal};
pub use run::run;
