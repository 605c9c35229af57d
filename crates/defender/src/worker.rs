//! A defender: a worker of the fleet that runs the pipeline for the chambers it owns.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use phalanx_cluster::backend::{Backend, Election, LogConfig, StoreConfig, StoreKind};
use phalanx_cluster::core::{Config, Position, WorkerState};
use phalanx_cluster::{
    HookError, Hooks, OwnedPartition, Problem, StartError, SubscriptionConfig, Worker, WorkerHandle, backend,
};
use phalanx_service::Watchdog;
use thiserror::Error;
use tokio::task::JoinSet;

use crate::cache::{self, Cache};
use crate::collector::Collector;
use crate::judge::Remark;
use crate::pipeline::{self, Observed, Parts, Pipeline};
use crate::record::{Alarm, Chamber};
use crate::store::{ChartStore, StoreError};
use crate::strategy::{FileWatch, Holder, Reload};
use crate::weights::{self, ChamberSource, Estimator, announce_import, follow_imports};
use crate::{Metrics, names};

/// How often the strategy file is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// Whoever wants to know what a defender does. Return at once: the next is told when this one was.
pub trait Observer: Send + Sync + 'static {
    /// An alarm was raised or cleared, stored and published.
    fn alarm(&self, alarm: &Alarm) {
        let _ = alarm;
    }

    /// The message at this position is committed, or dead.
    fn committed(&self, chamber: &Chamber, position: Position) {
        let _ = (chamber, position);
    }

    /// Chambers were gained and lost.
    fn assignment(&self, added: &[Arc<str>], removed: &[Arc<str>]) {
        let _ = (added, removed);
    }

    /// The worker went from one state to another.
    fn state(&self, from: WorkerState, to: WorkerState) {
        let _ = (from, to);
    }

    /// Another strategy is in force.
    fn strategy(&self, from: &str, to: &str) {
        let _ = (from, to);
    }

    /// Something a person should know.
    fn problem(&self, text: &str) {
        let _ = text;
    }
}

/// Nobody wants to know.
impl Observer for () {}

/// What a defender is started with, besides its backend, its store and its strategy.
#[derive(Clone)]
pub struct Options {
    /// Times and sizes of the coordination.
    pub cluster: Config,
    /// Names and settings of buckets and logs.
    pub settings: StoreConfig,
    /// Name and settings of the log of alarms.
    pub alarms: LogConfig,
    /// Settings of wake-up subscriptions.
    pub subscriptions: SubscriptionConfig,
    /// Who grants the leader's lease, if not the backend.
    pub election: Option<Arc<dyn Election>>,
    /// What the cache may hold, in MB.
    pub cache_mb: usize,
    /// How long the leader keeps weights.
    pub weight_cache_ttl: Duration,
    /// How often weights are estimated from what was seen.
    pub weight_update_interval: Duration,
    /// The file of the strategy: when it changes, what it says then is in force. None: it never changes.
    pub strategy_file: Option<PathBuf>,
    /// What people call this process, and what tells it from every other; random without.
    pub pod: Option<(String, String)>,
    /// Where it counts.
    pub metrics: Metrics,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cluster: Config { process_timeout: Duration::from_secs(5), ..Config::default() },
            settings: names::store_config(),
            alarms: names::alarm_log(),
            subscriptions: SubscriptionConfig::default(),
            election: None,
            cache_mb: cache::SIZE_MB,
            weight_cache_ttl: weights::CACHE_TTL,
            weight_update_interval: weights::UPDATE_INTERVAL,
            strategy_file: None,
            pod: None,
            metrics: Metrics::default(),
        }
    }
}

