//! The oracle: an independent record of what happened, and one checker for each invariant of the design (§17), by its
//! number. It never asks a worker or its cursor what happened.
//!
//! The world reports events by the methods of [`Oracle`]; each checker owns the data that only it needs.

mod counts;
mod cursors;
mod invariant_01_next_message;
mod invariant_02_committed_once;
mod invariant_03_fencing_token;
mod invariant_04_stored_rows;
mod invariant_05_history;
mod invariant_06_one_outcome;
mod invariant_07_worker_crashes;
mod invariant_08_fence;
mod invariant_09_one_processor;
pub(crate) mod invariant_10_unique_id;
mod invariant_11_kept_id;
mod invariant_12_map_order;
pub(crate) mod invariant_13_recovery;
pub(crate) mod invariant_14_no_new_map;
mod invariant_15_emergency;
pub(crate) mod invariant_16_convergence;
mod invariant_17_counted_expiry;
pub(crate) mod invariant_18_others_continue;
pub(crate) mod invariant_19_trace_hash;
mod invariant_21_clean_leave;
mod messages;
mod per_partition;
mod processes;
mod report;

use phalanx_cluster_core::types::{LogId, Sequence, Time, WorkerId, WorkerIncarnation};
use phalanx_cluster_core::{Position, ProcessRequest, RequestId, WriteError};

use crate::broker::{MessageKind, decode};
use crate::fleet::ProcessId;
use crate::store::{Results, Rows};

pub use counts::Counts;
pub(crate) use report::ASSERTION;
pub use report::Violation;

use invariant_01_next_message::NextMessage;
use invariant_02_committed_once::CommittedOnce;
use invariant_03_fencing_token::NewestToken;
use invariant_04_stored_rows::StoredRows;
use invariant_05_history::CommittedHistory;
use invariant_06_one_outcome::OneOutcome;
use invariant_07_worker_crashes::WorkerCrashes;
use invariant_08_fence::Fence;
use invariant_10_unique_id::IdHolders;
use invariant_11_kept_id::KeptId;
use invariant_12_map_order::MapOrder;
use invariant_17_counted_expiry::CountedExpiry;
use invariant_21_clean_leave::CleanLeave;
use messages::{MessageStatus, Messages, Outcome};
use processes::{Processes, Running};
pub(crate) use report::Report;

/// The record of a run and its checkers.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    pub(crate) report: Report,
    pub(crate) processes: Processes,
    messages: Messages,
    running: Running,
    next_message: NextMessage,
    committed_once: CommittedOnce,
    newest_token: NewestToken,
    stored_rows: StoredRows,
    history: CommittedHistory,
    one_outcome: OneOutcome,
    worker_crashes: WorkerCrashes,
    fence: Fence,
    kept_id: KeptId,
    map_order: MapOrder,
    counted_expiry: CountedExpiry,
    clean_leave: CleanLeave,
}

/// Processes: their starts, heartbeats, ids and ends.
impl Oracle {
    /// Notes that the next process starts.
    pub(crate) fn started(&mut self, now: Time) {
        self.processes.started();
        self.fence.started(now);
        self.kept_id.started();
    }

    /// Notes that a worker starts in a process that has run for a while.
    pub(crate) fn worker_started(&mut self, now: Time, process: ProcessId) {
        self.fence.worker_started(now, process);
    }

    /// Notes that a process sends a heartbeat.
    pub(crate) fn heartbeat_sent(&mut self, now: Time, process: ProcessId, request_id: RequestId) {
        self.fence.heartbeat_sent(now, process, request_id);
    }

    /// Checks something that only an unfenced process may do.
    pub(crate) fn check_fence(&mut self, now: Time, process: ProcessId, what: &str) {
        self.fence.check(&mut self.report, now, process, what);
    }

    /// Notes that a process sends a write of a cursor.
    pub(crate) fn cursor_write_sent(&mut self, process: ProcessId, request_id: RequestId, partition: u32) {
        self.clean_leave.cursor_write_sent(process, request_id, partition);
    }

