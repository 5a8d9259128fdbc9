//! Works on files in a sandbox by the program of its agent, which sees what commands see.
//!
//! A clerk is one run of that program. Whatever it says is the sandbox's word: it is held
//! to what was asked for, and to bounds, and what cannot be an answer ends that clerk.

mod search;
mod tell;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};
use tracing::debug;

use super::commands::{LARGE_OUTPUT_BYTES, NotRun, Place, Runner};
use super::reach::Way;
use crate::agent::connection::{Connection, Error};
use crate::agent::protocol::files::{Ask, PROGRAM, Say, VERSION};
use crate::agent::protocol::frame::Decoder;
use crate::agent::protocol::message::{
    Attended, Fetch, Filter, From, Keep, Run, Start, Stdin, Streams, Wait, What, Why,
};
use crate::agent::protocol::output::{OUTPUT_BYTES_MAX, Stream};
use crate::id::RunId;
use crate::workspace::FileError;

pub use search::{PIECES_MAX, Piece, Reading, Sought};
pub use tell::{Listed, WriteHow};

/// How long the end of a clerk is waited for.
const END_MAX: Duration = Duration::from_secs(1);
/// How long a clerk may say nothing while there is room for its large answer.
const SILENCE_MAX: Duration = Duration::from_secs(20);
/// Bytes of a clerk's errors that are kept.
const WORDS_BYTES_MAX: usize = 1024;
/// Bytes of requests that are sent without hearing an answer; less than a pipe holds, so
/// that nobody waits for one who waits for him.
const AHEAD_BYTES_MAX: usize = 32 << 10;

/// One run that works on files.
#[derive(Debug)]
pub struct Clerk {
    connection: Connection,
    run: RunId,
    decoder: Decoder,
    /// The record that comes next.
    from: u64,
    /// Answers that are still to come.
    owed: usize,
    has_spoken: bool,
    ended: Option<Ended>,
    words: Vec<u8>,
    large: Arc<Semaphore>,
    /// Held once what it says is large.
    room: Option<OwnedSemaphorePermit>,
}

/// Why work on files came to nothing, or to an error.
#[derive(Debug)]
pub enum Failed {
    /// It is an answer about the files.
    File(FileError),
    /// Nothing was begun, for this reason: there are other ways.
    NotBegun(String),
    /// Nothing was begun, since as many commands run as may.
    Ceiling,
    /// The way to the sandbox has broken, or what came over it cannot be an answer.
    Lost(&'static str),
}

impl<E: Into<FileError>> std::convert::From<E> for Failed {
    fn from(error: E) -> Self {
        Self::File(error.into())
    }
}

/// How a clerk has ended before its input did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// By itself, or it could not be started: where it has said nothing, it never will.
    AtOnce,
    /// By a signal.
    Killed,
}

impl Ended {
    fn of(json: &[u8]) -> Self {
        // The connection has checked that there is one.
        let end = serde_json::from_slice::<Run>(json).ok();
        match end.and_then(|run| run.end?.signal) {
            None => Self::AtOnce,
            Some(_) => Self::Killed,
        }
    }
}

/// What went wrong of what was asked for, where the rest goes on.
type Told<T> = Result<T, Failed>;

impl Runner {
    /// Finds the agent that works on files in a sandbox; nothing where there is none, or
    /// one that is too old for it.
    ///
    /// # Errors
    /// The sandbox is down, or there was no way in time.
    pub async fn files(
        &self,
        place: Place<'_>,
        deadline: Instant,
    ) -> Result<Option<Connection>, NotRun> {
        Ok(match self.way(place, deadline).await? {
            Way::Agent(connection) => (connection.hello().files == VERSION).then_some(connection),
            Way::Engine => None,
        })
    }

    /// Has an agent start a clerk, which ends at the deadline at the latest.
    ///
    /// # Errors
    /// Nothing was begun.
    pub async fn clerk(
        &self,
        connection: Connection,
        run: &RunId,
        deadline: Instant,
    ) -> Result<Clerk, Failed> {
        Clerk::begin(connection, run, deadline, Arc::clone(&self.large)).await
    }
}

