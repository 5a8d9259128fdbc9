//! Decides what a session should be at this instant, and when that changes next.

use std::time::Duration;

use super::hold::Sweeps;
use super::record::{Closed, Marks, Purge, Reason};
use crate::clock::Timestamp;
use crate::policy::{Home, Lifetimes, Persist};

/// What a session should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// Its container runs.
    Running,
    /// Idle for long enough to sleep, and nobody has written so yet.
    Drowsy(Reason),
    /// Asleep: no container runs, and the next use wakes it.
    Parked(Keep),
    /// Over: no container runs, and the files stay.
    Closed(Keep),
    /// Over, and nobody has written so yet.
    Over(Reason),
    /// Nothing of it is left.
    Gone,
}

/// What a session without a running container keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The stopped container, and the files.
    Container,
    /// The files alone.
    Files,
}

/// What is known of a session's use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activity {
    /// When it was last used.
    pub last_used: Timestamp,
    /// Whether something uses it now.
    pub now: InUse,
    /// Nothing ages from before this instant.
    pub floor: Timestamp,
}

/// Whether something uses a session at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InUse {
    /// Nothing does.
    No,
    /// A command or another operation does.
    Yes,
}

/// Decides what a session should be, and when that changes if nothing happens.
///
/// Idleness counts from `activity.floor` at the earliest, so that a clock that was
/// stepped while the daemon was down ages nothing.
pub fn aim(
    marks: &Marks,
    lifetimes: &Lifetimes,
    activity: Activity,
    now: Timestamp,
) -> (Aim, Option<Timestamp>) {
    if let Some(closed) = &marks.closed {
        let (at, used) = over_since(closed, activity, now);
        return match closed.purge {
            Purge::Yes => (Aim::Gone, None),
            Purge::No => over(lifetimes, at, used, now),
        };
    }
    let since = idle_since(marks, activity, now);
    let end = since.plus(lifetimes.idle_timeout);
    let sleepy = |from: Timestamp| lifetimes.hibernate_idle_after.map(|after| from.plus(after));
    // What comes first of sleep and end, for one that runs and is idle from then on.
    let running = |from: Timestamp, end| sleepy(from).map_or(end, |sleepy| sleepy.min(end));
    match (activity.now, &marks.parked) {
        (InUse::No, _) if end < now => (Aim::Over(Reason::Idle), None),
        (InUse::No, Some(_)) => (Aim::Parked(keep(lifetimes)), Some(end)),
        (InUse::No, None) if sleepy(since).is_some_and(|sleepy| sleepy < now) => {
            (Aim::Drowsy(Reason::Idle), Some(end))
        }
        (InUse::No, None) => (Aim::Running, Some(running(since, end))),
        // Its use ends now at the earliest, so that is from when idleness counts.
        (InUse::Yes, Some(_)) => (
            Aim::Parked(keep(lifetimes)),
            Some(now.plus(lifetimes.idle_timeout)),
        ),
        (InUse::Yes, None) => {
            let end = now.plus(lifetimes.idle_timeout);
            (Aim::Running, Some(running(now, end)))
        }
    }
}

/// Returns since when an open session is idle.
pub(super) fn idle_since(marks: &Marks, activity: Activity, now: Timestamp) -> Timestamp {
    let since = match &marks.parked {
        Some(parked) => activity.last_used.max(parked.at),
        None => activity.last_used,
    };
    believed(since, activity.floor, now).max(activity.floor)
}

/// Returns since when a session is over, and when something of it was last used.
pub(super) fn over_since(
    closed: &Closed,
    activity: Activity,
    now: Timestamp,
) -> (Timestamp, Timestamp) {
    let believed = |at| believed(at, activity.floor, now);
    let at = believed(closed.at).max(activity.floor);
    (at, believed(activity.last_used).max(at))
}

/// Returns a stored time, or the floor where it lies far ahead: then the clock that it
/// was read from was wrong, and would keep a session for as long as it was ahead.
fn believed(at: Timestamp, floor: Timestamp, now: Timestamp) -> Timestamp {
    if AHEAD_MAX < at.since(now) { floor } else { at }
}

/// The furthest that a stored time is believed ahead: what is used while it is looked
/// at is used a moment later than the look.
const AHEAD_MAX: Duration = Duration::from_mins(1);

