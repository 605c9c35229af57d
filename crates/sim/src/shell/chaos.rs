//! Seeded chaos with the real shell: faults, then convergence, then a planned restart and a single crash.

use std::collections::BTreeMap;
use std::time::Duration;

use phalanx_cluster::Role;
use phalanx_cluster::backend::StoreConfig;
use phalanx_cluster::codec::Codec;
use phalanx_cluster_core::WorkerState;
use phalanx_cluster_core::types::{AssignmentMap, Key, Time, Value, WorkerId};

use crate::backend::Server;
use crate::broker::MessageKind;
use crate::chaos::{CONVERGENCE_TIME, ChaosOutcome, ChaosRun, DEAD_LETTER_TIME, FAULT_TAIL, RESTART};
use crate::event::ScheduledAction;
use crate::faults::{FaultTarget as _, Injection, inject};
use crate::fleet::ProcessId;
use crate::network::Network;
use crate::oracle::invariant_13_recovery::SingleCrash;
use crate::oracle::invariant_14_no_new_map::NoNewMap;
use crate::oracle::invariant_16_convergence::{self, Member};
use crate::oracle::invariant_19_trace_hash::Trace;
use crate::oracle::{Oracle, invariant_18_others_continue};
use crate::queue::EventQueue;
use crate::rng::Rng;
use crate::rules::EnvironmentRule;
use crate::setup::Setup;
use crate::shell::ShellWorld;
use crate::shell::process::SharedPartitions;
use crate::store::{ResultStore, StoreRules};
use crate::traffic::Traffic;

/// The age at which claims expire without the rule against it.
const SHORT_TTL: Duration = Duration::from_secs(30);

/// Carries out a run with these faults, and passes on a line for each event if asked to.
pub(crate) fn run_with(
    run: &ChaosRun,
    injections: &[Injection],
    mut trace: Option<&mut dyn FnMut(&str)>,
) -> ChaosOutcome {
    let mut rng = Rng::new(run.seed);
    let mut world = ShellWorld::new(run.setup(&mut rng), run.max_processes(), rng.next());
    if trace.is_some() {
        world.trace.keep_lines();
    }
    let mut tell = |world: &mut ShellWorld| {
        if let Some(trace) = &mut trace {
            world.trace.take_lines().iter().for_each(|line| trace(line));
        }
    };
    if !run.request_faults.is_empty() {
        world.network.enable_request_faults(rng.next(), &run.request_faults);
    }
    for _ in 0..run.workers {
        world.plan(Duration::from_millis(rng.between(0, 15_000)), ScheduledAction::Start);
    }
    let mut faults: BTreeMap<&'static str, u64> = BTreeMap::new();
    for injection in injections {
        world.run_until(injection.at);
        inject(&mut world, injection, run.workers);
        *faults.entry(injection.fault.name()).or_default() += 1;
        tell(&mut world);
    }
    world.run_until(Time::from_origin(run.length));
    faults.extend(world.network.request_fault_counts());
    world.converge(run.workers);
    world.check_planned_restart(run, rng.one_in(2));
    let recovery = world.check_single_crash(run, rng.one_in(2));
    world.finish_checks();
    tell(&mut world);
    ChaosOutcome {
        seed: run.seed,
        violations: world.oracle.report.take(),
        faults,
        injections: injections.to_vec(),
        simulated: world.now.since_origin(),
        publications: world.publications,
        recovery,
        counts: world.oracle.counts(),
        events: world.trace.events(),
        trace_hash: world.trace.hash(),
    }
}

impl ShellWorld {
    fn new(setup: Setup, max_processes: usize, clock_seed: u64) -> Self {
        let rules = StoreRules {
            higher_wins: setup.enforces(EnvironmentRule::HigherTokenWins),
            token_counts: setup.enforces(EnvironmentRule::ReadersFollowToken),
        };
        let mut stores = StoreConfig::of("sim");
        if !setup.enforces(EnvironmentRule::NoShortTtl) {
            stores.stable_ids.ttl = Some(SHORT_TTL);
        }
        let traffic = Traffic::new(setup.partitions, setup.traffic, setup.seed);
        let mut world = Self {
            codec: Codec::new(stores.names.clone()),
            stores,
            now: Time::ZERO,
            queue: EventQueue::new(),
            network: Network::default(),
            server: Server::default(),
            watches: Vec::new(),
            subscriptions: Vec::new(),
            processes: Vec::new(),
            running: Vec::new(),
            mismatched: Vec::new(),
            max_processes,
            clocks: Some(Rng::new(clock_seed)),
            listed: SharedPartitions::new(traffic.listed().clone()),
            traffic,
            store: ResultStore::new(rules),
            oracle: Oracle::default(),
            trace: Trace::default(),
            publications: 0,
            calls: 0,
            processing: BTreeMap::new(),
            actions_dropped_until: Time::ZERO,
            setup,
        };
        for partition in 0..world.traffic.partitions() {
            world.plan_traffic(partition);
        }
        world
    }

