//! Trouble between a worker and its backend: each kind, and what the worker makes of it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::fleet::{Seen, Told, Writer, builder, config, log, memory, publish, settings, settled};
use phalanx_cluster::Worker;
use phalanx_cluster::backend::faults::{self, Fault, Faults, Op};
use phalanx_cluster::backend::{AppendCondition, Backend, Kv};
use phalanx_cluster::core::{Config, ProtocolRule, WorkerState};
use phalanx_testkit::wait::until_async;

struct Troubled {
    /// Without trouble.
    backend: Arc<dyn Backend>,
    worker: Worker,
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
    until_async("the fault strikes", async || (faults.occurred().len() >= count).then_some(())).await;
}

async fn processed(worker: &Worker, count: u64) {
    until_async("the commits", async || (worker.stats().processed >= count).then_some(())).await;
}

fn without(guard: ProtocolRule, mut config: Config) -> Config {
    assert!(config.disable_rule(guard), "this build can disable {guard:?}");
    config
}

/// What the handler ran, in order, when the second of three commits meets a fault.
async fn runs_when_a_commit_meets(fault: Fault, config: Config) -> (Vec<String>, Troubled) {
    let t = troubled(memory(), config, 1).await;
    settled(&[&t.worker], 1).await;
    let log = log(&t.backend).await;
    publish(&log, 0, "1").await;
    processed(&t.worker, 1).await;
    t.faults.inject(Op::Write, "0", fault);
    publish(&log, 0, "2").await;
    publish(&log, 0, "3").await;
    processed(&t.worker, 3).await;
    assert_eq!(t.faults.occurred().len(), 1);
    (t.seen.of("0"), t)
}

