//! Invariant 1: the cursor's position only advances to the next retained message of its partition, or to the start of a
//! new generation when the log was replaced.

use phalanx_cluster_core::types::{Sequence, Time};
use phalanx_cluster_core::{Cursor, Position};

use crate::broker::message_id;
use crate::fleet::ProcessId;
use crate::oracle::messages::{MessageStatus, Messages};
use crate::oracle::per_partition::PerPartition;
use crate::oracle::report::Report;

const NUMBER: u32 = 1;

/// The log that each cursor's generation belongs to, counted by how often the log was lost.
#[derive(Debug, Default)]
pub(crate) struct NextMessage {
    log_epochs: PerPartition<u64>,
    order_violations: u64,
}

impl NextMessage {
    /// Returns the number of messages that cursors skipped.
    pub(crate) fn order_violations(&self) -> u64 {
        self.order_violations
    }

    /// Notes a cursor where there was none. Returns whether the log holds the message that the cursor starts after: if it
    /// does not, a worker may still find that the log is another one.
    pub(crate) fn cursor_created(&mut self, messages: &mut Messages, partition: u32, is: &Cursor) -> bool {
        let (epoch, log_id) = messages.log();
        let known = messages.of(partition);
        let here = known.at.get(&is.position.sequence).map(|&message| known.message(message).number);
        let is_vouched = is.position.sequence == Sequence::START
            || here.is_some_and(|number| Some(message_id(number)) == is.message_id);
        let is_known_log = log_id.is_none() || is.log_id == log_id;
        *self.log_epochs.at(partition) = if is_vouched && is_known_log { epoch } else { u64::MAX };
        is_vouched
    }

    /// Checks a takeover that changes the position. Returns whether it starts a new generation, as it may after the log
    /// was lost.
    pub(crate) fn check_takeover(
        &mut self,
        report: &mut Report,
        now: Time,
        messages: &Messages,
        partition: u32,
        (was, is): (&Cursor, &Cursor),
    ) -> bool {
        let (epoch, log_id) = messages.log();
        let cursor_epoch = self.log_epochs.at(partition);
        let is_replaced = *cursor_epoch != epoch && is.position.sequence == Sequence::START;
        // A worker that knows only an earlier log has the present one still to find.
        *cursor_epoch = if log_id.is_none() || is.log_id == log_id { epoch } else { epoch - 1 };
        if !is_replaced {
            let (from, to) = (was.position, is.position);
            report.violate(
                NUMBER,
                now,
                format!("the cursor of partition {partition} went from {from:?} to {to:?}"),
            );
        }
        is_replaced
    }

    /// Checks the positions of a commit.
    pub(crate) fn check_commit(
        &mut self,
        report: &mut Report,
        now: Time,
        messages: &mut Messages,
        partition: u32,
        (was, is): (Position, Position),
    ) {
        if was.generation != is.generation {
            let what = format!("the cursor of partition {partition} changed its generation by a commit");
            report.violate(NUMBER, now, what);
        }
        if *self.log_epochs.at(partition) == messages.log().0 {
            self.check_skipped(report, now, messages, partition, (was.sequence.next(), is.sequence));
        }
    }

    /// Checks that no unresolved message lies from one sequence up to another.
    pub(crate) fn check_skipped(
        &mut self,
        report: &mut Report,
        now: Time,
        messages: &mut Messages,
        partition: u32,
        (from, until): (Sequence, Sequence),
    ) {
        let known = messages.of(partition);
        let mut between = known.at.range(from..until.max(from));
        let skipped = between.find(|(_, message)| known.message(**message).status == MessageStatus::Open);
        if let Some((sequence, _)) = skipped {
            self.order_violations += 1;
            report.violate(
                NUMBER,
                now,
                format!("the cursor of partition {partition} skips sequence {sequence}"),
            );
        }
    }
}

/// Reports the start of a message that was never published.
pub(crate) fn report_unknown_start(report: &mut Report, now: Time, process: ProcessId, partition: u32) {
    let what = format!("{process} starts a message of partition {partition} that was never published");
    report.violate(NUMBER, now, what);
}

/// Reports the commit of a message that was never published.
pub(crate) fn report_unknown_commit(report: &mut Report, now: Time, partition: u32, number: u64) {
    let what = format!("partition {partition} commits message {number}, which was never published");
    report.violate(NUMBER, now, what);
}

/// Reports a message that the log acknowledged and never stored.
pub(crate) fn report_never_stored(report: &mut Report, now: Time, partition: u32, number: u64) {
    report.violate(NUMBER, now, format!("message {number} of partition {partition} was never stored"));
}

/// Reports a message that was skipped as dead and has no dead letter.
pub(crate) fn report_missing_dead_letter(report: &mut Report, now: Time, partition: u32, number: u64) {
    let what = format!("message {number} of partition {partition} is passed without a dead letter");
    report.violate(NUMBER, now, what);
}
