//! What a backend says while servers hang, die and come back, and what is true afterwards.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::common::{Wire, connect};
use async_nats::jetstream;
use phalanx_cluster::backend::{
    AppendCondition, Backend, BucketConfig, Error, Kv, LogConfig, Retry, Watch, WatchEvent,
};
use phalanx_cluster_nats::{Config, Nats};
use phalanx_testkit::nats::{Cluster, Server};
use phalanx_testkit::wait::{end_of, until_async};

async fn next(watch: &mut Watch) -> WatchEvent {
    end_of("an event", watch.next()).await.expect("the watch has not ended")
}

async fn value(bucket: &dyn Kv) -> Option<bytes::Bytes> {
    bucket.get("key").await.ok()?.map(|entry| entry.value)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_to_a_hung_server_is_unknown_and_lands_later_unless_the_swap_keeps_it_out() {
    let server = Server::start().unwrap();
    let config = Config { timeout: Duration::from_millis(300), ..Config::new(server.url()) };
    let nats = Nats::connect(&config).await.unwrap();
    let bucket = nats.bucket(&BucketConfig::new("b")).await.unwrap();
    let first = bucket.create("key", "1".into()).await.unwrap();

    server.pause();
    let error = bucket.update("key", "2".into(), first).await.unwrap_err();
    assert!(matches!(error, Error::Unknown { .. }) && error.retry() == Retry::AfterReading, "{error:?}");
    let again = bucket.update("key", "3".into(), first).await.unwrap_err();
    assert!(matches!(again, Error::Unknown { .. }), "{again:?}");
    server.resume();

    // Both arrive: the first is applied, the second compares with a revision that is gone.
    let landed =
        until_async("the late write lands", async || value(&*bucket).await.filter(|value| value != "1"))
            .await;
    assert_eq!(landed, "2");
    assert!(bucket.update("key", "4".into(), first).await.unwrap_err().is_conflict());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_failed_for_want_of_a_connection_never_happens() {
    let server = Server::start().unwrap();
    let wire = Wire::to(&server.url()).await;
    let (nats, beside) = (connect(&wire.url()).await, connect(&server.url()).await);
    let config = BucketConfig::new("b");
    let (bucket, truth) = (nats.bucket(&config).await.unwrap(), beside.bucket(&config).await.unwrap());
    wire.cut();
    let mut failed = BTreeSet::new();
    let mut keys = (0..).map(|n| format!("key-{n}"));
    until_async("twenty writes fail", async || {
        let key = keys.next()?;
        match bucket.put(&key, "1".into()).await {
            Err(Error::Failed { .. }) => drop(failed.insert(key)),
            Err(Error::Unknown { .. }) | Ok(_) => {}
            Err(error) => panic!("{error:?}"),
        }
        (failed.len() == 20).then_some(())
    })
    .await;
    wire.mend();
    until_async("the connection is back", async || bucket.put("after", "1".into()).await.ok()).await;
    let keys = truth.keys().await.unwrap();
    assert!(keys.contains("after") && keys.is_disjoint(&failed), "{keys:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hung_server_is_noticed_within_seconds_and_writes_fail_at_once() {
    let server = Server::start().unwrap();
    let config = Config { timeout: Duration::from_millis(300), ..Config::new(server.url()) };
    let nats = Nats::connect(&config).await.unwrap();
    let bucket = nats.bucket(&BucketConfig::new("b")).await.unwrap();
    server.pause();
    // The connection stays open: only the pings tell. With the client's own interval this would take minutes.
    until_async("the hung server is given up", async || {
        matches!(bucket.put("key", "1".into()).await, Err(Error::Failed { .. })).then_some(())
    })
    .await;
    server.resume();
    until_async("the server is back", async || bucket.put("key", "2".into()).await.ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_made_anew_is_told_and_what_is_in_it_follows() {
    let server = Server::start().unwrap();
    let nats = connect(&server.url()).await;
    let config = BucketConfig::new("b");
    let bucket = nats.bucket(&config).await.unwrap();
    for key in ["a", "b", "c"] {
        bucket.put(key, "old".into()).await.unwrap();
    }
    let mut watch = bucket.watch().await.unwrap();
    while next(&mut watch).await != WatchEvent::Current {}

    let js = jetstream::new(async_nats::connect(server.url()).await.unwrap());
    js.delete_stream("KV_b").await.unwrap();
    let error = bucket.get("a").await.unwrap_err();
    assert!(matches!(&error, Error::Missing { .. }) && error.to_string().contains("KV_b"), "{error:?}");
    let error = bucket.put("a", "1".into()).await.unwrap_err();
    assert!(matches!(&error, Error::Missing { .. }), "{error:?}");
    assert!(matches!(bucket.watch().await, Err(Error::Missing { .. })));

    until_async("the bucket is made anew", async || nats.bucket(&config).await.ok()).await;
    // Further than the old one was: only its identity tells.
    let keys = ["a", "b", "c", "d", "e"];
    for key in keys {
        bucket.put(key, "new".into()).await.unwrap();
    }
    assert_eq!(next(&mut watch).await, WatchEvent::Resumed { replaced: true });
    let mut told = Vec::new();
    while told.len() < keys.len() {
        match next(&mut watch).await {
            WatchEvent::Put(entry) => told.push(entry.key),
            WatchEvent::Current => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(told, keys);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_goes_on_over_kill_9_of_its_server() {
    let mut server = Server::start().unwrap();
    let nats = connect(&server.url()).await;
    let log = nats.log(&LogConfig::new("runs", ["run.*"])).await.unwrap();
    let mut wake_ups = log.subscribe_wake_ups("run.a").await.unwrap();
    log.append("run.a", "1".into(), AppendCondition::NewId("1")).await.unwrap();
    assert!(wake_ups.recv().await);
    let before = log.info().await.unwrap();
    server.kill();
    server.restart().unwrap();
    // The same id again: whatever became of an earlier try, it is there once.
    until_async("an append", async || {
        log.append("run.a", "2".into(), AppendCondition::NewId("2")).await.ok()
    })
    .await;
    assert!(end_of("a wake-up", wake_ups.recv()).await);
    let messages = log.read("run.a", 1, 10).await.unwrap();
    assert_eq!(messages.iter().map(|message| message.sequence).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(log.info().await.unwrap().created, before.created);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_loss_of_the_leading_server_loses_nothing_and_no_read_is_stale() {
    let mut cluster = Cluster::start().unwrap();
    let config = Config { replicas: 3, ..Config::new(cluster.urls()) };
    let nats = until_async("the cluster takes connections", async || Nats::connect(&config).await.ok()).await;
    let other = Nats::connect(&config).await.unwrap();
    let bucket_config = BucketConfig::new("b");
    let bucket = nats.bucket(&bucket_config).await.unwrap();
    let reader = other.bucket(&bucket_config).await.unwrap();
    for n in 0..200_u8 {
        let revision = bucket.put("key", vec![n].into()).await.unwrap();
        let read = reader.get("key").await.unwrap().unwrap();
        assert_eq!((read.revision, read.value[0]), (revision, n), "a stale read");
    }
    let mut watch = reader.watch().await.unwrap();
    while next(&mut watch).await != WatchEvent::Current {}

    let addresses: Vec<async_nats::ServerAddr> =
        cluster.urls().split(',').map(|url| url.parse().unwrap()).collect();
    let js = jetstream::new(async_nats::connect(addresses).await.unwrap());
    let info = js.get_stream("KV_b").await.unwrap().get_info().await.unwrap();
    let leader = info.cluster.unwrap().leader.unwrap();
    cluster.named(&leader).unwrap().kill();

    let mut expected = Vec::new();
    for n in 0..10 {
        let key = format!("after-{n}");
        until_async("a key is created", async || match bucket.create(&key, "1".into()).await {
            Ok(_) | Err(Error::Conflict { .. }) => Some(()),
            Err(error) if error.retry() != Retry::Useless => None,
            Err(error) => panic!("{error:?}"),
        })
        .await;
        expected.push(key);
    }
    let mut told = Vec::new();
    while told.len() < expected.len() {
        match next(&mut watch).await {
            WatchEvent::Put(entry) => told.push(entry.key),
            WatchEvent::Resumed { replaced } => assert!(!replaced),
            WatchEvent::Current => {}
            WatchEvent::Delete { key, .. } => panic!("nobody deleted {key}"),
        }
    }
    assert_eq!(told, expected);
    let last = until_async("the last value", async || reader.get("key").await.ok()).await.unwrap();
    assert_eq!(last.value[0], 199);
}
