//! Holds in memory what has been committed; readers look here.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::events::{Log, Span};
use super::meta::Meta;
use super::runs::{Place, StoredRun};
use crate::id::SessionId;
use crate::session::record::{Record, Status};

/// What has been committed, but for the events themselves.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Mirror {
    pub(super) meta: Meta,
    pub(super) records: BTreeMap<SessionId, Arc<Record>>,
    pub(super) statuses: BTreeMap<SessionId, Arc<Status>>,
    pub(super) runs: BTreeMap<Place, Arc<StoredRun>>,
    pub(super) logs: BTreeMap<Log, Span>,
}

/// What differs from the mirror; `None` says that an entry is gone.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) meta: Option<Meta>,
    pub(super) records: BTreeMap<SessionId, Option<Arc<Record>>>,
    pub(super) statuses: BTreeMap<SessionId, Option<Arc<Status>>>,
    pub(super) runs: BTreeMap<Place, Option<Arc<StoredRun>>>,
    pub(super) logs: BTreeMap<Log, Option<Span>>,
}

impl Mirror {
    /// Makes the mirror of a store that holds nothing.
    pub(super) fn empty(meta: Meta) -> Self {
        Self {
            meta,
            records: BTreeMap::new(),
            statuses: BTreeMap::new(),
            runs: BTreeMap::new(),
            logs: BTreeMap::new(),
        }
    }

    /// Returns the highest place in the order of opening given out so far.
    pub(super) fn order(&self) -> u64 {
        let records = self.records.values().map(|record| record.spec.order);
        records.fold(self.meta.order, u64::max)
    }

    /// Returns the last sequence number of the service's log; 0 where there is none.
    pub(super) fn service_log_end(&self) -> u64 {
        self.logs.get(&None).map_or(0, |span| span.latest)
    }

    /// Takes over what has been committed.
    pub(super) fn absorb(&mut self, changes: Changes) {
        if let Some(meta) = changes.meta {
            self.meta = meta;
        }
        absorb(&mut self.records, changes.records);
        absorb(&mut self.statuses, changes.statuses);
        absorb(&mut self.runs, changes.runs);
        absorb(&mut self.logs, changes.logs);
    }
}

impl Changes {
    /// Adds later changes to these.
    pub(super) fn extend(&mut self, later: Self) {
        self.meta = later.meta.or_else(|| self.meta.take());
        self.records.extend(later.records);
        self.statuses.extend(later.statuses);
        self.runs.extend(later.runs);
        self.logs.extend(later.logs);
    }
}

fn absorb<K: Ord, V>(base: &mut BTreeMap<K, V>, changes: BTreeMap<K, Option<V>>) {
    for (key, value) in changes {
        match value {
            Some(value) => base.insert(key, value),
            None => base.remove(&key),
        };
    }
}
