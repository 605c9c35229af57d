//! Who leads: a lease with an epoch that only grows.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use serde_json::{Map, Value};

use super::{Entry, Error, Kv, Watch, WatchEvent};
use crate::codec::{FORMAT, LeaseRecord};
use crate::core::LeaseExpiry;
use crate::core::types::Revision;

/// A leadership, as the backend has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Lease {
    /// Who leads, in the words of the user.
    pub holder: String,
    /// Above that of every leadership before.
    pub epoch: u64,
    /// Counts renewals, so that each of them changes the value.
    pub renewals: u64,
    /// What a renewal compares. It grows with every change.
    pub revision: Revision,
    /// Fields that a later version wrote; they survive.
    rest: Map<String, Value>,
}

impl Lease {
    /// A lease without fields of a later version.
    pub fn new(holder: impl Into<String>, epoch: u64, renewals: u64, revision: Revision) -> Self {
        Self { holder: holder.into(), epoch, renewals, revision, rest: Map::new() }
    }
}

/// What the watch of an election tells.
#[derive(Clone, Debug, PartialEq)]
pub enum LeaseEvent {
    /// Somebody leads; told again with every renewal.
    Held(Lease),
    /// Nobody leads any more.
    Vacant,
    /// What was there when the watch began, or began again, has been told: what follows is news.
    Current,
    /// The connection was lost, and is there again.
    Resumed {
        /// What keeps the leases was made anew: forget what was told.
        replaced: bool,
    },
}

/// A running watch; dropping it ends it. An error is something that could not be read: the watch goes on.
pub type LeaseWatch = BoxStream<'static, Result<LeaseEvent, Error>>;

/// Grants leaderships, one at a time.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), phalanx_cluster::backend::Error> {
/// use phalanx_cluster::backend::{Backend, BucketConfig, Election, Embedded, KvElection};
///
/// let bucket = Embedded::in_memory()?.bucket(&BucketConfig::new("leases")).await?;
/// let election = KvElection::new(bucket, "leader");
/// let anna = election.take("anna", None, 0).await?;
/// assert!(election.take("berta", None, 0).await.unwrap_err().is_conflict());
/// election.resign(&anna).await?;
/// assert_eq!(election.take("berta", None, 0).await?.epoch, 2);
/// # Ok(()) }
/// ```
#[async_trait]
pub trait Election: Send + Sync {
    /// What ends a lease whose holder does not: somebody who takes it from exactly the lease that it saw, or the
    /// grantor.
    fn lease_expiry(&self) -> LeaseExpiry;

    /// The lease that holds, from the one place that knows; none if nobody leads.
    async fn current(&self) -> Result<Option<Lease>, Error>;

    /// Takes the lease: from nobody, or from exactly `from`, which under [`LeaseExpiry::AfterTerm`] must be the holder's own. The
    /// epoch is above every earlier one, and at least `epoch_min`. [`Error::Conflict`] if somebody else holds it.
    async fn take(&self, holder: &str, from: Option<&Lease>, epoch_min: u64) -> Result<Lease, Error>;

    /// Keeps the lease. [`Error::Conflict`] if it was taken or is over.
    async fn renew(&self, lease: &Lease) -> Result<Lease, Error>;

    /// Gives the lease back. [`Error::Conflict`] if it was taken or is over.
    async fn resign(&self, lease: &Lease) -> Result<(), Error>;

    /// The lease there is, then [`LeaseEvent::Current`], then every change. It goes on until it is dropped, over any
    /// disconnect.
    async fn watch(&self) -> Result<LeaseWatch, Error>;
}

/// An election over one key of any bucket, by compare-and-swap. A lease given back leaves its epoch behind.
#[derive(Clone)]
pub struct KvElection {
    bucket: Arc<dyn Kv>,
    key: String,
}

impl KvElection {
    /// Over that key of that bucket.
    pub fn new(bucket: Arc<dyn Kv>, key: impl Into<String>) -> Self {
        Self { bucket, key: key.into() }
    }

