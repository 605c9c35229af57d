//! Invariant 9: without pauses and timeouts, two workers never process one partition at the same time, and no worker
//! releases a partition whose message it still processes.

use phalanx_cluster_core::types::Time;

use crate::fleet::ProcessId;
use crate::oracle::processes::{Processes, Running};
use crate::oracle::report::Report;

const NUMBER: u32 = 9;

/// Checks a process that starts a message while another one processes the same partition.
pub(crate) fn check_start(
    report: &mut Report,
    now: Time,
    (process, beside): (ProcessId, Option<ProcessId>),
    partition: u32,
    processes: &Processes,
) {
    let is_undisturbed = |process| processes.is_undisturbed(process, now);
    if let Some(other) = beside.filter(|&other| is_undisturbed(other) && is_undisturbed(process)) {
        report.violate(NUMBER, now, format!("{process} and {other} both process partition {partition}"));
    }
}

/// Checks a process that releases a partition.
pub(crate) fn check_release(
    report: &mut Report,
    now: Time,
    process: ProcessId,
    partition: u32,
    running: &mut Running,
) {
    if running.on(partition).any(|other| other == process) {
        report.violate(
            NUMBER,
            now,
            format!("{process} releases partition {partition} while its message runs"),
        );
    }
}
