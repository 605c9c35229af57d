//! The band planner: everybody into `[lo, hi]`, moving the least weight.
//!
//! Donors shed what lies above a ceiling: `hi`, or lower where those below `lo` need more than that frees. What is shed
//! and what nobody holds is placed heaviest first on the coldest worker. [`repair`] mends what the size
//! of single partitions left outside the band. The whole is repeated while it improves, so that planning a finished
//! plan again changes nothing.

use std::cmp::Reverse;

use super::fleet::{Fleet, OwnedSlot, UNOWNED};
use super::{Options, emergency, repair, ring};

/// What receivers lack is asked for with this much on top: partitions do not come in the exact size.
const NEED_MARGIN: f64 = 1.005;

/// Each pass makes the fleet strictly better, and few are ever needed; this only bounds the time of hopeless cases.
const MAX_PASSES: u32 = 64;

/// Places the partitions without an owner, then balances the fleet. Returns the number of rounds.
pub(super) fn balance(fleet: &mut Fleet, options: &Options) -> u32 {
    if fleet.parts.iter().all(|part| !part.was_owned) {
        // Nobody has anything yet: start where a hash ring would, which is the same for every leader.
        ring::place_unowned(fleet, options.vnodes);
    } else if fleet.parts.iter().any(|part| part.owner == UNOWNED) {
        spread(fleet, options.repair_rounds);
    }
    for round in 0..MAX_PASSES {
        let badness = fleet.band_distances();
        if badness[0] == 0 {
            return round;
        }
        let spread = try_step(fleet, options.repair_rounds, spread);
        let better = if spread.band_distances()[0] == 0 {
            Some(spread)
        } else {
            let repaired = try_step(fleet, options.repair_rounds, repair::repair);
            [spread, repaired]
                .into_iter()
                .min_by_key(Fleet::band_distances)
                .filter(|better| better.band_distances() < badness)
        };
        let Some(better) = better else { return round };
        for (part, improved) in fleet.parts.iter_mut().zip(&better.parts) {
            part.owner = improved.owner;
        }
        fleet.count_loads();
    }
    MAX_PASSES
}

/// What a step makes of the fleet as it is, whatever it was before: so a finished plan is judged as its maker judged it.
fn try_step(fleet: &Fleet, rounds: u32, step: impl Fn(&mut Fleet, u32)) -> Fleet {
    let mut improved = fleet.clone();
    for part in &mut improved.parts {
        part.home = part.owner;
        part.was_owned = true;
    }
    step(&mut improved, rounds);
    improved
}

fn spread(fleet: &mut Fleet, rounds: u32) {
    release_excess(fleet);
    emergency::place_orphans(fleet, |_| true);
    repair::repair(fleet, rounds);
}

fn release_excess(fleet: &mut Fleet) {
    let ceiling = ceiling(fleet);
    if fleet.loads.iter().all(|&load| load <= ceiling) {
        return;
    }
    for (worker, mut held) in fleet.held().into_iter().enumerate() {
        if fleet.loads[worker] > ceiling {
            held.sort_unstable();
            shed_from(fleet, &held, worker, ceiling);
        }
    }
}

/// Takes from a donor its largest partitions that fit the excess, then the smallest one that covers the rest.
fn shed_from(fleet: &mut Fleet, heaviest_first: &[OwnedSlot], worker: usize, ceiling: u64) {
    let mut smallest_left = None;
    let mut excess = fleet.loads[worker] - ceiling;
    for &OwnedSlot { weight: Reverse(weight), part, .. } in heaviest_first {
        if weight <= excess && weight > 0 {
            fleet.unassign(part);
            excess -= weight;
        } else if weight > excess && weight > 0 {
            // The list falls, and so does the excess: a later one that is still too large fits better.
            smallest_left = Some(part);
        }
        if excess == 0 {
            return;
        }
    }
    if let Some(part) = smallest_left.filter(|&part| fleet.parts[part as usize].owner == worker as u32) {
        let rest = fleet.loads[worker] - fleet.parts[part as usize].weight;
        if rest >= fleet.lo {
            fleet.unassign(part);
        }
    }
}

/// The load above which donors shed: what lies above it, with what has no owner, covers what receivers lack.
fn ceiling(fleet: &Fleet) -> u64 {
    let free: u64 = fleet.parts.iter().filter(|part| part.owner == UNOWNED).map(|part| part.weight).sum();
    let lacking: u64 = fleet.loads.iter().map(|&load| fleet.lo.saturating_sub(load)).sum();
    let need = (lacking as f64 * NEED_MARGIN) as u64;
    let shed_at =
        |ceiling: u64| -> u64 { fleet.loads.iter().map(|&load| load.saturating_sub(ceiling)).sum() };
    if free + shed_at(fleet.hi) >= need {
        return fleet.hi;
    }
    // Shedding grows as the ceiling falls; find the highest that is enough. Nobody sheds below the mean.
    let (mut low, mut high) = ((fleet.mean() as u64).min(fleet.hi), fleet.hi);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if free + shed_at(middle) >= need { low = middle } else { high = middle }
    }
    low
}
