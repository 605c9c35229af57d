//! Invariant 4: for each committed message, the stored rows are those of the fencing token that committed it.

use phalanx_cluster_core::types::{FencingToken, Time};
use phalanx_cluster_core::{Cursor, Position};

use crate::HashMap;
use crate::oracle::messages::{MessageIndex, MessageStatus};
use crate::oracle::per_partition::PerPartition;
use crate::oracle::report::Report;
use crate::store::{Results, Rows, mix};

const NUMBER: u32 = 4;

/// The rows that one attempt at a message wrote.
#[derive(Clone, Debug)]
pub(crate) struct WrittenRows {
    pub(crate) message: MessageIndex,
    /// Whether the message counted for the handler: it had not processed it before.
    pub(crate) counts: bool,
    /// The history after the message.
    pub(crate) chain: u64,
    /// The sum over the rows.
    pub(crate) visible: u64,
}

#[derive(Debug, Default)]
struct PartitionRows {
    written: HashMap<(Position, FencingToken), WrittenRows>,
    /// The sums that readers must see of committed messages, with their numbers.
    visible: HashMap<Position, (u64, u64)>,
}

/// The rows of every attempt, and those that readers must see.
#[derive(Debug, Default)]
pub(crate) struct StoredRows {
    partitions: PerPartition<PartitionRows>,
}

impl StoredRows {
    /// Notes that results of a message have reached the store. A late write must not change what a reader sees of a
    /// committed message.
    pub(crate) fn written(
        &mut self,
        report: &mut Report,
        now: Time,
        message: Option<MessageIndex>,
        results: &Results,
        store: &Rows,
    ) {
        let Results { partition, position, fencing_token, .. } = *results;
        let known = self.partitions.at(partition);
        if let Some(message) = message {
            let sum =
                results.rows.iter().fold(0, |sum, (indicator, row)| mix(sum, row ^ u64::from(*indicator)));
            let (counts, chain) = (results.counts, results.history.chain);
            let written = WrittenRows { message, counts, chain, visible: sum };
            known.written.insert((position, fencing_token), written);
        }
        if let Some(&(number, expected)) = known.visible.get(&position)
            && store.visible(partition, position, number) != expected
        {
            let what = format!("a late write changed the rows of message {number} of partition {partition}");
            report.violate(NUMBER, now, what);
        }
    }

    /// Keeps only what readers must see at committed positions: what is repeated is written again under new positions.
    pub(crate) fn retain(&mut self, partition: u32, mut is_committed: impl FnMut(Position) -> bool) {
        self.partitions.at(partition).visible.retain(|position, _| is_committed(*position));
    }

    /// Returns the rows of the attempt that commits a message, and reports if there are none.
    pub(crate) fn committed(
        &mut self,
        report: &mut Report,
        now: Time,
        name: &str,
        (partition, message): (u32, MessageIndex),
        is: &Cursor,
    ) -> Option<WrittenRows> {
        let written = self.partitions.at(partition).written.get(&(is.position, is.fencing_token));
        let written = written.filter(|written| written.message == message).cloned();
        if written.is_none() {
            let token = is.fencing_token;
            report.violate(NUMBER, now, format!("{name} is committed by token {token} without its rows"));
        }
        written
    }

    /// Checks what readers see of a message that is committed.
    pub(crate) fn check_visible(
        &mut self,
        report: &mut Report,
        now: Time,
        (partition, number, before): (u32, u64, MessageStatus),
        written: &WrittenRows,
        is: &Cursor,
        store: &Rows,
    ) {
        let (name, token) = (format!("message {number} of partition {partition}"), is.fencing_token);
        if store.visible(partition, is.position, number) != written.visible {
            report.violate(NUMBER, now, format!("the rows of {name} are not those of token {token}"));
        }
        // After a lost cursor a message may be repeated while an attempt at a later one has left its report: the later
        // message corrects it when it is repeated.
        let report_of = store.latest_report(partition);
        let is_later = before == MessageStatus::Reopened && report_of.is_some_and(|(said, _)| said > number);
        if !is_later && report_of != Some((number, token)) {
            let what = format!("the latest report of {name} is {report_of:?}, not that of token {token}");
            report.violate(NUMBER, now, what);
        }
        self.partitions.at(partition).visible.insert(is.position, (number, written.visible));
    }
}
