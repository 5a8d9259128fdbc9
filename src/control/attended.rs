//! Has each run with a waiting caller run once, however often it is asked for.
//!
//! Whoever asks for a run that is under way waits for the same answer, and only when all
//! have gone is it ended. Answers are kept for a while, for a caller that lost the first.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::Refusal;
use super::slots::Slot;
use crate::id::{Nonce, RunId, SessionId};
use crate::sandbox::commands::Halt;
use crate::wire::runs::RunResponse;

/// Answers that are kept.
const ANSWERS_MAX: usize = 256;
/// Bytes of all answers that are kept.
const ANSWERS_BYTES_MAX: usize = 16 << 20;
/// How long an answer is kept.
const ANSWER_AGE_MAX: Duration = Duration::from_mins(10);
/// Bytes that are counted for an answer beside its output.
const ANSWER_BYTES: usize = 1 << 10;

/// What becomes of a run.
pub(super) type Answer = Result<RunResponse, Refusal>;

/// The runs with waiting callers; cheap to clone.
// A std mutex: it is held for a look into a map, and never across an await.
#[derive(Clone, Debug, Default)]
pub(super) struct Attended(Arc<Mutex<Book>>);

#[derive(Debug, Default)]
struct Book {
    /// The commands under way that somebody waits for, runs or not.
    under_way: BTreeMap<RunId, usize>,
    runs: BTreeMap<Key, Entry>,
    /// The runs with answers, the oldest first.
    answered: VecDeque<Key>,
    bytes: usize,
}

/// Names a run of one opening of a session.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// The session.
    pub(super) session: SessionId,
    /// Its opening: another one knows nothing of the runs of this.
    pub(super) nonce: Nonce,
    /// The run.
    pub(super) run: RunId,
}

#[derive(Debug)]
struct Entry {
    digest: String,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    UnderWay {
        callers: usize,
        halt: Halt,
        answer: watch::Receiver<Option<Arc<Answer>>>,
    },
    Answered {
        answer: Arc<Answer>,
        at: Instant,
        bytes: usize,
    },
}

/// What asking for a run comes to.
#[derive(Debug)]
pub(super) enum Joined {
    /// It is to be begun, under its id or another.
    First(Assignment, Caller, Under),
    /// It is under way.
    Along(Caller),
    /// It is over.
    Answered(Arc<Answer>),
    /// Another request under its id is under way.
    Used,
}

/// What name a run is begun under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Under {
    /// Its id.
    ItsId,
    /// Another one: a run that is over had its id.
    Another,
}

/// Somebody who waits for a run; dropping it is leaving.
#[derive(Debug)]
pub(super) struct Caller {
    book: Attended,
    key: Key,
    answer: watch::Receiver<Option<Arc<Answer>>>,
}

/// A run that is to be begun; dropping it without an answer takes it off the book.
#[derive(Debug)]
pub(super) struct Assignment {
    book: Attended,
    key: Key,
    /// Asks the run to end.
    pub(super) halt: Halt,
    /// Its place.
    _slot: Slot,
    tell: watch::Sender<Option<Arc<Answer>>>,
}

/// Notes that a command is under way; dropping it that it is over.
#[derive(Debug)]
pub(super) struct Watched {
    book: Attended,
    run: RunId,
}

/// Whether an answer is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    /// It is: what was asked for was done.
    Keep,
    /// It is not: nothing was done, and the request can be made again.
    Drop,
}

impl Attended {
    /// Notes that somebody waits for a command.
    pub(super) fn watch(&self, run: &RunId) -> Watched {
        *self.book().under_way.entry(run.clone()).or_insert(0) += 1;
        Watched {
            book: self.clone(),
            run: run.clone(),
        }
    }

    /// Whether somebody waits for a command.
    pub(super) fn has(&self, run: &RunId) -> bool {
        self.book().under_way.contains_key(run)
    }

