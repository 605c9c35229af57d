//! Building the next map from the current one.

use std::collections::{BTreeMap, BTreeSet};

use crate::io::PlanSummary;
use crate::planner::{self, Mode, Plan, PlannerInput};
use crate::types::{Assignment, AssignmentMap, Epoch, Lifecycle, PartitionList, Version, WorkerId};
use crate::unlisted::DesiredPartitions;

/// The inputs of a map.
pub(super) struct MapInput<'a> {
    pub(super) current: Option<&'a AssignmentMap>,
    pub(super) wanted: &'a DesiredPartitions,
    pub(super) workers: &'a BTreeSet<WorkerId>,
    /// In an emergency: the workers that may receive orphaned partitions.
    pub(super) receivers: &'a BTreeSet<WorkerId>,
    pub(super) mode: Mode,
    pub(super) options: &'a planner::Options,
}

/// The fields of a map besides its assignments.
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

    /// Returns the next map and the figures of its plan.
    pub(super) fn build(&self, header: MapHeader) -> (AssignmentMap, PlanSummary) {
        let plan = self.plan();
        invariant!(plan.owners.len() == self.wanted.partitions.len(), "every partition has an owner");
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
            version: header.version,
            epoch: header.epoch,
            lifecycle: header.lifecycle,
            workers: self.workers.clone(),
            assignments,
            fleet_size: header.fleet_size,
            moved: plan.statistics.moved_count,
            moved_weight: plan.statistics.moved_weight,
            lower_bound_weight: plan.statistics.lower_bound_weight,
        };
        invariant!(
            map.assignments.values().all(|assignment| map.workers.contains(&assignment.owner)),
            "every owner is a worker of the map"
        );
        (map, planned)
    }

    /// Returns the number of partitions whose owner is not among the workers.
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
