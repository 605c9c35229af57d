//! One partition that this worker owns: from its cursor to the next message, and from a result to its commit.
//!
//! One message takes these steps. The worker inspects the cursor and takes it over if it is not the owner. It reads two
//! messages from the cursor's own sequence: the first must be the one that the cursor names, the second is next. That one
//! waits for a slot, is processed, and is committed by a compare-and-swap of the cursor. After a write that was refused or
//! not answered the worker reads the cursor; it never processes a message again to learn the outcome.

mod cursor_update;
mod processing;
mod reading;
mod takeover;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::cursor::Cursor;
use crate::facts::Facts;
use crate::io::{Condition, Effect, LastMessage, LogInfo, Message, Purpose, RequestId};
use crate::outbox::Outbox;
use crate::policy::Policy;
use crate::release::{LastCursor, SeenCursor, UnansweredWrite};
use crate::types::{Entry, Key, Revision, Sequence, Time, Value, Version};

/// Delay before a failed request is repeated.
const RETRY_DELAY: Duration = Duration::from_millis(200);
/// First and longest delay before the result store is asked again.
const STORE_RETRY_DELAYS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(15));
/// Delays of repeated reads after a wake-up that came before its message was stored.
const EARLY_WAKE_UP_DELAYS: [Duration; 3] =
    [Duration::from_millis(20), Duration::from_millis(100), Duration::from_millis(500)];

/// The inputs and outputs of one step of a partition.
pub(crate) struct PartitionContext<'a> {
    pub(crate) facts: &'a Facts,
    pub(crate) name: &'a Arc<str>,
    pub(crate) outbox: &'a mut Outbox,
    /// The partition of each request without an answer, by serial number.
    pub(crate) requests: &'a mut BTreeMap<u64, Arc<str>>,
    /// Whether a map newer than the known one exists.
    pub(crate) needs_map: &'a mut bool,
    /// The number of commits.
    pub(crate) processed: &'a mut u64,
}

impl PartitionContext<'_> {
    fn policy(&self) -> Policy {
        self.facts.policy()
    }

    fn request(&mut self, purpose: Purpose, effect: impl FnOnce(RequestId) -> Effect) -> RequestId {
        let request_id = self.outbox.request(purpose, effect);
        self.note(request_id)
    }

    fn write_cursor(&mut self, cursor: &Cursor, condition: Condition) -> RequestId {
        let value = Value::Cursor(Arc::new(cursor.clone()));
        let request_id = self.outbox.write(Purpose::Cursor, Key::Cursor(self.name.clone()), value, condition);
        self.note(request_id)
    }

    fn read_cursor(&mut self) -> RequestId {
        let request_id = self.outbox.read(Purpose::ReadCursor, Key::Cursor(self.name.clone()));
        self.note(request_id)
    }

    fn note(&mut self, request_id: RequestId) -> RequestId {
        let known = self.requests.insert(request_id.serial, self.name.clone());
        invariant!(known.is_none(), "a serial number is used once");
        request_id
    }
}

/// The purpose of a cursor write.
#[derive(Clone, Debug, PartialEq)]
enum CursorUpdate {
    /// Take over the cursor.
    TakeOver,
    /// Announce the isolated attempt at a message.
    Isolate(Message),
    /// Commit a message.
    Commit(Message),
    /// Advance past a dead letter.
    SkipDeadLetter(Message),
    /// Count a failure.
    RecordFailure(Message),
    /// Dead-letter a message.
    RecordDeadLetter(Message),
    /// Get a new fencing token for the attempt after the store is back.
    RenewToken,
    /// Store the watermark.
    AdvanceWatermark,
}

impl CursorUpdate {
    /// Whether the outcome of a message depends on the write, so that a release waits for its answer.
    fn decides_message(&self) -> bool {
        !matches!(self, Self::TakeOver | Self::Isolate(_) | Self::AdvanceWatermark)
    }
}

/// A cursor write, until its outcome is known.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PendingUpdate {
    request_id: RequestId,
    proposed: Cursor,
    condition: Condition,
    goal: CursorUpdate,
}

