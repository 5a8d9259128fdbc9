//! Decides whether a session may open or wake, and which session gives way.

use super::hold::Sweeps;
use super::lifecycle::InUse;
use super::record::{Record, Status};
use crate::clock::Timestamp;
use crate::id::{SessionId, Tenant};
use crate::policy::Capacity;

/// What counts towards the ceilings at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// One seat for each session that is open, or still holds a container.
    pub seats: Vec<Seat>,
    /// Whether a sleeper may be closed for an opening.
    pub sweeps: Sweeps,
}

/// One session as the ceilings see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The session.
    pub id: SessionId,
    /// The tenant under whose ceiling it counts.
    pub tenant: Option<Tenant>,
    /// Where it stands.
    pub standing: Standing,
    /// When it was last used.
    pub last_used: Timestamp,
    /// Whether something uses it now.
    pub in_use: InUse,
    /// The generation of its marks, to which a victim is held.
    pub generation: u64,
}

/// Where a session stands with the ceilings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Open, and its container runs or will.
    Resident,
    /// Open, and its start keeps failing: nothing runs, and it is tried again.
    Failing,
    /// Open and asleep since then, with no container running.
    Asleep(Timestamp),
    /// Open and on its way to sleep: its container still runs.
    FallingAsleep(Timestamp),
    /// Over, while its container still runs.
    Closing,
}

impl Standing {
    /// Returns where a session stands; `None` where it does not count.
    pub fn of(record: &Record, status: Option<&Status>) -> Option<Self> {
        let marks = &record.marks;
        let reached = status.is_some_and(|status| status.has_reached(marks));
        let made = status.is_some_and(|status| status.key.is_some());
        let fails = status.is_some_and(|status| 0 < status.attempts);
        match (&marks.closed, &marks.parked, reached) {
            (Some(_), _, false) if made => Some(Self::Closing),
            (Some(_), _, _) => None,
            (None, Some(parked), true) => Some(Self::Asleep(parked.at)),
            (None, Some(parked), false) => Some(Self::FallingAsleep(parked.at)),
            (None, None, false) if fails => Some(Self::Failing),
            (None, None, _) => Some(Self::Resident),
        }
    }

    /// Returns whether the session is open.
    pub fn is_open(self) -> bool {
        match self {
            Self::Resident | Self::Failing | Self::FallingAsleep(_) | Self::Asleep(_) => true,
            Self::Closing => false,
        }
    }
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// A new session opens, under this tenant.
    Open(Option<Tenant>),
    /// This sleeping session wakes.
    Wake(SessionId),
}

/// May go ahead, once these have given way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admission {
    /// Put to sleep for it.
    pub park: Option<Victim>,
    /// Closed for it, files kept.
    pub close: Option<Victim>,
}

/// A session that gives way, as the census saw it.
///
/// Whoever acts on it holds the store to this generation: what was closed or
/// woken meanwhile is no victim any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim {
    /// The session.
    pub id: SessionId,
    /// The generation of its marks.
    pub generation: u64,
}

impl From<&Seat> for Victim {
    fn from(seat: &Seat) -> Self {
        Self {
            id: seat.id.clone(),
            generation: seat.generation,
        }
    }
}

/// The ceiling that refuses, its value, and what counts towards it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// Open sessions.
    Open {
        /// The ceiling.
        limit: u64,
        /// What counts.
        used: u64,
    },
    /// Open sessions of the tenant.
    Tenant {
        /// The tenant.
        tenant: Tenant,
        /// The ceiling.
        limit: u64,
        /// What counts.
        used: u64,
    },
    /// Resident sandboxes.
    Resident {
        /// The ceiling.
        limit: u64,
        /// What counts.
        used: u64,
    },
}

/// Decides whether a session may open or wake.
///
/// Nobody gives way for a request that is refused after all: victims are named
/// only in an admission.
pub fn admit(
    census: &Census,
    capacity: &Capacity,
    ask: &Ask,
    now: Timestamp,
) -> Result<Admission, Denied> {
    let close = match ask {
        Ask::Open(tenant) => {
            let close = open_room(census, capacity)?;
            tenant_room(census, capacity, tenant.as_ref(), close)?;
            close
        }
        Ask::Wake(_) => None,
    };
    let park = resident_room(census, capacity, ask, now)?;
    Ok(Admission {
        park: park.map(Victim::from),
        close: close.map(Victim::from),
    })
}

