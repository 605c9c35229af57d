//! What a user holds.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use thiserror::Error;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;

use super::backend_client::BackendClient;
use super::builder::Builder;
use super::clock;
use super::gate::Gate;
use super::metrics::Metrics;
use super::partitions::PartitionListError;
use crate::backend;
use crate::core::WorkerState;
use crate::core::types::{AssignmentMap, Time, Version, WorkerIncarnation};

/// What a worker is in the fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It looks for an id.
    Claiming,
    /// It is ready, and waits for an id to become free.
    Standby,
    /// It holds an id, and another leads.
    Follower,
    /// It holds an id and leads.
    Leader,
}

/// What a worker is doing.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// Its state.
    pub state: WorkerState,
    /// Its role.
    pub role: Role,
    /// The life of the id it holds.
    pub holder: Option<WorkerIncarnation>,
    /// Whether it may work.
    pub is_unfenced: bool,
    /// The newest map it knows.
    pub map_version: Version,
    /// The newest map whose losses it has let go of.
    pub applied_version: Version,
    /// That map.
    pub map: Option<Arc<AssignmentMap>>,
    /// The partitions it owns.
    pub assignment: Arc<BTreeSet<Arc<str>>>,
    /// It has ended.
    pub ended: bool,
}

/// Figures of a worker since it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Messages given to the handler, retries included.
    pub received: u64,
    /// Messages committed.
    pub processed: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Messages given up.
    pub dead_letters: u64,
    /// Messages that were gone before they were read.
    pub expired: u64,
    /// Partitions whose log was another one than before.
    pub logs_replaced: u64,
}

/// Why a command was not carried out.
#[derive(Debug, Error)]
pub enum CommandError {
    /// The worker has ended.
    #[error("the worker has ended")]
    Ended,
    /// The partitions could not be read.
    #[error(transparent)]
    Partitions(#[from] PartitionListError),
    /// The backend refused or did not answer.
    #[error(transparent)]
    Backend(#[from] backend::Error),
    /// A fleet size that cannot be.
    #[error("the fleet size is {fleet_size}; it must be 1 to {max_workers}, the number of ids")]
    FleetSize {
        /// What was asked for.
        fleet_size: u32,
        /// How many ids there are.
        max_workers: u32,
    },
}

/// What the event loop is told to do.
pub(super) enum WorkerCommand {
    Shutdown,
    Refresh(oneshot::Sender<Result<usize, PartitionListError>>),
}

/// A running worker, seen from outside. Clones are the same worker.
#[derive(Clone)]
pub struct WorkerHandle {
    pub(super) status: watch::Receiver<Status>,
    pub(super) commands: mpsc::Sender<WorkerCommand>,
    pub(super) broker: Arc<BackendClient>,
    pub(super) metrics: Metrics,
    pub(super) gate: Gate,
    /// When the event loop last went round, in milliseconds.
    pub(super) last_iteration: Arc<AtomicU64>,
    pub(super) max_workers: u32,
}

impl WorkerHandle {
    /// What it is doing.
    pub fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// Its state.
    pub fn state(&self) -> WorkerState {
        self.status.borrow().state
    }

    /// Its role.
    pub fn role(&self) -> Role {
        self.status.borrow().role
    }

    /// Returns the number of its worker id.
    pub fn id(&self) -> Option<u32> {
        self.status.borrow().holder.map(|holder| holder.id.0)
    }

    /// The partitions it owns.
    pub fn assignment(&self) -> Arc<BTreeSet<Arc<str>>> {
        self.status.borrow().assignment.clone()
    }

    /// How long ago its event loop made its last turn. It makes one every heartbeat at least.
    pub fn time_since_iteration(&self) -> Duration {
        clock::now().saturating_sub(Time::from_millis(self.last_iteration.load(Ordering::Relaxed)))
    }

    /// Whether it may write now: ask right before, where a late write would hurt.
    pub fn may_write(&self) -> bool {
        self.gate.is_open()
    }

    /// Waits until it is in that state. False if it ended before.
    pub async fn wait_for(&self, state: WorkerState) -> bool {
        self.wait_until(|status| status.state == state).await
    }

    /// Waits until that is true of it. False if it ended before.
    pub async fn wait_until(&self, is_true: impl Fn(&Status) -> bool) -> bool {
        let mut status = self.status.clone();
        let found = status.wait_for(|status| is_true(status) || status.ended).await;
        found.is_ok_and(|status| is_true(&status))
    }

    /// Reads the partitions again. Says how many there are.
    pub async fn refresh_partitions(&self) -> Result<usize, CommandError> {
        let (answer, answered) = oneshot::channel();
        self.commands.send(WorkerCommand::Refresh(answer)).await.map_err(|_| CommandError::Ended)?;
        Ok(answered.await.map_err(|_| CommandError::Ended)??)
    }

    /// Says for the whole fleet how many workers there should be; none leaves it to their configurations.
    pub async fn scale(&self, size: Option<u32>) -> Result<(), CommandError> {
        let max_workers = self.max_workers;
        if let Some(fleet_size) = size
            && !(1..=max_workers).contains(&fleet_size)
        {
            return Err(CommandError::FleetSize { fleet_size, max_workers });
        }
        Ok(self.broker.scale(size).await?)
    }

    /// Leaves: finishes what runs, says farewell, gives the id back. Returns when all that is done.
    pub async fn shutdown(&self) {
        let _ = self.commands.send(WorkerCommand::Shutdown).await;
        let _ = self.status.clone().wait_for(|status| status.ended).await;
    }

    /// Its metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Figures since it started.
    pub fn stats(&self) -> Stats {
        let all = &self.metrics.all;
        Stats {
            received: all.received.get(),
            processed: all.processed.get(),
            failed: all.failed.get(),
            dead_letters: all.dead_letters.get(),
            expired: all.expired.get(),
            logs_replaced: all.replaced.get(),
        }
    }
}

/// A running worker. Dropping it ends the worker at once, without a farewell, as a crash would: the others notice after
/// three heartbeats. Call [`shutdown`](WorkerHandle::shutdown) to leave in good order.
///
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use phalanx_cluster::backend::Embedded;
/// use phalanx_cluster::core::{Config, WorkerState};
/// use phalanx_cluster::Worker;
///
/// let worker = Worker::builder("jobs", Arc::new(Embedded::in_memory()?))
///     .partitions(vec![("a".to_owned(), 1), ("b".to_owned(), 1)])
///     .config(Config { fleet_size: Some(1), consumes_log: false, ..Config::default() })
///     .start()
///     .await?;
/// worker.wait_until(|status| status.assignment.len() == 2).await;
/// assert_eq!(worker.id(), Some(0));
/// assert!(worker.wait_for(WorkerState::Stable).await);
/// worker.shutdown().await;
/// # Ok(()) }
/// ```
pub struct Worker {
    pub(super) handle: WorkerHandle,
    pub(super) running: AbortHandle,
}

impl Worker {
    /// Returns a builder for a worker of a group over a backend. The group is a name, from which all stored names derive,
    /// or a [`StoreConfig`](backend::StoreConfig) whose names are given from outside.
    pub fn builder(group: impl Into<backend::StoreConfig>, backend: Arc<dyn backend::Backend>) -> Builder {
        Builder::new(group.into(), backend)
    }

    /// What one asks and commands. It may outlive the worker.
    pub fn handle(&self) -> WorkerHandle {
        self.handle.clone()
    }
}

impl Deref for Worker {
    type Target = WorkerHandle;

    fn deref(&self) -> &WorkerHandle {
        &self.handle
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.running.abort();
    }
}
