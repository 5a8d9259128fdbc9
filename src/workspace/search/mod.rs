//! Searches and measures a workspace from the host.
//!
//! Untrusted code owns the tree. Every step down is one opening below a descriptor that
//! follows no link, so a tree that changes meanwhile gives errors in `skipped`, never a
//! byte from outside. Every call is bounded in depth, entries, bytes, memory and time, and
//! holds a handful of descriptors however deep the tree is.

pub(super) mod ahead;
mod descent;
mod expression;
mod glob;
mod grep;
pub(super) mod patience;
mod pattern;
pub(super) mod skipped;
mod start;
#[cfg(test)]
pub(super) mod tests;
mod tree;
mod usage;
pub(super) mod walk;

pub use expression::{EXPRESSION_BYTES_MAX, Expression};
pub use glob::{GlobBounds, Globbed, glob};
pub use grep::{Ending, GrepBounds, Grepped, Hidden, Hit, Query, Search, grep};
pub use patience::{Cut, DEPTH_MAX, Patience, Reach, Stop};
pub use pattern::{ALTERNATIVES_MAX, BRACE_DEPTH_MAX, PATTERN_BYTES_MAX, Pattern, PatternError};
pub use skipped::{Left, SKIPPED_MAX, SKIPPED_PATH_BYTES_MAX, Skipped, Why};
pub use start::{SearchError, Start, is_work_directory, spell};
pub use tree::{Leaf, Tree, TreeBounds, tree};
pub use usage::{Measuring, Progress, Usage, usage};
