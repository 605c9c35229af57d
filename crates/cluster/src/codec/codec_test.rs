use std::collections::BTreeSet;
use std::time::Duration;

use super::*;
use crate::core::types::{
    Assignment, Claim, ClusterState, Epoch, FencingToken, Heartbeat, Incarnation, Lease, Lifecycle, LogId,
    Pod, Sequence, Version, Weight, WindowKind, WorkerIncarnation, WriteTimestamp,
};
use crate::core::{Cursor, Position, PreviousOwner, WorkerState};
use crate::names::Bucket;

const NOW: &str = "2026-01-02T03:04:05Z";

fn names() -> Names {
    Names::of("jobs")
}

fn codec() -> Codec {
    Codec::new(names())
}

fn holder() -> WorkerIncarnation {
    WorkerIncarnation { id: WorkerId(5), incarnation: Incarnation(1_700_000_000_000_001) }
}

fn pod() -> Pod {
    Pod { name: "pod-7f8d9c".into(), uid: "550e8400".into() }
}

fn map(partitions: usize) -> AssignmentMap {
    let assignment = |i: usize| Assignment {
        owner: WorkerId((i % 7) as u32),
        weight: Weight(30_000 + (i as u64).wrapping_mul(2_654_435_761) % 3_000_000),
        adopted: i % 50 == 3,
    };
    AssignmentMap {
        version: Version(15),
        epoch: Epoch(7),
        lifecycle: Lifecycle::Stable,
        workers: (0..8).map(WorkerId).collect(),
        assignments: (0..partitions)
            .map(|i| (format!("shop{:03}:order{i}", i % 900).into(), assignment(i)))
            .collect(),
        fleet_size: Some(8),
        moved: 250,
        moved_weight: Weight(2_100),
        lower_bound_weight: Weight(2_000),
    }
}

fn heartbeat() -> Heartbeat {
    Heartbeat {
        pod: pod(),
        worker: Some(holder()),
        serial: 9,
        state: WorkerState::Stable,
        left: false,
        is_leader: true,
        map_version: Version(4),
        applied_version: Version(3),
        cursor_version: Version(2),
        assigned: 80,
        processed: 12_450,
        fleet_size: Some(30),
    }
}

fn cursor() -> Cursor {
    Cursor {
        position: Position { generation: 3, sequence: Sequence(70) },
        state_position: Some(Position { generation: 2, sequence: Sequence(60) }),
        message_id: Some("ctx_20251024".into()),
        log_id: Some(LogId(11)),
        write_timestamp: WriteTimestamp(100),
        owner: holder(),
        version: Version(4),
        fencing_token: FencingToken(6),
        failures: 1,
        worker_crashes: 2,
        isolated: true,
        dead_letter_reason: Some("a corrupt blob".into()),
        counted_sequence: Some(Sequence(71)),
        watermark: Sequence(75),
        released: false,
    }
}

fn values() -> Vec<(Key, Value)> {
    let state = ClusterState {
        state: WorkerState::Scaling,
        epoch: Epoch(7),
        version: Version(41),
        serial: 3,
        window: Some((WindowKind::PlannedScale, Duration::from_millis(8_250))),
        grace_periods: [(WorkerId(3), Duration::from_secs(40))].into(),
    };
    let standby = Heartbeat { worker: None, fleet_size: None, state: WorkerState::ClaimingId, ..heartbeat() };
    let farewell = Heartbeat { left: true, state: WorkerState::Shutdown, ..heartbeat() };
    vec![
        (Key::Claim(WorkerId(5)), Value::Claim(Claim { pod: pod(), renewals: 3 })),
        (Key::Heartbeat(WorkerId(5)), Value::Heartbeat(Arc::new(heartbeat()))),
        (Key::Heartbeat(WorkerId(5)), Value::Heartbeat(Arc::new(farewell))),
        (Key::StandbyHeartbeat("550e8400".into()), Value::Heartbeat(Arc::new(standby))),
        (Key::Lease, Value::Lease(Lease { holder: holder(), epoch: Epoch(7), renewals: 2 })),
        (Key::Map, Value::Map(Arc::new(map(100)))),
        (Key::ClusterState, Value::ClusterState(Arc::new(state))),
        (Key::FleetSize, Value::FleetSize(30)),
        (Key::Cursor("tool:a".into()), Value::Cursor(Arc::new(cursor()))),
        (Key::Cursor("tool:b".into()), Value::Cursor(Arc::new(cursor().released()))),
    ]
}

fn json(bytes: &[u8]) -> serde_json::Value {
    serde_json::from_slice(bytes).unwrap()
}

#[test]
fn every_value_comes_back_as_it_was() {
    let codec = codec();
    for (key, value) in values() {
        let stored = codec.encode(&key, &value, NOW);
        assert_eq!(codec.decode(&key, &stored), Ok(Decoded::Value(value)), "{key:?}");
    }
}

