//! Describes sessions, the service and its policy, without asking the engine.

use std::sync::Arc;

use futures_util::{StreamExt as _, stream};

use super::request::{Events, List, Sampling, Viewer};
use super::{Control, Refusal};
use crate::clock::Timestamp;
use crate::id::SessionId;
use crate::policy::describe as describe_policy;
use crate::session::Hold;
use crate::session::blueprint::{blueprint, container_name};
use crate::session::phase::{Phase, phase};
use crate::session::record::{Event, Exec, Record, Status};
use crate::store::{Health, Page};
use crate::wire::events::{SessionEvent, SessionEvents};
use crate::wire::service::{ServiceHealth, ServicePolicy};
use crate::wire::sessions::{SessionInfo, SessionList};

/// Events of a page whose caller named no limit.
const EVENTS_DEFAULT: usize = 200;

/// Sandboxes that are sampled at once for a listing: where the engine has to be
/// asked, each takes a second or two.
const SAMPLES_MAX: usize = 64;

impl Control {
    /// Describes how the service is; cheap, and never waits.
    pub fn health(&self) -> ServiceHealth {
        let policy = self.0.policy.get();
        let counts = self.counts();
        let mut reasons = Vec::new();
        if let Some(trouble) = self.0.loop_.engine.trouble() {
            reasons.push(format!("engine: {trouble}"));
        }
        match self.0.books.store.health() {
            Health::Ok => {}
            Health::Full { reason } | Health::Degraded { reason } => {
                reasons.push(format!("store: {reason}"));
            }
        }
        let held = self.holds().standing().into_iter();
        // Another engine is the engine's trouble already.
        let held = held.filter(|standing| standing.hold != Hold::EngineChanged);
        reasons.extend(
            held.map(|held| format!("{}: {}; {}", held.hold.as_str(), held.detail, held.remedy)),
        );
        ServiceHealth {
            status: if reasons.is_empty() { "ok" } else { "degraded" }.to_owned(),
            sessions: counts.resident,
            limit: policy.capacity.max_sessions,
            open_sessions: counts.open,
            open_limit: policy.capacity.max_open_sessions,
            runtimes: policy
                .catalogue
                .iter()
                .map(|(alias, _)| alias.to_string())
                .collect(),
            reasons,
        }
    }

    /// Tells whether the engine and the store do their work; a service that is held
    /// back from sweeping does it all the same.
    pub fn is_ready(&self) -> bool {
        self.0.loop_.engine.trouble().is_none() && self.0.books.store.health() == Health::Ok
    }

    /// Describes what the operator allows.
    pub fn policy(&self) -> ServicePolicy {
        let mut policy = describe_policy(&self.0.policy.get(), self.0.prewarm);
        policy.native_files = self.has_native_files();
        policy.native_writes = self.has_native_writes();
        policy.native_realpath = self.has_native_files();
        policy
    }

    /// Describes one open session.
    pub async fn describe(
        &self,
        id: &SessionId,
        usage: Sampling,
        viewer: Viewer,
    ) -> Result<SessionInfo, Refusal> {
        let record = self
            .open_record(id)
            .ok_or_else(|| Refusal::NoSession(id.clone()))?;
        let status = self.status(id);
        let now = self.0.books.clock.now();
        let mut info = self.info(&record, &status, (viewer, now));
        self.sample_into(&mut info, (id, &status), usage).await;
        Ok(info)
    }

    /// Lists open sessions in the order of opening.
    pub async fn list(&self, list: List) -> Result<SessionList, Refusal> {
        let policy = self.0.policy.get();
        let after = list.cursor.unwrap_or(0);
        let now = self.0.books.clock.now();
        let mut found = Vec::new();
        let mut last = 0;
        let mut next = None;
        for (record, status) in self.0.books.store.open_entries() {
            let spec = &record.spec;
            let status = status.unwrap_or_default();
            let state = || phase(&record, &status).state();
            let wanted = after < spec.order
                && (list.tenant.is_none() || list.tenant == spec.tenant)
                && list.state.as_ref().is_none_or(|wanted| wanted == state());
            if !wanted {
                continue;
            }
            if list.limit == Some(found.len()) {
                next = (0 < last).then(|| last.to_string());
                break;
            }
            last = spec.order;
            found.push((record, status));
        }
        // Looked at once more and not carried along: a description is large.
        let described = found
            .iter()
            .map(|(record, status)| self.info(record, status, (Viewer::Service, now)));
        let mut sessions: Vec<SessionInfo> = described.collect();
        if list.usage == Sampling::On {
            sessions = self.sampled(sessions, found).await;
        }
        Ok(SessionList {
            sessions,
            limit: policy.capacity.max_sessions,
            open_limit: policy.capacity.max_open_sessions,
            tenant_limit: policy.capacity.max_sessions_per_tenant,
            next,
        })
    }

