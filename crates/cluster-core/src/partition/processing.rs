//! Processing a message, and what follows: the commit, another attempt, or a dead letter.

use crate::cursor::{MAX_ATTEMPTS, Position, PreviousOwner};
use crate::io::{Effect, Message, ProcessOutcome, ProcessRequest, Purpose, RequestId};
use crate::policy::Policy;

use super::{Activity, CursorUpdate, DeadLetter, DelayedAction, Partition, PartitionContext, RETRY_DELAY};

impl Partition {
    /// Starts the message that waits for a slot.
    pub(crate) fn start(&mut self, ctx: &mut PartitionContext<'_>) {
        let Activity::Ready { message, .. } = std::mem::replace(&mut self.activity, Activity::Idle) else {
            violated!("a slot is given to a partition with a message that waits for it");
        };
        if self.needs_isolation(ctx.policy()) {
            let isolated = self.owned().cursor.with_isolation(message.sequence);
            self.update_cursor(isolated, CursorUpdate::Isolate(message), ctx);
        } else {
            self.process(message, ctx);
        }
    }

    pub(super) fn process(&mut self, message: Message, ctx: &mut PartitionContext<'_>) {
        let (partition, work) = (ctx.name.clone(), Box::new(self.process_request(&message, ctx.policy())));
        let request_id =
            ctx.request(Purpose::Process, |request_id| Effect::Process { request_id, partition, work });
        self.activity = Activity::Processing { request_id, message };
    }

    fn process_request(&self, message: &Message, policy: Policy) -> ProcessRequest {
        let cursor = &self.owned().cursor;
        invariant!(
            message.sequence > cursor.position.sequence,
            "message {} is committed already: {:?}",
            message.sequence,
            cursor.position
        );
        // Of a message that failed too often, the last attempt is counted already.
        let counted = cursor.failures + cursor.worker_crashes;
        let is_last = cursor.dead_letter_reason.is_some() && counted >= MAX_ATTEMPTS;
        ProcessRequest {
            message: message.clone(),
            position: Position { sequence: message.sequence, ..cursor.position },
            committed: cursor.state_position,
            log_id: cursor.log_id,
            fencing_token: cursor.fencing_token,
            write_timestamp: policy.write_timestamp(cursor, message.stored_at),
            attempt: counted + u32::from(!is_last),
            ignore_cache: policy.ignores_cache(self.cache_valid),
        }
    }

    /// Handles the outcome of processing. An answer to work that was canceled changes nothing.
    pub(crate) fn processed(
        &mut self,
        request_id: RequestId,
        outcome: ProcessOutcome,
        ctx: &mut PartitionContext<'_>,
    ) {
        let message = match &self.activity {
            Activity::Processing { request_id: asked, message } if *asked == request_id => message.clone(),
            _ => return,
        };
        let cursor = &self.owned().cursor;
        match outcome {
            ProcessOutcome::Done => {
                self.store_failures = 0;
                self.advance(message, CursorUpdate::Commit, ctx);
            }
            ProcessOutcome::Failed(reason) => {
                let failed = cursor.with_failure(message.sequence, &reason);
                self.cache_valid = false;
                self.update_cursor(failed, CursorUpdate::RecordFailure(message), ctx);
            }
            ProcessOutcome::Poison(reason) => {
                let condemned = cursor.with_dead_letter(message.sequence, &reason);
                self.cache_valid = false;
                if ctx.policy().records_dead_letter_first() {
                    self.update_cursor(condemned, CursorUpdate::RecordDeadLetter(message), ctx);
                } else {
                    let unwritten = super::StoredCursor { cursor: condemned, ..self.owned().clone() };
                    self.cursor.replace(unwritten);
                    self.record_dead_letter(DeadLetter { message, reason }, ctx);
                }
            }
            ProcessOutcome::Unavailable => {
                // The earlier write may still arrive, so the next attempt needs a new fencing token.
                let version = ctx.facts.serving_map().version;
                let renewed = cursor.taken_over(ctx.facts.me(), version, PreviousOwner::SameWorker);
                self.cache_valid = false;
                self.update_cursor(renewed, CursorUpdate::RenewToken, ctx);
            }
        }
    }

    fn advance(
        &mut self,
        message: Message,
        goal: fn(Message) -> CursorUpdate,
        ctx: &mut PartitionContext<'_>,
    ) {
        let cursor = &self.owned().cursor;
        let write_timestamp = ctx.policy().write_timestamp(cursor, message.stored_at);
        let next = cursor.committed(message.sequence, message.message_id.clone(), write_timestamp);
        let next = next.with_watermark(self.pending_watermark);
        self.update_cursor(next, goal(message), ctx);
    }

    /// Dead-letters a message whose reason the cursor names.
    pub(super) fn dead_letter(&mut self, message: Message, ctx: &mut PartitionContext<'_>) {
        let reason = self.owned().cursor.dead_letter_reason.clone();
        let reason = reason
            .unwrap_or_else(|| violated!("a message is dead-lettered for a reason that the cursor names"));
        self.record_dead_letter(DeadLetter { message, reason }, ctx);
    }

    pub(super) fn record_dead_letter(&mut self, letter: DeadLetter, ctx: &mut PartitionContext<'_>) {
        if !ctx.policy().dead_letter_writes_state() {
            self.publish_dead_letter(letter, ctx);
            return;
        }
        let work = Box::new(self.process_request(&letter.message, ctx.policy()));
        let (partition, reason) = (ctx.name.clone(), letter.reason.clone());
        let request_id = ctx.request(Purpose::RecordDeadLetter, |request_id| Effect::RecordDeadLetter {
            request_id,
            partition,
            work,
            reason,
        });
        self.activity = Activity::RecordingDeadLetter { request_id, letter };
    }

    pub(super) fn publish_dead_letter(&mut self, letter: DeadLetter, ctx: &mut PartitionContext<'_>) {
        let mut work = Box::new(self.process_request(&letter.message, ctx.policy()));
        work.position = ctx.policy().dead_letter_position(work.position);
        let (partition, reason) = (ctx.name.clone(), letter.reason.clone());
        let request_id = ctx.request(Purpose::PublishDeadLetter, |request_id| Effect::PublishDeadLetter {
            request_id,
            partition,
            work,
            reason,
        });
        self.activity = Activity::PublishingDeadLetter { request_id, letter };
    }

    /// Handles the result of a dead-letter step, and repeats the step if it failed. An answer to a step of an earlier
    /// ownership changes nothing.
    pub(crate) fn on_dead_letter_step(
        &mut self,
        request_id: RequestId,
        happened: bool,
        ctx: &mut PartitionContext<'_>,
    ) {
        match &self.activity {
            Activity::RecordingDeadLetter { request_id: asked, letter } if *asked == request_id => {
                let letter = letter.clone();
                if happened {
                    self.store_failures = 0;
                    self.publish_dead_letter(letter, ctx);
                } else {
                    self.wait_for_store(DelayedAction::RecordDeadLetter(letter), ctx);
                }
            }
            Activity::PublishingDeadLetter { request_id: asked, letter } if *asked == request_id => {
                let letter = letter.clone();
                if happened {
                    self.advance(letter.message, CursorUpdate::SkipDeadLetter, ctx);
                } else {
                    self.delay(RETRY_DELAY, DelayedAction::PublishDeadLetter(letter), ctx);
                }
            }
            _ => {}
        }
    }
}
