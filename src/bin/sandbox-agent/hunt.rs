//! Ends all that a run has started, wherever it went.
//!
//! A member of the family is the run's first process; what an earlier look found; a child
//! of a member; what is in a session of a member; and what carries the run's cookie. A
//! process that left its parents, its session and its environment in one step between two
//! looks gets away; it is not found by the agent.

use std::collections::{BTreeMap, BTreeSet};

use rustix::process::Signal;

use crate::clock::Moment;
use crate::processes::{Carries, Life, Process, carries, look, signal, signal_group};
use crate::protocol::message::Cause;

/// Milliseconds between the request to end and the kill.
pub(crate) const GRACE_MILLIS: u64 = 2000;
/// Looks in one round, to stop what goes on forking.
const FREEZES_MAX: u32 = 6;
/// Rounds of killing before what remains is left to itself.
const ROUNDS_MAX: u32 = 100;
/// The longest rest between two rounds.
const REST_MILLIS_MAX: u64 = 50;

/// What is around the family and not of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Surroundings {
    /// The agent's own process.
    pub(crate) own: i32,
    /// The agent's own session.
    pub(crate) session: i32,
    /// The first processes of other runs.
    pub(crate) others: BTreeSet<i32>,
}

/// Whether a run's first process still holds its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leader {
    /// It does: the number is this run's, as that of its group and its session.
    There,
    /// It was reaped: the number may be another's.
    Reaped,
}

/// What a step of a hunt came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// Nothing is left, or nothing more can be done.
    Nothing,
    /// There is more to do, at the next step.
    Some,
}

/// The ending of a run and of all that it started.
#[derive(Debug)]
pub(crate) struct Hunt {
    /// Why.
    pub(crate) cause: Cause,
    /// When the next step is due.
    pub(crate) next: Moment,
    run: String,
    leader: i32,
    known: BTreeMap<i32, u64>,
    kill_at: Moment,
    rest_millis: u64,
    rounds: u32,
}

impl Hunt {
    /// Asks all of the family to end, by TERM, and HUP where a terminal is hung up.
    pub(crate) fn begin(
        run: &str,
        leader: i32,
        cause: Cause,
        asks: &[Signal],
        around: &Surroundings,
    ) -> Self {
        let now = Moment::read();
        let mut hunt = Self {
            cause,
            next: now,
            run: run.to_owned(),
            leader,
            known: BTreeMap::new(),
            kill_at: now.after(GRACE_MILLIS),
            rest_millis: 1,
            rounds: 0,
        };
        let members = hunt.members(Leader::There, around);
        for ask in asks {
            signal_group(leader, *ask);
            for member in members.iter().filter(|one| one.group != leader) {
                signal(member.pid, *ask);
            }
        }
        hunt.rest(now);
        hunt
    }

    /// Looks who is left, and kills once the grace is over.
    pub(crate) fn step(&mut self, now: Moment, leader: Leader, around: &Surroundings) -> Left {
        if now < self.kill_at {
            let members = self.members(leader, around);
            if members.is_empty() && leader == Leader::Reaped {
                return Left::Nothing;
            }
            self.rest(now);
            self.next = self.next.min(self.kill_at);
            return Left::Some;
        }
        if self.rounds == 0 {
            self.rest_millis = 1;
        }
        self.rounds += 1;
        let is_clear = self.kill(leader, around);
        match leader {
            Leader::Reaped if is_clear || ROUNDS_MAX < self.rounds => Left::Nothing,
            Leader::Reaped | Leader::There => {
                self.rest(now);
                Left::Some
            }
        }
    }

    /// Ends the grace.
    pub(crate) fn hasten(&mut self, now: Moment) {
        self.next = self.next.min(now);
    }

    fn rest(&mut self, now: Moment) {
        self.next = now.after(self.rest_millis);
        self.rest_millis = (self.rest_millis * 2).min(REST_MILLIS_MAX);
    }

    /// Stops what it finds until nothing new appears, and kills it; `true` where there
    /// was nothing.
    fn kill(&mut self, leader: Leader, around: &Surroundings) -> bool {
        if leader == Leader::There {
            signal_group(self.leader, Signal::KILL);
        }
        let mut members = self.members(leader, around);
        let is_clear = members.is_empty();
        for _ in 0..FREEZES_MAX {
            let mut running = members
                .iter()
                .filter(|one| one.life == Life::Live)
                .peekable();
            if running.peek().is_none() {
                break;
            }
            // A stopped process forks no more and keeps its place under the ceiling.
            running.for_each(|one| signal(one.pid, Signal::STOP));
            members = self.members(leader, around);
        }
        let pids: BTreeSet<i32> = members.iter().map(|one| one.pid).collect();
        for member in &members {
            // The group of a living leader is the family's; a group is killed at once,
            // so that nothing in it forks meanwhile.
            if pids.contains(&member.group) && member.pid == member.group {
                signal_group(member.group, Signal::KILL);
            }
            signal(member.pid, Signal::KILL);
        }
        is_clear
    }

