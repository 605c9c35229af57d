//! One partition that this worker owns: from its cursor to the next message, and from a result to its commit.
//!
//! The way of one message: the cursor is known, and taken if it is not ours; two messages are read from the cursor's own
//! sequence; the first must be the one the cursor names, the second is next; it waits for a slot, runs, and is committed
//! by swapping the cursor. Whatever is refused or stays unanswered leads back to reading the cursor, never to running
//! again to find out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Guard;
use super::config::Config;
use super::cursor::{Cursor, Position, Predecessor};
use super::handover::{Gainer, Verdict, may_take};
use super::health::HealthyClock;
use super::io::{
    Condition, Effect, Last, LogInfo, Message, Notice, Origin, Outcome, Page, Purpose, ReadError, Ticket,
    Tickets, Work, WriteError, Written,
};
use super::roster::Roster;
use super::types::{AssignmentMap, Entry, Holder, Key, Revision, Time, Value, Version};

/// How far the stamps of a cursor made anew lie above the broker's time as far as it is known, in microseconds: what a
/// late writer may still bring was stamped by the broker's time at most.
const ABOVE_THE_LATE: u64 = 60_000_000;
/// How long to wait before a failed request is sent again.
const RETRY: Duration = Duration::from_millis(200);
/// How long to wait for the store before it is asked again, at first and at most.
const STORE_RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(15));
/// After a bell that rang before its message was stored, the log is read again after these.
const EARLY_BELL: [Duration; 3] =
    [Duration::from_millis(20), Duration::from_millis(100), Duration::from_millis(500)];

