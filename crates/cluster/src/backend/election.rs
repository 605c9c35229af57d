//! Who leads: a lease with an epoch that only grows.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Error, Kv};
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
    /// What a renewal compares.
    pub revision: Revision,
    /// Fields that a later version wrote; they survive.
    rest: Map<String, Value>,
}

/// Grants leaderships, one at a time. When a lease may be taken from its holder is decided elsewhere; here it is taken
/// only from exactly the lease that was seen.
#[async_trait]
pub trait Election: Send + Sync {
    /// The lease that holds, from the one place that knows; none if nobody leads.
    async fn current(&self) -> Result<Option<Lease>, Error>;

    /// Takes the lease: from nobody, or from exactly `from`. The epoch is above every earlier one, and at least
    /// `epoch_min`. [`Error::Conflict`] if somebody else was faster.
    async fn take(&self, holder: &str, from: Option<&Lease>, epoch_min: u64) -> Result<Lease, Error>;

    /// Keeps the lease. [`Error::Conflict`] if it was taken.
    async fn renew(&self, lease: &Lease) -> Result<Lease, Error>;

    /// Gives the lease back. [`Error::Conflict`] if it was taken.
    async fn resign(&self, lease: &Lease) -> Result<(), Error>;
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

    async fn stored(&self) -> Result<Option<(Record, Revision)>, Error> {
        let Some(entry) = self.bucket.get(&self.key).await? else { return Ok(None) };
        let record = serde_json::from_slice(&entry.value)
            .map_err(|e| Error::invalid(format!("lease {} at revision {}", self.key, entry.revision.0), e))?;
        Ok(Some((record, entry.revision)))
    }
}

#[async_trait]
impl Election for KvElection {
    async fn current(&self) -> Result<Option<Lease>, Error> {
        let stored = self.stored().await?;
        Ok(stored.and_then(|(record, revision)| record.into_lease(revision)))
    }

    async fn take(&self, holder: &str, from: Option<&Lease>, epoch_min: u64) -> Result<Lease, Error> {
        let next = |epoch: u64| Record {
            v: 1,
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
                Some((Record { holder: Some(_), .. }, revision)) => {
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
        let revision = self.bucket.update(&self.key, Record::of(&renewed).bytes(), lease.revision).await?;
        Ok(Lease { revision, ..renewed })
    }

    async fn resign(&self, lease: &Lease) -> Result<(), Error> {
        let vacant = Record { holder: None, ..Record::of(lease) };
        self.bucket.update(&self.key, vacant.bytes(), lease.revision).await.map(drop)
    }
}

#[derive(Serialize, Deserialize)]
struct Record {
    v: u32,
    holder: Option<String>,
    epoch: u64,
    #[serde(default)]
    renewals: u64,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

impl Record {
    fn of(lease: &Lease) -> Self {
        Self {
            v: 1,
            holder: Some(lease.holder.clone()),
            epoch: lease.epoch,
            renewals: lease.renewals,
            rest: lease.rest.clone(),
        }
    }

    fn into_lease(self, revision: Revision) -> Option<Lease> {
        let Self { holder, epoch, renewals, rest, .. } = self;
        Some(Lease { holder: holder?, epoch, renewals, revision, rest })
    }

    fn bytes(&self) -> Bytes {
        // Strings and numbers always become JSON.
        serde_json::to_vec(self).unwrap_or_default().into()
    }
}