    /// Notes that a process receives the answer to a write.
    pub(crate) fn answered(
        &mut self,
        process: ProcessId,
        request_id: RequestId,
        result: Result<(), WriteError>,
    ) {
        if result.is_ok() {
            self.fence.heartbeat_acknowledged(process, request_id);
        }
        self.clean_leave.answered(process, request_id, result);
    }

    /// Notes that a process abandons the message of a partition, or reads an old cursor of it.
    pub(crate) fn doubt(&mut self, process: ProcessId, partition: u32) {
        self.clean_leave.doubt(process, partition);
    }

    /// Notes that a process writes its leave record.
    pub(crate) fn leave_record_sent(&mut self, process: ProcessId, is_fenced: bool) {
        self.clean_leave.leave_record_sent(process, is_fenced);
    }

    /// Notes that a process releases its id by itself.
    pub(crate) fn left(&mut self, process: ProcessId, is_fenced: bool) {
        self.clean_leave.left(process, is_fenced);
    }

    /// Checks the id of a process after something happened to it. `was_taken` tells whether it lost its last id without a
    /// release.
    pub(crate) fn check_identity(
        &mut self,
        now: Time,
        process: ProcessId,
        (incarnation, was_taken): (Option<WorkerIncarnation>, impl FnOnce() -> bool),
        fleet: &impl IdHolders,
    ) {
        if let Some(incarnation) = incarnation {
            self.clean_leave.holds(process, incarnation);
        }
        let id: Option<WorkerId> = incarnation.map(|incarnation| incarnation.id);
        self.kept_id.check(&mut self.report, now, process, (id, was_taken), &self.processes);
        invariant_10_unique_id::check(&mut self.report, now, process, fleet);
    }
}

/// Messages: published, processed, and gone.
impl Oracle {
    /// Notes that the log acknowledged a new message.
    pub(crate) fn published(&mut self, partition: u32, sequence: Sequence, number: u64, kind: MessageKind) {
        self.messages.published(partition, sequence, number, kind);
    }

    /// Notes that the log acknowledged a message without storing it, because it had one with the same id.
    pub(crate) fn dropped_duplicate(&mut self) {
        self.messages.dropped_duplicate();
    }

    /// Reports a new message that the log acknowledged without storing it.
    pub(crate) fn never_stored(&mut self, now: Time, partition: u32, number: u64) {
        invariant_01_next_message::report_never_stored(&mut self.report, now, partition, number);
    }

    /// Notes messages that the log deleted by age.
    pub(crate) fn expired(&mut self, gone: &[(u32, Sequence)]) {
        for &(partition, sequence) in gone {
            let unread = self.messages.gone(partition, sequence, MessageStatus::Expired);
            if let Some(message) = unread {
                self.counted_expiry.expired(self.messages.log().0, partition, sequence, message);
            }
        }
    }

    /// Notes messages that are gone with the log, or with its tail.
    pub(crate) fn log_lost(&mut self, log_id: LogId, gone: &[(u32, Sequence)]) {
        self.messages.log_lost(log_id);
        for &(partition, sequence) in gone {
            self.messages.gone(partition, sequence, MessageStatus::Lost);
        }
    }

    /// Notes that a worker reports the messages between two sequences as expired.
    pub(crate) fn reported_expired(&mut self, partition: u32, after: Sequence, before: Sequence) {
        self.counted_expiry.reported(self.messages.log().0, partition, after, before);
    }

