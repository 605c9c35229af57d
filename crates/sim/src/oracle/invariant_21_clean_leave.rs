//! Invariant 21: a leave never adds a worker crash to a message, also in embedded mode and across restarts.
//!
//! The protocol excepts partitions whose last cursor write or read has no reliable answer or whose message was abandoned,
//! and a worker whose fence is closed when its drain time is over.

use std::collections::{BTreeMap, BTreeSet};

use phalanx_cluster_core::types::{Time, WorkerIncarnation};
use phalanx_cluster_core::{Cursor, Purpose, RequestId, WriteError};

use crate::fleet::ProcessId;
use crate::oracle::per_partition::PerPartition;
use crate::oracle::report::Report;

const NUMBER: u32 = 21;

/// The request id below every other.
const FIRST_REQUEST: RequestId = RequestId { purpose: Purpose::Heartbeat, serial: 0 };

/// The last takeover of a partition.
#[derive(Debug, Default)]
struct Takeover {
    owner: Option<(ProcessId, WorkerIncarnation)>,
    /// Whether the owner has left cleanly since.
    has_left: bool,
}

/// The owners of the partitions, and the partitions of which they cannot be sure.
#[derive(Debug, Default)]
pub(crate) struct CleanLeave {
    takeovers: PerPartition<Takeover>,
    /// The incarnation that each process last held.
    incarnations: BTreeMap<ProcessId, WorkerIncarnation>,
    /// Cursor writes without an answer, and their partitions.
    unanswered: BTreeMap<(ProcessId, RequestId), u32>,
    /// Partitions whose last cursor write by a process has an unknown outcome, or whose message it abandoned.
    doubtful: BTreeSet<(ProcessId, u32)>,
    /// Processes whose fence was closed when they wrote their leave record, after the drain. It may open again before they
    /// release their id, too late for the cursors.
    fenced_after_drain: BTreeSet<ProcessId>,
}

impl CleanLeave {
    /// Notes the incarnation that a process holds.
    pub(crate) fn holds(&mut self, process: ProcessId, incarnation: WorkerIncarnation) {
        self.incarnations.insert(process, incarnation);
    }

    /// Notes that a process asks for a cursor to be written.
    pub(crate) fn cursor_write_sent(&mut self, process: ProcessId, request_id: RequestId, partition: u32) {
        self.unanswered.insert((process, request_id), partition);
    }

    /// Notes that a process receives the answer to a write.
    pub(crate) fn answered(
        &mut self,
        process: ProcessId,
        request_id: RequestId,
        result: Result<(), WriteError>,
    ) {
        let Some(partition) = self.unanswered.remove(&(process, request_id)) else { return };
        match result {
            Ok(()) => drop(self.doubtful.remove(&(process, partition))),
            Err(WriteError::Unknown) => drop(self.doubtful.insert((process, partition))),
            Err(WriteError::Conflict | WriteError::Failed) => {}
        }
    }

    /// Notes that a process abandons the message of a partition, or reads an old cursor of it.
    pub(crate) fn doubt(&mut self, process: ProcessId, partition: u32) {
        self.doubtful.insert((process, partition));
    }

    /// Notes that a process writes its leave record.
    pub(crate) fn leave_record_sent(&mut self, process: ProcessId, is_fenced: bool) {
        if is_fenced {
            self.fenced_after_drain.insert(process);
        }
    }

    /// Notes that a process releases its id by itself: no takeover from this incarnation may count a worker crash.
    /// `is_fenced` tells whether its fence is closed.
    pub(crate) fn left(&mut self, process: ProcessId, is_fenced: bool) {
        let unanswered = self.unanswered.range((process, FIRST_REQUEST)..);
        let unanswered = unanswered.take_while(|((asking, _), _)| *asking == process);
        self.doubtful.extend(unanswered.map(|(_, partition)| (process, *partition)));
        let Some(&incarnation) = self.incarnations.get(&process) else { return };
        if self.fenced_after_drain.remove(&process) || is_fenced {
            return;
        }
        for (partition, takeover) in self.takeovers.iter_mut() {
            if takeover.owner == Some((process, incarnation)) {
                takeover.has_left = !self.doubtful.contains(&(process, partition));
            }
        }
    }

    /// Notes a takeover.
    pub(crate) fn taken(&mut self, partition: u32, process: ProcessId, is: &Cursor) {
        *self.takeovers.at(partition) = Takeover { owner: Some((process, is.owner)), has_left: false };
    }

    /// Checks the worker crashes that a takeover counts.
    pub(crate) fn check_takeover(
        &mut self,
        report: &mut Report,
        now: Time,
        process: ProcessId,
        partition: u32,
        (was, is): (&Cursor, &Cursor),
    ) {
        let takeover = self.takeovers.at(partition);
        if let (true, Some((left, _))) =
            (is.worker_crashes > was.worker_crashes && takeover.has_left, takeover.owner)
        {
            let what = format!(
                "{process} counts the clean leave of {left} as a worker crash of partition {partition}"
            );
            report.violate(NUMBER, now, what);
        }
    }
}
