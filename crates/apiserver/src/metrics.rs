//! What the API server counts, in Prometheus' text form, under the names dashboards already know.
//!
//! Beside it stand what its objects say of instances and what others in this process count ([`MetricSource`]): the
//! agent's numbers of the machines on this node. Those of other nodes are not gathered here.

mod instances;

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64},
    },
    time::Duration,
};

use parking_lot::Mutex;
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

use crate::ApiServer;

/// Writes numbers of its own in the same form: whole families, each with its lines together.
pub type MetricSource = Arc<dyn Fn(&mut String) + Send + Sync>;

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
pub struct RequestLabels {
    pub verb: &'static str,
    pub group: String,
    pub resource: String,
    pub code: u32,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct VerbLabels {
    verb: &'static str,
}

type Durations = Family<VerbLabels, Histogram, fn() -> Histogram>;

/// Counters of one API server. Cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    requests: Family<RequestLabels, Counter<u64, AtomicU64>>,
    durations: Durations,
    in_flight: Gauge<i64, AtomicI64>,
    watches: Gauge<i64, AtomicI64>,
    revision: Gauge<i64, AtomicI64>,
}

/// Counts as an open watch until it is dropped.
pub struct OpenWatch(Gauge<i64, AtomicI64>);

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Counts as a request under way until it is dropped.
pub struct InFlight(Gauge<i64, AtomicI64>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics::new()
    }
}

impl Metrics {
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let metrics = Metrics {
            requests: Family::default(),
            durations: Durations::new_with_constructor(|| {
                Histogram::new([
                    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
                    60.0,
                ])
            }),
            in_flight: Gauge::default(),
            watches: Gauge::default(),
            revision: Gauge::default(),
            registry: Arc::default(),
        };
        registry.register(
            "apiserver_request",
            "Requests by verb, resource and code",
            metrics.requests.clone(),
        );
        registry.register(
            "apiserver_request_duration_seconds",
            "How long requests took, watches left out",
            metrics.durations.clone(),
        );
        registry.register(
            "apiserver_current_inflight_requests",
            "Requests under way",
            metrics.in_flight.clone(),
        );
        registry.register("apiserver_longrunning_requests", "Watches under way", metrics.watches.clone());
        registry.register("sheaf_cache_revision", "How far the watch cache is", metrics.revision.clone());
        *metrics.registry.lock() = registry;
        metrics
    }

    pub fn watch_opened(&self) -> OpenWatch {
        self.watches.inc();
        OpenWatch(self.watches.clone())
    }

    pub fn request_began(&self) -> InFlight {
        self.in_flight.inc();
        InFlight(self.in_flight.clone())
    }

    pub fn request_ended(&self, labels: RequestLabels, took: Duration) {
        if labels.verb != "WATCH" {
            self.durations.get_or_create(&VerbLabels { verb: labels.verb }).observe(took.as_secs_f64());
        }
        self.requests.get_or_create(&labels).inc();
    }

    fn render(&self, revision: u64) -> String {
        self.revision.set(i64::try_from(revision).unwrap_or(i64::MAX));
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = encode(&mut text, &self.registry.lock());
        // More follows; and where the page ends is marked only in a form that this one is not.
        if let Some(end) = text.strip_suffix("# EOF\n").map(str::len) {
            text.truncate(end);
        }
        text
    }
}

impl ApiServer {
    /// The page `/metrics`.
    pub(crate) fn metrics_page(&self) -> String {
        let mut text = self.metrics.render(self.cache.applied());
        self.fairness.write_metrics(&mut text);
        self.audit.write_metrics(&mut text);
        instances::write(&mut text, &self.cache);
        for source in &self.config.metric_sources {
            source(&mut text);
        }
        text
    }
}
