//! Runs a command by the agent of its sandbox, and goes on where the stream breaks.

use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::alive::outlives_a_look;
use super::by_engine::end_processes;
use super::commands::{
    Command, Ending, Halt, Loss, NotRun, Output, Place, Ran, Runner, SIGNALS, START_FAILED,
    TERMINATED, Why,
};
use super::host;
use super::kept::{self, Kept};
use super::reach::Way;
use super::request::request;
use crate::agent::connection::{Connection, Error, Started};
use crate::agent::protocol::message::{
    Cause, End, Fetch, Filter, From, Run, Start, Wait, Why as Refused,
};
use crate::agent::protocol::output::{self, OUTPUT_BYTES_MAX, Stream};
use crate::id::RunId;

/// How long the agent may take to end a command after its time, its own grace included.
const BACKSTOP: Duration = Duration::from_secs(4);
/// How long it is tried to reach an agent again whose stream broke under a command.
const AGAIN_MAX: Duration = Duration::from_secs(10);
/// The rest between two tries.
const AGAIN_POLL: Duration = Duration::from_millis(100);
/// How long a stop may take that nothing is expected of any more.
const LAST_STOP_MAX: Duration = Duration::from_millis(500);
/// How long an agent may take to show that it lives.
const ALIVE_MAX: Duration = Duration::from_secs(1);
/// Bytes that are fetched at once of output that is kept whole; less than any ring
/// holds, so that no command waits for a reader that waits for more.
const FETCH_BYTES: u32 = 64 << 10;
/// How long output is waited for together with the end; what there is by then is fetched,
/// so that it is not lost with the sandbox.
const PATIENCE: Duration = Duration::from_millis(20);
/// An ended command of which the agent still keeps the output.
#[derive(Debug)]
pub struct Leftover {
    connection: Connection,
    run: RunId,
}

impl Leftover {
    /// Has the agent forget it.
    pub async fn forget(self) {
        match timeout(ALIVE_MAX, self.connection.forget(&self.run)).await {
            // Where it is not forgotten now, the agent forgets it in time.
            Ok(Ok(()) | Err(_)) | Err(_) => {}
        }
    }
}

/// A command under way.
struct Talk<'r> {
    runner: &'r Runner,
    command: &'r Command<'r>,
    connection: Connection,
    /// The life of the agent in which the command was started.
    life: String,
    /// To be sent until it was answered.
    start: Option<Start>,
    /// The record that comes next.
    from: u64,
    kept: Kept,
    /// Held once its output is large.
    room: Option<OwnedSemaphorePermit>,
    /// Why it is asked to end, where it is.
    asked: Option<Asked>,
    /// Whether the agent is still to be told so.
    stop: Stop,
    /// When nothing is expected of the agent any more.
    give_up: Instant,
}

/// Why a command is asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Halted(Why),
    /// Its input broke off.
    InputLost,
    /// It wrote more than it may, and the agent did not say so.
    Over,
}

/// Whether the agent is to be told that a command is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Due,
    NotDue,
}

/// How talking about a command ended.
enum Over {
    /// It ended, as the agent tells.
    Ended(End),
    /// It ended, or is taken to have ended, for this reason.
    Given(Ending),
    /// It was refused before it began.
    NotRun(NotRun),
    /// It could not be started, for the reason in these words.
    Unstarted(String),
}

/// Runs a command until it ends, its deadline passes, or it is asked to end.
pub(super) async fn run(
    runner: &Runner,
    connection: Connection,
    command: &Command<'_>,
    halt: &Halt,
) -> Result<Ran, NotRun> {
    if connection.is_closed() {
        // Nothing was sent. Its container may have ended; whoever asked looks.
        return Err(NotRun::ContainerDown);
    }
    let output = command.task.output;
    let (start, feed) = match request(command) {
        Ok(request) => request,
        Err(words) => return Ok(Ran::unstarted(output, START_FAILED, words)),
    };
    let input_lost = CancellationToken::new();
    let feeding = feed_all(connection.clone(), command.run, feed, &input_lost);
    let mut talk = Talk {
        runner,
        command,
        life: connection.hello().life.clone(),
        connection,
        start: Some(start),
        from: 0,
        kept: Kept::new(output),
        room: None,
        asked: None,
        stop: Stop::NotDue,
        give_up: command.deadline + BACKSTOP,
    };
    let over = {
        let asked = async {
            tokio::select! {
                why = halt.asked() => Asked::Halted(why),
                () = input_lost.cancelled() => Asked::InputLost,
            }
        };
        let mut talking = std::pin::pin!(talk.until_over(asked));
        tokio::select! {
            // The request is on its way before its input is.
            biased;
            over = &mut talking => over,
            () = feeding => talking.await,
        }
    };
    talk.told(over).await
}

