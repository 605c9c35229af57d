//! The scheduler of all partitions that this worker owns: inspection, waiting and processing.
//!
//! Partitions are processed in parallel up to a limit; the one that has waited longest starts first. A message with too
//! many failures and worker crashes is processed isolated.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::assignment::AssignmentChange;
use super::facts::Facts;
use super::io::{Effect, Event, LastMessage, LogInfo, LogInspection, Purpose, ReadError};
use super::outbox::Outbox;
use super::partition::{Activity, Partition, PartitionContext};
use super::policy::{FirstLog, Policy};
use super::release::{LastCursor, UnreleasedCursors};
use super::types::{Entry, Time, Version};

/// The delay before a failed inspection is repeated.
const INSPECTION_RETRY_DELAY: Duration = Duration::from_millis(500);

/// An inspection of many partitions: first their cursors, then the log.
#[derive(Debug)]
struct InspectionBatch {
    partitions: Vec<Arc<str>>,
    cursors: Option<Vec<Option<Entry>>>,
}

/// All partitions that this worker owns or has not released yet.
#[derive(Debug, Default)]
pub(super) struct Consumer {
    partitions: BTreeMap<Arc<str>, Partition>,
    /// The partition of each request.
    requests: BTreeMap<u64, Arc<str>>,
    inspections: BTreeMap<u64, InspectionBatch>,
    /// Partitions with a message that waits for a slot; the longest-waiting comes first.
    ready: BTreeSet<(Time, Arc<str>)>,
    /// Partitions whose message is being processed.
    running: BTreeSet<Arc<str>>,
    /// Partitions that wait for their previous owner.
    awaiting_handover: BTreeSet<Arc<str>>,
    /// Partitions with a delayed action, by the time of the action.
    delayed: BTreeSet<(Time, Arc<str>)>,
    /// Partitions that need an inspection.
    uninspected: BTreeSet<Arc<str>>,
    /// Partitions that a map took away and that are not released yet.
    releasing: BTreeSet<Arc<str>>,
    /// The partition whose message is processed isolated.
    isolated: Option<Arc<str>>,
    next_inspection: Time,
    next_poll: Time,
    draining: bool,
    /// Cursors of partitions that are no longer served here.
    unreleased: UnreleasedCursors,
    wants_map: bool,
    first_log: FirstLog,
    cursor_version: Version,
    processed: u64,
}

impl Consumer {
    /// Returns the number of messages that this worker has committed.
    pub(super) fn processed(&self) -> u64 {
        self.processed
    }

    /// The highest version seen in a cursor.
    pub(super) fn cursor_version(&self) -> Version {
        self.cursor_version
    }

    /// Whether every partition that a map took away is released.
    pub(super) fn has_released_all(&self) -> bool {
        self.releasing.is_empty()
    }

    /// Returns once that another worker follows a newer map, which must be read.
    pub(super) fn take_map_request(&mut self) -> bool {
        std::mem::take(&mut self.wants_map)
    }

    /// Applies the partitions that a map added and removed, and inspects every cursor again.
    pub(super) fn apply_change(&mut self, change: &AssignmentChange, policy: Policy) {
        if self.draining {
            return;
        }
        for name in &change.removed {
            self.update(name, |partition| partition.assigned = false);
        }
        for name in &change.added {
            self.unreleased.remove(name);
            if self.partitions.contains_key(name) {
                self.update(name, |partition| partition.on_reassigned(policy));
            } else {
                self.partitions.insert(name.clone(), Partition::new());
                self.uninspected.insert(name.clone());
            }
        }
        self.inspect_all();
    }

    fn inspect_all(&mut self) {
        let Self { partitions, uninspected, .. } = self;
        for (name, partition) in partitions.iter_mut().filter(|(_, partition)| partition.assigned) {
            partition.needs_inspection = true;
            uninspected.insert(name.clone());
        }
    }

    /// The fence has closed: everything that ran was dropped.
    pub(super) fn fence(&mut self, policy: Policy) {
        for (name, _) in self.partitions.extract_if(.., |_, partition| !partition.assigned) {
            self.unreleased.add(&name, LastCursor::Unknown);
        }
        self.partitions.values_mut().for_each(|partition| partition.fence(policy));
        let partitions = std::mem::take(&mut self.partitions);
        let uninspected = partitions.keys().cloned().collect();
        // Its cursor still announces the isolated attempt: nothing else starts before the next takeover.
        let isolated = partitions.iter().find(|(_, partition)| partition.is_isolated());
        let isolated = isolated.map(|(name, _)| name.clone());
        *self = Self {
            partitions,
            uninspected,
            isolated,
            draining: self.draining,
            unreleased: std::mem::take(&mut self.unreleased),
            first_log: self.first_log,
            cursor_version: self.cursor_version,
            processed: self.processed,
            ..Self::default()
        };
    }

