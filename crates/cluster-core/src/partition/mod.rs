//! One partition that this worker owns: from its cursor to the next message, and from a result to its commit.
//!
//! The way of one message: the cursor is known, and taken if it is not ours; two messages are read from the cursor's own
//! sequence; the first must be the one the cursor names, the second is next; it waits for a slot, runs, and is committed
//! by swapping the cursor. Whatever is refused or stays unanswered leads back to reading the cursor, never to running
//! again to find out.

mod reading;
mod running;
mod swapping;
mod taking;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Guard;
use super::config::Config;
use super::consumption::Ground;
use super::cursor::Cursor;
use super::io::{Condition, Effect, Last, LogInfo, Message, Purpose, Ticket, Tickets};
use super::release::{LastCursor, SeenCursor, UnansweredWrite};
use super::types::{Entry, Revision, Time, Value, Version};

/// How long to wait before a failed request is sent again.
const RETRY: Duration = Duration::from_millis(200);
/// How long to wait for the store before it is asked again, at first and at most.
const STORE_RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(15));
/// After a bell that rang before its message was stored, the log is read again after these.
const EARLY_BELL: [Duration; 3] =
    [Duration::from_millis(20), Duration::from_millis(100), Duration::from_millis(500)];

/// What a partition may look at and use.
pub(super) struct Context<'a> {
    pub(super) ground: &'a Ground<'a>,
    pub(super) name: &'a Arc<str>,
    pub(super) tickets: &'a mut Tickets,
    pub(super) asked: &'a mut BTreeMap<u64, Arc<str>>,
    pub(super) out: &'a mut Vec<Effect>,
    /// A map newer than ours exists.
    pub(super) wants_map: &'a mut bool,
    /// Counts commits.
    pub(super) processed: &'a mut u64,
}

impl Context<'_> {
    fn ask(&mut self, purpose: Purpose) -> Ticket {
        let ticket = self.tickets.next(purpose);
        self.asked.insert(ticket.serial, self.name.clone());
        ticket
    }
}

/// What a swap of the cursor is for.
#[derive(Clone, Debug, PartialEq)]
enum Goal {
    /// To be the one who may commit.
    Take,
    /// To run a message with nothing beside it.
    Alone(Message),
    /// To commit a message.
    Commit(Message),
    /// To go past a dead message.
    Pass(Message),
    /// To count a failure.
    Failure(Message),
    /// To condemn a message.
    Condemn(Message),
    /// To have a take of its own for the attempt after the store is back.
    Wait,
    /// To note that nothing unread is there.
    Clean,
}

/// A swap of the cursor, until it is known what became of it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Swap {
    ticket: Ticket,
    proposed: Cursor,
    condition: Condition,
    goal: Goal,
}

/// What follows a delay.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Then {
    /// Look at cursor and log from the beginning.
    Survey,
    /// Read the log.
    Read,
    /// The message may run.
    Run(Message),
    /// Write down that the message is dead.
    Bury(Message),
    /// Publish the dead letter.
    Publish(Message),
    /// Send the swap again.
    Swap(Box<Swap>),
    /// Read what became of the swap.
    Settle(Box<Swap>),
}

/// What is going on.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Activity {
    /// Nothing, until something is there to read.
    Resting,
    /// The cursor is missing: the store is asked how far it came.
    Tracing(Ticket),
    /// The holder may still be at work.
    HandingOver {
        /// Since when it is waited for.
        since: Time,
    },
    /// The cursor is being swapped, or read to see what became of that.
    Swapping(Box<Swap>),
    /// The log is being read.
    Reading { ticket: Ticket, leader: bool },
    /// A message waits for a slot.
    Ready { message: Message, since: Time },
    /// A message is being processed.
    Running { ticket: Ticket, message: Message },
    /// A dead message is written down.
    Burying { ticket: Ticket, message: Message },
    /// A dead letter is published.
    Publishing { ticket: Ticket, message: Message },
    /// Something is tried again later.
    Delayed { until: Time, then: Then },
}

/// The cursor as it was last seen.
#[derive(Clone, Debug)]
struct Known {
    cursor: Cursor,
    revision: Revision,
    stored_at: u64,
}

#[derive(Debug)]
pub(super) struct Chamber {
    /// Whether the newest map gives it to this worker.
    pub(super) owned: bool,
    /// The survey whose answer counts.
    pub(super) survey: Option<u64>,
    /// A survey is wanted.
    pub(super) wants_survey: bool,
    known: Option<Known>,
    /// The log as it was found after the cursor was read.
    log: Option<LogInfo>,
    /// The cursor is ours: taken in this life, and not found to be somebody else's since.
    held: bool,
    /// What the handler remembers of this partition is what is committed.
    remembers: bool,
    /// The partition was lost and regained while something ran: it is taken anew before anything else starts.
    must_retake: bool,
    /// The fence closed while its message ran alone: nothing else starts before the cursor is taken anew.
    left_solo: bool,
    /// Up to here nothing unread is left, and it is not in the cursor yet.
    clean_to: u64,
    /// The last message of this partition that the log was found to hold.
    last: Option<Last>,
    /// A bell rang that was not answered yet.
    rung: bool,
    /// How often the log was read in vain since the bell.
    early: usize,
    /// How often the store was asked in vain.
    store_failures: u32,
    pub(super) activity: Activity,
}

