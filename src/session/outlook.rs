//! Decides what a session's caller is told to come next.
//!
//! It follows from what is stored, so that it costs no look at the engine.

use super::lifecycle::{Activity, Aim, InUse, Keep, aim};
use super::phase::Phase;
use super::record::{Marks, Reason, Record, Status};
use crate::clock::Timestamp;
use crate::policy::Lifetimes;

/// What comes next for an open session, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coming {
    /// What.
    pub step: Coarse,
    /// When; `None` where it is under way, or waits for what has no time.
    pub at: Option<Timestamp>,
}

/// A step as callers know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coarse {
    /// Its container is made, where there is none, and started.
    Start,
    /// Its container is stopped, and started again on next use.
    Stop,
    /// It is closed.
    Close,
}

impl Coarse {
    /// Returns the word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Close => "close",
        }
    }

    /// What leads to an aim.
    fn towards(aim: Aim) -> Self {
        match aim {
            Aim::Running => Self::Start,
            Aim::Drowsy(_) | Aim::Parked(_) => Self::Stop,
            Aim::Over(_) | Aim::Closed(_) | Aim::Gone => Self::Close,
        }
    }
}

/// Says what comes next if nobody uses the session from now on.
///
/// `due` is when the controller looks at it next, where that is known.
pub fn coming(
    (record, status): (&Record, &Status),
    lifetimes: &Lifetimes,
    activity: Activity,
    (now, due): (Timestamp, Option<Timestamp>),
) -> Option<Coming> {
    let (present, deadline) = aim(&record.marks, lifetimes, activity, now);
    if !status.has_reached(&record.marks) {
        return Some(Coming {
            step: Coarse::towards(present),
            at: due,
        });
    }
    match present {
        Aim::Running | Aim::Parked(_) => {}
        // Due, and not done yet; a container with the only copy of the files is not
        // stopped for it, and runs until the session is over.
        Aim::Drowsy(_) => {
            return Some(Coming {
                step: Coarse::Stop,
                at: due,
            });
        }
        Aim::Over(_) | Aim::Closed(_) | Aim::Gone => {
            return Some(Coming {
                step: Coarse::Close,
                at: due,
            });
        }
    }
    // A time that never comes is none.
    let deadline = deadline.filter(|at| *at < Timestamp::from_micros(u64::MAX))?;
    let idle = Activity {
        now: InUse::No,
        ..activity
    };
    let then = match activity.now {
        InUse::No => after(&record.marks, lifetimes, idle, deadline),
        InUse::Yes => after(&record.marks, lifetimes, used_at(idle, now), deadline),
    };
    Some(Coming {
        step: Coarse::towards(then),
        at: match activity.now {
            InUse::No => Some(deadline),
            // Nobody knows when that use ends.
            InUse::Yes => None,
        },
    })
}

/// What a session should be once a deadline has passed.
fn after(marks: &Marks, lifetimes: &Lifetimes, activity: Activity, deadline: Timestamp) -> Aim {
    let passed = deadline.plus(std::time::Duration::from_micros(1));
    aim(marks, lifetimes, activity, passed).0
}

fn used_at(activity: Activity, now: Timestamp) -> Activity {
    Activity {
        last_used: now,
        ..activity
    }
}

/// Returns since when an open session is what it is.
pub fn since(record: &Record, status: &Status, phase: Phase) -> Timestamp {
    let marks = &record.marks;
    match (phase, &marks.parked) {
        (Phase::Opening, _) => record.spec.opened_at,
        // Waking began with the use that woke it.
        (Phase::Waking | Phase::Failed, _) => marks.last_used,
        (Phase::Running, _) | (_, None) => status.since,
        (Phase::Hibernating | Phase::Hibernated | Phase::Lost, Some(parked)) => parked.at,
    }
}

/// Names what was last seen of an open session's container.
pub fn container_state(record: &Record, status: &Status, phase: Phase, keep: Keep) -> &'static str {
    let gone = record
        .marks
        .parked
        .as_ref()
        .is_some_and(|parked| parked.reason == Reason::ContainerLost || status.files_lost);
    match phase {
        Phase::Running => "running",
        Phase::Opening | Phase::Waking | Phase::Failed => "starting",
        Phase::Hibernating => "stopping",
        Phase::Hibernated | Phase::Lost if gone || keep == Keep::Files => "absent",
        Phase::Hibernated | Phase::Lost => "stopped",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::session::lifecycle::tests::{T0, lifetimes};
    use crate::session::testing;

    fn activity(now: InUse) -> Activity {
        Activity {
            last_used: T0,
            now,
            floor: T0,
        }
    }

    fn mins(n: u64) -> Timestamp {
        T0.plus(Duration::from_mins(n))
    }

    fn reached() -> Status {
        Status {
            reached: 9,
            ..Status::default()
        }
    }

    fn told(
        record: &Record,
        status: &Status,
        now: InUse,
        due: Option<Timestamp>,
    ) -> Option<Coming> {
        coming(
            (record, status),
            &lifetimes(),
            activity(now),
            (mins(1), due),
        )
    }

    #[test]
    fn what_is_idle_is_closed_at_its_deadline_and_what_is_used_at_no_known_time() {
        let running = testing::record("a");
        let close = |at| {
            Some(Coming {
                step: Coarse::Close,
                at,
            })
        };
        assert_eq!(
            told(&running, &reached(), InUse::No, None),
            close(Some(mins(30)))
        );
        assert_eq!(told(&running, &reached(), InUse::Yes, None), close(None));
        let asleep = running.with(running.marks.parked(mins(1), Reason::Evicted));
        assert_eq!(
            told(&asleep, &reached(), InUse::No, None),
            close(Some(mins(31)))
        );
        let late = coming(
            (&running, &reached()),
            &lifetimes(),
            activity(InUse::No),
            (mins(31), Some(mins(32))),
        );
        assert_eq!(late, close(Some(mins(32))));
    }

    #[test]
    fn what_is_on_its_way_goes_on_when_the_controller_looks_next() {
        let record = testing::record("a");
        let asleep = record.with(record.marks.parked(mins(1), Reason::Evicted));
        for due in [None, Some(mins(2))] {
            for (record, step) in [(&record, Coarse::Start), (&asleep, Coarse::Stop)] {
                let coming = told(record, &Status::default(), InUse::No, due);
                assert_eq!(coming, Some(Coming { step, at: due }));
            }
        }
    }

    #[test]
    fn where_time_ends_nothing_nothing_comes() {
        let never = Lifetimes {
            idle_timeout: Duration::MAX,
            ..lifetimes()
        };
        for now in [InUse::No, InUse::Yes] {
            let record = testing::record("a");
            let coming = coming(
                (&record, &reached()),
                &never,
                activity(now),
                (mins(1), None),
            );
            assert_eq!(coming, None);
        }
    }

    #[test]
    fn a_container_is_said_to_be_what_the_last_look_left_it() {
        let open = testing::record("a");
        let says =
            |record: &Record, phase, keep| container_state(record, &Status::default(), phase, keep);
        assert_eq!(says(&open, Phase::Running, Keep::Files), "running");
        assert_eq!(says(&open, Phase::Failed, Keep::Files), "starting");
        let asleep = open.with(open.marks.parked(T0, Reason::Evicted));
        assert_eq!(says(&asleep, Phase::Hibernated, Keep::Files), "absent");
        assert_eq!(says(&asleep, Phase::Hibernated, Keep::Container), "stopped");
        let lost = open.with(open.marks.parked(T0, Reason::ContainerLost));
        assert_eq!(says(&lost, Phase::Hibernated, Keep::Container), "absent");
    }
}
