//! A run goes into what defenders share: a fleet processes it, or, in a folder that nobody has, a worker of this process.

use std::sync::Arc;
use std::time::Duration;

use phalanx_cluster::core::Config;
use phalanx_defender::collector::Collector;
use phalanx_defender::report::Report;
use phalanx_defender::strategy::{Holder, Strategy};
use phalanx_defender::worker::{Defender, Observer, Options};
use serde_json::Value;

use super::{LIMIT, LOOK, Sent};
use crate::place::Direct;
use crate::settings::places::Coordination;

/// Problems go to the person who waits.
struct Tell;

impl Observer for Tell {
    fn problem(&self, text: &str) {
        eprintln!("phalanx: {text}");
    }
}

/// Stores the run, tells its chamber, and waits for what becomes of it.
pub(super) async fn process(
    direct: &Direct,
    strategy: impl FnOnce() -> anyhow::Result<Strategy>,
    sent: &Sent,
) -> anyhow::Result<Value> {
    let answer = work(direct, strategy, sent).await;
    direct.close().await;
    answer
}

async fn work(
    direct: &Direct,
    strategy: impl FnOnce() -> anyhow::Result<Strategy>,
    sent: &Sent,
) -> anyhow::Result<Value> {
    let alone = matches!(direct.places.coordination, Coordination::Embedded(_));
    // Before anything is stored: a strategy that cannot be read stops it.
    let strategy = if alone { Some(strategy()?) } else { None };
    // Sent before the worker starts, it is in the list of chambers when that is read first.
    let collector = Collector::new(direct.store.clone(), direct.stores.log.clone())
        .announcing(direct.stores.assignments.clone());
    let collected = collector.submit(&sent.chamber, &sent.context, sent.timestamp, &sent.chunks).await?;
    let worker = match strategy {
        Some(strategy) => Some(worker(direct, strategy).await?),
        None => None,
    };
    let settled = tokio::time::timeout(LIMIT, settled(direct, sent, collected.sequence)).await;
    if let Some(worker) = worker {
        worker.shutdown().await;
    }
    match settled {
        Ok(report) => Ok(report?.to_json()),
        Err(_) => Err(sent.late()),
    }
}

/// One worker, for as long as one run takes.
async fn worker(direct: &Direct, strategy: Strategy) -> anyhow::Result<Defender> {
    let usual = Options::default();
    let cluster = Config { fleet_size: Some(1), scale_window: Duration::from_secs(1), ..usual.cluster };
    let options = Options { cluster, settings: direct.places.settings.clone(), ..Options::default() };
    let holder = Arc::new(Holder::new(strategy));
    let (backend, store) = (direct.meeting.backend(), direct.store.clone());
    Ok(Defender::start(backend, store, holder, Arc::new(Tell), options).await?)
}

/// What the message of that place came to, once it is committed.
async fn settled(direct: &Direct, sent: &Sent, sequence: u64) -> anyhow::Result<Report> {
    loop {
        let (store, stores) = (&*direct.store, &direct.stores);
        let report = Report::find(store, stores, &sent.chamber, &sent.context, Some(sequence)).await?;
        if let Some(report) = report {
            return Ok(report);
        }
        tokio::time::sleep(LOOK).await;
    }
}
