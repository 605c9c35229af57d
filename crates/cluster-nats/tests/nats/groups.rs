//! Groups on one NATS account: they share nothing, and one never uses what belongs to another.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use async_nats::jetstream;
use async_trait::async_trait;
use phalanx_cluster::backend::{AppendCondition, Backend as _, BucketConfig, LogConfig, StoreConfig, Stores};
use phalanx_cluster::core::Config;
use phalanx_cluster::{
    Delivery, Failure, FleetView, Handler, HookError, Hooks, Names, Problem, StartError, Worker,
};
use phalanx_cluster_nats::Nats;
use phalanx_testkit::nats::Server;
use phalanx_testkit::wait::until_async;

use crate::common::connect;

/// Payloads in the order of their processing.
#[derive(Clone, Default)]
struct Processed(Arc<Mutex<Vec<String>>>);

impl Processed {
    fn all(&self) -> BTreeSet<String> {
        self.0.lock().unwrap().iter().cloned().collect()
    }
}

#[async_trait]
impl Handler for Processed {
    async fn handle(&self, delivery: Delivery) -> Result<(), Failure> {
        self.0.lock().unwrap().push(String::from_utf8_lossy(&delivery.payload).into_owned());
        Ok(())
    }
}

#[derive(Clone, Default)]
struct Reported(Arc<Mutex<Vec<String>>>);

#[async_trait]
impl Hooks for Reported {
    async fn on_error(&self, problem: Problem) -> Result<(), HookError> {
        self.0.lock().unwrap().push(problem.to_string());
        Ok(())
    }
}

async fn start(nats: &Nats, stores: StoreConfig, processed: &Processed) -> Result<Worker, StartError> {
    start_reporting(nats, stores, processed, Reported::default()).await
}

async fn start_reporting(
    nats: &Nats,
    stores: StoreConfig,
    processed: &Processed,
    reported: Reported,
) -> Result<Worker, StartError> {
    Worker::builder(stores, Arc::new(nats.clone()))
        .partitions((0..4).map(|n| (n.to_string(), 1)).collect::<Vec<_>>())
        .config(Config { fleet_size: Some(1), ..Config::default() })
        .handler(processed.clone())
        .hooks(reported)
        .start()
        .await
}

/// Publishes one message to each partition and returns the payloads.
async fn publish(nats: &Nats, stores: &StoreConfig, what: &str) -> BTreeSet<String> {
    let log = nats.log(&stores.log).await.unwrap();
    let mut sent = BTreeSet::new();
    for partition in 0..4 {
        let payload = format!("{what} {partition}");
        let subject = stores.subjects.subject(&partition.to_string());
        log.append(&subject, payload.clone().into(), AppendCondition::None).await.unwrap();
        sent.insert(payload);
    }
    sent
}

