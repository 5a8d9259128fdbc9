//! Collects what one flush writes, by tree and key; the last word on a key wins.

use std::collections::BTreeMap;

/// A tree of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tree {
    Meta,
    Desired,
    Status,
    Events,
    Runs,
}

/// Keys with their new values; `None` removes the key.
#[derive(Debug, Default)]
pub(super) struct Writes(BTreeMap<(Tree, Vec<u8>), Option<Vec<u8>>>);

impl Writes {
    pub(super) fn put(&mut self, tree: Tree, key: Vec<u8>, value: Vec<u8>) {
        self.0.insert((tree, key), Some(value));
    }

    pub(super) fn remove(&mut self, tree: Tree, key: Vec<u8>) {
        self.0.insert((tree, key), None);
    }

    /// Adds later writes to these.
    pub(super) fn extend(&mut self, later: Self) {
        self.0.extend(later.0);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns what concerns one tree, in sled's terms.
    pub(super) fn batch(&self, wanted: Tree) -> sled::Batch {
        let mut batch = sled::Batch::default();
        for ((tree, key), value) in &self.0 {
            if *tree != wanted {
                continue;
            }
            match value {
                Some(value) => batch.insert(key.as_slice(), value.as_slice()),
                None => batch.remove(key.as_slice()),
            }
        }
        batch
    }
}

/// How far a write must have got before it is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Durability {
    /// Out of this process: survives its end, not a loss of power.
    #[default]
    Flushed,
    /// On the disk.
    Synced,
}
