//! Tells what holds the service back, and lets go of it when an operator says so.

use super::books::Books;
use super::health::EngineHealth;
use crate::clock::Timestamp;
use crate::session::{Hold, Sweeps};
use crate::store::{Batch, ClaimError, CommitError, Progress};
use crate::workspace::{Strange, WorkspaceError, Workspaces};

/// A hold that stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Which one.
    pub hold: Hold,
    /// Since when.
    pub since: Timestamp,
    /// What happened.
    pub detail: String,
    /// What to do about it.
    pub remedy: String,
}

/// What holds the service back; cheap to clone.
#[derive(Clone, Debug)]
pub struct Holds {
    /// Where a rebuilt store says that it is one.
    pub books: Books,
    /// Where another engine is noticed.
    pub engine: EngineHealth,
    /// The workspaces and whether their root is theirs.
    pub workspaces: Option<Workspaces>,
}

/// Says why a hold was not let go of.
#[derive(Debug, thiserror::Error)]
pub enum Kept {
    /// The store did not take it.
    #[error(transparent)]
    Store(#[from] CommitError),
    /// The disk did not.
    #[error(transparent)]
    Disk(#[from] WorkspaceError),
}

/// Whether a hold was let go of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// It was.
    Yes,
    /// It did not stand.
    NotHeld,
}

impl Holds {
    /// Returns the holds that stand.
    pub fn standing(&self) -> Vec<Standing> {
        let rebuilt = self.books.store.rebuilt();
        let rebuilt = rebuilt.filter(|rebuilt| !rebuilt.confirmed).map(|rebuilt| {
            let rest = if rebuilt.containers_read {
                ""
            } else {
                "; the engine's containers are still to be taken over"
            };
            let made = rebuilt.sessions;
            let detail = match rebuilt.restored {
                Some(taken_at) => {
                    let aside = match rebuilt.set_aside.as_str() {
                        "" => String::new(),
                        aside => format!(", the store before it is in {aside}"),
                    };
                    format!("a backup of {taken_at} was restored{aside}; {made} sessions that it does not have were made anew from what is on the host{rest}; nothing is reaped, expired or swept")
                }
                None => format!(
                    "the store was lost ({}) and is set aside in {}; {made} sessions were made anew from what was left on the host{rest}; nothing is reaped, expired or swept",
                    rebuilt.why, rebuilt.set_aside
                ),
            };
            Standing {
                hold: Hold::StoreRebuilt,
                since: rebuilt.since,
                detail,
                remedy: "look at the sessions, then `sandboxctl release store_rebuilt`".to_owned(),
            }
        });
        let changed = self.engine.changed().map(|changed| Standing {
            hold: Hold::EngineChanged,
            since: changed.since,
            detail: format!(
                "engine {} answers instead of {}, which has the sandboxes; nothing is started, stopped or removed",
                changed.found, changed.known
            ),
            remedy: "start the known engine again, or accept the other one with `sandboxctl release engine_changed`: sessions then start anew on it, with their workspaces".to_owned(),
        });
        let strange = self.strange().map(|strange| Standing {
            hold: Hold::WorkspaceRootChanged,
            since: strange.since,
            detail: format!(
                "failed to {}; no session starts, and nothing of a workspace is looked at or removed",
                strange.why
            ),
            remedy: "mount or put back the directory with the workspaces, or accept the one that is there with `sandboxctl release workspace_root_changed`: sessions then go on with what is in it".to_owned(),
        });
        rebuilt.into_iter().chain(changed).chain(strange).collect()
    }

    /// Tells whether the service may remove, close and reap on its own initiative.
    pub fn sweeps(&self) -> Sweeps {
        let other_engine = self.engine.changed().is_some();
        if self.books.store.is_unconfirmed() || other_engine || self.strange().is_some() {
            Sweeps::Off
        } else {
            Sweeps::On
        }
    }

    /// Returns what is in place of the workspace root, where that is not what it was.
    pub fn strange(&self) -> Option<Strange> {
        self.workspaces.as_ref().and_then(Workspaces::strange)
    }

    /// Lets go of a hold, and has everything gone through.
    pub async fn release(&self, hold: Hold) -> Result<Released, Kept> {
        let store = &self.books.store;
        match hold {
            Hold::StoreRebuilt => {
                if !store.is_unconfirmed() {
                    return Ok(Released::NotHeld);
                }
                store
                    .commit(Batch::new().rebuild(Progress::Confirmed))
                    .await?;
            }
            Hold::EngineChanged => {
                let Some(changed) = self.engine.changed() else {
                    return Ok(Released::NotHeld);
                };
                match store.accept_engine_id(&changed.found).await {
                    Ok(()) | Err(ClaimError::KeyMismatch { .. }) => {}
                    Err(ClaimError::Commit(error)) => return Err(error.into()),
                }
                self.engine.accept();
            }
            Hold::WorkspaceRootChanged => {
                let strange = self.workspaces.clone().filter(|_| self.strange().is_some());
                let Some(workspaces) = strange else {
                    return Ok(Released::NotHeld);
                };
                workspaces.apart(Workspaces::accept).await?;
            }
        }
        tracing::warn!(hold = hold.as_str(), "an operator let go of a hold");
        self.engine.gap();
        Ok(Released::Yes)
    }
}
