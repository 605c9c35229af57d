//! What the world itself has seen happen, kept apart from what the workers believe. Every promise is checked here, as
//! things happen, and never by asking a worker or its cursor.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use phalanx_cluster_core::types::{AssignmentMap, Epoch, Holder, Time, Value, Version};
use phalanx_cluster_core::{ATTEMPTS, Cursor, Effect, Position, Purpose, Ticket, Work, WriteError};

use crate::HashMap;
use crate::log::{Kind, decode};
use crate::store::{History, Results, Store, context_name};
use crate::world::ProcessId;

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The number of the invariant in the design.
    pub invariant: u32,
    /// When.
    pub at: Time,
    /// What happened.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} s: invariant {}: {}", self.at.as_secs_f64(), self.invariant, self.what)
    }
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages that the log acknowledged.
    pub published: u64,
    /// Messages committed.
    pub committed: u64,
    /// Messages dead-lettered.
    pub dead_lettered: u64,
    /// Messages that were gone by age, or with the log, before anybody read them.
    pub gone: u64,
    /// Messages that nobody resolved.
    pub lost: u64,
    /// Messages committed twice.
    pub double_committed: u64,
    /// Messages committed out of their order.
    pub order_violations: u64,
}

/// No worker works or leads later than 4.5 s after the sending of its last acknowledged heartbeat; its clock may drift.
const FENCE: Duration = Duration::from_micros(4_502_000);

/// Ticket below every other.
const FIRST_TICKET: Ticket = Ticket { purpose: Purpose::Heartbeat, serial: 0 };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Open,
    Committed,
    Dead,
    /// Gone from the log before it was resolved: by age, or with the log.
    Gone,
    /// It was resolved, and may be once more: the log or the cursor was lost, and it is read again.
    Again,
}

/// A message as it was published.
#[derive(Clone, Debug)]
struct Published {
    number: u64,
    kind: Kind,
    status: Status,
    /// How often a worker died while it processed this message.
    deaths: u32,
    /// A worker died while this message ran alone: then it may be condemned.
    died_alone: bool,
}

/// What one processing of a message wrote.
#[derive(Clone, Debug)]
struct Written {
    message: usize,
    counts: bool,
    chain: u64,
    visible: u64,
}

#[derive(Debug, Default)]
struct Book {
    /// Every message ever published for this chamber.
    messages: Vec<Published>,
    /// Which message stands at a sequence of the log as it is now.
    at: BTreeMap<u64, usize>,
    /// Which message once stood there.
    before: HashMap<(u64, u64), usize>,
    /// What is committed, with the history after it.
    committed: Vec<(Position, History)>,
    written: HashMap<(Position, u64), Written>,
    visible: HashMap<Position, (u64, u64)>,
    letters: HashMap<usize, u32>,
    take: u64,
    taker: Option<ProcessId>,
    /// Incarnation under which the taker took the cursor over.
    taken_as: Option<Holder>,
    /// Whether the taker has left cleanly since.
    left_cleanly: bool,
    /// Which making of the log the cursor's generation belongs to.
    epoch: u64,
    running: Vec<(ProcessId, usize)>,
    /// Unread messages that are gone by age, and ranges that were reported.
    expired: Vec<(u64, u64, usize)>,
    reported: Vec<(u64, u64, u64)>,
}

impl Book {
    fn history(&self) -> History {
        self.committed.last().map(|(_, history)| history.clone()).unwrap_or_default()
    }

