//! What is said about a broken promise.

use std::time::{Duration, Instant};

use phalanx_sim::Injection;
use phalanx_sim::chaos::{Outcome, Run, shorten};

/// How long faults are left out to find the fewest.
const PATIENCE: Duration = Duration::from_secs(60);
/// How many of the broken promises and of the failed seeds are shown.
const SHOWN: usize = 10;

/// Tells which promise broke, by which faults, and how to see it again. Gives the shortened run.
pub(super) fn explain(run: &Run, outcome: &Outcome, failed: &[u64], command: &str) -> (Run, Vec<Injection>) {
    let deadline = Instant::now() + PATIENCE;
    let (shorter, injections) = shorten(run, outcome, || Instant::now() < deadline);
    let broken = shorter.run_with(&injections, None).violations;
    eprintln!("seed {} breaks a promise", run.seed);
    for violation in broken.iter().take(SHOWN) {
        eprintln!("  {violation}");
    }
    if broken.len() > SHOWN {
        eprintln!("  … and {} more", broken.len() - SHOWN);
    }
    eprintln!("with {} of its {} faults:", injections.len(), outcome.injections.len());
    injections.iter().for_each(|injection| eprintln!("  {injection}"));
    if failed.len() > 1 {
        let shown: Vec<String> = failed.iter().take(SHOWN).map(ToString::to_string).collect();
        let more = if failed.len() > SHOWN { ", …" } else { "" };
        eprintln!("{} seeds failed: {}{more}", failed.len(), shown.join(", "));
    }
    eprintln!("to repeat it: {command}");
    (shorter, injections)
}
