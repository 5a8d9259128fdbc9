//! The HTTP edge: a route table, callers, bounded bodies and our own accept loop.
//!
//! A request passes `server` (connections; `shed` turns away those without room), `edge` (its id, checks that all share),
//! `table` and `routes` (where it leads), `auth` (who calls), `body` and `validate` (what is
//! asked), and `sessions` and its like, which call [`crate::control`]; `error` words
//! what went wrong.

mod archives;
mod auth;
mod backup;
mod body;
mod command;
mod conditions;
mod docs;
mod edge;
mod error;
mod files;
mod handover;
mod holds;
mod json;
mod leftover;
mod lifecycle;
mod log;
mod metrics;
mod native;
mod openapi;
mod output;
mod pace;
mod paths;
mod query;
mod reply;
mod room;
mod routes;
mod runs;
mod server;
mod service;
mod sessions;
mod shed;
mod signals;
mod socket;
mod streamed;
mod sweep;
mod table;
mod tickets;
mod ttys;
mod validate;
mod watch;
mod workspaces;

#[cfg(test)]
mod laws;

pub use server::{Drained, Settings, serve};
pub(crate) use shed::SHED_MAX;
