//! Makes the records of a lost store anew from what is left on the host, and brings those
//! of a backup that was restored up to what is there.
//!
//! First the sidecars of the workspaces, before anything is served, then, when the
//! engine first answers, the containers. Until those are on record no session is
//! looked at, so none of them can get a second container.

use std::collections::BTreeSet;

use tracing::{error, info, warn};

use super::books::Books;
use super::host::Host;
use crate::cause::chain;
use crate::clock::Timestamp;
use crate::docker;
use crate::docker::containers::Label;
use crate::docker::inspect::{Inspect, State, Summary};
use crate::id::{Alias, ContainerKey, SessionId};
use crate::policy::Catalogue;
use crate::session::blueprint::{
    LABEL_INSTANCE, LABEL_KEY, LABEL_RUNTIME, LABEL_SESSION, LABEL_SPEC,
};
use crate::session::rebuild::{
    Adopted, Amended, Life, Remnant, Scene, Told, Trace, adopt, amend, from_files, in_order,
};
use crate::session::record::{Event, Record, Status};
use crate::store::{Batch, CommitError, Expect, Progress};
use crate::workspace::{self, Found, Sidecar, WorkspaceError, Workspaces};

/// Records that are committed together.
const GROUP_MAX: usize = 256;

/// Says why a rebuild did not get on; it is taken up again.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    /// The engine did not tell what it has.
    #[error("take over the containers of a lost store")]
    Engine(#[from] docker::Error),
    /// The disk did not tell what it has.
    #[error("read what is left of a lost store")]
    Disk(#[from] WorkspaceError),
    /// The records could not be written.
    #[error("write the records of a lost store")]
    Store(#[from] CommitError),
}

/// Makes records of the sidecars, where a store was lost and that is still to be done.
pub async fn rebuild_from_files(
    books: &Books,
    workspaces: Option<&Workspaces>,
    catalogue: &Catalogue,
) -> Result<(), RebuildError> {
    let Some(rebuilt) = books.store.rebuilt().filter(|rebuilt| !rebuilt.files_read) else {
        return Ok(());
    };
    match rebuilt.restored {
        Some(taken_at) => {
            warn!(backup = %taken_at, set_aside = %rebuilt.set_aside, "a backup was restored; its records are compared with the workspaces and containers, and sweeps are off until `sandboxctl release store_rebuilt`");
        }
        None => {
            warn!(why = %rebuilt.why, set_aside = %rebuilt.set_aside, "the store was lost; its records are made anew from the workspaces and containers, and sweeps are off until `sandboxctl release store_rebuilt`");
        }
    }
    let mut traces = if let Some(workspaces) = workspaces {
        read_traces(workspaces).await?
    } else {
        warn!(
            "without SANDBOXD_WORKSPACE_ROOT nothing tells the tokens of open sessions: their containers are adopted under new ones"
        );
        Vec::new()
    };
    in_order(&mut traces);
    let now = books.clock.now();
    // What a process that ended in the middle had made stands as it is, in this order.
    for group in traces.chunks(GROUP_MAX) {
        let mut batch = Batch::new();
        let mut n_anew = 0;
        for trace in group {
            let trace = trace.clone();
            let Some(known) = books.store.record(&trace.id) else {
                let (record, status) = from_files(trace, catalogue, now);
                batch = with_record(batch, record, status, Expect::Absent);
                n_anew += 1;
                continue;
            };
            let expect = Expect::Generation(known.marks.generation);
            batch = match amend(&known, trace, catalogue, now) {
                Amended::Stands => batch,
                Amended::Closed(record) => batch.put_record(*record, expect),
                Amended::Anew(record, status) => {
                    n_anew += 1;
                    with_record(batch, *record, *status, expect)
                }
            };
        }
        books
            .store
            .commit(batch.rebuild(Progress::Sessions(n_anew)))
            .await?;
    }
    books
        .store
        .commit(Batch::new().rebuild(Progress::FilesRead))
        .await?;
    info!(
        sessions = books.store.records().len(),
        "the workspaces of the lost store are on record again"
    );
    Ok(())
}

async fn read_traces(workspaces: &Workspaces) -> Result<Vec<Trace>, WorkspaceError> {
    let found = workspaces.apart(Workspaces::sidecars).await?;
    let mut traces = Vec::new();
    for found in found {
        match found {
            Found::Sidecar(sidecar) => traces.push(trace(*sidecar)),
            Found::Unusable { name, why } => {
                error!(workspace = %name, %why, "a sidecar says nothing usable: the workspace is left alone and belongs to no session; purge its id if it is not needed");
            }
        }
    }
    Ok(traces)
}

fn trace(sidecar: Sidecar) -> Trace {
    Trace {
        id: sidecar.id,
        alias: sidecar.runtime,
        tenant: sidecar.tenant,
        nonce: sidecar.nonce,
        opened_at: sidecar.opened_at,
        order: sidecar.order,
        life: match sidecar.life {
            workspace::Life::Unknown => Life::Unknown,
            workspace::Life::Open => Life::Open,
            workspace::Life::ClosedAt(at) => Life::ClosedAt(at),
        },
    }
}

/// Takes the engine's containers over, where a store was lost and that is still to be
/// done.
pub(super) async fn rebuild_from_containers(
    host: &Host,
    books: &Books,
    catalogue: &Catalogue,
) -> Result<(), RebuildError> {
    let rebuilt = books.store.rebuilt();
    let Some(rebuilt) = rebuilt.filter(|rebuilt| !rebuilt.containers_read) else {
        return Ok(());
    };
    let remnants = remnants(host).await?;
    let n_found = remnants.len();
    let listed = remnants.iter().map(|remnant| remnant.key.clone()).collect();
    let scene = Scene {
        catalogue,
        listed: &listed,
        since: rebuilt.since,
        told: match &host.workspaces {
            Some(_) => Told::ByFiles,
            None => Told::ByNothing,
        },
        now: books.clock.now(),
    };
    let mut n_surplus = 0;
    for group in remnants.chunks(GROUP_MAX) {
        let (batch, n_anew) = taken_over(books, group, &scene, &mut n_surplus);
        books
            .store
            .commit(batch.rebuild(Progress::Sessions(n_anew)))
            .await?;
    }
    if 0 < n_surplus {
        warn!(
            containers = n_surplus,
            "sessions had more containers than one: the surplus is left alone until sweeps are on"
        );
    }
    let event = tell(books, n_found);
    books
        .store
        .commit(
            Batch::new()
                .rebuild(Progress::ContainersRead)
                .event(None, event),
        )
        .await?;
    info!(
        containers = n_found,
        sessions = books.store.records().len(),
        "the containers of the lost store are on record again"
    );
    Ok(())
}

/// Returns what is written of some containers, and how many records it makes.
fn taken_over(
    books: &Books,
    group: &[Remnant],
    scene: &Scene<'_>,
    n_surplus: &mut usize,
) -> (Batch, u64) {
    let mut batch = Batch::new();
    let mut n_anew = 0;
    let mut taken: BTreeSet<&SessionId> = BTreeSet::new();
    for remnant in group {
        if taken.contains(&remnant.id) {
            *n_surplus += 1;
            continue;
        }
        let record = books.store.record(&remnant.id);
        let status = books.store.status(&remnant.id);
        let status = status.map(|status| (*status).clone()).unwrap_or_default();
        let known = record.as_deref().map(|record| (record, &status));
        let order = record
            .as_ref()
            .map_or_else(|| books.store.next_order(), |record| record.spec.order);
        match adopt(known, remnant, order, scene) {
            Adopted::Anew(record_anew, status) => {
                let expect = record.as_ref().map_or(Expect::Absent, |record| {
                    Expect::Generation(record.marks.generation)
                });
                n_anew += u64::from(record.is_none());
                batch = with_record(batch, *record_anew, *status, expect);
            }
            Adopted::Joined(status) => batch = batch.put_status(&remnant.id, *status),
            // By a process that ended in the middle, or before the store was put back.
            Adopted::Known => {}
            Adopted::Surplus => {
                *n_surplus += 1;
                continue;
            }
        }
        taken.insert(&remnant.id);
    }
    (batch, n_anew)
}

/// Looks at all containers of ours: those that run first, then the newest.
///
/// One that the engine lists and cannot describe is taken as it is listed: a single
/// broken container must not keep all the others from their sessions.
async fn remnants(host: &Host) -> Result<Vec<Remnant>, docker::Error> {
    let label = Label::new(LABEL_INSTANCE, host.instance.as_str());
    let mut remnants = Vec::new();
    for line in host.engine.list(&label).await? {
        match line.state {
            State::Removing => continue,
            State::Created
            | State::Running
            | State::Paused
            | State::Restarting
            | State::Exited
            | State::Dead => {}
        }
        let seen = match host.engine.inspect(&line.id).await {
            Ok(Some(seen)) => Some(seen),
            Ok(None) => continue,
            Err(error) if error.status().is_some() => {
                warn!(container = %line.name, error = %chain(&error), "a container could not be looked at: it is taken as it is listed");
                None
            }
            Err(error) => return Err(error),
        };
        match remnant(&line, seen.as_ref()) {
            Some(remnant) => remnants.push(remnant),
            None => {
                error!(container = %line.name, "a container has our mark and no session that could be read: it is left alone");
            }
        }
    }
    remnants.sort_by_key(|remnant| (!remnant.runs, std::cmp::Reverse(remnant.created)));
    Ok(remnants)
}

fn remnant(line: &Summary, seen: Option<&Inspect>) -> Option<Remnant> {
    let label = |name: &str| line.labels.get(name).map(String::as_str);
    Some(Remnant {
        id: SessionId::parse(label(LABEL_SESSION)?).ok()?,
        key: ContainerKey::parse(label(LABEL_KEY)?).ok()?,
        alias: Alias::parse(label(LABEL_RUNTIME)?).ok()?,
        container: line.id.clone(),
        image: seen.map_or(&line.image, |seen| &seen.image).clone(),
        spec_hash: label(LABEL_SPEC).map(str::to_owned),
        created: seen.map_or(line.created, |seen| seen.created),
        started_at: seen.and_then(|seen| seen.started_at),
        runs: match seen.map_or(line.state, |seen| seen.state) {
            State::Running | State::Paused | State::Restarting => true,
            State::Created | State::Removing | State::Exited | State::Dead => false,
        },
    })
}

fn with_record(batch: Batch, record: Record, status: Status, expect: Expect) -> Batch {
    let id = record.spec.id.clone();
    batch.put_record(record, expect).put_status(&id, status)
}

/// The one event that tells of the rebuild.
fn tell(books: &Books, n_containers: usize) -> Event {
    let records = books.store.records();
    let n_open = records.iter().filter(|record| record.is_open()).count();
    let rebuilt = books.store.rebuilt();
    let restored = rebuilt.as_ref().and_then(|rebuilt| rebuilt.restored);
    let facts = [
        (
            "set_aside",
            rebuilt
                .as_ref()
                .map(|rebuilt| rebuilt.set_aside.clone())
                .filter(|path| !path.is_empty()),
        ),
        ("backup", restored.map(|taken_at| taken_at.to_string())),
        ("why", rebuilt.as_ref().map(|rebuilt| rebuilt.why.clone())),
        ("open", Some(n_open.to_string())),
        ("closed", Some((records.len() - n_open).to_string())),
        ("containers", Some(n_containers.to_string())),
    ];
    let began = rebuilt.map_or(Timestamp::ZERO, |rebuilt| rebuilt.since);
    let now = books.clock.now();
    Event {
        at: now,
        op: "store_rebuilt".to_owned(),
        target: String::new(),
        ok: true,
        detail: match restored {
            Some(_) => "a backup was restored, and its records were compared with the host",
            None => "the store was lost, and its records were made anew",
        }
        .to_owned(),
        duration_us: u64::try_from(now.since(began).as_micros()).unwrap_or(u64::MAX),
        request_id: None,
        facts: facts
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::os::unix::net::UnixListener;
    use std::path::Path;

    use super::*;
    use crate::cgroup::Cgroups;
    use crate::clock::Clock;
    use crate::docker::outside::Outside;
    use crate::docker::{Endpoint, Engine, Settings};
    use crate::id::Nonce;
    use crate::session::testing;
    use crate::store::{OnCorrupt, OpenOptions, Probe, Store};
    use crate::workspace::Life as Written;

    /// Loses the store of a state directory and begins another.
    fn lost(dir: &Path, clock: &Clock) -> Books {
        let mut options = OpenOptions::new(dir, Probe::InProcess, clock.clone());
        drop(Store::open(&options).unwrap());
        std::fs::rename(dir.join("store"), dir.join("elsewhere")).unwrap();
        options.on_corrupt = OnCorrupt::SetAside;
        Books {
            store: Store::open(&options).unwrap(),
            clock: clock.clone(),
        }
    }

    fn sidecar(id: &str) -> Sidecar {
        Sidecar {
            id: SessionId::parse(id).unwrap(),
            runtime: Alias::parse("bb").unwrap(),
            tenant: None,
            nonce: Nonce::random(),
            opened_at: None,
            order: None,
            life: Written::Open,
        }
    }

    #[tokio::test]
    async fn a_rebuild_that_was_cut_off_goes_on_and_gives_no_place_twice() {
        let dir = tempfile::tempdir().unwrap();
        let books = lost(&dir.path().join("state"), &Clock::host());
        let workspaces = Workspaces::open(&dir.path().join("ws"), dir.path()).unwrap();
        for id in ["a", "b", "c", "d"] {
            workspaces.ensure(&sidecar(id), None).unwrap();
        }
        let catalogue = testing::policy().catalogue.clone();
        // What the first process had written when it was killed.
        let mut traces = read_traces(&workspaces).await.unwrap();
        in_order(&mut traces);
        for trace in traces.into_iter().take(2) {
            let (record, status) = from_files(trace, &catalogue, books.clock.now());
            let batch = with_record(Batch::new(), record, status, Expect::Absent);
            books.store.commit(batch).await.unwrap();
        }
        rebuild_from_files(&books, Some(&workspaces), &catalogue)
            .await
            .unwrap();
        let records = books.store.records();
        let places: Vec<_> = records.iter().map(|record| record.spec.order).collect();
        assert_eq!(places, [1, 2, 3, 4]);
        assert_eq!(books.store.next_order(), 5);
        let rebuilt = books.store.rebuilt().unwrap();
        assert!(rebuilt.files_read && !rebuilt.containers_read);
    }

    /// Plays an engine that lists two containers and cannot describe the first.
    fn engine_with_a_broken_container(socket: &Path, instance: &str) {
        let listener = UnixListener::bind(socket).unwrap();
        let labels = |id: &str| {
            serde_json::json!({
                LABEL_INSTANCE: instance, LABEL_SESSION: id, LABEL_RUNTIME: "bb",
                LABEL_KEY: ContainerKey::random().as_str(),
            })
        };
        let line = |id: &str| {
            serde_json::json!({
                "Id": id.repeat(64), "Names": [format!("/{id}")], "Created": 1_700_000_000,
                "Image": "busybox", "ImageID": "sha256:0", "Labels": labels(id),
                "State": "running",
            })
        };
        let lines = [line("a"), line("b")];
        let whole = serde_json::json!({
            "Id": "b".repeat(64), "Name": "/b", "Created": "2023-11-14T22:13:20Z", "Image": "sha256:0",
            "Config": {"Image": "busybox", "Labels": lines[1]["Labels"]},
            "State": {"Status": "running", "StartedAt": "2023-11-14T22:13:21Z"},
        });
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut asked = String::new();
                BufReader::new(&stream).read_line(&mut asked).unwrap();
                let (status, body) = if asked.contains("/version") {
                    let version = serde_json::json!({"Version": "1", "ApiVersion": "1.41"});
                    ("200 OK", version)
                } else if asked.contains("/aaaa") {
                    let why = serde_json::json!({"message": "RWLayer is unexpectedly nil"});
                    ("500 Internal Server Error", why)
                } else if asked.contains("/bbbb") {
                    ("200 OK", whole.clone())
                } else {
                    ("200 OK", serde_json::json!(lines))
                };
                let body = body.to_string();
                let head = format!(
                    "HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n",
                    body.len()
                );
                drop(stream.write_all((head + &body).as_bytes()));
            }
        });
    }

    #[tokio::test]
    async fn a_container_that_the_engine_cannot_describe_keeps_no_other_from_its_session() {
        let dir = tempfile::tempdir().unwrap();
        let books = lost(&dir.path().join("state"), &Clock::host());
        let catalogue = testing::policy().catalogue.clone();
        rebuild_from_files(&books, None, &catalogue).await.unwrap();
        let socket = dir.path().join("engine.sock");
        engine_with_a_broken_container(&socket, books.store.instance().as_str());
        let endpoint = Endpoint::parse(socket.to_str().unwrap()).unwrap();
        let host = Host {
            engine: Engine::new(endpoint, Settings::default()),
            workspaces: None,
            cgroups: Cgroups::default(),
            instance: books.store.instance().clone(),
            agents: None,
            outside: Outside::default(),
        };
        rebuild_from_containers(&host, &books, &catalogue)
            .await
            .unwrap();
        assert!(books.store.rebuilt().unwrap().containers_read);
        for (id, is_described) in [("a", false), ("b", true)] {
            let id = SessionId::parse(id).unwrap();
            let record = books.store.record(&id).unwrap();
            assert!(record.is_open() && record.marks.parked.is_none(), "{id}");
            let status = books.store.status(&id).unwrap();
            assert!(status.key.is_some() && status.container.is_some(), "{id}");
            assert_eq!(status.started_at.is_some(), is_described, "{id}");
        }
    }
}
