//! Says how long a key rests after a failure.

use std::time::Duration;

/// The rest after the first failure.
const FIRST: Duration = Duration::from_millis(500);
/// The longest rest.
pub const REST_MAX: Duration = Duration::from_mins(1);

/// Returns the rest after so many failures in a row: doubled each time, up to
/// [`REST_MAX`].
pub fn rest(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    FIRST.saturating_mul(1 << doublings).min(REST_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_grow_and_never_pass_their_bound() {
        assert_eq!(rest(1), FIRST);
        assert_eq!(rest(2), FIRST * 2);
        assert_eq!(rest(u32::MAX), REST_MAX);
        for n in 0..100 {
            assert!(rest(n) <= rest(n + 1));
        }
    }
}
