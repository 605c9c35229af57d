//! Reading the log from the cursor's own sequence, and detecting missing messages.

use std::time::Duration;

use crate::io::{Effect, LastMessage, LogInfo, LogPage, Message, Notice, Purpose, ReadError, RequestId};
use crate::types::Sequence;

use super::{
    Activity, CursorUpdate, DelayedAction, EARLY_WAKE_UP_DELAYS, Partition, PartitionContext, RETRY_DELAY,
    StoredCursor,
};

impl Partition {
    /// Reads two messages from the cursor's own sequence.
    pub(super) fn read(&mut self, leader: bool, ctx: &mut PartitionContext<'_>) {
        let sequence = self.owned().cursor.position.sequence;
        // Before the first commit no message proves that the log is complete.
        let from_leader = leader || sequence == Sequence::START;
        let (partition, from) = (ctx.name.clone(), ctx.policy().read_from(sequence));
        let request_id = ctx.request(Purpose::ReadLog, |request_id| Effect::ReadLog {
            request_id,
            partition,
            from,
            from_leader,
        });
        self.wake_up_pending = false;
        self.activity = Activity::Reading { request_id, leader: from_leader };
    }

    /// Handles a page of the log. An answer to an earlier read changes nothing.
    pub(crate) fn on_log_read(
        &mut self,
        request_id: RequestId,
        result: Result<LogPage, ReadError>,
        ctx: &mut PartitionContext<'_>,
    ) {
        let leader = match self.activity {
            Activity::Reading { request_id: asked, leader } if asked == request_id => leader,
            _ => return,
        };
        let Ok(page) = result else {
            self.delay(RETRY_DELAY, DelayedAction::Read, ctx);
            return;
        };
        let cursor = &self.owned().cursor;
        let sequence = cursor.position.sequence;
        let next = page.messages.iter().find(|message| message.sequence > sequence).cloned();
        if !ctx.policy().verifies_log() {
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
            let partition = ctx.name.clone();
            ctx.outbox.notify(Notice::Expired { partition, after: read_to, before: info.first });
        }
        self.pending_watermark = self.pending_watermark.max(info.first.previous());
        self.on_next_message(next, Some(info), ctx);
    }

    /// Continues with the message after the cursor, if there is one.
    fn on_next_message(
        &mut self,
        next: Option<Message>,
        leader: Option<LogInfo>,
        ctx: &mut PartitionContext<'_>,
    ) {
        let stored = self.owned();
        if let Some(message) = next {
            let cursor = stored.cursor.clone().counting_for(message.sequence);
            let dead = cursor.dead_letter_reason.is_some();
            let stored = StoredCursor { cursor, ..stored.clone() };
            self.cursor.replace(stored);
            self.empty_reads = EARLY_WAKE_UP_DELAYS.len();
            if dead {
                self.dead_letter(message, ctx);
            } else {
                self.make_ready(message, ctx);
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
            Some(info) if watermark_is_stale(self.owned(), &info, ctx) => {
                let clean = self.owned().cursor.with_watermark(info.last);
                self.update_cursor(clean, CursorUpdate::AdvanceWatermark, ctx);
            }
            _ => self.activity = Activity::Idle,
        }
    }
}

/// Whether there is something to do for a partition, besides waiting for its next message.
pub(super) fn has_work(
    stored: &StoredCursor,
    info: &LogInfo,
    last: Option<&LastMessage>,
    ctx: &PartitionContext<'_>,
) -> bool {
    let cursor = &stored.cursor;
    let committed = cursor.position.sequence;
    let unread = last.is_some_and(|last| last.sequence > committed);
    // What is committed must still be there, unless it has expired: otherwise the log has lost its tail.
    let holds_it = last.is_some_and(|last| {
        last.sequence > committed || last.sequence == committed && cursor.names(&last.message_id)
    });
    let other_log = Some(info.log_id) != cursor.log_id || committed >= info.first && !holds_it;
    unread || other_log || cursor.dead_letter_reason.is_some() || watermark_is_stale(stored, info, ctx)
}

/// Whether the stored watermark is too old, or messages may have expired.
fn watermark_is_stale(stored: &StoredCursor, info: &LogInfo, ctx: &PartitionContext<'_>) -> bool {
    let cursor = &stored.cursor;
    let age = Duration::from_micros(ctx.facts.broker_time.saturating_sub(stored.stored_at));
    let old = age >= ctx.facts.config.watermark_interval && info.last > cursor.consumed_to();
    old || info.first > cursor.consumed_to().next()
}
