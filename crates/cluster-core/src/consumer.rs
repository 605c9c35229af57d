//! All partitions that this worker owns: who is looked at, who waits, who runs.
//!
//! Partitions run side by side up to a limit, the one that has waited longest first. A message that was there too often
//! when something went wrong runs with nothing beside it.

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
use super::types::{AssignmentMap, Entry, Time, Version, WorkerIncarnation};

/// A survey that failed is repeated after this.
const SURVEY_RETRY: Duration = Duration::from_millis(500);

/// What consumption may look at.
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

/// A look at many partitions: first their cursors, then the log.
#[derive(Debug)]
struct InspectionBatch {
    partitions: Vec<Arc<str>>,
    cursors: Option<Vec<Option<Entry>>>,
}

#[derive(Debug, Default)]
pub(super) struct Consumer {
    partitions: BTreeMap<Arc<str>, Partition>,
    /// Whose request it was.
    requests: BTreeMap<u64, Arc<str>>,
    inspections: BTreeMap<u64, InspectionBatch>,
    /// Who has a message and waits for a slot, the longest-waiting first.
    ready: BTreeSet<(Time, Arc<str>)>,
    /// Whose message is processed.
    running: BTreeSet<Arc<str>>,
    /// Who waits for the last holder.
    awaiting_handover: BTreeSet<Arc<str>>,
    /// Who is tried again, and when.
    delayed: BTreeSet<(Time, Arc<str>)>,
    /// Who must be looked at.
    uninspected: BTreeSet<Arc<str>>,
    /// Who is lost and not let go of yet.
    releasing: BTreeSet<Arc<str>>,
    /// Whose message runs with nothing beside it.
    isolated: Option<Arc<str>>,
    next_inspection: Time,
    next_poll: Time,
    draining: bool,
    /// Cursors of partitions that are no longer served here.
    unreleased: UnreleasedCursors,
    wants_map: bool,
    /// The first log ever found: what a worker without the rule goes by.
    first_log: Option<u64>,
    cursor_version: Version,
    processed: u64,
}

impl Consumer {
    /// How many messages this worker has committed.
    pub(super) fn processed(&self) -> u64 {
        self.processed
    }

    /// The highest version seen in a cursor.
    pub(super) fn cursor_version(&self) -> Version {
        self.cursor_version
    }

    /// Whether everything lost is let go of.
    pub(super) fn has_released_all(&self) -> bool {
        self.releasing.is_empty()
    }

    /// Somebody follows a map newer than ours: it must be read. Says so once.
    pub(super) fn take_map_request(&mut self) -> bool {
        std::mem::take(&mut self.wants_map)
    }

    /// A map gives and takes partitions, and every cursor is looked at again.
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

    /// Nothing new is started; what runs is finished.
    pub(super) fn drain(&mut self) {
        self.draining = true;
        for name in self.partitions.keys().cloned().collect::<Vec<_>>() {
            self.update(&name, |partition| partition.assigned = false);
        }
    }

