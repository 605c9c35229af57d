//! One message, processed by two workers: one that stood still in the middle, and its successor.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use phalanx_cluster::backend::{Backend as _, Embedded};
use phalanx_cluster::core::Position;
use phalanx_cluster::core::types::{FencingToken, Sequence, WriteTimestamp};
use phalanx_cluster::{Delivery, Handler as _};
use phalanx_defender::cache::Cache;
use phalanx_defender::names::alarm_log;
use phalanx_defender::notification::Notification;
use phalanx_defender::pipeline::{PATIENCE, Parts, Pipeline};
use phalanx_defender::record::Chamber;
use phalanx_defender::store::ChartStore;
use phalanx_defender::strategy::{Holder, Strategy};
use phalanx_defender::weights::{SharedEstimator, UPDATE_INTERVAL};
use phalanx_defender::{Metrics, Observer};

use super::line::{STRATEGY, at, traces};
use super::{Recomputed, stored};

/// Start of the test, in microseconds: rows that were written before it by weeks would be deleted.
static STARTED_US: LazyLock<u64> = LazyLock::new(|| Timestamp::now().as_microsecond().try_into().unwrap());

/// Whose rows are written last.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Order {
    /// There is only the successor.
    Alone,
    /// The predecessor wrote everything, and did not come to commit it.
    PredecessorFirst,
    /// The predecessor writes when the successor is two runs further.
    PredecessorLast,
}

async fn pipeline(store: &Arc<dyn ChartStore>, backend: &Embedded, strategy: &str) -> Pipeline {
    pipeline_told(store, backend, strategy, Arc::new(()), PATIENCE).await
}

/// A pipeline that waits so long for its store, and tells somebody what it sees.
pub(crate) async fn pipeline_told(
    store: &Arc<dyn ChartStore>,
    backend: &Embedded,
    strategy: &str,
    observer: Arc<dyn Observer>,
    patience: Duration,
) -> Pipeline {
    let parts = Parts {
        store: store.clone(),
        strategy: Arc::new(Holder::new(Strategy::parse(strategy).unwrap())),
        cache: Arc::new(Cache::new(Instant::now(), 10).unwrap()),
        alarms: backend.log(&alarm_log()).await.unwrap(),
        estimator: SharedEstimator::new(Instant::now(), UPDATE_INTERVAL),
        observer,
        patience,
        watchdog: phalanx_service::Watchdog::default(),
    };
    Pipeline::new(parts, Metrics::default().pipeline().clone())
}

pub(crate) fn place(run: u64) -> Position {
    Position { generation: 1, sequence: Sequence(10 * run) }
}

pub(crate) fn delivery(chamber: &Chamber, run: u64, take: u64) -> Delivery {
    let notification = Notification::new(chamber.clone(), &format!("run-{run}"), at(run as i64)).unwrap();
    let mut delivery = Delivery::sample(&chamber.to_string(), notification.to_json(), place(run));
    delivery.message_id = notification.context;
    delivery.committed = (run > 1).then(|| place(run - 1));
    delivery.fencing_token = FencingToken(take);
    delivery.write_timestamp = WriteTimestamp(*STARTED_US + 100 * run);
    delivery
}

/// Ten runs of a chamber. The seventh comes to the predecessor, too, which has another strategy: it raises another alarm,
/// and has another opinion of what the charts remember.
pub(crate) async fn rows_by(store: &Arc<dyn ChartStore>, order: Order) -> Recomputed {
    const TWICE: u64 = 7;
    let backend = Embedded::in_memory().unwrap();
    let chamber = Chamber::new("etch-01", "A").unwrap();
    let successor = pipeline(store, &backend, STRATEGY).await;
    let predecessor = pipeline(store, &backend, &STRATEGY.replace("ucl = 520", "ucl = 501")).await;
    for run in 1..=10 {
        let power = [500.0, 501.0, 502.0, 501.5, 499.0, 500.5, 503.0, 600.0, 601.0, 500.0][run as usize - 1];
        store.put_t_chart(&chamber, &format!("run-{run}"), &traces(power)).await.unwrap();
    }
    for run in 1..=10 {
        if run == TWICE && order == Order::PredecessorFirst {
            predecessor.handle(delivery(&chamber, TWICE, 1)).await.unwrap();
        }
        let take = if run < TWICE { 1 } else { 2 };
        let mut delivery = delivery(&chamber, run, take);
        delivery.ignore_cache = run == TWICE || run == 1;
        successor.handle(delivery).await.unwrap();
        successor.committed(&chamber.to_string(), place(run));
        if run == TWICE + 2 && order == Order::PredecessorLast {
            // It slept before its first write.
            predecessor.handle(self::delivery(&chamber, TWICE, 1)).await.unwrap();
        }
    }
    stored(&**store, &chamber).await.0
}
