//! What the pipeline counts.

use prometheus::core::Collector;
use prometheus::{Gauge, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry};

use crate::cache::Statistics;
use crate::record::{Alarm, AlarmState, Outcome, Severity};

/// The counters of one worker's pipeline. Clones are the same counters.
#[derive(Clone, Debug)]
pub struct Metrics {
    pub(super) reads: Histogram,
    pub(super) writes: Histogram,
    pub(super) calculation: Histogram,
    pub(super) store_waits: IntCounter,
    pub(super) states_lost: IntCounter,
    strategies_loaded: IntCounter,
    strategies_refused: IntCounter,
    hit_rate: Gauge,
    cache_bytes: IntGauge,
    cache_evictions: IntGauge,
    outcomes: IntCounterVec,
    alarms: IntCounterVec,
}

impl Metrics {
    /// Registers them; a registry takes them once.
    pub(crate) fn new(registry: &Registry) -> Self {
        let histogram =
            |name: &str, help: &str| add(registry, Histogram::with_opts(HistogramOpts::new(name, help)));
        let counter = |name: &str, help: &str| add(registry, IntCounter::new(name, help));
        let gauge = |name: &str, help: &str| add(registry, IntGauge::new(name, help));
        let counters = |name: &str, help: &str, labels: &[&str]| {
            add(registry, IntCounterVec::new(Opts::new(name, help), labels))
        };
        let metrics = Self {
            reads: histogram(
                "defender_cassandra_read_duration_seconds",
                "latency of chart-store reads, whichever store it is",
            ),
            writes: histogram(
                "defender_cassandra_write_duration_seconds",
                "latency of chart-store writes, whichever store it is",
            ),
            calculation: histogram(
                "defender_uchart_calculation_duration_seconds",
                "time to decode a run, compute its indicators and judge them",
            ),
            store_waits: counter(
                "defender_store_waits_total",
                "messages that waited because the chart store did not answer",
            ),
            states_lost: counter(
                "defender_chart_states_lost_total",
                "chambers whose charts began anew because their state was gone",
            ),
            strategies_loaded: counter(
                "defender_strategies_loaded_total",
                "how often a changed strategy file came into force",
            ),
            strategies_refused: counter(
                "defender_strategies_refused_total",
                "how often a changed strategy file was wrong, and the old one stayed",
            ),
            hit_rate: add(
                registry,
                Gauge::new(
                    "defender_cache_hit_rate",
                    "share of history reads served by the cache, last 5 minutes",
                ),
            ),
            cache_bytes: gauge("defender_cache_bytes", "what the cache holds"),
            cache_evictions: gauge("defender_cache_evictions", "chambers that had to make room so far"),
            outcomes: counters(
                "defender_contexts_total",
                "messages whose results were written, by what became of them",
                &["outcome"],
            ),
            alarms: counters("defender_alarms_total", "alarms published", &["severity", "state"]),
        };
        // What has not happened yet is shown as 0.
        for outcome in Outcome::ALL {
            metrics.outcomes.with_label_values(&[outcome.name()]);
        }
        for severity in Severity::ALL {
            for state in ["raised", "cleared"] {
                metrics.alarms.with_label_values(&[severity.name(), state]);
            }
        }
        metrics
    }

    pub(crate) fn strategy_loaded(&self) {
        self.strategies_loaded.inc();
    }

    pub(crate) fn strategy_refused(&self) {
        self.strategies_refused.inc();
    }

    pub(super) fn outcome(&self, outcome: Outcome) {
        self.outcomes.with_label_values(&[outcome.name()]).inc();
    }

    pub(super) fn alarm(&self, alarm: &Alarm) {
        let state = if alarm.state == AlarmState::Cleared { "cleared" } else { "raised" };
        self.alarms.with_label_values(&[alarm.severity.name(), state]).inc();
    }

    pub(super) fn show_cache(&self, statistics: &Statistics) {
        self.hit_rate.set(statistics.hit_rate);
        self.cache_bytes.set(i64::try_from(statistics.bytes).unwrap_or(i64::MAX));
        self.cache_evictions.set(i64::try_from(statistics.evictions).unwrap_or(i64::MAX));
    }

    /// Messages whose results were written, by what became of them.
    pub fn outcomes(&self, outcome: Outcome) -> u64 {
        self.outcomes.with_label_values(&[outcome.name()]).get()
    }
}

/// A name that cannot be registered would be a mistake in this file, or a registry that has them already.
fn add<C: Collector + Clone + 'static>(registry: &Registry, made: prometheus::Result<C>) -> C {
    let metric = made.unwrap_or_else(|e| unreachable!("a metric of this file: {e}"));
    let added = registry.register(Box::new(metric.clone()));
    debug_assert!(added.is_ok(), "{added:?}");
    metric
}
