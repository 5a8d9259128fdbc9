//! Holds what the controller reaches of the host: the engine and the workspaces.

use std::path::PathBuf;

use super::agents::Agents;
use super::plan::Rival;
use crate::cgroup::Cgroups;
use crate::docker::inspect::State;
use crate::docker::outside::Outside;
use crate::docker::{self, Engine};
use crate::id::{InstanceId, SessionId};
use crate::session::blueprint::{LABEL_INSTANCE, predecessor_name};
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
    /// Where our directories are for the engine.
    pub outside: Outside,
}

impl Host {
    /// Returns where the engine has the directory that is mounted into a session's
    /// container; nothing where files live in the containers.
    pub fn mounted(&self, id: &SessionId) -> Option<PathBuf> {
        let workspaces = self.workspaces.as_ref()?;
        Some(self.outside.path(&workspaces.mounted(id)))
    }

    /// Looks for a running container of the predecessor that works on a session's files.
    pub async fn rival(&self, id: &SessionId) -> Result<Rival, docker::Error> {
        let found = self.engine.inspect(&predecessor_name(id)).await?;
        let runs = found.is_some_and(|rival| {
            !rival.labels.contains_key(LABEL_INSTANCE)
                && matches!(
                    rival.state,
                    State::Running | State::Paused | State::Restarting
                )
        });
        Ok(if runs { Rival::Running } else { Rival::None })
    }

    /// Does file work on a thread where blocking hurts nobody.
    pub async fn on_disk<T: Send + 'static>(
        workspaces: &Workspaces,
        id: &SessionId,
        work: impl FnOnce(&Workspaces, &SessionId) -> Result<T, WorkspaceError> + Send + 'static,
    ) -> Result<T, WorkspaceError> {
        let id = id.clone();
        workspaces
            .apart(move |workspaces| work(workspaces, &id))
            .await
    }
}
