//! Who owns what: a pure function from partitions, workers and the previous owners to the next owners.
//!
//! A partition whose previous owner is alive stays, unless balance needs it elsewhere. With μ the mean load and t the
//! threshold, every worker is brought into `[1−t, 1+t]·μ` with the least moved weight; [`Statistics`] tells how near
//! that came to [`lower_bound`](Statistics::lower_bound_weight), which no algorithm can beat.
//!
//! The same inputs give the same plan, on any machine and in any order of the input: ties are broken by hashes of
//! names, never by position.
//!
//! ```
//! use phalanx_cluster_core::planner::{Mode, Options, PlannerInput, plan};
//! use phalanx_cluster_core::types::Weight;
//!
//! let names = ["etch-1:A", "etch-1:B", "etch-2:A", "etch-2:B"];
//! let item = |name| PlannerInput { name, weight: Weight(10), previous: None };
//! let items: Vec<PlannerInput> = names.into_iter().map(item).collect();
//! let plan = plan(&items, &[0, 1], &Options::default(), Mode::Planned);
//! assert_eq!(plan.statistics.max_weight, Weight(20));
//! ```

mod balance;
mod emergency;
mod fleet;
mod repair;
mod ring;
mod round_robin;
mod statistics;

use fleet::Fleet;
pub use statistics::{Statistics, ratio_to_lower_bound};
use xxhash_rust::xxh64::xxh64;

use crate::types::Weight;

/// Weights above this are taken as this, so that the sum of a million of them fits.
pub const MAX_WEIGHT: Weight = Weight(1 << 40);

/// One partition, as the planner sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannerInput<'a> {
    /// Its name.
    pub name: &'a str,
    /// The weight of the partition.
    pub weight: Weight,
    /// The owner in the previous map, if there was one.
    pub previous: Option<u32>,
}

/// How partitions are spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Balanced by weight, moving the least weight.
    #[default]
    Weighted,
    /// Each partition to the next worker on a hash ring, whatever it weighs.
    ConsistentHash,
    /// In the order of the names, one each in turn.
    RoundRobin,
}

/// Why a plan is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Balance may move anything.
    Planned,
    /// Only partitions without a living owner move: heaviest first, each to the coldest worker.
    Emergency,
}

/// What a plan is made by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// How partitions are spread.
    pub strategy: Strategy,
    /// How far a load may be from the mean, as a part of it.
    pub threshold: f64,
    /// Virtual nodes per worker on the hash ring.
    pub vnodes: u32,
    /// How often the whole fleet is gone through to mend what the first pass left outside the band.
    pub repair_rounds: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { strategy: Strategy::Weighted, threshold: 0.20, vnodes: 200, repair_rounds: 5 }
    }
}

/// The next owners.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The owner of each partition, in the order of the input; empty where there is no worker.
    pub owners: Vec<u32>,
    /// What the plan comes to.
    pub statistics: Statistics,
}

/// Plans the partitions `items` over `workers`.
///
/// A name that stands several times is one partition with its heaviest weight. Without workers nobody owns anything.
pub fn plan(items: &[PlannerInput<'_>], workers: &[u32], options: &Options, mode: Mode) -> Plan {
    plan_with(items, workers, workers, options, mode)
}

/// As [`plan`], giving orphans in an emergency only to `receivers`: a worker that has not been heard for a moment keeps
/// what it has, and is given nothing more.
pub fn plan_with(
    items: &[PlannerInput<'_>],
    workers: &[u32],
    receivers: &[u32],
    options: &Options,
    mode: Mode,
) -> Plan {
    let mut workers = workers.to_vec();
    workers.sort_unstable();
    workers.dedup();
    if workers.is_empty() {
        return Plan { owners: Vec::new(), statistics: Statistics::default() };
    }
    let hashes: Vec<u64> = items.iter().map(|item| hash(item.name)).collect();
    let first = first_of_each_name(items, &hashes);
    let mut fleet = Fleet::new(items, &hashes, &first, workers, options.threshold);
    let bound = fleet.lower_bound();
    let mut rounds = 0;
    match (mode, options.strategy) {
        (Mode::Emergency, _) => emergency::place_orphans(&mut fleet, |id| receivers.contains(&id)),
        (Mode::Planned, Strategy::Weighted) => rounds = balance::balance(&mut fleet, options),
        (Mode::Planned, Strategy::ConsistentHash) => ring::place_all(&mut fleet, options.vnodes),
        (Mode::Planned, Strategy::RoundRobin) => round_robin::place_all(&mut fleet, items),
    }
    fleet.check();
    let statistics = Statistics::of(&fleet, bound, rounds);
    let owners: Vec<u32> = first.iter().map(|&unique| fleet.owner(unique)).collect();
    invariant!(owners.len() == items.len(), "every partition has an owner");
    Plan { owners, statistics }
}

/// The hash that breaks ties and places names on the ring.
pub(crate) fn hash(name: &str) -> u64 {
    xxh64(name.as_bytes(), 0)
}

/// For each item the number of its unique name, numbered by first appearance.
fn first_of_each_name(items: &[PlannerInput<'_>], hashes: &[u64]) -> Vec<u32> {
    const FREE: u32 = u32::MAX;
    // Open addressing over hashes that are there already: a map would hash them again, which is most of the work.
    let mask = (2 * items.len()).next_power_of_two() - 1;
    let mut slots = vec![FREE; mask + 1];
    let mut unique: Vec<u32> = Vec::with_capacity(items.len());
    let mut count = 0;
    for (index, item) in items.iter().enumerate() {
        let mut slot = hashes[index] as usize & mask;
        let number = loop {
            let known = slots[slot] as usize;
            if slots[slot] == FREE {
                slots[slot] = index as u32;
                count += 1;
                break count - 1;
            }
            if hashes[known] == hashes[index] && items[known].name == item.name {
                break unique[known];
            }
            slot = (slot + 1) & mask;
        };
        unique.push(number);
    }
    unique
}

#[cfg(test)]
#[path = "planner_test.rs"]
mod tests;