/// A message that is given up, with the reason.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DeadLetter {
    message: Message,
    reason: Arc<str>,
}

/// The action after a delay.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum DelayedAction {
    /// Inspect the cursor and the log.
    Inspect,
    /// Read the log.
    Read,
    /// Process the message as soon as a slot is free.
    Process(Message),
    /// Record the dead letter in the result store.
    RecordDeadLetter(DeadLetter),
    /// Publish the dead letter.
    PublishDeadLetter(DeadLetter),
    /// Repeat the cursor write.
    UpdateCursor(Box<PendingUpdate>),
    /// Read the outcome of the cursor write.
    VerifyUpdate(Box<PendingUpdate>),
}

/// The current activity of a partition, with the data that it needs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Activity {
    /// No action until there is something to read.
    Idle,
    /// The cursor is missing, and the recovery point is being read from the result store.
    RecoveringPosition(RequestId),
    /// The previous owner may still process a message.
    AwaitingHandover {
        /// The start of the wait.
        since: Time,
    },
    /// The cursor is being written, or read to learn the outcome of the write.
    UpdatingCursor(Box<PendingUpdate>),
    /// The log is being read.
    Reading { request_id: RequestId, leader: bool },
    /// A message waits for a slot.
    Ready { message: Message, since: Time },
    /// A message is being processed.
    Processing { request_id: RequestId, message: Message },
    /// A dead letter is being recorded in the result store.
    RecordingDeadLetter { request_id: RequestId, letter: DeadLetter },
    /// A dead letter is being published.
    PublishingDeadLetter { request_id: RequestId, letter: DeadLetter },
    /// An action follows after a delay.
    Delayed { until: Time, then: DelayedAction },
}

impl Activity {
    /// Returns the cursor write whose outcome is not known yet.
    fn pending_update(&self) -> Option<&PendingUpdate> {
        match self {
            Self::UpdatingCursor(update)
            | Self::Delayed {
                then: DelayedAction::UpdateCursor(update) | DelayedAction::VerifyUpdate(update),
                ..
            } => Some(update),
            _ => None,
        }
    }

    /// Whether only the owner of the cursor may do this.
    fn needs_ownership(&self) -> bool {
        match self {
            Self::Idle | Self::RecoveringPosition(_) | Self::AwaitingHandover { .. } => false,
            Self::Delayed { then: DelayedAction::Inspect, .. } => false,
            _ => self.pending_update().is_none_or(|update| update.goal != CursorUpdate::TakeOver),
        }
    }
}

/// A cursor as it was last seen.
#[derive(Clone, Debug)]
struct StoredCursor {
    cursor: Cursor,
    revision: Revision,
    stored_at: u64,
}

/// The knowledge about the cursor of a partition.
#[derive(Clone, Debug)]
enum KnownCursor {
    /// It was not read yet, or there is none.
    Unknown,
    /// It was seen. Another worker may own it.
    Seen(StoredCursor),
    /// This incarnation took it over and has not seen another owner since.
    Owned(StoredCursor),
}

impl KnownCursor {
    fn stored(&self) -> Option<&StoredCursor> {
        match self {
            Self::Unknown => None,
            Self::Seen(stored) | Self::Owned(stored) => Some(stored),
        }
    }

    fn is_owned(&self) -> bool {
        matches!(self, Self::Owned(_))
    }

    /// Replaces the value and keeps the ownership.
    fn replace(&mut self, stored: StoredCursor) {
        *self = if self.is_owned() { Self::Owned(stored) } else { Self::Seen(stored) };
    }

    /// Ends the ownership and keeps the value.
    fn disown(&mut self) {
        if let Self::Owned(stored) = std::mem::replace(self, Self::Unknown) {
            *self = Self::Seen(stored);
        }
    }
}

