//! Writing the cursor by compare-and-swap, and verifying a write without an answer.

use std::time::Duration;

use crate::cursor::{Cursor, Position};
use crate::io::{Condition, Effect, Notice, ReadError, RequestId, WriteError, Written};
use crate::types::{Entry, Sequence};

use super::{
    Activity, CursorUpdate, DelayedAction, KnownCursor, Partition, PartitionContext, PendingUpdate,
    RETRY_DELAY, StoredCursor, stored_cursor,
};

impl Partition {
    /// Writes the cursor, on the condition that it is still the one that was last seen.
    pub(super) fn update_cursor(
        &mut self,
        proposed: Cursor,
        goal: CursorUpdate,
        ctx: &mut PartitionContext<'_>,
    ) {
        let stored =
            self.cursor.stored().unwrap_or_else(|| violated!("an update replaces a cursor that was seen"));
        check_update(&stored.cursor, &proposed, &goal);
        let condition = Condition::Revision(stored.revision);
        self.begin_update(proposed, condition, goal, ctx);
    }

    pub(super) fn begin_update(
        &mut self,
        proposed: Cursor,
        condition: Condition,
        goal: CursorUpdate,
        ctx: &mut PartitionContext<'_>,
    ) {
        invariant!(
            proposed.owner == ctx.facts.me() || !ctx.policy().takes_over_first(),
            "a worker writes only cursors that name it: {proposed:?}"
        );
        invariant!(!proposed.released, "a cursor that is served is not released");
        let request_id = ctx.write_cursor(&proposed, condition);
        self.activity =
            Activity::UpdatingCursor(Box::new(PendingUpdate { request_id, proposed, condition, goal }));
    }

    /// Handles the answer to a cursor write. An answer to a write of an earlier ownership changes nothing.
    pub(crate) fn written(
        &mut self,
        request_id: RequestId,
        result: Result<Written, WriteError>,
        ctx: &mut PartitionContext<'_>,
    ) {
        let Some(update) = self.awaited_update(request_id) else { return };
        match result {
            Ok(written) => self.on_updated(*update, written, true, ctx),
            Err(WriteError::Failed) => self.delay(RETRY_DELAY, DelayedAction::UpdateCursor(update), ctx),
            Err(WriteError::Unknown) if ctx.policy().repeats_unknown_commit() => match update.goal {
                CursorUpdate::Commit(message) => self.make_ready(message, ctx),
                _ => self.verify_update(update, ctx),
            },
            Err(WriteError::Conflict | WriteError::Unknown) => {
                self.cache_valid = ctx.policy().keeps_cache(self.cache_valid);
                self.verify_update(update, ctx);
            }
        }
    }

    /// Returns the cursor write that waits for this answer.
    fn awaited_update(&self, request_id: RequestId) -> Option<Box<PendingUpdate>> {
        match &self.activity {
            Activity::UpdatingCursor(update) if update.request_id == request_id => Some(update.clone()),
            _ => None,
        }
    }

    /// Reads the cursor after a rejected or unanswered write.
    pub(super) fn verify_update(&mut self, mut update: Box<PendingUpdate>, ctx: &mut PartitionContext<'_>) {
        update.request_id = ctx.read_cursor();
        self.activity = Activity::UpdatingCursor(update);
    }

    /// Handles the cursor that was read to verify a write.
    pub(crate) fn fetched(
        &mut self,
        request_id: RequestId,
        result: Result<Option<Entry>, ReadError>,
        ctx: &mut PartitionContext<'_>,
    ) {
        let Some(update) = self.awaited_update(request_id) else { return };
        let Ok(entry) = result else {
            self.delay(RETRY_DELAY, DelayedAction::VerifyUpdate(update), ctx);
            return;
        };
        let found = entry.as_ref().and_then(stored_cursor);
        let unchanged = match (update.condition, &found) {
            (Condition::Absent, None) => true,
            (Condition::Revision(expected), Some(found)) => found.revision == expected,
            _ => false,
        };
        match found {
            Some(found) if found.cursor == update.proposed => {
                let written = Written { revision: found.revision, stored_at: found.stored_at };
                self.on_updated(*update, written, false, ctx);
            }
            _ if unchanged => self.begin_update(update.proposed, update.condition, update.goal, ctx),
            _ => self.drop_ownership(ctx),
        }
    }

