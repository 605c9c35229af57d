//! The scenarios of the design, to the second. Each runs whole cores; only time, faults and starts come from outside.

use std::time::Duration;

use phalanx_cluster::core::types::{Key, Value};
use phalanx_cluster::core::{Config, WorkerState};
use phalanx_sim::{ProcessId, Setup, World};

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn world(fleet_size: Option<u32>) -> World {
    World::new(Setup {
        config: Config { fleet_size, ..Config::default() },
        partitions: 300,
        ..Setup::default()
    })
}

/// A fleet that has run for long enough to be calm, with its publications forgotten.
fn calm_fleet(workers: u32, fleet_size: Option<u32>) -> (World, Vec<ProcessId>) {
    let mut world = world(fleet_size);
    let processes = (0..workers).map(|_| world.start()).collect();
    world.run_until(s(60));
    assert!(world.all_show(WorkerState::Stable), "calm after a minute");
    world.forget_publications();
    (world, processes)
}

/// (second, version, lifecycle, workers) of every publication.
fn list(world: &World) -> Vec<(u64, u64, &'static str, usize)> {
    world.publications().iter().map(|p| (p.second, p.version, p.lifecycle, p.workers)).collect()
}

#[test]
fn scenario_1_thirty_joins_over_28_seconds_make_one_map() {
    let mut world = world(None);
    for join in 0..30 {
        world.run_until(Duration::from_millis(join * 28_000 / 29));
        world.start();
    }
    world.run_until(s(90));
    assert_eq!(list(&world), [(30, 1, "post_cold_start", 30)]);
}

#[test]
fn scenario_2_two_joins_share_a_window_of_ten_seconds() {
    let (mut world, _) = calm_fleet(30, None);
    world.run_until(s(100));
    world.start();
    world.run_until(s(105));
    world.start();
    world.run_until(s(180));
    assert_eq!(list(&world), [(110, 2, "stable", 32)]);
}

#[test]
fn scenario_3_a_crash_is_redistributed_within_seven_seconds_and_moves_orphans_only() {
    let (mut world, processes) = calm_fleet(30, None);
    world.run_until(s(100));
    let orphans = world.worker(processes[15]).owned();
    world.kill(processes[15]);
    world.run_until(s(107));
    let first = world.publications()[0];
    assert_eq!((first.version, first.workers, first.moved), (2, 29, orphans));
}

#[test]
fn scenario_5_the_dead_leader_is_version_2_and_the_next_join_version_3() {
    let (mut world, _) = calm_fleet(30, None);
    world.run_until(s(100));
    let leader = world.leader().unwrap();
    world.kill(leader);
    world.run_until(s(107));
    assert_eq!(list(&world).iter().map(|p| (p.1, p.2, p.3)).collect::<Vec<_>>(), [(2, "stable", 29)]);
    world.run_until(s(200));
    world.forget_publications();
    world.start();
    world.run_until(s(260));
    assert_eq!(list(&world), [(210, 3, "stable", 30)]);
}

#[test]
fn scenario_6_the_window_of_a_cold_start_is_inherited() {
    let mut world = world(None);
    let first = world.start();
    world.run_until(s(5));
    for _ in 0..9 {
        world.start();
    }
    world.run_until(s(15));
    world.kill(first);
    world.run_until(s(60));
    assert_eq!(list(&world), [(30, 1, "post_cold_start", 9)]);
}

#[test]
fn scenario_7_when_the_same_ids_return_nothing_is_published_and_nothing_moves() {
    let (mut world, processes) = calm_fleet(64, None);
    for process in processes {
        world.terminate(process);
    }
    world.run_until(s(65));
    assert_eq!(world.living().count(), 0);
    world.forget_publications();
    world.run_until(s(160));
    for start in 0..64 {
        world.run_until(Duration::from_millis(160_000 + start * 25_000 / 64));
        world.start();
    }
    world.run_until(s(240));
    assert_eq!(list(&world), []);
    assert!(world.all_show(WorkerState::Stable));
}

