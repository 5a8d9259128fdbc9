//! Adds up what a store holds, so that one that lost rows, or went back to older ones,
//! is not taken for a whole one.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::error::Fault;
use super::mirror::{Changes, Mirror};
use crate::id::SessionId;
use crate::session::record::{Record, Status};

/// What the rows add up to after so many commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tally {
    /// Groups of batches that were committed and synced so far.
    pub(super) commits: u64,
    /// Records.
    pub(super) records: u64,
    /// Statuses.
    pub(super) statuses: u64,
    /// What changes with each row that matters, added up and wrapped.
    pub(super) sum: u64,
}

impl Tally {
    /// Adds up the rows of a mirror.
    fn of(commits: u64, mirror: &Mirror) -> Self {
        let mut tally = Self {
            commits,
            ..Self::default()
        };
        for record in mirror.records.values() {
            tally.records += 1;
            tally.sum = tally.sum.wrapping_add(of_record(record));
        }
        for status in mirror.statuses.values() {
            tally.statuses += 1;
            tally.sum = tally.sum.wrapping_add(of_status(status));
        }
        tally
    }

    /// Returns what the rows add up to after one more commit, of these changes.
    pub(super) fn after(mirror: &Mirror, changes: &Changes) -> Self {
        let before = mirror.meta.tally.unwrap_or_else(|| Self::of(0, mirror));
        let records = change(&mirror.records, &changes.records, of_record);
        let statuses = change(&mirror.statuses, &changes.statuses, of_status);
        Self {
            commits: before.commits + 1,
            records: before.records.wrapping_add(records.rows),
            statuses: before.statuses.wrapping_add(statuses.rows),
            sum: before
                .sum
                .wrapping_add(records.sum)
                .wrapping_add(statuses.sum),
        }
    }
}

/// Checks that a mirror has the rows that were committed last.
pub(super) fn check(mirror: &Mirror) -> Result<(), Fault> {
    let Some(wanted) = mirror.meta.tally else {
        return Ok(());
    };
    let found = Tally::of(wanted.commits, mirror);
    if found == wanted {
        return Ok(());
    }
    Err(Fault::Corrupt(format!(
        "it holds {} sessions and {} statuses, and should hold {} and {}, or they are not the last ones",
        found.records, found.statuses, wanted.records, wanted.statuses
    )))
}

/// What rows were added, or taken away as negative numbers wrap.
#[derive(Default)]
struct Difference {
    rows: u64,
    sum: u64,
}

fn change<T>(
    before: &BTreeMap<SessionId, Arc<T>>,
    changes: &BTreeMap<SessionId, Option<Arc<T>>>,
    weigh: fn(&T) -> u64,
) -> Difference {
    let mut difference = Difference::default();
    for (id, now) in changes {
        if let Some(old) = before.get(id) {
            difference.rows = difference.rows.wrapping_sub(1);
            difference.sum = difference.sum.wrapping_sub(weigh(old));
        }
        if let Some(now) = now {
            difference.rows = difference.rows.wrapping_add(1);
            difference.sum = difference.sum.wrapping_add(weigh(now));
        }
    }
    difference
}

/// Each change of intent raises the generation; a use does not, and is not synced.
fn of_record(record: &Record) -> u64 {
    record.marks.generation
}

/// The key is what the container is found by, so another one weighs otherwise. What is
/// written without a sync, such as a notice that was told, weighs nothing.
fn of_status(status: &Status) -> u64 {
    let key = status.key.as_ref();
    let key = key.and_then(|key| u64::from_str_radix(key.short(), 16).ok());
    status
        .reached
        .wrapping_add(status.incarnation)
        .wrapping_add(key.unwrap_or(0))
}
