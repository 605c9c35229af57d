//! Coming to hold the cursor: looking at it, waiting for its holder, taking it, making one where there is none.

use super::super::ProtocolRule;
use super::super::cursor::{Cursor, Position, PreviousOwner};
use super::super::handover::{TakeoverContext, TakeoverDecision, decide_takeover};
use super::super::io::{
    Condition, Effect, LastMessage, LogInfo, Notice, Purpose, ReadError, RecoveryPoint, RequestId,
};
use super::super::types::{Entry, FencingToken, LogId, Sequence, WorkerIncarnation, WriteTimestamp};
use super::reading::has_work;
use super::{
    Activity, CursorUpdate, DelayedAction, Partition, PartitionContext, StoredCursor, stored_cursor,
};

/// The margin between the newest known broker time and the write timestamps of a recreated cursor. A late writer cannot use
/// a timestamp above the broker's time.
const TIMESTAMP_MARGIN_US: u64 = 60_000_000;

impl Partition {
    /// Handles a wake-up: there may be a message to read.
    pub(crate) fn on_wake_up(&mut self, ctx: &mut PartitionContext<'_>) {
        self.wake_up_pending = true;
        self.empty_reads = 0;
        if self.activity == Activity::Idle && self.stored.is_some() && self.inspection.is_none() {
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
        if self.owns_cursor
            && ctx.consumer.config.enforces(ProtocolRule::OwnerRereadsCursor)
            && self.is_owned_by_other(found.as_ref(), ctx.consumer.me)
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
        if !self.owns_cursor {
            let ours = found.as_ref().is_some_and(|found| found.cursor.owner == ctx.consumer.me);
            self.fenced_while_isolated &= ours;
            self.stored = found;
            self.owns_cursor = ours && !ctx.consumer.config.enforces(ProtocolRule::NewTokenAfterReassignment);
        }
        let (info, last) = log.unzip();
        (self.log, self.last) = (info, last.flatten());
        let Some(known) = &self.stored else {
            self.request_recovery_point(ctx);
            return;
        };
        let work = match &self.log {
            None => !self.owns_cursor,
            Some(info) => self.wake_up_pending || has_work(known, info, self.last.as_ref(), ctx),
        };
        if work {
            self.proceed(ctx);
        } else {
            self.activity = Activity::Idle;
        }
    }

    /// Whether the cursor names another owner. A value older than the known one proves nothing.
    pub(super) fn is_owned_by_other(&self, found: Option<&StoredCursor>, me: WorkerIncarnation) -> bool {
        let Some(ours) = &self.stored else { return false };
        found.is_none_or(|found| {
            let mine = found.cursor.owner == me && found.cursor.fencing_token == ours.cursor.fencing_token;
            !mine && found.revision > ours.revision
        })
    }

    pub(super) fn drop_ownership(&mut self, ctx: &mut PartitionContext<'_>) {
        if matches!(self.activity, Activity::Processing { .. }) {
            ctx.out.push(Effect::Cancel { partition: ctx.name.clone() });
        }
        self.owns_cursor = false;
        self.cache_valid = false;
        self.activity = Activity::Idle;
        self.needs_inspection = true;
    }

    /// Reads the log if this worker owns the cursor. Otherwise takes it over as soon as its owner has released it.
    pub(super) fn proceed(&mut self, ctx: &mut PartitionContext<'_>) {
        if self.owns_cursor {
            self.read(true, ctx);
        } else {
            self.activity = Activity::AwaitingHandover { since: ctx.consumer.now };
            self.try_take_over(ctx);
        }
    }

    /// Takes over the cursor if its owner has released it.
    pub(crate) fn try_take_over(&mut self, ctx: &mut PartitionContext<'_>) {
        let (Activity::AwaitingHandover { since }, Some(known)) = (&self.activity, &self.stored) else {
            return;
        };
        let new_owner = TakeoverContext {
            me: ctx.consumer.me,
            map: ctx.consumer.map,
            config: ctx.consumer.config,
            roster: ctx.consumer.roster,
            clock: ctx.consumer.clock,
            waited: ctx.consumer.now.saturating_sub(*since),
        };
        match decide_takeover(&known.cursor, &new_owner) {
            TakeoverDecision::Wait => {}
            TakeoverDecision::ReadMap => *ctx.needs_map = true,
            TakeoverDecision::TakeOver(predecessor) => self.take_over(predecessor, ctx),
        }
    }

    pub(super) fn take_over(&mut self, predecessor: PreviousOwner, ctx: &mut PartitionContext<'_>) {
        let Some(known) = &self.stored else { return };
        if !ctx.consumer.config.enforces(ProtocolRule::TakeOverFirst) {
            self.owns_cursor = true;
            self.read(false, ctx);
            return;
        }
        let predecessor = match predecessor {
            PreviousOwner::Crashed if !ctx.consumer.config.enforces(ProtocolRule::CrashesCount) => {
                PreviousOwner::Released
            }
            known => known,
        };
        let mut taken = known.cursor.taken_over(ctx.consumer.me, ctx.consumer.map.version, predecessor);
        if !ctx.consumer.config.enforces(ProtocolRule::IsolateFirst) && taken.needs_isolation() {
            taken =
                Cursor { dead_letter_reason: Some("too many failures and worker crashes".into()), ..taken };
        }
        if let Some(info) = self.log.filter(|info| Some(info.log_id) != taken.log_id) {
            taken = taken.for_new_log(info.log_id);
            notify_log_replaced(&taken, ctx);
        }
        self.update_cursor(taken, CursorUpdate::TakeOver, ctx);
    }

    /// The log is not the one the cursor knows: everything in it is new.
    pub(super) fn replace(&mut self, log_id: LogId, ctx: &mut PartitionContext<'_>) {
        let Some(known) = &self.stored else { return };
        let replaced = known
            .cursor
            .taken_over(ctx.consumer.me, ctx.consumer.map.version, PreviousOwner::SameWorker)
            .for_new_log(log_id);
        notify_log_replaced(&replaced, ctx);
        self.pending_watermark = Sequence::START;
        self.update_cursor(replaced, CursorUpdate::TakeOver, ctx);
    }

    /// There is no cursor: ask the store how far this partition came, unless there is no log.
    pub(super) fn request_recovery_point(&mut self, ctx: &mut PartitionContext<'_>) {
        if self.log.is_none() {
            self.create(None, ctx);
            return;
        }
        let request_id = ctx.request(Purpose::RecoveryPoint);
        ctx.out.push(Effect::ReadRecoveryPoint { request_id, partition: ctx.name.clone() });
        self.activity = Activity::RecoveringPosition(request_id);
    }

    /// The store says how far this partition came.
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
            Ok(origin) => {
                self.store_failures = 0;
                self.create(origin, ctx);
            }
            Err(ReadError) => self.wait_for_store(DelayedAction::Inspect, ctx),
        }
    }

    pub(super) fn create(&mut self, origin: Option<RecoveryPoint>, ctx: &mut PartitionContext<'_>) {
        let info = self.log;
        let log_id = info.map(|info| info.log_id);
        let above = ctx.consumer.config.enforces(ProtocolRule::RecoverFromStore);
        let newest = origin.as_ref().map_or(Position::default(), |origin| origin.newest);
        let predecessor = match &origin {
            Some(origin) if above => origin.predecessor,
            Some(origin) => Some(origin.newest),
            None => None,
        };
        let same_log = origin.as_ref().is_some_and(|origin| origin.log_id == log_id);
        let go_on = predecessor.filter(|_| same_log);
        let generation =
            if above { ctx.consumer.broker_time.max(newest.next_generation()) } else { newest.generation };
        let above_store = origin.as_ref().map(|origin| origin.write_timestamp.next()).unwrap_or_default();
        let write_timestamp = above_store.max(WriteTimestamp(ctx.consumer.broker_time + TIMESTAMP_MARGIN_US));
        // A new partition begins with the first message that the log holds of it.
        let clean_to = match (&origin, info) {
            (None, Some(info)) if self.last.is_none() => info.last,
            (None, Some(info)) => info.first.previous(),
            _ => Sequence::START,
        };
        let message_id = origin.as_ref().filter(|_| go_on.is_some() && above);
        let message_id = message_id.and_then(|origin| origin.message_id.clone()).filter(|id| !id.is_empty());
        let cursor = Cursor {
            position: Position {
                generation,
                sequence: go_on.map_or(Sequence::START, |position| position.sequence),
            },
            state_position: predecessor,
            message_id,
            log_id,
            write_timestamp: if above { write_timestamp } else { WriteTimestamp::default() },
            owner: ctx.consumer.me,
            version: ctx.consumer.map.version,
            fencing_token: FencingToken::FIRST,
            failures: 0,
            worker_crashes: 0,
            isolated: false,
            dead_letter_reason: None,
            counted_sequence: None,
            watermark: clean_to,
            released: false,
        };
        self.begin_update(cursor, Condition::Absent, CursorUpdate::TakeOver, ctx);
    }
}

fn notify_log_replaced(cursor: &Cursor, ctx: &mut PartitionContext<'_>) {
    let (partition, generation) = (ctx.name.clone(), cursor.position.generation);
    ctx.out.push(Effect::Notice(Notice::LogReplaced { partition, generation }));
}