    fn message_at(&self, sequence: u64, number: u64) -> Option<usize> {
        let here = self.at.get(&sequence).copied().filter(|&message| self.messages[message].number == number);
        here.or_else(|| self.before.get(&(sequence, number)).copied())
    }
}

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    sent: BTreeMap<(ProcessId, Ticket), Time>,
    /// When the newest acknowledged heartbeat of a process was sent.
    proof: Vec<Time>,
    newest: (Version, Epoch),
    books: Vec<Book>,
    /// Which log there is now.
    stream: u64,
    /// Grows whenever the log loses what it held.
    log_epoch: u64,
    /// Whose message runs alone.
    alone: BTreeMap<ProcessId, u32>,
    /// Writes of cursors without an answer, and their chambers.
    cursor_writes: BTreeMap<(ProcessId, Ticket), u32>,
    /// Chambers whose last cursor write by a process has an unknown outcome, or whose message it abandoned.
    doubtful: BTreeSet<(ProcessId, u32)>,
    /// Processes whose fence is closed.
    fenced: BTreeSet<ProcessId>,
    pub(crate) counts: Counts,
    pub(crate) violations: Vec<Violation>,
}

impl Ledger {
    pub(crate) fn started(&mut self, now: Time) {
        self.proof.push(now);
    }

    /// A process asks for something to be written or begins to work.
    pub(crate) fn asked(&mut self, now: Time, process: ProcessId, effect: &Effect) {
        let what = match effect {
            Effect::Write { ticket, .. } => match ticket.purpose {
                Purpose::Heartbeat => {
                    self.sent.insert((process, *ticket), now);
                    return;
                }
                Purpose::TouchMap | Purpose::PublishMap | Purpose::WriteState => "leads",
                Purpose::Cursor | Purpose::ReleaseCursor => "swaps a cursor",
                _ => return,
            },
            Effect::Process { .. } => "starts a message",
            Effect::Bury { .. } | Effect::PublishDead { .. } => "buries a message",
            _ => return,
        };
        self.check_fence(now, process, what);
    }

    pub(crate) fn check_fence(&mut self, now: Time, process: ProcessId, what: &str) {
        let late = now.saturating_sub(self.proof[process.index()]);
        if late > FENCE {
            self.violate(8, now, format!("{process} {what} {late:?} after its last acknowledged heartbeat"));
        }
    }

    /// A process is told that a write happened.
    pub(crate) fn acknowledged(&mut self, process: ProcessId, ticket: Ticket) {
        if ticket.purpose != Purpose::Heartbeat {
            return;
        }
        if let Some(sent) = self.sent.remove(&(process, ticket)) {
            let proof = &mut self.proof[process.index()];
            *proof = (*proof).max(sent);
        }
    }

    /// A process asks for a cursor to be written.
    pub(crate) fn cursor_asked(&mut self, process: ProcessId, ticket: Ticket, chamber: u32) {
        self.cursor_writes.insert((process, ticket), chamber);
    }

    /// A process receives the answer to a write.
    pub(crate) fn cursor_answered<T>(
        &mut self,
        process: ProcessId,
        ticket: Ticket,
        result: Result<T, WriteError>,
    ) {
        let Some(chamber) = self.cursor_writes.remove(&(process, ticket)) else { return };
        match result {
            Ok(_) => drop(self.doubtful.remove(&(process, chamber))),
            Err(WriteError::Unknown) => drop(self.doubtful.insert((process, chamber))),
            Err(WriteError::Conflict | WriteError::Failed) => {}
        }
    }

    /// A process gives up a message that runs, or is shown an old cursor.
    pub(crate) fn doubt(&mut self, process: ProcessId, chamber: u32) {
        self.doubtful.insert((process, chamber));
    }

    /// A process closes its fence.
    pub(crate) fn fenced(&mut self, process: ProcessId) {
        self.fenced.insert(process);
    }

    /// A process opens its fence.
    pub(crate) fn unfenced(&mut self, process: ProcessId) {
        self.fenced.remove(&process);
    }

