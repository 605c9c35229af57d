//! Tests of the settings of a defender.

use phalanx_defender::app::{ChartLocation, Coordination};
use phalanx_settings::{CONNECTIONS, DEFENDER, Given};

use super::*;

/// The configuration that follows from these values.
fn parsed(values: &[(&str, &str)]) -> Result<DefenderConfig, Vec<String>> {
    DefenderConfig::parse(&DefenderArgs::new(Given::from_pairs(values.iter().copied())))
}

/// The configuration of a defender with a data folder.
fn embedded(values: &[(&str, &str)]) -> Result<DefenderConfig, Vec<String>> {
    parsed(&[values, &[("DATA_DIR", "/tmp/data")]].concat())
}

#[test]
fn every_variable_of_the_requirements_is_a_setting_with_its_default() {
    let names: toml::Table = phalanx_testkit::requirements().parse().unwrap();
    let variables = names["env"].as_array().unwrap();
    assert_eq!(variables.len(), 32);
    // Addresses have none, and the consistency of the design is another.
    let other = ["NATS_SERVERS", "CASSANDRA_HOSTS", "ELECTION_AGENT_ADDR", "CASSANDRA_CONSISTENCY"];
    for variable in variables {
        let name = variable["name"].as_str().unwrap();
        let ours = CONNECTIONS
            .iter()
            .chain(DEFENDER)
            .find(|ours| ours.name() == name)
            .unwrap_or_else(|| panic!("{name} is missing"));
        let default = variable.get("default").and_then(|default| default.as_str()).unwrap_or_default();
        let ours = ours.default();
        assert!(ours == default || other.contains(&name), "{name}: {ours} instead of {default}");
    }
}

#[test]
fn the_defaults_of_the_settings_are_those_of_the_library() {
    let config = planned(&FLEET).unwrap();
    let (ours, library) = (config.options, Options::default());
    assert_eq!(ours.cluster, library.cluster);
    assert_eq!(
        ours.settings.buckets().map(|bucket| &bucket.name),
        library.settings.buckets().map(|b| &b.name)
    );
    assert_eq!(ours.settings.logs().map(|log| &log.name), library.settings.logs().map(|log| &log.name));
    assert_eq!(ours.alarms.name, library.alarms.name);
    assert_eq!(format!("{:?}", ours.subscriptions), format!("{:?}", library.subscriptions));
    assert_eq!(
        (ours.cache_mb, ours.weight_cache_ttl, ours.weight_update_interval),
        (library.cache_mb, library.weight_cache_ttl, library.weight_update_interval)
    );
    let Coordination::Nats(nats) = config.connections.coordination else { panic!("NATS is named") };
    assert_eq!(nats.replicas, phalanx_cluster_nats::Config::new("").replicas);
    let ChartLocation::Cassandra(charts) = config.connections.charts else { panic!("Cassandra is named") };
    assert_eq!(charts.keyspace, phalanx_defender::store::cassandra::KEYSPACE);
}

/// A command line with every setting.
#[derive(clap::Parser)]
struct Line {
    #[command(flatten)]
    settings: DefenderArgs,
}

/// The configuration that follows from these variables, each given as its flag.
pub(in crate::commands::defender) fn planned(
    variables: &[(&str, &str)],
) -> Result<DefenderConfig, Vec<String>> {
    let flag = |name: &str| format!("--{}", name.to_lowercase().replace('_', "-"));
    let words = variables.iter().flat_map(|(name, value)| [flag(name), (*value).to_owned()]);
    let line = std::iter::once("phalanx".to_owned()).chain(words);
    DefenderConfig::parse(&<Line as clap::Parser>::parse_from(line).settings)
}

const FLEET: [(&str, &str); 3] =
    [("NATS_SERVERS", "nats://n:4222"), ("CASSANDRA_HOSTS", "c"), ("STRATEGY_FILE", "s.toml")];

