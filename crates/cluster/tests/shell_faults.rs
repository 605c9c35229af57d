//! Trouble between a worker and its backend: each kind, and what the worker makes of it.
#![allow(clippy::unwrap_used, reason = "helpers fail as the test does")]

mod fleet;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use fleet::{Seen, Told, Writer, builder, config, log, memory, publish, settings, settled, until};
use phalanx_cluster::Cluster;
use phalanx_cluster::backend::faults::{self, Fault, Faults, Op};
use phalanx_cluster::backend::{Backend, Kv};
use phalanx_cluster::core::{Config, Guard, WorkerState};

struct Troubled {
    /// Without trouble.
    backend: Arc<dyn Backend>,
    worker: Cluster,
    faults: Faults,
    seen: Seen,
    told: Told,
}

/// One worker behind faults, on a backend that others reach without them.
async fn troubled(backend: Arc<dyn Backend>, config: Config, count: usize) -> Troubled {
    let (faulty, faults) = faults::wrap(backend.clone());
    let (seen, told) = (Seen::default(), Told::default());
    let worker = builder(&faulty, config, count)
        .handler(Writer { seen: seen.clone() })
        .hooks(told.clone())
        .start()
        .await
        .unwrap();
    Troubled { backend, worker, faults, seen, told }
}

async fn cursor(backend: &Arc<dyn Backend>, partition: &str) -> serde_json::Value {
    let cursors = backend.bucket(&settings().cursors).await.unwrap();
    let entry = cursors.get(partition).await.unwrap().expect("there is a cursor");
    serde_json::from_slice(&entry.value).unwrap()
}

async fn struck(faults: &Faults, count: usize) {
    until("the fault strikes", async || (faults.struck().len() >= count).then_some(())).await;
}

async fn processed(worker: &Cluster, count: u64) {
    until("the commits", async || (worker.stats().processed >= count).then_some(())).await;
}

fn without(guard: Guard, config: Config) -> Config {
    Config { without: Some(guard), ..config }
}