    /// Stops the faults: after a minute everything must have converged.
    fn converge(&mut self, workers: usize) {
        self.actions_dropped_until = self.now;
        self.network.disable_faults(self.now);
        self.store.disable_faults(self.now);
        self.traffic.disable_faults();
        self.lose_key(&Key::FleetSize);
        self.keep_messages_for(self.setup.retention);
        for process in self.running.clone() {
            for (events, event) in self.network.link_mut(process).take_due(self.now) {
                let _ = events.send(event);
            }
            self.resume(process);
        }
        self.restore_fleet(workers);
        self.run_until(self.now + FAULT_TAIL);
        self.run_while(DEAD_LETTER_TIME, |world| world.oracle.has_harmful_messages());
        self.restore_fleet(workers);
        let end = self.now + CONVERGENCE_TIME;
        self.run_until(end - CONVERGENCE_TIME / 2);
        self.traffic.stop();
        self.run_until(end);
        let members: Vec<Member> = self.running.iter().map(|process| self.member(*process)).collect();
        let map = self.map();
        let report = &mut self.oracle.report;
        invariant_16_convergence::check_fleet(report, self.now, &members, map.as_ref(), workers);
        self.finish_checks();
    }

    fn restore_fleet(&mut self, workers: usize) {
        for odd in std::mem::take(&mut self.mismatched) {
            self.kill(odd);
        }
        while self.running.len() < workers {
            self.start_one();
        }
    }

    fn member(&self, process: ProcessId) -> Member {
        let status = self.processes[process.index()].status();
        let state = status.as_ref().map_or(WorkerState::Initialization, |status| status.state);
        Member {
            name: process.to_string(),
            id: status.as_ref().and_then(|status| status.holder).map(|holder| holder.id),
            is_leader: status.is_some_and(|status| status.role == Role::Leader),
            unstable: (state != WorkerState::Stable).then(|| state.to_string()),
            cause: state.to_string(),
        }
    }

    fn map(&self) -> Option<AssignmentMap> {
        match self.stored_value(&Key::Map)? {
            Value::Map(map) => Some((*map).clone()),
            _ => None,
        }
    }

    fn finish_checks(&mut self) {
        self.expire();
        let map = self.map();
        let traffic = &self.traffic;
        let is_owned =
            |partition| map.as_ref().is_some_and(|map| map.assignments.contains_key(traffic.name(partition)));
        self.oracle.finish(self.now, is_owned);
    }

    /// Returns the process that holds an id.
    fn holder_of(&self, id: WorkerId) -> Option<ProcessId> {
        let holds = |process: &ProcessId| {
            let holder = self.processes[process.index()].status().and_then(|status| status.holder);
            holder.is_some_and(|holder| holder.id == id)
        };
        self.running.iter().copied().find(holds)
    }

    /// Returns a worker that owns partitions, the leader or not.
    fn find_owner(&self, is_leader: bool) -> Option<(ProcessId, WorkerId)> {
        self.running.iter().find_map(|process| {
            let status = self.processes[process.index()].status()?;
            let is_wanted = (status.role == Role::Leader) == is_leader && !status.assignment.is_empty();
            Some((*process, status.holder.filter(|_| is_wanted)?.id))
        })
    }

    /// Restarts one worker when nothing else happens, where the fleet size is set: that makes no map, and the others process
    /// their messages meanwhile.
    fn check_planned_restart(&mut self, run: &ChaosRun, is_leader: bool) {
        let Some(map) = self.map().filter(|map| map.fleet_size.is_some()) else { return };
        if !self.oracle.report.is_empty() || run.workers < 2 {
            return;
        }
        let Some((victim, id)) = self.find_owner(is_leader) else { return };
        let owned = map.assignments.iter().filter(|(_, assignment)| assignment.owner != id);
        let others: Vec<u32> = owned.filter_map(|(name, _)| self.traffic.find(name)).collect();
        // A takeover that is due since a crash must be over before the restart.
        for &partition in &others {
            self.publish(partition, MessageKind::Good);
        }
        self.run_until(self.now + RESTART * 2);
        let maps = NoNewMap::new(id.0, self.publications);
        self.terminate(victim);
        for &partition in &others {
            self.publish(partition, MessageKind::Good);
        }
        self.run_until(self.now + RESTART);
        let waiting = self.oracle.unresolved(&others);
        invariant_18_others_continue::check(&mut self.oracle.report, self.now, id.0, waiting);
        self.start_one();
        self.run_until(self.now + RESTART * 3);
        maps.check(&mut self.oracle.report, self.now, self.publications);
    }

    /// Kills one worker when nothing else happens: its partitions must have a living owner in time.
    fn check_single_crash(&mut self, run: &ChaosRun, is_leader: bool) -> Option<Duration> {
        if !self.oracle.report.is_empty() || run.workers < 2 {
            return None;
        }
        let (victim, id) = self.find_owner(is_leader)?;
        let map = self.map()?;
        let owned = map.assignments.iter().filter(|(_, assignment)| assignment.owner == id);
        let orphans: Vec<_> = owned.map(|(name, _)| name.clone()).collect();
        let began = self.now;
        self.kill(victim);
        let crash = SingleCrash::new(id.0, is_leader, run.lease_expiry);
        let is_recovered = self.run_while(crash.limit(), |world| {
            let map = world.map();
            let owner = |name| Some(map.as_ref()?.assignments.get(name)?.owner);
            !orphans.iter().all(|name| owner(name).is_some_and(|owner| world.holder_of(owner).is_some()))
        });
        crash.check(&mut self.oracle.report, self.now, is_recovered);
        Some(self.now - began)
    }
}
