//! Ingests a run into the stores: a fleet processes it, or, in a data folder without a defender, this process.

use std::sync::Arc;

use phalanx_defender::Observer;
use phalanx_defender::app::{LocalRun, LocalStores};
use phalanx_defender::strategy::Strategy;
use serde_json::Value;

use super::{INGEST_TIMEOUT, PreparedRun};

/// Observer that prints problems to standard error.
struct ProblemPrinter;

impl Observer for ProblemPrinter {
    fn problem(&self, text: &str) {
        eprintln!("phalanx: {text}");
    }
}

/// Ingests the run, waits for its report, and closes the stores.
pub(super) async fn process(
    local: &LocalStores,
    strategy: impl FnOnce() -> anyhow::Result<Strategy>,
    run: &PreparedRun,
) -> anyhow::Result<Value> {
    let report = ingest(local, strategy, run).await;
    local.close().await;
    report
}

async fn ingest(
    local: &LocalStores,
    strategy: impl FnOnce() -> anyhow::Result<Strategy>,
    run: &PreparedRun,
) -> anyhow::Result<Value> {
    // An invalid strategy is an error before anything is stored.
    let strategy = if local.is_embedded() { Some(strategy()?) } else { None };
    let PreparedRun { chamber, context, timestamp, traces, .. } = run;
    let sent = LocalRun { chamber, context, timestamp: *timestamp, traces };
    let report = local.ingest(sent, strategy, Arc::new(ProblemPrinter), INGEST_TIMEOUT).await?;
    report.map(|report| report.to_json()).ok_or_else(|| run.timeout_error())
}
