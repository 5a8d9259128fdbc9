//! Does what a daemon asks for.

use std::path::Path;

use rustix::process::Signal;
use serde::Deserialize;

use crate::agent::Agent;
use crate::clock::Moment;
use crate::fetches::Waiting;
use crate::launch::{self, NotStarted, Refused};
use crate::link::{Broken, Peer};
use crate::protocol::FETCHES_MAX;
use crate::protocol::VERSION;
use crate::protocol::frame::{Frame, Input};
use crate::protocol::message::{DaemonHello, Fetch, Reply, Request, Start, Streams, Why};
use crate::protocol::output::Stream;
use crate::run::{Asked, Run, Wish};
use crate::runs::{Id, Known};
use crate::streams::{self, Asker};
use crate::tape::Tape;

/// Bytes of an answer's words.
const TEXT_BYTES_MAX: usize = 1024;

/// What is read of a request that is not understood.
#[derive(Deserialize)]
struct Unknown {
    ask: u64,
}

impl Agent {
    /// Does what a frame from a stream asks for.
    pub(crate) fn obey(&mut self, link: u64, frame: Frame, now: Moment) -> Result<(), Broken> {
        let is_daemon = self
            .link(link)
            .is_some_and(|link| link.peer == Peer::Daemon);
        match frame {
            Frame::Message(json) => match serde_json::from_slice::<Request>(&json) {
                Ok(Request::Hello(hello)) if !is_daemon => self.greet(link, &hello),
                Ok(Request::Hello(_)) => Err(Broken),
                Ok(request) if is_daemon => self.request(link, request, now),
                Ok(_) => Err(Broken),
                // One that a newer daemon knows is refused and does no harm.
                Err(_) if is_daemon => {
                    let unknown: Unknown = serde_json::from_slice(&json).map_err(|_| Broken)?;
                    let asker = Asker {
                        link,
                        ask: unknown.ask,
                    };
                    self.refuse(asker, Why::Bad, "the request is not understood");
                    Ok(())
                }
                Err(_) => Err(Broken),
            },
            Frame::Input(input) if is_daemon => {
                self.input(link, input);
                Ok(())
            }
            Frame::Input(_) | Frame::Output(_) => Err(Broken),
        }
    }

    fn greet(&mut self, link: u64, hello: &DaemonHello) -> Result<(), Broken> {
        if hello.version != VERSION {
            return Err(Broken);
        }
        self.runs.bounds = hello.bounds;
        self.adopt(link);
        Ok(())
    }

    fn request(&mut self, link: u64, request: Request, now: Moment) -> Result<(), Broken> {
        let by = |ask| Asker { link, ask };
        match request {
            Request::Hello(_) => return Err(Broken),
            Request::Start { ask, start } => self.start(by(ask), &start, now),
            Request::Fetch { ask, fetch } => self.fetch(by(ask), &fetch),
            Request::Cancel { ask } => self.cancel(by(ask)),
            Request::Signal { ask, run, signal } => {
                let done = self.signal(&run, signal);
                self.close(by(ask), done);
            }
            Request::Stop { ask, run } => {
                let done = self.stop(&run);
                self.close(by(ask), done);
            }
            Request::Resize { ask, run, size } => {
                let resized = self.known(&run).and_then(|(_, run)| {
                    if run.is_over() {
                        return Err((Why::Over, "the run has ended".to_owned()));
                    }
                    let no_tty = (Why::Bad, "the run has no terminal".to_owned());
                    run.resize(size).then_some(()).ok_or(no_tty)
                });
                self.close(by(ask), resized);
            }
            Request::List { ask } => {
                let runs = self.runs.iter().map(|(_, run)| run.describe(now)).collect();
                self.reply(link, &Reply::Runs { ask, runs });
            }
            Request::Usage { ask } => {
                let usage = crate::usage::read(Path::new(crate::usage::ROOT));
                self.reply(link, &Reply::Usage { ask, usage });
            }
            Request::Forget { ask, run } => {
                let done = self.forget(&run, now);
                self.close(by(ask), done);
            }
        }
        Ok(())
    }

    fn start(&mut self, asker: Asker, start: &Start, now: Moment) {
        let fresh = match self.attach(start) {
            Ok(Some(id)) => self.launch(id, start, now).map(|()| true),
            Ok(None) => Ok(false),
            Err(refused) => Err(refused),
        };
        let started = fresh.and_then(|fresh| {
            let (_, run) = self.known(&start.run)?;
            Ok((run.describe(now), fresh))
        });
        match started {
            Ok((run, fresh)) => {
                let ask = asker.ask;
                self.reply(asker.link, &Reply::Started { ask, run, fresh });
            }
            Err((why, text)) => self.refuse(asker, why, &text),
        }
    }

    /// Finds the run of a repeated request; else returns its id, which is new.
    fn attach(&mut self, start: &Start) -> Result<Option<Id>, Refused> {
        let bad = || (Why::Bad, "the id of a run is 32 hex digits".to_owned());
        let id = Id::parse(&start.run).ok_or_else(bad)?;
        match self.runs.find(id) {
            Known::Run(run) if run.request.digest == start.digest => Ok(None),
            Known::Run(_) => Err((
                Why::Conflict,
                "the id was used for another request".to_owned(),
            )),
            Known::Forgotten => Err((Why::NoRun, "the run was forgotten".to_owned())),
            Known::Never => Ok(Some(id)),
        }
    }