#[test]
fn every_key_comes_back_as_it_was() {
    for (key, _) in values() {
        let place = names().bucket_key(&key);
        assert_eq!(names().parse_key(place.bucket, &place.key), Some(key));
    }
    assert_eq!(names().parse_key(Bucket::StableIds, "jobs-007"), None);
    assert_eq!(names().parse_key(Bucket::Assignments, "map.1.0"), None);
}

#[test]
fn values_have_neutral_fields() {
    let codec = codec();
    codec
        .decode(
            &Key::Heartbeat(WorkerId(5)),
            &codec.encode(&Key::Heartbeat(WorkerId(5)), &values()[1].1, NOW),
        )
        .unwrap();
    let fields = |key: &Key, value: &Value| -> BTreeSet<String> {
        let value = json(&codec.encode(key, value, NOW));
        value.as_object().unwrap().keys().cloned().collect()
    };
    let all = values();
    let expected: [(usize, &[&str]); 4] = [
        (0, &["workerId", "podUid", "podName", "claimedAt", "lastHeartbeat", "ttlSeconds", "v"]),
        (
            1,
            &[
                "workerId",
                "podName",
                "timestamp",
                "isLeader",
                "state",
                "assignedPartitions",
                "messagesProcessed",
            ],
        ),
        (
            5,
            &[
                "version",
                "timestamp",
                "state",
                "lifecycleState",
                "firstAssignmentAt",
                "assignments",
                "workerInfo",
                "workerCount",
                "partitionCount",
                "statistics",
                "group",
                "leaderEpoch",
                "fleetSize",
                "v",
            ],
        ),
        (
            8,
            &[
                "generation",
                "sequence",
                "messageId",
                "stream",
                "stamp",
                "holder",
                "version",
                "take",
                "failures",
                "deaths",
                "solo",
                "dead",
                "cleanTo",
                "v",
            ],
        ),
    ];
    for (index, names) in expected {
        let found = fields(&all[index].0, &all[index].1);
        let missing: Vec<_> = names.iter().filter(|name| !found.contains(**name)).collect();
        assert!(missing.is_empty(), "{:?} lacks {missing:?}", all[index].0);
    }
    let map = json(&codec.encode(&Key::Map, &all[5].1, NOW));
    assert_eq!(map["workerInfo"]["jobs-5"]["podName"], "pod-7f8d9c");
    assert_eq!(map["workerInfo"]["jobs-7"]["partitions"], 0);
    assert_eq!(map["statistics"]["partitionsMoved"], 250);
    assert_eq!(map["statistics"]["movedWeight"], 2_100);
    assert_eq!(map["statistics"]["lowerBoundWeight"], 2_000);
    assert_eq!(map["statistics"]["ratioToLowerBound"], 1.05);
    assert_eq!(map["statistics"]["avgPartitionsPerWorker"], 12.5);
    assert_eq!(map["assignments"]["shop001:order1"], "jobs-1");
}

#[test]
fn fields_of_a_later_version_survive_rewriting() {
    for (key, value) in values() {
        if matches!(key, Key::Heartbeat(_) | Key::StandbyHeartbeat(_)) {
            continue;
        }
        let codec = codec();
        let mut later = json(&codec.encode(&key, &value, NOW));
        later["v"] = 2.into();
        later["zone"] = serde_json::json!({ "rack": 4 });
        codec.decode(&key, later.to_string().as_bytes()).unwrap();
        let rewritten = json(&codec.encode(&key, &value, "2026-01-02T04:00:00Z"));
        assert_eq!(rewritten["zone"]["rack"], 4, "{key:?}");
    }
}

#[test]
fn a_cursor_is_released_only_by_the_incarnation_that_holds_it() {
    let (codec, key) = (codec(), Key::Cursor("tool:a".into()));
    let mut stored = json(&codec.encode(&key, &Value::Cursor(Arc::new(cursor().released())), NOW));
    assert_eq!(stored["released"], holder().incarnation.0);
    let is_released =
        |stored: &serde_json::Value| match Codec::new(names()).decode(&key, stored.to_string().as_bytes()) {
            Ok(Decoded::Value(Value::Cursor(cursor))) => cursor.released,
            other => panic!("{other:?}"),
        };
    assert!(is_released(&stored));
    // A worker of an earlier version takes the cursor over and keeps the field that it does not know.
    stored["holder"] = serde_json::json!({ "id": "jobs-5", "incarnation": holder().incarnation.0 + 1 });
    assert!(!is_released(&stored));
    stored["released"] = serde_json::Value::Null;
    assert!(!is_released(&stored));
}

