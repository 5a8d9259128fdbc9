//! Samples what a sandbox uses.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use super::reach::{Reacher, Way};
use crate::agent::protocol::message::Usage;
use crate::cgroup::{CgroupSample, Cgroups, cpu_percent};
use crate::clock::{Clock, Timestamp};
use crate::docker::Engine;
use crate::docker::stats::RawStats;
use crate::id::SessionId;
use crate::wire::sessions::{SessionUsage, UsageSource};

/// How long the agent of a sandbox may take where the control groups cannot be seen.
const AGENT_WAIT_MAX: Duration = Duration::from_secs(1);
/// How long the engine may take where the control groups cannot be seen.
const ENGINE_WAIT_MAX: Duration = Duration::from_secs(5);
/// How long a sample of the engine's is good for: it costs a second or two.
const ENGINE_SAMPLE_AGE_MAX: Duration = Duration::from_secs(5);

/// Samples sandboxes, and remembers the sample before for the processor's share.
#[derive(Debug)]
pub struct Sampler {
    cgroups: Cgroups,
    engine: Engine,
    reacher: Reacher,
    clock: Clock,
    /// By the engine's id; a `std` mutex, never held across an await.
    seen: Mutex<BTreeMap<String, Seen>>,
}

#[derive(Clone, Debug)]
struct Seen {
    cpu_ns: u64,
    at: Timestamp,
    /// What the engine said, where it had to be asked.
    engine: Option<SessionUsage>,
}

impl Sampler {
    /// Makes a sampler with nothing remembered.
    pub fn new(cgroups: Cgroups, engine: Engine, reacher: Reacher, clock: Clock) -> Self {
        Self {
            cgroups,
            engine,
            reacher,
            clock,
            seen: Mutex::default(),
        }
    }

    /// Samples a running container; `None` where neither files, agent nor engine tell.
    ///
    /// From the control group's files it takes microseconds, and its agent answers within a
    /// millisecond or so.
    pub async fn sample(&self, session: &SessionId, container: &str) -> Option<SessionUsage> {
        if let Some(sample) = self.cgroups.sample(container) {
            return Some(self.of_cgroup(container, &sample));
        }
        match self.of_agent(session, container).await {
            Some(usage) => Some(usage),
            None => self.of_engine(container).await,
        }
    }

    /// Drops what is remembered of containers that are not among these.
    pub fn retain(&self, containers: impl Fn(&str) -> bool) {
        self.seen().retain(|container, _| containers(container));
    }

    fn of_cgroup(&self, container: &str, sample: &CgroupSample) -> SessionUsage {
        let cpu_percent = self.share(container, sample.cpu_ns, None);
        SessionUsage {
            memory_bytes: Some(sample.memory_bytes),
            memory_limit_bytes: sample.memory_limit_bytes,
            cpu_percent,
            pids: sample.pids,
            source: Some(UsageSource::Host),
        }
    }

    /// Asks the agent, which reads the control group of its own container.
    async fn of_agent(&self, session: &SessionId, container: &str) -> Option<SessionUsage> {
        let deadline = Instant::now() + AGENT_WAIT_MAX;
        let Ok(Way::Agent(agent)) = self.reacher.way(session, container, deadline).await else {
            return None;
        };
        let usage: Usage = timeout_at(deadline, agent.usage()).await.ok()?.ok()?;
        // Not all runtimes mount the group.
        let memory_bytes = Some(usage.memory_bytes?);
        let cpu_percent = usage
            .cpu_ns
            .and_then(|cpu_ns| self.share(container, cpu_ns, None));
        Some(SessionUsage {
            memory_bytes,
            memory_limit_bytes: usage.memory_limit_bytes,
            cpu_percent,
            pids: usage.pids,
            source: Some(UsageSource::Agent),
        })
    }

    async fn of_engine(&self, container: &str) -> Option<SessionUsage> {
        let now = self.clock.now();
        let fresh = self.seen().get(container).and_then(|seen| {
            let is_fresh = now.since(seen.at) < ENGINE_SAMPLE_AGE_MAX;
            seen.engine.clone().filter(|_| is_fresh)
        });
        if fresh.is_some() {
            return fresh;
        }
        let stats: RawStats = timeout(ENGINE_WAIT_MAX, self.engine.stats(container))
            .await
            .ok()?
            .ok()??;
        let mut usage = SessionUsage {
            memory_bytes: Some(stats.memory_usage.saturating_sub(stats.inactive_file)),
            memory_limit_bytes: stats.memory_limit,
            cpu_percent: None,
            pids: stats.pids,
            source: Some(UsageSource::Engine),
        };
        usage.cpu_percent = self.share(container, stats.cpu_total_ns, Some(&usage));
        Some(usage)
    }

    /// The processor's share since the sample before, which this one replaces.
    fn share(&self, container: &str, cpu_ns: u64, engine: Option<&SessionUsage>) -> Option<f64> {
        let at = self.clock.now();
        let before = self.seen().insert(
            container.to_owned(),
            Seen {
                cpu_ns,
                at,
                engine: engine.cloned(),
            },
        );
        before.and_then(|before| cpu_percent((before.cpu_ns, before.at), (cpu_ns, at)))
    }

    fn seen(&self) -> MutexGuard<'_, BTreeMap<String, Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
