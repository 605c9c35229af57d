//! The buckets and logs of a fleet, with the settings that the protocol relies on.

use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;

use super::{Backend, BucketConfig, Error, Kv, Log, LogConfig};

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Names and sizes of a fleet's buckets and logs. The defaults are the usual ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    /// Who holds which id.
    pub stable_ids: BucketConfig,
    /// Signs of life.
    pub heartbeats: BucketConfig,
    /// The map, the cluster state and the fleet size.
    pub assignments: BucketConfig,
    /// The leader's lease.
    pub election: BucketConfig,
    /// How far each partition has been processed.
    pub cursors: BucketConfig,
    /// What is to be processed.
    pub notifications: LogConfig,
    /// What could not be processed.
    pub dead_letters: LogConfig,
    /// What was found.
    pub alarms: LogConfig,
}

impl Default for StoreConfig {
    fn default() -> Self {
        let bucket = BucketConfig::new;
        Self {
            // Not 30 s: during an outage of the broker live workers would lose their ids.
            stable_ids: BucketConfig { ttl: Some(DAY), volatile: true, ..bucket("stable-ids") },
            heartbeats: BucketConfig {
                ttl: Some(30 * SECOND),
                volatile: true,
                ..bucket("defender-heartbeats")
            },
            assignments: BucketConfig { history: 10, ..bucket("defender-assignments") },
            election: BucketConfig { volatile: true, ..bucket("defender-election") },
            cursors: bucket("chamber-cursors"),
            notifications: LogConfig {
                max_age: Some(7 * DAY),
                ..LogConfig::new("dc-notifications", ["dc.*.*.completed"])
            },
            dead_letters: LogConfig::new("dc-dead-letters", ["dlq.*.*.*"]),
            alarms: LogConfig { max_age: Some(30 * DAY), ..LogConfig::new("dc-alarms", ["alarm.*.*"]) },
        }
    }
}

/// All that a fleet keeps in its backend.
#[derive(Clone)]
pub struct Stores {
    /// Who holds which id.
    pub stable_ids: Arc<dyn Kv>,
    /// Signs of life.
    pub heartbeats: Arc<dyn Kv>,
    /// The map, the cluster state and the fleet size.
    pub assignments: Arc<dyn Kv>,
    /// The leader's lease.
    pub election: Arc<dyn Kv>,
    /// How far each partition has been processed.
    pub cursors: Arc<dyn Kv>,
    /// What is to be processed.
    pub notifications: Arc<dyn Log>,
    /// What could not be processed.
    pub dead_letters: Arc<dyn Log>,
    /// What was found.
    pub alarms: Arc<dyn Log>,
}

impl Stores {
    /// Opens them all, and makes those that are absent.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), phalanx_cluster::backend::Error> {
    /// use phalanx_cluster::backend::{Embedded, StoreConfig, Stores};
    ///
    /// let stores = Stores::open(&Embedded::in_memory()?, &StoreConfig::default()).await?;
    /// assert_eq!(stores.notifications.info().await?.last, 0);
    /// # Ok(()) }
    /// ```
    pub fn open<'a>(
        backend: &'a dyn Backend,
        settings: &'a StoreConfig,
    ) -> BoxFuture<'a, Result<Self, Error>> {
        Box::pin(async move {
            Ok(Self {
                stable_ids: backend.bucket(&settings.stable_ids).await?,
                heartbeats: backend.bucket(&settings.heartbeats).await?,
                assignments: backend.bucket(&settings.assignments).await?,
                election: backend.bucket(&settings.election).await?,
                cursors: backend.bucket(&settings.cursors).await?,
                notifications: backend.log(&settings.notifications).await?,
                dead_letters: backend.log(&settings.dead_letters).await?,
                alarms: backend.log(&settings.alarms).await?,
            })
        })
    }
}
