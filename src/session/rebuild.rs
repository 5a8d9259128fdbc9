//! Decides what the records of a lost store were, from what is left on the host.
//!
//! Nothing is ended on doubt, and nothing that was ended comes back: a session whose
//! sidecar says that it is open is asleep until its container is found, and one whose
//! sidecar does not say so is closed, files kept, unless its container is there.

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

/// Joins a container to the record of its session, or makes one where there is none.
///
/// A new record has a new nonce, since nothing tells the old one, and the place
/// `order`. A session that was closed, or purged since, stays so.
pub fn adopt(
    known: Option<(&Record, &Status)>,
    found: &Remnant,
    catalogue: &Catalogue,
    order: u64,
    now: Timestamp,
) -> Adopted {
    let Some((record, status)) = known else {
        let spec = Spec {
            id: found.id.clone(),
            alias: found.alias.clone(),
            runtime: runtime_of(found, catalogue),
            tenant: None,
            nonce: Nonce::random(),
            opened_at: found.created.min(now),
            order,
        };
        return anew(spec, FIRST, found, now);
    };
    match &status.key {
        Some(key) if *key == found.key => return Adopted::Known,
        Some(_) => return Adopted::Surplus,
        None => {}
    }
    let is_untouched = record.marks.generation == FIRST;
    let is_doubtful = match &record.marks.closed {
        None => found.runs,
        Some(closed) => closed.purge == Purge::No && closed.reason == Reason::ContainerLost,
    };
    if is_untouched && is_doubtful {
        let spec = Spec {
            runtime: runtime_of(found, catalogue),
            ..record.spec.clone()
        };
        return anew(spec, FIRST + 1, found, now);
    }
    Adopted::Joined(Box::new(owning(found, status.clone())))
}

/// Makes the record of an open session that has a container.
fn anew(spec: Spec, generation: u64, found: &Remnant, now: Timestamp) -> Adopted {
    let mut marks = Marks::opened(generation, now);
    if !found.runs {
        asleep(&mut marks, now);
    }
    let status = Status {
        reached: generation,
        incarnation: 1,
        since: now,
        ..Status::default()
    };
    let record = Record { spec, marks };
    Adopted::Anew(Box::new(record), Box::new(owning(found, status)))
}

