//! Helpers of the schedules: a fleet without faults and without one rule, and the broken invariants.

#![allow(dead_code, reason = "each test file uses its part")]
#![allow(unreachable_pub, reason = "a module that test files share")]

use std::time::Duration;

use phalanx_cluster_core::types::Time;
use phalanx_cluster_core::{Config, WorkerState};
use phalanx_sim::{ProcessId, Rule, Setup, World};

pub fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// The moment that many seconds after the beginning.
pub fn at(seconds: u64) -> Time {
    Time::from_secs(seconds)
}

/// The moment that many milliseconds after the beginning.
pub fn at_ms(milliseconds: u64) -> Time {
    Time::from_millis(milliseconds)
}

/// Lets time pass.
pub fn wait(world: &mut World, time: Duration) {
    let end = world.now() + time;
    world.run_until(end);
}

/// A fleet without faults after a minute, without one rule.
pub fn fleet(without: Option<Rule>, workers: u32, fleet_size: Option<u32>) -> (World, Vec<ProcessId>) {
    fleet_with(without, Config { fleet_size, ..Config::default() }, workers)
}

/// A fleet without faults after a minute, with a configuration of its own and without one rule.
pub fn fleet_with(without: Option<Rule>, config: Config, workers: u32) -> (World, Vec<ProcessId>) {
    let mut setup = Setup { config, partitions: 300, ..Setup::default() };
    if let Some(rule) = without {
        assert!(setup.disable_rule(rule), "this build can disable {rule}");
    }
    let mut world = World::new(setup);
    // Their heartbeats are spread over the interval, as in life.
    let start = |world: &mut World, turn: u32| {
        world.run_until(at_ms(u64::from(turn) * 370));
        world.start()
    };
    let processes = (0..workers).map(|turn| start(&mut world, turn)).collect();
    world.run_until(at(60));
    assert!(world.all_show(WorkerState::Stable), "calm after a minute");
    world.forget_publications();
    (world, processes)
}

/// What broke, with the number of its invariant.
pub fn broken(world: &mut World) -> Vec<String> {
    world.finish_checks();
    world.take_violations().iter().map(ToString::to_string).collect()
}

/// What broke so far, while messages are still on their way.
pub fn breached(world: &mut World) -> Vec<String> {
    world.take_violations().iter().map(ToString::to_string).collect()
}

/// A promise that the world cannot see by itself.
pub fn unless(holds: bool, promise: &str) -> Vec<String> {
    if holds { Vec::new() } else { vec![promise.to_owned()] }
}

/// The schedule is clean with the rule, and not without it.
#[track_caller]
pub fn needs(rule: impl Into<Rule>, schedule: impl Fn(Option<Rule>) -> Vec<String>) {
    let rule = rule.into();
    let with = schedule(None);
    assert!(with.is_empty(), "with every rule: {with:#?}");
    let without = schedule(Some(rule));
    assert!(!without.is_empty(), "without {rule} nothing breaks");
    println!("without {rule}: {}", without[0]);
}

/// A map as the scenarios state it: second, version, lifecycle, workers, partitions moved.
pub type Map = (u64, u64, &'static str, usize, usize);

/// Every map published since the scenario began.
pub fn maps(world: &World) -> Vec<Map> {
    world.publications().iter().map(|p| (p.second, p.version, p.lifecycle, p.workers, p.moved)).collect()
}

/// 300 partitions that publish every half minute or so, and nobody yet.
pub fn plant(fleet_size: Option<u32>) -> World {
    plant_with(Config { fleet_size, ..Config::default() })
}

/// 300 partitions that publish every half minute or so, and nobody yet.
pub fn plant_with(config: Config) -> World {
    World::new(Setup { config, partitions: 300, traffic: Some(s(30)), ..Setup::default() })
}

/// A fleet of workers started together that has run for a minute, with its publications forgotten.
pub fn calm(workers: u32, fleet_size: Option<u32>) -> (World, Vec<ProcessId>) {
    let mut world = plant(fleet_size);
    let processes = start(&mut world, workers);
    world.run_until(at(60));
    assert!(world.all_show(WorkerState::Stable), "calm after a minute");
    world.forget_publications();
    (world, processes)
}

/// Starts that many at once.
pub fn start(world: &mut World, workers: u32) -> Vec<ProcessId> {
    (0..workers).map(|_| world.start()).collect()
}

/// How many partitions these own together, by the stored map.
pub fn owned(world: &World, processes: &[ProcessId]) -> usize {
    let ids = processes.iter().filter_map(|&process| world.worker(process).incarnation());
    ids.map(|holder| world.partitions_of(holder.id.0).len()).sum()
}

/// The end of a scenario: no more messages, half a minute for those that run, every promise kept, everybody well.
#[track_caller]
pub fn settle(mut world: World) {
    world.stop_traffic();
    wait(&mut world, s(40));
    world.finish_checks();
    let broken: Vec<String> = world.take_violations().iter().map(ToString::to_string).collect();
    assert!(broken.is_empty(), "{broken:#?}");
    let counts = world.counts();
    assert_eq!((counts.committed, counts.lost), (counts.published, 0), "every message is committed once");
    let leaders = world.running().filter(|&process| world.worker(process).is_leader()).count();
    assert_eq!(leaders, usize::from(world.running().next().is_some()), "leaders");
    for process in world.running() {
        let worker = world.worker(process);
        let well =
            worker.is_standby() || worker.incarnation().is_some() && worker.state() == WorkerState::Stable;
        assert!(well, "{process} shows {} in the end", worker.state());
    }
}

/// As Kubernetes asks: an id and an assignment, or a standby.
pub fn is_ready(world: &World, pod: ProcessId) -> bool {
    let worker = world.worker(pod);
    let served =
        worker.incarnation().is_some() && worker.owned() > 0 && worker.state() != WorkerState::Shutdown;
    world.is_alive(pod) && (worker.is_standby() || served)
}

/// A model of the Deployment controller of Kubernetes during a rolling update.
pub struct Rollout {
    pub replicas: usize,
    pub surge: usize,
    pub unavailable: usize,
    pub old: Vec<ProcessId>,
    pub new: Vec<ProcessId>,
}

impl Rollout {
    /// Replaces every old pod, looking once a second: new pods up to the surge, an old one stopped only while enough
    /// are ready. Gives the time it took.
    pub fn run(mut self, world: &mut World) -> Duration {
        let began = world.now();
        while self.new.len() < self.replicas
            || !self.old.is_empty()
            || self.new.iter().any(|&pod| !is_ready(world, pod))
        {
            assert!(world.now() < began + s(900), "the roll-out is stuck with {} old pods", self.old.len());
            while self.old.len() + self.new.len() < self.replicas + self.surge
                && self.new.len() < self.replicas
            {
                self.new.push(world.start());
            }
            let ready = self.old.iter().chain(&self.new).filter(|&&pod| is_ready(world, pod)).count();
            let spare = ready.saturating_sub(self.replicas - self.unavailable);
            for pod in self.old.drain(..spare.min(self.old.len())) {
                world.terminate(pod);
            }
            wait(world, s(1));
        }
        world.now() - began
    }
}
