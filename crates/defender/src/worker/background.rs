//! Background tasks of a defender. Each runs until it is canceled.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use jiff::Timestamp;
use phalanx_cluster::WorkerHandle;
use phalanx_cluster::backend::Kv;

use crate::store::ChartStore;
use crate::strategy::{FileWatch, Holder, Reload};
use crate::weights::{SharedEstimator, announce_import, follow_imports};
use crate::{Observer, pipeline};

/// Poll interval of the strategy file.
const STRATEGY_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Delay before an ended watch of imports is opened again.
const WATCH_RETRY_DELAY: Duration = Duration::from_secs(1);
/// Interval between deletions of expired rows.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(600);

/// Reads the list of chambers again after every import.
pub(super) async fn refresh_after_imports(assignments: Arc<dyn Kv>, worker: WorkerHandle) {
    loop {
        let refresh = || async { drop(worker.refresh_partitions().await) };
        // The first refresh of the next watch includes imports that this one missed.
        let _ = follow_imports(&*assignments, refresh).await;
        tokio::time::sleep(WATCH_RETRY_DELAY).await;
    }
}

/// Reads the list of chambers again when its weights are too old, because a change in the store itself is not announced.
pub(super) async fn refresh_old_weights(worker: WorkerHandle, ttl: Duration) {
    loop {
        tokio::time::sleep(ttl).await;
        drop(worker.refresh_partitions().await);
    }
}

/// Applies every valid change of the strategy file. After an invalid one the current strategy stays in force.
pub(super) async fn reload_strategy(
    file: PathBuf,
    strategy: Arc<Holder>,
    metrics: pipeline::Metrics,
    observer: Arc<dyn Observer>,
) {
    let mut watch = FileWatch::new(file);
    loop {
        let shown = watch.path().display().to_string();
        match watch.look(SystemTime::now()) {
            Err(error) => observer.problem(&format!(
                "the strategy file {shown} cannot be read: {error}; version {} stays in force",
                strategy.current().version()
            )),
            Ok(None) => {}
            Ok(Some(text)) => match strategy.offer(&text) {
                Reload::Same => {}
                Reload::Loaded { from, to } => {
                    metrics.strategy_loaded();
                    observer.strategy(&from, &to);
                }
                Reload::Refused(error) => {
                    metrics.strategy_refused();
                    observer.problem(&format!(
                        "the strategy file {shown} is refused: {error}; version {} stays in force",
                        strategy.current().version()
                    ));
                }
            },
        }
        tokio::time::sleep(STRATEGY_POLL_INTERVAL).await;
    }
}

/// Writes estimates of weights when they are due.
pub(super) async fn write_estimates(
    estimator: SharedEstimator,
    store: Arc<dyn ChartStore>,
    assignments: Arc<dyn Kv>,
    observer: Arc<dyn Observer>,
) {
    loop {
        let due = estimator.lock().next_deadline();
        tokio::time::sleep_until(due.into()).await;
        let estimates = estimator.lock().estimates(Instant::now(), Timestamp::now());
        let Some(estimates) = estimates.filter(|estimates| !estimates.is_empty()) else { continue };
        // A failed write is not repeated: the next estimate is made of the next runs.
        let written = match store.put_metadata(&estimates).await {
            Ok(()) => announce_import(&*assignments, "estimated").await.map_err(|e| e.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = written {
            observer
                .problem(&format!("the weights of {} chambers are not written: {error}", estimates.len()));
        }
    }
}

/// Deletes expired rows, immediately and then periodically.
pub(super) async fn delete_expired_rows(store: Arc<dyn ChartStore>) {
    loop {
        // A failed deletion is repeated after the interval.
        while store.expire(Timestamp::now()).await.is_ok_and(|deleted| deleted > 0) {}
        tokio::time::sleep(EXPIRY_INTERVAL).await;
    }
}