    /// Starts no more messages and finishes those that are being processed.
    pub(super) fn drain(&mut self) {
        self.draining = true;
        for name in self.partitions.keys().cloned().collect::<Vec<_>>() {
            self.update(&name, |partition| partition.assigned = false);
        }
    }

    /// Cancels the messages that are still being processed.
    pub(super) fn abandon(&mut self, outbox: &mut Outbox) {
        for partition in &self.running {
            outbox.push(Effect::Cancel { partition: partition.clone() });
        }
        let (cursor_version, processed) = (self.cursor_version, self.processed);
        *self = Self { draining: true, cursor_version, processed, ..Self::default() };
    }

    /// Returns the cursors of partitions that are no longer served here.
    pub(super) fn unreleased(&mut self) -> &mut UnreleasedCursors {
        &mut self.unreleased
    }

    /// Whether an answer is for a partition, and what follows from it. Nothing follows behind a closed fence.
    pub(super) fn handle_event(&mut self, event: Event, facts: &Facts, outbox: &mut Outbox) {
        match event {
            Event::WakeUp(name) => self.step(&name, facts, outbox, Partition::on_wake_up),
            Event::Cursors { request_id, result } => {
                self.on_cursors(request_id.serial, result, facts, outbox)
            }
            Event::LogInspected { request_id, result } => {
                self.on_log_inspected(request_id.serial, result, facts, outbox)
            }
            Event::RecoveryPointRead { request_id, result } => {
                self.answer(request_id.serial, facts, outbox, |partition, ctx| {
                    partition.on_recovery_point(request_id, result, ctx);
                });
            }
            Event::LogRead { request_id, result } => {
                self.answer(request_id.serial, facts, outbox, |partition, ctx| {
                    partition.on_log_read(request_id, result, ctx);
                });
            }
            Event::Processed { request_id, outcome } => {
                self.answer(request_id.serial, facts, outbox, |partition, ctx| {
                    partition.processed(request_id, outcome, ctx);
                });
            }
            Event::DeadLetterStep { request_id, happened } => {
                self.answer(request_id.serial, facts, outbox, |partition, ctx| {
                    partition.on_dead_letter_step(request_id, happened, ctx);
                });
            }
            Event::Written { request_id, result } => {
                self.answer(request_id.serial, facts, outbox, |partition, ctx| {
                    partition.written(request_id, result, ctx);
                });
            }
            Event::Fetched { request_id, result } => {
                self.answer(request_id.serial, facts, outbox, |partition, ctx| {
                    partition.fetched(request_id, result, ctx);
                });
            }
            _ => {}
        }
    }

