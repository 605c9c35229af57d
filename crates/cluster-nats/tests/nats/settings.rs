//! Streams and buckets are made as the protocol needs them, and others are refused.

use std::time::Duration;

use crate::common::{connect, invalid};
use async_nats::jetstream::stream::{
    Config as StreamConfig, DiscardPolicy, Info, RetentionPolicy, StorageType,
};
use async_nats::jetstream::{self, kv};
use futures_util::TryStreamExt as _;
use phalanx_cluster::backend::{Backend, BucketConfig, Error, LogConfig, StoreConfig, Stores};
use phalanx_cluster_nats::{Config, Nats};
use phalanx_testkit::nats::Server;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

async fn jetstream(server: &Server) -> jetstream::Context {
    jetstream::new(async_nats::connect(server.url()).await.unwrap())
}

async fn info(js: &jetstream::Context, stream: &str) -> Info {
    js.get_stream(stream).await.unwrap().get_info().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_a_fleet_has_made_can_be_removed_and_made_again() {
    let server = Server::start().unwrap();
    let nats = connect(&server.url()).await;
    let settings = StoreConfig::of("fleet");
    Stores::open(&nats, &settings).await.unwrap();
    nats.remove(&settings, &[]).await.unwrap();
    let left: Vec<String> = jetstream(&server).await.stream_names().try_collect().await.unwrap();
    assert_eq!(left, Vec::<String>::new());
    nats.remove(&settings, &[]).await.expect("what is not there is no error");
    Stores::open(&nats, &settings).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_a_fleet_needs_is_made_with_the_settings_of_the_design() {
    let server = Server::start().unwrap();
    let nats = connect(&server.url()).await;
    Stores::open(&nats, &StoreConfig::of("fleet")).await.unwrap();
    let js = jetstream(&server).await;

    let day = Duration::from_secs(24 * 60 * 60);
    for (bucket, history, ttl) in [
        ("phalanx-fleet-ids", 1, day),
        ("phalanx-fleet-heartbeats", 1, Duration::from_secs(30)),
        ("phalanx-fleet-assignments", 10, Duration::ZERO),
        ("phalanx-fleet-election", 1, Duration::ZERO),
        ("phalanx-fleet-cursors", 1, Duration::ZERO),
    ] {
        let config = info(&js, &format!("KV_{bucket}")).await.config;
        assert_eq!(config.max_messages_per_subject, history, "{bucket}");
        assert_eq!(config.max_age, ttl, "{bucket}");
        assert_eq!((config.storage, config.num_replicas), (StorageType::File, 1), "{bucket}");
        assert_eq!(config.description.as_deref(), Some("phalanx group fleet"), "{bucket}");
        // It is a bucket to other tools too.
        assert!(js.get_key_value(bucket).await.is_ok(), "{bucket}");
    }
    for (log, subject, age) in [
        ("phalanx-fleet-log", "phalanx.fleet.log.>", 7 * day),
        ("phalanx-fleet-dead-letters", "phalanx.fleet.dead-letters.>", Duration::ZERO),
    ] {
        let config = info(&js, log).await.config;
        assert_eq!(config.subjects, [subject]);
        assert_eq!(config.description.as_deref(), Some("phalanx group fleet"), "{log}");
        assert_eq!(
            (config.retention, config.discard),
            (RetentionPolicy::Limits, DiscardPolicy::New),
            "{log}"
        );
        assert_eq!((config.max_age, config.duplicate_window), (age, Duration::from_secs(120)), "{log}");
        assert!(config.allow_direct && config.storage == StorageType::File, "{log}");
    }

    // What is there as it should be is opened again.
    Stores::open(&connect(&server.url()).await, &StoreConfig::of("fleet")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn names_and_the_history_of_cursors_can_be_chosen() {
    let server = Server::start().unwrap();
    let nats = connect(&server.url()).await;
    let cursors = BucketConfig { history: 64, ..BucketConfig::new("other-cursors") };
    Stores::open(&nats, &StoreConfig { cursors, ..StoreConfig::of("fleet") }).await.unwrap();
    let js = jetstream(&server).await;
    assert_eq!(info(&js, "KV_other-cursors").await.config.max_messages_per_subject, 64);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_exists_with_other_settings_is_refused_with_both_values() {
    let server = Server::start().unwrap();
    let js = jetstream(&server).await;
    let bucket = kv::Config {
        bucket: "ids".to_owned(),
        history: 5,
        max_age: Duration::from_secs(30),
        storage: StorageType::Memory,
        ..Default::default()
    };
    js.create_key_value(bucket).await.unwrap();
    let stream = StreamConfig {
        name: "runs".to_owned(),
        subjects: vec!["run.>".to_owned()],
        retention: RetentionPolicy::WorkQueue,
        discard: DiscardPolicy::Old,
        ..Default::default()
    };
    js.create_stream(stream).await.unwrap();

    let nats = connect(&server.url()).await;
    let text = invalid(nats.bucket(&BucketConfig::new("ids")).await);
    for part in [
        "KV_ids",
        "history is 5, must be 1",
        "max age is 30s, must be 0ns",
        "storage is Memory, must be File",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let text = invalid(nats.log(&LogConfig::new("runs", ["run.*"])).await);
    for part in ["run.>", "run.*", "retention is WorkQueue, must be Limits", "discard is Old, must be New"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_that_another_client_made_alike_is_taken() {
    let server = Server::start().unwrap();
    let js = jetstream(&server).await;
    let bucket = kv::Config { bucket: "leases".to_owned(), history: 1, ..Default::default() };
    js.create_key_value(bucket).await.unwrap();
    let nats = connect(&server.url()).await;
    nats.bucket(&BucketConfig::new("leases")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn three_replicas_on_one_server_are_refused_with_the_reason() {
    let server = Server::start().unwrap();
    let nats = Nats::connect(&Config { replicas: 3, ..Config::new(server.url()) }).await.unwrap();
    let error = nats.bucket(&BucketConfig::new("b")).await.err().expect("refused").to_string();
    assert!(error.contains("replicas > 1 not supported"), "{error}");
    let text = invalid(Nats::connect(&Config { replicas: 2, ..Config::new(server.url()) }).await);
    assert!(text.contains("replicas are 2, must be 1 or 3"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_is_named() {
    let error = Nats::connect(&Config::new("nats://u:s3cret@127.0.0.1:1")).await.err().expect("nobody there");
    assert!(matches!(error, Error::Failed { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("127.0.0.1:1") && !text.contains("s3cret"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_take_the_largest_value_is_refused_with_both_sizes() {
    let server = Server::start_with("max_payload: 65536\n").unwrap();
    let text = invalid(Nats::connect(&Config::new(server.url())).await);
    assert!(text.contains("65536") && text.contains("1048576"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_jetstream_is_refused() {
    // The last word in a configuration counts.
    let server =
        Server::start_with("accounts { A: { users: [ { user: a, password: a } ] } }\nno_auth_user: a\n");
    let server = server.unwrap();
    let nats = connect(&server.url()).await;
    let error = nats.bucket(&BucketConfig::new("b")).await.err().expect("refused").to_string();
    assert!(error.contains("not enabled for account"), "{error}");
}

/// The old server is a line that says so: no real one of that age is at hand.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_too_old_is_refused_with_both_versions() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("nats://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        let info = r#"INFO {"server_id":"OLD","version":"2.10.29","proto":1,"max_payload":1048576,"headers":true,"jetstream":true}"#;
        client.write_all(format!("{info}\r\n").as_bytes()).await.unwrap();
        let mut buffer = [0; 4096];
        while let Ok(1..) = client.read(&mut buffer).await {
            client.write_all(b"PONG\r\n").await.unwrap();
        }
    });
    let text = invalid(Nats::connect(&Config::new(url)).await);
    assert!(text.contains("2.10.29") && text.contains("2.11"), "{text}");
}