    /// Notes that a process starts a message.
    pub(crate) fn on_processing_started(
        &mut self,
        now: Time,
        process: ProcessId,
        partition: u32,
        work: &ProcessRequest,
    ) {
        let (number, _) = decode(&work.message.payload);
        let Some(message) = self.messages.of(partition).find(work.message.sequence, number) else {
            invariant_01_next_message::report_unknown_start(&mut self.report, now, process, partition);
            return;
        };
        let report = &mut self.report;
        self.worker_crashes.check_isolated(report, now, process, partition);
        let beside = self.running.on(partition).find(|other| *other != process);
        self.running.started(process, partition, message);
        self.worker_crashes.check_start(report, now, &name(partition, number), (partition, message));
        invariant_09_one_processor::check_start(report, now, (process, beside), partition, &self.processes);
    }

    /// Notes that a process does not process a partition any more.
    pub(crate) fn on_processing_ended(&mut self, process: ProcessId, partition: u32) {
        self.running.ended(process, partition);
    }

    /// Notes that a process crashed while it processed a partition.
    pub(crate) fn on_worker_crash(&mut self, process: ProcessId, partition: u32) {
        for message in self.running.ended(process, partition) {
            self.worker_crashes.crashed((partition, message));
        }
    }

    /// Reports that a handler finds no state at the committed position.
    pub(crate) fn missing_state(
        &mut self,
        now: Time,
        process: ProcessId,
        partition: u32,
        committed: Option<Position>,
    ) {
        invariant_05_history::report_missing_state(&mut self.report, now, process, partition, committed);
    }

    /// Notes that results have reached the store.
    pub(crate) fn rows(&mut self, now: Time, results: &Results, store: &Rows) {
        let message = self.messages.of(results.partition).find(results.position.sequence, results.number);
        self.stored_rows.written(&mut self.report, now, message, results, store);
    }

    /// Notes that a dead letter was published.
    pub(crate) fn on_dead_letter(&mut self, now: Time, partition: u32, sequence: Sequence, number: u64) {
        let Some(message) = self.messages.of(partition).find(sequence, number) else { return };
        let kind = self.messages.of(partition).message(message).kind;
        self.messages.resolve(partition, message, Outcome::DeadLettered);
        let (report, name, message) = (&mut self.report, name(partition, number), (partition, message));
        self.one_outcome.dead_lettered(report, now, &name, message);
        self.worker_crashes.check_dead_letter(report, now, &name, message, kind);
    }
}

/// Results.
impl Oracle {
    /// Returns the counts so far.
    pub(crate) fn counts(&self) -> Counts {
        Counts {
            double_committed: self.committed_once.double_committed(),
            order_violations: self.next_message.order_violations(),
            ..self.messages.counts()
        }
    }

    /// Returns the number of unresolved messages of these partitions.
    pub(crate) fn unresolved(&self, partitions: &[u32]) -> usize {
        let known = partitions.iter().filter_map(|&partition| self.messages.get(partition));
        known.map(|known| known.open().count()).sum()
    }

    /// Returns whether a message that crashes its worker or never ends is still to be resolved.
    pub(crate) fn has_harmful_messages(&self) -> bool {
        let is_harmful = |kind| matches!(kind, MessageKind::CrashesWorker | MessageKind::NeverEnds);
        self.messages.partitions().any(|(_, known)| {
            let mut held = known.at.values().map(|&message| known.message(message));
            held.any(|message| {
                matches!(message.status, MessageStatus::Open | MessageStatus::Reopened)
                    && is_harmful(message.kind)
            })
        })
    }

    /// Checks what can only be known at the end: unresolved messages, and expired messages that no worker reported.
    pub(crate) fn finish(&mut self, now: Time, is_owned: impl Fn(u32) -> bool) {
        invariant_16_convergence::check_messages(&mut self.report, now, &self.messages);
        self.counted_expiry.finish(&mut self.report, now, &mut self.messages, is_owned);
        let counts = self.messages.counts();
        assert_eq!(counts, self.messages.recount(), "the counts of the messages");
        assert_eq!(counts.published, counts.resolved() + counts.lost, "each message has one outcome");
    }
}

/// Returns the name of a message in reports.
fn name(partition: u32, number: u64) -> String {
    format!("message {number} of partition {partition}")
}
