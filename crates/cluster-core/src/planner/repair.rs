//! Mends what is left outside the band, one move or swap at a time, the worst worker first.
//!
//! A step is taken only if both workers it touches end nearer to the band than the worse of them was. So every step
//! makes the fleet better, and a worker that cannot be helped (one partition heavier than the band) does not keep the
//! others from being helped.

use super::fleet::{Fleet, OwnedSlot};

/// How many of the hottest or coldest workers a quick look goes through.
const QUICK_PARTNERS: usize = 8;
/// How many partitions of fitting size are looked at for one that is moving anyway.
const WINDOW: usize = 32;

/// Goes on until no step helps, or `rounds` times the size of the fleet steps were made.
pub(super) fn repair(fleet: &mut Fleet, rounds: u32) {
    if fleet.loads.iter().all(|&load| fleet.distance_from_band(load) == 0) {
        return;
    }
    let budget = rounds as usize * (fleet.parts.len() + fleet.workers.len());
    let mut bench = RepairState::new(fleet);
    for _ in 0..budget {
        let Some(step) = bench.next_step() else { return };
        bench.apply(step);
    }
}

/// `out` leaves the worker for the partner, `back` comes the other way.
#[derive(Clone, Copy, Debug)]
struct Step {
    worker: u32,
    partner: u32,
    out: Option<u32>,
    back: Option<u32>,
}

/// How good a step is: what is left outside, the weight it adds to what moves, and a tie-break; less is better.
type Score = (u64, i128, u64, u32);

struct RepairState<'a> {
    fleet: &'a mut Fleet,
    /// What each worker holds, lightest first.
    held: Vec<Vec<u32>>,
}

impl<'a> RepairState<'a> {
    fn new(fleet: &'a mut Fleet) -> Self {
        let lightest_first = |mut list: Vec<OwnedSlot>| {
            list.sort_unstable();
            list.into_iter().rev().map(|held| held.part).collect()
        };
        let held = fleet.held().into_iter().map(lightest_first).collect();
        Self { fleet, held }
    }

    fn next_step(&self) -> Option<Step> {
        let mut outside: Vec<u32> =
            (0..self.fleet.workers.len() as u32).filter(|&worker| self.distance(worker) > 0).collect();
        outside.sort_unstable_by_key(|&worker| (std::cmp::Reverse(self.distance(worker)), worker));
        outside.into_iter().find_map(|worker| self.quick(worker).or_else(|| self.best(worker)))
    }

    fn apply(&mut self, step: Step) {
        for (part, to) in [(step.out, step.partner), (step.back, step.worker)] {
            if let Some(part) = part {
                let from = self.fleet.parts[part as usize].owner as usize;
                let at = self.position(from as u32, part);
                self.held[from].remove(at);
                let at = self.position(to, part);
                self.held[to as usize].insert(at, part);
                self.fleet.give(part, to);
            }
        }
    }

    /// Where a partition stands, or would stand, in a worker's list.
    fn position(&self, worker: u32, part: u32) -> usize {
        let key = |part: u32| {
            let part = self.fleet.parts[part as usize];
            (part.weight, std::cmp::Reverse(part.hash))
        };
        self.held[worker as usize].partition_point(|&other| key(other) < key(part))
    }

    fn load(&self, worker: u32) -> u64 {
        self.fleet.loads[worker as usize]
    }

    fn weight(&self, part: u32) -> u64 {
        self.fleet.parts[part as usize].weight
    }

    fn distance(&self, worker: u32) -> u64 {
        self.fleet.distance_from_band(self.load(worker))
    }

