//! Settings of a defender.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use phalanx_cluster::SubscriptionConfig;
use phalanx_cluster::backend::{Election, LogConfig, StoreConfig};
use phalanx_cluster::core::Config;

use crate::{Metrics, cache, names, weights};

/// Settings of a defender, besides its backend, its store and its strategy.
#[derive(Clone)]
pub struct Options {
    /// Times and sizes of the coordination.
    pub cluster: Config,
    /// Names and settings of buckets and logs.
    pub settings: StoreConfig,
    /// Name and settings of the log of alarms.
    pub alarms: LogConfig,
    /// Settings of wake-up subscriptions.
    pub subscriptions: SubscriptionConfig,
    /// Source of the leader's lease; the backend without one.
    pub election: Option<Arc<dyn Election>>,
    /// Capacity of the cache, in MB.
    pub cache_mb: usize,
    /// Maximum age of the leader's weights.
    pub weight_cache_ttl: Duration,
    /// Interval between estimates of weights.
    pub weight_update_interval: Duration,
    /// File of the strategy: the defender applies its changes. Without one the strategy never changes.
    pub strategy_file: Option<PathBuf>,
    /// Name and unique id of this process; random without them.
    pub pod: Option<(String, String)>,
    /// Metrics of this defender.
    pub metrics: Metrics,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cluster: Config { process_timeout: Duration::from_secs(5), ..Config::default() },
            settings: names::store_config(),
            alarms: names::alarm_log(),
            subscriptions: SubscriptionConfig::default(),
            election: None,
            cache_mb: cache::SIZE_MB,
            weight_cache_ttl: weights::CACHE_TTL,
            weight_update_interval: weights::UPDATE_INTERVAL,
            strategy_file: None,
            pod: None,
            metrics: Metrics::default(),
        }
    }
}
