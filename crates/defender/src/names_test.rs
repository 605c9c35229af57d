use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use phalanx_cluster::Metrics;
use phalanx_cluster::codec::{Codec, Decoded};
use phalanx_cluster::core::types::{
    Assignment, AssignmentMap, Claim, Epoch, FencingToken, Heartbeat, Incarnation, Key, Lifecycle, LogId,
    Pod, Sequence, Value, Version, Weight, WorkerId, WorkerIncarnation, WriteTimestamp,
};
use phalanx_cluster::core::{Cursor, Position, WorkerState};

use super::*;

const NOW: &str = "2026-01-02T03:04:05Z";

fn worker() -> WorkerIncarnation {
    WorkerIncarnation { id: WorkerId(5), incarnation: Incarnation(1_700_000_000_000_001) }
}

fn pod() -> Pod {
    Pod { name: "defender-7f8d9c".into(), uid: "550e8400".into() }
}

fn map() -> AssignmentMap {
    let assignment =
        |i: usize| Assignment { owner: WorkerId((i % 7) as u32), weight: Weight(30_000), adopted: i == 3 };
    AssignmentMap {
        version: Version(15),
        epoch: Epoch(7),
        lifecycle: Lifecycle::Stable,
        workers: (0..8).map(WorkerId).collect(),
        assignments: (0..100).map(|i| (format!("tool{i:03}:chamber{i}").into(), assignment(i))).collect(),
        fleet_size: Some(8),
        moved: 250,
        moved_weight: Weight(2_100),
        lower_bound_weight: Weight(2_000),
    }
}

