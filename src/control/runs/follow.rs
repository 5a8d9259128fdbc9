//! Reads the output of a run for one caller, from its own place and at its own pace.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::sight::{About, Looked};
use super::{lost, unheard, words};
use crate::activity::Lease;
use crate::agent::connection::{Connection, Error};
use crate::agent::protocol::message::{Fetch, Filter, From, Wait};
use crate::agent::protocol::output::{Output, Record};
use crate::control::request::{AtEnd, Follow, Position, Which};
use crate::control::{Control, Refusal};
use crate::id::{RunId, SessionId};
use crate::wire;

/// Bytes of output that one piece holds.
const PIECE_BYTES_MAX: u32 = 256 << 10;
/// How long a follower waits for a sandbox that cannot be seen.
const UNSEEN_WAIT_MAX: Duration = Duration::from_secs(30);
/// The pause between two looks meanwhile.
const PAUSE: Duration = Duration::from_millis(200);
/// How often a stream may break in a row without a word of output.
const BREAKS_MAX: u32 = 64;

/// Reads the output of a run, for as long as it is held. Dropping it stops nothing.
#[derive(Debug)]
pub struct Follower {
    control: Control,
    id: SessionId,
    run: RunId,
    streams: Filter,
    from: From,
    at_end: AtEnd,
    /// Where reading ends that does not wait: what was there when it began.
    until: Option<From>,
    connection: Option<Connection>,
    breaks: u32,
    /// Held while the run goes on and its end is waited for.
    lease: Option<Lease>,
    next: VecDeque<Piece>,
    over: bool,
}

/// What a follower reads.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// Output, in order.
    Output(Vec<Record>),
    /// Records that are not kept any more: from the first up to, not with, the second.
    Gap(u64, u64),
    /// How the run is: it ended, or the reading does.
    End(wire::runs::Run),
}

impl Control {
    /// Begins to read the output of a run.
    pub async fn follow_run(
        &self,
        id: &SessionId,
        run: &RunId,
        follow: Follow,
    ) -> Result<Follower, Refusal> {
        let looked = self.looked_up(id, run, About::Any).await?;
        is_not_lost(&looked)?;
        let mut follower = Follower {
            control: self.clone(),
            id: id.clone(),
            run: run.clone(),
            streams: match follow.streams {
                Which::Both => Filter::Both,
                Which::Stdout => Filter::Out,
                Which::Stderr => Filter::Err,
            },
            from: match follow.from {
                Position::Seq(seq) => From::Seq(seq),
                Position::Offset(offset) => From::Offset(offset),
            },
            at_end: follow.at_end,
            until: None,
            connection: None,
            breaks: 0,
            lease: None,
            next: VecDeque::new(),
            over: false,
        };
        follower.until = follower.end_of_what_is_there(&looked);
        follower.take_up(looked);
        Ok(follower)
    }
}

impl Follower {
    /// Waits for the next piece; `None` after [`Piece::End`].
    ///
    /// Dropping the future loses nothing: the next call goes on from the same place.
    ///
    /// # Errors
    /// Where the run was lost, or its sandbox cannot be reached.
    pub async fn next(&mut self) -> Result<Option<Piece>, Refusal> {
        loop {
            if let Some(piece) = self.next.pop_front() {
                if matches!(piece, Piece::End(_)) {
                    self.over = true;
                    self.lease = None;
                }
                return Ok(Some(piece));
            }
            if self.over {
                return Ok(None);
            }
            let Some(connection) = self.reached().await? else {
                continue;
            };
            let answer = connection.fetch(self.request()).await;
            match answer {
                Ok(output) => self.take(output).await?,
                Err(Error::Closed) => self.let_go(),
                // Whether it is lost or was forgotten is seen at the next look.
                Err(Error::Refused(crate::agent::protocol::message::Why::NoRun, _)) => {
                    self.let_go();
                }
                Err(Error::Refused(why, text)) => {
                    let place = (&self.id, &self.run);
                    return Err(super::refusal_of(place, super::Wish::Output, (why, text)));
                }
            }
            if BREAKS_MAX <= self.breaks {
                return Err(unheard(&self.id));
            }
        }
    }

    fn request(&self) -> Fetch {
        Fetch {
            run: self.run.to_string(),
            from: self.from,
            streams: self.streams,
            bytes: PIECE_BYTES_MAX,
            wait: match self.at_end {
                AtEnd::Stop => Wait::No,
                AtEnd::Wait => Wait::Some,
            },
        }
    }

