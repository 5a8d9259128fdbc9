//! Follows a program on a terminal for all who look at it.
//!
//! One task reads what the program writes, keeps the screen by it and hands it to every
//! viewer. A viewer that does not keep up loses what waits for it and is told the screen
//! as it is then. What was written before the task began is read as well, as far as the
//! agent keeps it, so that the first screen is the present one.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

use super::alive::outlives_a_look;
use super::desk::{Change, Desk, Mode, Seat};
use super::reach::{Reacher, Way};
use super::screen::{Fed, Screen};
use crate::agent::connection::{Connection, Error};
use crate::agent::protocol::message::{Cause, End, Fetch, Filter, From, Run, Size, Wait};
use crate::agent::protocol::output::Output;
use crate::docker::Engine;
use crate::id::{RunId, SessionId};

/// Viewers of one terminal.
pub const VIEWERS_MAX: usize = 64;
/// Bytes that wait for one viewer.
const INBOX_BYTES_MAX: usize = 256 << 10;
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

/// What a viewer is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// The present screen, as escape sequences that paint it; the first that is told, and
    /// again after the size changed or output was dropped that was not read in time.
    Screen {
        /// Columns.
        cols: u16,
        /// Rows.
        rows: u16,
        /// Paints it on a terminal of that size.
        paint: Vec<u8>,
    },
    /// Output since then.
    Output(Bytes),
    /// Whether they are the writer now.
    Writer(bool),
    /// It ended; nothing follows.
    Exit {
        /// The exit code, where it is known.
        exit_code: Option<i64>,
        /// As for a run.
        reason: String,
    },
}

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

/// What a viewer holds for as long as they look and the program goes on, such as a lease.
pub trait Hold: Send + fmt::Debug {}

impl<T: Send + fmt::Debug> Hold for T {}

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

#[derive(Debug)]
struct State {
    screen: Screen,
    /// Whether it shows all that had been written when the following began.
    is_present: bool,
    desk: Desk,
    inboxes: BTreeMap<Seat, Inbox>,
    exit: Option<Exit>,
    /// Whether the following has ended, so that nobody may come any more.
    is_closed: bool,
}

/// How a terminal ended.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Exit {
    code: Option<i64>,
    reason: &'static str,
}

/// What waits for one viewer.
#[derive(Debug)]
struct Inbox {
    /// Whether the screen is to be told; what is shown from then on is on it.
    screen_due: bool,
    writer: Option<bool>,
    output: VecDeque<Bytes>,
    bytes: usize,
    exit_told: bool,
    bell: Arc<Notify>,
    /// Let go of at the end, however long the viewer takes to hear of it.
    hold: Option<Box<dyn Hold>>,
}

/// What is next for a viewer.
enum Next {
    Told(Told),
    Nothing,
    Over,
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

/// How far output was read.
struct Cursor {
    /// The record that comes next.
    from: u64,
    /// With this one, the screen is the present one.
    until: u64,
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

impl Exit {
    fn lost(reason: &'static str) -> Self {
        Self { code: None, reason }
    }

    fn of(end: &End) -> Self {
        let code = end.code.map(i64::from);
        let signal = end.signal.map(|signal| 128 + i64::from(signal));
        let reason = match end.cause {
            Cause::Exited => "exited",
            Cause::StartFailed => "start_failed",
            Cause::Timeout => "timeout",
            Cause::OutputLimit => "output_limit",
            Cause::Stopped => "stopped",
            Cause::Signal => "signal",
        };
        Self {
            code: code.or(signal),
            reason,
        }
    }
}

impl State {
    fn new(size: Size, is_present: bool) -> Self {
        Self {
            screen: Screen::new(size),
            is_present,
            desk: Desk::default(),
            inboxes: BTreeMap::new(),
            exit: None,
            is_closed: false,
        }
    }

    fn sit(&mut self, mode: Mode, bell: Arc<Notify>, hold: Option<Box<dyn Hold>>) -> Seat {
        let seat = self.desk.sit(mode);
        let inbox = Inbox {
            screen_due: true,
            writer: Some(self.desk.writes(seat)),
            output: VecDeque::new(),
            bytes: 0,
            exit_told: false,
            bell,
            hold,
        };
        self.inboxes.insert(seat, inbox);
        seat
    }

    fn leave(&mut self, seat: Seat) {
        self.inboxes.remove(&seat);
        if let Some(change) = self.desk.leave(seat) {
            self.tell(&[change]);
        }
    }

