//! Follows a program on a terminal for all who look at it.
//!
//! One task reads what the program writes, keeps the screen by it and hands it to every
//! viewer. A viewer that does not keep up loses what waits for it and is told the screen
//! as it is then. What was written before the task began is read as well, as far as the
//! agent keeps it, so that the first screen is the present one.

mod told;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

use super::alive::outlives_a_look;
use super::desk::{Mode, Seat};
use super::reach::{Reacher, Way};
use super::screen::{Fed, bounded};
use crate::agent::connection::{Connection, Error};
use crate::agent::protocol::message::{Fetch, Filter, From, Run, Size, Wait};
use crate::docker::Engine;
use crate::id::{RunId, SessionId};

use told::{Cursor, Exit, Next, State};

pub use told::{Hold, Told};

/// Viewers of one terminal.
pub const VIEWERS_MAX: usize = 64;
/// Bytes of output that are asked for at once.
const FETCH_BYTES: u32 = 32 << 10;
/// Pieces of input that wait for the program.
const INPUT_PIECES_MAX: usize = 8;
/// How long a terminal is followed after its last viewer has left.
const LINGER: Duration = Duration::from_secs(5);
/// How often the agent is looked for after its stream broke.
const TRIES_MAX: usize = 6;
/// How long the agent is waited for each time.
const TRY_WAIT: Duration = Duration::from_secs(5);
/// Between two times.
const TRY_PAUSE: Duration = Duration::from_millis(500);

/// How to find the program again where the stream to the agent breaks.
#[derive(Clone, Debug)]
pub struct Line {
    /// Knows the agents.
    pub reacher: Reacher,
    /// Knows whether the container goes on.
    pub engine: Engine,
    /// The session.
    pub session: SessionId,
    /// The engine's id of the container.
    pub container: String,
}

/// A terminal that is followed; cheap to clone.
#[derive(Clone, Debug)]
pub struct Terminal(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    run: RunId,
    /// A `std` mutex: held to show a piece of output or to paint, never across an await.
    state: Mutex<State>,
    /// The stream to the agent, while there is one.
    connection: watch::Sender<Option<Connection>>,
    input: mpsc::Sender<Bytes>,
    /// How many look.
    viewers: watch::Sender<usize>,
}

/// Why nobody was let to a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAttached {
    /// It is not followed any more: it has to be anew.
    Closed,
    /// There are [`VIEWERS_MAX`] viewers.
    Full,
}

/// Why output stopped to come.
enum Stopped {
    Ended(Exit),
    Lost,
    Broken,
}

impl Terminal {
    /// Begins to follow a run as its agent describes it. The future does the work; it
    /// ends some seconds after nobody looks any more.
    pub fn follow(
        line: Line,
        connection: Connection,
        id: RunId,
        run: &Run,
    ) -> (Self, impl Future<Output = ()> + Send + use<>) {
        let size = run.size.unwrap_or(Size { cols: 80, rows: 24 });
        let cursor = Cursor {
            from: run.first_seq,
            until: run.next_seq,
        };
        let (input, typed) = mpsc::channel(INPUT_PIECES_MAX);
        let terminal = Self(Arc::new(Inner {
            run: id,
            state: Mutex::new(State::new(size, cursor.until <= cursor.from)),
            connection: watch::Sender::new(Some(connection.clone())),
            input,
            viewers: watch::Sender::new(0),
        }));
        let follower = terminal.clone();
        let work = async move {
            let following = async {
                let exit = follower.work(&line, connection, cursor, typed).await;
                follower.state().end(exit);
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = following => {}
                () = follower.deserted() => {}
            }
        };
        (terminal, work)
    }

    /// Lets somebody to it, who leaves by dropping what is returned.
    pub fn attach(
        &self,
        mode: Mode,
        hold: impl FnOnce() -> Box<dyn Hold>,
    ) -> Result<Attached, NotAttached> {
        let bell = Arc::new(Notify::new());
        let mut state = self.state();
        if state.is_closed {
            return Err(NotAttached::Closed);
        }
        if VIEWERS_MAX <= state.desk.len() {
            return Err(NotAttached::Full);
        }
        let hold = state.exit.is_none().then(hold);
        let seat = state.sit(mode, Arc::clone(&bell), hold);
        self.0.viewers.send_replace(state.desk.len());
        drop(state);
        Ok(Attached {
            terminal: self.clone(),
            seat,
            bell,
        })
    }

    /// Returns the size.
    pub fn size(&self) -> Size {
        self.state().screen.size()
    }

    /// Counts those who look.
    pub fn viewers(&self) -> usize {
        self.state().desk.len()
    }

    /// Tells whether somebody may write.
    pub fn has_writer(&self) -> bool {
        self.state().desk.has_writer()
    }

