//! Rolling updates and scaling, to the second, with messages flowing.

use crate::common;
use crate::common::{Rollout, at, calm, is_ready, maps, ms, owned, s, settle, start, wait};
use phalanx_cluster_core::types::{Key, Value};
use phalanx_sim::{MessageKind, World};

fn roll(world: &mut World, replicas: usize, surge: usize, unavailable: usize) -> u64 {
    let old = world.running().collect();
    Rollout { replicas, surge, unavailable, old, new: Vec::new() }.run(world).as_secs()
}

#[test]
fn a_rolling_update_with_surge_ten_and_unavailable_zero_moves_nothing() {
    let (mut world, _) = calm(30, Some(30));
    let took = roll(&mut world, 30, 10, 0);
    println!("measured: the roll-out took {took} s");
    wait(&mut world, s(60));
    assert_eq!(maps(&world), []);
    assert_eq!(world.running().count(), 30);
    settle(world);
}

#[test]
fn a_rolling_update_with_unavailable_five_moves_nothing() {
    let (mut world, _) = calm(30, Some(30));
    roll(&mut world, 30, 0, 5);
    wait(&mut world, s(60));
    assert_eq!(maps(&world), []);
    assert_eq!(world.running().count(), 30);
    settle(world);
}

#[test]
fn a_rolling_update_with_surge_and_unavailable_moves_nothing() {
    let (mut world, _) = calm(30, Some(30));
    roll(&mut world, 30, 10, 5);
    wait(&mut world, s(60));
    assert_eq!(maps(&world), []);
    settle(world);
}

#[test]
fn a_leader_that_leaves_in_the_middle_of_the_grace_of_another_moves_nothing() {
    let (mut world, processes) = calm(30, Some(30));
    world.terminate(processes[17]);
    world.run_until(at(80));
    let leader = world.leader().unwrap();
    world.terminate(leader);
    world.run_until(at(100));
    start(&mut world, 2);
    world.run_until(at(180));
    assert_eq!(maps(&world), []);
    settle(world);
}

#[test]
fn the_grace_is_counted_from_the_farewell_whoever_leads() {
    let (mut world, processes) = calm(30, Some(30));
    world.terminate(processes[17]);
    world.run_until(at(80));
    let leader = world.leader().unwrap();
    world.terminate(leader);
    world.run_until(at(100));
    // The leader comes back, the other does not: 60 s + 45 s of grace + 10 s of window.
    world.start();
    world.run_until(at(180));
    assert_eq!(maps(&world), [(115, 2, "stable", 29, 12)]);
    settle(world);
}

/// Without a fleet size each surge pod is a join, and each stopped pod a leave: what moves is what the requirements'
/// windows of ten seconds make of it.
#[test]
fn a_rolling_update_without_a_fleet_size_moves_partitions_window_by_window() {
    let (mut world, _) = calm(30, None);
    roll(&mut world, 30, 10, 0);
    wait(&mut world, s(60));
    assert_eq!(maps(&world), [(70, 2, "stable", 40, 92), (85, 3, "stable", 30, 67)]);
    assert_eq!(world.running().count(), 30);
    settle(world);
}

#[test]
fn a_leave_within_its_grace_moves_nothing_where_the_fleet_size_is_set() {
    let (mut world, processes) = calm(10, Some(10));
    world.terminate(processes[4]);
    world.run_until(at(80));
    let successor = world.start();
    world.run_until(at(160));
    assert_eq!(world.worker(successor).incarnation().unwrap().id.0, 4);
    assert_eq!(maps(&world), []);
    settle(world);
}

#[test]
fn a_leave_without_a_successor_is_planned_away_after_its_grace() {
    let (mut world, processes) = calm(10, Some(10));
    let had = owned(&world, &processes[4..5]);
    world.terminate(processes[4]);
    world.run_until(at(200));
    // 60 s + 45 s of grace + 10 s of window.
    assert_eq!(maps(&world), [(115, 2, "stable", 9, had)]);
    settle(world);
}

