//! Invariant 18: a planned restart of an id pauses only that id's partitions.

use phalanx_cluster_core::types::Time;

use crate::oracle::report::Report;

const NUMBER: u32 = 18;

/// Checks the number of messages of other workers that wait after the restart of a worker.
pub(crate) fn check(report: &mut Report, now: Time, id: u32, waiting: usize) {
    if waiting > 0 {
        let what = format!("worker {id} restarts, and {waiting} messages of others wait for it");
        report.violate(NUMBER, now, what);
    }
}
