//! Seeded chaos: a phase with faults, then one in which everything must heal.

use std::collections::BTreeMap;
use std::time::Duration;

use phalanx_cluster::core::types::Time;
use phalanx_cluster::core::{Config, Guard, WorkerState};

use crate::ledger::Violation;
use crate::rng::Rng;
use crate::world::{ProcessId, Setup, World};

/// How long the world has to heal after the last fault: the longest window, a stale claim, and an evening-out.
const HEALING: Duration = Duration::from_secs(150);

/// What one run came to.
#[derive(Debug)]
pub struct Outcome {
    /// The seed, which gives the same run again.
    pub seed: u64,
    /// Broken promises, in the order they broke.
    pub violations: Vec<Violation>,
    /// Faults injected, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Maps published.
    pub publications: usize,
    /// A hash over everything that happened: the same seed gives the same.
    pub trace_hash: u64,
}

/// Runs one seed: `workers` workers, faults for `length`, then healing.
pub fn run(seed: u64, workers: usize, length: Duration) -> Outcome {
    run_without(None, seed, workers, length)
}

/// The same with a rule of the protocol taken out.
pub fn run_without(guard: Option<Guard>, seed: u64, workers: usize, length: Duration) -> Outcome {
    let mut rng = Rng::new(seed);
    let fleet_size = rng.one_in(2).then_some(workers as u32);
    let config = Config { fleet_size, without: guard, ..Config::default() };
    let mut world = World::new(Setup { config, partitions: 12 * workers, ..Setup::default() });
    world.shake(rng.next());
    let mut faults: BTreeMap<&'static str, u64> = BTreeMap::new();
    for _ in 0..workers {
        world.start();
    }
    let mut waking: Vec<(Time, ProcessId)> = Vec::new();
    while world.now() < length {
        let pause = Duration::from_millis(rng.between(100, 8_000));
        let next = world.now() + pause;
        wake_due(&mut world, &mut waking, next);
        world.run_until(next);
        let kind = inject(&mut world, &mut rng, workers, &mut waking);
        *faults.entry(kind).or_default() += 1;
    }
    world.calm();
    wake_due(&mut world, &mut waking, Time::MAX);
    while world.living().count() < workers {
        world.start();
    }
    let end = world.now() + HEALING;
    world.run_until(end);
    let mut violations = world.take_violations();
    violations.extend(unhealed(&world, workers));
    Outcome {
        seed,
        violations,
        faults,
        publications: world.publications().len(),
        trace_hash: world.trace_hash(),
    }
}

fn wake_due(world: &mut World, waking: &mut Vec<(Time, ProcessId)>, until: Time) {
    waking.sort_unstable();
    while let Some(&(at, process)) = waking.first().filter(|(at, _)| *at <= until) {
        waking.remove(0);
        if at < Time::MAX && until < Time::MAX {
            world.run_until(at.max(world.now()));
        }
        world.resume(process);
    }
}

fn inject(
    world: &mut World,
    rng: &mut Rng,
    workers: usize,
    waking: &mut Vec<(Time, ProcessId)>,
) -> &'static str {
    let living: Vec<ProcessId> = world.living().collect();
    let any = |rng: &mut Rng| living.get(rng.next() as usize % living.len().max(1)).copied();
    let seconds =
        |rng: &mut Rng, low: u64, high: u64| Duration::from_millis(rng.between(low * 1000, high * 1000));
    match (rng.between(0, 10), any(rng)) {
        (0, Some(victim)) => {
            world.kill(victim);
            "sigkill"
        }
        (1, _) => {
            if let Some(leader) = world.leader() {
                world.kill(leader);
            }
            "leaderKilled"
        }
        (2, Some(victim)) if !waking.iter().any(|(_, process)| *process == victim) => {
            world.stop(victim);
            let wake = world.now() + seconds(rng, 1, 40);
            waking.push((wake, victim));
            "sigstop"
        }
        (3, Some(victim)) => {
            world.terminate(victim);
            "sigterm"
        }
        (4 | 5, Some(victim)) => {
            let until = world.now() + seconds(rng, 1, 20);
            world.cut(victim, until);
            "linkLoss"
        }
        (6, _) => {
            let until = world.now() + seconds(rng, 4, 60);
            world.cut_all(until);
            "brokerOutage"
        }
        _ => {
            if living.len() < workers + 2 {
                world.start();
            }
            "start"
        }
    }
}

/// What is not as it should be once everything has had time to heal.
fn unhealed(world: &World, workers: usize) -> Vec<Violation> {
    let mut wrong = Vec::new();
    let mut say = |what: String| wrong.push(Violation { invariant: 16, at: world.now(), what });
    let leaders = world.living().filter(|&process| world.worker(process).is_leader()).count();
    if leaders != 1 {
        say(format!("{leaders} leaders"));
    }
    let Some(map) = world.living().find_map(|process| world.worker(process).map().cloned()) else {
        say("no map".to_owned());
        return wrong;
    };
    for id in &map.workers {
        if world.holder_of(id.0).is_none() {
            say(format!("nobody holds {id}, which the map names"));
        }
    }
    for process in world.living() {
        let worker = world.worker(process);
        match worker.holder() {
            Some(holder) if !map.workers.contains(&holder.id) => {
                say(format!("{} has no part in the map", holder.id))
            }
            Some(holder) if worker.state() != WorkerState::Stable => {
                say(format!("{} shows {}", holder.id, worker.state()))
            }
            Some(_) => {}
            None if map.fleet_size.is_some() && world.living().count() > workers => {}
            None => say(format!("{process} has no id")),
        }
    }
    wrong
}