#[test]
fn scenario_7_with_sixty_of_64_is_one_map_thirty_seconds_after_the_restart() {
    let (mut world, processes) = calm_fleet(64, None);
    processes.into_iter().for_each(|process| world.terminate(process));
    world.run_until(s(160));
    world.forget_publications();
    (0..60).for_each(|_| {
        world.start();
    });
    world.run_until(s(260));
    assert_eq!(list(&world), [(190, 2, "post_cold_start", 60)]);
}

#[test]
fn a_complete_fleet_does_not_wait_for_the_window() {
    let mut world = world(Some(5));
    (0..5).for_each(|_| {
        world.start();
    });
    world.run_until(s(20));
    assert_eq!(list(&world), [(0, 1, "post_cold_start", 5)]);
}

#[test]
fn a_leave_within_its_grace_moves_nothing_where_the_fleet_size_is_set() {
    let (mut world, processes) = calm_fleet(10, Some(10));
    world.terminate(processes[4]);
    world.run_until(s(80));
    let successor = world.start();
    world.run_until(s(160));
    assert_eq!(world.worker(successor).holder().unwrap().id.0, 4);
    assert_eq!(list(&world), []);
}

#[test]
fn a_leave_without_a_successor_is_planned_away_after_its_grace() {
    let (mut world, processes) = calm_fleet(10, Some(10));
    world.terminate(processes[4]);
    world.run_until(s(200));
    // 60 s + 45 s of grace + 10 s of window.
    assert_eq!(list(&world), [(115, 2, "stable", 9)]);
}

#[test]
fn a_leave_without_a_fleet_size_is_a_planned_scale_down() {
    let (mut world, processes) = calm_fleet(10, None);
    world.terminate(processes[4]);
    world.run_until(s(120));
    assert_eq!(list(&world), [(70, 2, "stable", 9)]);
}

#[test]
fn a_crash_with_a_standby_waiting_moves_nothing() {
    let (mut world, processes) = calm_fleet(10, Some(10));
    let standby = world.start();
    world.run_until(s(70));
    assert!(world.worker(standby).is_standby());
    world.kill(processes[4]);
    world.run_until(s(77));
    assert_eq!(world.worker(standby).holder().unwrap().id.0, 4);
    world.run_until(s(140));
    assert_eq!(list(&world), []);
}

#[test]
fn a_rolling_update_with_surge_moves_nothing_the_leader_included() {
    let (mut world, processes) = calm_fleet(30, Some(30));
    let mut at = 60;
    for old in processes {
        world.start();
        at += 2;
        world.run_until(s(at));
        world.terminate(old);
        at += 1;
        world.run_until(s(at));
    }
    world.run_until(s(at + 60));
    assert_eq!(list(&world), []);
    assert!(world.all_show(WorkerState::Stable));
    assert_eq!((0..30).filter(|id| world.holder_of(*id).is_some()).count(), 30);
}

#[test]
fn a_rolling_update_without_surge_moves_nothing_the_leader_included() {
    let (mut world, processes) = calm_fleet(30, Some(30));
    let mut at = 60;
    for old in processes {
        world.terminate(old);
        at += 10;
        world.run_until(s(at));
        world.start();
    }
    world.run_until(s(at + 60));
    assert_eq!(list(&world), []);
}

#[test]
fn a_paused_worker_wakes_fenced_and_comes_back_without_its_old_work() {
    let (mut world, processes) = calm_fleet(10, None);
    world.stop(processes[3]);
    world.run_until(s(80));
    assert_eq!(world.publications()[0].workers, 9);
    world.resume(processes[3]);
    assert!(world.worker(processes[3]).is_fenced(world.now()));
    world.run_until(s(140));
    assert!(!world.worker(processes[3]).is_fenced(world.now()));
    assert!(world.all_show(WorkerState::Stable));
}

