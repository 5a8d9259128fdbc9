//! Keeps what each viewer of a terminal is to be told, in bounds.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tokio::sync::Notify;
use tracing::warn;

use crate::agent::protocol::message::{Cause, End, Run, Size};
use crate::agent::protocol::output::Output;
use crate::sandbox::desk::{Change, Desk, Mode, Seat};
use crate::sandbox::screen::{Fed, Screen};

/// Bytes that wait for one viewer.
const INBOX_BYTES_MAX: usize = 256 << 10;

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

/// What a viewer holds for as long as they look and the program goes on, such as a lease.
pub trait Hold: Send + fmt::Debug {}

impl<T: Send + fmt::Debug> Hold for T {}

#[derive(Debug)]
pub(super) struct State {
    pub(super) screen: Screen,
    /// Whether it shows all that had been written when the following began.
    pub(super) is_present: bool,
    pub(super) desk: Desk,
    inboxes: BTreeMap<Seat, Inbox>,
    pub(super) exit: Option<Exit>,
    /// Whether the following has ended, so that nobody may come any more.
    pub(super) is_closed: bool,
}

/// How a terminal ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Exit {
    pub(super) code: Option<i64>,
    pub(super) reason: &'static str,
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
pub(super) enum Next {
    Told(Told),
    Nothing,
    Over,
}

/// How far output was read.
pub(super) struct Cursor {
    /// The record that comes next.
    pub(super) from: u64,
    /// With this one, the screen is the present one.
    pub(super) until: u64,
}

impl State {
    pub(super) fn new(size: Size, is_present: bool) -> Self {
        Self {
            screen: Screen::new(size),
            is_present,
            desk: Desk::default(),
            inboxes: BTreeMap::new(),
            exit: None,
            is_closed: false,
        }
    }

    pub(super) fn sit(
        &mut self,
        mode: Mode,
        bell: Arc<Notify>,
        hold: Option<Box<dyn Hold>>,
    ) -> Seat {
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

    pub(super) fn leave(&mut self, seat: Seat) {
        self.inboxes.remove(&seat);
        if let Some(change) = self.desk.leave(seat) {
            self.tell(&[change]);
        }
    }

    pub(super) fn tell(&mut self, changes: &[Change]) {
        for change in changes {
            if let Some(inbox) = self.inboxes.get_mut(&change.seat) {
                inbox.writer = Some(change.writes);
                inbox.bell.notify_one();
            }
        }
    }

    /// Has everybody told the screen.
    pub(super) fn repaint(&mut self) {
        for inbox in self.inboxes.values_mut() {
            inbox.drop_output();
            inbox.bell.notify_one();
        }
    }

    /// Shows an answer of the agent, and tells whether it was the last.
    pub(super) fn show(&mut self, output: Output, cursor: &mut Cursor) -> Option<Exit> {
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

    pub(super) fn end(&mut self, exit: Exit) {
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

    pub(super) fn next(&mut self, seat: Seat) -> Next {
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

impl Exit {
    pub(super) fn lost(reason: &'static str) -> Self {
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

/// Reads how a run ended.
fn exit_of(end: &[u8]) -> Exit {
    let run: Option<Run> = serde_json::from_slice(end).ok();
    let end = run.and_then(|run| run.end);
    end.map_or_else(|| Exit::lost("agent_lost"), |end| Exit::of(&end))
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
                bytes: text.to_owned().into(),
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
