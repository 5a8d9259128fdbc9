//! Speaks the Docker Engine API over its unix socket.
//!
//! [`Engine`] is a value that performs calls; each file beside it adds the calls
//! about one kind of thing. Three laws hold for all of them:
//!
//! - Every call ends within its deadline, also when the engine accepts the
//!   connection and then says nothing.
//! - Nothing read from the engine is kept without a bound.
//! - What an answer means is told by its type: an outcome that the caller must
//!   handle is a variant, and an [`Error`] of kind timeout, closed or 5xx leaves
//!   the state *unknown*, which is never the same as absent.

pub mod archive;
pub mod containers;
pub mod duplex;
pub mod endpoint;
pub mod engine;
pub mod error;
pub mod events;
pub mod exec;
pub mod frames;
pub mod images;
pub mod inspect;
pub mod outside;
pub mod own;
pub mod spec;
pub mod stats;
pub mod version;

mod body;
mod call;
mod lines;
mod path;
#[cfg(test)]
pub(crate) mod testing;

pub use endpoint::Endpoint;
pub use engine::{Deadlines, Engine, Settings};
pub use error::Error;
