//! Asks the agent at the other end of a stream, many things at once.

use crate::agent::protocol::message::{AgentHello, Fetch, Run, Size, Start, Why};
use crate::agent::protocol::output::Output;
use crate::id::RunId;

/// A stream to an agent; cheap to clone, and dead for all clones at once.
#[derive(Clone, Debug)]
pub struct Connection(());

/// Why an agent did not do what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The stream is at its end; what was asked may have been done.
    #[error("the stream to the agent is closed")]
    Closed,
    /// The agent refused, in its words.
    #[error("the agent refused: {1}")]
    Refused(Why, String),
}

/// A run that an agent was asked to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    /// How it is now.
    pub run: Run,
    /// Whether this request started it.
    pub fresh: bool,
}

impl Connection {
    /// Returns how the agent introduced itself.
    pub fn hello(&self) -> &AgentHello {
        unimplemented!()
    }

    /// Starts a run. The request is on its way once the future was polled.
    pub async fn start(&self, start: Start) -> Result<Started, Error> {
        let _ = start;
        std::future::ready(Err(Error::Closed)).await
    }

    /// Asks for output; dropping the future takes the request back.
    pub async fn fetch(&self, fetch: Fetch) -> Result<Output, Error> {
        let _ = fetch;
        std::future::ready(Err(Error::Closed)).await
    }

    /// Gives a run input, in pieces as large as a frame holds, and waits until it was
    /// taken; dropping the future takes back what was not.
    pub async fn input(&self, run: &RunId, bytes: &[u8], ends: bool) -> Result<(), Error> {
        let _ = (run, bytes, ends);
        std::future::ready(Err(Error::Closed)).await
    }

    /// Sends a signal to a run's process group.
    pub async fn signal(&self, run: &RunId, signal: i32) -> Result<(), Error> {
        let _ = (run, signal);
        std::future::ready(Err(Error::Closed)).await
    }

    /// Has a run ended; its end is fetched.
    pub async fn stop(&self, run: &RunId) -> Result<(), Error> {
        let _ = run;
        std::future::ready(Err(Error::Closed)).await
    }

    /// Changes the size of a run's terminal.
    pub async fn resize(&self, run: &RunId, size: Size) -> Result<(), Error> {
        let _ = (run, size);
        std::future::ready(Err(Error::Closed)).await
    }

    /// Lists all runs that the agent knows.
    pub async fn list(&self) -> Result<Vec<Run>, Error> {
        std::future::ready(Err(Error::Closed)).await
    }

    /// Has an ended run forgotten.
    pub async fn forget(&self, run: &RunId) -> Result<(), Error> {
        let _ = run;
        std::future::ready(Err(Error::Closed)).await
    }

    /// Waits until the stream is at its end.
    pub async fn closed(&self) {
        std::future::ready(()).await;
    }
}
