//! Stores that a program opens to ingest one run or to import chambers, without a running defender.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use phalanx_cluster::backend::{self, StoreConfig, Stores};
use phalanx_cluster::core::Config;
use thiserror::Error;

use super::{ChartLocation, ConnectError, OpenBackend, OpenChartStore, OpenConnections};
use crate::Observer;
use crate::collector::{CollectError, Collector};
use crate::record::{Chamber, Metadata};
use crate::report::{Report, ReportError};
use crate::store::{ChartStore, StoreError};
use crate::strategy::{Holder, Strategy};
use crate::traces::EncodedTraces;
use crate::weights::announce_import;
use crate::worker::{Defender, DefenderError, Options};

/// Poll interval of the report of a run.
const REPORT_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A run that is not processed by a running defender.
#[derive(Debug, Error)]
pub enum LocalError {
    /// The run was not ingested.
    #[error(transparent)]
    Collect(#[from] CollectError),
    /// The worker for the run could not be started.
    #[error(transparent)]
    Defender(#[from] DefenderError),
    /// The report could not be read.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// The chart store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The coordination backend failed.
    #[error(transparent)]
    Backend(#[from] backend::Error),
}

/// A run to ingest.
#[derive(Clone, Copy, Debug)]
pub struct LocalRun<'a> {
    /// Chamber of the run.
    pub chamber: &'a Chamber,
    /// Id of the run.
    pub context: &'a str,
    /// Time of its completion.
    pub timestamp: Timestamp,
    /// Its traces.
    pub traces: &'a EncodedTraces,
}

/// Stores that this process has opened.
pub struct LocalStores {
    open: OpenConnections,
    store: Arc<dyn ChartStore>,
    stores: Stores,
    settings: StoreConfig,
}

impl LocalStores {
    /// Opens the chart store and the buckets and logs of the backend.
    pub async fn open(
        backend: OpenBackend,
        charts: &ChartLocation,
        settings: StoreConfig,
    ) -> Result<Self, ConnectError> {
        let charts = OpenChartStore::open(charts).await?;
        let stores = Stores::open(&*backend.backend(), &settings).await?;
        Ok(Self { store: charts.store(), open: OpenConnections { backend, charts }, stores, settings })
    }

    /// Returns whether the coordination is embedded, so that only this process can process runs.
    pub fn is_embedded(&self) -> bool {
        matches!(self.open.backend, OpenBackend::Embedded(_))
    }

    /// Stores chambers and announces them; `what` names their source.
    pub async fn import(&self, chambers: &[Metadata], what: &str) -> Result<(), LocalError> {
        self.store.put_metadata(chambers).await?;
        announce_import(&*self.stores.assignments, what).await?;
        Ok(())
    }

    /// Ingests a run and waits for its report; `None` after the time limit. With a strategy a worker of this process
    /// processes the run, and without one a fleet does.
    pub async fn ingest(
        &self,
        run: LocalRun<'_>,
        strategy: Option<Strategy>,
        observer: Arc<dyn Observer>,
        limit: Duration,
    ) -> Result<Option<Report>, LocalError> {
        // The run is stored before the worker starts, so that the first list of chambers includes its chamber.
        let collector = Collector::new(self.store.clone(), self.stores.log.clone())
            .announcing(self.stores.assignments.clone());
        let LocalRun { chamber, context, timestamp, traces } = run;
        let collected = collector.submit(chamber, context, timestamp, traces).await?;
        let worker = match strategy {
            Some(strategy) => Some(self.start_worker(strategy, observer).await?),
            None => None,
        };
        let report = self.wait_committed(chamber, context, collected.sequence);
        let report = tokio::time::timeout(limit, report).await;
        if let Some(worker) = worker {
            worker.shutdown().await;
        }
        report.ok().transpose()
    }

    /// Starts a worker that is the whole fleet.
    async fn start_worker(
        &self,
        strategy: Strategy,
        observer: Arc<dyn Observer>,
    ) -> Result<Defender, DefenderError> {
        let defaults = Options::default();
        let cluster =
            Config { fleet_size: Some(1), scale_window: Duration::from_secs(1), ..defaults.cluster };
        let options = Options { cluster, settings: self.settings.clone(), ..defaults };
        let (backend, strategy) = (self.open.backend.backend(), Arc::new(Holder::new(strategy)));
        Defender::start(backend, self.store.clone(), strategy, observer, options).await
    }

    /// Waits until the message at that sequence is committed, and returns its report.
    async fn wait_committed(
        &self,
        chamber: &Chamber,
        context: &str,
        sequence: u64,
    ) -> Result<Report, LocalError> {
        loop {
            let found = Report::find(&*self.store, &self.stores, chamber, context, Some(sequence)).await?;
            if let Some(report) = found {
                return Ok(report);
            }
            tokio::time::sleep(REPORT_POLL_INTERVAL).await;
        }
    }

    /// Closes the stores.
    pub async fn close(&self) {
        self.open.close().await;
    }
}
