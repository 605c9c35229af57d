use proptest::prelude::{
    Just, ProptestConfig, any, prop_assert, prop_assert_eq, prop_assume, prop_oneof, proptest,
};
use proptest::strategy::Strategy as _;

use super::*;

/// Log-uniform weights from 30,000 to 3,600,000, as partitions have them.
pub(crate) fn synthetic(count: usize, seed: u64) -> Vec<(String, u64)> {
    let mut state = seed;
    let mut uniform = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    };
    (0..count)
        .map(|i| (format!("tool{:04}:c{}", i / 4, i % 4), (30_000.0 * 120f64.powf(uniform())) as u64))
        .collect()
}

fn items<'a>(parts: &'a [(String, u64)], owners: &[u32]) -> Vec<PlannerInput<'a>> {
    parts
        .iter()
        .enumerate()
        .map(|(i, (name, weight))| PlannerInput {
            name,
            weight: Weight(*weight),
            previous: owners.get(i).copied(),
        })
        .collect()
}

fn ids(n: u32) -> Vec<u32> {
    (0..n).collect()
}

fn options(threshold: f64) -> Options {
    Options { threshold, ..Options::default() }
}

/// The loads by another way than the planner's own count.
fn loads(parts: &[(String, u64)], owners: &[u32], workers: &[u32]) -> Vec<u64> {
    let mut by_worker: std::collections::BTreeMap<u32, u64> = workers.iter().map(|&id| (id, 0)).collect();
    for ((_, weight), owner) in parts.iter().zip(owners) {
        if let Some(load) = by_worker.get_mut(owner) {
            *load += weight;
        }
    }
    by_worker.into_values().collect()
}

fn moved_weight(parts: &[(String, u64)], before: &[u32], after: &[u32]) -> u64 {
    parts
        .iter()
        .zip(before.iter().zip(after))
        .filter(|(_, (b, a))| b != a)
        .map(|((_, weight), _)| weight)
        .sum()
}

/// The bound of the design, from its formula.
fn lower_bound(parts: &[(String, u64)], before: &[u32], workers: &[u32], threshold: f64) -> f64 {
    let total: u64 = parts.iter().map(|(_, weight)| weight).sum();
    let mean = total as f64 / workers.len() as f64;
    let kept = loads(parts, before, workers);
    let orphans = total - kept.iter().sum::<u64>();
    let above: f64 = kept.iter().map(|&load| (load as f64 - (1.0 + threshold) * mean).max(0.0)).sum();
    let below: f64 = kept.iter().map(|&load| ((1.0 - threshold) * mean - load as f64).max(0.0)).sum();
    (orphans as f64 + above).max(below)
}

/// Plans `from` workers from nothing, then `to` workers from that; returns owners before and after.
fn scale(parts: &[(String, u64)], from: u32, to: u32, threshold: f64) -> (Vec<u32>, Plan) {
    let before = plan(&items(parts, &[]), &ids(from), &options(threshold), Mode::Planned).owners;
    let after = plan(&items(parts, &before), &ids(to), &options(threshold), Mode::Planned);
    (before, after)
}

#[track_caller]
fn assert_within_five_percent_of_the_bound(count: usize, from: u32, to: u32, threshold: f64) {
    let parts = synthetic(count, 1);
    let (before, after) = scale(&parts, from, to, threshold);
    let total: u64 = parts.iter().map(|(_, weight)| weight).sum();
    let mean = total as f64 / f64::from(to);
    for load in loads(&parts, &after.owners, &ids(to)) {
        let deviation = (load as f64 - mean).abs() / mean;
        assert!(deviation <= threshold, "{count} × {from}→{to}: a load is {deviation:.4} from the mean");
    }
    let (moved, bound) = (
        moved_weight(&parts, &before, &after.owners) as f64,
        lower_bound(&parts, &before, &ids(to), threshold),
    );
    assert!(moved <= 1.05 * bound, "{count} × {from}→{to} at {threshold}: moved {moved}, bound {bound}");
    assert_eq!(after.statistics.moved_weight, Weight(moved as u64));
    assert!((after.statistics.lower_bound_weight.0 as f64 - bound).abs() <= f64::from(to) + 1.0);
}

#[test]
fn named_cases_move_within_five_percent_of_the_bound() {
    for (from, to) in [(30, 45), (45, 30), (30, 31), (30, 29)] {
        assert_within_five_percent_of_the_bound(5_000, from, to, 0.05);
        assert_within_five_percent_of_the_bound(5_000, from, to, 0.20);
    }
}

#[test]
fn a_hundred_thousand_on_five_hundred_move_within_five_percent_of_the_bound() {
    for (from, to) in [(490, 500), (500, 490), (400, 500), (500, 400)] {
        assert_within_five_percent_of_the_bound(100_000, from, to, 0.05);
    }
}

