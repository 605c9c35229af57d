//! One partition that this worker owns: from its cursor to the next message, and from a result to its commit.
//!
//! The way of one message: the cursor is known, and taken if it is not ours; two messages are read from the cursor's own
//! sequence; the first must be the one the cursor names, the second is next; it waits for a slot, runs, and is committed
//! by swapping the cursor. Whatever is refused or stays unanswered leads back to reading the cursor, never to running
//! again to find out.

mod cursor_update;
mod processing;
mod reading;
mod takeover;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::ProtocolRule;
use super::config::Config;
use super::consumer::ConsumerContext;
use super::cursor::Cursor;
use super::io::{Condition, Effect, LastMessage, LogInfo, Message, Purpose, RequestId, RequestIds};
use super::release::{LastCursor, SeenCursor, UnansweredWrite};
use super::types::{Entry, Revision, Sequence, Time, Value, Version};

/// How long to wait before a failed request is sent again.
const RETRY: Duration = Duration::from_millis(200);
/// How long to wait for the store before it is asked again, at first and at most.
const STORE_RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(15));
/// Delays of repeated reads after a wake-up that came before its message was stored.
const EARLY_WAKE_UP_DELAYS: [Duration; 3] =
    [Duration::from_millis(20), Duration::from_millis(100), Duration::from_millis(500)];

/// What a partition may look at and use.
pub(super) struct PartitionContext<'a> {
    pub(super) consumer: &'a ConsumerContext<'a>,
    pub(super) name: &'a Arc<str>,
    pub(super) request_ids: &'a mut RequestIds,
    pub(super) asked: &'a mut BTreeMap<u64, Arc<str>>,
    pub(super) out: &'a mut Vec<Effect>,
    /// A map newer than ours exists.
    pub(super) needs_map: &'a mut bool,
    /// Counts commits.
    pub(super) processed: &'a mut u64,
}

impl PartitionContext<'_> {
    fn request(&mut self, purpose: Purpose) -> RequestId {
        let request_id = self.request_ids.next(purpose);
        self.asked.insert(request_id.serial, self.name.clone());
        request_id
    }
}

/// What a swap of the cursor is for.
#[derive(Clone, Debug, PartialEq)]
enum CursorUpdate {
    /// To be the one who may commit.
    TakeOver,
    /// To run a message with nothing beside it.
    Isolate(Message),
    /// To commit a message.
    Commit(Message),
    /// To go past a dead message.
    SkipDeadLetter(Message),
    /// To count a failure.
    RecordFailure(Message),
    /// To dead-letter a message.
    RecordDeadLetter(Message),
    /// To have a take of its own for the attempt after the store is back.
    RenewToken,
    /// To note that nothing unread is there.
    AdvanceWatermark,
}

/// A swap of the cursor, until it is known what became of it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PendingUpdate {
    request_id: RequestId,
    proposed: Cursor,
    condition: Condition,
    goal: CursorUpdate,
}

/// What follows a delay.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum DelayedAction {
    /// Look at cursor and log from the beginning.
    Inspect,
    /// Read the log.
    Read,
    /// The message may run.
    Process(Message),
    /// Write down that the message is dead.
    RecordDeadLetter(Message),
    /// Publish the dead letter.
    PublishDeadLetter(Message),
    /// Send the swap again.
    UpdateCursor(Box<PendingUpdate>),
    /// Read what became of the swap.
    VerifyUpdate(Box<PendingUpdate>),
}

/// What is going on.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Activity {
    /// Nothing, until something is there to read.
    Idle,
    /// The cursor is missing: the store is asked how far it came.
    RecoveringPosition(RequestId),
    /// The holder may still be at work.
    AwaitingHandover {
        /// Since when it is waited for.
        since: Time,
    },
    /// The cursor is being swapped, or read to see what became of that.
    UpdatingCursor(Box<PendingUpdate>),
    /// The log is being read.
    Reading { request_id: RequestId, leader: bool },
    /// A message waits for a slot.
    Ready { message: Message, since: Time },
    /// A message is being processed.
    Processing { request_id: RequestId, message: Message },
    /// A dead message is written down.
    RecordingDeadLetter { request_id: RequestId, message: Message },
    /// A dead letter is published.
    PublishingDeadLetter { request_id: RequestId, message: Message },
    /// Something is tried again later.
    Delayed { until: Time, then: DelayedAction },
}

