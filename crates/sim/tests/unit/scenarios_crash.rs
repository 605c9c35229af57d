//! Crashes, pauses and partitions, to the second, with messages flowing.

use crate::common;
use crate::common::{Map, at, calm, maps, ms, owned, s, settle, start, wait};
use phalanx_cluster_core::WorkerState;
use phalanx_sim::World;

/// The orphans have a living owner within seven seconds: invariant 13.
#[test]
fn a_crash_of_one_moves_its_partitions_only() {
    let (mut world, processes) = calm(30, None);
    let orphans = world.partitions_of(11);
    let before = world.map().unwrap().assignments.clone();
    world.kill(processes[11]);
    let taken =
        world.run_while(s(7), |world| !orphans.iter().all(|&partition| world.owner_of(partition).is_some()));
    assert!(taken, "after {:?}", world.now() - s(60));
    let after = world.map().unwrap().assignments.clone();
    for (name, assignment) in &before {
        let moved = after[name].owner != assignment.owner;
        assert_eq!(moved, assignment.owner.0 == 11, "{name}");
    }
    world.run_until(at(120));
    assert_eq!(maps(&world), [(64, 2, "stable", 29, orphans.len())]);
    settle(world);
}

#[test]
fn a_crash_of_three_at_once() {
    let (mut world, processes) = calm(30, None);
    let orphans = owned(&world, &processes[5..8]);
    processes[5..8].iter().for_each(|&process| world.kill(process));
    world.run_until(at(140));
    // The first whose silence is confirmed does not wait for the others.
    assert_eq!(maps(&world), [(64, 2, "stable", 29, 11), (64, 3, "stable", 27, 19)]);
    assert_eq!(orphans, 11 + 19, "orphans only");
    settle(world);
}

#[test]
fn a_crash_of_the_leader() {
    let (mut world, _) = calm(30, None);
    let leader = world.leader().unwrap();
    let orphans = owned(&world, &[leader]);
    world.kill(leader);
    world.run_until(at(140));
    assert_eq!(maps(&world), [(64, 2, "stable", 29, orphans)]);
    settle(world);
}

#[test]
fn a_crash_of_the_leader_and_a_worker_together() {
    let (mut world, processes) = calm(30, None);
    let leader = world.leader().unwrap();
    let other = processes.iter().copied().find(|&process| process != leader).unwrap();
    let orphans = owned(&world, &[leader, other]);
    world.kill(leader);
    world.kill(other);
    world.run_until(at(140));
    assert_eq!(maps(&world), [(64, 2, "stable", 29, 10), (64, 3, "stable", 28, 14)]);
    assert_eq!(orphans, 10 + 14, "orphans only");
    settle(world);
}

#[test]
fn a_crash_of_the_leader_inside_a_window_is_one_emergency_with_the_join() {
    let (mut world, _) = calm(30, None);
    world.start();
    world.run_until(at(65));
    let leader = world.leader().unwrap();
    let orphans = owned(&world, &[leader]);
    world.kill(leader);
    world.run_until(at(140));
    assert_eq!(maps(&world), [(70, 2, "stable", 30, orphans)]);
    settle(world);
}

/// The window of a join ends at 70; the leader dies after so many of its effects from then on: before it has computed,
/// between computing and publishing, and after it.
#[test]
fn a_crash_of_the_leader_after_computing_and_before_publishing() {
    let outcome = |effects: u32| -> Vec<Map> {
        let (mut world, _) = calm(30, None);
        world.start();
        world.run_until(at(70) - ms(1));
        let leader = world.leader().unwrap();
        world.kill_after_effects(leader, effects);
        world.run_until(at(140));
        assert!(!world.is_alive(leader));
        let maps = maps(&world);
        settle(world);
        maps
    };
    // Before its heartbeat of 70 s: silent since 68.
    for effects in 0..=1 {
        assert_eq!(outcome(effects), [(74, 2, "stable", 30, 10)], "after {effects} effects");
    }
    // The map is computed and not sent: the join is in the emergency of its successor.
    for effects in 2..=4 {
        assert_eq!(outcome(effects), [(76, 2, "stable", 30, 10)], "after {effects} effects");
    }
    // The map is out: the emergency is for the leader's partitions alone.
    for effects in 5..=12 {
        let expected = [(70, 2, "stable", 31, 20), (76, 3, "stable", 30, 8)];
        assert_eq!(outcome(effects), expected, "after {effects} effects");
    }
}

#[test]
fn a_crash_with_a_hot_standby_moves_nothing() {
    let (mut world, processes) = calm(30, Some(30));
    let standby = world.start();
    world.run_until(at(70));
    assert!(world.worker(standby).is_standby());
    world.kill(processes[4]);
    world.run_until(at(77));
    assert_eq!(world.worker(standby).incarnation().unwrap().id.0, 4);
    world.run_until(at(140));
    assert_eq!(maps(&world), []);
    settle(world);
}