    fn tell(&mut self, changes: &[Change]) {
        for change in changes {
            if let Some(inbox) = self.inboxes.get_mut(&change.seat) {
                inbox.writer = Some(change.writes);
                inbox.bell.notify_one();
            }
        }
    }

    /// Has everybody told the screen.
    fn repaint(&mut self) {
        for inbox in self.inboxes.values_mut() {
            inbox.drop_output();
            inbox.bell.notify_one();
        }
    }

    /// Shows an answer of the agent, and tells whether it was the last.
    fn show(&mut self, output: Output, cursor: &mut Cursor) -> Option<Exit> {
        if let Some((_, kept)) = output.gap {
            // What was lost may have ended anything.
            self.screen.skip();
            cursor.from = cursor.from.max(kept);
            self.repaint();
        }
        let length = output.records.iter().map(|record| record.bytes.len()).sum();
        let mut bytes = BytesMut::with_capacity(length);
        for record in output.records {
            cursor.from = cursor.from.max(record.seq + 1);
            bytes.extend_from_slice(&record.bytes);
        }
        let bytes = bytes.freeze();
        if !bytes.is_empty() {
            match self.screen.feed(&bytes) {
                Fed::Well => self.hand_on(&bytes),
                Fed::Anew => {
                    warn!("the emulator of a terminal failed, and began with an empty screen");
                    self.repaint();
                }
            }
        }
        if !self.is_present && cursor.until <= cursor.from {
            self.is_present = true;
            self.repaint();
        }
        output.end.map(|end| exit_of(&end))
    }

    fn hand_on(&mut self, bytes: &Bytes) {
        for inbox in self.inboxes.values_mut() {
            inbox.push(bytes);
        }
    }

    fn end(&mut self, exit: Exit) {
        self.exit = Some(exit);
        if !self.is_present {
            self.is_present = true;
            self.repaint();
        }
        for inbox in self.inboxes.values_mut() {
            drop(inbox.hold.take());
            inbox.bell.notify_one();
        }
    }

    fn next(&mut self, seat: Seat) -> Next {
        let Some(inbox) = self.inboxes.get_mut(&seat) else {
            return Next::Over;
        };
        if !self.is_present {
            return Next::Nothing;
        }
        if std::mem::take(&mut inbox.screen_due) {
            let Size { cols, rows } = self.screen.size();
            let paint = self.screen.paint();
            return Next::Told(Told::Screen { cols, rows, paint });
        }
        if let Some(writes) = inbox.writer.take() {
            return Next::Told(Told::Writer(writes));
        }
        if let Some(bytes) = inbox.output.pop_front() {
            inbox.bytes -= bytes.len();
            return Next::Told(Told::Output(bytes));
        }
        match &self.exit {
            None => Next::Nothing,
            Some(_) if inbox.exit_told => Next::Over,
            Some(exit) => {
                inbox.exit_told = true;
                Next::Told(Told::Exit {
                    exit_code: exit.code,
                    reason: exit.reason.to_owned(),
                })
            }
        }
    }
}

impl Inbox {
    fn push(&mut self, bytes: &Bytes) {
        if self.screen_due {
            return;
        }
        if INBOX_BYTES_MAX < self.bytes + bytes.len() {
            self.drop_output();
        } else {
            self.bytes += bytes.len();
            self.output.push_back(bytes.clone());
        }
        self.bell.notify_one();
    }

    /// Drops what waits; the screen is told instead.
    fn drop_output(&mut self) {
        self.screen_due = true;
        self.output = VecDeque::new();
        self.bytes = 0;
    }
}

/// Reads how a run ended.
fn exit_of(end: &[u8]) -> Exit {
    let run: Option<Run> = serde_json::from_slice(end).ok();
    let end = run.and_then(|run| run.end);
    end.map_or_else(|| Exit::lost("agent_lost"), |end| Exit::of(&end))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::protocol::output::{Record, Stream};

    const SIZE: Size = Size { cols: 20, rows: 4 };

    fn output(seq: u64, text: &str) -> Output {
        Output {
            records: vec![Record {
                seq,
                stream: Stream::Out,
                offset: 0,
                bytes: text.as_bytes().to_vec(),
            }],
            ..Output::default()
        }
    }

    fn ended() -> Output {
        let end = r#"{"run":"r","digest":"d","attended":"no","age_ms":1,"stdout_bytes":0,
            "stderr_bytes":0,"first_seq":0,"next_seq":0,"truncated":false,
            "end":{"cause":"exited","signal":9,"ran_ms":1}}"#;
        Output {
            end: Some(end.as_bytes().to_vec()),
            ..Output::default()
        }
    }

