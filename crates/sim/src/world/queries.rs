//! Read access for tests and for the phases of a run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use phalanx_cluster_core::types::{AssignmentMap, Key, Time, Value, WorkerId};
use phalanx_cluster_core::{WorkerCore, WorkerState};

use crate::fleet::ProcessId;
use crate::oracle::invariant_16_convergence::{self, Member};
use crate::oracle::{Counts, Report, Violation};
use crate::world::World;

/// A published map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Publication {
    /// The second of the virtual clock.
    pub second: u64,
    /// Its version.
    pub version: u64,
    /// The lifecycle of the cluster: `post_cold_start` or `stable`.
    pub lifecycle: &'static str,
    /// The number of its workers.
    pub workers: usize,
    /// The number of partitions that changed their owner.
    pub moved: usize,
}

impl World {
    /// The virtual time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Every new version of the map so far.
    pub fn publications(&self) -> &[Publication] {
        &self.publications
    }

    /// Forgets the publications so far: what follows is what a scenario is about.
    pub fn forget_publications(&mut self) {
        self.publications.clear();
    }

    /// The worker of a process.
    pub fn worker(&self, process: ProcessId) -> &WorkerCore {
        &self.fleet.get(process).worker
    }

    /// Whether a process has not ended.
    pub fn is_alive(&self, process: ProcessId) -> bool {
        self.fleet.get(process).is_alive
    }

    /// Every process that has not ended.
    pub fn running(&self) -> impl Iterator<Item = ProcessId> {
        self.fleet.running().iter().copied()
    }

    /// The process that leads.
    pub fn leader(&self) -> Option<ProcessId> {
        self.running().find(|&process| self.worker(process).is_leader())
    }

    /// The process that holds an id.
    pub fn holder_of(&self, id: u32) -> Option<ProcessId> {
        self.running()
            .find(|&process| self.worker(process).incarnation().is_some_and(|holder| holder.id.0 == id))
    }

    /// The map as it is stored.
    pub fn map(&self) -> Option<&Arc<AssignmentMap>> {
        match self.broker.value(&Key::Map)? {
            Value::Map(map) => Some(map),
            _ => None,
        }
    }

    /// The owner of a partition, by the stored map.
    pub fn owner_of(&self, partition: u32) -> Option<ProcessId> {
        let owner = self.map()?.assignments.get(self.traffic.name(partition))?.owner;
        self.holder_of(owner.0)
    }

    /// A partition that a worker owns, by the stored map.
    pub fn partition_of(&self, id: u32) -> Option<u32> {
        let map = self.map()?;
        let (name, _) = map.assignments.iter().find(|(_, assignment)| assignment.owner == WorkerId(id))?;
        self.traffic.find(name)
    }

    /// Whether results of a message have reached the store, whoever wrote them.
    pub fn has_rows(&self, partition: u32, number: u64) -> bool {
        self.store.rows.newest(partition).is_some_and(|(_, state)| state.number >= number)
    }

    /// Whether a process is processing a message of a partition.
    pub fn is_processing(&self, process: ProcessId, partition: u32) -> bool {
        self.fleet.get(process).handler.runs.contains_key(&partition)
    }

    /// Returns the number of worker crashes that the stored cursor counts at the next message of a partition.
    pub fn worker_crashes(&self, partition: u32) -> u32 {
        match self.broker.value(&Key::Cursor(self.traffic.name(partition).clone())) {
            Some(Value::Cursor(cursor)) => cursor.worker_crashes,
            _ => 0,
        }
    }

    /// Every partition of a worker, by the stored map.
    pub fn partitions_of(&self, id: u32) -> Vec<u32> {
        let owned = self.map().into_iter().flat_map(|map| &map.assignments);
        owned.filter(|(_, a)| a.owner == WorkerId(id)).map(|(name, _)| self.traffic.partition(name)).collect()
    }

    /// How many partitions have ever been there.
    pub fn partitions(&self) -> u32 {
        self.traffic.partitions()
    }

    /// How many partitions were listed at the beginning.
    pub fn listed(&self) -> u32 {
        self.setup.partitions as u32
    }