/// A variable, a value that is not its default, what it changes, and what it changes that to.
type Case = (&'static str, &'static str, fn(&DefenderConfig) -> String, &'static str);

const CASES: [Case; 30] = [
    ("NATS_SERVERS", "nats://m:4222", |plan| nats(plan, |nats| nats.servers.clone()), "nats://m:4222"),
    ("NATS_STREAM_NAME", "runs", |plan| plan.options.settings.log.name.clone(), "runs"),
    ("NATS_KV_ASSIGNMENTS", "maps", |plan| plan.options.settings.assignments.name.clone(), "maps"),
    ("NATS_KV_HEARTBEATS", "beats", |plan| plan.options.settings.heartbeats.name.clone(), "beats"),
    ("NATS_KV_STABLE_IDS", "ids", |plan| plan.options.settings.stable_ids.name.clone(), "ids"),
    ("CASSANDRA_HOSTS", "d,e", |plan| cassandra(plan, |config| config.hosts.clone()), "d,e"),
    ("CASSANDRA_KEYSPACE", "k", |plan| cassandra(plan, |config| config.keyspace.clone()), "k"),
    ("CASSANDRA_CONSISTENCY", "QUORUM", |plan| cassandra(plan, |c| c.consistency.to_string()), "QUORUM"),
    ("ELECTION_TTL_SECONDS", "8", |plan| format!("{:?}", plan.options.cluster.lease_term), "8s"),
    ("MAX_DEFENDERS", "7", |plan| plan.options.cluster.max_workers.to_string(), "7"),
    ("HEARTBEAT_INTERVAL_SECONDS", "1", |p| format!("{:?}", p.options.cluster.heartbeat_interval), "1s"),
    (
        "ASSIGNMENT_STABILIZATION_WINDOW_SECONDS",
        "9",
        |plan| format!("{:?}", plan.options.cluster.cold_start_window),
        "9s",
    ),
    ("CACHE_SIZE_MB", "5", |plan| plan.options.cache_mb.to_string(), "5"),
    ("PROCESS_TIMEOUT_SECONDS", "3", |p| format!("{:?}", p.options.cluster.process_timeout), "3s"),
    ("MAX_CONCURRENT_MESSAGES", "4", |plan| plan.options.cluster.max_concurrent.to_string(), "4"),
    ("POD_NAME", "pod-9", |plan| plan.options.pod.clone().unwrap().0, "pod-9"),
    ("POD_UID", "uid-9", |plan| plan.options.pod.clone().unwrap().1, "uid-9"),
    (
        "ASSIGNMENT_CONTROLLER_ENABLED",
        "false",
        |plan| plan.options.cluster.controller_enabled.to_string(),
        "false",
    ),
    ("ASSIGNMENT_VNODE_COUNT", "150", |plan| plan.options.cluster.planner.vnodes.to_string(), "150"),
    (
        "WEIGHT_REBALANCE_ENABLED",
        "false",
        |plan| format!("{:?}", plan.options.cluster.planner.strategy),
        "ConsistentHash",
    ),
    ("WEIGHT_REBALANCE_THRESHOLD", "0.1", |p| p.options.cluster.planner.threshold.to_string(), "0.1"),
    (
        "WEIGHT_REBALANCE_MAX_ITERATIONS",
        "2",
        |plan| plan.options.cluster.planner.repair_rounds.to_string(),
        "2",
    ),
    ("WEIGHT_CACHE_TTL_SECONDS", "60", |plan| format!("{:?}", plan.options.weight_cache_ttl), "60s"),
    (
        "WEIGHT_UPDATE_INTERVAL_SECONDS",
        "70",
        |plan| format!("{:?}", plan.options.weight_update_interval),
        "70s",
    ),
    ("COLD_START_WINDOW_SECONDS", "11", |p| format!("{:?}", p.options.cluster.cold_start_window), "11s"),
    ("SCALE_WINDOW_SECONDS", "12", |plan| format!("{:?}", plan.options.cluster.scale_window), "12s"),
    ("CRASH_IMMEDIATE", "false", |plan| plan.options.cluster.crash_immediate.to_string(), "false"),
    (
        "SUBSCRIPTION_UPDATE_TIMEOUT_SECONDS",
        "13",
        |plan| format!("{:?}", plan.options.subscriptions.timeout),
        "13s",
    ),
    ("SUBSCRIPTION_RETRY_ATTEMPTS", "5", |plan| plan.options.subscriptions.attempts.to_string(), "5"),
    ("SUBSCRIPTION_BACKOFF_SECONDS", "6", |plan| format!("{:?}", plan.options.subscriptions.backoff), "6s"),
];

fn nats(plan: &DefenderConfig, read: fn(&phalanx_cluster_nats::Config) -> String) -> String {
    match &plan.connections.coordination {
        Coordination::Nats(config) => read(config),
        Coordination::Embedded(_) => "embedded".to_owned(),
    }
}

fn cassandra(
    plan: &DefenderConfig,
    read: fn(&phalanx_defender::store::cassandra::Config) -> String,
) -> String {
    match &plan.connections.charts {
        ChartLocation::Cassandra(config) => read(config),
        ChartLocation::Sqlite(_) => "SQLite".to_owned(),
    }
}

#[test]
fn every_variable_changes_what_it_is_for_and_nothing_else() {
    let shown = |plan: &DefenderConfig| CASES.map(|(_, _, show, _)| show(plan));
    // Without a uid it is random: here it is not, so that it differs only where it is set.
    let base: Vec<(&str, &str)> = FLEET.into_iter().chain([("POD_UID", "u"), ("POD_NAME", "p")]).collect();
    let usual = shown(&planned(&base).unwrap());
    for (place, (name, value, _, expected)) in CASES.into_iter().enumerate() {
        let mut given: Vec<(&str, &str)> = base.iter().copied().filter(|(other, _)| *other != name).collect();
        given.push((name, value));
        let plan = planned(&given).unwrap_or_else(|wrong| panic!("{name}={value}: {wrong:?}"));
        assert_ne!(usual[place], expected, "{name}: choose a value that is not the default");
        for (other, now) in shown(&plan).into_iter().enumerate() {
            // The older name of the window is a fallback for the newer.
            let same = CASES[other].0.ends_with("WINDOW_SECONDS") && name.ends_with("WINDOW_SECONDS");
            match other == place {
                true => assert_eq!(now, expected, "{name}={value}"),
                false => assert!(now == usual[other] || same, "{name} changes {}: {now}", CASES[other].0),
            }
        }
    }
    // Two belong together.
    let agent = |settings: &[(&str, &str)]| planned(&[&FLEET[..], settings].concat()).unwrap().election_agent;
    assert!(agent(&[("POD_NAMESPACE", "fab-1")]).is_none(), "NATS elects");
    let usual = agent(&[("ELECTION_AGENT_ADDR", "a:9090, b:9090")]).unwrap();
    assert_eq!(
        (&usual.addresses[..], &*usual.election),
        (&["a:9090".into(), "b:9090".into()][..], "default")
    );
    let named = agent(&[("ELECTION_AGENT_ADDR", "a:9090"), ("POD_NAMESPACE", "fab-1")]).unwrap();
    assert_eq!(named.election, "fab-1");
    let theirs: Vec<&str> =
        CASES.iter().map(|case| case.0).chain(["ELECTION_AGENT_ADDR", "POD_NAMESPACE"]).collect();
    assert_eq!(theirs.len(), 32);
    let names: toml::Table = phalanx_testkit::requirements().parse().unwrap();
    let all = names["env"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap());
    assert_eq!(all.filter(|name| !theirs.contains(name)).collect::<Vec<_>>(), Vec::<&str>::new());
}

#[test]
fn whatever_is_wrong_is_said_at_once_with_what_is_allowed() {
    let wrong = embedded(&[
        ("HEARTBEAT_INTERVAL_SECONDS", "often"),
        ("MAX_DEFENDERS", "0"),
        ("CRASH_IMMEDIATE", "maybe"),
        ("WEIGHT_REBALANCE_THRESHOLD", "7"),
        ("ELECTION_AGENT_ADDR", "agent"),
        ("ELECTION_AGENT_TLS_CA", "/nowhere/ca.pem"),
        ("POD_NAMESPACE", "fab 1"),
        ("NATS_SERVERS", "nats://a:4222"),
        ("NATS_USER", "anna"),
        ("NATS_REPLICAS", "2"),
    ])
    .err()
    .unwrap();
    for part in [
        "HEARTBEAT_INTERVAL_SECONDS is \"often\"; allowed is a number of seconds",
        "MAX_DEFENDERS is \"0\"; allowed is a whole number from 1 to 100000",
        "CRASH_IMMEDIATE is \"maybe\"; allowed is true or false",
        "WEIGHT_REBALANCE_THRESHOLD is \"7\"; allowed is a part of the mean",
        "ELECTION_AGENT_ADDR has \"agent\"; allowed is a host and a port",
        "/nowhere/ca.pem cannot be read",
        "POD_NAMESPACE: ",
        "NATS_USER is set and NATS_PASSWORD is not",
        "NATS_REPLICAS is \"2\"; allowed is 1 or 3",
    ] {
        assert!(wrong.iter().any(|line| line.starts_with(part)), "{part} is not in {wrong:#?}");
    }
    assert_eq!(wrong.len(), 9, "{wrong:#?}");
}

#[test]
fn intervals_that_do_not_fit_together_are_refused_with_the_numbers() {
    let wrong = embedded(&[("HEARTBEAT_INTERVAL_SECONDS", "60")]).err().unwrap();
    assert_eq!(wrong.len(), 1, "{wrong:#?}");
}

#[test]
fn a_fleet_without_a_shared_store_is_refused_unless_a_folder_is_named() {
    let fleet = [("NATS_SERVERS", "nats://a:4222"), ("STRATEGY_FILE", "s.toml")];
    let wrong = parsed(&fleet).err().unwrap();
    assert!(wrong[0].contains("need a store that all of them reach"), "{wrong:#?}");
    let on_purpose = parsed(&[&fleet[..], &[("DATA_DIR", "/tmp/d")]].concat()).unwrap();
    assert!(matches!(on_purpose.connections.charts, ChartLocation::Sqlite(_)));
    let nothing = parsed(&[]).err().unwrap();
    assert!(nothing.iter().any(|line| line.contains("neither NATS_SERVERS nor DATA_DIR")), "{nothing:#?}");
}

#[test]
fn alone_the_fleet_is_this_process_and_the_older_window_is_a_fallback() {
    let plan = embedded(&[("ASSIGNMENT_STABILIZATION_WINDOW_SECONDS", "7")]).ok().unwrap();
    let cluster = &plan.options.cluster;
    assert_eq!((cluster.fleet_size, cluster.scale_window), (Some(1), Duration::from_secs(1)));
    assert_eq!(cluster.cold_start_window, Duration::from_secs(7));
    assert_eq!(plan.strategy_file, PathBuf::from("/tmp/data/strategy.toml"));
}