#[test]
fn a_million_on_a_thousand_move_within_five_percent_of_the_bound() {
    assert_within_five_percent_of_the_bound(1_000_000, 900, 1_000, 0.05);
}

#[test]
fn an_emergency_moves_orphans_only() {
    let parts = synthetic(500, 3);
    let before = plan(&items(&parts, &[]), &ids(10), &options(0.05), Mode::Planned).owners;
    let living: Vec<u32> = ids(10).into_iter().filter(|id| *id != 3).collect();
    let after = plan(&items(&parts, &before), &living, &options(0.05), Mode::Emergency);
    for (was, is) in before.iter().zip(&after.owners) {
        assert!(if *was == 3 { living.contains(is) } else { was == is });
    }
    assert_eq!(after.statistics.moved_count, before.iter().filter(|id| **id == 3).count());
}

#[test]
fn no_partitions_no_workers_and_one_worker_are_no_trouble() {
    let nothing = plan(&[], &ids(3), &Options::default(), Mode::Planned);
    assert_eq!((nothing.owners.len(), nothing.statistics.max_weight), (0, Weight(0)));
    let parts = synthetic(5, 1);
    assert!(plan(&items(&parts, &[]), &[], &Options::default(), Mode::Planned).owners.is_empty());
    for mode in [Mode::Planned, Mode::Emergency] {
        assert_eq!(plan(&items(&parts, &[]), &[7], &Options::default(), mode).owners, [7; 5]);
    }
}

#[test]
fn weightless_partitions_are_spread_by_count() {
    let parts: Vec<_> = (0..100).map(|i| (format!("t:{i}"), 0)).collect();
    let orphaned = vec![9; 100];
    let plan = plan(&items(&parts, &orphaned), &ids(4), &Options::default(), Mode::Emergency);
    assert_eq!((plan.statistics.min_count, plan.statistics.max_count), (25, 25));
}

#[test]
fn a_giant_does_not_keep_the_others_from_balance() {
    let mut parts: Vec<_> = (0..90).map(|i| (format!("t:{i}"), 100)).collect();
    parts.push(("giant:1".to_owned(), 100_000));
    let plan = plan(&items(&parts, &vec![0; 91]), &ids(10), &options(0.05), Mode::Planned);
    let mut loads = loads(&parts, &plan.owners, &ids(10));
    loads.sort_unstable();
    // Nothing joins the giant, and the rest is dealt out evenly.
    assert_eq!(loads[9], 100_000);
    assert!(loads[..9].iter().all(|&load| load == 1_000), "{loads:?}");
}

#[test]
fn a_name_that_stands_twice_is_one_partition_with_its_heaviest_weight() {
    let items = [
        PlannerInput { name: "a:1", weight: Weight(5), previous: None },
        PlannerInput { name: "b:1", weight: Weight(5), previous: None },
        PlannerInput { name: "a:1", weight: Weight(9), previous: None },
    ];
    let plan = plan(&items, &ids(2), &Options::default(), Mode::Planned);
    assert_eq!(plan.owners[0], plan.owners[2]);
    assert_eq!((plan.statistics.partitions, plan.statistics.total_weight), (2, Weight(14)));
}

#[test]
fn round_robin_deals_in_the_order_of_names() {
    let parts: Vec<_> = ["c:1", "a:1", "b:1", "d:1"].map(|name| (name.to_owned(), 1)).into();
    let options = Options { strategy: Strategy::RoundRobin, ..Options::default() };
    assert_eq!(plan(&items(&parts, &[]), &[4, 6], &options, Mode::Planned).owners, [4, 4, 6, 6]);
}

#[test]
fn consistent_hash_ignores_weights_and_previous_owners() {
    let parts = synthetic(200, 5);
    let heavier: Vec<_> = parts.iter().map(|(name, weight)| (name.clone(), weight * 7)).collect();
    let options = Options { strategy: Strategy::ConsistentHash, ..Options::default() };
    let one = plan(&items(&parts, &[]), &ids(7), &options, Mode::Planned);
    let other = plan(&items(&heavier, &[3; 200]), &ids(7), &options, Mode::Planned);
    assert_eq!(one.owners, other.owners);
}

/// Parts, previous owners, workers and threshold of any shape.
type Problem = (Vec<(String, u64)>, Vec<u32>, Vec<u32>, f64);