    fn let_go(&mut self) {
        self.connection = None;
        self.breaks += 1;
        // Whoever ends the sandbox waits for this one.
        self.lease = None;
    }

    /// Returns the stream to the agent that has the run; `None` where there is something
    /// to say without one.
    async fn reached(&mut self) -> Result<Option<Connection>, Refusal> {
        let give_up = Instant::now() + UNSEEN_WAIT_MAX;
        loop {
            if let Some(connection) = &self.connection {
                return Ok(Some(connection.clone()));
            }
            if 0 < self.breaks {
                sleep(PAUSE).await;
            }
            let looked = self
                .control
                .looked_up(&self.id, &self.run, About::Any)
                .await?;
            is_not_lost(&looked)?;
            self.take_up(looked);
            if self.connection.is_none() {
                if !self.next.is_empty() {
                    return Ok(None);
                }
                if give_up < Instant::now() {
                    return Err(unheard(&self.id));
                }
                sleep(PAUSE).await;
            }
        }
    }

    /// Takes up what was seen of the run: its stream, or its end where nothing more can
    /// be had of its output.
    fn take_up(&mut self, looked: Looked) {
        let goes_on = looked.stored.ended.is_none();
        if let Some(connection) = looked.connection {
            self.connection = Some(connection);
            if goes_on && self.at_end == AtEnd::Wait {
                self.lease = self.control.0.loop_.leases.try_shared(&self.id);
            }
        } else if let Some(ended) = &looked.stored.ended {
            if let From::Seq(from) = self.from
                && from < ended.next_seq
            {
                self.next.push_back(Piece::Gap(from, ended.next_seq));
            }
            self.next
                .push_back(Piece::End(words::described(&looked.stored, None)));
        }
    }

    /// Takes an answer of the agent, and moves on behind it.
    async fn take(&mut self, output: Output) -> Result<(), Refusal> {
        let Output {
            gap, records, end, ..
        } = output;
        let is_empty = records.is_empty() && gap.is_none();
        if !is_empty {
            self.breaks = 0;
        }
        if let Some((lost, kept)) = gap {
            self.next.push_back(Piece::Gap(lost, kept));
            if let From::Seq(from) = self.from {
                self.from = From::Seq(from.max(kept));
            }
        }
        if let Some(last) = records.last() {
            let length = u64::try_from(last.bytes.len()).unwrap_or(u64::MAX);
            self.from = match self.from {
                From::Seq(_) => From::Seq(last.seq.saturating_add(1)),
                From::Offset(_) => From::Offset(last.offset.saturating_add(length)),
            };
            self.next.push_back(Piece::Output(records));
        }
        let stops = self.at_end == AtEnd::Stop && (is_empty || self.is_behind_what_was_there());
        if end.is_some() || stops {
            // As it is stored: with its ending, which the agent may not know all of; and with
            // what the agent keeps, also where somebody else has stored the ending before.
            let run = self
                .control
                .described(&self.id, &self.run, About::Any)
                .await;
            match run {
                Ok(run) => self.next.push_back(Piece::End(run)),
                // What was read comes first.
                Err(refusal) if self.next.is_empty() => return Err(refusal),
                Err(_) => self.let_go(),
            }
        }
        Ok(())
    }

    fn is_behind_what_was_there(&self) -> bool {
        match (self.from, self.until) {
            (From::Seq(from), Some(From::Seq(until)))
            | (From::Offset(from), Some(From::Offset(until))) => until <= from,
            (From::Seq(_) | From::Offset(_), _) => false,
        }
    }

    fn end_of_what_is_there(&self, looked: &Looked) -> Option<From> {
        let run = looked.heard.as_ref()?;
        Some(match (self.from, self.streams) {
            (From::Seq(_), _) => From::Seq(run.next_seq),
            (From::Offset(_), Filter::Err) => From::Offset(run.stderr_bytes),
            (From::Offset(_), Filter::Both | Filter::Out) => From::Offset(run.stdout_bytes),
        })
    }
}

/// Refuses a run whose output went with its sandbox.
fn is_not_lost(looked: &Looked) -> Result<(), Refusal> {
    match &looked.stored.ended {
        Some(ended) if ended.cause.is_lost() => Err(lost(&looked.stored)),
        Some(_) | None => Ok(()),
    }
}
