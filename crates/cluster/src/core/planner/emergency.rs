//! Placing what nobody holds: heaviest first, each on the coldest worker.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::fleet::Fleet;

/// Gives every unowned partition to the worker with the least load. Nothing else moves.
pub(super) fn place_orphans(fleet: &mut Fleet) {
    let pool = fleet.unowned();
    place(fleet, &pool);
}

/// Gives the partitions of `pool`, in that order, each to the coldest worker; of equally cold ones to the one that
/// holds the fewest, then to the lowest id.
pub(super) fn place(fleet: &mut Fleet, pool: &[u32]) {
    let mut coldest: BinaryHeap<Reverse<(u64, u32, u32)>> =
        (0..fleet.workers.len() as u32).map(|worker| Reverse(key(fleet, worker))).collect();
    for &part in pool {
        let Some(Reverse((_, _, worker))) = coldest.pop() else { return };
        fleet.give(part, worker);
        coldest.push(Reverse(key(fleet, worker)));
    }
}

fn key(fleet: &Fleet, worker: u32) -> (u64, u32, u32) {
    (fleet.loads[worker as usize], fleet.counts[worker as usize], worker)
}
