//! For each rule about cursors, rows and dead letters, a schedule in which an invariant breaks without it and holds with it.

use crate::common::{breached, broken, fleet, fleet_with, ms, needs, s, wait};
use phalanx_cluster_core::{Config, ProtocolRule};
use phalanx_sim::{EnvironmentRule, MessageKind, ProcessId, Rule, World};

/// Three calm workers; a partition of the second one, and the workers.
fn three(without: Option<Rule>) -> (World, u32, [ProcessId; 3]) {
    let (mut world, processes) = fleet(without, 3, None);
    let partition = world.partition_of(1).expect("worker 1 has partitions");
    // A first message, so that its cursor is held.
    world.publish(partition, MessageKind::Good);
    wait(&mut world, s(1));
    (world, partition, [processes[0], processes[1], processes[2]])
}

/// Publishes a message and waits until its results are in the store and not committed yet.
fn until_rows(world: &mut World, partition: u32) -> u64 {
    let number = world.publish(partition, MessageKind::Good);
    assert!(world.run_while(s(2), |world| !world.has_rows(partition, number)), "its results are written");
    number
}

#[test]
fn a_cursor_is_taken_over_before_the_first_message() {
    needs(ProtocolRule::TakeOverFirst, |without| {
        let (mut world, partition, [_, _, _]) = three(without);
        world.reassign(partition, 2);
        wait(&mut world, s(1));
        world.publish(partition, MessageKind::Good);
        wait(&mut world, s(1));
        broken(&mut world)
    });
}

#[test]
fn a_partition_that_was_removed_and_added_gets_a_new_token() {
    needs(ProtocolRule::NewTokenAfterReassignment, |without| {
        let (mut world, partition, [_, a, b]) = three(without);
        world.reassign(partition, 2);
        wait(&mut world, ms(1));
        world.publish(partition, MessageKind::NeverEnds);
        // B has heard that A let go, and its take is on its way, when the partition goes back to A.
        assert!(world.run_while(s(1), |world| world.worker(a).map().is_none_or(|map| map.version.0 < 2)));
        wait(&mut world, ms(3));
        let until = world.now() + ms(50);
        world.cut_out(b, until);
        world.expect_healthy(b);
        world.delay_watch(b, s(2));
        world.expect_healthy(b);
        world.reassign(partition, 1);
        wait(&mut world, s(5));
        breached(&mut world)
    });
}

#[test]
fn a_new_owner_waits_for_exactly_its_version() {
    needs(ProtocolRule::ExactVersion, |without| {
        let (mut world, partition, [_, a, b]) = three(without);
        world.publish(partition, MessageKind::NeverEnds);
        wait(&mut world, ms(100));
        assert!(world.is_processing(a, partition));
        // A does not see version 2, and reports 3 while it works; B sees 3 late.
        world.drop_map_event(a);
        world.expect_healthy(a);
        world.reassign(partition, 2);
        wait(&mut world, ms(2));
        world.delay_watch(b, ms(500));
        world.expect_healthy(b);
        // Only B's view of the map is late: of A it hears at once that it has applied version 3.
        world.reassign(partition, 1);
        world.delay_watch(b, ms(0));
        world.expect_healthy(b);
        wait(&mut world, s(1));
        breached(&mut world)
    });
}

#[test]
fn the_handler_state_is_read_at_exactly_the_committed_position() {
    needs(EnvironmentRule::StateAtCommitted, |without| {
        let (mut world, partition, [_, a, _]) = three(without);
        until_rows(&mut world, partition);
        world.kill(a);
        wait(&mut world, s(20));
        broken(&mut world)
    });
}

