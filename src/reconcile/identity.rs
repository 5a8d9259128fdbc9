//! Compares the engine that answers with the one that has the sandboxes.

use std::time::Duration;

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::books::Books;
use super::health::{Changed, EngineHealth, Identity};
use super::host::Host;
use super::rebuild::{RebuildError, rebuild_from_containers};
use crate::cause::chain;
use crate::docker;
use crate::policy::Current;
use crate::session::Hold;
use crate::store::{ClaimError, EngineMatch};

/// How soon an engine that could not be compared is asked again, and another one
/// whether it has gone.
const AGAIN: Duration = Duration::from_secs(1);

/// How long the engine may take to say which one it is; a call that was caught by a
/// freeze is made again rather than waited for.
const ANSWER_MAX: Duration = Duration::from_secs(4);

/// Keeps it known whether the engine is the one that the store knows.
#[derive(Debug)]
pub struct Identifier {
    /// The engine, with the mark of what is ours on it.
    pub host: Host,
    /// The store that knows its engine, and may have been lost.
    pub books: Books,
    /// What the runtimes of sandboxes taken over are.
    pub policy: Current,
    /// Where the outcome goes.
    pub health: EngineHealth,
    /// Holds that the operator lets go of at this start.
    pub releases: Vec<Hold>,
}

/// Says why the engine could not be compared with the known one.
#[derive(Debug, thiserror::Error)]
enum Unidentified {
    #[error("the engine did not say which one it is within {} s", ANSWER_MAX.as_secs())]
    Late,
    #[error(transparent)]
    Engine(#[from] docker::Error),
    #[error(transparent)]
    Store(#[from] ClaimError),
    #[error(transparent)]
    Rebuild(#[from] RebuildError),
}

impl Identifier {
    /// Compares whenever there is a doubt, until it is cancelled.
    pub async fn run(mut self, cancel: CancellationToken) {
        let mut failing = false;
        loop {
            let health = self.health.clone();
            let again = async {
                let patience = async {
                    match health.changed() {
                        Some(_) => tokio::time::sleep(AGAIN).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    biased;
                    () = health.until_doubted() => {}
                    () = patience => {}
                }
            };
            tokio::select! {
                biased;
                () = cancel.cancelled() => return,
                () = again => {}
            }
            let compared = tokio::select! {
                biased;
                () = cancel.cancelled() => return,
                compared = self.compare() => compared,
            };
            if let Err(error) = &compared {
                // An engine that is away is told of by the heartbeat, and once here.
                if failing {
                    debug!(error = %chain(error), "the engine could not be compared yet");
                } else {
                    warn!(error = %chain(error), "the engine could not be compared with the known one; sessions wait");
                }
                tokio::select! {
                    biased;
                    () = cancel.cancelled() => return,
                    () = tokio::time::sleep(AGAIN) => {}
                }
            }
            failing = compared.is_err();
        }
    }

    async fn compare(&mut self) -> Result<(), Unidentified> {
        let doubts = self.health.doubts();
        let asked = timeout(ANSWER_MAX, self.host.engine.info()).await;
        let found = asked.map_err(|_| Unidentified::Late)??.identity();
        let store = &self.books.store;
        let matched = store.claim_engine_id(&found).await?;
        let stored = match matched {
            EngineMatch::First | EngineMatch::Same => None,
            // Once, so that a setting left in place does not accept any engine.
            EngineMatch::Different { .. } if self.takes_release() => {
                warn!(engine = %found, "another engine is accepted, as SANDBOXD_RELEASE_HOLDS says");
                store.accept_engine_id(&found).await?;
                None
            }
            EngineMatch::Different { stored } => Some(stored),
        };
        self.releases.clear();
        let identity = match stored {
            None => {
                let policy = self.policy.get();
                rebuild_from_containers(&self.host, &self.books, &policy.catalogue).await?;
                if let Some(before) = self.health.changed() {
                    info!(engine = %found, instead_of = %before.found, "the engine with the sandboxes answers");
                }
                Identity::Confirmed
            }
            Some(known) => Identity::Changed(self.note_change(known, found)),
        };
        self.health.identify(identity, doubts);
        Ok(())
    }

    fn takes_release(&self) -> bool {
        self.releases.contains(&Hold::EngineChanged)
    }

    fn note_change(&self, known: String, found: String) -> Changed {
        match self.health.changed() {
            Some(before) if before.known == known && before.found == found => before,
            Some(_) | None => {
                error!(engine = %found, %known, "another engine answers than the one with the sandboxes: nothing is started, stopped or removed on it until the known one is back, or `sandboxctl release engine_changed`");
                Changed {
                    known,
                    found,
                    since: self.books.clock.now(),
                }
            }
        }
    }
}