    /// A single move that brings the worker into the band and leaves the partner in it, looking only at the partners
    /// most likely to have one.
    fn quick(&self, worker: u32) -> Option<Step> {
        let over = self.load(worker) > self.fleet.hi;
        let mut partners: Vec<u32> =
            (0..self.fleet.workers.len() as u32).filter(|&other| other != worker).collect();
        let nearest = |&other: &u32| if over { self.load(other) } else { u64::MAX - self.load(other) };
        if partners.len() > QUICK_PARTNERS {
            partners.select_nth_unstable_by_key(QUICK_PARTNERS - 1, |other| (nearest(other), *other));
            partners.truncate(QUICK_PARTNERS);
        }
        let steps = partners.into_iter().filter_map(|partner| {
            let (from, to) = if over { (worker, partner) } else { (partner, worker) };
            // What both ends can take: at least what is missing, at most what fits.
            let least = if over { self.load(from) - self.fleet.hi } else { self.fleet.lo - self.load(to) };
            let most =
                self.fleet.hi.checked_sub(self.load(to))?.min(self.load(from).checked_sub(self.fleet.lo)?);
            let list = &self.held[from as usize];
            let start = list.partition_point(|&part| self.weight(part) < least);
            let fitting = list[start..].iter().take_while(|&&part| self.weight(part) <= most).take(WINDOW);
            fitting
                .map(|&part| {
                    let (out, back) = if over { (Some(part), None) } else { (None, Some(part)) };
                    Step { worker, partner, out, back }
                })
                .min_by_key(|&step| self.score(step))
        });
        steps.min_by_key(|&step| self.score(step))
    }

    /// The best move or swap there is for this worker, if any helps.
    fn best(&self, worker: u32) -> Option<Step> {
        let mut best: Option<(Score, Step)> = None;
        for partner in (0..self.fleet.workers.len() as u32).filter(|&other| other != worker) {
            let wanted = self.wanted_flow(worker, partner);
            let outs = std::iter::once(None).chain(self.held[worker as usize].iter().copied().map(Some));
            for out in outs {
                // The flow from worker to partner is out − back, and nearness to the wanted flow decides.
                let back_weight = i128::from(out.map_or(0, |part| self.weight(part))) - wanted;
                let list = &self.held[partner as usize];
                let above = list.partition_point(|&part| i128::from(self.weight(part)) < back_weight);
                let near = [above.checked_sub(1), Some(above)];
                let backs =
                    near.into_iter().flatten().filter_map(|at| list.get(at).copied()).map(Some).chain([None]);
                for back in backs {
                    let step = Step { worker, partner, out, back };
                    let score = self.score(step);
                    let limit = self.distance(worker);
                    if score.0 < limit && best.is_none_or(|(least, _)| score < least) {
                        best = Some((score, step));
                    }
                }
            }
        }
        best.map(|(_, step)| step)
    }

    /// The weight that should flow from worker to partner to leave both in the band or equally far from it.
    fn wanted_flow(&self, worker: u32, partner: u32) -> i128 {
        let (mine, theirs) = (i128::from(self.load(worker)), i128::from(self.load(partner)));
        let (lo, hi) = (i128::from(self.fleet.lo), i128::from(self.fleet.hi));
        let level = (mine - theirs) / 2;
        if mine > hi { (mine - hi).min(level.max(0)) } else { (mine - lo).max(level.min(0)) }
    }

    fn score(&self, step: Step) -> Score {
        let weight = |part: Option<u32>| part.map_or(0, |part| self.weight(part));
        let (out, back) = (weight(step.out), weight(step.back));
        let left = self.fleet.distance_from_band(self.load(step.worker) - out + back);
        let left = left.max(self.fleet.distance_from_band(self.load(step.partner) + out - back));
        let cost = self.cost(step.out, step.partner) + self.cost(step.back, step.worker);
        let tie = step.out.or(step.back).map_or(0, |part| self.fleet.parts[part as usize].hash);
        (left, cost, tie, step.partner)
    }

    /// What giving a partition to a worker adds to the moved weight: nothing for one that moves anyway, less than
    /// nothing for one that comes home.
    fn cost(&self, part: Option<u32>, to: u32) -> i128 {
        let Some(part) = part.map(|part| self.fleet.parts[part as usize]) else { return 0 };
        if !part.was_owned {
            return 0;
        }
        let weight = i128::from(part.weight);
        match (part.owner == part.home, to == part.home) {
            (true, false) => weight,
            (false, true) => -weight,
            _ => 0,
        }
    }
}
