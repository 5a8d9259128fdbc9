//! Does what blocks where it may block, and answers before it tidies up.
//!
//! Most work on a file takes some tens of microseconds, less than it takes to hand it to
//! another thread and its answer back. So while the disk answers, such work is done where it
//! is asked for, and another thread takes over whatever else this one had to do. While
//! something takes long, all that comes goes to threads of its own, and is waited for until
//! its deadline and no longer.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout_at};

/// Threads that tidy up at once, each of which may have to wait for the disk. Where so many
/// do, the next answer comes after the tidying.
const TIDYING_MAX: usize = 4;
/// How long what is left over waits for more, so that a thread is woken for several at once.
const LEFT_TIME_MAX: Duration = Duration::from_millis(10);
/// What is left over that waits for that.
const LEFT_MAX: usize = 32;
/// Bytes, in memory and on the disk, that wait with it.
const LEFT_BYTES_MAX: u64 = 16 << 20;
/// How long work may be going on while more is done in place.
const PROMPT_MAX: Duration = Duration::from_millis(20);

/// How long work takes while the disk answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    /// It is about one file or directory.
    Short,
    /// It goes through a tree.
    Long,
}

/// What work leaves over: what costs time to drop and concerns nobody, such as the last
/// descriptor of a file that is gone.
pub(super) struct Left {
    what: Box<dyn Send>,
    bytes: u64,
}

impl Left {
    /// Takes something that so many bytes are freed with.
    pub(super) fn of(what: impl Send + 'static, bytes: u64) -> Self {
        Self {
            what: Box::new(what),
            bytes,
        }
    }
}

/// What waits to be dropped.
#[derive(Default)]
struct Pile {
    rests: Vec<Box<dyn Send>>,
    bytes: u64,
}

impl fmt::Debug for Pile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pile")
            .field("n_rests", &self.rests.len())
            .field("bytes", &self.bytes)
            .finish()
    }
}

/// Those who do what blocks.
#[derive(Debug)]
pub(super) struct Hands {
    tidying: Semaphore,
    pile: Mutex<Pile>,
    /// When the short work began that goes on, by a number that rises.
    under_way: Mutex<UnderWay>,
}

#[derive(Debug, Default)]
struct UnderWay {
    last: u64,
    began: BTreeMap<u64, Instant>,
}

/// Short work that goes on.
struct Mark {
    hands: Arc<Hands>,
    n: u64,
}

impl Default for Hands {
    fn default() -> Self {
        Self::tidying_at_once(TIDYING_MAX)
    }
}

impl Hands {
    fn tidying_at_once(max: usize) -> Self {
        Self {
            tidying: Semaphore::new(max),
            pile: Mutex::default(),
            under_way: Mutex::default(),
        }
    }

    /// Does blocking work and returns its answer, or nothing where the deadline comes first:
    /// then the work goes on, and nobody hears of it.
    ///
    /// What the work leaves over is dropped after the answer was handed over.
    pub(super) async fn answer_first<T: Send + 'static>(
        self: &Arc<Self>,
        (length, deadline): (Length, Instant),
        work: impl FnOnce() -> (T, Option<Left>) + Send + 'static,
    ) -> Option<T> {
        let is_prompt = self.is_prompt(Instant::now());
        let mark = (length == Length::Short).then(|| self.mark());
        if mark.is_some() && is_prompt && may_block_here() {
            let (done, left) = here(work);
            drop(mark);
            if let Some(left) = left {
                self.tidy_up_soon(left);
            }
            return Some(done);
        }
        let (answer, answered) = oneshot::channel();
        let hands = Arc::clone(self);
        let task = spawn_blocking(move || {
            let (done, left) = work();
            drop(mark);
            let place = hands.tidying.try_acquire();
            let left = left.filter(|_| place.is_ok());
            // Whoever asked may have gone.
            drop(answer.send(done));
            drop(left);
        });
        match timeout_at(deadline, answered).await {
            Err(_) => None,
            Ok(Ok(done)) => Some(done),
            Ok(Err(_)) => match task.await {
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                // The service ends.
                Ok(()) | Err(_) => None,
            },
        }
    }

    /// Drops something on another thread, together with what else is left over in a moment.
    fn tidy_up_soon(self: &Arc<Self>, left: Left) {
        let mut pile = self.pile();
        pile.bytes = pile.bytes.saturating_add(left.bytes);
        pile.rests.push(left.what);
        let is_first = pile.rests.len() == 1;
        let is_full = LEFT_MAX <= pile.rests.len() || LEFT_BYTES_MAX < pile.bytes;
        drop(pile);
        if is_full {
            self.tidy_up();
        } else if is_first {
            let hands = Arc::clone(self);
            tokio::spawn(async move {
                sleep(LEFT_TIME_MAX).await;
                hands.tidy_up();
            });
        }
    }

    /// Drops what is left over on another thread, unless enough are at that.
    fn tidy_up(self: &Arc<Self>) {
        let pile = std::mem::take(&mut *self.pile());
        if pile.rests.is_empty() {
            return;
        }
        if self.tidying.available_permits() == 0 {
            return here(|| drop(pile));
        }
        let hands = Arc::clone(self);
        spawn_blocking(move || {
            let place = hands.tidying.try_acquire();
            drop(pile);
            drop(place);
        });
    }

    fn pile(&self) -> MutexGuard<'_, Pile> {
        self.pile.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether all short work that goes on began a moment ago.
    fn is_prompt(&self, now: Instant) -> bool {
        let under_way = self.under_way();
        let oldest = under_way.began.values().next();
        oldest.is_none_or(|began| now.saturating_duration_since(*began) < PROMPT_MAX)
    }

    fn mark(self: &Arc<Self>) -> Mark {
        let mut under_way = self.under_way();
        under_way.last += 1;
        let n = under_way.last;
        under_way.began.insert(n, Instant::now());
        drop(under_way);
        Mark {
            hands: Arc::clone(self),
            n,
        }
    }

    fn under_way(&self) -> MutexGuard<'_, UnderWay> {
        self.under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.hands.under_way().began.remove(&self.n);
    }
}