    fn present() -> (State, Cursor) {
        (State::new(SIZE, true), Cursor { from: 0, until: 0 })
    }

    fn sit(state: &mut State) -> Seat {
        state.sit(Mode::Write, Arc::new(Notify::new()), None)
    }

    /// All that waits for somebody, in short.
    fn told(state: &mut State, seat: Seat) -> Vec<String> {
        let mut all = Vec::new();
        while let Next::Told(told) = state.next(seat) {
            all.push(match told {
                Told::Screen { cols, rows, paint } => {
                    let mut screen = Screen::new(Size { cols, rows });
                    assert_eq!(screen.feed(&paint), Fed::Well);
                    let text = String::from_utf8(paint).unwrap();
                    format!("screen {cols}x{rows} {}", text.contains("here"))
                }
                Told::Output(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
                Told::Writer(you) => format!("writer {you}"),
                Told::Exit { exit_code, reason } => format!("exit {exit_code:?} {reason}"),
            });
        }
        all
    }

    #[test]
    fn the_first_that_is_told_is_the_present_screen_and_nothing_before_it_is_there() {
        let mut state = State::new(SIZE, false);
        let mut cursor = Cursor { from: 3, until: 5 };
        let seat = sit(&mut state);
        assert_eq!(told(&mut state, seat), Vec::<String>::new());
        assert_eq!(state.show(output(3, "he"), &mut cursor), None);
        assert_eq!(told(&mut state, seat), Vec::<String>::new());
        assert_eq!(state.show(output(4, "re"), &mut cursor), None);
        assert_eq!(told(&mut state, seat), ["screen 20x4 true", "writer true"]);
        assert_eq!(state.show(output(5, "more"), &mut cursor), None);
        assert_eq!(told(&mut state, seat), ["more"]);
        assert_eq!(cursor.from, 6);
    }

    #[test]
    fn a_viewer_that_does_not_keep_up_is_told_the_screen_and_others_miss_nothing() {
        let (mut state, mut cursor) = present();
        let (slow, quick) = (sit(&mut state), sit(&mut state));
        told(&mut state, slow);
        told(&mut state, quick);
        let piece = "x".repeat(32 << 10);
        let pieces = INBOX_BYTES_MAX / piece.len() + 1;
        for seq in 0..u64::try_from(pieces).unwrap() {
            assert_eq!(state.show(output(seq, &piece), &mut cursor), None);
            assert!(state.inboxes[&slow].bytes <= INBOX_BYTES_MAX);
            assert_eq!(told(&mut state, quick), [piece.as_str()]);
        }
        assert_eq!(state.show(output(99, "\r\nhere"), &mut cursor), None);
        assert_eq!(told(&mut state, slow), ["screen 20x4 true"]);
        assert_eq!(state.show(output(100, "on"), &mut cursor), None);
        assert_eq!(told(&mut state, slow), ["on"]);
    }

    #[test]
    fn lost_output_is_followed_by_a_screen() {
        let (mut state, mut cursor) = present();
        let seat = sit(&mut state);
        told(&mut state, seat);
        let gap = Output {
            gap: Some((0, 7)),
            ..output(7, "here")
        };
        assert_eq!(state.show(gap, &mut cursor), None);
        assert_eq!(told(&mut state, seat), ["screen 20x4 true"]);
        assert_eq!(cursor.from, 8);
    }

    #[test]
    fn the_end_is_told_once_after_all_output_also_to_who_comes_later() {
        let (mut state, mut cursor) = present();
        let seat = sit(&mut state);
        told(&mut state, seat);
        assert_eq!(state.show(output(0, "here"), &mut cursor), None);
        let exit = state.show(ended(), &mut cursor).unwrap();
        state.end(exit);
        assert_eq!(told(&mut state, seat), ["here", "exit Some(137) exited"]);
        assert!(matches!(state.next(seat), Next::Over));
        let late = sit(&mut state);
        assert_eq!(
            told(&mut state, late),
            ["screen 20x4 true", "writer false", "exit Some(137) exited"]
        );
    }

    #[test]
    fn whoever_takes_over_and_whoever_is_ousted_are_told() {
        let (mut state, _) = present();
        let (first, second) = (sit(&mut state), sit(&mut state));
        told(&mut state, first);
        assert_eq!(told(&mut state, second)[1], "writer false");
        let changes = state.desk.take(second);
        state.tell(&changes);
        assert_eq!(told(&mut state, first), ["writer false"]);
        assert_eq!(told(&mut state, second), ["writer true"]);
        state.leave(second);
        assert_eq!(told(&mut state, first), ["writer true"]);
    }
}
