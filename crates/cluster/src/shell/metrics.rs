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
use crate::core::types::{AssignmentMap, WindowKind};
use crate::core::{PlanSummary, WorkerState};

/// The metrics of one worker. Clones are the same metrics; nothing is global.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    pub(super) all: Arc<Instruments>,
}

/// Names and meanings are those of the requirements; the last group is ours.
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
    pub(super) chambers: [Gauge; 3],
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

impl Default for Metrics {
    fn default() -> Self {
        let registry = Registry::new();
        let of = Registrar(&registry);
        let all = Instruments {
            state: of.gauge("defender_state", "number of the worker's current state"),
            transitions: of.counters(
                "defender_state_transitions_total",
                "state changes so far",
                &["from", "to"],
            ),
            state_duration: of.histograms(
                "defender_state_duration_seconds",
                "how long the worker stayed in a state before leaving it",
                &["state"],
            ),
            is_leader: of.gauges("defender_is_leader", "1 on the leader, else 0", &["defender"]),
            stable_id: of.gauge("defender_stable_id", "number part of the claimed id; -1 without one"),
            stable_id_claimed: of.gauges(
                "defender_stable_id_claimed",
                "1 for the id this process holds",
                &["id"],
            ),
            initialization: of.histogram(
                "defender_initialization_duration_seconds",
                "time from the start to all connections ready",
            ),
            claim_attempts: of.counter("defender_id_claim_attempts_total", "ids tried while claiming"),
            claim_duration: of.histogram("defender_id_claim_duration_seconds", "time to obtain an id"),
            elections: of
                .counter("defender_election_participated_total", "leases this process tried to take"),
            controller_started: of
                .counter("defender_assignment_controller_started_total", "times this process began to lead"),
            leadership: of
                .histogram("defender_leadership_duration_seconds", "length of a finished leadership"),
            follower_wait: of.histogram(
                "defender_follower_wait_duration_seconds",
                "wait of a follower for its first assignment",
            ),
            assigned: of.gauge("defender_assigned_chambers", "chambers owned now"),
            received: of.counter(
                "defender_messages_received_total",
                "messages given to the handler, retries included",
            ),
            processed: of.counter("defender_messages_processed_total", "messages committed"),
            failed: of.counter("defender_messages_failed_total", "failed processing attempts"),
            process_time: of.histogram("defender_process_time_seconds", "time to process one message"),
            assignment_version: of.gauge("defender_assignment_version", "version of the map applied here"),
            map_version: of.gauge("defender_assignment_map_version", "version of the newest map seen"),
            heartbeat_errors: of
                .counter("defender_heartbeat_errors_total", "heartbeats that could not be written"),
            active: of.gauge("defender_active_defenders", "live workers as the leader sees them"),
            active_heartbeats: of.gauge(
                "defender_active_heartbeat_count",
                "workers heard within three intervals, on the leader",
            ),
            rebalances: of
                .counter("defender_rebalance_events_total", "maps published after a planned change"),
            scalings: of.counter("defender_scaling_events_total", "windows opened"),
            emergencies: of.counter("defender_emergency_events_total", "emergency redistributions"),
            movements: of.counter("defender_chamber_movements_total", "chambers that changed owner, summed"),
            moved: of.gauge("defender_assignment_chambers_moved", "chambers moved by the last plan"),
            calculation: of
                .histogram("defender_assignment_calculation_duration_seconds", "whole planning time"),
            deviation: of.float(
                "defender_assignment_weight_variance_percent",
                "100 x standard deviation / mean of the loads",
            ),
            chambers: ["min", "max", "avg"].map(|which| {
                of.float(
                    &format!("defender_assignment_{which}_chambers"),
                    "chambers per worker by the last plan",
                )
            }),
            weights: ["min", "max", "avg"].map(|which| {
                of.float(&format!("defender_assignment_{which}_weight"), "weight per worker by the last plan")
            }),
            initialization_failures: of.counter(
                "defender_initialization_failures_total",
                "attempts to connect that failed before the start was complete",
            ),
            pending: of.gauge(
                "defender_pending_topology_changes",
                "changes that wait for the end of the window, on the leader",
            ),
            triggers: of.counters("defender_trigger_state", "maps made, by what triggered them", &["state"]),
            restarts: of.counter("defender_restart_detected_total", "cluster restarts recognised"),
            windows: of.histograms(
                "defender_stabilization_window_seconds",
                "how long a window was open before a map was made",
                &["type"],
            ),
            scaling_duration: of
                .histogram("defender_scaling_duration_seconds", "time spent in a window, on the leader"),
            rebalance_duration: of
                .histogram("defender_rebalance_duration_seconds", "time of a rebalance, on the leader"),
            emergency_duration: of.histogram(
                "defender_emergency_duration_seconds",
                "time of an emergency redistribution, on the leader",
            ),
            redistributed: of.counter(
                "defender_crashed_chambers_redistributed",
                "chambers of crashed workers that were given a new owner",
            ),
            placing: of.histogram(
                "defender_assignment_phase1_duration_seconds",
                "placing part of a calculation, estimated from its passes",
            ),
            balancing: of.histogram(
                "defender_assignment_phase2_duration_seconds",
                "balancing part of a calculation, estimated from its passes",
            ),
            rounds: of.gauge("defender_weight_rebalance_iterations", "rounds the last balancing took"),
            shutdowns: of.counter("defender_shutdowns_total", "graceful shutdowns begun"),
            shutdown_duration: of
                .histogram("defender_shutdown_duration_seconds", "time of a graceful shutdown"),
            inflight_at_shutdown: of
                .gauge("defender_inflight_messages_at_shutdown", "messages in work when shutdown began"),
            subscriptions: of.gauge("defender_current_subscriptions", "doorbells open now"),
            subscribed: of.counter("defender_subscription_added_total", "doorbells opened"),
            unsubscribed: of.counter("defender_subscription_removed_total", "doorbells closed"),
            subscription_errors: of
                .counter("defender_subscription_errors_total", "doorbells that could not be opened"),
            subscription_duration: of
                .histogram("defender_subscription_update_duration_seconds", "time to open a doorbell"),
            dead_letters: of.counter("defender_dead_letters_total", "messages given up"),
            expired: of.counter(
                "defender_messages_expired_total",
                "sequences of the log that were gone before they were read",
            ),
            replaced: of.counter("defender_log_replaced_total", "partitions whose log was another one"),
            adopted: of.counter("defender_chambers_adopted_total", "chambers with messages that no list has"),
            hook_errors: of.counters("defender_hook_errors_total", "hooks that failed", &["hook"]),
            problems: of.counters("defender_problems_total", "what a person should know, by kind", &["kind"]),
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
}

impl Metrics {
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
            Problem::Partitions(_) => "partitions",
            Problem::SubscriptionFailed { .. } => "doorbell",
            Problem::Expired { .. } => "expired",
            Problem::LogReplaced { .. } => "log_replaced",
            Problem::Adopted { .. } => "adopted",
            Problem::DeadLetter { .. } => "dead_letter",
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
        let mut loads: std::collections::BTreeMap<_, (f64, f64)> =
            map.workers.iter().map(|id| (*id, (0.0, 0.0))).collect();
        for assignment in map.assignments.values() {
            let load = loads.entry(assignment.owner).or_default();
            load.0 += 1.0;
            load.1 += assignment.weight.0 as f64;
        }
        let show = |gauges: &[Gauge; 3], values: Vec<f64>| {
            let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
            gauges[0].set(values.iter().copied().fold(f64::INFINITY, f64::min));
            gauges[1].set(values.iter().copied().fold(0.0, f64::max));
            gauges[2].set(mean);
            let variance =
                values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len().max(1) as f64;
            if mean > 0.0 { 100.0 * variance.sqrt() / mean } else { 0.0 }
        };
        show(&all.chambers, loads.values().map(|load| load.0).collect());
        all.deviation.set(show(&all.weights, loads.values().map(|load| load.1).collect()));
    }

    /// What only a leader knows falls to 0 when it leads no more.
    pub(super) fn reset_leader_gauges(&self, led: Duration) {
        let all = &self.all;
        all.leadership.observe(led.as_secs_f64());
        for gauge in [&all.active, &all.active_heartbeats, &all.moved, &all.pending, &all.rounds] {
            gauge.set(0);
        }
        for gauge in all.chambers.iter().chain(&all.weights).chain([&all.deviation]) {
            gauge.set(0.0);
        }
    }
}

/// Makes metrics and registers them. A name that cannot be registered would be a mistake in this file: every name is
/// there once, and a test gathers them all.
struct Registrar<'a>(&'a Registry);

