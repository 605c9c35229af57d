//! What the service counts.

use std::collections::BTreeMap;
use std::time::Duration;

use phalanx_etl::core::timetable::Feed;
use phalanx_etl::engine::Progress;
use phalanx_etl::store::{Counts, MacroStats, ProviderStats, Step};
use phalanx_etl::{MacroState, ProviderState};
use phalanx_fsm::State as _;
use prometheus::core::Collector;
use prometheus::{
    Encoder as _, GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};

/// Every metric, with what it says. Counters count since the process started.
pub const NAMES: &[(&str, &str)] = &[
    ("etl_macro_state", "1 for the state the orchestrator is in, by state"),
    ("etl_provider_state", "1 for the state a provider is in, by provider and state"),
    ("etl_transitions_total", "steps of the machines, by machine, from and to"),
    ("etl_events_total", "events, by provider and kind"),
    ("etl_event_queue_len", "events that are committed and that the orchestrator has not taken yet"),
    ("etl_runs_total", "runs that ended, by provider and outcome"),
    ("etl_records_total", "items read, by provider and outcome: stored, unchanged, dead_lettered, skipped"),
    ("etl_permits_held", "permits in hand, by provider"),
    ("etl_permits_wanted", "permits asked for, by provider"),
    ("etl_permits_revoked", "permits taken back in the present process of the engine, by provider"),
    ("etl_fetch_duration_seconds", "how long a source took to answer, by provider"),
    ("etl_fetches_total", "requests to sources, by provider and status; `none` where there was no answer"),
    (
        "etl_freshness_seconds",
        "how long ago a feed completed, or, where it never did, since when it is there",
    ),
    ("etl_freshness_limit_seconds", "how long ago that may be"),
    ("etl_stale", "1 for a feed that has not completed within its limit"),
    ("etl_stale_total", "how often a feed became stale"),
    ("etl_next_start_timestamp_seconds", "when a feed is read next, 0 where nothing is planned"),
];

