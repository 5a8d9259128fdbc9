//! Counts what was done, and shows how the service is, in numbers for a monitoring system.
//!
//! Counters and histograms begin at zero with the daemon. Gauges are read from what is known
//! when somebody asks. No session and no tenant is named: there may be thousands.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use super::Control;
use super::errand::Entry;
use crate::session::Hold;
use crate::session::phase::{Phase, phase};
use crate::session::record::Exec;
use crate::store::Health;

/// Seconds up to which durations are told apart: from the read of a file to a long command.
pub const SECONDS: [f64; 12] = [
    0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 60.0, 300.0,
];

/// What was done in sessions since the daemon started; cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Metrics {
    done: Family<Done, Counter>,
    took: Family<Operation, Histogram, fn() -> Histogram>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Done {
    op: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Operation {
    op: &'static str,
}

/// One label of a gauge.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Of {
    of: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Build {
    version: &'static str,
    commit: &'static str,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            done: Family::default(),
            took: Family::new_with_constructor(|| Histogram::new(SECONDS)),
        }
    }
}

impl Metrics {
    /// Counts an operation that took so many microseconds.
    pub(super) fn count(&self, entry: &Entry<'_>, micros: u64) {
        let op = entry.op;
        let result = match (entry.ok, entry.why) {
            (true, _) => "ok",
            (false, Some(why)) => why,
            (false, None) => "failed",
        };
        self.done.get_or_create(&Done { op, result }).inc();
        let seconds = std::time::Duration::from_micros(micros).as_secs_f64();
        self.took.get_or_create(&Operation { op }).observe(seconds);
    }
}

impl Control {
    /// Registers what is counted and how the service is now; cheap, and never waits.
    pub fn measure(&self, registry: &mut Registry) {
        let build = Info::new(Build {
            version: env!("CARGO_PKG_VERSION"),
            commit: env!("SANDBOXD_COMMIT"),
        });
        registry.register("build", "The version that runs", build);
        let Metrics { done, took } = self.0.metrics.clone();
        registry.register(
            "operations",
            "Operations in sessions, by how they ended",
            done,
        );
        registry.register("operation_seconds", "How long operations took", took);
        self.measure_sessions(registry);
        let running = gauge(self.0.slots.count());
        registry.register("commands_running", "Commands under way", running);
        let limit = gauge(self.0.policy.get().limits.max_running_commands);
        registry.register("commands_running_max", "The most at once", limit);
        let docker = gauge(usize::from(self.0.loop_.engine.trouble().is_none()));
        registry.register("docker_up", "Whether the engine answers", docker);
        let store = gauge(usize::from(self.0.books.store.health() == Health::Ok));
        registry.register("store_up", "Whether the store takes writes", store);
        let holds = Family::<Of, Gauge>::default();
        let standing: Vec<Hold> = self.holds().standing().iter().map(|one| one.hold).collect();
        for hold in Hold::ALL {
            let stands = i64::from(standing.contains(&hold));
            holds.get_or_create(&Of { of: hold.as_str() }).set(stands);
        }
        registry.register("held", "What the service holds back from doing", holds);
    }

    fn measure_sessions(&self, registry: &mut Registry) {
        let phases = Family::<Of, Gauge>::default();
        for phase in Phase::ALL {
            phases.get_or_create(&Of { of: phase.as_str() }).set(0);
        }
        let ways = Family::<Of, Gauge>::default();
        for way in [Exec::Agent, Exec::Docker] {
            ways.get_or_create(&Of { of: way.as_str() }).set(0);
        }
        for (record, status) in self.0.books.store.open_entries() {
            let status = status.unwrap_or_default();
            let phase = phase(&record, &status);
            phases.get_or_create(&Of { of: phase.as_str() }).inc();
            if status.container.is_some() {
                ways.get_or_create(&Of {
                    of: status.exec.as_str(),
                })
                .inc();
            }
        }
        registry.register("sessions", "Open sessions, by their phase", phases);
        let help = "Containers of open sessions, by how commands reach them";
        registry.register("sandboxes", help, ways);
        let counts = self.counts();
        let resident = Gauge::<i64>::default();
        resident.set(i64::try_from(counts.resident).unwrap_or(i64::MAX));
        registry.register("resident", "Sandboxes that take up a place", resident);
        let capacity = &self.0.policy.get().capacity;
        let limits = Family::<Of, Gauge>::default();
        for (of, limit) in [
            ("resident", capacity.max_sessions),
            ("open", capacity.max_open_sessions),
            ("tenant", capacity.max_sessions_per_tenant),
        ] {
            if let Some(limit) = limit {
                let limit = i64::try_from(limit).unwrap_or(i64::MAX);
                limits.get_or_create(&Of { of }).set(limit);
            }
        }
        registry.register("sessions_max", "The ceilings that are set", limits);
    }
}

fn gauge(value: usize) -> Gauge {
    let gauge = Gauge::default();
    gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
    gauge
}
