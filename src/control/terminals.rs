//! Terminals: programs on a PTY, with one writer and many viewers.
//!
//! A terminal is a run in the background whose streams are a terminal's; its id is that
//! of the run. It never outlives its container, so attaching to one wakes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::live::NotLive;
use super::request::{Input, OpenTty, Overflow, Program, Start, Streams};
use super::{Control, Refusal};
use crate::agent::connection::{Connection, Error};
use crate::agent::protocol::message::{Run, Size, Why};
use crate::clock::Timestamp;
use crate::id::{Nonce, RunId, SessionId};
use crate::sandbox::reach::Way;
use crate::sandbox::terminal::{self, Line, NotAttached, Terminal, VIEWERS_MAX};
use crate::store::StoredRun;
use crate::wire::ttys::{Tty, TtyCreated, TtyList};

pub use crate::sandbox::desk::Mode;
pub use crate::sandbox::screen::CELLS_MAX;
pub use crate::sandbox::terminal::Told;

/// How long an attaching waits for the agent.
const ATTACH_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long a listing waits for it, which can do without.
const LIST_WAIT_MAX: Duration = Duration::from_secs(2);
/// How often an attaching meets a terminal that is just being let go of.
const TRIES_MAX: usize = 4;
/// The shell of a terminal for which no program was named. The sandbox decides, since
/// nobody else can tell which of them it has.
const SHELL: &str = "[ -x /bin/bash ] && exec /bin/bash; exec /bin/sh";

/// Somebody who is attached to a terminal; dropping it detaches.
#[derive(Debug)]
pub struct Attached(terminal::Attached);

/// The terminals that are followed.
#[derive(Debug, Default)]
pub(super) struct Terminals {
    // Std mutexes: they are held for a look into a small map, and never across an await.
    followed: Mutex<BTreeMap<Place, Terminal>>,
    /// Those that are being opened, and may not be on record yet.
    opening: Arc<Mutex<BTreeSet<Place>>>,
    stop: CancellationToken,
}

type Place = (SessionId, RunId);

/// The place of a terminal that is being opened.
struct Opening {
    all: Arc<Mutex<BTreeSet<Place>>>,
    place: Place,
}

impl Drop for Opening {
    fn drop(&mut self) {
        locked(&self.all).remove(&self.place);
    }
}