    /// A process releases its id by itself: no takeover from this incarnation may count a worker crash. The protocol
    /// excepts partitions whose last write has an unknown outcome or whose message was abandoned, and a worker whose fence
    /// is closed when its drain time is over.
    pub(crate) fn left(&mut self, process: ProcessId, holder: Holder) {
        let unanswered = self.cursor_writes.range((process, FIRST_TICKET)..);
        let unanswered = unanswered.take_while(|((asking, _), _)| *asking == process);
        self.doubtful.extend(unanswered.map(|(_, chamber)| (process, *chamber)));
        if self.fenced.contains(&process) {
            return;
        }
        for (chamber, book) in (0..).zip(&mut self.books) {
            if book.taken_as == Some(holder) && book.taker == Some(process) {
                book.left_cleanly = !self.doubtful.contains(&(process, chamber));
            }
        }
    }

    /// A value was stored.
    pub(crate) fn stored(&mut self, now: Time, value: &Value) {
        if let Value::ClusterState(state) = value
            && self.newest.0 > Version(0)
        {
            // A leader that says something has touched the map: from then on nothing of an earlier one may be accepted.
            self.newest.1 = self.newest.1.max(state.epoch);
        }
        let Value::Map(map) = value else { return };
        let (version, epoch) = self.newest;
        if map.version < version || map.epoch < epoch {
            let (was, is) = ((version, epoch), (map.version, map.epoch));
            self.violate(12, now, format!("the map went from {was:?} to {is:?}"));
        }
        self.newest = (map.version, map.epoch.max(epoch));
    }

    /// An emergency may move the chambers of the crashed, and nothing else.
    pub(crate) fn emergency(&mut self, now: Time, before: &AssignmentMap, after: &AssignmentMap) {
        let moved = before.assignments.iter().find(|(name, was)| {
            let is = after.assignments.get(*name).map(|is| is.owner);
            is.is_some_and(|is| is != was.owner) && after.workers.contains(&was.owner)
        });
        if let Some((name, was)) = moved {
            self.violate(15, now, format!("an emergency took {name} from {}, who lives", was.owner));
        }
    }

    fn book(&mut self, chamber: u32) -> &mut Book {
        if self.books.len() <= chamber as usize {
            self.books.resize_with(chamber as usize + 1, Book::default);
        }
        &mut self.books[chamber as usize]
    }

    /// The log has acknowledged a message.
    pub(crate) fn published(&mut self, chamber: u32, sequence: u64, number: u64, kind: Kind) {
        self.counts.published += 1;
        let book = self.book(chamber);
        let message = Published { number, kind, status: Status::Open, deaths: 0, died_alone: false };
        book.messages.push(message);
        let index = book.messages.len() - 1;
        if let Some(earlier) = book.at.insert(sequence, index) {
            let number = book.messages[earlier].number;
            book.before.insert((sequence, number), earlier);
        }
    }

    /// Messages are gone by age.
    pub(crate) fn expired(&mut self, gone: &[(u32, u64)]) {
        let epoch = self.log_epoch;
        for &(chamber, sequence) in gone {
            // Of a chamber that nobody ever owned nobody can know what it has lost.
            let Some(message) = self.is_gone(chamber, sequence) else { continue };
            let book = self.book(chamber);
            if book.taker.is_some() {
                book.expired.push((epoch, sequence, message));
            }
        }
    }

    /// Messages are gone with the log, or with its tail.
    pub(crate) fn log_lost(&mut self, stream: u64, gone: &[(u32, u64)]) {
        self.log_epoch += 1;
        self.stream = stream;
        for &(chamber, sequence) in gone {
            self.is_gone(chamber, sequence);
        }
    }

    /// Notes that a message is gone from the log. Gives it if nobody had resolved it.
    fn is_gone(&mut self, chamber: u32, sequence: u64) -> Option<usize> {
        let book = self.book(chamber);
        let message = book.at.remove(&sequence)?;
        let number = book.messages[message].number;
        book.before.insert((sequence, number), message);
        let unread = book.messages[message].status == Status::Open;
        if unread {
            book.messages[message].status = Status::Gone;
            self.counts.gone += 1;
        }
        unread.then_some(message)
    }

