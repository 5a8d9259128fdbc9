//! Looks at one session on the host, and changes nothing.

use tracing::warn;

use super::ghosts::{Haunting, left_of};
use super::host::Host;
use super::images::Images;
use super::plan::{Container, Ending, Fate, Fit, Ghost, Image, Life, Observed, Rival, Workspace};
use crate::agent::protocol::{HOST_DIR, PROGRAM};
use crate::docker;
use crate::docker::inspect::{Inspect, MountPoint, State};
use crate::session::blueprint::{LABEL_INSTANCE, LABEL_KEY, LABEL_RUNTIME, container_name};
use crate::session::lifecycle::InUse;
use crate::session::record::{Purge, Reason, Record, Status};
use crate::workspace::WorkspaceError;

/// What was seen of a session, for the decision and for acting on it.
#[derive(Debug)]
pub struct Sight {
    /// What the decision looks at.
    pub observed: Observed,
    /// Where the only copy of the files is.
    pub fate: Fate,
    /// The container as the engine describes it, where it has one of ours.
    pub container: Option<Inspect>,
    /// What is left of containers that the engine has lost.
    pub ghosts: Vec<Haunting>,
    /// Why something could not be seen.
    pub blind: Option<Blind>,
}

impl Sight {
    /// Forgets what the engine said, for this reason.
    pub(super) fn distrust(&mut self, why: &str) {
        self.observed.container = Container::Unknown;
        self.observed.rival = Rival::None;
        self.container = None;
        if self.blind.is_none() {
            self.blind = Some(Blind::Distrusted(why.to_owned()));
        }
    }
}

