//! Keeps the keys that are to be looked at, each once, each with its time.
//!
//! A key is either waiting for its time or being worked on. What arrives for a
//! key under work is remembered and makes it wait again when the work is done.
//! So a key has at most one worker, and no change is ever missed. The queue is
//! bounded by the number of keys there are, since each is held once.

use std::collections::BTreeMap;

use crate::clock::Timestamp;

/// A queue of keys; the earlier of two times wins.
#[derive(Debug)]
pub struct Queue<K> {
    /// Waiting keys by time and order of arrival.
    waiting: BTreeMap<(Timestamp, u64), K>,
    /// Where each waiting key stands in `waiting`.
    places: BTreeMap<K, (Timestamp, u64)>,
    /// Keys under work, with the time that arrived for them meanwhile.
    working: BTreeMap<K, Option<Timestamp>>,
    arrivals: u64,
}

impl<K: Ord + Clone> Default for Queue<K> {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            places: BTreeMap::new(),
            working: BTreeMap::new(),
            arrivals: 0,
        }
    }
}

impl<K: Ord + Clone> Queue<K> {
    /// Asks for a key to be looked at, at `due` or earlier.
    pub fn add(&mut self, key: K, due: Timestamp) {
        if let Some(again) = self.working.get_mut(&key) {
            *again = Some(again.map_or(due, |earlier| earlier.min(due)));
            return;
        }
        if let Some(place) = self.places.get(&key).copied() {
            if place.0 <= due {
                return;
            }
            self.waiting.remove(&place);
        }
        self.arrivals += 1;
        let place = (due, self.arrivals);
        self.waiting.insert(place, key.clone());
        self.places.insert(key, place);
    }

    /// Takes the key whose time came first, if any has come; it is then under work.
    pub fn take(&mut self, now: Timestamp) -> Option<K> {
        let first = self.waiting.first_entry()?;
        if now < first.key().0 {
            return None;
        }
        let key = first.remove();
        self.places.remove(&key);
        self.working.insert(key.clone(), None);
        Some(key)
    }

    /// Ends the work on a key, which waits again if `again` or a change asks for it.
    pub fn done(&mut self, key: &K, again: Option<Timestamp>) {
        let changed = self
            .working
            .remove(key)
            .expect("only a key that was taken is done");
        let due = [again, changed].into_iter().flatten().min();
        if let Some(due) = due {
            self.add(key.clone(), due);
        }
    }

    /// Returns when a key is due that waits.
    pub fn due(&self, key: &K) -> Option<Timestamp> {
        self.places.get(key).map(|(due, _)| *due)
    }

    /// Returns when the next key is due.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.waiting.keys().next().map(|(due, _)| *due)
    }

    /// Returns how many keys wait, due or not.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn at(n: u64) -> Timestamp {
        Timestamp::from_secs(n)
    }

    #[test]
    fn the_earlier_time_wins_and_a_key_waits_once() {
        let mut queue = Queue::default();
        queue.add("a", at(5));
        queue.add("a", at(9));
        queue.add("a", at(3));
        assert_eq!((queue.waiting(), queue.next_due()), (1, Some(at(3))));
        assert_eq!(queue.take(at(2)), None);
        assert_eq!(queue.take(at(3)), Some("a"));
    }

    #[test]
    fn what_arrives_under_work_is_not_missed() {
        let mut queue = Queue::default();
        queue.add("a", at(1));
        queue.take(at(1));
        queue.add("a", at(1));
        assert_eq!(queue.take(at(9)), None, "it is under work");
        queue.done(&"a", Some(at(60)));
        assert_eq!(
            queue.next_due(),
            Some(at(1)),
            "the change wins over the rest"
        );
    }

    #[derive(Clone, Debug)]
    enum Op {
        Add(u8, u64),
        Take,
        Done(usize, Option<u64>),
        Pass(u64),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            (0u8..6, 0u64..20).prop_map(|(k, t)| Op::Add(k, t)),
            Just(Op::Take),
            (0usize..6, proptest::option::of(0u64..20)).prop_map(|(i, t)| Op::Done(i, t)),
            (0u64..5).prop_map(Op::Pass),
        ]
    }

    proptest! {
        /// Law 4, and that every key that was asked for is looked at in the end.
        #[test]
        fn a_key_has_at_most_one_worker_and_none_is_lost(ops in prop::collection::vec(op(), 1..200)) {
            let mut queue = Queue::default();
            let mut now = 0u64;
            let mut held: Vec<u8> = Vec::new();
            let mut owed: BTreeSet<u8> = BTreeSet::new();
            for op in ops {
                match op {
                    Op::Add(key, due) => {
                        queue.add(key, at(due));
                        owed.insert(key);
                    }
                    Op::Take => {
                        if let Some(key) = queue.take(at(now)) {
                            prop_assert!(!held.contains(&key), "{key} has two workers");
                            held.push(key);
                            owed.remove(&key);
                        }
                    }
                    Op::Done(i, again) => {
                        if i < held.len() {
                            let key = held.swap_remove(i);
                            queue.done(&key, again.map(at));
                            if again.is_some() {
                                owed.insert(key);
                            }
                        }
                    }
                    Op::Pass(span) => now += span,
                }
            }
            for key in held.drain(..) {
                queue.done(&key, None);
            }
            while let Some(key) = queue.take(at(1_000)) {
                owed.remove(&key);
                queue.done(&key, None);
            }
            prop_assert!(owed.is_empty(), "never looked at: {owed:?}");
        }
    }
}
