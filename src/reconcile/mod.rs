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

mod agents;
mod backoff;
mod books;
mod controller;
mod disks;
mod epoch;
mod execute;
mod execute_agents;
mod execute_ghosts;
mod ghosts;
mod health;
mod holds;
mod host;
mod identity;
mod images;
mod key;
mod observe;
mod pass;
mod plan;
#[cfg(test)]
mod plan_tests;
mod queue;
mod rebuild;
mod remains;
mod residents;
mod resync;
mod scan;
mod settings;
mod sidecars;
mod strays;
mod survey;
mod ticket;
mod watch;
mod work;

pub use agents::Agents;
pub use backoff::{REST_MAX, rest};
pub use books::{Books, Written};
pub use controller::{Controller, Pulse};
pub use disks::{Disks, Extent, Figure};
pub use epoch::Epoch;
pub use execute::{Executor, unwritten};
pub use ghosts::{Haunting, hauntings};
pub use health::{Changed, EngineHealth};
pub use holds::{Holds, Kept, Released, Standing};
pub use host::Host;
pub use identity::Identifier;
pub use images::Images;
pub use key::Key;
pub use pass::{Passes, STEPS_MAX};
pub use plan::{Fate, Observed, Rival, Step, next_step};
pub use queue::Queue;
pub use rebuild::{RebuildError, rebuild_from_files};
pub use residents::Residents;
pub use resync::Resync;
pub use scan::Scan;
pub use strays::{STRAYS_MAX, are_held_back};
pub use survey::{Deed, ITEMS_MAX, Item, Listing, Survey, SweepError};
pub use ticket::{Failure, Outcome, Tickets};
pub use watch::{Watched, events, go_round, ping, root};
pub use work::Work;
