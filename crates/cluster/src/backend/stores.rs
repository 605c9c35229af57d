//! The buckets and logs of a group, with the settings that the protocol relies on.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::{Backend, BucketConfig, Error, Kv, Log, LogConfig, StoreKind};
use crate::codec::{Codec, Decoded};
use crate::core::Cursor;
use crate::core::types::{Key, Value};
use crate::names::{Bucket, Names};
use crate::shell::SubjectScheme;

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Names and settings of a group's buckets and logs.
///
/// ```
/// use phalanx_cluster::backend::StoreConfig;
///
/// let invoices = StoreConfig::of("invoices");
/// assert_eq!(invoices.cursors.name, "phalanx-invoices-cursors");
/// assert_eq!(invoices.subjects.subject("acme"), "phalanx.invoices.log.acme");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreConfig {
    /// Names of the group.
    pub names: Names,
    /// Claims of worker ids.
    pub stable_ids: BucketConfig,
    /// Heartbeats.
    pub heartbeats: BucketConfig,
    /// The map, the cluster state and the fleet size.
    pub assignments: BucketConfig,
    /// The leader's lease.
    pub election: BucketConfig,
    /// Cursors of the partitions.
    pub cursors: BucketConfig,
    /// The messages to process.
    pub log: LogConfig,
    /// Subjects of the log.
    pub subjects: SubjectScheme,
    /// Messages that were given up.
    pub dead_letters: LogConfig,
    /// Prefix of the subjects of dead letters.
    pub dead_letter_prefix: String,
}

impl From<&str> for StoreConfig {
    fn from(group: &str) -> Self {
        Self::of(group)
    }
}

impl StoreConfig {
    /// Returns the configuration that derives from the name of a group.
    pub fn of(group: &str) -> Self {
        let bucket = |what: &str| BucketConfig::new(format!("phalanx-{group}-{what}"));
        let log = |what: &str| {
            LogConfig::new(format!("phalanx-{group}-{what}"), [format!("phalanx.{group}.{what}.>")])
        };
        Self {
            names: Names::of(group),
            // Not 30 s: during an outage of the broker, live workers would lose their ids.
            stable_ids: BucketConfig { ttl: Some(DAY), volatile: true, ..bucket("ids") },
            heartbeats: BucketConfig { ttl: Some(30 * SECOND), volatile: true, ..bucket("heartbeats") },
            assignments: BucketConfig { history: 10, ..bucket("assignments") },
            election: BucketConfig { volatile: true, ..bucket("election") },
            cursors: bucket("cursors"),
            log: LogConfig { max_age: Some(7 * DAY), ..log("log") },
            subjects: SubjectScheme::new(&format!("phalanx.{group}.log"), ""),
            dead_letters: log("dead-letters"),
            dead_letter_prefix: format!("phalanx.{group}.dead-letters"),
        }
    }

    /// Replaces the log by one whose name and subjects are given from outside.
    #[must_use]
    pub fn with_log(mut self, log: LogConfig, subjects: SubjectScheme) -> Self {
        (self.log, self.subjects) = (log, subjects);
        self
    }

    /// Returns the buckets.
    pub fn buckets(&self) -> [&BucketConfig; 5] {
        [&self.stable_ids, &self.heartbeats, &self.assignments, &self.election, &self.cursors]
    }

    /// Returns the buckets, to change them.
    pub fn buckets_mut(&mut self) -> [&mut BucketConfig; 5] {
        [
            &mut self.stable_ids,
            &mut self.heartbeats,
            &mut self.assignments,
            &mut self.election,
            &mut self.cursors,
        ]
    }

    /// Returns the logs.
    pub fn logs(&self) -> [&LogConfig; 2] {
        [&self.log, &self.dead_letters]
    }

    pub(crate) fn bucket(&self, bucket: Bucket) -> &BucketConfig {
        match bucket {
            Bucket::StableIds => &self.stable_ids,
            Bucket::Heartbeats => &self.heartbeats,
            Bucket::Assignments => &self.assignments,
            Bucket::Election => &self.election,
            Bucket::Cursors => &self.cursors,
        }
    }
}

