//! For each rule of the protocol and of its environment, a schedule in which an invariant breaks without it and holds with it.

use crate::common;
use crate::common::{at, at_ms, broken, fleet, ms, needs, s, unless, wait};
use phalanx_cluster_core::types::{Key, WorkerId};
use phalanx_cluster_core::{ProtocolRule, Purpose, WorkerState};
use phalanx_sim::{EnvironmentRule, MessageKind, ProcessId, World};

#[test]
fn the_fence_counts_from_the_sending() {
    needs(ProtocolRule::FenceFromSending, |without| {
        let (mut world, processes) = fleet(without, 5, None);
        let leader = processes[0];
        assert_eq!(world.leader(), Some(leader));
        // Its heartbeats leave at even seconds and are answered 1.9 s later; then its link is cut, and its window ends
        // 5.5 s after the sending of the last heartbeat that was answered.
        world.slow_down(leader, ms(1_900));
        world.run_until(at_ms(95_500));
        world.start();
        world.run_until(at_ms(101_950));
        world.cut(leader, at(130));
        world.run_until(at(125));
        broken(&mut world)
    });
}

#[test]
fn only_heartbeats_count_for_the_fence() {
    needs(ProtocolRule::OnlyHeartbeatsProve, |without| {
        let (mut world, processes) = fleet(without, 5, None);
        world.run_until(at(61));
        world.start();
        // The last heartbeat of the leader that is answered leaves at second 66; its window ends at second 71.
        world.run_until(at_ms(66_500));
        world.lose_heartbeats(processes[0]);
        world.run_until(at(90));
        broken(&mut world)
    });
}

#[test]
fn the_fence_opens_in_order() {
    needs(ProtocolRule::FenceExitOrder, |without| {
        let (mut world, processes) = fleet(without, 5, Some(5));
        world.start();
        world.run_until(at(65));
        // Cut off for twenty seconds, it is answered again before it is shown what happened meanwhile.
        world.delay_watch(processes[3], s(5));
        world.cut(processes[3], at(85));
        world.run_until(at(120));
        broken(&mut world)
    });
}

#[test]
fn silence_is_counted_only_while_the_broker_works() {
    needs(ProtocolRule::HealthyClock, |without| {
        let (mut world, processes) = fleet(without, 5, Some(5));
        world.start();
        world.run_until(at(65));
        // The broker is away for forty seconds, and one worker finds it again a little later than the others.
        world.cut_all(at(105));
        world.cut(processes[3], at_ms(107_500));
        world.run_until(at(160));
        let mut found = broken(&mut world);
        found.extend(unless(world.publications().is_empty(), "14: an outage made a new version"));
        found.extend(unless(
            world.holder_of(3) == Some(processes[3]),
            "11: a live worker lost its id to a standby",
        ));
        found
    });
}

#[test]
fn free_ids_of_the_map_come_first() {
    needs(ProtocolRule::MapIdsFirst, |without| {
        let (mut world, processes) = fleet(without, 10, Some(10));
        world.kill(processes[3]);
        world.run_until(at(100));
        world.lose(&Key::Claim(WorkerId(3)));
        world.run_until(at(110));
        world.forget_publications();
        world.terminate(processes[7]);
        world.run_until(at(115));
        let successor = world.start();
        world.run_until(at(120));
        unless(
            world.worker(successor).incarnation().is_some_and(|holder| holder.id == WorkerId(7)),
            "14: the successor of 7 took another id, and the partitions of 7 wait in vain",
        )
    });
}

#[test]
fn the_grace_periods_of_the_last_leader_are_inherited() {
    needs(ProtocolRule::InheritGracePeriods, |without| {
        let (mut world, processes) = fleet(without, 10, Some(10));
        // Worker 4 leaves at second 60: its partitions wait until 105. Its farewell has expired when a newcomer arrives,
        // who takes the id of another leaver and, half a minute later, the lead.
        world.terminate(processes[4]);
        world.terminate(processes[1]);
        world.run_until(at(62));
        world.lose(&Key::Heartbeat(WorkerId(4)));
        let newcomer = world.start();
        world.run_until(at(95));
        assert_eq!(world.holder_of(1), Some(newcomer));
        processes[2..].iter().for_each(|&other| world.cut(other, at_ms(96_500)));
        world.terminate(processes[0]);
        world.run_until(at(104));
        assert_eq!(world.leader(), Some(newcomer));
        unless(world.publications().is_empty(), "14: a leaver was called crashed in the middle of its grace")
    });
}

