use super::super::test_support::{EPOCH, Leader, map};
use super::*;
use crate::WorkerState;
use crate::io::{Effect, RequestId};
use crate::types::{Epoch, Version, WindowKind};

fn published(leader: &mut Leader) -> Option<ClusterState> {
    leader.controller.publish_state(&leader.facts, &mut leader.outbox);
    match &leader.outbox.take()[..] {
        [] => None,
        [
            Effect::Write {
                request_id: RequestId { purpose: Purpose::WriteState, .. },
                key: Key::ClusterState,
                value: Value::ClusterState(state),
                condition: Condition::None,
            },
        ] => Some((**state).clone()),
        other => panic!("{other:?}"),
    }
}

fn state(serial: u64) -> ClusterState {
    ClusterState {
        state: WorkerState::Stable,
        epoch: EPOCH,
        version: Version(7),
        serial,
        window: None,
        grace_periods: std::collections::BTreeMap::new(),
    }
}

#[test]
fn a_state_is_published_once_until_it_changes() {
    let mut leader = Leader::with_map(&[0, 1], map(&[0, 1]));
    assert_eq!(published(&mut leader), Some(state(1)));
    leader.wait(10);
    assert_eq!(published(&mut leader), None);
}

#[test]
fn an_open_window_is_repeated_with_the_time_that_is_left() {
    let mut leader = Leader::with_map(&[0, 1], map(&[0, 1]));
    let (opened, ends) = (leader.facts.now, leader.facts.now + Duration::from_secs(10));
    let kind = WindowKind::PlannedScale;
    leader.controller.window = Some(crate::trigger::Window { kind, opened, ends });
    let left = |state: Option<ClusterState>| state.and_then(|state| state.window);
    assert_eq!(left(published(&mut leader)), Some((kind, Duration::from_secs(10))));
    leader.wait(1);
    assert_eq!(published(&mut leader), None);
    leader.wait(1);
    assert_eq!(left(published(&mut leader)), Some((kind, Duration::from_secs(8))));
}

#[test]
fn a_state_that_a_late_write_replaced_is_published_again() {
    let mut leader = Leader::with_map(&[0, 1], map(&[0, 1]));
    let late = ClusterState { epoch: Epoch(4), ..state(9) };
    published(&mut leader);
    leader.controller.on_cluster_state(&late);
    assert_eq!(
        published(&mut leader),
        None,
        "the own state has not returned yet: it may come after this one"
    );
    leader.controller.on_cluster_state(&state(1));
    leader.controller.on_cluster_state(&late);
    assert_eq!(published(&mut leader), Some(state(2)));
}
