//! Checks what becomes of records of a lost store, and of one that was restored.

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

/// Takes a container over where the engine has these, of a store lost just now.
fn found_among(
    known: Option<&(Record, Status)>,
    remnant: &Remnant,
    others: &[&Remnant],
    told: Told,
) -> Adopted {
    let all = others.iter().chain([&remnant]);
    let listed = all.map(|remnant| remnant.key.clone()).collect();
    let scene = Scene {
        catalogue: &testing::policy().catalogue,
        listed: &listed,
        since: NOW,
        told,
        now: NOW,
    };
    let known = known.map(|(record, status)| (record, status));
    adopt(known, remnant, 9, &scene)
}

fn found(known: &(Record, Status), remnant: &Remnant) -> Adopted {
    found_among(Some(known), remnant, &[], Told::ByFiles)
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
    let Adopted::Anew(record, status) = found_among(None, &remnant("b", true), &[], Told::ByFiles)
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
    let other = remnant("a", true);
    let owned = Status {
        key: Some(other.key.clone()),
        ..status.clone()
    };
    let remnant = remnant("a", true);
    let both = found_among(
        Some(&(record.clone(), owned)),
        &remnant,
        &[&other],
        Told::ByFiles,
    );
    assert_eq!(both, Adopted::Surplus);
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

const BACKUP: Timestamp = Timestamp::from_secs(1_690_000_000);

/// A session of a backup that ran then, with the container that it had.
fn backed_up() -> ((Record, Status), Remnant) {
    let had = remnant("a", true);
    let (mut record, mut status) = rebuilt(trace("a", Life::Open));
    record.marks = Marks::opened(4, BACKUP);
    status = Status {
        reached: 4,
        incarnation: 2,
        key: Some(had.key.clone()),
        container: Some(had.container.clone()),
        started_at: had.started_at,
        ..status
    };
    ((record, status), had)
}

/// What the files of that session say by now.
fn says(known: &(Record, Status), life: Life) -> Trace {
    Trace {
        nonce: known.0.spec.nonce.clone(),
        order: Some(known.0.spec.order),
        ..trace("a", life)
    }
}

fn amended(known: &(Record, Status), trace: Trace) -> Amended {
    amend(&known.0, trace, &testing::policy().catalogue, NOW)
}

#[test]
fn what_was_closed_after_the_backup_stays_closed_and_what_was_not_stands() {
    let (known, _) = backed_up();
    let at = Timestamp::from_secs(1_695_000_000);
    let Amended::Closed(record) = amended(&known, says(&known, Life::ClosedAt(at))) else {
        panic!("its files say that it was closed");
    };
    let closed = record.marks.closed.as_ref().unwrap();
    assert_eq!((closed.at, closed.purge), (at, Purge::No));
    assert_eq!(record.marks.generation, 5);
    let once = ((*record).clone(), known.1.clone());
    let again = amended(&once, says(&once, Life::ClosedAt(at)));
    assert_eq!(again, Amended::Stands);
    for life in [Life::Open, Life::Unknown] {
        assert_eq!(amended(&known, says(&known, life)), Amended::Stands);
    }
    // Neither is a closing undone that its files were not told of.
    let closed = known
        .0
        .with(known.0.marks.closed(BACKUP, Purge::No, Reason::Idle));
    let known = (closed, known.1);
    for life in [Life::Open, Life::ClosedAt(at)] {
        assert_eq!(amended(&known, says(&known, life)), Amended::Stands);
    }
}

#[test]
fn an_id_that_was_opened_anew_after_the_backup_is_that_opening_whatever_its_record_was() {
    let (known, _) = backed_up();
    let marks = &known.0.marks;
    for marks in [
        marks.clone(),
        marks.closed(BACKUP, Purge::No, Reason::Requested),
        marks.closed(BACKUP, Purge::Yes, Reason::Requested),
    ] {
        let known = (known.0.with(marks.clone()), known.1.clone());
        let since = Trace {
            order: Some(known.0.spec.order + 1),
            ..trace("a", Life::Open)
        };
        let Amended::Anew(record, status) = amended(&known, since.clone()) else {
            panic!("its files are those of a later opening");
        };
        assert_eq!(record.spec.nonce, since.nonce);
        assert!(record.is_open() && marks.generation < record.marks.generation);
        let once = ((*record).clone(), (*status).clone());
        let again = amended(&once, since.clone());
        assert_eq!(
            again,
            Amended::Stands,
            "a start that was cut off does it once"
        );
        // Its container is taken over, of whatever key.
        let remnant = remnant("a", true);
        let Adopted::Anew(record, status) = found(&(*record, *status), &remnant) else {
            panic!("it runs");
        };
        assert!(record.marks.parked.is_none() && status.has_reached(&record.marks));
        // An earlier opening's files change nothing.
        let before = Trace {
            order: Some(known.0.spec.order - 1),
            ..since
        };
        assert_eq!(amended(&known, before), Amended::Stands);
    }
}

#[test]
fn what_slept_at_the_backup_and_runs_now_was_woken_and_runs_on() {
    let ((record, status), had) = backed_up();
    let asleep = record.with(record.marks.parked(BACKUP, Reason::Idle));
    let known = (asleep, status);
    let Adopted::Anew(record, status) = found(&known, &had) else {
        panic!("it was woken since");
    };
    assert_eq!(record.marks.parked, None);
    assert_eq!(record.spec, known.0.spec);
    assert_eq!(
        (&status.key, status.incarnation),
        (&Some(had.key.clone()), 2)
    );
    let stopped = Remnant {
        runs: false,
        ..had.clone()
    };
    assert_eq!(found(&known, &stopped), Adopted::Known, "it sleeps on");
    // What a caller has put to sleep since the restore sleeps.
    let later = known.0.with(known.0.marks.parked(NOW, Reason::Requested));
    assert_eq!(found(&(later, known.1), &had), Adopted::Known);
}

#[test]
fn a_container_that_took_the_place_of_the_one_on_record_is_taken_over() {
    let (known, had) = backed_up();
    let other = Remnant {
        container: "5a64dbb29d3c".to_owned(),
        started_at: Some(NOW),
        ..remnant("a", true)
    };
    let Adopted::Joined(status) = found(&known, &other) else {
        panic!("the one on record is gone");
    };
    assert_eq!(status.key, Some(other.key.clone()));
    // So that the next look notices another life of it, and processes of the old one.
    assert_eq!(status.started_at, had.started_at);
    assert_eq!(status.former.len(), 1);
    let both = found_among(Some(&known), &other, &[&had], Told::ByFiles);
    assert_eq!(both, Adopted::Surplus);
    let own = found_among(Some(&known), &had, &[&other], Told::ByFiles);
    assert_eq!(own, Adopted::Known);
}

#[test]
fn without_workspaces_what_runs_was_opened_after_it_was_closed() {
    let ((record, status), had) = backed_up();
    let closed = |purge| {
        let marks = record.marks.closed(BACKUP, purge, Reason::Requested);
        (record.with(marks), status.clone())
    };
    let other = remnant("a", true);
    for (purge, remnant, is_open) in [
        (Purge::No, &had, true),
        (Purge::No, &other, true),
        (Purge::Yes, &other, true),
        // A removal that was under way at the backup goes on.
        (Purge::Yes, &had, false),
    ] {
        let adopted = found_among(Some(&closed(purge)), remnant, &[], Told::ByNothing);
        match adopted {
            Adopted::Anew(anew, _) => {
                assert!(is_open && anew.is_open());
                assert_ne!(anew.spec.nonce, record.spec.nonce);
            }
            Adopted::Joined(_) | Adopted::Known | Adopted::Surplus => assert!(!is_open),
        }
        // Where there are files, they would have said so.
        let told = found_among(Some(&closed(purge)), remnant, &[], Told::ByFiles);
        assert!(matches!(told, Adopted::Known | Adopted::Joined(_)));
    }
}
