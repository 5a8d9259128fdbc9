//! Sessions as values, and the pure decisions about them.

pub mod record;