#[test]
fn a_grace_period_counts_from_its_own_leave_record() {
    needs(ProtocolRule::GracePeriodPerId, |without| {
        let (mut world, processes) = fleet(without, 10, Some(10));
        // One leaves for good; another leaves half a minute later, and its successor comes when its grace is not over.
        world.terminate(processes[4]);
        world.run_until(at(90));
        world.terminate(processes[6]);
        world.run_until(at(118));
        let kept = world.map().is_some_and(|map| map.workers.contains(&WorkerId(6)));
        unless(kept, "14: a leaver's partitions were given away in the middle of its grace")
    });
}

#[test]
fn every_worker_times_heartbeats_itself() {
    needs(ProtocolRule::EveryWorkerTimes, |without| {
        let (mut world, processes) = fleet(without, 10, None);
        world.kill(processes[0]);
        world.run_until(at(67));
        unless(
            world.publications().len() == 1,
            "13: the dead leader's partitions were not given away within 7 s",
        )
    });
}

#[test]
fn missing_is_not_crashed() {
    needs(ProtocolRule::MissingIsNotCrashed, |without| {
        let (mut world, processes) = fleet(without, 20, None);
        processes.into_iter().for_each(|process| world.terminate(process));
        world.run_until(at(100));
        // What they said last has expired by now.
        (0..20).for_each(|id| world.lose(&Key::Heartbeat(WorkerId(id))));
        for start in 0..20 {
            world.run_until(at(100 + start));
            world.start();
        }
        world.run_until(at(160));
        unless(world.publications().is_empty(), "14: the same twenty came back, and a new version was made")
    });
}

#[test]
fn retained_values_do_not_prove_liveness() {
    needs(ProtocolRule::RetainedIsNotAlive, |without| {
        let (mut world, processes) = fleet(without, 30, None);
        processes.into_iter().for_each(|process| world.kill(process));
        world.run_until(at(75));
        (0..30).for_each(|_| {
            world.start();
        });
        world.run_until(at(160));
        let versions = world.publications().len();
        unless(versions <= 1, &format!("14: a restart made {versions} versions"))
    });
}

#[test]
fn an_emergency_is_rebalanced_later() {
    needs(ProtocolRule::RebalanceAfterEmergency, |without| {
        let (mut world, processes) = fleet(without, 5, None);
        (0..3).for_each(|_| {
            world.start();
        });
        world.run_until(at(62));
        world.kill(processes[4]);
        world.run_until(at(120));
        let map = world.worker(processes[0]).map().expect("a map").clone();
        let load = |id: WorkerId| {
            map.assignments.values().filter(|a| a.owner == id).map(|a| a.weight.0).sum::<u64>() as f64
        };
        let mean =
            map.assignments.values().map(|a| a.weight.0).sum::<u64>() as f64 / map.workers.len() as f64;
        let balanced = map.workers.iter().all(|&id| (load(id) - mean).abs() <= 0.2 * mean);
        unless(balanced, "16: the loads stay outside the threshold")
    });
}

#[test]
fn a_version_is_above_every_version_seen() {
    needs(ProtocolRule::VersionAboveAll, |without| {
        let (mut world, processes) = fleet(without, 5, None);
        (0..300).for_each(|partition| {
            world.publish(partition, MessageKind::Good);
        });
        world.start();
        world.run_until(at(100));
        (0..300).for_each(|partition| {
            world.publish(partition, MessageKind::Good);
        });
        wait(&mut world, s(20));
        // The map is lost, and nobody is left who knows it: the cursors are ahead of the map that is made then.
        for process in world.running().collect::<Vec<_>>() {
            world.kill(process);
        }
        assert!(processes.iter().all(|&process| !world.is_alive(process)));
        world.lose(&Key::Map);
        (0..5).for_each(|_| {
            world.start();
        });
        (0..300).for_each(|partition| {
            world.publish(partition, MessageKind::Good);
        });
        wait(&mut world, s(120));
        broken(&mut world)
    });
}

