//! Names everything that a store holds at one moment, for whoever checks it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::health::Health;
use crate::id::{InstanceId, SessionId};
use crate::session::record::{Record, Status};

/// What a store holds at one moment, but for the events themselves.
#[derive(Clone, Debug, PartialEq)]
pub struct Inventory {
    /// Whether it takes writes.
    pub health: Health,
    /// Marks everything that its state directory owns.
    pub instance: InstanceId,
    /// The name of the key that tokens are derived from, once one was used.
    pub token_key_id: Option<String>,
    /// The engine that the containers live on, once one was seen.
    pub engine_id: Option<String>,
    /// Each record with its status.
    pub sessions: BTreeMap<SessionId, (Arc<Record>, Option<Arc<Status>>)>,
    /// The sessions that have runs.
    pub runs: BTreeSet<SessionId>,
    /// The sessions that have a log of events.
    pub logs: BTreeSet<SessionId>,
}
