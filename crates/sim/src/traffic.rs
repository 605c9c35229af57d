//! The partitions and their publishers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use phalanx_cluster_core::types::{PartitionList, Weight};

use crate::HashMap;
use crate::broker::MessageKind;
use crate::rng::Rng;

/// The partitions, and what they publish.
#[derive(Debug)]
pub(crate) struct Traffic {
    names: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
    /// The list that workers are given.
    listed: Arc<PartitionList>,
    /// The publisher's next number for each partition.
    next_numbers: Vec<u64>,
    /// The kinds of the next messages of partitions.
    planned_kinds: BTreeMap<u32, MessageKind>,
    /// The mean time between two messages of one partition; none for no traffic.
    mean: Option<Duration>,
    is_enabled: bool,
    rng: Rng,
}

impl Traffic {
    /// Partitions named `tool:0`, `tool:1`, …, all of them listed.
    pub(crate) fn new(partitions: usize, mean: Option<Duration>, seed: u64) -> Self {
        // Weights spread over a factor of 120, as partitions have them.
        let weight = |i: usize| Weight(30_000 * (1 + (i as u64).wrapping_mul(2_654_435_761) % 120));
        let names: Vec<Arc<str>> = (0..partitions).map(|i| Arc::from(format!("tool:{i}"))).collect();
        Self {
            listed: names.iter().enumerate().map(|(i, name)| (name.clone(), weight(i))).collect(),
            numbers: names.iter().enumerate().map(|(i, name)| (name.clone(), i as u32)).collect(),
            next_numbers: vec![0; names.len()],
            names,
            planned_kinds: BTreeMap::new(),
            mean,
            is_enabled: mean.is_some(),
            rng: Rng::new(seed),
        }
    }

    /// Returns the number of partitions that ever existed.
    pub(crate) fn partitions(&self) -> u32 {
        self.names.len() as u32
    }

    /// Returns the list that workers are given.
    pub(crate) fn listed(&self) -> &Arc<PartitionList> {
        &self.listed
    }

    /// Returns the name of a partition.
    pub(crate) fn name(&self, partition: u32) -> &Arc<str> {
        &self.names[partition as usize]
    }

    /// Returns the partition with a name.
    pub(crate) fn partition(&self, name: &str) -> u32 {
        self.numbers[name]
    }

    /// Returns the partition with a name, if there is one.
    pub(crate) fn find(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    /// Adds a partition that is not listed.
    pub(crate) fn add_unlisted(&mut self) -> u32 {
        let partition = self.partitions();
        let name: Arc<str> = format!("tool:{partition}").into();
        self.names.push(name.clone());
        self.numbers.insert(name, partition);
        self.next_numbers.push(0);
        partition
    }

    /// Removes a partition from the list.
    pub(crate) fn unlist(&mut self, partition: u32) {
        let name = self.name(partition).clone();
        self.listed = self.listed.iter().filter(|(known, _)| *known != name).cloned().collect();
    }

    /// Returns the number of messages that were published for a partition.
    pub(crate) fn published(&self, partition: u32) -> u64 {
        self.next_numbers[partition as usize]
    }

    /// Returns the number of the next message of a partition, and counts it.
    pub(crate) fn next_number(&mut self, partition: u32) -> u64 {
        let next = &mut self.next_numbers[partition as usize];
        *next += 1;
        *next - 1
    }

    /// Sets the kind of the next message of a partition.
    pub(crate) fn plan_kind(&mut self, partition: u32, kind: MessageKind) {
        self.planned_kinds.insert(partition, kind);
    }

    /// Returns the kind of the message that a partition publishes now; none if the traffic has stopped.
    pub(crate) fn next_kind(&mut self, partition: u32) -> Option<MessageKind> {
        let kind = |kinds: &mut BTreeMap<u32, MessageKind>| kinds.remove(&partition);
        self.is_enabled.then(|| kind(&mut self.planned_kinds).unwrap_or(MessageKind::Good))
    }

    /// Returns the time until the next message of a partition; none without traffic.
    pub(crate) fn next_interval(&mut self) -> Option<Duration> {
        let mean = self.mean?.as_millis() as u64;
        Some(Duration::from_millis(self.rng.between(mean / 2, mean * 3 / 2)))
    }

    /// Returns the time that the processing of a good message takes.
    pub(crate) fn processing_time(&mut self) -> Duration {
        Duration::from_millis(self.rng.between(2, 200))
    }

    /// Stops the traffic.
    pub(crate) fn stop(&mut self) {
        self.is_enabled = false;
    }

    /// Makes all messages good from now on.
    pub(crate) fn disable_faults(&mut self) {
        self.planned_kinds.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_planned_kind_is_used_once_and_an_unlisted_partition_is_not_listed() {
        let mut traffic = Traffic::new(2, Some(Duration::from_secs(60)), 1);
        traffic.plan_kind(1, MessageKind::Poison);
        assert_eq!(traffic.next_kind(1), Some(MessageKind::Poison));
        assert_eq!(traffic.next_kind(1), Some(MessageKind::Good));
        assert_eq!((traffic.add_unlisted(), traffic.listed().len()), (2, 2));
        traffic.unlist(0);
        assert_eq!((traffic.listed().len(), traffic.partition("tool:2")), (1, 2));
        traffic.stop();
        assert_eq!(traffic.next_kind(1), None);
    }
}