/// A defender that could not be started.
#[derive(Debug, Error)]
pub enum DefenderError {
    /// The worker could not be started.
    #[error(transparent)]
    Worker(#[from] StartError),
    /// A bucket or a log could not be opened.
    #[error(transparent)]
    Backend(#[from] backend::Error),
    /// The cache could not be made, or the store does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A running defender. Dropping it ends it at once, as a crash would.
pub struct Defender {
    cluster: Worker,
    cache: Arc<Cache>,
    store: Arc<dyn ChartStore>,
    strategy: Arc<Holder>,
    pipeline: Pipeline,
    collector: Collector,
    watchdog: Watchdog,
    /// What goes on beside the worker, and ends with it.
    _beside: JoinSet<()>,
}

impl Defender {
    /// Starts a defender on that backend and store.
    pub fn start(
        backend: Arc<dyn Backend>,
        store: Arc<dyn ChartStore>,
        strategy: Arc<Holder>,
        observer: Arc<dyn Observer>,
        options: Options,
    ) -> BoxFuture<'static, Result<Self, DefenderError>> {
        Box::pin(async move {
            store.ping().await?;
            let settings = options.settings;
            let cache = Arc::new(Cache::new(Instant::now(), options.cache_mb)?);
            let assignments = backend::open_bucket(&*backend, &settings.assignments, &settings.names).await?;
            let alarms = backend::open_log(&*backend, &options.alarms, &settings.names).await?;
            // The worker reports which stores it adopts; this one is part of the same upgrade.
            let _ = backend::adopt(&*backend, StoreKind::Log, &options.alarms.name, &settings.names).await;
            let notifications = backend::open_log(&*backend, &settings.log, &settings.names).await?;
            let watchdog = Watchdog::default();
            let inside = Inside {
                cache: cache.clone(),
                estimator: Arc::new(Mutex::new(Estimator::new(
                    Instant::now(),
                    options.weight_update_interval,
                ))),
                observer,
            };
            let parts = Parts {
                store: store.clone(),
                strategy: strategy.clone(),
                cache: cache.clone(),
                alarms,
                observer: Arc::new(inside.clone()),
                patience: pipeline::PATIENCE,
                watchdog: watchdog.clone(),
            };
            let pipeline = Pipeline::new(parts, options.metrics.pipeline().clone());
            let source = ChamberSource::new(store.clone(), assignments.clone(), options.weight_cache_ttl);
            let mut builder = Worker::builder(settings, backend)
                .config(options.cluster)
                .subscriptions(options.subscriptions)
                .partitions(source)
                .handler(pipeline.clone())
                .hooks(inside.clone())
                .metrics(options.metrics.cluster().clone());
            if let Some((name, uid)) = &options.pod {
                builder = builder.pod(name, uid);
            }
            if let Some(election) = options.election {
                builder = builder.election(election);
            }
            let cluster = builder.start().await?;
            let mut beside = JoinSet::new();
            beside.spawn({
                let (assignments, handle) = (assignments.clone(), (*cluster).clone());
                async move {
                    // A watch that ends is begun again; what was imported meanwhile is seen by then at the latest.
                    loop {
                        let refresh = || async { drop(handle.refresh_partitions().await) };
                        let _ = follow_imports(&*assignments, refresh).await;
                        tokio::time::sleep(Duration::from_secs(1)).await;
                    }
                }
            });
            beside.spawn({
                let (handle, ttl) = ((*cluster).clone(), options.weight_cache_ttl);
                async move {
                    // What was changed in the store without a word is seen when the weights are too old to be kept.
                    loop {
                        tokio::time::sleep(ttl).await;
                        drop(handle.refresh_partitions().await);
                    }
                }
            });
            if let Some(file) = options.strategy_file {
                let (inside, pipeline, strategy) = (inside.clone(), pipeline.clone(), strategy.clone());
                beside.spawn(async move { inside.follow(file, &strategy, pipeline.metrics()).await });
            }
            beside.spawn({
                let (store, assignments) = (store.clone(), assignments.clone());
                async move { inside.estimate(&*store, &*assignments).await }
            });
            let collector = Collector::new(store.clone(), notifications);
            Ok(Self { cluster, cache, store, strategy, pipeline, collector, watchdog, _beside: beside })
        })
    }

    /// The worker.
    pub fn handle(&self) -> &WorkerHandle {
        &self.cluster
    }

    /// What it remembers.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Where charts are kept.
    pub fn store(&self) -> &Arc<dyn ChartStore> {
        &self.store
    }

    /// The strategy in force.
    pub fn strategy(&self) -> &Arc<Holder> {
        &self.strategy
    }

    /// What the pipeline counts.
    pub fn pipeline_metrics(&self) -> &pipeline::Metrics {
        self.pipeline.metrics()
    }

    /// The way in.
    pub fn collector(&self) -> &Collector {
        &self.collector
    }

    /// Notices messages that are stuck in the pipeline.
    pub fn watchdog(&self) -> &Watchdog {
        &self.watchdog
    }

    /// Leaves in good order.
    pub fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.cluster.shutdown().await;
        })
    }
}

