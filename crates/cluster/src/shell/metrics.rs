//! The counters and gauges of one worker, in a registry of its own.

use std::sync::Arc;
use std::time::Duration;

use phalanx_fsm::State as _;
use prometheus::core::Collector;
use prometheus::{
    Encoder as _, Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, TextEncoder,
};

use super::problem::Problem;
use crate::codec::loads;
use crate::core::types::{AssignmentMap, WindowKind};
use crate::core::{PlanSummary, WorkerState};
use crate::names::Names;

/// The metrics of one worker. Clones are the same metrics; nothing is global.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    pub(super) all: Arc<Instruments>,
}

/// The instruments of one worker. Their names are neutral unless the group's [`Names`] rename them.
#[derive(Debug)]
pub(super) struct Instruments {
    pub(super) state: IntGauge,
    pub(super) transitions: IntCounterVec,
    pub(super) state_duration: HistogramVec,
    pub(super) is_leader: IntGaugeVec,
    pub(super) stable_id: IntGauge,
    pub(super) stable_id_claimed: IntGaugeVec,
    pub(super) initialization: Histogram,
    pub(super) claim_attempts: IntCounter,
    pub(super) claim_duration: Histogram,
    pub(super) elections: IntCounter,
    pub(super) controller_started: IntCounter,
    pub(super) leadership: Histogram,
    pub(super) follower_wait: Histogram,
    pub(super) assigned: IntGauge,
    pub(super) received: IntCounter,
    pub(super) processed: IntCounter,
    pub(super) failed: IntCounter,
    pub(super) process_time: Histogram,
    pub(super) assignment_version: IntGauge,
    pub(super) map_version: IntGauge,
    pub(super) heartbeat_errors: IntCounter,
    pub(super) active: IntGauge,
    pub(super) active_heartbeats: IntGauge,
    pub(super) rebalances: IntCounter,
    pub(super) scalings: IntCounter,
    pub(super) emergencies: IntCounter,
    pub(super) movements: IntCounter,
    pub(super) moved: IntGauge,
    pub(super) calculation: Histogram,
    pub(super) deviation: Gauge,
    pub(super) partitions: [Gauge; 3],
    pub(super) weights: [Gauge; 3],
    pub(super) initialization_failures: IntCounter,
    pub(super) pending: IntGauge,
    pub(super) triggers: IntCounterVec,
    pub(super) restarts: IntCounter,
    pub(super) windows: HistogramVec,
    pub(super) scaling_duration: Histogram,
    pub(super) rebalance_duration: Histogram,
    pub(super) emergency_duration: Histogram,
    pub(super) redistributed: IntCounter,
    pub(super) placing: Histogram,
    pub(super) balancing: Histogram,
    pub(super) rounds: IntGauge,
    pub(super) shutdowns: IntCounter,
    pub(super) shutdown_duration: Histogram,
    pub(super) inflight_at_shutdown: IntGauge,
    pub(super) subscriptions: IntGauge,
    pub(super) subscribed: IntCounter,
    pub(super) unsubscribed: IntCounter,
    pub(super) subscription_errors: IntCounter,
    pub(super) subscription_duration: Histogram,
    pub(super) dead_letters: IntCounter,
    pub(super) expired: IntCounter,
    pub(super) replaced: IntCounter,
    pub(super) adopted: IntCounter,
    pub(super) hook_errors: IntCounterVec,
    pub(super) problems: IntCounterVec,
}

