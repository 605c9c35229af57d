//! From what was given to what is started: everything that is wrong is said at once.

use std::path::PathBuf;
use std::time::Duration;

use phalanx_cluster::SubscriptionConfig;
use phalanx_cluster::core::Config;
use phalanx_cluster::core::planner::{self, Strategy};
use phalanx_defender::names::{alarm_log, store_config};
use phalanx_defender::worker::Options;

use crate::data_folder::DataFolder;
use crate::random;
use crate::settings::election::Grantor;
use crate::settings::places::Places;
use crate::settings::reader::{Reader, text};
use crate::settings::variables::Variables;

/// What is to be started.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) places: Places,
    pub(crate) options: Options,
    pub(crate) grantor: Option<Grantor>,
    pub(crate) http_addr: String,
    pub(crate) token: Option<String>,
    pub(crate) strategy: PathBuf,
}

impl Plan {
    /// What follows from the settings, or everything that is wrong with them.
    pub(crate) fn new(given: &Variables) -> Result<Self, Vec<String>> {
        let mut reader = Reader::default();
        let embedded = text(&given.connections.nats_servers).is_none();
        let cluster = cluster(&mut reader, given, embedded);
        if let Err(error) = cluster.validate() {
            reader.wrong.push(error.to_string());
        }
        let doorbells = SubscriptionConfig::default();
        let doorbells = SubscriptionConfig {
            timeout: reader.seconds(
                "SUBSCRIPTION_UPDATE_TIMEOUT_SECONDS",
                given.subscription_update_timeout_seconds.as_ref(),
                doorbells.timeout,
            ),
            attempts: reader.count(
                "SUBSCRIPTION_RETRY_ATTEMPTS",
                given.subscription_retry_attempts.as_ref(),
                doorbells.attempts,
                1,
                100,
            ),
            backoff: reader.seconds(
                "SUBSCRIPTION_BACKOFF_SECONDS",
                given.subscription_backoff_seconds.as_ref(),
                doorbells.backoff,
            ),
        };
        let usual = Options::default();
        let pod = pod(given);
        let places = Places::new(&mut reader, &given.connections, &pod.0);
        let options = Options {
            cluster,
            settings: places.as_ref().map_or_else(store_config, |places| places.settings.clone()),
            alarms: places.as_ref().map_or_else(alarm_log, |places| places.alarms.clone()),
            subscriptions: doorbells,
            cache_mb: reader.count(
                "CACHE_SIZE_MB",
                given.cache_size_mb.as_ref(),
                usual.cache_mb,
                1,
                1_000_000,
            ),
            weight_cache_ttl: reader.seconds(
                "WEIGHT_CACHE_TTL_SECONDS",
                given.weight_cache_ttl_seconds.as_ref(),
                usual.weight_cache_ttl,
            ),
            weight_update_interval: reader.seconds(
                "WEIGHT_UPDATE_INTERVAL_SECONDS",
                given.weight_update_interval_seconds.as_ref(),
                usual.weight_update_interval,
            ),
            pod: Some(pod),
            ..usual
        };
        let grantor = Grantor::new(&mut reader, given, options.cluster.lease_term);
        let data_dir = text(&given.connections.data_dir).map(PathBuf::from);
        let strategy = text(&given.strategy_file)
            .map(PathBuf::from)
            .or_else(|| Some(DataFolder::at(data_dir.as_ref()?).strategy()));
        if strategy.is_none() {
            reader.wrong.push(
                "STRATEGY_FILE is not set, and there is no data folder to look for strategy.toml in"
                    .to_owned(),
            );
        }
        let http_addr = text(&given.http_addr).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
        match (places, strategy, reader.wrong.is_empty()) {
            (Some(places), Some(strategy), true) => {
                Ok(Self { places, options, grantor, http_addr, token: text(&given.api_token), strategy })
            }
            _ => Err(reader.wrong),
        }
    }
}