/// What a partition may look at and use.
pub(super) struct Context<'a> {
    pub(super) now: Time,
    pub(super) config: &'a Config,
    pub(super) me: Holder,
    pub(super) map: &'a AssignmentMap,
    pub(super) roster: &'a Roster,
    pub(super) clock: &'a HealthyClock,
    /// The newest time of the broker that was seen, in microseconds.
    pub(super) broker_time: u64,
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

    /// How far it is committed, as far as this worker knows.
    pub(super) fn committed(&self) -> Option<Position> {
        self.known.as_ref().map(|known| known.cursor.position)
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

    /// A bell rang: something may be there to read.
    pub(super) fn rung(&mut self, ctx: &mut Context<'_>) {
        self.rung = true;
        self.early = 0;
        if self.activity == Activity::Resting && self.known.is_some() && self.survey.is_none() {
            self.proceed(ctx);
        }
    }

    /// Cursor and log were looked at, the log after the cursor.
    pub(super) fn surveyed(
        &mut self,
        entry: Option<Entry>,
        log: Option<(LogInfo, Option<Last>)>,
        ctx: &mut Context<'_>,
    ) {
        self.survey = None;
        let found = entry.as_ref().and_then(known_of);
        if self.held
            && ctx.config.keeps(Guard::HolderReadsCursor)
            && self.is_displaced(found.as_ref(), ctx.me)
        {
            self.displace(ctx);
        }
        let waits = matches!(
            self.activity,
            Activity::Resting | Activity::HandingOver { .. } | Activity::Delayed { then: Then::Survey, .. }
        );
        if !waits {
            return;
        }
        if !self.held {
            let ours = found.as_ref().is_some_and(|found| found.cursor.holder == ctx.me);
            self.left_solo &= ours;
            self.known = found;
            self.held = ours && !ctx.config.keeps(Guard::RetakeAfterRegain);
        }
        let (info, last) = log.unzip();
        (self.log, self.last) = (info, last.flatten());
        let Some(known) = &self.known else {
            self.trace(ctx);
            return;
        };
        let work = match &self.log {
            None => !self.held,
            Some(info) => self.rung || has_work(known, info, self.last.as_ref(), ctx),
        };
        if work {
            self.proceed(ctx);
        } else {
            self.activity = Activity::Resting;
        }
    }

    /// Whether the cursor shows that somebody else has taken it. An older value than ours shows nothing.
    fn is_displaced(&self, found: Option<&Known>, me: Holder) -> bool {
        let Some(ours) = &self.known else { return false };
        found.is_none_or(|found| {
            let mine = found.cursor.holder == me && found.cursor.take == ours.cursor.take;
            !mine && found.revision > ours.revision
        })
    }

    fn displace(&mut self, ctx: &mut Context<'_>) {
        if matches!(self.activity, Activity::Running { .. }) {
            ctx.out.push(Effect::Cancel { partition: ctx.name.clone() });
        }
        self.held = false;
        self.remembers = false;
        self.activity = Activity::Resting;
        self.wants_survey = true;
    }

    /// Something is to be done: read, if the cursor is ours; otherwise take it, as soon as its holder has let go.
    fn proceed(&mut self, ctx: &mut Context<'_>) {
        if self.held {
            self.read(true, ctx);
        } else {
            self.activity = Activity::HandingOver { since: ctx.now };
            self.hand_over(ctx);
        }
    }

    /// Takes the cursor if its holder has let go.
    pub(super) fn hand_over(&mut self, ctx: &mut Context<'_>) {
        let (Activity::HandingOver { since }, Some(known)) = (&self.activity, &self.known) else { return };
        let gainer = Gainer {
            me: ctx.me,
            map: ctx.map,
            config: ctx.config,
            roster: ctx.roster,
            clock: ctx.clock,
            waited: ctx.now.saturating_sub(*since),
        };
        match may_take(&known.cursor, &gainer) {
            Verdict::Wait => {}
            Verdict::ReadMap => *ctx.wants_map = true,
            Verdict::Take(predecessor) => self.take(predecessor, ctx),
        }
    }

    fn take(&mut self, predecessor: Predecessor, ctx: &mut Context<'_>) {
        let Some(known) = &self.known else { return };
        if !ctx.config.keeps(Guard::TakeFirst) {
            self.held = true;
            self.read(false, ctx);
            return;
        }
        let predecessor = match predecessor {
            Predecessor::Unclean if !ctx.config.keeps(Guard::DeathsCount) => Predecessor::Clean,
            known => known,
        };
        let mut taken = known.cursor.taken(ctx.me, ctx.map.version, predecessor);
        if !ctx.config.keeps(Guard::SoloFirst) && taken.wants_solo() {
            taken = Cursor { dead: Some("it was there too often".into()), ..taken };
        }
        if let Some(info) = self.log.filter(|info| info.stream != taken.stream) {
            taken = taken.replaced(info.stream);
            tell_replaced(&taken, ctx);
        }
        self.swap(taken, Goal::Take, ctx);
    }

    /// The log is not the one the cursor knows: everything in it is new.
    fn replace(&mut self, stream: u64, ctx: &mut Context<'_>) {
        let Some(known) = &self.known else { return };
        let replaced = known.cursor.taken(ctx.me, ctx.map.version, Predecessor::Ourselves).replaced(stream);
        tell_replaced(&replaced, ctx);
        self.clean_to = 0;
        self.swap(replaced, Goal::Take, ctx);
    }

    /// There is no cursor: ask the store how far this partition came, unless there is no log.
    fn trace(&mut self, ctx: &mut Context<'_>) {
        if self.log.is_none() {
            self.create(None, ctx);
            return;
        }
        let ticket = ctx.ask(Purpose::Origin);
        ctx.out.push(Effect::ReadOrigin { ticket, partition: ctx.name.clone() });
        self.activity = Activity::Tracing(ticket);
    }

    /// The store says how far this partition came.
    pub(super) fn traced(
        &mut self,
        ticket: Ticket,
        result: Result<Option<Origin>, ReadError>,
        ctx: &mut Context<'_>,
    ) {
        if self.activity != Activity::Tracing(ticket) {
            return;
        }
        match result {
            Ok(origin) => {
                self.store_failures = 0;
                self.create(origin, ctx);
            }
            Err(ReadError) => self.wait_for_store(Then::Survey, ctx),
        }
    }

    fn create(&mut self, origin: Option<Origin>, ctx: &mut Context<'_>) {
        let info = self.log;
        let stream = info.map_or(0, |info| info.stream);
        let above = ctx.config.keeps(Guard::OriginFromStore);
        let newest = origin.as_ref().map_or(Position::default(), |origin| origin.newest);
        let predecessor = match &origin {
            Some(origin) if above => origin.predecessor,
            Some(origin) => Some(origin.newest),
            None => None,
        };
        let same_log = origin.as_ref().is_some_and(|origin| origin.stream == stream);
        let go_on = predecessor.filter(|_| same_log);
        let generation = if above { ctx.broker_time.max(newest.generation + 1) } else { newest.generation };
        let stamp = origin.as_ref().map_or(0, |origin| origin.stamp + 1);
        let stamp = stamp.max(ctx.broker_time + ABOVE_THE_LATE);
        // A partition that nobody has seen before begins with what the log holds of it.
        let clean_to = match (&origin, info) {
            (None, Some(info)) if self.last.is_none() => info.last,
            (None, Some(info)) => info.first.saturating_sub(1),
            _ => 0,
        };
        let context =
            origin.as_ref().filter(|_| go_on.is_some() && above).map(|origin| origin.context.clone());
        let cursor = Cursor {
            position: Position { generation, sequence: go_on.map_or(0, |position| position.sequence) },
            base: predecessor,
            context: context.unwrap_or_else(|| "".into()),
            stream,
            stamp: if above { stamp } else { 0 },
            holder: ctx.me,
            version: ctx.map.version,
            take: 1,
            failures: 0,
            deaths: 0,
            solo: false,
            dead: None,
            judged: None,
            clean_to,
        };
        self.begin_swap(cursor, Condition::Absent, Goal::Take, ctx);
    }

    fn swap(&mut self, proposed: Cursor, goal: Goal, ctx: &mut Context<'_>) {
        let Some(known) = &self.known else { return };
        let condition = Condition::Revision(known.revision);
        self.begin_swap(proposed, condition, goal, ctx);
    }

    fn begin_swap(&mut self, proposed: Cursor, condition: Condition, goal: Goal, ctx: &mut Context<'_>) {
        let ticket = ctx.ask(Purpose::Cursor);
        ctx.out.push(Effect::Write {
            ticket,
            key: Key::Cursor(ctx.name.clone()),
            value: Value::Cursor(Arc::new(proposed.clone())),
            condition,
        });
        self.activity = Activity::Swapping(Box::new(Swap { ticket, proposed, condition, goal }));
    }

    /// A swap was answered.
    pub(super) fn written(
        &mut self,
        ticket: Ticket,
        result: Result<Written, WriteError>,
        ctx: &mut Context<'_>,
    ) {
        let Activity::Swapping(swap) = &self.activity else { return };
        if swap.ticket != ticket {
            return;
        }
        let swap = swap.clone();
        match result {
            Ok(written) => self.reached(*swap, written, true, ctx),
            Err(WriteError::Failed) => self.delay(RETRY, Then::Swap(swap), ctx),
            Err(WriteError::Unknown) if !ctx.config.keeps(Guard::SettleFirst) => match swap.goal {
                Goal::Commit(message) => self.activity = Activity::Ready { message, since: ctx.now },
                _ => self.settle(swap, ctx),
            },
            Err(WriteError::Conflict | WriteError::Unknown) => {
                if ctx.config.keeps(Guard::CacheDropped) {
                    self.remembers = false;
                }
                self.settle(swap, ctx);
            }
        }
    }

    /// Refused or unanswered: only the cursor itself tells what became of the swap.
    fn settle(&mut self, mut swap: Box<Swap>, ctx: &mut Context<'_>) {
        swap.ticket = ctx.ask(Purpose::ReadCursor);
        ctx.out.push(Effect::Read { ticket: swap.ticket, key: Key::Cursor(ctx.name.clone()) });
        self.activity = Activity::Swapping(swap);
    }

    /// The cursor was read to see what became of a swap.
    pub(super) fn fetched(
        &mut self,
        ticket: Ticket,
        result: Result<Option<Entry>, ReadError>,
        ctx: &mut Context<'_>,
    ) {
        let Activity::Swapping(swap) = &self.activity else { return };
        if swap.ticket != ticket {
            return;
        }
        let swap = swap.clone();
        let Ok(entry) = result else {
            self.delay(RETRY, Then::Settle(swap), ctx);
            return;
        };
        let found = entry.as_ref().and_then(known_of);
        let unchanged = match (swap.condition, &found) {
            (Condition::Absent, None) => true,
            (Condition::Revision(expected), Some(found)) => found.revision == expected,
            _ => false,
        };
        match found {
            Some(found) if found.cursor == swap.proposed => {
                let written = Written { revision: found.revision, stored_at: found.stored_at };
                self.reached(*swap, written, false, ctx);
            }
            _ if unchanged => self.begin_swap(swap.proposed, swap.condition, swap.goal, ctx),
            _ => self.displace(ctx),
        }
    }

    /// The cursor is what we wanted it to be.
    fn reached(&mut self, swap: Swap, written: Written, certain: bool, ctx: &mut Context<'_>) {
        let Written { revision, stored_at } = written;
        let dead = swap.proposed.dead.is_some();
        let failures = swap.proposed.failures;
        self.known = Some(Known { cursor: swap.proposed, revision, stored_at });
        if std::mem::take(&mut self.must_retake) && swap.goal != Goal::Take {
            if let Goal::Commit(message) = &swap.goal {
                tell_committed(message, false, ctx);
            }
            if let Goal::Pass(message) = &swap.goal {
                tell_committed(message, true, ctx);
            }
            self.displace(ctx);
            return;
        }
        match swap.goal {
            Goal::Take => {
                self.held = true;
                self.left_solo = false;
                if ctx.config.keeps(Guard::CacheDropped) {
                    self.remembers = false;
                }
                self.clean_to = 0;
                if self.log.is_some() {
                    self.read(true, ctx);
                } else {
                    let take = self.known.as_ref().map_or(0, |known| known.cursor.take);
                    ctx.out.push(Effect::Grant { partition: ctx.name.clone(), take });
                    self.activity = Activity::Resting;
                }
            }
            Goal::Alone(message) => self.run(message, ctx),
            Goal::Commit(message) => {
                self.remembers = certain || !ctx.config.keeps(Guard::CacheDropped);
                tell_committed(&message, false, ctx);
                self.read(false, ctx);
            }
            Goal::Pass(message) => {
                self.remembers = false;
                tell_committed(&message, true, ctx);
                self.read(false, ctx);
            }
            Goal::Failure(message) if !dead => {
                let wait = Duration::from_secs(1 << (failures.clamp(1, 6) - 1));
                self.delay(wait, Then::Run(message), ctx);
            }
            Goal::Failure(message) | Goal::Condemn(message) => self.bury(message, ctx),
            Goal::Wait => self.wait_for_store(Then::Read, ctx),
            Goal::Clean => self.activity = Activity::Resting,
        }
    }

    /// Reads two messages from the cursor's own sequence.
    fn read(&mut self, leader: bool, ctx: &mut Context<'_>) {
        let Some(known) = &self.known else { return };
        let sequence = known.cursor.position.sequence;
        let from = if ctx.config.keeps(Guard::ReadFromCursor) { sequence.max(1) } else { sequence + 1 };
        // Before the first commit nothing in the log can vouch for what was there before.
        let leader = leader || sequence == 0;
        let ticket = ctx.ask(Purpose::ReadLog);
        ctx.out.push(Effect::ReadLog { ticket, partition: ctx.name.clone(), from, leader });
        self.rung = false;
        self.activity = Activity::Reading { ticket, leader };
    }

    /// The log was read.
    pub(super) fn page(&mut self, ticket: Ticket, result: Result<Page, ReadError>, ctx: &mut Context<'_>) {
        let Activity::Reading { ticket: asked, leader } = self.activity else { return };
        if asked != ticket {
            return;
        }
        let Ok(page) = result else {
            self.delay(RETRY, Then::Read, ctx);
            return;
        };
        let Some(known) = &self.known else { return };
        let cursor = &known.cursor;
        let sequence = cursor.position.sequence;
        let next = page.messages.iter().find(|message| message.sequence > sequence).cloned();
        if !ctx.config.keeps(Guard::ReadFromCursor) {
            self.found(next, None, ctx);
            return;
        }
        let vouched = sequence > 0
            && page.messages.first().is_some_and(|first| {
                first.sequence == sequence && (cursor.context.is_empty() || first.context == cursor.context)
            });
        if vouched {
            let info = page.info.filter(|_| leader);
            self.found(next, info, ctx);
            return;
        }
        // Only the stream leader may say that something is not there.
        let Some(info) = page.info.filter(|_| leader) else {
            self.read(true, ctx);
            return;
        };
        if info.stream != cursor.stream || sequence > 0 && info.first <= sequence {
            self.replace(info.stream, ctx);
            return;
        }
        let read_to = cursor.read_to().max(self.clean_to);
        if info.first > read_to + 1 {
            ctx.out.push(Effect::Notice(Notice::Expired {
                partition: ctx.name.clone(),
                after: read_to,
                before: info.first,
            }));
        }
        self.clean_to = self.clean_to.max(info.first.saturating_sub(1));
        self.found(next, Some(info), ctx);
    }

    /// What comes after the cursor is known.
    fn found(&mut self, next: Option<Message>, leader: Option<LogInfo>, ctx: &mut Context<'_>) {
        let Some(known) = &self.known else { return };
        if let Some(message) = next {
            self.early = EARLY_BELL.len();
            let known = Known { cursor: known.cursor.clone().judging(message.sequence), ..known.clone() };
            let dead = known.cursor.dead.is_some();
            self.known = Some(known);
            if dead {
                self.bury(message, ctx);
            } else {
                self.activity = Activity::Ready { message, since: ctx.now };
            }
            return;
        }
        if self.rung {
            self.read(false, ctx);
            return;
        }
        if let Some(&wait) = EARLY_BELL.get(self.early) {
            self.early += 1;
            self.delay(wait, Then::Read, ctx);
            return;
        }
        match leader {
            Some(info) if is_dusty(known, &info, ctx) => {
                let clean = known.cursor.clean(info.last);
                self.swap(clean, Goal::Clean, ctx);
            }
            _ => self.activity = Activity::Resting,
        }
    }

    /// A slot is free for the message that waits.
    pub(super) fn start(&mut self, ctx: &mut Context<'_>) {
        let Activity::Ready { message, .. } = &self.activity else { return };
        let message = message.clone();
        match &self.known {
            Some(known) if self.wants_solo(ctx.config) => {
                let alone = known.cursor.alone(message.sequence);
                self.swap(alone, Goal::Alone(message), ctx);
            }
            _ => self.run(message, ctx),
        }
    }

    fn run(&mut self, message: Message, ctx: &mut Context<'_>) {
        let Some(work) = self.work(&message, ctx.config) else { return };
        let ticket = ctx.ask(Purpose::Process);
        ctx.out.push(Effect::Process { ticket, partition: ctx.name.clone(), work: Box::new(work) });
        self.activity = Activity::Running { ticket, message };
    }

    fn work(&self, message: &Message, config: &Config) -> Option<Work> {
        let cursor = &self.known.as_ref()?.cursor;
        let stamp = if config.keeps(Guard::StampKept) {
            cursor.next_stamp(message.stored_at)
        } else {
            message.stored_at
        };
        Some(Work {
            message: message.clone(),
            position: Position { sequence: message.sequence, ..cursor.position },
            committed: cursor.base,
            stream: cursor.stream,
            take: cursor.take,
            stamp,
            attempt: cursor.failures + cursor.deaths + 1,
            fresh: !self.remembers && config.keeps(Guard::CacheDropped),
        })
    }

    /// A message was processed, or not.
    pub(super) fn processed(&mut self, ticket: Ticket, outcome: Outcome, ctx: &mut Context<'_>) {
        let Activity::Running { ticket: asked, message } = &self.activity else { return };
        let Some(known) = self.known.as_ref().filter(|_| *asked == ticket) else { return };
        let message = message.clone();
        match outcome {
            Outcome::Done => {
                self.store_failures = 0;
                self.advance(message, Goal::Commit, ctx);
            }
            Outcome::Failed(reason) => {
                self.remembers = false;
                let failed = known.cursor.failed(message.sequence, &reason);
                self.swap(failed, Goal::Failure(message), ctx);
            }
            Outcome::Poison(reason) => {
                self.remembers = false;
                let condemned = known.cursor.condemned(message.sequence, &reason);
                if ctx.config.keeps(Guard::DeadFirst) {
                    self.swap(condemned, Goal::Condemn(message), ctx);
                } else {
                    self.known = Some(Known { cursor: condemned, ..known.clone() });
                    self.bury(message, ctx);
                }
            }
            Outcome::Unavailable => {
                // What was written may still land: the next attempt needs a take of its own.
                self.remembers = false;
                let retaken = known.cursor.taken(ctx.me, ctx.map.version, Predecessor::Ourselves);
                self.swap(retaken, Goal::Wait, ctx);
            }
        }
    }

    fn advance(&mut self, message: Message, goal: fn(Message) -> Goal, ctx: &mut Context<'_>) {
        let (Some(work), Some(known)) = (self.work(&message, ctx.config), &self.known) else { return };
        let next = known.cursor.advanced(message.sequence, message.context.clone(), work.stamp);
        let next = next.clean(self.clean_to);
        self.swap(next, goal(message), ctx);
    }

    fn bury(&mut self, message: Message, ctx: &mut Context<'_>) {
        if !ctx.config.keeps(Guard::DeadWritesState) {
            self.publish_dead(message, ctx);
            return;
        }
        let (Some(work), Some(reason)) = (self.work(&message, ctx.config), self.reason()) else { return };
        let ticket = ctx.ask(Purpose::Bury);
        ctx.out.push(Effect::Bury { ticket, partition: ctx.name.clone(), work: Box::new(work), reason });
        self.activity = Activity::Burying { ticket, message };
    }

    fn publish_dead(&mut self, message: Message, ctx: &mut Context<'_>) {
        let (Some(mut work), Some(reason)) = (self.work(&message, ctx.config), self.reason()) else { return };
        if !ctx.config.keeps(Guard::Generations) {
            work.position.generation = 0;
        }
        let ticket = ctx.ask(Purpose::PublishDead);
        ctx.out.push(Effect::PublishDead {
            ticket,
            partition: ctx.name.clone(),
            work: Box::new(work),
            reason,
        });
        self.activity = Activity::Publishing { ticket, message };
    }

    fn reason(&self) -> Option<Arc<str>> {
        self.known.as_ref().and_then(|known| known.cursor.dead.clone())
    }

    /// A dead message was written down, or its letter is in the stream; if not, it is tried again.
    pub(super) fn done(&mut self, ticket: Ticket, happened: bool, ctx: &mut Context<'_>) {
        match &self.activity {
            Activity::Burying { ticket: asked, message } if *asked == ticket => {
                let message = message.clone();
                if happened {
                    self.store_failures = 0;
                    self.publish_dead(message, ctx);
                } else {
                    self.wait_for_store(Then::Bury(message), ctx);
                }
            }
            Activity::Publishing { ticket: asked, message } if *asked == ticket => {
                let message = message.clone();
                if happened {
                    self.advance(message, Goal::Pass, ctx);
                } else {
                    self.delay(RETRY, Then::Publish(message), ctx);
                }
            }
            _ => {}
        }
    }

    /// The delay is over.
    pub(super) fn due(&mut self, ctx: &mut Context<'_>) {
        let Activity::Delayed { until, then } = &self.activity else { return };
        if *until > ctx.now {
            return;
        }
        match then.clone() {
            Then::Survey => {
                self.wants_survey = true;
                self.activity = Activity::Resting;
            }
            Then::Read => self.read(false, ctx),
            Then::Run(message) => self.activity = Activity::Ready { message, since: ctx.now },
            Then::Bury(message) => self.bury(message, ctx),
            Then::Publish(message) => self.publish_dead(message, ctx),
            Then::Swap(swap) => self.begin_swap(swap.proposed, swap.condition, swap.goal, ctx),
            Then::Settle(swap) => self.settle(swap, ctx),
        }
    }

    fn delay(&mut self, by: Duration, then: Then, ctx: &Context<'_>) {
        self.activity = Activity::Delayed { until: ctx.now + by, then };
    }

    fn wait_for_store(&mut self, then: Then, ctx: &Context<'_>) {
        let (first, most) = STORE_RETRY;
        let wait = (first * (1 << self.store_failures.min(10))).min(most);
        self.store_failures += 1;
        self.delay(wait, then, ctx);
    }
}