pub(crate) struct Metrics {
    registry: Registry,
    macro_state: IntGaugeVec,
    provider_state: IntGaugeVec,
    transitions: IntCounterVec,
    events: IntCounterVec,
    event_queue_len: IntGauge,
    runs: IntCounterVec,
    records: IntCounterVec,
    permits_held: IntGaugeVec,
    permits_wanted: IntGaugeVec,
    permits_revoked: IntGaugeVec,
    fetch_duration: HistogramVec,
    fetches: IntCounterVec,
    freshness: GaugeVec,
    freshness_limit: GaugeVec,
    stale: IntGaugeVec,
    stale_total: IntCounterVec,
    next_start: GaugeVec,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let registry = Registry::new();
        let counters = |name: &str, labels: &[&str]| add(&registry, IntCounterVec::new(opts(name), labels));
        let gauges = |name: &str, labels: &[&str]| add(&registry, IntGaugeVec::new(opts(name), labels));
        let floats = |name: &str, labels: &[&str]| add(&registry, GaugeVec::new(opts(name), labels));
        let provider: &[&str] = &["provider"];
        Self {
            macro_state: gauges("etl_macro_state", &["state"]),
            provider_state: gauges("etl_provider_state", &["provider", "state"]),
            transitions: counters("etl_transitions_total", &["machine", "from", "to"]),
            events: counters("etl_events_total", &["provider", "kind"]),
            event_queue_len: add(&registry, IntGauge::with_opts(opts("etl_event_queue_len"))),
            runs: counters("etl_runs_total", &["provider", "outcome"]),
            records: counters("etl_records_total", &["provider", "outcome"]),
            permits_held: gauges("etl_permits_held", provider),
            permits_wanted: gauges("etl_permits_wanted", provider),
            permits_revoked: gauges("etl_permits_revoked", provider),
            fetch_duration: add(
                &registry,
                HistogramVec::new(HistogramOpts::from(opts("etl_fetch_duration_seconds")), provider),
            ),
            fetches: counters("etl_fetches_total", &["provider", "status"]),
            freshness: floats("etl_freshness_seconds", provider),
            freshness_limit: floats("etl_freshness_limit_seconds", provider),
            stale: gauges("etl_stale", provider),
            stale_total: counters("etl_stale_total", provider),
            next_start: floats("etl_next_start_timestamp_seconds", provider),
            registry,
        }
    }

    /// Every series of these providers is there from the beginning, at zero.
    pub(crate) fn begin(&self, providers: &[String]) {
        for id in providers {
            for outcome in OUTCOMES {
                self.records.with_label_values(&[id.as_str(), outcome]);
            }
            self.stale_total.with_label_values(&[id.as_str()]);
            self.fetch_duration.with_label_values(&[id.as_str()]);
        }
    }

    /// A provider got on: `before` is what was counted of it the last time.
    pub(crate) fn progressed(&self, progress: &Progress, before: Counts) {
        let counts = progress.counts;
        let more = [
            counts.stored - before.stored,
            counts.unchanged - before.unchanged,
            counts.dead_lettered - before.dead_lettered,
            counts.skipped - before.skipped,
        ];
        for (outcome, more) in OUTCOMES.into_iter().zip(more) {
            self.records.with_label_values(&[progress.provider.as_str(), outcome]).inc_by(more);
        }
        for (kind, _) in &progress.events {
            self.events.with_label_values(&[progress.provider.as_str(), kind.name()]).inc();
        }
        if let Some((outcome, _)) = &progress.ended {
            self.runs.with_label_values(&[progress.provider.as_str(), outcome.name()]).inc();
        }
    }

    pub(crate) fn moved(&self, step: &Step) {
        self.transitions.with_label_values(&[&step.machine, &step.from, &step.to]).inc();
    }

    pub(crate) fn fetched(&self, provider: &str, status: Option<u16>, took: Duration) {
        let status = status.map_or_else(|| "none".to_owned(), |status| status.to_string());
        self.fetches.with_label_values(&[provider, status.as_str()]).inc();
        self.fetch_duration.with_label_values(&[provider]).observe(took.as_secs_f64());
    }

    pub(crate) fn became_stale(&self, id: &str) {
        self.stale_total.with_label_values(&[id]).inc();
    }

    /// How things stand, as text for Prometheus.
    pub(crate) fn text(
        &self,
        orchestrator: Option<&MacroStats>,
        providers: &[ProviderStats],
        feeds: &BTreeMap<String, Feed>,
        now: Duration,
    ) -> String {
        for state in MacroState::MACHINE.states.iter().map(|row| row.state) {
            let here = orchestrator.is_some_and(|one| one.state == state.name());
            self.macro_state.with_label_values(&[state.name()]).set(here.into());
        }
        self.event_queue_len.set(orchestrator.map_or(0, |one| one.event_queue_len));
        for one in providers {
            let id = one.id.as_str();
            for state in ProviderState::MACHINE.states.iter().map(|row| row.state) {
                let here = one.state == state.name();
                self.provider_state.with_label_values(&[id, state.name()]).set(here.into());
            }
            self.permits_held.with_label_values(&[id]).set(one.permits_held);
            self.permits_wanted.with_label_values(&[id]).set(one.permits_wanted);
            self.permits_revoked.with_label_values(&[id]).set(one.permits_revoked);
        }
        for (id, feed) in feeds {
            let id = id.as_str();
            let since = feed.past.completed.unwrap_or(feed.past.known_since);
            self.freshness.with_label_values(&[id]).set(now.saturating_sub(since).as_secs_f64());
            self.freshness_limit.with_label_values(&[id]).set(feed.plan.fresh_within.as_secs_f64());
            self.stale.with_label_values(&[id]).set(feed.is_stale.into());
            let next = feed.next_start.unwrap_or_default().as_secs_f64();
            self.next_start.with_label_values(&[id]).set(next);
        }
        let mut text = Vec::new();
        // Writing to memory does not fail.
        let _ = TextEncoder::new().encode(&self.registry.gather(), &mut text);
        String::from_utf8(text).unwrap_or_default()
    }
}

const OUTCOMES: [&str; 4] = ["stored", "unchanged", "dead_lettered", "skipped"];

fn opts(name: &str) -> Opts {
    let help = NAMES.iter().find(|(one, _)| *one == name).map_or("", |(_, help)| help);
    Opts::new(name, help)
}

fn add<C: Collector + Clone + 'static>(registry: &Registry, metric: prometheus::Result<C>) -> C {
    let metric = metric.expect("the names above are good names");
    registry.register(Box::new(metric.clone())).expect("each name is registered once");
    metric
}