/// One partition of this worker.
#[derive(Debug)]
pub(crate) struct Partition {
    /// Whether the newest map gives it to this worker.
    pub(crate) assigned: bool,
    /// Serial number of the inspection whose answer counts.
    pub(crate) inspection: Option<u64>,
    /// Whether an inspection is due.
    pub(crate) needs_inspection: bool,
    pub(crate) activity: Activity,
    cursor: KnownCursor,
    /// The log as it was found after the cursor was read.
    log: Option<LogInfo>,
    /// The last message of this partition that the log was found to hold.
    last_message: Option<LastMessage>,
    /// Whether the handler's cache of this partition is what is committed.
    cache_valid: bool,
    /// Whether the partition was removed and added again while work was in progress: it is taken over again first.
    needs_new_token: bool,
    /// Whether the fence closed during an isolated attempt: nothing else starts before the next takeover.
    fenced_while_isolated: bool,
    /// A watermark that is not in the cursor yet.
    pending_watermark: Sequence,
    /// Whether no read has followed the last wake-up yet.
    wake_up_pending: bool,
    /// The number of empty reads of the log since the wake-up.
    empty_reads: usize,
    /// The number of requests in a row that the result store did not answer.
    store_failures: u32,
}

impl Partition {
    /// Returns a partition that was just assigned.
    pub(crate) fn new() -> Self {
        Self {
            assigned: true,
            inspection: None,
            needs_inspection: true,
            activity: Activity::Idle,
            cursor: KnownCursor::Unknown,
            log: None,
            last_message: None,
            cache_valid: false,
            needs_new_token: false,
            fenced_while_isolated: false,
            pending_watermark: Sequence::START,
            wake_up_pending: false,
            empty_reads: EARLY_WAKE_UP_DELAYS.len(),
            store_failures: 0,
        }
    }

    /// Returns the version in the cursor, if it was seen.
    pub(crate) fn cursor_version(&self) -> Option<Version> {
        self.cursor.stored().map(|stored| stored.cursor.version)
    }

    /// Whether nothing is in progress that must be finished before a release.
    pub(crate) fn is_idle(&self) -> bool {
        match self.activity.pending_update() {
            Some(update) => !update.goal.decides_message(),
            None => !matches!(self.activity, Activity::Processing { .. }),
        }
    }

    /// Returns the state of the cursor when this worker stops serving the partition.
    pub(crate) fn last_cursor(self) -> LastCursor {
        let is_inspected = !self.needs_inspection && self.inspection.is_none();
        let is_current = self.cursor.is_owned() || is_inspected;
        let seen = match self.cursor {
            KnownCursor::Unknown => None,
            KnownCursor::Seen(stored) | KnownCursor::Owned(stored) => {
                Some(SeenCursor { cursor: stored.cursor, revision: stored.revision })
            }
        };
        match self.activity {
            Activity::UpdatingCursor(update) => {
                let PendingUpdate { request_id, proposed, .. } = *update;
                LastCursor::Unanswered(UnansweredWrite { request_id, proposed, before: seen })
            }
            Activity::Delayed { then: DelayedAction::VerifyUpdate(_), .. } => LastCursor::Unknown,
            _ if !is_current => LastCursor::Unknown,
            _ => seen.map_or(LastCursor::Unknown, LastCursor::Seen),
        }
    }

    /// Whether the next attempt must be isolated, and the cursor does not announce it yet.
    pub(crate) fn needs_isolation(&self, policy: Policy) -> bool {
        self.cursor.stored().is_some_and(|stored| policy.needs_isolation(&stored.cursor))
    }

    /// Whether a message is, or will be, in an isolated attempt: until the cursor says otherwise, a crash of this worker
    /// dead-letters it.
    pub(crate) fn is_isolated(&self) -> bool {
        let says_so = self.cursor.stored().is_some_and(|stored| stored.cursor.isolated);
        match self.activity.pending_update() {
            Some(update) => {
                matches!(update.goal, CursorUpdate::Isolate(_)) || self.cursor.is_owned() && says_so
            }
            None if matches!(self.activity, Activity::Processing { .. }) => says_so,
            None => self.fenced_while_isolated,
        }
    }

