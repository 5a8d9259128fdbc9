//! Faults of the engine by rule: what is to go wrong with which call, and what did.
//!
//! A [`Plan`] says it beforehand, as JSON or by a seed; [`Faults`] decides call by call,
//! keeps the log of its decisions and runs the hooks of a test; [`Shape`] does to a
//! reply what was decided. The proxy applies them, and stands before the real engine
//! and before the fake one alike.

mod log;
mod plan;
mod reply;
mod state;
mod tests;
mod wire;

pub(crate) use log::Log;
pub(crate) use plan::{Action, Broken, Plan, Rule, Seeded, Which};
pub(crate) use reply::{After, Shape};
pub(crate) use state::{Faults, Target, Then, When};
pub(crate) use wire::{Received, cut, read_request, received_until_closed};
