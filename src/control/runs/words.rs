//! Puts runs into the words of callers and of the session's log.

use std::collections::BTreeMap;

use crate::agent::protocol::message;
use crate::control::shown::{joined, shortened};
use crate::session::record::Event;
use crate::store::{RunCause, RunEnded, StoredRun};
use crate::wire::runs::Run;

/// What a shell adds to the number of a signal that ended a program.
const SIGNAL_BASE: i64 = 128;

/// Describes a run to a caller, with what its agent says of it where that was heard.
pub(super) fn described(stored: &StoredRun, heard: Option<&message::Run>) -> Run {
    let ended = stored.ended.as_ref();
    let said = |of_agent: fn(&message::Run) -> u64, of_end: fn(&RunEnded) -> u64| {
        heard.map(of_agent).or(ended.map(of_end)).unwrap_or(0)
    };
    Run {
        run_id: stored.run_id.to_string(),
        state: state(ended).to_owned(),
        exit_code: ended.and_then(exit_code),
        signal: ended.and_then(|ended| ended.signal).map(i64::from),
        reason: ended.map(|ended| reason(ended).to_owned()),
        started_at: stored.started_at.secs_f64(),
        ended_at: ended.map(|ended| ended.at.secs_f64()),
        target: stored.target.clone(),
        stdout_bytes: said(|run| run.stdout_bytes, |ended| ended.stdout_bytes),
        stderr_bytes: said(|run| run.stderr_bytes, |ended| ended.stderr_bytes),
        // Nothing is sure to be kept of what the agent was not heard of.
        first_seq: said(|run| run.first_seq, |ended| ended.next_seq),
        next_seq: said(|run| run.next_seq, |ended| ended.next_seq),
        truncated: heard
            .map(|run| run.truncated)
            .or(ended.map(|ended| ended.truncated))
            .unwrap_or(false),
    }
}

fn state(ended: Option<&RunEnded>) -> &'static str {
    let Some(ended) = ended else {
        return "running";
    };
    match (ended.cause, ended.signal) {
        (RunCause::ContainerLost | RunCause::AgentLost, _) => "lost",
        (RunCause::Exited, None) | (RunCause::StartFailed, _) => "exited",
        (
            RunCause::Exited
            | RunCause::Timeout
            | RunCause::OutputLimit
            | RunCause::Stopped
            | RunCause::Signal
            | RunCause::Oom,
            _,
        ) => "killed",
    }
}

/// Why a run ended, in one stable word.
pub(super) fn reason(ended: &RunEnded) -> &'static str {
    match (ended.cause, ended.signal) {
        (RunCause::Exited, Some(_)) => RunCause::Signal.as_str(),
        (cause, _) => cause.as_str(),
    }
}

/// The exit code as a shell has it; none where the service ended the run.
fn exit_code(ended: &RunEnded) -> Option<i64> {
    match ended.cause {
        RunCause::Exited | RunCause::StartFailed | RunCause::Signal | RunCause::Oom => {
            let of_signal = ended.signal.map(|signal| SIGNAL_BASE + i64::from(signal));
            ended.exit_code.map(i64::from).or(of_signal)
        }
        RunCause::Timeout
        | RunCause::OutputLimit
        | RunCause::Stopped
        | RunCause::ContainerLost
        | RunCause::AgentLost => None,
    }
}

/// Makes the entry of the session's log for a run that is over.
pub(super) fn event(stored: &StoredRun, ended: &RunEnded) -> Event {
    let took = ended.at.since(stored.started_at).as_micros();
    Event {
        at: ended.noted_at,
        op: "run".to_owned(),
        target: stored.target.clone(),
        ok: ended.cause == RunCause::Exited && ended.exit_code == Some(0),
        detail: detail(ended),
        duration_us: u64::try_from(took).unwrap_or(u64::MAX),
        request_id: stored.request_id.clone(),
        facts: BTreeMap::from([
            ("run_id".to_owned(), stored.run_id.to_string()),
            ("reason".to_owned(), reason(ended).to_owned()),
        ]),
    }
}

/// How a run ended, as the log shows it.
pub(super) fn detail(ended: &RunEnded) -> String {
    match (ended.cause, ended.exit_code, ended.signal) {
        (RunCause::Exited | RunCause::StartFailed | RunCause::Signal, Some(code), None) => {
            format!("exit {code}")
        }
        (RunCause::Exited | RunCause::Signal, _, Some(signal)) => format!("signal {signal}"),
        (RunCause::Exited | RunCause::Signal, None, None) => "unknown".to_owned(),
        (RunCause::StartFailed, _, _) => "not started".to_owned(),
        (RunCause::Timeout, _, _) => "timed out".to_owned(),
        (RunCause::OutputLimit, _, _) => "output limit".to_owned(),
        (RunCause::Stopped, _, _) => "stopped".to_owned(),
        (RunCause::Oom, _, _) => "out of memory".to_owned(),
        (RunCause::ContainerLost, _, _) => "sandbox gone".to_owned(),
        (RunCause::AgentLost, _, _) => "lost".to_owned(),
    }
}

