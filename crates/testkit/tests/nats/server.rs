//! The nats-server that tests get is a real one, and behaves like one when it dies.

use std::time::Duration;

use async_nats::jetstream::{self, kv};
use phalanx_testkit::nats::{Cluster, Server};

async fn jetstream(url: &str) -> jetstream::Context {
    let servers: Vec<async_nats::ServerAddr> =
        url.split(',').map(|url| url.parse().expect("an address")).collect();
    let client = async_nats::ConnectOptions::new()
        .retry_on_initial_connect()
        .reconnect_delay_callback(|_| Duration::from_millis(50))
        .connect(servers)
        .await
        .expect("the server takes connections");
    jetstream::ContextBuilder::new().timeout(Duration::from_secs(2)).build(client)
}

/// A cluster that has just started or lost a node refuses or leaves unanswered for a while: ask until it answers.
async fn until_ok<T, E: std::fmt::Debug>(mut ask: impl AsyncFnMut() -> Result<T, E>) -> T {
    let mut last = None;
    for _ in 0..120 {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => last = Some(error),
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    panic!("no answer in 30 s: {last:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_jetstream_value_survives_kill_9_and_restart() {
    let mut server = Server::start().unwrap();
    let config = kv::Config { bucket: "survivors".to_owned(), ..Default::default() };
    let revision = {
        let bucket = jetstream(&server.url()).await.create_key_value(config).await.unwrap();
        bucket.put("key", "value".into()).await.unwrap()
    };
    server.kill();
    server.restart().unwrap();
    let bucket = jetstream(&server.url()).await.get_key_value("survivors").await.unwrap();
    let entry = bucket.entry("key").await.unwrap().expect("the key is there");
    assert_eq!((entry.value.as_ref(), entry.revision), (b"value".as_ref(), revision));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_three_serves_on_after_the_loss_of_any_node() {
    let mut cluster = Cluster::start().unwrap();
    let js = jetstream(&cluster.urls()).await;
    let config = kv::Config { bucket: "replicated".to_owned(), num_replicas: 3, ..Default::default() };
    let bucket = until_ok(async || js.create_key_value(config.clone()).await).await;
    until_ok(async || bucket.put("before", "1".into()).await).await;

    // The hardest node to lose is the one that leads the bucket's stream.
    let leader =
        bucket.status().await.unwrap().info.cluster.and_then(|cluster| cluster.leader).expect("a leader");
    cluster.named(&leader).expect("one of our nodes").kill();

    until_ok(async || bucket.put("after", "2".into()).await).await;
    let before = until_ok(async || bucket.get("before").await).await;
    assert_eq!(before.as_deref(), Some(b"1".as_ref()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_server_hangs_and_a_continued_one_answers() {
    let server = Server::start().unwrap();
    let js = jetstream(&server.url()).await;
    server.pause();
    let hung = tokio::time::timeout(Duration::from_millis(300), js.query_account()).await;
    assert!(hung.is_err(), "a stopped server answered");
    server.resume();
    until_ok(async || js.query_account().await).await;
}

#[test]
fn a_server_that_refuses_its_configuration_says_why() {
    let error = Server::start_with("nonsense_option: {").unwrap_err().to_string();
    assert!(error.contains("nats-server failed"), "{error}");
}

#[test]
fn a_dropped_server_is_gone() {
    let server = Server::start().unwrap();
    let pid = server.id();
    drop(server);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn two_servers_at_once_do_not_meet() {
    let (one, two) = (Server::start().unwrap(), Server::start().unwrap());
    assert_ne!(one.url(), two.url());
    assert_ne!(one.name(), two.name());
}