/// The cursor as it was last seen.
#[derive(Clone, Debug)]
struct StoredCursor {
    cursor: Cursor,
    revision: Revision,
    stored_at: u64,
}

#[derive(Debug)]
pub(super) struct Partition {
    /// Whether the newest map gives it to this worker.
    pub(super) assigned: bool,
    /// The survey whose answer counts.
    pub(super) inspection: Option<u64>,
    /// A survey is wanted.
    pub(super) needs_inspection: bool,
    stored: Option<StoredCursor>,
    /// The log as it was found after the cursor was read.
    log: Option<LogInfo>,
    /// Whether this incarnation took the cursor over and has not seen another owner since.
    owns_cursor: bool,
    /// What the handler remembers of this partition is what is committed.
    cache_valid: bool,
    /// The partition was lost and regained while something ran: it is taken anew before anything else starts.
    needs_new_token: bool,
    /// The fence closed while its message ran alone: nothing else starts before the cursor is taken anew.
    fenced_while_isolated: bool,
    /// Up to here nothing unread is left, and it is not in the cursor yet.
    pending_watermark: Sequence,
    /// The last message of this partition that the log was found to hold.
    last: Option<LastMessage>,
    /// A wake-up that no read has followed yet.
    wake_up_pending: bool,
    /// The number of empty reads of the log since the wake-up.
    empty_reads: usize,
    /// How often the store was asked in vain.
    store_failures: u32,
    pub(super) activity: Activity,
}

impl Partition {
    /// A partition that was just gained.
    pub(super) fn new() -> Self {
        Self {
            assigned: true,
            inspection: None,
            needs_inspection: true,
            stored: None,
            log: None,
            owns_cursor: false,
            cache_valid: false,
            needs_new_token: false,
            fenced_while_isolated: false,
            pending_watermark: Sequence::START,
            last: None,
            wake_up_pending: false,
            empty_reads: EARLY_WAKE_UP_DELAYS.len(),
            store_failures: 0,
            activity: Activity::Idle,
        }
    }

    /// The version in the cursor, if it was seen.
    pub(super) fn cursor_version(&self) -> Option<Version> {
        self.stored.as_ref().map(|known| known.cursor.version)
    }

    /// Whether nothing that must be finished is going on.
    pub(super) fn is_idle(&self) -> bool {
        let decides = |goal: &CursorUpdate| {
            !matches!(
                goal,
                CursorUpdate::TakeOver | CursorUpdate::Isolate(_) | CursorUpdate::AdvanceWatermark
            )
        };
        match &self.activity {
            Activity::Processing { .. } => false,
            Activity::UpdatingCursor(swap) => !decides(&swap.goal),
            Activity::Delayed {
                then: DelayedAction::UpdateCursor(swap) | DelayedAction::VerifyUpdate(swap),
                ..
            } => !decides(&swap.goal),
            _ => true,
        }
    }

    /// Returns the state of the cursor when this worker stops serving the partition.
    pub(super) fn last_cursor(self) -> LastCursor {
        let is_stale = !self.owns_cursor && (self.needs_inspection || self.inspection.is_some());
        let seen = self.stored.map(|known| SeenCursor { cursor: known.cursor, revision: known.revision });
        match self.activity {
            Activity::UpdatingCursor(swap) => {
                let PendingUpdate { request_id, proposed, .. } = *swap;
                LastCursor::Unanswered(UnansweredWrite { request_id, proposed, before: seen })
            }
            Activity::Delayed { then: DelayedAction::VerifyUpdate(_), .. } => LastCursor::Unknown,
            _ if is_stale => LastCursor::Unknown,
            _ => seen.map_or(LastCursor::Unknown, LastCursor::Seen),
        }
    }