    /// Asks for a run, which takes a place if it is to be begun.
    pub(super) fn join(
        &self,
        key: &Key,
        digest: &str,
        now: Instant,
        place: impl FnOnce() -> Result<Slot, Refusal>,
    ) -> Result<Joined, Refusal> {
        let mut book = self.book();
        book.drop_old(now);
        let under = match book.runs.get_mut(key) {
            None => Under::ItsId,
            Some(entry) => match (&mut entry.stage, entry.digest == digest) {
                (Stage::UnderWay { .. }, false) => return Ok(Joined::Used),
                (
                    Stage::UnderWay {
                        callers, answer, ..
                    },
                    true,
                ) => {
                    *callers += 1;
                    return Ok(Joined::Along(self.caller(key, answer.clone())));
                }
                (Stage::Answered { answer, .. }, true) => {
                    return Ok(Joined::Answered(Arc::clone(answer)));
                }
                // There are clients that use one id for one program after the other.
                (Stage::Answered { .. }, false) => Under::Another,
            },
        };
        let slot = place()?;
        if under == Under::Another {
            book.answered.retain(|one| one != key);
            book.forget(key);
        }
        let (tell, answer) = watch::channel(None);
        let halt = Halt::default();
        let stage = Stage::UnderWay {
            callers: 1,
            halt: halt.clone(),
            answer: answer.clone(),
        };
        let entry = Entry {
            digest: digest.to_owned(),
            stage,
        };
        book.runs.insert(key.clone(), entry);
        let assignment = Assignment {
            book: self.clone(),
            key: key.clone(),
            halt,
            _slot: slot,
            tell,
        };
        let caller = self.caller(key, answer);
        Ok(Joined::First(assignment, caller, under))
    }

    /// Asks a run to end; returns what it is waited for by, `None` where it is not under
    /// way.
    pub(super) fn stop(&self, key: &Key) -> Stopping {
        match self.book().runs.get(key).map(|entry| &entry.stage) {
            Some(Stage::UnderWay { halt, answer, .. }) => {
                halt.stop();
                Stopping::UnderWay(answer.clone())
            }
            Some(Stage::Answered { .. }) => Stopping::Over,
            None => Stopping::Unknown,
        }
    }

    /// Drops answers that are too old, or of sessions that are not open any more.
    pub(super) fn prune(&self, now: Instant, open: impl Fn(&SessionId) -> bool) {
        let mut book = self.book();
        book.drop_old(now);
        let closed: Vec<Key> = book
            .answered
            .iter()
            .filter(|key| !open(&key.session))
            .cloned()
            .collect();
        book.answered.retain(|key| open(&key.session));
        for key in closed {
            book.forget(&key);
        }
    }

