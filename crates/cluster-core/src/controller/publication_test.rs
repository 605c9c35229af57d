use super::super::test_support::{EPOCH, Leader, map, read_map, written_map};
use super::*;
use crate::cursor::tests::holder;
use crate::io::{Effect, WriteError};
use crate::roster::tests::beat_of;
use crate::types::{AssignmentMap, Heartbeat, Revision};

fn planned(workers: &[u32]) -> MapRequest {
    let workers: BTreeSet<WorkerId> = workers.iter().map(|&id| WorkerId(id)).collect();
    MapRequest { receivers: workers.clone(), workers, mode: Mode::Planned, fleet_size: Some(2) }
}

/// Publishes a map for workers 0 and 1 and returns the effects.
fn publish(leader: &mut Leader) -> Vec<Effect> {
    leader.controller.update_desired(&leader.facts);
    leader.controller.publish(&planned(&[0, 1]), &leader.facts, &mut leader.outbox);
    leader.outbox.take()
}

#[test]
fn a_map_is_announced_and_written_on_the_revision_that_was_read() {
    let mut leader = Leader::with_map(&[0, 1], map(&[0]));
    let effects = publish(&mut leader);
    let [Effect::Notice(Notice::Planned(summary)), Effect::Write { request_id, condition, .. }] =
        &effects[..]
    else {
        panic!("{effects:?}");
    };
    assert_eq!((summary.emergency, summary.window), (false, None));
    assert_eq!((request_id.purpose, *condition), (Purpose::PublishMap, Condition::Revision(Revision(20))));
    let (_, _, written) = written_map(&effects[1]).expect("a map");
    assert_eq!((written.version, written.epoch, written.fleet_size), (Version(8), EPOCH, Some(2)));
    assert_eq!(
        leader.controller.phase,
        Phase::Publishing { request_id: *request_id, proposed: Arc::new(written.clone()) }
    );
}

#[test]
fn the_first_map_is_created_only_if_there_is_none() {
    let mut leader = Leader::elected(&[0, 1]);
    leader.outbox.take();
    leader.read(1, Ok(None));
    let effects = publish(&mut leader);
    let Effect::Write { condition, .. } = &effects[1] else { panic!("{effects:?}") };
    assert_eq!(*condition, Condition::Absent);
    let (_, _, written) = written_map(&effects[1]).expect("a map");
    assert_eq!((written.version, written.lifecycle), (Version(1), Lifecycle::PostColdStart));
}

#[test]
fn a_version_is_above_everything_that_any_worker_has_seen() {
    for heartbeat in [
        Heartbeat { map_version: Version(30), ..beat_of(holder(1, 1)) },
        Heartbeat { applied_version: Version(30), ..beat_of(holder(1, 1)) },
        Heartbeat { cursor_version: Version(30), ..beat_of(holder(1, 1)) },
    ] {
        let mut leader = Leader::with_map(&[0, 1], map(&[0]));
        leader.hear(&heartbeat);
        assert_eq!(leader.controller.next_version(&leader.facts), Version(31), "{heartbeat:?}");
    }
}

#[test]
fn a_refused_map_is_read_again_and_an_unanswered_one_that_is_stored_counts_as_published() {
    for error in [WriteError::Conflict, WriteError::Failed] {
        let mut leader = Leader::with_map(&[0, 1], map(&[0]));
        publish(&mut leader);
        assert_eq!(leader.written(Purpose::PublishMap, 2, Err(error)), [read_map(3)]);
    }
    let mut leader = Leader::with_map(&[0, 1], map(&[0]));
    leader.controller.restarting = true;
    let effects = publish(&mut leader);
    let stored: AssignmentMap = written_map(&effects[1]).expect("a map").2.clone();
    assert_eq!(leader.written(Purpose::PublishMap, 2, Err(WriteError::Unknown)), [read_map(3)]);
    assert_eq!(leader.read(3, Ok(Some(stored))), []);
    assert!(!leader.controller.restarting, "it is published");
    assert_eq!(leader.controller.phase, Phase::Running);
}
