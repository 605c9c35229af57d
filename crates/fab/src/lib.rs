//! A simulated fab: tools and chambers with recipes, steps and noise, and faults that are known because they are made here.
//!
//! Everything follows from the seed: run *n* of a chamber is the same whenever, wherever and in whatever order it is asked
//! for. Nobody who judges the fab may look at [`Truth`] or [`Fault`]; whoever judges the judge must.
//!
//! ```
//! use phalanx_fab::Fab;
//!
//! let fab = Fab::new(1, 60);
//! let run = fab.run(7, 0);
//! assert_eq!(run, Fab::new(1, 60).run(7, 0));
//! assert_ne!(run.traces, fab.run(7, 1).traces);
//! assert_eq!(fab.chambers().iter().filter(|chamber| chamber.fault.is_some()).count(), 15);
//! ```

mod chamber;
mod fault;
mod random;
mod run;
mod strategy;
pub mod theory;

pub use chamber::{Chamber, Indicator, Truth};
pub use fault::{Fault, FaultKind};
pub use run::{Run, Trace};
pub use strategy::{BASELINE, EWMA_LAMBDA, EWMA_SIGMAS, STRATEGY};

use random::Random;

/// A fab.
#[derive(Clone, Debug)]
pub struct Fab {
    seed: u64,
    chambers: Vec<Chamber>,
}

impl Fab {
    /// A fab with so many chambers, four on a tool. Their weights differ by up to 120 times, and a quarter of them have
    /// a fault.
    pub fn new(seed: u64, chambers: usize) -> Self {
        let faulty = fault::faulty(&mut Random::of(seed, "faulty", 0), chambers);
        let chambers =
            (0..chambers).map(|number| Chamber::new(seed, number, chambers, faulty.get(&number).copied()));
        Self { seed, chambers: chambers.collect() }
    }

    /// Its seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Its chambers.
    pub fn chambers(&self) -> &[Chamber] {
        &self.chambers
    }

    /// A run of a chamber, counted from 0.
    ///
    /// # Panics
    ///
    /// If there is no chamber of that number.
    pub fn run(&self, chamber: usize, run: u64) -> Run {
        Run::new(self.seed, &self.chambers[chamber], chamber, run)
    }

    /// The chambers as a file for `phalanx chambers import`.
    pub fn chambers_csv(&self) -> String {
        let mut csv =
            String::from("tool_id,chamber_id,svid_count,collection_freq_hz,context_duration_seconds\n");
        for chamber in &self.chambers {
            csv += &format!(
                "{},{},{},{},{}\n",
                chamber.tool, chamber.name, chamber.svids, chamber.frequency_hz, chamber.duration_s
            );
        }
        csv
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_differ_by_a_hundred_and_twenty_times_and_names_by_tool_and_chamber() {
        let fab = Fab::new(3, 60);
        let weights: Vec<u64> = fab.chambers().iter().map(Chamber::weight).collect();
        assert_eq!((weights.iter().min(), weights.iter().max()), (Some(&250), Some(&30_000)));
        let names: std::collections::BTreeSet<_> =
            fab.chambers().iter().map(|c| (c.tool.as_str(), c.name.as_str())).collect();
        assert_eq!(names.len(), 60);
        assert_eq!(fab.chambers_csv().lines().count(), 61);
    }

    #[test]
    fn another_seed_gives_another_fab() {
        let (one, other) = (Fab::new(1, 8), Fab::new(2, 8));
        assert_ne!(one.run(0, 0).traces, other.run(0, 0).traces);
        assert_ne!(one.chambers(), other.chambers());
    }
}