impl Talk<'_> {
    /// Talks until the command has ended.
    async fn until_over(&mut self, asked: impl Future<Output = Asked>) -> Over {
        let mut asked = std::pin::pin!(asked);
        let mut wait = Wait::End;
        loop {
            if let Some(over) = self.make_room(&mut asked).await {
                return over;
            }
            let connection = self.connection.clone();
            let start = self.start.clone();
            let fetch = self.fetch(wait);
            let impatient = Instant::now() + PATIENCE;
            let mut answer = std::pin::pin!(ask(&connection, start, fetch));
            let answer = loop {
                tokio::select! {
                    biased;
                    answer = &mut answer => break Some(answer),
                    why = &mut asked, if self.asked.is_none() => self.end_for(why),
                    _ = connection.stop(self.command.run), if self.stop == Stop::Due => {
                        self.stop = Stop::NotDue;
                    }
                    () = sleep_until(self.give_up) => return self.given_up(),
                    () = sleep_until(impatient), if wait == Wait::End => break None,
                }
            };
            let Some((started, output)) = answer else {
                // What was asked for is taken back, and nothing is lost: the agent drops
                // only what a later request says was received.
                wait = Wait::Some;
                continue;
            };
            wait = Wait::End;
            match started {
                Some(Ok(_)) => self.start = None,
                Some(Err(Error::Refused(why, words))) => return refused(why, words),
                // It may have begun. The same request again finds it then.
                Some(Err(Error::Closed)) | None => {}
            }
            match output {
                Ok(output) => {
                    if let Some(over) = self.take(output) {
                        return over;
                    }
                }
                Err(Error::Refused(Refused::NoRun, _)) => return Over::NotRun(NotRun::Over),
                Err(Error::Refused(_, words)) => {
                    debug!(run = %self.command.run, words, "output was refused");
                    return Over::Given(Ending::Unknown(Loss::AgentLost));
                }
                Err(Error::Closed) => {
                    if let Some(ending) = self.again(&mut asked).await {
                        return Over::Given(ending);
                    }
                }
            }
        }
    }

    /// Takes what was fetched; returns how the command ended, once it has.
    fn take(&mut self, output: output::Output) -> Option<Over> {
        if let Some((_, kept)) = output.gap {
            self.kept.skip();
            self.from = self.from.max(kept);
        }
        for record in &output.records {
            let stream = match record.stream {
                Stream::Out => kept::Stream::Out,
                Stream::Err => kept::Stream::Err,
            };
            self.kept.push(stream, &record.bytes);
            self.from = record.seq.saturating_add(1);
        }
        if self.kept.is_over() {
            self.kept.cut();
        }
        match output.end {
            None => {
                if self.kept.is_over() && self.asked.is_none() {
                    self.end_for(Asked::Over);
                }
                None
            }
            Some(json) => {
                let run: Option<Run> = serde_json::from_slice(&json).ok();
                if run.as_ref().is_some_and(|run| run.truncated) {
                    self.kept.skip();
                }
                // The connection has checked that there is one.
                Some(match run.and_then(|run| run.end) {
                    Some(end) => Over::Ended(end),
                    None => Over::Given(Ending::Unknown(Loss::AgentLost)),
                })
            }
        }
    }

    /// Waits for room where the output is large, while the command waits in its ring.
    async fn make_room(
        &mut self,
        asked: &mut (impl Future<Output = Asked> + Unpin),
    ) -> Option<Over> {
        if !self.kept.is_large() || self.room.is_some() {
            return None;
        }
        let mut end = self.command.deadline;
        loop {
            tokio::select! {
                room = self.runner.room() => {
                    self.room = room;
                    return None;
                }
                why = &mut *asked, if self.asked.is_none() => {
                    self.end_for(why);
                    end = Instant::now();
                }
                // It ends now, and of such a one only the beginning is shown.
                () = sleep_until(end) => {
                    self.kept.cut();
                    return None;
                }
            }
        }
    }

    /// Asks the agent again for a command whose stream broke; returns its ending where
    /// that fails.
    async fn again(&mut self, asked: &mut (impl Future<Output = Asked> + Unpin)) -> Option<Ending> {
        let Place {
            session, container, ..
        } = self.command.place;
        let (runner, closed) = (self.runner, self.connection.clone());
        let late = self.give_up.min(Instant::now() + AGAIN_MAX);
        let found = async {
            loop {
                match runner.reacher.way(session, container, late).await {
                    Ok(Way::Agent(found)) if !found.is_closed() && !found.is(&closed) => {
                        return found;
                    }
                    // The engine can do nothing for a command that the agent began.
                    Ok(Way::Agent(_) | Way::Engine) | Err(_) => sleep(AGAIN_POLL).await,
                }
            }
        };
        let mut found = std::pin::pin!(found);
        let ended = async {
            // The engine may be away, and its container with it.
            tokio::select! {
                () = runner.ended(container) => {}
                () = host::vanished(container), if runner.reacher.has_known(session, container) => {}
            }
        };
        let mut ended = std::pin::pin!(ended);
        let connection = loop {
            tokio::select! {
                biased;
                connection = &mut found => break connection,
                () = &mut ended => return Some(Ending::Unknown(Loss::ContainerLost)),
                why = &mut *asked, if self.asked.is_none() => self.end_for(why),
                () = sleep_until(late.min(self.give_up)) => {
                    return Some(self.unreachable());
                }
            }
        };
        if connection.hello().life != self.life {
            return Some(Ending::Unknown(Loss::ContainerLost));
        }
        self.connection = connection;
        if self.asked.is_some() {
            self.stop = Stop::Due;
        }
        None
    }

    /// Has the command end, which may take it a while.
    fn end_for(&mut self, why: Asked) {
        self.asked = Some(why);
        self.stop = Stop::Due;
        self.give_up = self.give_up.min(Instant::now() + BACKSTOP);
    }

    fn fetch(&self, wait: Wait) -> Fetch {
        let bytes = match self.command.task.output {
            Output::Merged { .. } => u32::try_from(OUTPUT_BYTES_MAX).unwrap_or(FETCH_BYTES),
            Output::Split { .. } => FETCH_BYTES,
        };
        Fetch {
            run: self.command.run.to_string(),
            from: From::Seq(self.from),
            streams: Filter::Both,
            bytes,
            wait,
        }
    }

    /// The ending of a command that the agent did not end in time.
    fn given_up(&self) -> Over {
        Over::Given(match self.asked {
            Some(asked) => asked_ending(asked, TERMINATED),
            None => Ending::TimedOut,
        })
    }

    /// The ending of a command whose agent was not reached again.
    fn unreachable(&self) -> Ending {
        match self.asked {
            Some(asked) => asked_ending(asked, TERMINATED),
            None if self.command.deadline <= Instant::now() => Ending::TimedOut,
            None => Ending::Unknown(Loss::AgentLost),
        }
    }

    /// Makes sure that an ending is one, and tells of it.
    async fn told(mut self, over: Over) -> Result<Ran, NotRun> {
        let output = self.command.task.output;
        let ending = match over {
            Over::NotRun(not_run) => return Err(not_run),
            Over::Unstarted(words) => {
                return Ok(Ran::unstarted(output, START_FAILED, words));
            }
            Over::Ended(end) => self.ended(end).await,
            Over::Given(ending) => {
                self.end_what_is_left(&ending).await;
                ending
            }
        };
        match &ending {
            Ending::TimedOut | Ending::OutputLimit => self.kept.cut(),
            Ending::Exited(_)
            | Ending::OutOfMemory(_)
            | Ending::StartFailed(_)
            | Ending::Stopped(_)
            | Ending::Signalled(_)
            | Ending::CallerGone
            | Ending::Unknown(_) => {}
        }
        let (stdout, stderr, truncated) = self.kept.into_parts();
        Ok(Ran {
            stdout,
            stderr,
            truncated,
            leftover: Some(Leftover {
                connection: self.connection,
                run: self.command.run.clone(),
            }),
            _room: self.room,
            ..Ran::silent(ending)
        })
    }

    /// Reads the end that the agent tells of.
    async fn ended(&self, end: End) -> Ending {
        let signal = end.signal.map(|signal| SIGNALS + i64::from(signal));
        let code = end.code.map(i64::from).or(signal);
        let Place { container, .. } = self.command.place;
        let was_killed = match end.cause {
            Cause::Exited | Cause::StartFailed | Cause::Signal => false,
            Cause::Timeout | Cause::OutputLimit | Cause::Stopped => true,
        };
        if was_killed {
            // What it left behind would be unseen by the agent, if by anybody.
            host::kill_left(container, self.command.run).await;
        }
        match (end.cause, code) {
            // Its output was not all fetched in its time.
            (Cause::Exited, Some(_)) if self.is_late() => Ending::TimedOut,
            (Cause::Exited, Some(code)) if SIGNALS < code => self.signalled(code).await,
            (Cause::Exited, Some(code)) => Ending::Exited(code),
            (Cause::StartFailed, code) => Ending::StartFailed(code.unwrap_or(START_FAILED)),
            (Cause::Timeout, _) => Ending::TimedOut,
            (Cause::OutputLimit, _) => Ending::OutputLimit,
            (Cause::Stopped, code) => match self.asked {
                Some(asked) => asked_ending(asked, code.unwrap_or(TERMINATED)),
                // Somebody else's request, such as of another life of the daemon.
                None => Ending::Stopped(code.unwrap_or(TERMINATED)),
            },
            (Cause::Signal, Some(code)) => Ending::Signalled(code),
            (Cause::Exited | Cause::Signal, None) => Ending::Unknown(Loss::ExitCodeUnknown),
        }
    }

    /// Whether output was given up for want of room when its time was over.
    fn is_late(&self) -> bool {
        self.kept.is_cut() && !self.kept.is_over() && self.asked.is_none()
    }

    /// Tells a command that was ended by a signal from one that ended with its container:
    /// the agent is its first process, and what it tells at last it may tell in going.
    async fn signalled(&self, code: i64) -> Ending {
        let alive = self.connection.signal(self.command.run, 0);
        let goes_on = match timeout(ALIVE_MAX, alive).await {
            // Whatever it says, it says something.
            Ok(Ok(()) | Err(Error::Refused(..))) => true,
            Ok(Err(Error::Closed)) | Err(_) => {
                let Place { container, .. } = self.command.place;
                outlives_a_look(&self.runner.engine, container).await
            }
        };
        if goes_on {
            Ending::Exited(code)
        } else {
            Ending::Unknown(Loss::ContainerLost)
        }
    }

    /// Ends what is left of a command whose end the agent did not tell.
    async fn end_what_is_left(&self, ending: &Ending) {
        if *ending == Ending::Unknown(Loss::ContainerLost) {
            return;
        }
        let stop = self.connection.stop(self.command.run);
        match timeout(LAST_STOP_MAX, stop).await {
            // The sweep is to end it in any case.
            Ok(Ok(()) | Err(_)) | Err(_) => {}
        }
        end_processes(self.runner, self.command.place.container, self.command.run).await;
    }
}

