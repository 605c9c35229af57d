//! Variables that only a fleet at NATS obeys, each set to a value other than its default and seen from outside.

use std::time::Duration;

use crate::util::fleet::{Ground, Member};
use crate::util::running::{self, ask, csv, strategy};
use crate::util::{phalanx_command, run};
use phalanx_cluster::backend::{Backend as _, BucketConfig, LogConfig, WatchEvent};
use phalanx_cluster::core::planner::{Mode, Options, PlannerInput, Strategy, plan};
use phalanx_cluster::core::types::Weight;
use phalanx_cluster_nats::{Config, Nats};
use phalanx_defender::names::{alarm_log, store_config};
use phalanx_testkit::nats::Server;
use phalanx_testkit::process;
use phalanx_testkit::wait::until;
use rustix::process::Signal;
use serde_json::Value;

/// A defender at NATS whose charts lie in a folder of its own, on purpose.
pub(crate) fn start(ground: &Ground, name: &str, settings: &[(&str, &str)]) -> Member {
    let mut command = ground.phalanx();
    command.args(["defender", "--http-addr", "127.0.0.1:0", "--strategy-file", &strategy(), "--data-dir"]);
    command.arg(ground.folder.path().join(name)).env_remove("CASSANDRA_HOSTS").env("API_TOKEN", "t");
    std::fs::create_dir_all(ground.folder.path().join(name)).unwrap();
    command.envs(settings.iter().copied());
    ground.start(name, command)
}

pub(crate) fn ground(server: &Server) -> Ground {
    let folder = tempfile::tempdir().unwrap();
    Ground { nats: server.url(), replicas: 1, cassandra: String::new(), keyspace: String::new(), folder }
}

/// A series of the metrics; one that is not there yet is nothing.
fn metric(member: &Member, series: &str) -> f64 {
    running::metric(&member.url, series).unwrap_or_default()
}

/// Chambers of one tool that weigh this, given to the store of that defender before it starts.
pub(crate) fn list(ground: &Ground, name: &str, weights: &[u64]) {
    let chambers: Vec<(String, u64)> =
        weights.iter().enumerate().map(|(n, weight)| (n.to_string(), *weight)).collect();
    list_named(ground, name, &chambers);
}

/// The same for chambers with names.
pub(crate) fn list_named(ground: &Ground, name: &str, chambers: &[(String, u64)]) {
    let folder = ground.folder.path().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let lines = chambers.iter().map(|(chamber, weight)| format!("etch-01,{chamber},{weight},1,1\n"));
    let head = "tool_id,chamber_id,svid_count,collection_freq_hz,context_duration_seconds\n".to_owned();
    let file = folder.join("chambers.csv");
    std::fs::write(&file, std::iter::once(head).chain(lines).collect::<String>()).unwrap();
    let mut import = phalanx_command();
    run(import.args(["chambers", "import"]).arg(file).arg("--data-dir").arg(folder)).succeeds();
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
        ("NATS_STREAM_ALARMS", "fab1-alarms"),
    ];
    let settings: Vec<(&str, &str)> = names
        .into_iter()
        .chain([("FLEET_SIZE", "1"), ("POD_NAME", "etch-pod"), ("POD_UID", "u-1")])
        .collect();
    let member = start(&ground, "one", &settings);
    until("it is ready", || member.is_ready().then_some(()));
    assert_eq!(member.get("/api/v1/status")["podName"], "etch-pod");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let nats = Nats::connect(&Config::new(server.url())).await.unwrap();
        let usual = store_config();
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
        for (config, name) in
            [(&usual.log, "fab1-runs"), (&usual.dead_letters, "fab1-dead"), (&alarm_log(), "fab1-alarms")]
        {
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
    until("it is ready", || first.is_ready().then_some(()));
    // Nobody says how many there are: the first map waits for others as long as it is told.
    let window = metric(&first, "defender_stabilization_window_seconds_sum{type=\"cold_start\"}");
    assert!((1.9..6.0).contains(&window), "{window}");
    let second = start(&ground, "second", &settings);
    until("it says that there is no id left", || {
        (metric(&second, "defender_problems_total{kind=\"pool_exhausted\"}") > 0.0).then_some(())
    });
    assert!(!second.is_ready() && second.id().is_none());

    let other = Server::start().unwrap();
    let ground = self::ground(&other);
    let follower =
        start(&ground, "follower", &[("ASSIGNMENT_CONTROLLER_ENABLED", "false"), ("FLEET_SIZE", "1")]);
    until("it has an id", || follower.id());
    let leader = start(&ground, "leader", &[("FLEET_SIZE", "2"), ("SCALE_WINDOW_SECONDS", "1")]);
    until("the other leads", || leader.leads().then_some(()));
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
    until("both are there", || members.iter().all(|one| one.id().is_some()).then_some(()));
    let leader = until("one leads", || members.iter().position(Member::leads));
    let (mut dies, stays) = (members.remove(1 - leader), members.remove(0));
    let id = dies.id().unwrap();
    dies.process.kill();
    let died = std::time::Instant::now();
    until("the crash is seen", || (metric(&stays, "defender_active_defenders") == 1.0).then_some(()));
    println!(
        "measured: {id} missed three heartbeats of 0.4 s: seen after {:.1} s",
        died.elapsed().as_secs_f64()
    );
    // With the default interval it could not be seen before six seconds.
    assert!(died.elapsed() < Duration::from_secs(6));
}