    /// Handles a closed fence: the shell has canceled all work, and the cursor must be taken over again afterwards.
    pub(crate) fn fence(&mut self, policy: Policy) {
        self.fenced_while_isolated =
            matches!(&self.cursor, KnownCursor::Owned(stored) if stored.cursor.isolated);
        if policy.fence_ends_ownership() {
            self.cursor.disown();
            self.cache_valid = false;
        }
        self.activity = Activity::Idle;
        self.inspection = None;
        self.needs_inspection = true;
    }

    /// Handles an assignment of a partition that this worker had not released yet.
    pub(crate) fn on_reassigned(&mut self, policy: Policy) {
        self.assigned = true;
        self.needs_inspection = true;
        self.needs_new_token = policy.reassignment_needs_token();
    }

    /// Runs the delayed action, whose time has come.
    pub(crate) fn run_delayed(&mut self, ctx: &mut PartitionContext<'_>) {
        let Activity::Delayed { until, then } = std::mem::replace(&mut self.activity, Activity::Idle) else {
            violated!("a partition with a timer has a delayed action");
        };
        invariant!(until <= ctx.facts.now, "a delayed action runs when its time has come");
        match then {
            DelayedAction::Inspect => self.needs_inspection = true,
            DelayedAction::Read => self.read(false, ctx),
            DelayedAction::Process(message) => self.make_ready(message, ctx),
            DelayedAction::RecordDeadLetter(letter) => self.record_dead_letter(letter, ctx),
            DelayedAction::PublishDeadLetter(letter) => self.publish_dead_letter(letter, ctx),
            DelayedAction::UpdateCursor(update) => {
                self.begin_update(update.proposed, update.condition, update.goal, ctx)
            }
            DelayedAction::VerifyUpdate(update) => self.verify_update(update, ctx),
        }
    }

    /// Returns the cursor of a partition that is being served.
    fn owned(&self) -> &StoredCursor {
        match &self.cursor {
            KnownCursor::Owned(stored) => stored,
            other => violated!("a partition is served by the owner of its cursor only: {other:?}"),
        }
    }

    fn make_ready(&mut self, message: Message, ctx: &PartitionContext<'_>) {
        self.activity = Activity::Ready { message, since: ctx.facts.now };
    }

    fn delay(&mut self, by: Duration, then: DelayedAction, ctx: &PartitionContext<'_>) {
        self.activity = Activity::Delayed { until: ctx.facts.now + by, then };
    }

    fn wait_for_store(&mut self, then: DelayedAction, ctx: &PartitionContext<'_>) {
        let (first, longest) = STORE_RETRY_DELAYS;
        let wait = (first * (1 << self.store_failures.min(10))).min(longest);
        self.store_failures += 1;
        self.delay(wait, then, ctx);
    }

    /// Asserts that the parts of the state fit together.
    pub(crate) fn check(&self, name: &str, policy: Policy) {
        invariant!(
            self.empty_reads <= EARLY_WAKE_UP_DELAYS.len(),
            "{name}: {} empty reads",
            self.empty_reads
        );
        invariant!(
            !matches!(self.activity, Activity::RecoveringPosition(_)) || !self.cursor.is_owned(),
            "{name}: the position of an owned cursor is known"
        );
        if let KnownCursor::Owned(stored) = &self.cursor {
            invariant!(
                !stored.cursor.released || !policy.takes_over_first(),
                "{name}: an owned cursor is not released"
            );
        }
        if let Activity::Ready { message, .. } | Activity::Processing { message, .. } = &self.activity {
            let committed = self.cursor.stored().map(|stored| stored.cursor.position.sequence);
            invariant!(
                committed.is_some_and(|committed| committed < message.sequence),
                "{name}: message {} is next after {committed:?}",
                message.sequence
            );
        }
        invariant!(
            !self.activity.needs_ownership() || self.cursor.is_owned() || !policy.fence_ends_ownership(),
            "{name}: {:?} without the cursor",
            self.activity
        );
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
