//! Invariant 14: with a fleet size, a rolling update, or an outage that all workers share, causes 0 new versions and 0
//! moves. A planned restart is checked here; roll-outs and outages are tests (`tests/unit/scenarios_rollout.rs`).

use phalanx_cluster_core::types::Time;

use crate::oracle::report::Report;

const NUMBER: u32 = 14;

/// The number of maps before a planned restart of one worker.
#[derive(Debug)]
pub(crate) struct NoNewMap {
    id: u32,
    publications: usize,
}

impl NoNewMap {
    /// Remembers the number of maps before the restart.
    pub(crate) fn new(id: u32, publications: usize) -> Self {
        Self { id, publications }
    }

    /// Checks the number of maps after the restart.
    pub(crate) fn check(&self, report: &mut Report, now: Time, publications: usize) {
        let made = publications - self.publications;
        if made > 0 {
            report.violate(NUMBER, now, format!("a restart of worker {} made {made} versions", self.id));
        }
    }
}