    /// Whether its message needs a run with nothing beside it, which the cursor does not say yet.
    pub(super) fn needs_isolation(&self, config: &Config) -> bool {
        config.enforces(ProtocolRule::IsolateFirst)
            && self
                .stored
                .as_ref()
                .is_some_and(|known| known.cursor.needs_isolation() && !known.cursor.isolated)
    }

    /// Whether its message runs, or is about to run, isolated: until the cursor says otherwise, a crash of this worker
    /// dead-letters it.
    pub(super) fn is_isolated(&self) -> bool {
        let begins = |swap: &PendingUpdate| matches!(swap.goal, CursorUpdate::Isolate(_));
        let says_so = self.stored.as_ref().is_some_and(|known| known.cursor.isolated);
        match &self.activity {
            Activity::UpdatingCursor(swap) => begins(swap) || self.owns_cursor && says_so,
            Activity::Delayed {
                then: DelayedAction::UpdateCursor(swap) | DelayedAction::VerifyUpdate(swap),
                ..
            } => begins(swap) || self.owns_cursor && says_so,
            Activity::Processing { .. } => says_so,
            _ => self.fenced_while_isolated,
        }
    }

    /// The fence has closed: whatever ran was dropped, and the cursor must be taken anew afterwards.
    pub(super) fn fence(&mut self, config: &Config) {
        self.fenced_while_isolated =
            self.owns_cursor && self.stored.as_ref().is_some_and(|known| known.cursor.isolated);
        if config.enforces(ProtocolRule::NewTokenAfterFence) {
            self.owns_cursor = false;
            self.cache_valid = false;
        }
        self.activity = Activity::Idle;
        self.inspection = None;
        self.needs_inspection = true;
    }

    /// The partition was lost and came back before it was let go of.
    pub(super) fn on_reassigned(&mut self, config: &Config) {
        self.assigned = true;
        self.needs_inspection = true;
        self.needs_new_token = config.enforces(ProtocolRule::NewTokenAfterReassignment);
    }

    /// The delay is over.
    pub(super) fn run_delayed(&mut self, ctx: &mut PartitionContext<'_>) {
        let Activity::Delayed { until, then } = &self.activity else { return };
        if *until > ctx.consumer.now {
            return;
        }
        match then.clone() {
            DelayedAction::Inspect => {
                self.needs_inspection = true;
                self.activity = Activity::Idle;
            }
            DelayedAction::Read => self.read(false, ctx),
            DelayedAction::Process(message) => {
                self.activity = Activity::Ready { message, since: ctx.consumer.now }
            }
            DelayedAction::RecordDeadLetter(message) => self.record_dead_letter(message, ctx),
            DelayedAction::PublishDeadLetter(message) => self.publish_dead_letter(message, ctx),
            DelayedAction::UpdateCursor(swap) => {
                self.begin_update(swap.proposed, swap.condition, swap.goal, ctx)
            }
            DelayedAction::VerifyUpdate(swap) => self.verify_update(swap, ctx),
        }
    }

    fn delay(&mut self, by: Duration, then: DelayedAction, ctx: &PartitionContext<'_>) {
        self.activity = Activity::Delayed { until: ctx.consumer.now + by, then };
    }

    fn wait_for_store(&mut self, then: DelayedAction, ctx: &PartitionContext<'_>) {
        let (first, most) = STORE_RETRY;
        let wait = (first * (1 << self.store_failures.min(10))).min(most);
        self.store_failures += 1;
        self.delay(wait, then, ctx);
    }
}

fn stored_cursor(entry: &Entry) -> Option<StoredCursor> {
    match &entry.value {
        Value::Cursor(cursor) => {
            let (revision, stored_at) = (entry.revision, entry.stored_at);
            Some(StoredCursor { cursor: (**cursor).clone(), revision, stored_at })
        }
        _ => None,
    }
}
