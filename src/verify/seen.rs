//! Holds what was seen of store, engine and disk, as plain values.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use crate::clock::Timestamp;
use crate::docker::inspect::Summary;
use crate::id::{ContainerKey, InstanceId, SessionId};
use crate::policy::Capacity;
use crate::session::record::{Event, Record, Status};
use crate::store::Health;

/// What was seen, or why it could not be.
pub type Look<T> = Result<T, String>;

/// Everything that was seen at one time.
#[derive(Clone, Debug)]
pub struct Seen {
    /// When.
    pub now: Timestamp,
    /// The ceilings.
    pub capacity: Capacity,
    /// The store.
    pub store: StoreSeen,
    /// What the state directory says of itself; `None` inside where it says nothing.
    pub marker: Look<Option<InstanceId>>,
    /// The token key; `None` inside where there is none.
    pub key: Look<Option<KeySeen>>,
    /// The engine.
    pub engine: EngineSeen,
    /// All containers with our instance label.
    pub ours: Look<Vec<Summary>>,
    /// All containers whose names begin as ours do, whoever made them.
    pub namesakes: Look<Vec<Summary>>,
    /// Processes by the container in whose control group they are.
    pub groups: Look<BTreeMap<String, usize>>,
    /// Whether what our running containers use is to be seen; `None` where none runs.
    pub usage_visible: Option<bool>,
    /// The workspace root; `None` where no workspaces are kept.
    pub root: Option<Look<RootSeen>>,
    /// The file systems in use, by what they hold.
    pub spaces: Vec<(&'static str, PathBuf, Look<Space>)>,
}

/// What was seen of the store.
#[derive(Clone, Debug)]
pub enum StoreSeen {
    /// It was read.
    Read(Box<Contents>),
    /// There is none.
    Nothing,
    /// It cannot be trusted.
    Broken(String),
    /// It could not be read, for a reason that says nothing about it.
    Unseen(String),
}

/// What the store holds.
#[derive(Clone, Debug)]
pub struct Contents {
    /// Whether it takes writes.
    pub health: Health,
    /// Whose it is.
    pub instance: InstanceId,
    /// The key that tokens are derived from, once one was used.
    pub token_key_id: Option<String>,
    /// The engine that the containers live on, once one was seen.
    pub engine_id: Option<String>,
    /// Where a store was set aside when this one was begun, if so.
    pub set_aside: Option<PathBuf>,
    /// The sessions.
    pub sessions: BTreeMap<SessionId, SessionSeen>,
    /// Keys of records that were forgotten while it was looked.
    pub departed: BTreeSet<ContainerKey>,
    /// Sessions that have runs.
    pub runs: BTreeSet<SessionId>,
    /// Sessions that have a log of events.
    pub logs: BTreeSet<SessionId>,
    /// The newest events of commands, with their numbers.
    pub commands: Look<Vec<(SessionId, u64, Event)>>,
}

/// What was seen of one session.
#[derive(Clone, Debug)]
pub struct SessionSeen {
    /// Its record.
    pub record: Arc<Record>,
    /// Its status.
    pub status: Option<Arc<Status>>,
    /// Whether either changed while it was looked.
    pub motion: Motion,
}

/// Whether something changed while it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Motion {
    /// It did not.
    Still,
    /// It did, and nothing can be said of it.
    Changed,
}

impl SessionSeen {
    /// Returns whether nothing is being done about the session, as far as is known.
    pub fn is_settled(&self) -> bool {
        let reached = |status: &Arc<Status>| status.has_reached(&self.record.marks);
        self.motion == Motion::Still && self.status.as_ref().is_some_and(reached)
    }
}

/// What was seen of the token key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySeen {
    /// Its file.
    pub path: PathBuf,
    /// Its name; `None` where the file holds no key.
    pub id: Option<String>,
    /// The permissions of the file.
    pub mode: u32,
}

/// What was seen of the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineSeen {
    /// It answered.
    Answered {
        /// Its id.
        id: String,
        /// Its version.
        version: String,
        /// The version of its API, as two numbers.
        api: (u16, u16),
        /// Which control groups it uses: `1`, `2`, or empty.
        cgroup: String,
        /// Whether containers go on while it is restarted.
        live_restore: bool,
    },
    /// It speaks no version that is spoken here.
    Refused(String),
    /// It did not answer.
    Silent(String),
}

/// What was seen of the workspace root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RootSeen {
    /// Whether it is another directory than the one that the daemon knows.
    pub is_other: bool,
    /// What a session's directory holds.
    pub homes: BTreeMap<SessionId, Home>,
    /// Names of entries that are no directories of sessions.
    pub strange: BTreeSet<String>,
    /// Since when each entry of the trash has been there.
    pub trash: BTreeMap<String, Timestamp>,
}

/// What the directory of a session holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    /// The workspace, as a directory.
    pub workspace: Presence,
    /// The file that says whom it belongs to.
    pub sidecar: Presence,
}

/// Whether something is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is.
    There,
    /// It is not.
    Absent,
}

/// The room on a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes that are free for us.
    pub free_bytes: u64,
    /// Bytes altogether.
    pub bytes: u64,
    /// Files that can still be made; `None` where the file system does not count them.
    pub free_files: Option<u64>,
}
