//! Decides how the agent gets into a container, and remembers where it cannot.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::warn;

use crate::agent::dock::Dock;
use crate::agent::program::Program;
use crate::agent::protocol::{HOST_DIR, PROGRAM};
use crate::docker;
use crate::docker::inspect::Inspect;
use crate::docker::outside::Outside;
use crate::id::SessionId;
use crate::session::blueprint::{Blueprint, LABEL_EXEC};
use crate::session::record::Exec;

/// Images that are remembered as unable to run the agent; the first is forgotten.
const UNABLE_MAX: usize = 256;

/// The agents of all sandboxes; cheap to clone.
#[derive(Clone, Debug)]
pub struct Agents(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    dock: Dock,
    program: Program,
    /// Images, each with its OCI runtime, in which the agent does not start.
    unable: Mutex<BTreeSet<(String, Option<String>)>>,
    /// Whether the engine does not see our paths.
    hidden: AtomicBool,
}

/// How the agent gets into a container that is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Aboard {
    /// Not at all: commands go by the engine's exec.
    No,
    /// Put in before the first start, and reached over an exec.
    Copied,
    /// Mounted, with the directory in which it dials.
    Mounted {
        /// The program on the engine's host.
        program: PathBuf,
        /// The directory on the engine's host.
        directory: PathBuf,
    },
}

impl Aboard {
    /// Returns how commands reach such a container.
    pub(super) fn exec(&self) -> Exec {
        match self {
            Self::No => Exec::Docker,
            Self::Copied | Self::Mounted { .. } => Exec::Agent,
        }
    }

    /// Names what is mounted as the engine sees it.
    pub(super) fn seen_by(self, outside: &Outside) -> Self {
        match self {
            Self::No | Self::Copied => self,
            Self::Mounted { program, directory } => Self::Mounted {
                program: outside.path(&program),
                directory: outside.path(&directory),
            },
        }
    }
}

/// Returns how commands reach a container, as its label has it.
pub(super) fn exec_of(container: &Inspect) -> Exec {
    match container.labels.get(LABEL_EXEC).map(String::as_str) {
        Some("agent") => Exec::Agent,
        Some(_) | None => Exec::Docker,
    }
}

impl Agents {
    /// Makes agents of this program, which dial in this dock.
    pub fn new(dock: Dock, program: Program) -> Self {
        Self(Arc::new(Inner {
            dock,
            program,
            unable: Mutex::default(),
            hidden: AtomicBool::new(false),
        }))
    }

    /// Returns where agents dial.
    pub fn dock(&self) -> &Dock {
        &self.0.dock
    }

    /// Returns the program.
    pub(super) fn program(&self) -> &Program {
        &self.0.program
    }

    /// Decides how the agent gets into a container of these settings, and makes ready what
    /// it needs on the host.
    pub(super) fn aboard(&self, session: &SessionId, print: &Blueprint) -> Aboard {
        if self.unable().contains(&setting(print)) {
            return Aboard::No;
        }
        if self.0.hidden.load(Ordering::Relaxed) {
            return Aboard::Copied;
        }
        match self.0.dock.berth(session) {
            Ok(directory) => Aboard::Mounted {
                program: self.0.program.path().to_path_buf(),
                directory,
            },
            Err(error) => {
                warn!(%session, %error, "no socket can be made for its agent, which is reached over the engine instead");
                Aboard::Copied
            }
        }
    }

    /// Remembers that the agent does not start in containers of these settings.
    pub(super) fn note_unable(&self, print: &Blueprint) {
        let mut unable = self.unable();
        if UNABLE_MAX <= unable.len() {
            unable.pop_first();
        }
        unable.insert(setting(print));
    }

    /// Remembers that the engine does not see what is on this host.
    pub(super) fn note_hidden(&self) {
        self.0.hidden.store(true, Ordering::Relaxed);
    }

    /// Makes again what a container with an agent has mounted.
    pub(super) fn make_ready(&self, session: &SessionId, container: &Inspect) -> io::Result<()> {
        if exec_of(container) == Exec::Agent && container.mounts_at(HOST_DIR) {
            self.0.dock.berth(session)?;
        }
        Ok(())
    }

    /// Lets the agent of a running container dial in.
    pub(super) fn expect(&self, session: &SessionId, container: &Inspect) {
        let Some(pid) = container.pid else { return };
        if exec_of(container) != Exec::Agent || !container.mounts_at(HOST_DIR) {
            return;
        }
        let dock = &self.0.dock;
        // One that is there needs nothing, whatever became of its directory.
        if dock.connection(session, &container.id).is_none()
            && let Err(error) = dock.berth(session)
        {
            warn!(%session, %error, "its agent cannot dial, and is reached over the engine instead");
        }
        dock.expect(session, &container.id, pid);
    }

    fn unable(&self) -> MutexGuard<'_, BTreeSet<(String, Option<String>)>> {
        self.0.unable.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells whether a refusal is about a path of the host that the agent needs.
pub(super) fn hides(error: &docker::Error, aboard: &Aboard) -> bool {
    let Aboard::Mounted { program, directory } = aboard else {
        return false;
    };
    let names = |path: &PathBuf| {
        error
            .message()
            .is_some_and(|message| message.contains(&*path.to_string_lossy()))
    };
    names(program) || names(directory)
}

/// Tells whether a start failed since the agent cannot be run.
pub(super) fn is_unable(error: &docker::Error) -> bool {
    const WHYS: [&str; 4] = [
        "permission denied",
        "no such file or directory",
        "exec format error",
        "not found",
    ];
    error.message().is_some_and(|message| {
        let text = message.to_ascii_lowercase();
        text.contains(PROGRAM) && WHYS.iter().any(|why| text.contains(why))
    })
}

/// Tells whether a first process that ended at once was never the agent: where the kernel
/// refuses to run it, the engine's own helper ends in its place, with one of these codes.
pub(super) fn never_began(container: &Inspect) -> bool {
    matches!(container.exit_code, 1 | 126 | 127 | 255) && !container.oom_killed
}

fn setting(print: &Blueprint) -> (String, Option<String>) {
    (print.image.clone(), print.oci_runtime.clone())
}