impl Metrics {
    /// Returns the metrics of a worker of a group, all at 0.
    pub fn new(names: &Names) -> Self {
        let registry = Registry::new();
        let of = Registrar { registry: &registry, names };
        let all = Instruments {
            state: of.gauge("phalanx_state", "number of the worker's current state"),
            transitions: of.counters(
                "phalanx_state_transitions_total",
                "state changes so far",
                &["from", "to"],
            ),
            state_duration: of.histograms(
                "phalanx_state_duration_seconds",
                "how long the worker stayed in a state before leaving it",
                &["state"],
            ),
            is_leader: of.gauges("phalanx_is_leader", "1 on the leader, else 0", &["worker"]),
            stable_id: of.gauge("phalanx_worker_id", "number part of the claimed id; -1 without one"),
            stable_id_claimed: of.gauges(
                "phalanx_worker_id_claimed",
                "1 for the id this process holds",
                &["id"],
            ),
            initialization: of.histogram(
                "phalanx_initialization_duration_seconds",
                "time from the start to all connections ready",
            ),
            claim_attempts: of.counter("phalanx_id_claim_attempts_total", "ids tried while claiming"),
            claim_duration: of.histogram("phalanx_id_claim_duration_seconds", "time to obtain an id"),
            elections: of.counter("phalanx_election_participated_total", "leases this process tried to take"),
            controller_started: of
                .counter("phalanx_assignment_controller_started_total", "times this process began to lead"),
            leadership: of
                .histogram("phalanx_leadership_duration_seconds", "length of a finished leadership"),
            follower_wait: of.histogram(
                "phalanx_follower_wait_duration_seconds",
                "wait of a follower for its first assignment",
            ),
            assigned: of.gauge("phalanx_assigned_partitions", "partitions owned now"),
            received: of.counter(
                "phalanx_messages_received_total",
                "messages given to the handler, retries included",
            ),
            processed: of.counter("phalanx_messages_processed_total", "messages committed"),
            failed: of.counter("phalanx_messages_failed_total", "failed processing attempts"),
            process_time: of.histogram("phalanx_process_time_seconds", "time to process one message"),
            assignment_version: of.gauge("phalanx_assignment_version", "version of the map applied here"),
            map_version: of.gauge("phalanx_assignment_map_version", "version of the newest map seen"),
            heartbeat_errors: of
                .counter("phalanx_heartbeat_errors_total", "heartbeats that could not be written"),
            active: of.gauge("phalanx_active_workers", "live workers as the leader sees them"),
            active_heartbeats: of.gauge(
                "phalanx_active_heartbeat_count",
                "workers heard within three intervals, on the leader",
            ),
            rebalances: of.counter("phalanx_rebalance_events_total", "maps published after a planned change"),
            scalings: of.counter("phalanx_scaling_events_total", "windows opened"),
            emergencies: of.counter("phalanx_emergency_events_total", "emergency redistributions"),
            movements: of
                .counter("phalanx_partition_movements_total", "partitions that changed owner, summed"),
            moved: of.gauge("phalanx_assignment_partitions_moved", "partitions moved by the last plan"),
            calculation: of
                .histogram("phalanx_assignment_calculation_duration_seconds", "whole planning time"),
            deviation: of.float(
                "phalanx_assignment_weight_variance_percent",
                "100 x standard deviation / mean of the loads",
            ),
            partitions: ["min", "max", "avg"].map(|which| {
                of.float(
                    &format!("phalanx_assignment_{which}_partitions"),
                    "partitions per worker by the last plan",
                )
            }),
            weights: ["min", "max", "avg"].map(|which| {
                of.float(&format!("phalanx_assignment_{which}_weight"), "weight per worker by the last plan")
            }),
            initialization_failures: of.counter(
                "phalanx_initialization_failures_total",
                "attempts to connect that failed before the start was complete",
            ),
            pending: of.gauge(
                "phalanx_pending_topology_changes",
                "changes that wait for the end of the window, on the leader",
            ),
            triggers: of.counters("phalanx_trigger_state", "maps made, by what triggered them", &["state"]),
            restarts: of.counter("phalanx_restart_detected_total", "cluster restarts recognized"),
            windows: of.histograms(
                "phalanx_stabilization_window_seconds",
                "how long a window was open before a map was made",
                &["type"],
            ),
            scaling_duration: of
                .histogram("phalanx_scaling_duration_seconds", "time spent in a window, on the leader"),
            rebalance_duration: of
                .histogram("phalanx_rebalance_duration_seconds", "time of a rebalance, on the leader"),
            emergency_duration: of.histogram(
                "phalanx_emergency_duration_seconds",
                "time of an emergency redistribution, on the leader",
            ),
            redistributed: of.counter(
                "phalanx_crashed_partitions_redistributed",
                "partitions of crashed workers that were given a new owner",
            ),
            placing: of.histogram(
                "phalanx_assignment_phase1_duration_seconds",
                "placing part of a calculation, estimated from its passes",
            ),
            balancing: of.histogram(
                "phalanx_assignment_phase2_duration_seconds",
                "balancing part of a calculation, estimated from its passes",
            ),
            rounds: of.gauge("phalanx_weight_rebalance_iterations", "rounds the last balancing took"),
            shutdowns: of.counter("phalanx_shutdowns_total", "graceful shutdowns begun"),
            shutdown_duration: of
                .histogram("phalanx_shutdown_duration_seconds", "time of a graceful shutdown"),
            inflight_at_shutdown: of.gauge(
                "phalanx_inflight_messages_at_shutdown",
                "messages in progress when the shutdown began",
            ),
            subscriptions: of.gauge("phalanx_current_subscriptions", "wake-up subscriptions open now"),
            subscribed: of.counter("phalanx_subscription_added_total", "wake-up subscriptions opened"),
            unsubscribed: of.counter("phalanx_subscription_removed_total", "wake-up subscriptions closed"),
            subscription_errors: of.counter(
                "phalanx_subscription_errors_total",
                "wake-up subscriptions that could not be opened",
            ),
            subscription_duration: of.histogram(
                "phalanx_subscription_update_duration_seconds",
                "time to open a wake-up subscription",
            ),
            dead_letters: of.counter("phalanx_dead_letters_total", "messages given up"),
            expired: of.counter(
                "phalanx_messages_expired_total",
                "sequences of the log that were gone before they were read",
            ),
            replaced: of.counter("phalanx_log_replaced_total", "partitions whose log was another one"),
            adopted: of.counter(
                "phalanx_partitions_adopted_total",
                "unlisted partitions with messages that were adopted",
            ),
            hook_errors: of.counters("phalanx_hook_errors_total", "hooks that failed", &["hook"]),
            problems: of.counters(
                "phalanx_problems_total",
                "problems reported to the operator, by kind",
                &["kind"],
            ),
        };
        all.stable_id.set(-1);
        // What has not happened yet is shown as 0.
        for trigger in ["cold_start", "planned_scale", "crash"] {
            all.triggers.with_label_values(&[trigger]);
        }
        for window in ["cold_start", "planned_scale"] {
            all.windows.with_label_values(&[window]);
        }
        Self { registry, all: Arc::new(all) }
    }

