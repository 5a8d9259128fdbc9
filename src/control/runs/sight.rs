//! Looks at the runs of a session, and wakes or uses nothing for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tracing::warn;

use super::fate::{Fate, Memory, Seen, what_became_of};
use super::words;
use crate::agent::connection::Connection;
use crate::agent::protocol::message;
use crate::cause::chain;
use crate::control::Control;
use crate::id::{RunId, SessionId};
use crate::sandbox::reach::Way;
use crate::store::{Batch, CommitError, Conflict, ExpectRun, RunFound, StoredRun};

/// How long a look waits for an agent.
const LOOK_WAIT_MAX: Duration = Duration::from_secs(2);

/// What is seen of the sandbox of a session.
#[derive(Debug)]
pub(super) enum Sight {
    /// It is being started or stopped, or nobody knows.
    Nothing,
    /// No container of it runs.
    NoContainer,
    /// This container runs, and its agent is not heard.
    Unheard(String),
    /// This container runs, and its agent has answered.
    Heard(Heard),
}

/// An agent that has answered.
#[derive(Debug)]
pub(super) struct Heard {
    /// The engine's id of its container.
    pub(super) container: String,
    /// The stream to it.
    pub(super) connection: Connection,
    /// The runs that it knows.
    pub(super) runs: BTreeMap<String, message::Run>,
}

/// A run, and what was heard of it.
#[derive(Clone, Debug)]
pub(super) struct Looked {
    /// The run, with its ending where that is known by now.
    pub(super) stored: Arc<StoredRun>,
    /// What its agent says, where it was heard.
    pub(super) heard: Option<message::Run>,
    /// The stream to that agent.
    pub(super) connection: Option<Connection>,
}

/// Which runs an agent is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    /// Those that go on, as far as is stored.
    GoingOn,
    /// Those that are over too: their output may still be there.
    Any,
}

impl Control {
    /// Looks at one run of a session; `None` where there is none of that id.
    pub(super) async fn look_at(
        &self,
        id: &SessionId,
        run: &RunId,
        about: About,
    ) -> Option<Looked> {
        let store = &self.0.books.store;
        let known = store.run(id, run)?;
        let looked = self.look_at_all(id, vec![known], about).await;
        looked.into_iter().next()
    }

    /// Looks at runs of a session, and writes down the endings that it finds.
    pub(super) async fn look_at_all(
        &self,
        id: &SessionId,
        runs: Vec<Arc<StoredRun>>,
        about: About,
    ) -> Vec<Looked> {
        // Before the agent is asked: one that is being started then may be missing in
        // the answer, and all the same be there.
        let starting: Vec<bool> = runs
            .iter()
            .map(|run| self.0.runs.is_starting(id, &run.run_id))
            .collect();
        let goes_on = runs.iter().any(|run| run.ended.is_none());
        let asks = goes_on || (about == About::Any && !runs.is_empty());
        let sight = if asks {
            self.sight(id).await
        } else {
            Sight::Nothing
        };
        let mut looked = Vec::with_capacity(runs.len());
        for (stored, starting) in runs.into_iter().zip(starting) {
            looked.push(self.judge(id, stored, &sight, starting).await);
        }
        looked
    }

    async fn judge(
        &self,
        id: &SessionId,
        stored: Arc<StoredRun>,
        sight: &Sight,
        starting: bool,
    ) -> Looked {
        let heard = sight.of(&stored);
        let connection = heard.map(|(heard, _)| heard.connection.clone());
        let heard = heard.map(|(_, run)| run.clone());
        let stored = if starting {
            stored
        } else {
            self.settled(id, stored, sight.seen(heard.as_ref())).await
        };
        Looked {
            stored,
            heard,
            connection,
        }
    }

