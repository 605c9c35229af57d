//! Invariant 17: every message lost to age is counted.

use phalanx_cluster_core::types::{Sequence, Time};

use crate::oracle::messages::{MessageIndex, MessageStatus, Messages};
use crate::oracle::per_partition::PerPartition;
use crate::oracle::report::Report;

const NUMBER: u32 = 17;

/// The maximum number of messages that are reported.
const MAX_REPORTED: usize = 20;

#[derive(Debug, Default)]
struct PartitionExpiry {
    /// Whether a worker ever owned it: no worker can know what other partitions have lost.
    is_owned: bool,
    /// The messages that expired unread, each with the log that held it.
    expired: Vec<(u64, Sequence, MessageIndex)>,
    /// The ranges that workers have reported, without their ends, each with the log.
    reported: Vec<(u64, Sequence, Sequence)>,
}

/// The messages that expired unread, and the ranges that workers reported as expired.
#[derive(Debug, Default)]
pub(crate) struct CountedExpiry {
    partitions: PerPartition<PartitionExpiry>,
}

impl CountedExpiry {
    /// Notes that a worker owns a partition.
    pub(crate) fn owned(&mut self, partition: u32) {
        self.partitions.at(partition).is_owned = true;
    }

    /// Notes that a message expired unread.
    pub(crate) fn expired(
        &mut self,
        log_epoch: u64,
        partition: u32,
        sequence: Sequence,
        message: MessageIndex,
    ) {
        let known = self.partitions.at(partition);
        if known.is_owned {
            known.expired.push((log_epoch, sequence, message));
        }
    }

    /// Notes that a worker reports the messages between two sequences as expired.
    pub(crate) fn reported(&mut self, log_epoch: u64, partition: u32, after: Sequence, before: Sequence) {
        self.partitions.at(partition).reported.push((log_epoch, after, before));
    }

    /// Forgets what expired: cursor and stored state are lost, so nothing is left that could tell.
    pub(crate) fn forget(&mut self, partition: u32) {
        self.partitions.at(partition).expired.clear();
    }

    /// Checks that each expired message of an owned partition was reported.
    pub(crate) fn finish(
        &mut self,
        report: &mut Report,
        now: Time,
        messages: &mut Messages,
        is_owned: impl Fn(u32) -> bool,
    ) {
        let log_epoch = messages.log().0;
        let mut reported = 0;
        for (partition, known) in self.partitions.iter_mut() {
            for &(epoch, sequence, message) in &known.expired {
                let is_counted = known.reported.iter().any(|&(in_epoch, after, before)| {
                    in_epoch == epoch && after < sequence && sequence < before
                });
                let is_lost = messages.of(partition).message(message).status == MessageStatus::Expired;
                if is_lost && !is_counted && epoch == log_epoch && is_owned(partition) {
                    let what =
                        format!("sequence {sequence} of partition {partition} is gone by age, uncounted");
                    reported += 1;
                    if reported <= MAX_REPORTED {
                        report.violate(NUMBER, now, what);
                    }
                }
            }
        }
    }
}
