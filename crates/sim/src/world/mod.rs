//! The world: a virtual clock, and the event loop between fleet, network, broker, store and traffic.

mod controls;
mod effects;
mod fault_target;
mod plans;
mod processing;
mod publishing;
mod queries;
mod requests;

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use phalanx_cluster_core::types::Time;
use phalanx_cluster_core::{Config, Event};

use crate::broker::Broker;
use crate::event::SimEvent;
use crate::fleet::{Fleet, ProcessId};
use crate::network::{LATENCY, Network};
use crate::oracle::invariant_19_trace_hash::Trace;
use crate::oracle::{ASSERTION, Oracle};
use crate::queue::EventQueue;
use crate::rules::EnvironmentRule;
use crate::setup::Setup;
use crate::store::{ResultStore, StoreRules};
use crate::traffic::Traffic;

pub use queries::Publication;

/// A simulated cluster.
#[derive(Debug)]
pub struct World {
    setup: Setup,
    now: Time,
    queue: EventQueue<SimEvent>,
    network: Network<Event>,
    broker: Broker,
    fleet: Fleet,
    traffic: Traffic,
    store: ResultStore,
    oracle: Oracle,
    trace: Trace,
    publications: Vec<Publication>,
    /// The notices of workers, by kind.
    notices: BTreeMap<&'static str, u64>,
    /// Actions that were scheduled until then are dropped.
    actions_dropped_until: Time,
}

impl World {
    /// An empty world at second 0.
    pub fn new(setup: Setup) -> Self {
        let rules = StoreRules {
            higher_wins: setup.enforces(EnvironmentRule::HigherTokenWins),
            token_counts: setup.enforces(EnvironmentRule::ReadersFollowToken),
        };
        let mut world = Self {
            now: Time::ZERO,
            queue: EventQueue::new(),
            network: Network::default(),
            broker: Broker::new(setup.retention),
            fleet: Fleet::default(),
            traffic: Traffic::new(setup.partitions, setup.traffic, setup.seed),
            store: ResultStore::new(rules),
            oracle: Oracle::default(),
            trace: Trace::default(),
            publications: Vec::new(),
            notices: BTreeMap::new(),
            actions_dropped_until: Time::ZERO,
            setup,
        };
        for partition in 0..world.traffic.partitions() {
            world.plan_traffic(partition);
        }
        world
    }

    /// Starts a process in a new pod.
    pub fn start(&mut self) -> ProcessId {
        let config = self.setup.config.clone();
        self.start_with(config)
    }

    /// Starts a process with a configuration of its own.
    pub fn start_with(&mut self, config: Config) -> ProcessId {
        let process = self.fleet.start(self.now, config);
        self.network.add_link();
        self.oracle.started(self.now);
        self.note(|| format!("{process} starts"));
        self.resync(process);
        process
    }

    /// Shows a process all values and the list of partitions, as at the start of a watch.
    fn resync(&mut self, process: ProcessId) {
        self.broker.expire_heartbeats(self.now);
        let watched =
            |(key, entry)| Event::Watched { key: Clone::clone(key), entry: Some(entry), retained: true };
        let retained: Vec<Event> = self.broker.watched().map(watched).collect();
        let listed = Event::Partitions(self.traffic.listed().clone());
        for event in retained.into_iter().chain([listed, Event::Synced]) {
            self.later(LATENCY, SimEvent::Arrival(process, event));
        }
    }

    fn end(&mut self, process: ProcessId) {
        self.fleet.end(process);
        self.oracle.processes.ended(process);
    }

    /// Runs up to a time.
    pub fn run_until(&mut self, end: Time) {
        while let Some((at, event)) = self.queue.next(end) {
            self.now = self.now.max(at);
            self.dispatch(event);
        }
        self.now = self.now.max(end);
    }

    /// Runs while something is true, for at most this time. Returns whether it became false.
    pub fn run_while(&mut self, longest: Duration, mut continues: impl FnMut(&Self) -> bool) -> bool {
        let end = self.now + longest;
        while continues(self) {
            match self.queue.next(end) {
                Some((at, event)) => {
                    self.now = self.now.max(at);
                    self.dispatch(event);
                }
                None => {
                    self.now = end;
                    return !continues(self);
                }
            }
        }
        true
    }

