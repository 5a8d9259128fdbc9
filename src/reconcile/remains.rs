//! Removes what was set aside, and tells what of it cannot be removed, and what time removed.

use tracing::{info, warn};

use super::execute::{Case, Executor};
use crate::cause::chain;
use crate::policy::Persist;
use crate::session::Fact;
use crate::session::lifecycle::{Aim, Keep};
use crate::session::record::{Event, Reason, Spec};
use crate::store::Batch;
use crate::workspace::{Remains, Workspaces};

impl Executor {
    /// Removes what is left of workspaces whose removal was cut short.
    pub async fn empty_trash(&self) {
        let Some(workspaces) = &self.host.workspaces else {
            return;
        };
        match workspaces.apart(Workspaces::empty_trash).await {
            Ok(remains) if remains.is_empty() => {}
            Ok(remains) => warn!(%remains, "the trash could not be emptied"),
            Err(error) => warn!(error = %chain(&error), "the trash could not be emptied"),
        }
    }

    /// Tells what could not be removed of a session's workspace, in the log of the service
    /// and among its events: the session itself is gone by then.
    pub(super) async fn tell_remains(&self, spec: &Spec, remains: &Remains) {
        if remains.is_empty() {
            return;
        }
        warn!(session = %spec.id, %remains, "its workspace is gone, but for what could not be removed and lies in the trash");
        let mut event = Fact::Remains.event(self.books.clock.now(), spec, None);
        event.detail = remains.to_string();
        event
            .facts
            .insert("remains".to_owned(), remains.count.to_string());
        self.tell(spec, event).await;
    }

    /// Tells that a kept container is gone, where it was its time that ended it.
    pub(super) async fn tell_expiry(&self, case: Case<'_>) {
        let keeps = self.policy.get().lifetimes.persist;
        let (Aim::Closed(Keep::Files), Persist::Yes) = (case.aim, keeps) else {
            return;
        };
        let spec = &case.record.spec;
        info!(session = %spec.id, "its kept container is gone, as it had stood still for its time");
        let reason = Some(Reason::Expired);
        let event = Fact::ContainerExpired.event(self.books.clock.now(), spec, reason);
        self.tell(spec, event).await;
    }

    async fn tell(&self, spec: &Spec, event: Event) {
        let batch = Batch::new().event(None, event);
        if let Err(error) = self.books.store.commit(batch).await {
            warn!(session = %spec.id, error = %chain(&error), "an event could not be written down");
        }
    }
}
