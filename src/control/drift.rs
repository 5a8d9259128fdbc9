//! Remembers of what each session's container would be made today.
//!
//! Working that out takes a hash over all its settings, which is much for each line of a
//! long listing, and changes with the policy alone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::id::SessionId;
use crate::policy::Policy;
use crate::session::record::Spec;

/// Hashes of settings, by session.
#[derive(Debug, Default)]
pub(super) struct Drift(Mutex<Remembered>);

#[derive(Debug, Default)]
struct Remembered {
    /// Under which the hashes hold.
    policy: Option<Arc<Policy>>,
    today: BTreeMap<SessionId, Today>,
}

#[derive(Debug)]
struct Today {
    /// The opening that it is of: of a later one the settings may be others.
    order: u64,
    /// `None` where there are no settings.
    hash: Option<String>,
}

impl Drift {
    /// Tells whether a container that was made with these settings would be made with
    /// others today; `hash` works out with which, if that is not known.
    pub(super) fn has_drifted(
        &self,
        made: &str,
        spec: &Spec,
        policy: &Arc<Policy>,
        hash: impl FnOnce() -> Option<String>,
    ) -> bool {
        let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let same = remembered.policy.as_ref();
        if !same.is_some_and(|known| Arc::ptr_eq(known, policy)) {
            remembered.policy = Some(Arc::clone(policy));
            remembered.today.clear();
        }
        if let Some(today) = remembered.today.get(&spec.id)
            && today.order == spec.order
        {
            return differs(made, today);
        }
        let today = Today {
            order: spec.order,
            hash: hash(),
        };
        let differs = differs(made, &today);
        remembered.today.insert(spec.id.clone(), today);
        differs
    }

    /// Forgets sessions that are not among these.
    pub(super) fn retain(&self, open: impl Fn(&SessionId) -> bool) {
        let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        remembered.today.retain(|id, _| open(id));
    }
}

fn differs(made: &str, today: &Today) -> bool {
    today.hash.as_ref().is_some_and(|hash| hash != made)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::testing;

    #[test]
    fn settings_are_hashed_once_for_each_opening_and_policy() {
        let drift = Drift::default();
        let policy = Arc::new(testing::policy());
        let mut spec = testing::record("a").spec;
        let ask = |spec: &Spec, policy: &Arc<Policy>, today: Option<&str>| {
            let mut asked = false;
            let drifted = drift.has_drifted("made", spec, policy, || {
                asked = true;
                today.map(str::to_owned)
            });
            (drifted, asked)
        };
        assert_eq!(ask(&spec, &policy, Some("made")), (false, true));
        assert_eq!(ask(&spec, &policy, Some("other")), (false, false));
        spec.order += 1;
        assert_eq!(ask(&spec, &policy, Some("other")), (true, true));
        let policy = Arc::new(testing::policy());
        assert_eq!(ask(&spec, &policy, None), (false, true));
        drift.retain(|_| false);
        assert_eq!(ask(&spec, &policy, Some("other")), (true, true));
    }
}