#[test]
fn ten_workers_that_claim_at_once_get_ten_ids() {
    let mut world = world(None);
    let processes: Vec<_> = (0..10).map(|_| world.start()).collect();
    world.run_until(s(5));
    let mut ids: Vec<_> = processes.iter().map(|p| world.worker(*p).holder().unwrap().id.0).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..10).collect::<Vec<_>>());
    assert_eq!(processes.iter().filter(|p| world.worker(**p).is_leader()).count(), 1);
}

#[test]
fn a_commanded_scale_up_waits_for_all_and_a_scale_down_for_nobody() {
    let (mut world, _) = calm_fleet(6, Some(6));
    world.command(&Key::FleetSize, Value::FleetSize(8));
    world.run_until(s(65));
    world.start();
    world.start();
    world.run_until(s(100));
    assert_eq!(list(&world), [(65, 2, "stable", 8)]);
    world.forget_publications();
    world.command(&Key::FleetSize, Value::FleetSize(5));
    world.run_until(s(130));
    assert_eq!(list(&world), [(100, 3, "stable", 5)]);
}

#[test]
fn scale_up_and_down_without_a_fleet_size_end_balanced() {
    let (mut world, _) = calm_fleet(30, None);
    let added: Vec<_> = (0..15).map(|_| world.start()).collect();
    world.run_until(s(120));
    assert_eq!(list(&world), [(70, 2, "stable", 45)]);
    world.forget_publications();
    added.into_iter().for_each(|process| world.terminate(process));
    world.run_until(s(180));
    assert_eq!(list(&world), [(130, 3, "stable", 30)]);
}

#[test]
fn scenario_4_a_crash_inside_a_window_ends_it_and_one_calculation_covers_both() {
    let (mut world, processes) = calm_fleet(30, None);
    world.run_until(s(100));
    world.start();
    world.run_until(s(101));
    // Silent from second 100 on, 15 is crashed at 106, inside the window of the joins.
    world.kill(processes[15]);
    world.start();
    world.run_until(s(160));
    let maps = list(&world);
    assert_eq!(maps[0], (106, 2, "stable", 31));
    // Then one evening-out, ten seconds later, and nothing more.
    assert_eq!(&maps[1..], [(116, 3, "stable", 31)]);
}

#[test]
fn three_crashes_at_once_move_their_orphans_only() {
    let (mut world, processes) = calm_fleet(30, None);
    let orphans: usize = [5, 6, 7].iter().map(|&i| world.worker(processes[i]).owned()).sum();
    [5, 6, 7].iter().for_each(|&i| world.kill(processes[i]));
    world.run_until(s(67));
    assert_eq!(world.publications().iter().map(|p| p.moved).sum::<usize>(), orphans);
    assert_eq!(world.publications().last().unwrap().workers, 27);
}

#[test]
fn the_leader_and_a_worker_that_die_together_are_redistributed_within_seven_seconds() {
    let (mut world, processes) = calm_fleet(30, None);
    let leader = world.leader().unwrap();
    let other = processes.iter().copied().find(|&process| process != leader).unwrap();
    let orphans = world.worker(leader).owned() + world.worker(other).owned();
    world.kill(leader);
    world.kill(other);
    world.run_until(s(67));
    assert_eq!(world.publications().iter().map(|p| p.moved).sum::<usize>(), orphans);
    assert_eq!(world.publications().last().unwrap().workers, 28);
}

#[test]
fn a_leader_that_dies_inside_a_window_leaves_the_join_to_its_successor() {
    let (mut world, _) = calm_fleet(30, None);
    world.start();
    world.run_until(s(65));
    let leader = world.leader().unwrap();
    world.kill(leader);
    world.run_until(s(120));
    // One emergency covers the dead leader and the join.
    assert_eq!((world.publications()[0].version, world.publications()[0].workers), (2, 30));
    assert!(world.all_show(WorkerState::Stable));
}

