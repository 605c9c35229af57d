//! Validated settings of a defender. All errors are reported together.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use phalanx_cluster::SubscriptionConfig;
use phalanx_cluster::core::Config;
use phalanx_cluster::core::planner::{self, Strategy};
use phalanx_defender::app::{self, Connections, DataFolder, random_hex};
use phalanx_defender::worker::Options;
use phalanx_settings::{
    API_TOKEN, ASSIGNMENT_CONTROLLER_ENABLED, ASSIGNMENT_STABILIZATION_WINDOW_SECONDS,
    ASSIGNMENT_VNODE_COUNT, CACHE_SIZE_MB, COLD_START_WINDOW_SECONDS, CRASH_IMMEDIATE, DATA_DIR,
    ELECTION_TTL_SECONDS, FLEET_SIZE, HEARTBEAT_INTERVAL_SECONDS, HTTP_ADDR, MAX_CONCURRENT_MESSAGES,
    MAX_DEFENDERS, NATS_SERVERS, POD_NAME, POD_UID, PROCESS_TIMEOUT_SECONDS, Parser,
    REPLACEMENT_GRACE_SECONDS, SCALE_WINDOW_SECONDS, STRATEGY_FILE, SUBSCRIPTION_BACKOFF_SECONDS,
    SUBSCRIPTION_RETRY_ATTEMPTS, SUBSCRIPTION_UPDATE_TIMEOUT_SECONDS, WEIGHT_CACHE_TTL_SECONDS,
    WEIGHT_REBALANCE_ENABLED, WEIGHT_REBALANCE_MAX_ITERATIONS, WEIGHT_REBALANCE_THRESHOLD,
    WEIGHT_UPDATE_INTERVAL_SECONDS,
};

use crate::settings::args::DefenderArgs;
use crate::settings::connections::ConnectionSettings;
use crate::settings::election::ElectionAgentSettings;

/// Default scale window of an embedded defender, which is the whole fleet.
const EMBEDDED_SCALE_WINDOW: Duration = Duration::from_secs(1);

/// Validated settings of a defender.
#[derive(Clone)]
pub(super) struct DefenderConfig {
    pub(super) connections: Connections,
    pub(super) options: Options,
    pub(super) election_agent: Option<ElectionAgentSettings>,
    pub(super) http_addr: String,
    pub(super) token: Option<String>,
    pub(super) strategy_file: PathBuf,
}

impl DefenderConfig {
    /// Returns the configuration, or all errors of the settings.
    pub(super) fn parse(args: &DefenderArgs) -> Result<Self, Vec<String>> {
        let mut parser = args.parser();
        let cluster = cluster(&mut parser);
        if let Err(error) = cluster.validate() {
            parser.errors.push(error.to_string());
        }
        let subscriptions = subscriptions(&mut parser);
        let pod = pod(&mut parser);
        let connections = ConnectionSettings::parse(&mut parser, &pod.0);
        let options = options(&mut parser, cluster, subscriptions, pod);
        let election_agent = ElectionAgentSettings::parse(&mut parser, options.cluster.lease_term);
        let strategy_file = strategy_file(&mut parser);
        let (http_addr, token) = (parser.get(&HTTP_ADDR), parser.given(&API_TOKEN));
        match (connections, strategy_file, parser.errors.is_empty()) {
            (Some(ConnectionSettings { connections, stores, alarms }), Some(strategy_file), true) => {
                let options = Options { settings: stores, alarms, ..options };
                Ok(Self { connections, options, election_agent, http_addr, token, strategy_file })
            }
            _ => Err(parser.errors),
        }
    }

    /// Returns the configuration of the application, which reports to standard error.
    pub(super) fn into_app(self) -> Result<app::Config> {
        let Self { connections, mut options, election_agent, http_addr, token, strategy_file } = self;
        options.election = election_agent.map(|agent| agent.election()).transpose()?;
        let log: app::Log = Arc::new(|line| eprintln!("{line}"));
        Ok(app::Config { connections, options, http_addr, token, strategy_file, log })
    }
}

