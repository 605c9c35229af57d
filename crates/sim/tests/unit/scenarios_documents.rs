//! The scenarios of the requirements, to the second, with the design's corrections: 1 to 7, the rows of the matrix, the
//! integration and the chaos tests of the implementation plan.

use crate::common::{at, at_ms, calm, is_ready, maps, ms, owned, plant, s, settle, start, wait};
use phalanx_cluster_core::WorkerState;
use phalanx_sim::{ProcessId, World};

/// CSM-1, CSM-M1, CSM-T1.
#[test]
fn scenario_1_thirty_joins_over_28_seconds_make_one_map() {
    let mut world = plant(None);
    for join in 0..30 {
        world.run_until(at_ms(join * 28_000 / 29));
        world.start();
    }
    world.run_until(at(90));
    assert_eq!(maps(&world), [(30, 1, "post_cold_start", 30, 0)]);
    settle(world);
}

/// CSM-2, CSM-M2, CSM-T3.
#[test]
fn scenario_2_two_joins_share_a_window_of_ten_seconds() {
    let (mut world, _) = calm(30, None);
    world.run_until(at(100));
    world.start();
    world.run_until(at(105));
    world.start();
    world.run_until(at(180));
    assert_eq!(maps(&world), [(110, 2, "stable", 32, 27)]);
    settle(world);
}

/// CSM-3, CSM-M3, CSM-T4.
#[test]
fn scenario_3_a_crash_is_redistributed_six_seconds_after_the_last_heartbeat() {
    let (mut world, processes) = calm(30, None);
    world.run_until(at(100));
    // Its heartbeats came at 96 and 98; the one of 100 is the first that is missing.
    let orphans = owned(&world, &processes[15..16]);
    world.kill(processes[15]);
    world.run_until(at(180));
    assert_eq!(maps(&world), [(104, 2, "stable", 29, orphans)]);
    settle(world);
}

/// CSM-4.
#[test]
fn scenario_4_a_crash_inside_a_window_ends_it_and_one_calculation_covers_both() {
    let (mut world, processes) = calm(30, None);
    world.run_until(at(100));
    world.start();
    world.run_until(at(101));
    let orphans = owned(&world, &processes[15..16]);
    world.kill(processes[15]);
    world.run_until(at(105));
    world.start();
    world.run_until(at(180));
    // Then one evening-out, ten seconds later, and nothing more.
    assert_eq!(maps(&world), [(106, 2, "stable", 31, orphans), (116, 3, "stable", 31, 17)]);
    settle(world);
}

/// CSM-5.
#[test]
fn scenario_5_the_dead_leader_is_version_2_and_the_next_join_version_3() {
    let (mut world, _) = calm(30, None);
    world.run_until(at(100));
    let leader = world.leader().unwrap();
    let orphans = owned(&world, &[leader]);
    world.kill(leader);
    world.run_until(at(200));
    world.start();
    world.run_until(at(260));
    assert_eq!(maps(&world), [(104, 2, "stable", 29, orphans), (210, 3, "stable", 30, 18)]);
    settle(world);
}

/// CSM-6, CSM-M8.
#[test]
fn scenario_6_the_window_of_a_cold_start_is_inherited() {
    let mut world = plant(None);
    let first = world.start();
    world.run_until(at(5));
    start(&mut world, 9);
    world.run_until(at(15));
    assert_eq!(world.leader(), Some(first));
    world.kill(first);
    world.run_until(at(90));
    assert_eq!(maps(&world), [(30, 1, "post_cold_start", 9, 0)]);
    settle(world);
}

fn restart_of_64(stop_over: u64, back: u32, start_over: u64) -> World {
    let (mut world, processes) = calm(64, None);
    for (turn, process) in processes.into_iter().enumerate() {
        world.run_until(at(60) + ms(turn as u64 * stop_over * 1000 / 64));
        world.terminate(process);
    }
    world.run_until(at(160));
    assert_eq!(world.running().count(), 0);
    for turn in 0..back {
        world.run_until(at(160) + ms(u64::from(turn) * start_over * 1000 / 64));
        world.start();
    }
    world.run_until(at(280));
    world
}

/// CSM-7, CSM-M4, CSM-T2.
#[test]
fn scenario_7_when_the_same_ids_return_nothing_is_published_and_nothing_moves() {
    let world = restart_of_64(5, 64, 25);
    assert_eq!(maps(&world), []);
    settle(world);
}