impl Registrar<'_> {
    fn add<C: Collector + Clone + 'static>(&self, made: prometheus::Result<C>) -> C {
        let metric = made.unwrap_or_else(|e| unreachable!("a metric of this file: {e}"));
        let added = self.0.register(Box::new(metric.clone()));
        debug_assert!(added.is_ok(), "{added:?}");
        metric
    }

    fn gauge(&self, name: &str, help: &str) -> IntGauge {
        self.add(IntGauge::new(name, help))
    }

    fn float(&self, name: &str, help: &str) -> Gauge {
        self.add(Gauge::new(name, help))
    }

    fn counter(&self, name: &str, help: &str) -> IntCounter {
        self.add(IntCounter::new(name, help))
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
        self.add(IntGaugeVec::new(Opts::new(name, help), labels))
    }

    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
        self.add(IntCounterVec::new(Opts::new(name, help), labels))
    }

    fn histogram(&self, name: &str, help: &str) -> Histogram {
        self.add(Histogram::with_opts(HistogramOpts::new(name, help)))
    }

    fn histograms(&self, name: &str, help: &str, labels: &[&str]) -> HistogramVec {
        self.add(HistogramVec::new(HistogramOpts::new(name, help), labels))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_registered_once_and_two_workers_share_nothing() {
        let (one, other) = (Metrics::default(), Metrics::default());
        one.all.processed.inc();
        assert!(one.text().contains("defender_messages_processed_total 1"), "{}", one.text());
        assert!(other.text().contains("defender_messages_processed_total 0"));
        assert!(other.text().contains("defender_stable_id -1"));
    }
    /// Those that the pipeline of an application counts.
    const OF_THE_APPLICATION: [&str; 5] = [
        "defender_cache_hit_rate",
        "defender_cassandra_read_duration_seconds",
        "defender_cassandra_write_duration_seconds",
        "defender_uchart_calculation_duration_seconds",
        "parti_emergency_rebalance",
    ];

    #[test]
    fn every_metric_of_the_requirements_is_there_in_its_kind() {
        let names: toml::Table = phalanx_testkit::requirements().parse().unwrap();
        let metrics = Metrics::default();
        let all = &metrics.all;
        all.transitions.with_label_values(&["a", "b"]);
        all.state_duration.with_label_values(&["a"]);
        all.is_leader.with_label_values(&["a"]);
        all.stable_id_claimed.with_label_values(&["a"]);
        let text = metrics.text();
        for metric in names["metric"].as_array().unwrap() {
            let (name, kind) = (metric["name"].as_str().unwrap(), metric["type"].as_str().unwrap());
            let is_here = text.contains(&format!("# TYPE {name} {kind}\n"));
            assert_eq!(is_here, !OF_THE_APPLICATION.contains(&name), "{name}, a {kind}");
        }
    }
}
