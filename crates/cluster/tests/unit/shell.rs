//! Workers on the embedded backend: assignment, messages, hand-over, crashes, leaving.

use std::sync::Arc;
use std::time::Duration;

use crate::fleet::{Seen, Told, Writer, builder, config, log, memory, publish, settings, settled};
use phalanx_cluster::backend::{Backend, Embedded};
use phalanx_cluster::core::{Config, WorkerState};
use phalanx_cluster::{FilePartitions, Role, StartError, Worker};
use phalanx_testkit::wait::until_async;

async fn start(backend: &Arc<dyn Backend>, config: Config, count: usize, seen: &Seen, told: &Told) -> Worker {
    builder(backend, config, count)
        .handler(Writer { seen: seen.clone() })
        .hooks(told.clone())
        .start()
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_workers_share_the_partitions_and_every_message_is_committed_once_and_in_order() {
    let backend = memory();
    let (seen, told) = (Seen::default(), Told::default());
    let mut workers = Vec::new();
    for _ in 0..3 {
        workers.push(start(&backend, config(3), 30, &seen, &told).await);
    }
    settled(&workers.iter().collect::<Vec<_>>(), 30).await;
    let log = log(&backend).await;
    for n in 0..300 {
        publish(&log, n % 30, &format!("{n:04}")).await;
    }
    until_async("300 commits", async || {
        (workers.iter().map(|worker| worker.stats().processed).sum::<u64>() == 300).then_some(())
    })
    .await;
    assert_eq!(seen.total(), 300);
    for partition in 0..30 {
        let found = seen.of(&partition.to_string());
        assert_eq!(found.len(), 10);
        assert!(found.is_sorted(), "{found:?}");
    }
    assert_eq!(workers.iter().filter(|worker| worker.role() == Role::Leader).count(), 1);
    let mut ids: Vec<_> = workers.iter().filter_map(|worker| worker.id()).collect();
    ids.sort_unstable();
    assert_eq!(ids, [0, 1, 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_dropped_without_a_farewell_is_replaced_by_the_others() {
    let backend = memory();
    let (seen, told) = (Seen::default(), Told::default());
    let first = start(&backend, config(2), 10, &seen, &told).await;
    let second = start(&backend, config(2), 10, &seen, &told).await;
    settled(&[&first, &second], 10).await;
    let orphans = second.assignment();
    let log = log(&backend).await;
    drop(second);
    for partition in &*orphans {
        publish(&log, partition.parse().unwrap(), "after").await;
    }
    settled(&[&first], 10).await;
    until_async("what the dead one owned is processed", async || {
        (seen.total() == orphans.len()).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_takes_the_id_of_a_worker_that_leaves_and_nothing_moves() {
    let backend = memory();
    let (seen, told) = (Seen::default(), Told::default());
    let first = start(&backend, config(2), 10, &seen, &told).await;
    let second = start(&backend, config(2), 10, &seen, &told).await;
    settled(&[&first, &second], 10).await;
    let third = start(&backend, config(2), 10, &seen, &told).await;
    until_async("it stands by", async || (third.role() == Role::Standby).then_some(())).await;
    let (version, owned) = (first.status().map_version, second.assignment());
    second.shutdown().await;
    assert_eq!(second.state(), WorkerState::Shutdown);
    settled(&[&first, &third], 10).await;
    assert_eq!((third.status().map_version, third.assignment()), (version, owned));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaving_finishes_what_runs_and_the_next_worker_goes_on_after_it() {
    let backend = memory();
    let (seen, told) = (Seen::default(), Told::default());
    let worker = start(&backend, config(1), 1, &seen, &told).await;
    settled(&[&worker], 1).await;
    let log = log(&backend).await;
    publish(&log, 0, "slow-1").await;
    publish(&log, 0, "slow-2").await;
    until_async("it has begun", async || (worker.stats().received == 1).then_some(())).await;
    worker.shutdown().await;
    assert_eq!(seen.of("0"), ["slow-1"]);
    let next = start(&backend, config(1), 1, &seen, &told).await;
    until_async("the second one", async || (seen.total() == 2).then_some(())).await;
    assert_eq!(seen.of("0"), ["slow-1", "slow-2"]);
    drop(next);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_processed_becomes_a_dead_letter_and_the_partition_goes_on() {
    let backend = memory();
    let (seen, told) = (Seen::default(), Told::default());
    let fast = Config { process_timeout: Duration::from_millis(300), ..config(1) };
    let worker = start(&backend, fast, 5, &seen, &told).await;
    settled(&[&worker], 5).await;
    let log = log(&backend).await;
    for (partition, payload) in ["poison-1", "fail-1", "panic-1", "hang-1", "once-1"].iter().enumerate() {
        publish(&log, partition, payload).await;
        publish(&log, partition, "after").await;
    }
    until_async("the next ones", async || (seen.total() == 6).then_some(())).await;
    assert_eq!(seen.of("4"), ["once-1", "after"]);
    let dead = backend.log(&settings().dead_letters).await.unwrap();
    let letters: Vec<String> = dead.subjects().await.unwrap().into_keys().collect();
    assert_eq!(letters.len(), 4, "{letters:?}");
    let letter = dead.last(&letters[0]).await.unwrap().unwrap();
    let letter: serde_json::Value = serde_json::from_slice(&letter.payload).unwrap();
    assert_eq!((&letter["reason"], &letter["original"]), (&"it is poison".into(), &"poison-1".into()));
    let stats = worker.stats();
    assert_eq!((stats.dead_letters, stats.processed), (4, 6));
    for reason in ["it fails", "the handler panicked: as it was told to", "it took longer than 300ms"] {
        assert!(told.has(reason), "{reason}: {:?}", told.lines());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn states_are_told_in_order_and_each_only_once() {
    let backend = memory();
    let (seen, told) = (Seen::default(), Told::default());
    let worker = start(&backend, config(1), 3, &seen, &told).await;
    settled(&[&worker], 3).await;
    assert!(worker.wait_for(WorkerState::Stable).await);
    worker.shutdown().await;
    let lines = told.lines();
    let states: Vec<_> = lines.iter().filter_map(|line| line.split_once('>')).collect();
    assert!(states.windows(2).all(|pair| pair[0].1 == pair[1].0), "{states:?}");
    assert_eq!((states[0].0, states[states.len() - 1].1), ("Initialization", "Shutdown"));
    let (gained, lost) =
        (lines.iter().filter(|l| l.starts_with('+')), lines.iter().filter(|l| l.starts_with('-')));
    assert_eq!((gained.count(), lost.count()), (3, 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scaling_down_makes_a_standby_and_scaling_up_a_worker_again() {
    let backend = memory();
    let (seen, told) = (Seen::default(), Told::default());
    let first = start(&backend, config(2), 8, &seen, &told).await;
    let second = start(&backend, config(2), 8, &seen, &told).await;
    settled(&[&first, &second], 8).await;
    first.scale(Some(1)).await.unwrap();
    until_async("one is a standby", async || {
        [&first, &second].iter().any(|worker| worker.role() == Role::Standby).then_some(())
    })
    .await;
    settled(&[&first, &second], 8).await;
    first.scale(Some(2)).await.unwrap();
    until_async("both have an id", async || (first.id().is_some() && second.id().is_some()).then_some(()))
        .await;
    until_async("both own something", async || {
        (!first.assignment().is_empty() && !second.assignment().is_empty()).then_some(())
    })
    .await;
    let error = first.scale(Some(1000)).await.unwrap_err().to_string();
    assert_eq!(error, "the fleet size is 1000; it must be 1 to 100, the number of ids");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_come_from_a_file_and_are_read_again_on_demand() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("partitions");
    std::fs::write(&file, "a,3\nb\n").unwrap();
    let told = Told::default();
    let worker = builder(&memory(), Config { consumes_log: false, ..config(1) }, 0)
        .partitions(FilePartitions(file.clone()))
        .hooks(told.clone())
        .start()
        .await
        .unwrap();
    settled(&[&worker], 2).await;
    std::fs::write(&file, "a,3\nb\nc\n").unwrap();
    assert_eq!(worker.refresh_partitions().await.unwrap(), 3);
    settled(&[&worker], 3).await;
    std::fs::write(&file, "a.b\n").unwrap();
    assert!(worker.refresh_partitions().await.unwrap_err().to_string().contains("a.b"));
    assert_eq!(worker.assignment().len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_log_the_takes_of_a_partition_grow_with_every_owner() {
    let backend = memory();
    let assignment_alone = || Config { consumes_log: false, ..config(1) };
    let (first_told, second_told) = (Told::default(), Told::default());
    let first = builder(&backend, assignment_alone(), 2).hooks(first_told.clone()).start().await.unwrap();
    until_async("both are granted", async || {
        (first_told.has("+0 1") && first_told.has("+1 1")).then_some(())
    })
    .await;
    first.shutdown().await;
    assert!(first_told.has("-0") && first_told.has("-1"));
    let second = builder(&backend, assignment_alone(), 2).hooks(second_told.clone()).start().await.unwrap();
    until_async("both are granted anew", async || {
        (second_told.has("+0 2") && second_told.has("+1 2")).then_some(())
    })
    .await;
    assert!(second.may_write() && !first.may_write());
}

#[tokio::test]
async fn what_does_not_fit_together_is_refused_before_anything_is_opened() {
    let backend = memory();
    let seen = Seen::default();
    let slow = Config { heartbeat_interval: Duration::from_secs(4), ..config(1) };
    let error =
        builder(&backend, slow, 1).handler(Writer { seen: seen.clone() }).start().await.err().unwrap();
    assert!(error.to_string().contains("2s") && error.to_string().contains("12s"), "{error}");
    assert!(matches!(builder(&backend, config(1), 1).start().await, Err(StartError::NoHandler)));
    let alone = builder(&backend, Config { consumes_log: false, ..config(1) }, 1).handler(Writer { seen });
    assert!(matches!(alone.start().await, Err(StartError::NoLog)));
    let bad = builder(&backend, Config { consumes_log: false, ..config(1) }, 1)
        .partitions(vec![("a b".to_owned(), 1)]);
    assert!(bad.start().await.err().unwrap().to_string().contains("a b"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_is_made_anew_is_noticed_counted_and_read_from_its_beginning() {
    let embedded = Embedded::in_memory().unwrap();
    let backend: Arc<dyn Backend> = Arc::new(embedded.clone());
    let (seen, told) = (Seen::default(), Told::default());
    let worker = start(&backend, config(1), 1, &seen, &told).await;
    settled(&[&worker], 1).await;
    let first = log(&backend).await;
    publish(&first, 0, "1").await;
    publish(&first, 0, "2").await;
    until_async("two commits", async || (worker.stats().processed == 2).then_some(())).await;
    embedded.remove_log("work").await.unwrap();
    let second = log(&backend).await;
    publish(&second, 0, "3").await;
    until_async("the new one", async || (worker.stats().processed == 3).then_some(())).await;
    assert_eq!((seen.of("0"), worker.stats().logs_replaced), (vec!["1".into(), "2".into(), "3".into()], 1));
    assert!(told.has("is not the one that was read before"), "{:?}", told.lines());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_that_cannot_be_read_are_reported_and_stay_as_they_are() {
    let backend = memory();
    let (seen, told) = (Seen::default(), Told::default());
    let cursors = backend.bucket(&settings().cursors).await.unwrap();
    cursors.put("0", "{broken".into()).await.unwrap();
    let assignments = backend.bucket(&settings().assignments).await.unwrap();
    assignments.put("fleet-size", "[]".into()).await.unwrap();
    let worker = start(&backend, config(1), 2, &seen, &told).await;
    settled(&[&worker], 2).await;
    let log = log(&backend).await;
    publish(&log, 1, "good").await;
    until_async("the neighbour is processed", async || (seen.of("1") == ["good"]).then_some(())).await;
    until_async("both are reported", async || {
        (told.has("0 (cursors)") && told.has("fleet-size")).then_some(())
    })
    .await;
    assert_eq!(cursors.get("0").await.unwrap().unwrap().value, "{broken");
}