#[test]
fn a_crash_of_the_leader_with_a_hot_standby_moves_nothing() {
    let (mut world, _) = calm(30, Some(30));
    world.start();
    world.run_until(at(70));
    let leader = world.leader().unwrap();
    world.kill(leader);
    world.run_until(at(140));
    assert_eq!(maps(&world), []);
    settle(world);
}

/// A worker is stopped and wakes at each half second up to twenty: before its fence, between fence and crash, in the
/// middle of the emergency, inside the window of the evening-out, after all of it.
#[test]
fn a_worker_paused_for_up_to_twenty_seconds_wakes_at_each_point() {
    for half in 1..=40 {
        let pause = ms(500 * half);
        let (mut world, processes) = calm(10, None);
        let orphans = owned(&world, &processes[3..4]);
        world.stop(processes[3]);
        wait(&mut world, pause);
        world.resume(processes[3]);
        assert_eq!(
            world.worker(processes[3]).is_fenced(world.now()),
            pause > ms(2_500),
            "woken after {pause:?}"
        );
        world.run_until(at(140));
        // From six seconds after its last heartbeat, at 58, it is dead to the others; awake again it is a join.
        let expected = if pause < ms(4_500) {
            Vec::new()
        } else {
            vec![(64, 2, "stable", 9, orphans), ((s(70) + pause).as_secs(), 3, "stable", 10, 27)]
        };
        assert_eq!(maps(&world), expected, "woken after {pause:?}");
        settle(world);
    }
}

/// The same with a standby, who takes the id meanwhile: two processes with one id, of which one is fenced.
#[test]
fn two_processes_with_one_id_never_work_both() {
    for half in 1..=40 {
        let (mut world, processes) = calm(10, Some(10));
        let standby = world.start();
        wait(&mut world, s(5));
        world.stop(processes[3]);
        wait(&mut world, ms(500 * half));
        world.resume(processes[3]);
        wait(&mut world, s(60));
        let holder = world.holder_of(3).unwrap();
        let taken = holder == standby;
        // The leader frees the id six seconds after its last heartbeat, which was one second before the stop.
        assert_eq!(taken, half > 10, "after {half} half seconds");
        let other = if taken { processes[3] } else { standby };
        assert!(world.worker(other).is_standby(), "after {half} half seconds");
        assert_eq!(maps(&world), []);
        settle(world);
    }
}

#[test]
fn a_leader_cut_off_while_its_lease_expires_is_replaced_and_comes_back_as_a_follower() {
    let (mut world, _) = calm(10, None);
    let leader = world.leader().unwrap();
    let orphans = owned(&world, &[leader]);
    world.cut(leader, at(80));
    world.run_until(at(75));
    assert_eq!(world.worker(leader).state(), WorkerState::Degraded);
    let next = world.leader().unwrap();
    assert_ne!(next, leader);
    world.run_until(at(140));
    assert_eq!(world.leader(), Some(next));
    assert_eq!(maps(&world), [(64, 2, "stable", 9, orphans), (90, 3, "stable", 10, 30)]);
    settle(world);
}

/// CI-3.
#[test]
fn a_storm_of_conflicts_delays_a_map_and_loses_none() {
    let (mut world, _) = calm(10, None);
    world.start();
    world.run_until(at(70) - ms(5));
    // Somebody else swaps the map every millisecond.
    for turn in 0..40 {
        world.reassign(turn, turn % 10);
        wait(&mut world, ms(1));
    }
    world.run_until(at(140));
    // Forty versions of theirs, each above the last, and then the leader's.
    assert_eq!(maps(&world), [(70, 42, "stable", 11, 26)]);
    settle(world);
}

#[test]
fn a_broker_away_for_sixty_seconds_condemns_nobody() {
    for size in [None, Some(30)] {
        let (mut world, processes) = calm(30, size);
        world.cut_all(at(120));
        world.run_until(at(119));
        assert!(processes.iter().all(|&process| world.worker(process).state() == WorkerState::Degraded));
        world.run_until(at(200));
        assert_eq!(maps(&world), []);
        assert!(processes.iter().enumerate().all(|(id, &p)| world.holder_of(id as u32) == Some(p)));
        settle(world);
    }
}

fn skewed(seed: u64) -> World {
    let mut world = common::plant(None);
    world.skew_clocks(seed);
    start(&mut world, 30);
    world
}

/// Clocks up to two hours apart that drift by 200 ppm change no second of it.
#[test]
fn clocks_an_hour_off_and_drifting_change_nothing() {
    for seed in 1..=5 {
        let mut world = skewed(seed);
        world.run_until(at(100));
        start(&mut world, 2);
        world.run_until(at(200));
        let victim = world.holder_of(7).unwrap();
        let orphans = owned(&world, &[victim]);
        world.kill(victim);
        world.run_until(at(260));
        let crash = maps(&world).last().map_or(0, |map| map.0);
        assert!((204..=206).contains(&crash), "three intervals after the last heartbeat");
        let (joins, dead) = ((110, 2, "stable", 32, 27), (crash, 3, "stable", 31, orphans));
        assert_eq!(maps(&world), [(30, 1, "post_cold_start", 30, 0), joins, dead]);
        settle(world);
    }
}