    fn caller(&self, key: &Key, answer: watch::Receiver<Option<Arc<Answer>>>) -> Caller {
        Caller {
            book: self.clone(),
            key: key.clone(),
            answer,
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What asking a run to end comes to.
#[derive(Debug)]
pub(super) enum Stopping {
    /// It ends; this tells when it has.
    UnderWay(watch::Receiver<Option<Arc<Answer>>>),
    /// It had ended.
    Over,
    /// Nobody waits for such a run.
    Unknown,
}

impl Book {
    /// Drops answers until what is kept is within its bounds.
    fn drop_old(&mut self, now: Instant) {
        while let Some(key) = self.answered.front() {
            let is_old = match self.runs.get(key).map(|entry| &entry.stage) {
                Some(Stage::Answered { at, .. }) => {
                    ANSWER_AGE_MAX < now.saturating_duration_since(*at)
                }
                Some(Stage::UnderWay { .. }) | None => true,
            };
            let is_within = self.answered.len() <= ANSWERS_MAX && self.bytes <= ANSWERS_BYTES_MAX;
            if is_within && !is_old {
                return;
            }
            if let Some(key) = self.answered.pop_front() {
                self.forget(&key);
            }
        }
    }

    /// Takes a run with an answer off the book.
    fn forget(&mut self, key: &Key) {
        if let Some(Entry {
            stage: Stage::Answered { bytes, .. },
            ..
        }) = self.runs.remove(key)
        {
            self.bytes = self.bytes.saturating_sub(bytes);
        }
    }
}

impl Caller {
    /// Waits for the answer; `None` where there will be none.
    pub(super) async fn answer(mut self) -> Option<Arc<Answer>> {
        let told = self.answer.wait_for(Option::is_some).await;
        told.ok().and_then(|answer| answer.clone())
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let mut book = self.book.book();
        let Some(entry) = book.runs.get_mut(&self.key) else {
            return;
        };
        match &mut entry.stage {
            // One of the same name may have begun since.
            Stage::UnderWay {
                callers,
                halt,
                answer,
            } if answer.same_channel(&self.answer) => {
                *callers = callers.saturating_sub(1);
                if *callers == 0 {
                    halt.leave();
                }
            }
            Stage::UnderWay { .. } | Stage::Answered { .. } => {}
        }
    }
}

impl Assignment {
    /// Answers all who wait.
    pub(super) fn settle(self, answer: Answer, memory: Memory, now: Instant) {
        let answer = Arc::new(answer);
        {
            let mut book = self.book.book();
            if memory == Memory::Keep
                && let Some(entry) = book.runs.get_mut(&self.key)
            {
                let bytes = weight(&answer);
                entry.stage = Stage::Answered {
                    answer: Arc::clone(&answer),
                    at: now,
                    bytes,
                };
                book.bytes += bytes;
                book.answered.push_back(self.key.clone());
                book.drop_old(now);
            }
        }
        self.tell.send_replace(Some(answer));
    }
}

impl Drop for Assignment {
    fn drop(&mut self) {
        let mut book = self.book.book();
        let is_under_way = matches!(
            book.runs.get(&self.key).map(|entry| &entry.stage),
            Some(Stage::UnderWay { .. })
        );
        if is_under_way {
            book.runs.remove(&self.key);
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut book = self.book.book();
        if let Some(count) = book.under_way.get_mut(&self.run) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                book.under_way.remove(&self.run);
            }
        }
    }
}

fn weight(answer: &Answer) -> usize {
    let output = answer
        .as_ref()
        .map_or(0, |ran| ran.stdout.len() + ran.stderr.len());
    ANSWER_BYTES + output
}

#[cfg(test)]
mod tests {
    use super::super::slots::Slots;
    use super::*;

    fn key(run: RunId) -> Key {
        Key {
            session: SessionId::parse("s").unwrap(),
            nonce: Nonce::parse(&"0".repeat(32)).unwrap(),
            run,
        }
    }

    fn place(slots: &Slots) -> Slot {
        slots.adopt(&SessionId::parse("s").unwrap())
    }

    fn output(stdout: &str) -> RunResponse {
        RunResponse {
            stdout: stdout.to_owned(),
            ..RunResponse::default()
        }
    }

    fn begin(book: &Attended, key: &Key, now: Instant) -> (Assignment, Caller) {
        let slots = Slots::default();
        match book.join(key, "d", now, || Ok(place(&slots))).unwrap() {
            Joined::First(assignment, caller, Under::ItsId) => (assignment, caller),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn one_id_runs_once_and_all_who_ask_get_its_answer() {
        let (book, now) = (Attended::default(), Instant::now());
        let key = key(RunId::random());
        let refuse = || panic!("no place is taken for a run that is known");
        let (assignment, first) = begin(&book, &key, now);
        let Ok(Joined::Along(second)) = book.join(&key, "d", now, refuse) else {
            panic!("it is under way");
        };
        let other = book.join(&key, "other", now, refuse);
        assert!(matches!(other, Ok(Joined::Used)), "{other:?}");
        let mut late = key.clone();
        late.nonce = Nonce::parse(&"1".repeat(32)).unwrap();
        let (_other, _) = begin(&book, &late, now);
        assignment.settle(Ok(output("a")), Memory::Keep, now);
        for caller in [first, second] {
            assert_eq!(*caller.answer().await.unwrap(), Ok(output("a")));
        }
        let again = book.join(&key, "d", now, refuse);
        assert!(matches!(again, Ok(Joined::Answered(answer)) if *answer == Ok(output("a"))));
        assert!(matches!(book.stop(&key), Stopping::Over));
    }

    #[tokio::test]
    async fn another_request_under_an_id_waits_for_the_end_of_the_first_and_is_run_anew() {
        let (book, now) = (Attended::default(), Instant::now());
        let key = key(RunId::random());
        let (assignment, _first) = begin(&book, &key, now);
        assignment.settle(Ok(output("a")), Memory::Keep, now);
        let slots = Slots::default();
        let full = book.join(&key, "other", now, || Err(Refusal::ShuttingDown));
        assert!(full.is_err(), "{full:?}");
        let again = book.join(&key, "d", now, || panic!()).unwrap();
        assert!(
            matches!(again, Joined::Answered(_)),
            "a refusal loses no answer"
        );
        let other = book.join(&key, "other", now, || Ok(place(&slots)));
        let Ok(Joined::First(assignment, caller, Under::Another)) = other else {
            panic!("{other:?}");
        };
        assignment.settle(Ok(output("b")), Memory::Keep, now);
        assert_eq!(*caller.answer().await.unwrap(), Ok(output("b")));
        assert_eq!(book.book().answered.len(), 1);
    }

    #[tokio::test]
    async fn a_run_is_ended_only_when_all_its_callers_have_gone() {
        let (book, now) = (Attended::default(), Instant::now());
        let key = key(RunId::random());
        let (assignment, first) = begin(&book, &key, now);
        let second = book.join(&key, "d", now, || panic!()).unwrap();
        drop(first);
        assert_eq!(assignment.halt.is_asked(), None);
        drop(second);
        assert!(assignment.halt.is_asked().is_some());
    }

    #[tokio::test]
    async fn what_did_not_run_can_be_asked_for_again() {
        let (book, now) = (Attended::default(), Instant::now());
        let key = key(RunId::random());
        let (assignment, caller) = begin(&book, &key, now);
        let refused = Err(Refusal::ShuttingDown);
        assignment.settle(refused.clone(), Memory::Drop, now);
        assert_eq!(*caller.answer().await.unwrap(), refused);
        let (assignment, caller) = begin(&book, &key, now);
        drop(assignment);
        assert!(caller.answer().await.is_none());
        begin(&book, &key, now);
        let full = || Err(Refusal::ShuttingDown);
        let key = Key {
            run: RunId::random(),
            ..key
        };
        assert!(book.join(&key, "d", now, full).is_err());
        assert!(matches!(book.stop(&key), Stopping::Unknown));
    }

    #[test]
    fn answers_are_kept_within_their_bounds() {
        let (book, now) = (Attended::default(), Instant::now());
        let settle = |answer: &str| {
            let key = key(RunId::random());
            let (assignment, _caller) = begin(&book, &key, now);
            assignment.settle(Ok(output(answer)), Memory::Keep, now);
        };
        for _ in 0..ANSWERS_MAX + 10 {
            settle("");
        }
        let count = |book: &Attended| {
            let book = book.book();
            (book.answered.len(), book.runs.len())
        };
        assert_eq!(count(&book), (ANSWERS_MAX, ANSWERS_MAX));
        for _ in 0..3 {
            settle(&"x".repeat(10 << 20));
        }
        assert_eq!(count(&book), (1, 1));
        assert!(book.book().bytes <= ANSWERS_BYTES_MAX);
        settle(&"x".repeat(ANSWERS_BYTES_MAX));
        assert_eq!((count(&book), book.book().bytes), ((0, 0), 0));
        settle("a");
        book.prune(now + ANSWER_AGE_MAX, |_| true);
        assert_eq!(count(&book), (1, 1));
        book.prune(now + ANSWER_AGE_MAX + Duration::from_secs(1), |_| true);
        assert_eq!((count(&book), book.book().bytes), ((0, 0), 0));
        settle("a");
        book.prune(now, |_| false);
        assert_eq!((count(&book), book.book().bytes), ((0, 0), 0));
    }

    #[test]
    fn a_command_is_attended_for_as_long_as_somebody_waits() {
        let book = Attended::default();
        let run = RunId::random();
        let watched = (book.watch(&run), book.watch(&run));
        assert!(book.has(&run) && !book.has(&RunId::random()));
        drop(watched.0);
        assert!(book.has(&run));
        drop(watched.1);
        assert!(!book.has(&run));
    }
}