    /// Counts an attempt to connect that failed before a worker could be started.
    pub fn initialization_failed(&self) {
        self.all.initialization_failures.inc();
    }

    /// The registry, to gather from or to add to.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Everything in the text format of Prometheus.
    pub fn text(&self) -> String {
        let mut text = Vec::new();
        // Writing to memory cannot fail, and the names were checked when they were registered.
        let _ = TextEncoder::new().encode(&self.registry.gather(), &mut text);
        String::from_utf8_lossy(&text).into_owned()
    }

    pub(super) fn problem(&self, problem: &Problem) {
        let kind = match problem {
            Problem::Backend(_) => "backend",
            Problem::BadValue(_) => "bad_value",
            Problem::Removed(_) => "removed",
            Problem::BucketReplaced(_) => "bucket_replaced",
            Problem::MapIncomplete { .. } => "map_incomplete",
            Problem::HookFailed { hook, .. }
            | Problem::HookPanicked { hook, .. }
            | Problem::HookStuck { hook, .. } => {
                self.all.hook_errors.with_label_values(&[*hook]).inc();
                "hook"
            }
            Problem::HookCallDropped { hook } => {
                self.all.hook_errors.with_label_values(&[*hook]).inc();
                "hook"
            }
            Problem::InvariantViolated(_) => "invariant_violated",
            Problem::Partitions(_) => "partitions",
            Problem::SubscriptionFailed { .. } => "subscription",
            Problem::Expired { .. } => "expired",
            Problem::LogReplaced { .. } => "log_replaced",
            Problem::Adopted { .. } => "adopted",
            Problem::DeadLetter { .. } => "dead_letter",
            Problem::StoresAdopted { .. } => "stores_adopted",
            Problem::PoolExhausted { .. } => "pool_exhausted",
            Problem::IdentityLost { .. } => "identity_lost",
            Problem::IdleStandby => "idle_standby",
        };
        self.all.problems.with_label_values(&[kind]).inc();
    }