/// Says to somebody who needs a run that goes on how this one ended.
pub(super) fn how_it_ended(ended: &RunEnded) -> String {
    format!("It ended: {}.", detail(ended))
}

/// Names a run by what is run, cut to the length of a target.
pub(super) fn target(what: &message::What) -> String {
    match what {
        message::What::Shell(text) => shortened(text),
        message::What::Argv(argv) => shortened(&joined(argv)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fate::tests::{end, known, stored};
    use super::super::fate::{Fate, Memory, Seen, what_became_of};
    use super::*;
    use crate::agent::protocol::message::Cause;
    use crate::clock::Timestamp;

    fn over(seen: Seen<'_>) -> StoredRun {
        let now = Timestamp::from_secs(1_700_000_060);
        match what_became_of(&stored(), seen, Memory::Held, now) {
            Fate::Over(ended) => StoredRun {
                ended: Some(ended),
                ..stored()
            },
            Fate::GoesOn => stored(),
        }
    }

    fn ended(cause: Cause, code: Option<i32>, signal: Option<i32>) -> StoredRun {
        over(Seen::Heard {
            container: "c1",
            life: "l1",
            run: Some(&known(Some(end(cause, code, signal)))),
        })
    }

    /// An ending with its state, reason, exit code and line in the log.
    type Row = (
        StoredRun,
        &'static str,
        &'static str,
        Option<i64>,
        &'static str,
    );

    fn endings() -> Vec<Row> {
        use Cause::{Exited, OutputLimit, Signal, StartFailed, Stopped, Timeout};
        let row = |run, state, reason, code, detail| (run, state, reason, code, detail);
        vec![
            row(
                ended(Exited, Some(0), None),
                "exited",
                "exited",
                Some(0),
                "exit 0",
            ),
            row(
                ended(Exited, Some(3), None),
                "exited",
                "exited",
                Some(3),
                "exit 3",
            ),
            row(
                ended(Exited, None, Some(11)),
                "killed",
                "signal",
                Some(139),
                "signal 11",
            ),
            row(
                ended(StartFailed, Some(127), None),
                "exited",
                "start_failed",
                Some(127),
                "exit 127",
            ),
            row(
                ended(Timeout, None, Some(9)),
                "killed",
                "timeout",
                None,
                "timed out",
            ),
            row(
                ended(OutputLimit, None, Some(15)),
                "killed",
                "output_limit",
                None,
                "output limit",
            ),
            row(
                ended(Stopped, Some(0), None),
                "killed",
                "stopped",
                None,
                "stopped",
            ),
            row(
                ended(Signal, None, Some(2)),
                "killed",
                "signal",
                Some(130),
                "signal 2",
            ),
            row(
                over(Seen::NoContainer),
                "lost",
                "container_lost",
                None,
                "sandbox gone",
            ),
        ]
    }

    #[test]
    fn every_ending_has_its_own_words_and_only_a_clean_exit_is_a_success() {
        for (run, state, reason, code, detail) in endings() {
            let shown = described(&run, None);
            assert_eq!(shown.state, state);
            assert_eq!(shown.reason.as_deref(), Some(reason));
            assert_eq!(shown.exit_code, code, "{detail}");
            let event = event(&run, run.ended.as_ref().unwrap());
            assert_eq!(event.detail, detail);
            assert_eq!(event.ok, code == Some(0), "{detail}");
            assert_eq!(event.facts["reason"], reason);
        }
    }

    #[test]
    fn a_run_that_goes_on_is_described_as_its_agent_says_and_an_unheard_one_claims_nothing() {
        let heard = described(&stored(), Some(&known(None)));
        assert_eq!(heard.state, "running");
        assert_eq!((heard.first_seq, heard.next_seq), (2, 7));
        assert_eq!((heard.stdout_bytes, heard.truncated), (30, true));
        assert_eq!(
            (heard.exit_code, heard.reason, heard.ended_at),
            (None, None, None)
        );
        let unheard = described(&stored(), None);
        assert_eq!((unheard.first_seq, unheard.next_seq), (0, 0));
    }
}
