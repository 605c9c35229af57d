//! Reading the log from the cursor's own sequence, and detecting missing messages.

use std::time::Duration;

use super::super::ProtocolRule;
use super::super::io::{
    Effect, LastMessage, LogInfo, LogPage, Message, Notice, Purpose, ReadError, RequestId,
};
use super::super::types::Sequence;
use super::{
    Activity, CursorUpdate, DelayedAction, EARLY_WAKE_UP_DELAYS, Partition, PartitionContext, RETRY,
    StoredCursor,
};

impl Partition {
    /// Reads two messages from the cursor's own sequence.
    pub(super) fn read(&mut self, leader: bool, ctx: &mut PartitionContext<'_>) {
        let Some(known) = &self.stored else { return };
        let sequence = known.cursor.position.sequence;
        let from = if ctx.consumer.config.enforces(ProtocolRule::ReadFromCursor) {
            sequence.max(Sequence::FIRST)
        } else {
            sequence.next()
        };
        // Before the first commit no message proves that the log is complete.
        let leader = leader || sequence == Sequence::START;
        let request_id = ctx.request(Purpose::ReadLog);
        ctx.out.push(Effect::ReadLog { request_id, partition: ctx.name.clone(), from, from_leader: leader });
        self.wake_up_pending = false;
        self.activity = Activity::Reading { request_id, leader };
    }

    /// The log was read.
    pub(crate) fn on_log_read(
        &mut self,
        request_id: RequestId,
        result: Result<LogPage, ReadError>,
        ctx: &mut PartitionContext<'_>,
    ) {
        let Activity::Reading { request_id: asked, leader } = self.activity else { return };
        if asked != request_id {
            return;
        }
        let Ok(page) = result else {
            self.delay(RETRY, DelayedAction::Read, ctx);
            return;
        };
        let Some(known) = &self.stored else { return };
        let cursor = &known.cursor;
        let sequence = cursor.position.sequence;
        let next = page.messages.iter().find(|message| message.sequence > sequence).cloned();
        if !ctx.consumer.config.enforces(ProtocolRule::ReadFromCursor) {
            self.on_next_message(next, None, ctx);
            return;
        }
        // Another log may hold the same message at the same sequence.
        if let Some(info) = page.info.filter(|info| leader && Some(info.log_id) != cursor.log_id) {
            self.replace(info.log_id, ctx);
            return;
        }
        let vouched = sequence > Sequence::START
            && page
                .messages
                .first()
                .is_some_and(|first| first.sequence == sequence && cursor.names(&first.message_id));
        if vouched {
            let info = page.info.filter(|_| leader);
            self.on_next_message(next, info, ctx);
            return;
        }
        // Only the stream leader can prove that a message is missing.
        let Some(info) = page.info.filter(|_| leader) else {
            self.read(true, ctx);
            return;
        };
        if sequence > Sequence::START && info.first <= sequence {
            self.replace(info.log_id, ctx);
            return;
        }
        let read_to = cursor.consumed_to().max(self.pending_watermark);
        if info.first > read_to.next() {
            ctx.out.push(Effect::Notice(Notice::Expired {
                partition: ctx.name.clone(),
                after: read_to,
                before: info.first,
            }));
        }
        self.pending_watermark = self.pending_watermark.max(info.first.previous());
        self.on_next_message(next, Some(info), ctx);
    }

    /// Continues with the message after the cursor, if there is one.
    pub(super) fn on_next_message(
        &mut self,
        next: Option<Message>,
        leader: Option<LogInfo>,
        ctx: &mut PartitionContext<'_>,
    ) {
        let Some(known) = &self.stored else { return };
        if let Some(message) = next {
            self.empty_reads = EARLY_WAKE_UP_DELAYS.len();
            let known =
                StoredCursor { cursor: known.cursor.clone().counting_for(message.sequence), ..known.clone() };
            let dead = known.cursor.dead_letter_reason.is_some();
            self.stored = Some(known);
            if dead {
                self.record_dead_letter(message, ctx);
            } else {
                self.activity = Activity::Ready { message, since: ctx.consumer.now };
            }
            return;
        }
        if self.wake_up_pending {
            self.read(false, ctx);
            return;
        }
        if let Some(&wait) = EARLY_WAKE_UP_DELAYS.get(self.empty_reads) {
            self.empty_reads += 1;
            self.delay(wait, DelayedAction::Read, ctx);
            return;
        }
        match leader {
            Some(info) if watermark_is_stale(known, &info, ctx) => {
                let clean = known.cursor.with_watermark(info.last);
                self.update_cursor(clean, CursorUpdate::AdvanceWatermark, ctx);
            }
            _ => self.activity = Activity::Idle,
        }
    }
}

/// Whether there is something to do for a partition, besides waiting for its next message.
pub(super) fn has_work(
    known: &StoredCursor,
    info: &LogInfo,
    last: Option<&LastMessage>,
    ctx: &PartitionContext<'_>,
) -> bool {
    let cursor = &known.cursor;
    let committed = cursor.position.sequence;
    let unread = last.is_some_and(|last| last.sequence > committed);
    // What is committed must still be there, unless it has expired: otherwise the log has lost its tail.
    let holds_it = last.is_some_and(|last| {
        last.sequence > committed || last.sequence == committed && cursor.names(&last.message_id)
    });
    let other_log = Some(info.log_id) != cursor.log_id || committed >= info.first && !holds_it;
    unread || other_log || cursor.dead_letter_reason.is_some() || watermark_is_stale(known, info, ctx)
}

/// Whether the stored watermark is too old, or messages may have expired.
fn watermark_is_stale(known: &StoredCursor, info: &LogInfo, ctx: &PartitionContext<'_>) -> bool {
    let cursor = &known.cursor;
    let age = Duration::from_micros(ctx.consumer.broker_time.saturating_sub(known.stored_at));
    let old = age >= ctx.consumer.config.watermark_interval && info.last > cursor.consumed_to();
    old || info.first > cursor.consumed_to().next()
}