    fn dispatch(&mut self, event: SimEvent) {
        match event {
            SimEvent::Request(process, _) | SimEvent::LateRequest(process, _)
                if !self.network.carries(process) => {}
            SimEvent::Request(process, effect) => self.answer(process, effect),
            SimEvent::LateRequest(process, effect) => {
                self.apply(process, effect);
            }
            SimEvent::Arrival(process, event) => self.deliver(process, event),
            SimEvent::Broadcast { key, entry, but, until } => {
                for process in self.fleet.running().to_vec() {
                    if process.0 < until && !but.contains(&process) {
                        let event =
                            Event::Watched { key: key.clone(), entry: entry.clone(), retained: false };
                        self.deliver(process, event);
                    }
                }
            }
            SimEvent::DeliverDelayed(process) => self.deliver_delayed(process),
            SimEvent::Wake(process) => self.wake(process),
            SimEvent::Step(process, partition, request_id, step) => {
                self.step(process, partition, request_id, step);
            }
            SimEvent::TermOver(revision) => self.end_term(revision),
            SimEvent::Rows(results) => self.store_rows(&results),
            SimEvent::Scheduled(made, action) => {
                if made > self.actions_dropped_until || self.actions_dropped_until == Time::ZERO {
                    self.execute_action(action);
                }
            }
            SimEvent::Traffic(partition) => {
                if let Some(kind) = self.traffic.next_kind(partition) {
                    self.publish(partition, kind);
                    self.plan_traffic(partition);
                }
            }
        }
    }

    fn wake(&mut self, process: ProcessId) {
        let target = self.fleet.get_mut(process);
        if target.is_stopped {
            target.pending_events.push(SimEvent::Wake(process));
        } else if target.wake.is_some_and(|wake| wake <= self.now) {
            target.wake = None;
            self.deliver(process, Event::Tick);
        }
    }

    fn deliver(&mut self, process: ProcessId, event: Event) {
        let now = self.now;
        let target = self.fleet.get_mut(process);
        if !target.is_alive {
            return;
        }
        if target.is_stopped {
            target.pending_events.push(SimEvent::Arrival(process, event));
            return;
        }
        if let Event::Written { request_id, result } = &event {
            self.oracle.answered(process, *request_id, result.map(|_| ()));
        }
        self.trace.event(now, process.0, effects::shape(&event));
        self.trace.line(now, || format!("{process} <- {event:?}"));
        let (shown, mut effects) = (target.clock(now), Vec::new());
        let step = AssertUnwindSafe(|| target.worker.handle(shown, event, &mut effects));
        if let Err(panic) = catch_unwind(step) {
            self.on_violated_assertion(process, &*panic);
            return;
        }
        let is_quiet = effects.is_empty()
            && target.deadline == target.worker.next_deadline()
            && (target.wake.is_some() || target.deadline.is_none());
        if is_quiet {
            return;
        }
        target.deadline = target.worker.next_deadline();
        self.execute_all(process, effects);
    }

    /// Reports a violated assertion of a worker, which ends as after a crash.
    fn on_violated_assertion(&mut self, process: ProcessId, panic: &(dyn Any + Send)) {
        let text = panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "without a message".to_owned());
        let what = format!("{process} violates an assertion at {text}");
        self.check(|report, now| report.violate(ASSERTION, now, what));
        self.kill(process);
    }

    fn schedule_deadline(&mut self, process: ProcessId) {
        let now = self.now;
        let target = self.fleet.get_mut(process);
        let due = target.worker.next_deadline().filter(|_| target.is_alive).map(|due| target.world_time(due));
        if due != target.wake {
            let is_earlier = due.is_some_and(|due| target.wake.is_none_or(|wake| due < wake || wake < now));
            // A later deadline replaces an earlier one when that is over.
            if is_earlier || due.is_none() || target.wake.is_none() {
                target.wake = due;
                if let Some(due) = due {
                    self.later(due.saturating_sub(now), SimEvent::Wake(process));
                }
            }
        }
    }

    fn later(&mut self, delay: Duration, event: SimEvent) {
        self.queue.plan(self.now + delay, event);
    }
}

#[cfg(test)]
mod tests {
    use phalanx_cluster_core::types::Revision;
    use phalanx_cluster_core::{Purpose, RequestId, Written};

    use super::*;

    #[test]
    fn a_violated_assertion_is_a_violation_and_ends_its_process_only() {
        let mut world = World::new(Setup::default());
        let (process, other) = (world.start(), world.start());
        world.run_until(Time::from_secs(5));
        // No worker ever gets the answer to a heartbeat that it did not send.
        let request_id = RequestId { purpose: Purpose::Heartbeat, serial: u64::MAX };
        let result = Ok(Written { revision: Revision(1), stored_at: 0 });
        world.deliver(process, Event::Written { request_id, result });
        assert!(!world.is_alive(process) && world.is_alive(other));
        let violations = world.take_violations();
        assert_eq!(violations.len(), 1, "{violations:?}");
        assert_eq!(violations[0].invariant, ASSERTION);
        assert!(violations[0].what.contains("crates/cluster-core/src/fence.rs:"), "{}", violations[0].what);
    }
}