    /// How long the log keeps messages when nothing is wrong.
    pub fn retention(&self) -> Duration {
        self.setup.retention
    }

    /// What was published, committed and lost so far.
    pub fn counts(&self) -> Counts {
        self.oracle.counts()
    }

    /// Returns the request faults so far, by kind.
    pub fn request_fault_counts(&self) -> &BTreeMap<&'static str, u64> {
        self.network.request_fault_counts()
    }

    /// How often workers reported what is counted: `expired`, `logReplaced`, `adopted`.
    pub fn noticed(&self, what: &str) -> u64 {
        self.notices.get(what).copied().unwrap_or(0)
    }

    /// How many messages were published for a partition.
    pub fn published_for(&self, partition: u32) -> u64 {
        self.traffic.published(partition)
    }

    /// Promises broken so far.
    pub fn take_violations(&mut self) -> Vec<Violation> {
        self.oracle.report.take()
    }

    /// How many messages of these partitions are still to be resolved.
    pub fn unresolved(&self, partitions: &[u32]) -> usize {
        self.oracle.unresolved(partitions)
    }

    /// Whether a message that does harm is still to be resolved.
    pub fn has_harmful_messages(&self) -> bool {
        self.oracle.has_harmful_messages()
    }

    /// Whether a promise was broken.
    pub fn has_violations(&self) -> bool {
        !self.oracle.report.is_empty()
    }

    /// Checks what can only be known at the end of a run.
    pub fn finish_checks(&mut self) {
        self.expire();
        let map = self.map().cloned();
        let traffic = &self.traffic;
        let is_owned =
            |partition| map.as_ref().is_some_and(|map| map.assignments.contains_key(traffic.name(partition)));
        self.oracle.finish(self.now, is_owned);
    }

    /// Checks that the fleet has converged to the stored map.
    pub(crate) fn check_converged(&mut self, workers: usize) {
        let members: Vec<Member> = self.running().map(|process| self.member(process)).collect();
        let map = self.map().cloned();
        let report = &mut self.oracle.report;
        invariant_16_convergence::check_fleet(report, self.now, &members, map.as_deref(), workers);
    }

    fn member(&self, process: ProcessId) -> Member {
        let worker = self.worker(process);
        let (state, cause) = (worker.state(), worker.history().last().map_or("", |last| &*last.cause));
        Member {
            name: process.to_string(),
            id: worker.incarnation().map(|incarnation| incarnation.id),
            is_leader: worker.is_leader(),
            unstable: (state != WorkerState::Stable).then(|| state.to_string()),
            cause: format!("{state} ({cause})"),
        }
    }

    /// A hash over everything that happened.
    pub fn trace_hash(&self) -> u64 {
        self.trace.hash()
    }

    /// Whether every living process with an id shows this state.
    pub fn all_show(&self, state: WorkerState) -> bool {
        self.running()
            .filter(|&process| self.worker(process).incarnation().is_some())
            .all(|p| self.worker(p).state() == state)
    }

    /// Runs a checker of a phase.
    pub(crate) fn check(&mut self, check: impl FnOnce(&mut Report, Time)) {
        check(&mut self.oracle.report, self.now);
    }

    /// Returns the number of events that workers handled.
    pub(crate) fn events(&self) -> u64 {
        self.trace.events()
    }

    /// Keeps a line for each event from now on.
    pub fn keep_trace(&mut self) {
        self.trace.keep_lines();
    }

    /// Removes and returns the lines so far.
    pub fn take_trace(&mut self) -> Vec<String> {
        self.trace.take_lines()
    }

    /// Adds a line to the trace, such as a fault.
    pub fn note(&mut self, what: impl FnOnce() -> String) {
        self.trace.line(self.now, what);
    }

    pub(super) fn add_publication(&mut self, map: &AssignmentMap) {
        self.publications.push(Publication {
            second: self.now.since_origin().as_secs(),
            version: map.version.0,
            lifecycle: map.lifecycle.name(),
            workers: map.workers.len(),
            moved: map.moved,
        });
    }
}