    fn launch(&mut self, id: Id, start: &Start, now: Moment) -> Result<(), Refused> {
        if self.runs.is_full() {
            return Err((
                Why::Ceiling,
                format!("{} runs are live", self.runs.bounds.runs),
            ));
        }
        let user = launch::check(start)?;
        let request = Asked::of(start, now);
        let tape = Tape::new(start.output);
        let owner = user.as_ref().map(|user| user.identity.uid);
        let mut launched = self.spawn(start, owner, user.as_ref());
        if launched.as_ref().is_err_and(|why| why.is_full) {
            // What has ended and is not reaped counts as well.
            self.reap(now);
            launched = self.spawn(start, owner, user.as_ref());
        }
        let run = match launched {
            Ok((pid, outlets, inlet)) => Run::started(request, tape, pid, outlets, inlet),
            Err(why) => {
                let stream = match start.streams {
                    Streams::Split => Stream::Err,
                    Streams::Merged | Streams::Tty(_) => Stream::Out,
                };
                Run::not_started(request, tape, stream, &why)
            }
        };
        self.runs.insert(id, run);
        self.feed(id);
        Ok(())
    }

    fn spawn(
        &mut self,
        start: &Start,
        owner: Option<u32>,
        user: Option<&crate::user::User>,
    ) -> Result<Launched, NotStarted> {
        let opened = streams::open(start.streams, &start.stdin, owner);
        let opened = opened.map_err(launch::no_streams)?;
        let pid = self
            .mortal
            .while_children_go_first(|| launch::spawn(start, user, opened.ends))?;
        Ok((pid, opened.outlets, opened.inlet))
    }

    fn fetch(&mut self, asker: Asker, fetch: &Fetch) {
        if FETCHES_MAX <= self.fetches.len() {
            return self.refuse(asker, Why::Ceiling, "too many requests wait for output");
        }
        match self.known(&fetch.run) {
            Err((why, text)) => self.refuse(asker, why, &text),
            Ok((id, run)) => {
                let waiting = Waiting::new(asker, id, fetch);
                waiting.mark(run);
                self.fetches.push(waiting);
            }
        }
    }

    fn cancel(&mut self, asker: Asker) {
        self.fetches.retain(|waiting| waiting.asker != asker);
        self.runs.cancel(asker);
    }

    fn input(&mut self, link: u64, input: Input) {
        let asker = Asker {
            link,
            ask: input.ask,
        };
        let queued = self.known(&input.run).and_then(|(id, run)| {
            let over = || (Why::Over, "the run does not read any more".to_owned());
            let inlet = run.inlet.as_mut().filter(|inlet| !inlet.is_ending());
            let inlet = inlet.ok_or_else(over)?;
            let full = || (Why::Ceiling, "too much input waits for the run".to_owned());
            let is_taken = inlet.push(Some(asker), input.bytes, input.ends);
            is_taken.then_some(id).ok_or_else(full)
        });
        match queued {
            Ok(id) => self.feed(id),
            Err((why, text)) => self.refuse(asker, why, &text),
        }
    }

    fn signal(&mut self, run: &str, signal: i32) -> Result<(), Refused> {
        let (_, run) = self.known(run)?;
        let bad = || (Why::Bad, format!("there is no signal {signal}"));
        let signal = Signal::from_named_raw(signal).ok_or_else(bad)?;
        let over = || (Why::Over, "the run has ended".to_owned());
        run.signal(signal).then_some(()).ok_or_else(over)
    }

    fn stop(&mut self, run: &str) -> Result<(), Refused> {
        let (id, _) = self.known(run)?;
        let around = self.runs.around(id, &self.own);
        let (_, run) = self.known(run)?;
        if run.leader().is_none() {
            return Err((Why::Over, "the run has ended".to_owned()));
        }
        run.end(Wish::Stop, &around);
        Ok(())
    }

    fn forget(&mut self, run: &str, now: Moment) -> Result<(), Refused> {
        let (id, run) = self.known(run)?;
        if !run.is_over() {
            return Err((Why::Bad, "the run has not ended".to_owned()));
        }
        self.runs.forget(id, now);
        Ok(())
    }

    fn known(&mut self, run: &str) -> Result<(Id, &mut Run), Refused> {
        let id = Id::parse(run);
        let found = id.and_then(|id| Some((id, self.runs.get(id)?)));
        found.ok_or_else(|| (Why::NoRun, "there is no such run".to_owned()))
    }

    fn close(&mut self, asker: Asker, done: Result<(), Refused>) {
        match done {
            Ok(()) => self.reply(asker.link, &Reply::Done { ask: asker.ask }),
            Err((why, text)) => self.refuse(asker, why, &text),
        }
    }

    /// Answers that something was not done.
    pub(crate) fn refuse(&mut self, asker: Asker, why: Why, text: &str) {
        let (text, _) = text.split_at(text.floor_char_boundary(TEXT_BYTES_MAX));
        let failed = Reply::Failed {
            ask: asker.ask,
            why,
            text: text.to_owned(),
        };
        self.reply(asker.link, &failed);
    }
}

/// A process that was started, with the agent's ends of its streams.
type Launched = (
    rustix::process::Pid,
    Vec<streams::Outlet>,
    Option<streams::Inlet>,
);
