//! The shell around the core: one event loop that carries out what the core decides, and the API that users hold.
//!
//! [`Worker::builder`] takes a backend, partitions, and what to do with them: a [`Handler`] per message, [`Hooks`] that are
//! told about the assignment, or both. [`WorkerHandle`] is what one asks and commands.

mod backend_client;
mod builder;
mod clock;
mod decoder;
mod gate;
mod handle;
mod handler;
mod hook_queue;
mod hooks;
mod leases;
mod log;
mod metrics;
mod partitions;
mod problem;
#[cfg(feature = "simulation")]
pub mod simulation;
mod subjects;
mod subscriptions;
mod wait_time;
mod watches;
mod worker;

pub use builder::{Builder, StartError};
pub use handle::{CommandError, Role, Stats, Status, Worker, WorkerHandle};
pub use handler::{Decoded, Delivery, Failure, Handler, Unavailable};
pub use hooks::{HookError, Hooks, OwnedPartition};
pub use metrics::Metrics;
pub use partitions::{FilePartitions, KvPartitions, PartitionListError, PartitionSource};
pub use problem::Problem;
pub use subjects::SubjectScheme;
pub use subscriptions::SubscriptionConfig;
