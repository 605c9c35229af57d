use super::super::test_support::{Leader, map, read_map, s, written_map};
use super::*;
use crate::WorkerState;
use crate::cursor::tests::holder;
use crate::io::{Effect, Purpose, RequestId};
use crate::roster::tests::beat_of;
use crate::trigger::Window;
use crate::types::{Heartbeat, Key, WindowKind};

fn state_write(effects: &[Effect]) -> bool {
    matches!(effects, [Effect::Write { key: Key::ClusterState, .. }])
}

fn suspect_read(serial: u64, id: u32) -> Effect {
    let request_id = RequestId { purpose: Purpose::SuspectClaim, serial };
    Effect::Read { request_id, key: Key::Claim(WorkerId(id)) }
}

#[test]
fn a_fleet_that_matches_its_map_is_left_alone() {
    let mut leader = Leader::with_map(&[0, 1], map(&[0, 1]));
    assert!(state_write(&leader.evaluate()), "the first evaluation publishes the state");
    leader.wait(5);
    assert_eq!(leader.evaluate(), []);
    assert_eq!(leader.controller.worker_state(), WorkerState::Stable);
}

#[test]
fn a_join_opens_a_window_of_ten_seconds_and_then_publishes_one_map() {
    let mut leader = Leader::with_map(&[0], map(&[0]));
    leader.evaluate();
    leader.join(1);
    assert!(state_write(&leader.evaluate()));
    let window = Window { kind: WindowKind::PlannedScale, opened: s(40), ends: s(50) };
    assert_eq!((leader.controller.window, leader.controller.pending()), (Some(window), 1));
    leader.wait(9);
    leader.evaluate();
    assert_eq!(leader.controller.window, Some(window), "a window does not slide");
    leader.wait(1);
    let effects = leader.evaluate();
    let published: Vec<_> = effects.iter().filter_map(written_map).collect();
    let [(Purpose::PublishMap, _, planned)] = published[..] else { panic!("{effects:?}") };
    assert_eq!((planned.version, planned.workers.len(), planned.moved), (Version(8), 2, 1));
}

#[test]
fn a_join_that_undoes_itself_ends_the_window_without_a_map() {
    let mut leader = Leader::with_map(&[0], map(&[0]));
    leader.join(1);
    leader.evaluate();
    leader.silence(1);
    leader.wait(7);
    assert!(state_write(&leader.evaluate()));
    assert_eq!((leader.controller.window, leader.controller.worker_state()), (None, WorkerState::Stable));
}

#[test]
fn a_silent_worker_is_checked_and_then_its_partitions_are_redistributed_without_a_window() {
    let mut leader = Leader::with_map(&[0, 1], map(&[0, 1]));
    leader.evaluate();
    leader.silence(1);
    leader.wait(5);
    assert_eq!(leader.evaluate(), [], "a crash takes six seconds of silence");
    leader.wait(1);
    let serial = leader.outbox.last_serial() + 1;
    assert_eq!(leader.evaluate(), [suspect_read(serial, 1)]);
    for purpose in [Purpose::SuspectClaim, Purpose::SuspectHeartbeat] {
        let request_id = RequestId { purpose, serial: leader.outbox.last_serial() };
        leader.controller.fetched(request_id, Ok(None), &leader.facts, &mut leader.outbox);
    }
    leader.outbox.take();
    let effects = leader.evaluate();
    let published: Vec<_> = effects.iter().filter_map(written_map).collect();
    let [(Purpose::PublishMap, _, planned)] = published[..] else { panic!("{effects:?}") };
    assert_eq!((planned.moved, planned.workers.clone()), (1, BTreeSet::from([WorkerId(0)])));
    assert_eq!(leader.controller.worker_state(), WorkerState::Emergency);
}

#[test]
fn nothing_is_planned_while_a_worker_of_the_map_was_never_heard() {
    let mut leader = Leader::elected_with(&[0, 2], |facts| {
        facts.watching_since = Some(facts.clock.now());
    });
    leader.outbox.take();
    let claimed = AssignmentMap { epoch: super::super::test_support::EPOCH, ..map(&[0, 1]) };
    leader.read(1, Ok(Some(claimed)));
    assert!(state_write(&leader.evaluate()), "worker 1 is missing, so worker 2 waits");
    assert_eq!(leader.controller.window, None);
}

#[test]
fn a_leave_without_a_fleet_size_opens_the_planned_window() {
    let mut leader = Leader::with_map(&[0, 1], map(&[0, 1]));
    leader.silence(1);
    leader.hear(&Heartbeat { left: true, ..beat_of(holder(1, 1)) });
    leader.evaluate();
    assert_eq!(leader.controller.window.map(|window| window.kind), Some(WindowKind::PlannedScale));
}

#[test]
fn a_leave_with_a_fleet_size_waits_for_a_replacement() {
    let mut leader = Leader::with_map(&[0, 1], AssignmentMap { fleet_size: Some(2), ..map(&[0, 1]) });
    leader.facts.commanded_size = Some(2);
    leader.silence(1);
    leader.hear(&Heartbeat { left: true, ..beat_of(holder(1, 1)) });
    leader.evaluate();
    assert_eq!(leader.controller.window, None);
    assert_eq!(leader.controller.grace_periods.get(&WorkerId(1)), Some(&s(85)));
    assert_eq!(leader.controller.next_deadline(leader.facts.now), Some(s(85)));
}

#[test]
fn a_commanded_scale_down_is_published_immediately() {
    let mut leader = Leader::with_map(&[0, 1], AssignmentMap { fleet_size: Some(2), ..map(&[0, 1]) });
    leader.facts.commanded_size = Some(1);
    let effects = leader.evaluate();
    let published: Vec<_> = effects.iter().filter_map(written_map).collect();
    let [(Purpose::PublishMap, _, planned)] = published[..] else { panic!("{effects:?}") };
    assert_eq!((planned.fleet_size, planned.workers.clone()), (Some(1), BTreeSet::from([WorkerId(0)])));
}

#[test]
fn the_stored_map_is_verified_every_minute() {
    let mut leader = Leader::with_map(&[0, 1], map(&[0, 1]));
    leader.evaluate();
    leader.wait(60);
    let serial = leader.outbox.last_serial() + 1;
    assert_eq!(leader.evaluate(), [read_map(serial)]);
}
