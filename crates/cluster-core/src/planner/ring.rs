//! Consistent hashing: a partition belongs to the next virtual node clockwise.

use xxhash_rust::xxh64::xxh64;

use super::fleet::{Fleet, UNOWNED};

/// Gives every partition to its worker on the ring.
pub(super) fn place_all(fleet: &mut Fleet, vnodes: u32) {
    place(fleet, vnodes, |_| true);
}

/// Gives the partitions nobody holds to their workers on the ring.
pub(super) fn place_unowned(fleet: &mut Fleet, vnodes: u32) {
    place(fleet, vnodes, |owner| owner == UNOWNED);
}

fn place(fleet: &mut Fleet, vnodes: u32, which: impl Fn(u32) -> bool) {
    let ring = Ring::new(&fleet.workers, vnodes);
    for part in &mut fleet.parts {
        if which(part.owner) {
            part.owner = ring.lookup(part.hash);
        }
    }
    fleet.count_loads();
}

struct Ring {
    /// Position and worker index, clockwise.
    points: Vec<(u64, u32)>,
    /// For each value of the hash's top bits the first point at or after it, so that a look-up starts where it ends.
    starts: Vec<u32>,
    shift: u32,
}

impl Ring {
    fn new(workers: &[u32], vnodes: u32) -> Self {
        let mut points: Vec<(u64, u32)> = (0..workers.len() as u32)
            .flat_map(|index| (0..vnodes.max(1)).map(move |vnode| (index, vnode)))
            .map(|(index, vnode)| (xxh64(&vnode.to_le_bytes(), u64::from(workers[index as usize])), index))
            .collect();
        points.sort_unstable();
        let bits = (usize::BITS - points.len().leading_zeros()).clamp(1, 24);
        let shift = u64::BITS - bits;
        let mut starts = Vec::with_capacity(1 << bits);
        let mut next = 0;
        for bucket in 0..1u64 << bits {
            while next < points.len() && points[next].0 >> shift < bucket {
                next += 1;
            }
            starts.push(next as u32);
        }
        Self { points, starts, shift }
    }

    fn lookup(&self, hash: u64) -> u32 {
        let from = self.starts[(hash >> self.shift) as usize] as usize;
        let after = self.points[from..].iter().find(|(position, _)| *position >= hash);
        after.unwrap_or(&self.points[0]).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lookup_finds_the_next_point_clockwise_and_wraps() {
        let ring = Ring::new(&[0, 1, 2], 50);
        for hash in (0..2000u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).chain([0, u64::MAX]) {
            let next = ring.points.iter().find(|(position, _)| *position >= hash).unwrap_or(&ring.points[0]);
            assert_eq!(ring.lookup(hash), next.1);
        }
    }

    #[test]
    fn a_new_worker_takes_only_what_comes_to_itself() {
        let (before, after) = (Ring::new(&[0, 1, 2], 200), Ring::new(&[0, 1, 2, 3], 200));
        let mut taken = 0;
        for hash in (0..10_000u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)) {
            let (old, new) = (before.lookup(hash), after.lookup(hash));
            assert!(new == old || new == 3);
            taken += u32::from(new == 3);
        }
        assert!((1500..3500).contains(&taken), "{taken} of 10,000 went to the fourth worker");
    }
}