    /// Lets nobody come any more, and tells those who are there that it is lost.
    pub fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        if state.exit.is_none() {
            state.end(Exit::lost("agent_lost"));
        }
    }

    /// Tells whether this is the same as another.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Only the emulator might panic, and it is guarded.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads output and gives input until the program has ended or is lost.
    async fn work(
        &self,
        line: &Line,
        mut connection: Connection,
        mut cursor: Cursor,
        mut typed: mpsc::Receiver<Bytes>,
    ) -> Exit {
        loop {
            self.0.connection.send_replace(Some(connection.clone()));
            let stopped = tokio::select! {
                stopped = self.read(&connection, &mut cursor) => stopped,
                never = self.write(&connection, &mut typed) => match never {},
            };
            self.0.connection.send_replace(None);
            match stopped {
                Stopped::Ended(exit) => return exit,
                Stopped::Lost => return line.lost().await,
                Stopped::Broken => {}
            }
            debug!(session = %line.session, run = %self.0.run, "a terminal lost its agent");
            connection = match line.again().await {
                Ok(found) => found,
                Err(exit) => return exit,
            };
            // Who changed the size meanwhile could tell nobody.
            let size = self.size();
            if let Err(error) = connection.resize(&self.0.run, size).await {
                debug!(%error, "the size of a terminal was not told");
            }
        }
    }

    async fn read(&self, connection: &Connection, cursor: &mut Cursor) -> Stopped {
        loop {
            let fetch = Fetch {
                run: self.0.run.to_string(),
                from: From::Seq(cursor.from),
                streams: Filter::Both,
                bytes: FETCH_BYTES,
                wait: Wait::Some,
            };
            match connection.fetch(fetch).await {
                Ok(output) => {
                    if let Some(exit) = self.state().show(output, cursor) {
                        return Stopped::Ended(exit);
                    }
                }
                Err(Error::Closed) => return Stopped::Broken,
                Err(error @ Error::Refused(..)) => {
                    debug!(%error, run = %self.0.run, "a terminal cannot be read");
                    return Stopped::Lost;
                }
            }
        }
    }

    /// Gives the program what was typed. What a broken stream may have taken along is not
    /// typed again.
    async fn write(
        &self,
        connection: &Connection,
        typed: &mut mpsc::Receiver<Bytes>,
    ) -> std::convert::Infallible {
        while let Some(bytes) = typed.recv().await {
            if let Err(error) = connection.input(&self.0.run, &bytes, false).await {
                debug!(%error, run = %self.0.run, "input of a terminal was not taken");
            }
            if connection.is_closed() {
                break;
            }
        }
        // The reader has the word on how it ends.
        std::future::pending().await
    }

    /// Waits until nobody has looked for a while, and closes.
    async fn deserted(&self) {
        let mut viewers = self.0.viewers.subscribe();
        loop {
            if viewers.wait_for(|n| *n == 0).await.is_err() {
                return;
            }
            tokio::select! {
                // The first viewer comes after the following began.
                came = viewers.wait_for(|n| 0 < *n) => if came.is_err() { return },
                () = sleep(LINGER) => {
                    let mut state = self.state();
                    if state.desk.is_empty() {
                        state.is_closed = true;
                        return;
                    }
                }
            }
        }
    }
}

impl Line {
    /// Finds the agent again.
    async fn again(&self) -> Result<Connection, Exit> {
        for _ in 0..TRIES_MAX {
            if !outlives_a_look(&self.engine, &self.container).await {
                return Err(Exit::lost("container_lost"));
            }
            let deadline = Instant::now() + TRY_WAIT;
            match self
                .reacher
                .way(&self.session, &self.container, deadline)
                .await
            {
                Ok(Way::Agent(connection)) if !connection.is_closed() => return Ok(connection),
                Ok(Way::Agent(_) | Way::Engine) | Err(_) => sleep(TRY_PAUSE).await,
            }
        }
        Err(Exit::lost("agent_lost"))
    }

    /// Says why a program is not there any more whose end nobody saw.
    async fn lost(&self) -> Exit {
        if outlives_a_look(&self.engine, &self.container).await {
            Exit::lost("agent_lost")
        } else {
            Exit::lost("container_lost")
        }
    }
}

/// Somebody at a terminal, who leaves by dropping this.
#[derive(Debug)]
pub struct Attached {
    terminal: Terminal,
    seat: Seat,
    bell: Arc<Notify>,
}

impl Attached {
    /// Waits for what is next; `None` after [`Told::Exit`]. Dropping the future loses
    /// nothing.
    pub async fn next(&self) -> Option<Told> {
        loop {
            let next = self.terminal.state().next(self.seat);
            match next {
                Next::Told(told) => return Some(told),
                Next::Over => return None,
                Next::Nothing => self.bell.notified().await,
            }
        }
    }

    /// Types, and waits while the program does not read; without effect for one who is
    /// not the writer, and after the end.
    pub async fn input(&self, bytes: Bytes) {
        if self.writes() && self.terminal.0.input.send(bytes).await.is_err() {
            debug!("input came after the end of a terminal");
        }
    }

    /// Changes the size; without effect for one who is not the writer.
    pub async fn resize(&self, size: Size) {
        if !self.writes() {
            return;
        }
        // Program and viewers agree on what fits.
        let size = bounded(size);
        {
            // Before the program hears of it, since it paints anew for the new size.
            let mut state = self.terminal.state();
            if state.screen.size() == size {
                return;
            }
            if state.screen.resize(size) == Fed::Anew {
                warn!("the emulator of a terminal failed, and began with an empty screen");
            }
            state.repaint();
        }
        let connection = self.terminal.0.connection.borrow().clone();
        if let Some(connection) = connection
            && let Err(error) = connection.resize(&self.terminal.0.run, size).await
        {
            debug!(%error, "the size of a terminal was not told");
        }
    }

    /// Becomes the writer in place of whoever is.
    pub fn take(&self) {
        let mut state = self.terminal.state();
        let changes = state.desk.take(self.seat);
        state.tell(&changes);
    }

    fn writes(&self) -> bool {
        self.terminal.state().desk.writes(self.seat)
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let mut state = self.terminal.state();
        state.leave(self.seat);
        self.terminal.0.viewers.send_replace(state.desk.len());
    }
}
