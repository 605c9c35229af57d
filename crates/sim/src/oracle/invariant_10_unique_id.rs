//! Invariant 10: no two unfenced processes hold one id, fenced as each process measures it.

use phalanx_cluster_core::types::{Time, WorkerId};

use crate::fleet::ProcessId;
use crate::oracle::report::Report;

const NUMBER: u32 = 10;

/// The ids that processes hold, as the checker needs to see them.
pub(crate) trait IdHolders {
    /// Returns the id that a process holds; none if its clock was once suspended, because it cannot know the time then.
    fn held_id(&self, process: ProcessId) -> Option<WorkerId>;

    /// Returns whether a process may work, by its own clock.
    fn is_unfenced(&self, process: ProcessId, now: Time) -> bool;

    /// Returns the processes that run.
    fn running(&self) -> impl Iterator<Item = ProcessId>;
}

/// Checks that no other unfenced process holds the id of an unfenced process.
pub(crate) fn check(report: &mut Report, now: Time, process: ProcessId, fleet: &impl IdHolders) {
    // The id is compared first: the fence is measured by a clock of each process.
    let Some(id) = fleet.held_id(process).filter(|_| fleet.is_unfenced(process, now)) else { return };
    let holds = |other: ProcessId| fleet.held_id(other) == Some(id) && fleet.is_unfenced(other, now);
    if let Some(other) = fleet.running().find(|&other| other != process && holds(other)) {
        report.violate(NUMBER, now, format!("{process} and {other} both hold {id}"));
    }
}
