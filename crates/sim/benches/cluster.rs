//! `cargo xtask bench cluster`, its second half: whole clusters in virtual time, on one core.
#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the code under test is pure; what tests it has clocks, files and output"
)]

use std::time::Duration;

use phalanx_sim::chaos::ChaosRun;
use phalanx_testkit::measure::median;

fn main() {
    println!("simulator, 30 workers, 300 partitions, a message of each partition every minute, one core");
    println!("{:>22} {:>14} {:>16} {:>14}", "", "median", "cluster-hours/s", "core events/s");
    let hour = Duration::from_secs(3600);
    let calm = ChaosRun { faults: Vec::new(), request_faults: Vec::new(), ..ChaosRun::new(1, 30, 300, hour) };
    measure("1 h without faults", &calm);
    // Ten minutes: what goes on is the same in each of them.
    measure("10 min with all faults", &ChaosRun::new(1, 30, 300, hour / 6));
}

fn measure(name: &str, run: &ChaosRun) {
    let outcome = run.run();
    assert!(outcome.violations.is_empty(), "{}", run.command());
    let took = median(3, || run.run()).as_secs_f64();
    println!(
        "{name:>22} {:>11.3} s {:>16.2} {:>14.0}",
        took,
        outcome.simulated.as_secs_f64() / 3600.0 / took,
        outcome.events as f64 / took
    );
}
