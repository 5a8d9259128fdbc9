//! Says whether the store takes writes.

use std::sync::Arc;

/// Whether the store takes writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It does.
    Ok,
    /// Commits fail, or pass only thanks to the reserve that is kept for closing
    /// sessions; reads are answered from memory.
    Degraded {
        /// What is wrong, for an operator.
        reason: Arc<str>,
    },
}

impl Health {
    /// Makes the degraded state.
    pub(super) fn degraded(reason: &str) -> Self {
        Self::Degraded {
            reason: Arc::from(reason),
        }
    }
}
