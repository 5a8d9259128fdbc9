//! Decides what time takes of a session, and when, by the same rule that says what the
//! session should be.

use std::time::Duration;

use super::lifecycle::{Activity, Aim, InUse, Keep, aim, idle_since, over_since};
use super::record::{Marks, Purge, Reason};
use crate::clock::Timestamp;
use crate::policy::{Lifetimes, Persist};

/// What is about to be taken of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taking {
    /// What the session should be then.
    pub aim: Aim,
    /// Why.
    pub reason: Reason,
    /// From when on the limit counts.
    pub since: Timestamp,
    /// How long that may be; none where a caller asked for it.
    pub limit: Option<Duration>,
    /// When it is due.
    pub at: Timestamp,
}

/// Says what is taken of a session one after the other, as far as that is due by `until`
/// and nobody uses it before.
///
/// What is in use is not due: nobody knows when that ends. Of a session that is put to
/// sleep, what comes after that is another matter, for it counts from there; it is listed
/// for one that cannot be.
pub fn takings(
    marks: &Marks,
    lifetimes: &Lifetimes,
    activity: Activity,
    (now, until): (Timestamp, Timestamp),
) -> Vec<Taking> {
    let taken = |aim| taken(aim, marks, lifetimes, activity, now);
    let (mut present, mut deadline) = aim(marks, lifetimes, activity, now);
    let mut takings: Vec<Taking> = taken(present).into_iter().collect();
    for _ in 0..TAKINGS_MAX {
        let goes_on = match present {
            Aim::Running | Aim::Parked(_) | Aim::Drowsy(_) => activity.now == InUse::No,
            Aim::Closed(_) => true,
            Aim::Over(_) | Aim::Gone => false,
        };
        let Some(at) = deadline.filter(|at| goes_on && *at <= until) else {
            break;
        };
        let passed = at.plus(Duration::from_micros(1));
        (present, deadline) = aim(marks, lifetimes, activity, passed);
        takings.extend(taken(present));
    }
    takings
}

/// What is taken of one session by time: its place, then itself; or its container, then
/// its files.
const TAKINGS_MAX: usize = 2;

/// Says what an aim takes, where it takes anything.
fn taken(
    aim: Aim,
    marks: &Marks,
    lifetimes: &Lifetimes,
    activity: Activity,
    now: Timestamp,
) -> Option<Taking> {
    let over = marks.closed.as_ref();
    let (reason, limit, since) = match aim {
        Aim::Running | Aim::Parked(_) | Aim::Closed(Keep::Container) => return None,
        Aim::Drowsy(reason) => {
            let since = idle_since(marks, activity, now);
            (reason, lifetimes.hibernate_idle_after, since)
        }
        Aim::Over(reason) => {
            let since = idle_since(marks, activity, now);
            (reason, Some(lifetimes.idle_timeout), since)
        }
        Aim::Closed(Keep::Files) => {
            let (closed, _) = over_since(over?, activity, now);
            match lifetimes.persist {
                Persist::Yes => (Reason::Expired, lifetimes.container_ttl, closed),
                // It goes with its session.
                Persist::No => (over?.reason, None, closed),
            }
        }
        Aim::Gone => {
            let (closed, used) = over_since(over?, activity, now);
            match over?.purge {
                Purge::Yes => (over?.reason, None, closed),
                Purge::No => (Reason::Expired, lifetimes.workspace_ttl, used),
            }
        }
    };
    Some(Taking {
        aim,
        reason,
        since,
        limit,
        at: limit.map_or(since, |limit| since.plus(limit)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::lifecycle::tests::{T0, lifetimes, marks};

    fn mins(n: u64) -> Timestamp {
        T0.plus(Duration::from_mins(n))
    }

    fn idle() -> Activity {
        Activity {
            last_used: T0,
            now: InUse::No,
            floor: T0,
        }
    }

    /// What is due by so many minutes after T0, seen right at T0.
    fn due(marks: &Marks, lifetimes: &Lifetimes, by: u64) -> Vec<(Aim, Reason, Timestamp)> {
        let takings = takings(marks, lifetimes, idle(), (T0, mins(by)));
        let told = takings.into_iter().map(|taking| {
            assert_eq!(taking.since, T0, "it counts from the last use");
            (taking.aim, taking.reason, taking.at)
        });
        told.collect()
    }

    #[test]
    fn what_is_listed_is_what_the_rule_says_at_that_time_and_nothing_before() {
        let sleepy = Lifetimes {
            hibernate_idle_after: Some(Duration::from_mins(5)),
            ..lifetimes()
        };
        let fleeting = Lifetimes {
            persist: Persist::No,
            ..lifetimes()
        };
        let over = (Aim::Over(Reason::Idle), Reason::Idle, mins(30));
        let drowsy = (Aim::Drowsy(Reason::Idle), Reason::Idle, mins(5));
        let closed = marks().closed(T0, Purge::No, Reason::Requested);
        let files = Aim::Closed(Keep::Files);
        let container = (files, Reason::Expired, mins(60));
        let at_once = (files, Reason::Requested, T0);
        let gone = (Aim::Gone, Reason::Expired, mins(120));
        for (marks, lifetimes, by, expected) in [
            (marks(), lifetimes(), 29, vec![]),
            (marks(), lifetimes(), 30, vec![over]),
            (marks(), sleepy.clone(), 4, vec![]),
            (marks(), sleepy.clone(), 5, vec![drowsy]),
            (marks(), sleepy, 60, vec![drowsy, over]),
            (closed.clone(), lifetimes(), 59, vec![]),
            (closed.clone(), lifetimes(), 60, vec![container]),
            (closed.clone(), lifetimes(), 120, vec![container, gone]),
            (closed.clone(), fleeting.clone(), 119, vec![at_once]),
            (closed, fleeting, 120, vec![at_once, gone]),
        ] {
            assert_eq!(due(&marks, &lifetimes, by), expected, "by {by}");
        }
    }

    #[test]
    fn what_is_overdue_says_since_when_and_not_since_now() {
        let late = (mins(90), mins(90));
        let overdue = takings(&marks(), &lifetimes(), idle(), late);
        let told: Vec<_> = overdue
            .iter()
            .map(|taking| (taking.since, taking.at))
            .collect();
        assert_eq!(told, [(T0, mins(30))]);
    }

    #[test]
    fn what_is_in_use_is_not_due_and_what_a_caller_ended_is_at_once() {
        let used = Activity {
            now: InUse::Yes,
            ..idle()
        };
        let later = (T0, mins(10_000));
        assert_eq!(takings(&marks(), &lifetimes(), used, later), []);
        let purged = marks().closed(T0, Purge::Yes, Reason::Requested);
        let at_once = (Aim::Gone, Reason::Requested, T0);
        assert_eq!(due(&purged, &lifetimes(), 0), [at_once]);
    }
}
