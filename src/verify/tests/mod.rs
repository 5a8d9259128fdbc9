//! Breaks one thing at a time in a service that is well, and sees what is found.

mod service;
mod sessions;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use super::*;
use crate::clock::Timestamp;
use crate::docker::inspect::{MountPoint, State, Summary};
use crate::id::{ContainerKey, InstanceId, SessionId, Tenant};
use crate::policy::Capacity;
use crate::session::blueprint::{LABEL_INSTANCE, LABEL_KEY};
use crate::session::record::{Event, Marks, Purge, Reason, Record, Status};
use crate::session::testing;
use crate::store::Health;

const NOW: Timestamp = Timestamp::from_secs(1_700_001_000);

fn id(text: &str) -> SessionId {
    SessionId::parse(text).unwrap()
}

fn instance() -> InstanceId {
    InstanceId::parse(&"1".repeat(32)).unwrap()
}

fn key(digit: char) -> ContainerKey {
    ContainerKey::parse(&digit.to_string().repeat(32)).unwrap()
}

/// A container of ours, of the session whose key is made of this digit.
fn line(container: &str, digit: char, state: State) -> Summary {
    Summary {
        id: container.to_owned(),
        name: format!("sandboxd-{container}-{}", key(digit).short()),
        created: NOW,
        image: testing::IMAGE.to_owned(),
        image_id: "sha256:0".to_owned(),
        labels: BTreeMap::from([
            (LABEL_INSTANCE.to_owned(), instance().to_string()),
            (LABEL_KEY.to_owned(), key(digit).to_string()),
        ]),
        state,
        mounts: vec![MountPoint {
            kind: "bind".to_owned(),
            source: "/w/workspace".to_owned(),
            destination: "/workspace".to_owned(),
            ..MountPoint::default()
        }],
    }
}

fn session(name: &str, digit: char, order: u64) -> SessionSeen {
    let mut record = testing::record(name);
    record.spec.order = order;
    record.spec.tenant = Some(Tenant::parse("acme").unwrap());
    let status = Status {
        reached: 1,
        key: Some(key(digit)),
        container: Some(format!("c-{name}")),
        incarnation: 1,
        ..Status::default()
    };
    SessionSeen {
        record: Arc::new(record),
        status: Some(Arc::new(status)),
        motion: Motion::Still,
    }
}

fn remark(session: &mut SessionSeen, marks: impl FnOnce(&Marks) -> Marks) {
    let record: &Record = &session.record;
    let marks = Marks {
        generation: record.marks.generation,
        ..marks(&record.marks)
    };
    session.record = Arc::new(record.with(marks));
}

fn command(ok: bool, detail: &str) -> (SessionId, u64, Event) {
    let event = Event {
        at: NOW,
        op: "exec".to_owned(),
        target: "true".to_owned(),
        ok,
        detail: detail.to_owned(),
        duration_us: 1,
        request_id: None,
        facts: BTreeMap::new(),
    };
    (id("up"), 7, event)
}

const ROOMY: Space = Space {
    free_bytes: 1 << 40,
    bytes: 1 << 41,
    free_files: None,
};

/// A service that is well: one session up, one asleep, one closed with its files.
fn base() -> Seen {
    let mut asleep = session("asleep", 'b', 2);
    remark(&mut asleep, |marks| marks.parked(NOW, Reason::Evicted));
    let mut over = session("over", 'c', 3);
    remark(&mut over, |marks| {
        marks.closed(NOW, Purge::No, Reason::Requested)
    });
    let home = Home {
        workspace: Presence::There,
        sidecar: Presence::There,
    };
    let names = ["up", "asleep", "over"];
    let sessions = [session("up", 'a', 1), asleep, over];
    let contents = Contents {
        health: Health::Ok,
        instance: instance(),
        token_key_id: Some("k1".to_owned()),
        engine_id: Some("engine".to_owned()),
        set_aside: None,
        sessions: names.map(id).into_iter().zip(sessions).collect(),
        departed: BTreeSet::new(),
        runs: names.map(id).into(),
        logs: names.map(id).into(),
        commands: Ok(vec![
            command(true, "exit 0"),
            command(false, "exit 137"),
            command(false, "container_lost"),
            command(false, ""),
        ]),
    };
    Seen {
        now: NOW,
        capacity: Capacity {
            max_sessions: Some(1),
            max_open_sessions: Some(2),
            max_sessions_per_tenant: Some(2),
            evict_idle_after: None,
        },
        store: StoreSeen::Read(Box::new(contents)),
        marker: Ok(Some(instance())),
        key: Ok(Some(KeySeen {
            path: PathBuf::from("/s/token.key"),
            id: Some("k1".to_owned()),
            mode: 0o600,
        })),
        engine: EngineSeen::Answered {
            id: "engine".to_owned(),
            version: "25.0.0".to_owned(),
            api: (1, 44),
            cgroup: "2".to_owned(),
            live_restore: true,
        },
        ours: Ok(vec![
            line("c-up", 'a', State::Running),
            line("c-asleep", 'b', State::Exited),
        ]),
        namesakes: Ok(vec![line("c-up", 'a', State::Running)]),
        groups: Ok(BTreeMap::from([
            ("c-up".to_owned(), 3),
            ("c-asleep".to_owned(), 0),
        ])),
        usage_visible: Some(true),
        root: Some(Ok(RootSeen {
            homes: names.map(|name| (id(name), home)).into(),
            ..RootSeen::default()
        })),
        spaces: vec![("the state directory", PathBuf::from("/s"), Ok(ROOMY))],
    }
}

