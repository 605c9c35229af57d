//! Invariant 13: with a healthy broker, after a single crash (also the leader's), the orphaned partitions can be taken over
//! within 7 s; with the Election Agent after its lease + 1 s.

use std::time::Duration;

use phalanx_cluster_core::LeaseExpiry;
use phalanx_cluster_core::types::Time;

use crate::oracle::report::Report;

const NUMBER: u32 = 13;

/// The limit without an Election Agent.
const RECOVERY: Duration = Duration::from_secs(7);

/// A single crash.
#[derive(Debug)]
pub(crate) struct SingleCrash {
    id: u32,
    limit: Duration,
}

impl SingleCrash {
    /// A crash of the worker with this id.
    pub(crate) fn new(id: u32, is_leader: bool, lease_expiry: LeaseExpiry) -> Self {
        let limit = match lease_expiry {
            LeaseExpiry::AfterTerm(term) if is_leader => term + Duration::from_secs(1),
            _ => RECOVERY,
        };
        Self { id, limit }
    }

    /// Returns the time in which the orphans must have a living owner.
    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// Checks whether the orphans had one in time.
    pub(crate) fn check(&self, report: &mut Report, now: Time, is_recovered: bool) {
        if !is_recovered {
            let Self { id, limit } = self;
            let what = format!("worker {id} crashed, and its partitions wait longer than {limit:?}");
            report.violate(NUMBER, now, what);
        }
    }
}