/// Finds a place among the open sessions: a free one, or the longest sleeper's.
fn open_room<'c>(census: &'c Census, capacity: &Capacity) -> Result<Option<&'c Seat>, Denied> {
    let open = || census.seats.iter().filter(|seat| seat.standing.is_open());
    let used = count(open());
    let Some(limit) = capacity.max_open_sessions.filter(|limit| *limit <= used) else {
        return Ok(None);
    };
    let asleep = |seat: &&Seat| match seat.standing {
        Standing::Asleep(since) if seat.in_use == InUse::No => Some(since),
        Standing::Asleep(_)
        | Standing::Resident
        | Standing::Failing
        | Standing::FallingAsleep(_)
        | Standing::Closing => None,
    };
    open()
        .filter(|seat| census.sweeps == Sweeps::On && asleep(seat).is_some())
        .min_by_key(|seat| (asleep(seat), seat.id.clone()))
        .map(Some)
        .ok_or(Denied::Open { limit, used })
}

fn tenant_room(
    census: &Census,
    capacity: &Capacity,
    tenant: Option<&Tenant>,
    leaves: Option<&Seat>,
) -> Result<(), Denied> {
    let (Some(tenant), Some(limit)) = (tenant, capacity.max_sessions_per_tenant) else {
        return Ok(());
    };
    let used = count(census.seats.iter().filter(|seat| {
        seat.standing.is_open()
            && seat.tenant.as_ref() == Some(tenant)
            && leaves.is_none_or(|victim| victim.id != seat.id)
    }));
    if used < limit {
        Ok(())
    } else {
        Err(Denied::Tenant {
            tenant: tenant.clone(),
            limit,
            used,
        })
    }
}

/// Finds a place among the resident ones: a free one, or the most idle one's.
fn resident_room<'c>(
    census: &'c Census,
    capacity: &Capacity,
    ask: &Ask,
    now: Timestamp,
) -> Result<Option<&'c Seat>, Denied> {
    let others = || {
        census.seats.iter().filter(|seat| match ask {
            Ask::Open(_) => true,
            Ask::Wake(id) => seat.id != *id,
        })
    };
    // A container on its way out is not counted: whoever is admitted into its
    // place starts only once it has stopped, which the reconciler sees to.
    let used = count(others().filter(|seat| seat.standing == Standing::Resident));
    let Some(limit) = capacity.max_sessions.filter(|limit| *limit <= used) else {
        return Ok(None);
    };
    let denied = Denied::Resident { limit, used };
    let Some(idle) = capacity.evict_idle_after else {
        return Err(denied);
    };
    others()
        .filter(|seat| {
            seat.standing == Standing::Resident
                && seat.in_use == InUse::No
                && idle <= now.since(seat.last_used)
        })
        .min_by_key(|seat| (seat.last_used, std::cmp::Reverse(seat.id.clone())))
        .map(Some)
        .ok_or(denied)
}