    /// A worker has reported that messages were gone before it could read them.
    pub(crate) fn reported_expired(&mut self, chamber: u32, after: u64, before: u64) {
        let epoch = self.log_epoch;
        self.book(chamber).reported.push((epoch, after, before));
    }

    /// A worker begins to process a message. `undisturbed` says of whom it may be expected to be alone.
    pub(crate) fn begins(
        &mut self,
        now: Time,
        process: ProcessId,
        chamber: u32,
        work: &Work,
        undisturbed: impl Fn(ProcessId) -> bool,
    ) {
        let (number, _) = decode(&work.message.payload);
        let sequence = work.message.sequence;
        let book = self.book(chamber);
        let Some(message) = book.message_at(sequence, number) else {
            self.violate(
                1,
                now,
                format!("{process} starts a message of chamber {chamber} that nobody published"),
            );
            return;
        };
        let alone = self.alone.get(&process).copied().filter(|alone| *alone != chamber);
        if let Some(alone) = alone {
            self.violate(7, now, format!("{process} starts chamber {chamber} while {alone} runs alone"));
        }
        let book = self.book(chamber);
        let beside = book.running.iter().map(|(other, _)| *other).find(|other| *other != process);
        let deaths = book.messages[message].deaths;
        book.running.push((process, message));
        if deaths > ATTEMPTS {
            let what = format!("message {number} of chamber {chamber} starts again after {deaths} deaths");
            self.violate(7, now, what);
        }
        if let Some(other) = beside.filter(|&other| undisturbed(other) && undisturbed(process)) {
            self.violate(9, now, format!("{process} and {other} both process chamber {chamber}"));
        }
    }

    /// A worker does not process the chamber's message any more.
    pub(crate) fn ends(&mut self, process: ProcessId, chamber: u32) {
        self.book(chamber).running.retain(|(running, _)| *running != process);
    }

    /// A worker died while it processed the chamber's message.
    pub(crate) fn dies(&mut self, process: ProcessId, chamber: u32) {
        let book = self.book(chamber);
        for (_, message) in book.running.extract_if(.., |(running, _)| *running == process) {
            book.messages[message].deaths += 1;
        }
    }

    /// Every cursor is gone, and with it what it said about running alone.
    pub(crate) fn cursors_lost(&mut self) {
        self.alone.clear();
    }

    /// Results have reached the store.
    pub(crate) fn rows(&mut self, now: Time, results: &Results, store: &Store, sum: u64) {
        let Results { chamber, position, take, number, .. } = *results;
        let book = self.book(chamber);
        if let Some(message) = book.message_at(position.sequence, number) {
            let written =
                Written { message, counts: results.counts, chain: results.history.chain, visible: sum };
            book.written.insert((position, take), written);
        }
        // A late write must not change what a reader sees of a message that is committed.
        if let Some(&(number, expected)) = book.visible.get(&position) {
            let seen = store.visible(chamber, position, number);
            if seen != expected {
                let what = format!("a late write changed the rows of message {number} of chamber {chamber}");
                self.violate(4, now, what);
            }
        }
    }

    /// A dead letter was published.
    pub(crate) fn buried(&mut self, now: Time, chamber: u32, work: &Work) {
        let (number, kind) = decode(&work.message.payload);
        let book = self.book(chamber);
        let Some(message) = book.message_at(work.message.sequence, number) else { return };
        let again = book.messages[message].status == Status::Again;
        let letters = book.letters.entry(message).or_default();
        *letters += 1;
        let letters = *letters;
        let died_alone = book.messages[message].died_alone;
        self.counts.dead_lettered += u64::from(!again);
        if letters > 1 {
            self.violate(6, now, format!("message {number} of chamber {chamber} has {letters} dead letters"));
        }
        if kind == Kind::Good && !died_alone {
            let what = format!("message {number} of chamber {chamber} was condemned and has done nothing");
            self.violate(7, now, what);
        }
    }