impl Clerk {
    async fn begin(
        connection: Connection,
        run: &RunId,
        deadline: Instant,
        large: Arc<Semaphore>,
    ) -> Told<Self> {
        let left = deadline.saturating_duration_since(Instant::now());
        let start = Start {
            run: run.to_string(),
            digest: run.to_string(),
            what: What::Argv(PROGRAM.map(str::to_owned).to_vec()),
            env: BTreeMap::new(),
            cwd: None,
            user: None,
            stdin: Stdin::Open,
            streams: Streams::Split,
            timeout_ms: Some(u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1)),
            output: Keep::All { limit: None },
            attended: Attended::Yes,
        };
        match connection.start(start).await {
            Ok(_) => {}
            Err(Error::Closed) => return Err(Failed::Lost("its agent does not answer any more")),
            Err(Error::Refused(Why::Ceiling, _)) => return Err(Failed::Ceiling),
            Err(Error::Refused(_, words)) => return Err(Failed::NotBegun(words)),
        }
        Ok(Self {
            connection,
            run: run.clone(),
            decoder: Decoder::default(),
            from: 0,
            owed: 0,
            has_spoken: false,
            ended: None,
            words: Vec::new(),
            large,
            room: None,
        })
    }

    /// Waits for room where so many bytes are held of what it said, while the rest waits in
    /// the sandbox.
    async fn make_room(&mut self, held: usize) -> Told<()> {
        if LARGE_OUTPUT_BYTES < held && self.room.is_none() {
            let room = Arc::clone(&self.large).acquire_owned().await;
            self.room = Some(room.map_err(|_| Failed::Lost("the service ends"))?);
        }
        Ok(())
    }

    /// Ends it and has the agent forget it; what is not done by now is not done.
    pub async fn end(self) {
        let ended = async {
            let (connection, run) = (&self.connection, &self.run);
            if self.ended.is_none() {
                let close = async {
                    if self.owed == 0 {
                        connection.input(run, &[], true).await
                    } else {
                        connection.stop(run).await
                    }
                };
                let (closed, over) = tokio::join!(close, connection.fetch(self.fetch(Wait::Over)));
                over?;
                match closed {
                    // It may have ended by itself.
                    Ok(()) | Err(Error::Refused(..)) => {}
                    Err(error) => return Err(error),
                }
            }
            connection.forget(run).await
        };
        match timeout(END_MAX, ended).await {
            Ok(Ok(())) => {}
            // It ends by itself, and is forgotten in time.
            Ok(Err(error)) => debug!(run = %self.run, %error, "work on files has no end"),
            Err(_) => debug!(run = %self.run, "work on files does not end"),
        }
    }

    /// Sends requests, each of which is answered.
    async fn ask(&mut self, asks: &[Ask]) -> Told<()> {
        let mut bytes = Vec::new();
        for ask in asks {
            // A path that no request holds is one that no file has.
            ask.put(&mut bytes).map_err(|_| FileError::NameTooLong)?;
        }
        self.send(&bytes, asks.len()).await
    }

    /// Sends requests, of which so many are answered.
    async fn send(&mut self, bytes: &[u8], answered: usize) -> Told<()> {
        self.owed += answered;
        match self.connection.input(&self.run, bytes, false).await {
            Ok(()) => Ok(()),
            // It has ended, and says why.
            Err(Error::Refused(..)) => Ok(()),
            Err(Error::Closed) => Err(Failed::Lost("its agent does not answer any more")),
        }
    }

    /// Hears what is said next.
    async fn hear(&mut self) -> Told<Say> {
        loop {
            let next = self.decoder.next_as(Say::parse);
            if let Some(say) = next.map_err(|_| Failed::Lost("it said what cannot be read"))? {
                return Ok(say);
            }
            if let Some(ended) = self.ended {
                let words = String::from_utf8_lossy(&self.words).trim().to_owned();
                return Err(match ended {
                    Ended::AtOnce if !self.has_spoken => Failed::NotBegun(words),
                    Ended::AtOnce | Ended::Killed => {
                        Failed::Lost("what worked on the files has ended")
                    }
                });
            }
            let fetch = self.connection.fetch(self.fetch(Wait::Some));
            // Others wait for the room that it has.
            let fetched = match &self.room {
                Some(_) => timeout(SILENCE_MAX, fetch).await,
                None => Ok(fetch.await),
            };
            let output = match fetched.map_err(|_| Failed::Lost("it says nothing any more"))? {
                Ok(output) => output,
                Err(Error::Closed) => {
                    return Err(Failed::Lost("its agent does not answer any more"));
                }
                Err(Error::Refused(..)) => {
                    return Err(Failed::Lost("what worked on the files is gone"));
                }
            };
            if output.gap.is_some() {
                return Err(Failed::Lost("some of what it said is gone"));
            }
            for record in &output.records {
                self.from = record.seq.saturating_add(1);
                match record.stream {
                    Stream::Out => {
                        self.has_spoken = true;
                        self.decoder.push(&record.bytes);
                    }
                    Stream::Err => {
                        let room = WORDS_BYTES_MAX.saturating_sub(self.words.len());
                        let kept = record.bytes.get(..room).unwrap_or(&record.bytes);
                        self.words.extend_from_slice(kept);
                    }
                }
            }
            self.ended = output.end.as_deref().map(Ended::of);
        }
    }

    fn fetch(&self, wait: Wait) -> Fetch {
        Fetch {
            run: self.run.to_string(),
            from: From::Seq(self.from),
            streams: Filter::Both,
            bytes: u32::try_from(OUTPUT_BYTES_MAX).unwrap_or(u32::MAX),
            wait,
        }
    }

    /// Notes that an answer is complete.
    fn settled(&mut self) {
        self.owed = self.owed.saturating_sub(1);
    }
}

impl Failed {
    /// Says that an answer is none to what was asked.
    fn unfit() -> Self {
        Self::Lost("it answered what was not asked")
    }

    /// Puts it into an answer about the files.
    pub fn into_error(self) -> FileError {
        let why = match self {
            Self::File(error) => return error,
            Self::NotBegun(words) => words,
            Self::Ceiling => "as many commands run in it as may".to_owned(),
            Self::Lost(why) => why.to_owned(),
        };
        FileError::Io(io::Error::other(format!(
            "the sandbox could not do it: {why}"
        )))
    }
}
