//! Reads the log of the service.

use super::calls::{Client, Query};
use super::error::Error;
use crate::clock::Timestamp;
use crate::id::{SessionId, Tenant};
use crate::wire::events::ServiceEvents;

/// Which events of the service to read; the default is the newest of all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventOptions {
    /// Only those with a higher sequence number, the oldest first; the newest where `None`.
    pub after: Option<u64>,
    /// At most so many: 1 to 1,000; 200 where `None`.
    pub limit: Option<u32>,
    /// Only those of this session.
    pub session: Option<SessionId>,
    /// Only those of this tenant's sessions.
    pub tenant: Option<Tenant>,
    /// Only those of this kind: `operation`, `lifecycle` or `service`.
    pub kind: Option<String>,
    /// Only this operation or fact.
    pub op: Option<String>,
    /// Only those from this moment on.
    pub since: Option<Timestamp>,
}

impl Client {
    /// Reads a page of the service's log, oldest first.
    ///
    /// One look goes through a bounded part of the log: a page with few events or none
    /// is not the end while its `next` is below its `latest_seq`.
    pub async fn service_events(&self, options: &EventOptions) -> Result<ServiceEvents, Error> {
        let mut query = Query::default();
        query.add("after", options.after);
        query.add("limit", options.limit);
        query.add("session", options.session.as_ref());
        query.add("tenant", options.tenant.as_ref());
        query.add("kind", options.kind.as_ref());
        query.add("op", options.op.as_ref());
        query.add("since", options.since.map(Timestamp::secs_f64));
        self.json(self.get(query.after("/events"))).await
    }
}
