//! Seeded chaos over the coordination core: no promise breaks while faults rain, and everything heals when they stop.

use std::time::Duration;

use phalanx_sim::chaos::{Outcome, Run};

const WORKERS: usize = 8;
const LENGTH: Duration = Duration::from_secs(300);

fn run(seed: u64) -> Outcome {
    Run::new(seed, WORKERS, 12 * WORKERS, LENGTH).run()
}

#[track_caller]
fn assert_clean(outcome: &Outcome) {
    let broken: Vec<String> = outcome.violations.iter().map(ToString::to_string).collect();
    assert!(broken.is_empty(), "seed {}: {broken:#?}", outcome.seed);
}

#[test]
fn no_promise_breaks_under_seeded_chaos_and_everything_heals() {
    for seed in 0..60 {
        assert_clean(&run(seed));
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let (one, two, other) = (run(7), run(7), run(8));
    assert_eq!(one.trace_hash, two.trace_hash);
    assert_ne!(one.trace_hash, other.trace_hash);
}
