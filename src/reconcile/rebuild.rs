//! Makes the records of a lost store anew from what is left on the host.
//!
//! First the sidecars of the workspaces, before anything is served, then, when the
//! engine first answers, the containers. Until those are on record no session is
//! looked at, so none of them can get a second container.

use std::collections::BTreeSet;

use tracing::{error, info, warn};

use super::books::Books;
use super::host::Host;
use crate::clock::Timestamp;
use crate::docker;
use crate::docker::containers::Label;
use crate::docker::inspect::{Inspect, State, Summary};
use crate::id::{Alias, ContainerKey, SessionId};
use crate::policy::Catalogue;
use crate::session::blueprint::{
    LABEL_INSTANCE, LABEL_KEY, LABEL_RUNTIME, LABEL_SESSION, LABEL_SPEC,
};
use crate::session::rebuild::{Adopted, Life, Remnant, Trace, adopt, from_files, in_order};
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
    warn!(why = %rebuilt.why, set_aside = %rebuilt.set_aside, "the store was lost; its records are made anew from the workspaces and containers, and sweeps are off until `sandboxctl release store_rebuilt`");
    let mut traces = if let Some(workspaces) = workspaces {
        read_traces(workspaces).await?
    } else {
        warn!(
            "without SANDBOXD_WORKSPACE_ROOT nothing tells the tokens of open sessions: their containers are adopted under new ones"
        );
        Vec::new()
    };
    // What a process that ended in the middle had made is there already.
    traces.retain(|trace| books.store.record(&trace.id).is_none());
    in_order(&mut traces);
    let now = books.clock.now();
    let mut traces = traces.into_iter().peekable();
    while traces.peek().is_some() {
        let group: Vec<_> = traces.by_ref().take(GROUP_MAX).collect();
        let n = count(group.len());
        let batch = group.into_iter().fold(Batch::new(), |batch, trace| {
            let (record, status) = from_files(trace, catalogue, now);
            with_record(batch, record, status, Expect::Absent)
        });
        books
            .store
            .commit(batch.rebuild(Progress::Sessions(n)))
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
    let workspaces = workspaces.clone();
    let found = match tokio::task::spawn_blocking(move || workspaces.sidecars()).await {
        Ok(found) => found?,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    };
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
    if rebuilt.is_none_or(|rebuilt| rebuilt.containers_read) {
        return Ok(());
    }
    let remnants = remnants(host).await?;
    let n_found = remnants.len();
    let now = books.clock.now();
    let (mut n_anew, mut n_surplus) = (0, 0);
    for group in remnants.chunks(GROUP_MAX) {
        let mut batch = Batch::new();
        let mut taken: BTreeSet<&SessionId> = BTreeSet::new();
        for remnant in group {
            if !taken.insert(&remnant.id) {
                n_surplus += 1;
                continue;
            }
            let record = books.store.record(&remnant.id);
            let status = books.store.status(&remnant.id);
            let status = status.map(|status| (*status).clone()).unwrap_or_default();
            let known = record.as_deref().map(|record| (record, &status));
            let order = record
                .as_ref()
                .map_or_else(|| books.store.next_order(), |record| record.spec.order);
            match adopt(known, remnant, catalogue, order, now) {
                Adopted::Anew(record_anew, status) => {
                    let expect = record.as_ref().map_or(Expect::Absent, |record| {
                        Expect::Generation(record.marks.generation)
                    });
                    n_anew += u64::from(record.is_none());
                    batch = with_record(batch, *record_anew, *status, expect);
                }
                Adopted::Joined(status) => batch = batch.put_status(&remnant.id, *status),
                Adopted::Surplus => n_surplus += 1,
            }
        }
        books
            .store
            .commit(batch.rebuild(Progress::Sessions(n_anew)))
            .await?;
        n_anew = 0;
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

/// Looks at all containers of ours: those that run first, then the newest.
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
        let Some(seen) = host.engine.inspect(&line.id).await? else {
            continue;
        };
        match remnant(&line, &seen) {
            Some(remnant) => remnants.push(remnant),
            None => {
                error!(container = %seen.name, "a container has our mark and no session that could be read: it is left alone");
            }
        }
    }
    remnants.sort_by_key(|remnant| (!remnant.runs, std::cmp::Reverse(remnant.created)));
    Ok(remnants)
}

fn remnant(line: &Summary, seen: &Inspect) -> Option<Remnant> {
    let label = |name: &str| seen.labels.get(name).map(String::as_str);
    Some(Remnant {
        id: SessionId::parse(label(LABEL_SESSION)?).ok()?,
        key: ContainerKey::parse(label(LABEL_KEY)?).ok()?,
        alias: Alias::parse(label(LABEL_RUNTIME)?).ok()?,
        container: line.id.clone(),
        image: seen.image.clone(),
        spec_hash: label(LABEL_SPEC).map(str::to_owned),
        created: seen.created,
        started_at: seen.started_at,
        runs: match seen.state {
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
    let facts = [
        (
            "set_aside",
            rebuilt.as_ref().map(|rebuilt| rebuilt.set_aside.clone()),
        ),
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
        detail: "the store was lost, and its records were made anew".to_owned(),
        duration_us: u64::try_from(now.since(began).as_micros()).unwrap_or(u64::MAX),
        request_id: None,
        facts: facts
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)))
            .collect(),
    }
}

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
