//! Knows whether the engine answers, and whether it is the one with the sandboxes.
//!
//! What another engine says of our sessions is *unknown*, never *absent*: so nothing
//! that was seen counts unless the engine was confirmed before and after the look.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{info, warn};

use crate::clock::Timestamp;
use crate::news::News;

/// How long trouble with the engine lasts before nobody waits for it any more; a
/// single late answer of a busy host is no such trouble.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long a look waits for an engine that answers, and was not yet compared.
const CONFIRMATION_WAIT_MAX: Duration = Duration::from_secs(20);

/// What is known of the engine's health; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct EngineHealth(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// A std mutex: held for a look, never across an await.
    seen: Mutex<Seen>,
    /// Told whenever that changes.
    changed: News,
    /// Something may have happened that nobody told.
    missed: Notify,
}

#[derive(Clone, Debug, Default)]
struct Seen {
    /// What is wrong with it; `None` when nothing is.
    trouble: Option<Trouble>,
    identity: Identity,
    /// The other engine that answered last. A doubt does not end what it held back:
    /// only the known engine does, or an operator.
    changed: Option<Changed>,
    /// Rises whenever the engine is doubted.
    doubts: u64,
}

#[derive(Clone, Debug)]
struct Trouble {
    why: Arc<str>,
    since: Instant,
}

/// Whether the engine that answers is the one that the store knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Identity {
    /// Nobody has compared them since it was last out of sight.
    #[default]
    Unconfirmed,
    /// It is.
    Confirmed,
    /// It is not.
    Changed(Changed),
}

/// Another engine than the one with the sandboxes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The engine that the store knows.
    pub known: String,
    /// The one that answers.
    pub found: String,
    /// Since when, as far as it was noticed.
    pub since: Timestamp,
}

impl Changed {
    fn why(&self) -> Arc<str> {
        Arc::from(format!(
            "another engine answers at its address, {} instead of {}, which has the sandboxes: start that one again, or accept the other with `sandboxctl release engine_changed`",
            self.found, self.known
        ))
    }
}

/// A proof that the engine was the right one; compare it with a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Confirmed(u64);

impl Seen {
    /// Returns since when nobody should wait for the engine, and why.
    fn lost(&self) -> Option<(Instant, Arc<str>)> {
        match (&self.changed, &self.trouble) {
            (Some(changed), _) => Some((Instant::now(), changed.why())),
            (_, Some(trouble)) => Some((trouble.since + PATIENCE, Arc::clone(&trouble.why))),
            (_, None) => None,
        }
    }
}

impl EngineHealth {
    /// Returns what is wrong with the engine, if anything is.
    pub fn trouble(&self) -> Option<Arc<str>> {
        let lost = self.seen().lost();
        lost.map(|(_, why)| why)
    }

    /// Returns what is wrong with the engine once that has lasted for three seconds,
    /// or at once where it is another one: whoever waits for it then waits in vain.
    pub fn lost(&self) -> Option<Arc<str>> {
        let (since, why) = self.seen().lost()?;
        (since <= Instant::now()).then_some(why)
    }