#[test]
fn scenario_7_with_sixty_of_64_is_one_map_thirty_seconds_after_the_restart() {
    let world = restart_of_64(0, 60, 0);
    assert_eq!(maps(&world), [(190, 2, "post_cold_start", 60, 19)]);
    settle(world);
}

#[test]
fn scenario_7_with_leaves_spread_over_thirty_seconds_follows_them_and_then_waits_for_all() {
    let world = restart_of_64(30, 64, 25);
    // The windows of the leaves made smaller maps, the last for 20. Those 20 are awaited, and whoever comes then joins.
    assert_eq!(
        maps(&world),
        [
            (70, 2, "stable", 42, 103),
            (80, 3, "stable", 20, 160),
            (177, 4, "stable", 46, 114),
            (187, 5, "stable", 64, 120)
        ]
    );
    settle(world);
}

#[test]
fn scenario_7_with_64_killed_and_started_again_ten_seconds_later() {
    let (mut world, processes) = calm(64, None);
    processes.into_iter().for_each(|process| world.kill(process));
    world.run_until(at(70));
    start(&mut world, 64);
    world.run_until(at(200));
    // 36 ids are free at once, the others when their claims are stale: one map for those who are there then.
    assert_eq!(maps(&world), [(108, 2, "post_cold_start", 64, 170)]);
    settle(world);
}

/// CSM-M5: 30 → 25 → 30, one after the other, with a fleet size.
#[test]
fn matrix_a_rolling_update_is_no_planned_scale_where_the_fleet_size_is_set() {
    let (mut world, processes) = calm(30, Some(30));
    for five in processes.chunks(5) {
        five.iter().for_each(|&process| world.terminate(process));
        wait(&mut world, s(10));
        start(&mut world, 5);
        wait(&mut world, s(10));
    }
    wait(&mut world, s(60));
    assert_eq!(maps(&world), []);
    settle(world);
}

/// CSM-M6: any crash is an emergency.
#[test]
fn matrix_a_partial_failure_of_14_of_64_is_an_emergency() {
    let (mut world, processes) = calm(64, None);
    world.run_until(at(100));
    let orphans = owned(&world, &processes[50..]);
    processes[50..].iter().for_each(|&process| world.kill(process));
    world.run_until(at(180));
    // The first whose silence is confirmed does not wait for the others.
    assert_eq!(maps(&world), [(104, 2, "stable", 63, 6), (104, 3, "stable", 50, 56)]);
    assert_eq!(orphans, 6 + 56, "orphans only");
    settle(world);
}

/// CSM-M7, CSM-T5, CI-L3: the leader's role goes, its partitions wait for its next life, nobody calculates.
#[test]
fn matrix_a_leadership_transfer_without_a_change_is_steady() {
    let (mut world, _) = calm(45, Some(45));
    world.run_until(at(100));
    let leader = world.leader().unwrap();
    world.terminate(leader);
    world.run_until(at(101));
    assert!(world.leader().is_some_and(|next| next != leader), "the next leads within a second");
    world.start();
    world.run_until(at(200));
    assert_eq!(maps(&world), []);
    settle(world);
}

/// The states a worker has shown since that many transitions ago, by name.
fn shown(world: &World, process: ProcessId, since: usize) -> Vec<String> {
    world.worker(process).history().skip(since).map(|t| t.to.to_string()).collect()
}

/// IP-I1.
#[test]
fn integration_a_cold_start_of_three_scales_for_thirty_seconds() {
    let mut world = plant(None);
    let processes = start(&mut world, 3);
    world.run_until(at(29));
    let leader = world.leader().unwrap();
    assert_eq!(world.worker(leader).state(), WorkerState::Scaling);
    world.run_until(at(90));
    assert_eq!(maps(&world), [(30, 1, "post_cold_start", 3, 0)]);
    let states = shown(&world, leader, 0);
    assert_eq!(states[states.len() - 3..], ["SCALING", "REBALANCING", "STABLE"]);
    assert_eq!(processes.len(), 3);
    settle(world);
}

