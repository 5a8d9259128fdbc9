//! Owns the tree `meta`: what the store is, and to whom it belongs.

use serde::{Deserialize, Serialize};

use super::codec;
use super::error::Fault;
use super::tally::Tally;
use super::writes::{Tree, Writes};
use crate::clock::Timestamp;
use crate::id::InstanceId;

/// The tree's name.
pub(super) const TREE: &str = "meta";

/// The layout of trees and keys that this build reads and writes.
pub const SCHEMA: u32 = 1;

/// Tells a store of ours from an empty or foreign one.
const MAGIC: &[u8] = b"sandboxd store";

const KEY_MAGIC: &[u8] = b"magic";
const KEY_SCHEMA: &[u8] = b"schema";
const KEY_INSTANCE: &[u8] = b"instance";
const KEY_TOKEN_KEY: &[u8] = b"token_key_id";
const KEY_ENGINE: &[u8] = b"engine_id";
const KEY_ORDER: &[u8] = b"order";
const KEY_BEAT: &[u8] = b"beat";
const KEY_TALLY: &[u8] = b"tally";
const KEY_REBUILT: &[u8] = b"rebuilt";
const KEY_JOURNAL: &[u8] = b"journal";
const KEY_AGES_FROM: &[u8] = b"ages_from";

/// What the store knows of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Meta {
    /// Marks everything that this state directory owns.
    pub(super) instance: InstanceId,
    /// The name of the key that tokens are derived from.
    pub(super) token_key_id: Option<String>,
    /// The engine that the containers live on.
    pub(super) engine_id: Option<String>,
    /// The highest place in the order of opening given to a record so far.
    pub(super) order: u64,
    /// Nothing is taken to be older than this instant.
    pub(super) ages_from: Timestamp,
    /// What the rows add up to; none in a store of an earlier build.
    pub(super) tally: Option<Tally>,
    /// Set while the records of a rebuilt store are not confirmed.
    pub(super) rebuilt: Option<Rebuilt>,
}

/// How far the records of a lost store are made anew, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts that come true one by one, in any order"
)]
pub struct Rebuilt {
    /// When the loss was found.
    pub since: Timestamp,
    /// Where what was left of the store is now.
    pub set_aside: String,
    /// What was wrong with it.
    pub why: String,
    /// Whether the sidecars of the workspaces were read.
    pub files_read: bool,
    /// Whether the engine's containers were taken over.
    pub containers_read: bool,
    /// Records made anew so far.
    pub sessions: u64,
    /// Whether an operator has confirmed the outcome.
    pub confirmed: bool,
    /// When the records were as a backup has them, where one was restored instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored: Option<Timestamp>,
}

/// One step of a rebuild.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// So many more records were made anew.
    Sessions(u64),
    /// The sidecars of the workspaces were read.
    FilesRead,
    /// The engine's containers were taken over.
    ContainersRead,
    /// An operator has confirmed the outcome.
    Confirmed,
}

impl Rebuilt {
    /// Returns a rebuild that has done nothing yet.
    pub(super) fn begin(since: Timestamp, set_aside: String, why: String) -> Self {
        Self {
            since,
            set_aside,
            why,
            files_read: false,
            containers_read: false,
            sessions: 0,
            confirmed: false,
            restored: None,
        }
    }

    /// Returns whether nothing of it is left to do or to confirm.
    fn is_over(&self) -> bool {
        self.files_read && self.containers_read && self.confirmed
    }
}

impl Meta {
    pub(super) fn new(instance: InstanceId) -> Self {
        Self {
            instance,
            token_key_id: None,
            engine_id: None,
            order: 0,
            ages_from: Timestamp::ZERO,
            tally: None,
            rebuilt: None,
        }
    }

    /// Returns how many groups of batches were committed.
    pub(super) fn commits(&self) -> u64 {
        self.tally.map_or(0, |tally| tally.commits)
    }

    /// Takes down how far a rebuild has got, which ends it where nothing is left of it.
    pub(super) fn rebuild(&mut self, progress: Progress) {
        let Some(rebuilt) = &mut self.rebuilt else {
            return;
        };
        match progress {
            Progress::Sessions(n) => rebuilt.sessions = rebuilt.sessions.saturating_add(n),
            Progress::FilesRead => rebuilt.files_read = true,
            Progress::ContainersRead => rebuilt.containers_read = true,
            Progress::Confirmed => rebuilt.confirmed = true,
        }
        if rebuilt.is_over() {
            self.rebuilt = None;
        }
    }

