//! Decides what the records of a lost store were, from what is left on the host, and which
//! of an older store that was put back still stand.
//!
//! Nothing is ended on doubt, and nothing that was ended comes back: a session whose
//! sidecar says that it is open is asleep until its container is found, and one whose
//! sidecar does not say so is closed, files kept, unless its container is there.

use std::collections::BTreeSet;

use super::record::{Closed, Marks, Parked, Purge, Reason, Record, Spec, Status};
use crate::clock::Timestamp;
use crate::id::{Alias, ContainerKey, Nonce, SessionId, Tenant};
use crate::policy::{Catalogue, Ceilings, Runtime, Source};

/// The generation of a record that was made anew, and that nobody has changed since.
const FIRST: u64 = 1;
/// The highest place in the order of opening that is believed of a file.
const ORDER_MAX: u64 = 1 << 53;

/// What the files of a session say of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The session.
    pub id: SessionId,
    /// The alias it was opened on.
    pub alias: Alias,
    /// The tenant.
    pub tenant: Option<Tenant>,
    /// What its token is derived from.
    pub nonce: Nonce,
    /// When it was opened, where that is known.
    pub opened_at: Option<Timestamp>,
    /// Its place in the order of opening, where that is known.
    pub order: Option<u64>,
    /// Whether it is open.
    pub life: Life,
}

/// Whether a session is open, as far as its files say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// They do not say.
    Unknown,
    /// It is.
    Open,
    /// It was closed then.
    ClosedAt(Timestamp),
}

/// A container that carries the labels of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remnant {
    /// The session of its label.
    pub id: SessionId,
    /// The key of its label.
    pub key: ContainerKey,
    /// The alias of its label.
    pub alias: Alias,
    /// The engine's id.
    pub container: String,
    /// The image it was made from.
    pub image: String,
    /// The hash of its settings, where its label has one.
    pub spec_hash: Option<String>,
    /// When it was made.
    pub created: Timestamp,
    /// When it last started.
    pub started_at: Option<Timestamp>,
    /// Whether it runs, frozen or not.
    pub runs: bool,
}

/// What becomes of the record of a container that was found.
#[derive(Clone, Debug, PartialEq)]
pub enum Adopted {
    /// This is its record.
    Anew(Box<Record>, Box<Status>),
    /// Its record stands, and this is its status.
    Joined(Box<Status>),
    /// It is on record as it is.
    Known,
    /// Another container is on record for the session.
    Surplus,
}

/// What becomes of a record that was there before its session's files were read.
#[derive(Clone, Debug, PartialEq)]
pub enum Amended {
    /// It stands.
    Stands,
    /// The session was closed since.
    Closed(Box<Record>),
    /// The id was opened anew since, and this is the record of that.
    Anew(Box<Record>, Box<Status>),
}

/// What is known when containers are taken over.
#[derive(Clone, Debug)]
pub struct Scene<'a> {
    /// What the runtimes are.
    pub catalogue: &'a Catalogue,
    /// The keys of all containers that are there.
    pub listed: &'a BTreeSet<ContainerKey>,
    /// When the records began to be made anew: what they say from before may be old.
    pub since: Timestamp,
    /// Whether anything has told which sessions were closed or opened since.
    pub told: Told,
    /// The present.
    pub now: Timestamp,
}

/// What has told which sessions were closed or opened since the records were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Their files, as far as there were any.
    ByFiles,
    /// There are no workspaces.
    ByNothing,
}

/// Puts traces in the order of opening, and gives each a place that no other has.
pub fn in_order(traces: &mut [Trace]) {
    for trace in traces.iter_mut() {
        trace.order = trace.order.filter(|order| *order <= ORDER_MAX);
    }
    traces.sort_by_key(|trace| {
        let order = trace.order.unwrap_or(u64::MAX);
        (order, trace.opened_at, trace.id.clone())
    });
    let mut last = 0;
    for trace in traces {
        last = trace.order.unwrap_or(0).max(last + 1);
        trace.order = Some(last);
    }
}