/// A commit whose answer is lost: did the handler run again to find out?
async fn runs_after_a_lost_answer(config: Config) -> usize {
    let t = troubled(memory(), config, 1).await;
    settled(&[&t.worker], 1).await;
    let log = log(&t.backend).await;
    publish(&log, 0, "1").await;
    processed(&t.worker, 1).await;
    t.faults.plan(Op::Write, "0", Fault::LoseAnswer);
    publish(&log, 0, "2").await;
    publish(&log, 0, "3").await;
    until("the third", async || (t.seen.of("0").last().is_some_and(|last| last == "3")).then_some(())).await;
    assert_eq!(t.faults.struck().len(), 1);
    t.seen.of("0").iter().filter(|payload| *payload == "2").count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_is_lost_is_looked_up_and_not_processed_again() {
    assert_eq!(runs_after_a_lost_answer(config(1)).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_looking_it_up_it_would_be_processed_again() {
    assert_eq!(runs_after_a_lost_answer(without(Guard::SettleFirst, config(1))).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_lands_late_finds_its_own_repetition_and_changes_nothing() {
    let t = troubled(memory(), config(1), 1).await;
    settled(&[&t.worker], 1).await;
    let log = log(&t.backend).await;
    publish(&log, 0, "1").await;
    processed(&t.worker, 1).await;
    t.faults.plan(Op::Write, "0", Fault::Late);
    publish(&log, 0, "2").await;
    publish(&log, 0, "3").await;
    processed(&t.worker, 3).await;
    let before = cursor(&t.backend, "0").await;
    let landed = t.faults.land().await;
    // The guard is the comparison: the late swap is refused.
    assert!(matches!(landed[..], [Err(ref error)] if error.is_conflict()), "{landed:?}");
    assert_eq!(cursor(&t.backend, "0").await, before);
    assert_eq!(t.seen.of("0"), ["1", "2", "3"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_is_dropped_is_sent_again_without_processing_again() {
    let t = troubled(memory(), config(1), 1).await;
    settled(&[&t.worker], 1).await;
    let log = log(&t.backend).await;
    publish(&log, 0, "1").await;
    processed(&t.worker, 1).await;
    t.faults.plan(Op::Write, "0", Fault::Drop);
    publish(&log, 0, "2").await;
    processed(&t.worker, 2).await;
    assert_eq!((t.seen.of("0"), t.faults.struck().len()), (vec!["1".into(), "2".into()], 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_arrives_twice_counts_once() {
    let t = troubled(memory(), config(1), 1).await;
    settled(&[&t.worker], 1).await;
    let log = log(&t.backend).await;
    publish(&log, 0, "1").await;
    processed(&t.worker, 1).await;
    t.faults.plan(Op::Write, "0", Fault::Duplicate);
    publish(&log, 0, "2").await;
    publish(&log, 0, "3").await;
    processed(&t.worker, 3).await;
    assert_eq!(t.seen.of("0"), ["1", "2", "3"]);
    assert_eq!(t.faults.struck().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_delayed_beyond_its_time_out_does_not_hold_up_the_worker() {
    let t = troubled(memory(), config(1), 2).await;
    settled(&[&t.worker], 2).await;
    let log = log(&t.backend).await;
    publish(&log, 0, "1").await;
    processed(&t.worker, 1).await;
    t.faults.plan(Op::Write, "0", Fault::Delay);
    publish(&log, 0, "2").await;
    t.faults.held(1).await;
    publish(&log, 1, "other").await;
    until("the neighbour", async || (t.seen.of("1") == ["other"]).then_some(())).await;
    processed(&t.worker, 3).await;
    assert_eq!(t.seen.of("0"), ["1", "2"]);
    assert!(t.worker.may_write());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_ring_is_made_up_for_by_the_sweep() {
    let t = troubled(memory(), config(1), 1).await;
    settled(&[&t.worker], 1).await;
    let log = log(&t.backend).await;
    publish(&log, 0, "1").await;
    processed(&t.worker, 1).await;
    t.faults.plan(Op::Ring, "work.0", Fault::Drop);
    publish(&log, 0, "2").await;
    struck(&t.faults, 1).await;
    processed(&t.worker, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_a_replica_shows_too_short_is_read_again() {
    let t = troubled(memory(), config(1), 1).await;
    settled(&[&t.worker], 1).await;
    let log = log(&t.backend).await;
    publish(&log, 0, "1").await;
    processed(&t.worker, 1).await;
    t.faults.plan(Op::Read, "work.0", Fault::Stale);
    publish(&log, 0, "2").await;
    processed(&t.worker, 2).await;
    assert_eq!(t.seen.of("0"), ["1", "2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_map_whose_event_is_lost_is_read_because_the_leader_has_a_newer_one() {
    let backend = memory();
    let seen = Seen::default();
    let first = builder(&backend, config(2), 6).handler(Writer { seen: seen.clone() }).start().await.unwrap();
    let t = troubled(backend, config(2), 6).await;
    // The first map for two workers is told to the first, and its event is lost on the way to the second.
    t.faults.plan(Op::Event, "current", Fault::Drop);
    settled(&[&first, &t.worker], 6).await;
    assert_eq!(t.faults.struck().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_cut_off_stops_itself_and_goes_on_when_it_is_heard_again() {
    let t = troubled(memory(), config(1), 2).await;
    settled(&[&t.worker], 2).await;
    let log = log(&t.backend).await;
    publish(&log, 0, "hang-1").await;
    until("it runs", async || (t.worker.stats().received == 1).then_some(())).await;
    t.faults.cut();
    assert!(t.worker.wait_for(WorkerState::Degraded).await);
    assert!(!t.worker.may_write());
    publish(&log, 1, "meanwhile").await;
    t.faults.mend();
    until("the other one", async || (t.seen.of("1") == ["meanwhile"]).then_some(())).await;
    assert!(t.worker.may_write());
    assert_eq!(t.worker.id(), Some(0));
    until("what was dropped runs again", async || (t.worker.stats().received >= 3).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_was_cut_off_for_long_finds_its_partitions_taken_and_commits_nothing() {
    let backend = memory();
    let seen = Seen::default();
    let t = troubled(backend.clone(), config(2), 6).await;
    let other = builder(&backend, config(2), 6).handler(Writer { seen: seen.clone() }).start().await.unwrap();
    settled(&[&t.worker, &other], 6).await;
    t.faults.cut();
    let log = log(&backend).await;
    for partition in 0..6 {
        publish(&log, partition, "meanwhile").await;
    }
    until("the other does all", async || (seen.total() == 6).then_some(())).await;
    assert_eq!(t.seen.total(), 0);
    t.faults.mend();
    until("both serve again", async || {
        (!t.worker.assignment().is_empty() && !other.assignment().is_empty()).then_some(())
    })
    .await;
    settled(&[&t.worker, &other], 6).await;
    let ids: BTreeSet<_> = [t.worker.id(), other.id()].into();
    assert_eq!(ids, [Some(0), Some(1)].into());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_answer_is_lost_is_looked_up() {
    let backend = memory();
    let (faulty, faults) = faults::wrap(backend.clone());
    faults.plan(Op::Write, "defender-0", Fault::LoseAnswer);
    let seen = Seen::default();
    let worker = builder(&faulty, config(1), 2).handler(Writer { seen }).start().await.unwrap();
    settled(&[&worker], 2).await;
    assert_eq!((worker.id(), faults.struck().len()), (Some(0), 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_map_lies_in_parts_and_a_missing_part_keeps_the_old_map_until_it_is_there() {
    let backend = memory();
    let count = 25_000;
    let lazy = Config { log: false, ..config(1) };
    let worker = builder(&backend, lazy.clone(), count).start().await.unwrap();
    settled(&[&worker], count).await;
    let assignments = backend.bucket(&settings().assignments).await.unwrap();
    let parts = || parts(&assignments);
    let first = parts().await;
    assert!(!first.is_empty(), "a map of {count} partitions is larger than one value");
    worker.shutdown().await;

    // The next worker finds a map one part of which is gone, and serves nothing by it; then the part comes back.
    let lost = assignments.get(&first[0]).await.unwrap().unwrap();
    assignments.delete(&first[0], lost.revision).await.unwrap();
    let told = Told::default();
    let next = builder(&backend, lazy, count).hooks(told.clone()).start().await.unwrap();
    until("it says so", async || told.has(&format!("its part {} is missing", first[0])).then_some(())).await;
    assert!(next.assignment().is_empty());
    assignments.put(&first[0], lost.value).await.unwrap();
    settled(&[&next], count).await;
}

async fn parts(assignments: &Arc<dyn Kv>) -> Vec<String> {
    assignments.keys().await.unwrap().into_iter().filter(|key| phalanx_cluster::codec::is_part(key)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trouble_with_the_backend_is_told_but_not_shouted() {
    let t = troubled(memory(), config(1), 1).await;
    settled(&[&t.worker], 1).await;
    t.faults.cut();
    tokio::time::timeout(Duration::from_secs(10), t.worker.wait_for(WorkerState::Degraded)).await.unwrap();
    until("it is told", async || t.told.has("the connection is cut").then_some(())).await;
    let count = t.told.lines().iter().filter(|line| line.contains("the connection is cut")).count();
    assert!(count <= 5, "{count} times");
    t.faults.mend();
}
