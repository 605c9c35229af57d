//! Seeded chaos: a phase with faults, then one in which everything must heal, then a single crash in the calm.

use std::collections::BTreeMap;
use std::time::Duration;

use phalanx_cluster_core::types::Time;
use phalanx_cluster_core::{Config, LeaseExpiry};

use crate::broker::MessageKind;
use crate::event::ScheduledAction;
use crate::faults::{Fault, Injection, RequestFault, inject, schedule, schedule_restarts};
use crate::oracle::invariant_13_recovery::SingleCrash;
use crate::oracle::invariant_14_no_new_map::NoNewMap;
use crate::oracle::{Counts, Violation, invariant_18_others_continue};
use crate::rng::Rng;
use crate::rules::Rule;
use crate::setup::Setup;
use crate::shell;
use crate::world::World;

/// How long the world has to heal after the last fault: a minute, which the two longest timers fill when everything was
/// killed and no fleet size is set (30 s until a claim is stale, 30 s of a restart's window), and what follows them.
pub(crate) const CONVERGENCE_TIME: Duration = Duration::from_secs(65);
/// How long what a fault leaves behind may take to come to its end: waits, roll-outs, repeated notifications.
pub(crate) const FAULT_TAIL: Duration = Duration::from_secs(10);
/// The time until a harmful message must be dead-lettered.
pub(crate) const DEAD_LETTER_TIME: Duration = Duration::from_secs(120);
/// How long a planned restart takes: everybody else's messages must be processed by then.
pub(crate) const RESTART: Duration = Duration::from_secs(5);

/// The code that a run simulates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The core of the workers, with requests and events as values.
    #[default]
    Core,
    /// Whole workers: shell, codec, backend traits and handler, on a paused clock.
    Shell,
}

/// What to run.
#[derive(Clone, Debug)]
pub struct ChaosRun {
    /// The code that is simulated.
    pub mode: Mode,
    /// The seed of everything.
    pub seed: u64,
    /// How many workers there should be.
    pub workers: usize,
    /// How many partitions there are.
    pub partitions: usize,
    /// How long faults are injected.
    pub length: Duration,
    /// The kinds of faults that are injected at moments; none for calm weather.
    pub faults: Vec<Fault>,
    /// The kinds of faults that befall requests by chance.
    pub request_faults: Vec<RequestFault>,
    /// The rule to run without, in a build that can.
    pub disabled_rule: Option<Rule>,
    /// What ends a lease whose holder does not.
    pub lease_expiry: LeaseExpiry,
}

/// What one run came to.
#[derive(Debug)]
pub struct ChaosOutcome {
    /// The seed, which gives the same run again.
    pub seed: u64,
    /// Broken promises, in the order they broke.
    pub violations: Vec<Violation>,
    /// Faults injected, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// What was injected, in order.
    pub injections: Vec<Injection>,
    /// How much virtual time has passed.
    pub simulated: Duration,
    /// Maps published.
    pub publications: usize,
    /// How long the orphans of the single crash waited.
    pub recovery: Option<Duration>,
    /// What was published, committed and lost.
    pub counts: Counts,
    /// How many events the workers handled.
    pub events: u64,
    /// A hash over everything that happened: the same seed gives the same.
    pub trace_hash: u64,
}

impl ChaosRun {
    /// A run with every fault.
    pub fn new(seed: u64, workers: usize, partitions: usize, length: Duration) -> Self {
        let (faults, shakes) = (Fault::ALL.to_vec(), RequestFault::ALL.to_vec());
        Self {
            mode: Mode::Core,
            seed,
            workers,
            partitions,
            length,
            faults,
            request_faults: shakes,
            disabled_rule: None,
            lease_expiry: LeaseExpiry::OnSilence,
        }
    }

    /// The faults of this run.
    pub fn injections(&self) -> Vec<Injection> {
        let (from, until) = (Time::from_secs(20), Time::from_origin(self.length));
        let mut injections = schedule(&mut Rng::new(self.seed ^ 0xfa17), &self.faults, from, until);
        let mut rng = Rng::new(self.seed ^ 0x7e57_a127);
        injections.extend(schedule_restarts(&mut rng, &self.faults, from, until));
        injections.sort_by_key(|injection| injection.at);
        injections
    }

    /// Runs it.
    pub fn run(&self) -> ChaosOutcome {
        self.run_with(&self.injections(), None)
    }