fn options(
    parser: &mut Parser<'_>,
    cluster: Config,
    subscriptions: SubscriptionConfig,
    pod: (String, String),
) -> Options {
    Options {
        cluster,
        subscriptions,
        cache_mb: parser.get(&CACHE_SIZE_MB),
        weight_cache_ttl: parser.get(&WEIGHT_CACHE_TTL_SECONDS),
        weight_update_interval: parser.get(&WEIGHT_UPDATE_INTERVAL_SECONDS),
        pod: Some(pod),
        ..Options::default()
    }
}

fn subscriptions(parser: &mut Parser<'_>) -> SubscriptionConfig {
    SubscriptionConfig {
        timeout: parser.get(&SUBSCRIPTION_UPDATE_TIMEOUT_SECONDS),
        attempts: parser.get(&SUBSCRIPTION_RETRY_ATTEMPTS),
        backoff: parser.get(&SUBSCRIPTION_BACKOFF_SECONDS),
    }
}

fn strategy_file(parser: &mut Parser<'_>) -> Option<PathBuf> {
    let in_folder = parser.given(&DATA_DIR).map(|folder| DataFolder::at(&folder).strategy());
    let file = parser.given(&STRATEGY_FILE).or(in_folder);
    if file.is_none() {
        let error = "STRATEGY_FILE is not set, and there is no data folder to look for strategy.toml in";
        parser.errors.push(error.to_owned());
    }
    file
}

fn cluster(parser: &mut Parser<'_>) -> Config {
    let is_embedded = parser.given(&NATS_SERVERS).is_none();
    let lease_term = parser.get(&ELECTION_TTL_SECONDS);
    let stabilization_window = parser.get(&ASSIGNMENT_STABILIZATION_WINDOW_SECONDS);
    let max_workers = parser.get(&MAX_DEFENDERS);
    let fleet_size = parser.given_up_to(&FLEET_SIZE, max_workers);
    let planner = planner(parser);
    let heartbeat_interval = parser.get(&HEARTBEAT_INTERVAL_SECONDS);
    let cold_start_window = parser.given(&COLD_START_WINDOW_SECONDS).unwrap_or(stabilization_window);
    let scale_window = match is_embedded {
        true => parser.given(&SCALE_WINDOW_SECONDS).unwrap_or(EMBEDDED_SCALE_WINDOW),
        false => parser.get(&SCALE_WINDOW_SECONDS),
    };
    Config {
        heartbeat_interval,
        lease_term,
        lease_renewal: lease_term / 2,
        cold_start_window,
        scale_window,
        replacement_grace_period: parser.get(&REPLACEMENT_GRACE_SECONDS),
        max_workers,
        // An embedded defender is the whole fleet.
        fleet_size: fleet_size.or(is_embedded.then_some(1)),
        controller_enabled: parser.get(&ASSIGNMENT_CONTROLLER_ENABLED),
        crash_immediate: parser.get(&CRASH_IMMEDIATE),
        max_concurrent: parser.get(&MAX_CONCURRENT_MESSAGES),
        process_timeout: parser.get(&PROCESS_TIMEOUT_SECONDS),
        planner,
        ..Options::default().cluster
    }
}

fn planner(parser: &mut Parser<'_>) -> planner::Options {
    let is_weighted = parser.get(&WEIGHT_REBALANCE_ENABLED);
    planner::Options {
        strategy: if is_weighted { Strategy::Weighted } else { Strategy::ConsistentHash },
        threshold: parser.get(&WEIGHT_REBALANCE_THRESHOLD),
        vnodes: parser.get(&ASSIGNMENT_VNODE_COUNT),
        repair_rounds: parser.get(&WEIGHT_REBALANCE_MAX_ITERATIONS),
    }
}

/// Returns the name and the unique id of this process.
fn pod(parser: &mut Parser<'_>) -> (String, String) {
    let host = || {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Some(name.trim().to_owned()).filter(|name| !name.is_empty())
    };
    let name = parser.given(&POD_NAME).or_else(host).unwrap_or_else(|| "defender".to_owned());
    (name, parser.given(&POD_UID).unwrap_or_else(random_hex))
}

#[cfg(test)]
#[path = "config_test.rs"]
pub(super) mod tests;
