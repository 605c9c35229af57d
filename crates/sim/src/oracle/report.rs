//! Violations that the checkers found.

use std::fmt;

use phalanx_cluster_core::types::Time;

/// The number of a violated assertion, in place of that of an invariant.
pub(crate) const ASSERTION: u32 = 0;

/// A violated invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The number of the invariant in the design.
    pub invariant: u32,
    /// The virtual time of the violation.
    pub at: Time,
    /// The details.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.at.since_origin().as_secs_f64();
        write!(f, "{seconds:.3} s: invariant {}: {}", self.invariant, self.what)
    }
}

/// The violations so far, in the order in which they were found.
#[derive(Debug, Default)]
pub(crate) struct Report {
    violations: Vec<Violation>,
}

impl Report {
    /// Adds a violation.
    pub(crate) fn violate(&mut self, invariant: u32, at: Time, what: String) {
        self.violations.push(Violation { invariant, at, what });
    }

    /// Returns whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.violations.is_empty()
    }

    /// Removes and returns all violations.
    pub(crate) fn take(&mut self) -> Vec<Violation> {
        std::mem::take(&mut self.violations)
    }
}
