//! The state every planning step works on: who holds what, and how far each worker is from the band.
//!
//! Weights and loads are plain numbers here: the steps average, scale and subtract them.

use super::{MAX_WEIGHT, PlannerInput};

/// Nobody owns it yet.
pub(super) const UNOWNED: u32 = u32::MAX;

/// One unique partition.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartitionSlot {
    pub(super) weight: u64,
    pub(super) hash: u64,
    /// Index of the worker that owned it in the previous map and is alive.
    pub(super) home: u32,
    /// Whether anybody owned it in the previous map.
    pub(super) was_owned: bool,
    /// Index of the worker it is planned for.
    pub(super) owner: u32,
}

/// A partition in a worker's hands. It carries what it is sorted by, so that sorting a million stays in the cache; the
/// order is heaviest first, ties by hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OwnedSlot {
    pub(super) weight: std::cmp::Reverse<u64>,
    pub(super) hash: u64,
    pub(super) part: u32,
}

/// The fleet while it is being planned. Workers and partitions are known by index.
#[derive(Clone, Debug)]
pub(super) struct Fleet {
    pub(super) parts: Vec<PartitionSlot>,
    pub(super) workers: Vec<u32>,
    pub(super) loads: Vec<u64>,
    pub(super) counts: Vec<u32>,
    pub(super) total: u64,
    /// The least and the most a worker should carry.
    pub(super) lo: u64,
    pub(super) hi: u64,
}

