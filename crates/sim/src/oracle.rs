//! What the world itself has seen happen, kept apart from what the workers believe. Every promise is checked here, as
//! things happen, and never by asking a worker or its cursor.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use phalanx_cluster_core::types::{
    AssignmentMap, Epoch, FencingToken, LogId, Sequence, Time, Value, Version, WorkerIncarnation,
};
use phalanx_cluster_core::{
    Cursor, Effect, MAX_ATTEMPTS, Position, ProcessRequest, Purpose, RequestId, WriteError,
};

use crate::HashMap;
use crate::log::{MessageKind, decode};
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
        write!(
            f,
            "{:.3} s: invariant {}: {}",
            self.at.since_origin().as_secs_f64(),
            self.invariant,
            self.what
        )
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
const FIRST_TICKET: RequestId = RequestId { purpose: Purpose::Heartbeat, serial: 0 };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessageStatus {
    Open,
    Committed,
    Dead,
    /// Gone from the log before it was resolved: by age, or with the log.
    Expired,
    /// It was resolved, and may be once more: the log or the cursor was lost, and it is read again.
    Reopened,
}

/// A message as it was published.
#[derive(Clone, Debug)]
struct Published {
    number: u64,
    kind: MessageKind,
    status: MessageStatus,
    /// How often a worker died while it processed this message.
    worker_crashes: u32,
    /// Whether a worker crashed while this message ran isolated: then it may be dead-lettered.
    crashed_isolated: bool,
}

/// What one processing of a message wrote.
#[derive(Clone, Debug)]
struct WrittenRows {
    message: usize,
    counts: bool,
    chain: u64,
    visible: u64,
}

#[derive(Debug, Default)]
struct PartitionHistory {
    /// Every message ever published for this partition.
    messages: Vec<Published>,
    /// Which message stands at a sequence of the log as it is now.
    at: BTreeMap<Sequence, usize>,
    /// Which message once stood there.
    before: HashMap<(Sequence, u64), usize>,
    /// What is committed, with the history after it.
    committed: Vec<(Position, History)>,
    written: HashMap<(Position, FencingToken), WrittenRows>,
    visible: HashMap<Position, (u64, u64)>,
    dead_letters: HashMap<usize, u32>,
    fencing_token: FencingToken,
    owner: Option<ProcessId>,
    /// Incarnation under which the taker took the cursor over.
    taken_as: Option<WorkerIncarnation>,
    /// Whether the taker has left cleanly since.
    left_cleanly: bool,
    /// Which making of the log the cursor's generation belongs to.
    epoch: u64,
    running: Vec<(ProcessId, usize)>,
    /// Unread messages that are gone by age, and ranges that were reported.
    expired: Vec<(u64, Sequence, usize)>,
    reported: Vec<(u64, Sequence, Sequence)>,
}

impl PartitionHistory {
    fn history(&self) -> History {
        self.committed.last().map(|(_, history)| history.clone()).unwrap_or_default()
    }

    fn message_at(&self, sequence: Sequence, number: u64) -> Option<usize> {
        let here = self.at.get(&sequence).copied().filter(|&message| self.messages[message].number == number);
        here.or_else(|| self.before.get(&(sequence, number)).copied())
    }
}

#[derive(Debug, Default)]
pub(crate) struct Oracle {
    sent: BTreeMap<(ProcessId, RequestId), Time>,
    /// When the newest acknowledged heartbeat of a process was sent.
    proof: Vec<Time>,
    newest: (Version, Epoch),
    histories: Vec<PartitionHistory>,
    /// The log that replaced an earlier one; none before that.
    log_id: Option<LogId>,
    /// Grows whenever the log loses what it held.
    log_epoch: u64,
    /// Whose message runs alone.
    isolated: BTreeMap<ProcessId, u32>,
    /// Writes of cursors without an answer, and their partitions.
    cursor_writes: BTreeMap<(ProcessId, RequestId), u32>,
    /// Partitions whose last cursor write by a process has an unknown outcome, or whose message it abandoned.
    doubtful: BTreeSet<(ProcessId, u32)>,
    /// Processes whose fence is closed.
    fenced: BTreeSet<ProcessId>,
    pub(crate) counts: Counts,
    pub(crate) violations: Vec<Violation>,
}

