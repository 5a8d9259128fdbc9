//! Removes what was set aside, and tells what of it cannot be removed.

use tracing::warn;

use super::execute::Executor;
use crate::cause::chain;
use crate::session::Fact;
use crate::session::record::Spec;
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
        if let Err(error) = self
            .books
            .store
            .commit(Batch::new().event(None, event))
            .await
        {
            warn!(session = %spec.id, error = %chain(&error), "an event could not be written down");
        }
    }
}
