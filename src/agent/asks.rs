//! Keeps what was asked of an agent, and finds for each answer who waits for it.

use std::collections::{BTreeMap, VecDeque};

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::check::{self, Fault};
use super::connection::Started;
use super::protocol::message::{Fetch, Reply, Run, Usage, Why};
use super::protocol::output::Output;

/// Requests that may wait for their answers at once.
pub(super) const ASKS_MAX: usize = 1024;
/// Requests that were taken back and may be answered all the same; the oldest is forgotten.
const LATE_MAX: usize = 4096;

/// What is expected as an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// This run.
    Started {
        /// Its id.
        run: String,
        /// The digest of the request.
        digest: String,
    },
    /// A list.
    Runs,
    /// What the sandbox uses.
    Usage,
    /// That it was done; taken back when nobody waits any more, or not.
    Done(TakenBack),
    /// Output.
    Output(Fetch),
}

/// Whether a request is taken back when nobody waits for its answer any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TakenBack {
    /// It is.
    Yes,
    /// It is done all the same.
    No,
}

/// An answer that fits its question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Started(Started),
    Runs(Vec<Run>),
    Usage(Usage),
    Done,
    Output(Output),
    Failed(Why, String),
}

/// One request that was not answered yet.
#[derive(Debug)]
struct Pending {
    wanted: Wanted,
    tell: oneshot::Sender<Answer>,
    _place: OwnedSemaphorePermit,
}

/// All requests on one stream.
#[derive(Debug, Default)]
pub(super) struct Asks {
    next: u64,
    pending: BTreeMap<u64, Pending>,
    /// Requests that were taken back, each with the first number that was given out
    /// afterwards. An answer under that number or a later one tells that the agent has read
    /// the taking back, and so that no answer to it is under way.
    late: VecDeque<(u64, u64)>,
}

impl Asks {
    /// Returns the number of a request that is about to be sent.
    pub(super) fn number(&mut self) -> u64 {
        let ask = self.next;
        self.next = self.next.saturating_add(1);
        ask
    }

    /// Notes a request that is sent now.
    pub(super) fn ask(
        &mut self,
        ask: u64,
        wanted: Wanted,
        place: OwnedSemaphorePermit,
    ) -> oneshot::Receiver<Answer> {
        let (tell, answer) = oneshot::channel();
        let pending = Pending {
            wanted,
            tell,
            _place: place,
        };
        self.pending.insert(ask, pending);
        answer
    }

    /// Gives up waiting; tells whether the agent is to be told so.
    pub(super) fn give_up(&mut self, ask: u64) -> TakenBack {
        let Some(pending) = self.pending.get(&ask) else {
            return TakenBack::No;
        };
        match &pending.wanted {
            // It is done, and its answer comes, whoever waits.
            Wanted::Started { .. } | Wanted::Runs | Wanted::Usage | Wanted::Done(TakenBack::No) => {
                TakenBack::No
            }
            Wanted::Done(TakenBack::Yes) | Wanted::Output(_) => {
                self.pending.remove(&ask);
                if LATE_MAX <= self.late.len() {
                    self.late.pop_front();
                }
                self.late.push_back((ask, self.next));
                TakenBack::Yes
            }
        }
    }

    /// Lets everybody go who waits.
    pub(super) fn clear(&mut self) {
        self.pending.clear();
        self.late.clear();
    }

    /// Hands a reply to whoever waits for it.
    pub(super) fn reply(&mut self, reply: Reply) -> Result<(), Fault> {
        match reply {
            Reply::Hello(_) => Err(Fault::Hello),
            Reply::Started { ask, run, fresh } => self.settle(ask, |wanted| match wanted {
                Wanted::Started { run: id, digest } => {
                    if run.run != *id || run.digest != *digest || !check::is_sound(&run) {
                        return Err(Fault::Run(ask));
                    }
                    Ok(Answer::Started(Started { run, fresh }))
                }
                Wanted::Runs | Wanted::Usage | Wanted::Done(_) | Wanted::Output(_) => {
                    Err(Fault::Kind(ask))
                }
            }),
            Reply::Runs { ask, runs } => self.settle(ask, |wanted| match wanted {
                Wanted::Runs => check::runs(&runs).map(|()| Answer::Runs(runs)),
                Wanted::Started { .. } | Wanted::Usage | Wanted::Done(_) | Wanted::Output(_) => {
                    Err(Fault::Kind(ask))
                }
            }),
            Reply::Usage { ask, usage } => self.settle(ask, |wanted| match wanted {
                Wanted::Usage => Ok(Answer::Usage(usage)),
                Wanted::Started { .. } | Wanted::Runs | Wanted::Done(_) | Wanted::Output(_) => {
                    Err(Fault::Kind(ask))
                }
            }),
            Reply::Done { ask } => self.settle(ask, |wanted| match wanted {
                Wanted::Done(_) => Ok(Answer::Done),
                Wanted::Started { .. } | Wanted::Runs | Wanted::Usage | Wanted::Output(_) => {
                    Err(Fault::Kind(ask))
                }
            }),
            Reply::Failed { ask, why, text } => {
                self.settle(ask, |_| Ok(Answer::Failed(why, check::words(&text))))
            }
        }
    }

    /// Hands output to whoever waits for it.
    pub(super) fn output(&mut self, output: Output) -> Result<(), Fault> {
        let ask = output.ask;
        self.settle(ask, |wanted| match wanted {
            Wanted::Output(fetch) => check::output(fetch, &output).map(|()| Answer::Output(output)),
            Wanted::Started { .. } | Wanted::Runs | Wanted::Usage | Wanted::Done(_) => {
                Err(Fault::Kind(ask))
            }
        })
    }

    fn settle(
        &mut self,
        ask: u64,
        judge: impl FnOnce(&Wanted) -> Result<Answer, Fault>,
    ) -> Result<(), Fault> {
        let late = self.late.iter().position(|(one, _)| *one == ask);
        if let Some(at) = late {
            self.late.remove(at);
            return Ok(());
        }
        let Some(pending) = self.pending.remove(&ask) else {
            return Err(Fault::Unasked(ask));
        };
        while self.late.front().is_some_and(|(_, next)| *next <= ask) {
            self.late.pop_front();
        }
        let answer = judge(&pending.wanted)?;
        // Nobody takes it where its caller went and could not take the request back.
        drop(pending.tell.send(answer));
        Ok(())
    }
}
