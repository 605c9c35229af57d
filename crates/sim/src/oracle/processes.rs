//! Independent record of the processes: which live, which had faults, and which messages they process.

use std::time::Duration;

use phalanx_cluster_core::types::Time;

use crate::fleet::ProcessId;
use crate::oracle::messages::MessageIndex;
use crate::oracle::per_partition::PerPartition;

/// The time after a fault in which its process is not expected to be the only one that processes a partition.
const RECOVERY_MARGIN: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct ProcessRecord {
    is_alive: bool,
    /// The time until which it may misbehave: it was stopped, cut off, or got no answer.
    disturbed_until: Time,
    /// Whether it ever had a fault.
    is_disturbed: bool,
}

/// Every process that was started.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    all: Vec<ProcessRecord>,
}

impl Processes {
    /// Notes that the next process starts.
    pub(crate) fn started(&mut self) {
        self.all.push(ProcessRecord { is_alive: true, disturbed_until: Time::ZERO, is_disturbed: false });
    }

    /// Notes that a process ends.
    pub(crate) fn ended(&mut self, process: ProcessId) {
        self.all[process.index()].is_alive = false;
    }

    /// Notes that a process has a fault until then.
    pub(crate) fn disturb(&mut self, process: ProcessId, until: Time) {
        let record = &mut self.all[process.index()];
        record.disturbed_until = record.disturbed_until.max(recovered(until));
        record.is_disturbed = true;
    }

    /// Notes that every process has a fault.
    pub(crate) fn disturb_all(&mut self, until: Time) {
        (0..self.all.len() as u32).for_each(|process| self.disturb(ProcessId(process), until));
    }

    /// Notes that the fault of a process is over.
    pub(crate) fn recover(&mut self, process: ProcessId, now: Time) {
        self.all[process.index()].disturbed_until = recovered(now);
    }

    /// Notes that a process is expected to do well although it had a fault.
    pub(crate) fn expect_healthy(&mut self, process: ProcessId) {
        let record = &mut self.all[process.index()];
        (record.disturbed_until, record.is_disturbed) = (Time::ZERO, false);
    }

    /// Returns whether a process ever had a fault.
    pub(crate) fn is_disturbed(&self, process: ProcessId) -> bool {
        self.all[process.index()].is_disturbed
    }

    /// Returns whether a process lives and had no fault lately.
    pub(crate) fn is_undisturbed(&self, process: ProcessId, now: Time) -> bool {
        let record = &self.all[process.index()];
        record.is_alive && record.disturbed_until <= now
    }
}

/// Returns the time from which a process is expected to do well after a fault that ends at `end`.
fn recovered(end: Time) -> Time {
    if end == Time::MAX { Time::MAX } else { end + RECOVERY_MARGIN }
}

/// The messages that are being processed.
#[derive(Debug, Default)]
pub(crate) struct Running {
    partitions: PerPartition<Vec<(ProcessId, MessageIndex)>>,
}

impl Running {
    /// Notes that a process starts a message.
    pub(crate) fn started(&mut self, process: ProcessId, partition: u32, message: MessageIndex) {
        self.partitions.at(partition).push((process, message));
    }

    /// Notes that a process does not process a partition any more. Returns its messages.
    pub(crate) fn ended(&mut self, process: ProcessId, partition: u32) -> Vec<MessageIndex> {
        let running = self.partitions.at(partition);
        running.extract_if(.., |(running, _)| *running == process).map(|(_, message)| message).collect()
    }

    /// Returns the processes that process a partition.
    pub(crate) fn on(&mut self, partition: u32) -> impl Iterator<Item = ProcessId> {
        self.partitions.at(partition).iter().map(|(process, _)| *process)
    }

    /// Returns the first partition that a process processes.
    pub(crate) fn partition_of(&self, process: ProcessId) -> Option<u32> {
        let mut partitions = self.partitions.iter();
        partitions.find(|(_, on)| on.iter().any(|(running, _)| *running == process)).map(|(found, _)| found)
    }
}
