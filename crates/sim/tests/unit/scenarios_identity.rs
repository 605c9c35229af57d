//! Ids: who gets one, who waits, who gives it back.

use crate::common::{at, calm, maps, ms, plant, plant_with, settle, start};
use phalanx_cluster_core::Config;

/// CI-1.
#[test]
fn ten_workers_that_claim_at_once_get_ten_ids() {
    let mut world = plant(None);
    let processes = start(&mut world, 10);
    world.run_until(at(5));
    let mut ids: Vec<_> = processes.iter().map(|p| world.worker(*p).incarnation().unwrap().id.0).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..10).collect::<Vec<_>>());
    assert_eq!(processes.iter().filter(|p| world.worker(**p).is_leader()).count(), 1);
    world.run_until(at(60));
    assert_eq!(maps(&world), [(30, 1, "post_cold_start", 10, 0)]);
    settle(world);
}

#[test]
fn an_exhausted_pool_is_tried_again_and_says_so() {
    let mut world = plant_with(Config { max_workers: 3, ..Config::default() });
    let processes = start(&mut world, 4);
    world.run_until(at(60));
    let homeless = processes.iter().copied().find(|&p| world.worker(p).incarnation().is_none()).unwrap();
    assert!(world.worker(homeless).history().any(|t| t.cause == "every id is taken"));
    let leaver = processes.iter().copied().find(|&p| p != homeless).unwrap();
    world.terminate(leaver);
    world.run_until(at(120));
    assert!(world.worker(homeless).incarnation().is_some());
    // The id is the same: nobody joined and nobody left.
    assert_eq!(maps(&world), [(30, 1, "post_cold_start", 3, 0)]);
    settle(world);
}

/// CSM-S1: the id is free at once, the lead too, and nothing is lost.
#[test]
fn a_graceful_shutdown_frees_id_and_lead_within_a_second() {
    let (mut world, _) = calm(5, Some(5));
    let standby = world.start();
    world.run_until(at(65));
    let leader = world.leader().unwrap();
    let id = world.worker(leader).incarnation().unwrap().id.0;
    world.terminate(leader);
    world.run_until(at(65) + ms(900));
    assert!(!world.is_alive(leader));
    assert_eq!(world.holder_of(id), Some(standby));
    assert!(world.leader().is_some());
    world.run_until(at(120));
    assert_eq!(maps(&world), []);
    settle(world);
}

/// CI-L1: with leases on the broker a dead leader is replaced after its three missed heartbeats.
#[test]
fn the_next_leads_within_the_lease_of_a_dead_leader() {
    let (mut world, _) = calm(5, None);
    let leader = world.leader().unwrap();
    world.kill(leader);
    world.run_until(at(67));
    assert!(world.leader().is_some_and(|next| next != leader));
    world.run_until(at(120));
    assert_eq!(maps(&world).len(), 1, "{:?}", maps(&world));
    settle(world);
}
