//! Adds up what a store holds, so that one that lost rows, or went back to older ones,
//! is not taken for a whole one.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::error::Fault;
use super::mirror::{Changes, Mirror};
use super::runs::StoredRun;
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
    /// What the runs add up to; none where the build that wrote it knew of no runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) runs: Option<Runs>,
}

/// What the runs add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Runs {
    /// How many there are.
    pub(super) rows: u64,
    /// How many of them are over.
    pub(super) over: u64,
}

impl Tally {
    /// Adds up the rows of a mirror.
    pub(super) fn of(commits: u64, mirror: &Mirror) -> Self {
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
        tally.runs = Some(Runs {
            rows: u64::try_from(mirror.runs.len()).unwrap_or(u64::MAX),
            over: mirror.runs.values().map(|run| of_run(run)).sum(),
        });
        tally
    }

    /// Returns what the rows add up to after one more commit, of these changes.
    pub(super) fn after(mirror: &Mirror, changes: &Changes) -> Self {
        let before = mirror.meta.tally.unwrap_or_else(|| Self::of(0, mirror));
        let records = change(&mirror.records, &changes.records, of_record);
        let statuses = change(&mirror.statuses, &changes.statuses, of_status);
        let runs = change(&mirror.runs, &changes.runs, of_run);
        let runs_before = before.runs.or_else(|| Self::of(0, mirror).runs);
        let runs_before = runs_before.unwrap_or_default();
        Self {
            commits: before.commits + 1,
            records: before.records.wrapping_add(records.rows),
            statuses: before.statuses.wrapping_add(statuses.rows),
            sum: before
                .sum
                .wrapping_add(records.sum)
                .wrapping_add(statuses.sum),
            runs: Some(Runs {
                rows: runs_before.rows.wrapping_add(runs.rows),
                over: runs_before.over.wrapping_add(runs.sum),
            }),
        }
    }
}

/// Checks that a mirror has the rows that were committed last.
pub(super) fn check(mirror: &Mirror) -> Result<(), Fault> {
    let Some(wanted) = mirror.meta.tally else {
        return Ok(());
    };
    let mut found = Tally::of(wanted.commits, mirror);
    if wanted.runs.is_none() {
        found.runs = None;
    }
    if found == wanted {
        return Ok(());
    }
    if found.runs != wanted.runs {
        let rows = |tally: Tally| tally.runs.unwrap_or_default().rows;
        return Err(Fault::Corrupt(format!(
            "it holds {} runs, and should hold {}, or they are not the last ones",
            rows(found),
            rows(wanted)
        )));
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

fn change<K: Ord, T>(
    before: &BTreeMap<K, Arc<T>>,
    changes: &BTreeMap<K, Option<Arc<T>>>,
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

/// A run is written twice: when it begins, and when it is over.
fn of_run(run: &StoredRun) -> u64 {
    u64::from(run.ended.is_some())
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