/// Asks for a command to be started, where it was not yet, and for its output, at once.
async fn ask(
    connection: &Connection,
    start: Option<Start>,
    fetch: Fetch,
) -> (
    Option<Result<Started, Error>>,
    Result<output::Output, Error>,
) {
    match start {
        Some(start) => {
            let (started, output) = tokio::join!(connection.start(start), connection.fetch(fetch));
            (Some(started), output)
        }
        None => (None, connection.fetch(fetch).await),
    }
}

/// What it means that an agent did not start a command.
fn refused(why: Refused, words: String) -> Over {
    match why {
        Refused::Conflict => Over::NotRun(NotRun::Conflict),
        Refused::Over | Refused::NoRun => Over::NotRun(NotRun::Over),
        Refused::Ceiling => Over::NotRun(NotRun::Ceiling),
        Refused::User => Over::NotRun(NotRun::User(words)),
        Refused::Bad => Over::Unstarted(words),
    }
}

/// The ending of a command that was asked to end, and ended with this code.
fn asked_ending(asked: Asked, code: i64) -> Ending {
    match asked {
        Asked::Halted(why) => why.ending(code),
        Asked::InputLost => Ending::Unknown(Loss::AgentLost),
        Asked::Over => Ending::OutputLimit,
    }
}

/// Gives a command the input that did not go with its request; never returns where there
/// is none.
async fn feed_all(
    connection: Connection,
    run: &RunId,
    input: Option<&str>,
    lost: &CancellationToken,
) {
    let Some(input) = input else {
        return std::future::pending().await;
    };
    match connection.input(run, input.as_bytes(), true).await {
        // A command need not read its input.
        Ok(()) | Err(Error::Refused(..)) => {}
        // Nobody knows how much of it was taken.
        Err(Error::Closed) => lost.cancel(),
    }
}