    /// Returns a run as it is after what was seen, and writes an ending down.
    async fn settled(
        &self,
        id: &SessionId,
        stored: Arc<StoredRun>,
        seen: Seen<'_>,
    ) -> Arc<StoredRun> {
        if stored.ended.is_some() {
            return stored;
        }
        let memory = if self.has_run_out_of_memory(id, &stored) {
            Memory::RanOut
        } else {
            Memory::Held
        };
        let now = self.0.books.clock.now();
        match what_became_of(&stored, seen, memory, now) {
            Fate::GoesOn => stored,
            Fate::Over(ended) => {
                let event = words::event(&stored, &ended);
                let over = StoredRun {
                    ended: Some(ended),
                    ..StoredRun::clone(&stored)
                };
                self.write_ending(id, over, event).await
            }
        }
    }

    /// Writes down how a run ended, with its event, once.
    async fn write_ending(
        &self,
        id: &SessionId,
        over: StoredRun,
        event: crate::session::record::Event,
    ) -> Arc<StoredRun> {
        let store = &self.0.books.store;
        let batch = Batch::new()
            .put_run(id, over.clone(), ExpectRun::GoesOn)
            .event(Some(id), event);
        match store.commit(batch).await {
            Ok(_) => Arc::new(over),
            // Somebody else has found an ending at the same time, and theirs stands.
            Err(CommitError::Conflict(Conflict::Run {
                found: RunFound::Over,
                ..
            })) => store
                .run(id, &over.run_id)
                .unwrap_or_else(|| Arc::new(over)),
            Err(CommitError::Conflict(_)) => Arc::new(over),
            Err(error) => {
                // It is found again at the next look.
                warn!(session = %id, run = %over.run_id, error = %chain(&error), "the end of a run could not be written down");
                Arc::new(over)
            }
        }
    }

    /// Looks at the sandbox of a session.
    pub(super) async fn sight(&self, id: &SessionId) -> Sight {
        let Some(record) = self.0.books.store.record(id) else {
            return Sight::NoContainer;
        };
        let status = self.status(id);
        let sleeps = record.marks.parked.is_some() || record.marks.closed.is_some();
        let container = match (sleeps, status.has_reached(&record.marks), &status.container) {
            (_, false, _) | (false, true, None) => return Sight::Nothing,
            (true, true, _) => return Sight::NoContainer,
            (false, true, Some(container)) => container.clone(),
        };
        let deadline = Instant::now() + LOOK_WAIT_MAX;
        match self.0.reacher.way(id, &container, deadline).await {
            Err(crate::sandbox::reach::Late) => Sight::Unheard(container),
            Ok(Way::Engine) => Sight::Unheard(container),
            Ok(Way::Agent(connection)) => match timeout(LOOK_WAIT_MAX, connection.list()).await {
                Ok(Ok(runs)) => Sight::Heard(Heard::new(container, connection, runs)),
                Ok(Err(_)) | Err(_) => Sight::Unheard(container),
            },
        }
    }
}

impl Heard {
    pub(super) fn new(container: String, connection: Connection, runs: Vec<message::Run>) -> Self {
        Self {
            container,
            connection,
            runs: runs.into_iter().map(|run| (run.run.clone(), run)).collect(),
        }
    }
}

impl Sight {
    /// Returns what an agent says of a run, where it is the one that has it.
    fn of(&self, stored: &StoredRun) -> Option<(&Heard, &message::Run)> {
        match self {
            Self::Heard(heard)
                if heard.container == stored.container
                    && heard.connection.hello().life == stored.life =>
            {
                let run = heard.runs.get(stored.run_id.as_str())?;
                Some((heard, run))
            }
            Self::Heard(_) | Self::Nothing | Self::NoContainer | Self::Unheard(_) => None,
        }
    }

    fn seen<'a>(&'a self, run: Option<&'a message::Run>) -> Seen<'a> {
        match self {
            Self::Nothing => Seen::Nothing,
            Self::NoContainer => Seen::NoContainer,
            Self::Unheard(container) => Seen::Unheard { container },
            Self::Heard(heard) => Seen::Heard {
                container: &heard.container,
                life: &heard.connection.hello().life,
                run,
            },
        }
    }
}
