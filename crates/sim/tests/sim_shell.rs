//! Seeded chaos with the real shell: no invariant breaks under faults, the same seed gives the same run, and a missing
//! rule is noticed.
#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the code under test is pure; what tests it has clocks, files and output"
)]

use std::ops::ControlFlow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use phalanx_sim::chaos::{ChaosRun, Mode};
use phalanx_sim::{EnvironmentRule, FailureReport, Fault, ProtocolRule, Rule, Totals, run_many};

/// Cluster-hours over fresh seeds.
const CLUSTER_HOURS: f64 = 2.0;
/// The maximum number of seeds until a missing rule is noticed.
const MAX_SEEDS: u64 = 20;

fn run(seed: u64) -> ChaosRun {
    ChaosRun { mode: Mode::Shell, ..ChaosRun::new(seed, 5, 20, Duration::from_secs(300)) }
}

/// Carries out runs until there are enough cluster-hours. Panics with a report if an invariant breaks.
fn assert_clean(runs: impl Iterator<Item = ChaosRun> + Send, hours: f64) -> Totals {
    let mut totals = Totals::default();
    run_many(runs, |run, outcome| {
        totals.add(&outcome);
        if !outcome.violations.is_empty() {
            let mut attempts = 0..20;
            panic!("{}", FailureReport::of(&run, &outcome, || attempts.next().is_some()));
        }
        if totals.cluster_hours() < hours { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    totals
}

#[test]
fn fixed_seeds_break_no_invariant_and_meet_most_faults() {
    let totals = assert_clean((1..=16).map(run), f64::MAX);
    let possible = Fault::ALL.len();
    let injected = Fault::ALL.iter().filter(|fault| totals.faults.contains_key(fault.name())).count();
    assert!(injected * 10 >= possible * 8, "{injected} of {possible} kinds of faults: {:?}", totals.faults);
    for request_fault in ["lateWrite", "lateAnswer", "lostAnswer", "duplicatedRequest", "staleRead"] {
        assert!(totals.faults.contains_key(request_fault), "{request_fault}");
    }
    assert_eq!(totals.counts.published, totals.counts.resolved());
    assert!(totals.counts.committed > 500, "{:?}", totals.counts);
}

#[test]
fn fresh_seeds_break_no_invariant() {
    let base = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() * 1_000;
    let totals = assert_clean((base..).map(run), CLUSTER_HOURS);
    println!("measured: {} seeds from {base}, {:.1} cluster-hours", totals.runs, totals.cluster_hours());
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let hash = |seed| run(seed).run().trace_hash;
    let (one, two, other) = (hash(7), hash(7), hash(8));
    assert_eq!(one, two);
    assert_ne!(one, other);
}

/// Without a rule some seed breaks an invariant.
#[track_caller]
fn notices(rule: impl Into<Rule>) {
    let rule = rule.into();
    let broken = (1..=MAX_SEEDS).find_map(|seed| {
        let outcome = ChaosRun { disabled_rule: Some(rule), ..run(seed) }.run();
        outcome.violations.first().map(|violation| (seed, violation.to_string()))
    });
    println!("without {rule}: {broken:?}");
    assert!(broken.is_some(), "without {rule} nothing breaks in {MAX_SEEDS} seeds");
}

#[test]
fn a_missing_rule_of_the_protocol_is_noticed() {
    notices(ProtocolRule::CacheDropped);
    notices(ProtocolRule::CrashesCount);
}

#[test]
fn a_missing_rule_of_the_environment_is_noticed() {
    notices(EnvironmentRule::MessageIds);
}