    async fn sampled(
        &self,
        sessions: Vec<SessionInfo>,
        found: Vec<(Arc<Record>, Arc<Status>)>,
    ) -> Vec<SessionInfo> {
        stream::iter(sessions.into_iter().zip(found))
            .map(|(mut info, (record, status))| async move {
                let of = (&record.spec.id, &*status);
                self.sample_into(&mut info, of, Sampling::On).await;
                info
            })
            .buffered(SAMPLES_MAX)
            .collect()
            .await
    }

    /// Reads a session's log.
    pub async fn events(&self, id: &SessionId, events: Events) -> Result<SessionEvents, Refusal> {
        if self.open_record(id).is_none() {
            return Err(Refusal::NoSession(id.clone()));
        }
        self.log_is_whole().await?;
        let page = match events.limit {
            Some(limit) => Page::Oldest(limit),
            None => Page::Newest(EVENTS_DEFAULT),
        };
        let (store, session) = (self.0.books.store.clone(), id.clone());
        let read = move || store.events(Some(&session), events.after, page);
        let page = match tokio::task::spawn_blocking(read).await {
            Ok(page) => page,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        };
        let page = page.map_err(|error| Refusal::StoreUnavailable(crate::cause::chain(&error)))?;
        Ok(SessionEvents {
            events: page
                .events
                .into_iter()
                .map(|(seq, event)| on_wire(seq, event))
                .collect(),
            latest_seq: page.latest_seq,
            first_seq: page.first_seq,
        })
    }

    /// Describes a session to a viewer, as of a moment.
    fn info(
        &self,
        record: &Record,
        status: &Status,
        (viewer, now): (Viewer, Timestamp),
    ) -> SessionInfo {
        let spec = &record.spec;
        let phase = phase(record, status);
        let used = self.0.loop_.epoch.activity(&self.0.loop_.leases, record);
        let last = match &record.marks.parked {
            Some(parked) => parked.at,
            None => used.last_used,
        };
        let for_service = |text: Option<String>| match viewer {
            Viewer::Service => text,
            Viewer::Session => None,
        };
        SessionInfo {
            session_id: spec.id.to_string(),
            runtime: spec.alias.to_string(),
            tenant: spec.tenant.as_ref().map(ToString::to_string),
            alive: phase.alive(),
            state: phase.state().to_owned(),
            created_at: spec.opened_at.secs_f64(),
            last_activity: last.secs_f64(),
            idle_seconds: now.since(last).as_secs_f64(),
            usage: None,
            phase: phase.as_str().to_owned(),
            reason: reason(record, status, phase),
            incarnation: status.incarnation.max(1),
            exec: self.exec_of(record, status).as_str().to_owned(),
            drifted: self.has_drifted(record, status),
            container: for_service(status.key.as_ref().map(|key| container_name(&spec.id, key))),
            image: for_service(spec.runtime.ready_image().map(str::to_owned)),
        }
    }

    /// How commands reach the sandbox: an agent that does not answer serves none.
    fn exec_of(&self, record: &Record, status: &Status) -> Exec {
        match status.exec {
            Exec::Agent if self.0.reacher.reaches_agents(&record.spec.id) => Exec::Agent,
            Exec::Agent | Exec::Docker => Exec::Docker,
        }
    }

    /// Whether the container would be made differently today.
    pub(super) fn has_drifted(&self, record: &Record, status: &Status) -> bool {
        let Some(made) = &status.spec_hash else {
            return false;
        };
        let policy = self.0.policy.get();
        self.0.drift.has_drifted(made, &record.spec, &policy, || {
            let workspace = self.0.host.mounted(&record.spec.id);
            let today = blueprint(&record.spec, &policy, workspace.as_deref());
            today.ok().map(|today| today.hash())
        })
    }

    async fn sample_into(
        &self,
        info: &mut SessionInfo,
        (id, status): (&SessionId, &Status),
        usage: Sampling,
    ) {
        match (usage, info.alive, &status.container) {
            (Sampling::On, true, Some(container)) => {
                info.usage = self.0.sampler.sample(id, container).await;
            }
            (Sampling::On | Sampling::Off, _, _) => {}
        }
    }
}

/// Why a session is in its phase, where there is something to say.
pub(super) fn reason(record: &Record, status: &Status, phase: Phase) -> Option<String> {
    match phase {
        Phase::Hibernated | Phase::Hibernating | Phase::Lost => record
            .marks
            .parked
            .as_ref()
            .map(|parked| parked.reason.as_str().to_owned()),
        Phase::Failed => status.last_error.clone(),
        Phase::Opening | Phase::Running | Phase::Waking => None,
    }
}

fn on_wire(seq: u64, event: Event) -> SessionEvent {
    let millis = std::time::Duration::from_micros(event.duration_us).as_secs_f64() * 1_000.0;
    SessionEvent {
        seq,
        at: event.at.secs_f64(),
        op: event.op,
        target: event.target,
        ok: event.ok,
        detail: event.detail,
        duration_ms: (millis * 10.0).round() / 10.0,
    }
}
