//! Clean restarts of a whole fleet: with leave records that expire, and in an embedded folder that discards them.

use crate::common::{broken, ms, s, settle, start, wait};
use phalanx_cluster_core::Config;
use phalanx_sim::{MessageKind, Setup, World};

const WORKERS: u32 = 3;
const PARTITIONS: u32 = 12;
/// Partition with a pending message in every run.
const PENDING: u32 = 0;
/// Partition without a message between the first run and the last.
const IDLE: u32 = 1;

/// Starts a fleet that has committed a message of every partition.
fn fleet() -> World {
    let config = Config { fleet_size: Some(WORKERS), ..Config::default() };
    let mut world = World::new(Setup { config, partitions: PARTITIONS as usize, ..Setup::default() });
    start(&mut world, WORKERS);
    wait(&mut world, s(10));
    publish_to_all(&mut world);
    wait(&mut world, s(10));
    assert_eq!(world.counts().committed, u64::from(PARTITIONS));
    world
}

fn publish_to_all(world: &mut World) {
    for partition in 0..PARTITIONS {
        world.publish(partition, MessageKind::Good);
    }
}

/// Stops every worker and waits until all have left.
fn stop(world: &mut World) {
    for process in world.running().collect::<Vec<_>>() {
        world.terminate(process);
    }
    assert!(world.run_while(s(25), |world| world.running().next().is_some()), "all have left");
}

fn kill(world: &mut World) {
    for process in world.running().collect::<Vec<_>>() {
        world.kill(process);
    }
}

/// Makes the result store unavailable, so that messages stay pending.
fn lose_store(world: &mut World) {
    let until = world.now() + s(3600);
    world.store_away(until);
}

/// Publishes a pending message and restarts the fleet several times, then publishes for the idle partition.
fn restart_again_and_again(world: &mut World, restart: impl Fn(&mut World)) {
    lose_store(world);
    world.publish(PENDING, MessageKind::Good);
    wait(world, s(5));
    for round in 1..=4 {
        restart(world);
        wait(world, s(20));
        assert_eq!(world.worker_crashes(PENDING), 0, "after {round} restarts");
    }
    world.publish(IDLE, MessageKind::Good);
    wait(world, s(5));
    assert_eq!(world.worker_crashes(IDLE), 0, "idle across restarts");
}

#[test]
fn clean_restarts_in_an_embedded_folder_count_as_no_worker_crash() {
    let mut world = fleet();
    restart_again_and_again(&mut world, |world| {
        stop(world);
        world.reopen_folder();
        start(world, WORKERS);
    });
    world.disable_faults();
    settle(world);
}

#[test]
fn a_fleet_that_is_down_until_its_leave_records_expire_counts_no_worker_crash() {
    let mut world = fleet();
    restart_again_and_again(&mut world, |world| {
        stop(world);
        wait(world, s(60));
        start(world, WORKERS);
    });
    world.disable_faults();
    settle(world);
}

#[test]
fn a_fleet_that_restarts_immediately_counts_no_worker_crash() {
    let mut world = fleet();
    restart_again_and_again(&mut world, |world| {
        stop(world);
        start(world, WORKERS);
    });
    world.disable_faults();
    settle(world);
}

#[test]
fn a_leave_while_messages_run_counts_as_no_worker_crash() {
    let mut world = fleet();
    for round in 0..10 {
        publish_to_all(&mut world);
        // At another step of the messages each time.
        wait(&mut world, ms(1 + 3 * round));
        stop(&mut world);
        world.reopen_folder();
        start(&mut world, WORKERS);
        wait(&mut world, s(10));
    }
    settle(world);
}

#[test]
fn a_kill_in_an_embedded_folder_counts_as_one_worker_crash_and_clean_restarts_add_none() {
    let mut world = fleet();
    lose_store(&mut world);
    world.publish(PENDING, MessageKind::Good);
    for crashes in 1..=2 {
        wait(&mut world, s(20));
        kill(&mut world);
        for _ in 0..2 {
            world.reopen_folder();
            start(&mut world, WORKERS);
            wait(&mut world, s(20));
            assert_eq!(world.worker_crashes(PENDING), crashes);
            stop(&mut world);
        }
        world.reopen_folder();
        start(&mut world, WORKERS);
    }
    assert_eq!(broken(&mut world).len(), 1, "the pending message is unresolved, and nothing else");
}

#[test]
fn a_message_that_is_abandoned_when_its_worker_leaves_may_count_as_a_worker_crash() {
    let config = Config { fleet_size: Some(1), process_timeout: s(60), ..Config::default() };
    let mut world = World::new(Setup { config, partitions: 2, ..Setup::default() });
    start(&mut world, 1);
    wait(&mut world, s(10));
    world.publish(PENDING, MessageKind::NeverEnds);
    world.publish(IDLE, MessageKind::Good);
    wait(&mut world, s(10));
    let worker = world.running().next().expect("the worker");
    world.terminate(worker);
    wait(&mut world, s(40));
    assert!(!world.is_alive(worker));
    world.reopen_folder();
    start(&mut world, 1);
    world.publish(IDLE, MessageKind::Good);
    wait(&mut world, s(20));
    assert_eq!((world.worker_crashes(PENDING), world.worker_crashes(IDLE)), (1, 0));
    assert_eq!(world.counts().committed, 2);
}
