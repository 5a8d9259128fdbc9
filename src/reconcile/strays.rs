//! Decides which containers of ours no record explains, and may go.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::clock::Timestamp;

/// A pass never removes more strays than this share of all containers, unless
/// they are at most [`STRAYS_MAX`].
const SHARE: usize = 5;
/// So many strays may always go in one pass.
pub const STRAYS_MAX: usize = 3;

/// Since when each stray has been seen, by the engine's id.
pub(super) type Suspects = BTreeMap<String, Timestamp>;

/// What a pass makes of the strays it saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Those that may be removed now.
    pub remove: Vec<String>,
    /// All that are under suspicion, for the next pass.
    pub suspects: Suspects,
    /// How many were ripe for removal when the breaker held them all back.
    pub held_back: usize,
}

/// Judges a complete listing of our containers.
///
/// `listed` are all containers with our instance label and `explained` those
/// that a record owns. A stray goes only when an earlier pass saw it too and
/// `grace` has passed since; and none goes when more than a fifth of all
/// containers would, for then it is rather the records that are missing.
pub(super) fn judge(
    listed: &BTreeSet<String>,
    explained: &BTreeSet<String>,
    before: &Suspects,
    grace: Duration,
    now: Timestamp,
) -> Verdict {
    let suspects: Suspects = listed
        .difference(explained)
        .map(|id| (id.clone(), before.get(id).copied().unwrap_or(now)))
        .collect();
    let ripe: Vec<String> = suspects
        .iter()
        .filter(|(id, since)| before.contains_key(*id) && grace <= now.since(**since))
        .map(|(id, _)| id.clone())
        .collect();
    if are_held_back(ripe.len(), listed.len()) {
        return Verdict {
            remove: Vec::new(),
            held_back: ripe.len(),
            suspects,
        };
    }
    Verdict {
        remove: ripe,
        suspects,
        held_back: 0,
    }
}

/// Whether so many strays among so many containers are rather a store that is incomplete.
pub fn are_held_back(strays: usize, containers: usize) -> bool {
    STRAYS_MAX < strays && containers < strays * SHARE
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_mins(5);
    const T0: Timestamp = Timestamp::from_secs(1_000);

    fn ids(names: std::ops::Range<usize>) -> BTreeSet<String> {
        names.map(|n| format!("c{n}")).collect()
    }

    #[test]
    fn a_stray_goes_after_two_passes_and_its_grace() {
        let later = T0.plus(GRACE);
        let first = judge(&ids(0..10), &ids(1..10), &Suspects::new(), GRACE, T0);
        assert!(first.remove.is_empty());
        let soon = judge(&ids(0..10), &ids(1..10), &first.suspects, GRACE, T0);
        assert!(soon.remove.is_empty());
        let ripe = judge(&ids(0..10), &ids(1..10), &first.suspects, GRACE, later);
        assert_eq!(ripe.remove, ["c0"]);
    }

    #[test]
    fn what_a_record_explains_meanwhile_is_no_stray() {
        let first = judge(&ids(0..1), &ids(0..0), &Suspects::new(), GRACE, T0);
        let later = judge(
            &ids(0..1),
            &ids(0..1),
            &first.suspects,
            GRACE,
            T0.plus(GRACE),
        );
        assert_eq!(later, Verdict::default());
    }

    #[test]
    fn many_strays_at_once_are_held_back() {
        let first = judge(&ids(0..10), &ids(6..10), &Suspects::new(), GRACE, T0);
        let later = judge(
            &ids(0..10),
            &ids(6..10),
            &first.suspects,
            GRACE,
            T0.plus(GRACE),
        );
        assert!(later.remove.is_empty());
        assert_eq!(later.held_back, 6);
    }
}