    /// A cursor was stored.
    pub(crate) fn cursor(
        &mut self,
        now: Time,
        process: ProcessId,
        chamber: u32,
        was: Option<&Cursor>,
        is: &Cursor,
        store: &Store,
    ) {
        if !is.solo {
            self.alone.retain(|_, alone| *alone != chamber);
        }
        if is.released && self.book(chamber).running.iter().any(|(running, _)| *running == process) {
            self.violate(9, now, format!("{process} releases chamber {chamber} while its message runs"));
        }
        match was {
            None => self.cursor_made(now, process, chamber, is),
            Some(was) if is.take != was.take => self.taken(now, process, chamber, was, is),
            Some(was) if is.position != was.position => {
                self.advanced(now, process, chamber, was, is, store);
            }
            Some(was) => {
                if is.solo && !was.solo {
                    self.solo(now, process, chamber);
                }
            }
        }
    }

    /// A message is about to run alone: nothing else may run on its worker.
    fn solo(&mut self, now: Time, process: ProcessId, chamber: u32) {
        let beside =
            self.books.iter().position(|book| book.running.iter().any(|(running, _)| *running == process));
        if let Some(beside) = beside {
            self.violate(
                7,
                now,
                format!("chamber {chamber} runs alone on {process}, beside chamber {beside}"),
            );
        }
        self.alone.insert(process, chamber);
    }

    /// A cursor that was not there: it may go back, it may not skip.
    fn cursor_made(&mut self, now: Time, process: ProcessId, chamber: u32, is: &Cursor) {
        let (epoch, stream) = (self.log_epoch, self.stream);
        let book = self.book(chamber);
        // If the log does not hold what the cursor begins after, it may be found to be another one.
        let here = book.at.get(&is.position.sequence).map(|&message| book.messages[message].number);
        let vouched =
            is.position.sequence == 0 || here.is_some_and(|number| *context_name(number) == *is.context);
        let known_log = stream == 0 || is.stream == stream;
        let epoch = if vouched && known_log { epoch } else { u64::MAX };
        (book.take, book.taker, book.epoch) = (is.take, Some(process), epoch);
        (book.taken_as, book.left_cleanly) = (Some(is.holder), false);
        let kept = match is.base {
            Some(base) => book.committed.iter().position(|(position, _)| *position == base).map(|at| at + 1),
            None => Some(0),
        };
        let Some(kept) = kept else {
            self.violate(
                5,
                now,
                format!("the cursor of chamber {chamber} begins at what was never committed"),
            );
            return;
        };
        book.committed.truncate(kept);
        if is.base.is_none() {
            // Nothing is left that could tell what was there before.
            book.expired.clear();
        }
        // What is repeated is written anew, under new positions.
        let Book { committed, visible, .. } = book;
        visible.retain(|position, _| committed.iter().any(|(known, _)| known == position));
        self.reopen(chamber, is.position.sequence);
        if vouched {
            self.check_skipped(now, chamber, 0, is.position.sequence + 1);
        }
    }

    /// What the log still holds after a position is read again: what was committed then commits without effect.
    fn reopen(&mut self, chamber: u32, after: u64) {
        let book = self.book(chamber);
        for (_, &message) in book.at.range(after + 1..) {
            let known = &mut book.messages[message];
            if matches!(known.status, Status::Committed | Status::Dead) {
                known.status = Status::Again;
            }
            known.deaths = 0;
            book.letters.remove(&message);
        }
    }

