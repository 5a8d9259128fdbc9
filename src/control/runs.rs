//! Runs in the background, as callers see them.
//!
//! ```text
//!   begin ──▶ store ──▶ agent            a run is on disk before it is started
//!   watch ──▶ sight ──▶ fate ──▶ store   its ending is written once, with its event
//!   follow ──▶ agent                     each caller reads from its own place
//!   adopt ──▶ store, watch               what is found after a restart
//! ```
//!
//! Looking at runs wakes no session and counts as no use of it.

mod adopt;
mod begin;
mod fate;
mod follow;
mod sight;
mod watch;
mod words;

use bytes::Bytes;

use self::sight::{About, Looked};
use super::request::{Close, Start};
use super::{Control, Refusal, unwritten};
use crate::agent::connection::{Connection, Error};
use crate::agent::protocol::message::Why;
use crate::id::{RunId, SessionId};
use crate::store::{Batch, StoredRun};
use crate::wire;

pub use follow::{Follower, Piece};
pub(super) use watch::Runs;

/// A run that was asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Begun {
    /// How it is now.
    pub run: wire::runs::Run,
    /// Whether this request started it.
    pub fresh: Fresh,
}

/// Whether a request started what it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fresh {
    /// It did.
    Yes,
    /// The same request had been there before.
    No,
}

impl Control {
    /// Starts a run in the background, or finds the one of the same request.
    pub async fn start_run(&self, id: &SessionId, start: Start) -> Result<Begun, Refusal> {
        self.begin_run(id, start, None).await
    }

    /// Lists the runs of a session that were started in the background, the oldest first.
    pub async fn runs(&self, id: &SessionId) -> Result<wire::runs::RunList, Refusal> {
        self.has_session(id)?;
        let known = self.0.books.store.runs(id);
        let looked = self.look_at_all(id, known, About::Any).await;
        let runs = looked.iter();
        Ok(wire::runs::RunList {
            runs: runs
                .map(|one| words::described(&one.stored, one.heard.as_ref()))
                .collect(),
        })
    }

    /// Describes a run.
    pub async fn describe_run(
        &self,
        id: &SessionId,
        run: &RunId,
    ) -> Result<wire::runs::Run, Refusal> {
        self.has_session(id)?;
        self.described(id, run, About::Any).await
    }

    /// Forgets a run that is over, with its output.
    pub async fn forget_run(&self, id: &SessionId, run: &RunId) -> Result<(), Refusal> {
        let looked = self.looked_up(id, run, About::Any).await?;
        if looked.stored.ended.is_none() {
            return Err(Refusal::RunGoesOn(run.clone()));
        }
        if let Some(connection) = looked.connection {
            // What is not forgotten now goes when its time is over.
            drop(connection.forget(run).await);
        }
        let batch = Batch::new().drop_run(id, run);
        let dropped = self.0.books.store.commit(batch).await;
        dropped.map(drop).map_err(|error| unwritten(&error))
    }

    /// Gives a run input, and waits until it was taken.
    pub async fn feed_run(
        &self,
        id: &SessionId,
        run: &RunId,
        bytes: Bytes,
        close: Close,
    ) -> Result<(), Refusal> {
        let connection = self.going_on(id, run).await?;
        let _in_use = self.0.loop_.leases.try_shared(id);
        let ends = close == Close::Yes;
        let taken = connection.input(run, &bytes, ends).await;
        match taken {
            Ok(()) => Ok(()),
            Err(Error::Closed) => Err(Refusal::EngineFailed(
                "the stream to the sandbox broke, and how much of the input was taken is not known"
                    .to_owned(),
            )),
            Err(Error::Refused(why, text)) => Err(refusal_of((id, run), why, text)),
        }
    }

    /// Sends a signal, by its number, to the process group of a run.
    pub async fn signal_run(
        &self,
        id: &SessionId,
        run: &RunId,
        signal: i32,
    ) -> Result<(), Refusal> {
        let connection = self.going_on(id, run).await?;
        let _in_use = self.0.loop_.leases.try_shared(id);
        match connection.signal(run, signal).await {
            Ok(()) => Ok(()),
            Err(Error::Closed) => Err(unheard(id)),
            Err(Error::Refused(why, text)) => Err(refusal_of((id, run), why, text)),
        }
    }

    /// Finds the stream to the agent of a run that goes on.
    pub(super) async fn going_on(
        &self,
        id: &SessionId,
        run: &RunId,
    ) -> Result<Connection, Refusal> {
        let looked = self.looked_up(id, run, About::GoingOn).await?;
        match (&looked.stored.ended, looked.connection) {
            (Some(ended), _) if ended.cause.is_lost() => Err(lost(&looked.stored)),
            (Some(ended), _) => Err(Refusal::RunOver(run.clone(), words::how_it_ended(ended))),
            (None, Some(connection)) => Ok(connection),
            (None, None) => Err(unheard(id)),
        }
    }

    /// Looks at a run that somebody asks about.
    async fn looked_up(
        &self,
        id: &SessionId,
        run: &RunId,
        about: About,
    ) -> Result<Looked, Refusal> {
        self.has_session(id)?;
        let looked = self.look_at(id, run, about).await;
        looked.ok_or_else(|| Refusal::NoRun(run.clone()))
    }

    /// Describes a run that was not lost.
    async fn described(
        &self,
        id: &SessionId,
        run: &RunId,
        about: About,
    ) -> Result<wire::runs::Run, Refusal> {
        let looked = self.looked_up(id, run, about).await?;
        match &looked.stored.ended {
            Some(ended) if ended.cause.is_lost() => Err(lost(&looked.stored)),
            Some(_) | None => Ok(words::described(&looked.stored, looked.heard.as_ref())),
        }
    }

    fn has_session(&self, id: &SessionId) -> Result<(), Refusal> {
        match self.open_record(id) {
            Some(_) => Ok(()),
            None => Err(Refusal::NoSession(id.clone())),
        }
    }
}

/// Says that a run was lost, and with what.
fn lost(stored: &StoredRun) -> Refusal {
    let reason = stored.ended.as_ref().map_or("", words::reason);
    Refusal::RunLost {
        run: stored.run_id.clone(),
        reason: reason.to_owned(),
    }
}

/// Says that the sandbox of a session cannot be heard now.
fn unheard(id: &SessionId) -> Refusal {
    Refusal::EngineUnavailable(format!("the sandbox of session {id} does not answer"))
}

/// Puts the refusal of an agent into the caller's words.
fn refusal_of((id, run): (&SessionId, &RunId), why: Why, text: String) -> Refusal {
    match why {
        Why::NoRun => Refusal::NoRun(run.clone()),
        Why::Conflict => Refusal::RunIdUsed(run.clone()),
        Why::Over => {
            let how = "It has ended, or its input was closed.".to_owned();
            Refusal::RunOver(run.clone(), how)
        }
        // Its bound is the session's own, which has been asked before.
        Why::Ceiling => Refusal::EngineUnavailable(format!(
            "the sandbox of session {id} takes no more runs: {text}"
        )),
        Why::User | Why::Bad => Refusal::EngineFailed(text),
    }
}