fn count<T>(items: impl Iterator<Item = T>) -> u64 {
    u64::try_from(items.count()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const T0: Timestamp = Timestamp::from_secs(1_700_000_000);

    fn mins(n: u64) -> Timestamp {
        T0.plus(Duration::from_mins(n))
    }

    fn seat(id: &str, standing: Standing) -> Seat {
        Seat {
            id: SessionId::parse(id).unwrap(),
            tenant: None,
            standing,
            last_used: T0,
            in_use: InUse::No,
            generation: 7,
        }
    }

    fn victim(text: &str) -> Victim {
        Victim {
            id: id(text),
            generation: 7,
        }
    }

    fn census(seats: &[Seat]) -> Census {
        Census {
            seats: seats.to_vec(),
            sweeps: Sweeps::On,
        }
    }

    fn id(text: &str) -> SessionId {
        SessionId::parse(text).unwrap()
    }

    fn residents_of_two() -> Capacity {
        Capacity {
            max_sessions: Some(2),
            ..Capacity::default()
        }
    }

    #[test]
    fn without_ceilings_everybody_is_admitted() {
        let full = census(&[seat("a", Standing::Resident), seat("b", Standing::Resident)]);
        assert_eq!(
            admit(&full, &Capacity::default(), &Ask::Open(None), T0),
            Ok(Admission::default())
        );
    }

    #[test]
    fn a_full_house_refuses_with_its_numbers() {
        let full = census(&[seat("a", Standing::Resident), seat("b", Standing::Resident)]);
        assert_eq!(
            admit(&full, &residents_of_two(), &Ask::Open(None), T0),
            Err(Denied::Resident { limit: 2, used: 2 })
        );
    }

    #[test]
    fn a_session_that_keeps_failing_to_start_takes_nobody_s_place() {
        let seats = census(&[seat("a", Standing::Failing), seat("b", Standing::Resident)]);
        assert!(admit(&seats, &residents_of_two(), &Ask::Open(None), T0).is_ok());
        let open_of_two = Capacity {
            max_open_sessions: Some(2),
            ..Capacity::default()
        };
        assert!(admit(&seats, &open_of_two, &Ask::Open(None), T0).is_err());
    }

    #[test]
    fn a_place_that_is_being_left_is_given_once() {
        let leaving = census(&[seat("a", Standing::Closing), seat("b", Standing::Resident)]);
        assert!(admit(&leaving, &residents_of_two(), &Ask::Open(None), T0).is_ok());
        let taken = census(&[
            seat("a", Standing::FallingAsleep(T0)),
            seat("b", Standing::Resident),
            seat("c", Standing::Resident),
        ]);
        assert!(admit(&taken, &residents_of_two(), &Ask::Open(None), T0).is_err());
    }

    #[test]
    fn the_most_idle_gives_way_and_nobody_in_use_does() {
        let capacity = Capacity {
            evict_idle_after: Some(Duration::from_mins(5)),
            ..residents_of_two()
        };
        let older = seat("a", Standing::Resident);
        let newer = Seat {
            last_used: mins(1),
            ..seat("b", Standing::Resident)
        };
        let open = |seats: &[Seat], now| admit(&census(seats), &capacity, &Ask::Open(None), now);
        let both = [older.clone(), newer.clone()];
        assert_eq!(open(&both, mins(10)).unwrap().park, Some(victim("a")));
        assert!(
            open(&both, mins(4)).is_err(),
            "nobody is idle for long enough"
        );
        let busy = [
            Seat {
                in_use: InUse::Yes,
                ..older
            },
            newer,
        ];
        assert_eq!(open(&busy, mins(10)).unwrap().park, Some(victim("b")));
    }

    #[test]
    fn a_refused_opening_costs_nobody_their_session() {
        let capacity = Capacity {
            max_sessions: Some(1),
            max_open_sessions: Some(2),
            ..Capacity::default()
        };
        let seats = census(&[
            seat("a", Standing::Resident),
            seat("b", Standing::Asleep(T0)),
        ]);
        assert_eq!(
            admit(&seats, &capacity, &Ask::Open(None), mins(60)),
            Err(Denied::Resident { limit: 1, used: 1 }),
            "the sleeper is not closed for an opening that is refused"
        );
    }

    #[test]
    fn the_longest_sleeper_is_closed_for_an_opening() {
        let capacity = Capacity {
            max_open_sessions: Some(2),
            ..Capacity::default()
        };
        let seats = census(&[
            seat("a", Standing::Asleep(mins(2))),
            seat("b", Standing::Asleep(mins(1))),
        ]);
        assert_eq!(
            admit(&seats, &capacity, &Ask::Open(None), mins(3))
                .unwrap()
                .close,
            Some(victim("b"))
        );
    }

    #[test]
    fn while_sweeps_are_off_no_sleeper_is_closed_for_an_opening() {
        let capacity = Capacity {
            max_open_sessions: Some(1),
            ..Capacity::default()
        };
        let held = Census {
            sweeps: Sweeps::Off,
            ..census(&[seat("a", Standing::Asleep(T0))])
        };
        assert_eq!(
            admit(&held, &capacity, &Ask::Open(None), mins(3)),
            Err(Denied::Open { limit: 1, used: 1 })
        );
    }

    #[test]
    fn a_tenant_is_held_to_its_own_ceiling_alone() {
        let capacity = Capacity {
            max_sessions_per_tenant: Some(1),
            ..Capacity::default()
        };
        let tenant = Tenant::parse("t").unwrap();
        let held = Seat {
            tenant: Some(tenant.clone()),
            ..seat("a", Standing::Asleep(T0))
        };
        let ask = |tenant: Option<Tenant>| {
            admit(
                &census(std::slice::from_ref(&held)),
                &capacity,
                &Ask::Open(tenant),
                T0,
            )
        };
        assert!(ask(None).is_ok());
        assert!(ask(Some(Tenant::parse("u").unwrap())).is_ok());
        assert_eq!(
            ask(Some(tenant.clone())),
            Err(Denied::Tenant {
                tenant,
                limit: 1,
                used: 1
            })
        );
    }

    #[test]
    fn a_session_that_wakes_does_not_stand_in_its_own_way() {
        let seats = census(&[
            seat("a", Standing::Asleep(T0)),
            seat("b", Standing::Resident),
        ]);
        assert!(admit(&seats, &residents_of_two(), &Ask::Wake(id("a")), T0).is_ok());
        let full = census(&[
            seat("a", Standing::Asleep(T0)),
            seat("b", Standing::Resident),
            seat("c", Standing::Resident),
        ]);
        assert!(admit(&full, &residents_of_two(), &Ask::Wake(id("a")), T0).is_err());
    }
}
