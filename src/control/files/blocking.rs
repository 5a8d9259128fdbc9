//! Does what blocks on a thread that may, and answers before it tidies up.

use std::sync::Arc;

use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};

/// Threads that tidy up at once, each of which may have to wait for the disk. Where so many do, the
/// next answer comes after the tidying.
pub(super) const TIDYING_MAX: usize = 4;

/// Runs blocking work and returns its answer, or nothing where the deadline comes first:
/// then the work goes on, and nobody hears of it.
///
/// What the work returns beside its answer is dropped after the answer was handed over: what
/// costs time and concerns nobody, such as the last descriptor of a file that is gone.
pub(super) async fn answer_first<T, R>(
    tidying: &Arc<Semaphore>,
    deadline: Instant,
    work: impl FnOnce() -> (T, R) + Send + 'static,
) -> Option<T>
where
    T: Send + 'static,
{
    let (answer, answered) = oneshot::channel();
    let tidying = Arc::clone(tidying);
    let task = tokio::task::spawn_blocking(move || {
        let (done, rest) = work();
        let place = tidying.try_acquire();
        let rest = place.is_ok().then_some(rest);
        // Whoever asked may have left.
        drop(answer.send(done));
        drop(rest);
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// Is dropped only when it is let.
    struct Slow(mpsc::Receiver<()>);

    impl Drop for Slow {
        fn drop(&mut self) {
            self.0.recv().unwrap();
        }
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    fn room_for(tidying: usize) -> Arc<Semaphore> {
        Arc::new(Semaphore::new(tidying))
    }

    #[tokio::test]
    async fn an_answer_does_not_wait_for_what_is_tidied_up() {
        let (go, wait) = mpsc::channel();
        let answer = answer_first(&room_for(1), soon(), move || (7, Slow(wait))).await;
        assert_eq!(answer, Some(7));
        go.send(()).unwrap();
    }

    #[tokio::test]
    async fn an_answer_waits_where_enough_is_being_tidied_up() {
        let (go, wait) = mpsc::channel();
        let (room, late) = (room_for(0), Instant::now() + Duration::from_millis(10));
        let answer = answer_first(&room, late, move || (7, Slow(wait))).await;
        assert_eq!(answer, None);
        go.send(()).unwrap();
    }

    #[tokio::test]
    async fn a_deadline_ends_the_waiting_alone() {
        let (go, wait) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let work = move || {
            wait.recv().unwrap();
            tell.send("done").unwrap();
            ((), ())
        };
        let late = Instant::now() + Duration::from_millis(10);
        assert_eq!(answer_first(&room_for(1), late, work).await, None);
        go.send(()).unwrap();
        assert_eq!(told.recv(), Ok("done"));
    }

    #[tokio::test]
    #[should_panic(expected = "a fault in the work")]
    async fn a_panic_of_the_work_is_a_panic_of_the_one_who_asked() {
        let work = || -> ((), ()) { unreachable!("a fault in the work") };
        answer_first(&room_for(1), soon(), work).await;
    }
}
