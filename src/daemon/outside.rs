//! Finds out whether the daemon runs in a container of the engine it speaks to, and where
//! its directories are for that engine.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::cause::chain;
use crate::config::{Config, Exec, Within};
use crate::docker::inspect::Inspect;
use crate::docker::outside::{Hidden, Mounts, Outside};
use crate::docker::own::{Traces, is_ours};
use crate::docker::{self, Engine};

/// How long an engine that does not answer is waited for: without its word no directory of
/// a container has a name that a sandbox could be made with.
const ENGINE_WAIT_MAX: Duration = Duration::from_secs(30);
/// The rest between two questions.
const ENGINE_REST: Duration = Duration::from_secs(1);

/// Says why it is not known where the daemon's directories are for the engine.
#[derive(Debug, thiserror::Error)]
pub enum NotTranslated {
    /// What the kernel says of this process cannot be read.
    #[error("read {path}, to see whether this is a container")]
    Traces {
        /// The file.
        path: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The engine did not answer in time.
    #[error(
        "learn from the engine whether it runs this process in its container {candidate}, within {ENGINE_WAIT_MAX:?}; start the engine, mount its socket, or set SANDBOXD_CONTAINER=none where the engine sees the same paths as the daemon"
    )]
    Silent {
        /// The container that was asked for.
        candidate: String,
        /// What the last call said.
        source: docker::Error,
    },
    /// There is no such container.
    #[error(
        "find the container {container:?} of SANDBOXD_CONTAINER: the engine has none that runs under that id or name; name the container that the daemon runs in, or leave the setting out"
    )]
    NoContainer {
        /// What was configured.
        container: String,
    },
    /// A sandbox could not be given a directory.
    #[error(
        "use {}, which is {setting}: {hidden}. The daemon runs in the container {container}: mount a named volume or a directory of the host there, or at a path above it, or let {setting} name a path that has one",
        path.display()
    )]
    Hidden {
        /// The setting.
        setting: &'static str,
        /// The directory.
        path: PathBuf,
        /// Why.
        hidden: Hidden,
        /// The daemon's own container.
        container: String,
    },
}

impl NotTranslated {
    /// Returns the exit code of the program.
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::Traces { .. } => 74,
            Self::Silent { .. } => 69,
            Self::NoContainer { .. } | Self::Hidden { .. } => 78,
        }
    }
}

/// Finds out where the daemon's directories are for the engine.
///
/// Where nothing tells of a container the engine is not asked.
///
/// # Errors
/// The daemon runs in a container, and a sandbox could not be given one of the directories.
pub(super) async fn find(config: &Config, engine: &Engine) -> Result<Outside, NotTranslated> {
    let traces = match &config.within {
        Within::No => return Ok(Outside::default()),
        Within::Unknown | Within::Container(_) => traces()?,
    };
    let found = match &config.within {
        Within::No => None,
        Within::Unknown => own(engine, &traces.candidates).await?,
        Within::Container(name) => Some(named(engine, name).await?),
    };
    let Some(container) = found else {
        return Ok(Outside::default());
    };
    let api = asked(&container.id, async || engine.version().await)
        .await?
        .api;
    // The kernel tells a mount by the path that the links lead to, and the engine by the one
    // that was asked for.
    let mut named = container.mounts;
    for mount in &mut named {
        mount.destination = real(Path::new(&mount.destination)).display().to_string();
    }
    let mounts = Mounts {
        points: &traces.mount_points,
        named: &named,
        api,
    };
    let mut outside = Outside::default();
    for (setting, path) in directories(config) {
        let real = real(path);
        outside
            .add(path, &real, mounts)
            .map_err(|hidden| NotTranslated::Hidden {
                setting,
                path: path.to_path_buf(),
                hidden,
                container: container.name.clone(),
            })?;
        info!(setting, here = %path.display(), there = %outside.path(path).display(), container = container.name, "the engine has this directory elsewhere");
    }
    Ok(outside)
}

/// The directories that sandboxes get something of. All of the state is among them: it
/// would be lost with the container where none of them had it.
fn directories(config: &Config) -> Vec<(&'static str, &Path)> {
    let runtime = match config.exec {
        Exec::Agent(_) => Some(("SANDBOXD_RUNTIME_DIR", config.runtime_dir.as_path())),
        Exec::Docker => None,
    };
    let root = config.workspace_root.as_deref();
    [("SANDBOXD_STATE_DIR", config.state_dir.as_path())]
        .into_iter()
        .chain(runtime)
        .chain(root.map(|root| ("SANDBOXD_WORKSPACE_ROOT", root)))
        .collect()
}

fn traces() -> Result<Traces, NotTranslated> {
    let read = |path| std::fs::read(path).map_err(|source| NotTranslated::Traces { path, source });
    let mounts = read("/proc/self/mountinfo")?;
    // Where there are no control groups, the other traces have to do.
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    Ok(Traces::read(&mounts, &groups, &name))
}

/// Finds the container of this process among the candidates.
async fn own(engine: &Engine, candidates: &[String]) -> Result<Option<Inspect>, NotTranslated> {
    for candidate in candidates {
        let found = asked(candidate, async || engine.inspect(candidate).await).await?;
        if let Some(found) = found.filter(|found| is_ours(candidate, found)) {
            return Ok(Some(found));
        }
    }
    if !candidates.is_empty() {
        warn!(
            ?candidates,
            "this looks like a container that the engine does not know: the engine has to see the same paths as the daemon; if it runs this container after all, name it by SANDBOXD_CONTAINER"
        );
    }
    Ok(None)
}

async fn named(engine: &Engine, name: &str) -> Result<Inspect, NotTranslated> {
    let found = asked(name, async || engine.inspect(name).await).await?;
    found
        .filter(|found| is_ours(&found.id, found))
        .ok_or_else(|| NotTranslated::NoContainer {
            container: name.to_owned(),
        })
}

/// Asks the engine until it answers, or its time is over.
async fn asked<T>(
    candidate: &str,
    ask: impl AsyncFn() -> Result<T, docker::Error>,
) -> Result<T, NotTranslated> {
    let give_up = Instant::now() + ENGINE_WAIT_MAX;
    loop {
        match ask().await {
            Ok(answer) => return Ok(answer),
            Err(source) if give_up < Instant::now() => {
                return Err(NotTranslated::Silent {
                    candidate: candidate.to_owned(),
                    source,
                });
            }
            Err(error) => {
                warn!(error = %chain(&error), "the engine is waited for, to learn where the daemon's directories are for it");
                sleep(ENGINE_REST).await;
            }
        }
    }
}

/// Follows all links in as much of a path as is there; the rest is made there later.
fn real(path: &Path) -> PathBuf {
    for above in path.ancestors() {
        if let Ok(real) = above.canonicalize() {
            let rest = path.strip_prefix(above).unwrap_or(Path::new(""));
            return if rest.as_os_str().is_empty() {
                real
            } else {
                real.join(rest)
            };
        }
    }
    path.to_path_buf()
}
