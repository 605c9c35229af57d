//! What is said about a broken promise: the seed, the fewest faults that still break it, and how to see it again.

use std::fmt::{self, Write as _};

use phalanx_cluster_core::LeaseExpiry;

use crate::chaos::{ChaosOutcome, ChaosRun, Mode, shrink};
use crate::faults::{Fault, Injection, RequestFault};
use crate::oracle::Violation;

/// How many of the broken promises are shown.
const MAX_SHOWN: usize = 10;

/// A run that broke a promise, shortened.
#[derive(Debug)]
pub struct FailureReport {
    /// The command that repeats the whole run.
    pub command: String,
    /// The shortened run.
    pub run: ChaosRun,
    /// The fewest faults that still break the promise.
    pub injections: Vec<Injection>,
    /// How many faults there were at first.
    pub faults: usize,
    /// What breaks in the shortened run.
    pub violations: Vec<Violation>,
}

impl FailureReport {
    /// Shortens a run that broke a promise, for as long as it may go on.
    pub fn of(run: &ChaosRun, outcome: &ChaosOutcome, goes_on: impl FnMut() -> bool) -> Self {
        let (shorter, injections) = shrink(run, outcome, goes_on);
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

impl fmt::Display for FailureReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} breaks a promise", self.run.seed)?;
        for violation in self.violations.iter().take(MAX_SHOWN) {
            writeln!(f, "  {violation}")?;
        }
        if self.violations.len() > MAX_SHOWN {
            writeln!(f, "  … and {} more", self.violations.len() - MAX_SHOWN)?;
        }
        writeln!(f, "with {} of its {} faults:", self.injections.len(), self.faults)?;
        for injection in &self.injections {
            writeln!(f, "  {injection}")?;
        }
        write!(f, "to repeat it: {}", self.command)
    }
}

impl ChaosRun {
    /// The command that carries out this run.
    pub fn command(&self) -> String {
        let Self { seed, workers, partitions, .. } = self;
        let names = self
            .faults
            .iter()
            .map(|fault| fault.name())
            .chain(self.request_faults.iter().map(|shake| shake.name()));
        let faults = if self.faults == Fault::ALL && self.request_faults == RequestFault::ALL {
            "all".to_owned()
        } else if self.faults.is_empty() && self.request_faults.is_empty() {
            "none".to_owned()
        } else {
            names.collect::<Vec<_>>().join(",")
        };
        let hours = self.length.as_secs_f64() / 3600.0;
        let mut command = format!(
            "phalanx sim --seed {seed} --workers {workers} --partitions {partitions} --hours {hours} --faults {faults}"
        );
        if self.mode == Mode::Shell {
            command.push_str(" --mode shell");
        }
        if let LeaseExpiry::AfterTerm(_) = self.lease_expiry {
            command.push_str(" --election-agent");
        }
        if let Some(rule) = self.disabled_rule {
            let _ = write!(command, " --disable-rule {rule}");
        }
        command
    }
}
