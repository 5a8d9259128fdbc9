//! Makes the host what the store says it should be, again and again.
//!
//! ```text
//! nudge, event, deadline, resync
//!        │
//!      queue ──► observe ──► aim ──► next_step ──► execute ──┐
//!        ▲          ▲                                        │
//!        │          └───────────── look again ◄──────────────┘
//!        └── deadline or backoff
//! ```

pub mod backoff;
pub mod images;
pub mod key;
pub mod plan;
#[cfg(test)]
mod plan_tests;
pub mod queue;
pub mod residents;
pub mod strays;
pub mod ticket;
