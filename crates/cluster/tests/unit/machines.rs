//! The worker and calculator machines against the design's tables, written out a second time.

use phalanx_cluster::core::{CalculatorState, WorkerState};
use phalanx_testkit::machine::assert_follows;

#[test]
fn the_worker_machine_is_the_one_designed() {
    assert_follows::<WorkerState>(&[
        (0, "INITIALIZATION", &["CLAIMING_ID", "SHUTDOWN"]),
        (1, "CLAIMING_ID", &["ELECTION", "INITIALIZATION", "SHUTDOWN"]),
        (2, "ELECTION", &["LEADER", "FOLLOWER", "CLAIMING_ID", "DEGRADED", "SHUTDOWN"]),
        (
            8,
            "LEADER",
            &[
                "STABLE",
                "SCALING",
                "REBALANCING",
                "EMERGENCY",
                "FOLLOWER",
                "DEGRADED",
                "CLAIMING_ID",
                "SHUTDOWN",
            ],
        ),
        (9, "FOLLOWER", &["STABLE", "LEADER", "DEGRADED", "CLAIMING_ID", "SHUTDOWN"]),
        (3, "STABLE", &["SCALING", "REBALANCING", "EMERGENCY", "DEGRADED", "CLAIMING_ID", "SHUTDOWN"]),
        (4, "SCALING", &["REBALANCING", "EMERGENCY", "STABLE", "DEGRADED", "CLAIMING_ID", "SHUTDOWN"]),
        (5, "REBALANCING", &["STABLE", "EMERGENCY", "DEGRADED", "CLAIMING_ID", "SHUTDOWN"]),
        (6, "EMERGENCY", &["STABLE", "DEGRADED", "CLAIMING_ID", "SHUTDOWN"]),
        (10, "DEGRADED", &["STABLE", "LEADER", "FOLLOWER", "ELECTION", "CLAIMING_ID", "SHUTDOWN"]),
        (7, "SHUTDOWN", &[]),
    ]);
}

#[test]
fn the_calculator_machine_is_the_one_designed() {
    assert_follows::<CalculatorState>(&[
        (0, "Idle", &["Scaling", "Emergency"]),
        (1, "Scaling", &["Rebalancing", "Emergency", "Idle"]),
        (2, "Rebalancing", &["Idle", "Emergency"]),
        (3, "Emergency", &["Idle"]),
    ]);
}