    fn members(&mut self, leader: Leader, around: &Surroundings) -> Vec<Process> {
        let there = look();
        let run = self.run.clone();
        let carries = |pid| carries(pid, &run);
        let family = family(&there, &self.known, (self.leader, leader), around, carries);
        self.known = family.iter().map(|one| (one.pid, one.started)).collect();
        let lives = |one: &Process| one.life != Life::Ended;
        family.into_iter().filter(lives).collect()
    }
}

/// Finds who is of the family, ended ones too.
fn family(
    there: &[Process],
    known: &BTreeMap<i32, u64>,
    (leader, holds): (i32, Leader),
    around: &Surroundings,
    carries: impl Fn(i32) -> Carries,
) -> Vec<Process> {
    let is_stranger = |pid: i32| pid <= 1 || pid == around.own || around.others.contains(&pid);
    let mut asked: BTreeMap<i32, Carries> = BTreeMap::new();
    let mut members: BTreeMap<i32, Process> = BTreeMap::new();
    let mut sessions = BTreeSet::new();
    if !around.others.contains(&leader) {
        sessions.insert(leader);
    }
    loop {
        let before = members.len();
        for one in there {
            if is_stranger(one.pid) || members.contains_key(&one.pid) {
                continue;
            }
            let is_leader = one.pid == leader && holds == Leader::There;
            let is_known = known.get(&one.pid) == Some(&one.started);
            let mut is_member = is_leader || is_known || members.contains_key(&one.parent);
            if !is_member {
                let carries = *asked.entry(one.pid).or_insert_with(|| carries(one.pid));
                is_member = match carries {
                    Carries::This => true,
                    Carries::Other => false,
                    Carries::Unknown => sessions.contains(&one.session),
                };
            }
            if is_member {
                members.insert(one.pid, *one);
                if one.session != around.session && !around.others.contains(&one.session) {
                    sessions.insert(one.session);
                }
            }
        }
        if members.len() == before {
            return members.into_values().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::{Leader, Surroundings, family};
    use crate::processes::{Carries, Life, Process};

    fn process(pid: i32, parent: i32, session: i32) -> Process {
        Process {
            pid,
            parent,
            group: session,
            session,
            life: Life::Live,
            started: u64::try_from(pid).unwrap(),
        }
    }

    fn around(others: &[i32]) -> Surroundings {
        Surroundings {
            own: 1,
            session: 1,
            others: others.iter().copied().collect(),
        }
    }

    fn pids(
        there: &[Process],
        known: &[(i32, u64)],
        holds: Leader,
        others: &[i32],
        carries: impl Fn(i32) -> Carries,
    ) -> Vec<i32> {
        let known: BTreeMap<i32, u64> = known.iter().copied().collect();
        let found = family(there, &known, (10, holds), &around(others), carries);
        found.into_iter().map(|one| one.pid).collect()
    }

    #[test]
    fn children_are_found_in_whatever_session_they_are() {
        let there = [
            process(1, 0, 1),
            process(10, 1, 10),
            process(11, 10, 11),
            process(12, 11, 11),
        ];
        let found = pids(&there, &[], Leader::There, &[], |_| Carries::Unknown);
        assert_eq!(found, [10, 11, 12]);
    }

    #[test]
    fn an_orphan_is_found_by_what_was_known_its_session_or_its_cookie() {
        let there = [
            process(1, 0, 1),
            process(20, 1, 20),
            process(21, 1, 20),
            process(22, 1, 22),
        ];
        let known = pids(&there, &[(20, 20)], Leader::Reaped, &[], |_| {
            Carries::Unknown
        });
        assert_eq!(known, [20, 21]);
        let carry = |pid| {
            if pid == 22 {
                Carries::This
            } else {
                Carries::Unknown
            }
        };
        assert_eq!(pids(&there, &[], Leader::Reaped, &[], carry), [22]);
    }

    #[test]
    fn a_number_that_is_another_processs_by_now_is_not_hunted() {
        let there = [process(1, 0, 1), process(10, 1, 10), process(11, 10, 10)];
        // The number of the leader belongs to another run.
        let found = pids(&there, &[(10, 3)], Leader::Reaped, &[10], |_| {
            Carries::Unknown
        });
        assert_eq!(found, Vec::<i32>::new());
        // What another run left behind says so.
        let found = pids(&there, &[], Leader::Reaped, &[], |_| Carries::Other);
        assert_eq!(found, Vec::<i32>::new());
    }

    #[test]
    fn neither_the_agent_nor_its_session_is_ever_hunted() {
        let there = [
            process(1, 0, 1),
            process(2, 1, 1),
            process(10, 1, 1),
            process(30, 0, 30),
        ];
        let found = pids(&there, &[], Leader::There, &[], |pid| {
            if pid == 1 {
                Carries::This
            } else {
                Carries::Unknown
            }
        });
        assert_eq!(found, [10]);
        assert_eq!(around(&[4]).others, BTreeSet::from([4]));
    }
}