/// Whatever becomes of the answer to a commit, the cursor tells what became of the commit: the handler never runs again
/// to find out. Without that rule it would.
async fn assert_that_the_cursor_tells(fault: Fault) {
    let (runs, _) = runs_when_a_commit_meets(fault, config(1)).await;
    assert_eq!(runs, ["1", "2", "3"]);
    let (runs, _) =
        runs_when_a_commit_meets(fault, without(ProtocolRule::VerifyUnknownFirst, config(1))).await;
    assert_eq!(runs, ["1", "2", "2", "3"], "without the rule");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_is_lost_is_looked_up_and_not_processed_again() {
    assert_that_the_cursor_tells(Fault::LoseAnswer).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_is_dropped_is_sent_again_and_not_processed_again() {
    assert_that_the_cursor_tells(Fault::Drop).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_is_delayed_beyond_its_time_out_is_looked_up_and_not_processed_again() {
    assert_that_the_cursor_tells(Fault::Delay).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_lands_late_finds_its_own_repetition_and_changes_nothing() {
    assert_that_the_cursor_tells(Fault::Late).await;
    let (_, t) = runs_when_a_commit_meets(Fault::Late, config(1)).await;
    let before = cursor(&t.backend, "0").await;
    let landed = t.faults.apply_late_writes().await;
    assert!(matches!(landed[..], [Err(ref error)] if error.is_conflict()), "{landed:?}");
    assert_eq!(cursor(&t.backend, "0").await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_arrives_twice_counts_once() {
    let (runs, _) = runs_when_a_commit_meets(Fault::Duplicate, config(1)).await;
    assert_eq!(runs, ["1", "2", "3"]);
}

/// A notification arrives twice: how often is it processed?
async fn runs_of_a_notification_sent_twice(expect: AppendCondition<'_>) -> usize {
    let t = troubled(memory(), config(1), 1).await;
    settled(&[&t.worker], 1).await;
    let (faulty, faults) = faults::wrap(t.backend.clone());
    let log = log(&faulty).await;
    faults.inject(Op::Write, "work.0", Fault::Duplicate);
    log.append("work.0", "twice".into(), expect).await.unwrap();
    publish(&log, 0, "last").await;
    until_async("the last", async || t.seen.of("0").contains(&"last".to_owned()).then_some(())).await;
    assert_eq!(faults.occurred().len(), 1);
    t.seen.of("0").iter().filter(|payload| *payload == "twice").count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_notification_that_arrives_twice_is_processed_once_for_it_has_an_id() {
    assert_eq!(runs_of_a_notification_sent_twice(AppendCondition::NewId("0:twice")).await, 1);
    assert_eq!(runs_of_a_notification_sent_twice(AppendCondition::None).await, 2, "without an id");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delayed_request_does_not_hold_up_the_neighbours() {
    let t = troubled(memory(), config(1), 2).await;
    settled(&[&t.worker], 2).await;
    let log = log(&t.backend).await;
    publish(&log, 0, "1").await;
    processed(&t.worker, 1).await;
    t.faults.inject(Op::Write, "0", Fault::Delay);
    publish(&log, 0, "2").await;
    t.faults.wait_for_delayed(1).await;
    publish(&log, 1, "other").await;
    until_async("the neighbour", async || (t.seen.of("1") == ["other"]).then_some(())).await;
    processed(&t.worker, 3).await;
    assert!(t.worker.may_write());
}

/// A worker reads a cursor as it was before the last commit: what does it run?
async fn runs_after_a_stale_cursor(config: Config) -> Vec<String> {
    let (faulty, faults) = faults::wrap(memory());
    let seen = Seen::default();
    let start = |config| builder(&faulty, config, 1).handler(Writer { seen: seen.clone() }).start();
    // The commit must be the last write of the cursor, so the first worker does not mark it as released.
    let first = start(without(ProtocolRule::ReleasedOnLeave, self::config(1))).await.unwrap();
    settled(&[&first], 1).await;
    let log = log(&faulty).await;
    for payload in ["1", "2"] {
        publish(&log, 0, payload).await;
    }
    processed(&first, 2).await;
    first.shutdown().await;
    faults.inject(Op::Read, "0", Fault::Stale);
    publish(&log, 0, "3").await;
    let second = start(config).await.unwrap();
    processed(&second, 1).await;
    assert_eq!(faults.occurred().len(), 1);
    seen.of("0")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cursor_that_was_read_stale_is_not_taken_and_nothing_is_processed_again() {
    assert_eq!(runs_after_a_stale_cursor(config(1)).await, ["1", "2", "3"]);
    let blindly = runs_after_a_stale_cursor(without(ProtocolRule::TakeOverFirst, config(1))).await;
    assert_eq!(blindly, ["1", "2", "2", "3"], "without taking first");
}

/// By how much the take of a cursor grew over a cut of the connection.
async fn takes_over_a_cut(config: Config) -> u64 {
    let t = troubled(memory(), config, 1).await;
    settled(&[&t.worker], 1).await;
    let log = log(&t.backend).await;
    publish(&log, 0, "1").await;
    processed(&t.worker, 1).await;
    let take = async || cursor(&t.backend, "0").await["take"].as_u64().unwrap();
    let before = take().await;
    t.faults.disconnect();
    assert!(t.worker.wait_for(WorkerState::Degraded).await);
    publish(&log, 0, "2").await;
    t.faults.reconnect();
    processed(&t.worker, 2).await;
    take().await - before
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_cut_the_cursor_is_taken_anew() {
    assert_eq!(takes_over_a_cut(config(1)).await, 1);
    assert_eq!(
        takes_over_a_cut(without(ProtocolRule::NewTokenAfterFence, config(1))).await,
        0,
        "without the rule"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_ring_is_made_up_for_by_the_sweep() {
    let t = troubled(memory(), config(1), 1).await;
    settled(&[&t.worker], 1).await;
    let log = log(&t.backend).await;
    publish(&log, 0, "1").await;
    processed(&t.worker, 1).await;
    t.faults.inject(Op::WakeUp, "work.0", Fault::Drop);
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
    t.faults.inject(Op::Read, "work.0", Fault::Stale);
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
    t.faults.inject(Op::Event, "current", Fault::Drop);
    settled(&[&first, &t.worker], 6).await;
    assert_eq!(t.faults.occurred().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_cut_off_stops_itself_and_goes_on_when_it_is_heard_again() {
    let t = troubled(memory(), config(1), 2).await;
    settled(&[&t.worker], 2).await;
    let log = log(&t.backend).await;
    publish(&log, 0, "hang-1").await;
    until_async("it runs", async || (t.worker.stats().received == 1).then_some(())).await;
    t.faults.disconnect();
    assert!(t.worker.wait_for(WorkerState::Degraded).await);
    assert!(!t.worker.may_write());
    publish(&log, 1, "meanwhile").await;
    t.faults.reconnect();
    until_async("the other one", async || (t.seen.of("1") == ["meanwhile"]).then_some(())).await;
    assert!(t.worker.may_write());
    assert_eq!(t.worker.id(), Some(0));
    until_async("what was dropped runs again", async || (t.worker.stats().received >= 3).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_was_cut_off_for_long_finds_its_partitions_taken_and_commits_nothing() {
    let backend = memory();
    let seen = Seen::default();
    let t = troubled(backend.clone(), config(2), 6).await;
    let other = builder(&backend, config(2), 6).handler(Writer { seen: seen.clone() }).start().await.unwrap();
    settled(&[&t.worker, &other], 6).await;
    t.faults.disconnect();
    let log = log(&backend).await;
    for partition in 0..6 {
        publish(&log, partition, "meanwhile").await;
    }
    until_async("the other does all", async || (seen.total() == 6).then_some(())).await;
    assert_eq!(t.seen.total(), 0);
    t.faults.reconnect();
    until_async("both serve again", async || {
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
    faults.inject(Op::Write, "tests-0", Fault::LoseAnswer);
    let seen = Seen::default();
    let worker = builder(&faulty, config(1), 2).handler(Writer { seen }).start().await.unwrap();
    settled(&[&worker], 2).await;
    assert_eq!((worker.id(), faults.occurred().len()), (Some(0), 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_map_lies_in_parts_and_a_missing_part_keeps_the_old_map_until_it_is_there() {
    let backend = memory();
    let count = 25_000;
    let lazy = Config { consumes_log: false, ..config(1) };
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
    until_async("it says so", async || told.has(&format!("its part {} is missing", first[0])).then_some(()))
        .await;
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
    t.faults.disconnect();
    tokio::time::timeout(Duration::from_secs(10), t.worker.wait_for(WorkerState::Degraded)).await.unwrap();
    until_async("it is told", async || t.told.has("the connection is cut").then_some(())).await;
    let count = t.told.lines().iter().filter(|line| line.contains("the connection is cut")).count();
    assert!(count <= 5, "{count} times");
    t.faults.reconnect();
}

/// A stored number above which there is no other stands for a bug: the core refuses the step with an assertion.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_violated_assertion_is_reported_with_its_place_and_the_worker_restarts() {
    let t = troubled(memory(), config(1), 2).await;
    settled(&[&t.worker], 2).await;
    let log = log(&t.backend).await;
    publish(&log, 0, "1").await;
    publish(&log, 1, "1").await;
    processed(&t.worker, 2).await;
    let cursors = t.backend.bucket(&settings().cursors).await.unwrap();
    let valid = cursors.get("0").await.unwrap().expect("there is a cursor").value;
    let mut broken = cursor(&t.backend, "0").await;
    let committed = broken["sequence"].as_u64();
    broken["take"] = u64::MAX.into();
    broken["holder"]["incarnation"] = 1.into();
    cursors.put("0", broken.to_string().into()).await.unwrap();
    publish(&log, 0, "2").await;
    until_async("the violation is reported", async || {
        let reported = t.told.lines().into_iter().find(|line| line.contains("invariant violated at"));
        reported.filter(|line| line.contains("crates/cluster-core/src/types.rs:"))
    })
    .await;
    cursors.put("0", valid).await.unwrap();
    publish(&log, 1, "2").await;
    until_async("both partitions are served again", async || {
        let is_committed = cursor(&t.backend, "0").await["sequence"].as_u64() > committed;
        (is_committed && t.seen.of("1") == ["1", "2"]).then_some(())
    })
    .await;
    assert!(t.worker.metrics().text().contains("kind=\"invariant_violated\""));
}
