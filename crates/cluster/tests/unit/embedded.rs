//! What only the embedded backend promises: its data folder, and what survives in it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use phalanx_cluster::Role;
use phalanx_cluster::backend::{
    AppendCondition, Backend, BucketConfig, Embedded, Error, LogConfig, StoreConfig, Stores, WatchEvent,
};
use tempfile::tempdir;

use crate::fleet::{Seen, Writer, builder, config, settings};
use phalanx_testkit::wait::until_async;

#[tokio::test]
async fn a_second_process_is_told_who_has_the_folder() {
    let folder = tempdir().unwrap();
    let first = Embedded::open(folder.path()).unwrap();
    let error = Embedded::open(folder.path()).err().expect("refused").to_string();
    let pid = std::process::id().to_string();
    assert!(error.contains(&pid) && error.contains(&folder.path().display().to_string()), "{error}");
    first.close().await;
    Embedded::open(folder.path()).unwrap();
}

#[tokio::test]
async fn a_closed_folder_answers_nothing_and_says_so() {
    let folder = tempdir().unwrap();
    let backend = Embedded::open(folder.path()).unwrap();
    let bucket = backend.bucket(&BucketConfig::new("b")).await.unwrap();
    let mut watch = bucket.watch().await.unwrap();
    assert_eq!(watch.next().await, Some(WatchEvent::Current));
    backend.close().await;
    let error = bucket.put("key", "1".into()).await.unwrap_err();
    assert!(matches!(error, Error::Failed { .. }), "{error:?}");
    assert_eq!(watch.next().await, None);
}

#[tokio::test]
async fn values_messages_revisions_and_times_survive_a_restart() {
    let folder = tempdir().unwrap();
    let (bucket_config, log_config) = (BucketConfig::new("b"), LogConfig::new("l", ["l.*"]));
    let backend = Embedded::open(folder.path()).unwrap();
    let bucket = backend.bucket(&bucket_config).await.unwrap();
    let log = backend.log(&log_config).await.unwrap();
    bucket.put("key", "1".into()).await.unwrap();
    let entry = bucket.get("key").await.unwrap().unwrap();
    let sequence = log.append("l.a", "m".into(), AppendCondition::NewId("m1")).await.unwrap().sequence;
    let info = log.info().await.unwrap();
    backend.close().await;

    let backend = Embedded::open(folder.path()).unwrap();
    let bucket = backend.bucket(&bucket_config).await.unwrap();
    let log = backend.log(&log_config).await.unwrap();
    assert_eq!(bucket.get("key").await.unwrap(), Some(entry.clone()));
    assert_eq!(log.info().await.unwrap(), info);
    let again = log.append("l.a", "m".into(), AppendCondition::NewId("m1")).await.unwrap();
    assert_eq!((again.sequence, again.duplicate), (sequence, true));
    let revision = bucket.put("key", "2".into()).await.unwrap();
    assert!(revision > entry.revision);
    assert!(bucket.get("key").await.unwrap().unwrap().stored_at > entry.stored_at);
}

#[tokio::test]
async fn ids_heartbeats_and_lease_are_forgotten_when_the_folder_is_opened_and_revisions_go_on() {
    let folder = tempdir().unwrap();
    let backend = Embedded::open(folder.path()).unwrap();
    let stores = Stores::open(&backend, &StoreConfig::of("fleet")).await.unwrap();
    let mut last = Vec::new();
    for bucket in
        [&stores.stable_ids, &stores.heartbeats, &stores.election, &stores.assignments, &stores.cursors]
    {
        last.push(bucket.put("key", "1".into()).await.unwrap());
    }
    // A second worker of the same process opens them too, and loses nothing.
    let same = Stores::open(&backend, &StoreConfig::of("fleet")).await.unwrap();
    assert!(same.stable_ids.get("key").await.unwrap().is_some());
    backend.close().await;

    let backend = Embedded::open(folder.path()).unwrap();
    let stores = Stores::open(&backend, &StoreConfig::of("fleet")).await.unwrap();
    for bucket in [&stores.stable_ids, &stores.heartbeats, &stores.election] {
        assert_eq!(bucket.get("key").await.unwrap(), None);
        assert!(bucket.create("key", "2".into()).await.unwrap() > last[0]);
    }
    for bucket in [&stores.assignments, &stores.cursors] {
        assert!(bucket.get("key").await.unwrap().is_some());
    }
}

/// Moves everything that is stored an hour ahead, as if the wall clock had been set back by an hour since then.
fn set_wall_clock_back(folder: &Path) {
    let db = rusqlite::Connection::open(folder.join("coordination.db")).expect("the database");
    db.execute_batch(
        "UPDATE clock SET last = last + 3600000000;
         UPDATE entries SET stored_at = stored_at + 3600000000;
         UPDATE messages SET stored_at = stored_at + 3600000000;
         UPDATE logs SET created = created + 3600000000;",
    )
    .expect("the times");
}

