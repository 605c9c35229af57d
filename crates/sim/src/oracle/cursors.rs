//! Stored values: maps and cursors.

use phalanx_cluster_core::types::{AssignmentMap, Sequence, Time, Value};
use phalanx_cluster_core::{Cursor, Position};

use crate::broker::number_of;
use crate::fleet::ProcessId;
use crate::oracle::messages::{MessageIndex, MessageStatus, Outcome};
use crate::oracle::{
    Oracle, invariant_01_next_message, invariant_05_history, invariant_09_one_processor,
    invariant_15_emergency, name,
};
use crate::store::Rows;

impl Oracle {
    /// Notes that a value was stored.
    pub(crate) fn stored(&mut self, now: Time, value: &Value) {
        self.map_order.stored(&mut self.report, now, value);
    }

    /// Checks the map that an emergency published.
    pub(crate) fn emergency(&mut self, now: Time, before: &AssignmentMap, after: &AssignmentMap) {
        invariant_15_emergency::check(&mut self.report, now, before, after);
    }

    /// Notes that every cursor is gone.
    pub(crate) fn cursors_lost(&mut self) {
        self.worker_crashes.cursors_lost();
    }

    /// Notes that a process stored a cursor.
    pub(crate) fn cursor(
        &mut self,
        now: Time,
        process: ProcessId,
        partition: u32,
        (was, is): (Option<&Cursor>, &Cursor),
        store: &Rows,
    ) {
        self.worker_crashes.cursor_stored(partition, is);
        if is.released {
            let (report, running) = (&mut self.report, &mut self.running);
            invariant_09_one_processor::check_release(report, now, process, partition, running);
        }
        match was {
            None => self.cursor_created(now, process, partition, is),
            Some(was) if is.fencing_token != was.fencing_token => {
                self.cursor_taken(now, process, partition, was, is);
            }
            Some(was) if is.position != was.position => {
                self.cursor_advanced(now, process, partition, (was, is), store);
            }
            Some(was) if is.isolated && !was.isolated => {
                let (report, running) = (&mut self.report, &self.running);
                self.worker_crashes.check_isolation(report, now, process, partition, running);
            }
            Some(_) => {}
        }
    }

    /// Notes a cursor where there was none: it may go back, it may not skip.
    fn cursor_created(&mut self, now: Time, process: ProcessId, partition: u32, is: &Cursor) {
        let is_vouched = self.next_message.cursor_created(&mut self.messages, partition, is);
        self.owned_by(process, partition, is);
        if !self.history.cursor_created(&mut self.report, now, partition, is) {
            return;
        }
        if is.state_position.is_none() {
            self.counted_expiry.forget(partition);
        }
        let history = &mut self.history;
        self.stored_rows.retain(partition, |position| history.has(partition, position));
        self.reopen(partition, is.position.sequence);
        if is_vouched {
            let range = (Sequence::START, is.position.sequence.next());
            self.next_message.check_skipped(&mut self.report, now, &mut self.messages, partition, range);
        }
    }

    fn cursor_taken(&mut self, now: Time, process: ProcessId, partition: u32, was: &Cursor, is: &Cursor) {
        self.clean_leave.check_takeover(&mut self.report, now, process, partition, (was, is));
        self.owned_by(process, partition, is);
        if let (true, true, Some(judged)) =
            (was.isolated, is.dead_letter_reason.is_some(), is.counted_sequence)
            && let Some(&message) = self.messages.of(partition).at.get(&judged)
        {
            self.worker_crashes.crashed_isolated((partition, message));
        }
        let (report, messages) = (&mut self.report, &self.messages);
        if is.position != was.position
            && self.next_message.check_takeover(report, now, messages, partition, (was, is))
        {
            self.reopen(partition, Sequence::START);
        }
    }

    fn owned_by(&mut self, process: ProcessId, partition: u32, is: &Cursor) {
        self.newest_token.taken(partition, is.fencing_token, process);
        self.clean_leave.taken(partition, process, is);
        self.counted_expiry.owned(partition);
    }

    /// Reopens what the log still holds after a position: it is read again, and what was committed commits without effect.
    fn reopen(&mut self, partition: u32, after: Sequence) {
        for message in self.messages.reopen(partition, after) {
            self.worker_crashes.reopened((partition, message));
            self.one_outcome.reopened((partition, message));
        }
    }

    fn cursor_advanced(
        &mut self,
        now: Time,
        process: ProcessId,
        partition: u32,
        (was, is): (&Cursor, &Cursor),
        store: &Rows,
    ) {
        let report = &mut self.report;
        self.newest_token.check(report, now, process, partition, is.fencing_token);
        let positions = (was.position, is.position);
        self.next_message.check_commit(report, now, &mut self.messages, partition, positions);
        let number = is.message_id.as_deref().and_then(number_of).unwrap_or(u64::MAX);
        let Some(message) = self.messages.of(partition).find(is.position.sequence, number) else {
            invariant_01_next_message::report_unknown_commit(report, now, partition, number);
            return;
        };
        if was.clone().counting_for(is.position.sequence).dead_letter_reason.is_some() {
            self.dead_letter_passed(now, (partition, message), number, is.position);
        } else {
            self.committed(now, (partition, message), number, is, store);
        }
    }

    fn dead_letter_passed(
        &mut self,
        now: Time,
        (partition, message): (u32, MessageIndex),
        number: u64,
        position: Position,
    ) {
        self.history.passed_dead_letter(partition, position);
        let before = self.messages.set_status(partition, message, MessageStatus::Dead);
        let (report, name, message) = (&mut self.report, name(partition, number), (partition, message));
        if !self.one_outcome.check_passed(report, now, &name, message, before) {
            invariant_01_next_message::report_missing_dead_letter(report, now, partition, number);
        }
    }

    fn committed(
        &mut self,
        now: Time,
        (partition, message): (u32, MessageIndex),
        number: u64,
        is: &Cursor,
        store: &Rows,
    ) {
        let before = self.messages.set_status(partition, message, MessageStatus::Committed);
        let (after, is_repeated) = self.history.committed(partition, is.position, number);
        let outcome = if is_repeated { Outcome::Duplicate } else { Outcome::Committed };
        self.messages.resolve(partition, message, outcome);
        let (report, name, message) = (&mut self.report, name(partition, number), (partition, message));
        self.committed_once.check(report, now, &name, before);
        self.one_outcome.check_committed(report, now, &name, message, before);
        let Some(written) = self.stored_rows.committed(report, now, &name, message, is) else { return };
        invariant_05_history::check(report, now, &name, &written, (&after, is_repeated));
        if written.counts {
            let about = (partition, number, before);
            self.stored_rows.check_visible(report, now, about, &written, is, store);
        }
    }
}
