//! Invariant 3: nothing is committed under fencing token n once fencing token n + 1 exists.

use phalanx_cluster_core::types::{FencingToken, Time};

use crate::fleet::ProcessId;
use crate::oracle::per_partition::PerPartition;
use crate::oracle::report::Report;

const NUMBER: u32 = 3;

/// The newest fencing token of each partition and the process that took it.
#[derive(Debug, Default)]
pub(crate) struct NewestToken {
    tokens: PerPartition<(FencingToken, Option<ProcessId>)>,
}

impl NewestToken {
    /// Notes that a process took a partition over.
    pub(crate) fn taken(&mut self, partition: u32, token: FencingToken, process: ProcessId) {
        *self.tokens.at(partition) = (token, Some(process));
    }

    /// Checks the token of a commit.
    pub(crate) fn check(
        &mut self,
        report: &mut Report,
        now: Time,
        process: ProcessId,
        partition: u32,
        token: FencingToken,
    ) {
        let (newest, owner) = *self.tokens.at(partition);
        if newest != token || owner != Some(process) {
            let what = format!(
                "{process} commits partition {partition} by token {token}; token {newest} is {owner:?}'s"
            );
            report.violate(NUMBER, now, what);
        }
    }
}