fn problems() -> impl proptest::strategy::Strategy<Value = Problem> {
    (0usize..60, 1u32..8, 1u32..8, prop_oneof![Just(0.05), Just(0.2), Just(0.5)], any::<bool>())
        .prop_flat_map(|(count, before, after, threshold, cold)| {
            let weight = prop_oneof![4 => 1u64..100, 1 => Just(0u64), 1 => 1u64..3000];
            let owners = if cold { 0 } else { count };
            (
                proptest::collection::vec(weight, count).prop_map(|weights| {
                    weights.into_iter().enumerate().map(|(i, w)| (format!("t{i}:c"), w)).collect()
                }),
                proptest::collection::vec(0..before, owners),
                Just(ids(after)),
                Just(threshold),
            )
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_partition_has_exactly_one_living_owner((parts, before, workers, t) in problems()) {
        for mode in [Mode::Planned, Mode::Emergency] {
            let plan = plan(&items(&parts, &before), &workers, &options(t), mode);
            prop_assert_eq!(plan.owners.len(), parts.len());
            prop_assert!(plan.owners.iter().all(|owner| workers.contains(owner)));
        }
    }

    #[test]
    fn the_order_of_the_input_changes_nothing((parts, before, workers, t) in problems(), rotation in 0usize..60) {
        let plan_of = |order: &[usize], workers: &[u32]| {
            let items = items(&parts, &before);
            let shuffled: Vec<PlannerInput> = order.iter().map(|&i| items[i]).collect();
            let owners = plan(&shuffled, workers, &options(t), Mode::Planned).owners;
            let mut by_part = vec![u32::MAX; parts.len()];
            order.iter().zip(owners).for_each(|(&i, owner)| by_part[i] = owner);
            by_part
        };
        let straight: Vec<usize> = (0..parts.len()).collect();
        let mut other = straight.clone();
        other.rotate_left(rotation % parts.len().max(1));
        let half = other.len() / 2;
        other[..half].reverse();
        let backwards: Vec<u32> = workers.iter().rev().copied().collect();
        prop_assert_eq!(plan_of(&straight, &workers), plan_of(&other, &backwards));
    }

    #[test]
    fn planning_again_changes_nothing((parts, before, workers, t) in problems()) {
        let once = plan(&items(&parts, &before), &workers, &options(t), Mode::Planned).owners;
        let twice = plan(&items(&parts, &once), &workers, &options(t), Mode::Planned);
        prop_assert_eq!(&twice.owners, &once);
        prop_assert_eq!(twice.statistics.moved_count, 0);
    }

    #[test]
    fn small_partitions_are_balanced_and_large_ones_as_well_as_one_step_can(
        (parts, before, workers, t) in problems()
    ) {
        let after = plan(&items(&parts, &before), &workers, &options(t), Mode::Planned).owners;
        let loads = loads(&parts, &after, &workers);
        let total: u64 = loads.iter().sum();
        let mean = total as f64 / workers.len() as f64;
        let outside = |load: f64| (load - (1.0 + t) * mean).max((1.0 - t) * mean - load).max(0.0);
        let heaviest = parts.iter().map(|(_, weight)| *weight).max().unwrap_or_default() as f64;
        if heaviest <= t * mean {
            prop_assert!(loads.iter().all(|&load| outside(load as f64) <= 1e-6), "{loads:?} around {mean}");
        }
        // The worst worker: no single move or swap brings it nearer without putting another as far out.
        let Some((worst, distance)) = loads.iter().map(|&load| outside(load as f64)).enumerate()
            .max_by(|a, b| a.1.total_cmp(&b.1)) else { return Ok(()) };
        let held = |worker: usize| {
            let mine = parts.iter().zip(&after).filter(|(_, owner)| **owner == workers[worker]);
            mine.map(|((_, weight), _)| *weight as f64).chain([0.0]).collect::<Vec<_>>()
        };
        for other in (0..workers.len()).filter(|other| *other != worst) {
            for out in held(worst) {
                for back in held(other) {
                    let left = outside(loads[worst] as f64 - out + back)
                        .max(outside(loads[other] as f64 + out - back));
                    // Integer bounds are rounded inwards by less than one.
                    prop_assert!(left >= distance - 2.0, "a step takes {distance} to {left}: {loads:?}");
                }
            }
        }
    }

    #[test]
    fn moved_weight_stays_near_the_bound((parts, before, workers, t) in problems()) {
        if before.is_empty() { return Ok(()) }
        let after = plan(&items(&parts, &before), &workers, &options(t), Mode::Planned).owners;
        let total: u64 = parts.iter().map(|(_, weight)| weight).sum();
        let mean = total as f64 / workers.len() as f64;
        let heaviest = parts.iter().map(|(_, weight)| *weight).max().unwrap_or_default() as f64;
        prop_assume!(heaviest <= t * mean);
        let kept = loads(&parts, &before, &workers);
        let outside = kept.iter().filter(|&&load| (load as f64 - mean).abs() > t * mean).count() as f64;
        let moved = moved_weight(&parts, &before, &after) as f64;
        let bound = lower_bound(&parts, &before, &workers, t);
        prop_assert!(moved <= 1.05 * bound + outside * heaviest + 1e-6, "moved {moved}, bound {bound}, {outside} outside");
    }
}