/// Makes the record of a session from what its files say.
///
/// An alias that is not in the catalogue any more leaves the session closed: its
/// files stay under its id, to be opened on another runtime or purged.
pub fn from_files(trace: Trace, catalogue: &Catalogue, now: Timestamp) -> (Record, Status) {
    let runtime = catalogue.get(&trace.alias).cloned();
    let mut marks = Marks::opened(FIRST, now);
    match (trace.life, &runtime) {
        // Until its container is found; without one, its next use starts another.
        (Life::Open, Some(_)) => asleep(&mut marks, now),
        (Life::Open, None) | (Life::Unknown, _) => {
            marks.closed = Some(over(now, Reason::ContainerLost));
        }
        (Life::ClosedAt(at), _) => marks.closed = Some(over(at.min(now), Reason::Requested)),
    }
    let spec = Spec {
        runtime: runtime.unwrap_or_else(|| plain(trace.alias.as_str())),
        id: trace.id,
        alias: trace.alias,
        tenant: trace.tenant,
        nonce: trace.nonce,
        opened_at: trace.opened_at.unwrap_or(now).min(now),
        order: trace.order.unwrap_or(0),
    };
    let status = Status {
        reached: FIRST,
        incarnation: 1,
        since: now,
        ..Status::default()
    };
    (Record { spec, marks }, status)
}

/// Compares a record of an older store with what its session's files say by now.
///
/// What was closed since stays closed, and what was opened anew since is that opening:
/// nothing of it is ended because an earlier one of its id was.
pub fn amend(record: &Record, trace: Trace, catalogue: &Catalogue, now: Timestamp) -> Amended {
    let is_same = record.spec.nonce == trace.nonce;
    if is_same {
        return match trace.life {
            Life::ClosedAt(at) if record.is_open() => {
                let closed = record
                    .marks
                    .closed(at.min(now), Purge::No, Reason::Requested);
                Amended::Closed(Box::new(record.with(closed)))
            }
            // The record is older than the files or says more than they do.
            Life::ClosedAt(_) | Life::Open | Life::Unknown => Amended::Stands,
        };
    }
    let is_later = match trace.order.filter(|order| *order <= ORDER_MAX) {
        Some(order) => record.spec.order < order,
        None => trace.opened_at.is_some_and(|at| record.spec.opened_at < at),
    };
    if !is_later {
        return Amended::Stands;
    }
    let generation = record.marks.generation + 1;
    let (mut anew, mut status) = from_files(trace, catalogue, now);
    anew.marks.generation = generation;
    status.reached = generation;
    Amended::Anew(Box::new(anew), Box::new(status))
}

/// Joins a container to the record of its session, or makes one where there is none.
///
/// A new record has a new nonce, since nothing tells the old one, and the place
/// `order`. A session that was closed, or purged since, stays so; one that is asleep in
/// an older store and runs on the host was woken since, and runs on.
pub fn adopt(
    known: Option<(&Record, &Status)>,
    found: &Remnant,
    order: u64,
    scene: &Scene<'_>,
) -> Adopted {
    let Some((record, status)) = known else {
        let spec = opened_since(found, order, scene);
        let status = Status {
            incarnation: 1,
            since: scene.now,
            ..Status::default()
        };
        return anew(spec, FIRST, (found, &status), scene.now);
    };
    let is_own = match &status.key {
        Some(key) if *key == found.key => true,
        Some(key) if scene.listed.contains(key) => return Adopted::Surplus,
        // The one on record is gone: this one took its place.
        Some(_) | None => false,
    };
    let generation = record.marks.generation + 1;
    match standing(record, status, found, scene) {
        Standing::Up => {
            let spec = Spec {
                runtime: runtime_on_record(record, found, scene.catalogue),
                ..record.spec.clone()
            };
            anew(spec, generation, (found, status), scene.now)
        }
        Standing::OpenedSince => {
            let spec = opened_since(found, order, scene);
            anew(spec, generation, (found, status), scene.now)
        }
        Standing::AsOnRecord if is_own => Adopted::Known,
        Standing::AsOnRecord => Adopted::Joined(Box::new(owning(found, status.clone(), scene.now))),
    }
}

/// Whether what is on record of a session still stands, its container found.
enum Standing {
    AsOnRecord,
    /// It is open and its container is as it should be, whatever the record says.
    Up,
    /// Another opening of its id has the container.
    OpenedSince,
}