/// Why something could not be seen.
#[derive(Debug, thiserror::Error)]
pub enum Blind {
    /// The engine did not tell.
    #[error(transparent)]
    Engine(#[from] docker::Error),
    /// The disk did not tell.
    #[error(transparent)]
    Disk(#[from] WorkspaceError),
    /// The engine is not known to be the one with the sandboxes.
    #[error("{0}")]
    Distrusted(String),
}

/// Looks at a session. What cannot be seen is unknown, which is never absent.
pub(super) async fn observe(
    host: &Host,
    images: &Images,
    in_use: InUse,
    record: &Record,
    status: &Status,
) -> Sight {
    let spec = &record.spec;
    // The three know nothing of one another, and each costs a wait.
    let (container, workspace, rival) = tokio::join!(
        container(host, record, status),
        workspace(host, record),
        rival(host, record, status),
    );
    let mut blind = None;
    let workspace = workspace.unwrap_or_else(|error| {
        blind = Some(Blind::Disk(error));
        Workspace::Unknown
    });
    // A rival that could not be looked for is as good as unseen: the whole
    // picture is then unknown.
    let seen = container.and_then(|seen| Ok((seen, rival?)));
    let ((container, inspect), rival) = seen.unwrap_or_else(|error| {
        blind = Some(Blind::Engine(error));
        ((Container::Unknown, None), Rival::None)
    });
    let rival = match workspace {
        // There is nothing that it could work on.
        Workspace::Off | Workspace::Absent => Rival::None,
        Workspace::Unknown | Workspace::Ready | Workspace::Unused => rival,
    };
    let ghosts = left_of(&host.cgroups, container, status);
    let ghost = if ghosts.is_empty() {
        Ghost::None
    } else {
        Ghost::Left
    };
    let image = match spec.runtime.ready_image() {
        Some(reference) => images.look(reference, &spec.id),
        None => Image::Refused,
    };
    Sight {
        observed: Observed {
            container,
            workspace,
            image,
            in_use,
            rival,
            ghost,
        },
        fate: fate(host, inspect.as_ref()),
        container: inspect,
        ghosts,
        blind,
    }
}

async fn container(
    host: &Host,
    record: &Record,
    status: &Status,
) -> Result<(Container, Option<Inspect>), docker::Error> {
    let spec = &record.spec;
    let Some(key) = &status.key else {
        return Ok((Container::Keyless, None));
    };
    let name = container_name(&spec.id, key);
    let wanted = status.container.as_deref().unwrap_or(&name);
    let mut found = host.engine.inspect(wanted).await?;
    // A creation that was given up may have come late, after what it was to replace went.
    let is_at_rest = record.marks.parked.is_some() || !record.is_open();
    if found.is_none() && status.container.is_some() && is_at_rest {
        let late = host.engine.inspect(&name).await?;
        found = late.filter(|late| late.state == State::Created);
    }
    let Some(inspect) = found else {
        let missing = match status.container {
            Some(_) => Container::Lost,
            None => Container::Unmade,
        };
        return Ok((missing, None));
    };
    let label = |name: &str| inspect.labels.get(name).map(String::as_str);
    let is_ours = label(LABEL_INSTANCE) == Some(host.instance.as_str())
        && label(LABEL_KEY) == Some(key.as_str());
    if !is_ours {
        warn!(session = %spec.id, container = %inspect.name, "a container of somebody else has this name");
        return Ok((Container::Foreign, None));
    }
    let fit = if label(LABEL_RUNTIME) == Some(spec.alias.as_str()) {
        Fit::Same
    } else {
        Fit::Other
    };
    let life = if status.started_at.is_some() && status.started_at == inspect.started_at {
        Life::Known
    } else {
        Life::New
    };
    let ending = if inspect.oom_killed {
        Ending::Oom
    } else {
        Ending::Ended
    };
    let seen = match inspect.state {
        State::Created => Container::Created,
        State::Running | State::Restarting => Container::Running(life),
        State::Paused => Container::Paused,
        State::Removing => Container::Removing,
        State::Exited => Container::Stopped(fit, ending),
        State::Dead => Container::Dead,
    };
    Ok((seen, Some(inspect)))
}

async fn workspace(host: &Host, record: &Record) -> Result<Workspace, WorkspaceError> {
    let Some(workspaces) = &host.workspaces else {
        return Ok(Workspace::Off);
    };
    let failed_start = record
        .marks
        .closed
        .as_ref()
        .is_some_and(|closed| closed.reason == Reason::StartFailed);
    Host::on_disk(workspaces, &record.spec.id, move |workspaces, id| {
        if !workspaces.exists(id)? {
            Ok(Workspace::Absent)
        } else if failed_start && workspaces.is_unused(id)? {
            Ok(Workspace::Unused)
        } else {
            Ok(Workspace::Ready)
        }
    })
    .await
}

/// Looks for a container of the predecessor that works on the same files, where
/// what comes next may touch them: a start of ours, or a removal.
async fn rival(host: &Host, record: &Record, status: &Status) -> Result<Rival, docker::Error> {
    let marks = &record.marks;
    let touches = match &marks.closed {
        None => marks.parked.is_none() && !status.has_reached(marks),
        Some(closed) => closed.purge == Purge::Yes,
    };
    if host.workspaces.is_none() || !touches {
        return Ok(Rival::None);
    }
    host.rival(&record.spec.id).await
}

/// Tells whether a mount of a container of ours is its workspace. A volume that an image
/// declares goes with the container, and has an id for a name.
fn holds_workspace(mount: &MountPoint) -> bool {
    let is_agent_s = [PROGRAM, HOST_DIR].contains(&mount.destination.as_str());
    let is_volume_s = !is_agent_s && !mount.name.is_empty() && !is_anonymous(&mount.name);
    match mount.kind.as_str() {
        "bind" => mount.source.ends_with("/workspace"),
        "volume" => is_volume_s,
        _ => false,
    }
}

fn is_anonymous(volume: &str) -> bool {
    volume.len() == 64 && volume.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Tells where the only copy of the files is: a container that was made with a
/// workspace has them outside, whatever the configuration says today.
fn fate(host: &Host, container: Option<&Inspect>) -> Fate {
    let mounted = match container {
        Some(container) => container.mounts.iter().any(holds_workspace),
        None => host.workspaces.is_some(),
    };
    if mounted { Fate::Durable } else { Fate::Unique }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspace_is_told_from_what_an_image_or_the_agent_has_mounted() {
        let mount = |kind: &str, name: &str, source: &str, destination: &str| MountPoint {
            kind: kind.to_owned(),
            name: name.to_owned(),
            source: source.to_owned(),
            destination: destination.to_owned(),
            ..MountPoint::default()
        };
        let data = "/var/lib/docker/volumes/x/_data";
        let image_s = "5f".repeat(32);
        for (mount, holds) in [
            (mount("bind", "", "/w/a/workspace", "/workspace"), true),
            (mount("volume", "workspaces", data, "/workspace"), true),
            (mount("volume", &image_s, data, "/workspace"), false),
            (mount("volume", "state", data, PROGRAM), false),
            (mount("volume", "state", data, HOST_DIR), false),
            (mount("bind", "", "/run/sandboxd/1/2", HOST_DIR), false),
            (mount("tmpfs", "", "", "/workspace"), false),
        ] {
            assert_eq!(holds_workspace(&mount), holds, "{mount:?}");
        }
    }
}