    fn taken(&mut self, now: Time, process: ProcessId, chamber: u32, was: &Cursor, is: &Cursor) {
        let (epoch, stream) = (self.log_epoch, self.stream);
        let book = self.book(chamber);
        if let (true, Some(left)) = (is.deaths > was.deaths && book.left_cleanly, book.taker) {
            let what =
                format!("{process} counts the clean leave of {left} as a worker crash of chamber {chamber}");
            self.violate(21, now, what);
        }
        let book = self.book(chamber);
        (book.take, book.taker) = (is.take, Some(process));
        (book.taken_as, book.left_cleanly) = (Some(is.holder), false);
        if let (true, true, Some(judged)) = (was.solo, is.dead.is_some(), is.judged)
            && let Some(&message) = book.at.get(&judged)
        {
            book.messages[message].died_alone = true;
        }
        if is.position == was.position {
            return;
        }
        let replaced = book.epoch != epoch && is.position.sequence == 0;
        // Whoever has heard only of a log before this one has this one still to find.
        book.epoch = if stream == 0 || is.stream == stream { epoch } else { epoch - 1 };
        if replaced {
            self.reopen(chamber, 0);
        } else {
            let what =
                format!("the cursor of chamber {chamber} went from {:?} to {:?}", was.position, is.position);
            self.violate(1, now, what);
        }
    }

    fn advanced(
        &mut self,
        now: Time,
        process: ProcessId,
        chamber: u32,
        was: &Cursor,
        is: &Cursor,
        store: &Store,
    ) {
        let book = self.book(chamber);
        if book.take != is.take || book.taker != Some(process) {
            let (take, taker) = (book.take, book.taker);
            let what = format!(
                "{process} commits chamber {chamber} by take {}; take {take} is {taker:?}'s",
                is.take
            );
            self.violate(3, now, what);
        }
        if was.position.generation != is.position.generation {
            self.violate(
                1,
                now,
                format!("the cursor of chamber {chamber} changed its generation by a commit"),
            );
        }
        let stream_holds_it = self.book(chamber).epoch == self.log_epoch;
        if stream_holds_it {
            self.check_skipped(now, chamber, was.position.sequence + 1, is.position.sequence);
        }
        let number =
            is.context.strip_prefix("run-").and_then(|number| number.parse().ok()).unwrap_or(u64::MAX);
        let Some(message) = self.book(chamber).message_at(is.position.sequence, number) else {
            self.violate(
                1,
                now,
                format!("chamber {chamber} commits message {number}, which nobody published"),
            );
            return;
        };
        if was.clone().judging(is.position.sequence).dead.is_some() {
            self.laid_to_rest(now, chamber, message, is.position);
        } else {
            self.committed(now, chamber, message, is, store);
        }
    }

    /// No unresolved message may lie between two positions of a cursor.
    fn check_skipped(&mut self, now: Time, chamber: u32, from: u64, until: u64) {
        let book = self.book(chamber);
        let skipped = book
            .at
            .range(from..until.max(from))
            .find(|(_, message)| book.messages[**message].status == Status::Open)
            .map(|(sequence, _)| *sequence);
        if let Some(sequence) = skipped {
            self.counts.order_violations += 1;
            self.violate(1, now, format!("the cursor of chamber {chamber} skips sequence {sequence}"));
        }
    }

    /// A condemned message is passed: its letter must be there.
    fn laid_to_rest(&mut self, now: Time, chamber: u32, message: usize, position: Position) {
        let book = self.book(chamber);
        let history = book.history();
        book.committed.push((position, history));
        let published = &mut book.messages[message];
        let (number, status) = (published.number, published.status);
        published.status = Status::Dead;
        let has_letter = book.letters.contains_key(&message);
        if status == Status::Committed {
            self.violate(6, now, format!("message {number} of chamber {chamber} is committed and dead"));
        }
        if !has_letter {
            self.violate(
                1,
                now,
                format!("message {number} of chamber {chamber} is passed without a dead letter"),
            );
        }
    }