    async fn stored(&self) -> Result<Option<(LeaseRecord, Revision)>, Error> {
        let Some(entry) = self.bucket.get(&self.key).await? else { return Ok(None) };
        Ok(Some((read(&entry)?, entry.revision)))
    }
}

#[async_trait]
impl Election for KvElection {
    fn lease_expiry(&self) -> LeaseExpiry {
        LeaseExpiry::OnSilence
    }

    async fn current(&self) -> Result<Option<Lease>, Error> {
        let stored = self.stored().await?;
        Ok(stored.and_then(|(record, revision)| held(record, revision)))
    }

    async fn take(&self, holder: &str, from: Option<&Lease>, epoch_min: u64) -> Result<Lease, Error> {
        let next = |epoch: u64| LeaseRecord {
            v: FORMAT,
            holder: Some(holder.to_owned()),
            epoch: (epoch + 1).max(epoch_min),
            renewals: 0,
            rest: Map::new(),
        };
        let (record, revision) = match from {
            Some(from) => {
                let record = next(from.epoch);
                let revision = self.bucket.update(&self.key, record.bytes(), from.revision).await?;
                (record, revision)
            }
            None => match self.stored().await? {
                None => {
                    let record = next(0);
                    let revision = self.bucket.create(&self.key, record.bytes()).await?;
                    (record, revision)
                }
                Some((LeaseRecord { holder: Some(_), .. }, revision)) => {
                    return Err(Error::conflict(format!("taking the lease {}", self.key), Some(revision)));
                }
                Some((vacant, revision)) => {
                    let record = next(vacant.epoch);
                    let revision = self.bucket.update(&self.key, record.bytes(), revision).await?;
                    (record, revision)
                }
            },
        };
        Ok(Lease { holder: holder.to_owned(), epoch: record.epoch, renewals: 0, revision, rest: record.rest })
    }

    async fn renew(&self, lease: &Lease) -> Result<Lease, Error> {
        let renewed = Lease { renewals: lease.renewals + 1, ..lease.clone() };
        let revision = self.bucket.update(&self.key, record_of(&renewed).bytes(), lease.revision).await?;
        Ok(Lease { revision, ..renewed })
    }

    async fn resign(&self, lease: &Lease) -> Result<(), Error> {
        let vacant = LeaseRecord { holder: None, ..record_of(lease) };
        self.bucket.update(&self.key, vacant.bytes(), lease.revision).await.map(drop)
    }

    async fn watch(&self) -> Result<LeaseWatch, Error> {
        let watch = self.bucket.watch().await?;
        let next = async |(mut watch, key): (Watch, String)| {
            loop {
                let event = match watch.next().await? {
                    WatchEvent::Put(entry) if entry.key == key => read(&entry)
                        .map(|record| held(record, entry.revision))
                        .map(|lease| lease.map_or(LeaseEvent::Vacant, LeaseEvent::Held)),
                    WatchEvent::Delete { key: deleted, .. } if deleted == key => Ok(LeaseEvent::Vacant),
                    WatchEvent::Put(_) | WatchEvent::Delete { .. } => continue,
                    WatchEvent::Current => Ok(LeaseEvent::Current),
                    WatchEvent::Resumed { replaced } => Ok(LeaseEvent::Resumed { replaced }),
                };
                return Some((event, (watch, key)));
            }
        };
        Ok(stream::unfold((watch, self.key.clone()), next).boxed())
    }
}

fn read(entry: &Entry) -> Result<LeaseRecord, Error> {
    let what = || format!("lease {} at revision {}", entry.key, entry.revision.0);
    serde_json::from_slice(&entry.value).map_err(|e| Error::invalid(what(), e))
}

fn record_of(lease: &Lease) -> LeaseRecord {
    let Lease { holder, epoch, renewals, rest, .. } = lease.clone();
    LeaseRecord { v: FORMAT, holder: Some(holder), epoch, renewals, rest }
}

/// None if nobody holds it.
fn held(record: LeaseRecord, revision: Revision) -> Option<Lease> {
    let LeaseRecord { holder, epoch, renewals, rest, .. } = record;
    Some(Lease { holder: holder?, epoch, renewals, revision, rest })
}
