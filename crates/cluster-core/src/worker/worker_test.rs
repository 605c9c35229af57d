//! A worker from its start to its first assignment, effect by effect.

use std::collections::BTreeMap;

use super::*;
use crate::io::{Condition, Written};
use crate::roster::tests::beat_of;
use crate::types::{
    Assignment, Claim, Entry, Epoch, Heartbeat, Incarnation, Key, Lease, Lifecycle, Revision, Value, Weight,
    WorkerId,
};

const ME: WorkerIncarnation = WorkerIncarnation { id: WorkerId(0), incarnation: Incarnation(50) };

fn pod() -> Pod {
    Pod { name: "pod".into(), uid: "uid".into() }
}

fn s(seconds: u64) -> Time {
    Time::from_secs(seconds)
}

fn request(purpose: Purpose, serial: u64) -> RequestId {
    RequestId { purpose, serial }
}

fn handle(worker: &mut WorkerCore, now: Time, event: Event) -> Vec<Effect> {
    let mut effects = Vec::new();
    worker.handle(now, event, &mut effects);
    effects
}

fn written(purpose: Purpose, serial: u64, revision: u64) -> Event {
    let result = Ok(Written { revision: Revision(revision), stored_at: 50 });
    Event::Written { request_id: request(purpose, serial), result }
}

fn heartbeat(worker: Option<WorkerIncarnation>, serial: u64, state: WorkerState) -> Heartbeat {
    Heartbeat { worker, serial, state, ..beat_of(ME) }
}

fn write_heartbeat(key: Key, heartbeat: Heartbeat) -> Effect {
    let request_id = request(Purpose::Heartbeat, heartbeat.serial);
    Effect::Write {
        request_id,
        key,
        value: Value::Heartbeat(Arc::new(heartbeat)),
        condition: Condition::None,
    }
}

fn map() -> AssignmentMap {
    let assignment = Assignment { owner: ME.id, weight: Weight(1), adopted: false };
    AssignmentMap {
        version: Version(3),
        epoch: Epoch(2),
        lifecycle: Lifecycle::Stable,
        workers: [ME.id, WorkerId(1)].into(),
        assignments: BTreeMap::from([("a".into(), assignment)]),
        fleet_size: None,
        moved: 0,
        moved_weight: Weight(0),
        lower_bound_weight: Weight(0),
    }
}

/// Returns a worker that has just claimed id 0. Another worker leads.
fn with_id() -> WorkerCore {
    let mut worker = WorkerCore::new(s(0), pod(), Config::default());
    let lease = Lease { holder: WorkerIncarnation { id: WorkerId(1), ..ME }, epoch: Epoch(2), renewals: 0 };
    let entry = Entry { value: Value::Lease(lease), revision: Revision(2), stored_at: 0 };
    handle(&mut worker, s(0), Event::Watched { key: Key::Lease, entry: Some(entry), retained: true });
    handle(&mut worker, s(0), Event::Synced);
    handle(&mut worker, s(0), written(Purpose::Claim, 1, 5));
    worker
}

#[test]
fn a_connected_worker_claims_the_first_id_and_sends_a_heartbeat_without_one() {
    let mut worker = WorkerCore::new(s(0), pod(), Config::default());
    assert_eq!(worker.next_deadline(), None);
    let claim = Effect::Write {
        request_id: request(Purpose::Claim, 1),
        key: Key::Claim(WorkerId(0)),
        value: Value::Claim(Claim { pod: pod(), renewals: 0 }),
        condition: Condition::Absent,
    };
    let standby =
        write_heartbeat(Key::StandbyHeartbeat("uid".into()), heartbeat(None, 2, WorkerState::ClaimingId));
    assert_eq!(handle(&mut worker, s(0), Event::Synced), [claim, standby]);
    assert_eq!((worker.state(), worker.next_deadline()), (WorkerState::ClaimingId, Some(s(2))));
    assert_eq!(handle(&mut worker, s(1), Event::Synced), [], "a watch that starts again changes nothing");
}

#[test]
fn a_claimed_id_is_announced_immediately_and_a_vacant_lease_is_acquired() {
    let mut worker = WorkerCore::new(s(0), pod(), Config::default());
    handle(&mut worker, s(0), Event::Synced);
    let lease = Effect::Write {
        request_id: request(Purpose::Lease, 3),
        key: Key::Lease,
        value: Value::Lease(Lease { holder: ME, epoch: Epoch(1), renewals: 0 }),
        condition: Condition::Absent,
    };
    let announced = write_heartbeat(Key::Heartbeat(ME.id), heartbeat(Some(ME), 4, WorkerState::Election));
    assert_eq!(handle(&mut worker, s(0), written(Purpose::Claim, 1, 5)), [lease, announced]);
    assert_eq!(worker.incarnation(), Some(ME));
}

#[test]
fn a_follower_with_an_assignment_inspects_its_partitions_and_reports_the_map() {
    let mut worker = with_id();
    assert_eq!(worker.state(), WorkerState::Follower);
    let entry = Entry { value: Value::Map(Arc::new(map())), revision: Revision(9), stored_at: 0 };
    let watched = Event::Watched { key: Key::Map, entry: Some(entry.clone()), retained: false };
    let expected = [
        Effect::Assign { version: Version(3), added: vec!["a".into()], removed: vec![] },
        Effect::ReadCursors { request_id: request(Purpose::ReadCursors, 4), partitions: vec!["a".into()] },
        write_heartbeat(
            Key::Heartbeat(ME.id),
            Heartbeat {
                map_version: Version(3),
                applied_version: Version(3),
                assigned: 1,
                ..heartbeat(Some(ME), 5, WorkerState::Stable)
            },
        ),
    ];
    assert_eq!(handle(&mut worker, s(1), watched), expected);
    let again = Event::Watched { key: Key::Map, entry: Some(entry), retained: false };
    assert_eq!(handle(&mut worker, s(1), again), [], "the same revision is not news");
}

#[test]
fn a_worker_without_an_acknowledged_heartbeat_fences_itself_and_announces_it() {
    let mut worker = with_id();
    handle(&mut worker, s(2), Event::Tick);
    handle(&mut worker, s(4), Event::Tick);
    let effects = handle(&mut worker, Time::from_millis(4501), Event::Tick);
    assert!(worker.is_fenced(Time::from_millis(4501)));
    let [Effect::Fence, Effect::Write { key: Key::Heartbeat(_), value: Value::Heartbeat(beat), .. }] =
        &effects[..]
    else {
        panic!("{effects:?}");
    };
    assert_eq!(beat.state, WorkerState::Degraded);
}

#[test]
#[should_panic(expected = "time never goes back")]
fn a_clock_that_goes_back_is_refused() {
    let mut worker = with_id();
    handle(&mut worker, s(2), Event::Tick);
    handle(&mut worker, s(1), Event::Tick);
}
