//! Seeded chaos: no promise breaks while faults rain, and everything heals when they stop. Fresh seeds each time, and
//! those that once failed.
#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the code under test is pure; what tests it has clocks, files and output"
)]

use std::ops::ControlFlow;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use phalanx_cluster_core::{Config, LeaseExpiry};
use phalanx_sim::chaos::{ChaosOutcome, ChaosRun};
use phalanx_sim::{FailureReport, Totals, run_many};

const CORPUS: &str = include_str!("../corpus.txt");
const LENGTH: Duration = Duration::from_secs(300);
/// Simulated time of all fresh seeds together, at least.
const CLUSTER_HOURS: f64 = 50.0;
/// How long a failure is shortened.
const PATIENCE: Duration = Duration::from_secs(60);

/// Mostly small clusters, in which things happen more often; sometimes one of the usual size.
fn run(seed: u64) -> ChaosRun {
    if seed.is_multiple_of(8) {
        ChaosRun::new(seed, 30, 300, LENGTH)
    } else {
        ChaosRun::new(seed, 8, 96, LENGTH)
    }
}

#[track_caller]
fn assert_clean(run: &ChaosRun, outcome: &ChaosOutcome) {
    if !outcome.violations.is_empty() {
        let deadline = Instant::now() + PATIENCE;
        panic!("{}", FailureReport::of(run, outcome, || Instant::now() < deadline));
    }
}

#[test]
fn fresh_seeds_break_no_promise_for_fifty_cluster_hours() {
    let base = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() * 1_000;
    let mut totals = Totals::default();
    run_many((base..).map(run), |run, outcome| {
        totals.add(&outcome);
        assert_clean(&run, &outcome);
        if totals.cluster_hours() >= CLUSTER_HOURS {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    let hours = totals.cluster_hours();
    println!(
        "measured: {} seeds from {base}, {hours:.1} cluster-hours, {} messages, {} faults",
        totals.runs,
        totals.counts.published,
        totals.faults.values().sum::<u64>()
    );
}

/// The same promises with an Election Agent, whose term alone decides who leads.
#[test]
fn fresh_seeds_break_no_promise_with_leases_that_end_by_themselves() {
    let base = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() * 1_000;
    let tenure = LeaseExpiry::AfterTerm(Config::default().lease_term);
    let runs = (base..base + 100).map(|seed| ChaosRun { lease_expiry: tenure, ..run(seed) });
    let mut totals = Totals::default();
    run_many(runs, |run, outcome| {
        totals.add(&outcome);
        assert_clean(&run, &outcome);
        ControlFlow::Continue(())
    });
    println!("measured: {} seeds from {base}, {:.1} cluster-hours", totals.runs, totals.cluster_hours());
}

#[test]
fn seeds_that_once_failed_break_no_promise_any_more() {
    let lines = CORPUS.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let runs: Vec<ChaosRun> = lines
        .map(|line| {
            let numbers: Vec<u64> =
                line.split_whitespace().map(|number| number.parse().expect("a whole number")).collect();
            let [workers, partitions, seconds, seed] = numbers[..] else {
                panic!("four numbers, not {line:?}")
            };
            ChaosRun::new(seed, workers as usize, partitions as usize, Duration::from_secs(seconds))
        })
        .collect();
    assert!(!runs.is_empty());
    run_many(runs.into_iter(), |run, outcome| {
        assert_clean(&run, &outcome);
        ControlFlow::Continue(())
    });
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let run = |seed| ChaosRun::new(seed, 8, 96, LENGTH).run().trace_hash;
    let (one, two, other) = (run(7), run(7), run(8));
    assert_eq!(one, two);
    assert_ne!(one, other);
}
