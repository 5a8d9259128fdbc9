//! sandboxd owns the Docker socket and rents containers to applications.
//!
//! The modules are listed lowest layer first; a module names only modules above
//! it in this list.
#![forbid(unsafe_code)]

// Words: no I/O, no async.
pub mod clock;
pub mod id;
pub mod quantity;
pub mod secret;
pub mod wire;

// Decisions: pure, `now` is an argument.
pub mod policy;
pub mod session;

// What a caller may ask, without HTTP.
pub mod control;

// Edges.
pub mod api;