    fn committed(&mut self, now: Time, chamber: u32, message: usize, is: &Cursor, store: &Store) {
        let book = self.book(chamber);
        let published = &mut book.messages[message];
        let (number, status) = (published.number, published.status);
        published.status = Status::Committed;
        let letters = book.letters.contains_key(&message);
        let before = book.history();
        let repeated = before.knows(number);
        let after = if repeated { before } else { before.with(number) };
        let written = book.written.get(&(is.position, is.take)).cloned();
        book.committed.push((is.position, after.clone()));
        let which = format!("message {number} of chamber {chamber}");
        self.counts.committed += u64::from(status != Status::Again);
        if status == Status::Committed {
            self.counts.double_committed += 1;
            self.violate(2, now, format!("{which} is committed twice"));
        }
        if letters || status == Status::Dead {
            self.violate(6, now, format!("{which} is committed, and has a dead letter"));
        }
        let Some(written) = written.filter(|written| written.message == message) else {
            self.violate(4, now, format!("{which} is committed by take {} without its rows", is.take));
            return;
        };
        if written.counts == repeated || written.chain != after.chain {
            self.violate(5, now, format!("{which} was computed on another history than what is committed"));
        }
        if !written.counts {
            return;
        }
        if store.visible(chamber, is.position, number) != written.visible {
            self.violate(4, now, format!("the rows of {which} are not those of take {}", is.take));
        }
        // After a lost cursor a message may be repeated while an attempt at a later one has left its alarm: that is put
        // right when the later one is repeated.
        let later = status == Status::Again && store.alarm(chamber).is_some_and(|(said, _)| said > number);
        if !later && store.alarm(chamber) != Some((number, is.take)) {
            let alarm = store.alarm(chamber);
            self.violate(4, now, format!("the alarm of {which} is {alarm:?}, not that of take {}", is.take));
        }
        let book = self.book(chamber);
        book.visible.insert(is.position, (number, written.visible));
    }

    /// How many messages of these chambers are still to be resolved.
    pub(crate) fn unresolved(&self, chambers: &[u32]) -> usize {
        let books = chambers.iter().filter_map(|&chamber| self.books.get(chamber as usize));
        let open = |book: &Book| {
            book.at.values().filter(|&&message| book.messages[message].status == Status::Open).count()
        };
        books.map(open).sum()
    }

    /// Whether a message that kills its worker or takes for ever is still to be resolved.
    pub(crate) fn has_harmful_messages(&self) -> bool {
        self.books.iter().any(|book| {
            let open = book.at.values().map(|&message| &book.messages[message]);
            open.filter(|message| matches!(message.status, Status::Open | Status::Again))
                .any(|message| matches!(message.kind, Kind::Killer | Kind::Endless))
        })
    }

    /// Counts what nobody has resolved although it is still there, and what went unreported.
    pub(crate) fn close(&mut self, now: Time, owned: impl Fn(usize) -> bool) {
        let mut found = Vec::new();
        for (chamber, book) in self.books.iter().enumerate() {
            for (sequence, message) in &book.at {
                let message = &book.messages[*message];
                if message.status == Status::Open {
                    self.counts.lost += 1;
                    let (number, kind) = (message.number, message.kind);
                    found.push((16, format!("message {number} ({kind:?}, sequence {sequence}) of chamber {chamber} is unresolved")));
                }
            }
            for &(epoch, sequence, message) in &book.expired {
                let covers = |&&(in_epoch, after, before): &&(u64, u64, u64)| {
                    in_epoch == epoch && (after + 1..before).contains(&sequence)
                };
                let counted = book.reported.iter().any(|report| covers(&report));
                let lost = book.messages[message].status == Status::Gone;
                if lost && !counted && epoch == self.log_epoch && owned(chamber) {
                    found.push((
                        17,
                        format!("sequence {sequence} of chamber {chamber} is gone by age, uncounted"),
                    ));
                }
            }
        }
        for (invariant, what) in found.into_iter().take(20) {
            self.violate(invariant, now, what);
        }
    }

    pub(crate) fn violate(&mut self, invariant: u32, at: Time, what: String) {
        self.violations.push(Violation { invariant, at, what });
    }
}
