//! Invariant 5: for each committed message, the history is exactly the committed messages below its position.

use phalanx_cluster_core::types::Time;
use phalanx_cluster_core::{Cursor, Position};

use crate::fleet::ProcessId;
use crate::oracle::invariant_04_stored_rows::WrittenRows;
use crate::oracle::per_partition::PerPartition;
use crate::oracle::report::Report;
use crate::store::History;

const NUMBER: u32 = 5;

/// The committed positions of each partition, with the history after each.
#[derive(Debug, Default)]
pub(crate) struct CommittedHistory {
    committed: PerPartition<Vec<(Position, History)>>,
}

impl CommittedHistory {
    /// Forgets the commits after the stored state that a new cursor starts with. Returns false if that state was never
    /// committed.
    pub(crate) fn cursor_created(
        &mut self,
        report: &mut Report,
        now: Time,
        partition: u32,
        is: &Cursor,
    ) -> bool {
        let committed = self.committed.at(partition);
        let kept = match is.state_position {
            Some(base) => committed.iter().position(|(position, _)| *position == base).map(|at| at + 1),
            None => Some(0),
        };
        let Some(kept) = kept else {
            let what = format!("the cursor of partition {partition} begins at what was never committed");
            report.violate(NUMBER, now, what);
            return false;
        };
        committed.truncate(kept);
        true
    }

    /// Returns whether a position is committed.
    pub(crate) fn has(&mut self, partition: u32, position: Position) -> bool {
        self.committed.at(partition).iter().any(|(known, _)| *known == position)
    }

    /// Notes that the cursor passed a dead letter, which does not change the history.
    pub(crate) fn passed_dead_letter(&mut self, partition: u32, position: Position) {
        let history = self.last(partition);
        self.committed.at(partition).push((position, history));
    }

    /// Notes the commit of a message. Returns the history after it, and whether it had the number already.
    pub(crate) fn committed(&mut self, partition: u32, position: Position, number: u64) -> (History, bool) {
        let before = self.last(partition);
        let is_repeated = before.knows(number);
        let after = if is_repeated { before } else { before.with(number) };
        self.committed.at(partition).push((position, after.clone()));
        (after, is_repeated)
    }

    fn last(&mut self, partition: u32) -> History {
        self.committed.at(partition).last().map(|(_, history)| history.clone()).unwrap_or_default()
    }
}

/// Checks the history that the results of a committed message were computed on.
pub(crate) fn check(
    report: &mut Report,
    now: Time,
    name: &str,
    written: &WrittenRows,
    (after, is_repeated): (&History, bool),
) {
    if written.counts == is_repeated || written.chain != after.chain {
        let what = format!("{name} was computed on another history than what is committed");
        report.violate(NUMBER, now, what);
    }
}

/// Reports that a handler finds no state at the committed position.
pub(crate) fn report_missing_state(
    report: &mut Report,
    now: Time,
    process: ProcessId,
    partition: u32,
    committed: Option<Position>,
) {
    let what = format!("{process} finds no handler state of partition {partition} at {committed:?}");
    report.violate(NUMBER, now, what);
}
