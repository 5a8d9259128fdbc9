//! Says beside each workspace what a lost store would have to be told again.

use tracing::{info, warn};

use super::execute::{Case, Executor};
use super::host::Host;
use crate::cause::chain;
use crate::session::record::{Closed, Record, Spec};
use crate::workspace::{Life, Noted, Sidecar, WorkspaceError, Workspaces};

/// How often sidecars are gone through while their sessions change.
const ROUNDS_MAX: usize = 3;

impl Executor {
    /// Says beside the workspace whether its session is open, before anything is done
    /// about it: a store that is lost must not bring back what was closed.
    pub(super) async fn note_intent(&self, case: Case<'_>) {
        let Case { record, status, .. } = case;
        let Some(workspaces) = &self.host.workspaces else {
            return;
        };
        if status.has_reached(&record.marks) {
            return;
        }
        let sidecar = sidecar_of(record);
        let noted = Host::on_disk(workspaces, &record.spec.id, move |workspaces, _| {
            workspaces.note(&sidecar)
        })
        .await;
        if let Err(error) = noted {
            warn!(session = %record.spec.id, error = %chain(&error), "its sidecar could not be written");
        }
    }

    /// Writes those sidecars anew that are missing, damaged, of an earlier build, or
    /// could not be written when their session changed.
    ///
    /// Not while a rebuild is to be confirmed: what it took a session for in doubt must
    /// not become what its files say.
    pub async fn mend_sidecars(&self) {
        if self.host.workspaces.is_none() || self.books.store.rebuilt().is_some() {
            return;
        }
        let mut n_mended = 0;
        // Who changes meanwhile writes its own, which this must not have undone.
        for _ in 0..ROUNDS_MAX {
            match self.mend_once().await {
                Ok(0) => break,
                Ok(n) => n_mended += n,
                Err(error) => {
                    warn!(error = %chain(&error), "sidecars could not be mended; a lost store would miss their sessions");
                    break;
                }
            }
        }
        if 0 < n_mended {
            info!(
                sidecars = n_mended,
                "sidecars that a rebuild could not have used were written anew"
            );
        }
    }

    /// Goes through all sidecars; returns how many were written.
    async fn mend_once(&self) -> Result<usize, WorkspaceError> {
        let Some(workspaces) = &self.host.workspaces else {
            return Ok(0);
        };
        let store = self.books.store.clone();
        let mend = move |workspaces: &Workspaces| {
            let mut n_mended = 0;
            let mut failed = None;
            for record in store.records() {
                // As it is by now: this takes a while.
                let id = &record.spec.id;
                let Some(record) = store.record(id) else {
                    continue;
                };
                let settled = store.status(id);
                if !settled.is_some_and(|status| status.has_reached(&record.marks)) {
                    continue;
                }
                match workspaces.note(&sidecar_of(&record)) {
                    Ok(Noted::Now) => n_mended += 1,
                    Ok(Noted::Before) => {}
                    Err(error) => failed = Some(error),
                }
            }
            failed.map_or(Ok(n_mended), Err)
        };
        workspaces.apart(mend).await
    }
}

fn sidecar_of(record: &Record) -> Sidecar {
    sidecar(&record.spec, record.marks.closed.as_ref())
}

/// Says what the sidecar of a session holds.
pub(super) fn sidecar(spec: &Spec, closed: Option<&Closed>) -> Sidecar {
    Sidecar {
        id: spec.id.clone(),
        runtime: spec.alias.clone(),
        tenant: spec.tenant.clone(),
        nonce: spec.nonce.clone(),
        opened_at: Some(spec.opened_at),
        order: Some(spec.order),
        life: closed.map_or(Life::Open, |closed| Life::ClosedAt(closed.at)),
    }
}
