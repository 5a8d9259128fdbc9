//! Reads the log of the service: what was done in all sessions, and what became of them.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::{Control, Refusal};
use crate::cause::chain;
use crate::clock::Timestamp;
use crate::id::{SessionId, Tenant};
use crate::session::Fact;
use crate::session::record::{Event, Record};
use crate::store::{CommitError, Page};
use crate::wire::events::{ServiceEvent, ServiceEvents};

/// How long what comes together is gathered before it is read: a reader that follows a
/// busy service looks a hundred times a second at most.
const GATHER: Duration = Duration::from_millis(10);
/// Facts of an event that are fields of their own where it is shown.
const SESSION: &str = "session";
const TENANT: &str = "tenant";
const REASON: &str = "reason";

/// Which events are wanted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wanted {
    /// Only those with a higher sequence number; the newest of all where `None`.
    pub after: Option<u64>,
    /// At most so many.
    pub limit: usize,
    /// Of this session.
    pub session: Option<SessionId>,
    /// Of this tenant's sessions.
    pub tenant: Option<Tenant>,
    /// Of this kind: `operation`, `lifecycle` or `service`.
    pub kind: Option<String>,
    /// Of this operation or this fact.
    pub op: Option<String>,
    /// From this moment on.
    pub since: Option<Timestamp>,
}

/// Makes the entry of the service's log of what was done in a session.
pub(super) fn of_session(id: &SessionId, record: Option<Arc<Record>>, event: &Event) -> Event {
    let mut event = event.clone();
    event.facts.insert(SESSION.to_owned(), id.to_string());
    let tenant = record.and_then(|record| record.spec.tenant.clone());
    if let Some(tenant) = tenant {
        event.facts.insert(TENANT.to_owned(), tenant.to_string());
    }
    event
}

impl Control {
    /// Reads a page of the service's log, oldest first.
    ///
    /// Without `after` the newest that fit are looked for among the last
    /// `EVENTS_SCANNED_MAX` events.
    pub async fn service_log(&self, wanted: Wanted) -> Result<ServiceEvents, Refusal> {
        self.log_is_whole().await?;
        let store = self.0.books.store.clone();
        let read = move || {
            let page = match wanted.after {
                Some(_) => Page::Oldest(wanted.limit),
                None => Page::Newest(wanted.limit),
            };
            let after = wanted.after.unwrap_or_default();
            store.search_service_log(after, page, &|event| wanted.admits(event))
        };
        let found = match tokio::task::spawn_blocking(read).await {
            Ok(found) => found,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        };
        let found = found.map_err(|error| Refusal::StoreUnavailable(chain(&error)))?;
        Ok(ServiceEvents {
            next: found.seen,
            latest_seq: found.latest_seq,
            first_seq: found.first_seq,
            events: found
                .events
                .into_iter()
                .map(|(seq, event)| on_wire(seq, event))
                .collect(),
        })
    }

    /// Waits until everything that was answered before is in the logs.
    pub(super) async fn log_is_whole(&self) -> Result<(), Refusal> {
        match self.0.books.store.settled().await {
            Err(CommitError::Closed) => Err(Refusal::ShuttingDown),
            // What is on the disk can be read, whatever became of the rest.
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Waits until the log has events after this one, but not beyond the deadline.
    pub async fn service_log_grows(&self, after: u64, deadline: Instant) {
        let mut end = self.0.books.store.service_log_end();
        let grows = async {
            // The store lives for as long as who asks, so there is no other end to this.
            if end.wait_for(|end| after < *end).await.is_ok() {
                sleep(GATHER).await;
            }
        };
        // Who waited looks either way.
        timeout_at(deadline, grows).await.unwrap_or(());
    }
}

impl Wanted {
    fn admits(&self, event: &Event) -> bool {
        let is = |wanted: Option<&str>, there: Option<&str>| {
            wanted.is_none_or(|wanted| there == Some(wanted))
        };
        let tenant = event.facts.get(TENANT).map(String::as_str);
        is(self.op.as_deref(), Some(&event.op))
            && is(self.kind.as_deref(), Some(kind(event)))
            && is(self.session.as_ref().map(SessionId::as_str), session(event))
            && is(self.tenant.as_ref().map(Tenant::as_str), tenant)
            && self.since.is_none_or(|since| since <= event.at)
    }
}

/// Names what an event is about.
fn kind(event: &Event) -> &'static str {
    if event.facts.contains_key(SESSION) {
        "operation"
    } else if Fact::is_one(&event.op) {
        "lifecycle"
    } else {
        "service"
    }
}

/// Returns the session that an event is about.
fn session(event: &Event) -> Option<&str> {
    match event.facts.get(SESSION) {
        Some(session) => Some(session),
        None => Fact::is_one(&event.op).then_some(event.target.as_str()),
    }
}

fn on_wire(seq: u64, mut event: Event) -> ServiceEvent {
    let kind = kind(&event).to_owned();
    let session_id = session(&event).map(str::to_owned);
    event.facts.remove(SESSION);
    let tenant = event.facts.remove(TENANT);
    let reason = event.facts.remove(REASON);
    // What became of a session says why in the place of how it ended.
    let is_reason = kind == "lifecycle" && !event.detail.is_empty();
    let reason = reason.or_else(|| is_reason.then(|| event.detail.clone()));
    let millis = Duration::from_micros(event.duration_us).as_secs_f64() * 1_000.0;
    ServiceEvent {
        seq,
        at: event.at.secs_f64(),
        duration_ms: (kind == "operation").then_some((millis * 10.0).round() / 10.0),
        kind,
        session_id,
        tenant,
        op: event.op,
        target: event.target,
        ok: event.ok,
        detail: event.detail,
        reason,
        request_id: event.request_id,
        facts: event.facts,
    }
}