fn kinds(seen: &Seen) -> BTreeSet<Kind> {
    verify(seen).iter().map(|finding| finding.kind).collect()
}

fn contents(seen: &mut Seen) -> &mut Contents {
    match &mut seen.store {
        StoreSeen::Read(contents) => contents,
        StoreSeen::Nothing | StoreSeen::Broken(_) | StoreSeen::Unseen(_) => {
            panic!("the base has a store")
        }
    }
}

fn with_session(name: &str, change: impl FnOnce(&mut SessionSeen)) -> impl FnOnce(&mut Seen) {
    let name = id(name);
    move |seen| change(contents(seen).sessions.get_mut(&name).unwrap())
}

fn with_status(name: &str, change: impl FnOnce(&mut Status)) -> impl FnOnce(&mut Seen) {
    with_session(name, |session| {
        let status = session.status.as_mut().unwrap();
        change(Arc::make_mut(status));
    })
}

fn root(seen: &mut Seen) -> &mut RootSeen {
    seen.root.as_mut().unwrap().as_mut().unwrap()
}

fn ours(seen: &mut Seen) -> &mut Vec<Summary> {
    seen.ours.as_mut().unwrap()
}

fn namesake(seen: &mut Seen, name: &str, instance: Option<&str>) {
    let mut other = line("other", 'f', State::Running);
    other.name = name.to_owned();
    other.labels.clear();
    let labels = instance.map(|instance| (LABEL_INSTANCE.to_owned(), instance.to_owned()));
    other.labels.extend(labels);
    seen.namesakes.as_mut().unwrap().push(other);
}

fn engine(seen: &mut Seen, api: (u16, u16), live_restore: bool, id: &str) {
    seen.engine = EngineSeen::Answered {
        id: id.to_owned(),
        version: "x".to_owned(),
        api,
        cgroup: "1".to_owned(),
        live_restore,
    };
}

type Change = Box<dyn FnOnce(&mut Seen)>;

/// One change for each thing that can be found.
fn changes() -> Vec<(Kind, Change)> {
    let all = [
        sessions::records(),
        sessions::containers(),
        sessions::room(),
        service::remains(),
        service::store(),
        service::host(),
    ];
    all.into_iter().flatten().collect()
}

fn changed(change: impl FnOnce(&mut Seen) + 'static) -> Change {
    Box::new(change)
}

/// What is found besides, where one cause has two faces.
const COMPANIONS: &[(Kind, &[Kind])] = &[
    (Kind::ContainersUnseen, &[Kind::GroupsUnseen]),
    (Kind::StartFails, &[Kind::SessionMoving]),
    (Kind::RecordsUnseen, &[Kind::StoreUnseen]),
    (Kind::StoreUnseen, &[Kind::RecordsUnseen]),
    (Kind::StoreBroken, &[Kind::RecordsUnseen]),
    (Kind::ResidentOver, &[Kind::RunningOver]),
    (Kind::RunningOver, &[Kind::RunsUnasked]),
];

#[test]
fn a_service_that_is_well_is_clean() {
    let findings = verify(&base());
    let grave = findings.iter().filter(|one| one.kind.level() != Level::Ok);
    assert_eq!(grave.collect::<Vec<_>>(), Vec::<&Finding>::new());
    // Every check has a line of its own.
    let checks: BTreeSet<&str> = findings.iter().map(|one| one.kind.check()).collect();
    let all: BTreeSet<&str> = Kind::ALL.iter().map(|kind| kind.check()).collect();
    assert_eq!(checks, all);
}

