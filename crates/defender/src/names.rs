//! The names that the requirements give to everything a defender fleet stores and exports.
//!
//! The coordination library derives all names from the name of a group. This module is the one place that replaces them.

use std::time::Duration;

use phalanx_cluster::backend::{BucketConfig, LogConfig, StoreConfig};
use phalanx_cluster::{Names, SubjectScheme};

/// The name of the group.
pub const GROUP: &str = "defender";

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Returns the stored names of a defender fleet.
pub fn names() -> Names {
    Names::of(GROUP).worker_prefix("defender").state_key("defender-state").fields(field).metrics(metric)
}

/// Returns the subjects of notifications: `dc.{tool}.{chamber}.completed`.
pub fn subjects() -> SubjectScheme {
    SubjectScheme::new("dc", "completed")
}

/// Returns the buckets and logs of a defender fleet.
pub fn store_config() -> StoreConfig {
    let derived = StoreConfig::of(GROUP);
    let bucket = |name: &str, derived: BucketConfig| BucketConfig { name: name.to_owned(), ..derived };
    let notifications =
        LogConfig { max_age: Some(7 * DAY), ..LogConfig::new("dc-notifications", ["dc.*.*.completed"]) };
    StoreConfig {
        names: names(),
        stable_ids: bucket("stable-ids", derived.stable_ids),
        heartbeats: bucket("defender-heartbeats", derived.heartbeats),
        assignments: bucket("defender-assignments", derived.assignments),
        election: bucket("defender-election", derived.election),
        cursors: bucket("chamber-cursors", derived.cursors),
        log: notifications,
        subjects: subjects(),
        dead_letters: LogConfig::new("dc-dead-letters", ["dlq.*.*.*"]),
        dead_letter_prefix: "dlq".to_owned(),
    }
}

/// Returns the log of alarms.
pub fn alarm_log() -> LogConfig {
    LogConfig { max_age: Some(30 * DAY), ..LogConfig::new("dc-alarms", ["alarm.*.*"]) }
}

/// Fields of stored JSON.
const FIELDS: [(&str, &str); 14] = [
    ("workerId", "defenderId"),
    ("assignedPartitions", "assignedChambers"),
    ("workerCount", "defenderCount"),
    ("partitionCount", "chamberCount"),
    ("workerInfo", "defenderInfo"),
    ("partitions", "chambers"),
    ("minPartitionsPerWorker", "minChambersPerDefender"),
    ("maxPartitionsPerWorker", "maxChambersPerDefender"),
    ("avgPartitionsPerWorker", "avgChambersPerDefender"),
    ("minWeightPerWorker", "minWeightPerDefender"),
    ("maxWeightPerWorker", "maxWeightPerDefender"),
    ("avgWeightPerWorker", "avgWeightPerDefender"),
    ("partitionsMoved", "chambersMoved"),
    ("messageId", "contextId"),
];

fn field(neutral: &str) -> Option<&'static str> {
    find(&FIELDS, neutral)
}

