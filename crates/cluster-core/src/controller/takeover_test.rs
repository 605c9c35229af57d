use std::collections::BTreeMap;
use std::time::Duration;

use super::super::test_support::{EPOCH, Leader, map, read_map, s};
use super::*;
use crate::WorkerState;
use crate::io::{Effect, WriteError};
use crate::types::{ClusterState, Epoch, Revision, Version, WindowKind, WorkerId};

fn claim(serial: u64, map: AssignmentMap, condition: Condition) -> Effect {
    let request_id = RequestId { purpose: Purpose::TouchMap, serial };
    Effect::Write { request_id, key: Key::Map, value: Value::Map(Arc::new(map)), condition }
}

#[test]
fn a_new_leader_reads_the_map_and_rewrites_it_with_its_own_epoch_only() {
    let mut leader = Leader::elected(&[0, 1]);
    assert_eq!(leader.outbox.take(), [read_map(1)]);
    let claimed = AssignmentMap { epoch: EPOCH, ..map(&[0, 1]) };
    assert_eq!(
        leader.read(1, Ok(Some(map(&[0, 1])))),
        [claim(2, claimed, Condition::Revision(Revision(20)))]
    );
    assert_eq!(leader.evaluate(), [], "nothing is decided before the map is claimed");
    assert_eq!(leader.written(Purpose::TouchMap, 2, Ok(21)), []);
    assert_eq!(
        leader.controller.map().map(|(map, revision)| (map.version, *revision)),
        Some((Version(7), Revision(21)))
    );
}

#[test]
fn an_epoch_in_the_map_that_is_higher_than_the_granted_one_is_exceeded() {
    let mut leader = Leader::elected(&[0, 1]);
    leader.outbox.take();
    let ahead = AssignmentMap { epoch: Epoch(9), ..map(&[0, 1]) };
    let claimed = AssignmentMap { epoch: Epoch(10), ..map(&[0, 1]) };
    assert_eq!(leader.read(1, Ok(Some(ahead))), [claim(2, claimed, Condition::Revision(Revision(20)))]);
}

#[test]
fn a_read_without_an_answer_is_repeated() {
    let mut leader = Leader::elected(&[0]);
    leader.outbox.take();
    assert_eq!(leader.read(1, Err(ReadError)), [read_map(2)]);
    assert_eq!(leader.read(1, Ok(None)), [], "a late answer to the first read changes nothing");
}

#[test]
fn a_refused_claim_reads_the_map_again() {
    for error in [WriteError::Conflict, WriteError::Failed, WriteError::Unknown] {
        let mut leader = Leader::elected(&[0, 1]);
        leader.outbox.take();
        leader.read(1, Ok(Some(map(&[0, 1]))));
        assert_eq!(leader.written(Purpose::TouchMap, 2, Err(error)), [read_map(3)], "{error:?}");
    }
}

#[test]
fn a_lost_map_is_written_again_above_every_seen_version() {
    let known = map(&[0, 1]);
    let mut leader = Leader::elected_with(&[0, 1], |facts| {
        facts.map = Some((Arc::new(known.clone()), Revision(3)));
    });
    leader.outbox.take();
    let restored = AssignmentMap { epoch: EPOCH, version: Version(8), ..known };
    assert_eq!(leader.read(1, Ok(None)), [claim(2, restored, Condition::Absent)]);
}

#[test]
fn the_removal_of_the_map_makes_a_running_leader_read_it() {
    let mut leader = Leader::with_map(&[0, 1], map(&[0, 1]));
    leader.controller.on_map_lost(&mut leader.outbox);
    assert_eq!(leader.outbox.take(), [read_map(2)]);
    leader.controller.on_map_lost(&mut leader.outbox);
    assert_eq!(leader.outbox.take(), [], "it is being read already");
}

#[test]
fn the_window_and_the_grace_periods_of_the_last_leader_are_inherited_from_their_arrival() {
    let leader = Leader::elected_with(&[0, 1], |facts| {
        let state = ClusterState {
            state: WorkerState::Scaling,
            epoch: Epoch(4),
            version: Version(9),
            serial: 1,
            window: Some((WindowKind::PlannedScale, Duration::from_secs(6))),
            grace_periods: BTreeMap::from([(WorkerId(1), Duration::from_secs(20))]),
        };
        facts.cluster_state = Some((Arc::new(state), s(38)));
    });
    let window = Window { kind: WindowKind::PlannedScale, opened: s(38), ends: s(44) };
    assert_eq!(leader.controller.window, Some(window));
    assert_eq!(leader.controller.inherited_grace_periods, BTreeMap::from([(WorkerId(1), s(58))]));
    assert_eq!(leader.controller.min_version, Version(9));
}

#[test]
fn a_map_of_ten_workers_of_which_fewer_than_five_are_heard_is_a_restart() {
    let workers: Vec<u32> = (0..10).collect();
    for (live, notices) in [(&workers[..4], 1), (&workers[..5], 0)] {
        let mut leader = Leader::elected(live);
        leader.outbox.take();
        let claimed = AssignmentMap { epoch: EPOCH, ..map(&workers) };
        let effects = leader.read(1, Ok(Some(claimed)));
        assert_eq!(effects, vec![Effect::Notice(Notice::RestartDetected); notices], "{live:?}");
    }
}