    pub(super) fn record_transition(
        &self,
        from: WorkerState,
        to: WorkerState,
        stayed: Duration,
        leads: bool,
    ) {
        let all = &self.all;
        all.state.set(i64::from(to.code()));
        all.transitions.with_label_values(&[from.name(), to.name()]).inc();
        all.state_duration.with_label_values(&[from.name()]).observe(stayed.as_secs_f64());
        match to {
            WorkerState::Stable if from == WorkerState::Follower => {
                all.follower_wait.observe(stayed.as_secs_f64());
            }
            WorkerState::Shutdown => all.shutdowns.inc(),
            WorkerState::Scaling if leads => all.scalings.inc(),
            _ => {}
        }
        let of_leader = match from {
            WorkerState::Scaling => &all.scaling_duration,
            WorkerState::Rebalancing => &all.rebalance_duration,
            WorkerState::Emergency => &all.emergency_duration,
            _ => return,
        };
        if leads {
            of_leader.observe(stayed.as_secs_f64());
        }
    }

    /// Records that the leader has calculated a map. The calculation is timed as a whole. Placing goes through the partitions
    /// once and each round of balancing does so again, so the time is divided by their numbers.
    pub(super) fn record_plan(&self, planned: &PlanSummary, took: Duration) {
        let all = &self.all;
        let trigger = match planned.window {
            _ if planned.emergency => "crash",
            Some((WindowKind::ColdStart | WindowKind::Restart, _)) => "cold_start",
            Some((WindowKind::PlannedScale, _)) | None => "planned_scale",
        };
        all.triggers.with_label_values(&[trigger]).inc();
        if let Some((_, open)) = planned.window {
            all.windows.with_label_values(&[trigger]).observe(open.as_secs_f64());
        }
        if planned.emergency {
            all.redistributed.inc_by(planned.orphans as u64);
            all.emergencies.inc();
        } else {
            all.rebalances.inc();
        }
        let (placing, balancing) = (1.0, f64::from(planned.rounds));
        let took = took.as_secs_f64();
        all.placing.observe(took * placing / (placing + balancing));
        all.balancing.observe(took * balancing / (placing + balancing));
        all.rounds.set(i64::from(planned.rounds));
    }

    /// The leader publishes a map.
    pub(super) fn record_map(&self, map: &AssignmentMap, took: Duration) {
        let all = &self.all;
        all.calculation.observe(took.as_secs_f64());
        all.moved.set(map.moved as i64);
        all.movements.inc_by(map.moved as u64);
        let loads = loads(map);
        let show = |gauges: &[Gauge; 3], values: Vec<f64>| {
            let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
            gauges[0].set(values.iter().copied().fold(f64::INFINITY, f64::min));
            gauges[1].set(values.iter().copied().fold(0.0, f64::max));
            gauges[2].set(mean);
            let variance =
                values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len().max(1) as f64;
            if mean > 0.0 { 100.0 * variance.sqrt() / mean } else { 0.0 }
        };
        show(&all.partitions, loads.values().map(|load| load.partitions as f64).collect());
        all.deviation.set(show(&all.weights, loads.values().map(|load| load.weight.0 as f64).collect()));
    }

    /// What only a leader knows falls to 0 when it leads no more.
    pub(super) fn reset_leader_gauges(&self, led: Duration) {
        let all = &self.all;
        all.leadership.observe(led.as_secs_f64());
        for gauge in [&all.active, &all.active_heartbeats, &all.moved, &all.pending, &all.rounds] {
            gauge.set(0);
        }
        for gauge in all.partitions.iter().chain(&all.weights).chain([&all.deviation]) {
            gauge.set(0.0);
        }
    }
}

