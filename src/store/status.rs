//! Owns the tree `status`: session id to what the reconciler last saw.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::codec::{self, CodecError};
use super::desired;
use super::error::Fault;
use super::writes::{Tree, Writes};
use crate::id::SessionId;
use crate::session::record::Status;

/// The tree's name.
pub(super) const TREE: &str = "status";

/// Writes the status of a session.
pub(super) fn put(writes: &mut Writes, id: &SessionId, status: &Status) -> Result<(), CodecError> {
    let value = codec::encode(status)?;
    writes.put(Tree::Status, desired::key(id), value);
    Ok(())
}

/// Removes the status of a session.
pub(super) fn remove(writes: &mut Writes, id: &SessionId) {
    writes.remove(Tree::Status, desired::key(id));
}

/// Reads every status.
pub(super) fn load(tree: &sled::Tree) -> Result<BTreeMap<SessionId, Arc<Status>>, Fault> {
    let mut statuses = BTreeMap::new();
    for entry in tree {
        let (key, value) = entry?;
        let id = desired::parse_key(TREE, &key)?;
        statuses.insert(id, Arc::new(codec::decode(&value)?));
    }
    Ok(statuses)
}
