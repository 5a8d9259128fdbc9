//! Decides from what was seen what has become of a run; asks nobody and writes nothing.

use crate::agent::protocol::message::{Cause, End, Run};
use crate::clock::Timestamp;
use crate::store::{RunCause, RunEnded, StoredRun};

/// What was seen of the sandbox of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen<'a> {
    /// Nothing that tells anything: it is being started or stopped, or nobody knows.
    Nothing,
    /// No container of the session runs.
    NoContainer,
    /// This container runs, and its agent was not heard.
    Unheard {
        /// The engine's id of it.
        container: &'a str,
    },
    /// This container runs, and its agent has answered.
    Heard {
        /// The engine's id of it.
        container: &'a str,
        /// What the agent calls its life.
        life: &'a str,
        /// What it knows of the run.
        run: Option<&'a Run>,
    },
}

/// What has become of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It goes on, as far as is known.
    GoesOn,
    /// It is over.
    Over(RunEnded),
}

/// Whether the sandbox ran out of memory while a run went on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    /// It did.
    RanOut,
    /// It did not, or nobody counts.
    Held,
}

/// Returns what has become of a stored run, as of `now`.
///
/// What could not be seen is no ending, and one that is lost gets none made up.
pub(super) fn what_became_of(
    stored: &StoredRun,
    seen: Seen<'_>,
    memory: Memory,
    now: Timestamp,
) -> Fate {
    if let Some(ended) = &stored.ended {
        return Fate::Over(ended.clone());
    }
    let lost = |cause| Fate::Over(lost(cause, now));
    match seen {
        Seen::Nothing => Fate::GoesOn,
        Seen::NoContainer => lost(RunCause::ContainerLost),
        Seen::Unheard { container } if container != stored.container => {
            lost(RunCause::ContainerLost)
        }
        Seen::Unheard { .. } => Fate::GoesOn,
        Seen::Heard {
            container, life, ..
        } if container != stored.container || life != stored.life => lost(RunCause::ContainerLost),
        // It was written down before it was to be started. So it may never have been, or
        // its end was forgotten while nobody asked: neither is known.
        Seen::Heard { run: None, .. } => lost(RunCause::AgentLost),
        Seen::Heard { run: Some(run), .. } => match &run.end {
            None => Fate::GoesOn,
            Some(end) => Fate::Over(ended(stored, run, end, (memory, now))),
        },
    }
}

fn lost(cause: RunCause, now: Timestamp) -> RunEnded {
    RunEnded {
        at: now,
        noted_at: now,
        cause,
        exit_code: None,
        signal: None,
        stdout_bytes: 0,
        stderr_bytes: 0,
        next_seq: 0,
        truncated: false,
    }
}

/// The number of SIGKILL.
const SIGKILL: i32 = 9;
/// The code of a shell of which a child was killed.
const CHILD_KILLED: i32 = 128 + SIGKILL;