/// Metrics, and the labels whose names differ.
const METRICS: [(&str, &str); 63] = [
    ("worker", "defender"),
    ("phalanx_state", "defender_state"),
    ("phalanx_state_transitions_total", "defender_state_transitions_total"),
    ("phalanx_state_duration_seconds", "defender_state_duration_seconds"),
    ("phalanx_is_leader", "defender_is_leader"),
    ("phalanx_worker_id", "defender_stable_id"),
    ("phalanx_worker_id_claimed", "defender_stable_id_claimed"),
    ("phalanx_initialization_duration_seconds", "defender_initialization_duration_seconds"),
    ("phalanx_id_claim_attempts_total", "defender_id_claim_attempts_total"),
    ("phalanx_id_claim_duration_seconds", "defender_id_claim_duration_seconds"),
    ("phalanx_election_participated_total", "defender_election_participated_total"),
    ("phalanx_assignment_controller_started_total", "defender_assignment_controller_started_total"),
    ("phalanx_leadership_duration_seconds", "defender_leadership_duration_seconds"),
    ("phalanx_follower_wait_duration_seconds", "defender_follower_wait_duration_seconds"),
    ("phalanx_assigned_partitions", "defender_assigned_chambers"),
    ("phalanx_messages_received_total", "defender_messages_received_total"),
    ("phalanx_messages_processed_total", "defender_messages_processed_total"),
    ("phalanx_messages_failed_total", "defender_messages_failed_total"),
    ("phalanx_process_time_seconds", "defender_process_time_seconds"),
    ("phalanx_assignment_version", "defender_assignment_version"),
    ("phalanx_assignment_map_version", "defender_assignment_map_version"),
    ("phalanx_heartbeat_errors_total", "defender_heartbeat_errors_total"),
    ("phalanx_active_workers", "defender_active_defenders"),
    ("phalanx_active_heartbeat_count", "defender_active_heartbeat_count"),
    ("phalanx_rebalance_events_total", "defender_rebalance_events_total"),
    ("phalanx_scaling_events_total", "defender_scaling_events_total"),
    ("phalanx_emergency_events_total", "defender_emergency_events_total"),
    ("phalanx_partition_movements_total", "defender_chamber_movements_total"),
    ("phalanx_assignment_partitions_moved", "defender_assignment_chambers_moved"),
    ("phalanx_assignment_calculation_duration_seconds", "defender_assignment_calculation_duration_seconds"),
    ("phalanx_assignment_weight_variance_percent", "defender_assignment_weight_variance_percent"),
    ("phalanx_assignment_min_partitions", "defender_assignment_min_chambers"),
    ("phalanx_assignment_max_partitions", "defender_assignment_max_chambers"),
    ("phalanx_assignment_avg_partitions", "defender_assignment_avg_chambers"),
    ("phalanx_assignment_min_weight", "defender_assignment_min_weight"),
    ("phalanx_assignment_max_weight", "defender_assignment_max_weight"),
    ("phalanx_assignment_avg_weight", "defender_assignment_avg_weight"),
    ("phalanx_initialization_failures_total", "defender_initialization_failures_total"),
    ("phalanx_pending_topology_changes", "defender_pending_topology_changes"),
    ("phalanx_trigger_state", "defender_trigger_state"),
    ("phalanx_restart_detected_total", "defender_restart_detected_total"),
    ("phalanx_stabilization_window_seconds", "defender_stabilization_window_seconds"),
    ("phalanx_scaling_duration_seconds", "defender_scaling_duration_seconds"),
    ("phalanx_rebalance_duration_seconds", "defender_rebalance_duration_seconds"),
    ("phalanx_emergency_duration_seconds", "defender_emergency_duration_seconds"),
    ("phalanx_crashed_partitions_redistributed", "defender_crashed_chambers_redistributed"),
    ("phalanx_assignment_phase1_duration_seconds", "defender_assignment_phase1_duration_seconds"),
    ("phalanx_assignment_phase2_duration_seconds", "defender_assignment_phase2_duration_seconds"),
    ("phalanx_weight_rebalance_iterations", "defender_weight_rebalance_iterations"),
    ("phalanx_shutdowns_total", "defender_shutdowns_total"),
    ("phalanx_shutdown_duration_seconds", "defender_shutdown_duration_seconds"),
    ("phalanx_inflight_messages_at_shutdown", "defender_inflight_messages_at_shutdown"),
    ("phalanx_current_subscriptions", "defender_current_subscriptions"),
    ("phalanx_subscription_added_total", "defender_subscription_added_total"),
    ("phalanx_subscription_removed_total", "defender_subscription_removed_total"),
    ("phalanx_subscription_errors_total", "defender_subscription_errors_total"),
    ("phalanx_subscription_update_duration_seconds", "defender_subscription_update_duration_seconds"),
    ("phalanx_dead_letters_total", "defender_dead_letters_total"),
    ("phalanx_messages_expired_total", "defender_messages_expired_total"),
    ("phalanx_log_replaced_total", "defender_log_replaced_total"),
    ("phalanx_partitions_adopted_total", "defender_chambers_adopted_total"),
    ("phalanx_hook_errors_total", "defender_hook_errors_total"),
    ("phalanx_problems_total", "defender_problems_total"),
];

fn metric(neutral: &str) -> Option<&'static str> {
    find(&METRICS, neutral)
}

fn find(table: &[(&str, &'static str)], neutral: &str) -> Option<&'static str> {
    table.iter().find(|(name, _)| *name == neutral).map(|(_, given)| *given)
}

#[cfg(test)]
#[path = "names_test.rs"]
mod tests;
