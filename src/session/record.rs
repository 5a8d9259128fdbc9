//! What is stored of a session: what was asked for, when, and what was last seen.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::id::{Alias, ContainerKey, Nonce, SessionId, Tenant};
use crate::policy::Runtime;

/// The desired state of one session; `control` writes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// What was asked for.
    pub spec: Spec,
    /// When.
    pub marks: Marks,
}

/// What a caller asked for when it opened the session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// Its id.
    pub id: SessionId,
    /// The alias it was opened on.
    pub alias: Alias,
    /// The runtime of that alias as it was then; later edits do not change it.
    pub runtime: Runtime,
    /// The tenant under whose ceiling it counts.
    pub tenant: Option<Tenant>,
    /// What its token is derived from; a new one at each opening.
    pub nonce: Nonce,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// Its place in the order of opening.
    pub order: u64,
}

/// What happened to the session's intent, and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Marks {
    /// Rises with every change of intent; a waiter waits for one of them.
    pub generation: u64,
    /// When an operation was last finished or begun.
    pub last_used: Timestamp,
    /// Set while the session is asleep.
    pub parked: Option<Parked>,
    /// Set once the session is over.
    pub closed: Option<Closed>,
    /// Why it was last asleep; explains the reset that a wake brings.
    pub slept: Option<Reason>,
}

impl Record {
    /// Returns this record with other marks.
    #[must_use]
    pub fn with(&self, marks: Marks) -> Self {
        Self {
            spec: self.spec.clone(),
            marks,
        }
    }

    /// Returns whether what uses the session now is let finish before it is stopped.
    pub fn lets_finish(&self) -> bool {
        let parked = self.marks.parked.as_ref();
        parked.is_none_or(|parked| parked.reason.lets_finish())
    }

    /// Returns whether the session is open, asleep or not.
    pub fn is_open(&self) -> bool {
        self.marks.closed.is_none()
    }
}

impl Marks {
    /// Returns the marks of a session that was opened just now.
    pub fn opened(generation: u64, now: Timestamp) -> Self {
        Self {
            generation,
            last_used: now,
            parked: None,
            closed: None,
            slept: None,
        }
    }

    /// Returns the next marks with nothing changed but the generation.
    #[must_use]
    pub fn raised(&self) -> Self {
        Self {
            generation: self.generation + 1,
            ..self.clone()
        }
    }

    /// Returns the next marks: asleep.
    #[must_use]
    pub fn parked(&self, at: Timestamp, reason: Reason) -> Self {
        Self {
            parked: Some(Parked { at, reason }),
            slept: Some(reason),
            ..self.raised()
        }
    }

    /// Returns the next marks: wanted again.
    #[must_use]
    pub fn woken(&self, at: Timestamp) -> Self {
        Self {
            last_used: at,
            parked: None,
            ..self.raised()
        }
    }

    /// Returns the next marks: over.
    #[must_use]
    pub fn closed(&self, at: Timestamp, purge: Purge, reason: Reason) -> Self {
        Self {
            closed: Some(Closed { at, purge, reason }),
            ..self.raised()
        }
    }
}

impl Status {
    /// Returns the engine's ids of all containers that the record is known to have
    /// had: the present one first, then those before it.
    pub fn containers(&self) -> impl Iterator<Item = &str> {
        let former = self.former.iter().map(|former| former.container.as_str());
        self.container.as_deref().into_iter().chain(former)
    }

    /// Returns those before, with the present container joined to them.
    ///
    /// Beyond [`FORMER_MAX`] the oldest is dropped, of those first of which nothing
    /// is known to be left.
    #[must_use]
    pub fn parted(&self, now: Timestamp) -> Vec<Former> {
        let mut former = self.former.clone();
        if let Some(container) = &self.container
            && former.iter().all(|one| one.container != *container)
        {
            former.push(Former {
                container: container.clone(),
                since: now,
                reported: false,
            });
        }
        while FORMER_MAX < former.len() {
            // Never the one that was joined just now, which may be left as well.
            let mut before = former.iter().take(FORMER_MAX);
            let oldest_gone = before.position(|one| !one.reported).unwrap_or(0);
            former.remove(oldest_gone);
        }
        former
    }

    /// Returns whether the aim of these marks was reached.
    pub fn has_reached(&self, marks: &Marks) -> bool {
        marks.generation <= self.reached
    }
}

/// A session asleep: its next use wakes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parked {
    /// Since when.
    pub at: Timestamp,
    /// Why.
    pub reason: Reason,
}

/// A session that is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Closed {
    /// Since when.
    pub at: Timestamp,
    /// Whether its files go too.
    pub purge: Purge,
    /// Why.
    pub reason: Reason,
}

/// Whether the files go with the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purge {
    /// The workspace and a persisted container stay.
    No,
    /// Everything goes.
    Yes,
}

