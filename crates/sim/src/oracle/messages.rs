//! Independent record of the published messages: their sequences in the log, and the outcome of each.

use std::collections::BTreeMap;

use phalanx_cluster_core::types::{LogId, Sequence};

use crate::HashMap;
use crate::broker::MessageKind;
use crate::oracle::counts::Counts;
use crate::oracle::per_partition::PerPartition;

/// The state of a message as seen by a reader of its partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageStatus {
    /// No worker has resolved it.
    Open,
    /// A cursor has advanced to it after its results were stored.
    Committed,
    /// A cursor has advanced to it after its dead letter was published.
    Dead,
    /// The log deleted it by age before it was resolved.
    Expired,
    /// The log lost it before it was resolved: the log was recreated, or lost its tail.
    Lost,
    /// It was resolved and may be resolved again, because the log or the cursor was lost.
    Reopened,
}

/// The first outcome of a message. It stays when the message is read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Committed with results of its own.
    Committed,
    /// Committed without results: its partition had processed the same number before.
    Duplicate,
    /// Dead-lettered.
    DeadLettered,
}

/// A message that the log acknowledged.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    pub(crate) number: u64,
    pub(crate) kind: MessageKind,
    pub(crate) status: MessageStatus,
    outcome: Option<Outcome>,
}

/// The index of a message in its partition.
pub(crate) type MessageIndex = usize;

/// The messages of one partition.
#[derive(Debug, Default)]
pub(crate) struct PartitionMessages {
    all: Vec<Published>,
    /// The messages by their sequences in the present log.
    pub(crate) at: BTreeMap<Sequence, MessageIndex>,
    /// The messages that the log once had at a sequence, by sequence and number.
    before: HashMap<(Sequence, u64), MessageIndex>,
}

impl PartitionMessages {
    /// Returns a message by its index.
    pub(crate) fn message(&self, index: MessageIndex) -> &Published {
        &self.all[index]
    }

    /// Returns the message with a number that is or was at a sequence.
    pub(crate) fn find(&self, sequence: Sequence, number: u64) -> Option<MessageIndex> {
        let here = self.at.get(&sequence).copied().filter(|&message| self.all[message].number == number);
        here.or_else(|| self.before.get(&(sequence, number)).copied())
    }

    /// Returns the unresolved messages that the log holds, with their sequences.
    pub(crate) fn open(&self) -> impl Iterator<Item = (Sequence, &Published)> {
        let held = self.at.iter().map(|(sequence, &message)| (*sequence, &self.all[message]));
        held.filter(|(_, message)| message.status == MessageStatus::Open)
    }
}

/// Every message of every partition.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    partitions: PerPartition<PartitionMessages>,
    counts: Counts,
    /// The number of messages that the log dropped as duplicates.
    dropped: u64,
    /// The number of times that the log lost what it held.
    log_epoch: u64,
    /// The log that replaced an earlier one; none before that.
    log_id: Option<LogId>,
}

impl Messages {
    /// Returns the counts by outcome.
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the messages of a partition.
    pub(crate) fn of(&mut self, partition: u32) -> &PartitionMessages {
        self.partitions.at(partition)
    }

    /// Returns the messages of a partition, if it ever had one.
    pub(crate) fn get(&self, partition: u32) -> Option<&PartitionMessages> {
        self.partitions.get(partition)
    }

