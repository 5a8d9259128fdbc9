//! Counts requests, and shows all that is counted in the text format of Prometheus.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{Response, StatusCode};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use crate::api::auth::ServiceCaller;
use crate::api::reply;
use crate::api::routes::Target;
use crate::control::metrics::SECONDS;

/// What a scraper takes the text for.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The requests since the daemon started; cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Traffic {
    answered: Family<Answered, Counter>,
    took: Family<Place, Histogram, fn() -> Histogram>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    method: &'static str,
    route: &'static str,
    status: u16,
}

/// Where a request led. A path that is no route of ours is `-`, so that no caller adds to
/// what is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Place {
    method: &'static str,
    route: &'static str,
}

impl Place {
    /// Returns it.
    pub(super) fn of(target: &Target) -> Self {
        let (method, route) = match target {
            Target::Route(route, _) => (route.verb.as_str(), route.path),
            Target::OtherMethod(_) | Target::Slashed | Target::Nowhere => ("-", "-"),
        };
        Self { method, route }
    }
}

impl Default for Traffic {
    fn default() -> Self {
        Self {
            answered: Family::default(),
            took: Family::new_with_constructor(|| Histogram::new(SECONDS)),
        }
    }
}

impl Traffic {
    /// Counts an answer.
    pub(super) fn count(&self, place: Place, status: StatusCode, started: Instant) {
        let Place { method, route } = place;
        let status = status.as_u16();
        let answered = Answered {
            method,
            route,
            status,
        };
        self.answered.get_or_create(&answered).inc();
        let seconds = started.elapsed().as_secs_f64();
        self.took.get_or_create(&place).observe(seconds);
    }
}

pub(super) async fn metrics(caller: ServiceCaller, request: Request) -> Response<Body> {
    let mut registry = Registry::with_prefix("sandboxd");
    caller.control().measure(&mut registry);
    if let Some(traffic) = request.extensions().get::<Traffic>() {
        let Traffic { answered, took } = traffic.clone();
        registry.register("http_requests", "Answers to requests", answered);
        let help = "From the head of a request to the head of its answer";
        registry.register("http_request_seconds", help, took);
    }
    let mut text = String::new();
    encode(&mut text, &registry).expect("a string takes all that is written");
    reply::typed(CONTENT_TYPE, text.into())
}
