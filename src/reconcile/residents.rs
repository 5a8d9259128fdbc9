//! Counts the containers that run or are about to, and who waits for a place.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::plan::Room;
use crate::id::SessionId;

/// Who has a place among the running containers; cheap to clone.
///
/// Admission decides who may run; this keeps the container of one who was
/// admitted in another's place from starting before that one has stopped.
#[derive(Clone, Debug, Default)]
pub struct Residents(Arc<Mutex<Places>>);

#[derive(Debug, Default)]
struct Places {
    taken: BTreeSet<SessionId>,
    waiting: BTreeSet<SessionId>,
    /// Whether the containers that run were counted since the start.
    counted: bool,
}

impl Residents {
    /// Takes a place for a session that is to start and whose container does not run, or
    /// makes it wait for one: then it has none.
    pub fn claim(&self, id: &SessionId, limit: Option<u64>) -> Room {
        let mut places = self.places();
        let others = places.taken.iter().filter(|other| *other != id).count();
        // Before the first count nobody knows how many run already.
        let free = limit
            .is_none_or(|limit| places.counted && u64::try_from(others).is_ok_and(|n| n < limit));
        if free {
            places.waiting.remove(id);
            places.taken.insert(id.clone());
            Room::Free
        } else {
            places.taken.remove(id);
            places.waiting.insert(id.clone());
            Room::Full
        }
    }

    /// Returns who has a place; nobody knows before the first count.
    pub fn holders(&self) -> Option<BTreeSet<SessionId>> {
        let places = self.places();
        places.counted.then(|| places.taken.clone())
    }

    /// Notes that a session's container runs, or may for all that is known, whatever the
    /// ceiling says.
    pub fn note(&self, id: &SessionId) {
        self.places().taken.insert(id.clone());
    }

    /// Notes that all containers that run were counted, and returns who waited
    /// for the first count.
    pub fn counted(&self) -> BTreeSet<SessionId> {
        let mut places = self.places();
        if places.counted {
            return BTreeSet::new();
        }
        places.counted = true;
        std::mem::take(&mut places.waiting)
    }

    /// Gives a session's place back, and returns who waited for one.
    pub fn release(&self, id: &SessionId) -> BTreeSet<SessionId> {
        let mut places = self.places();
        places.waiting.remove(id);
        if places.taken.remove(id) {
            std::mem::take(&mut places.waiting)
        } else {
            BTreeSet::new()
        }
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_starts_before_those_that_run_were_counted() {
        let residents = Residents::default();
        let id = SessionId::parse("a").unwrap();
        assert_eq!(residents.claim(&id, Some(1)), Room::Full);
        assert_eq!(residents.holders(), None);
        assert_eq!(residents.counted(), BTreeSet::from([id.clone()]));
        assert_eq!(residents.claim(&id, Some(1)), Room::Free);
    }

    #[test]
    fn a_place_is_taken_once_and_its_release_calls_who_waits() {
        let residents = Residents::default();
        residents.counted();
        let (a, b) = (
            SessionId::parse("a").unwrap(),
            SessionId::parse("b").unwrap(),
        );
        assert_eq!(residents.claim(&a, Some(1)), Room::Free);
        assert_eq!(residents.claim(&a, Some(1)), Room::Free, "it has its place");
        assert_eq!(residents.claim(&b, Some(1)), Room::Full);
        assert_eq!(residents.holders(), Some(BTreeSet::from([a.clone()])));
        assert_eq!(residents.release(&a), BTreeSet::from([b.clone()]));
        assert_eq!(residents.claim(&b, Some(1)), Room::Free);
        assert_eq!(residents.claim(&a, None), Room::Free);
    }

    #[test]
    fn who_may_run_has_a_place_until_a_look_finds_it_stopped_and_no_place_free() {
        let residents = Residents::default();
        let [a, b] = ["a", "b"].map(|id| SessionId::parse(id).unwrap());
        residents.note(&a);
        residents.note(&b);
        residents.counted();
        assert_eq!(residents.claim(&a, Some(1)), Room::Full);
        assert_eq!(residents.claim(&b, Some(1)), Room::Free);
        assert_eq!(residents.holders(), Some(BTreeSet::from([b])));
    }
}