#[test]
fn a_lower_fencing_token_never_replaces_a_higher_one() {
    needs(EnvironmentRule::HigherTokenWins, |without| {
        let (mut world, partition, [_, a, _]) = three(without);
        // A's rows get stuck on their way, and A dies; B commits by another strategy; then A's rows land.
        world.publish(partition, MessageKind::Good);
        let until = world.now() + s(1);
        world.store_late(until, s(30));
        wait(&mut world, s(1));
        world.kill(a);
        world.change_strategy();
        wait(&mut world, s(60));
        broken(&mut world)
    });
}

#[test]
fn write_timestamps_grow_although_the_clock_of_the_broker_steps_back() {
    needs(ProtocolRule::MonotonicTimestamps, |without| {
        let (mut world, partition, _) = three(without);
        world.step_broker_clock(-5_000_000);
        world.publish(partition, MessageKind::Good);
        wait(&mut world, s(2));
        broken(&mut world)
    });
}

#[test]
fn readers_follow_the_fencing_token_that_counts() {
    needs(EnvironmentRule::ReadersFollowToken, |without| {
        let (mut world, partition, [_, a, _]) = three(without);
        until_rows(&mut world, partition);
        world.kill(a);
        world.change_strategy();
        wait(&mut world, s(20));
        broken(&mut world)
    });
}

#[test]
fn the_cache_is_dropped_at_every_takeover() {
    needs(ProtocolRule::CacheDropped, |without| {
        let (mut world, partition, _) = three(without);
        for owner in [2, 1] {
            world.reassign(partition, owner);
            wait(&mut world, s(1));
            world.publish(partition, MessageKind::Good);
            wait(&mut world, s(1));
        }
        broken(&mut world)
    });
}

/// A's swap is applied, and A never hears of it.
fn lose_the_answer_to_a_commit(world: &mut World, partition: u32, a: ProcessId, cut: std::time::Duration) {
    until_rows(world, partition);
    let until = world.now() + cut;
    world.cut_in(a, until);
    world.change_strategy();
}

#[test]
fn an_unanswered_cursor_write_is_verified_first() {
    needs(ProtocolRule::VerifyUnknownFirst, |without| {
        let (mut world, partition, [_, a, _]) = three(without);
        lose_the_answer_to_a_commit(&mut world, partition, a, ms(2_500));
        wait(&mut world, s(20));
        broken(&mut world)
    });
}

#[test]
fn cursors_get_a_new_token_after_the_fence() {
    needs(ProtocolRule::NewTokenAfterFence, |without| {
        let (mut world, partition, [_, a, _]) = three(without);
        lose_the_answer_to_a_commit(&mut world, partition, a, ms(4_900));
        wait(&mut world, s(20));
        broken(&mut world)
    });
}

#[test]
fn a_takeover_after_a_crash_counts_against_the_message() {
    needs(ProtocolRule::CrashesCount, |without| {
        let (mut world, partition, _) = three(without);
        world.publish(partition, MessageKind::CrashesWorker);
        wait(&mut world, s(120));
        broken(&mut world)
    });
}

#[test]
fn a_message_is_isolated_before_crashes_dead_letter_it() {
    needs(ProtocolRule::IsolateFirst, |without| {
        let (mut world, partition, _) = three(without);
        // The neighbours of a message that kills are there every time.
        for neighbour in world.partitions_of(1) {
            world.publish(
                neighbour,
                if neighbour == partition { MessageKind::CrashesWorker } else { MessageKind::Good },
            );
        }
        wait(&mut world, s(180));
        broken(&mut world)
    });
}

#[test]
fn a_dead_letter_is_recorded_in_the_cursor_before_it_is_published() {
    needs(ProtocolRule::RecordDeadLetterFirst, |without| {
        let (mut world, partition, _) = three(without);
        world.publish(partition, MessageKind::Poison);
        wait(&mut world, s(5));
        broken(&mut world)
    });
}

#[test]
fn a_dead_letter_stores_the_unchanged_handler_state() {
    needs(ProtocolRule::DeadLetterWritesState, |without| {
        let (mut world, partition, _) = three(without);
        world.publish(partition, MessageKind::Poison);
        world.publish(partition, MessageKind::Good);
        wait(&mut world, s(5));
        broken(&mut world)
    });
}

