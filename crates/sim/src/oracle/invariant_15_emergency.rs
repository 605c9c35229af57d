//! Invariant 15: an emergency moves only partitions of crashed workers.

use phalanx_cluster_core::types::{AssignmentMap, Time};

use crate::oracle::report::Report;

const NUMBER: u32 = 15;

/// Checks the map that an emergency published.
pub(crate) fn check(report: &mut Report, now: Time, before: &AssignmentMap, after: &AssignmentMap) {
    let moved = before.assignments.iter().find(|(name, was)| {
        let is = after.assignments.get(*name).map(|is| is.owner);
        is.is_some_and(|is| is != was.owner) && after.workers.contains(&was.owner)
    });
    if let Some((name, was)) = moved {
        report.violate(NUMBER, now, format!("an emergency took {name} from {}, who lives", was.owner));
    }
}