#[test]
fn a_leave_without_a_fleet_size_is_a_planned_scale_down() {
    let (mut world, processes) = calm(10, None);
    let had = owned(&world, &processes[4..5]);
    world.terminate(processes[4]);
    world.run_until(at(120));
    assert_eq!(maps(&world), [(70, 2, "stable", 9, had)]);
    settle(world);
}

#[test]
fn scale_from_30_to_45_and_back_to_30() {
    let (mut world, _) = calm(30, None);
    let added = start(&mut world, 15);
    world.run_until(at(120));
    let had = owned(&world, &added);
    added.into_iter().for_each(|process| world.terminate(process));
    world.run_until(at(180));
    assert_eq!(maps(&world), [(70, 2, "stable", 45, 101), (130, 3, "stable", 30, had)]);
    settle(world);
}

#[test]
fn a_commanded_scale_from_30_to_45_waits_for_all_and_back_for_nobody() {
    let (mut world, _) = calm(30, Some(30));
    world.command(&Key::FleetSize, Value::FleetSize(45));
    world.run_until(at(65));
    start(&mut world, 15);
    world.run_until(at(100));
    world.command(&Key::FleetSize, Value::FleetSize(30));
    world.run_until(at(160));
    assert_eq!(maps(&world), [(65, 2, "stable", 45, 101), (100, 3, "stable", 30, 101)]);
    assert_eq!(world.running().filter(|&pod| world.worker(pod).is_standby()).count(), 15);
    settle(world);
}

#[test]
fn a_scale_down_that_stops_arbitrary_pods_makes_one_map_and_fills_the_holes() {
    let (mut world, processes) = calm(8, Some(8));
    world.command(&Key::FleetSize, Value::FleetSize(5));
    world.run_until(at(62));
    // Three hold ids beyond the new size: they hand over and stand by.
    assert_eq!(processes[5..].iter().filter(|&&p| world.worker(p).is_standby()).count(), 3);
    // The pods that are stopped are not theirs: they take the ids that come free, and nothing moves.
    for &stopped in &processes[1..4] {
        world.terminate(stopped);
    }
    world.run_until(at(180));
    assert_eq!(maps(&world), [(60, 2, "stable", 5, 99)]);
    assert_eq!((0..5).filter(|&id| world.holder_of(id).is_some()).count(), 5);
    settle(world);
}

#[test]
fn a_complete_fleet_does_not_wait_for_the_window_of_a_cold_start() {
    let mut world = common::plant(Some(5));
    start(&mut world, 5);
    world.run_until(at(20));
    assert_eq!(maps(&world), [(0, 1, "post_cold_start", 5, 0)]);
    assert!(world.running().all(|pod| is_ready(&world, pod)));
    settle(world);
}

/// Invariant 18.
#[test]
fn a_planned_restart_of_an_id_pauses_only_the_partitions_of_that_id() {
    let (mut world, processes) = calm(10, Some(10));
    let paused = world.partitions_of(4);
    world.terminate(processes[4]);
    wait(&mut world, s(2));
    let published: Vec<(u32, u64)> =
        (0..300).map(|partition| (partition, world.publish(partition, MessageKind::Good))).collect();
    wait(&mut world, s(8));
    for &(partition, number) in &published {
        let waits = paused.contains(&partition);
        assert_eq!(
            world.has_rows(partition, number),
            !waits,
            "partition {partition}, one of the paused: {waits}"
        );
    }
    let successor = world.start();
    wait(&mut world, s(8));
    assert_eq!(world.worker(successor).incarnation().unwrap().id.0, 4);
    assert!(published.iter().all(|&(partition, number)| world.has_rows(partition, number)));
    assert_eq!(maps(&world), []);
    settle(world);
}

/// Invariant 14, for an outage that all share.
#[test]
fn a_broker_away_for_a_minute_in_the_middle_of_a_rolling_update_moves_nothing() {
    let (mut world, processes) = calm(10, Some(10));
    world.terminate(processes[4]);
    wait(&mut world, ms(500));
    world.start();
    wait(&mut world, s(5));
    let back = world.now() + s(60);
    world.cut_all(back);
    wait(&mut world, s(150));
    assert_eq!(maps(&world), []);
    settle(world);
}