fn cluster(reader: &mut Reader, given: &Variables, embedded: bool) -> Config {
    let usual = Options::default().cluster;
    let lease_term =
        reader.seconds("ELECTION_TTL_SECONDS", given.election_ttl_seconds.as_ref(), usual.lease_term);
    let older = reader.seconds(
        "ASSIGNMENT_STABILIZATION_WINDOW_SECONDS",
        given.assignment_stabilization_window_seconds.as_ref(),
        usual.cold_start_window,
    );
    let scale_window = if embedded { Duration::from_secs(1) } else { usual.scale_window };
    let max_workers =
        reader.count("MAX_DEFENDERS", given.max_defenders.as_ref(), usual.max_workers, 1, 100_000);
    let fleet_size = text(&given.fleet_size)
        .map(|_| reader.count("FLEET_SIZE", given.fleet_size.as_ref(), 1, 1, max_workers))
        // Embedded, this process is the whole fleet.
        .or(embedded.then_some(1));
    let balance = reader.switch("WEIGHT_REBALANCE_ENABLED", given.weight_rebalance_enabled.as_ref(), true);
    let planner = planner::Options {
        strategy: if balance { Strategy::Weighted } else { Strategy::ConsistentHash },
        threshold: reader.parsed(
            "WEIGHT_REBALANCE_THRESHOLD",
            given.weight_rebalance_threshold.as_ref(),
            "a part of the mean from 0.001 to 1",
            usual.planner.threshold,
            |threshold| (0.001..=1.0).contains(threshold),
        ),
        vnodes: reader.count(
            "ASSIGNMENT_VNODE_COUNT",
            given.assignment_vnode_count.as_ref(),
            usual.planner.vnodes,
            1,
            10_000,
        ),
        repair_rounds: reader.count(
            "WEIGHT_REBALANCE_MAX_ITERATIONS",
            given.weight_rebalance_max_iterations.as_ref(),
            usual.planner.repair_rounds,
            0,
            1_000,
        ),
    };
    Config {
        heartbeat_interval: reader.seconds(
            "HEARTBEAT_INTERVAL_SECONDS",
            given.heartbeat_interval_seconds.as_ref(),
            usual.heartbeat_interval,
        ),
        lease_term,
        lease_renewal: lease_term / 2,
        cold_start_window: reader.seconds(
            "COLD_START_WINDOW_SECONDS",
            given.cold_start_window_seconds.as_ref(),
            older,
        ),
        scale_window: reader.seconds(
            "SCALE_WINDOW_SECONDS",
            given.scale_window_seconds.as_ref(),
            scale_window,
        ),
        replacement_grace_period: reader.seconds(
            "REPLACEMENT_GRACE_SECONDS",
            given.replacement_grace_seconds.as_ref(),
            usual.replacement_grace_period,
        ),
        max_workers,
        fleet_size,
        controller_enabled: reader.switch(
            "ASSIGNMENT_CONTROLLER_ENABLED",
            given.assignment_controller_enabled.as_ref(),
            true,
        ),
        crash_immediate: reader.switch("CRASH_IMMEDIATE", given.crash_immediate.as_ref(), true),
        max_concurrent: reader.count(
            "MAX_CONCURRENT_MESSAGES",
            given.max_concurrent_messages.as_ref(),
            usual.max_concurrent,
            1,
            10_000,
        ),
        process_timeout: reader.seconds(
            "PROCESS_TIMEOUT_SECONDS",
            given.process_timeout_seconds.as_ref(),
            usual.process_timeout,
        ),
        planner,
        ..usual
    }
}

