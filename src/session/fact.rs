//! Names what happens in the life of a session, as the service log tells it.

use std::collections::BTreeMap;

use super::record::{Event, Reason, Spec};
use crate::clock::Timestamp;

/// One thing that happens in the life of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// Its sandbox runs for the first time.
    Opened,
    /// A caller attached to it.
    Attached,
    /// It fell asleep.
    Hibernated,
    /// It woke.
    Woken,
    /// Its container was started anew by somebody else.
    Reset,
    /// It fell asleep to give way to another session.
    Evicted,
    /// It was idle for too long.
    Reaped,
    /// A caller closed it, or it was closed to give way to another session.
    Closed,
    /// Everything it had is gone.
    Purged,
    /// It was closed and unused for too long, and everything it had is gone.
    Expired,
    /// The container that it kept was removed, as it had stood still for its time.
    ContainerExpired,
    /// It could not be started.
    Failed,
    /// Its container ran out of memory.
    Oom,
    /// It was refused processes, at its ceiling of them.
    PidsRefused,
    /// Processes are left of a container that the engine has lost.
    Ghost,
    /// They were ended.
    GhostEnded,
    /// It was stopped for what lay in its workspace.
    WorkspaceFull,
    /// Something of what it had could not be removed.
    Remains,
    /// Its workspace was filled from an archive.
    Imported,
}

impl Fact {
    /// All of them.
    pub const ALL: [Self; 19] = [
        Self::Opened,
        Self::Attached,
        Self::Hibernated,
        Self::Woken,
        Self::Reset,
        Self::Evicted,
        Self::Reaped,
        Self::Closed,
        Self::Purged,
        Self::Expired,
        Self::ContainerExpired,
        Self::Failed,
        Self::Oom,
        Self::PidsRefused,
        Self::Ghost,
        Self::GhostEnded,
        Self::WorkspaceFull,
        Self::Remains,
        Self::Imported,
    ];

    /// Tells whether a word is one of these.
    pub fn is_one(word: &str) -> bool {
        Self::ALL.iter().any(|fact| fact.as_str() == word)
    }

    /// Returns the stable word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::Attached => "attached",
            Self::Hibernated => "hibernated",
            Self::Woken => "woken",
            Self::Reset => "reset",
            Self::Evicted => "evicted",
            Self::Reaped => "reaped",
            Self::Closed => "closed",
            Self::Purged => "purged",
            Self::Expired => "expired",
            Self::ContainerExpired => "container_expired",
            Self::Failed => "failed",
            Self::Oom => "oom",
            Self::PidsRefused => "pids_refused",
            Self::Ghost => "ghost",
            Self::GhostEnded => "ghost_ended",
            Self::WorkspaceFull => "workspace_full",
            Self::Remains => "remains",
            Self::Imported => "imported",
        }
    }

    /// Makes the entry of the service log.
    pub fn event(self, at: Timestamp, spec: &Spec, reason: Option<Reason>) -> Event {
        let mut facts = BTreeMap::from([("runtime".to_owned(), spec.alias.to_string())]);
        if let Some(tenant) = &spec.tenant {
            facts.insert("tenant".to_owned(), tenant.to_string());
        }
        Event {
            at,
            op: self.as_str().to_owned(),
            target: spec.id.to_string(),
            ok: !matches!(
                self,
                Self::Failed
                    | Self::PidsRefused
                    | Self::Ghost
                    | Self::WorkspaceFull
                    | Self::Remains
            ),
            detail: reason.map_or_else(String::new, |reason| reason.as_str().to_owned()),
            duration_us: 0,
            request_id: None,
            facts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the place of a fact in the list; whoever adds one comes by here.
    fn place(fact: Fact) -> usize {
        match fact {
            Fact::Opened => 0,
            Fact::Attached => 1,
            Fact::Hibernated => 2,
            Fact::Woken => 3,
            Fact::Reset => 4,
            Fact::Evicted => 5,
            Fact::Reaped => 6,
            Fact::Closed => 7,
            Fact::Purged => 8,
            Fact::Expired => 9,
            Fact::ContainerExpired => 10,
            Fact::Failed => 11,
            Fact::Oom => 12,
            Fact::PidsRefused => 13,
            Fact::Ghost => 14,
            Fact::GhostEnded => 15,
            Fact::WorkspaceFull => 16,
            Fact::Remains => 17,
            Fact::Imported => 18,
        }
    }

    #[test]
    fn every_fact_is_known_as_one_by_its_word() {
        for (at, fact) in Fact::ALL.into_iter().enumerate() {
            assert_eq!(place(fact), at);
            assert!(Fact::is_one(fact.as_str()));
        }
        assert_eq!(Fact::ALL.len(), place(Fact::Imported) + 1);
    }
}
