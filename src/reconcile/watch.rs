//! Follows the engine: whether it answers, and what its containers do.

use std::convert::Infallible;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::backoff::rest;
use super::books::Books;
use super::health::EngineHealth;
use super::key::Key;
use super::resync::{Resync, Round};
use super::survey::Asked;
use super::work::Work;
use crate::cause::chain;
use crate::clock::Clock;
use crate::docker;
use crate::docker::Engine;
use crate::docker::containers::Label;
use crate::docker::events::Event;
use crate::id::SessionId;
use crate::session::blueprint::LABEL_SESSION;
use crate::session::record::Status;
use crate::workspace::Workspaces;

/// How often the engine is asked whether it is there.
const PING_EVERY: Duration = Duration::from_secs(2);
/// How often the workspace root is looked at.
const ROOT_EVERY: Duration = Duration::from_secs(2);
/// The rest before the event stream is opened again.
const STREAM_REST: Duration = Duration::from_secs(1);

/// Asks the engine every two seconds whether it is there and understood.
pub async fn ping(engine: Engine, health: EngineHealth, cancel: CancellationToken) {
    loop {
        let answer = tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            answer = engine.alive() => answer,
        };
        health.note(answer.err().map(|error| chain(&error)));
        tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(PING_EVERY) => {}
        }
    }
}

/// Looks every two seconds whether the workspace root is where it should be, and has
/// everything gone through again when it is back.
pub async fn root(
    workspaces: Workspaces,
    clock: Clock,
    health: EngineHealth,
    cancel: CancellationToken,
) {
    loop {
        tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(ROOT_EVERY) => {}
        }
        let now = clock.now();
        let look = workspaces.apart(move |workspaces| workspaces.check(now));
        // A disk that hangs holds this look up, and no other.
        let changed = tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            changed = look => changed,
        };
        match (changed, workspaces.strange()) {
            (false, _) => {}
            (true, Some(strange)) => {
                error!(why = %strange.why, "the workspaces are not where they were: sessions wait for them, or for `sandboxctl release workspace_root_changed`");
            }
            (true, None) => {
                info!("the workspace root is back");
                health.gap();
            }
        }
    }
}

/// Goes through everything at start, every period of it, when somebody asks for it, and
/// when the engine is back.
pub async fn go_round(mut resync: Resync, health: EngineHealth, cancel: CancellationToken) {
    let mut round = Round::AfterGap;
    let mut asked = None;
    let mut is_first = true;
    let period = resync.period();
    loop {
        let outcome = resync.run(round).await;
        match &outcome {
            Ok(()) => round = Round::Regular,
            // What the gap hid is still to be found.
            Err(error) => {
                warn!(error = %chain(error), "the engine's containers could not be listed");
            }
        }
        if let Some(asked) = asked.take() {
            let asked: Asked = asked;
            // Who asked may have gone.
            drop(asked.send(outcome));
        }
        resync.empty_trash().await;
        if std::mem::take(&mut is_first) {
            resync.mend_sidecars().await;
        }
        tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            () = health.missed() => round = Round::AfterGap,
            who = resync.asked() => asked = Some(who),
            () = tokio::time::sleep(period) => {}
        }
    }
}

/// Whose containers are watched, and whom their events wake.
#[derive(Clone, Debug)]
pub struct Watched {
    /// The engine.
    pub engine: Engine,
    /// The label of the containers.
    pub label: Label,
    /// Where their sessions are queued.
    pub work: Work,
    /// What is known of them.
    pub books: Books,
}

/// Has a session looked at when the engine tells of its container.
///
/// Events only wake: what is lost with a broken stream, a resync finds, which each
/// new stream asks for.
pub async fn events(watched: Watched, health: EngineHealth, cancel: CancellationToken) {
    loop {
        let Err(error) = tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            end = follow(&watched, &health) => end,
        };
        debug!(error = %chain(&error), "the engine's event stream ended");
        tokio::select! {
            biased;
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(STREAM_REST) => {}
        }
    }
}

/// Follows the stream until it breaks.
async fn follow(watched: &Watched, health: &EngineHealth) -> Result<Infallible, docker::Error> {
    let Watched {
        engine,
        label,
        work,
        books,
    } = watched;
    let mut stream = engine.events(label).await?;
    health.gap();
    loop {
        let event = match stream.next().await {
            Ok(event) => event,
            Err(error) => {
                // Whoever answers next may be another engine.
                health.doubt();
                return Err(error);
            }
        };
        let Some(id) = session(&event) else {
            continue;
        };
        let status = books.store.status(&id);
        if let Some(delay) = news(status.as_deref(), &event.container) {
            work.at(Key::Session(id), books.clock.now().plus(delay));
        }
    }
}

/// Decides how soon what an event tells of a container is looked at; `None` where it
/// is no news.
///
/// A failed attempt makes events of its own, such as the removal of what a failed
/// creation leaves. They are no reason to try again at once, or it never ends.
fn news(status: Option<&Status>, container: &str) -> Option<Duration> {
    let status = status.filter(|status| status.container.as_deref() == Some(container))?;
    Some(match status.attempts {
        0 => Duration::ZERO,
        failures => rest(failures),
    })
}

fn session(event: &Event) -> Option<SessionId> {
    SessionId::parse(event.attributes.get(LABEL_SESSION)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_that_a_failed_attempt_makes_are_no_reason_to_try_again_at_once() {
        let known = |attempts| Status {
            container: Some("c".to_owned()),
            attempts,
            ..Status::default()
        };
        assert_eq!(news(Some(&known(0)), "c"), Some(Duration::ZERO));
        assert_eq!(news(Some(&known(3)), "c"), Some(rest(3)));
        assert_eq!(news(Some(&known(0)), "made and removed"), None);
        assert_eq!(news(Some(&Status::default()), "c"), None);
        assert_eq!(news(None, "c"), None);
    }
}