impl Terminals {
    /// Has all following end.
    pub(super) fn stop(&self) {
        self.stop.cancel();
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A look into a map leaves nothing half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Attached {
    /// Waits for what is next; `None` after [`Told::Exit`]. Dropping the future loses
    /// nothing.
    pub async fn next(&self) -> Option<Told> {
        self.0.next().await
    }

    /// Types, and waits while the program does not read; without effect for one who is
    /// not the writer.
    pub async fn input(&self, bytes: Bytes) {
        self.0.input(bytes).await;
    }

    /// Changes the size; without effect for one who is not the writer.
    pub async fn resize(&self, cols: u16, rows: u16) {
        self.0.resize(Size { cols, rows }).await;
    }

    /// Becomes the writer in place of whoever is.
    pub fn take(&self) {
        self.0.take();
    }
}

impl Control {
    /// Returns the time.
    pub fn now(&self) -> Timestamp {
        self.0.books.clock.now()
    }

    /// Returns what tells one opening of a session from the next; none where it is closed.
    pub fn opening(&self, id: &SessionId) -> Option<Nonce> {
        self.open_record(id).map(|record| record.spec.nonce.clone())
    }

    /// Opens a terminal.
    pub async fn open_tty(&self, id: &SessionId, open: OpenTty) -> Result<TtyCreated, Refusal> {
        if self.open_record(id).is_none() {
            return Err(Refusal::NoSession(id.clone()));
        }
        let run = RunId::random();
        let _opening = self.tty_place(id, &run)?;
        let (cols, rows) = (open.cols, open.rows);
        let mut options = open.options;
        options.stdin = Input::Open;
        let start = Start {
            run_id: Some(run),
            program: open
                .argv
                .map_or_else(|| Program::Shell(SHELL.to_owned()), Program::Argv),
            options,
            timeout: None,
            output_limit: None,
            streams: Streams::Merged,
            overflow: Overflow::Drop,
            request_id: open.request_id,
        };
        let begun = self.begin_run(id, start, Some(Size { cols, rows })).await?;
        Ok(TtyCreated {
            tty_id: begun.run.run_id.clone(),
            run_id: begun.run.run_id,
        })
    }

    /// Takes the place of one more terminal, where there may be one.
    fn tty_place(&self, id: &SessionId, run: &RunId) -> Result<Opening, Refusal> {
        let place = (id.clone(), run.clone());
        let all = Arc::clone(&self.0.terminals.opening);
        let mut opening = locked(&all);
        // One that is open already may be among both.
        let mut taken: BTreeSet<RunId> = self
            .running_ttys(id)
            .map(|stored| stored.run_id.clone())
            .collect();
        let others = opening.iter().filter(|(session, _)| session == id);
        taken.extend(others.map(|(_, run)| run.clone()));
        let limit = self.0.policy.get().limits.runs.ttys_per_session;
        if limit <= taken.len() {
            return Err(Refusal::TtyCeiling {
                id: id.clone(),
                limit: count(limit),
                used: count(taken.len()),
            });
        }
        opening.insert(place.clone());
        drop(opening);
        Ok(Opening { all, place })
    }

    /// Lists the terminals of a session that go on; wakes nothing.
    pub async fn ttys(&self, id: &SessionId) -> Result<TtyList, Refusal> {
        if self.open_record(id).is_none() {
            return Err(Refusal::NoSession(id.clone()));
        }
        let stored: Vec<Arc<StoredRun>> = self.running_ttys(id).collect();
        let known = match stored.first() {
            Some(first) => self.runs_of_agent(id, &first.container).await,
            None => Vec::new(),
        };
        let shown = |stored: &Arc<StoredRun>| self.shown(id, stored, &known);
        Ok(TtyList {
            ttys: stored.iter().map(shown).collect(),
        })
    }

    /// Counts the terminals of a session that somebody looks at.
    pub(super) fn attached_ttys(&self, id: &SessionId) -> u64 {
        let looked_at = self.running_ttys(id).filter(|stored| {
            let followed = self.followed(&(id.clone(), stored.run_id.clone()));
            followed.is_some_and(|one| 0 < one.viewers())
        });
        count(looked_at.count())
    }

    fn shown(&self, id: &SessionId, stored: &StoredRun, known: &[Run]) -> Tty {
        let run = &stored.run_id;
        let followed = self.followed(&(id.clone(), run.clone()));
        let known = known.iter().find(|one| one.run == run.as_str());
        let first = stored.tty.map(|size| Size {
            cols: size.cols,
            rows: size.rows,
        });
        let size = followed
            .as_ref()
            .map(Terminal::size)
            .or_else(|| known.and_then(|one| one.size))
            .or(first)
            .unwrap_or(Size { cols: 0, rows: 0 });
        Tty {
            tty_id: run.to_string(),
            run_id: run.to_string(),
            target: stored.target.clone(),
            cols: size.cols,
            rows: size.rows,
            started_at: stored.started_at.secs_f64(),
            viewers: followed.as_ref().map_or(0, |one| count(one.viewers())),
            has_writer: followed.is_some_and(|one| one.has_writer()),
        }
    }

    /// Ends a terminal; without effect where it has ended.
    pub async fn close_tty(&self, id: &SessionId, tty: &str) -> Result<(), Refusal> {
        let stored = self.stored_tty(id, tty)?;
        if !self.goes_on(id, &stored) {
            return Ok(());
        }
        let deadline = Instant::now() + ATTACH_WAIT_MAX;
        let connection = self.agent(id, &stored, deadline).await?;
        match connection.stop(&stored.run_id).await {
            Ok(()) | Err(Error::Refused(Why::NoRun | Why::Over, _)) => Ok(()),
            Err(_) => Err(unreachable()),
        }
    }

    /// Attaches to a terminal.
    pub async fn attach_tty(
        &self,
        id: &SessionId,
        tty: &str,
        mode: Mode,
    ) -> Result<Attached, Refusal> {
        let stored = self.stored_tty(id, tty)?;
        if !self.is_there(id, &stored) {
            return Err(gone(&stored));
        }
        let deadline = Instant::now() + ATTACH_WAIT_MAX;
        let live = self.live(id, deadline).await;
        let live = live.map_err(NotLive::refusal)?;
        if live.container != stored.container {
            return Err(gone(&stored));
        }
        // Nothing stops the sandbox under somebody who looks at it.
        let mut live = Some(live);
        for _ in 0..TRIES_MAX {
            let terminal = self.terminal(id, &stored, deadline).await?;
            match terminal.attach(mode, || Box::new(live.take())) {
                Ok(attached) => return Ok(Attached(attached)),
                Err(NotAttached::Closed) => {
                    self.let_go(&(id.clone(), stored.run_id.clone()), &terminal);
                }
                Err(NotAttached::Full) => {
                    return Err(Refusal::ViewerCeiling {
                        id: id.clone(),
                        tty: tty.to_owned(),
                        limit: count(VIEWERS_MAX),
                    });
                }
            }
        }
        Err(unreachable())
    }

    /// Finds the terminal that is followed, or begins to follow it.
    async fn terminal(
        &self,
        id: &SessionId,
        stored: &StoredRun,
        deadline: Instant,
    ) -> Result<Terminal, Refusal> {
        let place = (id.clone(), stored.run_id.clone());
        if let Some(followed) = self.followed(&place) {
            return Ok(followed);
        }
        let connection = self.agent(id, stored, deadline).await?;
        let runs = connection.list().await.map_err(|_| unreachable())?;
        let known = runs.iter().find(|one| one.run == stored.run_id.as_str());
        let known = known.ok_or_else(|| gone(stored))?;
        Ok(self.follow(place, stored, connection, known))
    }

    async fn agent(
        &self,
        id: &SessionId,
        stored: &StoredRun,
        deadline: Instant,
    ) -> Result<Connection, Refusal> {
        match self.0.reacher.way(id, &stored.container, deadline).await {
            Ok(Way::Agent(connection)) => Ok(connection),
            Ok(Way::Engine) => Err(Refusal::NeedsAgent("a terminal", id.clone())),
            Err(_) => Err(unreachable()),
        }
    }

    fn follow(
        &self,
        place: Place,
        stored: &StoredRun,
        connection: Connection,
        known: &Run,
    ) -> Terminal {
        let mut followed = locked(&self.0.terminals.followed);
        // Another may have come first.
        if let Some(followed) = followed.get(&place) {
            return followed.clone();
        }
        let line = Line {
            reacher: self.0.reacher.clone(),
            engine: self.0.host.engine.clone(),
            session: place.0.clone(),
            container: stored.container.clone(),
        };
        let (terminal, work) = Terminal::follow(line, connection, place.1.clone(), known);
        followed.insert(place.clone(), terminal.clone());
        drop(followed);
        let control = self.clone();
        let stop = self.0.terminals.stop.clone();
        let follower = Follower {
            control,
            place,
            terminal: terminal.clone(),
        };
        self.0.tasks.spawn(async move {
            // Let go of also where it panics.
            let _follower = follower;
            stop.run_until_cancelled(work).await;
        });
        terminal
    }

    fn followed(&self, place: &Place) -> Option<Terminal> {
        locked(&self.0.terminals.followed).get(place).cloned()
    }

    /// Forgets a terminal that is not followed any more, but not the one that took its place.
    fn let_go(&self, place: &Place, terminal: &Terminal) {
        let mut followed = locked(&self.0.terminals.followed);
        if followed.get(place).is_some_and(|one| one.is(terminal)) {
            followed.remove(place);
        }
    }

    /// Asks the agent for its runs; none where it does not answer at once.
    async fn runs_of_agent(&self, id: &SessionId, container: &str) -> Vec<Run> {
        let deadline = Instant::now() + LIST_WAIT_MAX;
        let asked = async {
            match self.0.reacher.way(id, container, deadline).await {
                Ok(Way::Agent(connection)) => connection.list().await.unwrap_or_default(),
                Ok(Way::Engine) | Err(_) => Vec::new(),
            }
        };
        let answered = tokio::time::timeout_at(deadline, asked).await;
        answered.unwrap_or_default()
    }

    /// Returns what is on record of a terminal.
    fn stored_tty(&self, id: &SessionId, tty: &str) -> Result<Arc<StoredRun>, Refusal> {
        if self.open_record(id).is_none() {
            return Err(Refusal::NoSession(id.clone()));
        }
        RunId::parse(tty)
            .ok()
            .and_then(|run| self.0.books.store.run(id, &run))
            .filter(|stored| stored.tty.is_some())
            .ok_or_else(|| Refusal::NoTty(tty.to_owned()))
    }

    fn running_ttys(&self, id: &SessionId) -> impl Iterator<Item = Arc<StoredRun>> {
        let runs = self.0.books.store.runs(id).into_iter();
        runs.filter(|stored| stored.tty.is_some() && self.goes_on(id, stored))
    }

    /// Whether a run goes on, as far as is known.
    fn goes_on(&self, id: &SessionId, stored: &StoredRun) -> bool {
        stored.ended.is_none() && self.is_there(id, stored)
    }

    /// Whether the container of a run is the one that the session has, and runs.
    fn is_there(&self, id: &SessionId, stored: &StoredRun) -> bool {
        let parked = self
            .open_record(id)
            .is_none_or(|record| record.marks.parked.is_some());
        !parked && self.status(id).container.as_deref() == Some(&stored.container)
    }
}

/// Lets go of a terminal at the end of its following.
struct Follower {
    control: Control,
    place: Place,
    terminal: Terminal,
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.terminal.close();
        self.control.let_go(&self.place, &self.terminal);
    }
}

/// Says why there is nothing to attach to any more.
fn gone(stored: &StoredRun) -> Refusal {
    let run = stored.run_id.clone();
    match &stored.ended {
        Some(ended) if !ended.cause.is_lost() => {
            Refusal::RunOver(run, "Its terminal is gone.".to_owned())
        }
        Some(_) | None => Refusal::RunLost {
            run,
            reason: "container_lost".to_owned(),
        },
    }
}

fn unreachable() -> Refusal {
    Refusal::EngineUnavailable("the agent of the sandbox did not answer in time".to_owned())
}

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
