//! Opens the store, and has a lost one made anew before anything relies on it.

use std::path::PathBuf;

use tracing::{info, warn};

use super::Fatal;
use crate::clock::Clock;
use crate::config::{Config, OnCorruptStore};
use crate::reconcile::{Books, Host, RebuildError, rebuild_from_files};
use crate::session::Hold;
use crate::store::{Batch, CommitError, OnCorrupt, OpenError, OpenOptions, Probe, Progress, Store};

/// Opens the store of the state directory.
pub(super) async fn open_store(config: &Config, clock: &Clock) -> Result<Store, Fatal> {
    let dir = config.state_dir.clone();
    let clock = clock.clone();
    let operation = &config.operation;
    let events_per_session_max = operation.events_per_session;
    let service_events_max = operation.service_events;
    let on_corrupt = match operation.on_corrupt_store {
        OnCorruptStore::Rebuild => OnCorrupt::SetAside,
        OnCorruptStore::Refuse => OnCorrupt::Refuse,
    };
    let open = move || {
        let probe = std::env::current_exe().map_or(Probe::InProcess, Probe::Child);
        let mut options = OpenOptions::new(&dir, probe, clock);
        options.events_per_session_max = events_per_session_max;
        options.service_events_max = service_events_max;
        options.on_corrupt = on_corrupt;
        Store::open(&options).map_err(|source| (dir.clone(), source))
    };
    let opened = match tokio::task::spawn_blocking(open).await {
        Ok(opened) => opened,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    };
    let store =
        opened.map_err(|(dir, source): (PathBuf, OpenError)| Fatal::Store { dir, source })?;
    info!(
        instance = %store.instance(),
        records = store.records().len(),
        "the store is open"
    );
    Ok(store)
}

/// Goes on with the rebuild of a lost store as far as that needs no engine, or lets go
/// of the hold of an earlier one where the operator says so.
pub(super) async fn rebuild(
    config: &Config,
    store: &Store,
    host: &Host,
    clock: &Clock,
) -> Result<(), Fatal> {
    let releases = config.operation.release_holds.contains(&Hold::StoreRebuilt);
    if releases && store.is_unconfirmed() {
        // Also where an earlier start was cut off in the middle of it.
        let is_half_done = store
            .rebuilt()
            .is_some_and(|rebuilt| !rebuilt.files_read || !rebuilt.containers_read);
        if store.recovered().is_some() || is_half_done {
            warn!(
                "SANDBOXD_RELEASE_HOLDS is not for a store that was lost just now, or is not rebuilt yet: look at the sessions first"
            );
        } else {
            let confirmed = Batch::new().rebuild(Progress::Confirmed);
            store.commit(confirmed).await.map_err(unwritten)?;
            warn!("the rebuilt store is confirmed, as SANDBOXD_RELEASE_HOLDS says");
        }
    }
    let books = Books {
        store: store.clone(),
        clock: clock.clone(),
    };
    rebuild_from_files(&books, host.workspaces.as_ref(), &config.policy.catalogue)
        .await
        .map_err(Fatal::Rebuild)?;
    if store.is_unconfirmed() {
        warn!(
            "the records of this store were made anew, or restored, and nobody has confirmed them: nothing is reaped, expired or swept until `sandboxctl release store_rebuilt`"
        );
    }
    Ok(())
}

fn unwritten(error: CommitError) -> Fatal {
    Fatal::Rebuild(RebuildError::Store(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::InstanceId;

    #[test]
    fn only_what_says_something_about_the_records_ends_with_65() {
        let corrupt = OpenError::Corrupt {
            store: PathBuf::from("/s/store"),
            why: "its log is gone".to_owned(),
        };
        let foreign = OpenError::Foreign {
            marker: InstanceId::random(),
            store: InstanceId::random(),
        };
        let engine = OpenError::Engine {
            reason: "input/output error".to_owned(),
        };
        for (source, code) in [
            (corrupt, 65),
            (foreign, 65),
            (OpenError::NewerSchema { found: 2 }, 65),
            (OpenError::Busy { pid: Some(1) }, 69),
            (OpenError::NoSpace, 74),
            (engine, 74),
        ] {
            let said = source.to_string();
            let dir = PathBuf::from("/s");
            assert_eq!(Fatal::Store { dir, source }.exit_code(), code, "{said}");
        }
    }
}