/// Returns the lifetimes that hold for a session: while sweeps are off, time ends
/// nothing, and falling asleep only stops a container. What a caller closed is ended
/// as ever.
///
/// Without a workspace root the time of workspaces says nothing about containers, which
/// hold the only copy of the files then.
pub fn lifetimes_under(
    sweeps: Sweeps,
    home: Home,
    lifetimes: &Lifetimes,
    marks: &Marks,
) -> Lifetimes {
    match sweeps {
        Sweeps::On => Lifetimes {
            workspace_ttl: match home {
                Home::Host => lifetimes.workspace_ttl,
                Home::Container => None,
            },
            ..lifetimes.clone()
        },
        Sweeps::Off => Lifetimes {
            idle_timeout: Duration::MAX,
            hibernate_idle_after: None,
            workspace_ttl: None,
            container_ttl: None,
            persist: match &marks.closed {
                Some(_) => lifetimes.persist,
                None => Persist::Yes,
            },
        },
    }
}

/// Returns the instant before which the age of a closed session's remains is not
/// counted, given when the records last changed and when the daemon started.
///
/// A daemon that was down for a month, or that started before its own records,
/// reads a clock that was set in between, for all that it knows.
pub fn trusted_from(last_known: Option<Timestamp>, started: Timestamp) -> Timestamp {
    match last_known {
        Some(known) if started < known || DOWN_MAX < started.since(known) => started,
        Some(_) | None => Timestamp::ZERO,
    }
}

/// The longest time between two runs that the wall clock is believed.
const DOWN_MAX: Duration = Duration::from_hours(30 * 24);

/// What is left of a session that is over.
fn over(
    lifetimes: &Lifetimes,
    closed: Timestamp,
    used: Timestamp,
    now: Timestamp,
) -> (Aim, Option<Timestamp>) {
    let passes = |from: Timestamp, ttl: Option<Duration>| ttl.map(|ttl| from.plus(ttl));
    let files_end = passes(used, lifetimes.workspace_ttl);
    if files_end.is_some_and(|end| end < now) {
        return (Aim::Gone, None);
    }
    if keep(lifetimes) == Keep::Files {
        return (Aim::Closed(Keep::Files), files_end);
    }
    let container_end = passes(closed, lifetimes.container_ttl);
    if container_end.is_some_and(|end| end < now) {
        return (Aim::Closed(Keep::Files), files_end);
    }
    let next = [files_end, container_end].into_iter().flatten().min();
    (Aim::Closed(Keep::Container), next)
}

