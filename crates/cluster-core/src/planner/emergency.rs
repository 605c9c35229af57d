//! Placing what nobody holds: heaviest first, each on the coldest worker.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::fleet::Fleet;

/// Gives every unowned partition, heaviest first, to the coldest worker that may receive; of equally cold ones to the
/// one that holds the fewest, then to the lowest id. Nothing else moves. Where nobody may receive, everybody does.
pub(super) fn place_orphans(fleet: &mut Fleet, may_receive: impl Fn(u32) -> bool) {
    let pool = fleet.unowned();
    let all = 0..fleet.workers.len() as u32;
    let mut receivers: Vec<u32> =
        all.clone().filter(|&worker| may_receive(fleet.workers[worker as usize])).collect();
    if receivers.is_empty() {
        receivers = all.collect();
    }
    let mut coldest: BinaryHeap<Reverse<(u64, u32, u32)>> =
        receivers.into_iter().map(|worker| Reverse(key(fleet, worker))).collect();
    for part in pool {
        let Some(Reverse((_, _, worker))) = coldest.pop() else { violated!("a worker can receive {part}") };
        fleet.give(part, worker);
        coldest.push(Reverse(key(fleet, worker)));
    }
}

fn key(fleet: &Fleet, worker: u32) -> (u64, u32, u32) {
    (fleet.loads[worker as usize], fleet.counts[worker as usize], worker)
}
