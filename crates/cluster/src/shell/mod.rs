//! The shell around the core: one event loop that carries out what the core decides, and the API that users hold.
//!
//! [`Cluster::builder`] takes a backend, partitions, and what to do with them: a [`Handler`] per message, [`Hooks`] that are
//! told about the assignment, or both. [`Handle`] is what one asks and commands.

mod broker;
mod builder;
mod clock;
mod doorbells;
mod gate;
mod handle;
mod handler;
mod hooks;
mod leases;
mod log;
mod metrics;
mod partitions;
mod patience;
mod problem;
mod subjects;
mod watching;
mod worker;

pub use builder::{Builder, StartError};
pub use doorbells::DoorbellConfig;
pub use handle::{Cluster, CommandError, Handle, Role, Stats, Status};
pub use handler::{Delivery, Failure, Handler, Unavailable};
pub use hooks::{HookError, Hooks, Owned};
pub use metrics::Metrics;
pub use partitions::{BadPartitions, FilePartitions, KvPartitions, PartitionSource};
pub use problem::Problem;
pub use subjects::Subjects;