impl Oracle {
    pub(crate) fn started(&mut self, now: Time) {
        self.proof.push(now);
    }

    /// A process asks for something to be written or begins to work.
    pub(crate) fn on_request(&mut self, now: Time, process: ProcessId, effect: &Effect) {
        let what = match effect {
            Effect::Write { request_id, .. } => match request_id.purpose {
                Purpose::Heartbeat => {
                    self.sent.insert((process, *request_id), now);
                    return;
                }
                Purpose::TouchMap | Purpose::PublishMap | Purpose::WriteState => "leads",
                Purpose::Cursor | Purpose::ReleaseCursor => "writes a cursor",
                _ => return,
            },
            Effect::Process { .. } => "starts a message",
            Effect::RecordDeadLetter { .. } | Effect::PublishDeadLetter { .. } => "dead-letters a message",
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
    pub(crate) fn acknowledged(&mut self, process: ProcessId, request_id: RequestId) {
        if request_id.purpose != Purpose::Heartbeat {
            return;
        }
        if let Some(sent) = self.sent.remove(&(process, request_id)) {
            let proof = &mut self.proof[process.index()];
            *proof = (*proof).max(sent);
        }
    }

    /// A process asks for a cursor to be written.
    pub(crate) fn cursor_asked(&mut self, process: ProcessId, request_id: RequestId, partition: u32) {
        self.cursor_writes.insert((process, request_id), partition);
    }

    /// A process receives the answer to a write.
    pub(crate) fn cursor_answered<T>(
        &mut self,
        process: ProcessId,
        request_id: RequestId,
        result: Result<T, WriteError>,
    ) {
        let Some(partition) = self.cursor_writes.remove(&(process, request_id)) else { return };
        match result {
            Ok(_) => drop(self.doubtful.remove(&(process, partition))),
            Err(WriteError::Unknown) => drop(self.doubtful.insert((process, partition))),
            Err(WriteError::Conflict | WriteError::Failed) => {}
        }
    }

    /// A process gives up a message that runs, or is shown an old cursor.
    pub(crate) fn doubt(&mut self, process: ProcessId, partition: u32) {
        self.doubtful.insert((process, partition));
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
    pub(crate) fn left(&mut self, process: ProcessId, holder: WorkerIncarnation) {
        let unanswered = self.cursor_writes.range((process, FIRST_TICKET)..);
        let unanswered = unanswered.take_while(|((asking, _), _)| *asking == process);
        self.doubtful.extend(unanswered.map(|(_, partition)| (process, *partition)));
        if self.fenced.contains(&process) {
            return;
        }
        for (partition, book) in (0..).zip(&mut self.histories) {
            if book.taken_as == Some(holder) && book.owner == Some(process) {
                book.left_cleanly = !self.doubtful.contains(&(process, partition));
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

    /// An emergency may move the partitions of the crashed, and nothing else.
    pub(crate) fn emergency(&mut self, now: Time, before: &AssignmentMap, after: &AssignmentMap) {
        let moved = before.assignments.iter().find(|(name, was)| {
            let is = after.assignments.get(*name).map(|is| is.owner);
            is.is_some_and(|is| is != was.owner) && after.workers.contains(&was.owner)
        });
        if let Some((name, was)) = moved {
            self.violate(15, now, format!("an emergency took {name} from {}, who lives", was.owner));
        }
    }

    fn book(&mut self, partition: u32) -> &mut PartitionHistory {
        if self.histories.len() <= partition as usize {
            self.histories.resize_with(partition as usize + 1, PartitionHistory::default);
        }
        &mut self.histories[partition as usize]
    }

    /// The log has acknowledged a message.
    pub(crate) fn published(&mut self, partition: u32, sequence: Sequence, number: u64, kind: MessageKind) {
        self.counts.published += 1;
        let book = self.book(partition);
        let message = Published {
            number,
            kind,
            status: MessageStatus::Open,
            worker_crashes: 0,
            crashed_isolated: false,
        };
        book.messages.push(message);
        let index = book.messages.len() - 1;
        if let Some(earlier) = book.at.insert(sequence, index) {
            let number = book.messages[earlier].number;
            book.before.insert((sequence, number), earlier);
        }
    }

    /// Messages are gone by age.
    pub(crate) fn expired(&mut self, gone: &[(u32, Sequence)]) {
        let epoch = self.log_epoch;
        for &(partition, sequence) in gone {
            // Of a partition that nobody ever owned nobody can know what it has lost.
            let Some(message) = self.is_gone(partition, sequence) else { continue };
            let book = self.book(partition);
            if book.owner.is_some() {
                book.expired.push((epoch, sequence, message));
            }
        }
    }

    /// Messages are gone with the log, or with its tail.
    pub(crate) fn log_lost(&mut self, log_id: LogId, gone: &[(u32, Sequence)]) {
        self.log_epoch += 1;
        self.log_id = Some(log_id);
        for &(partition, sequence) in gone {
            self.is_gone(partition, sequence);
        }
    }

    /// Notes that a message is gone from the log. Gives it if nobody had resolved it.
    fn is_gone(&mut self, partition: u32, sequence: Sequence) -> Option<usize> {
        let book = self.book(partition);
        let message = book.at.remove(&sequence)?;
        let number = book.messages[message].number;
        book.before.insert((sequence, number), message);
        let unread = book.messages[message].status == MessageStatus::Open;
        if unread {
            book.messages[message].status = MessageStatus::Expired;
            self.counts.gone += 1;
        }
        unread.then_some(message)
    }

    /// A worker has reported that messages were gone before it could read them.
    pub(crate) fn reported_expired(&mut self, partition: u32, after: Sequence, before: Sequence) {
        let epoch = self.log_epoch;
        self.book(partition).reported.push((epoch, after, before));
    }

    /// A worker begins to process a message. `undisturbed` says of whom it may be expected to be alone.
    pub(crate) fn on_processing_started(
        &mut self,
        now: Time,
        process: ProcessId,
        partition: u32,
        work: &ProcessRequest,
        undisturbed: impl Fn(ProcessId) -> bool,
    ) {
        let (number, _) = decode(&work.message.payload);
        let sequence = work.message.sequence;
        let book = self.book(partition);
        let Some(message) = book.message_at(sequence, number) else {
            self.violate(
                1,
                now,
                format!("{process} starts a message of partition {partition} that nobody published"),
            );
            return;
        };
        let alone = self.isolated.get(&process).copied().filter(|alone| *alone != partition);
        if let Some(alone) = alone {
            self.violate(7, now, format!("{process} starts partition {partition} while {alone} runs alone"));
        }
        let book = self.book(partition);
        let beside = book.running.iter().map(|(other, _)| *other).find(|other| *other != process);
        let crashes = book.messages[message].worker_crashes;
        book.running.push((process, message));
        if crashes > MAX_ATTEMPTS {
            let what =
                format!("message {number} of partition {partition} starts again after {crashes} crashes");
            self.violate(7, now, what);
        }
        if let Some(other) = beside.filter(|&other| undisturbed(other) && undisturbed(process)) {
            self.violate(9, now, format!("{process} and {other} both process partition {partition}"));
        }
    }

    /// A worker does not process the partition's message any more.
    pub(crate) fn on_processing_ended(&mut self, process: ProcessId, partition: u32) {
        self.book(partition).running.retain(|(running, _)| *running != process);
    }

    /// A worker died while it processed the partition's message.
    pub(crate) fn on_worker_crash(&mut self, process: ProcessId, partition: u32) {
        let book = self.book(partition);
        for (_, message) in book.running.extract_if(.., |(running, _)| *running == process) {
            book.messages[message].worker_crashes += 1;
        }
    }

    /// Every cursor is gone, and with it what it said about running alone.
    pub(crate) fn cursors_lost(&mut self) {
        self.isolated.clear();
    }

    /// Results have reached the store.
    pub(crate) fn rows(&mut self, now: Time, results: &Results, store: &Store, sum: u64) {
        let Results { partition, position, fencing_token, number, .. } = *results;
        let book = self.book(partition);
        if let Some(message) = book.message_at(position.sequence, number) {
            let written =
                WrittenRows { message, counts: results.counts, chain: results.history.chain, visible: sum };
            book.written.insert((position, fencing_token), written);
        }
        // A late write must not change what a reader sees of a message that is committed.
        if let Some(&(number, expected)) = book.visible.get(&position) {
            let seen = store.visible(partition, position, number);
            if seen != expected {
                let what =
                    format!("a late write changed the rows of message {number} of partition {partition}");
                self.violate(4, now, what);
            }
        }
    }

    /// A dead letter was published.
    pub(crate) fn on_dead_letter(&mut self, now: Time, partition: u32, work: &ProcessRequest) {
        let (number, kind) = decode(&work.message.payload);
        let book = self.book(partition);
        let Some(message) = book.message_at(work.message.sequence, number) else { return };
        let again = book.messages[message].status == MessageStatus::Reopened;
        let letters = book.dead_letters.entry(message).or_default();
        *letters += 1;
        let letters = *letters;
        let died_alone = book.messages[message].crashed_isolated;
        self.counts.dead_lettered += u64::from(!again);
        if letters > 1 {
            self.violate(
                6,
                now,
                format!("message {number} of partition {partition} has {letters} dead letters"),
            );
        }
        if kind == MessageKind::Good && !died_alone {
            let what =
                format!("message {number} of partition {partition} was dead-lettered and has done nothing");
            self.violate(7, now, what);
        }
    }

    /// A cursor was stored.
    pub(crate) fn cursor(
        &mut self,
        now: Time,
        process: ProcessId,
        partition: u32,
        was: Option<&Cursor>,
        is: &Cursor,
        store: &Store,
    ) {
        if !is.isolated {
            self.isolated.retain(|_, alone| *alone != partition);
        }
        if is.released && self.book(partition).running.iter().any(|(running, _)| *running == process) {
            self.violate(9, now, format!("{process} releases partition {partition} while its message runs"));
        }
        match was {
            None => self.cursor_made(now, process, partition, is),
            Some(was) if is.fencing_token != was.fencing_token => {
                self.taken(now, process, partition, was, is)
            }
            Some(was) if is.position != was.position => {
                self.advanced(now, process, partition, was, is, store);
            }
            Some(was) => {
                if is.isolated && !was.isolated {
                    self.check_isolation(now, process, partition);
                }
            }
        }
    }

    /// A message is about to run alone: nothing else may run on its worker.
    fn check_isolation(&mut self, now: Time, process: ProcessId, partition: u32) {
        let beside = self
            .histories
            .iter()
            .position(|book| book.running.iter().any(|(running, _)| *running == process));
        if let Some(beside) = beside {
            self.violate(
                7,
                now,
                format!("partition {partition} runs alone on {process}, beside partition {beside}"),
            );
        }
        self.isolated.insert(process, partition);
    }

    /// A cursor that was not there: it may go back, it may not skip.
    fn cursor_made(&mut self, now: Time, process: ProcessId, partition: u32, is: &Cursor) {
        let (epoch, log_id) = (self.log_epoch, self.log_id);
        let book = self.book(partition);
        // If the log does not hold what the cursor begins after, it may be found to be another one.
        let here = book.at.get(&is.position.sequence).map(|&message| book.messages[message].number);
        let vouched = is.position.sequence == Sequence::START
            || here.is_some_and(|number| Some(context_name(number)) == is.message_id);
        let known_log = log_id.is_none() || is.log_id == log_id;
        let epoch = if vouched && known_log { epoch } else { u64::MAX };
        (book.fencing_token, book.owner, book.epoch) = (is.fencing_token, Some(process), epoch);
        (book.taken_as, book.left_cleanly) = (Some(is.owner), false);
        let kept = match is.state_position {
            Some(base) => book.committed.iter().position(|(position, _)| *position == base).map(|at| at + 1),
            None => Some(0),
        };
        let Some(kept) = kept else {
            self.violate(
                5,
                now,
                format!("the cursor of partition {partition} begins at what was never committed"),
            );
            return;
        };
        book.committed.truncate(kept);
        if is.state_position.is_none() {
            // Nothing is left that could tell what was there before.
            book.expired.clear();
        }
        // What is repeated is written anew, under new positions.
        let PartitionHistory { committed, visible, .. } = book;
        visible.retain(|position, _| committed.iter().any(|(known, _)| known == position));
        self.reopen(partition, is.position.sequence);
        if vouched {
            self.check_skipped(now, partition, Sequence::START, is.position.sequence.next());
        }
    }

    /// What the log still holds after a position is read again: what was committed then commits without effect.
    fn reopen(&mut self, partition: u32, after: Sequence) {
        let book = self.book(partition);
        for (_, &message) in book.at.range(after.next()..) {
            let known = &mut book.messages[message];
            if matches!(known.status, MessageStatus::Committed | MessageStatus::Dead) {
                known.status = MessageStatus::Reopened;
            }
            known.worker_crashes = 0;
            book.dead_letters.remove(&message);
        }
    }

    fn taken(&mut self, now: Time, process: ProcessId, partition: u32, was: &Cursor, is: &Cursor) {
        let (epoch, log_id) = (self.log_epoch, self.log_id);
        let book = self.book(partition);
        if let (true, Some(left)) = (is.worker_crashes > was.worker_crashes && book.left_cleanly, book.owner)
        {
            let what = format!(
                "{process} counts the clean leave of {left} as a worker crash of partition {partition}"
            );
            self.violate(21, now, what);
        }
        let book = self.book(partition);
        (book.fencing_token, book.owner) = (is.fencing_token, Some(process));
        (book.taken_as, book.left_cleanly) = (Some(is.owner), false);
        if let (true, true, Some(judged)) =
            (was.isolated, is.dead_letter_reason.is_some(), is.counted_sequence)
            && let Some(&message) = book.at.get(&judged)
        {
            book.messages[message].crashed_isolated = true;
        }
        if is.position == was.position {
            return;
        }
        let replaced = book.epoch != epoch && is.position.sequence == Sequence::START;
        // Whoever has heard only of a log before this one has this one still to find.
        book.epoch = if log_id.is_none() || is.log_id == log_id { epoch } else { epoch - 1 };
        if replaced {
            self.reopen(partition, Sequence::START);
        } else {
            let what = format!(
                "the cursor of partition {partition} went from {:?} to {:?}",
                was.position, is.position
            );
            self.violate(1, now, what);
        }
    }

    fn advanced(
        &mut self,
        now: Time,
        process: ProcessId,
        partition: u32,
        was: &Cursor,
        is: &Cursor,
        store: &Store,
    ) {
        let book = self.book(partition);
        if book.fencing_token != is.fencing_token || book.owner != Some(process) {
            let (token, owner) = (book.fencing_token, book.owner);
            let what = format!(
                "{process} commits partition {partition} by token {}; token {token} is {owner:?}'s",
                is.fencing_token
            );
            self.violate(3, now, what);
        }
        if was.position.generation != is.position.generation {
            self.violate(
                1,
                now,
                format!("the cursor of partition {partition} changed its generation by a commit"),
            );
        }
        let stream_holds_it = self.book(partition).epoch == self.log_epoch;
        if stream_holds_it {
            self.check_skipped(now, partition, was.position.sequence.next(), is.position.sequence);
        }
        let number = is
            .message_id
            .as_deref()
            .and_then(|id| id.strip_prefix("run-"))
            .and_then(|number| number.parse().ok())
            .unwrap_or(u64::MAX);
        let Some(message) = self.book(partition).message_at(is.position.sequence, number) else {
            self.violate(
                1,
                now,
                format!("partition {partition} commits message {number}, which nobody published"),
            );
            return;
        };
        if was.clone().counting_for(is.position.sequence).dead_letter_reason.is_some() {
            self.check_dead_letter_passed(now, partition, message, is.position);
        } else {
            self.committed(now, partition, message, is, store);
        }
    }

    /// No unresolved message may lie between two positions of a cursor.
    fn check_skipped(&mut self, now: Time, partition: u32, from: Sequence, until: Sequence) {
        let book = self.book(partition);
        let skipped = book
            .at
            .range(from..until.max(from))
            .find(|(_, message)| book.messages[**message].status == MessageStatus::Open)
            .map(|(sequence, _)| *sequence);
        if let Some(sequence) = skipped {
            self.counts.order_violations += 1;
            self.violate(1, now, format!("the cursor of partition {partition} skips sequence {sequence}"));
        }
    }

    /// Checks that a skipped message has its dead letter.
    fn check_dead_letter_passed(&mut self, now: Time, partition: u32, message: usize, position: Position) {
        let book = self.book(partition);
        let history = book.history();
        book.committed.push((position, history));
        let published = &mut book.messages[message];
        let (number, status) = (published.number, published.status);
        published.status = MessageStatus::Dead;
        let has_letter = book.dead_letters.contains_key(&message);
        if status == MessageStatus::Committed {
            self.violate(6, now, format!("message {number} of partition {partition} is committed and dead"));
        }
        if !has_letter {
            self.violate(
                1,
                now,
                format!("message {number} of partition {partition} is passed without a dead letter"),
            );
        }
    }

    fn committed(&mut self, now: Time, partition: u32, message: usize, is: &Cursor, store: &Store) {
        let book = self.book(partition);
        let published = &mut book.messages[message];
        let (number, status) = (published.number, published.status);
        published.status = MessageStatus::Committed;
        let letters = book.dead_letters.contains_key(&message);
        let before = book.history();
        let repeated = before.knows(number);
        let after = if repeated { before } else { before.with(number) };
        let written = book.written.get(&(is.position, is.fencing_token)).cloned();
        book.committed.push((is.position, after.clone()));
        let which = format!("message {number} of partition {partition}");
        self.counts.committed += u64::from(status != MessageStatus::Reopened);
        if status == MessageStatus::Committed {
            self.counts.double_committed += 1;
            self.violate(2, now, format!("{which} is committed twice"));
        }
        if letters || status == MessageStatus::Dead {
            self.violate(6, now, format!("{which} is committed, and has a dead letter"));
        }
        let Some(written) = written.filter(|written| written.message == message) else {
            self.violate(
                4,
                now,
                format!("{which} is committed by token {} without its rows", is.fencing_token),
            );
            return;
        };
        if written.counts == repeated || written.chain != after.chain {
            self.violate(5, now, format!("{which} was computed on another history than what is committed"));
        }
        if !written.counts {
            return;
        }
        if store.visible(partition, is.position, number) != written.visible {
            self.violate(4, now, format!("the rows of {which} are not those of token {}", is.fencing_token));
        }
        // After a lost cursor a message may be repeated while an attempt at a later one has left its report: the later
        // message corrects it when it is repeated.
        let later = status == MessageStatus::Reopened
            && store.latest_report(partition).is_some_and(|(said, _)| said > number);
        if !later && store.latest_report(partition) != Some((number, is.fencing_token)) {
            let report = store.latest_report(partition);
            self.violate(
                4,
                now,
                format!("the latest report of {which} is {report:?}, not that of token {}", is.fencing_token),
            );
        }
        let book = self.book(partition);
        book.visible.insert(is.position, (number, written.visible));
    }

    /// How many messages of these partitions are still to be resolved.
    pub(crate) fn unresolved(&self, partitions: &[u32]) -> usize {
        let books = partitions.iter().filter_map(|&partition| self.histories.get(partition as usize));
        let open = |book: &PartitionHistory| {
            book.at.values().filter(|&&message| book.messages[message].status == MessageStatus::Open).count()
        };
        books.map(open).sum()
    }

    /// Whether a message that kills its worker or takes for ever is still to be resolved.
    pub(crate) fn has_harmful_messages(&self) -> bool {
        self.histories.iter().any(|book| {
            let open = book.at.values().map(|&message| &book.messages[message]);
            open.filter(|message| matches!(message.status, MessageStatus::Open | MessageStatus::Reopened))
                .any(|message| matches!(message.kind, MessageKind::CrashesWorker | MessageKind::NeverEnds))
        })
    }

    /// Counts what nobody has resolved although it is still there, and what went unreported.
    pub(crate) fn finish(&mut self, now: Time, owned: impl Fn(usize) -> bool) {
        let mut found = Vec::new();
        for (partition, book) in self.histories.iter().enumerate() {
            for (sequence, message) in &book.at {
                let message = &book.messages[*message];
                if message.status == MessageStatus::Open {
                    self.counts.lost += 1;
                    let (number, kind) = (message.number, message.kind);
                    found.push((16, format!("message {number} ({kind:?}, sequence {sequence}) of partition {partition} is unresolved")));
                }
            }
            for &(epoch, sequence, message) in &book.expired {
                let covers = |&&(in_epoch, after, before): &&(u64, Sequence, Sequence)| {
                    in_epoch == epoch && after < sequence && sequence < before
                };
                let counted = book.reported.iter().any(|report| covers(&report));
                let lost = book.messages[message].status == MessageStatus::Expired;
                if lost && !counted && epoch == self.log_epoch && owned(partition) {
                    found.push((
                        17,
                        format!("sequence {sequence} of partition {partition} is gone by age, uncounted"),
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
