//! Searches and measures a workspace from the host.
//!
//! Untrusted code owns the tree. Every step down is one opening below a descriptor that
//! follows no link, so a tree that changes meanwhile gives errors in `skipped`, never a
//! byte from outside. Every call is bounded in depth, entries, bytes, memory and time, and
//! holds a handful of descriptors however deep the tree is.

pub(super) mod descent;
mod glob;
pub(super) mod patience;
mod pattern;
pub(super) mod skipped;
mod start;
pub(super) mod walk;
#[cfg(test)]
mod tests;

pub use glob::{GlobBounds, Globbed, glob};
pub use patience::{Cut, DEPTH_MAX, Patience, Reach, Stop};
pub use pattern::{ALTERNATIVES_MAX, BRACE_DEPTH_MAX, PATTERN_BYTES_MAX, Pattern, PatternError};
pub use skipped::{Left, SKIPPED_MAX, SKIPPED_PATH_BYTES_MAX, Skipped, Why};
pub use start::{SearchError, Start, is_work_directory, spell};
