//! Tells the time that passes while the machine is awake.

use rustix::event::Timespec;
use rustix::time::{ClockId, clock_gettime};

/// A moment, in milliseconds of the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

impl Moment {
    /// Reads the clock.
    pub(crate) fn read() -> Self {
        let time = clock_gettime(ClockId::Monotonic);
        let secs = u64::try_from(time.tv_sec).unwrap_or_default();
        let nanos = u64::try_from(time.tv_nsec).unwrap_or_default();
        Self(secs * 1000 + nanos / 1_000_000)
    }

    /// Returns the moment so many milliseconds later.
    pub(crate) fn after(self, millis: u64) -> Self {
        Self(self.0.saturating_add(millis))
    }

    /// Returns the milliseconds that have passed since an earlier moment.
    pub(crate) fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Returns how long to wait, at `now`, for a moment to come.
pub(crate) fn span(now: Moment, until: Moment) -> Timespec {
    let millis = until.since(now);
    Timespec {
        tv_sec: i64::try_from(millis / 1000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(millis % 1000).unwrap_or_default() * 1_000_000,
    }
}