#[tokio::test]
async fn stored_times_keep_growing_although_the_wall_clock_steps_back_between_two_processes() {
    const HOUR: u64 = 3_600_000_000;
    let folder = tempdir().unwrap();
    let (ids, log) = (StoreConfig::of("fleet").stable_ids, LogConfig::new("l", ["l.*"]));
    let backend = Embedded::open(folder.path()).unwrap();
    let first_log = backend.log(&log).await.unwrap().info().await.unwrap().created;
    // The newest of all stored values is one that opening the folder discards.
    let bucket = backend.bucket(&ids).await.unwrap();
    bucket.put("key", "1".into()).await.unwrap();
    let newest = bucket.get("key").await.unwrap().unwrap().stored_at + HOUR;
    backend.close().await;
    set_wall_clock_back(folder.path());

    let backend = Embedded::open(folder.path()).unwrap();
    let bucket = backend.bucket(&ids).await.unwrap();
    assert_eq!(bucket.get("key").await.unwrap(), None);
    bucket.put("key", "2".into()).await.unwrap();
    assert!(bucket.get("key").await.unwrap().unwrap().stored_at > newest);
    backend.remove_log("l").await.unwrap();
    assert!(backend.log(&log).await.unwrap().info().await.unwrap().created > first_log + HOUR);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn incarnations_epochs_and_versions_grow_although_the_wall_clock_steps_back_between_two_processes() {
    let folder = tempdir().unwrap();
    let mut before = (0, 0, 0);
    for _ in 0..3 {
        let embedded = Embedded::open(folder.path()).unwrap();
        let backend: Arc<dyn Backend> = Arc::new(embedded.clone());
        let maps = backend.bucket(&settings().assignments).await.unwrap();
        let writer = Writer { seen: Seen::default() };
        let worker = builder(&backend, config(1), 2).handler(writer).start().await.unwrap();
        let now = until_async("the worker leads and has written its epoch", async || {
            let status = worker.status();
            let incarnation = status.holder.filter(|_| status.role == Role::Leader)?.incarnation.0;
            let map = maps.get("current").await.unwrap()?;
            let map: serde_json::Value = serde_json::from_slice(&map.value).unwrap();
            let epoch = map["leaderEpoch"].as_u64()?;
            (epoch > before.1).then_some((incarnation, epoch, map["version"].as_u64()?))
        })
        .await;
        assert!(now.0 > before.0 && now.2 >= before.2, "from {before:?} to {now:?}");
        before = (now.0 + 3_600_000_000, now.1, now.2);
        worker.shutdown().await;
        embedded.close().await;
        set_wall_clock_back(folder.path());
    }
}

#[tokio::test]
async fn a_message_id_may_come_again_after_the_window() {
    let backend = Embedded::in_memory().unwrap();
    let config = LogConfig { duplicate_window: Duration::ZERO, ..LogConfig::new("l", ["l.*"]) };
    let log = backend.log(&config).await.unwrap();
    log.append("l.a", "1".into(), AppendCondition::NewId("m")).await.unwrap();
    let again = log.append("l.a", "2".into(), AppendCondition::NewId("m")).await.unwrap();
    assert_eq!((again.sequence, again.duplicate), (2, false));
}

#[tokio::test]
async fn a_log_that_is_full_by_bytes_refuses_until_messages_expire() {
    let backend = Embedded::in_memory().unwrap();
    let config = LogConfig {
        max_bytes: Some(10),
        max_age: Some(Duration::from_millis(100)),
        ..LogConfig::new("l", ["l.*"])
    };
    let log = backend.log(&config).await.unwrap();
    log.append("l.a", "12345678".into(), AppendCondition::None).await.unwrap();
    let error = log.append("l.a", "123".into(), AppendCondition::None).await.unwrap_err();
    assert!(error.to_string().contains("full at 10 bytes"), "{error}");
    tokio::time::timeout(Duration::from_secs(10), async {
        while log.append("l.a", "123".into(), AppendCondition::None).await.is_err() {}
    })
    .await
    .expect("room when the old message is gone");
}

#[tokio::test]
async fn a_database_that_cannot_be_written_says_that_it_did_not_happen() {
    let folder = tempdir().unwrap();
    let backend = Embedded::open(folder.path()).unwrap();
    let bucket = backend.bucket(&BucketConfig::new("b")).await.unwrap();
    let revision = bucket.put("key", "1".into()).await.unwrap();
    let intruder = rusqlite::Connection::open(folder.path().join("coordination.db")).unwrap();
    intruder.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = bucket.update("key", "2".into(), revision).await.unwrap_err();
    assert!(matches!(&error, Error::Failed { .. }) && error.to_string().contains("locked"), "{error:?}");
    intruder.execute_batch("ROLLBACK").unwrap();
    // Had it happened all the same, this revision would be gone.
    bucket.update("key", "3".into(), revision).await.unwrap();
}

#[tokio::test]
async fn a_watch_outlives_a_database_that_does_not_answer_for_a_while() {
    let folder = tempdir().unwrap();
    let backend = Embedded::open(folder.path()).unwrap();
    let bucket = backend.bucket(&BucketConfig::new("b")).await.unwrap();
    bucket.put("key", "1".into()).await.unwrap();
    let intruder = rusqlite::Connection::open(folder.path().join("coordination.db")).unwrap();
    intruder.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut watch = bucket.watch().await.unwrap();
    assert!(bucket.get("key").await.is_err(), "the watch asked before, and in vain");
    intruder.execute_batch("ROLLBACK").unwrap();
    let next = tokio::time::timeout(Duration::from_secs(10), watch.next()).await.expect("an event");
    assert!(matches!(next, Some(WatchEvent::Put(entry)) if entry.key == "key"));
}

#[tokio::test]
async fn a_database_of_a_later_format_is_refused_with_both_numbers() {
    let folder = tempdir().unwrap();
    let backend = Embedded::open(folder.path()).unwrap();
    backend.close().await;
    let db = rusqlite::Connection::open(folder.path().join("coordination.db")).unwrap();
    db.pragma_update(None, "user_version", 99).unwrap();
    drop(db);
    let error = Embedded::open(folder.path()).err().expect("refused").to_string();
    assert!(error.contains("format 99") && error.contains("up to 1"), "{error}");
}
