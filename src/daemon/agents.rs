//! Makes ready for the agents of sandboxes, where the operator wants any.

use tracing::{info, warn};

use super::Fatal;
use crate::agent::arrivals::Arrivals;
use crate::agent::dock::Dock;
use crate::agent::program::Program;
use crate::agent::protocol::message::Bounds;
use crate::config::{Config, Exec};
use crate::reconcile::{Agents, Host};
use crate::sandbox::reach::Reacher;

/// Descriptors for one agent: the socket that it dials, its stream, and one that takes the
/// place of that.
const DESCRIPTORS: usize = 3;
/// Sandboxes that are counted with where their number has no ceiling.
const SANDBOXES_LIKELY: usize = 64;
/// Characters of the instance that name its directory: the path of a socket is short.
const INSTANCE_CHARS: usize = 12;

/// Puts the agent's program in its place and opens the dock, and returns the ways to
/// sandboxes.
pub(super) fn board(config: &Config, host: &mut Host) -> Result<Reacher, Fatal> {
    let configured = match &config.exec {
        Exec::Agent(program) => program.as_deref(),
        Exec::Docker => return Ok(Reacher::default()),
    };
    let installed = Program::install(&config.state_dir, configured);
    let Some(program) = installed.map_err(|error| unready("make the agent ready", error))? else {
        warn!("this sandboxd was built without an agent: commands go by the engine's exec");
        return Ok(Reacher::default());
    };
    let instance = host.instance.as_str();
    let instance = instance.get(..INSTANCE_CHARS).unwrap_or(instance);
    let root = config.runtime_dir.join(instance);
    let arrivals = Arrivals::default();
    let what = format!("make the runtime directory {}", root.display());
    let dock =
        Dock::new(root, bounds(config), arrivals.clone()).map_err(|error| unready(&what, error))?;
    info!(program = %program.path().display(), "new sandboxes get an agent");
    host.agents = Some(Agents::new(dock.clone(), program));
    Ok(Reacher::new(host.engine.clone(), dock, arrivals))
}

/// Returns how many descriptors agents take.
pub(super) fn descriptors(config: &Config) -> usize {
    let sandboxes = config.policy.capacity.max_sessions;
    let sandboxes = sandboxes.map_or(SANDBOXES_LIKELY, |most| {
        usize::try_from(most).unwrap_or(usize::MAX)
    });
    match config.exec {
        Exec::Agent(_) => sandboxes.saturating_mul(DESCRIPTORS),
        Exec::Docker => 0,
    }
}

/// What agents are told to hold themselves to.
fn bounds(config: &Config) -> Bounds {
    let runs = &config.policy.limits.runs;
    Bounds {
        ring_bytes: runs.ring_bytes,
        rings_bytes: runs.rings_bytes,
        keep_ms: u64::try_from(runs.keep.as_millis()).unwrap_or(u64::MAX),
        runs: u32::try_from(runs.per_session).unwrap_or(u32::MAX),
    }
}

fn unready(what: &str, source: impl std::error::Error + Send + Sync + 'static) -> Fatal {
    Fatal::Io {
        what: what.to_owned(),
        source: Box::new(source),
    }
}
