//! Lists workspaces, whether their sessions are open or not.

use std::sync::Arc;

use super::files::refusal::FileRefusal;
use super::{Control, Refusal};
use crate::cause::chain;
use crate::id::SessionId;
use crate::reconcile::{Extent, Figure};
use crate::session::record::Record;
use crate::wire::workspaces::{WorkspaceInfo, WorkspaceList};
use crate::workspace::{Life, Sidecar, WorkspaceError, Workspaces};

/// Workspaces of a page whose caller named no limit, and the most there may be.
const PAGE_MAX: usize = 1_000;

/// What a listing of workspaces shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListWorkspaces {
    /// At most so many.
    pub limit: Option<usize>,
    /// Continue after this id.
    pub cursor: Option<SessionId>,
}

/// A workspace as the disk and the store have it.
struct Seen {
    id: SessionId,
    record: Option<Arc<Record>>,
    /// Read where there is no record.
    sidecar: Option<Sidecar>,
}

impl Control {
    /// Lists workspaces in the order of their ids; nothing is measured for it.
    pub async fn list_workspaces(&self, list: ListWorkspaces) -> Result<WorkspaceList, Refusal> {
        let workspaces = self.0.host.workspaces.clone();
        let workspaces = workspaces.ok_or(FileRefusal::NoWorkspaces)?;
        self.has_workspaces()?;
        let store = self.0.books.store.clone();
        let limit = list.limit.unwrap_or(PAGE_MAX).min(PAGE_MAX);
        let look = move || {
            let record = |id: &SessionId| store.record(id);
            page(&workspaces, (list.cursor.as_ref(), limit), record)
        };
        let (seen, is_more) = match tokio::task::spawn_blocking(look).await {
            Ok(looked) => looked.map_err(|error| FileRefusal::Broken(chain(&error)))?,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        };
        let next = seen.last().filter(|_| is_more);
        Ok(WorkspaceList {
            next: next.map(|last| last.id.to_string()),
            workspaces: seen
                .into_iter()
                .map(|seen| self.workspace_info(seen))
                .collect(),
        })
    }

    fn workspace_info(&self, seen: Seen) -> WorkspaceInfo {
        let Seen {
            id,
            record,
            sidecar,
        } = seen;
        let spec = record.as_deref().map(|record| &record.spec);
        let runtime = match spec {
            Some(spec) => Some(spec.runtime.clone()),
            None => sidecar
                .as_ref()
                .and_then(|sidecar| self.0.policy.get().catalogue.get(&sidecar.runtime).cloned()),
        };
        let last_used = match &record {
            Some(record) => {
                let stored = Some(record.marks.last_used);
                self.0.loop_.leases.last_used(&id).max(stored)
            }
            None => sidecar.as_ref().and_then(|sidecar| match sidecar.life {
                Life::ClosedAt(at) => Some(at),
                Life::Open | Life::Unknown => sidecar.opened_at,
            }),
        };
        let figure = self.0.disks.figure(&id);
        let whole = figure.filter(|figure| figure.extent == Extent::Whole);
        let sidecar = sidecar.as_ref();
        let alias = spec.map(|spec| &spec.alias);
        let tenant = match spec {
            Some(spec) => spec.tenant.as_ref(),
            None => sidecar.and_then(|sidecar| sidecar.tenant.as_ref()),
        };
        WorkspaceInfo {
            open: record.as_ref().is_some_and(|record| record.is_open()),
            bytes: whole.map(|figure| figure.bytes),
            files: whole.map(|figure| figure.files),
            measured_at: figure.map(|Figure { at, .. }| at.secs_f64()),
            limit: self.workspace_limit(runtime.as_ref()),
            last_used: last_used.map(crate::clock::Timestamp::secs_f64),
            runtime: alias
                .or(sidecar.map(|sidecar| &sidecar.runtime))
                .map(ToString::to_string),
            tenant: tenant.map(ToString::to_string),
            session_id: id.to_string(),
        }
    }
}

/// Looks at so many workspaces after an id; tells whether there are more. Blocks.
fn page(
    workspaces: &Workspaces,
    (after, limit): (Option<&SessionId>, usize),
    record: impl Fn(&SessionId) -> Option<Arc<Record>>,
) -> Result<(Vec<Seen>, bool), WorkspaceError> {
    let mut found = Vec::new();
    for id in workspaces.homes()? {
        if after.is_some_and(|after| id <= *after) || !workspaces.exists(&id)? {
            continue;
        }
        if found.len() == limit {
            return Ok((found, true));
        }
        let record = record(&id);
        let sidecar = match record {
            Some(_) => None,
            None => workspaces.sidecar(&id)?,
        };
        found.push(Seen {
            id,
            record,
            sidecar,
        });
    }
    Ok((found, false))
}