#[test]
fn an_exhausted_pool_is_tried_again_and_says_so() {
    let config = Config { max_workers: 3, ..Config::default() };
    let mut world = World::new(Setup { config, partitions: 30, ..Setup::default() });
    let processes: Vec<_> = (0..4).map(|_| world.start()).collect();
    world.run_until(s(60));
    let homeless = processes.iter().copied().find(|&p| world.worker(p).holder().is_none()).unwrap();
    assert!(world.worker(homeless).history().any(|t| t.cause == "every id is taken"));
    let leaver = processes.iter().copied().find(|&p| p != homeless).unwrap();
    world.terminate(leaver);
    world.run_until(s(70));
    assert!(world.worker(homeless).holder().is_some());
}

#[test]
fn a_broker_away_for_a_minute_condemns_nobody() {
    let (mut world, processes) = calm_fleet(30, Some(30));
    world.cut_all(s(120));
    world.run_until(s(119));
    assert!(processes.iter().all(|&process| world.worker(process).state() == WorkerState::Degraded));
    world.run_until(s(200));
    assert_eq!(list(&world), []);
    assert!(world.all_show(WorkerState::Stable));
    assert!(processes.iter().enumerate().all(|(id, &p)| world.holder_of(id as u32) == Some(p)));
}

#[test]
fn sixty_four_killed_and_started_again_ten_seconds_later_make_one_map_at_most() {
    let (mut world, processes) = calm_fleet(64, None);
    processes.into_iter().for_each(|process| world.kill(process));
    world.run_until(s(70));
    (0..64).for_each(|_| {
        world.start();
    });
    world.run_until(s(200));
    assert!(list(&world).len() <= 1, "{:?}", list(&world));
    assert!(world.all_show(WorkerState::Stable));
}

#[test]
fn a_rolling_update_waits_for_ready_pods_and_moves_nothing() {
    // A Deployment with surge 10 and unavailable 0: an old pod is stopped only when a new one is ready, and a standby is.
    let (mut world, mut old) = calm_fleet(30, Some(30));
    let mut new: Vec<ProcessId> = Vec::new();
    while !old.is_empty() {
        assert!(world.now() < s(600), "the roll-out is stuck with {} old pods", old.len());
        while new.iter().filter(|&&pod| !is_ready(&world, pod)).count() + old.len() + new.len() < 40
            && new.len() < 30
        {
            new.push(world.start());
        }
        let ready = old.iter().chain(&new).filter(|&&pod| is_ready(&world, pod)).count();
        (0..ready.saturating_sub(30).min(old.len())).for_each(|_| world.terminate(old.remove(0)));
        let next = world.now() + s(1);
        world.run_until(next);
    }
    let end = world.now() + s(60);
    world.run_until(end);
    assert_eq!(list(&world), []);
    assert_eq!((0..30).filter(|&id| world.holder_of(id).is_some()).count(), 30);
}

/// As Kubernetes asks: an id and an assignment, or a standby.
fn is_ready(world: &World, pod: ProcessId) -> bool {
    let worker = world.worker(pod);
    world.is_alive(pod) && (worker.is_standby() || worker.state() == WorkerState::Stable)
}

#[test]
fn a_scale_down_that_stops_arbitrary_pods_makes_one_map_and_fills_the_holes() {
    let (mut world, processes) = calm_fleet(8, Some(8));
    world.command(&Key::FleetSize, Value::FleetSize(5));
    world.run_until(s(62));
    // Three hold ids beyond the new size: they hand over and stand by.
    assert_eq!(list(&world), [(60, 2, "stable", 5)]);
    assert_eq!(processes[5..].iter().filter(|&&p| world.worker(p).is_standby()).count(), 3);
    // The pods that are stopped are not theirs: they take the ids that come free, and nothing moves.
    for &stopped in &processes[1..4] {
        world.terminate(stopped);
    }
    world.run_until(s(180));
    assert_eq!(list(&world), [(60, 2, "stable", 5)]);
    assert_eq!((0..5).filter(|&id| world.holder_of(id).is_some()).count(), 5);
}