/// Runs two groups on one account and checks that each processes exactly its own messages, with its own map and leader.
async fn run_side_by_side(one: StoreConfig, other: StoreConfig) {
    let server = Server::start().unwrap();
    let nats = connect(&server.url()).await;
    let (mine, theirs) = (Processed::default(), Processed::default());
    let first = start(&nats, one.clone(), &mine).await.unwrap();
    let second = start(&nats, other.clone(), &theirs).await.unwrap();
    let sent = publish(&nats, &one, "first").await;
    let sent_too = publish(&nats, &other, "second").await;
    until_async("both groups have processed their messages", async || {
        (mine.all().len() >= 4 && theirs.all().len() >= 4).then_some(())
    })
    .await;
    assert_eq!((mine.all(), theirs.all()), (sent, sent_too));
    for (config, worker) in [(&one, &first), (&other, &second)] {
        let fleet = FleetView::read(&Stores::open(&nats, config).await.unwrap()).await.unwrap();
        let names: Vec<_> = fleet.members.iter().map(|member| member.name.clone()).collect();
        assert_eq!(names, [Some(config.names.worker(phalanx_cluster::core::types::WorkerId(0)))]);
        assert_eq!(fleet.leader().map(|leader| leader.partitions), Some(4));
        assert_eq!(worker.id(), Some(0));
    }
    first.shutdown().await;
    assert_eq!(second.assignment().len(), 4, "the other group has not changed");
    second.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_applications_on_one_account_do_not_affect_each_other() {
    run_side_by_side(StoreConfig::of("invoices"), StoreConfig::of("parcels")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_groups_of_one_application_do_not_affect_each_other() {
    run_side_by_side(StoreConfig::of("orders-eu"), StoreConfig::of("orders-us")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_refuses_the_bucket_of_another_group_and_names_both_groups() {
    let server = Server::start().unwrap();
    let nats = connect(&server.url()).await;
    let invoices = StoreConfig::of("invoices");
    start(&nats, invoices.clone(), &Processed::default()).await.unwrap().shutdown().await;
    let parcels = StoreConfig { stable_ids: invoices.stable_ids.clone(), ..StoreConfig::of("parcels") };
    let refused = start(&nats, parcels, &Processed::default()).await.map(drop).unwrap_err().to_string();
    assert_eq!(
        refused,
        "bucket phalanx-invoices-ids belongs to group \"invoices\"; this is group \"parcels\": use the name of that \
         group, or other names"
    );
    let log = StoreConfig { log: invoices.log.clone(), ..StoreConfig::of("letters") };
    let refused = start(&nats, log, &Processed::default()).await.map(drop).unwrap_err().to_string();
    assert!(refused.starts_with("log phalanx-invoices-log belongs to group \"invoices\""), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_refuses_a_map_of_another_group_in_a_bucket_that_names_none() {
    let server = Server::start().unwrap();
    let nats = connect(&server.url()).await;
    let config = StoreConfig::of("invoices");
    let bucket = nats.bucket(&config.assignments).await.unwrap();
    bucket.put("current", r#"{"v":1,"group":"parcels","version":3}"#.into()).await.unwrap();
    let refused = start(&nats, config, &Processed::default()).await.map(drop).unwrap_err().to_string();
    assert!(
        refused.starts_with(
            "the map in bucket phalanx-invoices-assignments belongs to group \"parcels\"; this is group \"invoices\""
        ),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn buckets_and_logs_that_name_no_group_are_adopted_once_and_keep_their_settings() {
    let server = Server::start().unwrap();
    let nats = connect(&server.url()).await;
    let config = StoreConfig::of("invoices");
    // As a version without groups, or an operator, made them.
    for bucket in config.buckets() {
        let description = (bucket.name == config.cursors.name).then(|| "cursors of billing".to_owned());
        nats.bucket(&BucketConfig { description, ..bucket.clone() }).await.unwrap();
    }
    nats.log(&LogConfig { max_bytes: Some(1 << 30), ..config.log.clone() }).await.unwrap();

    let reported = Reported::default();
    let worker =
        start_reporting(&nats, config.clone(), &Processed::default(), reported.clone()).await.unwrap();
    until_async("the adoption is reported", async || (!reported.0.lock().unwrap().is_empty()).then_some(()))
        .await;
    worker.shutdown().await;
    assert_eq!(
        *reported.0.lock().unwrap(),
        [
            "bucket phalanx-invoices-ids, bucket phalanx-invoices-heartbeats, bucket phalanx-invoices-assignments, \
          bucket phalanx-invoices-election, bucket phalanx-invoices-cursors, log phalanx-invoices-log named no group and \
          belong to group \"invoices\" from now on"
        ]
    );
    let js = jetstream::new(async_nats::connect(server.url()).await.unwrap());
    let stream = async |name: &str| js.get_stream(name).await.unwrap().get_info().await.unwrap().config;
    let cursors = stream("KV_phalanx-invoices-cursors").await;
    assert_eq!(cursors.description.as_deref(), Some("cursors of billing; phalanx group invoices"));
    assert_eq!(stream("phalanx-invoices-log").await.max_bytes, 1 << 30);

    let silent = Reported::default();
    let worker = start_reporting(&nats, config, &Processed::default(), silent.clone()).await.unwrap();
    assert!(worker.wait_until(|status| status.assignment.len() == 4).await);
    worker.shutdown().await;
    assert_eq!(*silent.0.lock().unwrap(), Vec::<String>::new());
    assert_eq!(Names::described_group("cursors of billing; phalanx group invoices"), Some("invoices"));
}
