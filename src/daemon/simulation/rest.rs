//! What everything should be once nothing goes wrong any more.

use std::collections::BTreeSet;
use std::fs;

use super::engine::{Container, Containers, Doing};
use super::life::Settled;
use crate::policy::{Home, Persist};
use crate::reconcile::are_held_back;
use crate::session::record::{Record, Status};
use crate::store::Store;

/// Says what differs between the records and the host.
pub(super) fn unlike(store: &Store, engine: &Containers, settled: &Settled) -> Vec<String> {
    let mut unlike = Vec::new();
    let mut keys = BTreeSet::new();
    for record in store.records() {
        let status = store.status(&record.spec.id).unwrap_or_default();
        let key = status.key.as_ref().map(|key| key.as_str().to_owned());
        let its: Vec<&Container> = engine
            .all()
            .filter(|one| one.key().is_some() && one.key() == key.as_deref())
            .collect();
        keys.extend(key);
        let id = &record.spec.id;
        unlike.extend(of_one(&record, &status, &its, settled).map(|what| format!("{id}: {what}")));
    }
    let is_stray = |one: &&Container| !one.key().is_some_and(|key| keys.contains(key));
    let strays: Vec<&Container> = engine.all().filter(is_stray).collect();
    // Of so many an operator is told, and none goes by itself.
    if !are_held_back(strays.len(), engine.all().count()) {
        for stray in strays {
            let session = stray.session();
            unlike.push(format!("a container of {session:?} belongs to no record"));
        }
    }
    let known = |name: &str| {
        let mut records = store.records().into_iter();
        records.any(|record| record.spec.id.as_str() == name)
    };
    let homes = settled.root().and_then(|root| fs::read_dir(root).ok());
    for entry in homes.into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') && !known(&name) {
            unlike.push(format!("the workspace of {name} belongs to no record"));
        }
    }
    unlike
}

fn of_one(
    record: &Record,
    status: &Status,
    its: &[&Container],
    settled: &Settled,
) -> Option<String> {
    let marks = &record.marks;
    if !status.has_reached(marks) {
        let why = &status.last_error;
        return Some(format!("it does not get where it should be: {why:?}"));
    }
    let n_running = its.iter().filter(|one| one.doing == Doing::Running).count();
    let wanted = usize::from(record.is_open() && marks.parked.is_none());
    if n_running != wanted {
        return Some(format!("{n_running} containers run instead of {wanted}"));
    }
    let keeps_files = settled.home == Home::Container && record.is_open();
    let may_stay = settled.terms.lifetimes.persist == Persist::Yes || keeps_files;
    if wanted == 0 && !may_stay && !its.is_empty() {
        return Some("it keeps a container that should be gone".to_owned());
    }
    None
}
