//! Running a message, and what follows: the commit, another attempt, or a dead letter.

use std::sync::Arc;

use super::super::ProtocolRule;
use super::super::config::Config;
use super::super::cursor::{MAX_ATTEMPTS, Position, PreviousOwner};
use super::super::io::{Effect, Message, ProcessOutcome, ProcessRequest, Purpose, RequestId};
use super::super::types::WriteTimestamp;
use super::{Activity, CursorUpdate, DelayedAction, Partition, PartitionContext, RETRY, StoredCursor};

impl Partition {
    /// A slot is free for the message that waits.
    pub(crate) fn start(&mut self, ctx: &mut PartitionContext<'_>) {
        let Activity::Ready { message, .. } = &self.activity else { return };
        let message = message.clone();
        match &self.stored {
            Some(known) if self.needs_isolation(ctx.consumer.config) => {
                let alone = known.cursor.with_isolation(message.sequence);
                self.update_cursor(alone, CursorUpdate::Isolate(message), ctx);
            }
            _ => self.run(message, ctx),
        }
    }

    pub(super) fn run(&mut self, message: Message, ctx: &mut PartitionContext<'_>) {
        let Some(work) = self.process_request(&message, ctx.consumer.config) else { return };
        let request_id = ctx.request(Purpose::Process);
        ctx.out.push(Effect::Process { request_id, partition: ctx.name.clone(), work: Box::new(work) });
        self.activity = Activity::Processing { request_id, message };
    }

    pub(super) fn process_request(&self, message: &Message, config: &Config) -> Option<ProcessRequest> {
        let cursor = &self.stored.as_ref()?.cursor;
        let write_timestamp = if config.enforces(ProtocolRule::MonotonicTimestamps) {
            cursor.next_write_timestamp(message.stored_at)
        } else {
            WriteTimestamp(message.stored_at)
        };
        // Of a message that failed too often, the last attempt is counted already.
        let counted = cursor.failures + cursor.worker_crashes;
        let is_last = cursor.dead_letter_reason.is_some() && counted >= MAX_ATTEMPTS;
        Some(ProcessRequest {
            message: message.clone(),
            position: Position { sequence: message.sequence, ..cursor.position },
            committed: cursor.state_position,
            log_id: cursor.log_id,
            fencing_token: cursor.fencing_token,
            write_timestamp,
            attempt: counted + u32::from(!is_last),
            ignore_cache: !self.cache_valid && config.enforces(ProtocolRule::CacheDropped),
        })
    }

    /// A message was processed, or not.
    pub(crate) fn processed(
        &mut self,
        request_id: RequestId,
        outcome: ProcessOutcome,
        ctx: &mut PartitionContext<'_>,
    ) {
        let Activity::Processing { request_id: asked, message } = &self.activity else { return };
        let Some(known) = self.stored.as_ref().filter(|_| *asked == request_id) else { return };
        let message = message.clone();
        match outcome {
            ProcessOutcome::Done => {
                self.store_failures = 0;
                self.advance(message, CursorUpdate::Commit, ctx);
            }
            ProcessOutcome::Failed(reason) => {
                self.cache_valid = false;
                let failed = known.cursor.with_failure(message.sequence, &reason);
                self.update_cursor(failed, CursorUpdate::RecordFailure(message), ctx);
            }
            ProcessOutcome::Poison(reason) => {
                self.cache_valid = false;
                let condemned = known.cursor.with_dead_letter(message.sequence, &reason);
                if ctx.consumer.config.enforces(ProtocolRule::RecordDeadLetterFirst) {
                    self.update_cursor(condemned, CursorUpdate::RecordDeadLetter(message), ctx);
                } else {
                    self.stored = Some(StoredCursor { cursor: condemned, ..known.clone() });
                    self.record_dead_letter(message, ctx);
                }
            }
            ProcessOutcome::Unavailable => {
                // What was written may still land: the next attempt needs a take of its own.
                self.cache_valid = false;
                let retaken = known.cursor.taken_over(
                    ctx.consumer.me,
                    ctx.consumer.map.version,
                    PreviousOwner::SameWorker,
                );
                self.update_cursor(retaken, CursorUpdate::RenewToken, ctx);
            }
        }
    }

    pub(super) fn advance(
        &mut self,
        message: Message,
        goal: fn(Message) -> CursorUpdate,
        ctx: &mut PartitionContext<'_>,
    ) {
        let (Some(work), Some(known)) = (self.process_request(&message, ctx.consumer.config), &self.stored)
        else {
            return;
        };
        let next = known.cursor.committed(message.sequence, message.message_id.clone(), work.write_timestamp);
        let next = next.with_watermark(self.pending_watermark);
        self.update_cursor(next, goal(message), ctx);
    }

    pub(super) fn record_dead_letter(&mut self, message: Message, ctx: &mut PartitionContext<'_>) {
        if !ctx.consumer.config.enforces(ProtocolRule::DeadLetterWritesState) {
            self.publish_dead_letter(message, ctx);
            return;
        }
        let (Some(work), Some(reason)) = (self.process_request(&message, ctx.consumer.config), self.reason())
        else {
            return;
        };
        let request_id = ctx.request(Purpose::RecordDeadLetter);
        ctx.out.push(Effect::RecordDeadLetter {
            request_id,
            partition: ctx.name.clone(),
            work: Box::new(work),
            reason,
        });
        self.activity = Activity::RecordingDeadLetter { request_id, message };
    }

    pub(super) fn publish_dead_letter(&mut self, message: Message, ctx: &mut PartitionContext<'_>) {
        let (Some(mut work), Some(reason)) =
            (self.process_request(&message, ctx.consumer.config), self.reason())
        else {
            return;
        };
        if !ctx.consumer.config.enforces(ProtocolRule::Generations) {
            work.position.generation = 0;
        }
        let request_id = ctx.request(Purpose::PublishDeadLetter);
        ctx.out.push(Effect::PublishDeadLetter {
            request_id,
            partition: ctx.name.clone(),
            work: Box::new(work),
            reason,
        });
        self.activity = Activity::PublishingDeadLetter { request_id, message };
    }

    pub(super) fn reason(&self) -> Option<Arc<str>> {
        self.stored.as_ref().and_then(|known| known.cursor.dead_letter_reason.clone())
    }

    /// Handles the result of a dead-letter step, and repeats the step if it failed.
    pub(crate) fn on_dead_letter_step(
        &mut self,
        request_id: RequestId,
        happened: bool,
        ctx: &mut PartitionContext<'_>,
    ) {
        match &self.activity {
            Activity::RecordingDeadLetter { request_id: asked, message } if *asked == request_id => {
                let message = message.clone();
                if happened {
                    self.store_failures = 0;
                    self.publish_dead_letter(message, ctx);
                } else {
                    self.wait_for_store(DelayedAction::RecordDeadLetter(message), ctx);
                }
            }
            Activity::PublishingDeadLetter { request_id: asked, message } if *asked == request_id => {
                let message = message.clone();
                if happened {
                    self.advance(message, CursorUpdate::SkipDeadLetter, ctx);
                } else {
                    self.delay(RETRY, DelayedAction::PublishDeadLetter(message), ctx);
                }
            }
            _ => {}
        }
    }
}