    /// Runs it with these faults instead of all of its own; tells a line for everything that happens if asked to.
    pub fn run_with(
        &self,
        injections: &[Injection],
        mut trace: Option<&mut dyn FnMut(&str)>,
    ) -> ChaosOutcome {
        if self.mode == Mode::Shell {
            return shell::run_with(self, injections, trace);
        }
        let mut rng = Rng::new(self.seed);
        let setup = self.setup(&mut rng);
        let most = self.max_processes();
        let mut world = World::new(setup);
        if trace.is_some() {
            world.keep_trace();
        }
        let mut tell = |world: &mut World| {
            if let Some(trace) = &mut trace {
                world.take_trace().iter().for_each(|line| trace(line));
            }
        };
        world.limit_processes(most);
        world.skew_clocks(rng.next());
        if !self.request_faults.is_empty() {
            world.enable_request_faults(rng.next(), &self.request_faults);
        }
        for _ in 0..self.workers {
            world.plan(Duration::from_millis(rng.between(0, 15_000)), ScheduledAction::Start);
        }
        let mut faults: BTreeMap<&'static str, u64> = BTreeMap::new();
        for injection in injections {
            world.run_until(injection.at);
            inject(&mut world, injection, self.workers);
            *faults.entry(injection.fault.name()).or_default() += 1;
            tell(&mut world);
        }
        world.run_until(Time::from_origin(self.length));
        faults.extend(world.request_fault_counts().iter().map(|(kind, count)| (*kind, *count)));
        self.converge(&mut world);
        self.check_planned_restart(&mut world, rng.one_in(2));
        let recovery = self.check_single_crash(&mut world, rng.one_in(2));
        world.finish_checks();
        tell(&mut world);
        ChaosOutcome {
            seed: self.seed,
            violations: world.take_violations(),
            faults,
            injections: injections.to_vec(),
            simulated: world.now().since_origin(),
            publications: world.publications().len(),
            recovery,
            counts: world.counts(),
            events: world.events(),
            trace_hash: world.trace_hash(),
        }
    }

    /// Returns the number of processes beyond which the host starts none.
    pub(crate) fn max_processes(&self) -> usize {
        self.workers + self.workers / 3 + 3
    }

    /// Returns the setup of the cluster, chosen by the seed.
    pub(crate) fn setup(&self, rng: &mut Rng) -> Setup {
        let config = Config {
            fleet_size: rng.one_in(2).then_some(self.workers as u32),
            process_timeout: Duration::from_secs(5),
            unlisted_scan_interval: Duration::from_secs(10),
            max_workers: Config::default().max_workers.max(self.max_processes() as u32),
            lease_expiry: self.lease_expiry,
            ..Config::default()
        };
        let mut setup = Setup {
            config,
            partitions: self.partitions,
            traffic: Some(Duration::from_secs(60)),
            seed: rng.next(),
            ..Setup::default()
        };
        if let Some(rule) = self.disabled_rule {
            assert!(setup.disable_rule(rule), "a build without the feature `mutants` enforces every rule");
        }
        setup
    }

    /// The faults stop: after a minute everything must be as it should be.
    fn converge(&self, world: &mut World) {
        world.drop_scheduled();
        world.disable_faults();
        world.lose(&phalanx_cluster_core::types::Key::FleetSize);
        world.keep_messages_for(world.retention());
        for process in world.running().collect::<Vec<_>>() {
            world.resume(process);
        }
        self.restore_fleet(world);
        let end = world.now() + FAULT_TAIL;
        world.run_until(end);
        // A message that kills its workers is a fault for as long as it is there.
        world.run_while(DEAD_LETTER_TIME, World::has_harmful_messages);
        self.restore_fleet(world);
        let end = world.now() + CONVERGENCE_TIME;
        world.run_until(end - CONVERGENCE_TIME / 2);
        world.stop_traffic();
        world.run_until(end);
        world.check_converged(self.workers);
        world.finish_checks();
    }

    /// The fleet has its size: whoever was started with another one goes, and whoever is missing comes.
    fn restore_fleet(&self, world: &mut World) {
        world.kill_mismatched();
        while world.running().count() < self.workers {
            world.start();
        }
    }

