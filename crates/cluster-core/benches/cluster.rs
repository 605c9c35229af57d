//! `cargo xtask bench cluster`: the planner, at the sizes it is made for.

#![allow(clippy::disallowed_macros, reason = "a benchmark prints its figures")]

use phalanx_cluster_core::planner::{Mode, Options, PlannerInput, plan};
use phalanx_cluster_core::types::Weight;
use phalanx_testkit::measure::median;

fn main() {
    println!("planner, threshold ±5 %, weights log-uniform over 30,000…3,600,000");
    println!(
        "{:>10} {:>12} {:>12} {:>10} {:>10}",
        "partitions", "workers", "median", "moved/LB", "deviation"
    );
    for (count, from, to) in [(5_000, 30, 45), (5_000, 45, 30), (100_000, 450, 500), (1_000_000, 900, 1_000)]
    {
        planner(count, from, to);
    }
}

fn planner(count: usize, from: u32, to: u32) {
    let parts = synthetic(count);
    let options = Options { threshold: 0.05, ..Options::default() };
    let items = |owners: &[u32]| -> Vec<PlannerInput<'_>> {
        let previous = owners.iter().copied().map(Some).chain(std::iter::repeat(None));
        parts
            .iter()
            .zip(previous)
            .map(|((name, weight), previous)| PlannerInput { name, weight: Weight(*weight), previous })
            .collect()
    };
    let ids = |n: u32| (0..n).collect::<Vec<u32>>();
    let before = plan(&items(&[]), &ids(from), &options, Mode::Planned);
    let (problem, workers) = (items(&before.owners), ids(to));
    let took =
        median(if count > 100_000 { 5 } else { 21 }, || plan(&problem, &workers, &options, Mode::Planned));
    let statistics = plan(&problem, &workers, &options, Mode::Planned).statistics;
    let deviation = (statistics.max_over_mean() - 1.0).max(1.0 - statistics.min_over_mean());
    println!(
        "{count:>10} {:>12} {:>9.3} ms {:>10.4} {:>8.2} %",
        format!("{from}→{to}"),
        took.as_secs_f64() * 1e3,
        statistics.ratio_to_lower_bound(),
        100.0 * deviation
    );
}

fn synthetic(count: usize) -> Vec<(String, u64)> {
    let mut state = 1u64;
    let mut uniform = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    (0..count)
        .map(|i| (format!("tool{:04}:partition{}", i / 4, i % 4), (30_000.0 * 120f64.powf(uniform())) as u64))
        .collect()
}
