//! Holds what the controller reaches of the host: the engine and the workspaces.

use super::agents::Agents;
use crate::cgroup::Cgroups;
use crate::docker::Engine;
use crate::id::{InstanceId, SessionId};
use crate::workspace::{WorkspaceError, Workspaces};

/// What the controller looks at and acts on; cheap to clone.
#[derive(Clone, Debug)]
pub struct Host {
    /// The engine.
    pub engine: Engine,
    /// The workspaces, where the service keeps any.
    pub workspaces: Option<Workspaces>,
    /// The control groups, where they are to be seen.
    pub cgroups: Cgroups,
    /// The mark of what is ours.
    pub instance: InstanceId,
    /// The agents of sandboxes, where they have any.
    pub agents: Option<Agents>,
}

impl Host {
    /// Does file work on a thread where blocking hurts nobody.
    pub async fn on_disk<T: Send + 'static>(
        workspaces: &Workspaces,
        id: &SessionId,
        work: impl FnOnce(&Workspaces, &SessionId) -> Result<T, WorkspaceError> + Send + 'static,
    ) -> Result<T, WorkspaceError> {
        let (workspaces, id) = (workspaces.clone(), id.clone());
        match tokio::task::spawn_blocking(move || work(&workspaces, &id)).await {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }
}