/// Opens a bucket for a group. A bucket that names another group is refused.
pub async fn open_bucket(
    backend: &dyn Backend,
    config: &BucketConfig,
    names: &Names,
) -> Result<Arc<dyn Kv>, Error> {
    let described = BucketConfig { description: Some(names.description()), ..config.clone() };
    let bucket = backend.bucket(&described).await?;
    check_group(backend, StoreKind::Bucket, &config.name, names).await?;
    Ok(bucket)
}

/// Opens a log for a group. A log that names another group is refused.
pub async fn open_log(
    backend: &dyn Backend,
    config: &LogConfig,
    names: &Names,
) -> Result<Arc<dyn Log>, Error> {
    let described = LogConfig { description: Some(names.description()), ..config.clone() };
    let log = backend.log(&described).await?;
    check_group(backend, StoreKind::Log, &config.name, names).await?;
    Ok(log)
}

/// Refuses a bucket or log of another group. One that names no group is accepted.
async fn check_group(backend: &dyn Backend, kind: StoreKind, name: &str, names: &Names) -> Result<(), Error> {
    let description = backend.description(kind, name).await?;
    match Names::described_group(&description) {
        Some(owner) if owner != names.group() => Err(Error::OtherGroup {
            name: format!("{kind} {name}"),
            owner: owner.to_owned(),
            group: names.group().to_owned(),
        }),
        _ => Ok(()),
    }
}

/// Names the group in the description of a bucket or log that names none. Returns whether it was necessary.
pub async fn adopt(backend: &dyn Backend, kind: StoreKind, name: &str, names: &Names) -> Result<bool, Error> {
    let description = backend.description(kind, name).await?;
    if Names::described_group(&description).is_some() {
        return Ok(false);
    }
    let described = match description.is_empty() {
        true => names.description(),
        false => format!("{description}; {}", names.description()),
    };
    backend.describe(kind, name, &described).await?;
    Ok(true)
}

/// The open buckets and logs of a group.
#[derive(Clone)]
pub struct Stores {
    /// Names of the group.
    pub names: Names,
    /// Claims of worker ids.
    pub stable_ids: Arc<dyn Kv>,
    /// Heartbeats.
    pub heartbeats: Arc<dyn Kv>,
    /// The map, the cluster state and the fleet size.
    pub assignments: Arc<dyn Kv>,
    /// The leader's lease.
    pub election: Arc<dyn Kv>,
    /// Cursors of the partitions.
    pub cursors: Arc<dyn Kv>,
    /// The messages to process.
    pub log: Arc<dyn Log>,
    /// Messages that were given up.
    pub dead_letters: Arc<dyn Log>,
}

impl Stores {
    /// Opens all buckets and logs of a group, and creates those that do not exist.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), phalanx_cluster::backend::Error> {
    /// use phalanx_cluster::backend::{Embedded, StoreConfig, Stores};
    ///
    /// let stores = Stores::open(&Embedded::in_memory()?, &StoreConfig::of("invoices")).await?;
    /// assert_eq!(stores.log.info().await?.last, 0);
    /// # Ok(()) }
    /// ```
    pub fn open<'a>(backend: &'a dyn Backend, config: &'a StoreConfig) -> BoxFuture<'a, Result<Self, Error>> {
        Box::pin(async move {
            let names = &config.names;
            Ok(Self {
                names: names.clone(),
                stable_ids: open_bucket(backend, &config.stable_ids, names).await?,
                heartbeats: open_bucket(backend, &config.heartbeats, names).await?,
                assignments: open_bucket(backend, &config.assignments, names).await?,
                election: open_bucket(backend, &config.election, names).await?,
                cursors: open_bucket(backend, &config.cursors, names).await?,
                log: open_log(backend, &config.log, names).await?,
                dead_letters: open_log(backend, &config.dead_letters, names).await?,
            })
        })
    }

    /// Reads the cursor of a partition.
    pub async fn cursor(&self, partition: &str) -> Result<Option<Arc<Cursor>>, Error> {
        let key = Key::Cursor(partition.into());
        let Some(entry) = self.cursors.get(&self.names.bucket_key(&key).key).await? else { return Ok(None) };
        match Codec::new(self.names.clone()).decode(&key, &entry.value) {
            Ok(Decoded::Value(Value::Cursor(cursor))) => Ok(Some(cursor)),
            Ok(other) => Err(Error::invalid(format!("cursor of {partition}"), format!("{other:?}"))),
            Err(error) => Err(Error::invalid(format!("cursor of {partition}"), error)),
        }
    }
}
