//! What can be seen of a world from outside.

use super::*;

impl World {
    /// The virtual time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Every new version of the map so far.
    pub fn publications(&self) -> &[Publication] {
        &self.published
    }

    /// Forgets the publications so far: what follows is what a scenario is about.
    pub fn forget_publications(&mut self) {
        self.published.clear();
    }

    /// The worker of a process.
    pub fn worker(&self, process: ProcessId) -> &WorkerCore {
        &self.processes[process.index()].worker
    }

    /// Whether a process has not ended.
    pub fn is_alive(&self, process: ProcessId) -> bool {
        self.processes[process.index()].alive
    }

    /// Every process that has not ended.
    pub fn running(&self) -> impl Iterator<Item = ProcessId> {
        self.living.iter().copied()
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
        match &self.broker.get(&Key::Map)?.value {
            Value::Map(map) => Some(map),
            _ => None,
        }
    }

    /// The owner of a partition, by the stored map.
    pub fn owner_of(&self, partition: u32) -> Option<ProcessId> {
        let owner = self.map()?.assignments.get(&self.names[partition as usize])?.owner;
        self.holder_of(owner.0)
    }

    /// A partition that a worker owns, by the stored map.
    pub fn partition_of(&self, id: u32) -> Option<u32> {
        let map = self.map()?;
        let (name, _) = map.assignments.iter().find(|(_, assignment)| assignment.owner == WorkerId(id))?;
        self.numbers.get(name).copied()
    }

    /// Whether results of a message have reached the store, whoever wrote them.
    pub fn has_rows(&self, partition: u32, number: u64) -> bool {
        self.store.newest(partition).is_some_and(|(_, state)| state.number >= number)
    }

    /// Whether a process is processing a message of a partition.
    pub fn is_processing(&self, process: ProcessId, partition: u32) -> bool {
        self.processes[process.index()].handler.runs.contains_key(&partition)
    }

    /// Returns the number of worker crashes that the stored cursor counts at the next message of a partition.
    pub fn worker_crashes(&self, partition: u32) -> u32 {
        let entry = self.broker.get(&Key::Cursor(self.names[partition as usize].clone()));
        match entry.map(|entry| &entry.value) {
            Some(Value::Cursor(cursor)) => cursor.worker_crashes,
            _ => 0,
        }
    }

    /// Every partition of a worker, by the stored map.
    pub fn partitions_of(&self, id: u32) -> Vec<u32> {
        let owned = self.map().into_iter().flat_map(|map| &map.assignments);
        owned.filter(|(_, a)| a.owner == WorkerId(id)).map(|(name, _)| self.numbers[name]).collect()
    }

    /// How many partitions have ever been there.
    pub fn partitions(&self) -> u32 {
        self.names.len() as u32
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
        self.oracle.counts
    }

    /// Faults of answers and writes that the shaking has caused so far, by kind.
    pub fn shaken(&self) -> &BTreeMap<&'static str, u64> {
        &self.request_fault_counts
    }

    /// How often workers reported what is counted: `expired`, `logReplaced`, `adopted`.
    pub fn noticed(&self, what: &str) -> u64 {
        self.notices.get(what).copied().unwrap_or(0)
    }

    /// How many messages were published for a partition.
    pub fn published_for(&self, partition: u32) -> u64 {
        self.next_number[partition as usize]
    }

    /// Promises broken so far.
    pub fn take_violations(&mut self) -> Vec<Violation> {
        std::mem::take(&mut self.oracle.violations)
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
        !self.oracle.violations.is_empty()
    }

    /// Counts what nobody resolved and what went unreported.
    pub fn finish_checks(&mut self) {
        self.expire();
        let map = self.map().cloned();
        let owned = |partition: usize| {
            map.as_ref().is_some_and(|map| map.assignments.contains_key(&self.names[partition]))
        };
        self.oracle.finish(self.now, owned);
    }

    /// A hash over everything that happened.
    pub fn trace_hash(&self) -> u64 {
        self.hash
    }

    /// Whether every living process with an id shows this state.
    pub fn all_show(&self, state: WorkerState) -> bool {
        self.running()
            .filter(|&process| self.worker(process).incarnation().is_some())
            .all(|p| self.worker(p).state() == state)
    }

    /// A promise that somebody outside has seen broken.
    pub fn violate(&mut self, invariant: u32, what: String) {
        self.oracle.violate(invariant, self.now, what);
    }
}
