//! One bucket of keys and values.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::mpsc;

use super::Error;
use crate::core::Condition;
use crate::core::types::Revision;

/// A backend that tells its values is not silent for this long.
const WATCH_IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// How a bucket is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketConfig {
    /// Its name: letters, digits, `-` and `_`.
    pub name: String,
    /// How many values of a key are kept, the current one included: 1 to 64.
    pub history: u8,
    /// How long a value lives after it was written; none: for ever. Nobody is told when it expires.
    pub ttl: Option<Duration>,
    /// Whether it speaks only of running processes: a backend that lives in the only process empties it when it opens.
    pub volatile: bool,
    /// The description of a bucket that is created. The description of an existing bucket stays.
    pub description: Option<String>,
}

impl BucketConfig {
    /// A bucket that keeps one value of each key for ever.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), history: 1, ttl: None, volatile: false, description: None }
    }
}

/// A value as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where.
    pub key: String,
    /// What.
    pub value: Bytes,
    /// What a compare-and-swap compares. It grows with every change of the bucket, whatever the key.
    pub revision: Revision,
    /// The broker's time when it was stored, in microseconds since 1970.
    pub stored_at: u64,
}

/// One bucket. Writes are atomic; a read sees every write that was acknowledged before it began.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), phalanx_cluster::backend::Error> {
/// use phalanx_cluster::backend::{Backend, BucketConfig, Embedded};
///
/// let bucket = Embedded::in_memory()?.bucket(&BucketConfig::new("leases")).await?;
/// let first = bucket.create("leader", "anna".into()).await?;
/// let second = bucket.update("leader", "berta".into(), first).await?;
/// assert!(bucket.update("leader", "anna".into(), first).await.unwrap_err().is_conflict());
/// bucket.delete("leader", second).await?;
/// assert_eq!(bucket.get("leader").await?, None);
/// # Ok(()) }
/// ```
#[async_trait]
pub trait Kv: Send + Sync {
    /// The value of a key, from the one place that knows: never from a replica that may be behind.
    async fn get(&self, key: &str) -> Result<Option<Entry>, Error>;

    /// Writes a value if the condition holds. Keys that were deleted or have expired count as absent.
    async fn write(&self, key: &str, value: Bytes, condition: Condition) -> Result<Revision, Error>;

    /// Deletes a key if its value is exactly that revision.
    async fn delete(&self, key: &str, revision: Revision) -> Result<(), Error>;

    /// When exactly that revision was stored, in the broker's microseconds; none if it is no longer the value of the key.
    async fn stored_at(&self, key: &str, revision: Revision) -> Result<Option<u64>, Error> {
        let entry = self.get(key).await?;
        Ok(entry.filter(|entry| entry.revision == revision).map(|entry| entry.stored_at))
    }

    /// The keys that have a value.
    async fn keys(&self) -> Result<BTreeSet<String>, Error>;

    /// Every change after that revision that is still there, then [`WatchEvent::Current`], then every change. After
    /// revision 0 it begins with the values there are, without the deletions before them. It goes on until it is
    /// dropped, over any disconnect.
    async fn watch_after(&self, revision: Revision) -> Result<Watch, Error>;

    /// Every value there is, then [`WatchEvent::Current`], then every change.
    async fn watch(&self) -> Result<Watch, Error> {
        self.watch_after(Revision(0)).await
    }

    /// Every value there is, by key, from the one place that knows. Far faster than one after the other: they are what a
    /// watch begins with.
    async fn entries(&self) -> Result<BTreeMap<String, Entry>, Error> {
        let mut watch = self.watch().await?;
        let mut entries = BTreeMap::new();
        loop {
            let next = tokio::time::timeout(WATCH_IDLE_TIMEOUT, watch.next()).await;
            let quiet = |_| Error::failed("read of all values", "nothing came for a while");
            match next.map_err(quiet)? {
                Some(WatchEvent::Put(entry)) => drop(entries.insert(entry.key.clone(), entry)),
                Some(WatchEvent::Delete { key, .. }) => drop(entries.remove(&key)),
                Some(WatchEvent::Resumed { replaced: true }) => entries.clear(),
                Some(WatchEvent::Resumed { replaced: false }) => {}
                Some(WatchEvent::Current) => return Ok(entries),
                None => return Err(Error::failed("read of all values", "the watch ended")),
            }
        }
    }

    /// Writes a value where there is none.
    async fn create(&self, key: &str, value: Bytes) -> Result<Revision, Error> {
        self.write(key, value, Condition::Absent).await
    }

    /// Replaces exactly that revision.
    async fn update(&self, key: &str, value: Bytes, revision: Revision) -> Result<Revision, Error> {
        self.write(key, value, Condition::Revision(revision)).await
    }

    /// Writes a value whatever is there.
    async fn put(&self, key: &str, value: Bytes) -> Result<Revision, Error> {
        self.write(key, value, Condition::None).await
    }
}

/// What a watch tells. Changes come in the order of their revisions, none twice. Several changes of one key may come as
/// the last of them, where the bucket keeps no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// A value was written.
    Put(Entry),
    /// A value was deleted. Expiry is not told.
    Delete {
        /// Where.
        key: String,
        /// The revision of the deletion: a place in the order, nothing to compare with.
        revision: Revision,
    },
    /// Everything that was there when the watch began, or began again, has been told: what follows is news.
    Current,
    /// The connection was lost, and is there again: up to the next [`WatchEvent::Current`] follows what happened
    /// meanwhile.
    Resumed {
        /// The bucket was made anew or has lost writes: forget what was told, everything that is there follows.
        replaced: bool,
    },
}

/// A running watch; dropping it ends it.
#[derive(Debug)]
pub struct Watch {
    events: mpsc::Receiver<WatchEvent>,
}

impl Watch {
    /// A watch, and where its events are put in. The sender's side is over when the watch is dropped.
    pub fn new() -> (mpsc::Sender<WatchEvent>, Self) {
        let (sender, events) = mpsc::channel(64);
        (sender, Self { events })
    }

    /// The next event; none when the backend has been closed. May be dropped and asked again at any time.
    pub async fn next(&mut self) -> Option<WatchEvent> {
        self.events.recv().await
    }
}
