//! Brings a command to the sandbox of a session, and writes down how it ended.

use std::collections::BTreeMap;

use tokio::time::Instant;
use tracing::warn;

use super::live::NotLive;
use super::request::{Input, Options};
use super::shown::shortened;
use super::slots::session_is_full;
use super::{Control, Refusal};
use crate::cause::chain;
use crate::clock::Timestamp;
use crate::docker;
use crate::id::{RequestId, RunId, SessionId};
use crate::policy::Users;
use crate::sandbox::commands::{
    Command, Ending, Halt, Loss, NotRun, Output, Place, Program, Ran, Task, Why,
};
use crate::session::Fact;
use crate::session::record::{Event, Record};
use crate::store::{Batch, CommitError};
use crate::wire::files::ResetTold;

/// Operations that change nothing.
const LOOKS: [&str; 8] = [
    "read",
    "read_bytes",
    "exists",
    "ls",
    "glob",
    "grep",
    "stat",
    "realpath",
];
/// How often a command is offered to a sandbox that had ended just then.
const TRIES_MAX: usize = 3;

/// A command on its way.
#[derive(Debug)]
pub(super) struct Errand {
    /// The session.
    pub(super) id: SessionId,
    /// The id of the command.
    pub(super) run: RunId,
    /// Tells the request from another one under that id.
    pub(super) digest: String,
    /// What is run, and how.
    pub(super) task: Task,
    /// When it is killed.
    pub(super) deadline: Instant,
    /// What is done where the files are gone with the sandbox.
    pub(super) when_lost: WhenLost,
}

/// What is done where a session's files are gone with its sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WhenLost {
    /// An empty sandbox is started.
    StartEmpty,
    /// The command is refused.
    Refuse,
}

/// What became of an errand.
#[derive(Debug)]
pub(super) enum Met {
    /// It was begun.
    Ran(Ran, Option<Reset>),
    /// Its time was over before it was.
    Late,
    /// It was asked to end before it was.
    Halted(Why),
}

/// A reset that the reply is to tell of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reset {
    /// Which life of the sandbox this is.
    pub(super) incarnation: u64,
    /// Why it began.
    pub(super) reason: String,
}

/// What is written down of a command.
#[derive(Debug)]
pub(super) struct Entry<'e> {
    /// The operation.
    pub(super) op: &'static str,
    /// What was run; cut to what an event shows.
    pub(super) target: &'e str,
    /// Whether it succeeded.
    pub(super) ok: bool,
    /// How it ended.
    pub(super) detail: String,
    /// Why, where the rest does not say it all.
    pub(super) why: Option<&'static str>,
    /// When it was asked for.
    pub(super) began: Timestamp,
    /// The request that asked.
    pub(super) request_id: &'e RequestId,
    /// The incarnation that the reply tells of.
    pub(super) told: Option<u64>,
    /// Whether the sandbox was refused processes meanwhile.
    pub(super) short_of_processes: bool,
}

/// What an entry says, whatever becomes of what was asked for.
#[derive(Clone, Debug)]
pub(super) struct Account {
    /// The operation.
    pub(super) op: &'static str,
    /// What it is about.
    pub(super) target: String,
    /// When it was asked for.
    pub(super) began: Timestamp,
    /// The request that asked.
    pub(super) request_id: RequestId,
}

impl Account {
    /// Makes the entry of how it ended.
    pub(super) fn entry(&self, ok: bool, detail: String, told: Option<u64>) -> Entry<'_> {
        Entry {
            op: self.op,
            target: &self.target,
            ok,
            detail,
            why: None,
            began: self.began,
            request_id: &self.request_id,
            told,
            short_of_processes: false,
        }
    }
}

/// Whether an entry is in the logs.
#[derive(Debug)]
pub(super) enum Noted {
    /// Not yet.
    No,
    /// It is on its way to them, and out of this process.
    Down,
    /// It is to be committed before the reply.
    Left(Batch),
}

/// Makes a task of what was asked for.
pub(super) fn task(program: Program, options: Options, output: Output) -> Task {
    Task {
        program,
        env: options.env,
        cwd: options.cwd,
        user: options.user,
        stdin: match options.stdin {
            Input::Text(text) => Some(text),
            // Nobody could send it anything.
            Input::Closed | Input::Open => None,
        },
        output,
    }
}

