//! Runs the passes, as many at a time as the operator allows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, error, info_span};

use super::key::Key;
use super::pass::Passes;
use crate::clock::{Clock, Timestamp};

/// How long a key rests whose pass panicked.
const PANIC_REST: Duration = Duration::from_mins(1);

/// Images that are fetched at a time.
const FETCHES_MAX: usize = 3;

/// Tells when the controller last made progress; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Pulse(Arc<AtomicU64>);

impl Pulse {
    fn beat(&self, now: Timestamp) {
        self.0.store(now.micros(), Ordering::Relaxed);
    }

    /// Returns how long ago the controller's loop last went round.
    pub fn age(&self, now: Timestamp) -> Duration {
        now.since(Timestamp::from_micros(self.0.load(Ordering::Relaxed)))
    }
}

/// The controller's loop.
#[derive(Debug)]
pub struct Controller {
    passes: Passes,
    clock: Clock,
    workers: usize,
    pulse: Pulse,
}

type Ended = Result<(Id, Option<Timestamp>), JoinError>;

impl Controller {
    /// Makes a controller with this many passes at a time.
    pub fn new(passes: Passes, workers: usize) -> Self {
        Self {
            clock: passes.executor.books.clock.clone(),
            passes,
            workers,
            pulse: Pulse::default(),
        }
    }

    /// Returns the handle by which its progress is felt.
    pub fn pulse(&self) -> Pulse {
        self.pulse.clone()
    }

    /// Runs until it is cancelled, then ends the passes that are under way.
    ///
    /// Containers are left as they are: the next start finds them again.
    pub async fn run(self, cancel: CancellationToken) {
        let workers = Arc::new(Semaphore::new(self.workers));
        let fetches = Arc::new(Semaphore::new(FETCHES_MAX));
        let mut passes: JoinSet<Option<Timestamp>> = JoinSet::new();
        let mut keys: BTreeMap<Id, Key> = BTreeMap::new();
        loop {
            self.pulse.beat(self.clock.now());
            while let Some(ended) = passes.try_join_next_with_id() {
                self.ended(&mut keys, ended);
            }
            let turn = tokio::select! {
                biased;
                () = cancel.cancelled() => break,
                Some(ended) = passes.join_next_with_id() => {
                    self.ended(&mut keys, ended);
                    continue;
                }
                turn = self.turn(&workers) => turn,
            };
            let Some((key, permit)) = turn else { continue };
            let span = info_span!("reconcile", %key);
            let task = {
                let (passes, key) = (self.passes.clone(), key.clone());
                let fetches = Arc::clone(&fetches);
                async move {
                    let permit = match &key {
                        Key::Session(_) => Ok(permit),
                        // A fetch may take minutes: it makes room for sessions.
                        Key::Image(_) => {
                            drop(permit);
                            fetches.acquire_owned().await
                        }
                    };
                    let permit = permit.expect("the semaphore is never closed");
                    let again = passes.pass(&key).await;
                    drop(permit);
                    again
                }
            };
            keys.insert(passes.spawn(task.instrument(span)).id(), key);
        }
        // A call that is cut off may or may not have happened; that is what the
        // next start finds out, as after a crash.
        passes.shutdown().await;
    }

    /// Waits for a free worker and a key whose time has come.
    async fn turn(
        &self,
        workers: &Arc<Semaphore>,
    ) -> Option<(Key, tokio::sync::OwnedSemaphorePermit)> {
        let patience = Duration::from_secs(1);
        let permit = Arc::clone(workers).acquire_owned();
        let permit = tokio::time::timeout(patience, permit)
            .await
            .ok()?
            .expect("the semaphore is never closed");
        let key = self.passes.work.next().await?;
        Some((key, permit))
    }

    fn ended(&self, keys: &mut BTreeMap<Id, Key>, ended: Ended) {
        let task = match &ended {
            Ok((task, _)) => *task,
            Err(failed) => failed.id(),
        };
        let key = keys
            .remove(&task)
            .expect("every pass has its key on the list");
        let again = match ended {
            Ok((_, again)) => again,
            Err(failed) => {
                error!(%key, error = %failed, "a pass panicked");
                self.passes.tell_panic(&key);
                Some(self.clock.now().plus(PANIC_REST))
            }
        };
        self.passes.work.done(&key, again);
    }
}