/// What the worker and the pipeline tell: the cache and the estimates follow it, and then whoever wants to know.
#[derive(Clone)]
struct Inside {
    cache: Arc<Cache>,
    estimator: Arc<Mutex<Estimator>>,
    observer: Arc<dyn Observer>,
}

impl Inside {
    fn estimator(&self) -> MutexGuard<'_, Estimator> {
        self.estimator.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes up the strategy file whenever it has changed. A bad one is told, and the one in force stays.
    async fn follow(&self, file: PathBuf, strategy: &Holder, metrics: &pipeline::Metrics) {
        let mut watch = FileWatch::new(file);
        loop {
            let shown = watch.path().display().to_string();
            match watch.look(SystemTime::now()) {
                Err(error) => self.observer.problem(&format!(
                    "the strategy file {shown} cannot be read: {error}; version {} stays in force",
                    strategy.current().version()
                )),
                Ok(None) => {}
                Ok(Some(text)) => match strategy.offer(&text) {
                    Reload::Same => {}
                    Reload::Loaded { from, to } => {
                        metrics.strategy_loaded();
                        self.observer.strategy(&from, &to);
                    }
                    Reload::Refused(error) => {
                        metrics.strategy_refused();
                        self.observer.problem(&format!(
                            "the strategy file {shown} is refused: {error}; version {} stays in force",
                            strategy.current().version()
                        ));
                    }
                },
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Writes estimates when they are due.
    async fn estimate(&self, store: &dyn ChartStore, assignments: &dyn backend::Kv) {
        loop {
            let due = self.estimator().next_deadline();
            tokio::time::sleep_until(due.into()).await;
            let estimates = self.estimator().estimates(Instant::now(), Timestamp::now());
            let Some(estimates) = estimates.filter(|estimates| !estimates.is_empty()) else { continue };
            // What is not written now is seen again: the next estimate is made of the next runs.
            let written = match store.put_metadata(&estimates).await {
                Ok(()) => announce_import(assignments, "estimated").await.map_err(|e| e.to_string()),
                Err(error) => Err(error.to_string()),
            };
            if let Err(error) = written {
                self.observer.problem(&format!(
                    "the weights of {} chambers are not written: {error}",
                    estimates.len()
                ));
            }
        }
    }
}

impl pipeline::Observer for Inside {
    fn alarm(&self, alarm: &Alarm) {
        self.observer.alarm(alarm);
    }

    fn run(&self, chamber: &Chamber, observed: Observed) {
        self.estimator().observe(chamber, observed.svids, observed.values, observed.duration);
    }

    fn committed(&self, chamber: &Chamber, position: Position) {
        self.observer.committed(chamber, position);
    }

    fn remark(&self, chamber: &Chamber, remark: &Remark) {
        self.observer.problem(&format!("{chamber}, chart {}: {}", remark.indicator, remark.text));
    }
}

#[async_trait]
impl Hooks for Inside {
    async fn on_assignment_changed(
        &self,
        added: Vec<OwnedPartition>,
        removed: Vec<Arc<str>>,
    ) -> Result<(), HookError> {
        for chamber in removed.iter().filter_map(|partition| Chamber::of_partition(partition)) {
            self.cache.forget(&chamber);
            self.estimator().forget(&chamber);
        }
        let added: Vec<Arc<str>> = added.into_iter().map(|owned| owned.partition).collect();
        self.observer.assignment(&added, &removed);
        Ok(())
    }

    async fn on_state_changed(&self, from: WorkerState, to: WorkerState) -> Result<(), HookError> {
        self.observer.state(from, to);
        Ok(())
    }

    async fn on_error(&self, problem: Problem) -> Result<(), HookError> {
        self.observer.problem(&problem.to_string());
        Ok(())
    }
}
