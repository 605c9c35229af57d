//! Setting up a worker.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use futures_util::future::BoxFuture;
use thiserror::Error;
use tokio::sync::{mpsc, watch};

use super::backend_client::BackendClient;
use super::clock;
use super::decoder::MessageDecoder;
use super::gate::Gate;
use super::handle::{Role, Status, Worker, WorkerHandle};
use super::handler::Handler;
use super::hooks::{HookQueue, Hooks, NoHooks};
use super::metrics::Metrics;
use super::partitions::{self, PartitionListError, PartitionSource};
use super::subscriptions::SubscriptionConfig;
use super::worker::WorkerShell;
use crate::backend::{self, Backend, Election, StoreConfig};
use crate::core::planner::Strategy;
use crate::core::types::{Pod, Version};
use crate::core::{Config, ConfigError, LeaseExpiry, WorkerState};
use crate::names;

/// Why a worker was not started.
#[derive(Debug, Error)]
pub enum StartError {
    /// Settings that do not fit together.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The name of the group cannot be used.
    #[error("{0}")]
    Group(String),
    /// Messages are to be read, and nobody handles them.
    #[error(
        "the configuration says that there is a log, and there is no handler: give one, or set `log: false`"
    )]
    NoHandler,
    /// A handler, and no messages.
    #[error("there is a handler, and the configuration says `log: false`: nothing would ever reach it")]
    NoLog,
    /// The name of the pod cannot be a key.
    #[error("the uid of the pod: {0}")]
    Pod(names::NameError),
    /// The partitions cannot be used.
    #[error(transparent)]
    Partitions(#[from] PartitionListError),
    /// The backend refused.
    #[error(transparent)]
    Backend(#[from] backend::Error),
}

/// Number of commands that may wait for the event loop; a caller waits while there are more.
const MAX_QUEUED_COMMANDS: usize = 16;

/// Sets up a worker; see [`Worker`] for an example.
pub struct Builder {
    backend: Arc<dyn Backend>,
    stores: StoreConfig,
    config: Config,
    partitions: Arc<dyn PartitionSource>,
    handler: Option<Arc<dyn Handler>>,
    hooks: Arc<dyn Hooks>,
    pod: Pod,
    metrics: Metrics,
    subscriptions: SubscriptionConfig,
    election: Option<Arc<dyn Election>>,
}

impl Builder {
    pub(super) fn new(stores: StoreConfig, backend: Arc<dyn Backend>) -> Self {
        let uid = format!("{:016x}{:016x}", RandomState::new().hash_one(0), RandomState::new().hash_one(1));
        Self {
            backend,
            config: Config::default(),
            partitions: Arc::new(Vec::new()),
            handler: None,
            hooks: Arc::new(NoHooks),
            pod: Pod { name: "worker".into(), uid: uid.into() },
            metrics: Metrics::new(&stores.names),
            stores,
            subscriptions: SubscriptionConfig::default(),
            election: None,
        }
    }

    /// Times, sizes, and whether there is a log. [`start`](Builder::start) refuses what does not fit together.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// How partitions are spread.
    #[must_use]
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.config.planner.strategy = strategy;
        self
    }

    /// Which partitions there are: a list, [`FilePartitions`](super::FilePartitions),
    /// [`KvPartitions`](super::KvPartitions), or a source of your own.
    #[must_use]
    pub fn partitions(mut self, source: impl PartitionSource) -> Self {
        self.partitions = Arc::new(source);
        self
    }

    /// What to do with a message.
    #[must_use]
    pub fn handler(mut self, handler: impl Handler) -> Self {
        self.handler = Some(Arc::new(handler));
        self
    }

    /// Whom to tell what happens.
    #[must_use]
    pub fn hooks(mut self, hooks: impl Hooks) -> Self {
        self.hooks = Arc::new(hooks);
        self
    }

    /// How the bells are hung that say that there is something to read.
    #[must_use]
    pub fn subscriptions(mut self, doorbells: SubscriptionConfig) -> Self {
        self.subscriptions = doorbells;
        self
    }

    /// Who grants leaderships, if not the backend itself. One that ends leases by itself
    /// ([`LeaseExpiry::AfterTerm`]) says how long they last, whatever [`Config::lease_term`] is.
    #[must_use]
    pub fn election(mut self, election: Arc<dyn Election>) -> Self {
        self.election = Some(election);
        self
    }

    /// Where to count. With metrics of its own an application can show them before the worker is started, and count
    /// [what failed until then](Metrics::initialization_failed).
    #[must_use]
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = metrics;
        self
    }

    /// What people call this process, and what tells it from every other: a restarted container of the same pod keeps its
    /// uid and gets its id back at once. Random without this.
    #[must_use]
    pub fn pod(mut self, name: &str, uid: &str) -> Self {
        self.pod = Pod { name: name.into(), uid: uid.into() };
        self
    }

    /// Opens buckets and logs, reads the partitions, and starts the worker. It finds its id by itself from here on.
    pub fn start(mut self) -> BoxFuture<'static, Result<Worker, StartError>> {
        Box::pin(async move {
            if let Some(election) = &self.election {
                self.config.lease_expiry = election.lease_expiry();
                if let LeaseExpiry::AfterTerm(term) = self.config.lease_expiry {
                    self.config.lease_term = term;
                }
            }
            self.config.validate()?;
            self.stores.names.check().map_err(StartError::Group)?;
            names::check(&self.pod.uid).map_err(StartError::Pod)?;
            match (self.config.consumes_log, &self.handler) {
                (true, None) => return Err(StartError::NoHandler),
                (false, Some(_)) => return Err(StartError::NoLog),
                _ => {}
            }
            let partitions = partitions::load(&*self.partitions).await?;
            let Self { backend, stores, metrics, subscriptions: doorbells, election, config, .. } = self;
            let hooks = HookQueue::start(self.hooks, metrics.clone());
            let broker =
                BackendClient::open(backend, stores, config.consumes_log, election, hooks.clone()).await?;
            let broker = Arc::new(broker);
            let (commands, orders) = mpsc::channel(MAX_QUEUED_COMMANDS);
            let gate = Gate::closed();
            let now = u64::try_from(clock::now().since_origin().as_millis()).unwrap_or(u64::MAX);
            let turned = Arc::new(AtomicU64::new(now));
            let (status, shown) = watch::channel(Status {
                state: WorkerState::Initialization,
                role: Role::Claiming,
                holder: None,
                is_unfenced: false,
                map_version: Version(0),
                applied_version: Version(0),
                map: None,
                assignment: Arc::default(),
                ended: false,
            });
            let handle = WorkerHandle {
                status: shown,
                commands,
                broker: broker.clone(),
                metrics: metrics.clone(),
                gate: gate.clone(),
                last_iteration: turned.clone(),
                max_workers: config.max_workers,
            };
            let shell = WorkerShell {
                broker,
                config,
                pod: self.pod,
                partitions,
                source: self.partitions,
                decoder: self.handler.map(|handler| Arc::new(MessageDecoder::new(handler))),
                hooks,
                metrics,
                subscription_config: doorbells,
                turned,
                gate,
                status,
            };
            let running = tokio::spawn(shell.run(orders)).abort_handle();
            Ok(Worker { handle, running })
        })
    }
}
