//! From a run of the simulated fab to rows and alarms, on the embedded backend and an SQLite file.

use std::sync::Arc;
use std::time::Duration;

use crate::fleet::{assert_as_recomputed, chamber, options, start, strategy, submit};
use phalanx_cluster::backend::{Backend, Embedded};
use phalanx_defender::record::Outcome;
use phalanx_defender::store::{ChartStore, Sqlite};
use phalanx_defender::weights;
use phalanx_defender::worker::Defender;
use phalanx_fab::Fab;
use phalanx_testkit::wait::until_async;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_become_the_rows_and_alarms_that_a_recomputation_gives() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn ChartStore> = Arc::new(Sqlite::open(&folder.path().join("charts.db")).unwrap());
    let backend: Arc<dyn Backend> = Arc::new(Embedded::in_memory().unwrap());
    let fab = Fab::new(1, 8);
    let imported = weights::import(&fab.chambers_csv(), jiff::Timestamp::now()).unwrap();
    store.put_metadata(&imported).await.unwrap();
    let defender = start(&backend, &store, options(1)).await;
    for run in 0..50 {
        for number in 0..8 {
            submit(&defender, &fab, number, run).await;
        }
    }
    until_async("all are committed", async || (defender.handle().stats().processed >= 400).then_some(()))
        .await;
    for number in 0..8 {
        assert_as_recomputed(&*store, &fab, number, 50).await;
        let contexts = store.contexts(&chamber(&fab, number), None, 100).await.unwrap();
        assert!(contexts.iter().all(|one| one.outcome == Outcome::Processed));
    }
    let statistics = defender.cache().statistics(std::time::Instant::now());
    println!("measured: cache {statistics:?}");
    assert!(statistics.hit_rate > 0.95, "{statistics:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_failed_is_tried_again_and_counts_where_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn ChartStore> = Arc::new(Sqlite::open(&folder.path().join("charts.db")).unwrap());
    let backend: Arc<dyn Backend> = Arc::new(Embedded::in_memory().unwrap());
    let good = options(1);
    let mut bad = good.clone();
    bad.cluster.heartbeat_interval = Duration::ZERO;
    let refused = Defender::start(backend.clone(), store.clone(), strategy(), Arc::new(()), bad).await;
    assert!(refused.is_err());

    let fab = Fab::new(1, 2);
    store.put_metadata(&weights::import(&fab.chambers_csv(), jiff::Timestamp::now()).unwrap()).await.unwrap();
    let defender = start(&backend, &store, good).await;
    submit(&defender, &fab, 0, 0).await;
    until_async("it is committed", async || (defender.handle().stats().processed == 1).then_some(())).await;
    let text = defender.handle().metrics().text();
    assert!(text.contains("defender_contexts_total{outcome=\"processed\"} 1"), "{text}");
}