#[test]
fn a_takeover_removes_the_mark_of_a_released_cursor() {
    let (codec, key) = (codec(), Key::Cursor("tool:a".into()));
    codec.decode(&key, &codec.encode(&key, &Value::Cursor(Arc::new(cursor().released())), NOW)).unwrap();
    let taken = cursor().released().taken_over(holder(), Version(5), PreviousOwner::Released);
    assert_eq!(json(&codec.encode(&key, &Value::Cursor(Arc::new(taken)), NOW)).get("released"), None);
}

#[test]
fn the_first_times_are_kept_by_renewals_and_publications() {
    let codec = codec();
    let later = "2026-01-02T04:00:00Z";
    for (index, field) in [(0, "claimedAt"), (5, "firstAssignmentAt")] {
        let (key, value) = values().swap_remove(index);
        codec.decode(&key, &codec.encode(&key, &value, NOW)).unwrap();
        let rewritten = json(&codec.encode(&key, &value, later));
        assert_eq!(rewritten[field], NOW, "{key:?}");
        assert_ne!(rewritten, json(&codec.encode(&key, &value, NOW)));
    }
}

#[test]
fn a_bad_value_is_an_error_that_names_the_key_and_the_reason() {
    let codec = codec();
    for (key, value) in values() {
        for bad in [&b"{"[..], b"[]", b"{\"v\":1}", b"\xff\xfe", b""] {
            let error = codec.decode(&key, bad).unwrap_err();
            assert!(error.to_string().contains(&names().bucket_key(&key).key), "{error}");
        }
        // What was cut off anywhere is refused as well.
        let whole = codec.encode(&key, &value, NOW);
        for end in (0..whole.len()).step_by(7) {
            assert!(codec.decode(&key, &whole[..end]).is_err(), "{key:?} up to {end}");
        }
    }
}

#[test]
fn a_map_with_a_bad_name_is_refused_with_the_name() {
    let codec = codec();
    let mut bad = map(3);
    bad.assignments
        .insert("tool.1:a".into(), Assignment { owner: WorkerId(0), weight: Weight(1), adopted: false });
    let stored = codec.encode(&Key::Map, &Value::Map(Arc::new(bad)), NOW);
    let error = codec.decode(&Key::Map, &stored).unwrap_err().to_string();
    assert!(error.contains("tool.1") && error.contains("'.'"), "{error}");
}

#[test]
fn a_hundred_thousand_partitions_lie_in_parts_that_fit() {
    let codec = codec();
    let map = Arc::new(map(100_000));
    let stored = codec.encode_map(&map, NOW, Duration::from_millis(14));
    let SplitMap { parts, current } = split(&stored, "15-7-abc").expect("it is too large for one value");
    assert!(parts.iter().all(|(key, part)| is_part(key) && part.len() <= MAX_MAP_BYTES));
    assert!(current.len() < 4096);
    let Ok(Decoded::Parts(wanted)) = codec.decode(&Key::Map, &current) else { panic!("it names parts") };
    let bytes: Vec<Bytes> = parts.iter().map(|(_, part)| part.clone()).collect();
    let whole = join(&wanted, &bytes).unwrap();
    assert_eq!(codec.decode(&Key::Map, &whole), Ok(Decoded::Value(Value::Map(map))));
    assert!(join(&wanted, &bytes[1..]).is_err(), "a part is missing");
    let mut swapped = bytes.clone();
    swapped.reverse();
    assert!(bytes.len() < 2 || join(&wanted, &swapped).is_err(), "parts in another order");
}

#[test]
fn a_small_map_is_one_value() {
    let stored = codec().encode(&Key::Map, &Value::Map(Arc::new(map(500))), NOW);
    assert_eq!(split(&stored, "x"), None);
}

#[test]
fn a_map_of_another_group_is_refused_with_both_names_and_one_without_a_group_is_read() {
    let map = Value::Map(Arc::new(map(3)));
    let theirs = Codec::new(Names::of("parcels").worker_prefix("jobs")).encode(&Key::Map, &map, NOW);
    let error = codec().decode(&Key::Map, &theirs).unwrap_err().to_string();
    assert!(error.contains("group \"parcels\"") && error.contains("group \"jobs\""), "{error}");
    let mut old = json(&codec().encode(&Key::Map, &map, NOW));
    old.as_object_mut().unwrap().remove("group");
    assert_eq!(codec().decode(&Key::Map, old.to_string().as_bytes()), Ok(Decoded::Value(map)));
}

#[test]
fn a_cursor_without_a_message_id_or_a_log_is_stored_as_before() {
    let (codec, key) = (codec(), Key::Cursor("tool:a".into()));
    let cursor = Value::Cursor(Arc::new(Cursor { message_id: None, log_id: None, ..cursor() }));
    let stored = codec.encode(&key, &cursor, NOW);
    assert_eq!((&json(&stored)["messageId"], &json(&stored)["stream"]), (&"".into(), &0.into()));
    assert_eq!(codec.decode(&key, &stored), Ok(Decoded::Value(cursor)));
}
