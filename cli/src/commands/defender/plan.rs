//! From what was given to what is started: everything that is wrong is said at once.

use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use phalanx_cluster::DoorbellConfig;
use phalanx_cluster::backend::Settings;
use phalanx_cluster::core::Config;
use phalanx_cluster::core::planner::{self, Strategy};
use phalanx_cluster_nats as nats;
use phalanx_defender::store::cassandra;
use phalanx_defender::worker::Options;

use super::variables::Variables;

/// What is to be started.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) coordination: Coordination,
    pub(crate) charts: Charts,
    pub(crate) options: Options,
    pub(crate) http_addr: String,
    pub(crate) token: Option<String>,
    pub(crate) strategy: PathBuf,
}

/// Where defenders meet.
#[derive(Clone, Debug)]
pub(crate) enum Coordination {
    /// In this process, kept in a folder.
    Embedded(PathBuf),
    /// At NATS.
    Nats(Box<nats::Config>),
}

/// Where charts are kept.
#[derive(Clone, Debug)]
pub(crate) enum Charts {
    /// In a file of this folder.
    Sqlite(PathBuf),
    /// In Cassandra.
    Cassandra(Box<cassandra::Config>),
}

/// Reads values and collects what is wrong with them.
#[derive(Default)]
struct Reader {
    wrong: Vec<String>,
}

impl Reader {
    fn parsed<T: FromStr>(
        &mut self,
        name: &str,
        given: Option<&String>,
        allowed: &str,
        default: T,
        ok: impl Fn(&T) -> bool,
    ) -> T {
        let Some(text) = given.filter(|text| !text.is_empty()) else { return default };
        match text.trim().parse::<T>() {
            Ok(value) if ok(&value) => value,
            _ => {
                self.wrong.push(format!("{name} is {text:?}; allowed is {allowed}"));
                default
            }
        }
    }

    /// A length of time in seconds; fractions are fine.
    fn seconds(&mut self, name: &str, given: Option<&String>, default: Duration) -> Duration {
        let ok = |seconds: &f64| (0.001..=31_536_000.0).contains(seconds);
        let seconds =
            self.parsed(name, given, "a number of seconds from 0.001 to a year", default.as_secs_f64(), ok);
        Duration::from_secs_f64(seconds)
    }

    fn count<T: FromStr + PartialOrd + Display + Copy>(
        &mut self,
        name: &str,
        given: Option<&String>,
        default: T,
        least: T,
        most: T,
    ) -> T {
        let allowed = format!("a whole number from {least} to {most}");
        self.parsed(name, given, &allowed, default, |value| *value >= least && *value <= most)
    }

    fn switch(&mut self, name: &str, given: Option<&String>, default: bool) -> bool {
        self.parsed(name, given, "true or false", default, |_| true)
    }

    /// The two belong together.
    fn pair(&mut self, names: [&str; 2], given: [Option<String>; 2]) -> Option<(String, String)> {
        match given {
            [Some(one), Some(other)] => Some((one, other)),
            [None, None] => None,
            [Some(_), None] => {
                self.wrong.push(format!("{} is set and {} is not; set both or none", names[0], names[1]));
                None
            }
            [None, Some(_)] => {
                self.wrong.push(format!("{} is set and {} is not; set both or none", names[1], names[0]));
                None
            }
        }
    }
}

fn text(given: &Option<String>) -> Option<String> {
    given.clone().filter(|text| !text.trim().is_empty())
}

