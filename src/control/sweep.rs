//! Lists what the next sweep takes, and has one made now.

use std::time::Duration;

use tracing::info;

use super::{Control, Refusal};
use crate::cause::chain;
use crate::reconcile::{Deed, Item, Listing, SweepError};
use crate::wire::sweep::{SweepItem, SweepReport};

/// Whether anything is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sweep {
    /// What is due within this time is listed, or until the next sweep.
    Look(Option<Duration>),
    /// What is due now is listed and done.
    Act,
}

impl Control {
    /// Lists what the next sweep takes and why, and has one made where that is asked.
    ///
    /// The listing comes from the judgement that acts, so it says what will be done if
    /// nobody uses anything meanwhile.
    pub async fn sweep(&self, sweep: Sweep) -> Result<SweepReport, Refusal> {
        let survey = &self.0.loop_.survey;
        let refused = |error: SweepError| match error {
            SweepError::Stopping => Refusal::ShuttingDown,
            SweepError::Engine(_) => Refusal::EngineUnavailable(chain(&error)),
        };
        self.engine_answers()?;
        let within = match sweep {
            Sweep::Look(within) => within.unwrap_or_else(|| survey.period()),
            Sweep::Act => Duration::ZERO,
        };
        let listing = survey.look(within).await.map_err(refused)?;
        match sweep {
            Sweep::Look(_) => {}
            Sweep::Act => {
                survey.sweep().await.map_err(refused)?;
                info!(items = listing.items.len(), "a caller had a sweep made");
            }
        }
        Ok(report(sweep, listing))
    }
}

fn report(sweep: Sweep, listing: Listing) -> SweepReport {
    SweepReport {
        dry_run: matches!(sweep, Sweep::Look(_)),
        until: listing.until.secs_f64(),
        items: listing.items.into_iter().map(on_wire).collect(),
        more: listing.more,
        holds: listing
            .holds
            .into_iter()
            .map(|hold| hold.as_str().to_owned())
            .collect(),
        strays_held_back: u64::try_from(listing.strays_held_back).unwrap_or(u64::MAX),
    }
}

fn on_wire(item: Item) -> SweepItem {
    let (kind, what) = match item.deed {
        Deed::Hibernate => ("session", "hibernate"),
        Deed::Close => ("session", "close"),
        Deed::RemoveContainer => ("container", "remove"),
        Deed::RemoveWorkspace => ("workspace", "remove"),
        Deed::Forget => ("record", "remove"),
    };
    SweepItem {
        kind: kind.to_owned(),
        session_id: item.session.map(|id| id.to_string()),
        container: item.container,
        what: what.to_owned(),
        reason: item.reason.to_owned(),
        since: item.since.secs_f64(),
        limit: item.limit.map(|limit| limit.as_secs_f64()),
        at: item.at.secs_f64(),
        waits_for: item.waits_for.map(str::to_owned),
    }
}
