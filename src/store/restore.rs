//! Brings a database that was reopened after a fault back to what was acknowledged.
//!
//! The mirror wins: a batch whose commit failed is taken back, so that a caller who
//! was told of a failure does not find its change applied later. The write also
//! proves that writes get through again.

use std::collections::BTreeMap;
use std::sync::Arc;

use tracing::error;

use super::codec::CodecError;
use super::database::Database;
use super::error::Fault;
use super::events::{self, Log, Span};
use super::mirror::{Changes, Mirror};
use super::writes::{Durability, Writes};
use super::{desired, meta, runs, status};
use crate::clock::Timestamp;
use crate::session::record::Event;

/// Makes the database hold what the mirror says; returns what it could not.
pub(super) fn restore(
    database: &Database,
    mirror: &Mirror,
    now: Timestamp,
) -> Result<Changes, Fault> {
    let found = database
        .load()?
        .ok_or_else(|| Fault::Corrupt("the store came back empty".to_owned()))?;
    if found.meta.instance != mirror.meta.instance {
        return Err(Fault::Corrupt("another store is in its place".to_owned()));
    }
    let mut writes = Writes::default();
    meta::put_beat(&mut writes, now.micros())?;
    if found.meta != mirror.meta {
        mirror.meta.put(&mut writes)?;
    }
    for change in differences(&found.records, &mirror.records) {
        match change {
            Change::Put(_, record) => desired::put(&mut writes, record)?,
            Change::Remove(id) => desired::remove(&mut writes, id),
        }
    }
    for change in differences(&found.statuses, &mirror.statuses) {
        match change {
            Change::Put(id, status) => status::put(&mut writes, id, status)?,
            Change::Remove(id) => status::remove(&mut writes, id),
        }
    }
    for change in differences(&found.runs, &mirror.runs) {
        match change {
            Change::Put((session, _), run) => runs::put(&mut writes, session, run)?,
            Change::Remove((session, run)) => runs::remove(&mut writes, session, run),
        }
    }
    let changes = restore_logs(&mut writes, &found.logs, &mirror.logs, now)?;
    database.apply(&writes, Durability::Synced)?;
    Ok(changes)
}

enum Change<'a, K, T> {
    Put(&'a K, &'a T),
    Remove(&'a K),
}

fn differences<'a, K: Ord, T: PartialEq>(
    found: &'a BTreeMap<K, Arc<T>>,
    wanted: &'a BTreeMap<K, Arc<T>>,
) -> impl Iterator<Item = Change<'a, K, T>> {
    let surplus = found.keys().filter(|id| !wanted.contains_key(*id));
    let missing = wanted
        .iter()
        .filter(|(id, value)| found.get(*id) != Some(*value));
    surplus
        .map(Change::Remove)
        .chain(missing.map(|(id, value)| Change::Put(id, &**value)))
}

fn restore_logs(
    writes: &mut Writes,
    found: &BTreeMap<Log, Span>,
    wanted: &BTreeMap<Log, Span>,
    now: Timestamp,
) -> Result<Changes, CodecError> {
    let mut changes = Changes::default();
    for (log, span) in found {
        // Events of a batch that was never acknowledged.
        let first = wanted.get(log).map_or(span.first, |kept| kept.latest + 1);
        for seq in first.max(span.first)..=span.latest {
            events::remove(writes, log.as_ref(), seq);
        }
    }
    for (log, span) in wanted {
        let found = found.get(log).filter(|found| found.first <= span.latest);
        match found {
            Some(found) if span.latest <= found.latest => {
                // A batch that failed may have trimmed the log first.
                let span = Span {
                    first: found.first,
                    latest: span.latest,
                };
                changes.logs.insert(log.clone(), Some(span));
            }
            Some(_) | None => {
                error!(log = ?log, "events were lost to a fault of the store");
                let seq = span.latest + 1;
                events::put(writes, log.as_ref(), seq, &loss(now))?;
                let span = Span {
                    first: found.map_or(seq, |found| found.first),
                    latest: seq,
                };
                changes.logs.insert(log.clone(), Some(span));
            }
        }
    }
    Ok(changes)
}

/// Makes the event that stands for lost ones, so that numbers are not given twice.
fn loss(now: Timestamp) -> Event {
    Event {
        at: now,
        op: "store".to_owned(),
        target: String::new(),
        ok: false,
        detail: "earlier events were lost to a fault of the store".to_owned(),
        duration_us: 0,
        request_id: None,
        facts: BTreeMap::new(),
    }
}
