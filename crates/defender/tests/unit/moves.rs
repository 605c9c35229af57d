//! Chambers that move between workers: what is stored is what one worker would have stored.

use std::sync::Arc;
use std::time::Instant;

use crate::fleet::{assert_as_recomputed, options, start, submit};
use phalanx_cluster::backend::{Backend, Embedded};
use phalanx_defender::store::{ChartStore, Sqlite};
use phalanx_defender::weights;
use phalanx_defender::worker::Defender;
use phalanx_fab::{BASELINE, Fab};
use phalanx_testkit::wait::until_async;

const CHAMBERS: usize = 8;

/// Sends these runs of every chamber and waits until all of them are committed.
async fn send(fab: &Fab, workers: &[&Defender], runs: std::ops::Range<u64>) {
    let processed = || workers.iter().map(|worker| worker.handle().stats().processed).sum::<u64>();
    let (before, expected) = (processed(), (runs.end - runs.start) * CHAMBERS as u64);
    for run in runs {
        for number in 0..CHAMBERS {
            submit(workers[0], fab, number, run).await;
        }
    }
    until_async("all are committed", async || (processed() >= before + expected).then_some(())).await;
}

/// Waits until a worker has that many chambers, and remembers no other.
async fn serves(worker: &Defender, chambers: impl Fn(usize) -> bool) -> usize {
    until_async("it serves its part", async || {
        let owned = worker.handle().assignment().len();
        let known = worker.cache().statistics(Instant::now()).chambers as usize;
        (chambers(owned) && known <= owned).then_some(owned)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chambers_that_move_while_they_learn_and_while_averages_run_end_with_the_same_rows() {
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn ChartStore> = Arc::new(Sqlite::open(&folder.path().join("charts.db")).unwrap());
    let backend: Arc<dyn Backend> = Arc::new(Embedded::in_memory().unwrap());
    let fab = Fab::new(1, CHAMBERS);
    store.put_metadata(&weights::import(&fab.chambers_csv(), jiff::Timestamp::now()).unwrap()).await.unwrap();

    let first = start(&backend, &store, options(1)).await;
    let learning = BASELINE / 2;
    send(&fab, &[&first], 0..learning).await;
    assert_eq!(first.cache().statistics(Instant::now()).chambers, CHAMBERS as u64);

    // In the middle of the baseline a second worker takes its part. What it takes leaves the first one's cache.
    first.handle().scale(Some(2)).await.unwrap();
    let second = start(&backend, &store, options(2)).await;
    let moved = serves(&second, |owned| owned > 0 && owned < CHAMBERS).await;
    serves(&first, |owned| owned == CHAMBERS - moved).await;
    send(&fab, &[&first, &second], learning..BASELINE + 12).await;
    assert!(second.handle().stats().processed > 0);

    // With running averages, the first one leaves: everything is the second one's.
    first.handle().scale(Some(1)).await.unwrap();
    first.shutdown().await;
    serves(&second, |owned| owned == CHAMBERS).await;
    let taken = second.cache().statistics(Instant::now());
    send(&fab, &[&second, &first], BASELINE + 12..60).await;
    let after = second.cache().statistics(Instant::now());
    let reads = after.misses - taken.misses;
    assert!((1..=CHAMBERS as u64).contains(&reads), "{reads} reads: at most one for each that came");

    for number in 0..CHAMBERS {
        assert_as_recomputed(&*store, &fab, number, 60).await;
    }
}
