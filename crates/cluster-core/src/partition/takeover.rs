//! Becoming the owner of the cursor: inspecting it, waiting for its owner, taking it over, creating one if there is none.

use crate::cursor::{Cursor, Position, PreviousOwner};
use crate::handover::{TakeoverDecision, decide_takeover};
use crate::io::{
    Condition, Effect, LastMessage, LogInfo, Notice, Purpose, ReadError, RecoveryPoint, RequestId,
};
use crate::types::{Entry, FencingToken, LogId, Sequence, WorkerIncarnation, WriteTimestamp};

use super::reading::has_work;
use super::{
    Activity, CursorUpdate, DelayedAction, KnownCursor, Partition, PartitionContext, StoredCursor,
    stored_cursor,
};

/// The margin between the newest known broker time and the write timestamps of a recreated cursor. A late writer cannot use
/// a timestamp above the broker's time.
const TIMESTAMP_MARGIN_US: u64 = 60_000_000;

impl Partition {
    /// Handles a wake-up: there may be a message to read.
    pub(crate) fn on_wake_up(&mut self, ctx: &mut PartitionContext<'_>) {
        self.wake_up_pending = true;
        self.empty_reads = 0;
        let is_known = self.cursor.stored().is_some();
        if self.activity == Activity::Idle && is_known && self.inspection.is_none() {
            self.proceed(ctx);
        }
    }

    /// Handles an inspection, which reads the cursor first and the log second.
    pub(crate) fn on_inspected(
        &mut self,
        entry: Option<Entry>,
        log: Option<(LogInfo, Option<LastMessage>)>,
        ctx: &mut PartitionContext<'_>,
    ) {
        self.inspection = None;
        let found = entry.as_ref().and_then(stored_cursor);
        if self.cursor.is_owned()
            && ctx.policy().owner_rereads_cursor()
            && self.is_owned_by_other(found.as_ref(), ctx.facts.me())
        {
            self.drop_ownership(ctx);
        }
        let waits = matches!(
            self.activity,
            Activity::Idle
                | Activity::AwaitingHandover { .. }
                | Activity::Delayed { then: DelayedAction::Inspect, .. }
        );
        if !waits {
            return;
        }
        if !self.cursor.is_owned() {
            let ours = found.as_ref().is_some_and(|found| found.cursor.owner == ctx.facts.me());
            self.fenced_while_isolated &= ours;
            self.cursor = match found {
                None => KnownCursor::Unknown,
                Some(found) if ctx.policy().serves_without_takeover(ours) => KnownCursor::Owned(found),
                Some(found) => KnownCursor::Seen(found),
            };
        }
        let (info, last) = log.unzip();
        (self.log, self.last_message) = (info, last.flatten());
        let Some(stored) = self.cursor.stored() else {
            self.request_recovery_point(ctx);
            return;
        };
        let work = match &self.log {
            None => !self.cursor.is_owned(),
            Some(info) => self.wake_up_pending || has_work(stored, info, self.last_message.as_ref(), ctx),
        };
        if work {
            self.proceed(ctx);
        } else {
            self.activity = Activity::Idle;
        }
    }

    /// Whether the cursor names another owner. A value older than the known one proves nothing.
    fn is_owned_by_other(&self, found: Option<&StoredCursor>, me: WorkerIncarnation) -> bool {
        let ours = self.owned();
        found.is_none_or(|found| {
            let mine = found.cursor.owner == me && found.cursor.fencing_token == ours.cursor.fencing_token;
            !mine && found.revision > ours.revision
        })
    }

    pub(super) fn drop_ownership(&mut self, ctx: &mut PartitionContext<'_>) {
        if matches!(self.activity, Activity::Processing { .. }) {
            ctx.outbox.push(Effect::Cancel { partition: ctx.name.clone() });
        }
        self.cursor.disown();
        self.cache_valid = false;
        self.activity = Activity::Idle;
        self.needs_inspection = true;
    }

    /// Reads the log if this worker owns the cursor. Otherwise takes it over as soon as its owner has released it.
    pub(super) fn proceed(&mut self, ctx: &mut PartitionContext<'_>) {
        if self.cursor.is_owned() {
            self.read(true, ctx);
        } else {
            self.activity = Activity::AwaitingHandover { since: ctx.facts.now };
            self.try_take_over(ctx);
        }
    }

    /// Takes over the cursor if its owner has released it.
    pub(crate) fn try_take_over(&mut self, ctx: &mut PartitionContext<'_>) {
        let (Activity::AwaitingHandover { since }, KnownCursor::Seen(stored)) =
            (&self.activity, &self.cursor)
        else {
            violated!("a partition that waits for a handover has seen a cursor: {:?}", self.activity);
        };
        let waited = ctx.facts.now.saturating_sub(*since);
        match decide_takeover(&stored.cursor, waited, ctx.facts) {
            TakeoverDecision::Wait => {}
            TakeoverDecision::ReadMap => *ctx.needs_map = true,
            TakeoverDecision::TakeOver(previous) => {
                let cursor = stored.cursor.clone();
                self.take_over(&cursor, previous, ctx);
            }
        }
    }