    /// What still runs is given up.
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
        ground: &ConsumerContext<'_>,
        request_ids: &mut RequestIds,
        out: &mut Vec<Effect>,
    ) {
        match event {
            Event::WakeUp(name) => self.step(&name, ground, request_ids, out, Partition::on_wake_up),
            Event::Cursors { request_id, result } => {
                self.cursors(request_id.serial, result, ground, request_ids, out)
            }
            Event::LogInspected { request_id, result } => {
                self.surveyed(request_id.serial, result, ground, request_ids, out)
            }
            Event::RecoveryPointRead { request_id, result } => {
                self.answer(request_id.serial, ground, request_ids, out, |partition, ctx| {
                    partition.on_recovery_point(request_id, result, ctx);
                });
            }
            Event::LogRead { request_id, result } => {
                self.answer(request_id.serial, ground, request_ids, out, |partition, ctx| {
                    partition.on_log_read(request_id, result, ctx);
                });
            }
            Event::Processed { request_id, outcome } => {
                self.answer(request_id.serial, ground, request_ids, out, |partition, ctx| {
                    partition.processed(request_id, outcome, ctx);
                });
            }
            Event::DeadLetterStep { request_id, happened } => {
                self.answer(request_id.serial, ground, request_ids, out, |partition, ctx| {
                    partition.on_dead_letter_step(request_id, happened, ctx);
                });
            }
            Event::Written { request_id, result } => {
                self.answer(request_id.serial, ground, request_ids, out, |partition, ctx| {
                    partition.written(request_id, result, ctx);
                });
            }
            Event::Fetched { request_id, result } => {
                self.answer(request_id.serial, ground, request_ids, out, |partition, ctx| {
                    partition.fetched(request_id, result, ctx);
                });
            }
            _ => {}
        }
    }

    fn answer(
        &mut self,
        serial: u64,
        ground: &ConsumerContext<'_>,
        request_ids: &mut RequestIds,
        out: &mut Vec<Effect>,
        act: impl FnOnce(&mut Partition, &mut PartitionContext<'_>),
    ) {
        if let Some(name) = self.requests.remove(&serial) {
            self.step(&name, ground, request_ids, out, act);
        }
    }

    fn cursors(
        &mut self,
        serial: u64,
        result: Result<Vec<Option<Entry>>, ReadError>,
        ground: &ConsumerContext<'_>,
        request_ids: &mut RequestIds,
        out: &mut Vec<Effect>,
    ) {
        let Some(mut look) = self.inspections.remove(&serial) else { return };
        match result {
            Err(ReadError) => self.retry_inspection(look, serial, ground),
            Ok(cursors) if ground.config.consumes_log => {
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
                    self.on_batch_inspected(name, serial, entry, None, ground, request_ids, out);
                }
            }
        }
    }

    fn surveyed(
        &mut self,
        serial: u64,
        result: Result<LogInspection, ReadError>,
        ground: &ConsumerContext<'_>,
        request_ids: &mut RequestIds,
        out: &mut Vec<Effect>,
    ) {
        let Some(look) = self.inspections.remove(&serial) else { return };
        let Ok(LogInspection { mut info, last_messages: lasts }) = result else {
            self.retry_inspection(look, serial, ground);
            return;
        };
        let first_log = *self.first_log.get_or_insert(info.log_id);
        if !ground.config.enforces(ProtocolRule::LogIdAfterCursor) {
            info.log_id = first_log;
        }
        let cursors = look.cursors.unwrap_or_default();
        for ((name, entry), last) in look.partitions.iter().zip(cursors).zip(lasts) {
            self.on_batch_inspected(name, serial, entry, Some((info, last)), ground, request_ids, out);
        }
    }

    #[allow(clippy::too_many_arguments, reason = "one look at one partition, with and without a log")]
    fn on_batch_inspected(
        &mut self,
        name: &Arc<str>,
        serial: u64,
        entry: Option<Entry>,
        log: Option<(LogInfo, Option<LastMessage>)>,
        ground: &ConsumerContext<'_>,
        request_ids: &mut RequestIds,
        out: &mut Vec<Effect>,
    ) {
        if self.partitions.get(name).is_some_and(|partition| partition.inspection == Some(serial)) {
            self.step(name, ground, request_ids, out, |partition, ctx| {
                partition.on_inspected(entry, log, ctx)
            });
        }
    }

    fn retry_inspection(&mut self, look: InspectionBatch, serial: u64, ground: &ConsumerContext<'_>) {
        for name in look.partitions {
            if let Some(partition) =
                self.partitions.get_mut(&name).filter(|partition| partition.inspection == Some(serial))
            {
                partition.inspection = None;
                partition.needs_inspection = true;
                self.uninspected.insert(name);
            }
        }
        self.next_inspection = ground.now + SURVEY_RETRY;
    }

    /// Does whatever is due.
    pub(super) fn run_due(
        &mut self,
        ground: &ConsumerContext<'_>,
        request_ids: &mut RequestIds,
        out: &mut Vec<Effect>,
    ) {
        while let Some((_, name)) = self.delayed.first().filter(|(at, _)| *at <= ground.now).cloned() {
            self.step(&name, ground, request_ids, out, Partition::run_delayed);
        }
        for name in self.awaiting_handover.iter().cloned().collect::<Vec<_>>() {
            self.step(&name, ground, request_ids, out, Partition::try_take_over);
        }
        if ground.now >= self.next_poll && !self.draining {
            self.next_poll = ground.now + ground.config.poll_interval;
            self.inspect_all();
        }
        if !self.uninspected.is_empty() && ground.now >= self.next_inspection {
            self.start_inspection(request_ids, out);
        }
        self.start_waiting(ground, request_ids, out);
    }

    /// Reads the cursors of everybody who must be looked at, at once.
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
        ground: &ConsumerContext<'_>,
        request_ids: &mut RequestIds,
        out: &mut Vec<Effect>,
    ) {
        while !self.draining && self.isolated.is_none() && self.running.len() < ground.config.max_concurrent {
            let Some((_, name)) = self.ready.first().cloned() else { return };
            let alone =
                self.partitions.get(&name).is_some_and(|partition| partition.needs_isolation(ground.config));
            if alone && !self.running.is_empty() {
                // Nothing else starts until it has run.
                return;
            }
            self.step(&name, ground, request_ids, out, Partition::start);
        }
    }

    /// When something is due, whatever happens.
    pub(super) fn next_deadline(&self, ground: &ConsumerContext<'_>) -> Option<Time> {
        let delayed = self.delayed.first().map(|(at, _)| *at);
        // Who waits for a holder is looked at whenever that is heard; this is for the end of patience.
        let waiting = (!self.awaiting_handover.is_empty()).then(|| ground.now + SURVEY_RETRY);
        let look = (!self.uninspected.is_empty()).then_some(self.next_inspection);
        let sweep = (!self.draining && !self.partitions.is_empty()).then_some(self.next_poll);
        [delayed, waiting, look, sweep].into_iter().flatten().min()
    }

    fn step(
        &mut self,
        name: &Arc<str>,
        ground: &ConsumerContext<'_>,
        request_ids: &mut RequestIds,
        out: &mut Vec<Effect>,
        act: impl FnOnce(&mut Partition, &mut PartitionContext<'_>),
    ) {
        self.unindex(name);
        let Some(partition) = self.partitions.get_mut(name) else { return };
        let mut ctx = PartitionContext {
            ground,
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