    fn answer(
        &mut self,
        serial: u64,
        facts: &Facts,
        outbox: &mut Outbox,
        act: impl FnOnce(&mut Partition, &mut PartitionContext<'_>),
    ) {
        if let Some(name) = self.requests.remove(&serial) {
            self.step(&name, facts, outbox, act);
        }
    }

    fn on_cursors(
        &mut self,
        serial: u64,
        result: Result<Vec<Option<Entry>>, ReadError>,
        facts: &Facts,
        outbox: &mut Outbox,
    ) {
        let Some(mut batch) = self.inspections.remove(&serial) else { return };
        match result {
            Err(ReadError) => self.retry_inspection(batch, serial, facts),
            Ok(cursors) if facts.config.consumes_log => {
                invariant!(cursors.len() == batch.partitions.len(), "one answer for each cursor");
                let partitions = batch.partitions.clone();
                let request_id = outbox
                    .request(Purpose::InspectLog, |request_id| Effect::InspectLog { request_id, partitions });
                for name in &batch.partitions {
                    if let Some(partition) =
                        self.partitions.get_mut(name).filter(|partition| partition.inspection == Some(serial))
                    {
                        partition.inspection = Some(request_id.serial);
                    }
                }
                batch.cursors = Some(cursors);
                self.inspections.insert(request_id.serial, batch);
            }
            Ok(cursors) => {
                for (name, entry) in batch.partitions.iter().zip(cursors) {
                    self.on_batch_inspected(name, serial, entry, None, facts, outbox);
                }
            }
        }
    }

    fn on_log_inspected(
        &mut self,
        serial: u64,
        result: Result<LogInspection, ReadError>,
        facts: &Facts,
        outbox: &mut Outbox,
    ) {
        let Some(batch) = self.inspections.remove(&serial) else { return };
        let Ok(LogInspection { mut info, last_messages: lasts }) = result else {
            self.retry_inspection(batch, serial, facts);
            return;
        };
        info.log_id = facts.policy().found_log(info.log_id, &mut self.first_log);
        let Some(cursors) = batch.cursors else { violated!("cursors are read before the log") };
        invariant!(cursors.len() == batch.partitions.len(), "one answer for each cursor");
        invariant!(lasts.len() == batch.partitions.len(), "one answer for each log");
        for ((name, entry), last) in batch.partitions.iter().zip(cursors).zip(lasts) {
            self.on_batch_inspected(name, serial, entry, Some((info, last)), facts, outbox);
        }
    }

    #[allow(clippy::too_many_arguments, reason = "one look at one partition, with and without a log")]
    fn on_batch_inspected(
        &mut self,
        name: &Arc<str>,
        serial: u64,
        entry: Option<Entry>,
        log: Option<(LogInfo, Option<LastMessage>)>,
        facts: &Facts,
        outbox: &mut Outbox,
    ) {
        if self.partitions.get(name).is_some_and(|partition| partition.inspection == Some(serial)) {
            self.step(name, facts, outbox, |partition, ctx| partition.on_inspected(entry, log, ctx));
        }
    }

    fn retry_inspection(&mut self, batch: InspectionBatch, serial: u64, facts: &Facts) {
        for name in batch.partitions {
            if let Some(partition) =
                self.partitions.get_mut(&name).filter(|partition| partition.inspection == Some(serial))
            {
                partition.inspection = None;
                partition.needs_inspection = true;
                self.uninspected.insert(name);
            }
        }
        self.next_inspection = facts.now + INSPECTION_RETRY_DELAY;
    }

    /// Runs what is due.
    pub(super) fn run_due(&mut self, facts: &Facts, outbox: &mut Outbox) {
        while let Some((_, name)) = self.delayed.first().filter(|(at, _)| *at <= facts.now).cloned() {
            self.step_indexed(&name, facts, outbox, Partition::run_delayed);
        }
        for name in self.awaiting_handover.iter().cloned().collect::<Vec<_>>() {
            self.step_indexed(&name, facts, outbox, Partition::try_take_over);
        }
        if facts.now >= self.next_poll && !self.draining {
            self.next_poll = facts.now + facts.config.poll_interval;
            self.check();
            self.inspect_all();
        }
        if !self.uninspected.is_empty() && facts.now >= self.next_inspection {
            self.start_inspection(outbox);
        }
        self.start_waiting(facts, outbox);
    }

    /// Reads the cursors of all partitions that need an inspection, in one request.
    fn start_inspection(&mut self, outbox: &mut Outbox) {
        invariant!(!self.uninspected.is_empty(), "an inspection has partitions");
        let partitions: Vec<Arc<str>> = std::mem::take(&mut self.uninspected).into_iter().collect();
        let names = partitions.clone();
        let request_id = outbox.request(Purpose::ReadCursors, |request_id| Effect::ReadCursors {
            request_id,
            partitions: names,
        });
        for name in &partitions {
            if let Some(partition) = self.partitions.get_mut(name) {
                partition.inspection = Some(request_id.serial);
                partition.needs_inspection = false;
            }
        }
        self.inspections.insert(request_id.serial, InspectionBatch { partitions, cursors: None });
    }

    fn start_waiting(&mut self, facts: &Facts, outbox: &mut Outbox) {
        while !self.draining && self.isolated.is_none() && self.running.len() < facts.config.max_concurrent {
            let Some((_, name)) = self.ready.first().cloned() else { return };
            let alone =
                self.partitions.get(&name).is_some_and(|partition| partition.needs_isolation(facts.policy()));
            if alone && !self.running.is_empty() {
                // Nothing else starts until it has run.
                return;
            }
            self.step_indexed(&name, facts, outbox, Partition::start);
        }
    }

    /// Asserts that the indexes name exactly the partitions in each activity.
    fn check(&self) {
        let count =
            |fits: fn(&Activity) -> bool| self.partitions.values().filter(|one| fits(&one.activity)).count();
        invariant!(
            self.ready.len() == count(|activity| matches!(activity, Activity::Ready { .. })),
            "every message that waits for a slot is indexed"
        );
        invariant!(
            self.running.len() == count(|activity| matches!(activity, Activity::Processing { .. })),
            "every message in progress is indexed"
        );
        invariant!(
            self.awaiting_handover.len()
                == count(|activity| matches!(activity, Activity::AwaitingHandover { .. })),
            "every partition that waits for a handover is indexed"
        );
        invariant!(
            self.delayed.len() == count(|activity| matches!(activity, Activity::Delayed { .. })),
            "every delayed action is indexed"
        );
        let released = |name: &Arc<str>| self.partitions.get(name).is_some_and(|one| !one.assigned);
        invariant!(self.releasing.iter().all(released), "only removed partitions are being released");
        let unassigned = self.partitions.values().filter(|one| !one.assigned).count();
        invariant!(self.releasing.len() == unassigned, "every removed partition is being released");
        let isolated = self.partitions.values().filter(|one| one.is_isolated()).count();
        invariant!(self.isolated.is_some() == (isolated > 0), "an isolated attempt is indexed");
    }

    /// Returns the time of the next timer.
    pub(super) fn next_deadline(&self, now: Time) -> Option<Time> {
        let delayed = self.delayed.first().map(|(at, _)| *at);
        // A heartbeat of the previous owner leads to a new decision; this timer is for an owner that stays silent.
        let waiting = (!self.awaiting_handover.is_empty()).then(|| now + INSPECTION_RETRY_DELAY);
        let inspection = (!self.uninspected.is_empty()).then_some(self.next_inspection);
        let poll = (!self.draining && !self.partitions.is_empty()).then_some(self.next_poll);
        [delayed, waiting, inspection, poll].into_iter().flatten().min()
    }

    /// Runs one step of a partition that an index names.
    fn step_indexed(
        &mut self,
        name: &Arc<str>,
        facts: &Facts,
        outbox: &mut Outbox,
        act: impl FnOnce(&mut Partition, &mut PartitionContext<'_>),
    ) {
        invariant!(self.partitions.contains_key(name), "an index names {name}, which is not served");
        self.step(name, facts, outbox, act);
    }

    /// Runs one step of a partition. An event for a partition that is no longer served changes nothing.
    fn step(
        &mut self,
        name: &Arc<str>,
        facts: &Facts,
        outbox: &mut Outbox,
        act: impl FnOnce(&mut Partition, &mut PartitionContext<'_>),
    ) {
        self.unindex(name);
        let Some(partition) = self.partitions.get_mut(name) else { return };
        let mut ctx = PartitionContext {
            facts,
            name,
            outbox,
            requests: &mut self.requests,
            needs_map: &mut self.wants_map,
            processed: &mut self.processed,
        };
        act(partition, &mut ctx);
        partition.check(name, facts.policy());
        self.cursor_version = self.cursor_version.max(partition.cursor_version().unwrap_or_default());
        self.index(name);
    }

    fn update(&mut self, name: &Arc<str>, act: impl FnOnce(&mut Partition)) {
        self.unindex(name);
        if let Some(partition) = self.partitions.get_mut(name) {
            act(partition);
        }
        self.index(name);
    }

    fn unindex(&mut self, name: &Arc<str>) {
        let Some(partition) = self.partitions.get(name) else { return };
        match &partition.activity {
            Activity::Ready { since, .. } => drop(self.ready.remove(&(*since, name.clone()))),
            Activity::Processing { .. } => drop(self.running.remove(name)),
            Activity::AwaitingHandover { .. } => drop(self.awaiting_handover.remove(name)),
            Activity::Delayed { until, .. } => drop(self.delayed.remove(&(*until, name.clone()))),
            _ => {}
        }
        if self.isolated.as_ref() == Some(name) {
            self.isolated = None;
        }
    }

    /// Keeps the lists true; a partition that is lost goes as soon as nothing of it must be finished.
    fn index(&mut self, name: &Arc<str>) {
        let Some(partition) = self.partitions.get(name) else { return };
        if !partition.assigned {
            if partition.is_idle() {
                if let Some(partition) = self.partitions.remove(name) {
                    self.unreleased.add(name, partition.last_cursor());
                }
                self.releasing.remove(name);
                self.uninspected.remove(name);
                return;
            }
            self.releasing.insert(name.clone());
        } else {
            self.releasing.remove(name);
        }
        match &partition.activity {
            Activity::Ready { since, .. } => drop(self.ready.insert((*since, name.clone()))),
            Activity::Processing { .. } => drop(self.running.insert(name.clone())),
            Activity::AwaitingHandover { .. } => drop(self.awaiting_handover.insert(name.clone())),
            Activity::Delayed { until, .. } => drop(self.delayed.insert((*until, name.clone()))),
            _ => {}
        }
        if partition.is_isolated() {
            self.isolated = Some(name.clone());
        }
        if partition.needs_inspection && partition.assigned {
            self.uninspected.insert(name.clone());
        }
    }
}

#[cfg(test)]
#[path = "consumer_test.rs"]
mod tests;