/// Refuses a user that the session's runtime does not let callers choose.
pub(super) fn may_run_as(record: &Record, options: &Options) -> Result<(), Refusal> {
    match (&options.user, record.spec.runtime.users) {
        (Some(_), Users::Own) => Err(Refusal::UserNotAllowed(record.spec.alias.to_string())),
        (Some(_), Users::Any) | (None, Users::Own | Users::Any) => Ok(()),
    }
}

/// Says why a command ended as it did, where its code does not say it all.
pub(super) fn why(ending: &Ending) -> Option<&'static str> {
    match ending {
        Ending::Exited(_) => None,
        Ending::OutOfMemory(_) => Some("oom"),
        Ending::StartFailed(_) => Some("start_failed"),
        Ending::TimedOut => Some("timeout"),
        Ending::OutputLimit => Some("output_limit"),
        Ending::Stopped(_) => Some("stopped"),
        Ending::Signalled(_) => Some("signal"),
        Ending::CallerGone => Some("caller_gone"),
        Ending::Unknown(loss) => Some(loss.as_str()),
    }
}

impl Reset {
    /// Writes it as replies have it.
    pub(super) fn wire(self) -> ResetTold {
        ResetTold {
            incarnation: Some(self.incarnation),
            reset_reason: Some(self.reason),
        }
    }
}

impl Control {
    /// Offers a command to the session's sandbox until one takes it.
    pub(super) async fn offer(&self, errand: &Errand, halt: &Halt) -> Result<Met, Refusal> {
        let Errand { id, deadline, .. } = errand;
        let work_dir = self.0.policy.get().interior.work_dir.clone();
        for _ in 0..TRIES_MAX {
            self.relies_on_files(errand)?;
            let live = tokio::select! {
                // Nothing is started for a caller that has left.
                why = halt.asked() => return Ok(Met::Halted(why)),
                live = self.live(id, *deadline) => live,
            };
            let live = match live {
                Ok(live) => live,
                // Its time counts from its arrival, waking included.
                Err(NotLive::Late) => return Ok(Met::Late),
                Err(NotLive::Refused(refusal)) => return Err(refusal),
            };
            let command = Command {
                place: Place {
                    session: id,
                    container: &live.container,
                    work_dir: &work_dir,
                },
                task: &errand.task,
                run: &errand.run,
                digest: &errand.digest,
                deadline: *deadline,
            };
            match self.0.runner.run(&command, halt).await {
                Ok(ran) => {
                    if ran.ending == Ending::Unknown(Loss::ContainerLost) {
                        self.0.loop_.work.nudge_session(id);
                    }
                    // Where the caller is gone, nobody would hear of it.
                    let is_heard = ran.ending != Ending::CallerGone;
                    let news = live.reset.filter(|_| is_heard);
                    let reset = self.told(id, news);
                    return Ok(Met::Ran(ran, reset));
                }
                // Nothing was started, so nothing is done twice.
                Err(NotRun::ContainerDown) => self.look(id, *deadline).await,
                Err(NotRun::Late) => return Ok(Met::Late),
                Err(NotRun::Ceiling) => {
                    let limit = self.0.policy.get().limits.runs.per_session;
                    return Err(session_is_full(id, limit));
                }
                Err(not_run) => return Err(refusal(errand, not_run)),
            }
        }
        Err(Refusal::EngineUnavailable(
            "the sandbox ended as often as it was started".to_owned(),
        ))
    }

    /// Refuses a command whose caller relies on files that are gone.
    fn relies_on_files(&self, errand: &Errand) -> Result<(), Refusal> {
        match errand.when_lost {
            WhenLost::StartEmpty => Ok(()),
            WhenLost::Refuse if self.status(&errand.id).files_lost => {
                Err(Refusal::SandboxGone(errand.id.clone()))
            }
            WhenLost::Refuse => Ok(()),
        }
    }

    /// Returns the reset that a reply is to tell of, unless another was faster.
    pub(super) fn told(
        &self,
        id: &SessionId,
        reset: Option<(u64, crate::session::record::Notice)>,
    ) -> Option<Reset> {
        let (incarnation, notice) = reset?;
        self.0.roll.tell(id, incarnation).then(|| Reset {
            incarnation,
            reason: notice.as_str().to_owned(),
        })
    }

    /// Appends to the session's log: of what changed something, out of this process before
    /// the reply; of a look at something a moment later, and before anybody reads the log.
    pub(super) async fn write_down(&self, id: &SessionId, entry: Entry<'_>) {
        let is_a_look = LOOKS.contains(&entry.op) && entry.told.is_none();
        let batch = self.put_into_words(id, entry);
        if is_a_look {
            let queued = self.0.books.store.commit_soon(batch).await;
            complain(id, queued);
        } else {
            self.commit_event(id, batch).await;
        }
    }

