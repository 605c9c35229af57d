//! Writing the cursor by compare-and-swap, and verifying a write without an answer.

use std::sync::Arc;
use std::time::Duration;

use super::super::ProtocolRule;
use super::super::cursor::{Cursor, Position};
use super::super::io::{Condition, Effect, Notice, Purpose, ReadError, RequestId, WriteError, Written};
use super::super::types::{Entry, Key, Sequence, Value};
use super::{
    Activity, CursorUpdate, DelayedAction, Partition, PartitionContext, PendingUpdate, RETRY, StoredCursor,
    stored_cursor,
};

impl Partition {
    pub(super) fn update_cursor(
        &mut self,
        proposed: Cursor,
        goal: CursorUpdate,
        ctx: &mut PartitionContext<'_>,
    ) {
        let Some(known) = &self.stored else { return };
        let condition = Condition::Revision(known.revision);
        self.begin_update(proposed, condition, goal, ctx);
    }

    pub(super) fn begin_update(
        &mut self,
        proposed: Cursor,
        condition: Condition,
        goal: CursorUpdate,
        ctx: &mut PartitionContext<'_>,
    ) {
        let request_id = ctx.request(Purpose::Cursor);
        ctx.out.push(Effect::Write {
            request_id,
            key: Key::Cursor(ctx.name.clone()),
            value: Value::Cursor(Arc::new(proposed.clone())),
            condition,
        });
        self.activity =
            Activity::UpdatingCursor(Box::new(PendingUpdate { request_id, proposed, condition, goal }));
    }

    /// A swap was answered.
    pub(crate) fn written(
        &mut self,
        request_id: RequestId,
        result: Result<Written, WriteError>,
        ctx: &mut PartitionContext<'_>,
    ) {
        let Activity::UpdatingCursor(swap) = &self.activity else { return };
        if swap.request_id != request_id {
            return;
        }
        let swap = swap.clone();
        match result {
            Ok(written) => self.on_updated(*swap, written, true, ctx),
            Err(WriteError::Failed) => self.delay(RETRY, DelayedAction::UpdateCursor(swap), ctx),
            Err(WriteError::Unknown) if !ctx.consumer.config.enforces(ProtocolRule::VerifyUnknownFirst) => {
                match swap.goal {
                    CursorUpdate::Commit(message) => {
                        self.activity = Activity::Ready { message, since: ctx.consumer.now }
                    }
                    _ => self.verify_update(swap, ctx),
                }
            }
            Err(WriteError::Conflict | WriteError::Unknown) => {
                if ctx.consumer.config.enforces(ProtocolRule::CacheDropped) {
                    self.cache_valid = false;
                }
                self.verify_update(swap, ctx);
            }
        }
    }

    /// Reads the cursor after a rejected or unanswered write.
    pub(super) fn verify_update(&mut self, mut swap: Box<PendingUpdate>, ctx: &mut PartitionContext<'_>) {
        swap.request_id = ctx.request(Purpose::ReadCursor);
        ctx.out.push(Effect::Read { request_id: swap.request_id, key: Key::Cursor(ctx.name.clone()) });
        self.activity = Activity::UpdatingCursor(swap);
    }

    /// Handles the cursor that was read to verify a write.
    pub(crate) fn fetched(
        &mut self,
        request_id: RequestId,
        result: Result<Option<Entry>, ReadError>,
        ctx: &mut PartitionContext<'_>,
    ) {
        let Activity::UpdatingCursor(swap) = &self.activity else { return };
        if swap.request_id != request_id {
            return;
        }
        let swap = swap.clone();
        let Ok(entry) = result else {
            self.delay(RETRY, DelayedAction::VerifyUpdate(swap), ctx);
            return;
        };
        let found = entry.as_ref().and_then(stored_cursor);
        let unchanged = match (swap.condition, &found) {
            (Condition::Absent, None) => true,
            (Condition::Revision(expected), Some(found)) => found.revision == expected,
            _ => false,
        };
        match found {
            Some(found) if found.cursor == swap.proposed => {
                let written = Written { revision: found.revision, stored_at: found.stored_at };
                self.on_updated(*swap, written, false, ctx);
            }
            _ if unchanged => self.begin_update(swap.proposed, swap.condition, swap.goal, ctx),
            _ => self.drop_ownership(ctx),
        }
    }

    /// The cursor is what we wanted it to be.
    pub(super) fn on_updated(
        &mut self,
        swap: PendingUpdate,
        written: Written,
        certain: bool,
        ctx: &mut PartitionContext<'_>,
    ) {
        let Written { revision, stored_at } = written;
        let dead = swap.proposed.dead_letter_reason.is_some();
        let (failures, position) = (swap.proposed.failures, swap.proposed.position);
        self.stored = Some(StoredCursor { cursor: swap.proposed, revision, stored_at });
        if std::mem::take(&mut self.needs_new_token) && swap.goal != CursorUpdate::TakeOver {
            if matches!(swap.goal, CursorUpdate::Commit(_) | CursorUpdate::SkipDeadLetter(_)) {
                notify_committed(position, matches!(swap.goal, CursorUpdate::SkipDeadLetter(_)), ctx);
            }
            self.drop_ownership(ctx);
            return;
        }
        match swap.goal {
            CursorUpdate::TakeOver => {
                self.owns_cursor = true;
                self.fenced_while_isolated = false;
                if ctx.consumer.config.enforces(ProtocolRule::CacheDropped) {
                    self.cache_valid = false;
                }
                self.pending_watermark = Sequence::START;
                if self.log.is_some() {
                    self.read(true, ctx);
                } else {
                    let fencing_token =
                        self.stored.as_ref().map(|known| known.cursor.fencing_token).unwrap_or_default();
                    ctx.out.push(Effect::Grant { partition: ctx.name.clone(), fencing_token });
                    self.activity = Activity::Idle;
                }
            }
            CursorUpdate::Isolate(message) => self.run(message, ctx),
            CursorUpdate::Commit(_) => {
                self.cache_valid = certain || !ctx.consumer.config.enforces(ProtocolRule::CacheDropped);
                notify_committed(position, false, ctx);
                self.read(false, ctx);
            }
            CursorUpdate::SkipDeadLetter(_) => {
                self.cache_valid = false;
                notify_committed(position, true, ctx);
                self.read(false, ctx);
            }
            CursorUpdate::RecordFailure(message) if !dead => {
                let wait = Duration::from_secs(1 << (failures.clamp(1, 6) - 1));
                self.delay(wait, DelayedAction::Process(message), ctx);
            }
            CursorUpdate::RecordFailure(message) | CursorUpdate::RecordDeadLetter(message) => {
                self.record_dead_letter(message, ctx)
            }
            CursorUpdate::RenewToken => self.wait_for_store(DelayedAction::Read, ctx),
            CursorUpdate::AdvanceWatermark => self.activity = Activity::Idle,
        }
    }
}

fn notify_committed(position: Position, dead: bool, ctx: &mut PartitionContext<'_>) {
    *ctx.processed += 1;
    let partition = ctx.name.clone();
    ctx.out.push(Effect::Notice(Notice::Committed { partition, position, dead }));
}
