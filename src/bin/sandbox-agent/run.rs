//! A run: its first process, its streams, what it wrote, and how it ended.

use std::os::fd::OwnedFd;

use rustix::process::{Pid, Signal, WaitStatus};

use crate::clock::Moment;
use crate::hunt::{Hunt, Leader, Left, Surroundings};
use crate::launch::NotStarted;
use crate::processes::signal_group;
use crate::protocol::message::{self, Attended, Cause, End, Size, Start, Streams};
use crate::protocol::output::Stream;
use crate::streams::{Asker, Got, Inlet, Open, Outlet};
use crate::tape::{Taken, Tape};

/// One run.
#[derive(Debug)]
pub(crate) struct Run {
    /// What was asked for.
    pub(crate) request: Asked,
    /// What it wrote.
    pub(crate) tape: Tape,
    /// Where it is between its start and its end.
    pub(crate) stage: Stage,
    /// What it writes to.
    pub(crate) outlets: Vec<Outlet>,
    /// What it reads from, while that is open.
    pub(crate) inlet: Option<Inlet>,
    /// Its ending from without, once begun.
    hunt: Option<Hunt>,
    /// The last signal that was sent on request.
    signalled: Option<i32>,
}

/// What is kept of the request for a run.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// Its id.
    pub(crate) run: String,
    /// Tells it from another request.
    pub(crate) digest: String,
    /// When it arrived.
    pub(crate) at: Moment,
    attended: Attended,
    deadline: Option<Moment>,
    size: Option<Size>,
}

/// Where a run is between its start and its end.
#[derive(Clone, Debug)]
pub(crate) enum Stage {
    /// Its first process runs.
    Running(Pid),
    /// Its first process, of this number, was reaped; what is left is taken, or hunted.
    Exited(Pid, WaitStatus),
    /// It is over.
    Ended(End, Moment),
}

/// What a run is ended for, and how it is asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Its time is over.
    Deadline,
    /// It wrote too much.
    Output,
    /// Somebody wants it.
    Stop,
}

impl Asked {
    /// Takes from a request what is kept of it.
    pub(crate) fn of(start: &Start, now: Moment) -> Self {
        Self {
            run: start.run.clone(),
            digest: start.digest.clone(),
            at: now,
            attended: start.attended,
            // The clock tells whole milliseconds: one more, so that none is missing.
            deadline: start
                .timeout_ms
                .map(|millis| now.after(millis.saturating_add(1))),
            size: match start.streams {
                Streams::Tty(size) => Some(size),
                Streams::Merged | Streams::Split => None,
            },
        }
    }
}

impl Run {
    /// Makes the run of a process that was started.
    pub(crate) fn started(
        request: Asked,
        tape: Tape,
        pid: Pid,
        outlets: Vec<Outlet>,
        inlet: Option<Inlet>,
    ) -> Self {
        Self {
            request,
            tape,
            stage: Stage::Running(pid),
            outlets,
            inlet,
            hunt: None,
            signalled: None,
        }
    }

    /// Makes a run that has ended because its program could not be started.
    pub(crate) fn not_started(
        request: Asked,
        mut tape: Tape,
        stream: Stream,
        why: &NotStarted,
    ) -> Self {
        let text = match request.size {
            Some(_) => why.words.replace('\n', "\r\n"),
            None => why.words.clone(),
        };
        tape.take(stream, text.as_bytes(), usize::MAX);
        let end = End {
            cause: Cause::StartFailed,
            code: Some(why.code),
            signal: None,
            ran_ms: 0,
        };
        let at = request.at;
        Self {
            request,
            tape,
            stage: Stage::Ended(end, at),
            outlets: Vec::new(),
            inlet: None,
            hunt: None,
            signalled: None,
        }
    }

    /// Tells it to the daemon.
    pub(crate) fn describe(&self, now: Moment) -> message::Run {
        message::Run {
            run: self.request.run.clone(),
            digest: self.request.digest.clone(),
            attended: self.request.attended,
            size: self.request.size,
            age_ms: now.since(self.request.at),
            stdout_bytes: self.tape.ring.written(Stream::Out),
            stderr_bytes: self.tape.ring.written(Stream::Err),
            first_seq: self.tape.ring.first_seq(),
            next_seq: self.tape.ring.next_seq(),
            truncated: self.tape.is_truncated(),
            end: match &self.stage {
                Stage::Ended(end, _) => Some(end.clone()),
                Stage::Running(_) | Stage::Exited(..) => None,
            },
        }
    }