    /// Returns the partitions with their messages, in order.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = (u32, &PartitionMessages)> {
        self.partitions.iter()
    }

    /// Returns the number of times that the log lost what it held, and the log that replaced the first one.
    pub(crate) fn log(&self) -> (u64, Option<LogId>) {
        (self.log_epoch, self.log_id)
    }

    /// Notes that the log acknowledged a new message.
    pub(crate) fn published(&mut self, partition: u32, sequence: Sequence, number: u64, kind: MessageKind) {
        self.counts.published += 1;
        self.counts.lost += 1;
        let known = self.partitions.at(partition);
        known.all.push(Published { number, kind, status: MessageStatus::Open, outcome: None });
        let index = known.all.len() - 1;
        if let Some(earlier) = known.at.insert(sequence, index) {
            let number = known.all[earlier].number;
            known.before.insert((sequence, number), earlier);
        }
    }

    /// Notes that the log acknowledged a message and dropped it, because it had one with the same id.
    pub(crate) fn dropped_duplicate(&mut self) {
        self.dropped += 1;
        self.counts.published += 1;
        self.counts.duplicates += 1;
    }

    /// Notes that the log lost what it held, or its tail.
    pub(crate) fn log_lost(&mut self, log_id: LogId) {
        self.log_epoch += 1;
        self.log_id = Some(log_id);
    }

    /// Notes that a message is gone from the log. Returns it if it was unresolved.
    pub(crate) fn gone(
        &mut self,
        partition: u32,
        sequence: Sequence,
        status: MessageStatus,
    ) -> Option<MessageIndex> {
        debug_assert!(matches!(status, MessageStatus::Expired | MessageStatus::Lost));
        let known = self.partitions.at(partition);
        let message = known.at.remove(&sequence)?;
        let number = known.all[message].number;
        known.before.insert((sequence, number), message);
        let is_unread = known.all[message].status == MessageStatus::Open;
        if is_unread {
            self.change(partition, message, |message| message.status = status);
        }
        is_unread.then_some(message)
    }

    /// Sets the status of a message. Returns the earlier one.
    pub(crate) fn set_status(
        &mut self,
        partition: u32,
        message: MessageIndex,
        status: MessageStatus,
    ) -> MessageStatus {
        let earlier = self.of(partition).message(message).status;
        self.change(partition, message, |message| message.status = status);
        earlier
    }

    /// Notes the outcome of a message. The first one counts.
    pub(crate) fn resolve(&mut self, partition: u32, message: MessageIndex, outcome: Outcome) {
        self.change(partition, message, |message| message.outcome = message.outcome.or(Some(outcome)));
    }

    /// Reopens the resolved messages that the log holds after a sequence. Returns all messages after it.
    pub(crate) fn reopen(&mut self, partition: u32, after: Sequence) -> Vec<MessageIndex> {
        let held: Vec<_> = self.of(partition).at.range(after.next()..).map(|(_, &message)| message).collect();
        for &message in &held {
            let status = self.of(partition).message(message).status;
            if matches!(status, MessageStatus::Committed | MessageStatus::Dead) {
                self.set_status(partition, message, MessageStatus::Reopened);
            }
        }
        held
    }

    /// Returns the counts, counted again from every message.
    pub(crate) fn recount(&self) -> Counts {
        // Dropped duplicates are not in the log: only their number is known.
        let dropped = self.dropped;
        let mut counts = Counts { published: dropped, duplicates: dropped, ..Counts::default() };
        for message in self.partitions.iter().flat_map(|(_, known)| &known.all) {
            counts.published += 1;
            *bucket(&mut counts, message) += 1;
        }
        counts
    }

    fn change(&mut self, partition: u32, message: MessageIndex, change: impl FnOnce(&mut Published)) {
        let message = &mut self.partitions.at(partition).all[message];
        *bucket(&mut self.counts, message) -= 1;
        change(message);
        *bucket(&mut self.counts, message) += 1;
    }
}

/// Returns the one counter that counts a message.
fn bucket<'a>(counts: &'a mut Counts, message: &Published) -> &'a mut u64 {
    match (message.outcome, message.status) {
        (Some(Outcome::Committed), _) => &mut counts.committed,
        (Some(Outcome::Duplicate), _) => &mut counts.duplicates,
        (Some(Outcome::DeadLettered), _) => &mut counts.dead_lettered,
        (None, MessageStatus::Expired) => &mut counts.expired,
        (None, MessageStatus::Lost) => &mut counts.lost_by_broker,
        (None, _) => &mut counts.lost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns three messages of partition 0 at the sequences 1 to 3.
    fn three() -> Messages {
        let mut messages = Messages::default();
        (1..=3).for_each(|n| messages.published(0, Sequence(n), n, MessageKind::Good));
        messages
    }

    #[test]
    fn a_message_is_counted_exactly_once() {
        let mut messages = three();
        assert_eq!(messages.gone(0, Sequence(1), MessageStatus::Expired), Some(0));
        assert_eq!((messages.counts().expired, messages.counts().lost), (1, 2));
        // Its worker had read it before it was gone.
        messages.set_status(0, 0, MessageStatus::Committed);
        messages.resolve(0, 0, Outcome::Committed);
        messages.resolve(0, 1, Outcome::DeadLettered);
        messages.log_lost(LogId(2));
        assert_eq!(messages.gone(0, Sequence(2), MessageStatus::Lost), Some(1));
        assert_eq!(messages.gone(0, Sequence(3), MessageStatus::Lost), Some(2));
        messages.dropped_duplicate();
        let counts = messages.counts();
        let outcomes = (counts.committed, counts.dead_lettered, counts.expired, counts.lost_by_broker);
        assert_eq!(outcomes, (1, 1, 0, 1));
        assert_eq!((counts.published, counts.duplicates, counts.lost), (4, 1, 0));
        assert_eq!(counts.published, counts.resolved());
    }

    #[test]
    fn a_message_that_is_read_again_keeps_its_first_outcome() {
        let mut messages = three();
        messages.set_status(0, 0, MessageStatus::Dead);
        messages.resolve(0, 0, Outcome::DeadLettered);
        assert_eq!(messages.reopen(0, Sequence::START), [0, 1, 2]);
        assert_eq!(messages.of(0).message(0).status, MessageStatus::Reopened);
        messages.set_status(0, 0, MessageStatus::Committed);
        messages.resolve(0, 0, Outcome::Committed);
        assert_eq!((messages.counts().dead_lettered, messages.counts().committed), (1, 0));
    }
}