#[test]
fn each_window_is_as_long_as_its_own_variable_says() {
    // The older name counts where the newer is not given.
    let [servers, others] = [Server::start().unwrap(), Server::start().unwrap()];
    let windows = [("COLD_START_WINDOW_SECONDS", "2"), ("SCALE_WINDOW_SECONDS", "3.5")];
    let older = [("ASSIGNMENT_STABILIZATION_WINDOW_SECONDS", "3"), ("SCALE_WINDOW_SECONDS", "1")];
    let (ground, other) = (ground(&servers), ground(&others));
    let both = [start(&ground, "newer", &windows), start(&other, "older", &older)];
    let window = |member: &Member, kind: &str| {
        metric(member, &format!("defender_stabilization_window_seconds_sum{{type=\"{kind}\"}}"))
    };
    for (member, length) in both.iter().zip([2.0, 3.0]) {
        until("the first map", || member.is_ready().then_some(()));
        let open = window(member, "cold_start");
        assert!((length - 0.1..length + 0.9).contains(&open), "{}: {open} instead of {length}", member.name);
    }
    // A chamber is added.
    for (member, length) in both.iter().zip([3.5, 1.0]) {
        list(if member.name == "newer" { &ground } else { &other }, "list", &[5]);
        let folder =
            if member.name == "newer" { &ground } else { &other }.folder.path().join("list/chambers.csv");
        let mut import = phalanx_command();
        import.args(["chambers", "import"]).arg(folder).args(["--url", &member.url, "--token", "t"]);
        run(&mut import).succeeds();
        until("it is assigned", || (metric(member, "defender_assigned_chambers") == 1.0).then_some(()));
        let open = window(member, "planned_scale");
        assert!((length - 0.1..length + 0.9).contains(&open), "{}: {open} instead of {length}", member.name);
    }
}

#[test]
fn a_crash_waits_for_the_window_where_it_is_told_to() {
    let server = Server::start().unwrap();
    let ground = ground(&server);
    let patient = [
        ("CRASH_IMMEDIATE", "false"),
        ("SCALE_WINDOW_SECONDS", "4"),
        ("HEARTBEAT_INTERVAL_SECONDS", "0.4"),
        ("ELECTION_TTL_SECONDS", "2"),
        ("FLEET_SIZE", "2"),
    ];
    for name in ["a", "b"] {
        list(&ground, name, &[5, 5, 5, 5]);
    }
    let mut members: Vec<Member> = ["a", "b"].iter().map(|name| start(&ground, name, &patient)).collect();
    until("both own something", || {
        members.iter().all(|one| metric(one, "defender_assigned_chambers") == 2.0).then_some(())
    });
    let leader = until("one leads", || members.iter().position(Member::leads));
    let (mut dies, stays) = (members.remove(1 - leader), members.remove(0));
    let version = stays.get("/api/v1/cluster")["mapVersion"].clone();
    dies.process.kill();
    let cluster = until("a window opens", || {
        let cluster = stays.get("/api/v1/cluster");
        (cluster["window"]["kind"] == "planned_scale").then_some(cluster)
    });
    assert_eq!(cluster["mapVersion"], version, "{cluster}");
    until("then its chambers have a new owner", || {
        (metric(&stays, "defender_assigned_chambers") == 4.0).then_some(())
    });
    let open = metric(&stays, "defender_stabilization_window_seconds_sum{type=\"planned_scale\"}");
    assert!((3.9..5.0).contains(&open), "{open}");
    assert_eq!(metric(&stays, "defender_emergency_events_total"), 0.0);
}

#[test]
fn the_lease_is_renewed_at_half_of_its_length() {
    let server = Server::start().unwrap();
    let ground = ground(&server);
    let settings =
        [("ELECTION_TTL_SECONDS", "4"), ("HEARTBEAT_INTERVAL_SECONDS", "0.5"), ("FLEET_SIZE", "1")];
    let member = start(&ground, "one", &settings);
    until("it leads", || member.leads().then_some(()));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (stored, next) = runtime.block_on(async {
        let nats = Nats::connect(&Config::new(server.url())).await.unwrap();
        let mut watch = nats.bucket(&store_config().election).await.unwrap().watch().await.unwrap();
        let mut stored = async || loop {
            if let Some(WatchEvent::Put(entry)) = watch.next().await {
                return entry.stored_at;
            }
        };
        let _current = stored().await;
        (stored().await, stored().await)
    });
    let between = (next - stored) as f64 / 1e6;
    assert!((1.9..3.0).contains(&between), "{between} s from one renewal to the next");
}

