//! All runs that the agent knows, and what it may take for them.

use std::collections::{BTreeSet, VecDeque};

use rustix::process::{Pid, WaitStatus};

use crate::clock::Moment;
use crate::hunt::Surroundings;
use crate::protocol::message::Bounds;
use crate::run::{Run, Stage};
use crate::streams::Asker;

/// Ended runs that are kept.
const ENDED_MAX: usize = 256;
/// Ids that are known to be used, of runs that were forgotten.
const USED_MAX: usize = 4096;
/// Digits of an id.
const ID_DIGITS: usize = 32;

/// A run's id as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id(u128);

impl Id {
    /// Reads 32 digits of lower case.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let is_id = text.len() == ID_DIGITS && text.bytes().all(is_digit);
        let number = u128::from_str_radix(text, 16).ok();
        number.filter(|_| is_id).map(Self)
    }
}

/// All runs, the oldest first.
#[derive(Debug)]
pub(crate) struct Runs {
    /// The bounds that hold.
    pub(crate) bounds: Bounds,
    all: Vec<(Id, Run)>,
    used: VecDeque<(Id, Moment)>,
}

/// What is known of an id.
#[derive(Debug)]
pub(crate) enum Known<'a> {
    /// Nothing.
    Never,
    /// It was used, and its run was forgotten.
    Forgotten,
    /// Its run.
    Run(&'a mut Run),
}

impl Runs {
    /// Makes an empty collection, with bounds that hold until a daemon sets others.
    pub(crate) fn new() -> Self {
        Self {
            bounds: Bounds {
                ring_bytes: 1 << 20,
                rings_bytes: 8 << 20,
                keep_ms: 600_000,
                runs: 64,
            },
            all: Vec::new(),
            used: VecDeque::new(),
        }
    }