fn standing(record: &Record, status: &Status, found: &Remnant, scene: &Scene<'_>) -> Standing {
    let is_older = |at: Timestamp| at < scene.since;
    match (&record.marks.closed, &record.marks.parked) {
        (None, None) => Standing::AsOnRecord,
        (None, Some(parked)) => {
            let is_doubtful = parked.reason == Reason::ContainerLost || is_older(parked.at);
            if found.runs && is_doubtful {
                Standing::Up
            } else {
                Standing::AsOnRecord
            }
        }
        (Some(closed), _) => {
            let is_doubtful = closed.purge == Purge::No && closed.reason == Reason::ContainerLost;
            // Its files did not say so: they did not say anything.
            if is_doubtful && !is_older(closed.at) {
                return Standing::Up;
            }
            let is_another = status.key.as_ref().is_some_and(|key| *key != found.key);
            let may_be_over = closed.purge == Purge::No || is_another;
            match scene.told {
                Told::ByNothing if is_older(closed.at) && found.runs && may_be_over => {
                    Standing::OpenedSince
                }
                Told::ByNothing | Told::ByFiles => Standing::AsOnRecord,
            }
        }
    }
}

/// Makes what is to be known of an opening that no record tells of.
fn opened_since(found: &Remnant, order: u64, scene: &Scene<'_>) -> Spec {
    Spec {
        id: found.id.clone(),
        alias: found.alias.clone(),
        runtime: runtime_of(found, scene.catalogue),
        tenant: None,
        nonce: Nonce::random(),
        opened_at: found.created.min(scene.now),
        order,
    }
}

/// Makes the record of an open session that has a container.
fn anew(
    spec: Spec,
    generation: u64,
    (found, status): (&Remnant, &Status),
    now: Timestamp,
) -> Adopted {
    let mut marks = Marks::opened(generation, now);
    if !found.runs {
        asleep(&mut marks, now);
    }
    let status = Status {
        reached: generation,
        ..status.clone()
    };
    let record = Record { spec, marks };
    Adopted::Anew(Box::new(record), Box::new(owning(found, status, now)))
}

/// Has a status own a container.
///
/// The life that it was found in is the one on record, unless none is: a life that began
/// since is noticed by the next look.
fn owning(found: &Remnant, status: Status, now: Timestamp) -> Status {
    let is_other = status.container.as_ref() != Some(&found.container);
    Status {
        former: if is_other {
            let before = status.parted(now).into_iter();
            before
                .filter(|former| former.container != found.container)
                .collect()
        } else {
            status.former.clone()
        },
        key: Some(found.key.clone()),
        container: Some(found.container.clone()),
        started_at: status.started_at.or(found.started_at),
        spec_hash: found.spec_hash.clone(),
        ..status
    }
}

/// The runtime that a session was opened on, or one that does with the container's own
/// image where only its alias was known, and means nothing any more.
fn runtime_on_record(record: &Record, found: &Remnant, catalogue: &Catalogue) -> Runtime {
    if record.spec.runtime == plain(record.spec.alias.as_str()) {
        runtime_of(found, catalogue)
    } else {
        record.spec.runtime.clone()
    }
}

/// The catalogue's runtime, or one that does with the container's own image.
fn runtime_of(found: &Remnant, catalogue: &Catalogue) -> Runtime {
    let runtime = catalogue.get(&found.alias).cloned();
    runtime.unwrap_or_else(|| plain(&found.image))
}

fn plain(image: &str) -> Runtime {
    Runtime {
        source: Source::Image(image.to_owned()),
        description: "not in the catalogue when the store was rebuilt".to_owned(),
        ceilings: Ceilings::default(),
        keep_awake: crate::policy::KeepAwake::No,
        users: crate::policy::Users::Own,
    }
}

fn asleep(marks: &mut Marks, now: Timestamp) {
    marks.parked = Some(Parked {
        at: now,
        reason: Reason::ContainerLost,
    });
    marks.slept = Some(Reason::ContainerLost);
}

fn over(at: Timestamp, reason: Reason) -> Closed {
    Closed {
        at,
        purge: Purge::No,
        reason,
    }
}

#[cfg(test)]
mod tests;