/// The owners of chambers of these weights on two defenders.
fn planned(weights: &[u64], options: &Options) -> Vec<String> {
    let names: Vec<String> = (0..weights.len()).map(|n| format!("etch-01:{n}")).collect();
    let item = |(name, weight)| PlannerInput { name, weight: Weight(weight), previous: None };
    let items: Vec<PlannerInput<'_>> =
        names.iter().map(String::as_str).zip(weights.iter().copied()).map(item).collect();
    let owners = plan(&items, &[0, 1], options, Mode::Planned).owners;
    owners.iter().map(|id| format!("defender-{id}")).collect()
}

#[test]
fn plans_are_made_by_what_the_variables_say() {
    let usual = Options::default();
    let hashed = Options { strategy: Strategy::ConsistentHash, vnodes: 3, ..usual };
    let near = Options { threshold: 0.01, ..usual };
    let once = Options { threshold: 0.001, repair_rounds: 0, ..usual };
    // What is set, what follows from it, and what would follow if one of the variables did not count.
    type Case<'a> = (&'a [(&'a str, &'a str)], Options, Vec<Options>);
    let cases: [Case<'_>; 3] = [
        (
            &[("WEIGHT_REBALANCE_ENABLED", "false"), ("ASSIGNMENT_VNODE_COUNT", "3")],
            hashed,
            vec![Options { strategy: usual.strategy, ..hashed }, Options { vnodes: usual.vnodes, ..hashed }],
        ),
        (&[("WEIGHT_REBALANCE_THRESHOLD", "0.01")], near, vec![usual]),
        (
            &[("WEIGHT_REBALANCE_THRESHOLD", "0.001"), ("WEIGHT_REBALANCE_MAX_ITERATIONS", "0")],
            once,
            vec![Options { repair_rounds: usual.repair_rounds, ..once }],
        ),
    ];
    // Chambers for which every variable makes a difference.
    let weights = (1..10_000)
        .map(|seed: u64| (0..16).map(|n| 1 + (n + seed) * (n + 7) * (seed + 31) % 97).collect::<Vec<u64>>())
        .find(|weights| {
            cases.iter().all(|(_, options, others)| {
                others.iter().all(|other| planned(weights, other) != planned(weights, options))
            })
        })
        .expect("such chambers");
    for (settings, options, _) in cases {
        let server = Server::start().unwrap();
        let ground = ground(&server);
        let fleet = settings.iter().copied().chain([("FLEET_SIZE", "2"), ("SCALE_WINDOW_SECONDS", "1")]);
        let fleet: Vec<(&str, &str)> = fleet.collect();
        for name in ["a", "b"] {
            list(&ground, name, &weights);
        }
        let members = ["a", "b"].map(|name| start(&ground, name, &fleet));
        let map = until("a map of both", || {
            let map = members[0].get("/api/v1/assignments?all=true");
            (map["chambers"].as_array()?.len() == weights.len()).then_some(map)
        });
        let owner = |n: usize| {
            let (mut chambers, name) = (map["chambers"].as_array().unwrap().iter(), n.to_string());
            let chamber = chambers.find(|one| one["chamberId"] == *name).unwrap();
            chamber["defenderId"].as_str().unwrap().to_owned()
        };
        let owners: Vec<String> = (0..weights.len()).map(owner).collect();
        assert_eq!(owners, planned(&weights, &options), "{settings:?}");
    }
}

#[test]
fn no_more_runs_are_in_work_at_once_than_it_is_told() {
    let server = Server::start().unwrap();
    let ground = ground(&server);
    let folder = ground.folder.path().join("one");
    list(&ground, "one", &[1, 1, 1, 1]);
    // Runs of four chambers wait in the log, their traces in the folder.
    let mut collector = ground.phalanx();
    collector.args(["collector", "--http-addr", "127.0.0.1:0", "--data-dir"]).arg(&folder);
    collector.env_remove("CASSANDRA_HOSTS").env("API_TOKEN", "t");
    let mut collector = ground.start("collector", collector);
    until("the collector is ready", || collector.is_ready().then_some(()));
    for chamber in 0..4 {
        let path = format!("/api/v1/contexts?tool=etch-01&chamber={chamber}&context=run-1");
        assert_eq!(ask(&collector.url, "POST", &path, Some("t"), "text/csv", &csv(500)).0, 202);
    }
    collector.leave();
    // Nobody can write there now: whatever is begun goes on until that is over.
    let lock = rusqlite::Connection::open(folder.join("charts.db")).unwrap();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut member = start(&ground, "one", &[("MAX_CONCURRENT_MESSAGES", "3"), ("FLEET_SIZE", "1")]);
    until("three are begun", || (metric(&member, "defender_messages_received_total") == 3.0).then_some(()));
    process::signal(member.process.id(), Signal::TERM);
    until("it leaves with three in work", || {
        (metric(&member, "defender_inflight_messages_at_shutdown") == 3.0).then_some(())
    });
    assert_eq!(metric(&member, "defender_messages_received_total"), 3.0);
    lock.execute_batch("ROLLBACK").unwrap();
    member.leave();
}