#[test]
fn a_new_leader_claims_the_map_first() {
    needs(ProtocolRule::ClaimMapFirst, |without| {
        let (mut world, processes) = fleet(without, 5, None);
        world.start();
        // The leader's window ends just after its link is cut; what it then writes lands when the link is back.
        world.run_until(at_ms(69_900));
        world.cut(processes[0], at_ms(77_700));
        // Its successor stalls after it has read the map and before it publishes.
        world.run_until(at(72));
        while world.leader().is_none_or(|leader| leader == processes[0]) {
            assert!(world.now() < at(77), "nobody took over");
            let next = world.now() + ms(1);
            world.run_until(next);
        }
        let successor = world.leader().expect("just found");
        let next = world.now() + ms(3);
        world.run_until(next);
        world.stop(successor);
        world.run_until(at(82));
        world.resume(successor);
        world.run_until(at(120));
        broken(&mut world)
    });
}

#[test]
fn ids_are_released_by_compare_and_swap() {
    needs(ProtocolRule::ReleaseByCas, |without| {
        let (mut world, processes) = fleet(without, 3, Some(3));
        let standby = world.start();
        wait(&mut world, s(5));
        // The removal of the claim reaches the broker twice, the second time when the standby has it.
        world.repeat_request(processes[1], Purpose::Release, ms(500));
        world.terminate(processes[1]);
        wait(&mut world, s(30));
        assert!(world.worker(standby).incarnation().is_some(), "the standby has an id");
        broken(&mut world)
    });
}

#[test]
fn the_id_is_released_last() {
    needs(ProtocolRule::ReleaseIdLast, |without| {
        let (mut world, processes) = fleet(without, 3, Some(3));
        world.start();
        wait(&mut world, s(5));
        let partition = world.partition_of(1).expect("worker 1 has partitions");
        world.publish(partition, MessageKind::NeverEnds);
        wait(&mut world, s(1));
        // Its message still runs: whoever takes its id takes the cursor at once, before the leaver is shown that.
        world.delay_watch(processes[1], s(10));
        world.expect_healthy(processes[1]);
        world.terminate(processes[1]);
        wait(&mut world, s(5));
        common::breached(&mut world)
    });
}

#[test]
fn the_claim_is_read_before_the_heartbeat_and_then_freed() {
    needs(ProtocolRule::ReadBeforeFree, |without| {
        let (mut world, processes) = fleet(without, 5, Some(5));
        world.start();
        wait(&mut world, s(5));
        let leader = processes[0];
        assert_eq!(world.leader(), Some(leader));
        // The leader sees everything 900 ms late and waits 400 ms for answers. Its suspect was last heard at 74.01 s and
        // is back after the leader has read that it is silent, and before it has read its claim.
        world.slow_down(leader, ms(400));
        world.delay_watch(leader, ms(900));
        world.run_until(at(75));
        world.cut(processes[3], at_ms(80_150));
        world.run_until(at(110));
        unless(world.holder_of(3) == Some(processes[3]), "11: a worker that had proved itself lost its id")
    });
}

#[test]
fn claims_do_not_expire_while_the_broker_is_away() {
    needs(EnvironmentRule::NoShortTtl, |without| {
        let (mut world, processes) = fleet(without, 5, Some(5));
        world.start();
        world.run_until(at(65));
        world.cut_all(at(105));
        for &process in &processes {
            world.cut(process, at_ms(105_010));
        }
        world.run_until(at(160));
        let kept = (0..5).all(|id| world.holder_of(id) == Some(processes[id as usize]));
        unless(kept, "11: a live worker lost its id to a standby")
    });
}

/// Whether Kubernetes would call a pod ready: an id and an assignment, or a standby.
fn is_ready(world: &World, pod: ProcessId, standby_counts: bool) -> bool {
    let worker = world.worker(pod);
    world.is_alive(pod) && (worker.state() == WorkerState::Stable || standby_counts && worker.is_standby())
}

#[test]
fn a_standby_is_ready() {
    needs(EnvironmentRule::StandbyIsReady, |without| {
        // Surge 1, unavailable 0: an old pod is stopped only when a new one is ready.
        let (mut world, mut old) = fleet(None, 5, Some(5));
        while !old.is_empty() && world.now() < at(200) {
            let new = world.start();
            let ready = |world: &World| is_ready(world, new, without.is_none());
            if world.run_while(s(20), |world| !ready(world)) {
                world.terminate(old.remove(0));
            }
            wait(&mut world, s(2));
        }
        unless(old.is_empty(), "14: the roll-out waits for ever")
    });
}