impl Chamber {
    /// A partition that was just gained.
    pub(super) fn new() -> Self {
        Self {
            owned: true,
            survey: None,
            wants_survey: true,
            known: None,
            log: None,
            held: false,
            remembers: false,
            must_retake: false,
            left_solo: false,
            clean_to: 0,
            last: None,
            rung: false,
            early: EARLY_BELL.len(),
            store_failures: 0,
            activity: Activity::Resting,
        }
    }

    /// The version in the cursor, if it was seen.
    pub(super) fn cursor_version(&self) -> Option<Version> {
        self.known.as_ref().map(|known| known.cursor.version)
    }

    /// Whether nothing that must be finished is going on.
    pub(super) fn is_quiet(&self) -> bool {
        let decides = |goal: &Goal| !matches!(goal, Goal::Take | Goal::Alone(_) | Goal::Clean);
        match &self.activity {
            Activity::Running { .. } => false,
            Activity::Swapping(swap) => !decides(&swap.goal),
            Activity::Delayed { then: Then::Swap(swap) | Then::Settle(swap), .. } => !decides(&swap.goal),
            _ => true,
        }
    }

    /// Returns the state of the cursor when this worker stops serving the partition.
    pub(super) fn last_cursor(self) -> LastCursor {
        let is_stale = !self.held && (self.wants_survey || self.survey.is_some());
        let seen = self.known.map(|known| SeenCursor { cursor: known.cursor, revision: known.revision });
        match self.activity {
            Activity::Swapping(swap) => {
                let Swap { ticket, proposed, .. } = *swap;
                LastCursor::Unanswered(UnansweredWrite { ticket, proposed, before: seen })
            }
            Activity::Delayed { then: Then::Settle(_), .. } => LastCursor::Unknown,
            _ if is_stale => LastCursor::Unknown,
            _ => seen.map_or(LastCursor::Unknown, LastCursor::Seen),
        }
    }

    /// Whether its message needs a run with nothing beside it, which the cursor does not say yet.
    pub(super) fn wants_solo(&self, config: &Config) -> bool {
        config.keeps(Guard::SoloFirst)
            && self.known.as_ref().is_some_and(|known| known.cursor.wants_solo() && !known.cursor.solo)
    }

    /// Whether its message runs, or is about to run, with nothing beside it: until the cursor says otherwise, the death
    /// of this worker would condemn it.
    pub(super) fn is_solo(&self) -> bool {
        let begins = |swap: &Swap| matches!(swap.goal, Goal::Alone(_));
        let says_so = self.known.as_ref().is_some_and(|known| known.cursor.solo);
        match &self.activity {
            Activity::Swapping(swap) => begins(swap) || self.held && says_so,
            Activity::Delayed { then: Then::Swap(swap) | Then::Settle(swap), .. } => {
                begins(swap) || self.held && says_so
            }
            Activity::Running { .. } => says_so,
            _ => self.left_solo,
        }
    }

    /// The fence has closed: whatever ran was dropped, and the cursor must be taken anew afterwards.
    pub(super) fn fence(&mut self, config: &Config) {
        self.left_solo = self.held && self.known.as_ref().is_some_and(|known| known.cursor.solo);
        if config.keeps(Guard::RetakeAfterFence) {
            self.held = false;
            self.remembers = false;
        }
        self.activity = Activity::Resting;
        self.survey = None;
        self.wants_survey = true;
    }

    /// The partition was lost and came back before it was let go of.
    pub(super) fn regained(&mut self, config: &Config) {
        self.owned = true;
        self.wants_survey = true;
        self.must_retake = config.keeps(Guard::RetakeAfterRegain);
    }

    /// The delay is over.
    pub(super) fn due(&mut self, ctx: &mut Context<'_>) {
        let Activity::Delayed { until, then } = &self.activity else { return };
        if *until > ctx.ground.now {
            return;
        }
        match then.clone() {
            Then::Survey => {
                self.wants_survey = true;
                self.activity = Activity::Resting;
            }
            Then::Read => self.read(false, ctx),
            Then::Run(message) => self.activity = Activity::Ready { message, since: ctx.ground.now },
            Then::Bury(message) => self.bury(message, ctx),
            Then::Publish(message) => self.publish_dead(message, ctx),
            Then::Swap(swap) => self.begin_swap(swap.proposed, swap.condition, swap.goal, ctx),
            Then::Settle(swap) => self.settle(swap, ctx),
        }
    }

    fn delay(&mut self, by: Duration, then: Then, ctx: &Context<'_>) {
        self.activity = Activity::Delayed { until: ctx.ground.now + by, then };
    }

    fn wait_for_store(&mut self, then: Then, ctx: &Context<'_>) {
        let (first, most) = STORE_RETRY;
        let wait = (first * (1 << self.store_failures.min(10))).min(most);
        self.store_failures += 1;
        self.delay(wait, then, ctx);
    }
}

fn known_of(entry: &Entry) -> Option<Known> {
    match &entry.value {
        Value::Cursor(cursor) => {
            let (revision, stored_at) = (entry.revision, entry.stored_at);
            Some(Known { cursor: (**cursor).clone(), revision, stored_at })
        }
        _ => None,
    }
}