fn keep(lifetimes: &Lifetimes) -> Keep {
    match lifetimes.persist {
        Persist::Yes => Keep::Container,
        Persist::No => Keep::Files,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::session::record::Parked;

    pub(crate) const T0: Timestamp = Timestamp::from_secs(1_700_000_000);

    pub(crate) fn lifetimes() -> Lifetimes {
        Lifetimes {
            idle_timeout: Duration::from_mins(30),
            hibernate_idle_after: None,
            workspace_ttl: Some(Duration::from_hours(2)),
            container_ttl: Some(Duration::from_hours(1)),
            persist: Persist::Yes,
        }
    }

    pub(crate) fn marks() -> Marks {
        Marks {
            generation: 1,
            last_used: T0,
            parked: None,
            closed: None,
            slept: None,
        }
    }

    fn idle_since(last_used: Timestamp) -> Activity {
        Activity {
            last_used,
            now: InUse::No,
            floor: T0,
        }
    }

    fn mins(n: u64) -> Timestamp {
        T0.plus(Duration::from_mins(n))
    }

    #[test]
    fn an_open_session_runs_until_its_idle_deadline_and_is_then_over() {
        let at = |now| aim(&marks(), &lifetimes(), idle_since(T0), now);
        assert_eq!(at(T0), (Aim::Running, Some(mins(30))));
        assert_eq!(at(mins(30)), (Aim::Running, Some(mins(30))));
        assert_eq!(at(mins(31)), (Aim::Over(Reason::Idle), None));
    }

    #[test]
    fn what_is_in_use_is_never_over() {
        let busy = Activity {
            last_used: T0,
            now: InUse::Yes,
            floor: T0,
        };
        assert_eq!(
            aim(&marks(), &lifetimes(), busy, mins(10_000)),
            (Aim::Running, Some(mins(10_030)))
        );
    }

    #[test]
    fn an_idle_session_is_drowsy_from_its_own_deadline_until_its_end() {
        // Minutes of hibernate_idle_after, since the last use, and what follows from them.
        let drowsy = Aim::Drowsy(Reason::Idle);
        let over = Aim::Over(Reason::Idle);
        let cases: [(u64, u64, Aim, Option<u64>); 10] = [
            (5, 0, Aim::Running, Some(5)),
            (5, 5, Aim::Running, Some(5)),
            (5, 6, drowsy, Some(30)),
            (5, 30, drowsy, Some(30)),
            (5, 31, over, None),
            (0, 0, Aim::Running, Some(0)),
            (0, 1, drowsy, Some(30)),
            // What would sleep only once it is over never does.
            (30, 30, Aim::Running, Some(30)),
            (30, 31, over, None),
            (60, 29, Aim::Running, Some(30)),
        ];
        for (after, at, expected, next) in cases {
            let policy = Lifetimes {
                hibernate_idle_after: Some(Duration::from_mins(after)),
                ..lifetimes()
            };
            let told = aim(&marks(), &policy, idle_since(T0), mins(at));
            assert_eq!(told, (expected, next.map(mins)), "{after} {at}");
        }
    }

    #[test]
    fn what_is_used_or_asleep_or_held_is_never_drowsy() {
        let policy = Lifetimes {
            hibernate_idle_after: Some(Duration::from_mins(5)),
            ..lifetimes()
        };
        let at = |marks: &Marks, now: InUse, policy: &Lifetimes| {
            let activity = Activity {
                now,
                ..idle_since(T0)
            };
            aim(marks, policy, activity, mins(10))
        };
        let used = (Aim::Running, Some(mins(15)));
        assert_eq!(at(&marks(), InUse::Yes, &policy), used);
        let asleep = marks().parked(T0, Reason::Evicted);
        for now in [InUse::No, InUse::Yes] {
            assert_eq!(at(&asleep, now, &policy).0, Aim::Parked(Keep::Container));
        }
        let held = lifetimes_under(Sweeps::Off, Home::Host, &policy, &marks());
        assert_eq!(at(&marks(), InUse::No, &held).0, Aim::Running);
        // What was woken just now was used just now.
        let woken = asleep.woken(mins(9));
        let activity = idle_since(woken.last_used);
        assert_eq!(aim(&woken, &policy, activity, mins(10)).0, Aim::Running);
        // Nor does a step of the clock while the daemon was down make anything drowsy.
        let floored = Activity {
            floor: mins(9),
            ..idle_since(T0)
        };
        assert_eq!(aim(&marks(), &policy, floored, mins(10)).0, Aim::Running);
    }

    #[test]
    fn a_parked_session_ends_by_the_time_it_is_asleep() {
        let parked = Marks {
            parked: Some(Parked {
                at: mins(20),
                reason: Reason::Evicted,
            }),
            ..marks()
        };
        let at = |now| aim(&parked, &lifetimes(), idle_since(T0), now);
        assert_eq!(at(mins(40)), (Aim::Parked(Keep::Container), Some(mins(50))));
        assert_eq!(at(mins(51)), (Aim::Over(Reason::Idle), None));
    }

    #[test]
    fn a_closed_session_loses_its_container_first_and_its_files_at_their_own_time() {
        let closed = Marks {
            closed: Some(Closed {
                at: T0,
                purge: Purge::No,
                reason: Reason::Requested,
            }),
            ..marks()
        };
        let at = |now| aim(&closed, &lifetimes(), idle_since(T0), now);
        assert_eq!(at(T0), (Aim::Closed(Keep::Container), Some(mins(60))));
        assert_eq!(at(mins(61)), (Aim::Closed(Keep::Files), Some(mins(120))));
        assert_eq!(at(mins(121)), (Aim::Gone, None));
        let kept = Lifetimes {
            workspace_ttl: None,
            container_ttl: None,
            ..lifetimes()
        };
        assert_eq!(
            aim(&closed, &kept, idle_since(T0), mins(1_000_000)),
            (Aim::Closed(Keep::Container), None)
        );
    }

    #[test]
    fn while_sweeps_are_off_time_ends_nothing_and_a_caller_still_does() {
        let mut policy = lifetimes();
        policy.persist = Persist::No;
        let at = |marks: &Marks| {
            let held = lifetimes_under(Sweeps::Off, Home::Host, &policy, marks);
            aim(marks, &held, idle_since(T0), mins(1_000_000)).0
        };
        assert_eq!(at(&marks()), Aim::Running);
        let parked = marks().parked(T0, Reason::Idle);
        assert_eq!(at(&parked), Aim::Parked(Keep::Container));
        let closed = marks().closed(T0, Purge::No, Reason::Requested);
        assert_eq!(at(&closed), Aim::Closed(Keep::Files));
        let purged = marks().closed(T0, Purge::Yes, Reason::Requested);
        assert_eq!(at(&purged), Aim::Gone);
        let swept = lifetimes_under(Sweeps::On, Home::Host, &policy, &closed);
        assert_eq!(swept, policy);
    }

    #[test]
    fn without_a_workspace_root_the_time_of_workspaces_ends_no_container() {
        let mut policy = lifetimes();
        policy.container_ttl = None;
        let closed = marks().closed(T0, Purge::No, Reason::Requested);
        let at = |home| {
            let held = lifetimes_under(Sweeps::On, home, &policy, &closed);
            aim(&closed, &held, idle_since(T0), mins(1_000_000)).0
        };
        assert_eq!(at(Home::Host), Aim::Gone);
        assert_eq!(at(Home::Container), Aim::Closed(Keep::Container));
    }

    #[test]
    fn a_purge_is_gone_at_once() {
        let purged = Marks {
            closed: Some(Closed {
                at: T0,
                purge: Purge::Yes,
                reason: Reason::Requested,
            }),
            ..marks()
        };
        assert_eq!(
            aim(&purged, &lifetimes(), idle_since(T0), T0),
            (Aim::Gone, None)
        );
    }

    /// Law 7: the clock may show any time; what counts is time since the floor.
    #[test]
    fn a_jump_of_the_wall_clock_reaps_nothing() {
        for years in [0u64, 1, 10] {
            let start = T0.plus(Duration::from_hours(24 * 365 * years));
            let floored = Activity {
                floor: start,
                ..idle_since(T0)
            };
            assert_eq!(aim(&marks(), &lifetimes(), floored, start).0, Aim::Running);
            let closed = marks().closed(T0, Purge::No, Reason::Requested);
            assert_eq!(
                aim(&closed, &lifetimes(), floored, start).0,
                Aim::Closed(Keep::Container)
            );
        }
        // A month or more between two runs is not believed, nor a time before the records.
        assert_eq!(trusted_from(Some(T0), mins(60)), Timestamp::ZERO);
        let later = T0.plus(Duration::from_hours(24 * 365));
        assert_eq!(trusted_from(Some(T0), later), later);
        assert_eq!(trusted_from(Some(later), T0), T0);
        // What was last used by a clock that was ahead ages from the floor, and what is
        // used during the look is not idle.
        for years in [1u64, 10] {
            let ahead = mins(60).plus(Duration::from_hours(24 * 365 * years));
            let asleep = marks().parked(ahead, Reason::Idle);
            let used = idle_since(ahead);
            assert_eq!(
                aim(&asleep, &lifetimes(), used, mins(31)).0,
                Aim::Over(Reason::Idle)
            );
            let closed = marks().closed(ahead, Purge::No, Reason::Requested);
            assert_eq!(aim(&closed, &lifetimes(), used, mins(121)).0, Aim::Gone);
        }
        let long_ago = Activity {
            floor: Timestamp::ZERO,
            ..idle_since(T0.plus(Duration::from_millis(1)))
        };
        assert_eq!(aim(&marks(), &lifetimes(), long_ago, T0).0, Aim::Running);
        // A last use that lies ahead is no idle time at all.
        assert_eq!(
            aim(&marks(), &lifetimes(), idle_since(mins(60)), T0).0,
            Aim::Running
        );
    }
}
