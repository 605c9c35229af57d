//! What a plan comes to.

use super::fleet::{Fleet, UNOWNED};
use crate::types::Weight;

/// Figures about a plan. Moved is what had an owner and gets another; what nobody owned before is placed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Statistics {
    /// Partitions planned.
    pub partitions: usize,
    /// Workers planned for.
    pub workers: usize,
    /// The fewest partitions on a worker.
    pub min_count: u32,
    /// The most partitions on a worker.
    pub max_count: u32,
    /// The least weight on a worker.
    pub min_weight: Weight,
    /// The most weight on a worker.
    pub max_weight: Weight,
    /// The weight of everything.
    pub total_weight: Weight,
    /// Standard deviation of the loads, in percent of the mean.
    pub deviation_percent: f64,
    /// Partitions that change their owner.
    pub moved_count: usize,
    /// Their weight.
    pub moved_weight: Weight,
    /// The least weight any algorithm could have moved.
    pub lower_bound_weight: Weight,
    /// Whether every load is inside the band.
    pub balanced: bool,
    /// How often the whole fleet was gone through to balance it.
    pub rounds: u32,
}

impl Statistics {
    pub(super) fn of(fleet: &Fleet, lower_bound_weight: u64, rounds: u32) -> Self {
        let moved = || fleet.parts.iter().filter(|part| part.was_owned && part.owner != part.home);
        let mean = fleet.mean();
        let variance = fleet.loads.iter().map(|&load| (load as f64 - mean).powi(2)).sum::<f64>()
            / fleet.loads.len() as f64;
        invariant!(fleet.parts.iter().all(|part| part.owner != UNOWNED), "a partition without an owner");
        Self {
            partitions: fleet.parts.len(),
            workers: fleet.workers.len(),
            min_count: fleet.counts.iter().copied().min().unwrap_or_default(),
            max_count: fleet.counts.iter().copied().max().unwrap_or_default(),
            min_weight: Weight(fleet.loads.iter().copied().min().unwrap_or_default()),
            max_weight: Weight(fleet.loads.iter().copied().max().unwrap_or_default()),
            total_weight: Weight(fleet.total),
            deviation_percent: if mean > 0.0 { 100.0 * variance.sqrt() / mean } else { 0.0 },
            moved_count: moved().count(),
            moved_weight: Weight(moved().map(|part| part.weight).sum()),
            lower_bound_weight: Weight(lower_bound_weight),
            balanced: fleet.loads.iter().all(|&load| fleet.distance_from_band(load) == 0),
            rounds,
        }
    }

    /// Moved weight as a multiple of the least possible; 1 where nothing had to move and nothing did.
    pub fn ratio_to_lower_bound(&self) -> f64 {
        ratio_to_lower_bound(self.moved_weight, self.lower_bound_weight)
    }

    /// The mean load.
    pub fn mean_weight(&self) -> f64 {
        if self.workers == 0 { 0.0 } else { self.total_weight.0 as f64 / self.workers as f64 }
    }

    /// The heaviest load as a multiple of the mean.
    pub fn max_over_mean(&self) -> f64 {
        over(self.max_weight, self.mean_weight())
    }

    /// The lightest load as a multiple of the mean.
    pub fn min_over_mean(&self) -> f64 {
        over(self.min_weight, self.mean_weight())
    }
}

/// Moved weight as a multiple of the least possible; 1 where nothing had to move and nothing did.
pub fn ratio_to_lower_bound(moved: Weight, bound: Weight) -> f64 {
    match (moved.0, bound.0) {
        (0, 0) => 1.0,
        (moved, 0) => moved as f64,
        (moved, bound) => moved as f64 / bound as f64,
    }
}

fn over(load: Weight, mean: f64) -> f64 {
    if mean > 0.0 { load.0 as f64 / mean } else { 1.0 }
}