/// Blocks this thread, of which another takes over what else it had to do.
#[expect(
    clippy::disallowed_methods,
    reason = "only short work comes here, while the disk answers, and no more than has room"
)]
fn here<T>(work: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(work)
}

/// Whether another thread can take over what this one does.
fn may_block_here() -> bool {
    Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Is dropped only when it is let.
    struct Slow(mpsc::Receiver<()>);

    impl Drop for Slow {
        fn drop(&mut self) {
            self.0.recv().unwrap();
        }
    }

    fn soon() -> (Length, Instant) {
        (Length::Short, Instant::now() + Duration::from_secs(20))
    }

    fn at_once() -> (Length, Instant) {
        (Length::Short, Instant::now() + Duration::from_millis(10))
    }

    fn hands(tidying: usize) -> Arc<Hands> {
        Arc::new(Hands::tidying_at_once(tidying))
    }

    async fn answers_before_it_tidies_up() {
        let (go, wait) = mpsc::channel();
        let work = move || (7, Some(Left::of(Slow(wait), 1)));
        assert_eq!(hands(1).answer_first(soon(), work).await, Some(7));
        go.send(()).unwrap();
    }

    #[tokio::test]
    async fn an_answer_does_not_wait_for_what_is_tidied_up() {
        answers_before_it_tidies_up().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn an_answer_from_the_same_thread_does_not_wait_for_what_is_tidied_up() {
        answers_before_it_tidies_up().await;
    }

    #[tokio::test]
    async fn an_answer_waits_where_enough_is_being_tidied_up() {
        let (go, wait) = mpsc::channel();
        let work = move || (7, Some(Left::of(Slow(wait), 1)));
        assert_eq!(hands(0).answer_first(at_once(), work).await, None);
        go.send(()).unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn work_is_done_in_place_while_the_disk_answers_and_waited_for_with_a_deadline_else() {
        let hands = hands(1);
        let here = std::thread::current().id();
        let ask = || (std::thread::current().id(), None);
        let on = tokio::spawn({
            let hands = Arc::clone(&hands);
            async move {
                let here = std::thread::current().id();
                (hands.answer_first(soon(), ask).await, here)
            }
        });
        let (there, here_in_task) = on.await.unwrap();
        assert_eq!(there, Some(here_in_task));

        // Something hangs.
        let (go, wait) = mpsc::channel::<()>();
        let stuck = {
            let hands = Arc::clone(&hands);
            let work = move || (wait.recv().is_ok(), None);
            tokio::spawn(async move { hands.answer_first(soon(), work).await })
        };
        while hands.is_prompt(Instant::now()) {
            sleep(Duration::from_millis(5)).await;
        }
        let elsewhere = hands.answer_first(soon(), ask).await.unwrap();
        assert_ne!(elsewhere, here);
        let (_keep, never) = mpsc::channel::<()>();
        let hangs = move || (never.recv().is_ok(), None);
        assert_eq!(hands.answer_first(at_once(), hangs).await, None);
        go.send(()).unwrap();
        assert_eq!(stuck.await.unwrap(), Some(true));
    }

    /// Says when it is dropped.
    struct Tells(mpsc::Sender<u64>, u64);

    impl Drop for Tells {
        fn drop(&mut self) {
            self.0.send(self.1).unwrap();
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn what_is_left_over_goes_in_a_moment_and_at_once_where_it_is_much() {
        let hands = hands(1);
        let (tell, told) = mpsc::channel();
        for (n, bytes) in [(1, 1), (2, LEFT_BYTES_MAX)] {
            let left = Left::of(Tells(tell.clone(), n), bytes);
            hands.tidy_up_soon(left);
        }
        let wait = Duration::from_secs(20);
        assert_eq!(
            (told.recv_timeout(wait), told.recv_timeout(wait)),
            (Ok(1), Ok(2))
        );
        hands.tidy_up_soon(Left::of(Tells(tell, 3), 1));
        assert_eq!(told.recv_timeout(wait), Ok(3));
    }

    #[tokio::test]
    async fn a_deadline_ends_the_waiting_alone() {
        let (go, wait) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let work = move || {
            wait.recv().unwrap();
            tell.send("done").unwrap();
            ((), None)
        };
        assert_eq!(hands(1).answer_first(at_once(), work).await, None);
        go.send(()).unwrap();
        assert_eq!(told.recv(), Ok("done"));
    }

    #[tokio::test]
    #[should_panic(expected = "a fault in the work")]
    async fn a_panic_of_the_work_is_a_panic_of_the_one_who_asked() {
        let work = || -> ((), Option<Left>) { unreachable!("a fault in the work") };
        hands(1).answer_first(soon(), work).await;
    }
}
