//! Many runs on all cores, told in their order, and what they came to together.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use crate::chaos::{ChaosOutcome, ChaosRun};
use crate::oracle::Counts;

/// Carries out runs on all cores and tells each outcome, in the order of the runs, until it is told to stop.
pub fn run_many(
    runs: impl Iterator<Item = ChaosRun> + Send,
    mut tell: impl FnMut(ChaosRun, ChaosOutcome) -> ControlFlow<()>,
) {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let runs = Mutex::new(runs.enumerate());
    let stopped = AtomicBool::new(false);
    thread::scope(|scope| {
        // Nobody runs far ahead of what was told.
        let (outcomes, inbox) = mpsc::sync_channel(4 * cores);
        for _ in 0..cores {
            let outcomes = outcomes.clone();
            let (runs, stopped) = (&runs, &stopped);
            scope.spawn(move || {
                while !stopped.load(Ordering::Relaxed) {
                    let next = runs.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some((turn, run)) = next else { return };
                    let outcome = run.run();
                    if outcomes.send((turn, run, outcome)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(outcomes);
        let (mut early, mut expected) = (BTreeMap::new(), 0);
        for (turn, run, outcome) in inbox {
            early.insert(turn, (run, outcome));
            while let Some((run, outcome)) = early.remove(&expected) {
                expected += 1;
                if !stopped.load(Ordering::Relaxed) && tell(run, outcome).is_break() {
                    stopped.store(true, Ordering::Relaxed);
                }
            }
        }
    });
}

/// What several runs came to.
#[derive(Clone, Debug)]
pub struct Totals {
    /// How many runs.
    pub runs: u64,
    /// Virtual time that passed in them.
    pub simulated: Duration,
    /// What was published, committed and lost.
    pub counts: Counts,
    /// Faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Promises broken.
    pub violations: u64,
    /// Maps published.
    pub publications: u64,
    /// The longest wait of the orphans of a single crash in calm weather.
    pub worst_recovery: Option<Duration>,
    /// Events that workers handled.
    pub events: u64,
    /// A hash over the traces, in the order of the runs.
    pub trace_hash: u64,
}

impl Default for Totals {
    fn default() -> Self {
        Self {
            runs: 0,
            simulated: Duration::ZERO,
            counts: Counts::default(),
            faults: BTreeMap::new(),
            violations: 0,
            publications: 0,
            worst_recovery: None,
            events: 0,
            trace_hash: 0xcbf2_9ce4_8422_2325,
        }
    }
}

impl Totals {
    /// Adds the outcome of the next run.
    pub fn add(&mut self, outcome: &ChaosOutcome) {
        self.counts += outcome.counts;
        for (kind, count) in &outcome.faults {
            *self.faults.entry(kind).or_default() += count;
        }
        self.runs += 1;
        self.simulated += outcome.simulated;
        self.violations += outcome.violations.len() as u64;
        self.publications += outcome.publications as u64;
        self.worst_recovery = self.worst_recovery.max(outcome.recovery);
        self.events += outcome.events;
        self.trace_hash = (self.trace_hash ^ outcome.trace_hash).wrapping_mul(0x0000_0100_0000_01b3);
    }

    /// Virtual hours that passed, of all clusters together.
    pub fn cluster_hours(&self) -> f64 {
        self.simulated.as_secs_f64() / 3600.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(seeds: std::ops::Range<u64>) -> impl Iterator<Item = ChaosRun> + Send {
        seeds.map(|seed| ChaosRun::new(seed, 3, 6, Duration::from_secs(30)))
    }

    #[test]
    fn outcomes_are_told_in_order_and_add_up_the_same_each_time() {
        let all = || {
            let (mut seeds, mut totals) = (Vec::new(), Totals::default());
            run_many(runs(5..12), |run, outcome| {
                seeds.push(run.seed);
                totals.add(&outcome);
                ControlFlow::Continue(())
            });
            (seeds, totals.trace_hash, totals.events)
        };
        let first = all();
        assert_eq!(first.0, (5..12).collect::<Vec<_>>());
        assert_eq!(first, all());
    }

    #[test]
    fn after_a_stop_nothing_more_is_told() {
        let mut told = 0;
        run_many(runs(0..100), |_, _| {
            told += 1;
            if told == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(told, 3);
    }
}
