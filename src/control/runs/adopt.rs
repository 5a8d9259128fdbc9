//! Finds the runs of before: after a start of the daemon, and whenever an agent has made
//! a new stream.

use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::begin;
use crate::agent::connection::Connection;
use crate::agent::protocol::message::{Attended, Fetch, Filter, From, Run, Wait};
use crate::cause::chain;
use crate::control::Control;
use crate::id::{RunId, SessionId};
use crate::sandbox::reach::Arrival;
use crate::store::{BATCH_OPS_MAX, Batch, CommitError, ExpectRun, StoredRun};

/// How long an agent may take to say what it knows.
const LIST_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long a run may take to end that nobody waits for any more.
const END_WAIT_MAX: Duration = Duration::from_secs(30);

impl Control {
    /// Watches over the runs that are on record, and over those that agents bring along,
    /// until the service stops.
    pub async fn adopt_runs(&self, stop: CancellationToken) {
        for (id, run) in self.0.books.store.runs_going_on() {
            self.watch(&id, &run, None);
        }
        loop {
            let arrival = tokio::select! {
                () = stop.cancelled() => return,
                arrival = self.0.reacher.next_arrival() => arrival,
            };
            let control = self.clone();
            self.0
                .runs
                .spawn(async move { control.welcome(arrival).await });
        }
    }

    /// Forgets runs that have been over for longer than they are kept.
    pub async fn forget_old_runs(&self) {
        let keep = self.0.policy.get().limits.runs.keep;
        let now = self.0.books.clock.now();
        let Some(moment) = now.before(keep) else {
            return;
        };
        let old = self.0.books.store.runs_over_before(moment);
        for some in old.chunks(BATCH_OPS_MAX) {
            let batch = some
                .iter()
                .fold(Batch::new(), |batch, (id, run)| batch.drop_run(id, run));
            if let Err(error) = self.0.books.store.commit(batch).await {
                warn!(error = %chain(&error), "runs that are long over could not be forgotten");
                return;
            }
        }
    }

    /// Takes over what an agent knows that has just come.
    async fn welcome(&self, arrival: Arrival) {
        let Arrival {
            session,
            container,
            connection,
        } = arrival;
        if let Ok(Ok(runs)) = timeout(LIST_WAIT_MAX, connection.list()).await {
            for run in runs {
                let Ok(id) = RunId::parse(&run.run) else {
                    continue;
                };
                match run.attended {
                    Attended::Yes if self.is_attended(&id) => {}
                    Attended::Yes => {
                        let connection = connection.clone();
                        self.0
                            .runs
                            .spawn(async move { dismiss(&id, &run, &connection).await });
                    }
                    Attended::No => {
                        let place = (&session, &*container, &*connection.hello().life);
                        self.adopt(place, &run).await;
                    }
                }
            }
        }
        for run in self.0.books.store.runs(&session) {
            if run.ended.is_none() {
                self.watch(&session, &run, None);
            }
        }
        self.0.runs.tell_of_arrival();
    }

    /// Puts a run on record that goes on with its agent, and that no record knows: the
    /// store was lost. What is over is left to the agent, which forgets it in time.
    async fn adopt(&self, (session, container, life): (&SessionId, &str, &str), run: &Run) {
        let store = &self.0.books.store;
        let age = Duration::from_millis(run.age_ms);
        let started = self.0.books.clock.now().before(age).unwrap_or_default();
        let Some(found) = begin::found(run, started) else {
            return;
        };
        // One that is being started is on record, or about to be.
        let known = store.run(session, &found.run_id).is_some()
            || self.0.runs.is_starting(session, &found.run_id);
        if run.end.is_some() || known {
            return;
        }
        let found = StoredRun {
            container: container.to_owned(),
            life: life.to_owned(),
            ..found
        };
        let batch = Batch::new().put_run(session, found.clone(), ExpectRun::Absent);
        match store.commit(batch).await {
            Ok(_) => info!(%session, run = %found.run_id, "a run was found that was not on record"),
            // It is on record by now, or its session is not.
            Err(CommitError::Conflict(_)) => {}
            Err(error) => {
                warn!(%session, run = %found.run_id, error = %chain(&error), "a run that was found could not be put on record");
            }
        }
    }
}

/// Ends and forgets a run whose caller is gone.
async fn dismiss(id: &RunId, run: &Run, connection: &Connection) {
    if run.end.is_none() {
        let ended = async {
            connection.stop(id).await?;
            let over = Fetch {
                run: id.to_string(),
                from: From::Seq(0),
                streams: Filter::Both,
                bytes: 0,
                wait: Wait::Over,
            };
            connection.fetch(over).await
        };
        if timeout(END_WAIT_MAX, ended).await.is_err() {
            warn!(run = %id, "a run whose caller is gone does not end");
            return;
        }
    }
    // Where the stream broke it is found again.
    drop(connection.forget(id).await);
}
