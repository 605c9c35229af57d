//! A fleet whose leases are granted by an Election Agent: the term decides who leads, whatever is heard of the holder.

use std::time::Duration;

use crate::common::{Rollout, at, maps, ms, owned, plant_with, s, settle, start, wait};
use phalanx_cluster_core::{Config, LeaseExpiry, WorkerState};
use phalanx_sim::{ProcessId, World};

const TERM: Duration = Duration::from_secs(10);

/// A fleet that has run for a minute; its publications are forgotten.
fn calm(workers: u32, fleet_size: Option<u32>) -> (World, Vec<ProcessId>) {
    let mut world =
        plant_with(Config { fleet_size, lease_expiry: LeaseExpiry::AfterTerm(TERM), ..Config::default() });
    let processes = start(&mut world, workers);
    world.run_until(at(60));
    assert!(world.all_show(WorkerState::Stable), "calm after a minute");
    world.forget_publications();
    (world, processes)
}

fn leaders(world: &World) -> Vec<ProcessId> {
    world.running().filter(|&process| world.worker(process).is_leader()).collect()
}

/// Lets time pass. At no moment do two lead.
#[track_caller]
fn wait_with_one_leader_at_most(world: &mut World, time: Duration) {
    let end = world.now() + time;
    while world.now() < end {
        wait(world, ms(1));
        let leaders = leaders(world);
        assert!(leaders.len() <= 1, "{leaders:?} lead at {:?}", world.now());
    }
}

/// Promise 4: the leader's crash costs its lease and a second.
#[test]
fn a_crash_of_the_leader_costs_its_lease_and_a_second() {
    let (mut world, _) = calm(30, None);
    let leader = world.leader().unwrap();
    let orphans = owned(&world, &[leader]);
    let began = world.now();
    world.kill(leader);
    let lost: Vec<u32> = world.partitions_of(world.worker(leader).incarnation().unwrap().id.0);
    let taken = world.run_while(TERM + s(1), |world| lost.iter().any(|&lost| world.owner_of(lost).is_none()));
    assert!(taken, "not within {:?}", world.now() - began);
    world.run_until(at(140));
    let moved: Vec<usize> = maps(&world).iter().map(|map| map.4).collect();
    assert_eq!(moved, [orphans]);
    settle(world);
}

/// The crash of anybody else is the leader's business, as ever.
#[test]
fn a_crash_of_a_follower_costs_what_it_always_does() {
    let (mut world, processes) = calm(30, None);
    let orphans = owned(&world, &processes[11..12]);
    world.kill(processes[11]);
    world.run_until(at(120));
    assert_eq!(maps(&world), [(64, 2, "stable", 29, orphans)]);
    settle(world);
}

/// The holder stops at its own count of the term, which is over before the agent's.
#[test]
fn a_leader_that_is_cut_off_from_the_agent_stops_before_another_leads() {
    let (mut world, _) = calm(10, None);
    let leader = world.leader().unwrap();
    let until = world.now() + s(30);
    world.cut_from_grantor(leader, until);
    wait_with_one_leader_at_most(&mut world, s(15));
    assert_eq!(leaders(&world).len(), 1, "another leads by now");
    assert_ne!(world.leader(), Some(leader));
    assert_eq!(world.worker(leader).state(), WorkerState::Stable, "it works on");
    wait_with_one_leader_at_most(&mut world, s(30));
    assert_eq!(maps(&world), [], "nothing moves when only the leadership does");
    settle(world);
}

#[test]
fn a_leader_that_is_cut_off_from_everything_is_a_crash_like_any_other() {
    let (mut world, _) = calm(10, None);
    let leader = world.leader().unwrap();
    let orphans = owned(&world, &[leader]);
    let until = world.now() + s(40);
    world.cut(leader, until);
    world.cut_from_grantor(leader, until);
    wait_with_one_leader_at_most(&mut world, s(39));
    let moved: Vec<usize> = maps(&world).iter().map(|map| map.4).collect();
    assert_eq!(moved, [orphans]);
    world.run_until(at(200));
    settle(world);
}

/// Promise 3, with a leader that is replaced too: it resigns, so nobody waits for a term.
#[test]
fn a_rolling_update_with_the_leader_in_it_publishes_nothing() {
    let (mut world, old) = calm(30, Some(30));
    let rollout = Rollout { replicas: 30, surge: 3, unavailable: 0, old, new: Vec::new() };
    rollout.run(&mut world);
    assert_eq!(maps(&world), []);
    settle(world);
}

/// A join at 60 opens a window until 70. The agent's nodes elect a leader of their own meanwhile.
#[test]
fn a_fail_over_of_the_agent_inside_a_window_changes_nothing() {
    let (mut world, _) = calm(30, None);
    let leader = world.leader();
    world.start();
    world.run_until(at(64));
    world.agent_fails_over(at(66));
    world.run_until(at(140));
    let seen: Vec<_> = maps(&world).iter().map(|map| (map.0, map.1, map.3)).collect();
    assert_eq!(seen, [(70, 2, 31)]);
    assert_eq!(world.leader(), leader);
    settle(world);
}

/// Longer than a term: nobody leads, everybody works on, and the first to ask leads again.
#[test]
fn an_agent_that_is_away_costs_the_leader_and_no_work() {
    let (mut world, _) = calm(10, None);
    world.agent_fails_over(at(100));
    wait_with_one_leader_at_most(&mut world, s(20));
    assert_eq!(leaders(&world), [], "the term is over");
    assert!(world.running().all(|process| world.worker(process).owned() > 0));
    world.run_until(at(140));
    assert_eq!(leaders(&world).len(), 1);
    assert_eq!(maps(&world), []);
    settle(world);
}

/// Each grant is above the one before, and the map says so.
#[test]
fn epochs_grow_over_every_change_of_leader() {
    let (mut world, _) = calm(10, None);
    let epoch = |world: &World| world.map().unwrap().epoch.0;
    let mut before = epoch(&world);
    for _ in 0..3 {
        let leader = world.leader().unwrap();
        world.kill(leader);
        world.start();
        wait(&mut world, s(60));
        let after = epoch(&world);
        assert!(after > before, "{after} after {before}");
        before = after;
    }
    settle(world);
}