impl Fleet {
    pub(super) fn new(
        items: &[PlannerInput<'_>],
        hashes: &[u64],
        first: &[u32],
        workers: Vec<u32>,
        threshold: f64,
    ) -> Self {
        let mut parts: Vec<PartitionSlot> = Vec::with_capacity(items.len());
        for ((item, &hash), &unique) in items.iter().zip(hashes).zip(first) {
            let weight = item.weight.min(MAX_WEIGHT).0;
            match parts.get_mut(unique as usize) {
                Some(part) => part.weight = part.weight.max(weight),
                None => {
                    let home = item
                        .previous
                        .and_then(|id| workers.binary_search(&id).ok())
                        .map_or(UNOWNED, |i| i as u32);
                    parts.push(PartitionSlot {
                        weight,
                        hash,
                        home,
                        was_owned: item.previous.is_some(),
                        owner: home,
                    });
                }
            }
        }
        let mut fleet = Self {
            loads: vec![0; workers.len()],
            counts: vec![0; workers.len()],
            total: parts.iter().map(|part| part.weight).sum(),
            parts,
            workers,
            lo: 0,
            hi: 0,
        };
        invariant!(!fleet.workers.is_empty(), "a fleet has workers");
        invariant!(fleet.workers.is_sorted(), "workers are sorted");
        let mean = fleet.mean();
        // Rounded inwards: a load inside these is inside the real band.
        fleet.lo = (mean * (1.0 - threshold)).ceil().max(0.0) as u64;
        fleet.hi = (mean * (1.0 + threshold)).floor() as u64;
        invariant!(fleet.lo <= fleet.hi.saturating_add(1), "the band is {}..{}", fleet.lo, fleet.hi);
        fleet.count_loads();
        fleet
    }

    /// Asserts that every partition has one owner and that the loads add up.
    pub(super) fn check(&self) {
        let workers = self.workers.len();
        invariant!(
            self.parts.iter().all(|part| (part.owner as usize) < workers),
            "every partition is placed"
        );
        invariant!(self.loads.len() == workers, "every worker has a load");
        invariant!(self.counts.len() == workers, "every worker has a count");
        let (load, count) = (self.loads.iter().sum::<u64>(), self.counts.iter().sum::<u32>());
        invariant!(load == self.total, "the loads add up to {} of {}", load, self.total);
        invariant!(count as usize == self.parts.len(), "{count} of {} partitions count", self.parts.len());
    }

    pub(super) fn mean(&self) -> f64 {
        self.total as f64 / self.workers.len() as f64
    }

    /// The worker id that owns a partition.
    pub(super) fn owner(&self, part: u32) -> u32 {
        self.workers[self.parts[part as usize].owner as usize]
    }

    pub(super) fn count_loads(&mut self) {
        self.loads.fill(0);
        self.counts.fill(0);
        for part in self.parts.iter().filter(|part| part.owner != UNOWNED) {
            self.loads[part.owner as usize] += part.weight;
            self.counts[part.owner as usize] += 1;
        }
    }

    pub(super) fn give(&mut self, part: u32, to: u32) {
        invariant!((to as usize) < self.workers.len(), "worker index {to} is one of {}", self.workers.len());
        let moved = &mut self.parts[part as usize];
        if moved.owner != UNOWNED {
            self.loads[moved.owner as usize] -= moved.weight;
            self.counts[moved.owner as usize] -= 1;
        }
        moved.owner = to;
        self.loads[to as usize] += moved.weight;
        self.counts[to as usize] += 1;
    }

    pub(super) fn unassign(&mut self, part: u32) {
        let moved = &mut self.parts[part as usize];
        invariant!(moved.owner != UNOWNED, "partition {part} is owned");
        self.loads[moved.owner as usize] -= moved.weight;
        self.counts[moved.owner as usize] -= 1;
        moved.owner = UNOWNED;
    }

    /// How far a load is outside the band.
    pub(super) fn distance_from_band(&self, load: u64) -> u64 {
        load.saturating_sub(self.hi).max(self.lo.saturating_sub(load))
    }

    /// How far each load is outside the band, the worst first: compared in that order, less is better.
    pub(super) fn band_distances(&self) -> Vec<u64> {
        let mut outside: Vec<u64> = self.loads.iter().map(|&load| self.distance_from_band(load)).collect();
        outside.sort_unstable_by_key(|&distance| std::cmp::Reverse(distance));
        outside
    }

    /// Partitions nobody holds, heaviest first.
    pub(super) fn unowned(&self) -> Vec<u32> {
        let mut pool: Vec<OwnedSlot> =
            self.held_where(|owner| owner == UNOWNED).map(|(_, held)| held).collect();
        pool.sort_unstable();
        pool.into_iter().map(|held| held.part).collect()
    }

    /// What each worker holds, in no order.
    pub(super) fn held(&self) -> Vec<Vec<OwnedSlot>> {
        let mut lists: Vec<Vec<OwnedSlot>> =
            self.counts.iter().map(|&count| Vec::with_capacity(count as usize)).collect();
        self.held_where(|owner| owner != UNOWNED).for_each(|(owner, held)| lists[owner as usize].push(held));
        lists
    }

    fn held_where(&self, which: impl Fn(u32) -> bool) -> impl Iterator<Item = (u32, OwnedSlot)> {
        let parts = self.parts.iter().enumerate().filter(move |(_, part)| which(part.owner));
        parts.map(|(index, part)| {
            let held =
                OwnedSlot { weight: std::cmp::Reverse(part.weight), hash: part.hash, part: index as u32 };
            (part.owner, held)
        })
    }

    /// The weight that must move whatever the algorithm: what has no living owner, what lies above the band, and what
    /// is missing below it. Partitions that nobody owned before are placed, not moved, and fill what is missing first.
    pub(super) fn lower_bound(&self) -> u64 {
        let orphaned: u64 = self.sum(|part| part.was_owned && part.home == UNOWNED);
        let new: u64 = self.sum(|part| !part.was_owned);
        let above: u64 = self.loads.iter().map(|&load| load.saturating_sub(self.hi)).sum();
        let below: u64 = self.loads.iter().map(|&load| self.lo.saturating_sub(load)).sum();
        (orphaned + above).max(below.saturating_sub(new))
    }

    fn sum(&self, which: impl Fn(&PartitionSlot) -> bool) -> u64 {
        self.parts.iter().filter(|part| which(part)).map(|part| part.weight).sum()
    }
}
