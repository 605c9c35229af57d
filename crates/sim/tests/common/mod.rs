//! What the schedules share: a calm fleet with one rule taken out, and what broke.

#![allow(dead_code, reason = "each test file uses its part")]

use std::time::Duration;

use phalanx_cluster::core::{Config, Guard, WorkerState};
use phalanx_sim::{ProcessId, Setup, World};

pub fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Lets time pass.
pub fn wait(world: &mut World, time: Duration) {
    let end = world.now() + time;
    world.run_until(end);
}

/// A calm fleet after a minute, with one rule taken out.
pub fn fleet(without: Option<Guard>, workers: u32, fleet_size: Option<u32>) -> (World, Vec<ProcessId>) {
    fleet_with(Config { fleet_size, without, ..Config::default() }, workers)
}

/// A calm fleet after a minute, with a configuration of its own.
pub fn fleet_with(config: Config, workers: u32) -> (World, Vec<ProcessId>) {
    let mut world = World::new(Setup { config, partitions: 300, ..Setup::default() });
    // Their heartbeats are spread over the interval, as in life.
    let start = |world: &mut World, turn: u32| {
        world.run_until(ms(u64::from(turn) * 370));
        world.start()
    };
    let processes = (0..workers).map(|turn| start(&mut world, turn)).collect();
    world.run_until(s(60));
    assert!(world.all_show(WorkerState::Stable), "calm after a minute");
    world.forget_publications();
    (world, processes)
}

/// What broke, with the number of its invariant.
pub fn broken(world: &mut World) -> Vec<String> {
    world.close_books();
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
pub fn needs(guard: Guard, schedule: impl Fn(Option<Guard>) -> Vec<String>) {
    let with = schedule(None);
    assert!(with.is_empty(), "with every rule: {with:#?}");
    let without = schedule(Some(guard));
    assert!(!without.is_empty(), "without {guard:?} nothing breaks");
    println!("measured: without {guard:?}: {}", without[0]);
}
