//! Chance that a seed decides.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Dice whose throws follow from their seed; clones share them.
#[derive(Clone, Debug)]
pub(super) struct Dice(Arc<Mutex<u64>>);

impl Dice {
    /// Takes up dice; each use of a seed has its own, so that one does not disturb another.
    pub(super) fn new(seed: u64, purpose: u64) -> Self {
        let start = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ purpose.rotate_left(32);
        Self(Arc::new(Mutex::new(start)))
    }

    /// Throws a number below `n`, which is not zero.
    pub(super) fn below(&self, n: u64) -> u64 {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // splitmix64
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % n
    }

    /// Says yes so many times of a thousand.
    pub(super) fn chance(&self, of_thousand: u64) -> bool {
        self.below(1_000) < of_thousand
    }

    /// Picks one.
    pub(super) fn pick<T: Clone>(&self, from: &[T]) -> T {
        let n = u64::try_from(from.len()).expect("a list of choices is short");
        let at = usize::try_from(self.below(n)).expect("it is below the length");
        from[at].clone()
    }

    /// Picks a time of whole milliseconds.
    pub(super) fn span(&self, from: Duration, to: Duration) -> Duration {
        let millis = u64::try_from(to.saturating_sub(from).as_millis()).expect("hours at most");
        from + Duration::from_millis(self.below(millis + 1))
    }

    /// Picks a time, mostly of milliseconds and now and then of up to `longest`.
    pub(super) fn wait(&self, longest: Duration) -> Duration {
        let some = Duration::from_millis(20);
        if self.chance(100) {
            self.span(Duration::ZERO, longest.max(some))
        } else {
            self.span(Duration::from_millis(1), some)
        }
    }
}
