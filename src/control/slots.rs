//! Counts the commands that run, so that neither one session nor all together take more
//! than they may.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Control, Refusal};
use crate::id::SessionId;

/// The places for commands; cheap to clone.
// A std mutex: it is held for a look into a small map, and never across an await.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots(Arc<Mutex<Taken>>);

/// The places that are taken.
#[derive(Debug, Default)]
struct Taken {
    all: usize,
    /// Only sessions with at least one.
    sessions: BTreeMap<SessionId, usize>,
}

/// The place of one command; dropping it frees it.
#[derive(Debug)]
pub(super) struct Slot {
    slots: Slots,
    id: SessionId,
}

/// How many commands may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ceilings {
    all: usize,
    session: usize,
}

impl Slots {
    /// Takes a place for a command that runs already, above the ceilings if need be.
    pub(super) fn adopt(&self, id: &SessionId) -> Slot {
        self.place(&mut self.taken(), id)
    }

    /// Takes a place where both ceilings leave one.
    fn take(&self, id: &SessionId, ceilings: Ceilings) -> Result<Slot, Refusal> {
        let mut taken = self.taken();
        let in_session = taken.sessions.get(id).copied().unwrap_or(0);
        // The session's own ceiling first: its callers can do something about that one.
        if ceilings.session <= in_session {
            return Err(Refusal::SessionCommandCeiling {
                id: id.clone(),
                limit: count(ceilings.session),
                used: count(in_session),
            });
        }
        if ceilings.all <= taken.all {
            return Err(Refusal::CommandCeiling {
                limit: count(ceilings.all),
                used: count(taken.all),
            });
        }
        Ok(self.place(&mut taken, id))
    }

    /// Returns how many commands have a place.
    pub(super) fn count(&self) -> usize {
        self.taken().all
    }

    /// Returns how many commands of a session have a place.
    pub(super) fn count_in(&self, id: &SessionId) -> u64 {
        count(self.taken().sessions.get(id).copied().unwrap_or(0))
    }

    fn place(&self, taken: &mut Taken, id: &SessionId) -> Slot {
        taken.all += 1;
        *taken.sessions.entry(id.clone()).or_insert(0) += 1;
        Slot {
            slots: self.clone(),
            id: id.clone(),
        }
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.slots.taken();
        taken.all = taken.all.saturating_sub(1);
        if let Some(in_session) = taken.sessions.get_mut(&self.id) {
            *in_session = in_session.saturating_sub(1);
            if *in_session == 0 {
                taken.sessions.remove(&self.id);
            }
        }
    }
}

impl Control {
    /// Takes a place for a command of a session, or says which ceiling refuses it.
    pub(super) fn slot(&self, id: &SessionId) -> Result<Slot, Refusal> {
        let policy = self.0.policy.get();
        let ceilings = Ceilings {
            all: policy.limits.max_running_commands,
            session: policy.limits.runs.per_session,
        };
        self.0.slots.take(id, ceilings)
    }
}

/// Says that as many commands run in a session as may.
pub(super) fn session_is_full(id: &SessionId, limit: usize) -> Refusal {
    Refusal::SessionCommandCeiling {
        id: id.clone(),
        limit: count(limit),
        used: count(limit),
    }
}

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CEILINGS: Ceilings = Ceilings { all: 4, session: 3 };

    fn id(n: usize) -> SessionId {
        SessionId::parse(&format!("s{n}")).unwrap()
    }

    /// What may be done with places.
    #[derive(Clone, Debug)]
    enum Act {
        Take(usize),
        Adopt(usize),
        Free(usize),
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let act = prop_oneof![
            3 => (0..3_usize).prop_map(Act::Take),
            1 => (0..3_usize).prop_map(Act::Adopt),
            2 => (0..8_usize).prop_map(Act::Free),
        ];
        proptest::collection::vec(act, 0..40)
    }

    proptest! {
        #[test]
        fn what_is_taken_is_what_is_held_and_no_more_is_given_than_there_is(acts in acts()) {
            let slots = Slots::default();
            let mut held: Vec<(usize, Slot)> = Vec::new();
            for act in acts {
                match act {
                    Act::Take(n) => {
                        let own = held.iter().filter(|(of, _)| *of == n).count();
                        let refusal = match slots.take(&id(n), CEILINGS) {
                            Ok(slot) => {
                                prop_assert!(own < CEILINGS.session && held.len() < CEILINGS.all);
                                held.push((n, slot));
                                continue;
                            }
                            Err(refusal) => refusal,
                        };
                        let expected = if CEILINGS.session <= own {
                            Refusal::SessionCommandCeiling { id: id(n), limit: 3, used: count(own) }
                        } else {
                            Refusal::CommandCeiling { limit: 4, used: count(held.len()) }
                        };
                        prop_assert_eq!(refusal, expected);
                    }
                    Act::Adopt(n) => held.push((n, slots.adopt(&id(n)))),
                    Act::Free(at) => {
                        if at < held.len() {
                            drop(held.swap_remove(at));
                        }
                    }
                }
                let taken = slots.taken();
                prop_assert_eq!(taken.all, held.len());
                prop_assert_eq!(taken.sessions.values().sum::<usize>(), held.len());
                prop_assert!(taken.sessions.values().all(|n| 0 < *n));
            }
            drop(held);
            prop_assert!(slots.taken().sessions.is_empty());
        }
    }
}
