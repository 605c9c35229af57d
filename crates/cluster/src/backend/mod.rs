//! Where coordination is kept: small traits, and what implements them.
//!
//! - [`Kv`] is one bucket of keys and values with compare-and-swap and watches, [`Log`] a durable log with many subjects,
//!   [`Election`] a lease with an epoch that only grows;
//! - [`Backend`] opens buckets and logs; [`Stores`] are all those that a fleet uses, by their usual names;
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

use std::sync::Arc;

use async_trait::async_trait;

pub use election::{Election, KvElection, Lease, LeaseEvent, LeaseWatch};
#[cfg(feature = "embedded")]
pub use embedded::Embedded;
pub use error::{Error, Retry};
pub use kv::{BucketConfig, Entry, Kv, Watch, WatchEvent};
pub use log::{AppendCondition, Appended, Log, LogConfig, LogInfo, Message, WakeUpSubscription};
pub use stores::{StoreConfig, Stores};

/// Opens buckets and logs, and makes those that are absent.
#[async_trait]
pub trait Backend: Send + Sync {
    /// Opens a bucket. One that exists with settings that matter and differ is refused, with both values.
    async fn bucket(&self, config: &BucketConfig) -> Result<Arc<dyn Kv>, Error>;

    /// Opens a log. One that exists with settings that matter and differ is refused, with both values.
    async fn log(&self, config: &LogConfig) -> Result<Arc<dyn Log>, Error>;
}