fn ended(stored: &StoredRun, run: &Run, end: &End, (memory, now): (Memory, Timestamp)) -> RunEnded {
    let ran = std::time::Duration::from_millis(end.ran_ms);
    let was_killed = end.signal == Some(SIGKILL) || end.code == Some(CHILD_KILLED);
    let cause = match (end.cause, was_killed, memory) {
        (Cause::Exited, true, Memory::RanOut) => RunCause::Oom,
        (Cause::Exited, _, _) => RunCause::Exited,
        (Cause::StartFailed, _, _) => RunCause::StartFailed,
        (Cause::Timeout, _, _) => RunCause::Timeout,
        (Cause::OutputLimit, _, _) => RunCause::OutputLimit,
        (Cause::Stopped, _, _) => RunCause::Stopped,
        (Cause::Signal, _, _) => RunCause::Signal,
    };
    RunEnded {
        // The agent's clock measures spans alone.
        at: stored.started_at.plus(ran).min(now),
        noted_at: now,
        cause,
        exit_code: end.code,
        signal: end.signal,
        stdout_bytes: run.stdout_bytes,
        stderr_bytes: run.stderr_bytes,
        next_seq: run.next_seq,
        truncated: run.truncated,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::agent::protocol::message::Attended;
    use crate::id::RunId;

    pub(in crate::control::runs) const STARTED: Timestamp = Timestamp::from_secs(1_700_000_000);
    const NOW: Timestamp = Timestamp::from_secs(1_700_000_060);

    pub(in crate::control::runs) fn stored() -> StoredRun {
        StoredRun {
            run_id: RunId::parse("0123456789abcdef0123456789abcdef").unwrap(),
            digest: "d".to_owned(),
            target: "make".to_owned(),
            started_at: STARTED,
            container: "c1".to_owned(),
            life: "l1".to_owned(),
            tty: None,
            request_id: None,
            ended: None,
        }
    }

    pub(in crate::control::runs) fn known(end: Option<End>) -> Run {
        Run {
            run: stored().run_id.to_string(),
            digest: "d".to_owned(),
            attended: Attended::No,
            size: None,
            age_ms: 5_000,
            stdout_bytes: 30,
            stderr_bytes: 4,
            first_seq: 2,
            next_seq: 7,
            truncated: true,
            end,
        }
    }

    pub(in crate::control::runs) fn end(
        cause: Cause,
        code: Option<i32>,
        signal: Option<i32>,
    ) -> End {
        End {
            cause,
            code,
            signal,
            ran_ms: 2_500,
        }
    }

    fn cause(seen: Seen<'_>) -> Option<RunCause> {
        match what_became_of(&stored(), seen, Memory::Held, NOW) {
            Fate::GoesOn => None,
            Fate::Over(ended) => {
                let lost = ended.cause.is_lost();
                assert_eq!(lost, ended.exit_code.is_none() && ended.signal.is_none());
                Some(ended.cause)
            }
        }
    }

    #[test]
    fn a_run_is_lost_exactly_where_its_life_is_seen_to_be_over_or_its_agent_does_not_know_it() {
        let goes_on = known(None);
        let ended = known(Some(end(Cause::Exited, Some(0), None)));
        let lost = Some(RunCause::ContainerLost);
        assert_eq!(cause(Seen::Nothing), None);
        assert_eq!(cause(Seen::NoContainer), lost);
        for (container, expected) in [("c1", None), ("c2", lost)] {
            assert_eq!(cause(Seen::Unheard { container }), expected);
        }
        let runs = [
            (None, Some(RunCause::AgentLost)),
            (Some(&goes_on), None),
            (Some(&ended), Some(RunCause::Exited)),
        ];
        for container in ["c1", "c2"] {
            for life in ["l1", "l2"] {
                for (run, expected) in runs {
                    let seen = Seen::Heard {
                        container,
                        life,
                        run,
                    };
                    // Another life has other runs, whatever their ids.
                    let same = container == "c1" && life == "l1";
                    assert_eq!(cause(seen), if same { expected } else { lost }, "{seen:?}");
                }
            }
        }
    }

    #[test]
    fn what_is_over_stays_as_it_ended_whatever_is_seen_later() {
        let once = |seen| match what_became_of(&stored(), seen, Memory::Held, NOW) {
            Fate::Over(ended) => ended,
            Fate::GoesOn => unreachable!("nothing of it runs"),
        };
        let before = StoredRun {
            ended: Some(once(Seen::NoContainer)),
            ..stored()
        };
        let ended = known(Some(end(Cause::Exited, Some(0), None)));
        let later = Seen::Heard {
            container: "c1",
            life: "l1",
            run: Some(&ended),
        };
        let now = Timestamp::from_secs(1_800_000_000);
        assert_eq!(
            what_became_of(&before, later, Memory::RanOut, now),
            Fate::Over(before.ended.clone().unwrap())
        );
    }

    #[test]
    fn an_ending_is_told_as_the_agent_saw_it_and_a_kill_for_want_of_memory_apart() {
        let of = |end: End, memory, now| {
            let run = known(Some(end));
            let seen = Seen::Heard {
                container: "c1",
                life: "l1",
                run: Some(&run),
            };
            match what_became_of(&stored(), seen, memory, now) {
                Fate::Over(ended) => ended,
                Fate::GoesOn => unreachable!("it has ended"),
            }
        };
        let causes = [
            (Cause::Exited, RunCause::Exited),
            (Cause::StartFailed, RunCause::StartFailed),
            (Cause::Timeout, RunCause::Timeout),
            (Cause::OutputLimit, RunCause::OutputLimit),
            (Cause::Stopped, RunCause::Stopped),
            (Cause::Signal, RunCause::Signal),
        ];
        for (said, written) in causes {
            for (signal, memory) in [
                (None, Memory::RanOut),
                (Some(15), Memory::RanOut),
                (Some(9), Memory::Held),
                (Some(9), Memory::RanOut),
            ] {
                let ended = of(end(said, None, signal), memory, NOW);
                let is_oom = said == Cause::Exited && signal == Some(9) && memory == Memory::RanOut;
                let expected = if is_oom { RunCause::Oom } else { written };
                assert_eq!((ended.cause, ended.signal), (expected, signal));
            }
        }
        // What a shell waited for counts, as it does for commands with a waiting caller.
        for (code, memory, expected) in [
            (137, Memory::RanOut, RunCause::Oom),
            (137, Memory::Held, RunCause::Exited),
            (1, Memory::RanOut, RunCause::Exited),
        ] {
            let ended = of(end(Cause::Exited, Some(code), None), memory, NOW);
            assert_eq!((ended.cause, ended.exit_code), (expected, Some(code)));
        }
        let ended = of(end(Cause::Exited, Some(3), None), Memory::Held, NOW);
        assert_eq!(ended.exit_code, Some(3));
        assert_eq!(
            ended.at,
            Timestamp::from_micros(STARTED.micros() + 2_500_000)
        );
        assert_eq!((ended.stdout_bytes, ended.stderr_bytes), (30, 4));
        assert_eq!((ended.next_seq, ended.truncated), (7, true));
        // It never ended later than it is now.
        let early = Timestamp::from_micros(STARTED.micros() + 1);
        assert_eq!(
            of(end(Cause::Exited, Some(3), None), Memory::Held, early).at,
            early
        );
    }
}