#[test]
fn the_id_of_a_message_names_its_partition() {
    needs(EnvironmentRule::MessageIds, |without| {
        let (mut world, _, _) = three(without);
        for partition in world.partitions_of(2) {
            world.publish(partition, MessageKind::Good);
        }
        wait(&mut world, s(5));
        broken(&mut world)
    });
}

#[test]
fn the_log_is_read_from_the_cursors_own_sequence() {
    needs(ProtocolRule::ReadFromCursor, |without| {
        let (mut world, partition, _) = three(without);
        (0..3).for_each(|_| {
            world.publish(partition, MessageKind::Good);
        });
        wait(&mut world, s(5));
        world.recreate_log();
        world.publish(partition, MessageKind::Good);
        wait(&mut world, s(30));
        broken(&mut world)
    });
}

#[test]
fn positions_and_dead_letters_carry_the_generation() {
    needs(ProtocolRule::Generations, |without| {
        let (mut world, partition, _) = three(without);
        world.publish(partition, MessageKind::Poison);
        wait(&mut world, s(5));
        world.recreate_log();
        world.publish(partition, MessageKind::Good);
        world.publish(partition, MessageKind::Poison);
        wait(&mut world, s(30));
        broken(&mut world)
    });
}

#[test]
fn a_recreated_cursor_starts_at_the_predecessor_in_the_store() {
    needs(ProtocolRule::RecoverFromStore, |without| {
        let (mut world, partition, [_, a, _]) = three(without);
        until_rows(&mut world, partition);
        world.kill(a);
        world.lose_cursors();
        wait(&mut world, s(30));
        broken(&mut world)
    });
}

#[test]
fn the_identity_of_the_log_is_read_after_the_cursor() {
    needs(ProtocolRule::LogIdAfterCursor, |without| {
        let (mut world, partition, _) = three(without);
        world.recreate_log();
        world.publish(partition, MessageKind::Good);
        wait(&mut world, s(15));
        world.reassign(partition, 2);
        world.publish(partition, MessageKind::Good);
        wait(&mut world, s(15));
        broken(&mut world)
    });
}

#[test]
fn the_owner_reads_its_cursor_at_each_map() {
    needs(ProtocolRule::OwnerRereadsCursor, |without| {
        let config = Config { process_timeout: ms(400), ..Config::default() };
        let (mut world, processes) = fleet_with(without, config, 3);
        let (a, b) = (processes[1], processes[2]);
        let partition = world.partition_of(1).expect("worker 1 has partitions");
        world.publish(partition, MessageKind::Good);
        wait(&mut world, s(1));
        // A does not see version 2; B takes when its patience ends; version 3 gives the partition back to A.
        world.drop_map_event(a);
        world.reassign(partition, 2);
        // Nor does it receive the wake-up.
        let until = world.now() + ms(1);
        world.cut_in(a, until);
        world.publish(partition, MessageKind::NeverEnds);
        assert!(world.run_while(s(2), |world| !world.is_processing(b, partition)), "B's patience ends");
        wait(&mut world, ms(50));
        world.expect_healthy(a);
        world.expect_healthy(b);
        world.reassign(partition, 1);
        wait(&mut world, s(20));
        broken(&mut world)
    });
}

#[test]
fn a_worker_that_leaves_marks_its_cursors_as_released() {
    needs(ProtocolRule::ReleasedOnLeave, |without| {
        let (mut world, partition, processes) = three(without);
        // The whole fleet is down for longer than the leave records live.
        processes.into_iter().for_each(|process| world.terminate(process));
        wait(&mut world, s(60));
        for _ in 0..3 {
            world.start();
        }
        wait(&mut world, s(60));
        world.publish(partition, MessageKind::Good);
        wait(&mut world, s(20));
        broken(&mut world)
    });
}
