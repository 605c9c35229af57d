//! Invariant 12: map version and epoch only grow. No write is accepted below the epoch of a leader that has already written
//! its epoch to the map.

use phalanx_cluster_core::types::{Epoch, Time, Value, Version};

use crate::oracle::report::Report;

const NUMBER: u32 = 12;

/// The newest version and epoch.
#[derive(Debug, Default)]
pub(crate) struct MapOrder {
    newest: (Version, Epoch),
}

impl MapOrder {
    /// Checks a value that was stored.
    pub(crate) fn stored(&mut self, report: &mut Report, now: Time, value: &Value) {
        if let Value::ClusterState(state) = value
            && self.newest.0 > Version(0)
        {
            // A leader that writes its state has touched the map: no map of an earlier leader may be accepted any more.
            self.newest.1 = self.newest.1.max(state.epoch);
        }
        let Value::Map(map) = value else { return };
        let (version, epoch) = self.newest;
        if map.version < version || map.epoch < epoch {
            let (was, is) = ((version, epoch), (map.version, map.epoch));
            report.violate(NUMBER, now, format!("the map went from {was:?} to {is:?}"));
        }
        self.newest = (map.version, map.epoch.max(epoch));
    }
}