    fn take_over(&mut self, cursor: &Cursor, previous: PreviousOwner, ctx: &mut PartitionContext<'_>) {
        let policy = ctx.policy();
        if !policy.takes_over_first() {
            let KnownCursor::Seen(stored) = std::mem::replace(&mut self.cursor, KnownCursor::Unknown) else {
                violated!("a takeover begins with a cursor that was seen");
            };
            self.cursor = KnownCursor::Owned(stored);
            self.read(false, ctx);
            return;
        }
        let version = ctx.facts.serving_map().version;
        invariant!(cursor.version <= version, "a cursor of a newer map is never taken over");
        let mut taken = policy.judged(cursor.taken_over(ctx.facts.me(), version, policy.counted(previous)));
        if let Some(info) = self.log.filter(|info| Some(info.log_id) != taken.log_id) {
            taken = taken.for_new_log(info.log_id);
            notify_log_replaced(&taken, ctx);
        }
        self.update_cursor(taken, CursorUpdate::TakeOver, ctx);
    }

    /// Starts at the beginning of a log that is not the one the cursor knows.
    pub(super) fn replace(&mut self, log_id: LogId, ctx: &mut PartitionContext<'_>) {
        let version = ctx.facts.serving_map().version;
        let replaced = self
            .owned()
            .cursor
            .taken_over(ctx.facts.me(), version, PreviousOwner::SameWorker)
            .for_new_log(log_id);
        notify_log_replaced(&replaced, ctx);
        self.pending_watermark = Sequence::START;
        self.update_cursor(replaced, CursorUpdate::TakeOver, ctx);
    }

    /// Reads the recovery point of a partition without a cursor from the result store. Without a log, creates the cursor.
    fn request_recovery_point(&mut self, ctx: &mut PartitionContext<'_>) {
        if self.log.is_none() {
            self.create(None, ctx);
            return;
        }
        let partition = ctx.name.clone();
        let request_id = ctx.request(Purpose::RecoveryPoint, |request_id| Effect::ReadRecoveryPoint {
            request_id,
            partition,
        });
        self.activity = Activity::RecoveringPosition(request_id);
    }

    /// Handles the recovery point. An answer to an earlier request changes nothing.
    pub(crate) fn on_recovery_point(
        &mut self,
        request_id: RequestId,
        result: Result<Option<RecoveryPoint>, ReadError>,
        ctx: &mut PartitionContext<'_>,
    ) {
        if self.activity != Activity::RecoveringPosition(request_id) {
            return;
        }
        match result {
            Ok(recovery) => {
                self.store_failures = 0;
                self.create(recovery, ctx);
            }
            Err(ReadError) => self.wait_for_store(DelayedAction::Inspect, ctx),
        }
    }

    fn create(&mut self, recovery: Option<RecoveryPoint>, ctx: &mut PartitionContext<'_>) {
        let cursor = self.new_cursor(recovery.as_ref(), ctx);
        let cursor = ctx.policy().recreated(cursor, recovery.as_ref());
        self.begin_update(cursor, Condition::Absent, CursorUpdate::TakeOver, ctx);
    }

    /// Returns a cursor that continues after the predecessor of the newest handler state, or at the first message. Its
    /// generation and its write timestamps are above everything that is stored.
    fn new_cursor(&self, recovery: Option<&RecoveryPoint>, ctx: &PartitionContext<'_>) -> Cursor {
        let broker_time = ctx.facts.broker_time;
        let log_id = self.log.map(|info| info.log_id);
        let newest = recovery.map_or(Position::default(), |recovery| recovery.newest);
        let above_store = recovery.map(|recovery| recovery.write_timestamp.next()).unwrap_or_default();
        let predecessor = recovery.and_then(|recovery| recovery.predecessor);
        // The sequence and the message id mean something in the same log only.
        let same_log = recovery.filter(|recovery| recovery.log_id == log_id && predecessor.is_some());
        let sequence = predecessor.filter(|_| same_log.is_some()).map(|position| position.sequence);
        // A new partition begins with the first message that the log holds of it.
        let watermark = match (recovery, self.log) {
            (None, Some(info)) if self.last_message.is_none() => info.last,
            (None, Some(info)) => info.first.previous(),
            _ => Sequence::START,
        };
        Cursor {
            position: Position {
                generation: broker_time.max(newest.next_generation()),
                sequence: sequence.unwrap_or(Sequence::START),
            },
            state_position: predecessor,
            message_id: same_log.and_then(|recovery| recovery.message_id.clone()).filter(|id| !id.is_empty()),
            log_id,
            write_timestamp: above_store.max(WriteTimestamp(broker_time + TIMESTAMP_MARGIN_US)),
            owner: ctx.facts.me(),
            version: ctx.facts.serving_map().version,
            fencing_token: FencingToken::FIRST,
            failures: 0,
            worker_crashes: 0,
            isolated: false,
            dead_letter_reason: None,
            counted_sequence: None,
            watermark,
            released: false,
        }
    }
}

fn notify_log_replaced(cursor: &Cursor, ctx: &mut PartitionContext<'_>) {
    let (partition, generation) = (ctx.name.clone(), cursor.position.generation);
    ctx.outbox.notify(Notice::LogReplaced { partition, generation });
}