    /// One planned restart when nothing else happens, where the fleet size is set: no map is made for it, and whatever the
    /// others own is processed meanwhile.
    fn check_planned_restart(&self, world: &mut World, leader: bool) {
        let sized = world.map().is_some_and(|map| map.fleet_size.is_some());
        if world.has_violations() || self.workers < 2 || !sized {
            return;
        }
        let Some(victim) = world.running().find(|&process| {
            world.worker(process).is_leader() == leader && world.worker(process).owned() > 0
        }) else {
            return;
        };
        let Some(id) = world.worker(victim).incarnation().map(|holder| holder.id.0) else { return };
        let workers: Vec<u32> = world.map().into_iter().flat_map(|map| &map.workers).map(|id| id.0).collect();
        let others: Vec<u32> = workers
            .into_iter()
            .filter(|other| *other != id)
            .flat_map(|other| world.partitions_of(other))
            .collect();
        // A partition that was idle since a crash is taken over with its first message, after the fence of the crashed
        // owner. That wait belongs to the crash, so it must be over before the restart.
        for &partition in &others {
            world.publish(partition, MessageKind::Good);
        }
        let end = world.now() + RESTART * 2;
        world.run_until(end);
        let maps = NoNewMap::new(id, world.publications().len());
        world.terminate(victim);
        for &partition in &others {
            world.publish(partition, MessageKind::Good);
        }
        let end = world.now() + RESTART;
        world.run_until(end);
        let waiting = world.unresolved(&others);
        world.check(|report, now| invariant_18_others_continue::check(report, now, id, waiting));
        world.start();
        let end = world.now() + RESTART * 3;
        world.run_until(end);
        let publications = world.publications().len();
        world.check(|report, now| maps.check(report, now, publications));
    }

    /// One crash when nothing else happens: its partitions must have a living owner within the promise.
    fn check_single_crash(&self, world: &mut World, leader: bool) -> Option<Duration> {
        if world.has_violations() || self.workers < 2 {
            return None;
        }
        let victim = world.running().find(|&process| {
            world.worker(process).is_leader() == leader && world.worker(process).owned() > 0
        })?;
        let id = world.worker(victim).incarnation()?.id.0;
        let orphans = world.partitions_of(id);
        let began = world.now();
        world.kill(victim);
        let crash = SingleCrash::new(id, leader, self.lease_expiry);
        let is_orphaned =
            |world: &World| orphans.iter().any(|&partition| world.owner_of(partition).is_none());
        let is_recovered = world.run_while(crash.limit(), is_orphaned);
        world.check(|report, now| crash.check(report, now, is_recovered));
        Some(world.now() - began)
    }
}

/// The shortest run with the fewest faults that still breaks the promise that broke first: whatever can be left out is,
/// for as long as it may go on.
pub fn shrink(
    run: &ChaosRun,
    outcome: &ChaosOutcome,
    mut goes_on: impl FnMut() -> bool,
) -> (ChaosRun, Vec<Injection>) {
    let Some(first) = outcome.violations.first() else { return (run.clone(), outcome.injections.clone()) };
    let breaks = |run: &ChaosRun, injections: &[Injection]| {
        let outcome = run.run_with(injections, None);
        outcome.violations.first().is_some_and(|violation| violation.invariant == first.invariant)
    };
    let (mut run, mut injections) = (run.clone(), outcome.injections.clone());
    let shorter =
        ChaosRun { length: run.length.min(first.at.since_origin() + Duration::from_secs(1)), ..run.clone() };
    let fewer: Vec<Injection> =
        injections.iter().copied().filter(|injection| injection.at <= first.at).collect();
    if breaks(&shorter, &fewer) {
        (run, injections) = (shorter, fewer);
    }
    let mut chunk = injections.len().div_ceil(2).max(1);
    loop {
        let mut at = 0;
        while at < injections.len() {
            if !goes_on() {
                return (run, injections);
            }
            let mut fewer = injections.clone();
            fewer.drain(at..(at + chunk).min(fewer.len()));
            if breaks(&run, &fewer) {
                injections = fewer;
            } else {
                at += chunk;
            }
        }
        if chunk == 1 {
            return (run, injections);
        }
        chunk = chunk.div_ceil(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_published_message_has_exactly_one_outcome() {
        let mut total = Counts::default();
        for seed in 0..4 {
            let faults = vec![
                Fault::Expiry,
                Fault::LogRecreated,
                Fault::LostTail,
                Fault::BucketRecreated,
                Fault::BrokenMessage,
                Fault::Replay,
                Fault::LateDuplicate,
                Fault::StoreOutage,
                Fault::AllKilled,
            ];
            let run = ChaosRun { faults, ..ChaosRun::new(seed, 4, 60, Duration::from_secs(900)) };
            let outcome = run.run();
            assert_eq!(outcome.violations, [], "{}", run.command());
            assert_eq!(outcome.counts.published, outcome.counts.resolved(), "{}", run.command());
            total += outcome.counts;
        }
        let Counts { committed, dead_lettered, expired, duplicates, lost_by_broker, .. } = total;
        let outcomes = [committed, dead_lettered, expired, duplicates, lost_by_broker];
        assert!(outcomes.iter().all(|count| *count > 0), "not every outcome occurred: {total:?}");
    }
}
