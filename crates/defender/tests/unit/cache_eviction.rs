//! A cache that is too small for its chambers costs reads, never a row.

use std::sync::Arc;
use std::time::Instant;

use crate::fleet::{assert_as_recomputed, options, start, submit};
use phalanx_cluster::backend::{Backend, Embedded};
use phalanx_defender::store::{ChartStore, Sqlite};
use phalanx_defender::weights;
use phalanx_defender::worker::Options;
use phalanx_fab::Fab;
use phalanx_testkit::wait::until_async;

const CHAMBERS: usize = 90;
const RUNS: u64 = 40;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chambers_that_make_room_for_others_are_read_again_and_end_with_the_same_rows() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn ChartStore> = Arc::new(Sqlite::open(&folder.path().join("charts.db")).unwrap());
    let backend: Arc<dyn Backend> = Arc::new(Embedded::in_memory().unwrap());
    let fab = Fab::new(3, CHAMBERS);
    store.put_metadata(&weights::import(&fab.chambers_csv(), jiff::Timestamp::now()).unwrap()).await.unwrap();
    let defender = start(&backend, &store, Options { cache_mb: 1, ..options(1) }).await;
    for run in 0..RUNS {
        for number in 0..CHAMBERS {
            submit(&defender, &fab, number, run).await;
        }
    }
    let all = RUNS * CHAMBERS as u64;
    until_async("all are committed", async || (defender.handle().stats().processed >= all).then_some(()))
        .await;
    let cache = defender.cache().statistics(Instant::now());
    assert!(cache.evictions > 0, "{cache:?}");
    assert!(cache.bytes <= 1_000_000, "{cache:?}");
    assert!(cache.chambers < CHAMBERS as u64, "{cache:?}");
    for number in 0..CHAMBERS {
        assert_as_recomputed(&*store, &fab, number, RUNS).await;
    }
}
