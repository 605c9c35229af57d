//! A run goes into what defenders share: a fleet processes it, or, in a folder that nobody has, a worker of this process.

use std::sync::Arc;
use std::time::Duration;

use phalanx_cluster::core::Config;
use phalanx_defender::Observer;
use phalanx_defender::app::Coordination;
use phalanx_defender::collector::Collector;
use phalanx_defender::report::Report;
use phalanx_defender::strategy::{Holder, Strategy};
use phalanx_defender::worker::{Defender, Options};
use serde_json::Value;

use super::{INGEST_TIMEOUT, POLL_INTERVAL, PreparedRun};
use crate::target::LocalStores;

/// Observer that prints problems to standard error.
struct ProblemPrinter;

impl Observer for ProblemPrinter {
    fn problem(&self, text: &str) {
        eprintln!("phalanx: {text}");
    }
}

/// Stores the run, tells its chamber, and waits for what becomes of it.
pub(super) async fn process(
    local: &LocalStores,
    strategy: impl FnOnce() -> anyhow::Result<Strategy>,
    run: &PreparedRun,
) -> anyhow::Result<Value> {
    let answer = process_locally(local, strategy, run).await;
    local.close().await;
    answer
}

async fn process_locally(
    local: &LocalStores,
    strategy: impl FnOnce() -> anyhow::Result<Strategy>,
    run: &PreparedRun,
) -> anyhow::Result<Value> {
    let alone = matches!(local.settings.connections.coordination, Coordination::Embedded(_));
    // Before anything is stored: a strategy that cannot be read stops it.
    let strategy = if alone { Some(strategy()?) } else { None };
    // Sent before the worker starts, it is in the list of chambers when that is read first.
    let collector = Collector::new(local.store.clone(), local.stores.log.clone())
        .announcing(local.stores.assignments.clone());
    let collected = collector.submit(&run.chamber, &run.context, run.timestamp, &run.traces).await?;
    let worker = match strategy {
        Some(strategy) => Some(worker(local, strategy).await?),
        None => None,
    };
    let settled = tokio::time::timeout(INGEST_TIMEOUT, wait_committed(local, run, collected.sequence)).await;
    if let Some(worker) = worker {
        worker.shutdown().await;
    }
    match settled {
        Ok(report) => Ok(report?.to_json()),
        Err(_) => Err(run.timeout_error()),
    }
}

/// One worker, for as long as one run takes.
async fn worker(local: &LocalStores, strategy: Strategy) -> anyhow::Result<Defender> {
    let usual = Options::default();
    let cluster = Config { fleet_size: Some(1), scale_window: Duration::from_secs(1), ..usual.cluster };
    let options = Options { cluster, settings: local.settings.stores.clone(), ..Options::default() };
    let holder = Arc::new(Holder::new(strategy));
    let (backend, store) = (local.open.backend.backend(), local.store.clone());
    Ok(Defender::start(backend, store, holder, Arc::new(ProblemPrinter), options).await?)
}

/// What the message of that place came to, once it is committed.
async fn wait_committed(local: &LocalStores, run: &PreparedRun, sequence: u64) -> anyhow::Result<Report> {
    loop {
        let (store, stores) = (&*local.store, &local.stores);
        let report = Report::find(store, stores, &run.chamber, &run.context, Some(sequence)).await?;
        if let Some(report) = report {
            return Ok(report);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
