//! The scheduler of all partitions that this worker owns: inspection, waiting and processing.
//!
//! Partitions are processed in parallel up to a limit; the one that has waited longest starts first. A message with too
//! many failures and worker crashes is processed isolated.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::ProtocolRule;
use super::assignment::AssignmentChange;
use super::config::Config;
use super::health::HealthyClock;
use super::io::{Effect, Event, LastMessage, LogInfo, LogInspection, Purpose, ReadError, RequestIds};
use super::partition::{Activity, Partition, PartitionContext};
use super::release::{LastCursor, UnreleasedCursors};
use super::roster::Roster;
use super::types::{AssignmentMap, Entry, LogId, Time, Version, WorkerIncarnation};

/// The delay before a failed inspection is repeated.
const INSPECTION_RETRY_DELAY: Duration = Duration::from_millis(500);

/// The inputs of the consumer.
pub(super) struct ConsumerContext<'a> {
    pub(super) now: Time,
    pub(super) config: &'a Config,
    pub(super) me: WorkerIncarnation,
    pub(super) map: &'a AssignmentMap,
    pub(super) roster: &'a Roster,
    pub(super) clock: &'a HealthyClock,
    /// The newest time of the broker that was seen, in microseconds.
    pub(super) broker_time: u64,
}

/// An inspection of many partitions: first their cursors, then the log.
#[derive(Debug)]
struct InspectionBatch {
    partitions: Vec<Arc<str>>,
    cursors: Option<Vec<Option<Entry>>>,
}

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
    /// The first log ever found: what a worker without the rule goes by.
    first_log: Option<LogId>,
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
    pub(super) fn apply_change(&mut self, change: &AssignmentChange, config: &Config) {
        if self.draining {
            return;
        }
        for name in &change.removed {
            self.update(name, |partition| partition.assigned = false);
        }
        for name in &change.added {
            self.unreleased.remove(name);
            if self.partitions.contains_key(name) {
                self.update(name, |partition| partition.on_reassigned(config));
            } else {
                self.partitions.insert(name.clone(), Partition::new());
                self.uninspected.insert(name.clone());
            }
        }
        self.inspect_all();
    }

    fn inspect_all(&mut self) {
        let Self { partitions, uninspected: unseen, .. } = self;
        for (name, partition) in partitions.iter_mut().filter(|(_, partition)| partition.assigned) {
            partition.needs_inspection = true;
            unseen.insert(name.clone());
        }
    }

    /// The fence has closed: everything that ran was dropped.
    pub(super) fn fence(&mut self, config: &Config) {
        for (name, _) in self.partitions.extract_if(.., |_, partition| !partition.assigned) {
            self.unreleased.add(&name, LastCursor::Unknown);
        }
        self.partitions.values_mut().for_each(|partition| partition.fence(config));
        let partitions = std::mem::take(&mut self.partitions);
        let unseen = partitions.keys().cloned().collect();
        *self = Self {
            partitions,
            uninspected: unseen,
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
    pub(super) fn abandon(&mut self, out: &mut Vec<Effect>) {
        out.extend(self.running.iter().map(|partition| Effect::Cancel { partition: partition.clone() }));
        let (cursor_version, processed) = (self.cursor_version, self.processed);
        *self = Self { draining: true, cursor_version, processed, ..Self::default() };
    }

    /// Returns the cursors of partitions that are no longer served here.
    pub(super) fn unreleased(&mut self) -> &mut UnreleasedCursors {
        &mut self.unreleased
    }

    /// Whether an answer is for a partition, and what follows from it. Nothing follows behind a closed fence.
    pub(super) fn handle_event(
        &mut self,
        event: Event,
        context: &ConsumerContext<'_>,
        request_ids: &mut RequestIds,
        out: &mut Vec<Effect>,
    ) {
        match event {
            Event::WakeUp(name) => self.step(&name, context, request_ids, out, Partition::on_wake_up),
            Event::Cursors { request_id, result } => {
                self.cursors(request_id.serial, result, context, request_ids, out)
            }
            Event::LogInspected { request_id, result } => {
                self.surveyed(request_id.serial, result, context, request_ids, out)
            }
            Event::RecoveryPointRead { request_id, result } => {
                self.answer(request_id.serial, context, request_ids, out, |partition, ctx| {
                    partition.on_recovery_point(request_id, result, ctx);
                });
            }
            Event::LogRead { request_id, result } => {
                self.answer(request_id.serial, context, request_ids, out, |partition, ctx| {
                    partition.on_log_read(request_id, result, ctx);
                });
            }
            Event::Processed { request_id, outcome } => {
                self.answer(request_id.serial, context, request_ids, out, |partition, ctx| {
                    partition.processed(request_id, outcome, ctx);
                });
            }
            Event::DeadLetterStep { request_id, happened } => {
                self.answer(request_id.serial, context, request_ids, out, |partition, ctx| {
                    partition.on_dead_letter_step(request_id, happened, ctx);
                });
            }
            Event::Written { request_id, result } => {
                self.answer(request_id.serial, context, request_ids, out, |partition, ctx| {
                    partition.written(request_id, result, ctx);
                });
            }
            Event::Fetched { request_id, result } => {
                self.answer(request_id.serial, context, request_ids, out, |partition, ctx| {
                    partition.fetched(request_id, result, ctx);
                });
            }
            _ => {}
        }
    }

    fn answer(
        &mut self,
        serial: u64,
        context: &ConsumerContext<'_>,
        request_ids: &mut RequestIds,
        out: &mut Vec<Effect>,
        act: impl FnOnce(&mut Partition, &mut PartitionContext<'_>),
    ) {
        if let Some(name) = self.requests.remove(&serial) {
            self.step(&name, context, request_ids, out, act);
        }
    }

    fn cursors(
        &mut self,
        serial: u64,
        result: Result<Vec<Option<Entry>>, ReadError>,
        context: &ConsumerContext<'_>,
        request_ids: &mut RequestIds,
        out: &mut Vec<Effect>,
    ) {
        let Some(mut look) = self.inspections.remove(&serial) else { return };
        match result {
            Err(ReadError) => self.retry_inspection(look, serial, context),
            Ok(cursors) if context.config.consumes_log => {
                let request_id = request_ids.next(Purpose::InspectLog);
                out.push(Effect::InspectLog { request_id, partitions: look.partitions.clone() });
                for name in &look.partitions {
                    if let Some(partition) =
                        self.partitions.get_mut(name).filter(|partition| partition.inspection == Some(serial))
                    {
                        partition.inspection = Some(request_id.serial);
                    }
                }
                look.cursors = Some(cursors);
                self.inspections.insert(request_id.serial, look);
            }
            Ok(cursors) => {
                for (name, entry) in look.partitions.iter().zip(cursors) {
                    self.on_batch_inspected(name, serial, entry, None, context, request_ids, out);
                }
            }
        }
    }

    fn surveyed(
        &mut self,
        serial: u64,
        result: Result<LogInspection, ReadError>,
        context: &ConsumerContext<'_>,
        request_ids: &mut RequestIds,
        out: &mut Vec<Effect>,
    ) {
        let Some(look) = self.inspections.remove(&serial) else { return };
        let Ok(LogInspection { mut info, last_messages: lasts }) = result else {
            self.retry_inspection(look, serial, context);
            return;
        };
        let first_log = *self.first_log.get_or_insert(info.log_id);
        if !context.config.enforces(ProtocolRule::LogIdAfterCursor) {
            info.log_id = first_log;
        }
        let cursors = look.cursors.unwrap_or_default();
        for ((name, entry), last) in look.partitions.iter().zip(cursors).zip(lasts) {
            self.on_batch_inspected(name, serial, entry, Some((info, last)), context, request_ids, out);
        }
    }

    #[allow(clippy::too_many_arguments, reason = "one look at one partition, with and without a log")]
    fn on_batch_inspected(
        &mut self,
        name: &Arc<str>,
        serial: u64,
        entry: Option<Entry>,
        log: Option<(LogInfo, Option<LastMessage>)>,
        context: &ConsumerContext<'_>,
        request_ids: &mut RequestIds,
        out: &mut Vec<Effect>,
    ) {
        if self.partitions.get(name).is_some_and(|partition| partition.inspection == Some(serial)) {
            self.step(name, context, request_ids, out, |partition, ctx| {
                partition.on_inspected(entry, log, ctx)
            });
        }
    }

    fn retry_inspection(&mut self, look: InspectionBatch, serial: u64, context: &ConsumerContext<'_>) {
        for name in look.partitions {
            if let Some(partition) =
                self.partitions.get_mut(&name).filter(|partition| partition.inspection == Some(serial))
            {
                partition.inspection = None;
                partition.needs_inspection = true;
                self.uninspected.insert(name);
            }
        }
        self.next_inspection = context.now + INSPECTION_RETRY_DELAY;
    }

    /// Runs what is due.
    pub(super) fn run_due(
        &mut self,
        context: &ConsumerContext<'_>,
        request_ids: &mut RequestIds,
        out: &mut Vec<Effect>,
    ) {
        while let Some((_, name)) = self.delayed.first().filter(|(at, _)| *at <= context.now).cloned() {
            self.step(&name, context, request_ids, out, Partition::run_delayed);
        }
        for name in self.awaiting_handover.iter().cloned().collect::<Vec<_>>() {
            self.step(&name, context, request_ids, out, Partition::try_take_over);
        }
        if context.now >= self.next_poll && !self.draining {
            self.next_poll = context.now + context.config.poll_interval;
            self.inspect_all();
        }
        if !self.uninspected.is_empty() && context.now >= self.next_inspection {
            self.start_inspection(request_ids, out);
        }
        self.start_waiting(context, request_ids, out);
    }

    /// Reads the cursors of all partitions that need an inspection, in one request.
    fn start_inspection(&mut self, request_ids: &mut RequestIds, out: &mut Vec<Effect>) {
        let partitions: Vec<Arc<str>> = std::mem::take(&mut self.uninspected).into_iter().collect();
        let request_id = request_ids.next(Purpose::ReadCursors);
        for name in &partitions {
            if let Some(partition) = self.partitions.get_mut(name) {
                partition.inspection = Some(request_id.serial);
                partition.needs_inspection = false;
            }
        }
        out.push(Effect::ReadCursors { request_id, partitions: partitions.clone() });
        self.inspections.insert(request_id.serial, InspectionBatch { partitions, cursors: None });
    }

    fn start_waiting(
        &mut self,
        context: &ConsumerContext<'_>,
        request_ids: &mut RequestIds,
        out: &mut Vec<Effect>,
    ) {
        while !self.draining && self.isolated.is_none() && self.running.len() < context.config.max_concurrent
        {
            let Some((_, name)) = self.ready.first().cloned() else { return };
            let alone =
                self.partitions.get(&name).is_some_and(|partition| partition.needs_isolation(context.config));
            if alone && !self.running.is_empty() {
                // Nothing else starts until it has run.
                return;
            }
            self.step(&name, context, request_ids, out, Partition::start);
        }
    }

    /// Returns the time of the next timer.
    pub(super) fn next_deadline(&self, context: &ConsumerContext<'_>) -> Option<Time> {
        let delayed = self.delayed.first().map(|(at, _)| *at);
        // A heartbeat of the previous owner leads to a new decision; this timer is for an owner that stays silent.
        let waiting = (!self.awaiting_handover.is_empty()).then(|| context.now + INSPECTION_RETRY_DELAY);
        let look = (!self.uninspected.is_empty()).then_some(self.next_inspection);
        let sweep = (!self.draining && !self.partitions.is_empty()).then_some(self.next_poll);
        [delayed, waiting, look, sweep].into_iter().flatten().min()
    }

    fn step(
        &mut self,
        name: &Arc<str>,
        context: &ConsumerContext<'_>,
        request_ids: &mut RequestIds,
        out: &mut Vec<Effect>,
        act: impl FnOnce(&mut Partition, &mut PartitionContext<'_>),
    ) {
        self.unindex(name);
        let Some(partition) = self.partitions.get_mut(name) else { return };
        let mut ctx = PartitionContext {
            consumer: context,
            name,
            request_ids,
            asked: &mut self.requests,
            out,
            needs_map: &mut self.wants_map,
            processed: &mut self.processed,
        };
        act(partition, &mut ctx);
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
