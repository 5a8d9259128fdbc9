//! Follows the engine: whether it answers, and what its containers do.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::backoff::rest;
use super::books::Books;
use super::key::Key;
use super::resync::{Resync, Round};
use super::work::Work;
use crate::cause::chain;
use crate::docker;
use crate::docker::Engine;
use crate::docker::containers::Label;
use crate::docker::events::Event;
use crate::id::SessionId;
use crate::session::blueprint::LABEL_SESSION;
use crate::session::record::Status;

/// How often the engine is asked whether it is there.
const PING_EVERY: Duration = Duration::from_secs(2);
/// How long trouble with the engine lasts before nobody waits for it any more; a
/// single late answer of a busy host is no such trouble.
const PATIENCE: Duration = Duration::from_secs(3);
/// The rest before the event stream is opened again.
const STREAM_REST: Duration = Duration::from_secs(1);

/// What is known of the engine's health; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct EngineHealth(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// What is wrong with it; `None` when nothing is.
    trouble: watch::Sender<Option<Trouble>>,
    /// Something may have happened that nobody told.
    missed: Notify,
}

#[derive(Clone, Debug)]
struct Trouble {
    why: Arc<str>,
    since: Instant,
}

impl EngineHealth {
    /// Returns what is wrong with the engine, if anything is.
    pub fn trouble(&self) -> Option<Arc<str>> {
        let trouble = self.0.trouble.borrow();
        trouble.as_ref().map(|trouble| Arc::clone(&trouble.why))
    }

    /// Returns what is wrong with the engine once that has lasted for
    /// three seconds: whoever waits for the engine then waits in vain.
    pub fn lost(&self) -> Option<Arc<str>> {
        let trouble = self.0.trouble.borrow();
        trouble
            .as_ref()
            .filter(|trouble| PATIENCE <= trouble.since.elapsed())
            .map(|trouble| Arc::clone(&trouble.why))
    }

    /// Waits until the engine is lost, and returns what is wrong with it.
    pub async fn until_lost(&self) -> Arc<str> {
        let mut trouble = self.0.trouble.subscribe();
        loop {
            let seen = trouble.borrow_and_update().clone();
            let lost_at = seen.as_ref().map(|trouble| trouble.since + PATIENCE);
            let patience = async {
                match lost_at {
                    Some(lost_at) => sleep_until(lost_at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                changed = trouble.changed() => {
                    changed.expect("whoever asks holds the sender");
                }
                () = patience => {
                    if let Some(trouble) = seen {
                        return trouble.why;
                    }
                }
            }
        }
    }

    /// Takes down how the engine answered; there is one caller, the heartbeat.
    fn note(&self, why: Option<String>) {
        let before = self.0.trouble.borrow().clone();
        match (why, before) {
            (None, None) => {}
            (Some(why), None) => {
                warn!(error = %why, "the engine is not available");
                self.publish(why, Instant::now());
            }
            (Some(why), Some(before)) => self.publish(why, before.since),
            (None, Some(_)) => {
                info!("the engine is available again");
                self.0.trouble.send_replace(None);
                self.0.missed.notify_one();
            }
        }
    }

    fn publish(&self, why: String, since: Instant) {
        let why = Arc::from(why);
        self.0.trouble.send_replace(Some(Trouble { why, since }));
    }
}

/// Asks the engine every two seconds whether it is there and understood.
pub async fn ping(engine: Engine, health: EngineHealth, cancel: CancellationToken) {
    loop {
        let answer = tokio::select! {
            () = cancel.cancelled() => return,
            answer = engine.alive() => answer,
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
    let mut round = Round::AfterGap;
    loop {
        match resync.run(round).await {
            Ok(()) => round = Round::Regular,
            // What the gap hid is still to be found.
            Err(error) => {
                warn!(error = %chain(&error), "the engine's containers could not be listed");
            }
        }
        resync.empty_trash().await;
        tokio::select! {
            () = cancel.cancelled() => return,
            () = health.0.missed.notified() => round = Round::AfterGap,
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
            () = cancel.cancelled() => return,
            end = follow(&watched, &health) => end,
        };
        debug!(error = %chain(&error), "the engine's event stream ended");
        tokio::select! {
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
    health.0.missed.notify_one();
    loop {
        let event = stream.next().await?;
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

    fn silence(health: &EngineHealth) {
        health.note(Some("no answer".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn an_engine_is_lost_when_its_trouble_lasts() {
        let health = EngineHealth::default();
        silence(&health);
        let noted = Instant::now();
        assert_eq!(health.trouble().as_deref(), Some("no answer"));
        assert_eq!(health.lost(), None);
        assert_eq!(&*health.until_lost().await, "no answer");
        assert_eq!(noted.elapsed(), PATIENCE);
        assert_eq!(health.lost().as_deref(), Some("no answer"));
    }

    #[tokio::test(start_paused = true)]
    async fn trouble_that_goes_on_counts_from_its_beginning_and_one_that_ends_does_not() {
        let health = EngineHealth::default();
        let lost = tokio::spawn({
            let health = health.clone();
            async move {
                health.until_lost().await;
                Instant::now()
            }
        });
        silence(&health);
        tokio::time::sleep(PATIENCE / 2).await;
        health.note(None);
        tokio::time::sleep(PATIENCE).await;
        assert!(!lost.is_finished());
        let again = Instant::now();
        silence(&health);
        tokio::time::sleep(PATIENCE / 2).await;
        silence(&health);
        assert_eq!(lost.await.unwrap() - again, PATIENCE);
    }
}