    /// Continues after a cursor write that took effect. `answered` is false if only a read has shown that.
    fn on_updated(
        &mut self,
        update: PendingUpdate,
        written: Written,
        answered: bool,
        ctx: &mut PartitionContext<'_>,
    ) {
        let Written { revision, stored_at } = written;
        let PendingUpdate { proposed, goal, .. } = update;
        let (failures, position) = (proposed.failures, proposed.position);
        let is_dead = proposed.dead_letter_reason.is_some();
        let fencing_token = proposed.fencing_token;
        self.cursor.replace(StoredCursor { cursor: proposed, revision, stored_at });
        if std::mem::take(&mut self.needs_new_token) && goal != CursorUpdate::TakeOver {
            if matches!(goal, CursorUpdate::Commit(_) | CursorUpdate::SkipDeadLetter(_)) {
                notify_committed(position, matches!(goal, CursorUpdate::SkipDeadLetter(_)), ctx);
            }
            self.drop_ownership(ctx);
            return;
        }
        match goal {
            CursorUpdate::TakeOver => {
                self.own();
                self.fenced_while_isolated = false;
                self.cache_valid = ctx.policy().keeps_cache(self.cache_valid);
                self.pending_watermark = Sequence::START;
                if self.log.is_some() {
                    self.read(true, ctx);
                } else {
                    ctx.outbox.push(Effect::Grant { partition: ctx.name.clone(), fencing_token });
                    self.activity = Activity::Idle;
                }
            }
            CursorUpdate::Isolate(message) => self.process(message, ctx),
            CursorUpdate::Commit(_) => {
                self.cache_valid = ctx.policy().cache_after_commit(answered);
                notify_committed(position, false, ctx);
                self.read(false, ctx);
            }
            CursorUpdate::SkipDeadLetter(_) => {
                self.cache_valid = false;
                notify_committed(position, true, ctx);
                self.read(false, ctx);
            }
            CursorUpdate::RecordFailure(message) if !is_dead => {
                let wait = Duration::from_secs(1 << (failures.clamp(1, 6) - 1));
                self.delay(wait, DelayedAction::Process(message), ctx);
            }
            CursorUpdate::RecordFailure(message) | CursorUpdate::RecordDeadLetter(message) => {
                self.dead_letter(message, ctx)
            }
            CursorUpdate::RenewToken => self.wait_for_store(DelayedAction::Read, ctx),
            CursorUpdate::AdvanceWatermark => self.activity = Activity::Idle,
        }
    }

    fn own(&mut self) {
        let stored =
            self.cursor.stored().unwrap_or_else(|| violated!("a cursor that was written is known")).clone();
        self.cursor = KnownCursor::Owned(stored);
    }
}

/// Asserts what each kind of update may change: positions and fencing tokens only grow.
fn check_update(before: &Cursor, proposed: &Cursor, goal: &CursorUpdate) {
    invariant!(proposed.position >= before.position, "{before:?} never goes back to {proposed:?}");
    invariant!(proposed.version >= before.version, "{before:?} never goes back to {proposed:?}");
    invariant!(proposed.write_timestamp >= before.write_timestamp || is_commit(goal), "{goal:?}");
    invariant!(proposed.fencing_token >= before.fencing_token, "{before:?} never goes back to {proposed:?}");
    match goal {
        CursorUpdate::TakeOver | CursorUpdate::RenewToken => {
            invariant!(proposed.fencing_token > before.fencing_token, "a takeover has its own fencing token");
        }
        CursorUpdate::Commit(message) | CursorUpdate::SkipDeadLetter(message) => {
            invariant!(proposed.position.sequence == message.sequence, "a commit names its message");
            invariant!(
                proposed.position.generation == before.position.generation,
                "a commit stays in its generation"
            );
        }
        CursorUpdate::RecordFailure(message) => {
            invariant!(proposed.failures == before.failures + 1, "one failure at a time");
            invariant!(proposed.counted_sequence == Some(message.sequence), "a failure names its message");
        }
        CursorUpdate::RecordDeadLetter(message) | CursorUpdate::Isolate(message) => {
            invariant!(proposed.position == before.position, "the message is not committed yet");
            invariant!(proposed.counted_sequence == Some(message.sequence), "a verdict names its message");
        }
        CursorUpdate::AdvanceWatermark => {
            invariant!(proposed.position == before.position, "a watermark commits nothing");
        }
    }
}

/// Whether the update commits a message. Only a mutant gives a commit a lower write timestamp.
fn is_commit(goal: &CursorUpdate) -> bool {
    matches!(goal, CursorUpdate::Commit(_) | CursorUpdate::SkipDeadLetter(_))
}

fn notify_committed(position: Position, dead: bool, ctx: &mut PartitionContext<'_>) {
    *ctx.processed += 1;
    ctx.outbox.notify(Notice::Committed { partition: ctx.name.clone(), position, dead });
}
