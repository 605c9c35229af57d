//! Counts of messages by their outcomes.

use std::ops::AddAssign;

/// Counts of messages. Each published message is in exactly one of `committed`, `dead_lettered`, `expired`, `duplicates`,
/// `lost_by_broker` and `lost`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages that the log acknowledged.
    pub published: u64,
    /// Messages committed with results of their own.
    pub committed: u64,
    /// Messages dead-lettered.
    pub dead_lettered: u64,
    /// Messages that the log deleted by age before a worker resolved them.
    pub expired: u64,
    /// Messages published again: dropped by the log by their id, or committed without results.
    pub duplicates: u64,
    /// Messages that the broker lost before a worker resolved them, with the whole log or with its tail.
    pub lost_by_broker: u64,
    /// Messages that are in the log and that no worker resolved.
    pub lost: u64,
    /// Messages committed twice.
    pub double_committed: u64,
    /// Messages committed out of their order.
    pub order_violations: u64,
}

impl Counts {
    /// Returns the number of messages with an outcome. At the end of a run it equals `published`.
    pub fn resolved(&self) -> u64 {
        self.committed + self.dead_lettered + self.expired + self.duplicates + self.lost_by_broker
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.published += other.published;
        self.committed += other.committed;
        self.dead_lettered += other.dead_lettered;
        self.expired += other.expired;
        self.duplicates += other.duplicates;
        self.lost_by_broker += other.lost_by_broker;
        self.lost += other.lost;
        self.double_committed += other.double_committed;
        self.order_violations += other.order_violations;
    }
}