impl Plan {
    /// What follows from the settings, or everything that is wrong with them.
    pub(crate) fn new(given: &Variables) -> Result<Self, Vec<String>> {
        let mut reader = Reader::default();
        let embedded = text(&given.nats_servers).is_none();
        let cluster = cluster(&mut reader, given, embedded);
        if let Err(error) = cluster.validate() {
            reader.wrong.push(error.to_string());
        }
        let settings = settings(given);
        let doorbells = DoorbellConfig::default();
        let doorbells = DoorbellConfig {
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
        let options = Options {
            cluster,
            settings,
            doorbells,
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
            pod: Some(pod(given)),
            ..usual
        };
        if text(&given.election_agent_addr).is_some() {
            reader.wrong.push(
                "ELECTION_AGENT_ADDR is set, but this build has no election agent; unset it to elect by NATS"
                    .to_owned(),
            );
        }
        let data_dir = text(&given.data_dir).map(PathBuf::from);
        let charts = charts(&mut reader, given, embedded, data_dir.as_ref());
        let coordination = coordination(&mut reader, given, data_dir.as_ref());
        let strategy = text(&given.strategy_file)
            .map(PathBuf::from)
            .or_else(|| Some(data_dir.as_ref()?.join("strategy.toml")));
        if strategy.is_none() {
            reader.wrong.push(
                "STRATEGY_FILE is not set, and there is no data folder to look for strategy.toml in"
                    .to_owned(),
            );
        }
        let http_addr = text(&given.http_addr).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
        match (coordination, charts, strategy, reader.wrong.is_empty()) {
            (Some(coordination), Some(charts), Some(strategy), true) => {
                Ok(Self { coordination, charts, options, http_addr, token: text(&given.api_token), strategy })
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
        replacement_grace: reader.seconds(
            "REPLACEMENT_GRACE_SECONDS",
            given.replacement_grace_seconds.as_ref(),
            usual.replacement_grace,
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

fn settings(given: &Variables) -> Settings {
    let mut settings = Settings::default();
    let name = |place: &mut String, given: &Option<String>| {
        if let Some(name) = text(given) {
            *place = name;
        }
    };
    name(&mut settings.notifications.name, &given.nats_stream_name);
    name(&mut settings.assignments.name, &given.nats_kv_assignments);
    name(&mut settings.heartbeats.name, &given.nats_kv_heartbeats);
    name(&mut settings.stable_ids.name, &given.nats_kv_stable_ids);
    name(&mut settings.cursors.name, &given.nats_kv_cursors);
    name(&mut settings.election.name, &given.nats_kv_election);
    name(&mut settings.dead_letters.name, &given.nats_stream_dead_letters);
    settings
}

fn pod(given: &Variables) -> (String, String) {
    let host = || {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Some(name.trim().to_owned()).filter(|name| !name.is_empty())
    };
    let name = text(&given.pod_name).or_else(host).unwrap_or_else(|| "defender".to_owned());
    let random = || {
        use std::hash::{BuildHasher as _, RandomState};
        format!("{:016x}{:016x}", RandomState::new().hash_one(0), RandomState::new().hash_one(1))
    };
    (name, text(&given.pod_uid).unwrap_or_else(random))
}

fn coordination(reader: &mut Reader, given: &Variables, data_dir: Option<&PathBuf>) -> Option<Coordination> {
    let Some(servers) = text(&given.nats_servers) else {
        let Some(folder) = data_dir else {
            reader.wrong.push(
                "neither NATS_SERVERS nor DATA_DIR is set: name NATS to join a fleet, or a folder to work alone \
                 (--data-dir FOLDER)"
                    .to_owned(),
            );
            return None;
        };
        return Some(Coordination::Embedded(folder.clone()));
    };
    let config = nats::Config {
        name: text(&given.pod_name).unwrap_or_else(|| "phalanx defender".to_owned()),
        user: reader
            .pair(["NATS_USER", "NATS_PASSWORD"], [text(&given.nats_user), text(&given.nats_password)]),
        token: text(&given.nats_token),
        creds: text(&given.nats_creds).map(PathBuf::from),
        nkey: text(&given.nats_nkey),
        tls: nats::Tls {
            ca: text(&given.nats_tls_ca).map(PathBuf::from),
            certificate: reader
                .pair(
                    ["NATS_TLS_CERT", "NATS_TLS_KEY"],
                    [text(&given.nats_tls_cert), text(&given.nats_tls_key)],
                )
                .map(|(certificate, key)| (certificate.into(), key.into())),
        },
        replicas: reader.parsed("NATS_REPLICAS", given.nats_replicas.as_ref(), "1 or 3", 1, |count| {
            matches!(count, 1 | 3)
        }),
        ..nats::Config::new(servers)
    };
    Some(Coordination::Nats(Box::new(config)))
}

fn charts(
    reader: &mut Reader,
    given: &Variables,
    embedded: bool,
    data_dir: Option<&PathBuf>,
) -> Option<Charts> {
    let Some(hosts) = text(&given.cassandra_hosts) else {
        return match data_dir {
            Some(folder) => Some(Charts::Sqlite(folder.clone())),
            None if embedded => None,
            None => {
                reader.wrong.push(
                    "NATS_SERVERS is set and CASSANDRA_HOSTS is not: defenders of a fleet take over each other's charts, \
                     so they need a store that all of them reach. Set CASSANDRA_HOSTS, or --data-dir if a file that only \
                     this machine has is what you want"
                        .to_owned(),
                );
                None
            }
        };
    };
    let consistency = reader.parsed(
        "CASSANDRA_CONSISTENCY",
        given.cassandra_consistency.as_ref(),
        "ONE, TWO, THREE, QUORUM, ALL, LOCAL_QUORUM, EACH_QUORUM or LOCAL_ONE",
        cassandra::Consistency::default(),
        |_| true,
    );
    let certificate = reader.pair(
        ["CASSANDRA_TLS_CERT", "CASSANDRA_TLS_KEY"],
        [text(&given.cassandra_tls_cert), text(&given.cassandra_tls_key)],
    );
    let ca = text(&given.cassandra_tls_ca);
    if certificate.is_some() && ca.is_none() {
        reader
            .wrong
            .push("CASSANDRA_TLS_CERT is set and CASSANDRA_TLS_CA is not: say whom to believe".to_owned());
    }
    let usual = cassandra::Config::new(hosts);
    Some(Charts::Cassandra(Box::new(cassandra::Config {
        keyspace: text(&given.cassandra_keyspace).unwrap_or_else(|| usual.keyspace.clone()),
        consistency,
        user: reader.pair(
            ["CASSANDRA_USER", "CASSANDRA_PASSWORD"],
            [text(&given.cassandra_user), text(&given.cassandra_password)],
        ),
        tls: ca.map(|ca| cassandra::Tls {
            ca: ca.into(),
            certificate: certificate.map(|(certificate, key)| (certificate.into(), key.into())),
        }),
        ..usual
    })))
}

#[cfg(test)]
mod tests {
    use super::super::variables::ALL;
    use super::*;

    fn given(set: impl Fn(&mut Variables)) -> Variables {
        let mut given = Variables { data_dir: Some("/tmp/data".to_owned()), ..Variables::default() };
        set(&mut given);
        given
    }

    #[test]
    fn every_variable_of_the_requirements_is_a_setting_with_its_default() {
        let Some(names) = phalanx_testkit::shared("requirements/names.toml") else { return };
        let names: toml::Table = std::fs::read_to_string(names).unwrap().parse().unwrap();
        let variables = names["env"].as_array().unwrap();
        assert_eq!(variables.len(), 32);
        // Addresses have none, and the consistency of the design is another.
        let other = ["NATS_SERVERS", "CASSANDRA_HOSTS", "ELECTION_AGENT_ADDR", "CASSANDRA_CONSISTENCY"];
        for variable in variables {
            let name = variable["name"].as_str().unwrap();
            let ours =
                ALL.iter().find(|(ours, ..)| *ours == name).unwrap_or_else(|| panic!("{name} is missing"));
            let default = variable.get("default").and_then(|default| default.as_str()).unwrap_or_default();
            assert!(ours.1 == default || other.contains(&name), "{name}: {} instead of {default}", ours.1);
        }
    }

    #[test]
    fn whatever_is_wrong_is_said_at_once_with_what_is_allowed() {
        let wrong = Plan::new(&given(|given| {
            given.heartbeat_interval_seconds = Some("often".to_owned());
            given.max_defenders = Some("0".to_owned());
            given.crash_immediate = Some("maybe".to_owned());
            given.weight_rebalance_threshold = Some("7".to_owned());
            given.election_agent_addr = Some("agent:9090".to_owned());
            given.nats_servers = Some("nats://a:4222".to_owned());
            given.nats_user = Some("anna".to_owned());
            given.nats_replicas = Some("2".to_owned());
        }))
        .err()
        .unwrap();
        for part in [
            "HEARTBEAT_INTERVAL_SECONDS is \"often\"; allowed is a number of seconds",
            "MAX_DEFENDERS is \"0\"; allowed is a whole number from 1 to 100000",
            "CRASH_IMMEDIATE is \"maybe\"; allowed is true or false",
            "WEIGHT_REBALANCE_THRESHOLD is \"7\"; allowed is a part of the mean",
            "ELECTION_AGENT_ADDR is set, but this build",
            "NATS_USER is set and NATS_PASSWORD is not",
            "NATS_REPLICAS is \"2\"; allowed is 1 or 3",
        ] {
            assert!(wrong.iter().any(|line| line.starts_with(part)), "{part} is not in {wrong:#?}");
        }
        assert_eq!(wrong.len(), 7, "{wrong:#?}");
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
        let fleet = Variables { nats_servers: Some("nats://a:4222".to_owned()), ..Variables::default() };
        let strategy = Some("s.toml".to_owned());
        let wrong = Plan::new(&Variables { strategy_file: strategy.clone(), ..fleet.clone() }).err().unwrap();
        assert!(wrong[0].contains("need a store that all of them reach"), "{wrong:#?}");
        let on_purpose = Variables { strategy_file: strategy, data_dir: Some("/tmp/d".to_owned()), ..fleet };
        assert!(matches!(Plan::new(&on_purpose), Ok(Plan { charts: Charts::Sqlite(_), .. })));
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
