//! `cargo xtask sim --mutants`: runs without each rule of the protocol and of its environment in turn, and prints how many
//! seeds it takes until an invariant breaks.
#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the code under test is pure; what tests it has clocks, files and output"
)]

use std::ops::ControlFlow;
use std::time::Duration;

use phalanx_sim::chaos::ChaosRun;
use phalanx_sim::{Rule, run_many};

const WORKERS: usize = 8;
const PARTITIONS: usize = 96;
const LENGTH: Duration = Duration::from_secs(300);

fn main() {
    let number = |at: usize| std::env::args().nth(at).and_then(|text| text.parse::<u64>().ok());
    let (seeds, base) = (number(1).unwrap_or(200), number(2).unwrap_or(0));
    println!(
        "{WORKERS} workers, {PARTITIONS} partitions, {} s of faults, seeds from {base}",
        LENGTH.as_secs()
    );
    for rule in Rule::all() {
        let runs = (base..base + seeds).map(move |seed| ChaosRun {
            disabled_rule: Some(rule),
            ..ChaosRun::new(seed, WORKERS, PARTITIONS, LENGTH)
        });
        let (mut tried, mut found) = (0, None);
        run_many(runs, |_, outcome| {
            tried += 1;
            found = outcome.violations.first().map(ToString::to_string);
            if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        match found {
            Some(broken) => println!("{:<22}{tried:>6}  {broken}", rule.to_string()),
            None => println!("{:<22}     –  not found in {seeds} seeds", rule.to_string()),
        }
    }
}
