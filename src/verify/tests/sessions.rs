//! Breaks sessions, their containers and their workspaces, one thing at a time.

use super::*;

/// One change for each thing that can be found about records.
pub(super) fn records() -> Vec<(Kind, Change)> {
    vec![
        (
            Kind::SessionMoving,
            changed(with_session("up", |session| {
                session.motion = Motion::Changed;
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
                Arc::make_mut(&mut session.record).spec.order = 1;
            })),
        ),
        (
            Kind::RecordsUnseen,
            changed(|seen| seen.store = StoreSeen::Unseen("denied".to_owned())),
        ),
    ]
}

/// One change for each thing that can be found about containers.
pub(super) fn containers() -> Vec<(Kind, Change)> {
    vec![
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
                status.container = Some("c-asleep".to_owned());
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
                });
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
    ]
}

/// One change for each thing that can be found about workspaces, names and ceilings.
pub(super) fn room() -> Vec<(Kind, Change)> {
    let tenant = |seen: &mut Seen| seen.capacity.max_sessions_per_tenant = Some(1);
    vec![
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
            Kind::RootOther,
            changed(|seen| {
                *root(seen) = RootSeen {
                    is_other: true,
                    ..RootSeen::default()
                };
            }),
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
