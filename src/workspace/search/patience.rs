//! Says until when a walk may go on, and how far.

use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, Timestamp};

/// The deadline of a walk, and the word by which its caller calls it off.
///
/// A walk asks it every few entries and every few kilobytes.
#[derive(Clone, Debug)]
pub struct Patience {
    clock: Clock,
    deadline: Timestamp,
    cancelled: CancellationToken,
}

/// Why a walk has to end before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The deadline has passed.
    Late,
    /// The caller has gone.
    Cancelled,
}

impl Patience {
    /// Makes a patience that ends at `deadline` by `clock`, or when `cancelled` says so.
    pub fn new(clock: Clock, deadline: Timestamp, cancelled: CancellationToken) -> Self {
        Self {
            clock,
            deadline,
            cancelled,
        }
    }

    /// Returns whether the walk may go on.
    pub fn check(&self) -> Result<(), Stop> {
        if self.cancelled.is_cancelled() {
            Err(Stop::Cancelled)
        } else if self.deadline <= self.clock.now() {
            Err(Stop::Late)
        } else {
            Ok(())
        }
    }
}

/// How far a walk may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// So many levels of directories below the start are opened; at most [`DEPTH_MAX`].
    pub depth: usize,
    /// So many entries are looked at, over all directories.
    pub entries: usize,
}

/// No walk goes deeper, whatever its caller allows.
pub const DEPTH_MAX: usize = 4_096;

/// The bound that ended a walk before it had seen everything, the first one of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// There are more results than were asked for.
    Results,
    /// The results would have been larger than asked for.
    Bytes,
    /// The files to read would have been larger than allowed.
    Read,
    /// More entries than a walk looks at.
    Entries,
    /// A directory lies deeper than a walk goes.
    Depth,
    /// The deadline passed.
    Late,
}

#[cfg(test)]
pub(in crate::workspace) mod testing {
    use std::time::Duration;

    use super::*;

    /// A patience that no test outlives.
    pub(in crate::workspace) fn long() -> Patience {
        let clock = Clock::host();
        let deadline = clock.now().plus(Duration::from_mins(10));
        Patience::new(clock, deadline, CancellationToken::new())
    }

    /// A patience that has ended.
    pub(in crate::workspace) fn none() -> Patience {
        let clock = Clock::manual(Timestamp::from_secs(10));
        Patience::new(clock, Timestamp::from_secs(10), CancellationToken::new())
    }

    /// A patience whose caller has gone.
    pub(in crate::workspace) fn cancelled() -> Patience {
        let patience = long();
        patience.cancelled.cancel();
        patience
    }

    /// A reach that no test exceeds by chance.
    pub(in crate::workspace) const FAR: Reach = Reach {
        depth: DEPTH_MAX,
        entries: 1_000_000,
    };
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn patience_ends_at_the_deadline_and_when_the_caller_goes() {
        let clock = Clock::manual(Timestamp::from_secs(10));
        let cancelled = CancellationToken::new();
        let deadline = Timestamp::from_secs(20);
        let patience = Patience::new(clock.clone(), deadline, cancelled.clone());
        assert_eq!(patience.check(), Ok(()));
        clock.advance(Duration::from_secs(10));
        assert_eq!(patience.check(), Err(Stop::Late));
        cancelled.cancel();
        assert_eq!(patience.check(), Err(Stop::Cancelled));
    }
}
