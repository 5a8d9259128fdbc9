//! The first process of a sandbox: one loop that waits for whatever happens next.

use std::collections::VecDeque;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, WaitOptions};

use crate::clock::{Moment, span};
use crate::fetches::Waiting;
use crate::hunt::Surroundings;
use crate::link::{Broken, Link, Origin, Peer};
use crate::mortal::Mortal;
use crate::processes::signal_group;
use crate::protocol::message::{AgentHello, Reply, Why};
use crate::protocol::{VERSION, files};
use crate::reach::{Dialer, Listener};
use crate::run::{Run, Wish};
use crate::runs::{Id, Runs};
use crate::streams::{Asker, READ_BYTES};
use crate::tape::Taken;

/// Milliseconds in which the other side says who it is.
const GREETING_MILLIS: u64 = 30_000;
/// Streams at once; one of them is the daemon's.
const LINKS_MAX: usize = 8;
/// Streams that are accepted in one turn.
const ACCEPTS_MAX: usize = 4;
/// Pipes of ended runs that are read, so that what holds them lives on. Beyond these
/// the oldest is closed.
const DRAINS_MAX: usize = 512;
/// Children that are reaped in one turn.
const REAPED_MAX: usize = 4096;

/// All that the agent knows.
#[derive(Debug)]
pub(crate) struct Agent {
    /// The runs.
    pub(crate) runs: Runs,
    /// Requests for output that wait.
    pub(crate) fetches: Vec<Waiting>,
    /// The agent's own process.
    pub(crate) own: Surroundings,
    /// Its place in the order of dying.
    pub(crate) mortal: Mortal,
    links: Vec<Link>,
    links_made: u64,
    ways: Ways,
    drains: VecDeque<OwnedFd>,
    life: String,
}

/// How streams come to be.
#[derive(Debug)]
pub(crate) struct Ways {
    /// The daemon's socket.
    pub(crate) dialer: Dialer,
    /// The agent's own, where it could be made.
    pub(crate) listener: Option<Listener>,
}

impl Ways {
    /// Dials one path, and listens at another where that can be done.
    pub(crate) fn new(dial: PathBuf, own: &Path) -> Self {
        Self {
            dialer: Dialer::new(dial, Moment::read()),
            listener: Listener::new(own).ok(),
        }
    }
}

/// The signals that the agent waits for, each as a stream that becomes readable.
#[derive(Debug)]
pub(crate) struct Signals {
    /// A child has ended.
    pub(crate) child: UnixStream,
    /// The agent is to end.
    pub(crate) end: UnixStream,
}

/// What may happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Child,
    End,
    Watch,
    Listener,
    Link(u64),
    Outlet(Id, usize),
    Inlet(Id),
    Drain(usize),
}

/// Whether there is another turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Next,
    Last,
}

impl Agent {
    /// Makes one that knows nothing yet.
    pub(crate) fn new(ways: Ways, mortal: Mortal) -> Self {
        let session = rustix::process::getsid(None).map_or(0, Pid::as_raw_pid);
        Self {
            runs: Runs::new(),
            fetches: Vec::new(),
            own: Surroundings {
                own: rustix::process::getpid().as_raw_pid(),
                session,
                others: std::collections::BTreeSet::new(),
            },
            mortal,
            links: Vec::new(),
            links_made: 0,
            ways,
            drains: VecDeque::new(),
            life: life(),
        }
    }

    /// Serves until it is told to end.
    pub(crate) fn serve(&mut self, signals: &mut Signals) {
        while self.turn(signals) == Turn::Next {}
        for (_, run) in self.runs.iter() {
            // In a container all would go anyway; on a host nothing is left behind.
            if let Some(leader) = run.leader() {
                signal_group(leader.as_raw_pid(), Signal::KILL);
            }
        }
    }