    /// Returns what is known of an id.
    pub(crate) fn find(&mut self, id: Id) -> Known<'_> {
        match self.all.iter_mut().find(|(one, _)| *one == id) {
            Some((_, run)) => Known::Run(run),
            None if self.used.iter().any(|(one, _)| *one == id) => Known::Forgotten,
            None => Known::Never,
        }
    }

    /// Returns a run.
    pub(crate) fn get(&mut self, id: Id) -> Option<&mut Run> {
        match self.find(id) {
            Known::Run(run) => Some(run),
            Known::Never | Known::Forgotten => None,
        }
    }

    /// Returns all of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(Id, Run)> {
        self.all.iter()
    }

    /// Tells whether as many runs are live as may be.
    pub(crate) fn is_full(&self) -> bool {
        let live = self.all.iter().filter(|(_, run)| !run.is_over()).count();
        usize::try_from(self.bounds.runs).is_ok_and(|most| most <= live)
    }

    /// Tells whether none is live.
    pub(crate) fn are_over(&self) -> bool {
        self.all.iter().all(|(_, run)| run.is_over())
    }

    /// Takes a run in.
    pub(crate) fn insert(&mut self, id: Id, run: Run) {
        self.all.push((id, run));
    }

    /// Returns the bytes of a run's ring.
    pub(crate) fn ring_bytes(&self) -> usize {
        usize::try_from(self.bounds.ring_bytes).unwrap_or(usize::MAX)
    }

    /// Tells the run of a process how that ended; orphans belong to none.
    pub(crate) fn reaped(&mut self, pid: Pid, status: WaitStatus, now: Moment) {
        let found = self
            .all
            .iter_mut()
            .find(|(_, run)| run.leader() == Some(pid));
        if let Some((_, run)) = found {
            run.reaped(status, now);
        }
    }

    /// Returns what is around the run of an id.
    pub(crate) fn around(&self, id: Id, own: &Surroundings) -> Surroundings {
        let others = self.all.iter().filter(|(one, _)| *one != id);
        let leaders = others.filter_map(|(_, run)| run.leader());
        Surroundings {
            own: own.own,
            session: own.session,
            others: leaders.map(Pid::as_raw_pid).collect::<BTreeSet<i32>>(),
        }
    }

    /// Returns the runs for which something is due.
    pub(crate) fn due(&self, now: Moment) -> Vec<Id> {
        let due = |run: &Run| run.next().is_some_and(|at| at <= now);
        let found = self.all.iter().filter(|(_, run)| due(run));
        found.map(|(id, _)| *id).collect()
    }

    /// Returns when something is due next.
    pub(crate) fn next(&self) -> Option<Moment> {
        let keep = self.bounds.keep_ms;
        let moments = self.all.iter().filter_map(|(_, run)| match &run.stage {
            Stage::Ended(_, at) => Some(at.after(keep)),
            Stage::Running(_) | Stage::Exited(..) => run.next(),
        });
        moments.min()
    }

    /// Forgets a run, but not that its id was used.
    pub(crate) fn forget(&mut self, id: Id, now: Moment) {
        self.all.retain(|(one, _)| *one != id);
        self.all.shrink_to(self.all.len() * 2);
        self.used.push_back((id, now.after(self.bounds.keep_ms)));
        if USED_MAX < self.used.len() {
            self.used.pop_front();
        }
    }

    /// Forgets what was kept for long enough, and what is too much.
    pub(crate) fn expire(&mut self, now: Moment) {
        let keep = self.bounds.keep_ms;
        let mut ended = self.ended();
        ended.sort_by_key(|(at, _)| *at);
        let spare = ended.len().saturating_sub(ENDED_MAX);
        for (index, (at, id)) in ended.into_iter().enumerate() {
            if index < spare || at.after(keep) <= now {
                self.forget(id, now);
            }
        }
        while self.used.front().is_some_and(|(_, until)| *until <= now) {
            self.used.pop_front();
        }
    }

    fn ended(&self) -> Vec<(Moment, Id)> {
        let ended = self.all.iter().filter_map(|(id, run)| match &run.stage {
            Stage::Ended(_, at) => Some((*at, *id)),
            Stage::Running(_) | Stage::Exited(..) => None,
        });
        ended.collect()
    }

    /// Drops output where that of all runs is too much: of those that ended, the oldest
    /// first; then of the largest that may lose some.
    pub(crate) fn settle(&mut self) {
        let most = usize::try_from(self.bounds.rings_bytes).unwrap_or(usize::MAX);
        if self.cost() <= most {
            return;
        }
        let mut ended = self.ended();
        ended.sort_by_key(|(at, _)| *at);
        for (_, id) in ended {
            if self.cost() <= most {
                return;
            }
            if let Some(run) = self.get(id) {
                run.tape.erase();
            }
        }
        let mut left = self.cost().saturating_sub(most);
        while 0 < left {
            let live = self.all.iter_mut().map(|(_, run)| &mut run.tape);
            let droppable = live.filter(|tape| tape.is_droppable() && 0 < tape.ring.cost());
            let Some(largest) = droppable.max_by_key(|tape| tape.ring.cost()) else {
                return;
            };
            let before = largest.ring.cost();
            largest.drop_oldest();
            left = left.saturating_sub(before - largest.ring.cost());
        }
    }

    fn cost(&self) -> usize {
        self.all.iter().map(|(_, run)| run.tape.ring.cost()).sum()
    }

    /// Returns how many bytes may be read from a run's streams now.
    pub(crate) fn room(&self, run: &Run) -> usize {
        let ring = self.ring_bytes();
        let room = run.tape.room(ring);
        if room == usize::MAX {
            return room;
        }
        let most = usize::try_from(self.bounds.rings_bytes).unwrap_or(usize::MAX);
        let left = most.saturating_sub(self.cost());
        // However full all others are, a run whose reader keeps up goes on.
        let least = (ring / 8).saturating_sub(ring - room);
        room.min(left.max(least))
    }

    /// Takes back what was not done of a request for input.
    pub(crate) fn cancel(&mut self, asker: Asker) {
        let inlets = self
            .all
            .iter_mut()
            .filter_map(|(_, run)| run.inlet.as_mut());
        inlets.for_each(|inlet| inlet.cancel(asker));
    }
}

