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
use crate::agent::protocol::{FETCHES_MAX, PIECES_MAX};
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
            Err(Error::Refused(why, text)) => Err(refusal_of((id, run), Wish::Input, (why, text))),
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
            Err(Error::Refused(why, text)) => Err(refusal_of((id, run), Wish::Signal, (why, text))),
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

/// What an agent was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    /// To start one more run, of which there may be so many in a session.
    Start(usize),
    /// To show output.
    Output,
    /// To pass input on.
    Input,
    /// To send a signal.
    Signal,
}

impl Wish {
    /// Names the ceiling that an agent has for it.
    fn ceiling(self, id: &SessionId) -> Refusal {
        let full = |name, what, limit| Refusal::SandboxCeiling {
            id: id.clone(),
            name,
            what,
            limit: u64::try_from(limit).unwrap_or(u64::MAX),
        };
        match self {
            Self::Start(limit) => super::slots::session_is_full(id, limit),
            Self::Output => full("run_readers", "readers of output", FETCHES_MAX),
            Self::Input => full("run_input_pieces", "input for the run", PIECES_MAX),
            // None is known: it takes nothing to send one.
            Self::Signal => full("run_signals", "signals", 0),
        }
    }
}

/// Puts the refusal of an agent into the caller's words.
fn refusal_of((id, run): (&SessionId, &RunId), wish: Wish, (why, text): (Why, String)) -> Refusal {
    match why {
        Why::NoRun => Refusal::NoRun(run.clone()),
        Why::Conflict => Refusal::RunIdUsed(run.clone()),
        Why::Over => {
            let how = "It has ended, or its input was closed.".to_owned();
            Refusal::RunOver(run.clone(), how)
        }
        Why::Ceiling => wish.ceiling(id),
        Why::User => Refusal::UserNotPossible(text),
        Why::Bad => Refusal::NotPossible(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_agent_refuses_is_never_laid_to_the_engine() {
        let (id, run) = (SessionId::parse("a").unwrap(), RunId::random());
        let wishes = [Wish::Start(3), Wish::Output, Wish::Input, Wish::Signal];
        for wish in wishes {
            let told = |why| refusal_of((&id, &run), wish, (why, "why".to_owned()));
            assert_eq!(told(Why::NoRun), Refusal::NoRun(run.clone()));
            assert_eq!(told(Why::Conflict), Refusal::RunIdUsed(run.clone()));
            assert!(matches!(told(Why::Over), Refusal::RunOver(..)));
            assert_eq!(told(Why::User), Refusal::UserNotPossible("why".to_owned()));
            assert_eq!(told(Why::Bad), Refusal::NotPossible("why".to_owned()));
            let ceiling = told(Why::Ceiling).ceiling().unwrap();
            assert_eq!(ceiling.scope, "session:a");
            assert_eq!(ceiling.used, ceiling.limit);
        }
        let full = refusal_of((&id, &run), Wish::Start(3), (Why::Ceiling, String::new()));
        let ceiling = full.ceiling().unwrap();
        assert_eq!((&*ceiling.name, ceiling.limit), ("max_session_commands", 3));
    }
}
