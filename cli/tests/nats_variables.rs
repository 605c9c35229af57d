//! Variables that only a fleet at NATS obeys, each set to a value other than its default and seen from outside.
#![allow(clippy::unwrap_used, reason = "helpers fail as the test does")]

mod util;

use std::time::Duration;

use phalanx_cluster::backend::{Backend as _, BucketConfig, LogConfig, Settings};
use phalanx_cluster_nats::{Config, Nats};
use phalanx_testkit::nats::Server;
use serde_json::Value;
use util::fleet::{Ground, Member, within};
use util::running::strategy;

/// A defender at NATS whose charts lie in a folder of its own, on purpose.
fn start(ground: &Ground, name: &str, settings: &[(&str, &str)]) -> Member {
    let mut command = ground.phalanx();
    command.args(["defender", "--http-addr", "127.0.0.1:0", "--strategy-file", &strategy(), "--data-dir"]);
    command.arg(ground.folder.path().join(name)).env_remove("CASSANDRA_HOSTS");
    std::fs::create_dir_all(ground.folder.path().join(name)).unwrap();
    command.envs(settings.iter().copied());
    ground.start(name, command)
}

fn ground(server: &Server) -> Ground {
    let folder = tempfile::tempdir().unwrap();
    Ground { nats: server.url(), replicas: 1, cassandra: String::new(), folder }
}

/// A series of the metrics.
fn metric(member: &Member, series: &str) -> f64 {
    let text = member.get("/metrics");
    let line = text
        .as_str()
        .unwrap_or_default()
        .lines()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map_or(0.0, |value| value.trim().parse().unwrap())
}

#[test]
fn buckets_and_streams_have_the_names_they_are_given() {
    let server = Server::start().unwrap();
    let ground = ground(&server);
    let names = [
        ("NATS_STREAM_NAME", "fab1-runs"),
        ("NATS_KV_ASSIGNMENTS", "fab1-maps"),
        ("NATS_KV_HEARTBEATS", "fab1-beats"),
        ("NATS_KV_STABLE_IDS", "fab1-ids"),
        ("NATS_KV_CURSORS", "fab1-cursors"),
        ("NATS_KV_ELECTION", "fab1-election"),
        ("NATS_STREAM_DEAD_LETTERS", "fab1-dead"),
    ];
    let settings: Vec<(&str, &str)> = names
        .into_iter()
        .chain([("FLEET_SIZE", "1"), ("POD_NAME", "etch-pod"), ("POD_UID", "u-1")])
        .collect();
    let member = start(&ground, "one", &settings);
    within(30, "it is ready", || member.is_ready().then_some(()));
    assert_eq!(member.get("/api/v1/status")["podName"], "etch-pod");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let nats = Nats::connect(&Config::new(server.url())).await.unwrap();
        let usual = Settings::default();
        let open = async |config: &BucketConfig, name: &str| {
            nats.bucket(&BucketConfig { name: name.to_owned(), ..config.clone() }).await.unwrap()
        };
        let map = open(&usual.assignments, "fab1-maps").await.get("current").await.unwrap();
        assert!(map.is_some(), "the map is in its bucket");
        let beat = open(&usual.heartbeats, "fab1-beats").await.get("defender-0").await.unwrap().unwrap();
        let beat: Value = serde_json::from_slice(&beat.value).unwrap();
        assert_eq!(beat["podName"], "etch-pod");
        let claim = open(&usual.stable_ids, "fab1-ids").await.get("defender-0").await.unwrap().unwrap();
        assert!(String::from_utf8_lossy(&claim.value).contains("u-1"), "the claim names the pod's uid");
        assert!(open(&usual.election, "fab1-election").await.get("leader").await.unwrap().is_some());
        assert!(open(&usual.cursors, "fab1-cursors").await.keys().await.unwrap().is_empty());
        for (config, name) in [(&usual.notifications, "fab1-runs"), (&usual.dead_letters, "fab1-dead")] {
            let log = nats.log(&LogConfig { name: name.to_owned(), ..config.clone() }).await.unwrap();
            assert_eq!(log.info().await.unwrap().messages, 0);
        }
    });
}

#[test]
fn the_number_of_ids_is_bounded_and_one_that_may_not_lead_does_not() {
    let server = Server::start().unwrap();
    let ground = ground(&server);
    let settings = [("MAX_DEFENDERS", "1"), ("COLD_START_WINDOW_SECONDS", "2")];
    let first = start(&ground, "first", &settings);
    within(30, "it is ready", || first.is_ready().then_some(()));
    // Nobody says how many there are: the first map waits for others as long as it is told.
    let window = metric(&first, "defender_stabilization_window_seconds_sum{type=\"cold_start\"}");
    assert!((1.9..6.0).contains(&window), "{window}");
    let second = start(&ground, "second", &settings);
    within(30, "it says that there is no id left", || {
        (metric(&second, "defender_problems_total{kind=\"pool_exhausted\"}") > 0.0).then_some(())
    });
    assert!(!second.is_ready() && second.id().is_none());

    let other = Server::start().unwrap();
    let ground = self::ground(&other);
    let follower =
        start(&ground, "follower", &[("ASSIGNMENT_CONTROLLER_ENABLED", "false"), ("FLEET_SIZE", "1")]);
    within(30, "it has an id", || follower.id());
    let leader = start(&ground, "leader", &[("FLEET_SIZE", "2"), ("SCALE_WINDOW_SECONDS", "1")]);
    within(30, "the other leads", || leader.leads().then_some(()));
    assert_eq!(metric(&follower, "defender_election_participated_total"), 0.0, "it never tried");
}

#[test]
fn heartbeats_come_as_often_as_they_should_and_a_crash_is_three_of_them() {
    let server = Server::start().unwrap();
    let ground = ground(&server);
    let quick = [
        ("HEARTBEAT_INTERVAL_SECONDS", "0.4"),
        ("ELECTION_TTL_SECONDS", "2"),
        ("FLEET_SIZE", "2"),
        ("SCALE_WINDOW_SECONDS", "1"),
        ("REPLACEMENT_GRACE_SECONDS", "5"),
    ];
    let mut members: Vec<Member> = ["a", "b"].iter().map(|name| start(&ground, name, &quick)).collect();
    within(30, "both are there", || members.iter().all(|one| one.id().is_some()).then_some(()));
    let leader = within(30, "one leads", || members.iter().position(Member::leads));
    let (mut dies, stays) = (members.remove(1 - leader), members.remove(0));
    let id = dies.id().unwrap();
    dies.process.kill();
    let died = std::time::Instant::now();
    within(30, "the crash is seen", || (metric(&stays, "defender_active_defenders") == 1.0).then_some(()));
    println!(
        "measured: {id} missed three heartbeats of 0.4 s: seen after {:.1} s",
        died.elapsed().as_secs_f64()
    );
    // With the default interval it could not be seen before six seconds.
    assert!(died.elapsed() < Duration::from_secs(6));
}