fn pod(given: &Variables) -> (String, String) {
    let host = || {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Some(name.trim().to_owned()).filter(|name| !name.is_empty())
    };
    let name = text(&given.pod_name).or_else(host).unwrap_or_else(|| "defender".to_owned());
    (name, text(&given.pod_uid).unwrap_or_else(random::hex))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::settings::places::{Charts, Coordination};
    use crate::settings::variables::{CONNECTIONS, Connections, OTHERS};

    fn given(set: impl Fn(&mut Variables)) -> Variables {
        let connections = Connections { data_dir: Some("/tmp/data".to_owned()), ..Connections::default() };
        let mut given = Variables { connections, ..Variables::default() };
        set(&mut given);
        given
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
                .chain(OTHERS)
                .find(|(ours, ..)| *ours == name)
                .unwrap_or_else(|| panic!("{name} is missing"));
            let default = variable.get("default").and_then(|default| default.as_str()).unwrap_or_default();
            assert!(ours.1 == default || other.contains(&name), "{name}: {} instead of {default}", ours.1);
        }
    }

    /// A command line with every setting.
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        variables: Variables,
    }

    /// The plan that follows from these variables, each given as its flag.
    pub(in crate::commands::defender) fn planned(variables: &[(&str, &str)]) -> Result<Plan, Vec<String>> {
        let flag = |name: &str| format!("--{}", name.to_lowercase().replace('_', "-"));
        let words = variables.iter().flat_map(|(name, value)| [flag(name), (*value).to_owned()]);
        let line = std::iter::once("phalanx".to_owned()).chain(words);
        Plan::new(&<Line as clap::Parser>::parse_from(line).variables)
    }

    const FLEET: [(&str, &str); 3] =
        [("NATS_SERVERS", "nats://n:4222"), ("CASSANDRA_HOSTS", "c"), ("STRATEGY_FILE", "s.toml")];

    /// A variable, a value that is not its default, what it changes, and what it changes that to.
    type Case = (&'static str, &'static str, fn(&Plan) -> String, &'static str);

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
        (
            "SUBSCRIPTION_BACKOFF_SECONDS",
            "6",
            |plan| format!("{:?}", plan.options.subscriptions.backoff),
            "6s",
        ),
    ];

    fn nats(plan: &Plan, read: fn(&phalanx_cluster_nats::Config) -> String) -> String {
        match &plan.places.coordination {
            Coordination::Nats(config) => read(config),
            Coordination::Embedded(_) => "embedded".to_owned(),
        }
    }

    fn cassandra(plan: &Plan, read: fn(&phalanx_defender::store::cassandra::Config) -> String) -> String {
        match &plan.places.charts {
            Charts::Cassandra(config) => read(config),
            Charts::Sqlite(_) => "SQLite".to_owned(),
        }
    }

    #[test]
    fn every_variable_changes_what_it_is_for_and_nothing_else() {
        let shown = |plan: &Plan| CASES.map(|(_, _, show, _)| show(plan));
        // Without a uid it is random: here it is not, so that it differs only where it is set.
        let base: Vec<(&str, &str)> =
            FLEET.into_iter().chain([("POD_UID", "u"), ("POD_NAME", "p")]).collect();
        let usual = shown(&planned(&base).unwrap());
        for (place, (name, value, _, expected)) in CASES.into_iter().enumerate() {
            let mut given: Vec<(&str, &str)> =
                base.iter().copied().filter(|(other, _)| *other != name).collect();
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
        let agent = |settings: &[(&str, &str)]| planned(&[&FLEET[..], settings].concat()).unwrap().grantor;
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
        let wrong = Plan::new(&given(|given| {
            given.heartbeat_interval_seconds = Some("often".to_owned());
            given.max_defenders = Some("0".to_owned());
            given.crash_immediate = Some("maybe".to_owned());
            given.weight_rebalance_threshold = Some("7".to_owned());
            given.election_agent_addr = Some("agent".to_owned());
            given.election_agent_tls_ca = Some("/nowhere/ca.pem".to_owned());
            given.pod_namespace = Some("fab 1".to_owned());
            given.connections.nats_servers = Some("nats://a:4222".to_owned());
            given.connections.nats_user = Some("anna".to_owned());
            given.connections.nats_replicas = Some("2".to_owned());
        }))
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
        let wrong = Plan::new(&given(|given| given.heartbeat_interval_seconds = Some("60".to_owned())))
            .err()
            .unwrap();
        assert_eq!(wrong.len(), 1, "{wrong:#?}");
    }

    #[test]
    fn a_fleet_without_a_shared_store_is_refused_unless_a_folder_is_named() {
        let nats = Connections { nats_servers: Some("nats://a:4222".to_owned()), ..Connections::default() };
        let fleet = Variables { connections: nats.clone(), ..Variables::default() };
        let strategy = Some("s.toml".to_owned());
        let wrong = Plan::new(&Variables { strategy_file: strategy.clone(), ..fleet.clone() }).err().unwrap();
        assert!(wrong[0].contains("need a store that all of them reach"), "{wrong:#?}");
        let connections = Connections { data_dir: Some("/tmp/d".to_owned()), ..nats };
        let on_purpose = Variables { strategy_file: strategy, connections, ..fleet };
        assert!(matches!(Plan::new(&on_purpose).unwrap().places.charts, Charts::Sqlite(_)));
        let nothing = Plan::new(&Variables::default()).err().unwrap();
        assert!(
            nothing.iter().any(|line| line.contains("neither NATS_SERVERS nor DATA_DIR")),
            "{nothing:#?}"
        );
    }

    #[test]
    fn alone_the_fleet_is_this_process_and_the_older_window_is_a_fallback() {
        let plan = Plan::new(&given(|given| {
            given.assignment_stabilization_window_seconds = Some("7".to_owned());
        }))
        .ok()
        .unwrap();
        let cluster = &plan.options.cluster;
        assert_eq!((cluster.fleet_size, cluster.scale_window), (Some(1), Duration::from_secs(1)));
        assert_eq!(cluster.cold_start_window, Duration::from_secs(7));
        assert_eq!(plan.strategy, PathBuf::from("/tmp/data/strategy.toml"));
    }
}
