//! Explains a session: what it should be, what it is, what comes next, and why.

use super::request::Viewer;
use super::{Control, Refusal};
use crate::id::{SessionId, Tenant};
use crate::policy::{Capacity, Persist, Policy};
use crate::session::admission::{Census, Standing};
use crate::session::blueprint::container_name;
use crate::session::lifecycle::{Keep, aim, lifetimes_under};
use crate::session::outlook::{coming, container_state, since};
use crate::session::phase::{Phase, phase};
use crate::session::record::{Record, Status};
use crate::wire::error::Ceiling;
use crate::wire::explain::{ExplainedContainer, NextStep, SessionExplanation};

impl Control {
    /// Explains an open session by what is on record; asks the engine nothing.
    pub fn explain(&self, id: &SessionId, viewer: Viewer) -> Result<SessionExplanation, Refusal> {
        let record = self
            .open_record(id)
            .ok_or_else(|| Refusal::NoSession(id.clone()))?;
        let status = self.status(id);
        let policy = self.0.policy.get();
        let now = self.0.books.clock.now();
        let (leases, sweeps) = (&self.0.loop_.leases, self.holds().sweeps());
        let lifetimes = lifetimes_under(sweeps, policy.home(), &policy.lifetimes, &record.marks);
        let activity = self.0.loop_.epoch.ageing(leases, &record, sweeps, now);
        let due = self.0.loop_.work.due(id);
        let next = coming((&record, &status), &lifetimes, activity, (now, due));
        let phase = phase(&record, &status);
        Ok(SessionExplanation {
            aim: aim(&record.marks, &lifetimes, activity, now)
                .0
                .as_str()
                .to_owned(),
            phase: phase.as_str().to_owned(),
            reason: self.reason_of(&record, &status, phase),
            since: since(&record, &status, phase).secs_f64(),
            next: next.map(|next| NextStep {
                step: next.step.as_str().to_owned(),
                at: next.at.map(crate::clock::Timestamp::secs_f64),
            }),
            attempts: status.attempts,
            last_error: status.last_error.clone(),
            drift: self.drift_of(&record, &status, &policy),
            container: self.container_of((&record, &status), phase, &policy, viewer),
            lease_count: leases.count(id),
            ceilings: ceilings(
                &self.census(),
                &policy.capacity,
                record.spec.tenant.as_ref(),
            ),
        })
    }

    /// Why a session is in its phase: what holds the engine up goes before what is stored.
    fn reason_of(&self, record: &Record, status: &Status, phase: Phase) -> Option<String> {
        let stored = super::describe::reason(record, status, phase);
        let waits = !status.has_reached(&record.marks);
        let engine = self.0.loop_.engine.trouble().filter(|_| waits);
        engine.map(|why| format!("engine: {why}")).or(stored)
    }

    fn drift_of(&self, record: &Record, status: &Status, policy: &Policy) -> Vec<String> {
        let spec = &record.spec;
        let settings = self.has_drifted(record, status).then_some("settings");
        let runtime =
            (policy.catalogue.get(&spec.alias) != Some(&spec.runtime)).then_some("runtime");
        [settings, runtime]
            .into_iter()
            .flatten()
            .map(str::to_owned)
            .collect()
    }

    fn container_of(
        &self,
        (record, status): (&Record, &Status),
        phase: Phase,
        policy: &Policy,
        viewer: Viewer,
    ) -> ExplainedContainer {
        let spec = &record.spec;
        let keep = match (policy.lifetimes.persist, &self.0.host.workspaces) {
            // What holds the only copy of the files is kept in any case.
            (Persist::Yes, _) | (Persist::No, None) => Keep::Container,
            (Persist::No, Some(_)) => Keep::Files,
        };
        let engine = &self.0.loop_.engine;
        let state = match (&status.key, engine.lost(), engine.changed()) {
            (None, _, _) => "absent",
            (Some(_), None, None) => container_state(record, status, phase, keep),
            (Some(_), _, _) => "unknown",
        };
        let name = status.key.as_ref().map(|key| container_name(&spec.id, key));
        let (name, id) = match viewer {
            Viewer::Service => (name, status.container.clone()),
            Viewer::Session => (None, None),
        };
        ExplainedContainer {
            name,
            id,
            state: state.to_owned(),
        }
    }
}

/// Lists the ceilings that are set, with what counts towards each.
fn ceilings(census: &Census, capacity: &Capacity, tenant: Option<&Tenant>) -> Vec<Ceiling> {
    let count = |counts: &dyn Fn(Standing, Option<&Tenant>) -> bool| {
        let seats = census.seats.iter();
        let counted = seats.filter(|seat| counts(seat.standing, seat.tenant.as_ref()));
        u64::try_from(counted.count()).unwrap_or(u64::MAX)
    };
    let resident = count(&|standing, _| standing == Standing::Resident);
    let open = count(&|standing, _| standing.is_open());
    let of_tenant = count(&|standing, of| standing.is_open() && of == tenant);
    let service = || "service".to_owned();
    let per_tenant = tenant.map(|tenant| format!("tenant:{tenant}"));
    [
        (
            "max_sessions",
            capacity.max_sessions,
            resident,
            Some(service()),
        ),
        (
            "max_open_sessions",
            capacity.max_open_sessions,
            open,
            Some(service()),
        ),
        (
            "max_sessions_per_tenant",
            capacity.max_sessions_per_tenant,
            of_tenant,
            per_tenant,
        ),
    ]
    .into_iter()
    .filter_map(|(name, limit, used, scope)| {
        Some(Ceiling {
            name: name.to_owned(),
            limit: limit?,
            used,
            scope: scope?,
        })
    })
    .collect()
}