/// IP-I2, IP-U7: everybody shows what the leader does.
#[test]
fn integration_a_planned_scale_from_three_to_five_scales_for_ten_seconds() {
    let (mut world, processes) = calm(3, None);
    let before: Vec<usize> = processes.iter().map(|&p| world.worker(p).history().count()).collect();
    start(&mut world, 2);
    world.run_until(at(69));
    assert!(processes.iter().all(|&p| world.worker(p).state() == WorkerState::Scaling));
    world.run_until(at(120));
    assert_eq!(maps(&world), [(70, 2, "stable", 5, 55)]);
    for (&process, &since) in processes.iter().zip(&before) {
        assert_eq!(shown(&world, process, since), ["SCALING", "REBALANCING", "STABLE"], "{process}");
    }
    settle(world);
}

/// IP-I3, IP-U6: straight to STABLE, as the design corrects it.
#[test]
fn integration_a_crash_shows_an_emergency_and_then_stable() {
    let (mut world, processes) = calm(3, None);
    let before = world.worker(processes[0]).history().count();
    let victim = processes.iter().copied().find(|&p| world.leader() != Some(p)).unwrap();
    let watcher = processes.iter().copied().find(|&p| p != victim).unwrap();
    let orphans = owned(&world, &[victim]);
    world.kill(victim);
    world.run_until(at(67));
    assert_eq!(maps(&world), [(64, 2, "stable", 2, orphans)]);
    assert_eq!(shown(&world, watcher, before)[..2], ["EMERGENCY", "STABLE"]);
    world.run_until(at(120));
    settle(world);
}

/// IP-I4: the same ten return, so nothing is calculated.
#[test]
fn integration_a_restart_of_ten_awaits_them_and_moves_nothing() {
    let (mut world, processes) = calm(10, None);
    processes.into_iter().for_each(|process| world.terminate(process));
    world.run_until(at(100));
    start(&mut world, 10);
    world.run_until(at(180));
    assert_eq!(maps(&world), []);
    settle(world);
}

/// IP-C1.
#[test]
fn chaos_rapid_joins_and_leaves_end_in_one_consistent_map() {
    let (mut world, mut processes) = calm(10, None);
    for turn in 0..40 {
        if turn % 2 == 0 {
            processes.push(world.start());
        } else {
            let leaver = processes.remove(turn % processes.len());
            world.terminate(leaver);
        }
        wait(&mut world, ms(700));
    }
    wait(&mut world, s(60));
    assert_eq!(maps(&world), [(82, 2, "stable", 11, 21), (97, 3, "stable", 10, 26)]);
    assert_eq!(world.map().unwrap().workers.len(), 10);
    assert!(world.running().all(|process| is_ready(&world, process)));
    settle(world);
}

/// IP-C2, IP-U8: the window of the join goes on under the next leader.
#[test]
fn chaos_a_leader_that_leaves_during_scaling_leaves_its_window_to_the_next() {
    let (mut world, _) = calm(10, Some(12));
    // One of two that are awaited: the window of a growing fleet is thirty seconds.
    world.start();
    world.run_until(at(62));
    let leader = world.leader().unwrap();
    world.terminate(leader);
    world.run_until(at(63));
    world.start();
    world.run_until(at(130));
    assert_eq!(maps(&world), [(90, 2, "stable", 11, 21)]);
    settle(world);
}

/// IP-C3: whoever is dead when the plan is made gets nothing from the next one.
#[test]
fn chaos_a_worker_that_crashes_during_the_rebalancing_is_not_planned_for_again() {
    let (mut world, processes) = calm(10, None);
    start(&mut world, 2);
    world.run_until(at(70) - ms(5));
    world.kill(processes[7]);
    world.run_until(at(140));
    assert_eq!(maps(&world), [(70, 2, "stable", 12, 34), (74, 3, "stable", 11, 20)]);
    assert!(world.partitions_of(7).is_empty());
    settle(world);
}

/// IP-C4.
#[test]
fn chaos_a_partition_during_an_emergency_gives_no_partition_two_owners() {
    let (mut world, processes) = calm(10, None);
    world.kill(processes[7]);
    world.run_until(at(63) + ms(900));
    // The leader of the emergency is cut off just before it would publish, and comes back later.
    let leader = world.leader().unwrap();
    world.cut(leader, at(85));
    world.run_until(at(180));
    // The next leader has timed both by itself; the first whose silence is confirmed does not wait for the other.
    assert_eq!(maps(&world), [(68, 2, "stable", 9, 42), (68, 3, "stable", 8, 20), (95, 4, "stable", 9, 30)]);
    settle(world);
}
