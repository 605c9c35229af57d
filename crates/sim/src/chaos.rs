//! Seeded chaos: a phase with faults, then one in which everything must heal, then a single crash in the calm.

use std::collections::BTreeMap;
use std::time::Duration;

use phalanx_cluster_core::{Config, Guard, Tenure, WorkerState};

use crate::faults::{Fault, Injection, Shake, inject, schedule, schedule_restarts};
use crate::ledger::{Counts, Violation};
use crate::log::Kind;
use crate::rng::Rng;
use crate::world::{Planned, Setup, World};

/// How long the world has to heal after the last fault: a minute, which the two longest timers fill when everything was
/// killed and no fleet size is set (30 s until a claim is stale, 30 s of a restart's window), and what follows them.
const HEALING: Duration = Duration::from_secs(65);
/// How long what a fault leaves behind may take to come to its end: waits, roll-outs, repeated notifications.
const TAIL: Duration = Duration::from_secs(10);
/// How long it may take until a message that does harm is condemned.
const HARM: Duration = Duration::from_secs(120);
/// How long a planned restart takes: everybody else's messages must be processed by then.
const RESTART: Duration = Duration::from_secs(5);
/// How long after a crash the orphans must be theirs who can take them.
const RECOVERY: Duration = Duration::from_secs(7);

/// What to run.
#[derive(Clone, Debug)]
pub struct Run {
    /// The seed of everything.
    pub seed: u64,
    /// How many workers there should be.
    pub workers: usize,
    /// How many chambers there are.
    pub chambers: usize,
    /// How long faults are injected.
    pub length: Duration,
    /// The kinds of faults that are injected at moments; none for calm weather.
    pub faults: Vec<Fault>,
    /// The kinds of faults that befall requests by chance.
    pub shakes: Vec<Shake>,
    /// The rule to work without, in a build that can.
    pub without: Option<Guard>,
    /// What ends a lease whose holder does not.
    pub tenure: Tenure,
}

/// What one run came to.
#[derive(Debug)]
pub struct Outcome {
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

impl Run {
    /// A run with every fault.
    pub fn new(seed: u64, workers: usize, chambers: usize, length: Duration) -> Self {
        let (faults, shakes) = (Fault::ALL.to_vec(), Shake::ALL.to_vec());
        Self { seed, workers, chambers, length, faults, shakes, without: None, tenure: Tenure::Silence }
    }

    /// The faults of this run.
    pub fn injections(&self) -> Vec<Injection> {
        let from = Duration::from_secs(20);
        let mut injections = schedule(&mut Rng::new(self.seed ^ 0xfa17), &self.faults, from, self.length);
        let mut rng = Rng::new(self.seed ^ 0x7e57_a127);
        injections.extend(schedule_restarts(&mut rng, &self.faults, from, self.length));
        injections.sort_by_key(|injection| injection.at);
        injections
    }

    /// Runs it.
    pub fn run(&self) -> Outcome {
        self.run_with(&self.injections(), None)
    }

    /// Runs it with these faults instead of all of its own; tells a line for everything that happens if asked to.
    pub fn run_with(&self, injections: &[Injection], mut trace: Option<&mut dyn FnMut(&str)>) -> Outcome {
        let mut rng = Rng::new(self.seed);
        let fleet_size = rng.one_in(2).then_some(self.workers as u32);
        let process_timeout = Duration::from_secs(5);
        let stranger_interval = Duration::from_secs(10);
        let most = self.workers + self.workers / 3 + 3;
        let max_workers = Config::default().max_workers.max(most as u32);
        let mut config = Config {
            fleet_size,
            process_timeout,
            stranger_interval,
            max_workers,
            tenure: self.tenure,
            ..Config::default()
        };
        if let Some(guard) = self.without {
            assert!(config.take_out(guard), "a build without the feature `mutants` keeps every rule");
        }
        let mut world = World::new(Setup {
            config,
            partitions: self.chambers,
            traffic: Some(Duration::from_secs(60)),
            seed: rng.next(),
            ..Setup::default()
        });
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
        if !self.shakes.is_empty() {
            world.shake(rng.next(), &self.shakes);
        }
        for _ in 0..self.workers {
            world.plan(Duration::from_millis(rng.between(0, 15_000)), Planned::Start);
        }
        let mut faults: BTreeMap<&'static str, u64> = BTreeMap::new();
        for injection in injections {
            world.run_until(injection.at);
            inject(&mut world, injection, self.workers);
            *faults.entry(injection.fault.name()).or_default() += 1;
            tell(&mut world);
        }
        world.run_until(self.length);
        faults.extend(world.shaken().iter().map(|(kind, count)| (*kind, *count)));
        self.heal(&mut world);
        self.restart_in_the_calm(&mut world, rng.one_in(2));
        let recovery = self.crash_in_the_calm(&mut world, rng.one_in(2));
        world.close_books();
        tell(&mut world);
        Outcome {
            seed: self.seed,
            violations: world.take_violations(),
            faults,
            injections: injections.to_vec(),
            simulated: world.now(),
            publications: world.publications().len(),
            recovery,
            counts: world.counts(),
            events: world.events,
            trace_hash: world.trace_hash(),
        }
    }

    /// The faults stop: after a minute everything must be as it should be.
    fn heal(&self, world: &mut World) {
        world.forgo_plans();
        world.calm();
        world.lose(&phalanx_cluster_core::types::Key::FleetSize);
        world.keep_messages_for(world.retention());
        for process in world.living().collect::<Vec<_>>() {
            world.resume(process);
        }
        self.complete(world);
        let end = world.now() + TAIL;
        world.run_until(end);
        // A message that kills its workers is a fault for as long as it is there.
        world.run_while(HARM, World::has_harmful_messages);
        self.complete(world);
        let end = world.now() + HEALING;
        world.run_until(end - HEALING / 2);
        world.silence();
        world.run_until(end);
        for what in unhealed(world, self.workers) {
            world.violate(16, what);
        }
        world.close_books();
    }

