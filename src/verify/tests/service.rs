//! Breaks the store, the engine and the host, one thing at a time.

use super::*;

/// One change for each thing that can be found about the key and what remains.
pub(super) fn remains() -> Vec<(Kind, Change)> {
    let key_seen = |change: fn(&mut KeySeen)| {
        changed(move |seen| change(seen.key.as_mut().unwrap().as_mut().unwrap()))
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
            Kind::RunWithoutRecord,
            changed(|seen| {
                contents(seen).runs.insert(id("gone"));
            }),
        ),
    ]
}

/// One change for each thing that can be found about the store.
pub(super) fn store() -> Vec<(Kind, Change)> {
    let health = |health| changed(move |seen| contents(seen).health = health);
    let full = Health::Full {
        reason: Arc::from("full"),
    };
    let degraded = Health::Degraded {
        reason: Arc::from("broken"),
    };
    let says = |ok, detail: &'static str| {
        changed(move |seen| contents(seen).commands = Ok(vec![command(ok, detail)]))
    };
    vec![
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
    ]
}

/// One change for each thing that can be found about the host.
pub(super) fn host() -> Vec<(Kind, Change)> {
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
    vec![
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
