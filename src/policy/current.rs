//! Holds the policy in force, which is replaced whole.

use std::sync::{Arc, PoisonError, RwLock};

use super::Policy;

/// The policy in force; cheap to clone, and every holder sees a replacement.
#[derive(Clone, Debug)]
pub struct Current(Arc<RwLock<Arc<Policy>>>);

impl Current {
    /// Puts a first policy in force.
    pub fn new(policy: Policy) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(policy))))
    }

    /// Returns the policy in force; one snapshot serves one decision.
    pub fn get(&self) -> Arc<Policy> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts another policy in force, whole.
    pub fn replace(&self, policy: Policy) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(policy);
    }
}