    /// Appends to the session's log, out of this process, on a thread that may block. What
    /// it gives back is to be committed before the reply.
    pub(super) fn jot_down(&self, id: &SessionId, entry: Entry<'_>) -> Noted {
        let batch = self.put_into_words(id, entry);
        match self.0.books.store.jot(batch) {
            Ok(()) => Noted::Down,
            Err(batch) => Noted::Left(batch),
        }
    }

    /// Sees to it that an entry is in the logs, or on its way to them, before the reply.
    pub(super) async fn see_noted<'e>(
        &self,
        id: &SessionId,
        noted: Noted,
        entry: impl FnOnce() -> Entry<'e>,
    ) {
        match noted {
            Noted::No => self.write_down(id, entry()).await,
            Noted::Down => {}
            Noted::Left(batch) => self.commit_event(id, batch).await,
        }
    }

    async fn commit_event(&self, id: &SessionId, batch: Batch) {
        let committed = self.0.books.store.commit(batch).await.map(drop);
        complain(id, committed);
    }

    /// Counts an entry, and makes the events of it.
    fn put_into_words(&self, id: &SessionId, entry: Entry<'_>) -> Batch {
        let now = self.0.books.clock.now();
        let took = now.since(entry.began).as_micros();
        let took = u64::try_from(took).unwrap_or(u64::MAX);
        self.0.metrics.count(&entry, took);
        let mut facts = BTreeMap::new();
        if let Some(why) = entry.why {
            facts.insert("reason".to_owned(), why.to_owned());
        }
        let mut batch = Batch::new();
        if entry.short_of_processes
            && let Some(event) = self.refused_processes(id, now)
        {
            facts.insert("processes".to_owned(), event.detail.clone());
            batch = batch.event(None, event);
        }
        let event = Event {
            at: now,
            op: entry.op.to_owned(),
            target: shortened(entry.target),
            ok: entry.ok,
            detail: entry.detail,
            duration_us: took,
            request_id: Some(entry.request_id.to_string()),
            facts,
        };
        batch = batch.event(
            None,
            super::log::of_session(id, self.open_record(id), &event),
        );
        batch = batch.event(Some(id), event);
        if let Some(incarnation) = entry.told {
            batch = batch.told(id, incarnation);
        }
        batch
    }

    /// Makes the entry of the service log about a sandbox at its ceiling of processes.
    fn refused_processes(&self, id: &SessionId, now: Timestamp) -> Option<Event> {
        let record = self.open_record(id)?;
        let policy = self.0.policy.get();
        let ceiling = policy.ceilings_of(&record.spec.runtime).pids_limit;
        let mut event = Fact::PidsRefused.event(now, &record.spec, None);
        event.detail = match ceiling {
            Some(limit) => format!("refused beyond {limit}"),
            None => "refused".to_owned(),
        };
        if let Some(limit) = ceiling {
            event.facts.insert("ceiling".to_owned(), limit.to_string());
        }
        Some(event)
    }
}

fn complain(id: &SessionId, committed: Result<(), CommitError>) {
    if let Err(error) = committed {
        warn!(session = %id, error = %chain(&error), "an event could not be written down");
    }
}

/// Puts it into the caller's words that a command was not run.
fn refusal(errand: &Errand, not_run: NotRun) -> Refusal {
    match not_run {
        NotRun::Conflict => Refusal::RunIdUsed(errand.run.clone()),
        NotRun::Over => Refusal::RunOver(
            errand.run.clone(),
            "Its output is not kept any more.".to_owned(),
        ),
        NotRun::User(words) => Refusal::UserNotPossible(words),
        NotRun::Engine(error) => engine_refusal(&error),
        // The sandbox is looked for again instead, and the ceiling told by its number.
        NotRun::ContainerDown | NotRun::Late | NotRun::Ceiling => {
            Refusal::EngineUnavailable(not_run.to_string())
        }
    }
}

/// Puts a failed engine call into the caller's words.
fn engine_refusal(error: &docker::Error) -> Refusal {
    let text = chain(error);
    if error.is_no_space() {
        Refusal::NoSpace(text)
    } else if error.status().is_some() {
        Refusal::EngineFailed(text)
    } else {
        Refusal::EngineUnavailable(text)
    }
}
