//! Says whether the store takes writes.

use std::sync::Arc;

/// Whether the store takes writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It does.
    Ok,
    /// The disk is full: commits fail, or pass only thanks to the reserve that is
    /// kept for closing sessions. Nothing new should begin.
    Full {
        /// What is wrong, for an operator.
        reason: Arc<str>,
    },
    /// Commits fail for another reason; reads are answered from memory.
    Degraded {
        /// What is wrong, for an operator.
        reason: Arc<str>,
    },
}

impl Health {
    /// Makes the full state.
    pub(super) fn full(reason: &str) -> Self {
        Self::Full {
            reason: Arc::from(reason),
        }
    }

    /// Makes the degraded state.
    pub(super) fn degraded(reason: &str) -> Self {
        Self::Degraded {
            reason: Arc::from(reason),
        }
    }
}
