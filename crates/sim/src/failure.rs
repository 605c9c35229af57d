//! What is said about a broken promise: the seed, the fewest faults that still break it, and how to see it again.

use std::fmt::{self, Write as _};

use phalanx_cluster_core::Tenure;

use crate::chaos::{Outcome, Run, shorten};
use crate::faults::{Fault, Injection, Shake};
use crate::ledger::Violation;

/// How many of the broken promises are shown.
const SHOWN: usize = 10;

/// A run that broke a promise, shortened.
#[derive(Debug)]
pub struct Failure {
    /// The command that repeats the whole run.
    pub command: String,
    /// The shortened run.
    pub run: Run,
    /// The fewest faults that still break the promise.
    pub injections: Vec<Injection>,
    /// How many faults there were at first.
    pub faults: usize,
    /// What breaks in the shortened run.
    pub violations: Vec<Violation>,
}

impl Failure {
    /// Shortens a run that broke a promise, for as long as it may go on.
    pub fn of(run: &Run, outcome: &Outcome, goes_on: impl FnMut() -> bool) -> Self {
        let (shorter, injections) = shorten(run, outcome, goes_on);
        let violations = shorter.run_with(&injections, None).violations;
        Self {
            command: run.command(),
            run: shorter,
            injections,
            faults: outcome.injections.len(),
            violations,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} breaks a promise", self.run.seed)?;
        for violation in self.violations.iter().take(SHOWN) {
            writeln!(f, "  {violation}")?;
        }
        if self.violations.len() > SHOWN {
            writeln!(f, "  … and {} more", self.violations.len() - SHOWN)?;
        }
        writeln!(f, "with {} of its {} faults:", self.injections.len(), self.faults)?;
        for injection in &self.injections {
            writeln!(f, "  {injection}")?;
        }
        write!(f, "to repeat it: {}", self.command)
    }
}

impl Run {
    /// The command that carries out this run.
    pub fn command(&self) -> String {
        let Self { seed, workers, chambers, .. } = self;
        let names =
            self.faults.iter().map(|fault| fault.name()).chain(self.shakes.iter().map(|shake| shake.name()));
        let faults = if self.faults == Fault::ALL && self.shakes == Shake::ALL {
            "all".to_owned()
        } else if self.faults.is_empty() && self.shakes.is_empty() {
            "none".to_owned()
        } else {
            names.collect::<Vec<_>>().join(",")
        };
        let hours = self.length.as_secs_f64() / 3600.0;
        let mut command = format!(
            "phalanx sim --seed {seed} --workers {workers} --chambers {chambers} --hours {hours} --faults {faults}"
        );
        if let Tenure::Term(_) = self.tenure {
            command.push_str(" --agent");
        }
        if let Some(guard) = self.without {
            let _ = write!(command, " --without {guard:?}");
        }
        command
    }
}
