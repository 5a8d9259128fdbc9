//! Checks the invariants while no daemon runs.

use std::path::Path;

use super::{Fatal, key};
use crate::cgroup::Cgroups;
use crate::clock::Clock;
use crate::config::Config;
use crate::docker::{Endpoint, Engine, Settings};
use crate::store::Probe;
use crate::verify::{Level, NotBorrowed, Place, Stock, Subjects, borrow, examine};
use crate::wire::doctor::DoctorReport;

/// The page, and the code that says in short what is on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// What was found.
    pub report: DoctorReport,
    /// 0 where nothing is broken, 1 where something is, 65 where the store cannot be
    /// trusted, 75 where something could not be seen.
    pub exit_code: u8,
}

/// Checks the invariants of a service that does not run; changes nothing.
///
/// The state directory's lock is held meanwhile, so no daemon starts. A copy of the
/// store lies in `scratch` until the end. The engine need not run.
///
/// # Errors
/// A daemon runs, or the state directory could not be read.
pub async fn verify(config: Config, scratch: &Path) -> Result<Verdict, Fatal> {
    let clock = Clock::host();
    let endpoint = Endpoint::parse(&config.docker).map_err(|source| Fatal::Endpoint {
        address: config.docker.clone(),
        source,
    })?;
    let opening = {
        let (dir, scratch, clock) = (config.state_dir.clone(), scratch.to_owned(), clock.clone());
        let probe = std::env::current_exe().map_or(Probe::InProcess, Probe::Child);
        move || borrow(&dir, &scratch, probe, clock)
    };
    let borrowed = match tokio::task::spawn_blocking(opening).await {
        Ok(borrowed) => borrowed?,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    };
    let subjects = Subjects {
        stock: borrowed.stock.clone(),
        engine: Engine::new(endpoint, Settings::default()),
        engine_lost: None,
        cgroups: Cgroups::default(),
        place: place(&config),
        capacity: config.policy.capacity.clone(),
        clock,
    };
    let page = examine(&subjects).await;
    let exit_code = match (&borrowed.stock, page.verdict()) {
        (Stock::Broken(_), _) => 65,
        (_, Level::Fail) => 1,
        (_, Level::Unknown) => 75,
        (_, Level::Ok | Level::Warn) => 0,
    };
    Ok(Verdict {
        report: page.report(),
        exit_code,
    })
}

/// Returns where the things of a configuration are on the disk.
pub(super) fn place(config: &Config) -> Place {
    Place {
        state_dir: config.state_dir.clone(),
        key_file: key::file_of(config),
        workspace_root: config.workspace_root.clone(),
    }
}

impl From<NotBorrowed> for Fatal {
    fn from(error: NotBorrowed) -> Self {
        Self::NotBorrowed(error)
    }
}
