//! Watches over runs in the background until they end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::sight::{About, Looked};
use crate::activity::Lease;
use crate::agent::connection::{self, Connection};
use crate::agent::protocol::message::{Fetch, Filter, From, Wait};
use crate::control::Control;
use crate::control::slots::Slot;
use crate::id::{RunId, SessionId};
use crate::policy::KeepAwake;
use crate::store::StoredRun;

/// The first and the longest pause between two looks at what cannot be seen.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The runs that something is done about now.
#[derive(Debug, Default)]
pub(in crate::control) struct Runs {
    // A std mutex: it is held for a look into small maps, and never across an await.
    under_way: Mutex<UnderWay>,
    /// Told when a run is not being started any more.
    left: Notify,
    /// Told when an agent has made a stream.
    arrived: Notify,
    watchers: TaskTracker,
    stop: CancellationToken,
}

type Place = (SessionId, RunId);

#[derive(Debug, Default)]
struct UnderWay {
    starting: BTreeSet<Place>,
    /// With how often the sandbox had run out of memory when the watch began.
    watched: BTreeMap<Place, Option<u64>>,
}

/// Marks a run that is being started; dropping it ends that.
#[derive(Debug)]
pub(super) struct Starting {
    control: Control,
    place: Place,
}

/// Marks a run that is watched over; dropping it ends that.
#[derive(Debug)]
struct Watched {
    control: Control,
    place: Place,
}

/// What a run has while it goes on.
#[derive(Debug, Default)]
struct Held {
    slot: Option<Slot>,
    lease: Option<Lease>,
}

impl Runs {
    /// Returns whether a run is being started.
    pub(super) fn is_starting(&self, id: &SessionId, run: &RunId) -> bool {
        let place = (id.clone(), run.clone());
        self.under_way().starting.contains(&place)
    }

    /// Wakes the watchers of runs that could not be seen.
    pub(super) fn tell_of_arrival(&self) {
        self.arrived.notify_waiters();
    }

    /// Runs a task until the service stops.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.watchers.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = task => {}
            }
        });
    }

    /// Ends all watching: the runs go on, and are found again.
    pub(in crate::control) async fn leave(&self) {
        self.stop.cancel();
        self.watchers.close();
        self.watchers.wait().await;
    }

    fn under_way(&self) -> MutexGuard<'_, UnderWay> {
        // Both maps are whole after every statement.
        self.under_way
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Control {
    /// Marks a run as being started, once nobody else starts it.
    pub(super) async fn starting(&self, id: &SessionId, run: &RunId) -> Starting {
        let place = (id.clone(), run.clone());
        loop {
            // Listening begins before looking, so that no leaving is missed.
            let left = self.0.runs.left.notified();
            if self.0.runs.under_way().starting.insert(place.clone()) {
                return Starting {
                    control: self.clone(),
                    place,
                };
            }
            left.await;
        }
    }

    /// Watches over a run until it ends, unless somebody does already.
    pub(super) fn watch(&self, id: &SessionId, stored: &StoredRun, slot: Option<Slot>) {
        let place = (id.clone(), stored.run_id.clone());
        let memory = self.0.host.cgroups.oom_kills(&stored.container);
        {
            let mut under_way = self.0.runs.under_way();
            if under_way.watched.contains_key(&place) {
                return;
            }
            under_way.watched.insert(place.clone(), memory);
        }
        let watched = Watched {
            control: self.clone(),
            place,
        };
        let held = Held { slot, lease: None };
        self.0.runs.spawn(watched.until_over(held));
    }

    /// Whether the sandbox of a watched run has run out of memory since its watch began.
    pub(super) fn has_run_out_of_memory(&self, id: &SessionId, stored: &StoredRun) -> bool {
        let place = (id.clone(), stored.run_id.clone());
        let before = self.0.runs.under_way().watched.get(&place).copied();
        let now = self.0.host.cgroups.oom_kills(&stored.container);
        before
            .flatten()
            .zip(now)
            .is_some_and(|(then, now)| then < now)
    }

    /// Whether a run in the background keeps its session from idling.
    fn keeps_awake(&self, id: &SessionId) -> bool {
        self.open_record(id)
            .is_some_and(|record| record.spec.runtime.keep_awake == KeepAwake::Yes)
    }
}

impl Watched {
    async fn until_over(self, mut held: Held) {
        let mut pause = PAUSE_MIN;
        let mut has_heard_the_end = false;
        loop {
            let (control, (id, run)) = (&self.control, &self.place);
            // Listening begins before looking, so that no arrival is missed.
            let arrived = control.0.runs.arrived.notified();
            let Some(looked) = control.look_at(id, run, About::GoingOn).await else {
                return;
            };
            match looked {
                Looked { stored, .. } if stored.ended.is_some() && is_written(control, id, run) => {
                    return;
                }
                Looked {
                    connection: Some(connection),
                    ..
                } => {
                    let is_over = self.until_it_ends(&connection, &mut held).await;
                    // An agent that says so again and again keeps nobody busy.
                    if is_over && !has_heard_the_end {
                        has_heard_the_end = true;
                        continue;
                    }
                }
                Looked {
                    connection: None, ..
                } => {}
            }
            tokio::select! {
                () = sleep(pause) => pause = PAUSE_MAX.min(pause * 2),
                () = arrived => pause = PAUSE_MIN,
            }
        }
    }

    /// Waits until the run is over or its stream breaks; returns whether it is over.
    async fn until_it_ends(&self, connection: &Connection, held: &mut Held) -> bool {
        let (control, (id, run)) = (&self.control, &self.place);
        if held.slot.is_none() {
            held.slot = Some(control.0.slots.adopt(id));
        }
        if control.keeps_awake(id) {
            held.lease = control.0.loop_.leases.try_shared(id);
        }
        let ended = connection.fetch(Fetch {
            run: run.to_string(),
            from: From::Seq(0),
            streams: Filter::Both,
            bytes: 0,
            wait: Wait::Over,
        });
        let ended = ended.await;
        // Whoever ends the sandbox waits for this one.
        held.lease = None;
        match ended {
            Ok(output) => output.end.is_some(),
            // What became of it is seen at the next look.
            Err(connection::Error::Refused(..) | connection::Error::Closed) => false,
        }
    }
}

/// Whether the ending of a run is on disk; a store that takes no writes is tried again.
fn is_written(control: &Control, id: &SessionId, run: &RunId) -> bool {
    let stored: Option<Arc<StoredRun>> = control.0.books.store.run(id, run);
    stored.is_none_or(|stored| stored.ended.is_some())
}

impl Drop for Starting {
    fn drop(&mut self) {
        let runs = &self.control.0.runs;
        runs.under_way().starting.remove(&self.place);
        runs.left.notify_waiters();
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let runs = &self.control.0.runs;
        runs.under_way().watched.remove(&self.place);
    }
}