/// Why a session changed its state; the text is stable and goes to operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// A caller asked for it.
    Requested,
    /// It gave way to another session.
    Evicted,
    /// It was idle for longer than it may be.
    Idle,
    /// Its start failed for good.
    StartFailed,
    /// Its container ended.
    ContainerDied,
    /// Its container is gone.
    ContainerLost,
    /// Its container ran out of memory.
    Oom,
    /// Its workspace was removed by somebody else.
    WorkspaceLost,
    /// Its workspace went unused for longer than its time to live.
    Expired,
    /// More lies in its workspace than may.
    WorkspaceFull,
}

impl Reason {
    /// Returns whether a session that falls asleep for this reason is let finish what it
    /// is at. One that fills the disk would go on filling it.
    pub const fn lets_finish(self) -> bool {
        match self {
            Self::WorkspaceFull => false,
            Self::Requested
            | Self::Evicted
            | Self::Idle
            | Self::StartFailed
            | Self::ContainerDied
            | Self::ContainerLost
            | Self::Oom
            | Self::WorkspaceLost
            | Self::Expired => true,
        }
    }

    /// Returns the stable text.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::Evicted => "evicted",
            Self::Idle => "idle",
            Self::StartFailed => "start_failed",
            Self::ContainerDied => "container_died",
            Self::ContainerLost => "container_lost",
            Self::Oom => "oom",
            Self::WorkspaceLost => "workspace_lost",
            Self::Expired => "expired",
            Self::WorkspaceFull => "workspace_full",
        }
    }
}

/// How commands reach a container; chosen when it is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exec {
    /// By the agent in it.
    Agent,
    /// By the engine's own exec.
    #[default]
    Docker,
}

impl Exec {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde hands on a reference"
    )]
    fn is_docker(&self) -> bool {
        *self == Self::Docker
    }

    /// Returns the word of labels and descriptions.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Docker => "docker",
        }
    }
}

/// What the reconciler last saw and did; `reconcile` writes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The last generation whose aim was reached.
    pub reached: u64,
    /// The container that the record owns, running or not.
    pub key: Option<ContainerKey>,
    /// The engine's id of that container, once it is known.
    pub container: Option<String>,
    /// Lives of the sandbox: 1 at open, one more at each reset.
    pub incarnation: u64,
    /// A reset that no caller was told of yet.
    pub notice: Option<Notice>,
    /// Set when the only copy of the files went with its container.
    pub files_lost: bool,
    /// Failed attempts since the last success.
    pub attempts: u32,
    /// The last failure, as the engine worded it.
    pub last_error: Option<String>,
    /// When the reconciler last changed something here.
    pub since: Timestamp,
    /// When the container last started, as the engine tells it: one life of it.
    pub started_at: Option<Timestamp>,
    /// The hash of the settings that the container was created with.
    pub spec_hash: Option<String>,
    /// How commands reach the container.
    #[serde(default, skip_serializing_if = "Exec::is_docker")]
    pub exec: Exec,
    /// The containers before, until their processes are seen to be gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former: Vec<Former>,
}

/// So many former containers are remembered of a session.
pub const FORMER_MAX: usize = 16;

/// A container that a session had before, and that the engine no longer shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Former {
    /// The engine's id of it.
    pub container: String,
    /// Since when it is a former one.
    pub since: Timestamp,
    /// Whether it was told that processes of it are left.
    pub reported: bool,
}

/// Why a sandbox began a new life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Notice {
    /// Its container ended or was removed.
    ContainerLost,
    /// It was asleep.
    Hibernated,
    /// It ran out of memory.
    Oom,
    /// Its container was made anew with other settings.
    Replaced,
    /// Its files went with its container.
    FilesLost,
    /// It was stopped for what lay in its workspace.
    WorkspaceFull,
}

impl Notice {
    /// Returns the stable text.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ContainerLost => "container_lost",
            Self::Hibernated => "hibernated",
            Self::Oom => "oom",
            Self::Replaced => "replaced",
            Self::FilesLost => "files_lost",
            Self::WorkspaceFull => "workspace_full",
        }
    }
}

/// One operation on a session, as stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When it ended.
    pub at: Timestamp,
    /// The operation.
    pub op: String,
    /// What it was done to, as shown.
    pub target: String,
    /// Whether it succeeded.
    pub ok: bool,
    /// How it ended.
    pub detail: String,
    /// How long it took, in microseconds.
    pub duration_us: u64,
    /// The request that asked for it.
    pub request_id: Option<String>,
    /// Further facts, for the service log.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_former_containers_the_newest_is_never_the_one_forgotten() {
        let now = Timestamp::from_secs(1_000);
        for reported in [false, true] {
            let former = (0..FORMER_MAX).map(|n| Former {
                container: format!("c{n}"),
                since: now,
                reported,
            });
            let status = Status {
                container: Some("newest".to_owned()),
                former: former.collect(),
                ..Status::default()
            };
            let parted = status.parted(now);
            assert_eq!(parted.len(), FORMER_MAX);
            assert_eq!(parted.last().unwrap().container, "newest", "{reported}");
            assert_eq!(parted[0].container, "c1", "{reported}");
        }
    }
}