    /// The fleet has its size: whoever was started with another one goes, and whoever is missing comes.
    fn complete(&self, world: &mut World) {
        world.kill_odd_ones();
        while world.living().count() < self.workers {
            world.start();
        }
    }

    /// One planned restart when nothing else happens, where the fleet size is set: no map is made for it, and whatever the
    /// others own is processed meanwhile.
    fn restart_in_the_calm(&self, world: &mut World, leader: bool) {
        let sized = world.map().is_some_and(|map| map.fleet_size.is_some());
        if world.has_violations() || self.workers < 2 || !sized {
            return;
        }
        let Some(victim) = world.living().find(|&process| {
            world.worker(process).is_leader() == leader && world.worker(process).owned() > 0
        }) else {
            return;
        };
        let Some(id) = world.worker(victim).holder().map(|holder| holder.id.0) else { return };
        let versions = world.publications().len();
        let workers: Vec<u32> = world.map().into_iter().flat_map(|map| &map.workers).map(|id| id.0).collect();
        let others: Vec<u32> = workers
            .into_iter()
            .filter(|other| *other != id)
            .flat_map(|other| world.chambers_of(other))
            .collect();
        world.terminate(victim);
        for &chamber in &others {
            world.publish(chamber, Kind::Good);
        }
        let end = world.now() + RESTART;
        world.run_until(end);
        let waiting = world.unresolved(&others);
        if waiting > 0 {
            world
                .violate(18, format!("defender-{id} restarts, and {waiting} messages of others wait for it"));
        }
        world.start();
        let end = world.now() + RESTART * 3;
        world.run_until(end);
        let made = world.publications().len() - versions;
        if made > 0 {
            world.violate(14, format!("a restart of defender-{id} made {made} versions"));
        }
    }

    /// One crash when nothing else happens: its chambers must have a living owner within the promise.
    fn crash_in_the_calm(&self, world: &mut World, leader: bool) -> Option<Duration> {
        if world.has_violations() || self.workers < 2 {
            return None;
        }
        let victim = world.living().find(|&process| {
            world.worker(process).is_leader() == leader && world.worker(process).owned() > 0
        })?;
        let id = world.worker(victim).holder()?.id.0;
        let orphans = world.chambers_of(id);
        let began = world.now();
        world.kill(victim);
        let limit = match self.tenure {
            Tenure::Term(term) if leader => term + Duration::from_secs(1),
            _ => RECOVERY,
        };
        let recovered =
            world.run_while(limit, |world| !orphans.iter().all(|&chamber| world.owner_of(chamber).is_some()));
        if !recovered {
            world.violate(13, format!("defender-{id} died, and its chambers wait longer than {limit:?}"));
        }
        Some(world.now() - began)
    }
}

/// What is not as it should be once everything has had time to heal.
fn unhealed(world: &World, workers: usize) -> Vec<String> {
    let mut wrong = Vec::new();
    let leaders = world.living().filter(|&process| world.worker(process).is_leader()).count();
    if leaders != 1 {
        wrong.push(format!("{leaders} leaders"));
    }
    let Some(map) = world.map().cloned() else {
        wrong.push("no map".to_owned());
        return wrong;
    };
    for id in &map.workers {
        if world.holder_of(id.0).is_none() {
            wrong.push(format!("nobody holds {id}, which the map names"));
        }
    }
    for process in world.living() {
        let worker = world.worker(process);
        match worker.holder() {
            Some(holder) if !map.workers.contains(&holder.id) => {
                wrong.push(format!("{} has no part in the map", holder.id));
            }
            Some(holder) if worker.state() != WorkerState::Stable => {
                wrong.push(format!("{} shows {}", holder.id, worker.state()));
            }
            Some(_) => {}
            None if map.fleet_size.is_some() && world.living().count() > workers => {}
            None => {
                let cause = worker.history().last().map_or("", |last| &*last.cause);
                let (state, size) = (worker.state(), map.fleet_size);
                wrong.push(format!("{process} has no id: {state} ({cause}); the fleet size is {size:?}"));
            }
        }
    }
    let mut loads: BTreeMap<u32, u64> = map.workers.iter().map(|id| (id.0, 0)).collect();
    for assignment in map.assignments.values() {
        *loads.entry(assignment.owner.0).or_default() += assignment.weight;
    }
    let mean = loads.values().sum::<u64>() as f64 / loads.len() as f64;
    let heaviest = map.assignments.values().map(|assignment| assignment.weight).max().unwrap_or(0);
    if heaviest as f64 <= 0.2 * mean {
        for (id, load) in loads.iter().filter(|(_, load)| (**load as f64 - mean).abs() > 0.2 * mean + 1.0) {
            wrong.push(format!("defender-{id} carries {:.2} of the mean", *load as f64 / mean));
        }
    }
    wrong
}

/// The shortest run with the fewest faults that still breaks the promise that broke first: whatever can be left out is,
/// for as long as it may go on.
pub fn shorten(run: &Run, outcome: &Outcome, mut goes_on: impl FnMut() -> bool) -> (Run, Vec<Injection>) {
    let Some(first) = outcome.violations.first() else { return (run.clone(), outcome.injections.clone()) };
    let breaks = |run: &Run, injections: &[Injection]| {
        let outcome = run.run_with(injections, None);
        outcome.violations.first().is_some_and(|violation| violation.invariant == first.invariant)
    };
    let (mut run, mut injections) = (run.clone(), outcome.injections.clone());
    let shorter = Run { length: run.length.min(first.at + Duration::from_secs(1)), ..run.clone() };
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