    fn turn(&mut self, signals: &mut Signals) -> Turn {
        let before = Moment::read();
        if let Some(socket) = self.ways.dialer.dial(before) {
            self.link_up(Origin::Dialed, socket, before);
        }
        let events = self.wait(signals, before);
        let now = Moment::read();
        if events.contains(&Source::End) {
            return Turn::Last;
        }
        if events.contains(&Source::Child) {
            empty(&mut signals.child);
            self.reap(now);
        }
        // From behind, so that what is removed does not move what comes after.
        for event in events.iter().rev() {
            self.happened(*event, now);
        }
        self.advance(now);
        self.hear(now);
        self.runs.expire(now);
        self.answer(now);
        self.runs.settle();
        self.send(now);
        Turn::Next
    }

    fn wait(&self, signals: &Signals, now: Moment) -> Vec<Source> {
        let mut sources = Vec::new();
        let mut fds = Vec::new();
        let mut add = |source, fd, flags| {
            sources.push(source);
            fds.push(PollFd::from_borrowed_fd(fd, flags));
        };
        add(Source::Child, signals.child.as_fd(), PollFlags::IN);
        add(Source::End, signals.end.as_fd(), PollFlags::IN);
        if let Some(watch) = self.ways.dialer.watch() {
            add(Source::Watch, watch, PollFlags::IN);
        }
        if let Some(listener) = &self.ways.listener {
            add(Source::Listener, listener.as_fd(), PollFlags::IN);
        }
        for link in &self.links {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, !link.is_full());
            flags.set(PollFlags::OUT, link.is_sending());
            add(Source::Link(link.id), link.as_fd(), flags);
        }
        for (id, run) in self.runs.iter() {
            // A run that has to wait is left out: its end would wake the loop for ever.
            if !run.outlets.is_empty() && 0 < self.runs.room(run) {
                for (index, outlet) in run.outlets.iter().enumerate() {
                    add(Source::Outlet(*id, index), outlet.as_fd(), PollFlags::IN);
                }
            }
            if let Some(inlet) = run.inlet.as_ref().filter(|inlet| inlet.is_waiting()) {
                add(Source::Inlet(*id), inlet.as_fd(), PollFlags::OUT);
            }
        }
        for (index, drain) in self.drains.iter().enumerate() {
            add(Source::Drain(index), drain.as_fd(), PollFlags::IN);
        }
        let timeout = self.next(now).map(|next| span(now, next));
        if poll(&mut fds, timeout.as_ref()).is_err() {
            // A signal has come between; what it left is found at the next turn.
            return Vec::new();
        }
        let happened = sources.iter().zip(&fds);
        let happened = happened.filter(|(_, fd)| !fd.revents().is_empty());
        happened.map(|(source, _)| *source).collect()
    }

    /// Returns when something is due, whatever happens.
    fn next(&self, now: Moment) -> Option<Moment> {
        let greetings = self.links.iter().filter_map(|link| match link.peer {
            Peer::Unknown(until) => Some(until),
            Peer::Daemon => None,
        });
        if self
            .links
            .iter()
            .any(|link| link.is_stalled && !link.is_full())
        {
            return Some(now);
        }
        let ways = self.ways.dialer.next().into_iter();
        ways.chain(greetings).chain(self.runs.next()).min()
    }

    fn happened(&mut self, source: Source, now: Moment) {
        match source {
            Source::Child | Source::End => {}
            Source::Watch => self.ways.dialer.changed(now),
            Source::Listener => self.accept(now),
            Source::Link(id) => self.receive(id, now),
            Source::Outlet(id, index) => self.read(id, index),
            Source::Inlet(id) => self.feed(id),
            Source::Drain(index) => self.drain(index),
        }
    }

    /// Takes the children that have ended, the orphans of the sandbox too.
    pub(crate) fn reap(&mut self, now: Moment) {
        for _ in 0..REAPED_MAX {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => self.runs.reaped(pid, status, now),
                Ok(None) | Err(_) => return,
            }
        }
        // There are more: the next turn is reminded of them.
        rustix::process::kill_process(rustix::process::getpid(), Signal::CHILD).ok();
    }

    fn accept(&mut self, now: Moment) {
        for _ in 0..ACCEPTS_MAX {
            let listener = self.ways.listener.as_ref();
            let Some(socket) = listener.and_then(Listener::accept) else {
                return;
            };
            self.link_up(Origin::Bridged, socket, now);
        }
    }

    fn link_up(&mut self, origin: Origin, socket: OwnedFd, now: Moment) {
        if LINKS_MAX <= self.links.len() {
            let mut unknown = self.links.iter().filter(|link| link.peer != Peer::Daemon);
            if let Some(oldest) = unknown.next().map(|link| link.id) {
                self.link_down(oldest, now);
            }
        }
        self.links_made += 1;
        let id = self.links_made;
        let link = Link::new(id, origin, socket, now.after(GREETING_MILLIS));
        self.links.push(link);
        let hello = AgentHello {
            version: VERSION,
            life: self.life.clone(),
            uid: rustix::process::geteuid().as_raw(),
            files: files::VERSION,
        };
        self.reply(id, &Reply::Hello(hello));
        if self.link(id).is_some_and(|link| link.send().is_err()) {
            self.link_down(id, now);
        }
    }

    fn link_down(&mut self, id: u64, now: Moment) {
        let Some(index) = self.links.iter().position(|link| link.id == id) else {
            return;
        };
        let link = self.links.remove(index);
        self.fetches.retain(|waiting| waiting.asker.link != id);
        match link.origin {
            Origin::Dialed => self.ways.dialer.broke(now),
            Origin::Bridged => {}
        }
    }

    /// Takes a stream as the daemon's: the newest is, and what was before is closed.
    pub(crate) fn adopt(&mut self, id: u64) {
        let Some(link) = self.link(id) else {
            return;
        };
        link.peer = Peer::Daemon;
        if link.origin == Origin::Dialed {
            self.ways.dialer.found();
        }
        let older = |link: &&Link| link.id != id && link.peer == Peer::Daemon;
        let older: Vec<u64> = self
            .links
            .iter()
            .filter(older)
            .map(|link| link.id)
            .collect();
        for one in older {
            self.link_down(one, Moment::read());
        }
    }

    /// Returns a stream that is there.
    pub(crate) fn link(&mut self, id: u64) -> Option<&mut Link> {
        self.links.iter_mut().find(|link| link.id == id)
    }

    /// Appends an answer to what is sent; nobody gets it where the stream has gone.
    pub(crate) fn reply(&mut self, link: u64, reply: &Reply) {
        if let Some(link) = self.link(link) {
            // What is too long for a frame is not sent; all that is answered is short.
            link.reply(reply).ok();
        }
    }

    fn receive(&mut self, id: u64, now: Moment) {
        let Some(link) = self.link(id) else {
            return;
        };
        if !link.is_full() && link.read() == Err(Broken) {
            self.link_down(id, now);
        }
    }

    /// Does what was asked for, as long as the answers are taken.
    fn hear(&mut self, now: Moment) {
        let ids: Vec<u64> = self.links.iter().map(|link| link.id).collect();
        for id in ids {
            if let Some(link) = self.link(id) {
                link.is_stalled = false;
            }
            while let Some(link) = self.link(id) {
                if link.is_full() {
                    link.is_stalled = true;
                    break;
                }
                let heard = match link.frame() {
                    Ok(Some(frame)) => self.obey(id, frame, now),
                    Ok(None) => break,
                    Err(broken) => Err(broken),
                };
                if heard == Err(Broken) {
                    self.link_down(id, now);
                }
            }
            let greeted = self.link(id).map(|link| link.peer);
            if matches!(greeted, Some(Peer::Unknown(until)) if until <= now) {
                self.link_down(id, now);
            }
        }
    }

    fn read(&mut self, id: Id, index: usize) {
        let ring_bytes = self.runs.ring_bytes();
        let found = self.runs.iter().find(|(one, _)| *one == id);
        let room = found.map_or(0, |(_, run)| self.runs.room(run));
        let around = self.runs.around(id, &self.own);
        if let Some(run) = self.runs.get(id).filter(|_| 0 < room)
            && run.read(index, room, ring_bytes) == Taken::Beyond
        {
            run.end(Wish::Output, &around);
        }
    }

    /// Gives a run input that waits for it.
    pub(crate) fn feed(&mut self, id: Id) {
        let (done, lost) = self.runs.get(id).map(Run::feed).unwrap_or_default();
        for asker in done {
            self.reply(asker.link, &Reply::Done { ask: asker.ask });
        }
        self.lose(lost);
    }

    fn lose(&mut self, lost: Vec<Asker>) {
        for asker in lost {
            self.refuse(asker, Why::Over, "the run does not read any more");
        }
    }

    fn drain(&mut self, index: usize) {
        let Some(drain) = self.drains.get(index) else {
            return;
        };
        let mut nowhere = Vec::with_capacity(READ_BYTES);
        let read = rustix::io::read(drain, rustix::buffer::spare_capacity(&mut nowhere));
        if !matches!(
            read,
            Ok(1..) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR)
        ) {
            self.drains.remove(index);
        }
    }

    /// Ends what is to end.
    fn advance(&mut self, now: Moment) {
        let ring_bytes = self.runs.ring_bytes();
        for id in self.runs.due(now) {
            let around = self.runs.around(id, &self.own);
            let Some(run) = self.runs.get(id) else {
                continue;
            };
            let open = run.advance(now, &around, ring_bytes);
            let lost = if run.is_over() {
                run.close_input()
            } else {
                Vec::new()
            };
            self.drains.extend(open);
            self.lose(lost);
        }
        while DRAINS_MAX < self.drains.len() {
            self.drains.pop_front();
        }
    }

    /// Answers the requests for output whose time has come.
    fn answer(&mut self, now: Moment) {
        let mut broken = Vec::new();
        let mut waiting = std::mem::take(&mut self.fetches);
        waiting.retain_mut(|one| {
            let found = self.runs.iter().find(|(id, _)| *id == one.id);
            let Some(link) = self.links.iter_mut().find(|link| link.id == one.asker.link) else {
                return false;
            };
            let Some((_, run)) = found else {
                let text = "the run was forgotten".to_owned();
                let (ask, why) = (one.asker.ask, Why::NoRun);
                return link.reply(&Reply::Failed { ask, why, text }).is_err();
            };
            if link.is_full() {
                link.is_stalled = true;
                return true;
            }
            let Some(cursor) = one.ready(run, self.runs.room(run)) else {
                return true;
            };
            if one.answer(cursor, run, now, link) == Err(Broken) {
                broken.push(link.id);
            }
            false
        });
        self.fetches = waiting;
        for id in broken {
            self.link_down(id, now);
        }
    }

    fn send(&mut self, now: Moment) {
        let is_quiet = self.fetches.is_empty() && self.runs.are_over();
        let mut broken = Vec::new();
        for link in &mut self.links {
            if link.send() == Err(Broken) {
                broken.push(link.id);
            }
            if is_quiet {
                link.rest();
            }
        }
        for id in broken {
            self.link_down(id, now);
        }
    }
}

fn empty(signal: &mut UnixStream) {
    let mut bytes = [0; 256];
    while signal.read(&mut bytes).is_ok_and(|read| 0 < read) {}
}

/// Returns a random text that no other life of an agent has.
fn life() -> String {
    let mut bytes = [0; 16];
    let flags = rustix::rand::GetRandomFlags::empty();
    rustix::rand::getrandom(&mut bytes, flags).ok();
    format!("{:032x}", u128::from_le_bytes(bytes))
}