/// Whether there is something to do for a partition, besides waiting for its next message.
fn has_work(known: &Known, info: &LogInfo, last: Option<&Last>, ctx: &Context<'_>) -> bool {
    let cursor = &known.cursor;
    let committed = cursor.position.sequence;
    let unread = last.is_some_and(|last| last.sequence > committed);
    // What is committed must still be there, unless it has expired: otherwise the log has lost its tail.
    let holds_it = last.is_some_and(|last| {
        let same = cursor.context.is_empty() || last.context == cursor.context;
        last.sequence > committed || last.sequence == committed && same
    });
    let other_log = info.stream != cursor.stream || committed >= info.first && !holds_it;
    unread || other_log || cursor.dead.is_some() || is_dusty(known, info, ctx)
}

/// Whether it must be noted that nothing unread is there: it was not noted for long, or something may have expired.
fn is_dusty(known: &Known, info: &LogInfo, ctx: &Context<'_>) -> bool {
    let cursor = &known.cursor;
    let age = Duration::from_micros(ctx.broker_time.saturating_sub(known.stored_at));
    let old = age >= ctx.config.clean_interval && info.last > cursor.read_to();
    old || info.first > cursor.read_to() + 1
}

fn tell_committed(message: &Message, dead: bool, ctx: &mut Context<'_>) {
    *ctx.processed += 1;
    let (partition, sequence) = (ctx.name.clone(), message.sequence);
    ctx.out.push(Effect::Notice(Notice::Committed { partition, sequence, dead }));
}

fn tell_replaced(cursor: &Cursor, ctx: &mut Context<'_>) {
    let (partition, generation) = (ctx.name.clone(), cursor.position.generation);
    ctx.out.push(Effect::Notice(Notice::LogReplaced { partition, generation }));
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
