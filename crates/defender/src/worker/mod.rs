//! A defender: a worker of the fleet that runs the pipeline for the chambers it owns.

mod background;
mod hooks;
mod options;

use std::sync::Arc;
use std::time::Instant;

use futures_util::future::BoxFuture;
use phalanx_cluster::backend::{self, Backend, Kv, StoreKind};
use phalanx_cluster::{StartError, Worker, WorkerHandle};
use phalanx_service::Watchdog;
use thiserror::Error;
use tokio::task::JoinSet;

use self::hooks::EventForwarder;
pub use self::options::Options;
use crate::Observer;
use crate::cache::Cache;
use crate::collector::Collector;
use crate::pipeline::{self, Parts, Pipeline};
use crate::store::{ChartStore, StoreError};
use crate::strategy::Holder;
use crate::weights::{ChamberSource, SharedEstimator};

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
    /// Background tasks; they end with the defender.
    _background: JoinSet<()>,
}

impl Defender {
    /// Starts a defender on that backend and store. It also deletes rows of the store that are too old.
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
            let assignments: Arc<dyn Kv> =
                backend::open_bucket(&*backend, &settings.assignments, &settings.names).await?;
            let alarms = backend::open_log(&*backend, &options.alarms, &settings.names).await?;
            // The worker reports which stores it adopts; this one is part of the same upgrade.
            let _ = backend::adopt(&*backend, StoreKind::Log, &options.alarms.name, &settings.names).await;
            let notifications = backend::open_log(&*backend, &settings.log, &settings.names).await?;
            let watchdog = Watchdog::default();
            let estimator = SharedEstimator::new(Instant::now(), options.weight_update_interval);
            let parts = Parts {
                store: store.clone(),
                strategy: strategy.clone(),
                cache: cache.clone(),
                estimator: estimator.clone(),
                alarms,
                observer: observer.clone(),
                patience: pipeline::PATIENCE,
                watchdog: watchdog.clone(),
            };
            let pipeline = Pipeline::new(parts, options.metrics.pipeline().clone());
            let source = ChamberSource::new(store.clone(), assignments.clone(), options.weight_cache_ttl);
            let hooks = EventForwarder {
                cache: cache.clone(),
                estimator: estimator.clone(),
                observer: observer.clone(),
            };
            let mut builder = Worker::builder(settings, backend)
                .config(options.cluster)
                .subscriptions(options.subscriptions)
                .partitions(source)
                .handler(pipeline.clone())
                .hooks(hooks)
                .metrics(options.metrics.cluster().clone());
            if let Some((name, uid)) = &options.pod {
                builder = builder.pod(name, uid);
            }
            if let Some(election) = options.election {
                builder = builder.election(election);
            }
            let cluster = builder.start().await?;
            let mut background = JoinSet::new();
            background.spawn(background::refresh_after_imports(assignments.clone(), (*cluster).clone()));
            background.spawn(background::refresh_old_weights((*cluster).clone(), options.weight_cache_ttl));
            if let Some(file) = options.strategy_file {
                let (strategy, metrics) = (strategy.clone(), pipeline.metrics().clone());
                background.spawn(background::reload_strategy(file, strategy, metrics, observer.clone()));
            }
            background.spawn(background::write_estimates(estimator, store.clone(), assignments, observer));
            background.spawn(background::delete_expired_rows(store.clone()));
            let collector = Collector::new(store.clone(), notifications);
            Ok(Self {
                cluster,
                cache,
                store,
                strategy,
                pipeline,
                collector,
                watchdog,
                _background: background,
            })
        })
    }

    /// Returns the handle of the worker.
    pub fn handle(&self) -> &WorkerHandle {
        &self.cluster
    }

    /// Returns the cache.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Returns the chart store.
    pub fn store(&self) -> &Arc<dyn ChartStore> {
        &self.store
    }

    /// Returns the strategy in force.
    pub fn strategy(&self) -> &Arc<Holder> {
        &self.strategy
    }

    /// Returns the metrics of the pipeline.
    pub fn pipeline_metrics(&self) -> &pipeline::Metrics {
        self.pipeline.metrics()
    }

    /// Returns the collector of this defender.
    pub fn collector(&self) -> &Collector {
        &self.collector
    }

    /// Returns the watchdog, which notices messages that are stuck in the pipeline.
    pub fn watchdog(&self) -> &Watchdog {
        &self.watchdog
    }

    /// Shuts down gracefully.
    pub fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.cluster.shutdown().await;
        })
    }
}