    /// Waits until the engine is lost, and returns what is wrong with it.
    pub async fn until_lost(&self) -> Arc<str> {
        let mut news = self.0.changed.listen();
        loop {
            let lost = self.seen().lost();
            let patience = async {
                match &lost {
                    Some((at, _)) => sleep_until(*at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = news.changed() => {}
                () = patience => {
                    if let Some((_, why)) = lost {
                        return why;
                    }
                }
            }
        }
    }

    /// Returns the other engine that answered, until the right one answers or that one
    /// is accepted: while none answers it is not known to be gone for good.
    pub fn changed(&self) -> Option<Changed> {
        self.seen().changed.clone()
    }

    /// Returns whether the engine was compared with the one that the store knows, and
    /// everything that it has of ours is on record.
    pub fn is_confirmed(&self) -> bool {
        self.confirmed().is_some()
    }

    /// Has everything gone through again, as after a gap.
    pub fn gap(&self) {
        self.0.missed.notify_one();
    }

    /// Has the engine compared anew with the one that the store knows.
    pub(super) fn doubt(&self) {
        let mut seen = self.seen();
        seen.identity = Identity::Unconfirmed;
        seen.doubts += 1;
        drop(seen);
        self.0.changed.tell();
    }

    /// Takes the other engine for the right one from now on, and has it compared anew.
    pub(super) fn accept(&self) {
        self.seen().changed = None;
        self.doubt();
    }

    pub(super) fn confirmed(&self) -> Option<Confirmed> {
        let seen = self.seen();
        (seen.identity == Identity::Confirmed).then_some(Confirmed(seen.doubts))
    }

    /// Waits for the engine to be confirmed, until it is lost or for twenty seconds.
    pub(super) async fn confirmed_soon(&self) -> Option<Confirmed> {
        let decided = self.until(|seen| seen.identity != Identity::Unconfirmed);
        tokio::select! {
            biased;
            () = decided => {}
            _ = self.until_lost() => {}
            () = sleep(CONFIRMATION_WAIT_MAX) => {}
        }
        self.confirmed()
    }

    /// Waits until the engine is to be compared with the one that the store knows.
    pub(super) async fn until_doubted(&self) {
        self.until(|seen| seen.identity == Identity::Unconfirmed)
            .await;
    }

    /// Returns how often it was doubted, for [`EngineHealth::identify`].
    pub(super) fn doubts(&self) -> u64 {
        self.seen().doubts
    }

    /// Takes down which engine it is, unless it was doubted since `doubts` was read.
    pub(super) fn identify(&self, identity: Identity, doubts: u64) {
        let mut seen = self.seen();
        if seen.doubts != doubts || seen.identity == identity {
            return;
        }
        let came_back = identity == Identity::Confirmed;
        seen.changed = match &identity {
            Identity::Changed(changed) => Some(changed.clone()),
            Identity::Confirmed => None,
            Identity::Unconfirmed => seen.changed.take(),
        };
        seen.identity = identity;
        drop(seen);
        self.0.changed.tell();
        if came_back {
            self.gap();
        }
    }

    /// Waits until something may have happened that nobody told.
    pub(super) async fn missed(&self) {
        self.0.missed.notified().await;
    }

    /// Takes down how the engine answered; there is one caller, the heartbeat.
    pub(super) fn note(&self, why: Option<String>) {
        let before = self.seen().trouble.clone();
        match (why, before) {
            (None, None) => {}
            (Some(why), None) => {
                warn!(error = %why, "the engine is not available");
                self.publish(why, Instant::now());
            }
            (Some(why), Some(before)) => self.publish(why, before.since),
            (None, Some(_)) => {
                info!("the engine is available again");
                self.seen().trouble = None;
                self.doubt();
                self.gap();
            }
        }
    }

    fn publish(&self, why: String, since: Instant) {
        let why = Arc::from(why);
        let trouble = Some(Trouble { why, since });
        self.seen().trouble = trouble;
        self.0.changed.tell();
    }

    /// Waits until what is known is so.
    async fn until(&self, is_so: impl Fn(&Seen) -> bool) {
        let mut news = self.0.changed.listen();
        while !is_so(&self.seen()) {
            news.changed().await;
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        sleep(PATIENCE / 2).await;
        health.note(None);
        sleep(PATIENCE).await;
        assert!(!lost.is_finished());
        let again = Instant::now();
        silence(&health);
        sleep(PATIENCE / 2).await;
        silence(&health);
        assert_eq!(lost.await.unwrap() - again, PATIENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn another_engine_is_lost_at_once_and_a_doubt_voids_what_was_confirmed() {
        let health = EngineHealth::default();
        assert_eq!(health.confirmed_soon().await, None, "nobody has looked");
        health.identify(Identity::Confirmed, health.doubts());
        let before = health.confirmed();
        assert!(before.is_some());
        let stale = health.doubts();
        health.doubt();
        health.identify(Identity::Confirmed, stale);
        assert_eq!(health.confirmed(), None, "it was doubted meanwhile");
        health.identify(Identity::Confirmed, health.doubts());
        assert_ne!(health.confirmed(), before);
        let changed = Changed {
            known: "A".to_owned(),
            found: "B".to_owned(),
            since: Timestamp::ZERO,
        };
        health.identify(Identity::Changed(changed), health.doubts());
        assert!(!health.is_confirmed());
        let why = health.lost().expect("nobody waits for another engine");
        assert!(
            why.contains("B instead of A") && why.contains("release"),
            "{why}"
        );
        assert_eq!(health.until_lost().await, why);
    }

    #[tokio::test(start_paused = true)]
    async fn another_engine_that_went_away_holds_until_the_right_one_answers_or_it_is_accepted() {
        let health = EngineHealth::default();
        let changed = Changed {
            known: "A".to_owned(),
            found: "B".to_owned(),
            since: Timestamp::ZERO,
        };
        let see_other = || {
            health.identify(Identity::Changed(changed.clone()), health.doubts());
        };
        see_other();
        health.doubt();
        silence(&health);
        health.note(None);
        assert_eq!(health.changed(), Some(changed.clone()), "nobody knows yet");
        assert!(health.lost().is_some() && !health.is_confirmed());
        health.identify(Identity::Confirmed, health.doubts());
        assert_eq!((health.changed(), health.lost()), (None, None));
        health.doubt();
        see_other();
        health.accept();
        assert_eq!(health.changed(), None);
        assert!(!health.is_confirmed(), "it is compared anew");
    }
}
