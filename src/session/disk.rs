//! Decides which workspaces to measure next, and whether one is over its ceiling.

use std::time::Duration;

use crate::clock::Timestamp;
use crate::id::SessionId;

/// What was measured of a workspace in which nothing was done is believed for so long.
pub const BELIEVED_MAX: Duration = Duration::from_hours(24);

/// What is known of a workspace, for the decision whether to measure it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Whose it is.
    pub id: SessionId,
    /// Whether something may write to it at any moment.
    pub writer: Writer,
    /// When its session was last used, as far as that is known.
    pub last_used: Option<Timestamp>,
    /// When it was last measured, unless that is known to be out of date.
    pub measured: Option<Timestamp>,
}

/// Whether something may write to a workspace at any moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Writer {
    /// A sandbox may.
    Sandbox,
    /// Nothing runs that could.
    None,
}

/// Picks the workspaces that are to be measured, those first that are likeliest to have
/// grown: of running sandboxes, the last used first, then what was used, or was never
/// measured, and last what was measured long ago.
pub fn due(candidates: Vec<Candidate>, now: Timestamp) -> Vec<SessionId> {
    let mut due: Vec<Candidate> = candidates
        .into_iter()
        .filter(|candidate| candidate.is_due(now))
        .collect();
    due.sort_by(|a, b| {
        let rank = |one: &Candidate| {
            (
                one.writer,
                one.is_old(now),
                std::cmp::Reverse(one.last_used),
            )
        };
        rank(a).cmp(&rank(b)).then_with(|| a.id.cmp(&b.id))
    });
    due.into_iter().map(|candidate| candidate.id).collect()
}

impl Candidate {
    fn is_due(&self, now: Timestamp) -> bool {
        match (self.measured, self.writer) {
            (None, _) | (Some(_), Writer::Sandbox) => true,
            (Some(at), Writer::None) => {
                self.last_used.is_some_and(|used| at <= used) || BELIEVED_MAX < now.since(at)
            }
        }
    }

    /// Whether only its age makes it due.
    fn is_old(&self, now: Timestamp) -> bool {
        self.measured.is_some_and(|at| {
            BELIEVED_MAX < now.since(at) && self.last_used.is_none_or(|used| used < at)
        })
    }
}

/// The ceiling of a workspace and what lies in it, where it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Over {
    /// The most that may lie in it, in bytes on the disk.
    pub limit: u64,
    /// What does.
    pub used: u64,
}

/// Returns whether a workspace with so many bytes on the disk, and so many more, is over
/// its ceiling; where there is none it never is.
pub fn over(limit: Option<u64>, used: u64, more: u64) -> Option<Over> {
    let limit = limit?;
    (limit < used.saturating_add(more)).then_some(Over { limit, used })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

    fn ago(hours: u64) -> Timestamp {
        Timestamp::from_secs(1_700_000_000 - hours * 3_600)
    }

    fn candidate(
        id: &str,
        writer: Writer,
        last_used: Option<Timestamp>,
        measured: Option<Timestamp>,
    ) -> Candidate {
        Candidate {
            id: SessionId::parse(id).unwrap(),
            writer,
            last_used,
            measured,
        }
    }

    #[test]
    fn what_may_have_grown_is_measured_first_and_what_cannot_have_is_let_be() {
        let candidates = vec![
            candidate("asleep", Writer::None, Some(ago(3)), Some(ago(2))),
            candidate("unrecorded", Writer::None, None, Some(ago(2))),
            candidate("old", Writer::None, Some(ago(90)), Some(ago(50))),
            candidate("unmeasured", Writer::None, None, None),
            candidate("used", Writer::None, Some(ago(1)), Some(ago(2))),
            candidate("runs", Writer::Sandbox, Some(ago(9)), Some(ago(0))),
            candidate("runs-now", Writer::Sandbox, Some(ago(0)), Some(ago(0))),
        ];
        let due = due(candidates, NOW);
        let ids: Vec<&str> = due.iter().map(SessionId::as_str).collect();
        assert_eq!(ids, ["runs-now", "runs", "used", "unmeasured", "old"]);
    }

    #[test]
    fn a_workspace_is_over_its_ceiling_and_not_at_it() {
        assert_eq!(over(None, u64::MAX, 1), None);
        assert_eq!(over(Some(10), 8, 2), None);
        assert_eq!(over(Some(10), 8, 3), Some(Over { limit: 10, used: 8 }));
        assert_eq!(
            over(Some(10), 8, u64::MAX),
            Some(Over { limit: 10, used: 8 })
        );
    }
}
