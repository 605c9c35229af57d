//! From a run of the simulated fab to rows and alarms, on the embedded backend and an SQLite file.
#![allow(clippy::unwrap_used, reason = "helpers fail as the test does")]

mod fleet;

use std::sync::Arc;

use fleet::{assert_as_recomputed, chamber, options, start, submit, until};
use phalanx_cluster::backend::{Backend, Embedded};
use phalanx_defender::record::Outcome;
use phalanx_defender::store::{ChartStore, Sqlite};
use phalanx_defender::weights;
use phalanx_fab::Fab;

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
    until("all are committed", async || (defender.handle().stats().processed >= 400).then_some(())).await;
    for number in 0..8 {
        assert_as_recomputed(&*store, &fab, number, 50).await;
        let contexts = store.contexts(&chamber(&fab, number), 100).await.unwrap();
        assert!(contexts.iter().all(|one| one.outcome == Outcome::Processed));
    }
    let statistics = defender.cache().statistics(std::time::Instant::now());
    println!("measured: cache {statistics:?}");
    assert!(statistics.hit_rate > 0.95, "{statistics:?}");
}
