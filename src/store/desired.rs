//! Owns the tree `desired`: session id to record.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::codec::{self, CodecError};
use super::error::Fault;
use super::writes::{Tree, Writes};
use crate::id::SessionId;
use crate::session::record::Record;

/// The tree's name.
pub(super) const TREE: &str = "desired";

/// Writes a record under its id.
pub(super) fn put(writes: &mut Writes, record: &Record) -> Result<(), CodecError> {
    let value = codec::encode(record)?;
    writes.put(Tree::Desired, key(&record.spec.id), value);
    Ok(())
}

/// Removes the record of a session.
pub(super) fn remove(writes: &mut Writes, id: &SessionId) {
    writes.remove(Tree::Desired, key(id));
}

/// Reads every record.
pub(super) fn load(tree: &sled::Tree) -> Result<BTreeMap<SessionId, Arc<Record>>, Fault> {
    let mut records = BTreeMap::new();
    for entry in tree {
        let (key, value) = entry?;
        let id = parse_key(TREE, &key)?;
        let record = read(&id, &value)?;
        records.insert(id, Arc::new(record));
    }
    Ok(records)
}

fn read(id: &SessionId, value: &[u8]) -> Result<Record, CodecError> {
    let record: Record = codec::decode(value)?;
    if record.spec.id != *id {
        return Err(CodecError::Mislabelled {
            key: id.to_string(),
            value: record.spec.id.to_string(),
        });
    }
    Ok(record)
}

/// Makes the key of a session, as this tree and `status` have it.
pub(super) fn key(id: &SessionId) -> Vec<u8> {
    id.as_str().as_bytes().to_vec()
}

/// Reads the session out of a key.
pub(super) fn parse_key(tree: &'static str, key: &[u8]) -> Result<SessionId, CodecError> {
    std::str::from_utf8(key)
        .ok()
        .and_then(|text| SessionId::parse(text).ok())
        .ok_or_else(|| codec::bad_key(tree, key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::record;

    #[test]
    fn a_record_under_the_key_of_another_session_is_refused() {
        let bytes = codec::encode(&record("a", 1)).unwrap();
        assert!(read(&SessionId::parse("a").unwrap(), &bytes).is_ok());
        assert!(matches!(
            read(&SessionId::parse("b").unwrap(), &bytes),
            Err(CodecError::Mislabelled { .. })
        ));
    }
}