#[cfg(test)]
mod tests {
    use super::{ENDED_MAX, Id, Known, Runs, USED_MAX};
    use crate::clock::Moment;
    use crate::launch::NotStarted;
    use crate::protocol::message::{Attended, Bounds, Keep, Start, Stdin, Streams, What};
    use crate::protocol::output::Stream;
    use crate::run::{Asked, Run};
    use crate::tape::Tape;

    fn ended(n: usize, output: usize, now: Moment) -> (Id, Run) {
        let start = Start {
            run: format!("{n:032x}"),
            digest: "d".to_owned(),
            what: What::Shell(String::new()),
            env: std::collections::BTreeMap::new(),
            cwd: None,
            user: None,
            stdin: Stdin::Closed,
            streams: Streams::Merged,
            timeout_ms: None,
            output: Keep::Newest { limit: None },
            attended: Attended::No,
        };
        let why = NotStarted {
            code: 127,
            words: "x".repeat(output),
            is_full: false,
        };
        let tape = Tape::new(start.output);
        let run = Run::not_started(Asked::of(&start, now), tape, Stream::Out, &why);
        (Id::parse(&start.run).unwrap(), run)
    }

    fn runs(rings_bytes: u64) -> Runs {
        let mut runs = Runs::new();
        runs.bounds = Bounds {
            rings_bytes,
            keep_ms: 1000,
            ..runs.bounds
        };
        runs
    }

    #[test]
    fn an_id_is_32_digits_of_lower_case() {
        assert!(Id::parse(&"0a".repeat(16)).is_some());
        for text in [
            "",
            "00",
            &"0A".repeat(16),
            &"+a".repeat(16),
            &"0".repeat(33),
        ] {
            assert_eq!(Id::parse(text), None, "{text}");
        }
    }

    #[test]
    fn an_ended_run_is_kept_and_then_its_id_is_for_as_long_again() {
        let (mut runs, now) = (runs(1 << 20), Moment::read());
        let (id, run) = ended(1, 1, now);
        runs.insert(id, run);
        runs.expire(now.after(999));
        assert!(matches!(runs.find(id), Known::Run(_)));
        runs.expire(now.after(1000));
        assert!(matches!(runs.find(id), Known::Forgotten));
        runs.expire(now.after(2000));
        assert!(matches!(runs.find(id), Known::Never));
    }

    #[test]
    fn only_so_many_ended_runs_and_used_ids_are_kept() {
        let (mut runs, now) = (runs(1 << 20), Moment::read());
        for n in 0..ENDED_MAX + USED_MAX + 10 {
            let (id, run) = ended(n, 1, now.after(u64::try_from(n).unwrap() / 100));
            runs.insert(id, run);
            runs.expire(now);
        }
        assert_eq!(runs.iter().count(), ENDED_MAX);
        let (first, _) = ended(0, 1, now);
        assert!(matches!(runs.find(first), Known::Never));
        let (later, _) = ended(20, 1, now);
        assert!(matches!(runs.find(later), Known::Forgotten));
    }

    #[test]
    fn the_output_of_the_oldest_run_goes_when_all_rings_are_full() {
        let (mut runs, now) = (runs(1000), Moment::read());
        for n in 0..3 {
            let (id, run) = ended(n, 400, now.after(u64::try_from(n).unwrap()));
            runs.insert(id, run);
        }
        runs.settle();
        let kept: Vec<bool> = runs
            .iter()
            .map(|(_, run)| 0 < run.tape.ring.cost())
            .collect();
        assert_eq!(kept, [false, true, true]);
        let told: Vec<bool> = runs
            .iter()
            .map(|(_, run)| run.tape.is_truncated())
            .collect();
        assert_eq!(told, [true, false, false]);
    }
}
