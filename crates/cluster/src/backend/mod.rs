//! Where coordination is kept: small traits, and what implements them.
//!
//! - [`Kv`] is one bucket of keys and values with compare-and-swap and watches, [`Log`] a durable log with many subjects,
//!   [`Election`] a lease with an epoch that only grows;
//! - [`Backend`] opens buckets and logs; [`Stores`] are all those of one group;
//! - [`Embedded`] keeps them in SQLite, for one process; `phalanx-cluster-nats` keeps them in NATS JetStream;
//! - [`faults`] puts trouble between a backend and its user;
//! - `conformance` (feature `conformance`) is the list of facts that hold for every backend.
//!
//! Every [`Error`] says whether the operation may have happened, and so whether trying again is safe.

#[cfg(feature = "conformance")]
pub mod conformance;
mod election;
#[cfg(feature = "embedded")]
mod embedded;
mod error;
pub mod faults;
mod kv;
mod log;
mod stores;
pub mod validate;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

pub use election::{Election, KvElection, Lease, LeaseEvent, LeaseWatch};
#[cfg(feature = "embedded")]
pub use embedded::Embedded;
pub use error::{Error, Retry};
pub use kv::{BucketConfig, Entry, Kv, Watch, WatchEvent};
pub use log::{AppendCondition, Appended, Log, LogConfig, LogInfo, Message, WakeUpSubscription};
pub use stores::{StoreConfig, Stores, adopt, open_bucket, open_log};

/// The kind of a store: a bucket and a log may have the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// A bucket.
    Bucket,
    /// A log.
    Log,
}

impl fmt::Display for StoreKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bucket => "bucket",
            Self::Log => "log",
        })
    }
}

/// Opens buckets and logs, and creates those that do not exist.
#[async_trait]
pub trait Backend: Send + Sync {
    /// Opens a bucket. One that exists with settings that matter and differ is refused, with both values.
    async fn bucket(&self, config: &BucketConfig) -> Result<Arc<dyn Kv>, Error>;

    /// Opens a log. One that exists with settings that matter and differ is refused, with both values.
    async fn log(&self, config: &LogConfig) -> Result<Arc<dyn Log>, Error>;

    /// Returns the description of a bucket or log; empty if it has none.
    async fn description(&self, kind: StoreKind, name: &str) -> Result<String, Error>;

    /// Replaces the description of a bucket or log, and changes nothing else of it.
    async fn describe(&self, kind: StoreKind, name: &str, description: &str) -> Result<(), Error>;
}