/// Has a status own a container, in the life that it was found in.
fn owning(found: &Remnant, status: Status) -> Status {
    Status {
        key: Some(found.key.clone()),
        container: Some(found.container.clone()),
        started_at: found.started_at,
        spec_hash: found.spec_hash.clone(),
        ..status
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
mod tests {
    use super::*;
    use crate::session::testing;

    const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

    fn trace(id: &str, life: Life) -> Trace {
        Trace {
            id: SessionId::parse(id).unwrap(),
            alias: Alias::parse("bb").unwrap(),
            tenant: Tenant::parse("acme").ok(),
            nonce: Nonce::random(),
            opened_at: Some(Timestamp::from_secs(1_600_000_000)),
            order: Some(3),
            life,
        }
    }

    fn remnant(id: &str, runs: bool) -> Remnant {
        Remnant {
            id: SessionId::parse(id).unwrap(),
            key: ContainerKey::random(),
            alias: Alias::parse("bb").unwrap(),
            container: "4f53cda18c2b".to_owned(),
            image: "busybox".to_owned(),
            spec_hash: Some("ab12".to_owned()),
            created: Timestamp::from_secs(1_650_000_000),
            started_at: Some(Timestamp::from_secs(1_650_000_001)),
            runs,
        }
    }

    fn rebuilt(trace: Trace) -> (Record, Status) {
        from_files(trace, &testing::policy().catalogue, NOW)
    }

    fn found(known: &(Record, Status), remnant: &Remnant) -> Adopted {
        let catalogue = &testing::policy().catalogue;
        adopt(Some((&known.0, &known.1)), remnant, catalogue, 9, NOW)
    }

    #[test]
    fn an_open_session_keeps_its_nonce_and_sleeps_until_its_container_is_found() {
        let known = rebuilt(trace("a", Life::Open));
        assert!(known.0.is_open() && known.0.marks.parked.is_some());
        let Adopted::Anew(record, status) = found(&known, &remnant("a", true)) else {
            panic!("it was found running");
        };
        assert_eq!(record.spec, known.0.spec);
        assert_eq!((&record.marks.parked, record.marks.generation), (&None, 2));
        assert!(status.has_reached(&record.marks));
        assert_eq!(
            status.started_at,
            remnant("a", true).started_at,
            "the same life"
        );
        let stopped = remnant("a", false);
        let joined = found(&known, &stopped);
        assert!(matches!(joined, Adopted::Joined(status) if status.key == Some(stopped.key)));
    }

    #[test]
    fn a_closed_session_stays_closed_whatever_is_found_of_it() {
        let at = Timestamp::from_secs(1_650_000_500);
        let known = rebuilt(trace("a", Life::ClosedAt(at)));
        assert_eq!(
            known.0.marks.closed.as_ref().map(|closed| closed.at),
            Some(at)
        );
        assert!(matches!(
            found(&known, &remnant("a", true)),
            Adopted::Joined(_)
        ));
    }

    #[test]
    fn what_does_not_say_that_it_is_open_is_closed_unless_its_container_is_there() {
        let known = rebuilt(trace("a", Life::Unknown));
        assert!(!known.0.is_open());
        for runs in [true, false] {
            let Adopted::Anew(record, _) = found(&known, &remnant("a", runs)) else {
                panic!("its container is there");
            };
            assert!(record.is_open());
            assert_eq!(record.spec.nonce, known.0.spec.nonce);
            assert_eq!(record.marks.parked.is_none(), runs);
        }
    }

    #[test]
    fn an_alias_that_is_gone_leaves_the_session_closed_unless_its_container_is_there() {
        let gone = Trace {
            alias: Alias::parse("gone").unwrap(),
            ..trace("a", Life::Open)
        };
        let known = rebuilt(gone);
        assert!(!known.0.is_open());
        let runs = Remnant {
            alias: Alias::parse("gone").unwrap(),
            ..remnant("a", true)
        };
        let Adopted::Anew(record, _) = found(&known, &runs) else {
            panic!("its container runs");
        };
        assert_eq!(record.spec.runtime.ready_image(), Some("busybox"));
    }

    #[test]
    fn a_container_without_files_is_adopted_under_a_new_nonce() {
        let catalogue = &testing::policy().catalogue;
        let Adopted::Anew(record, status) = adopt(None, &remnant("b", true), catalogue, 9, NOW)
        else {
            panic!("there is no record");
        };
        assert!(record.is_open() && record.spec.order == 9);
        assert_eq!(status.container.as_deref(), Some("4f53cda18c2b"));
    }

    #[test]
    fn what_a_caller_ended_since_is_not_opened_again_and_a_second_container_is_surplus() {
        let (record, status) = rebuilt(trace("a", Life::Open));
        let purged = record.with(record.marks.closed(NOW, Purge::Yes, Reason::Requested));
        let joined = found(&(purged, status.clone()), &remnant("a", true));
        assert!(matches!(joined, Adopted::Joined(_)));
        let owned = Status {
            key: Some(ContainerKey::random()),
            ..status.clone()
        };
        let remnant = remnant("a", true);
        assert_eq!(found(&(record.clone(), owned), &remnant), Adopted::Surplus);
        let Adopted::Anew(again, status) = found(&(record, status), &remnant) else {
            panic!("it is its container");
        };
        let again = (*again, *status);
        assert_eq!(found(&again, &remnant), Adopted::Known, "at the next start");
    }

    #[test]
    fn places_are_kept_and_given_once_and_absurd_ones_are_not_believed() {
        let place = |id: &str, order| Trace {
            order,
            ..trace(id, Life::Open)
        };
        let mut traces = [
            place("d", Some(u64::MAX)),
            place("c", None),
            place("b", Some(7)),
            place("a", Some(7)),
        ];
        in_order(&mut traces);
        let places: Vec<_> = traces
            .iter()
            .map(|trace| (trace.id.as_str(), trace.order))
            .collect();
        assert_eq!(
            places,
            [
                ("a", Some(7)),
                ("b", Some(8)),
                ("c", Some(9)),
                ("d", Some(10))
            ]
        );
    }
}
