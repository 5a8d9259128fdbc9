//! Asks the agent at the other end of a stream, many things at once.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::asks::{Answer, TakenBack, Wanted};
use super::check::{self, Fault};
use super::protocol::VERSION;
use super::protocol::frame::{BadFrame, Decoder, Frame, INPUT_BYTES_MAX, Input};
use super::protocol::message::{
    AgentHello, Bounds, DaemonHello, Fetch, Reply, Request, Run, Size, Start, Usage, Why,
};
use super::protocol::output::Output;
use super::stream::{self, Shared};
use crate::id::{RunId, SessionId};

/// How long the two sides may take to introduce themselves.
pub const HELLO_WAIT_MAX: Duration = Duration::from_secs(3);
/// A stream to an agent; cheap to clone, and dead for all clones at once.
///
/// It closes with its last clone.
#[derive(Clone, Debug)]
pub struct Connection(Arc<Held>);

#[derive(Debug)]
struct Held {
    hello: AgentHello,
    shared: Arc<Shared>,
    /// The reader and the writer, which end with this.
    _tasks: JoinSet<()>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// Why an agent did not do what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(
    clippy::error_impl_error,
    reason = "read as connection::Error, as one reads io::Error"
)]
pub enum Error {
    /// The stream is at its end; what was asked may have been done.
    #[error("the stream to the agent is closed")]
    Closed,
    /// The agent refused, in its words.
    #[error("the agent refused: {1}")]
    Refused(Why, String),
}

