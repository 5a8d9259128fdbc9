//! Breaks one thing at a time in a service that is well, and sees what is found.

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
        logs: names.map(id).into(),
        commands: Ok(vec![
            command(true, "exit 0"),
            command(false, "exit 137"),
            command(false, "container_lost"),
            command(false, ""),
        ]),
    };
    let room = Space {
        free_bytes: 1 << 40,
        bytes: 1 << 41,
        free_files: None,
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
        spaces: vec![("the state directory", PathBuf::from("/s"), Ok(room))],
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

fn changed(change: impl FnOnce(&mut Seen) + 'static) -> Change {
    Box::new(change)
}

/// One change for each thing that can be found about sessions and their containers.
fn of_sessions() -> Vec<(Kind, Change)> {
    let tenant = |seen: &mut Seen| seen.capacity.max_sessions_per_tenant = Some(1);
    vec![
        (
            Kind::SessionMoving,
            changed(with_session("up", |session| {
                session.motion = Motion::Changed
            })),
        ),
        (
            Kind::StartFails,
            changed(with_status("up", |status| {
                status.attempts = 2;
                status.reached = 0;
            })),
        ),
        (
            Kind::FilesLost,
            changed(with_status("up", |status| status.files_lost = true)),
        ),
        (
            Kind::StatusAhead,
            changed(with_status("up", |status| status.reached = 9)),
        ),
        (
            Kind::NeverBegan,
            changed(with_status("up", |status| status.incarnation = 0)),
        ),
        (
            Kind::Keyless,
            changed(with_status("over", |status| status.key = None)),
        ),
        (
            Kind::KeyShared,
            changed(with_status("over", |status| status.key = Some(key('b')))),
        ),
        (
            Kind::OrderShared,
            changed(with_session("over", |session| {
                Arc::make_mut(&mut session.record).spec.order = 1
            })),
        ),
        (
            Kind::ContainerMissing,
            changed(|seen| {
                ours(seen).remove(0);
                seen.groups.as_mut().unwrap().remove("c-up");
            }),
        ),
        (
            Kind::ContainerMissing,
            changed(with_status("up", |status| status.container = None)),
        ),
        (
            Kind::ContainerForeign,
            changed(with_status("up", |status| {
                status.container = Some("c-asleep".to_owned())
            })),
        ),
        (
            Kind::ContainerStopped,
            changed(|seen| {
                ours(seen)[0].state = State::Exited;
                seen.groups = Ok(BTreeMap::new());
            }),
        ),
        (
            Kind::ContainersUnseen,
            changed(|seen| seen.ours = Err("no answer".to_owned())),
        ),
        (
            Kind::RecordsUnseen,
            changed(|seen| seen.store = StoreSeen::Unseen("denied".to_owned())),
        ),
        (
            Kind::WorkspaceMissing,
            changed(|seen| {
                root(seen).homes.remove(&id("asleep"));
            }),
        ),
        (
            Kind::WorkspaceMissing,
            changed(|seen| {
                root(seen).homes.get_mut(&id("over")).unwrap().workspace = Presence::Absent;
            }),
        ),
        (
            Kind::SidecarMissing,
            changed(|seen| {
                root(seen).homes.get_mut(&id("up")).unwrap().sidecar = Presence::Absent;
            }),
        ),
        (
            Kind::WorkspacesUnseen,
            changed(|seen| seen.root = Some(Err("denied".to_owned()))),
        ),
        (
            Kind::OtherInstances,
            changed(|seen| namesake(seen, "sandboxd-x-00000000", Some("other"))),
        ),
        (
            Kind::Predecessors,
            changed(|seen| namesake(seen, "sandboxd-x", None)),
        ),
        (
            Kind::Unlabelled,
            changed(|seen| namesake(seen, "sandboxd-x-00000000", None)),
        ),
        (
            Kind::StrayContainer,
            changed(|seen| ours(seen).push(line("stray", 'e', State::Exited))),
        ),
        (
            Kind::StrayContainer,
            changed(|seen| {
                ours(seen).push({
                    let mut line = line("keyless", 'e', State::Exited);
                    line.labels.remove(LABEL_KEY);
                    line
                })
            }),
        ),
        (
            Kind::TwinContainer,
            changed(|seen| ours(seen).push(line("twin", 'a', State::Exited))),
        ),
        (
            Kind::RunsUnasked,
            changed(|seen| {
                ours(seen)[1].state = State::Running;
                seen.capacity.max_sessions = None;
            }),
        ),
        (
            Kind::ResidentOver,
            changed(|seen| {
                seen.capacity.max_sessions = Some(0);
                ours(seen)[0].state = State::Running;
            }),
        ),
        (
            Kind::OpenOver,
            changed(|seen| seen.capacity.max_open_sessions = Some(1)),
        ),
        (Kind::TenantOver, changed(tenant)),
        (
            Kind::RunningOver,
            changed(|seen| ours(seen)[1].state = State::Running),
        ),
    ]
}

/// One change for each thing that can be found about the rest.
fn of_the_rest() -> Vec<(Kind, Change)> {
    let key_seen = |change: fn(&mut KeySeen)| {
        changed(move |seen| change(seen.key.as_mut().unwrap().as_mut().unwrap()))
    };
    let health = |health| changed(move |seen| contents(seen).health = health);
    let full = Health::Full {
        reason: Arc::from("full"),
    };
    let degraded = Health::Degraded {
        reason: Arc::from("broken"),
    };
    let space = |space| changed(move |seen| seen.spaces[0].2 = space);
    let little = Space {
        free_bytes: 1,
        bytes: 1 << 41,
        free_files: None,
    };
    let few = Space {
        free_bytes: 1 << 40,
        bytes: 1 << 41,
        free_files: Some(3),
    };
    let says = |ok, detail: &'static str| {
        changed(move |seen| contents(seen).commands = Ok(vec![command(ok, detail)]))
    };
    vec![
        (Kind::KeyOpen, key_seen(|key| key.mode = 0o640)),
        (
            Kind::KeyOther,
            key_seen(|key| key.id = Some("k2".to_owned())),
        ),
        (Kind::KeyOther, key_seen(|key| key.id = None)),
        (Kind::KeyMissing, changed(|seen| seen.key = Ok(None))),
        (
            Kind::KeyUnseen,
            changed(|seen| seen.key = Err("denied".to_owned())),
        ),
        (
            Kind::Ghost,
            changed(|seen| {
                seen.groups.as_mut().unwrap().insert("gone".to_owned(), 2);
            }),
        ),
        (
            Kind::Ghost,
            changed(|seen| {
                seen.groups
                    .as_mut()
                    .unwrap()
                    .insert("c-asleep".to_owned(), 1);
            }),
        ),
        (
            Kind::GroupsUnseen,
            changed(|seen| seen.groups = Err("not mounted".to_owned())),
        ),
        (
            Kind::UnrecordedWorkspace,
            changed(|seen| {
                let home = root(seen).homes[&id("up")];
                root(seen).homes.insert(id("old"), home);
            }),
        ),
        (
            Kind::StrangeEntry,
            changed(|seen| {
                root(seen).strange.insert("lost+found".to_owned());
            }),
        ),
        (
            Kind::TrashOld,
            changed(|seen| {
                root(seen)
                    .trash
                    .insert("t".to_owned(), Timestamp::from_secs(1_700_000_000));
            }),
        ),
        (
            Kind::LogWithoutRecord,
            changed(|seen| {
                contents(seen).logs.insert(id("gone"));
            }),
        ),
        (
            Kind::NoStore,
            changed(|seen| seen.store = StoreSeen::Nothing),
        ),
        (
            Kind::StoreBegunAnew,
            changed(|seen| contents(seen).set_aside = Some(PathBuf::from("/s/store.corrupt"))),
        ),
        (Kind::StoreFull, health(full)),
        (Kind::StoreDegraded, health(degraded)),
        (
            Kind::StoreBroken,
            changed(|seen| seen.store = StoreSeen::Broken("torn".to_owned())),
        ),
        (
            Kind::StoreUnseen,
            changed(|seen| seen.store = StoreSeen::Unseen("denied".to_owned())),
        ),
        (Kind::MarkerMissing, changed(|seen| seen.marker = Ok(None))),
        (
            Kind::MarkerOther,
            changed(|seen| seen.marker = Ok(Some(InstanceId::random()))),
        ),
        (
            Kind::MarkerUnseen,
            changed(|seen| seen.marker = Err("denied".to_owned())),
        ),
        (Kind::EndingContradicts, says(true, "exit 1")),
        (Kind::EndingContradicts, says(false, "exit 0")),
        (Kind::EndingContradicts, says(true, "container_lost")),
        (Kind::EndingContradicts, says(false, "exit 256")),
        (
            Kind::EventsUnseen,
            changed(|seen| contents(seen).commands = Err("torn".to_owned())),
        ),
        (
            Kind::EngineOld,
            changed(|seen| engine(seen, (1, 41), true, "engine")),
        ),
        (
            Kind::NoLiveRestore,
            changed(|seen| engine(seen, (1, 44), false, "engine")),
        ),
        (
            Kind::EngineOther,
            changed(|seen| engine(seen, (1, 44), true, "another")),
        ),
        (
            Kind::EngineRefused,
            changed(|seen| seen.engine = EngineSeen::Refused("1.40".to_owned())),
        ),
        (
            Kind::EngineUnseen,
            changed(|seen| seen.engine = EngineSeen::Silent("late".to_owned())),
        ),
        (
            Kind::UsageUnseen,
            changed(|seen| seen.usage_visible = Some(false)),
        ),
        (Kind::SpaceLow, space(Ok(little))),
        (Kind::SpaceLow, space(Ok(few))),
        (Kind::SpaceUnseen, space(Err("denied".to_owned()))),
        (
            Kind::ClockBehind,
            changed(|seen| seen.now = Timestamp::from_secs(1_600_000_000)),
        ),
    ]
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
    for (kind, change) in of_sessions().into_iter().chain(of_the_rest()) {
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
    let changes = of_sessions().into_iter().chain(of_the_rest());
    let broken: BTreeSet<Kind> = changes.map(|(kind, _)| kind).collect();
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
