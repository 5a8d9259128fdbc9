//! Follows the engine: whether it answers, and what its containers do.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::execute::chain;
use super::resync::Resync;
use super::work::Work;
use crate::docker;
use crate::docker::Engine;
use crate::docker::containers::Label;
use crate::docker::events::Event;
use crate::id::SessionId;
use crate::session::blueprint::LABEL_SESSION;

/// How often the engine is asked whether it is there.
const PING_EVERY: Duration = Duration::from_secs(2);
/// The rest before the event stream is opened again.
const STREAM_REST: Duration = Duration::from_secs(1);

/// What is known of the engine's health; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct EngineHealth(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Why it is not well; `None` when it is.
    trouble: Mutex<Option<Arc<str>>>,
    recovered: Notify,
}

impl EngineHealth {
    /// Returns what is wrong with the engine, if anything is.
    pub fn trouble(&self) -> Option<Arc<str>> {
        self.0
            .trouble
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn note(&self, trouble: Option<String>) {
        let mut now = self
            .0
            .trouble
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let was = now.is_some();
        match (&trouble, was) {
            (Some(why), false) => warn!(error = %why, "the engine is not available"),
            (None, true) => info!("the engine is available again"),
            (Some(_), true) | (None, false) => {}
        }
        let is_back = was && trouble.is_none();
        *now = trouble.map(Arc::from);
        drop(now);
        if is_back {
            self.0.recovered.notify_one();
        }
    }
}

/// Asks the engine every two seconds whether it is there.
pub async fn ping(engine: Engine, health: EngineHealth, cancel: CancellationToken) {
    loop {
        let answer = tokio::select! {
            () = cancel.cancelled() => return,
            answer = engine.ping() => answer,
        };
        health.note(answer.err().map(|error| chain(&error)));
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(PING_EVERY) => {}
        }
    }
}

/// Goes through everything at start, every `period`, and when the engine is back.
pub async fn resync(
    mut resync: Resync,
    health: EngineHealth,
    period: Duration,
    cancel: CancellationToken,
) {
    loop {
        if let Err(error) = resync.run().await {
            warn!(error = %chain(&error), "the engine's containers could not be listed");
        }
        tokio::select! {
            () = cancel.cancelled() => return,
            () = health.0.recovered.notified() => {}
            () = tokio::time::sleep(period) => {}
        }
    }
}

/// Has a session looked at when the engine tells of its container.
///
/// Events only wake: what is lost with a broken stream, a resync finds.
pub async fn events(engine: Engine, label: Label, work: Work, cancel: CancellationToken) {
    loop {
        let Err(error) = tokio::select! {
            () = cancel.cancelled() => return,
            end = follow(&engine, &label, &work) => end,
        };
        debug!(error = %chain(&error), "the engine's event stream ended");
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(STREAM_REST) => {}
        }
    }
}

/// Follows the stream until it breaks.
async fn follow(engine: &Engine, label: &Label, work: &Work) -> Result<Infallible, docker::Error> {
    let mut stream = engine.events(label).await?;
    loop {
        let event = stream.next().await?;
        if let Some(id) = session(&event) {
            work.nudge_session(&id);
        }
    }
}

fn session(event: &Event) -> Option<SessionId> {
    SessionId::parse(event.attributes.get(LABEL_SESSION)?).ok()
}
