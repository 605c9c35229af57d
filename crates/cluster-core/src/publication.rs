//! Making the next map from the current one.

use std::collections::{BTreeMap, BTreeSet};

use super::io::PlanSummary;
use super::planner::{self, Mode, Plan, PlannerInput};
use super::types::{Assignment, AssignmentMap, Epoch, Lifecycle, PartitionList, Version, WorkerId};
use super::unlisted::DesiredPartitions;

/// What a map is made from.
pub(super) struct MapInput<'a> {
    pub(super) current: Option<&'a AssignmentMap>,
    pub(super) wanted: &'a DesiredPartitions,
    pub(super) workers: &'a BTreeSet<WorkerId>,
    /// In an emergency: who may be given orphans.
    pub(super) receivers: &'a BTreeSet<WorkerId>,
    pub(super) mode: Mode,
    pub(super) options: &'a planner::Options,
}

/// What a map says besides who owns what.
pub(super) struct MapHeader {
    pub(super) version: Version,
    pub(super) epoch: Epoch,
    pub(super) lifecycle: Lifecycle,
    pub(super) fleet_size: Option<u32>,
}

impl MapInput<'_> {
    fn plan(&self) -> Plan {
        let ids = |workers: &BTreeSet<WorkerId>| workers.iter().map(|id| id.0).collect::<Vec<_>>();
        let items: Vec<PlannerInput<'_>> = self
            .wanted
            .partitions
            .iter()
            .map(|(name, weight)| {
                let previous =
                    self.current.and_then(|map| map.assignments.get(name)).map(|known| known.owner.0);
                PlannerInput { name, weight: *weight, previous }
            })
            .collect();
        let (workers, receivers) = (ids(self.workers), ids(self.receivers));
        planner::plan_with(&items, &workers, &receivers, self.options, self.mode)
    }

    /// The next map, and how it came to be.
    pub(super) fn build(&self, imprint: MapHeader) -> (AssignmentMap, PlanSummary) {
        let plan = self.plan();
        let planned = PlanSummary {
            window: None,
            emergency: self.mode == Mode::Emergency,
            orphans: self.orphans(),
            rounds: plan.statistics.rounds,
        };
        let owners = plan.owners.iter().map(|&owner| WorkerId(owner));
        let assignments: BTreeMap<_, _> = self
            .wanted
            .partitions
            .iter()
            .zip(owners)
            .map(|((name, weight), owner)| {
                let adopted = self.wanted.adopted.contains(name);
                (name.clone(), Assignment { owner, weight: *weight, adopted })
            })
            .collect();
        let map = AssignmentMap {
            version: imprint.version,
            epoch: imprint.epoch,
            lifecycle: imprint.lifecycle,
            workers: self.workers.clone(),
            assignments,
            fleet_size: imprint.fleet_size,
            moved: plan.statistics.moved_count,
            moved_weight: plan.statistics.moved_weight,
            lower_bound_weight: plan.statistics.lower_bound_weight,
        };
        (map, planned)
    }

    /// How many partitions belonged to somebody who is no more.
    fn orphans(&self) -> usize {
        let owners = self.current.into_iter().flat_map(|map| map.assignments.values());
        owners.filter(|known| !self.workers.contains(&known.owner)).count()
    }

    /// Whether a planned calculation for the map's own workers would move anything: it is outside the threshold and
    /// could be nearer.
    pub(super) fn would_move(&self) -> bool {
        self.plan().statistics.moved_count > 0
    }
}

/// Whether partitions and weights are those of the map.
pub(super) fn same_partitions(map: &AssignmentMap, partitions: &PartitionList) -> bool {
    map.assignments.len() == partitions.len()
        && partitions
            .iter()
            .all(|(name, weight)| map.assignments.get(name).is_some_and(|known| known.weight == *weight))
}
