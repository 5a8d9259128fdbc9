//! Tells whether a container goes on under a command.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::by_engine::exit_of;
use super::commands::{Ending, Runner};
use crate::docker;
use crate::docker::Engine;
use crate::docker::exec::{ExecBody, ExecCreated};
use crate::docker::inspect::State;

/// How long a command may take that only shows that its container goes on.
const PROBE_WAIT_MAX: Duration = Duration::from_secs(3);
/// How long the engine may take to know that a container ended.
const END_WAIT_MAX: Duration = Duration::from_secs(1);
/// The rest between two looks at a container that may have ended.
const END_POLL: Duration = Duration::from_millis(50);
/// The longest rest between two looks at a container that is waited for.
const END_POLL_MAX: Duration = Duration::from_secs(1);

/// What the engine says of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Running,
    Ended,
    /// The engine does not say.
    Unknown,
}

impl Runner {
    /// Waits until the engine says that a container does not run; for ever where it
    /// goes on.
    pub(super) async fn ended(&self, container: &str) {
        let mut rest = END_POLL;
        loop {
            sleep(rest).await;
            match look(&self.engine, container).await {
                Seen::Ended => return,
                Seen::Running | Seen::Unknown => {}
            }
            rest = (rest * 2).min(END_POLL_MAX);
        }
    }

    /// Tells whether a container goes on after a command in it ended by a kill.
    ///
    /// The kernel kills what is in a container when its first process ends, and the
    /// engine learns of the command's end before it learns of the container's. So its
    /// word that the container runs proves nothing yet; a further command that runs
    /// does.
    pub(super) async fn goes_on(&self, container: &str) -> bool {
        let engine = &self.engine;
        let body = ExecBody {
            argv: ["/bin/sh", "-c", ":"].map(str::to_owned).to_vec(),
            ..ExecBody::default()
        };
        let ran = async {
            let ExecCreated::New(exec) = engine.exec_create(container, &body).await? else {
                return Ok(false);
            };
            let mut stream = engine.exec_start(&exec).await?;
            while stream.next().await?.is_some() {}
            Ok::<_, docker::Error>(exit_of(engine, &exec).await == Ending::Exited(0))
        };
        // The shell is the sandbox's own, and may never end.
        if matches!(timeout(PROBE_WAIT_MAX, ran).await, Ok(Ok(true))) {
            return true;
        }
        // It may be short of processes instead, so its end has to be told as well.
        outlives_a_look(engine, container).await
    }
}

/// Tells whether the engine still says that a container runs, when it had the time
/// to learn of its end.
pub(super) async fn outlives_a_look(engine: &Engine, container: &str) -> bool {
    let give_up = Instant::now() + END_WAIT_MAX;
    while Instant::now() < give_up {
        match look(engine, container).await {
            Seen::Running => sleep(END_POLL).await,
            Seen::Ended => return false,
            // Nobody knows, and what was seen of the command is all there is.
            Seen::Unknown => return true,
        }
    }
    true
}

async fn look(engine: &Engine, container: &str) -> Seen {
    match engine.inspect(container).await {
        Ok(Some(seen)) => match seen.state {
            State::Running | State::Paused => Seen::Running,
            State::Created | State::Restarting | State::Removing | State::Exited | State::Dead => {
                Seen::Ended
            }
        },
        Ok(None) => Seen::Ended,
        Err(_) => Seen::Unknown,
    }
}
