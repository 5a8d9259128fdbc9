//! Runs in the background.

use bytes::Bytes;

use super::request::{Close, Follow, Start};
use super::{Control, Refusal};
use crate::agent::protocol::message::Size;
use crate::agent::protocol::output::Record;
use crate::id::{RunId, SessionId};
use crate::wire;

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

/// Reads the output of a run, for as long as it is held.
#[derive(Debug)]
pub struct Follower(());

/// What a follower reads.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// Output, in order.
    Output(Vec<Record>),
    /// Records that are not kept any more: from the first up to, not with, the second.
    Gap(u64, u64),
    /// How the run is: it ended, or the reading does.
    End(wire::runs::Run),
}

impl Follower {
    /// Waits for the next piece; `None` after [`Piece::End`].
    ///
    /// # Errors
    /// Where the run was lost.
    pub async fn next(&mut self) -> Result<Option<Piece>, Refusal> {
        std::future::ready(Ok(None)).await
    }
}

impl Control {
    /// Starts a run in the background, or finds the one of the same request.
    pub async fn start_run(&self, id: &SessionId, start: Start) -> Result<Begun, Refusal> {
        self.begin_run(id, start, None).await
    }

    /// Starts a run in the background, on a terminal of that size where one is given, or
    /// finds the one of the same request.
    pub(super) async fn begin_run(
        &self,
        id: &SessionId,
        start: Start,
        tty: Option<Size>,
    ) -> Result<Begun, Refusal> {
        let _ = (start, tty);
        Err(stub(id).await)
    }

    /// Lists the runs of a session that were started in the background.
    pub async fn runs(&self, id: &SessionId) -> Result<wire::runs::RunList, Refusal> {
        Err(stub(id).await)
    }

    /// Describes a run.
    pub async fn describe_run(
        &self,
        id: &SessionId,
        run: &RunId,
    ) -> Result<wire::runs::Run, Refusal> {
        let _ = run;
        Err(stub(id).await)
    }

    /// Forgets a run that is over, with its output.
    pub async fn forget_run(&self, id: &SessionId, run: &RunId) -> Result<(), Refusal> {
        let _ = run;
        Err(stub(id).await)
    }

    /// Begins to read the output of a run.
    pub async fn follow_run(
        &self,
        id: &SessionId,
        run: &RunId,
        follow: Follow,
    ) -> Result<Follower, Refusal> {
        let _ = (run, follow);
        Err(stub(id).await)
    }

    /// Gives a run input, and waits until it was taken.
    pub async fn feed_run(
        &self,
        id: &SessionId,
        run: &RunId,
        bytes: Bytes,
        close: Close,
    ) -> Result<(), Refusal> {
        let _ = (run, bytes, close);
        Err(stub(id).await)
    }

    /// Sends a signal, by its number, to the process group of a run.
    pub async fn signal_run(
        &self,
        id: &SessionId,
        run: &RunId,
        signal: i32,
    ) -> Result<(), Refusal> {
        let _ = (run, signal);
        Err(stub(id).await)
    }
}

async fn stub(id: &SessionId) -> Refusal {
    std::future::ready(Refusal::NeedsAgent("a run", id.clone())).await
}