#[test]
fn each_broken_thing_is_found_and_nothing_else_is() {
    let well = kinds(&base());
    for (kind, change) in changes() {
        let mut seen = base();
        change(&mut seen);
        let found = kinds(&seen);
        assert!(found.contains(&kind), "{kind:?} is not found: {found:?}");
        let companions = COMPANIONS.iter().filter(|(cause, _)| *cause == kind);
        let expected: BTreeSet<Kind> = companions
            .flat_map(|(_, faces)| faces.iter().copied())
            .chain([kind])
            .collect();
        let more: BTreeSet<Kind> = found.difference(&well).copied().collect();
        assert_eq!(more, expected, "{kind:?}");
    }
}

#[test]
fn everything_that_can_be_found_is_broken_once_or_said_of_what_is_well() {
    let broken: BTreeSet<Kind> = changes().into_iter().map(|(kind, _)| kind).collect();
    let well = kinds(&base());
    let all: BTreeSet<Kind> = Kind::ALL.iter().copied().collect();
    assert_eq!(broken.union(&well).copied().collect::<BTreeSet<_>>(), all);
    for kind in Kind::ALL {
        let has_remedy = !kind.remedy().is_empty();
        assert!(has_remedy || kind.level() == Level::Ok, "{kind:?}");
    }
    let names: BTreeSet<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
    assert_eq!(names.len(), Kind::ALL.len());
}

/// What could not be seen is neither well nor broken.
#[test]
fn nothing_is_said_of_what_could_not_be_seen() {
    let mut seen = base();
    let unseen = || "no answer".to_owned();
    seen.store = StoreSeen::Unseen(unseen());
    seen.marker = Err(unseen());
    seen.key = Err(unseen());
    seen.engine = EngineSeen::Silent(unseen());
    seen.ours = Err(unseen());
    seen.namesakes = Err(unseen());
    seen.groups = Err(unseen());
    seen.root = Some(Err(unseen()));
    seen.spaces[0].2 = Err(unseen());
    for finding in verify(&seen) {
        assert_eq!(finding.kind.level(), Level::Unknown, "{finding:?}");
    }
}

#[test]
fn what_is_in_motion_is_not_judged() {
    let mut seen = base();
    ours(&mut seen).clear();
    seen.groups = Ok(BTreeMap::new());
    *root(&mut seen) = RootSeen::default();
    for session in contents(&mut seen).sessions.values_mut() {
        session.motion = Motion::Changed;
    }
    let page = Page {
        at: NOW,
        findings: verify(&seen),
    };
    assert_eq!(page.verdict(), Level::Ok, "{page:?}");
    // A container of a record that was forgotten meanwhile is no stray.
    ours(&mut seen).push(line("going", 'e', State::Exited));
    contents(&mut seen).departed.insert(key('e'));
    let page = Page {
        at: NOW,
        findings: verify(&seen),
    };
    assert_eq!(page.verdict(), Level::Ok, "{page:?}");
}

#[test]
fn the_first_process_of_a_container_that_is_being_started_is_no_ghost() {
    let judged = |motion: Motion| {
        let mut seen = base();
        ours(&mut seen)[0].state = State::Created;
        let up = contents(&mut seen).sessions.get_mut(&id("up")).unwrap();
        up.motion = motion;
        kinds(&seen).contains(&Kind::Ghost)
    };
    assert!(!judged(Motion::Changed));
    assert!(judged(Motion::Still), "nobody starts it");
}

#[test]
fn a_session_whose_files_live_in_its_container_needs_no_workspace() {
    let mut seen = base();
    root(&mut seen).homes.remove(&id("up"));
    ours(&mut seen)[0].mounts.clear();
    assert!(!kinds(&seen).contains(&Kind::WorkspaceMissing));
}

#[test]
fn the_gravest_findings_are_shown_where_there_are_too_many() {
    let info = |n: usize| Finding::about(Kind::UnrecordedWorkspace, n, "there");
    let mut findings: Vec<Finding> = (0..=FINDINGS_MAX).map(info).collect();
    findings.push(Finding::about(Kind::Ghost, "g", "left"));
    findings.push(Finding::new(Kind::KeyOpen, "640"));
    let report = Page { at: NOW, findings }.report();
    assert_eq!(report.verdict, "fail");
    assert_eq!(report.findings.len(), FINDINGS_MAX);
    assert_eq!((report.counts.fail, report.counts.warn), (1, 1));
    assert_eq!(usize::try_from(report.counts.ok), Ok(FINDINGS_MAX + 1));
    let names = |name: &str| {
        report
            .findings
            .iter()
            .filter(|one| one.name == name)
            .count()
    };
    assert_eq!((names("ghost"), names("key_open")), (1, 1));
}