    /// Tells whether it is over.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Ended(..))
    }

    /// Returns the number of its first process, while that is its own.
    pub(crate) fn leader(&self) -> Option<Pid> {
        match self.stage {
            Stage::Running(pid) => Some(pid),
            Stage::Exited(..) | Stage::Ended(..) => None,
        }
    }

    /// Takes how its first process ended.
    pub(crate) fn reaped(&mut self, status: WaitStatus, now: Moment) {
        if let Stage::Running(pid) = self.stage {
            self.stage = Stage::Exited(pid, status);
            if let Some(hunt) = &mut self.hunt {
                hunt.hasten(now);
            }
        }
    }

    /// Reads once from one of its outlets; closes it at its end.
    pub(crate) fn read(&mut self, index: usize, most: usize, ring_bytes: usize) -> Taken {
        let Some(outlet) = self.outlets.get_mut(index) else {
            return Taken::Within;
        };
        match outlet.read(most, ring_bytes, &mut self.tape) {
            Got::Bytes(_, taken) => taken,
            Got::Nothing => Taken::Within,
            Got::End => {
                self.outlets.remove(index);
                Taken::Within
            }
        }
    }

    /// Writes input that waits; returns whose was taken, and whose never will be.
    pub(crate) fn feed(&mut self) -> (Vec<Asker>, Vec<Asker>) {
        let mut done = Vec::new();
        if let Some(inlet) = &mut self.inlet
            && inlet.write(&mut done) == Open::No
        {
            return (done, self.close_input());
        }
        (done, Vec::new())
    }

    /// Closes its input; returns whose was not taken.
    pub(crate) fn close_input(&mut self) -> Vec<Asker> {
        let inlet = self.inlet.take();
        inlet.iter().flat_map(Inlet::waiting).collect()
    }

    /// Changes the size of its terminal; `false` where it has none.
    pub(crate) fn resize(&mut self, size: Size) -> bool {
        let is_done = self.inlet.as_ref().is_some_and(|inlet| inlet.resize(size));
        if is_done {
            self.request.size = Some(size);
        }
        is_done
    }

    /// Sends a signal to its process group; `false` where it has ended.
    pub(crate) fn signal(&mut self, signal: Signal) -> bool {
        let Some(leader) = self.leader() else {
            return false;
        };
        self.signalled = Some(signal.as_raw());
        signal_group(leader.as_raw_pid(), signal);
        true
    }

    /// Begins to end it and all that it started, unless that was begun before.
    pub(crate) fn end(&mut self, wish: Wish, around: &Surroundings) {
        let Stage::Running(leader) = self.stage else {
            return;
        };
        if self.hunt.is_some() {
            return;
        }
        let cause = match wish {
            Wish::Deadline => Cause::Timeout,
            Wish::Output => Cause::OutputLimit,
            Wish::Stop => Cause::Stopped,
        };
        // A shell at a terminal ignores TERM; that its terminal is gone it does not. What
        // was stopped has to go on in order to end by itself.
        let asks: &[Signal] = match self.request.size {
            Some(_) => &[Signal::TERM, Signal::HUP, Signal::CONT],
            None => &[Signal::TERM, Signal::CONT],
        };
        let leader = leader.as_raw_pid();
        self.hunt = Some(Hunt::begin(&self.request.run, leader, cause, asks, around));
    }

    /// Returns when something is to be done with it next.
    pub(crate) fn next(&self) -> Option<Moment> {
        match (&self.hunt, &self.stage) {
            (_, Stage::Ended(..)) => None,
            (Some(hunt), Stage::Running(_) | Stage::Exited(..)) => Some(hunt.next),
            (None, Stage::Running(_)) => self.request.deadline,
            (None, Stage::Exited(..)) => Some(self.request.at),
        }
    }

    /// Does what is due: its deadline, a step of its hunt, its end.
    ///
    /// Returns ends of pipes that others may still write to.
    pub(crate) fn advance(
        &mut self,
        now: Moment,
        around: &Surroundings,
        ring_bytes: usize,
    ) -> Vec<OwnedFd> {
        if self.hunt.is_none() && self.request.deadline.is_some_and(|at| at <= now) {
            self.end(Wish::Deadline, around);
        }
        let (leader, number) = match &self.stage {
            Stage::Running(pid) => (Leader::There, *pid),
            Stage::Exited(pid, _) => (Leader::Reaped, *pid),
            Stage::Ended(..) => return Vec::new(),
        };
        debug_assert!(1 < number.as_raw_pid(), "the agent is no run of its own");
        if let Some(hunt) = &mut self.hunt
            && (now < hunt.next || hunt.step(now, leader, around) == Left::Some)
        {
            return Vec::new();
        }
        let Stage::Exited(_, status) = self.stage else {
            return Vec::new();
        };
        let mut open = Vec::new();
        for outlet in std::mem::take(&mut self.outlets) {
            open.extend(outlet.finish(ring_bytes, &mut self.tape));
        }
        self.stage = Stage::Ended(self.ending(status, now), now);
        self.hunt = None;
        open
    }

    fn ending(&self, status: WaitStatus, now: Moment) -> End {
        let signal = status.terminating_signal();
        let cause = match &self.hunt {
            Some(hunt) => hunt.cause,
            None if signal.is_some() && signal == self.signalled => Cause::Signal,
            None => Cause::Exited,
        };
        let code = match cause {
            // What a program says that was made to end is not how it would have ended.
            Cause::Timeout | Cause::OutputLimit => None,
            Cause::Exited | Cause::Stopped | Cause::Signal | Cause::StartFailed => {
                status.exit_status()
            }
        };
        End {
            cause,
            code,
            signal,
            ran_ms: now.since(self.request.at),
        }
    }
}