    /// Writes all of it, with the mark that says that the store is initialised.
    pub(super) fn put(&self, writes: &mut Writes) -> Result<(), codec::CodecError> {
        let mut put = |key: &[u8], value| writes.put(Tree::Meta, key.to_vec(), value);
        put(KEY_MAGIC, MAGIC.to_vec());
        put(KEY_SCHEMA, SCHEMA.to_string().into_bytes());
        put(KEY_INSTANCE, codec::encode(&self.instance)?);
        put(KEY_TOKEN_KEY, codec::encode(&self.token_key_id)?);
        put(KEY_ENGINE, codec::encode(&self.engine_id)?);
        put(KEY_ORDER, codec::encode(&self.order)?);
        put(KEY_AGES_FROM, codec::encode(&self.ages_from)?);
        put(KEY_TALLY, codec::encode(&self.tally)?);
        put(KEY_REBUILT, codec::encode(&self.rebuilt)?);
        Ok(())
    }

    /// Writes what differs from `before`; the instance never does.
    pub(super) fn put_changes(
        &self,
        before: &Self,
        writes: &mut Writes,
    ) -> Result<(), codec::CodecError> {
        let mut put = |key: &[u8], value| writes.put(Tree::Meta, key.to_vec(), value);
        if self.token_key_id != before.token_key_id {
            put(KEY_TOKEN_KEY, codec::encode(&self.token_key_id)?);
        }
        if self.engine_id != before.engine_id {
            put(KEY_ENGINE, codec::encode(&self.engine_id)?);
        }
        if self.order != before.order {
            put(KEY_ORDER, codec::encode(&self.order)?);
        }
        if self.ages_from != before.ages_from {
            put(KEY_AGES_FROM, codec::encode(&self.ages_from)?);
        }
        if self.rebuilt != before.rebuilt {
            put(KEY_REBUILT, codec::encode(&self.rebuilt)?);
        }
        Ok(())
    }
}

/// Writes what the rows add up to.
pub(super) fn put_tally(writes: &mut Writes, tally: Tally) -> Result<(), codec::CodecError> {
    writes.put(Tree::Meta, KEY_TALLY.to_vec(), codec::encode(&tally)?);
    Ok(())
}

/// Writes down up to which number the database holds what was in the journal.
pub(super) fn put_journaled(writes: &mut Writes, n: u64) -> Result<(), codec::CodecError> {
    writes.put(Tree::Meta, KEY_JOURNAL.to_vec(), codec::encode(&n)?);
    Ok(())
}

/// Reads that number; 0 where nothing ever was in a journal.
pub(super) fn journaled(tree: &sled::Tree) -> Result<u64, Fault> {
    Ok(optional(tree, KEY_JOURNAL)?.unwrap_or(0))
}

/// Writes something harmless, to see whether a write gets through.
pub(super) fn put_beat(writes: &mut Writes, beat: u64) -> Result<(), codec::CodecError> {
    let value = codec::encode(&beat)?;
    writes.put(Tree::Meta, KEY_BEAT.to_vec(), value);
    Ok(())
}

/// Reads it; `None` when the store was never initialised.
pub(super) fn load(tree: &sled::Tree) -> Result<Option<Meta>, Fault> {
    let Some(magic) = tree.get(KEY_MAGIC)? else {
        return Ok(None);
    };
    if *magic != *MAGIC {
        return Err(Fault::Corrupt(
            "the store is not one of sandboxd".to_owned(),
        ));
    }
    let schema = tree.get(KEY_SCHEMA)?.ok_or_else(|| missing("schema"))?;
    let found: u32 = std::str::from_utf8(&schema)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| Fault::Corrupt("the schema is not a number".to_owned()))?;
    if SCHEMA < found {
        return Err(Fault::NewerSchema { found });
    }
    if found != SCHEMA {
        return Err(Fault::Corrupt(format!("there never was a schema {found}")));
    }
    let instance = tree.get(KEY_INSTANCE)?.ok_or_else(|| missing("instance"))?;
    Ok(Some(Meta {
        instance: codec::decode(&instance)?,
        token_key_id: optional(tree, KEY_TOKEN_KEY)?.flatten(),
        engine_id: optional(tree, KEY_ENGINE)?.flatten(),
        order: optional(tree, KEY_ORDER)?.unwrap_or(0),
        ages_from: optional(tree, KEY_AGES_FROM)?.unwrap_or_default(),
        tally: optional(tree, KEY_TALLY)?.flatten(),
        rebuilt: optional(tree, KEY_REBUILT)?.flatten(),
    }))
}

fn optional<T: serde::de::DeserializeOwned>(
    tree: &sled::Tree,
    key: &[u8],
) -> Result<Option<T>, Fault> {
    match tree.get(key)? {
        Some(value) => Ok(Some(codec::decode(&value)?)),
        None => Ok(None),
    }
}

fn missing(what: &str) -> Fault {
    Fault::Corrupt(format!("the store does not say its {what}"))
}

/// Overwrites the schema, as a later version of this program would.
#[cfg(test)]
pub(super) fn put_schema(writes: &mut Writes, schema: u32) {
    writes.put(
        Tree::Meta,
        KEY_SCHEMA.to_vec(),
        schema.to_string().into_bytes(),
    );
}
