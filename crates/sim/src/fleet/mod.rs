//! The fleet: every process that was started, and those that run.

mod clock;
mod process;

use std::fmt;
use std::time::Duration;

use phalanx_cluster_core::types::{Pod, Time, WorkerId};
use phalanx_cluster_core::{Config, WorkerCore};

use crate::oracle::invariant_10_unique_id::IdHolders;
use crate::rng::Rng;

use clock::Clock;
pub(crate) use process::Process;

/// The name of a process that was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessId(pub(crate) u32);

impl ProcessId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.0)
    }
}

/// Every process that was started.
#[derive(Debug)]
pub(crate) struct Fleet {
    processes: Vec<Process>,
    running: Vec<ProcessId>,
    /// The number of processes beyond which no scheduled start makes one.
    pub(crate) max_processes: usize,
    /// The processes that were started with another fleet size.
    mismatched_sizes: Vec<ProcessId>,
    /// Gives every machine a clock of its own.
    clocks: Option<Rng>,
}

impl Default for Fleet {
    fn default() -> Self {
        Self {
            processes: Vec::new(),
            running: Vec::new(),
            max_processes: usize::MAX,
            mismatched_sizes: Vec::new(),
            clocks: None,
        }
    }
}

impl Fleet {
    /// Starts a process in a new pod.
    pub(crate) fn start(&mut self, now: Time, config: Config) -> ProcessId {
        let process = ProcessId(self.processes.len() as u32);
        let pod = Pod { name: format!("pod-{}", process.0).into(), uid: format!("uid-{}", process.0).into() };
        let clock = self.clocks.as_mut().map_or_else(Clock::default, |clocks| {
            let drift = clocks.between(0, 400) as i64 - 200;
            Clock::new(Duration::from_secs(clocks.between(0, 7200)), drift)
        });
        let worker = WorkerCore::new(clock.shows(now), pod, config);
        self.processes.push(Process::new(worker, clock));
        self.running.push(process);
        process
    }

    /// Ends a process: it does and hears nothing more.
    pub(crate) fn end(&mut self, process: ProcessId) {
        let target = self.get_mut(process);
        target.is_alive = false;
        target.pending_events.clear();
        target.handler.drop_all();
        self.running.retain(|&running| running != process);
    }

    /// Returns a process.
    pub(crate) fn get(&self, process: ProcessId) -> &Process {
        &self.processes[process.index()]
    }

    /// Returns a process, to change it.
    pub(crate) fn get_mut(&mut self, process: ProcessId) -> &mut Process {
        &mut self.processes[process.index()]
    }

    /// Returns the processes that run, in the order of their starts.
    pub(crate) fn running(&self) -> &[ProcessId] {
        &self.running
    }

    /// Returns the number of processes that were started.
    pub(crate) fn started(&self) -> u32 {
        self.processes.len() as u32
    }

    /// Returns whether a scheduled start may make one more process.
    pub(crate) fn has_room(&self) -> bool {
        self.running.len() < self.max_processes
    }

    /// Gives every machine that starts from now on a clock of its own: hours off, and drifting.
    pub(crate) fn skew_clocks(&mut self, seed: u64) {
        self.clocks = Some(Rng::new(seed));
    }

    /// Notes that a process was started with another fleet size.
    pub(crate) fn add_mismatched(&mut self, process: ProcessId) {
        self.mismatched_sizes.push(process);
    }

    /// Removes and returns the processes that were started with another fleet size.
    pub(crate) fn take_mismatched(&mut self) -> Vec<ProcessId> {
        std::mem::take(&mut self.mismatched_sizes)
    }

    /// Lets every process live that was to be killed after some effects.
    pub(crate) fn disable_faults(&mut self) {
        self.processes.iter_mut().for_each(|process| process.kill_after_effects = None);
    }
}

impl IdHolders for Fleet {
    fn held_id(&self, process: ProcessId) -> Option<WorkerId> {
        let target = self.get(process);
        target.worker.incarnation().map(|holder| holder.id).filter(|_| !target.lost_time)
    }

    fn is_unfenced(&self, process: ProcessId, now: Time) -> bool {
        let target = self.get(process);
        !target.worker.is_fenced(target.clock(now))
    }

    fn running(&self) -> impl Iterator<Item = ProcessId> {
        self.running.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_ended_does_not_run_and_keeps_its_name() {
        let mut fleet = Fleet { max_processes: 2, ..Fleet::default() };
        let first = fleet.start(Time::ZERO, Config::default());
        let second = fleet.start(Time::ZERO, Config::default());
        assert!(!fleet.has_room());
        fleet.end(first);
        assert!(fleet.has_room() && !fleet.get(first).is_alive);
        assert_eq!(fleet.running(), [second]);
        assert_eq!(fleet.start(Time::ZERO, Config::default()).to_string(), "process 2");
    }
}