/// Why a stream is no stream to an agent.
#[derive(Debug, thiserror::Error)]
pub enum NoAgent {
    /// It ended before the other side had introduced itself.
    #[error("the stream ended before it introduced itself")]
    Closed,
    /// The other side did not introduce itself in time.
    #[error("it did not introduce itself within {HELLO_WAIT_MAX:?}")]
    Late,
    /// The stream cannot be used.
    #[error("the stream cannot be used")]
    Io(#[source] std::io::Error),
    /// The other side said what an agent does not say.
    #[error("{0}")]
    Fault(Fault),
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
    /// Introduces both sides of a new stream to each other, and begins to ask over it.
    pub async fn open(
        stream: impl AsyncRead + AsyncWrite + Send + 'static,
        session: &SessionId,
        bounds: Bounds,
    ) -> Result<Self, NoAgent> {
        let (mut from, mut to) = tokio::io::split(stream);
        let both = introduce(&mut from, &mut to, bounds);
        let (hello, decoder) = timeout(HELLO_WAIT_MAX, both)
            .await
            .unwrap_or(Err(NoAgent::Late))?;
        let shared = Arc::new(Shared::new(session.clone()));
        let mut tasks = JoinSet::new();
        tasks.spawn(stream::read(Arc::clone(&shared), from, decoder));
        tasks.spawn(stream::write(Arc::clone(&shared), to));
        Ok(Self(Arc::new(Held {
            hello,
            shared,
            _tasks: tasks,
        })))
    }

    /// Returns how the agent introduced itself.
    pub fn hello(&self) -> &AgentHello {
        &self.0.hello
    }

    /// Starts a run. The request is on its way once the future was polled.
    ///
    /// Dropping the future stops nothing: the run may begin.
    pub async fn start(&self, start: Start) -> Result<Started, Error> {
        let wanted = Wanted::Started {
            run: start.run.clone(),
            digest: start.digest.clone(),
        };
        let start = Box::new(start);
        match self
            .ask(wanted, |ask| Request::Start { ask, start })
            .await?
        {
            Answer::Started(started) => Ok(started),
            other => Err(refused(other)),
        }
    }

    /// Asks for output; dropping the future takes the request back.
    pub async fn fetch(&self, fetch: Fetch) -> Result<Output, Error> {
        let wanted = Wanted::Output(fetch.clone());
        match self
            .ask(wanted, |ask| Request::Fetch { ask, fetch })
            .await?
        {
            Answer::Output(output) => Ok(output),
            other => Err(refused(other)),
        }
    }

    /// Gives a run input, in pieces as large as a frame holds, and waits until it was
    /// taken; dropping the future takes back what was not.
    pub async fn input(&self, run: &RunId, bytes: &[u8], ends: bool) -> Result<(), Error> {
        let mut rest = bytes;
        loop {
            let (piece, after) = rest.split_at(rest.len().min(INPUT_BYTES_MAX));
            let last = after.is_empty();
            self.piece(run, piece, ends && last).await?;
            if last {
                return Ok(());
            }
            rest = after;
        }
    }

    /// Sends a signal to a run's process group.
    pub async fn signal(&self, run: &RunId, signal: i32) -> Result<(), Error> {
        self.done(|ask| Request::Signal {
            ask,
            run: run.to_string(),
            signal,
        })
        .await
    }

    /// Has a run ended; its end is fetched.
    pub async fn stop(&self, run: &RunId) -> Result<(), Error> {
        self.done(|ask| Request::Stop {
            ask,
            run: run.to_string(),
        })
        .await
    }

    /// Changes the size of a run's terminal.
    pub async fn resize(&self, run: &RunId, size: Size) -> Result<(), Error> {
        self.done(|ask| Request::Resize {
            ask,
            run: run.to_string(),
            size,
        })
        .await
    }

    /// Lists all runs that the agent knows.
    pub async fn list(&self) -> Result<Vec<Run>, Error> {
        match self.ask(Wanted::Runs, |ask| Request::List { ask }).await? {
            Answer::Runs(runs) => Ok(runs),
            other => Err(refused(other)),
        }
    }

    /// Asks what the sandbox uses, in its agent's words.
    ///
    /// An agent of an earlier version refuses.
    pub async fn usage(&self) -> Result<Usage, Error> {
        match self
            .ask(Wanted::Usage, |ask| Request::Usage { ask })
            .await?
        {
            Answer::Usage(usage) => Ok(usage),
            other => Err(refused(other)),
        }
    }

    /// Has an ended run forgotten.
    pub async fn forget(&self, run: &RunId) -> Result<(), Error> {
        self.done(|ask| Request::Forget {
            ask,
            run: run.to_string(),
        })
        .await
    }

    /// Waits until the stream is at its end.
    pub async fn closed(&self) {
        self.0.shared.closed().await;
    }

    /// Tells whether the stream is at its end.
    pub fn is_closed(&self) -> bool {
        self.0.shared.is_closed()
    }

    /// Ends the stream, for all clones.
    pub fn close(&self) {
        self.0.shared.close();
    }

    /// Tells whether this is the same stream as another.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Counts the bytes that wait to be written.
    #[cfg(test)]
    pub(super) fn unwritten_bytes(&self) -> usize {
        self.0.shared.unwritten_bytes()
    }

    async fn done(&self, request: impl FnOnce(u64) -> Request) -> Result<(), Error> {
        match self.ask(Wanted::Done(TakenBack::No), request).await? {
            Answer::Done => Ok(()),
            other => Err(refused(other)),
        }
    }

    /// Asks, and waits for the answer.
    async fn ask(
        &self,
        wanted: Wanted,
        request: impl FnOnce(u64) -> Request,
    ) -> Result<Answer, Error> {
        let ask = self.0.shared.number();
        let mut frame = Vec::new();
        stream::put(&request(ask), &mut frame).map_err(unsendable)?;
        self.send(ask, wanted, &frame).await
    }

    async fn piece(&self, run: &RunId, bytes: &[u8], ends: bool) -> Result<(), Error> {
        let ask = self.0.shared.number();
        let input = Input {
            ask,
            run: run.to_string(),
            ends,
            bytes: bytes.to_vec(),
        };
        let mut frame = Vec::new();
        Frame::Input(input).put(&mut frame).map_err(unsendable)?;
        let wanted = Wanted::Done(TakenBack::Yes);
        match self.send(ask, wanted, &frame).await? {
            Answer::Done => Ok(()),
            other => Err(refused(other)),
        }
    }

    async fn send(&self, ask: u64, wanted: Wanted, frame: &[u8]) -> Result<Answer, Error> {
        let shared = &self.0.shared;
        let place = shared.place().await.map_err(|_| Error::Closed)?;
        shared.room(frame).await.map_err(|_| Error::Closed)?;
        let asked = shared.send(ask, wanted, place, frame);
        let asked = asked.map_err(|_| Error::Closed)?;
        asked.answer().await.map_err(|_| Error::Closed)
    }
}

/// Sends our introduction and reads the other side's.
async fn introduce(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    bounds: Bounds,
) -> Result<(AgentHello, Decoder), NoAgent> {
    let ours = Request::Hello(DaemonHello {
        version: VERSION,
        bounds,
    });
    let mut bytes = Vec::new();
    stream::put(&ours, &mut bytes).map_err(bad)?;
    to.write_all(&bytes).await.map_err(NoAgent::Io)?;
    to.flush().await.map_err(NoAgent::Io)?;
    let mut decoder = Decoder::default();
    let first = loop {
        if let Some(frame) = decoder.next().map_err(bad)? {
            break frame;
        }
        let read = from.read_buf(decoder.room()).await;
        if read.map_err(NoAgent::Io)? == 0 {
            return Err(NoAgent::Closed);
        }
    };
    let Frame::Message(json) = first else {
        return Err(NoAgent::Fault(Fault::Hello));
    };
    match stream::parse(&json).map_err(NoAgent::Fault)? {
        Reply::Hello(hello) => {
            check::hello(&hello).map_err(NoAgent::Fault)?;
            Ok((hello, decoder))
        }
        Reply::Started { .. }
        | Reply::Runs { .. }
        | Reply::Usage { .. }
        | Reply::Done { .. }
        | Reply::Failed { .. } => Err(NoAgent::Fault(Fault::Hello)),
    }
}

fn bad(frame: BadFrame) -> NoAgent {
    NoAgent::Fault(Fault::Frame(frame))
}

/// Says that a request was not sent, because no frame holds it.
fn unsendable(why: BadFrame) -> Error {
    Error::Refused(Why::Bad, format!("it cannot be sent: {why}"))
}

/// Makes an error of an answer that says no; the table of requests lets no other through.
fn refused(answer: Answer) -> Error {
    match answer {
        Answer::Failed(why, words) => Error::Refused(why, words),
        Answer::Started(_)
        | Answer::Runs(_)
        | Answer::Usage(_)
        | Answer::Done
        | Answer::Output(_) => Error::Closed,
    }
}
