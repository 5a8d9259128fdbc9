//! Reads host time, for the whole program, in this one place.
//!
//! Decisions take `now` as an argument. The clock reads the wall once, at start,
//! and counts on from there by the boot-time clock, so a step of the wall clock
//! while the daemon runs moves no deadline.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Microseconds since the Unix epoch.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The Unix epoch.
    pub const ZERO: Self = Self(0);

    /// Makes a timestamp from microseconds since the epoch.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Makes a timestamp from whole seconds since the epoch.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000))
    }

    /// Returns microseconds since the epoch.
    pub const fn micros(self) -> u64 {
        self.0
    }

    /// Returns seconds since the epoch, as the wire has them.
    pub fn secs_f64(self) -> f64 {
        Duration::from_micros(self.0).as_secs_f64()
    }

    /// Returns the instant `span` later, or the last one there is.
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(micros))
    }

    /// Returns the instant `span` earlier; nothing where that is before the epoch.
    pub fn before(self, span: Duration) -> Option<Self> {
        let micros = u64::try_from(span.as_micros()).ok()?;
        self.0.checked_sub(micros).map(Self)
    }

    /// Returns how long ago `earlier` was; nothing when it lies ahead.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Timestamp {
    /// Writes RFC 3339 in UTC with microseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = i64::try_from(self.0).unwrap_or(i64::MAX);
        match jiff::Timestamp::from_microsecond(micros) {
            Ok(at) => write!(f, "{at:.6}"),
            Err(_) => write!(f, "{}us", self.0),
        }
    }
}

#[derive(Debug)]
enum Source {
    Host {
        wall: Timestamp,
        boot: Duration,
    },
    Manual(AtomicU64),
    #[cfg(test)]
    Paused {
        wall: Timestamp,
        began: tokio::time::Instant,
        ahead: AtomicU64,
    },
}

/// Tells the time; cheap to clone.
#[derive(Clone, Debug)]
pub struct Clock(Arc<Source>);

impl Clock {
    /// Anchors a clock to the host's wall time at this moment.
    pub fn host() -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "the one place that reads the wall clock"
        )]
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self(Arc::new(Source::Host {
            wall: Timestamp::ZERO.plus(wall),
            boot: boot_time(),
        }))
    }

    /// Makes a clock that stands still until [`Clock::advance`] moves it.
    pub fn manual(now: Timestamp) -> Self {
        Self(Arc::new(Source::Manual(AtomicU64::new(now.0))))
    }

    /// Makes a clock that shows this time and follows the runtime's, which a test has
    /// paused; [`Clock::advance`] moves it ahead of that, as a host that slept is.
    #[cfg(test)]
    pub(crate) fn paused(wall: Timestamp) -> Self {
        Self(Arc::new(Source::Paused {
            wall,
            began: tokio::time::Instant::now(),
            ahead: AtomicU64::new(0),
        }))
    }

    /// Returns the present instant.
    pub fn now(&self) -> Timestamp {
        match &*self.0 {
            Source::Host { wall, boot } => wall.plus(boot_time().saturating_sub(*boot)),
            Source::Manual(at) => Timestamp(at.load(Ordering::SeqCst)),
            #[cfg(test)]
            Source::Paused { wall, began, ahead } => wall
                .plus(began.elapsed())
                .plus(Duration::from_micros(ahead.load(Ordering::SeqCst))),
        }
    }

    /// Moves a manual clock forward; a host clock is left alone.
    pub fn advance(&self, span: Duration) {
        match &*self.0 {
            Source::Host { .. } => {}
            Source::Manual(at) => at.store(self.now().plus(span).0, Ordering::SeqCst),
            #[cfg(test)]
            Source::Paused { ahead, .. } => {
                let span = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
                ahead.fetch_add(span, Ordering::SeqCst);
            }
        }
    }
}

/// Time since boot, suspension included.
fn boot_time() -> Duration {
    let at = clock_gettime(ClockId::Boottime);
    Duration::new(
        u64::try_from(at.tv_sec).unwrap_or(0),
        u32::try_from(at.tv_nsec).unwrap_or(0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_before_the_epoch_is_nothing() {
        let at = Timestamp::from_secs(5);
        let secs = Duration::from_secs;
        assert_eq!(at.before(secs(2)), Some(Timestamp::from_secs(3)));
        assert_eq!(at.before(secs(5)), Some(Timestamp::ZERO));
        assert_eq!(at.before(secs(6)), None);
        assert_eq!(at.before(Duration::MAX), None);
    }

    #[test]
    fn the_host_clock_starts_at_the_wall_and_never_goes_back() {
        let clock = Clock::host();
        let first = clock.now();
        assert!(Timestamp::from_secs(1_600_000_000) < first);
        assert!(first <= clock.now());
    }

    #[test]
    fn a_manual_clock_moves_only_by_hand() {
        let clock = Clock::manual(Timestamp::from_secs(10));
        clock.advance(Duration::from_secs(5));
        assert_eq!(clock.now(), Timestamp::from_secs(15));
        assert_eq!(
            Timestamp::from_secs(3).since(clock.now()),
            Duration::ZERO,
            "an instant ahead is no time ago"
        );
    }

    #[test]
    fn a_timestamp_prints_as_rfc_3339() {
        assert_eq!(
            Timestamp::from_micros(1_600_000_000_250_000).to_string(),
            "2020-09-13T12:26:40.250000Z"
        );
    }
}
