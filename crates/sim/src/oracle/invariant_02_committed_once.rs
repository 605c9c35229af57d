//! Invariant 2: each message is committed at most once. Exception: after the cursor itself was lost, messages behind the
//! stored state are processed again, and are counted as reopened.

use phalanx_cluster_core::types::Time;

use crate::oracle::messages::MessageStatus;
use crate::oracle::report::Report;

const NUMBER: u32 = 2;

/// The number of messages that were committed twice.
#[derive(Debug, Default)]
pub(crate) struct CommittedOnce {
    double_committed: u64,
}

impl CommittedOnce {
    /// Returns the number of messages that were committed twice.
    pub(crate) fn double_committed(&self) -> u64 {
        self.double_committed
    }

    /// Checks the status that a message had before its commit.
    pub(crate) fn check(&mut self, report: &mut Report, now: Time, name: &str, before: MessageStatus) {
        if before == MessageStatus::Committed {
            self.double_committed += 1;
            report.violate(NUMBER, now, format!("{name} is committed twice"));
        }
    }
}