fn heartbeat() -> Heartbeat {
    Heartbeat {
        pod: pod(),
        worker: Some(worker()),
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
        owner: worker(),
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

fn codec() -> Codec {
    let codec = Codec::new(names());
    let key = Key::Heartbeat(WorkerId(5));
    codec.decode(&key, &codec.encode(&key, &Value::Heartbeat(Arc::new(heartbeat())), NOW)).unwrap();
    codec
}

fn json(key: &Key, value: &Value) -> serde_json::Value {
    serde_json::from_slice(&codec().encode(key, value, NOW)).unwrap()
}

#[test]
fn values_have_the_fields_of_the_requirements() {
    let values = [
        (Key::Claim(WorkerId(5)), Value::Claim(Claim { pod: pod(), renewals: 3 })),
        (Key::Heartbeat(WorkerId(5)), Value::Heartbeat(Arc::new(heartbeat()))),
        (Key::Map, Value::Map(Arc::new(map()))),
        (Key::Cursor("tool:a".into()), Value::Cursor(Arc::new(cursor()))),
    ];
    let expected: [&[&str]; 4] = [
        &["defenderId", "podUid", "podName", "claimedAt", "lastHeartbeat", "ttlSeconds", "v"],
        &["defenderId", "podName", "timestamp", "isLeader", "state", "assignedChambers", "messagesProcessed"],
        &[
            "version",
            "timestamp",
            "state",
            "lifecycleState",
            "firstAssignmentAt",
            "assignments",
            "defenderInfo",
            "defenderCount",
            "chamberCount",
            "statistics",
            "leaderEpoch",
            "fleetSize",
            "v",
        ],
        &[
            "generation",
            "sequence",
            "contextId",
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
    ];
    for ((key, value), names) in values.iter().zip(expected) {
        let stored = json(key, value);
        let found: BTreeSet<&str> = stored.as_object().unwrap().keys().map(String::as_str).collect();
        let missing: Vec<_> = names.iter().filter(|name| !found.contains(**name)).collect();
        assert!(missing.is_empty(), "{key:?} lacks {missing:?}");
    }
    let map = json(&values[2].0, &values[2].1);
    assert_eq!(map["defenderInfo"]["defender-5"]["podName"], "defender-7f8d9c");
    assert_eq!(map["defenderInfo"]["defender-7"]["chambers"], 0);
    assert_eq!(map["statistics"]["chambersMoved"], 250);
    assert_eq!(map["statistics"]["movedWeight"], 2_100);
    assert_eq!(map["statistics"]["lowerBoundWeight"], 2_000);
    assert_eq!(map["statistics"]["ratioToLowerBound"], 1.05);
    assert_eq!(map["statistics"]["avgChambersPerDefender"], 12.5);
    assert_eq!(map["assignments"]["tool001:chamber1"], "defender-1");
}

/// Values as the last version without groups wrote them.
const STORED: [(&str, &str); 4] = [
    (
        "claim",
        r#"{"v":1,"defenderId":"defender-5","podUid":"550e8400","podName":"defender-7f8d9c","claimedAt":"2026-01-02T03:04:05Z","lastHeartbeat":"2026-01-02T03:04:05Z","ttlSeconds":30,"renewals":3}"#,
    ),
    (
        "heartbeat",
        r#"{"v":1,"defenderId":"defender-5","podName":"defender-7f8d9c","podUid":"550e8400","incarnation":1700000000000001,"serial":9,"timestamp":"2026-01-02T03:04:05Z","isLeader":true,"state":"STABLE","assignedChambers":80,"messagesProcessed":12450,"mapVersion":4,"appliedVersion":3,"cursorVersion":2,"fleetSize":30}"#,
    ),
    ("fleet size", r#"{"v":1,"fleetSize":30}"#),
    (
        "cursor",
        r#"{"v":1,"generation":3,"sequence":70,"contextId":"ctx_20251024","stream":11,"stamp":100,"holder":{"id":"defender-5","incarnation":1700000000000001},"version":4,"take":6,"failures":1,"deaths":2,"solo":true,"dead":"a corrupt blob","judged":71,"cleanTo":75,"base":{"generation":2,"sequence":60}}"#,
    ),
];

#[test]
fn stored_values_are_byte_for_byte_those_of_the_version_without_groups() {
    let values = [
        (Key::Claim(WorkerId(5)), Value::Claim(Claim { pod: pod(), renewals: 3 })),
        (Key::Heartbeat(WorkerId(5)), Value::Heartbeat(Arc::new(heartbeat()))),
        (Key::FleetSize, Value::FleetSize(30)),
        (Key::Cursor("tool:a".into()), Value::Cursor(Arc::new(cursor()))),
    ];
    for ((key, value), (name, stored)) in values.into_iter().zip(STORED) {
        assert_eq!(String::from_utf8_lossy(&codec().encode(&key, &value, NOW)), stored, "{name}");
        assert_eq!(codec().decode(&key, stored.as_bytes()), Ok(Decoded::Value(value)), "{name}");
    }
}

#[test]
fn keys_buckets_and_streams_have_the_names_of_the_design() {
    let config = store_config();
    assert_eq!(
        config.buckets().map(|bucket| bucket.name.as_str()),
        ["stable-ids", "defender-heartbeats", "defender-assignments", "defender-election", "chamber-cursors"]
    );
    let logs = config.logs();
    assert_eq!(logs.map(|log| log.name.as_str()), ["dc-notifications", "dc-dead-letters"]);
    assert_eq!(logs.map(|log| log.subjects.join(" ")), ["dc.*.*.completed", "dlq.*.*.*"]);
    assert_eq!(
        (alarm_log().name, alarm_log().subjects.join(" ")),
        ("dc-alarms".to_owned(), "alarm.*.*".to_owned())
    );
    let settings = config.buckets().map(|bucket| (bucket.history, bucket.ttl));
    let ttl = |seconds: u64| Some(Duration::from_secs(seconds));
    assert_eq!(settings, [(1, Some(DAY)), (1, ttl(30)), (10, None), (1, None), (1, None)]);
    let ages =
        [&config.log, &config.dead_letters, &alarm_log()].map(|log| (log.max_age, log.duplicate_window));
    let window = Duration::from_secs(120);
    assert_eq!(ages, [(Some(7 * DAY), window), (None, window), (Some(30 * DAY), window)]);
    assert_eq!(config.subjects.subject("etch-01:A"), "dc.etch-01.A.completed");
    assert_eq!(config.subjects.partition("dc.etch-01.A.completed").as_deref(), Some("etch-01:A"));
    let keys: BTreeMap<&str, Key> = [
        ("defender-5", Key::Claim(WorkerId(5))),
        ("leader", Key::Lease),
        ("current", Key::Map),
        ("defender-state", Key::ClusterState),
        ("fleet-size", Key::FleetSize),
        ("etch-01.A", Key::Cursor("etch-01:A".into())),
    ]
    .into();
    for (stored, key) in keys {
        assert_eq!(config.names.bucket_key(&key).key, stored);
    }
    assert_eq!(config.names.format_incarnation(worker()), "defender-5.1700000000000001");
}

/// Metrics that the pipeline counts.
const OF_THE_APPLICATION: [&str; 5] = [
    "defender_cache_hit_rate",
    "defender_cassandra_read_duration_seconds",
    "defender_cassandra_write_duration_seconds",
    "defender_uchart_calculation_duration_seconds",
    "parti_emergency_rebalance",
];

#[test]
fn every_metric_of_the_requirements_is_there_in_its_kind() {
    let requirements: toml::Table = phalanx_testkit::requirements().parse().unwrap();
    let text = Metrics::new(&names()).text();
    // A metric with labels is shown once it has a value. The library tests the kinds of these.
    let with_labels = [
        "defender_state_transitions_total",
        "defender_state_duration_seconds",
        "defender_is_leader",
        "defender_stable_id_claimed",
    ];
    for metric in requirements["metric"].as_array().unwrap() {
        let (name, kind) = (metric["name"].as_str().unwrap(), metric["type"].as_str().unwrap());
        let is_here = text.contains(&format!("# TYPE {name} {kind}\n"))
            || with_labels.contains(&name) && METRICS.iter().any(|(_, given)| *given == name);
        assert_eq!(is_here, !OF_THE_APPLICATION.contains(&name), "{name}, a {kind}");
    }
}

#[test]
fn no_metric_keeps_its_neutral_name() {
    let text = Metrics::new(&names()).text();
    assert!(!text.contains("phalanx_"), "{text}");
    assert!(!text.contains("group="), "{text}");
}