/// Creates metrics and registers them. A name that cannot be registered is a mistake in this file or in the names of the
/// group: every name occurs once, and a test gathers them all.
struct Registrar<'a> {
    registry: &'a Registry,
    names: &'a Names,
}

impl Registrar<'_> {
    fn add<C: Collector + Clone + 'static>(&self, made: prometheus::Result<C>) -> C {
        let metric = made.unwrap_or_else(|e| unreachable!("a metric of this file: {e}"));
        let added = self.registry.register(Box::new(metric.clone()));
        debug_assert!(added.is_ok(), "{added:?}");
        metric
    }

    /// Returns the name from outside, or the neutral one with the label `group`.
    fn opts(&self, name: &str, help: &str) -> Opts {
        match self.names.metric(name) {
            Some(outside) => Opts::new(outside, help),
            None => Opts::new(name, help).const_label("group", self.names.group()),
        }
    }

    fn labels<'a>(&self, labels: &[&'a str]) -> Vec<&'a str> {
        labels.iter().map(|label| self.names.metric(label).unwrap_or(label)).collect()
    }

    fn gauge(&self, name: &str, help: &str) -> IntGauge {
        self.add(IntGauge::with_opts(self.opts(name, help)))
    }

    fn float(&self, name: &str, help: &str) -> Gauge {
        self.add(Gauge::with_opts(self.opts(name, help)))
    }

    fn counter(&self, name: &str, help: &str) -> IntCounter {
        self.add(IntCounter::with_opts(self.opts(name, help)))
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        self.add(IntGaugeVec::new(self.opts(name, help), &self.labels(labels)))
    }

    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.add(IntCounterVec::new(self.opts(name, help), &self.labels(labels)))
    }

    fn histogram(&self, name: &str, help: &str) -> Histogram {
        self.add(Histogram::with_opts(HistogramOpts::from(self.opts(name, help))))
    }

    fn histograms(&self, name: &str, help: &str, labels: &[&str]) -> HistogramVec {
        self.add(HistogramVec::new(HistogramOpts::from(self.opts(name, help)), &self.labels(labels)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_registered_once_and_two_workers_share_nothing() {
        let names = Names::of("invoices");
        let (one, other) = (Metrics::new(&names), Metrics::new(&names));
        one.all.processed.inc();
        let counter = "phalanx_messages_processed_total{group=\"invoices\"}";
        assert!(one.text().contains(&format!("{counter} 1")), "{}", one.text());
        assert!(other.text().contains(&format!("{counter} 0")));
        assert!(other.text().contains("phalanx_worker_id{group=\"invoices\"} -1"));
    }

    #[test]
    fn metrics_with_labels_have_their_kinds() {
        let metrics = Metrics::new(&Names::of("invoices"));
        let all = &metrics.all;
        all.transitions.with_label_values(&["a", "b"]);
        all.state_duration.with_label_values(&["a"]);
        all.is_leader.with_label_values(&["a"]);
        all.stable_id_claimed.with_label_values(&["a"]);
        for kind in [
            "phalanx_state_transitions_total counter",
            "phalanx_state_duration_seconds histogram",
            "phalanx_is_leader gauge",
            "phalanx_worker_id_claimed gauge",
        ] {
            assert!(metrics.text().contains(&format!("# TYPE {kind}\n")), "{kind}");
        }
    }

    #[test]
    fn a_name_from_outside_replaces_name_and_label_and_needs_no_group() {
        let names = Names::of("invoices").metrics(|neutral| match neutral {
            "phalanx_is_leader" => Some("billing_leads"),
            "worker" => Some("clerk"),
            _ => None,
        });
        let metrics = Metrics::new(&names);
        metrics.all.is_leader.with_label_values(&["invoices-0"]).set(1);
        assert!(metrics.text().contains("billing_leads{clerk=\"invoices-0\"} 1"), "{}", metrics.text());
    }
}
